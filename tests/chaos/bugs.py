"""Bugs to be planted in the processes of the chaos application, to see that the checker sees them.

Each is a mistake that a programmer could make. They change only the process that asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import apsw

from tailrace.core import closing_events
from tailrace.core.codec import decode_event, encode_event, encode_private
from tailrace.core.events import TERMINAL, Event, Private, Recorded
from tailrace.core.log_lines import LogLines
from tailrace.core.text_limits import PartBound
from tailrace.ports import Batch
from tailrace.runtime.event_log import emitter as emitters
from tailrace.runtime.event_log.emitter import Emitter, Taken
from tailrace.runtime.event_log.offload import FrameRange, SharedBytes
from tailrace.runtime.event_log.pipeline import Pipeline
from tailrace.runtime.followers.fanout import Stream
from tailrace.runtime.workers.claimed_run import ClaimedRun
from tailrace.runtime.workers.worker import Worker
from tailrace.server.streams.resume_point import ResumePoint
from tailrace.server.streams.run_stream import RunStream
from tailrace.stores import rows
from tailrace.stores.postgres import log, sql
from tailrace.stores.sqlite import batches, queue


def publish_first() -> None:
    """Events are published before they are durable; the disk takes its time, as disks do."""

    async def append(self: Pipeline, batches: list[Batch]) -> tuple[list[Exception | None], bool]:
        for batch in batches:
            self._bus.publish(batch.run_id, _events(batch))
        await asyncio.sleep(0.05)
        return await self._log.append(batches), False

    patch(Pipeline, "_append", append)
    patch(Pipeline, "_write_now", lambda *_: None)


def _events(batch: Batch) -> list[Recorded]:
    return [Recorded(decode_event(public), public, batch.epoch) for public in batch.publics]


def repeat_on_resume() -> None:
    """The stream goes on with the event of the cursor instead of the event after it."""
    _shift_resumes(-1)


def skip_on_resume() -> None:
    """The stream goes on one event too late."""
    _shift_resumes(1)


def _shift_resumes(by: int) -> None:
    resume = RunStream._resume

    async def shifted(self: RunStream, point: ResumePoint) -> tuple[SharedBytes, Stream]:
        cursor = point.cursor._replace(seq=point.cursor.seq + by)
        return await resume(self, point._replace(cursor=cursor))

    patch(RunStream, "_resume", shifted)


def no_fencing() -> None:
    """The store trusts every writer: the last write wins, and no claim is ever lost."""

    def append(db: apsw.Connection, batch: Batch, now: float) -> Exception | None:
        for table in ("batches", "fresh"):
            db.execute(
                f"delete from {table} where run_id = ? and first_seq >= ?",
                (batch.run_id, batch.first_seq),
            )
        batches._insert(
            db,
            batches._row_of(batch),
        )
        db.execute(
            "update runs set last_seq = ?, ended_at = ? where run_id = ?",
            (batch.last_seq, now if batch.ended else None, batch.run_id),
        )
        return None

    patch(batches, "_append", append)
    patch(queue, "extend", lambda *_: set())


def no_epoch_check() -> None:
    """The store takes the next events of a run from a writer that lost its claim."""
    _let_pass("epoch", lambda batch: batch.epoch)
    _without_guard("and locked.epoch = given.epoch")


def no_seq_check() -> None:
    """The store takes events wherever they begin, also before or behind the log's end."""
    _let_pass("last_seq", lambda batch: batch.first_seq - 1)
    _without_guard("and locked.last_seq + 1 = given.first_seq")


def no_end_check() -> None:
    """The store takes events of a run that has ended."""
    _let_pass("ended_at", lambda _: None)
    _without_guard("not locked.ended and")


def _let_pass(column: str, wanted: Callable[[Batch], int | None]) -> None:
    """Remove a single guard of the store: the run's row seems to hold what the batch needs."""
    honest = batches._append

    def append(db: apsw.Connection, batch: Batch, now: float) -> Exception | None:
        there: Any = db.execute(
            f"select {column} from runs where run_id = ?", (batch.run_id,)
        ).fetchone()
        change = f"update runs set {column} = ? where run_id = ?"
        db.execute(change, (wanted(batch), batch.run_id))
        refusal = honest(db, batch, now)
        if refusal is not None or column == "epoch":
            db.execute(change, (there[0], batch.run_id))
        return refusal

    patch(batches, "_append", append)


