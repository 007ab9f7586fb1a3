"""Ends what its client cannot end: runs that it left, and questions that it cannot answer.

Chat completions and Anthropic's messages have no request that finds a run again. So a run that was
started there is cancelled when no client has followed it for a while, at any server. Their clients
cannot answer a run that asks people either. If no other client answers in time, the request is
denied and the agent continues: otherwise the client would wait forever.

A chat that regenerates or edits a message no longer shows what came after it. A run that asks
people there is cancelled, because no page can answer it. So is a run that asks people when its chat
goes on with a message instead of the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, NamedTuple

from tailrace.core import events as ev
from tailrace.core.errors import TailraceError
from tailrace.core.fold import State
from tailrace.ports import RunInfo
from tailrace.runtime.agents.busy_thread import RECENT_RUNS
from tailrace.runtime.diagnostics.log_fields import about_run
from tailrace.runtime.event_log.retention import FOREVER
from tailrace.runtime.runs.all_runs import Runs
from tailrace.server.streams.run_stream import RunStream
from tailrace.wire.base import Format
from tailrace.wire.projection import is_paused

ABANDONED_SECONDS = 60.0
"""How long a run goes on without a client."""

ABANDONED = "abandoned"
"""The reason of the cancelled run."""

REPLACED = "The conversation went on from an earlier message."
"""The reason of a cancelled run that asked people, and that the client no longer shows."""

CONTINUED = "The conversation went on without an answer."
"""The reason of a cancelled run that asked people, and whose client sent a message instead."""

UNANSWERED_SECONDS = 120.0
"""A run that asks people and does nothing else for so long is denied, after at most twice this
time. Node's `fetch` waits 300 seconds for an answer without a stream."""

UNANSWERED = "No person answered in time."
"""What the model reads then."""

_MAY_PAUSE = (ev.TaskInputRequired, ev.TaskInputReceived, ev.OutputItemDone, *ev.TERMINAL)
"""The events after which a run may wait for people."""

logger = logging.getLogger("tailrace")


class Answered(NamedTuple):
    """A run that gets answers from its client, together with a new message."""

    state: State
    """The run before the answers."""
    requests: set[str]
    """The requests that are answered."""

    @property
    def calls(self) -> set[str | None]:
        """The calls that the answered requests are about."""
        return {one.call_id for _, one in self.state.requests() if one.id in self.requests}

    def asks_again(self, state: State) -> bool:
        """Whether the run has done what the answers allow, and waits for other answers."""
        pending = set(_requests(state))
        if pending & self.requests or not is_paused(state):
            return False
        return bool(pending - set(_requests(self.state))) or all(
            answer.get("call_id") in (None, *task.call_results)
            for task in state.tasks.values()
            for request_id, answer in task.answers.items()
            if request_id in self.requests
        )


