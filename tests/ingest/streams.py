"""Providers' streams for the tests of `tailrace.ingest`, and the ways in which they arrive."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tailrace.core import sse
from tailrace.core.codec import decode_event, decode_private, encode_event, encode_private
from tailrace.core.errors import StreamError
from tailrace.core.events import RawEvent
from tailrace.core.fold import State
from tailrace.core.run_object import client_view, whole_object
from tailrace.ingest.base import Ingest, Notebook, Outcome
from tests.effort import CUTS, SOAK, sample
from tests.traces import FOLDER as TRACES

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "recordings"
RECORDINGS = Path(os.environ.get("TAILRACE_RECORDINGS", _BESIDE))
FIXTURES = Path(__file__).parent / "fixtures"
"""A few streams of our own, which are always there."""

Make = Callable[[Notebook], Ingest]


def recordings(api: str) -> list[Path]:
    """All streams of one API: one event's JSON a line."""
    return sorted([*(FIXTURES / api).glob("*.jsonl"), *(RECORDINGS / api).glob("*.jsonl")])


def golden(wire_format: str) -> list[Path]:
    """The golden traces in a wire format."""
    return sorted(TRACES.glob(f"*/{wire_format}.sse"))


def lines(path: Path) -> list[str]:
    """The events of a recording or of a golden trace, as JSON."""
    found = [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    if path.suffix == ".jsonl":
        return found
    return [line.removeprefix("data: ") for line in found if line.startswith("data: {")]


def ingested(
    make: Make, events: Sequence[Any], run_id: str | None = None
) -> tuple[Notebook, Outcome]:
    """A whole stream in a task that has ended; the strict fold has checked every event.

    An event is its JSON, or the object.
    """
    book = Notebook(run_id) if run_id else Notebook()
    ingest = make(book)
    for event in events:
        ingest.feed(event if isinstance(event, str) else json.dumps(event))
    outcome = ingest.end()
    assert ingest.end() == outcome
    assert not any(node.is_open for node in book.node.items.values())
    book.conclude(outcome)
    return book, outcome


def view_of(book: Notebook) -> dict[str, Any]:
    """The task's object as clients see it; what was written is read back on the way."""
    view = client_view(book.state)
    check_readable(book)
    return view


def shown(book: Notebook) -> dict[str, Any]:
    """The task's object, private parts included."""
    return whole_object(book.state)


def items(book: Notebook) -> list[dict[str, Any]]:
    """The items that clients are shown, without ids and what is always so; what was written is
    read back on the way."""
    found = []
    for item in view_of(book)["output"]:
        item.pop("id")
        item.pop("role", None)
        found.append(item)
    return found


def raw_types(book: Notebook) -> list[str]:
    """The types of the events that were kept raw."""
    return [kind for kind, _ in kept_raw(book)]


def kept_raw(book: Notebook) -> list[tuple[str, Any]]:
    """The types and the JSON of the events that were kept raw."""
    return [
        (event.event_type, private.raw)
        for event, private in book.take()
        if isinstance(event, RawEvent) and private is not None
    ]


def check_breaks_nothing(make: Make, events: list[Any]) -> None:
    """However odd the events are, what was read before them stands, and the task ends."""
    book = Notebook()
    ingest = make(book)
    for event in events:
        try:
            ingest.feed(json.dumps(event))
        except StreamError:
            break
    book.conclude(ingest.end())
    check_readable(book)


def check_readable(book: Notebook) -> None:
    """What was written survives its own bytes: read back, it folds to the same object."""
    state = State()
    for event, private in book.take():
        if private is not None:
            private = decode_private(encode_private(private))
        state.apply(decode_event(encode_event(event)), private)
    assert whole_object(state) == whole_object(book.state)
    assert book.node.ended


def cut_points(events: list[str]) -> list[int]:
    """After how many events to cut: after each, but only some within a long run of similar events.

    A cut costs the whole stream before it, so trying each of thousands would take minutes.
    """
    shapes = [_shape(json.loads(event)) for event in events]
    found, run = [0], 0
    for count in range(1, len(events)):
        run = run + 1 if shapes[count - 1] == shapes[count] else 0
        if run < 3 or run % 19 == 0:
            found.append(count)
    return found


def _shape(value: Any) -> Any:
    """What two events of one kind have in common."""
    if isinstance(value, dict):
        return [value.get("type"), *((name, _shape(one)) for name, one in sorted(value.items()))]
    return [_shape(one) for one in value[:1]] if isinstance(value, list) else type(value)


def somewhere(seed: int, size: int) -> int:
    """A place at which to cut."""
    return random.Random(seed).randrange(size)


def cut_after_each(make: Make, events: list[str]) -> Iterator[tuple[int, Notebook, Outcome]]:
    """The task as it ends if the stream is cut before its first event, and after later events.

    The stream is read once. What is ended each time is a copy, without the events that were
    written so far: so all the cuts cost little more than the stream.
    """
    book = Notebook()
    ingest = make(book)
    places = range(len(events) + 1)
    cuts = set(places if SOAK else [*sample(cut_points(events), CUTS), len(events)])
    for count in places:
        if count:
            ingest.feed(events[count - 1])
        if count not in cuts:
            continue
        book.take()
        ended, cut = copy.deepcopy((book, ingest))
        outcome = cut.end()
        ended.conclude(outcome)
        yield count, ended, outcome


def check_cut_everywhere(make: Make, events: list[str]) -> None:
    """Cut after any event, a stream ends in a legal state with nothing left open."""
    for _, book, outcome in cut_after_each(make, events):
        assert book.node.ended
        assert book.node.status == _ENDS.get(outcome.status, outcome.status)
        assert not any(node.is_open for node in book.node.items.values())


_ENDS = {"cut": "incomplete"}


def as_frames(events: list[str]) -> bytes:
    """The same stream as a server sends it."""
    return b"".join(b"data: %b\n\n" % event.encode() for event in events)


def fed_in_chunks(make: Make, stream: bytes, chunks: Iterator[int]) -> tuple[Notebook, Outcome]:
    """A stream that arrives in pieces through the SSE parser; broken JSON ends it."""
    book = Notebook()
    ingest, parser, at = make(book), sse.SseParser(), 0
    try:
        while at < len(stream):
            size = next(chunks)
            for event in parser.feed(stream[at : at + size]):
                ingest.feed(event.data)
            at += size
    except StreamError:
        pass
    outcome = ingest.end()
    book.conclude(outcome)
    return book, outcome


def random_sizes(seed: int) -> Iterator[int]:
    """Sizes of chunks, mostly small."""
    chance = random.Random(seed)
    while True:
        yield chance.choice((1, 2, 3, 7, 40, 400))
