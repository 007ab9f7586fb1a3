"""The ports: what the runtime needs from a store, a bus and a model. Adapters keep these promises.

The log is the truth and the bus is a hint: a reader that gets nothing from the bus reads the log.
What a store has answered is durable.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from tailrace.core.codec import PROTOCOL
from tailrace.core.errors import TailraceError
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.items import Usage
from tailrace.core.log_lines import LogLines
from tailrace.history import Api, Load, Mode, reachable
from tailrace.wire.base import Cursor, Encoder, Format, Frame, whole_number

__all__ = [
    "MAX_ATTEMPTS",
    "Batch",
    "Blobs",
    "Bus",
    "Claim",
    "Cursor",
    "Encoder",
    "EventLog",
    "Format",
    "Frame",
    "Head",
    "Inbox",
    "InboxLetter",
    "LogLines",
    "Mirror",
    "Model",
    "NewRun",
    "OutputSchema",
    "Queue",
    "Recorded",
    "Request",
    "RunInfo",
    "Snapshot",
    "State",
    "StateSource",
    "Store",
    "Subscription",
    "Tokens",
    "ToolSpec",
    "Trimmed",
    "host_of",
    "whole_number",
]

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
    metadata: bytes = b""
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
    metadata: bytes
    last_seq: int
    epoch: int
    attempts: int
    """0 before its first claim, then 1, plus 1 for each worker that lost it."""
    created_at: float
    ended_at: float | None
    trimmed_to: int
    """Retention deleted the events up to this number; 0 for none."""


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
    `MAX_ATTEMPTS` (a setting) the worker ends the run as failed.
    """

    run_id: str
    agent: str
    epoch: int
    attempt: int
    last_seq: int


class InboxLetter(msgspec.Struct, frozen=True):
    """A cancel or an answer for a run's writer. Numbered from 1 per run."""

    number: int
    kind: Literal["cancel", "input"]
    body: bytes


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

    async def runs(
        self,
        *,
        thread_id: str | None = None,
        owner: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[RunInfo]:
        """A page of runs after run `after`: those of a thread by ordinal, others by creation.

        Raises `NotFound` if `after` is not in this listing: an empty page would look like the end.
        """

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
        """The newest snapshot, not after event `at_most`; None if there is none."""

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
        """Delete a run; False if there is none. Blobs that only it used are unused then."""

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


class Store(EventLog, Queue, Inbox, Blobs, Tokens, Protocol):
    """All that must survive a restart."""


class Subscription(Protocol):
    """A reader's subscription to a run. It may miss events: the log has them."""

    async def get(self, wait: float) -> list[Recorded]:
        """Events since the last call; empty after `wait` seconds, or if events were dropped."""

    def listen(self, heard: Callable[[list[Recorded]], None]) -> None:
        """Call `heard` with each published list, instead of `get`; empty if events were dropped.

        `heard` must not raise and must not block: the run's writer waits for it.
        """

    def close(self) -> None:
        """Unsubscribe."""


class Bus(Protocol):
    """Passes durable events on to readers. It may lose, repeat and reorder them."""

    def publish(self, run_id: str, events: list[Recorded]) -> None:
        """Send events of a run to its readers; never waits, never raises."""

    def subscribe(self, run_id: str) -> Subscription:
        """Subscribe to a run from now on."""

    async def check(self) -> None:
        """Raise a `TailraceError` within seconds if other processes cannot be reached."""

    async def close(self) -> None:
        """Close all connections and subscriptions."""


class Mirror(Protocol):
    """Copies the runs that this process writes to another system, in another format."""

    def begin(self, run_id: str, state: State) -> None:
        """A writer of this process continues a run after this durable state."""

    def show(self, run_id: str, events: list[Recorded]) -> None:
        """Copy the next durable events; never waits, never raises."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call; `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    strict: bool = False
    """Whether the provider must enforce the schema."""
    allowed_callers: tuple[str, ...] = ()
    """For Anthropic: `direct`, and the code execution tools whose code may call it; () for none."""


class OutputSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON Schema that the model's answer must follow."""

    schema: dict[str, Any]
    name: str = "answer"
    strict: bool = True


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model should think. Few models know all values."""

Summary = Literal["auto", "concise", "detailed"]
"""How OpenAI summarizes reasoning. For Anthropic each value asks for visible thinking."""


def _ignore(_note: str) -> None:
    """Drop a note."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A model call, independent of the provider.

    The conversation is a `chain` of runs, oldest first (with `task_id`: that sub-agent of the last
    run), or an `input` in the format of the model's API.
    """

    chain: Sequence[State] = ()
    task_id: str | None = None
    input: list[dict[str, Any]] | None = None
    instructions: str | None = None
    tools: Sequence[ToolSpec | dict[str, Any]] = ()
    """Functions, or a provider's own tools as JSON."""
    tool_choice: str | None = None
    """`auto`, `none`, `required` (any tool), or the name of the tool to call."""
    parallel_calls: bool | None = None
    output: OutputSchema | None = None
    effort: Effort | None = None
    """How much to think; None leaves it to the provider."""
    summary: Summary | None = None
    """How reasoning is summarized; None leaves it to the provider."""
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    history: Mode = "drop"
    store: bool | None = None
    """Whether the provider stores the response; None: unless `history` is `encrypted`."""
    load: Load = reachable
    options: dict[str, Any] = {}
    """The provider's own request fields; None removes a field."""
    attempt: int = 1
    """The number of this try of the call, from 1."""
    note: Callable[[str], None] = _ignore
    """Called with each thing that the history left out, and why."""


class Model(Protocol):
    """Turns a request into the raw events of a provider's API.

    It makes one try. Timeouts between events and retries are the caller's (`runtime.model_call`).
    A model may have a `host` (`host_of`): ids and sealed reasoning are valid at that host only.
    """

    @property
    def name(self) -> str:
        """The model's name at its provider."""
        ...

    @property
    def api(self) -> Api:
        """The API whose events it returns."""
        ...

    def stream(self, request: Request) -> AsyncIterator[list[str]]:
        """The answer's events as they arrive, not decoded; an empty list is a heartbeat.

        Raises `ProviderError` with a message that holds no secret.
        """
        ...

    def cost(self, usage: Usage) -> float | None:
        """The cost of a call in US dollars; None if the price is unknown."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


def host_of(model: Model) -> str | None:
    """The host that a model calls, such as `api.openai.com`; None if unknown."""
    host = getattr(model, "host", None)
    return host if isinstance(host, str) and host else None
