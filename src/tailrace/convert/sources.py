"""Streams as sources: bytes of any format to the events of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import msgspec

from tailrace.convert.framing import SourceEvent
from tailrace.core import events as ev
from tailrace.core import sse
from tailrace.core.codec import MAX_INTEGER, decode_event
from tailrace.core.errors import InvalidCursor, MalformedEvent, StreamCut, StreamError
from tailrace.core.event_sink import Sink
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, Executor
from tailrace.core.snapshot import restore
from tailrace.core.values import dict_of
from tailrace.ingest.base import ExecutorOf, Ingest, Notebook, Outcome, read_json, refuse_second_run
from tailrace.wire import task

_CUT = "The stream ended before the answer did."
_FRAMES = ("task.snapshot", "task.gap")
_LONGEST_HEAD = 400
"""How far into a frame to search for its type; a snapshot may be larger than any event."""


class SourceState(NamedTuple):
    """A state instead of events; `gap` is the reason why a reader has to start again."""

    state: State
    epoch: int
    gap: str | None


SourceOutput = ev.Recorded | SourceState


class Source(Protocol):
    """Reads a stream, event by event."""

    error: StreamError | None
    """Why the stream has no proper end; set when it is over."""

    @property
    def state(self) -> State:
        """The run so far."""
        ...

    def feed(self, piece: SourceEvent) -> Iterator[SourceOutput]:
        """Read an event; raise `StreamError` if it is invalid."""
        ...

    def stop(self) -> None:
        """Note `[DONE]`; the end follows."""
        ...

    def end(self, error: StreamError | None) -> Iterator[SourceOutput]:
        """The last events, at the end of the stream or after an error."""
        ...


def _client(_name: str) -> Executor:
    """The executor of a call: the client, because a converter runs no tools."""
    return "client"


class ProviderSource:
    """The stream of a model call as a run, which ends by the outcome of the call.

    The run waits if the call waits for approvals.
    """

    def __init__(
        self,
        make: Callable[[Sink, ExecutorOf], Ingest],
        run_id: str,
        *,
        facts_of: Callable[[str], dict[str, Any]] | None = None,
    ) -> None:
        """`facts_of` reads the facts of the run, such as its `task_id`, from the first event."""
        self._make = make
        self._run_id = run_id
        self._facts_of = facts_of or _facts
        self._begun: tuple[Notebook, Ingest] | None = None
        self.error: StreamError | None = None

    @property
    def state(self) -> State:
        """The run so far."""
        return self._begin()[0].state

    def feed(self, piece: SourceEvent) -> Iterator[SourceOutput]:
        """Read the next event of the provider."""
        book, ingest = self._begin(piece.data)
        ingest.feed(piece.data)
        yield from _written(book)

    def stop(self) -> None:
        """Ignore it: the provider has ended its answer before."""

    def end(self, error: StreamError | None) -> Iterator[SourceOutput]:
        """End the run. A complete answer stays complete, whatever follows it."""
        self.error = error
        book, ingest = self._begin()
        self._conclude(book, ingest.end())
        yield from _written(book)

    def _conclude(self, book: Notebook, outcome: Outcome) -> None:
        if outcome.status == "cut":
            if self.error is None:
                self.error = StreamCut(_CUT)
            else:
                info = ErrorInfo(code=self.error.code, message=str(self.error))
                outcome = Outcome(status="failed", error=info)
        if outcome.status == "completed" and outcome.requests:
            book.emit(ev.TaskInputRequired(task_id=book.task_id, requests=outcome.requests))
        else:
            book.conclude(outcome)

    def _begin(self, first: str = "") -> tuple[Notebook, Ingest]:
        """Begin the run with the first event, which mostly has the model and the time."""
        if self._begun is None:
            try:
                facts = self._facts_of(first)
            except StreamError:
                facts = {}
            book = Notebook(facts.pop("task_id", self._run_id), **facts)
            self._begun = book, self._make(book, _client)
        return self._begun


class MessageSource(ProviderSource):
    """A stream whose own end may be no more than `[DONE]`: a UI message, or chat completions.

    Hand-written backends often leave out `finish`, and their clients accept that. Some servers of
    chat completions send no `finish_reason`.
    """

    def stop(self) -> None:
        """Pass it to the ingest, which knows whether something is missing."""
        self._begin()[1].feed(sse.DONE)


def _written(book: Notebook) -> Iterator[SourceOutput]:
    """The written events, without their bytes: few targets need them."""
    for event, _ in book.take():
        yield ev.Recorded(event, b"")


def _facts(first: str) -> dict[str, Any]:
    """The model and the time in a provider's first event."""
    event = read_json(first)
    facts: dict[str, Any] = {}
    for holder in (event, event.get("response"), event.get("message")):
        if isinstance(holder, dict):
            model = holder.get("model")
            created = holder.get("created_at", holder.get("created"))
            if model and isinstance(model, str):
                facts["model"] = model
            if isinstance(created, int | float) and 0 < created < MAX_INTEGER:
                facts["created_at"] = created
    return facts


