"""Sources for the tests of `tailrace.convert`, and strict readers of each target."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from tailrace.convert import Transcoder
from tailrace.core import sse
from tailrace.core.codec import decode_event
from tailrace.core.fold import State
from tailrace.core.run_object import client_view
from tailrace.wire.agents.events import EventReader, RawResponsesStreamEvent
from tests.ingest.streams import lines, recordings
from tests.wire import ag_ui_checker
from tests.wire.anthropic_checker import MessageReader
from tests.wire.chat_checker import ChatReader
from tests.wire.openai_checker import Reader
from tests.wire.vercel_checker import UiReader

FOLDERS = {
    "openai-responses": "openai-responses",
    "openai-chat": "chat-completions",
    "anthropic-messages": "anthropic-messages",
    "vercel-ui": "vercel-ui",
    "run": "run",
}
RECORDINGS = [(api, path) for api, folder in FOLDERS.items() for path in recordings(folder)]
"""Every stream of others that is there: the source's name and the file."""


def ids(one: tuple[str, Path]) -> str:
    return f"{one[0]}/{one[1].stem}"


def as_sse(events: list[str]) -> bytes:
    return b"".join(b"data: %b\n\n" % event.encode() for event in events)


def source_of(path: Path) -> bytes:
    return as_sse(lines(path))


def converted(source: bytes, from_: str, to: str, **options: Any) -> bytes:
    return ended(source, from_, to, **options)[0]


def ended(source: bytes, from_: str, to: str, **options: Any) -> tuple[bytes, Transcoder]:
    transcoder = Transcoder(from_, to, **options)
    return transcoder.feed(source) + transcoder.end(), transcoder


def frames_of(stream: bytes) -> list[bytes]:
    """The frames of a stream, without what only says when to come back."""
    assert stream.endswith(b"\n\n") or not stream
    found = [frame + b"\n\n" for frame in stream.split(b"\n\n")[:-1]]
    return [frame for frame in found if not frame.startswith(b"retry:")]


def data_of(stream: bytes) -> list[Any]:
    return [json.loads(event.data) for event in sse.SseParser().feed(stream)]


def folded(public: list[bytes]) -> State:
    """A run by the strict fold: every event has its place."""
    state = State()
    for line in public:
        state.apply(decode_event(line))
    return state


def read(to: str, stream: bytes) -> Any:
    """What a strict reader of a target ends up with; it fails where the target is not legal."""
    return _READ[to](stream)


def _task(stream: bytes) -> Any:
    return client_view(folded([frame.split(b"data: ")[1] for frame in frames_of(stream)]))


def _jsonl(stream: bytes) -> Any:
    return client_view(folded(stream.splitlines()))


def _responses(stream: bytes) -> Any:
    reader = Reader().read(frames_of(stream))
    assert reader.final is not None, "the response has no end"
    return reader.final


def _chat(stream: bytes) -> Any:
    reader = ChatReader().read(frames_of(stream))
    assert reader.is_done, "the message has no end"
    return reader


def _ui(stream: bytes) -> Any:
    reader = UiReader().read(frames_of(stream))
    assert reader.is_done, "the message has no end"
    return reader


def _messages(stream: bytes) -> Any:
    reader = MessageReader().read(frames_of(stream))
    assert reader.is_done, "the message has no end"
    return reader


def _run(stream: bytes) -> Any:
    run_events = data_of(stream)
    assert run_events[0]["type"] == "run.started"
    ends = [one["type"] for one in run_events if one["type"] in ("run.finished", "run.error")]
    assert len(ends) == 1
    assert run_events[-1]["type"] == ends[0]
    starts = [one["data"]["messageId"] for one in run_events if one["type"] == "text.start"]
    ends = [one["data"]["messageId"] for one in run_events if one["type"] == "text.end"]
    assert sorted(starts) == sorted(ends)
    assert len(set(starts)) == len(starts)
    return run_events


def _ag_ui(stream: bytes) -> Any:
    found = ag_ui_checker.read(frames_of(stream))
    ag_ui_checker.check(found)
    assert found[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR"), "the run has no end"
    return found


def _agents(stream: bytes) -> Any:
    """The events, all of known types; the raw events are Responses streams, which have their ends.

    A response begins again only after its items were superseded.
    """
    found = EventReader().feed(stream)
    assert len(found) == len(frames_of(stream))
    assert [one.event_type for one in found] == [one.type for one in found]
    raw = [one.data for one in found if isinstance(one, RawResponsesStreamEvent)]
    begun = [at for at, one in enumerate(raw) if one["type"] == "response.created"]
    superseded = sum(one.type == "run_items_superseded_event" for one in found)
    assert begun[:1] == [0]
    assert len(begun) <= 1 + superseded
    for first, after in pairwise([*begun, len(raw)]):
        frames = [
            sse.frame(msgspec.json.encode(one), event=one["type"]) for one in raw[first:after]
        ]
        reader = Reader().read(frames)
        assert reader.final is not None, "the response has no end"
    return reader.final


_READ: dict[str, Callable[[bytes], Any]] = {
    "task": _task,
    "jsonl": _jsonl,
    "json": json.loads,
    "openai-responses": _responses,
    "openai-chat": _chat,
    "vercel-ui": _ui,
    "run": _run,
    "anthropic-messages": _messages,
    "ag-ui": _ag_ui,
    "agents": _agents,
}
