"""Large JSON in pieces: the same bytes, and no piece larger than it may be."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tailrace.core import json_pieces
from tailrace.core.errors import MalformedEvent
from tailrace.core.events import TaskCreated
from tailrace.core.fold import State
from tailrace.core.json_pieces import PIECE_BYTES, cut_pieces, object_pieces, shared
from tailrace.core.snapshot import restore, save, save_pieces, saved
from tailrace.core.sse import SseParser
from tailrace.core.stored_state import restored
from tailrace.wire import agents, openai_responses, run, task
from tailrace.wire.base import Format, OpensInPieces, opened, opens_in_pieces
from tests.traces import TRACES, Trace


def folded(trace: Trace) -> State:
    state = State()
    for event, private in trace.events:
        state.absorb(event, private)
    return state


VALUES: list[dict[str, Any]] = [
    {},
    {"a": 1},
    {"a": []},
    {"a": [1]},
    {"a": [1, "é", None], "b": {"c": [2]}, "d": [[]], "e": 0.5},
    {"a": 1, "b": ["x" * 70] * 9, "c": ["y"]},
]


@pytest.mark.parametrize("value", VALUES, ids=str)
@pytest.mark.parametrize("size", [1, 100, PIECE_BYTES])
def test_pieces_of_an_object_join_to_its_json(
    value: dict[str, Any], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_pieces, "PIECE_BYTES", size)
    assert b"".join(object_pieces(value)) == msgspec.json.encode(value)
    monkeypatch.setattr(json_pieces, "SHARED_BYTES", size)
    assert b"".join(shared(value, {})) == msgspec.json.encode(value)


def test_values_that_repeat_long_texts_take_the_memory_of_each_text_once() -> None:
    text, cited = (
        "é" * 100_000,
        [{"url": "https://page.example", "start_index": n} for n in range(999)],
    )
    part = {"text": text, "annotations": cited}
    values = [
        {"delta": text},
        {"part": part},
        {"output": [{"content": [part, {"text": "short"}]}] * 5},
    ]
    known: dict[bytes, bytes] = {}
    pieces = [piece for value in values for piece in shared(value, known)]
    assert b"".join(pieces) == b"".join(map(msgspec.json.encode, values))
    held = {id(piece): len(piece) for piece in pieces}
    assert sum(held.values()) < len(msgspec.json.encode(part)) + 2_000


def test_a_long_list_is_encoded_in_bounded_pieces() -> None:
    found = list(object_pieces({"list": ["x" * 10_000] * 100}))
    assert max(map(len, found)) < PIECE_BYTES + 20_000


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_bytes_are_cut_into_pieces_of_at_most_a_size(size: int) -> None:
    parts = [b"", b"ab", b"cde", b"f", b"", b"ghijklmn", b"o", b"pq"]
    found = list(cut_pieces(parts, size))
    assert b"".join(found) == b"abcdefghijklmnopq"
    assert max(map(len, found)) <= size
    assert len(found) <= 17 // size + len(parts)
    assert not list(cut_pieces([b""], size))


@pytest.mark.parametrize("size", [1, PIECE_BYTES])
@pytest.mark.parametrize("trace", TRACES, ids=[trace.name for trace in TRACES])
def test_a_state_saved_in_lines_is_restored_from_them(
    trace: Trace, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = folded(trace)
    monkeypatch.setattr(json_pieces, "PIECE_BYTES", size)
    raw = save(state, private=True)
    assert json.loads(raw) == json.loads(msgspec.json.encode(saved(state, private=True)))
    assert saved(restore(raw), private=True) == saved(state, private=True)
    # As an older version wrote it.
    assert saved(restore(b"".join(save_pieces(state)))) == saved(state)


def test_lines_that_no_state_was_saved_in_are_refused() -> None:
    line = b'{"version":1,"position":0,"sequence_number":0,"tasks":[{"items":[\n7]}]}'
    for raw in (b"", line, line.replace(b"7", b'{"output_index":1}')):
        with pytest.raises(MalformedEvent):
            restore(raw)


def test_the_opening_of_a_large_state_is_one_frame_in_pieces() -> None:
    assert isinstance(task.FORMAT, OpensInPieces)
    state = folded(TRACES[0])
    [frame] = task.FORMAT.open(state, 3)[1]
    assert b"".join(task.FORMAT.open_in_pieces(state, 3)[1]) == frame
    [event] = SseParser().feed(frame)
    assert event.id == f"3-{state.sequence_number}"
    assert json.loads(event.data)["state"] == json.loads(msgspec.json.encode(saved(state)))


@pytest.mark.parametrize("wire", [openai_responses.FORMAT, agents.FORMAT, run.FORMAT])
@pytest.mark.parametrize("trace", TRACES, ids=[trace.name for trace in TRACES])
def test_the_frames_of_a_state_are_the_same_in_pieces(
    trace: Trace, wire: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_pieces, "SHARED_BYTES", 1)  # every string is long
    state = folded(trace)
    assert opens_in_pieces(wire)
    assert b"".join(wire.open_in_pieces(state, 3)[1]) == b"".join(opened(wire, state, 3)[1])
    assert b"".join(wire.open_in_pieces(State())[1]) == b""


def test_a_snapshot_that_cannot_be_restored_means_to_fold_from_the_start() -> None:
    state = State()
    for event, _private in TRACES[0].events:
        state.absorb(event)
    assert saved(restored(save(state))) == saved(state)
    assert saved(restored(None)) == saved(State())
    assert saved(restored(b'{"version": 99}')) == saved(State())


def test_the_next_reference_continues_after_the_turns_before() -> None:
    state = State()
    state.absorb(TaskCreated(task_id="r", sequence_number=1, reference_start=5))
    assert state.root is not None
    assert state.root.next_reference == 5
