"""The newest events of each run that this process follows: a bounded ring for all its readers.

The bus fills a tail, and the log fills the holes that the bus leaves. While the bus is silent, one
poller per process asks the store how far the followed runs go. That covers a lost publish, other
processes on one SQLite file, and Postgres without Redis.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice

from tailrace.core.errors import NotFound, StorageError, TailraceError
from tailrace.core.events import TERMINAL, Recorded, is_end
from tailrace.ports import Bus, EventLog, Head, RunInfo, Trimmed
from tailrace.runtime.diagnostics.log_fields import about_run
from tailrace.runtime.event_log.store_retry import PATIENCE_SECONDS, patiently

POLL_SECONDS = 0.3
"""How long the bus may be silent before the store is asked.

The bus may be heard just before an event is lost, and just after the last poll. So a lost event
arrives after twice this time at worst, within the promised second.
"""

BEAT_SECONDS = 5.0
"""How often the readers of a silent run wake, so that they can send a heartbeat."""

CROWD = 20
LONGEST_REST = 0.02
"""The first event wakes the readers at once. If they are many, the run then rests for as long as
that took, and the next events wake them together. Waking a thousand readers costs the same for one
event or fifty, and other runs have the loop for at least half of the time."""

RING_EVENTS = 4096
RING_BYTES = 4 * 1024 * 1024
"""The limits of a run's ring. A reader that is further behind reads the log."""

MOST_WRITERS = 10_000
"""Each writer of a run has the next epoch, and the first epoch of a run is random. So an epoch that
differs by more is of another run."""

logger = logging.getLogger("tailrace")

TakeNow = Callable[[], bool]
"""Takes the new events of a tail for a reader; False if the reader's task has to."""


