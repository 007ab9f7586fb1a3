"""Works on waiting runs: claims them, extends their leases, reads their letters.

The store decides who holds a run. A worker may die at any line: when its lease has ended, another
worker claims the run and continues from the log. A worker that was only paused may come back: the
store refuses its writes, and it drops the run.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal, get_args

from tailrace.core.errors import StorageBusy, StorageError
from tailrace.core.events import Recorded
from tailrace.ports import MAX_ATTEMPTS, Bus, Store, Subscription
from tailrace.runtime.agents.functions import AgentFunction, is_restartable
from tailrace.runtime.diagnostics import crash_points
from tailrace.runtime.diagnostics.log_fields import about, about_run, current_fields
from tailrace.runtime.diagnostics.metrics import Metrics
from tailrace.runtime.event_log import wakeups
from tailrace.runtime.event_log.outage import QUIET_SECONDS
from tailrace.runtime.event_log.pipeline import Pipeline
from tailrace.runtime.event_log.store_retry import patiently
from tailrace.runtime.event_log.whole_state import whole_state
from tailrace.runtime.tasks.chain import Chain, EndedRuns
from tailrace.runtime.tasks.inbox import UnreadLetters
from tailrace.runtime.tasks.task import begun_task, interrupt
from tailrace.runtime.workers import recovery
from tailrace.runtime.workers.claimed_run import ClaimedRun
from tailrace.runtime.workers.exits import ExitGuard
from tailrace.runtime.workers.row_joiner import RowJoiner
from tailrace.runtime.workers.watchdog import Watchdog

LEASE_SECONDS = 10.0
"""How long a run stays with a worker that does not extend its lease."""

AWAY_SECONDS = 600.0
"""How long a run waits for a store that is away before its worker drops it."""

POLL_SECONDS = 0.5
"""How often a worker looks for runs and letters without a hint."""

MAX_RUNS = 512
"""How many runs a worker works on at a time. Other runs wait, or another worker takes them.

