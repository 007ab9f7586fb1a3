"""`sanitize` repairs lists for Anthropic's Messages API."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.history import sanitize
from tailrace.testing.provider_rules import (
    Issued,
    check_anthropic_messages,
)
from tests.history.sanitize_lists import (
    FOUND,
    HI,
    NO_RESULT,
    SEARCH,
    THOUGHT,
    a,
    anthropic,
    got,
    u,
    use,
    user,
)


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
        "content": [{"type": "text", "text": NO_RESULT}],
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