class AbandonedRuns:
    """The runs that clients have left, each with the time of its next check."""

    def __init__(self, runs: Runs, seconds: float = ABANDONED_SECONDS) -> None:
        self._runs = runs
        self._seconds = seconds
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._waiting: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def waits(self, run_id: str) -> None:
        """Answer what a run asks people, while its client waits and cannot answer."""
        if self._seconds != FOREVER:
            self._look_later(run_id, seen=0)

    def left(self, run_id: str) -> None:
        """Check later whether a run has a follower."""
        waiting = self._waiting.pop(run_id, None)
        if waiting is not None:
            waiting.cancel()
        if self._seconds == FOREVER:
            return
        before = self._timers.pop(run_id, None)
        if before is not None:
            before.cancel()
        loop = asyncio.get_running_loop()
        self._timers[run_id] = loop.call_later(self._seconds, self._check, run_id)

    def replaced_by(self, run: RunInfo, answered: Answered | None = None) -> None:
        """Cancel older runs of the thread that ask people: no client can answer them any more.

        The model of this run reads that a call without an answer was interrupted, so the call must
        not be carried out later. A run that is to wait for the runs before it (`busy_thread`) does
        so: they stay, if it continues them.

        The run that the client has `answered` goes on, and is cancelled if it asks again: this run
        waits for its end.
        """
        if run.ordinal > 1:
            self._do(self._cancel_replaced(run, answered))

    def stop(self) -> None:
        """Cancel no more runs: the server stops."""
        self._seconds = FOREVER
        for timers in (self._timers, self._waiting):
            for timer in timers.values():
                timer.cancel()
            timers.clear()
        for task in self._tasks:
            task.cancel()

    def _check(self, run_id: str) -> None:
        del self._timers[run_id]
        self._do(self._cancel_unfollowed(run_id))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _look_later(self, run_id: str, seen: int) -> None:
        loop = asyncio.get_running_loop()
        look = partial(self._look, run_id, seen)
        self._waiting[run_id] = loop.call_later(UNANSWERED_SECONDS, look)

    def _look(self, run_id: str, seen: int) -> None:
        self._do(self._deny(run_id, seen))

    async def _deny(self, run_id: str, seen: int) -> None:
        """Deny what a run asks, if it has had no event since event `seen`."""
        known: RunInfo | str = run_id
        try:
            known = await self._runs.info(run_id)
            last = known.last_seq
            if last == seen:
                state = (await self._runs.look(run_id)).state
                for request_id in _requests(state):
                    answer = {"request_id": request_id, "approved": False, "reason": UNANSWERED}
                    await self._runs.send(run_id, answer)
        except TailraceError as error:
            last = seen
            logger.warning(
                "run %s waits for an answer, and got none: %s",
                *(run_id, error),
                extra=about_run(known),
            )
        if run_id in self._waiting:
            self._look_later(run_id, last)

    async def _cancel_replaced(self, run: RunInfo, answered: Answered | None) -> None:
        runs = self._runs.of(run.owner)
        try:
            if answered is not None:
                await self._until_paused(runs, answered)
            recent = await runs.of_thread(run.thread_id, max(1, run.ordinal - RECENT_RUNS))
            older = {one.run_id: one for one in recent if one.ordinal < run.ordinal}
            reasons = dict.fromkeys(older, REPLACED)
            waits = answered is None and runs.waits_for_earlier(run.agent)
            continued = run.previous_run_id
            while continued in older:
                reasons[continued] = CONTINUED
                earlier = older[continued] if not waits else older.pop(continued)
                continued = earlier.previous_run_id
            for one in older.values():
                if one.ended_at is None and _requests((await runs.look(one.run_id)).state):
                    await self._cancel(one, reasons[one.run_id])
        except TailraceError as error:
            logger.warning(
                "runs that run %s replaces were not cancelled: %s",
                *(run.run_id, error),
                extra=about_run(run),
            )

    async def _until_paused(self, runs: Runs, answered: Answered) -> None:
        """Wait until a run with answers to read has ended, or waits for people again."""
        run_id = answered.state.root.task_id if answered.state.root is not None else ""
        async for batch in runs.follow(run_id, answered.state.sequence_number):
            may_pause = any(isinstance(recorded.event, _MAY_PAUSE) for recorded in batch)
            if may_pause and answered.asks_again((await runs.look(run_id)).state):
                return

    async def _cancel_unfollowed(self, run_id: str) -> None:
        run: RunInfo | None = None
        try:
            run = await self._runs.find(run_id)
            if run is None or run.ended_at is not None:
                return
            followed = await self._runs.followed_elsewhere.is_followed(run_id)
        except TailraceError as error:
            _log_not_cancelled(run_id, run, error)
            return
        if followed:
            self.left(run_id)
        else:
            await self._cancel(run)

    async def _cancel(self, run: RunInfo, reason: str = ABANDONED) -> None:
        try:
            await self._runs.cancel(run.run_id, reason)
        except TailraceError as error:
            _log_not_cancelled(run.run_id, run, error)


class AbandonableStream(RunStream):
    """The stream of a run whose client has no way back."""

    def __init__(self, runs: Runs, wire: Format, run_id: str, abandoned: AbandonedRuns) -> None:
        super().__init__(runs, wire, run_id)
        self._abandoned = abandoned
        abandoned.waits(run_id)

    async def close(self) -> None:
        """Stop following. The run may be cancelled later."""
        await super().close()
        self._abandoned.left(self._run_id)


def _log_not_cancelled(run_id: str, run: RunInfo | None, error: TailraceError) -> None:
    logger.warning(
        "run %s has no client and was not cancelled: %s",
        *(run_id, error),
        extra=about_run(run or run_id),
    )


def _requests(state: State) -> list[str]:
    """The ids of what a run and its sub-agents ask people."""
    return [request.id for _, request in state.requests()]
