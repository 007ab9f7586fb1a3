"""What a run used and how it ended: the same in every format, sub-agents included."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.core import events as ev
from tailrace.core.codec import decode_event
from tailrace.core.fold import State
from tailrace.core.items import Data, ErrorInfo, ToolResult, Usage
from tailrace.core.run_object import client_view
from tailrace.core.sse import SseParser
from tailrace.testing.wire_kit import encoded
from tailrace.wire.formats import FORMATS
from tailrace.wire.projection import usage_of_run
from tests.traces import TRACES
from tests.wire.chat_checker import expected
from tests.wire.openai_scripts import RUN, Script

Json = dict[str, Any]


def frames_of(name: str, events: list[ev.AnyEvent]) -> list[Json]:
    frames = b"".join(frame for each in encoded(FORMATS[name], events) for frame in each)
    return [json.loads(one.data) for one in SseParser().feed(frames) if one.data != "[DONE]"]


def ui_usage(frames: list[Json]) -> Json:
    """The usage in the last metadata of a `vercel-ui` stream."""
    last: Json = [one["messageMetadata"] for one in frames if "messageMetadata" in one][-1]
    return last["usage"]  # type: ignore[no-any-return]


def folded_usage(frames: list[Json]) -> Json:
    """The usage of the root in the object that a client of `task` folds."""
    state = State()
    for frame in frames:
        state.absorb(decode_event(json.dumps(frame).encode()))
    return client_view(state)["usage"]  # type: ignore[no-any-return]


def tokens(name: str, frames: list[Json]) -> tuple[int, int]:
    """The last input and output tokens of a stream."""
    if name == "task":
        usage = folded_usage(frames)
        return usage["input_tokens"], usage["output_tokens"]
    if name == "agents":
        return tokens("openai-responses", [one["data"] for one in frames if "data" in one])
    if name == "ag-ui":
        [usage] = frames[-1]["usage"]
        return usage["inputTokens"], usage["outputTokens"]
    if name == "run":
        data = next(one["data"] for one in reversed(frames) if "inputTokens" in one["data"])
        return data["inputTokens"], data["outputTokens"]
    if name == "openai-responses":
        usage = frames[-1]["response"]["usage"]
        return usage["input_tokens"], usage["output_tokens"]
    if name == "openai-chat":
        return frames[-1]["usage"]["prompt_tokens"], frames[-1]["usage"]["completion_tokens"]
    if name == "anthropic-messages":
        usage = frames[-2]["usage"]
        return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"]
    usage = ui_usage(frames)
    return usage["input_tokens"], usage["output_tokens"]


COSTED = ["run", "task", "vercel-ui"]
"""The formats with a field for the cost. The models of the other APIs have none."""


def cost(name: str, frames: list[Json]) -> float:
    if name == "task":
        return float(folded_usage(frames)["cost"])
    if name == "run":
        return float(next(one["data"]["cost"] for one in reversed(frames) if "cost" in one["data"]))
    return float(ui_usage(frames)["cost"])


@pytest.mark.parametrize("name", FORMATS)
def test_a_run_used_what_its_sub_agents_used_too(name: str) -> None:
    (trace,) = (trace for trace in TRACES if trace.name == "usage_summed")
    frames = frames_of(name, [event for event, _ in trace.events])
    assert tokens(name, frames) == (1501, 57)  # 7 of them are the sub-agent's
    if name in COSTED:
        assert cost(name, frames) == pytest.approx(0.3)


def silent(end: type[ev.Event], **fields: Any) -> list[ev.AnyEvent]:
    """A run that calls a tool and says nothing; a sub-agent answers."""
    script = Script().begin()
    script.call(0, "ask", "{}")
    script.add(ev.TaskUsage, usage=Usage(model="m", input_tokens=3, output_tokens=2, cost=0.5))
    script.item(ToolResult(id="fco_7_1", call_id="call_0", block_list=[]), 1)
    script.add(ev.TaskCreated, "call_0", parent_task_id=RUN, call_id="call_0")
    script.begin("call_0")
    usage = Usage(model="n", input_tokens=10, cost=0.25, service_tier="flex")
    script.add(ev.TaskUsage, "call_0", usage=usage)
    script.add(ev.TaskCompleted, "call_0")
    script.done(ToolResult(id="fco_7_1", call_id="call_0"), 1)
    return script.add(end, **fields).events


@pytest.mark.parametrize("name", FORMATS)
def test_usage_is_sent_where_there_is_no_text(name: str) -> None:
    frames = frames_of(name, silent(ev.TaskCompleted))
    assert tokens(name, frames) == (13, 2)
    if name in COSTED:
        assert cost(name, frames) == 0.75
    else:
        assert '"cost"' not in json.dumps(frames)


@pytest.mark.parametrize("end", [ev.TaskIncomplete, ev.TaskCancelled, ev.TaskFailed])
@pytest.mark.parametrize("name", ["run", "openai-responses", "agents", "vercel-ui", "ag-ui"])
def test_a_run_that_did_not_complete_says_what_it_used(name: str, end: type[ev.Event]) -> None:
    fields: Json = {"error": ErrorInfo(code="x", message="y")} if end is ev.TaskFailed else {}
    if end is ev.TaskIncomplete:
        fields = {"reason": "max_output_tokens"}
    assert tokens(name, frames_of(name, silent(end, **fields))) == (13, 2)


@pytest.mark.parametrize(
    ("end", "data"),
    [
        ((ev.TaskCompleted, {}), {}),
        (
            (ev.TaskIncomplete, {"reason": "max_turns"}),
            {"status": "incomplete", "reason": "max_turns"},
        ),
        ((ev.TaskCancelled, {"reason": "enough"}), {"message": "enough"}),
    ],
)
def test_a_run_says_how_it_ended_and_what_it_used(end: Any, data: Json) -> None:
    usage = {"model": "m", "inputTokens": 13, "outputTokens": 2, "cost": 0.75, "latencyMs": None}
    events = silent(end[0], **end[1])
    assert frames_of("run", events)[-1]["data"] == {**data, **usage}
    state = State()
    for event in events:
        state.absorb(event)
    (last,) = SseParser().feed(FORMATS["run"].open(state)[1][-1])
    assert json.loads(last.data)["data"] == {**data, **usage}


def test_a_response_has_the_providers_service_tier() -> None:
    script = Script(options={"service_tier": "auto"}).begin()
    script.call(0, "ask", "{}")
    before = frames_of("openai-responses", script.events)
    script.add(ev.TaskUsage, usage=Usage(model="m", service_tier="priority")).add(ev.TaskCompleted)
    assert before[0]["response"]["service_tier"] == "auto"
    last = frames_of("openai-responses", script.events)[-1]["response"]
    assert last["service_tier"] == "priority"


def test_a_response_has_the_service_tier_of_its_sub_agent_if_its_own_calls_have_none() -> None:
    last = frames_of("openai-responses", silent(ev.TaskCompleted))[-1]["response"]
    assert last["service_tier"] == "flex"


def test_a_run_without_usage_has_none() -> None:
    script = Script().begin()
    assert usage_of_run(script.state) is None
    assert frames_of("run", script.add(ev.TaskCompleted).events)[-1]["data"] == {}


@pytest.mark.parametrize(
    ("hints", "shown"), [({"ui_mode": "table"}, {"ui_mode": "table"}), ("no object", None)]
)
def test_a_tools_hints_on_how_to_show_its_result_are_sent(hints: Any, shown: Any) -> None:
    script = Script().begin().call(0, "look", "{}")
    script.result(1, 0, Data(data=[1, 2]), Data(data=hints, name="ui_hints"))
    (output,) = (
        one["data"]["toolAgentOutput"]
        for one in frames_of("run", script.events)
        if one["type"] == "tool.result"
    )
    assert output["ui_hints"] == shown
    assert output["result_summary"] == "[1,2]"


def test_the_checker_does_not_take_usage_for_thinking() -> None:
    """Its event names the item before the item has any text."""
    thought = {"type": "reasoning", "id": "i"}
    texts = {"summary": [{"text": "In short."}], "reasoning_text": [{"text": "At length."}]}
    events = [
        {"type": "task.usage", "task_id": "r", "item_id": "i"},
        {"type": "task.reasoning_text.delta", "task_id": "r", "item_id": "i"},
    ]
    expected_usage = expected({"task_id": "r", "output": [thought | texts]}, events)
    assert expected_usage["reasoning_content"] == "At length."
