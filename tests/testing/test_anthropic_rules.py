"""Anthropic's rules: each is broken once, and answered in Anthropic's words."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.testing.provider_rules import (
    ErrorBody,
    Issued,
    check_anthropic_messages,
)

USER = {"role": "user", "content": "Hi"}
HI = {"type": "text", "text": "Hi"}
THOUGHT = {"type": "thinking", "thinking": "Hm", "signature": "S"}
SECOND = {"type": "redacted_thinking", "data": "D"}
USE = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
GOT = {"type": "tool_result", "tool_use_id": "1", "content": "15C"}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
PICTURE = {"type": "image", "source": {"type": "url", "url": "https://a.example/a.png"}}
BUY = {"type": "mcp_tool_use", "id": "m", "name": "buy", "server_name": "shop", "input": {}}
BOUGHT = {"type": "mcp_tool_result", "tool_use_id": "m", "content": []}
ON = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def a(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def u(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def anthropic(*messages: Any, **more: Any) -> ErrorBody | None:
    issued = Issued()
    issued.anthropic_message([THOUGHT, HI, SECOND, USE])
    return check_anthropic_messages({"messages": list(messages), **more}, issued)


@pytest.mark.parametrize(
    ("messages", "more"),
    [
        ([USER, USER], {}),
        ([{"role": "system", "content": "S"}, USER], {}),
        ([USER, a(THOUGHT, HI, SECOND, USE), u(GOT, HI)], ON),
        ([USER, a(THOUGHT, HI), USER], {}),
        ([USER, a(SEARCH, FOUND, HI), USER], {}),
        ([USER, a(BUY, BOUGHT, HI), USER], {}),
        ([USER, a(SEARCH)], {}),
        ([USER, a(HI), USER], ON),
    ],
)
def test_what_anthropic_accepts(messages: list[Any], more: Any) -> None:
    error = anthropic(*messages, **more)
    assert error is None, error.message


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages: at least one message is required"),
        (
            [USER, a(USE), u({**GOT, "is_error": True, "content": [PICTURE]})],
            (
                "messages.2.content.0.tool_result: all content must be type `text` if `is_error` "
                "is true"
            ),
        ),
        (
            [USER, a(BUY, {**FOUND, "tool_use_id": "m"}, HI), USER],
            (
                "messages.1.content.1: unexpected `tool_use_id` found in `web_search_tool_result` "
                "blocks: m. Each `web_search_tool_result` block must have a corresponding "
                "`server_tool_use` block before it."
            ),
        ),
        (
            [USER, a(SEARCH, {**BOUGHT, "tool_use_id": "s"}, HI), USER],
            (
                "messages.1.content.1: unexpected `tool_use_id` found in `mcp_tool_result` blocks: "
                "s. Each `mcp_tool_result` block must have a corresponding `mcp_tool_use` block "
                "before it."
            ),
        ),
        ([a(HI), USER], 'messages: first message must use the "user" role'),
        ([{"role": "system", "content": "S"}], 'messages: first message must use the "user" role'),
        (
            [{"role": "tool", "content": "x"}],
            'messages: Unexpected role "tool". Allowed roles are "user" or "assistant"',
        ),
        (
            [u()],
            (
                "messages.0: all messages must have non-empty content except for the "
                "optional final "
                "assistant message"
            ),
        ),
        ([u({"type": "text", "text": ""})], "messages: text content blocks must be non-empty"),
        (
            [u({"type": "text", "text": "\n"})],
            "messages: text content blocks must contain non-whitespace text",
        ),
        (
            [USER, a({"type": "text", "text": "Hi "})],
            "messages: final assistant content cannot end with trailing whitespace",
        ),
        (
            [USER, a(HI)],
            (
                "This model does not support assistant message prefill. The conversation "
                "must end with "
                "a user message."
            ),
        ),
        (
            [USER, a(USE), USER],
            (
                "messages.1: `tool_use` ids were found without `tool_result` blocks "
                "immediately after: "
                "1. Each `tool_use` block must have a corresponding `tool_result` block in "
                "the next "
                "message."
            ),
        ),
        (
            [USER, a(USE), u(HI, GOT)],
            (
                "messages.1: `tool_use` ids were found without `tool_result` blocks "
                "immediately after: "
                "1. Each `tool_use` block must have a corresponding `tool_result` block in "
                "the next "
                "message."
            ),
        ),
        (
            [u(GOT)],
            (
                "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` "
                "blocks: 1. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the "
                "previous message."
            ),
        ),
        (
            [USER, a(USE), u(GOT, GOT)],
            (
                "messages.2.content.1: each tool_use must have a single result. Found multiple "
                "`tool_result` blocks with id: 1"
            ),
        ),
        ([USER, a(USE), u(GOT), a(USE), u(GOT)], "messages: `tool_use` ids must be unique"),
        (
            [USER, a({**USE, "id": "a b"}), u(GOT)],
            "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        ),
        (
            [USER, a({**USE, "name": "a.b"}), u(GOT)],
            (
                "messages.1.content.0.tool_use.name: String should match pattern "
                "'^[a-zA-Z0-9_-]{1,128}$'"
            ),
        ),
        (
            [USER, a({**USE, "input": "{}"}), u(GOT)],
            "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
        ),
        ([u(USE)], "messages.0.content.0: `tool_use` blocks can only be in `assistant` messages"),
        (
            [USER, a(GOT), USER],
            "messages.1.content.0: `tool_result` blocks can only be in `user` messages",
        ),
        (
            [USER, a(USE), u({**GOT, "content": [{"type": "text", "text": ""}]})],
            "messages: text content blocks must be non-empty",
        ),
        (
            [u(7)],
            (
                "messages.0.content.0: Input should be a valid dictionary or object to "
                "extract fields "
                "from"
            ),
        ),
        (
            [USER, a(SEARCH, HI), USER],
            (
                "messages.1: `web_search` tool use with id `s` was found without a corresponding "
                "`web_search_tool_result` block"
            ),
        ),
        (
            [USER, a(FOUND), USER],
            (
                "messages.1.content.0: unexpected `tool_use_id` found in `web_search_tool_result` "
                "blocks: s. Each `web_search_tool_result` block must have a corresponding "
                "`server_tool_use` block before it."
            ),
        ),
        (
            [USER, a({**THOUGHT, "thinking": "Hmm"}, HI), USER],
            "messages.1.content.0: Invalid `signature` in `thinking` block",
        ),
        (
            [USER, a({"type": "thinking", "thinking": "Hm"}, HI), USER],
            "messages.1.content.0.thinking.signature: Field required",
        ),
        (
            [USER, a(HI, THOUGHT, HI), USER],
            (
                "messages.1.content.0: If an assistant message contains any thinking blocks, "
                "the first "
                "block must be `thinking` or `redacted_thinking`. Found `text`."
            ),
        ),
        (
            [USER, a(THOUGHT), USER],
            "messages.1: The final block in an assistant message cannot be `thinking`.",
        ),
        (
            [USER, a(SECOND, HI), USER],
            (
                "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the "
                "latest assistant "
                "message cannot be modified. These blocks must remain as they were in the original "
                "response."
            ),
        ),
        (
            [u({"type": "image", "source": {"type": "url", "url": "http://a.org"}})],
            "messages.0.content.0.image.source.url.url: Only HTTPS URLs are supported.",
        ),
        (
            [u({"type": "image", "source": {"type": "base64", "media_type": "image/svg+xml"}})],
            (
                "messages.0.content.0.image.source.base64.media_type: Input should be "
                "'image/jpeg', "
                "'image/png', 'image/gif' or 'image/webp'"
            ),
        ),
        (
            [u({"type": "image", "source": {"type": "base64", "media_type": "image/png"}})],
            "messages.0.content.0.image.source.base64: image cannot be empty",
        ),
        ([u({"type": "image"})], "messages.0.content.0.image.source: Field required"),
    ],
)
def test_what_anthropic_refuses(messages: list[Any], message: str) -> None:
    error = anthropic(*messages)
    assert error is not None
    assert error.message == message
    assert error.body["type"] == "error"
    assert error.body["error"]["type"] == "invalid_request_error"


def test_with_thinking_on_calls_that_are_answered_began_with_it() -> None:
    error = anthropic(USER, a(USE), u(GOT), **ON)
    assert error is not None
    assert error.message.startswith(
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
        "`tool_use`. When `thinking` is enabled"
    )
