"""The input of a Responses request: its items, references, calls, answers and compactions."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.core.errors import CallerError
from tailrace.core.fold import State
from tailrace.wire.openai_responses import (
    approvals_of,
    calls_of,
    compaction_run,
    input_items,
    is_answered_inside,
    is_compaction,
    outputs_of,
    references,
    resolved,
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
    assert references("Hello") == []
    assert references([named, odd, "x", {"type": "message", "id": "msg_2"}]) == ["msg_1"]
    assert references([{"id": "msg_1"}, {"id": "msg_2", "type": None}]) == ["msg_1", "msg_2"]
    assert references([{"id": "msg_1", "role": "user"}, {}, {"type": None}]) == []
    item = {"type": "message", "id": "msg_1"}
    assert resolved([named, odd, "x"], {"msg_1": item}) == [item, odd, "x"]
    assert resolved("Hello", {}) == "Hello"


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
    assert is_answered_inside([answer, word])
    assert not is_answered_inside([word, answer])
    assert not is_answered_inside("hello")
    with pytest.raises(CallerError, match="approve") as refused:
        approvals_of([word, {**answer, "approve": "yes"}])
    assert refused.value.param == "input[1]"
    theirs = {"type": "mcp_approval_request", "id": "mcpr_68f"}
    assert without_approvals([word, request, answer, theirs, "x"]) == [word, theirs, "x"]
    assert without_approvals("hello") == "hello"


@pytest.mark.parametrize("sealed", [None, 5, "gAAAAABpM0Yj-...=", "\u00e9", "aGVsbG8="])
def test_a_compaction_of_another_server_refers_to_nothing(sealed: Any) -> None:
    assert compaction_run({"type": "compaction", "encrypted_content": sealed}) is None