def _without_guard(condition: str) -> None:
    """Remove a single guard of PostgreSQL's append."""
    assert condition in sql.APPEND, f"{condition!r} is not in sql.APPEND: adapt the planted bug"
    patch(sql, "APPEND", sql.APPEND.replace(condition, ""))


def private_on_the_wire() -> None:
    """The private part is put into the public event."""
    encode = encode_event

    def emit(self: Emitter, event: Event, private: Private | None = None) -> None:
        def leaky(event: Event) -> bytes:
            public = encode(event)
            if private is None:
                return public
            return public[:-1] + b',"private":' + encode_private(private) + b"}"

        setattr(emitters, "encode_event", leaky)  # noqa: B010
        honest(self, event, private)

    honest = Emitter.emit
    patch(Emitter, "emit", emit)


def two_ends() -> None:
    """A run that was ended is ended once more."""
    take = Emitter.take

    def twice(self: Emitter) -> Taken:
        for event in list(self._events):
            if isinstance(event.event, TERMINAL) and event.event.task_id == self.run_id:
                number = event.event.sequence_number
                again = event.public.replace(
                    b'"sequence_number":%d' % number, b'"sequence_number":%d' % (number + 1)
                )
                self._events.append(Recorded(decode_event(again), again, event.epoch))
                self._publics.append(again)
                self._privates.append(b"")
        return take(self)

    patch(Emitter, "take", twice)


def no_bounds() -> None:
    """A text grows until no event can repeat it, so nothing can close it."""
    patch(PartBound, "check", lambda *_: None)
    patch(closing_events, "_can_be_written", lambda _: True)


def repeat_to_the_stalled() -> None:
    """A stream uses lines that it read ahead, also after it has sent other events."""
    lines = Stream._lines

    async def any_lines(self: Stream) -> list[LogLines]:
        if self._ahead is not None:
            self._ahead = self._ahead._replace(after=self.seen)
        return await lines(self)

    def send(self: Stream, piece: FrameRange) -> bytes:
        self.seen = piece.last
        return piece.frames

    patch(Stream, "_lines", any_lines)
    patch(Stream, "_drop_ahead", lambda _: None)
    patch(Stream, "_pass", send)


def plan_over_holes() -> None:
    """Rows are to be joined that follow each other in one table, whatever the other table has."""
    honest = rows.packs

    def packs(
        sizes: Iterable[tuple[int, int, int, int | None]], *, ended: bool
    ) -> list[tuple[int, int]]:
        found = list(sizes)
        nexts = [first for first, *_ in found[1:]] + [0]
        closed = [
            (first, following - 1, epoch, size)
            for (first, _, epoch, size), following in zip(found, nexts, strict=True)
        ]
        return honest(closed, ended=ended)

    patch(batches, "packs", packs)
    patch(log, "packs", packs)


def join_over_holes() -> None:
    """Such rows are joined, too: the check of the rows looks at their bytes alone."""
    plan_over_holes()
    patch(rows, "_verify", lambda found: [row.verify() for row in found])


def no_renewal() -> None:
    """The task that extends the leases ends quietly once a run of its worker has ended."""
    settle = Worker._settle

    async def settle_last(self: Worker, live: ClaimedRun) -> None:
        await settle(self, live)
        [leases] = [one for one in self._loops if one.get_name() == "worker's leases"]
        leases.cancel()

    patch(Worker, "_settle", settle_last)


BUGS = {
    bug.__name__: bug
    for bug in (
        publish_first,
        repeat_on_resume,
        skip_on_resume,
        no_epoch_check,
        no_seq_check,
        no_end_check,
        no_fencing,
        private_on_the_wire,
        two_ends,
        no_bounds,
        repeat_to_the_stalled,
        plan_over_holes,
        join_over_holes,
        no_renewal,
    )
}


def plant(name: str) -> None:
    """Put a bug into this process; "" plants none."""
    if name:
        BUGS[name]()


def patch(owner: Any, name: str, value: Any) -> None:
    """Replace what is there."""
    assert hasattr(owner, name), f"{owner} has no {name} any more: adapt the planted bug"
    setattr(owner, name, value)
