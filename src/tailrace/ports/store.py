"""What the runtime needs from a store: the log, the queue of runs, letters, blobs, tokens.

What a store has answered is durable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from tailrace.core.codec import PROTOCOL
from tailrace.core.errors import TailraceError
from tailrace.core.events import Recorded
from tailrace.core.log_lines import LogLines

MAX_ATTEMPTS = 5
"""Claims of a run after lost leases, until the run is ended as failed."""

FORGET_SECONDS = 60.0
"""How long a run with `forget` stays after its end, so that its clients see how it ended."""


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run to create. `owner` is the principal that it belongs to; "" for no principal.

    `public` and `private` are the parts of its first event, `task.created`. A run with `forget` is
    deleted shortly after its end.
    """

    run_id: str
    agent: str
    thread_id: str
    public: bytes
    private: bytes = b""
    owner: str = ""
    previous_run_id: str | None = None
    forget: bool = False
    queued: bool = False
    """Whether it waits until the earlier runs of its thread have ended."""
    ordinal: int | None = None
    """The place in its thread that it must get; None: the next place."""
    epoch: int = 1
    """The epoch of its first event. Each claim adds 1."""
    protocol: int = PROTOCOL
    """The version of PROTOCOL.md that its events follow."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a listing: its row, without its events."""

    run_id: str
    agent: str
    thread_id: str
    owner: str
    ordinal: int
    """Its place in its owner's thread, from 1. An ordinal is never given twice."""
    previous_run_id: str | None
    last_seq: int
    epoch: int
    attempts: int
    """0 before its first claim, then 1, plus 1 for each worker that lost it."""
    created_at: float
    ended_at: float | None
    trimmed_to: int
    """Retention deleted the events up to this number; 0 for none."""
    forget: bool = False
    """Whether it is deleted shortly after its end. No run continues it."""

    def keeps(self, seq: int) -> bool:
        """Whether the state after event `seq` can be read: of a trimmed run, only the last."""
        return not self.trimmed_to or seq >= self.last_seq


class Head(msgspec.Struct, frozen=True):
    """How far a run's log goes, so that a reader sees whether it missed events."""

    last_seq: int
    epoch: int
    ended: bool


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive encoded events of one run, written together, and at times a snapshot.

    `privates` is as long as `publics`; an empty entry means that the event has no private part.
    `snapshot` is the saved state after the last event, private parts included.
    """

    run_id: str
    epoch: int
    first_seq: int
    publics: list[bytes]
    privates: list[bytes]
    ended: bool = False
    snapshot: bytes | None = None

    @property
    def last_seq(self) -> int:
        """The number of the last event."""
        return self.first_seq + len(self.publics) - 1


AppendNow: TypeAlias = Callable[[list[Batch]], list[None] | None]
"""The method `append_now` of a store that can often write without a wait, such as a local file.

It writes all batches as `EventLog.append` does, in a fraction of a millisecond. It returns None if
that would take longer, or if a batch would be refused. Then nothing was written, and the caller
uses `append`.
"""


def append_now_of(log: object) -> AppendNow | None:
    """The method `append_now` of a store, unless a subclass or wrapper has its own `append` only.

    Such a class may count, change or delay what is appended.
    """
    for kind in type(log).__mro__:
        if "append_now" in vars(kind):
            found: AppendNow | None = log.append_now  # type: ignore[attr-defined]
            return found
        if "append" in vars(kind):
            break
    return None


class Snapshot(msgspec.Struct, frozen=True):
    """A saved state and the event after which it was taken."""

    seq: int
    state: bytes


class StateSource(msgspec.Struct, frozen=True):
    """What a run's state is folded from: the nearest snapshot and the first events after it.

    `epoch` is the epoch of the event that the state is wanted after; None if retention deleted it.
    """

    info: RunInfo
    snapshot: Snapshot | None
    events: list[Recorded]
    epoch: int | None


class Claim(msgspec.Struct, frozen=True):
    """The right to write a run while its lease is extended.

    `attempt` is 1, plus 1 for each worker that lost the run. A released run was not lost. After
    `MAX_ATTEMPTS` (a setting) the worker ends the run as failed. `lost` is False if `claim` found
    the run without a worker: it is new, or was released.
    """

    run_id: str
    agent: str
    epoch: int
    attempt: int
    last_seq: int
    lost: bool = True


class InboxLetter(msgspec.Struct, frozen=True):
    """A cancel or an answer for a run's writer. Numbered from 1 per run."""

    number: int
    kind: Literal["cancel", "input"]
    body: bytes


