"""A strict client for each wire format, fed with the bytes of a response."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tailrace.core.sse import SseParser
from tests.wire import ag_ui_checker
from tests.wire.anthropic_checker import MessageReader
from tests.wire.chat_checker import ChatReader
from tests.wire.openai_checker import Reader
from tests.wire.vercel_checker import UiReader

Json = dict[str, Any]


OPEN = "open"
"""The end of a response that stops before its run: the client continues with its cursor."""


class Held(NamedTuple):
    """What a client holds after a response: the answer so far, and how the response ended."""

    answer: Any
    end: str


def frames_of(content: bytes) -> list[bytes]:
    """The frames with data; comments and the `retry:` line are no events."""
    assert not content or content.endswith(b"\n\n"), content[-80:]
    found = [frame + b"\n\n" for frame in content.split(b"\n\n") if frame]
    return [frame for frame in found if b"data:" in frame]


def held(name: str, frames: list[bytes]) -> Held:
    """Read a whole response as a strict client of the format does."""
    return _CLIENTS[name](frames)


def _responses(frames: list[bytes]) -> Held:
    reader = Reader().read(frames)
    assert (reader.final is not None) == (frames[-1] == b"data: [DONE]\n\n")
    if reader.final is None:
        return Held(reader.items, OPEN if reader.error is None else "error")
    return Held(reader.final["output"], reader.final["status"])


def _chat(frames: list[bytes]) -> Held:
    reader = ChatReader().read(frames)
    assert reader.is_done
    answer = [reader.texts, reader.calls, reader.annotations, reader.images]
    return Held(answer, reader.finish_reason or "error")


def _messages(frames: list[bytes]) -> Held:
    reader = MessageReader().read(frames)
    assert reader.is_done
    return Held(reader.content, reader.stop_reason or "error")


def _ui(frames: list[bytes]) -> Held:
    reader = UiReader().read(frames)
    assert reader.is_done
    return Held(reader.message, str(reader.ending))


def _ag_ui(frames: list[bytes]) -> Held:
    events = ag_ui_checker.read(frames)
    ag_ui_checker.check(events)
    last = events[-1]
    return Held(ag_ui_checker.messages(events), last.get("outcome", last)["type"])


def _task(frames: list[bytes]) -> Held:
    events = _values(frames)
    numbers = [event["sequence_number"] for event in events]
    assert numbers == list(range(1, len(numbers) + 1)), "events are missing or repeated"
    last = events[-1]["type"]
    return Held(events, last if last in _ENDED else OPEN)


def _run(frames: list[bytes]) -> Held:
    events = _values(frames)
    names = [event.event for frame in frames for event in SseParser().feed(frame)]
    assert names == [event["type"] for event in events]
    assert names[0] == "run.started"
    ends = [name for name in names if name in ("run.finished", "run.error")]
    assert ends in ([], names[-1:])
    return Held(events, ends[0] if ends else OPEN)


def _agents(frames: list[bytes]) -> Held:
    events = _values(frames)
    assert all(event["event_type"] for event in events)
    data = events[-1].get("data")
    last = data.get("type") if isinstance(data, dict) else None
    return Held(events, last if last in _RESPONSE_ENDED else OPEN)


def _values(frames: list[bytes]) -> list[Json]:
    return [json.loads(event.data) for frame in frames for event in SseParser().feed(frame)]


_ENDED = [f"task.{how}" for how in ("completed", "failed", "cancelled", "incomplete")]
_RESPONSE_ENDED = [f"response.{how}" for how in ("completed", "failed", "incomplete")]
_CLIENTS: dict[str, Callable[[list[bytes]], Held]] = {
    "task": _task,
    "run": _run,
    "agents": _agents,
    "openai-responses": _responses,
    "openai-chat": _chat,
    "anthropic-messages": _messages,
    "vercel-ui": _ui,
    "ag-ui": _ag_ui,
}
