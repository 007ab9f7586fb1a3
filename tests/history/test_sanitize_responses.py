"""`sanitize` repairs lists for the Responses API."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tailrace.history import sanitize
from tailrace.testing.provider_rules import (
    Issued,
    check_openai_responses,
)
from tests.history.sanitize_lists import (
    NO_MESSAGE,
    NO_RESULT,
    PICTURE,
    SHOP,
    fc,
    msg,
    out,
    rs,
    types,
    user,
)


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
    closed = {"type": "function_call_output", "call_id": "call_1", "output": NO_RESULT}
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


def test_a_result_that_names_no_call_is_left_out() -> None:
    for call_id in (5, None):
        result = {"type": "function_call_output", "call_id": call_id, "output": "x"}
        assert sanitize([user(), result]) == [user()]