class Unread(NamedTuple):
    """How many letters a run has, and how many bytes their bodies have."""

    letters: int
    bytes: int


class Trimmed(TailraceError):
    """Retention deleted the events that a reader wants; a final snapshot may be there."""

    code = "trimmed"


class EventLog(Protocol):
    """Stores runs. Events are ordered by `seq`, which has no holes, and their bytes never change.

    A method raises `StorageBusy` while the store is away or full; the caller may try again.
    """

    async def create(self, run: NewRun) -> RunInfo | None:
        """Create a run with its first event. It waits to be claimed. None if the id is taken.

        `SeqConflict` if `ordinal` is given and another run has that place in the thread.
        """

    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        """Write batches in one transaction; accept or refuse each run on its own.

        `SeqConflict` refuses a batch that does not follow the last event, or whose run has ended or
        has another epoch. A batch that is stored already, byte for byte, is accepted: a retry
        changes nothing. `ended` also gives up the claim.
        """

    async def read(self, run_id: str, after: int, limit: int = 10_000) -> list[Recorded]:
        """About `limit` events after `after`, in order; at least one batch if there is any.

        Raises `Trimmed` if the next event is deleted, and `StorageError` if a checksum is wrong.
        """

    async def read_lines(self, run_id: str, after: int, limit: int = 10_000) -> list[LogLines]:
        """The events of `read`, not decoded."""

    async def read_private(self, run_id: str, after: int = 0) -> dict[int, bytes]:
        """The private parts of the events after `after`, by number."""

    async def info(self, run_id: str) -> RunInfo | None:
        """The row of a run."""

    async def heads(self, run_ids: list[str]) -> dict[str, Head]:
        """How far these logs go, in one query; unknown ids are left out."""

    async def thread_runs(
        self, thread_id: str, *, owner: str = "", first: int = 1, limit: int = 100
    ) -> list[RunInfo]:
        """The runs of an owner's thread from ordinal `first` on, in their order."""

    async def newest_run(self, thread_id: str, *, owner: str = "") -> RunInfo | None:
        """The last run of an owner's thread that is not deleted."""

    async def latest_runs(
        self, *, owner: str = "", before: str | None = None, limit: int = 100
    ) -> list[RunInfo]:
        """An owner's runs, newest first; those created before run `before`, if it is given.

        Raises `NotFound` if the owner has no run `before`.
        """

    async def last_ordinal(self, thread_id: str, *, owner: str = "") -> int:
        """The highest ordinal of an owner's thread so far, deleted runs included."""

    async def snapshot(self, run_id: str, at_most: int | None = None) -> Snapshot | None:
        """The newest snapshot, not after event `at_most`, or None."""

    async def state_source(self, run_id: str, at_most: int | None = None) -> StateSource | None:
        """`info`, `snapshot` and `read` in one call, for the state after event `at_most`, or now.

        None if there is no such run. Raises `Trimmed` as `read` does.
        """

    async def repack(self, run_id: str) -> None:
        """Join a run's batches into larger rows that read the same; at any time.

        A store may compress them if the run has ended, and delete snapshots except the newest.
        """

    async def unjoined(self, ended_for: float) -> list[str]:
        """Runs that ended so many seconds ago and were not repacked since; oldest first.

        A worker that is killed soon after a run's end leaves such a run. Returns some of them; call
        again when these are repacked. Runs that are deleted soon (`forget`) are not among them.
        """

    async def trim(self, run_id: str, snapshot: bytes) -> None:
        """Delete the events of an ended run and keep this final snapshot."""

    async def delete(self, run_id: str) -> bool:
        """Delete a run; False if it is unknown. Blobs that only this run used become unused."""

    async def expired(
        self, *, full_for: float, snapshot_for: float, forget_after: float = FORGET_SECONDS
    ) -> tuple[list[str], list[str]]:
        """Ended runs to trim and ended runs to delete, by seconds since their end; oldest first.

        Returns some of them; call again when these are deleted.
        """

    async def open_runs(self, owner: str, limit: int) -> int:
        """How many runs of an owner have not ended; counts no further than `limit`."""

    async def check(self) -> None:
        """Raise a `StorageError` unless the store can read and write now."""

    async def close(self) -> None:
        """Finish what is under way and close all connections."""


