"""`sanitize` takes a list of any kind, for any API."""

from __future__ import annotations

import time
from typing import Any

import pytest
from anthropic.types import ThinkingBlock, ToolUseBlock
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import ParsedResponseFunctionToolCall, ResponseReasoningItem

from tailrace.core.errors import CallerError
from tailrace.history import sanitize
from tailrace.testing.provider_rules import (
    Issued,
    check_anthropic_messages,
    check_openai_chat,
    check_openai_responses,
)
from tailrace.testing.strategies.values import JSON
from tests.history.sanitize_lists import (
    HI,
    NO_MESSAGE,
    THOUGHT,
    a,
    answer,
    anthropic,
    assistant,
    chat,
    fc,
    got,
    out,
    rs,
    u,
    use,
    user,
)


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
        with pytest.raises(CallerError, match="Expected a list"):
            sanitize(nonsense)
    with pytest.raises(CallerError, match="Item 1 is a value of type object"):
        sanitize([user(), object()])
    with pytest.raises(CallerError, match="Unknown API 'gemini'"):
        sanitize([user()], "gemini")  # type: ignore[arg-type]


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
