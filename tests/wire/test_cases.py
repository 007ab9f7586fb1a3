"""Runs and their frames in a wire format: see `tests/cases.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import ANY

import pytest

from tailrace.core.codec import decode_event
from tailrace.core.events import TERMINAL, AnyEvent
from tailrace.core.fold import State
from tailrace.testing.wire_kit import check_wire, encoded
from tailrace.wire import anthropic_messages, openai_chat, openai_responses, vercel_ui
from tailrace.wire.base import Format
from tests.cases import cases, check
from tests.wire.anthropic_checker import MessageReader
from tests.wire.chat_checker import ChatReader
from tests.wire.frames import chunks_of, events_of
from tests.wire.openai_checker import Reader as ResponseReader
from tests.wire.openai_checker import check_response
from tests.wire.openai_scripts import RUN
from tests.wire.responses_runs import finished, flat, folded, joins_anywhere
from tests.wire.vercel_checker import UiReader

ROOT = Path(__file__).parent / "cases"
CASES = cases(ROOT, given="events.jsonl")


class Wire(NamedTuple):
    """A format, its strict reader, and the values of its frames."""

    format: Format
    reader: Callable[[], Any]
    values: Callable[[list[bytes]], list[Any]]


def brief(response: dict[str, Any]) -> dict[str, Any]:
    """A response without the fields that echo its request."""
    names = [
        "id",
        "previous_response_id",
        "status",
        "output",
        "usage",
        "error",
        "incomplete_details",
    ]
    return {name: response[name] for name in names if response[name]}


def response_events(frames: list[bytes]) -> list[Any]:
    return [
        {**event, "response": brief(event["response"])} if "response" in event else event
        for event in events_of(frames)
    ]


WIRES = {
    "anthropic-messages": Wire(anthropic_messages.FORMAT, MessageReader, events_of),
    "openai-chat": Wire(openai_chat.FORMAT, ChatReader, chunks_of),
    "openai-responses": Wire(openai_responses.FORMAT, ResponseReader, response_events),
    "vercel-ui": Wire(vercel_ui.FORMAT, UiReader, chunks_of),
}


def test_every_format_has_cases() -> None:
    assert {case.parent.name for case in CASES} == set(WIRES)


each = pytest.mark.parametrize("case", CASES, ids=lambda path: str(path.relative_to(ROOT)))


def lines_of(case: Path) -> list[str]:
    return (case / "events.jsonl").read_text(encoding="utf-8").strip("\n").split("\n")


def events_in(case: Path) -> list[AnyEvent]:
    return [decode_event(line.encode()) for line in lines_of(case)]


def response_of(state: State, segment: int | None = None) -> dict[str, Any]:
    response = openai_responses.response_object(state, segment)
    check_response(response)
    return brief(response)


def part_of(events: list[AnyEvent], state: State, segment: int) -> dict[str, Any]:
    """A response of a run that ends, or begins, where the run asks for approvals."""
    live = flat(encoded(openai_responses.FORMAT.after(segment), events))
    response = response_of(state, segment)
    final = ResponseReader().read(live).final
    if final is not None and (final["error"] or {}).get("type") != "stream_cut":
        whole = openai_responses.response_object(state, segment)
        assert brief(finished(final)) == brief(finished(whole))
    return {"input": openai_responses.input_items(state, segment), **response}


@pytest.mark.long(always=True)
@each
def test_a_run_can_be_gone_on_with_anywhere(case: Path) -> None:
    wire, events = WIRES[case.parent.name].format, events_in(case)
    check_wire(wire, events)
    if wire is openai_responses.FORMAT:
        for segment in range(len(folded(events).pauses) + 1):
            check_wire(openai_responses.FORMAT.after(segment), events)
            if events[-1].task_id == RUN and isinstance(events[-1], TERMINAL):
                joins_anywhere(events, segment)


@each
def test_a_run_becomes_the_expected_frames(case: Path) -> None:
    wire, reader, values = WIRES[case.parent.name]
    lines, events = lines_of(case), events_in(case)
    state = State()
    for event in events:
        state.apply(event)
    live = encoded(wire, events)
    encoder, joined = wire.open(state)
    closed = wire.at(state).close("The server stops.")
    whole = flat(live)
    assert reader().read(whole + closed).is_done
    assert reader().read(joined + encoder.close("The server stops.")).is_done
    found: dict[str, Any] = {
        f"{number} {json.loads(line)['type']}": values(frames)
        for number, (line, frames) in enumerate(zip(lines, live, strict=True), 1)
        if frames
    }
    found["joined"] = values(joined)
    if closed:
        found["closed"] = values(closed)
    if wire is openai_responses.FORMAT:
        found["object"] = response_of(state)
        segments = range(len(state.pauses) + 1)
        parts = {f"response {number + 1}": part_of(events, state, number) for number in segments}
        if state.pauses:
            found |= parts
        else:
            assert parts == {"response 1": {"input": ANY, **found["object"]}}
    check(case, found, depth=2)