class Queue(Protocol):
    """Which worker may write which run. Leases use the database's clock (SQLite: boot time)."""

    async def claim(
        self,
        worker: str,
        agents: list[str],
        lease: float,
        limit: int = 1,
        held: Sequence[str] = (),
        per_owner: int | None = None,
        lost: bool = True,
    ) -> list[Claim]:
        """Claim waiting runs of these agents, each with a new epoch.

        A run waits if it has not ended and has no live lease. Without `lost`, runs whose lease has
        ended are skipped: only new and released runs are claimed. Runs in `held`, which the worker
        still has, and runs of a newer protocol are skipped. So is a `queued` run while an earlier
        run of its owner's thread has not ended, unless there is a cancel letter for it.

        Owners take turns: the next run is of
        the owner with the fewest runs in `held` and in this claim, and its oldest. No owner gets
        more than `per_owner` runs, those in `held` included.
        """

    async def take_over(self, run_id: str, worker: str, lease: float) -> Claim | None:
        """Claim this run from any holder. None if it has ended or its protocol is newer."""

    async def extend(self, worker: str, claims: list[tuple[str, int]], lease: float) -> set[str]:
        """Extend the leases on (run_id, epoch); returns the run_ids whose claim is lost.

        An ended lease is extended too, unless another worker has claimed the run. May be called on
        another thread's event loop, so that an agent that blocks this loop loses no lease.
        """

    async def release(self, run_id: str, epoch: int) -> None:
        """Give up a claim, so that another worker can claim at once. A parked run stays parked."""

    async def park(
        self, worker: str, claims: list[tuple[str, int, int]], first_go: float
    ) -> set[str]:
        """Let runs wait for a letter without a lease; returns the run_ids that are parked now.

        A claim is (run_id, epoch, number of the last letter that the worker has read). Runs with a
        later letter that is not acknowledged, or whose claim is lost, are not parked. `claim` skips
        a parked run until the next letter comes. Then its worker has the lease for `first_go`
        seconds, and any worker may claim the run after that. A run that was released while parked
        may be claimed as soon as a letter comes. The epoch stays. `extend` ends the parking.
        """

    async def woken(self, worker: str) -> set[str]:
        """The runs that this worker parked and still holds, and that a letter woke."""


class Inbox(Protocol):
    """Letters to a run. Its writer reads them; nothing else reaches a running run."""

    async def post(self, run_id: str, kind: Literal["cancel", "input"], body: bytes) -> int | None:
        """Store a letter; returns its number, or None if the run is unknown or has ended."""

    async def letters(self, run_ids: list[str]) -> dict[str, list[InboxLetter]]:
        """The letters that are not acknowledged, in order; runs without letters are left out."""

    async def unread(self, run_id: str) -> Unread:
        """How many letters of the run are not acknowledged, without their bodies."""

    async def acknowledge(self, run_id: str, number: int) -> None:
        """The writer has acted on the letters up to this number."""


class Blobs(Protocol):
    """Large content, stored once under its hash; the log holds references.

    A blob is kept while a run uses it, and for a while after that.
    """

    async def put_blob(self, data: bytes, mime_type: str, run_id: str | None = None) -> str:
        """Store bytes; returns their SHA-256 in hex. With `run_id`, that run uses them.

        Raises `NotFound` if there is no such run.
        """

    async def collect_blobs(self, unused_for: float, limit: int = 100) -> int:
        """Delete some blobs that no run has used for `unused_for` seconds; returns how many."""

    async def blob(self, sha256: str, *, owner: str | None = None) -> tuple[bytes, str] | None:
        """The bytes and their MIME type. With `owner`, only if a run of this owner uses them."""


class Tokens(Protocol):
    """What may be used once, by whichever process sees it first."""

    async def use_once(self, name: str, seconds: float) -> bool:
        """Whether this is the first use of a name within the last `seconds`."""

    async def used(self, prefix: str) -> list[str]:
        """The names with this prefix whose seconds have not passed."""


class Store(EventLog, Queue, Inbox, Blobs, Tokens, Protocol):
    """All that must survive a restart."""


OpenStore: TypeAlias = Callable[[], Awaitable[Store]]
"""A function that opens a store: many drivers need a running loop."""
