"""`sanitize` repairs lists from other sources."""

from __future__ import annotations

import time
from typing import Any

import pytest
from anthropic.types import ThinkingBlock, ToolUseBlock
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import ParsedResponseFunctionToolCall, ResponseReasoningItem

from tailrace.history import sanitize
from tailrace.testing.provider_rules import (
    Issued,
    check_anthropic_messages,
    check_openai_chat,
    check_openai_responses,
)
from tailrace.testing.strategies.values import JSON

SHOP = {"server_label": "shop"}
NO_MESSAGE = [{"role": "user", "content": "(no message)"}]
PICTURE = "data:image/png;base64,iVBORw0KGgo="
INTERRUPTED = "The call was interrupted: it has no result."


def user(text: str = "Hi") -> dict[str, Any]:
    return {"role": "user", "content": text}


def rs(number: int, sealed: bool = False) -> dict[str, Any]:
    item: dict[str, Any] = {"type": "reasoning", "id": f"rs_{number}", "summary": []}
    return {**item, "encrypted_content": f"sealed {number}"} if sealed else item


def msg(number: int) -> dict[str, Any]:
    content = [{"type": "output_text", "text": f"{number}", "annotations": []}]
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content}


def fc(number: int) -> dict[str, Any]:
    call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
    return {**call, "name": "f", "arguments": "{}"}


def out(number: int) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": "15C"}


def types(items: list[Any]) -> list[str]:
    return [item.get("id") or item.get("call_id") or item["role"] for item in items]


def test_the_two_lists_of_the_document_are_mended() -> None:
    first = [user(), rs(1), msg(1), user("And?")]
    mended = sanitize(first)
    assert [item.get("type", "message") for item in mended] == ["message"] * 3
    assert mended[1]["id"].startswith("msg_x")
    assert mended[1]["content"] == msg(1)["content"]
    assert sanitize([user(), msg(1), user("And?")]) == mended


def test_a_valid_list_passes_unchanged() -> None:
    valid = [
        user(),
        rs(1, sealed=True),
        msg(1),
        user("Look."),
        rs(2),
        fc(2),
        fc(3),
        out(3),
        out(2),
        rs(4),
        rs(5),
        msg(5),
    ]
    assert sanitize(valid) == valid
    bare = [{"role": "assistant", "content": "Yes"}, user(), {"role": "system", "content": "S"}]
    assert sanitize(bare) == bare


def test_reasoning_without_what_it_led_to_is_taken_out() -> None:
    assert types(sanitize([user(), rs(1)])) == ["user"]
    assert types(sanitize([rs(1, sealed=True), user()])) == ["user"]
    bare = {"role": "assistant", "content": "Yes"}
    assert sanitize([user(), rs(1), bare]) == [user(), bare]
    assert types(sanitize([user(), rs(1), rs(2), user()])) == ["user", "user"]
    without_id = {"type": "reasoning", "id": None, "encrypted_content": "x"}
    assert types(sanitize([user(), without_id, msg(1)]))[1].startswith("msg_x")


def test_reasoning_can_be_dropped_altogether_or_where_nothing_is_stored() -> None:
    items = [user(), rs(1, sealed=True), msg(1), rs(2), msg(2)]
    assert not [i for i in sanitize(items, reasoning="drop") if i.get("type") == "reasoning"]
    kept = sanitize(items, store=False)
    assert [i["id"] for i in kept if i.get("type") == "reasoning"] == ["rs_1"]
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    assert sanitize([user(), search, msg(1)])[1] == search
    assert search not in sanitize([rs(1), search, msg(1), user()])


def test_every_call_gets_exactly_one_output() -> None:
    closed = {"type": "function_call_output", "call_id": "call_1", "output": INTERRUPTED}
    mended = sanitize([user(), rs(1), fc(1), fc(2), out(2), user()])
    assert mended[1]["call_id"] == "call_1"
    assert mended[3] == closed
    assert types(sanitize([user(), rs(1), fc(1)])) == ["user", "rs_1", "fc_1", "call_1"]
    assert types(sanitize([user(), out(1)])) == ["user"]
    twice = sanitize([user(), rs(1), fc(1), out(1), out(1), fc(1)])
    assert types(twice) == ["user", "rs_1", "fc_1", "call_1"]
    early = sanitize([user(), out(1), rs(1), fc(1)])
    assert early == [user(), rs(1), fc(1), out(1)]
    custom = {"type": "custom_tool_call", "call_id": "c", "name": "f"}
    given = sanitize(
        [user(), custom, {"type": "function_call_output", "call_id": "c", "output": ""}]
    )
    assert [item.get("type") for item in given] == [
        None,
        "custom_tool_call",
        "custom_tool_call_output",
    ]
    assert given[1]["input"] == "{}"


