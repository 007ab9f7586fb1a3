"""A run as one `chat.completion`."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, ToolCall
from tailrace.wire.openai_chat.messages import messages, runs_of
from tailrace.wire.openai_chat.object import completion


def state_with(*calls: ToolCall, given: Any = None) -> State:
    """A completed run that leaves these calls to its client."""
    state = State()
    state.absorb(ev.TaskCreated(task_id="run_1", agent="a", input=given))
    for index, call in enumerate(calls):
        place: dict[str, Any] = {"task_id": "run_1", "output_index": index}
        state.absorb(ev.OutputItemAdded(item=structs.replace(call, arguments=""), **place))
        text = call.arguments or ""
        for piece in (text[:3], text[3:]):
            state.absorb(ev.ArgumentsDelta(item_id=call.id, delta=piece, **place))
        done = ev.ArgumentsDone(item_id=call.id, arguments=text, **place)
        state.absorb(done)
        state.absorb(ev.OutputItemDone(item=call, **place))
    state.absorb(ev.TaskCompleted(task_id="run_1"))
    return state


def test_the_calls_of_the_client_are_whole() -> None:
    calls = [
        ToolCall(id=f"fc_{n}", call_id=f"call_{n}", name="f", arguments=text, executor="client")
        for n, text in enumerate(('{"a": {"b": 1}}', "{}"))
    ]
    found = completion(state_with(*calls))
    [choice] = found["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert [
        (call["id"], call["function"]["arguments"]) for call in choice["message"]["tool_calls"]
    ] == [("call_0", '{"a": {"b": 1}}'), ("call_1", "{}")]


def test_a_conversation_is_the_input_and_the_answer_of_each_run() -> None:
    call = ToolCall(id="fc_1_2", call_id="call_1_2", name="f", arguments="{}", executor="client")
    asked = {"role": "user", "content": "f"}
    first, second = state_with(call, given="f"), state_with(given=[asked, "g"])
    shown = messages([first, second, State()])
    assert [(one["role"], one["content"]) for one in shown] == [
        ("user", "f"),
        ("assistant", None),
        ("user", "f"),
        ("user", "g"),
        ("assistant", None),
        ("user", None),
        ("assistant", None),
    ]
    assert [runs_of(one) for one in shown[:2]] == [[], ["run_1", "1"]]
    failed = State()
    failed.absorb(ev.TaskCreated(task_id="run_1", agent="a", input="f"))
    failed.absorb(ev.TaskFailed(task_id="run_1", error=ErrorInfo(code="x", message="No.")))
    assert messages([failed]) == [asked]