An owner gets a slot only while it has fewer runs here than slots are free. So one owner has at most
half of the slots, the next at most half of the rest, and a newcomer finds a slot. Runs that wait
for people do not count. Each of them keeps its agent and its state in memory.
"""

CLAIM_AT_ONCE = 32

FREE_SLOT_SECONDS = 0.01
"""How long after a run's end a worker looks for another run, unless it has no free slot. The ends
of many runs share a look."""

RECENT_SECONDS = 0.1
"""A store that has answered within this time need not be asked whether it is there."""

FIRST_GO_SECONDS = 5.0
"""How long a parked run is reserved for its worker after a letter, at least."""

CHECK_AT_ONCE = 500
"""How many parked runs a worker checks each time it extends its leases."""

STOP_SECONDS = 5.0
"""How long a worker that stops may take to close and release its runs."""

logger = logging.getLogger("tailrace")

_Look = Literal["parked", "new", "live"]
_ALL: frozenset[_Look] = frozenset(get_args(_Look))
"""What a worker looks for: parked runs that a letter woke, runs to claim, letters of live runs."""


class Worker:
    """Claims waiting runs of its agents, and works on them until it is stopped."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        agents: Mapping[str, AgentFunction],
        *,
        name: str,
        pipeline: Pipeline | None = None,
        lease: float = LEASE_SECONDS,
        poll: float = POLL_SECONDS,
        max_runs: int = MAX_RUNS,
        max_attempts: int = MAX_ATTEMPTS,
        metrics: Metrics | None = None,
        ended: EndedRuns | None = None,
    ) -> None:
        self.name = name
        self._store = store
        self._ended = ended or EndedRuns(store)
        self._bus = bus
        self._agents = agents
        self._pipeline = pipeline or Pipeline(store, bus, patience=AWAY_SECONDS)
        self._lease = lease
        self._poll = poll
        self._max_runs = max_runs
        self._max_attempts = max_attempts
        self._metrics = metrics or Metrics()
        self._live: dict[str, ClaimedRun] = {}
        self._parked: dict[str, ClaimedRun] = {}
        self._going_on: set[str] = set()
        self._working: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._joiner = RowJoiner(store)
        self._awake = asyncio.Event()
        self._due: set[_Look] = set()
        self._hinted: set[str] = set()
        """Runs that may be new, or may have letters."""
        self._slot_freed: asyncio.TimerHandle | None = None
        self._subscription: Subscription | None = None
        self._watchdog: Watchdog | None = None
        self._exit_guard: ExitGuard | None = None
        self._draining = False
        self._drain_by = math.inf
        self._warned_at = -math.inf
        self._no_answer_since: float | None = None
        self._answered_at = -math.inf
        self._claim_lost_from = 0.0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def runs(self) -> list[str]:
        """The runs that it works on now, without parked runs."""
        return list(self._live)

    @property
    def parked(self) -> list[str]:
        """The runs that wait here for people, without a lease or a slot."""
        return list(self._parked)

    def start(self) -> None:
        """Start to look for work."""
        loop = asyncio.get_running_loop()
        self._loops = [
            loop.create_task(self._look(), name="worker"),
            loop.create_task(self._keep(), name="worker's leases"),
            loop.create_task(self._joiner.work(), name="worker's broom"),
        ]
        # The publisher calls it, so that a hint for this worker and its own `wake` are one look.
        self._subscription = self._bus.subscribe(wakeups.WORKERS)
        self._subscription.listen(self._hear)
        self._exit_guard = ExitGuard()
        self._watchdog = Watchdog(self._renew, self._agent_of, every=self._lease / 3)

    def wake(self, run_id: str | None = None) -> None:
        """Look for runs and letters now; with `run_id`, only as far as this run may need it."""
        if run_id is None:
            self._due |= _ALL
        else:
            self._hinted.add(run_id)
        self._awake.set()

    async def drain(self, grace: float) -> None:
        """Claim no more runs, and wait until the current runs have ended.

        Returns after `grace` seconds at the latest, counted from the first call, or at `hurry()`.
        """
        self._draining = True
        self._drain_by = min(self._drain_by, time.monotonic() + grace)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(self._drain_by - time.monotonic(), 0.0)):
                await self._idle.wait()

    def hurry(self) -> None:
        """End the wait of `drain`."""
        self._idle.set()

    async def stop(self) -> None:
        """Stop soon: restartable runs are released, the others end as failed."""
        self._draining = True
        for live in [*self._live.values(), *self._parked.values()]:
            if not live.was_called or is_restartable(self._agents[live.claim.agent]):
                live.release()
            else:
                live.interrupt()
        self.wake()
        # The leases are kept until the last run is closed.
        if self._working:
            await asyncio.wait(self._working, timeout=STOP_SECONDS)
        # The runs that are left wait for a store that is away. Their leases will end.
        left = [*self._loops, *self._working]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self._loops = []
        if self._subscription is not None:
            self._subscription.close()
        if self._watchdog is not None:
            self._watchdog.stop()
        if self._exit_guard is not None:
            self._exit_guard.close()

    def _hear(self, hints: list[Recorded]) -> None:
        for hint in hints:  # an empty list means lost hints; the next poll finds the work
            self.wake(hint.event.task_id)

    async def _look(self) -> None:
        """Claim waiting runs and read letters, after each hint and every `poll` seconds.

        A hint names its run, so that a new run costs the others nothing.
        """
        poll_at = -math.inf
        while True:
            self._awake.clear()
            due = self._due | {self._look_for(run_id) for run_id in self._hinted}
            self._due, self._hinted = set(), set()
            if time.monotonic() >= poll_at:
                due, poll_at = set(_ALL), time.monotonic() + self._poll
            try:
                began = time.monotonic()
                if "parked" in due:
                    await self._unpark()
                self._note_late_answer(began)
                if "new" in due:
                    await self._claim()
                began = time.monotonic()
                if due - {"new"}:
                    await self._read_letters()
                    await self._park()
                self._note_late_answer(began)
            except StorageError as error:
                self._note_no_answer()
                self._warn("cannot look for runs", error)
            except Exception:
                logger.exception("worker %s failed to look for runs", self.name)
            with suppress(TimeoutError):
                async with asyncio.timeout(poll_at - time.monotonic()):
                    await self._awake.wait()

    def _look_for(self, run_id: str) -> _Look:
        """Which look finds what a hint means."""
        if run_id in self._live:
            return "live"
        return "parked" if run_id in self._parked else "new"

    async def _claim(self) -> None:
        free = self._max_runs - len(self._live)
        if free <= 0 or self._draining:
            return
        lost = await self._may_claim_lost()
        # Not all at once: the share of an owner becomes smaller with each run.
        limit = min(max(free // 2, 1), CLAIM_AT_ONCE)
        agents, held = list(self._agents), list(self._live)
        claims = await self._store.claim(self.name, agents, self._lease, limit, held, free, lost)
        self._answered_at = time.monotonic()
        self._metrics.claims += len(claims)
        self._metrics.takeovers += sum(claim.attempt > 1 and claim.lost for claim in claims)
        if claims:
            crash_points.point("claim.after")
            self._idle.clear()
        for claim in claims:
            if (late := self._parked.pop(claim.run_id, None)) is not None:
                late.lose()  # its reserved time is over
            live = self._live[claim.run_id] = ClaimedRun(claim, self._is_from_outside)
            task = asyncio.get_running_loop().create_task(self._work(live), name=claim.run_id)
            self._working.add(task)
            task.add_done_callback(self._working.discard)
        if len(claims) == limit:
            self._look_for_new()  # there may be more

    def _look_for_new(self) -> None:
        if self._slot_freed is not None:
            self._slot_freed.cancel()
            self._slot_freed = None
        self._due.add("new")
        self._awake.set()

    def _is_from_outside(self, error: BaseException) -> bool:
        return self._exit_guard is not None and self._exit_guard.is_from_outside(error)

    def _warn(self, what: str, error: StorageError) -> None:
        """Log an error of the store, unless the last such line is young: the next look fails, too.

        `event_log.outage` logs a store that is away.
        """
        now = time.monotonic()
        if not isinstance(error, StorageBusy) and now - self._warned_at >= QUIET_SECONDS:
            self._warned_at = now
            logger.warning("worker %s %s: %s", self.name, what, error)

    def _note_no_answer(self) -> None:
        if self._no_answer_since is None:
            self._no_answer_since = time.monotonic()

    async def _may_claim_lost(self) -> bool:
        """Wait for an answer of the store; whether workers had the time to extend their leases.

        While the store is away, leases end although their workers live. So workers claim no lost
        run until each worker has had two chances to extend. A claim is sent only after the store
        has answered: a late claim could take effect without a worker that knows of it.
        """
        had_no_answer = self._no_answer_since is not None
        if had_no_answer or time.monotonic() - self._answered_at > RECENT_SECONDS:
            self._note_no_answer()
            await (self._store.check() if had_no_answer else self._store.woken(self.name))
            since, self._no_answer_since = self._no_answer_since, None
            if since is not None:
                self._note_late_answer(since)
        return time.monotonic() >= self._claim_lost_from

    def _note_late_answer(self, since: float) -> None:
        """Hold claims of lost runs back if the answer that has just come was late."""
        now = time.monotonic()
        if now - since > self._lease / 2:
            self._claim_lost_from = now + self._lease * 2 / 3

    async def _read_letters(self) -> None:
        if self._live:
            found = await self._store.letters(list(self._live))
            for run_id, letters in found.items():
                if (live := self._live.get(run_id)) is not None:
                    live.take(letters)

    async def _park(self) -> None:
        """Give up the leases and slots of runs that wait for people.

        Their agents stay in memory. A letter wakes a run, which is reserved for this worker first.
        """
        waiting = [live for live in self._live.values() if live.waits_for_people]
        if not waiting:
            return
        claims = [(live.claim.run_id, live.claim.epoch, live.last_letter) for live in waiting]
        first_go = max(self._lease, FIRST_GO_SECONDS)
        parked = await self._store.park(self.name, claims, first_go)
        crash_points.point("park.after")
        for live in waiting:
            run_id = live.claim.run_id
            if run_id in parked and self._live.get(run_id) is live:
                self._parked[run_id] = self._live.pop(run_id)
                if not live.waits_for_people:
                    self._going_on.add(run_id)
        if not self._live:
            self._idle.set()
        if parked:
            self._look_for_new()  # there are free slots

    async def _unpark(self) -> None:
        """Take back parked runs that a letter woke, or that continue without a letter."""
        if not self._parked:
            return
        woken = await self._store.woken(self.name) | self._going_on
        self._going_on.clear()
        back = [self._parked.pop(run_id) for run_id in woken if run_id in self._parked]
        if back:
            self._idle.clear()
            self._live |= {live.claim.run_id: live for live in back}
            pairs = [(live.claim.run_id, live.claim.epoch) for live in back]
            self._drop(back, await self._store.extend(self.name, pairs, self._lease))

    def _waits(self, run_id: str) -> None:
        """React to an agent that begins to wait for a letter, or continues."""
        live = self._parked.get(run_id)
        if live is not None and not live.waits_for_people:
            self._going_on.add(run_id)
        self.wake(run_id)

    async def _keep(self) -> None:
        """Extend the leases three times as often as needed, so that two failures cost nothing.

        A run stays here until the store reports that another worker has it. A lease that ended
        while the store was away is extended when it is back: the epoch keeps a second writer out.
        """
        while True:
            await asyncio.sleep(self._lease / 3)
            held = list(self._live.values())
            try:
                lost = await self._extend()
                await self._check_parked()
                self._drop(held, lost)
            except StorageError as error:
                self._warn("cannot extend its leases", error)
            except Exception:
                logger.exception("worker %s failed to extend its leases", self.name)

    def _drop(self, held: list[ClaimedRun], lost: set[str]) -> None:
        for live in held:
            # A run that ended or was released meanwhile has no lease, and may have left.
            is_here = live.claim.run_id in lost and self._live.get(live.claim.run_id) is live
            if is_here and not (live.has_ended or live.is_released):
                self._metrics.lost_runs += 1
                logger.warning("another worker has taken %s", live, extra=about(live.log_fields()))
                live.lose()

    async def _extend(self) -> set[str]:
        """Extend the leases of all runs; returns the runs that are lost."""
        pairs = [(live.claim.run_id, live.claim.epoch) for live in list(self._live.values())]
        return await self._store.extend(self.name, pairs, self._lease) if pairs else set()

    async def _renew(self) -> None:
        """Extend all leases on the watchdog's event loop, also of runs that a letter woke."""
        await self._extend()
        woken = await self._store.woken(self.name) if self._parked else set()
        found = [live for run_id in woken if (live := self._parked.get(run_id)) is not None]
        if found:
            pairs = [(live.claim.run_id, live.claim.epoch) for live in found]
            await self._store.extend(self.name, pairs, self._lease)

    async def _check_parked(self) -> None:
        """Drop parked runs that another process took or ended; some at a time."""
        some = list(self._parked)[:CHECK_AT_ONCE]
        heads = await self._store.heads(some) if some else {}
        for run_id in some:
            live = self._parked.pop(run_id, None)
            if live is None:
                continue
            self._parked[run_id] = live  # behind the others
            head = heads.get(run_id)
            if head is None or head.ended or head.epoch != live.claim.epoch:
                live.lose()

    def _agent_of(self, task: asyncio.Task[object] | None) -> str | None:
        """The agent whose own task this is, if any."""
        name = task.get_name() if task is not None else ""
        live = self._live.get(name) or self._parked.get(name)
        return live.claim.agent if live is not None else None

    async def _work(self, live: ClaimedRun) -> None:
        run_id = live.claim.run_id
        current_fields.set(live.log_fields)
        try:
            await self._prepare(live)
            await live.finish()
            if live.is_released:
                crash_points.point("release.before")
                await self._store.release(run_id, live.claim.epoch)
            elif live.has_ended:
                await self._settle(live)
        except StorageError as error:
            # The next worker of the run continues from the log.
            logger.warning("worker %s dropped %s: %s", self.name, live, error)
        except Exception:
            logger.exception("worker %s dropped %s", self.name, live)
        finally:
            if self._live.get(run_id) is live:
                del self._live[run_id]
            if self._parked.get(run_id) is live:
                del self._parked[run_id]
            live.leave()
            if not self._live:
                self._idle.set()
            if len(self._live) + 1 >= self._max_runs:
                self._look_for_new()
            elif self._slot_freed is None:
                loop = asyncio.get_running_loop()
                self._slot_freed = loop.call_later(FREE_SLOT_SECONDS, self._look_for_new)

    async def _prepare(self, live: ClaimedRun) -> None:
        """Read the run's state, and start, continue or end the run."""
        claim, store = live.claim, self._store
        is_last = claim.attempt > self._max_attempts
        info = await patiently(lambda: store.info(claim.run_id))
        thread_id = info.thread_id if info is not None else ""
        if is_last:
            state = await recovery.closable_state(store, claim, thread_id)
        else:
            state = await whole_state(store, claim.run_id, claim.last_seq)
        emitter = self._pipeline.writer(claim.run_id, claim.epoch, state)
        extra = about_run(claim.run_id, claim.agent, thread_id)
        emitter.on_many_batches = lambda run_id: self._joiner.join(run_id, extra)
        emitter.earlier = Chain(store, info, state, self._ended).earlier
        emitter.blobs = store
        emitter.owner = info.owner if info is not None else ""
        emitter.inputs = UnreadLetters(
            lambda number: self._acknowledge(claim.run_id, number),
            lambda: self._waits(claim.run_id),
        )
        live.begin(begun_task(emitter, emitter.run_id))
        letters = await patiently(lambda: store.letters([claim.run_id]))
        live.take(letters.get(claim.run_id, []))
        if live.is_stopping:
            return
        agent = self._agents[claim.agent]
        if not live.is_new and claim.lost:
            logger.warning("worker %s took over %s, attempt %d", self.name, live, claim.attempt)
        elif not live.is_new:
            logger.info("worker %s continues %s, whose worker has stopped", self.name, live)
        if is_last:
            interrupt(live.task, recovery.TOO_MANY_ATTEMPTS)
        elif live.is_new:
            await recovery.begin(store, live.task, info)
            await recovery.learn_references(live.task)
            live.call(agent)
        elif is_restartable(agent):
            reason = recovery.WORKER_LOST if claim.lost else recovery.WORKER_STOPPED
            recovery.resume(agent, live.task, reason)
            await live.task.drain()
            crash_points.point("recover.after")
            await recovery.learn_references(live.task)
            live.call(agent)
        else:
            interrupt(live.task, recovery.NOT_RESTARTABLE)

    async def _settle(self, live: ClaimedRun) -> None:
        """Acknowledge the letters of an ended run, and join its rows later."""
        run_id = live.claim.run_id
        if live.last_letter:
            await self._acknowledge(run_id, live.last_letter)
        self._joiner.join_later(run_id, about(live.log_fields()))

    async def _acknowledge(self, run_id: str, number: int) -> None:
        crash_points.point("acknowledge.before")
        await patiently(lambda: self._store.acknowledge(run_id, number))
        crash_points.point("acknowledge.after")
