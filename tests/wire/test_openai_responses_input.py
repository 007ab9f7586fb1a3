"""The input of a Responses request: its items, references, calls, answers and compactions."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.core import events as ev
from tailrace.core.errors import CallerError
from tailrace.core.fold import State
from tailrace.core.items import Image, ImageUrl, Message, Reasoning, Text, ToolCall, ToolResult
from tailrace.wire.openai_responses import (
    BY_ITEMS,
    NamedItems,
    answered_inside,
    approvals_of,
    asks_itself,
    calls_of,
    compaction_run,
    continued,
    input_items,
    is_compaction,
    named_run,
    outputs_of,
    references,
    resolved,
    response_object,
    returned,
    without_approvals,
)
from tests.wire.openai_scripts import Script


def test_the_input_is_shown_as_items_with_ids() -> None:
    items: list[Any] = [
        {"role": "user", "content": "Is it sunny?"},
        {"type": "message", "role": "assistant", "content": "Yes.", "id": "msg_1"},
        {"role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
        {"type": "function_call_output", "call_id": "c", "output": "15 C"},
    ]
    listed = input_items(Script(input=items).state)
    message = {"type": "message", "status": "completed"}
    assert listed == [
        {
            **message,
            "id": "msg_run_7_in0",
            "role": "user",
            "content": [{"type": "input_text", "text": "Is it sunny?"}],
        },
        {
            **message,
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
        },
        {**message, **items[2], "id": "msg_run_7_in2"},
        {**items[3], "id": "item_run_7_in3"},
    ]
    for odd, text in (("Hello.", "Hello."), ({"a": 1}, '{"a":1}'), ([7], "7")):
        [item] = input_items(Script(input=odd).state)
        assert item["content"] == [{"type": "input_text", "text": text}]
    assert input_items(Script(input=None).state) == []
    assert input_items(State()) == []


def test_an_input_names_items_by_id_and_gets_them() -> None:
    named = {"type": "item_reference", "id": "msg_1"}
    odd = {"type": "item_reference", "id": 7}
    assert references("Hello") == {}
    assert references([odd, named, "x", {"type": "message", "id": "msg_2"}]) == {1: "msg_1"}
    assert references([{"id": "msg_1"}, {"id": "msg_2", "type": None}]) == {0: "msg_1", 1: "msg_2"}
    assert references([{"id": "msg_1", "role": "user"}, {}, {"type": None}]) == {}
    item = {"type": "message", "id": "msg_1"}
    assert resolved([named, odd, "x"], {"msg_1": item}) == [item, odd, "x"]
    assert resolved("Hello", {}) == "Hello"


def ran(
    run: str, given: Any, ended: bool = True, received: bool = False, **facts: Any
) -> tuple[str, State]:
    """A run with a message and a call of the client, whose output it may have received."""
    state = State()
    facts = {"agent": "a", "input": given, **facts}
    state.absorb(ev.TaskCreated(task_id=run, sequence_number=1, **facts))
    message = Message(id=f"msg_{run}_0", role="assistant", block_list=[Text(text="Hi.")])
    call = ToolCall(
        id=f"fc_{run}_1", call_id=f"call_{run}", name="pick", executor="client", arguments="{}"
    )
    result = ToolResult(id=f"fco_{run}_2", call_id=f"call_{run}")
    items: list[Any] = [message, call, *([result] if received else [])]
    for index, item in enumerate(items):
        state.absorb(ev.OutputItemAdded(task_id=run, output_index=index, item=item))
        state.absorb(ev.OutputItemDone(task_id=run, output_index=index, item=item))
    if ended:
        state.absorb(ev.TaskCompleted(task_id=run))
    return run, state


def test_an_input_that_names_all_items_of_its_responses_continues_the_last() -> None:
    asked = {"role": "user", "content": "One?"}
    output = {"type": "function_call_output", "call_id": "call_r1", "output": "blue"}
    word, request = {"role": "user", "content": "And?"}, {"type": "item_reference", "id": "mcpr_x"}

    def items(run: str) -> list[Any]:
        made = {"call_id": f"call_{run}", "name": "pick", "arguments": "{}"}
        return [{"type": "item_reference", "id": f"msg_{run}_0"}, {"type": "function_call", **made}]

    def found(given: list[Any], *runs: tuple[str, State]) -> tuple[Any, int]:
        named = NamedItems()
        for run in runs:
            named.add(*run)
        last = continued(given, resolved(given, named.items), named)
        return last.run_id, len(last.rest)

    first, second = ran("r1", "One?"), ran("r2", [output], previous_run_id="r1")
    both = [asked, *items("r1"), output, *items("r2")]
    assert found([*both, word], first, second) == ("r2", 1)
    assert found([*both, word, {"id": "x"}, request, word], first, second) == ("r2", 4)
    assert found(both, first, second) == (None, len(both))
    assert found([*items("r1")[1:], word], first) == (None, 2)
    named, call = items("r1")
    assert found([asked, named, {**call, "arguments": "[]"}, word], first) == (None, 4)
    # The first run has got the output itself, with the answer to an approval.
    received = ran("r1", "One?", received=True)
    assert found([asked, *items("r1"), output, word], received) == ("r1", 1)
    # As far as it is known: the second run continues no run, or another event of the first.
    for other in (dict[str, Any](), {"previous_run_id": "r1", "previous_seq": 2}):
        assert found([*both, word], first, ran("r2", [output], **other)) == ("r1", 4)
    changes: list[Any] = [{"ended": False}, {"options": {"store": False}}, {"given": "Two?"}]
    for facts in changes:
        odd = ran("r1", **{"given": "One?", **facts})
        assert found([asked, *items("r1"), word], odd) == (None, 4)
    assert named_run(first[1]) is named_run(State()) is None
    by_items = ran("r2", [output], previous_run_id="r1", options=BY_ITEMS)[1]
    assert named_run(by_items) == "r1"
    assert response_object(by_items)["previous_response_id"] is None


def painted() -> tuple[str, State]:
    """A run that reasons, paints, speaks and leaves a call to its client."""
    run, state = "r1", State()
    state.absorb(ev.TaskCreated(task_id=run, sequence_number=1, agent="a", input="One?"))
    picture = Image(image_url=ImageUrl(url="data:image/png;base64,AAAA"))
    items: list[Any] = [
        Reasoning(id="rs_r1_0", summary=[Text(text="Hm.")]),
        ToolCall(id="fc_r1_1", call_id="call_r1_1", name="paint", arguments="{}"),
        ToolResult(id="fco_r1_2", call_id="call_r1_1", block_list=[Text(text="Done."), picture]),
        Message(id="msg_r1_3", role="assistant", block_list=[Text(text="Hi.")]),
        ToolCall(id="fc_r1_4", call_id="call_r1_4", name="pick", executor="client", arguments="{}"),
    ]
    for index, item in enumerate(items):
        state.absorb(ev.OutputItemAdded(task_id=run, output_index=index, item=item))
        state.absorb(ev.OutputItemDone(task_id=run, output_index=index, item=item))
    state.absorb(ev.TaskCompleted(task_id=run))
    return run, state


def test_an_input_with_all_items_of_a_response_continues_it() -> None:
    asked: Any = {"role": "user", "content": "One?"}
    output = {"type": "function_call_output", "call_id": "call_r1_4", "output": "blue"}
    run = painted()
    named = NamedItems()
    named.add(*run)
    made = response_object(run[1])["output"]
    reasoning, server_call, picture, message, call = made
    assert [item["type"] for item in made] == [
        *("reasoning", "mcp_call", "image_generation_call", "message", "function_call")
    ]
    assert returned([asked, *made, output, "x", {"type": "message", "id": 7}]) == [
        *("rs_r1_0", "fc_r1_1", picture["id"], "msg_r1_3", "call_r1_4")
    ]
    assert returned("Hello") == returned([{"type": "item_reference", "id": "rs_r1_0"}]) == []

    def found(*items: Any) -> str | None:
        return continued([asked, *items, output], [asked, *items, output], named).run_id

    def without(item: Any, *names: str) -> Any:
        return {name: item[name] for name in item if name not in names}

    thought = {"role": "assistant", "content": "<think>\nHm.\n</think>"}
    spoken = {"role": "assistant", "content": "Hi."}
    plain = [without(item, "id", "status") for item in made]
    assert found(*made) == found(*plain) == "r1"
    assert found(*made, call, reasoning) == "r1"  # a client may repeat items
    assert found(thought, spoken, plain[-1]) == found(spoken, plain[-1]) == "r1"
    assert found(reasoning, without(server_call, "output", "error"), *made[1:]) == "r1"
    assert found(*made[:2], without(picture, "result"), *made[3:]) == "r1"
    for items in (
        [*made[:-1]],  # without the call
        [*made[:3], call],  # without its words
        [message, {**call, "arguments": "[]"}],
        [{**spoken, "content": "No."}, call],
        [{**thought, "role": "user"}, spoken, call],
        [{**reasoning, "summary": [{"type": "summary_text", "text": "No."}]}, *made[1:]],
        [*made[:2], {**picture, "result": "BBBB"}, *made[3:]],
        [reasoning, {**server_call, "output": "No."}, *made[2:]],
        [reasoning, {**server_call, "id": "fc_r9_1"}, *made[2:]],
        [*made[:2], {"type": "shell_call"}, *made[2:]],
    ):
        assert found(*items) is None
    second = ran("r2", "One?")[1]
    named.add("r2", second)
    kept = [item for item in response_object(second)["output"] if item["type"] != "message"]
    assert found(*kept) is None  # a message that the client leaves out is a change


def test_calls_and_outputs_of_an_input_are_found_by_id() -> None:
    given = [
        {"type": "function_call", "call_id": "call_1"},
        {"type": "mcp_call", "id": "mcp_1"},
        {"type": "custom_tool_call_output", "call_id": "call_2"},
        {"role": "user", "content": "?"},
        "text",
    ]
    assert calls_of(given) == {"call_1", "mcp_1"}
    assert outputs_of(given) == {"call_2": "input[2].call_id"}
    assert (calls_of("?"), outputs_of("?"), is_compaction("?")) == (set(), {}, False)
    assert compaction_run("?") is None


def test_the_answers_at_the_end_of_an_input_are_read() -> None:
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_r~1", "approve": True}
    request = {"type": "mcp_approval_request", "id": "mcpr_r~1"}
    word = {"role": "user", "content": "?"}
    found = approvals_of([answer, word, {**answer, "reason": "ok"}, answer])
    assert [(one.param, one.approve, one.reason) for one in found] == [
        ("input[2]", True, "ok"),
        ("input[3]", True, None),
    ]
    assert approvals_of("hello") == approvals_of([answer, word]) == []
    assert answered_inside([answer, word]) == ["mcpr_r~1"]
    assert answered_inside([word, answer]) == answered_inside("hello") == []
    output = {"type": "function_call_output", "call_id": "call_1", "output": "15 C"}
    for given in ([word, output, answer], [word, answer, output]):
        assert [one.approval_request_id for one in approvals_of(given)] == ["mcpr_r~1"]
        assert answered_inside(given) == []
    with pytest.raises(CallerError, match="approve") as refused:
        approvals_of([word, {**answer, "approve": "yes"}])
    assert refused.value.param == "input[1]"
    theirs = {"type": "mcp_approval_request", "id": "mcpr_68f"}
    assert without_approvals([word, request, answer, theirs, "x"]) == [word, theirs, "x"]
    assert without_approvals("hello") == "hello"


@pytest.mark.parametrize("sealed", [None, 5, "gAAAAABpM0Yj-...=", "\u00e9", "aGVsbG8="])
def test_a_compaction_of_another_server_refers_to_nothing(sealed: Any) -> None:
    assert compaction_run({"type": "compaction", "encrypted_content": sealed}) is None


def test_an_input_may_have_the_requests_of_another_api_with_their_answers() -> None:
    request = {"type": "mcp_approval_request", "id": "mcpr_x", "name": "f", "arguments": "{}"}
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_x", "approve": True}
    answers = approvals_of([answer])
    assert asks_itself([request, answer], answers)
    assert not asks_itself([answer], answers)
    ours = {**answer, "approval_request_id": "mcpr_run_7~apr_1"}
    named = {**request, "id": "mcpr_run_7~apr_1"}
    assert not asks_itself([named, ours], approvals_of([ours]))