class Tail:
    """The newest events of one run, as this process knows them.

    `last` is the number of the newest event; -1 until the store was asked. All events enter through
    `feed`, which takes only the next number, so events may come twice or late.
    """

    def __init__(self, run_id: str, log: EventLog, bus: Bus) -> None:
        self.run_id = run_id
        self.last = -1
        self._epoch: int | None = None
        self.ended = False
        self.failure: TailraceError | None = None
        self.readers = 0
        self.heard = time.monotonic()
        self._log = log
        # Kept: to ask asyncio for it costs a system call before Python 3.12.
        self._loop = asyncio.get_running_loop()
        self._ring: deque[Recorded] = deque()
        self._bytes = 0
        self.kept: list[Recorded] = []
        """Events behind a hole, until the log has filled it."""
        self._dropped = 0
        self._waiting: list[tuple[asyncio.Future[None], TakeNow | None]] = []
        # Before any read of the log: later events are heard on the bus, or found by the poller.
        self._subscription = bus.subscribe(run_id)
        self._subscription.listen(self._hear)
        self._filling: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._resting: asyncio.Handle | None = None
        self._owed = False

    def since(self, seen: int) -> list[Recorded] | None:
        """The events after `seen`, empty at the end; None if only the log has them."""
        if self.last < 0:
            return None
        missing = self.last - seen
        if missing <= 0:
            return []
        if missing > len(self._ring):
            return None
        if missing == 1:  # at human pace nearly always
            return [self._ring[-1]]
        # From the end: usually few events are missing, and a deque is slow in its middle.
        fresh = list(islice(reversed(self._ring), missing))
        fresh.reverse()
        return fresh

    def moved(self, take: TakeNow | None = None) -> asyncio.Future[None]:
        """A future for one reader: done at the next event, or after `BEAT_SECONDS`.

        If `take` takes the next events at once, the reader keeps waiting: waking its task for each
        event costs more than sending the event.
        """
        if len(self._waiting) > 2 * self.readers:  # most of them have left
            self._waiting = [one for one in self._waiting if not one[0].done()]
        waiting = self._loop.create_future()
        self._waiting.append((waiting, take))
        return waiting

    @property
    def waiting(self) -> int:
        """How many readers have seen all events."""
        return sum(not one.done() for one, _ in self._waiting)

    def feed(self, events: Sequence[Recorded]) -> bool:
        """Take the next events; False if there is a hole before them.

        Events after a hole are kept until the log has filled it. Otherwise a run that writes while
        the log is read would need another read, and another.
        """
        before, joined = self.last, True
        if self.kept:
            events = sorted([*events, *self.kept], key=_number)
            self.kept = []
        if len(events) == 1 and events[0].event.sequence_number == before + 1:
            # At human pace nearly always.
            newest = events[0]
            self._ring.append(newest)
            self._bytes += len(newest.public)
            self.last = before + 1
        else:
            joined = self._feed_each(events)
            if self.last == before:
                return joined
            newest = self._ring[-1]
        while len(self._ring) > RING_EVENTS or self._bytes > RING_BYTES:
            self._bytes -= len(self._ring.popleft().public)
        if newest.event.__class__ in TERMINAL and is_end(newest, self.run_id):
            self.ended = True
        if self._resting is not None:
            self._owed = True
        else:
            self.wake()
        return joined

    def _feed_each(self, events: Sequence[Recorded]) -> bool:
        """Add the events that follow to the ring; False if there is a hole before an event."""
        last, size, append = self.last, 0, self._ring.append
        joined = True
        for place, one in enumerate(events):
            number = one.event.sequence_number
            if number <= last:
                continue
            if number != last + 1:
                self._keep(events[place:])
                joined = False
                break
            append(one)
            size += len(one.public)
            last = number
        self.last = last
        self._bytes += size
        return joined

    def _keep(self, events: Sequence[Recorded]) -> None:
        """Keep events that do not follow yet; none of them if they are too many."""
        self.kept += events
        size = sum(len(one.public) for one in self.kept)
        if len(self.kept) > RING_EVENTS or size > RING_BYTES:
            self.kept = []
            self._dropped += 1

    def wake(self) -> None:
        """Wake every reader that does not take the new events at once."""
        waiting, self._waiting = self._waiting, []
        few = len(waiting) < CROWD  # many readers would delay the publisher
        for reader in waiting:
            one, take = reader
            if one.done():
                continue
            try:
                if few and take is not None and take():
                    self._waiting.append(reader)
                    continue
            except Exception as error:  # noqa: BLE001  # the reader gets it, not the publisher
                one.set_exception(error)
            else:
                one.set_result(None)
        if not few and self._resting is None:
            # Queued behind the readers, so that it measures how long they took.
            self._resting = self._loop.call_soon(self._rest, self._loop.time())

    def _rest(self, woken_at: float) -> None:
        rest = min(self._loop.time() - woken_at, LONGEST_REST)
        self._resting = self._loop.call_later(rest, self._rested)

    def _rested(self) -> None:
        self._resting = None
        if self._owed:
            self._owed = False
            self.wake()

    def fail(self, failure: TailraceError) -> None:
        """End following: every reader gets this error."""
        self.failure = failure
        self.wake()

    @property
    def is_looking(self) -> bool:
        """Whether it reads the events that the poller found to be missing."""
        return self._looking is not None and not self._looking.done()

    def look(self, head: Head | None) -> None:
        """Process what the poller found, in a task: a slow read must not delay other runs."""
        self._looking = self._begin(partial(self.apply_head, head))

    async def find_end(self) -> None:
        """Ask the store how far the run goes, and read the missing events."""
        heads = await patiently(lambda: self._log.heads([self.run_id]))
        await self.apply_head(heads.get(self.run_id))

    async def apply_head(self, head: Head | None) -> None:
        """Process the store's answer on how far the run goes."""
        if head is None:
            self.fail(run_not_found(self.run_id))
            return
        if self._is_of_another_run(head.epoch):
            return
        # Events that the bus brought or dropped meanwhile may be newer than this answer.
        missed = self.last < 0 and self._dropped > 0
        if self.last < 0:
            self.last = head.last_seq
        if self.last < head.last_seq or missed or not self.feed(()):
            await self.catch_up()
        if head.ended and self.last >= head.last_seq and not self.ended:
            self.ended = True
            self.wake()

    def _is_of_another_run(self, epoch: int) -> bool:
        """Whether the run was deleted and another has its id; its readers get an error then."""
        if self._differs(epoch):
            self.fail(run_not_found(self.run_id))
            return True
        self._epoch = epoch
        return False

    def note_epoch(self, epoch: int) -> None:
        """End following if the run that has this id now is another run."""
        if self._differs(epoch):
            self.fail(_has_other_run(self.run_id))

    def check_epoch(self, epoch: int) -> None:
        """Refuse events of another run with this id, for the one reader that got them."""
        if self._differs(epoch):
            raise _has_other_run(self.run_id)

    def _differs(self, epoch: int) -> bool:
        return self._epoch is not None and abs(epoch - self._epoch) > MOST_WRITERS

    async def catch_up(self) -> None:
        """Fill a hole from the log."""
        while True:
            before = self.last
            try:
                events = await patiently(lambda: self._log.read(self.run_id, self.last))
            except Trimmed:
                await self._skip_to_end()
                return
            if events and self._is_of_another_run(events[0].epoch):
                return
            is_live = bool(self.kept)
            if self.feed(events) and is_live:
                return
            if self.last == before:
                self.kept = []  # the log has no events before these, so drop them
                return

    async def _skip_to_end(self) -> None:
        """Move to the run's end with an empty ring: retention took the missing events.

        A reader that lacks events reads the log and gets `Trimmed`. A reader that has them all must
        not get a gap because others do.
        """
        heads = await patiently(lambda: self._log.heads([self.run_id]))
        head = heads.get(self.run_id)
        if head is None:
            self.fail(run_not_found(self.run_id))
            return
        self._ring.clear()
        self._bytes = 0
        self.kept = []
        self.last = head.last_seq
        self.ended = True
        self.wake()

    def close(self) -> None:
        """Stop listening."""
        for task in (self._filling, self._looking, self._resting):
            if task is not None:
                task.cancel()
        self._subscription.close()

    def _hear(self, events: list[Recorded]) -> None:
        """Take events from the bus. The publisher calls this."""
        before = self.last
        if events and events[0].epoch != self._epoch and self._is_of_another_run(events[0].epoch):
            return
        if before < 0:
            self._dropped += not events
            self._keep(events)
        elif not events or not self.feed(events):
            # Some events were dropped: read the log.
            self._dropped += not events
            if self._filling is None or self._filling.done():
                self._filling = self._begin(self._fill)
        elif self.last != before:
            # Only new events show that the bus works.
            self.heard = time.monotonic()

    async def _fill(self) -> None:
        """Read the log until no event is missing."""
        while True:
            dropped = self._dropped
            await self.catch_up()
            if dropped == self._dropped and not self.kept:
                return

    def _begin(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Start a task for the readers. If it fails, they get the error."""
        return self._loop.create_task(self._report_failure(work), name=f"tail {self.run_id}")

    async def _report_failure(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except TailraceError as error:
            self.fail(error)
        except Exception:  # a bug of ours must not keep readers waiting forever
            logger.exception("run %s cannot be followed", self.run_id, extra=about_run(self.run_id))
            self.fail(StorageError(f"Run {self.run_id} cannot be followed; connect again."))


def _number(one: Recorded) -> int:
    return one.event.sequence_number


def run_not_found(run_id: str, param: str = "run_id") -> NotFound:
    """The error for a run that is unknown, deleted, or of another owner; they read the same."""
    return NotFound(
        f"There is no run {run_id}. Check its id; it may have been deleted.", param=param
    )


def _has_other_run(run_id: str) -> StorageError:
    return StorageError(f"Run {run_id} was deleted, and another run has its id; connect again.")


class Tails:
    """The tails of a process and their one poller."""

    def __init__(self, log: EventLog, bus: Bus, poll: float | None = None) -> None:
        self._log = log
        self._bus = bus
        self._every = POLL_SECONDS if poll is None else poll
        self._tails: dict[str, Tail] = {}
        self._poller: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._tails)

    def get(self, run_id: str) -> Tail | None:
        """The run's tail, if it has readers here."""
        return self._tails.get(run_id)

    def note(self, run: RunInfo) -> None:
        """End the tail of a deleted run, if another run has its id now."""
        tail = self._tails.get(run.run_id)
        if tail is not None:
            tail.note_epoch(run.epoch)

    def take(self, run_id: str) -> Tail:
        """The run's tail. The reader gives it back."""
        tail = self._tails.get(run_id)
        if tail is None or tail.failure is not None:
            tail = self._tails[run_id] = Tail(run_id, self._log, self._bus)
        tail.readers += 1
        if self._poller is None:
            self._poller = asyncio.get_running_loop().create_task(self._poll(), name="poller")
        return tail

    def give_back(self, tail: Tail) -> None:
        """Count a reader less. The tail is dropped with its last reader."""
        tail.readers -= 1
        if tail.readers:
            return
        tail.close()
        if self._tails.get(tail.run_id) is tail:
            del self._tails[tail.run_id]
        if not self._tails and self._poller is not None:
            self._poller.cancel()
            self._poller = None

    async def close(self) -> None:
        """Close all tails. Their readers get an error."""
        for tail in list(self._tails.values()):
            tail.fail(StorageError("The server is stopping; connect again."))
            tail.close()
        self._tails.clear()
        if self._poller is not None:
            self._poller.cancel()
            with suppress(asyncio.CancelledError):
                await self._poller
            self._poller = None

    async def _poll(self) -> None:
        answered = beat = time.monotonic()
        while True:
            await asyncio.sleep(self._every)
            now = time.monotonic()
            silent = [
                tail
                for tail in self._tails.values()
                if tail.last >= 0
                and not (tail.ended or tail.is_looking)
                and now - tail.heard >= self._every
            ]
            try:
                await self._ask(silent)
                answered = time.monotonic()
            except StorageError as error:
                if time.monotonic() - answered > PATIENCE_SECONDS:
                    for tail in silent:
                        tail.fail(error)
            except Exception:
                logger.exception("the poller of followed runs failed")
            if now - beat >= BEAT_SECONDS:
                beat = now
                for tail in list(self._tails.values()):
                    if now - tail.heard >= BEAT_SECONDS:
                        tail.wake()

    async def _ask(self, silent: list[Tail]) -> None:
        if not silent:
            return
        heads = await self._log.heads([tail.run_id for tail in silent])
        for tail in silent:
            head = heads.get(tail.run_id)
            behind = head is None or head.ended or head.last_seq > tail.last
            if behind and tail.readers:
                tail.look(head)