class TaskSource:
    """A stream of our own events, by the rules for readers (PROTOCOL.md, section 4).

    Events keep their bytes. An event without a number gets the next number, because most targets
    need it. Repeated events are left out.
    """

    def __init__(self, _run_id: str) -> None:
        self.state = State()
        self._last = 0
        self._epoch = 1
        self._gap: str | None = None
        self.error: StreamError | None = None

    def feed(self, piece: SourceEvent) -> Iterator[SourceOutput]:
        """Read an event, or a frame that stands for many."""
        return iter(self._read(piece))

    def _read(self, piece: SourceEvent) -> list[SourceOutput]:
        raw = piece.data.encode("utf-8", "replace")
        self._note_epoch(piece.id)
        if any(name.encode() in raw[:_LONGEST_HEAD] for name in _FRAMES):
            frame = _read_frame(raw)
            if frame.get("type") in _FRAMES:
                return self._frame(frame)
        event = decode_event(raw)
        if isinstance(event, ev.Unknown) and event.type in _FRAMES:
            return self._frame(_read_frame(raw))
        self._refuse_another_run(event)
        if 0 < event.sequence_number <= self.state.sequence_number:
            return []
        self.state.absorb(event)
        if b"\n" in raw or b"\r" in raw:
            raw = msgspec.json.format(raw, indent=-1)
        number = self._last = max(event.sequence_number, self._last + 1)
        if number != event.sequence_number:
            raw = msgspec.json.encode({**msgspec.json.decode(raw), "sequence_number": number})
            event = msgspec.structs.replace(event, sequence_number=number)
        return [ev.Recorded(event, raw, self._epoch)]

    def stop(self) -> None:
        """Ignore it: only the events of the log count."""

    def end(self, error: StreamError | None) -> Iterator[SourceOutput]:
        """End without events: the run of another server is not changed."""
        root = self.state.root
        is_open = root is None or not (root.ended or root.status == "input_required")
        if is_open and not silently_done(self.state):
            error = error or StreamCut(_CUT)
        self.error = error
        return iter(())

    def _note_epoch(self, ident: str) -> None:
        try:
            self._epoch = task.FORMAT.cursor(ident).epoch or 1
        except InvalidCursor:
            self._epoch = 1

    def _frame(self, frame: dict[str, Any]) -> list[SourceOutput]:
        if frame["type"] == "task.gap":
            self._gap = str(frame.get("reason"))
            return []
        self.state = restore(msgspec.json.encode(frame.get("state")))
        self._last = self.state.sequence_number
        gap, self._gap = self._gap, None
        return [SourceState(self.state, self._epoch, gap)]

    def _refuse_another_run(self, event: ev.AnyEvent) -> None:
        root = self.state.root
        if (
            isinstance(event, ev.TaskCreated)
            and event.parent_task_id is None
            and root is not None
            and root.ended
        ):
            refuse_second_run(root.task_id, event.task_id)


def silently_done(state: State) -> list[str]:
    """The tasks of a stream without lifecycle events whose items are all done, children first.

    Such a stream has no other sign that it is complete.
    """
    tasks = list(state.tasks.values())
    nodes = [node for task in tasks for node in task.items.values()]
    is_silent = all(task.status is None for task in tasks)
    is_done = bool(nodes) and not any(node.is_open for node in nodes)
    return [task.task_id for task in reversed(tasks)] if is_silent and is_done else []


def _read_frame(raw: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise MalformedEvent(f"Not an event: {error}") from error
    return dict_of(value)