def test_calls_that_only_the_provider_knows_keep_their_outputs() -> None:
    assert sanitize([out(1)], known_calls=["call_1"]) == [out(1)]
    reference = {"type": "item_reference", "id": "fc_1"}
    assert sanitize([reference, out(1)]) == [reference, out(1)]
    thought = {"type": "item_reference", "id": "rs_1"}
    assert sanitize([user(), thought, reference, out(1)])[1] == thought
    assert thought not in sanitize([thought, reference, out(1), user()])


def test_calls_that_cannot_be_closed_are_removed() -> None:
    shell = {"type": "local_shell_call", "id": "lsh_1", "call_id": "c", "action": {}}
    assert sanitize([user(), shell]) == [user()]
    output = {"type": "local_shell_call_output", "call_id": "c", "output": "ok"}
    assert sanitize([user(), shell, output]) == [user(), shell, output]
    by_types = {"type": "local_shell_call_output", "id": "c", "output": "ok"}
    assert sanitize([user(), shell, by_types]) == [user(), shell, {**by_types, "call_id": "c"}]
    patch = {"type": "apply_patch_call", "call_id": "p", "operation": {}}
    patched = {"type": "apply_patch_call_output", "call_id": "p", "status": "completed"}
    assert sanitize([patch, patched, output]) == [patch, patched]
    search = {"type": "tool_search_call", "call_id": "t", "arguments": {}}
    loaded = {"type": "tool_search_output", "call_id": "t", "tools": []}
    assert sanitize([search, loaded]) == [search, loaded]


def test_what_went_with_its_reasoning_takes_its_output_along() -> None:
    shell = {"type": "shell_call", "id": "sh_1", "call_id": "c", "action": {}}
    shown = {"type": "shell_call_output", "call_id": "c", "output": []}
    asks = {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "name": "buy",
        "arguments": "{}",
        **SHOP,
    }
    grants = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    ran = {"type": "mcp_call", "id": "mcp_1", "name": "buy", "arguments": "{}", **SHOP}
    named = {**ran, "approval_request_id": "mcpr_1"}
    kept = [user(), rs(1), shell, shown, rs(2), asks, grants, named]
    assert sanitize(kept) == kept
    assert sanitize(kept, reasoning="drop") == [user(), ran]


def test_a_request_without_an_answer_is_denied() -> None:
    asks = {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "name": "buy",
        "arguments": "{}",
        **SHOP,
    }
    mended = sanitize([user(), asks, msg(1), user()])
    assert mended[1] == asks
    assert mended[3] == {
        "type": "mcp_approval_response",
        "approval_request_id": "mcpr_1",
        "approve": False,
        "reason": "The request was not answered.",
    }
    assert sanitize(mended) == mended
    early = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    assert sanitize([user(), early, asks]) == [user(), asks, early]


def test_a_program_may_lack_its_output_while_its_calls_are_answered() -> None:
    program = {"type": "program", "id": "cm_1", "call_id": "p", "code": "x"}
    made = {**fc(1), "caller": {"type": "program", "caller_id": "p"}}
    del made["id"]
    output = {"type": "program_output", "id": "cmo_1", "call_id": "p", "result": "y"}
    assert sanitize([user(), program, made, out(1)]) == [user(), program, made, out(1)]
    whole = [user(), program, made, out(1), output]
    assert sanitize(whole) == whole
    assert sanitize([user(), program]) == [user()]
    assert "caller" not in sanitize([user(), made, out(1)])[1]
    direct = {**made, "caller": {"type": "direct"}}
    assert sanitize([user(), direct, out(1)])[1] == direct


