"""Runs as chat completions: read from the start, or joined, and compared with what is expected."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from tailrace.core.events import AnyEvent
from tailrace.core.fold import State
from tailrace.core.run_object import client_view
from tailrace.testing.wire_kit import as_recorded, encoded
from tailrace.wire.openai_chat import FORMAT
from tests.wire.chat_checker import ChatReader, expected, waiting_calls


def state_of(events: Sequence[AnyEvent]) -> State:
    state = State()
    for event in events:
        state.absorb(event)
    return state


def frames_of(events: Sequence[AnyEvent]) -> list[bytes]:
    return [frame for each in encoded(FORMAT, events) for frame in each]


def joined(events: Sequence[AnyEvent], place: int) -> ChatReader:
    """What a reader ends up with that came after so many events."""
    encoder, frames = FORMAT.open(state_of(events[:place]))
    for one in as_recorded(events[place:]):
        frames += encoder.encode(one)
    return ChatReader().read(frames)


def check(events: Sequence[AnyEvent], reader: ChatReader) -> None:
    """The reader holds what the run's object holds, or got an error."""
    state = state_of(events)
    if state.root is None:
        return
    view = client_view(state)
    chunks = [json.loads(msgspec.json.encode(event)) for event in events]
    assert reader.is_done == (state.root.ended or reader.error is not None)
    if reader.error is not None and reader.error["type"] == "stream_cut":
        return
    texts = expected(view, chunks)
    is_whole = view.get("status") == "completed" and reader.error is None
    if is_whole and "structured_output" in view and not (texts["content"] or texts["refusal"]):
        texts["content"] = json.dumps(view["structured_output"]["value"])
        reader.texts["content"] = json.dumps(json.loads(reader.texts["content"]))
    if state.root.ended:
        assert reader.texts == texts
        assert (reader.error is None) == (reader.finish_reason is not None)
    if is_whole:
        calls = waiting_calls(view)
        whole = {(call["id"], call["name"], call["arguments"]) for call in reader.calls}
        assert whole >= set(calls)
        assert reader.finish_reason == ("tool_calls" if calls else "stop")
