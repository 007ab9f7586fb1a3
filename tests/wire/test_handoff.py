"""A run whose agent changes, in the formats where `model` names the agent that speaks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.items import InputRequest, Message, Text, ToolCall
from tailrace.testing.wire_kit import as_recorded
from tailrace.wire import openai_responses
from tailrace.wire.anthropic_messages.object import message_object
from tailrace.wire.formats import FORMATS
from tailrace.wire.openai_chat import completion
from tests.traces import TRACES

HANDOFF = [event for trace in TRACES if trace.name == "handoff" for event, _ in trace.events]
FIRST, SECOND = b"Which invoice?", b"You get your money back."


def folded(events: Sequence[ev.AnyEvent]) -> State:
    state = State()
    for event in events:
        state.absorb(event)
    return state


def _sent(name: str) -> bytes:
    encoder = FORMATS[name].at(State())
    return b"".join(frame for one in as_recorded(HANDOFF) for frame in encoder.encode(one))


def _replayed(name: str) -> bytes:
    return b"".join(FORMATS[name].open(folded(HANDOFF))[1])


@pytest.mark.parametrize("name", ["openai-responses", "openai-chat", "anthropic-messages"])
@pytest.mark.parametrize("stream", [_sent, _replayed])
def test_model_names_each_agent_before_its_text(name: str, stream: object) -> None:
    sent = stream(name)  # type: ignore[operator]
    places = [
        sent.index(b'"model":"triage"'),
        sent.index(b'"model":"billing"'),
        sent.index(FIRST),
        sent.index(b'"model":"refunds"'),
        sent.index(SECOND),
    ]
    assert places == sorted(places)


@pytest.mark.parametrize("name", ["openai-responses", "openai-chat"])
def test_a_switch_is_shown_at_once(name: str) -> None:
    encoder = FORMATS[name].at(State())
    for one in as_recorded(HANDOFF):
        frames = encoder.encode(one)
        if isinstance(one.event, ev.AgentSwitched):
            [frame] = frames
            assert f'"model":"{one.event.agent}"'.encode() in frame


def test_an_answer_in_one_piece_names_the_agent_that_gave_it() -> None:
    state = folded(HANDOFF)
    assert openai_responses.response_object(state)["model"] == "refunds"
    assert completion(state)["model"] == "refunds"
    assert message_object(state)["model"] == "refunds"


def test_the_chunks_after_a_switch_have_the_new_agent() -> None:
    chunks = [
        msgspec.json.decode(frame.removeprefix(b"data: "))
        for frame in _sent("openai-chat").split(b"\n\n")
        if frame and b"[DONE]" not in frame
    ]
    spoken = [
        (chunk["model"], choice["delta"].get("content") or choice["finish_reason"])
        for chunk in chunks
        for choice in chunk["choices"]
    ]
    assert spoken == [
        ("triage", None),
        ("billing", None),
        ("billing", "Which invoice?"),
        ("refunds", None),
        ("refunds", "\n\nYou get your money back."),
        ("refunds", "stop"),
    ]


def test_each_response_of_a_run_names_the_agents_of_its_own_part() -> None:
    """A response ends where its run asks for approvals; a handoff may be before and after it."""
    run = "run_1"
    call = ToolCall(id="fc_1", call_id="call_1", name="pay", arguments="{}")
    message = Message(id="msg_1", role="assistant", block_list=[Text(text="Paid.")])
    asked = InputRequest(id="req_1", kind="approval", call_id="call_1")
    events = [
        ev.TaskCreated(task_id=run, sequence_number=1, agent="triage"),
        ev.TaskInProgress(task_id=run, sequence_number=2),
        ev.AgentSwitched(task_id=run, sequence_number=3, agent="billing"),
        ev.OutputItemAdded(task_id=run, sequence_number=4, output_index=0, item=call),
        ev.OutputItemDone(task_id=run, sequence_number=5, output_index=0, item=call),
        ev.TaskInputRequired(task_id=run, sequence_number=6, requests=[asked]),
        ev.TaskInputReceived(task_id=run, sequence_number=7, request_id="req_1", approved=True),
        ev.TaskInProgress(task_id=run, sequence_number=8),
        ev.OutputItemAdded(task_id=run, sequence_number=9, output_index=1, item=message),
        ev.OutputItemDone(task_id=run, sequence_number=10, output_index=1, item=message),
        ev.AgentSwitched(task_id=run, sequence_number=11, agent="refunds"),
        ev.TaskCompleted(task_id=run, sequence_number=12),
    ]
    state = folded(events)
    first, second = (openai_responses.FORMAT.after(pauses) for pauses in (0, 1))
    for number, wire, named in (
        (0, first, ["triage", "triage", "billing", "billing"]),
        (1, second, ["billing", "billing", "refunds", "refunds"]),
    ):
        assert _models(wire.open(state)[1]) == named
        assert openai_responses.response_object(state, number)["model"] == named[-1]
    live = second.at(State())
    frames = [frame for one in as_recorded(events) for frame in live.encode(one)]
    assert [name for name in _models(frames) if name != "billing"] == ["refunds", "refunds"]


def _models(frames: list[bytes]) -> list[str]:
    """The `model` of each frame with a response."""
    found = [msgspec.json.decode(one.partition(b"data: ")[2]) for one in frames if b"{" in one]
    return [event["response"]["model"] for event in found if "response" in event]