def test_duplicates_and_values_that_are_not_items_are_removed() -> None:
    assert sanitize([user(), rs(1), msg(1), rs(1), msg(1)]) == [user(), rs(1), msg(1)]
    other = {**msg(1), "content": "else"}
    assert "id" not in sanitize([user(), rs(1), msg(1), other])[-1]
    junk = [7, None, {"role": "critic", "content": "x"}, {"role": "user", "content": ""}]
    assert sanitize([*junk, {"role": "user"}, {"type": "function_call", "name": "f"}]) == NO_MESSAGE
    odd = {**msg(1), "id": "a b"}
    assert "id" not in sanitize([odd])[0]
    assert "id" not in sanitize([{**msg(1), "id": "fc_1"}])[0]
    assert sanitize([user(), {**rs(1), "summary": None}, msg(1)])[1] == rs(1)
    approval = {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True}
    assert sanitize([approval]) == NO_MESSAGE
    assert sanitize([approval, approval], known_calls=["a"]) == [approval]
    nameless = {"type": "mcp_approval_request", "id": 7, "name": "buy", "arguments": "{}"}
    assert sanitize([nameless, {"type": "mcp_approval_response", "approve": True}]) == NO_MESSAGE


def test_objects_of_the_sdks_become_what_the_sdks_would_send() -> None:
    reasoning = ResponseReasoningItem(id="rs_1", summary=[], type="reasoning")
    call = ParsedResponseFunctionToolCall(
        type="function_call", call_id="call_1", name="f", arguments="{}", id="fc_1"
    )
    call.parsed_arguments = {}
    kept = [user(), reasoning, call, out(1)]
    assert sanitize(kept) == [user(), rs(1), fc(1), out(1)]
    blocks = [
        ThinkingBlock(type="thinking", thinking="Hm", signature="S"),
        ToolUseBlock(type="tool_use", id="1", name="f", input={}),
    ]
    messages = [u(HI), {"role": "assistant", "content": blocks}, u(got("1"))]
    assert anthropic(messages) == [u(HI), a(THOUGHT, use("1")), u(got("1"))]
    message = ChatCompletionMessage.model_validate(assistant("1"))
    assert chat([user(), message, answer("1")]) == [user(), assistant("1"), answer("1")]


def test_a_string_is_a_message_and_nonsense_is_an_error() -> None:
    assert sanitize("Hi") == [user()] == chat("Hi")
    assert sanitize(["Hi"]) == [user()]
    assert anthropic("Hi") == [user()]
    assert sanitize([]) == chat([]) == NO_MESSAGE
    nonsense: Any
    for nonsense in ({"role": "user"}, 7, None, b"Hi"):
        with pytest.raises(TypeError, match="Expected a list"):
            sanitize(nonsense)
    with pytest.raises(TypeError, match="Item 1 is neither a dict"):
        sanitize([user(), object()])
    with pytest.raises(ValueError, match="Unknown API 'gemini'"):
        sanitize([user()], "gemini")  # type: ignore[arg-type]


def test_parts_and_names_of_other_apis_are_sent_in_the_words_of_this_api() -> None:
    picture = {"type": "image_url", "image_url": {"url": PICTURE}}
    shown = {"type": "input_image", "image_url": PICTURE, "detail": "auto"}
    svg = {"type": "input_image", "image_url": "data:image/svg+xml,x"}
    content = ["Hi", {"type": "text", "text": "Hi"}, picture, svg, 7, {"type": "input_file"}]
    text = {"type": "input_text", "text": "Hi"}
    assert sanitize([{"role": "user", "content": content}])[0]["content"] == [text, text, shown]
    kept: list[Any] = [
        {"type": "input_image", "file_id": "f"},
        {"type": "input_file", "file_id": "f"},
        shown,
    ]
    kept.append({"type": "input_audio", "input_audio": {}})
    assert sanitize([{"role": "user", "content": kept}])[0]["content"] == kept
    spoken: Any = {"role": "assistant", "content": [{"type": "text", "text": "Yes"}, picture, {}]}
    refused = {"type": "refusal", "refusal": "No"}
    spoken["content"].append(refused)
    assert sanitize([spoken])[0]["content"] == [{"type": "output_text", "text": "Yes"}, refused]
    call = {**fc(1), "name": "a.b", "arguments": {"x": 1}, "call_id": "c" * 65}
    for gave, output in ((7, "7"), ([text], [text]), ([{}], "[{}]"), ([], [])):
        mended = sanitize([user(), call, {**out(1), "call_id": "c" * 65, "output": gave}])
        assert mended[1]["name"] == "a_b"
        assert mended[1]["arguments"] == '{"x":1}'
        assert mended[1]["call_id"] == mended[2]["call_id"] == "call_" + mended[2]["call_id"][5:]
        assert len(mended[1]["call_id"]) < 64
        assert mended[2]["output"] == output


