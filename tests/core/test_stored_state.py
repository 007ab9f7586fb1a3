"""A saved state as stores hold it: compressed, or as older versions left it."""

from __future__ import annotations

import random
from typing import TypeGuard

import msgspec
import pytest
import zstandard

from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.snapshot import restore, save, save_pieces, saved
from tailrace.core.stored_state import (
    may_have_superseded,
    packed,
    public_part,
    restored,
    unpacked_size,
)
from tailrace.wire import task
from tailrace.wire.base import opens_saved
from tests.traces import TRACES, Trace


def folded(trace: Trace) -> State:
    state = State()
    for event, private in trace.events:
        state.absorb(event, private)
    return state


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_a_stored_state_comes_back(trace: Trace) -> None:
    raw = save(folded(trace), private=True)
    stored = packed(raw)
    assert save(restored(stored), private=True) == raw
    assert unpacked_size(stored) == len(raw)


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_the_public_part_of_a_stored_state_is_what_clients_are_sent(trace: Trace) -> None:
    state, wire = folded(trace), task.FORMAT
    pieces = public_part(packed(save(state, private=True))) or []
    assert b"".join(pieces) == b"".join(save_pieces(state))
    assert state.root is not None
    assert opens_saved(wire)
    frame = wire.open_saved(state.root.task_id, state.sequence_number, 3, pieces)
    assert [b"".join(frame)] == wire.open(state, 3)[1]


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_a_state_that_an_older_version_stored_is_read(trace: Trace) -> None:
    state = folded(trace)
    value = saved(state, private=True)
    hidden = value.pop("private")
    value["pauses"] = hidden["pauses"]
    for shown, own in zip(value["tasks"], hidden["tasks"], strict=True):
        shown |= own
    for entry in hidden["items"]:
        items = value["tasks"][entry["task_index"]]["items"]
        [item] = [one for one in items if one["output_index"] == entry["output_index"]]
        item["private"] = entry["private"]
    raw = msgspec.json.encode(value)
    for stored in (raw, packed(raw)):
        assert saved(restored(stored), private=True) == saved(state, private=True)
        assert unpacked_size(stored) == len(raw)
        assert public_part(stored) is None


def test_usage_in_a_state_of_version_1_gets_that_of_the_tasks_below() -> None:
    (trace,) = (trace for trace in TRACES if trace.name == "usage_of_sub_agents")
    state = folded(trace)
    value = saved(state)
    for shown in value["tasks"]:
        own = [event.usage for event, _ in trace.events if is_usage_of(event, shown["task_id"])]
        shown["usage"] = {
            "calls": len(own),
            **{name: sum(getattr(usage, name) or 0 for usage in own) for name in COUNTS},
            "model": own[-1].model,
        }
    assert [task["usage"]["calls"] for task in value["tasks"]] == [1, 1, 2]
    del value["tasks"][0]["usage"]  # a root without calls of its own
    old = restore(msgspec.json.encode(value | {"version": 1})).tasks
    for name in ("calls", *COUNTS):
        used = [task.usage.fields[name] for task in old.values() if task.usage is not None]
        root, *below = [task["usage"][name] for task in saved(state)["tasks"]]
        assert used == pytest.approx([below[0], *below])
        assert root >= used[0]
    assert old["run_1"].usage is not None
    assert old["run_1"].usage.fields["model"] == "wise"


COUNTS = ("input_tokens", "output_tokens", "cost")


def is_usage_of(event: ev.AnyEvent, task_id: str) -> TypeGuard[ev.TaskUsage]:
    return isinstance(event, ev.TaskUsage) and event.task_id == task_id


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_superseded_items_are_found_without_restoring_the_state(trace: Trace) -> None:
    state = folded(trace)
    superseded = any(
        node.superseded for task in state.tasks.values() for node in task.items.values()
    )
    raw = save(state, private=True)
    assert may_have_superseded(packed(raw)) is superseded
    assert may_have_superseded(packed(raw.replace(b'"version":2', b'"version":1'))) is superseded
    # A state in another form is restored, to be sure.
    assert may_have_superseded(raw)
    assert may_have_superseded(packed(raw.replace(b'"version":2', b'"version":3')))


def test_superseded_items_are_found_between_two_pieces_and_not_in_texts() -> None:
    state = State()
    state.absorb(ev.TaskCreated(task_id="r", sequence_number=1, input='"superseded":true}'))
    raw = save(state, private=True)
    assert not may_have_superseded(packed(raw))
    size = zstandard.DECOMPRESSION_RECOMMENDED_OUTPUT_SIZE
    for cut in range(1, 18):
        text = b" " * (size - len(raw) - cut) + b'"superseded":true' + b" " * size
        assert may_have_superseded(packed(raw + text))
    assert not may_have_superseded(packed(raw + b" " * 3 * size))


def test_a_damaged_state_may_have_superseded_items() -> None:
    stored = packed(save(State(), private=True) + random.Random(1).randbytes(300_000))
    assert not may_have_superseded(stored)
    for damaged in (stored[:-9], stored[:5], stored[:4], stored[:1000] + b"x" + stored[1001:]):
        assert may_have_superseded(damaged)


def test_a_state_of_a_newer_version_is_not_sent() -> None:
    raw = save(State(), private=True)
    assert public_part(packed(raw)) is not None
    assert public_part(packed(raw.replace(b'"version":2', b'"version":3'))) is None


def test_a_damaged_state_is_folded_from_the_start() -> None:
    stored = packed(b"x" * 1_000)
    for damaged in (stored, stored[:-3], stored[:4]):
        assert restored(damaged).sequence_number == 0
    assert unpacked_size(stored[:4]) == 0
    assert restored(None).sequence_number == 0


def test_a_changed_byte_never_makes_another_state() -> None:
    state = folded(TRACES[0])
    stored = packed(save(state, private=True))
    whole, sent = saved(state, private=True), public_part(stored)
    for place in range(len(stored)):
        altered = bytearray(stored)
        altered[place] ^= 1
        changed = bytes(altered)
        assert saved(restored(changed), private=True) in (whole, saved(State(), private=True))
        assert public_part(changed) in (sent, None)
