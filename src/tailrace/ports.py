"""The seams: what the runtime asks of a store, a bus and a model. Adapters keep these promises.

The log is the truth, the bus is a hint: a reader that hears nothing from the bus reads the log and
misses nothing. Whatever a call of a store has answered is durable.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from tailrace.core.errors import TailraceError
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.history import Api, Load, Mode, reachable
from tailrace.core.items import Usage
from tailrace.core.lines import Lines

MAX_ATTEMPTS = 5
"""How many workers may lose a run before it is ended as failed: one that kills them stops."""

FORGET_SECONDS = 60.0
"""How long a run to forget stays after its end, so that its clients see how it ended."""


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that somebody asks for. `owner` is the principal it belongs to; "" is nobody's.

    `public` and `private` are the parts of its first event, `task.created`, number 1. One to
    `forget` is deleted shortly after its end, whatever is kept of others.
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
    epoch: int = 1
    """The epoch of its first event. Each claim adds 1."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a listing knows of a run without reading its events."""

    run_id: str
    agent: str
    thread_id: str
    owner: str
    ordinal: int
    """Its place in its owner's thread, from 1 and given once: the order of a thread's stream."""
    previous_run_id: str | None
    metadata: bytes
    last_seq: int
    epoch: int
    attempts: int
    """1 since its first claim, and one more for each worker that lost it."""
    created_at: float
    ended_at: float | None
    trimmed_to: int
    """The events up to this number are gone; 0 while all are there."""


class Head(msgspec.Struct, frozen=True):
    """How far a run's log goes: what a reader has to know to see that it missed something."""

    last_seq: int
    epoch: int
    ended: bool


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one flush writes of one run: consecutive events, encoded, and at times a snapshot.

    `privates` is as long as `publics`; an empty entry means that the event has no private part.
    `snapshot` is the saved state after the last of them, with its private parts.
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


class Basis(msgspec.Struct, frozen=True):
    """What a run's state is folded from: the nearest snapshot and the events after it.

    Not all of them where they are many. `epoch` is of the writer of the event that the state is
    wanted after; None when retention took that one.
    """

    info: RunInfo
    snapshot: Snapshot | None
    events: list[Recorded]
    epoch: int | None


class Claim(msgspec.Struct, frozen=True):
    """The right to write a run, for as long as its lease is kept.

    `attempt` is 1, and one more for each worker that lost the run. A run that its worker released
    was not lost. Past `MAX_ATTEMPTS` (a setting) the claimer ends the run as failed.
    """

    run_id: str
    agent: str
    epoch: int
    attempt: int
    last_seq: int


class Letter(msgspec.Struct, frozen=True):
    """Something for a run's writer: a cancel, or an answer. Numbered from 1 per run."""

    number: int
    kind: Literal["cancel", "input"]
    body: bytes


class Trimmed(TailraceError):
    """The events that a reader wants were taken by retention; a final snapshot may be there."""

    code = "trimmed"