def test_what_lacks_what_its_type_needs_is_taken_out() -> None:
    click = {"type": "computer_call", "id": "cu_1", "call_id": "c", "action": {}}
    screen = {"type": "computer_screenshot", "image_url": PICTURE}
    saw = {"type": "computer_call_output", "call_id": "c", "output": screen}
    assert sanitize([user(), click, saw]) == [user(), click, saw]
    assert sanitize([user(), click, {**saw, "output": "x"}]) == [user()]
    unsafe = {**click, "pending_safety_checks": [{"id": "sc_1"}]}
    assert sanitize([user(), unsafe, saw]) == [user()]
    agreed = {**saw, "acknowledged_safety_checks": [{"id": "sc_1"}]}
    assert sanitize([user(), unsafe, agreed]) == [user(), unsafe, agreed]
    assert sanitize([user(), {"type": "item_reference"}, {"type": "mcp_call"}]) == [user()]


# --- random damage ------------------------------------------------------------------------------


@st.composite
def kept_lists(draw: Any) -> tuple[list[Any], Issued]:
    """A conversation with OpenAI as a client would keep it, and the provider's memory of it."""
    issued = Issued()
    items: list[Any] = []
    number = 0
    for _ in range(draw(st.integers(1, 3))):
        items.append(user())
        for calls in (*draw(st.lists(st.integers(1, 2), max_size=2)), 0):
            number += 1
            output = [rs(number, sealed=draw(st.booleans()))] if draw(st.booleans()) else []
            output += [fc(number * 10 + n) for n in range(calls)] or [msg(number)]
            issued.openai_response(f"resp_{number}", output)
            items += output
            items += [out(number * 10 + n) for n in range(calls)]
    return items, issued


def _without(items: list[Any], gone: set[int]) -> list[Any]:
    return [item for index, item in enumerate(items) if index not in gone]


PLACES = st.sets(st.integers(0, 20), max_size=4)


@given(kept_lists(), PLACES, st.lists(st.integers(0, 20), max_size=3), st.randoms())
def test_whatever_happened_to_a_list_it_is_accepted_without_its_reasoning(
    kept: tuple[list[Any], Issued], gone: set[int], twice: list[int], random: Any
) -> None:
    items, issued = kept
    items = _without(items, gone) + [items[at] for at in twice if at < len(items)]
    if twice:
        random.shuffle(items)
    mended = sanitize(items, reasoning="drop") or [user()]
    assert check_openai_responses({"input": mended}, issued) is None
    assert sanitize(mended, reasoning="drop") == mended


@given(kept_lists(), PLACES, st.lists(st.integers(0, 20), max_size=3), st.integers(1, 30))
def test_lost_reasoning_lost_outputs_repeats_and_a_lost_end_are_mended(
    kept: tuple[list[Any], Issued], gone: set[int], twice: list[int], end: int
) -> None:
    items, issued = kept
    losable = {
        index
        for index, item in enumerate(items)
        if item.get("type") in ("reasoning", "function_call_output")
    }
    items = _without(items, gone & losable)[:end]
    items += [user(), *(items[at] for at in twice if at < len(items))]
    mended = sanitize(items)
    error = check_openai_responses({"input": mended}, issued)
    assert error is None, (error.message, mended)
    assert sanitize(mended) == mended


CHECKS: Any = {
    "openai_responses": check_openai_responses,
    "anthropic_messages": check_anthropic_messages,
    "openai_chat": check_openai_chat,
}
KINDS = ("message", "reasoning", "function_call", "function_call_output", "computer_call_output")


@pytest.mark.parametrize("api", CHECKS)
@given(
    st.lists(
        JSON
        | st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from(KINDS),
                "role": st.sampled_from(("user", "assistant", "tool", "system")),
                "id": st.sampled_from(("rs_1", "msg_1", "fc_1", "", None, 7)),
                "call_id": st.sampled_from(("call_1", None, [])),
                "tool_call_id": st.sampled_from(("1", {})),
                "name": st.just("f"),
                "content": JSON,
                "output": JSON,
                "tool_calls": JSON,
                "encrypted_content": st.just("x"),
            },
        ),
        max_size=8,
    )
)
def test_garbage_is_mended_and_mending_twice_is_mending_once(api: Any, items: list[Any]) -> None:
    mended = sanitize(items, api, reasoning="drop")
    assert sanitize(mended, api, reasoning="drop") == mended
    field = "input" if api == "openai_responses" else "messages"
    known = [one for one in mended if one.get("type") in (None, *KINDS)]
    error = CHECKS[api]({field: known}, Issued()) if known else None
    assert error is None, (error.message, known)


# --- messages -----------------------------------------------------------------------------------


def use(ident: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": "f", "input": {}}


def got(ident: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": ident, "content": "15C"}


def a(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def u(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


HI = {"type": "text", "text": "Hi"}
THOUGHT = {"type": "thinking", "thinking": "Hm", "signature": "S"}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}


def anthropic(items: Any, **more: Any) -> list[Any]:
    return sanitize(items, "anthropic_messages", **more)


def test_a_valid_list_for_anthropic_passes_unchanged() -> None:
    valid = [
        {"role": "system", "content": "S"},
        user(),
        user("again"),
        a(THOUGHT, use("1"), use("2")),
        u(got("2"), got("1"), HI),
        a(SEARCH, FOUND, HI),
        user(),
    ]
    assert anthropic(valid) == valid
    paused = [user(), a(SEARCH)]
    assert anthropic(paused) == paused


def test_calls_and_results_for_anthropic_are_paired() -> None:
    closed = {
        "type": "tool_result",
        "tool_use_id": "1",
        "content": [{"type": "text", "text": INTERRUPTED}],
        "is_error": True,
    }
    assert anthropic([u(HI), a(use("1")), u(HI)]) == [u(HI), a(use("1")), u(closed, HI)]
    assert anthropic([u(HI), a(use("1"))]) == [u(HI), a(use("1")), u(closed)]
    assert anthropic([u(HI), a(use("1")), u(HI), a(HI), u(got("1"))]) == [
        u(HI),
        a(use("1")),
        u(got("1"), HI),
        a(HI),
        u({"type": "text", "text": "Continue."}),
    ]
    assert anthropic([u(HI, got("9"), got("9"))]) == [u(HI)]
    twice = [u(HI), a(use("1"), use("1")), u(got("1"), got("1"))]
    assert anthropic(twice) == [u(HI), a(use("1")), u(got("1"))]


CODE = {"type": "server_tool_use", "id": "s2", "name": "code_execution", "input": {}}
RAN = {"type": "code_execution_tool_result", "tool_use_id": "s2", "content": {}}
BY_CODE = {"caller": {"type": "code_execution_20250825", "tool_id": "s2"}}


def check_with_container(messages: list[Any]) -> None:
    request = {"messages": messages, "max_tokens": 9, "container": "container_1"}
    assert check_anthropic_messages(request, Issued()) is None


@pytest.mark.parametrize(
    "messages",
    [
        [u(HI), a(CODE, {**use("1"), **BY_CODE}), u(got("1"))],
        [u(HI), a(CODE, {**use("1"), **BY_CODE}), u(got("1")), a(RAN, HI), u(HI)],
        [
            *(u(HI), a(HI, CODE, {**use("1"), **BY_CODE}), u(got("1"))),
            *(a({**use("2"), **BY_CODE}), u(got("2")), a(RAN, use("3")), u(got("3"), HI)),
        ],
        [u(HI), a(SEARCH, use("1")), u(got("1")), a(FOUND, HI), u(HI)],
        [u(HI), a(SEARCH, FOUND, HI), u(HI), a(SEARCH, FOUND, HI), u(HI)],
    ],
)
def test_a_tool_of_anthropic_that_waits_for_ours_stays(messages: list[Any]) -> None:
    check_with_container(messages)
    assert anthropic(messages) == messages


def test_a_tool_of_anthropic_that_cannot_go_on_is_left_out() -> None:
    called = {**use("1"), **BY_CODE}
    spoken = [u(HI), a(CODE, called), u(got("1"), HI)]  # only results may follow
    assert anthropic(spoken) == [u(HI), a(use("1")), u(got("1"), HI)]
    late = [u(HI), a(CODE, called), u(got("1")), a(HI), u(HI), a(RAN, HI), u(HI)]
    assert anthropic(late) == [
        *(u(HI), a(use("1")), u(got("1")), a(HI), u(HI), a(HI), u(HI)),
    ]
    again = [u(HI), a(CODE, called), u(got("1")), a(CODE, RAN), u(HI)]
    assert anthropic(again) == [u(HI), a(CODE, called), u(got("1")), a(RAN), u(HI)]
    ended = [u(HI), a(CODE, RAN, called), u(got("1"))]
    assert anthropic(ended) == [u(HI), a(CODE, RAN, use("1")), u(got("1"))]
    swapped = {**RAN, "type": "mcp_tool_result"}
    assert anthropic([u(HI), a(CODE, swapped, HI), u(HI)]) == [u(HI), a(HI), u(HI)]
    open_ = anthropic([u(HI), a(CODE, called)])
    assert open_[:2] == [u(HI), a(CODE, called)]
    assert open_[2]["content"][0]["is_error"] is True
    for messages in (spoken, late, again, ended, [u(HI), a(CODE, called)]):
        check_with_container(anthropic(messages))


def test_empty_unsigned_and_misplaced_blocks_go() -> None:
    blank = {"type": "text", "text": " "}
    unsigned = {"type": "thinking", "thinking": "Hm"}
    redacted = {"type": "redacted_thinking", "data": "D"}
    assert anthropic([u(HI, blank, 7), a(blank), u(HI)]) == [u(HI, HI)]
    assert anthropic([u(HI), a(unsigned, HI), u(HI)]) == [u(HI), a(HI), u(HI)]
    assert anthropic([u(HI), a(THOUGHT), u(HI)]) == [u(HI, HI)]
    assert anthropic([u(HI), a(HI, THOUGHT, HI), u(HI)]) == [u(HI), a(HI, HI), u(HI)]
    assert anthropic([u(HI), a(redacted, HI), u(HI)], reasoning="drop") == [u(HI), a(HI), u(HI)]
    kept = [u(HI), a(redacted, HI), u(HI)]
    assert anthropic(kept) == kept
    assert anthropic([u(HI), a(SEARCH, HI), u(HI)]) == [u(HI), a(HI), u(HI)]
    assert anthropic([u(HI), a(FOUND, HI, FOUND), u(HI)]) == [u(HI), a(HI), u(HI)]
    assert anthropic([u(HI), a(SEARCH, SEARCH, FOUND, FOUND), u(HI)]) == [
        u(HI),
        a(SEARCH, FOUND),
        u(HI),
    ]
    nameless = [{**SEARCH, "id": []}, {**FOUND, "tool_use_id": None}]
    assert anthropic([u(HI, {**got("1"), "tool_use_id": {}}), a(*nameless)]) == [u(HI)]
    assert anthropic([u(HI), a(FOUND, SEARCH, HI), u(HI)]) == [u(HI), a(HI), u(HI)]
    broken = [{**use("1"), "input": None}, {**use("1"), "id": ""}, {**use("1"), "name": 7}]
    assert anthropic([u(HI), a(*broken), {"role": "critic"}, u()]) == [u(HI)]


def test_blocks_of_the_wrong_role_and_invalid_ids_are_repaired() -> None:
    picture = {"type": "image", "source": {"type": "url", "url": "https://a.example/a.png"}}
    svg = {"type": "image", "source": {"type": "base64", "media_type": "image/svg+xml"}}
    assert anthropic([u(HI, use("1"), THOUGHT, picture, svg), a(HI, picture), u(HI)]) == [
        *(u(HI, picture), a(HI), u(HI))
    ]
    assert anthropic([u(HI), a(use("1"), got("1")), u(HI)]) == [u(HI), a(use("1")), u(got("1"), HI)]
    ident = "functions.look:0"
    mended = anthropic([u("Hi"), a({**use(ident), "name": "a.b"}), u(got(ident))])
    called = {**use("functions_look_0"), "name": "a_b"}
    assert mended == [u(HI), a(called), u(got("functions_look_0"))]
    result = {
        **got("1"),
        "content": [picture, "15C", 7, {"type": "text", "text": " "}, {"type": "x"}],
    }
    [given] = anthropic([u(HI), a(use("1")), u(result)])[2]["content"]
    assert given["content"] == [picture, {"type": "text", "text": "15C"}]
    [given] = anthropic([u(HI), a(use("1")), u({**result, "content": {"c": 15}})])[2]["content"]
    assert given["content"] == [{"type": "text", "text": '{"c":15}'}]
    filed = u({"type": "image", "source": {"type": "file", "file_id": "f"}}, HI)
    inline = u(
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}
    )
    assert anthropic([filed]) == [filed]
    assert anthropic([inline]) == [inline]


def test_the_user_begins_and_ends_there_too() -> None:
    no_message = {"type": "text", "text": "(no message)"}
    assert anthropic([]) == [u(no_message)]
    assert anthropic([a(HI), {"role": "user", "content": None}]) == [
        u(no_message),
        a(HI),
        u({"type": "text", "text": "Continue."}),
    ]
    assert anthropic([{"role": "system", "content": "S"}, a(HI), u(HI)])[0]["role"] == "system"
    instruction = {"role": "system", "content": [HI]}
    assert anthropic([instruction, u(HI)]) == [instruction, u(HI)]
    for content in (None, "", " ", [None], [FOUND]):
        assert anthropic([{"role": "system", "content": content}, u(HI)]) == [u(HI)]


def assistant(*calls: str, content: Any = None) -> dict[str, Any]:
    made = [
        {"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for one in calls
    ]
    message = {"role": "assistant", "content": content}
    return {**message, "tool_calls": made} if calls else message


def answer(ident: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ident, "content": "15C"}


def chat(items: Any) -> list[Any]:
    return sanitize(items, "openai_chat")


def test_chat_messages_are_paired() -> None:
    valid = [user(), assistant("1", "2"), answer("2"), answer("1"), assistant(content="Yes")]
    assert chat(valid) == valid
    closed = {"role": "tool", "tool_call_id": "1", "content": f"Error: {INTERRUPTED}"}
    assert chat([user(), assistant("1"), user()]) == [user(), assistant("1"), closed, user()]
    assert chat([user(), answer("9")]) == [user()]
    moved = chat([user(), assistant("1"), user(), answer("1"), answer("1")])
    assert moved == [user(), assistant("1"), answer("1"), user()]
    twice = chat([user(), assistant("1"), answer("1"), assistant("1", content="x")])
    assert twice == [user(), assistant("1"), answer("1"), assistant(content="x")]
    empty = {"role": "assistant", "content": "x", "tool_calls": []}
    assert chat([empty, 7, assistant(), {"role": "user", "content": None}]) == [
        assistant(content="x")
    ]
    odd = {
        "role": "assistant",
        "content": "x",
        "tool_calls": [7, {"id": ""}, *assistant("1")["tool_calls"]],
    }
    assert chat([odd, answer("1")]) == [assistant("1", content="x"), answer("1")]
    refused = {"role": "assistant", "content": None, "refusal": "No."}
    assert chat([refused]) == [refused]
    assert chat([]) == [{"role": "user", "content": "(no message)"}]


def test_chat_messages_say_what_their_role_may_say() -> None:
    picture = {"type": "image_url", "image_url": {"url": PICTURE}}
    foreign = {"type": "input_image", "image_url": PICTURE}
    words = {"type": "text", "text": "Hi"}
    pdf = {"type": "file", "file": {"file_id": "f"}}
    mixed_content = [
        "Hi",
        {"type": "input_text", "text": "Hi"},
        picture,
        foreign,
        pdf,
        7,
        {"type": "x"},
    ]
    mixed_content.append({"type": "image_url"})
    assert chat([{"role": "user", "content": mixed_content}])[0]["content"] == [
        *(words, words, picture, picture, pdf)
    ]
    video = {"type": "video_url", "video_url": {"url": "https://example.org/a.mp4"}}
    paper = {"type": "document_url", "document_url": "https://example.org/a.pdf"}
    valid = {"role": "user", "content": [video, paper]}
    block = {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}}
    assert chat([{**valid, "content": [video, block, paper]}]) == [valid]
    no = {"type": "refusal", "refusal": "No"}
    spoken = {"role": "assistant", "content": [no, picture, {"type": "refusal"}]}
    assert chat([spoken])[0]["content"] == [no]
    assert chat([{"role": "user", "content": {"a": 1}}]) == [user('{"a":1}')]
    assert chat([{**user(), "tool_calls": assistant("1")["tool_calls"]}]) == [user()]
    long = "c" * 41
    odd = assistant(long)
    odd["tool_calls"][0]["function"] = {"name": "a.b", "arguments": {"x": 1}}
    mended = chat([user(), odd, {**answer(long), "content": [picture, words]}])
    [call] = mended[1]["tool_calls"]
    assert call["function"] == {"name": "a_b", "arguments": '{"x":1}'}
    assert call["id"] == mended[2]["tool_call_id"] != long
    assert mended[2]["content"] == [words]
    bare = assistant("1", "2")
    bare["tool_calls"][0]["function"] = {}
    bare["tool_calls"][1]["function"] = {"name": "f"}
    assert chat([bare, answer("2")]) == [assistant("2"), answer("2")]
    del bare["content"]
    assert chat([bare, answer("2"), {"role": "tool", "content": "x"}])[1:] == [answer("2")]
    custom = assistant("1")
    custom["tool_calls"] = [{"id": "1", "type": "custom", "custom": {"name": "f", "input": "x"}}]
    assert chat([custom, answer("1")]) == [custom, answer("1")]
    thought = {**assistant(content="Yes"), "reasoning_content": "Hm"}
    assert chat([thought]) == [thought]
    assert sanitize([thought], "openai_chat", reasoning="drop") == [assistant(content="Yes")]
    hm = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
    assert chat([assistant(content=[hm, words])]) == [assistant(content=[hm, words])]
    mended = sanitize([assistant(content=[hm, words])], "openai_chat", reasoning="drop")
    assert mended == [assistant(content=[words])]


BLOCKS = st.sampled_from(
    (
        HI,
        THOUGHT,
        use("1"),
        use("2"),
        got("1"),
        got("2"),
        SEARCH,
        FOUND,
        {"type": "text", "text": " "},
    )
)


@given(
    st.lists(
        st.builds(
            lambda role, blocks: {"role": role, "content": blocks},
            st.sampled_from(("user", "assistant")),
            st.lists(BLOCKS, max_size=4),
        ),
        max_size=8,
    )
)
def test_whatever_the_messages_anthropic_accepts_them_mended(messages: list[Any]) -> None:
    issued = Issued()
    issued.anthropic_message([THOUGHT])
    mended = anthropic(messages)
    thoughts = sum(block == THOUGHT for one in mended for block in one["content"])
    error = check_anthropic_messages({"messages": mended}, issued)
    assert error is None or thoughts > 1, (error.message, mended)
    assert anthropic(mended) == mended


CHAT = st.sampled_from(
    (user(), assistant("1"), assistant("1", "2"), assistant(content="x"), answer("1"), answer("2"))
)


@given(st.lists(CHAT, max_size=8))
def test_whatever_the_messages_a_chat_server_accepts_them_mended(messages: list[Any]) -> None:
    mended = chat(messages)
    assert check_openai_chat({"messages": mended}, Issued()) is None
    assert chat(mended) == mended


@pytest.mark.growth
def test_mending_takes_time_in_proportion() -> None:
    def seconds(count: int) -> float:
        items = [one for n in range(count) for one in (user(), rs(n), fc(n), out(n))]
        chats = [one for n in range(count) for one in (user(), assistant(str(n)), answer(str(n)))]
        start = time.thread_time()
        sanitize(items)
        chat(chats)
        return time.thread_time() - start

    assert min(seconds(2000) for _ in range(3)) < 40 * min(seconds(200) for _ in range(3))


def test_a_result_of_anothers_tool_is_not_a_result() -> None:
    buy = {"type": "mcp_tool_use", "id": "m", "name": "buy", "input": {}}
    assistant = {"type": "text", "text": "Hi"}
    for kind, stays in (("mcp_tool_result", True), ("web_search_tool_result", False)):
        result = {"type": kind, "tool_use_id": "m", "content": []}
        given = [user(), {"role": "assistant", "content": [buy, result, assistant]}, user()]
        mended = sanitize(given, "anthropic_messages")
        assert (buy in mended[1]["content"]) == stays


def test_only_the_message_of_an_error_is_kept() -> None:
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    picture = {"type": "image", "source": {"type": "url", "url": "https://a.example/a.png"}}
    assistant = {"type": "text", "text": "No."}
    for content in ([picture, assistant], [assistant], "No."):
        result = {"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": content}
        given = [
            user(),
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result]},
        ]
        [mended] = sanitize(given, "anthropic_messages")[2]["content"]
        assert mended["content"] == (content if content == "No." else [assistant])


def test_a_result_that_names_no_call_is_left_out() -> None:
    for call_id in (5, None):
        result = {"type": "function_call_output", "call_id": call_id, "output": "x"}
        assert sanitize([user(), result]) == [user()]