class EventLog(Protocol):
    """Where runs are kept. Order is by `seq` alone; `seq` is dense; bytes never change.

    A method raises `StorageBusy` while the store is away or full: the caller may ask again.
    """

    async def create(self, run: NewRun) -> RunInfo | None:
        """Make a run with its first event, in its `epoch`; None, and no change, if the id is taken.

        It waits to be claimed from then on.
        """

    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        """Write batches in one transaction; each run is accepted or refused on its own.

        A batch is refused with `SeqConflict` when its run does not end right before it, has ended,
        or another epoch writes it. One that is already there, byte for byte, is accepted again: a
        retry after a lost answer changes nothing. `ended` also gives up the claim.
        """

    async def read(self, run_id: str, after: int, limit: int = 10_000) -> list[Recorded]:
        """Events after `after`, in order; at least one batch if there is any, about `limit`.

        Raises `Trimmed` when the next one is gone, and `StorageError` when a checksum is wrong.
        """

    async def read_lines(self, run_id: str, after: int, limit: int = 10_000) -> list[Lines]:
        """The same events as `read` gives, undecoded: for those who only pass them on."""

    async def read_private(self, run_id: str, after: int = 0) -> dict[int, bytes]:
        """The private parts of the events after `after`, by number."""

    async def info(self, run_id: str) -> RunInfo | None:
        """What is known of a run."""

    async def heads(self, run_ids: list[str]) -> dict[str, Head]:
        """How far these runs' logs go, in one query; unknown ids are left out."""

    async def runs(
        self,
        *,
        thread_id: str | None = None,
        owner: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[RunInfo]:
        """Runs in order: a thread's by ordinal, else by creation; `after` is the last one seen.

        Raises `NotFound` when that one is not in this listing (any more): the place is unknown, and
        an empty page would look like the end.
        """

    async def thread_runs(
        self, thread_id: str, *, owner: str = "", first: int = 1, limit: int = 100
    ) -> list[RunInfo]:
        """The runs of an owner's thread from ordinal `first` on, in their order."""

    async def newest_run(self, thread_id: str, *, owner: str = "") -> RunInfo | None:
        """The last run of an owner's thread that is still there."""

    async def last_ordinal(self, thread_id: str, *, owner: str = "") -> int:
        """The highest ordinal that an owner's thread ever gave, also to a run that is deleted."""

    async def snapshot(self, run_id: str, at_most: int | None = None) -> Snapshot | None:
        """The newest snapshot (not after event `at_most`), if there is one."""

    async def basis(self, run_id: str, at_most: int | None = None) -> Basis | None:
        """`info`, `snapshot` and `read` after it in one look; None if there is no such run.

        The state is wanted after event `at_most`, or now. Raises `Trimmed` as `read` does.
        """

    async def repack(self, run_id: str) -> None:
        """Join a run's batches into larger rows, the same bytes; at any time, by anybody."""

    async def trim(self, run_id: str, snapshot: bytes) -> None:
        """Keep only the final snapshot of an ended run; its events are gone from then on."""

    async def delete(self, run_id: str) -> bool:
        """Forget a run and everything of it; False if there is none.

        Blobs that it alone used are unused from then on.
        """

    async def expired(
        self, *, full_for: float, snapshot_for: float, forget_after: float = FORGET_SECONDS
    ) -> tuple[list[str], list[str]]:
        """Ended runs to trim and ended runs to delete, by how many seconds ago they ended.

        Some of them, those that ended first; the others are named when these are gone.
        """

    async def check(self) -> None:
        """Raise a `StorageError` unless the store can be read and written now."""

    async def close(self) -> None:
        """Finish what is under way and let go of everything."""


class Queue(Protocol):
    """Who may write which run. Time is the database's (SQLite: the boot's), not a worker's."""

    async def claim(
        self,
        worker: str,
        agents: list[str],
        lease: float,
        limit: int = 1,
        held: Sequence[str] = (),
    ) -> list[Claim]:
        """Take waiting runs of these agents, oldest first, each with a new epoch.

        A run waits when it has not ended and has no live lease. A run in `held` is not taken: the
        worker still has it, although its lease may have ended.
        """

    async def take_over(self, run_id: str, worker: str, lease: float) -> Claim | None:
        """Claim this run whoever holds it, when nobody reads its letters; None if it ended."""

    async def extend(self, worker: str, claims: list[tuple[str, int]], lease: float) -> set[str]:
        """Keep leases on (run_id, epoch) alive; the run_ids whose claim is lost.

        A lease that has ended is alive again, unless another worker has claimed the run. May also
        be called on another thread's event loop: leases are kept while an agent blocks this one.
        """

    async def release(self, run_id: str, epoch: int) -> None:
        """Give a claim up, so that another worker need not wait for the lease to end.

        A parked run stays parked.
        """

    async def park(self, worker: str, claims: list[tuple[str, int]], first_go: float) -> set[str]:
        """Let runs wait for a letter without a lease; the run_ids that are parked now.

        A run with a letter that was not acknowledged is not parked, nor one whose claim is lost.
        `claim` passes a parked run over until a letter comes. Then its worker has the lease again
        for `first_go` seconds, and has to extend it; after that any worker may claim the run. A
        parked run that was released may be claimed as soon as a letter comes. The epoch stays: the
        worker may write until another one claims. `extend` ends the parking.
        """

    async def woken(self, worker: str) -> set[str]:
        """The runs that this worker parked and still holds, and that are parked no more."""


class Inbox(Protocol):
    """The one way in: what reaches a running run goes through here, and its writer reads it."""

    async def post(self, run_id: str, kind: Literal["cancel", "input"], body: bytes) -> int | None:
        """Leave a letter; its number, or None if the run is unknown or has ended."""

    async def letters(self, run_ids: list[str]) -> dict[str, list[Letter]]:
        """The letters that were not acknowledged, in order; runs without any are left out."""

    async def acknowledge(self, run_id: str, number: int) -> None:
        """The letters up to this number were acted upon."""


class Blobs(Protocol):
    """Large content, stored once by its hash; the log carries references.

    A blob stays as long as a run that uses it. One that nobody uses (any more) waits for a while:
    a run may be about to use it, or somebody to put the same bytes again.
    """

    async def put_blob(self, data: bytes, mime_type: str, run_id: str | None = None) -> str:
        """Keep these bytes; their SHA-256 in hex, under which they are found.

        With `run_id` that run uses them from now on; `NotFound` if there is none.
        """

    async def use_blobs(self, run_id: str, sha256s: list[str]) -> set[str]:
        """Note that a run uses blobs; those that are not there. `NotFound` if there is no run."""

    async def collect_blobs(self, unused_for: float, limit: int = 100) -> int:
        """Forget blobs that no run has used for so many seconds, some at a time; how many."""

    async def blob(self, sha256: str) -> tuple[bytes, str] | None:
        """The bytes and their type."""


class Store(EventLog, Queue, Inbox, Blobs, Protocol):
    """Everything that has to survive."""


class Subscription(Protocol):
    """One reader's ear on some runs. Hearing nothing means nothing: read the log."""

    async def get(self, wait: float) -> list[Recorded]:
        """Events published since; empty after `wait` seconds or when some were dropped."""

    def listen(self, heard: Callable[[list[Recorded]], None]) -> None:
        """Call `heard` with what is published from now on, at once, instead of `get`.

        With an empty list when some were dropped. It must not raise, and not wait: the loop and
        the writer of the run wait for it.
        """

    def close(self) -> None:
        """Stop listening."""


class Bus(Protocol):
    """Tells readers about events that are already durable. May lose, repeat and reorder."""

    def publish(self, run_id: str, events: list[Recorded]) -> None:
        """Pass on events of one run; never waits, never raises."""

    def subscribe(self, run_id: str) -> Subscription:
        """Listen to one run from now on."""

    async def check(self) -> None:
        """Raise a `TailraceError` if other processes cannot be reached now; within seconds."""

    async def close(self) -> None:
        """Let go of everything."""


class Mirror(Protocol):
    """Shows the runs that this process writes to outsiders, in a shape of their own."""

    def begin(self, run_id: str, state: State) -> None:
        """A writer here takes a run up after this state, which is durable and stays its own."""

    def show(self, run_id: str, events: list[Recorded]) -> None:
        """The next events of the run are durable; never waits, never raises."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call; `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    strict: bool = False
    """Whether the provider has to keep the arguments to the schema."""


class OutputSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON Schema that the model's answer has to follow."""

    schema: dict[str, Any]
    name: str = "answer"
    strict: bool = True


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How hard a model may be told to think. Not every model knows all of them."""

Summary = Literal["auto", "concise", "detailed"]
"""How OpenAI tells of reasoning; at Anthropic all three only ask that it is told."""


def _unheard(_note: str) -> None:
    """What nobody wants to know."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One model call, in no provider's words.

    What was said before is a `chain` of runs, oldest first (`task_id`: the history of a sub-agent
    in the last of them); or an `input` that is built already, in the words of the model's API.
    """

    chain: Sequence[State] = ()
    task_id: str | None = None
    input: list[dict[str, Any]] | None = None
    instructions: str | None = None
    tools: Sequence[ToolSpec | dict[str, Any]] = ()
    """Functions; or a provider's own tools, as they stand in its request."""
    tool_choice: str | None = None
    """`auto`, `none`, `required` (some tool), or the name of the tool that has to be called."""
    parallel_calls: bool | None = None
    output: OutputSchema | None = None
    effort: Effort | None = None
    """How hard to think; None leaves it to the provider."""
    summary: Summary | None = None
    """How the reasoning is told; None leaves it to the provider."""
    max_output_tokens: int | None = None
    temperature: float | None = None
    history: Mode = "drop"
    store: bool | None = None
    """Whether the provider keeps the response; None: unless its reasoning comes back sealed."""
    load: Load = reachable
    options: dict[str, Any] = {}
    """The provider's own fields, as they stand in its request; None takes a field out of it."""
    attempt: int = 1
    """Which try of this call it is."""
    note: Callable[[str], None] = _unheard
    """Called by the model with each thing that the history had to leave out, and why."""


class Model(Protocol):
    """A model of some provider: it turns a request into the raw events of its API.

    It makes one try and knows no patience: timeouts between events, retries and what is shown of
    them are the caller's (`tailrace.runtime.calling`). Where several hosts speak one API, it also
    has a `host`: what one of them sealed or named, no other can read (`host_of`).
    """

    @property
    def name(self) -> str:
        """The model's name, as its provider knows it."""
        ...

    @property
    def api(self) -> Api:
        """Whose events they are, and so who reads them."""
        ...

    def stream(self, request: Request) -> AsyncIterator[list[str]]:
        """The answer's events as they arrive, undecoded; an empty list is a sign of life.

        Raises `ProviderError`, in words without any secret.
        """
        ...

    def cost(self, usage: Usage) -> float | None:
        """What a call that used so much costs, in US dollars; None if nobody knows."""
        ...

    async def close(self) -> None:
        """Let go of its connections."""
        ...


def host_of(model: Model) -> str | None:
    """Where a model is asked, as `api.openai.com`; None if it does not say."""
    host = getattr(model, "host", None)
    return host if isinstance(host, str) and host else None
