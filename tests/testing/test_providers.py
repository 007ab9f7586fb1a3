"""The providers' rules: each is broken once, and answered in the provider's words."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.testing.provider_rules import (
    ErrorBody,
    Issued,
    check_anthropic_messages,
    check_openai_chat,
    check_openai_responses,
)

USER = {"role": "user", "content": "Hi"}
RS = {"type": "reasoning", "id": "rs_1", "summary": []}
SEALED = {**RS, "encrypted_content": "gAAA"}
MSG = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Yes"}],
}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUT = {"type": "function_call_output", "call_id": "c", "output": "15C"}
SHELL = {"type": "shell_call", "id": "sh_1", "call_id": "s", "action": {"commands": ["ls"]}}
LOCAL = {"type": "local_shell_call", "id": "lsh_1", "call_id": "l", "action": {}}
PATCH = {"type": "apply_patch_call", "id": "apc_1", "call_id": "p", "operation": {}}
CLICK = {"type": "computer_call", "id": "cu_1", "call_id": "k", "action": {}}
SVG = "data:image/svg+xml;base64,PHN2Zy8+"
EMPTY_IMAGE = {"file_id": None, "image_url": "data:image/png;base64,"}
NO_IMAGE = (
    "The image data you provided does not represent a valid image. Please check your input and try "
    "again with one of the following image formats: ['image/jpeg', 'image/png', 'image/gif', "
    "'image/webp']."
)
SCREEN: dict[str, Any] = {
    "type": "computer_call_output",
    "call_id": "k",
    "output": {"type": "computer_screenshot", "file_id": "file_1"},
}
PROGRAM = {"type": "program", "id": "cm_1", "call_id": "q", "code": "x"}
MADE = {
    "type": "function_call",
    "call_id": "c",
    "name": "f",
    "arguments": "{}",
    "caller": {"type": "program", "caller_id": "q"},
}
ASKS = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "name": "buy",
    "arguments": "{}",
    "server_label": "shop",
}
GRANTS = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
SHOWN = {"type": "shell_call_output", "id": "sho_1", "call_id": "s", "output": []}


def account() -> Issued:
    issued = Issued()
    issued.openai_response("resp_1", [SEALED, MSG])
    issued.openai_response("resp_2", [{**CALL, "id": "fc_1"}])
    issued.openai_response("resp_3", [SHELL, SHOWN])
    issued.openai_response("resp_4", [ASKS])
    issued.openai_response("resp_5", [PROGRAM, MADE])
    return issued


def openai(*items: Any, **more: Any) -> ErrorBody | None:
    return check_openai_responses({"input": list(items), **more}, account())


@pytest.mark.parametrize(
    ("items", "more"),
    [
        ([USER, SEALED, MSG, USER], {}),
        ([USER, RS, MSG], {}),
        ([USER, SEALED, MSG], {"store": False}),
        ([USER, {**MSG, "id": "msg_other"}, USER], {}),
        ([USER, CALL, OUT], {}),
        ([OUT], {"previous_response_id": "resp_2"}),
        ([USER, SHELL, SHOWN], {}),
        ([USER, LOCAL, {"type": "local_shell_call_output", "id": "l", "output": "x"}], {}),
        (
            [USER, PATCH, {"type": "apply_patch_call_output", "call_id": "p", "status": "failed"}],
            {},
        ),
        ([USER, CLICK, SCREEN], {}),
        (
            [
                USER,
                {**CLICK, "pending_safety_checks": [{"id": "sc_1"}]},
                {**SCREEN, "acknowledged_safety_checks": [{"id": "sc_1"}]},
            ],
            {},
        ),
        ([USER, ASKS, GRANTS, {**ASKS, "type": "mcp_call", "id": "mcp_1"}], {}),
        ([GRANTS], {"previous_response_id": "resp_4"}),
        ([USER, PROGRAM, MADE, OUT], {}),
        ([OUT], {"previous_response_id": "resp_5"}),
        ([{**OUT, "caller": MADE["caller"]}], {"previous_response_id": "resp_5"}),
        ([USER], {"previous_response_id": "resp_3"}),
        (
            [
                USER,
                {"type": "item_reference", "id": "rs_1"},
                {"type": "item_reference", "id": "msg_1"},
            ],
            {},
        ),
        ([{"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}, CALL, OUT], {}),
        (
            [{"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]}],
            {},
        ),
    ],
)
def test_what_openai_accepts(items: list[Any], more: Any) -> None:
    error = openai(*items, **more)
    assert error is None, error.message


def test_openai_accepts_a_string() -> None:
    assert check_openai_responses({"input": "Hi"}, Issued()) is None


NOT_STORED = (
    " Items are not persisted when `store` is set to false. Try again with `store` set to "
    "true, "
    "or remove this item from your input."
)


@pytest.mark.parametrize(
    ("items", "more", "message"),
    [
        ([USER, RS, MSG, USER], {}, "Item with id 'rs_1' not found."),
        ([USER, RS, MSG], {"store": False}, "Item with id 'rs_1' not found." + NOT_STORED),
        ([{"type": "item_reference", "id": "msg_9"}], {}, "Item with id 'msg_9' not found."),
        (
            [USER, MSG, USER],
            {},
            (
                "Item 'msg_1' of type 'message' was provided without its required "
                "'reasoning' item: "
                "'rs_1'."
            ),
        ),
        (
            [USER, SEALED, USER],
            {},
            "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        ),
        (
            [USER, SEALED, {**MSG, "id": "msg_2"}],
            {},
            "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        ),
        (
            [USER, {**SEALED, "encrypted_content": "forged"}, MSG],
            {},
            (
                "The encrypted content for item rs_1 could not be verified. Reason: "
                "Encrypted content "
                "could not be decrypted or parsed."
            ),
        ),
        ([USER, CALL], {}, "No tool output found for function call c."),
        ([USER, OUT], {}, "No tool call found for function call output with call_id c."),
        ([USER, CALL, OUT, OUT], {}, "No tool call found for function call output with call_id c."),
        ([USER, CALL, CALL, OUT], {}, "Duplicate function call found with call_id c."),
        ([USER], {"previous_response_id": "resp_2"}, "No tool output found for function call c."),
        ([USER, SHELL], {}, "No tool output found for shell call s."),
        ([USER, SHOWN], {}, "No tool call found for shell call output with call_id s."),
        (
            [USER, SHELL, {**OUT, "call_id": "s"}],
            {},
            "No tool call found for function call output with call_id s.",
        ),
        (
            [USER, SHELL, {**SHOWN, "output": "ls"}],
            {},
            "Invalid type for 'input[2].output': expected an array, but got a string instead.",
        ),
        (
            [USER, SHELL, {**SHOWN, "output": [{"stdout": ""}]}],
            {},
            "Missing required parameter: 'input[2].output[0].stderr'.",
        ),
        (
            [USER, LOCAL, {"type": "local_shell_call_output", "id": "l", "output": []}],
            {},
            "Invalid type for 'input[2].output': expected a string, but got an array instead.",
        ),
        (
            [USER, PATCH, {"type": "apply_patch_call_output", "call_id": "p", "status": "ok"}],
            {},
            "Invalid value: 'ok'. Supported values are: 'completed' and 'failed'.",
        ),
        (
            [USER, CLICK, {"type": "computer_call_output", "call_id": "k", "output": "x"}],
            {},
            "Invalid value: 'None'. Supported values are: 'computer_screenshot'.",
        ),
        (
            [USER, CLICK, {**SCREEN, "output": {"type": "computer_screenshot"}}],
            {},
            "Missing required parameter: 'input[2].output.image_url'.",
        ),
        (
            [USER, {**CLICK, "pending_safety_checks": [{"id": "sc_1"}]}, SCREEN],
            {},
            "The following safety checks have not been acknowledged: sc_1",
        ),
        ([USER, PROGRAM], {}, "No tool output found for program q."),
        ([USER, MADE, OUT], {}, "No program found with call_id q."),
        (
            [USER, ASKS],
            {},
            "The following MCP approval requests do not have an approval: mcpr_1",
        ),
        (
            [USER],
            {"previous_response_id": "resp_4"},
            "The following MCP approval requests do not have an approval: mcpr_1",
        ),
        ([USER, GRANTS], {}, "No approval request found with id mcpr_1."),
        ([USER, ASKS, GRANTS, GRANTS], {}, "No approval request found with id mcpr_1."),
        (
            [USER, {**ASKS, "type": "mcp_call", "approval_request_id": "mcpr_2"}],
            {},
            "No approval request found with id mcpr_2.",
        ),
        (
            [USER],
            {"previous_response_id": "resp_9"},
            "Previous response with id 'resp_9' not found.",
        ),
        (
            [USER, SEALED, MSG, {**MSG, "content": "x"}],
            {},
            (
                "Duplicate item found with id msg_1. Remove duplicate items from your input "
                "and try "
                "again."
            ),
        ),
        (
            [{**CALL, "id": "call_1"}, OUT],
            {},
            "Invalid 'input[0].id': 'call_1'. Expected an ID that begins with 'fc'.",
        ),
        (
            [{**MSG, "id": "a b"}],
            {},
            (
                "Invalid 'input[0].id': 'a b'. Expected an ID that contains letters, numbers, "
                "underscores, or dashes, but this value contained additional characters."
            ),
        ),
        (
            [{**CALL, "call_id": "c" * 65}],
            {},
            (
                "Invalid 'input[0].call_id': string too long. Expected a string with maximum "
                "length 64, "
                "but got a string with length 65 instead."
            ),
        ),
        (
            [{**CALL, "name": "a.b"}],
            {},
            (
                "Invalid 'input[0].name': string does not match pattern. Expected a string "
                "that matches "
                "the pattern '^[a-zA-Z0-9_-]+$'."
            ),
        ),
        ([{"type": "function_call"}], {}, "Missing required parameter: 'input[0].call_id'."),
        ([{"type": "hologram"}], {}, "Invalid value: 'hologram'."),
        (
            [{"role": "critic", "content": "x"}],
            {},
            (
                "Invalid value: 'critic'. Supported values are: 'assistant', 'system', "
                "'developer', "
                "and 'user'."
            ),
        ),
        (
            [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}],
            {},
            "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
        ),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": "/blobs/1"}]}],
            {},
            (
                "Invalid 'input[0].content[0].image_url'. Expected a valid URL, but got a "
                "value with an "
                "invalid format."
            ),
        ),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": SVG}]}],
            {},
            NO_IMAGE,
        ),
        (
            [USER, CLICK, {**SCREEN, "output": {**SCREEN["output"], **EMPTY_IMAGE}}],
            {},
            NO_IMAGE,
        ),
        (
            [{**MSG, "id": "msg_" + "1" * 61}],
            {},
            (
                "Invalid 'input[0].id': string too long. Expected a string with maximum length 64, "
                "but got a string with length 65 instead."
            ),
        ),
        (
            [{**CALL, "arguments": {}}, OUT],
            {},
            "Invalid type for 'input[0].arguments': expected a string, but got an object instead.",
        ),
        (
            [CALL, {**OUT, "output": 7}],
            {},
            (
                "Invalid type for 'input[1].output': expected one of a string or an array, but got "
                "an integer instead."
            ),
        ),
        (
            [{"role": "user", "content": [{"type": "input_text"}]}],
            {},
            "Missing required parameter: 'input[0].content[0].text'.",
        ),
        (
            [CALL, {**OUT, "output": [{"type": "input_file"}]}],
            {},
            "Missing required parameter: 'input[1].output[0].file_id'.",
        ),
        ([], {}, "Missing required parameter: 'input'."),
        ([7], {}, "Invalid type for 'input[0]': expected an object, but got an integer instead."),
    ],
)
def test_what_openai_refuses(items: list[Any], more: Any, message: str) -> None:
    error = openai(*items, **more)
    assert error is not None
    assert error.message == message
    assert error.body["error"].keys() == {"message", "type", "param", "code"}
    assert error.status == (404 if message.startswith("Item with") else 400)


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


TOOLS: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
ANSWER = {"role": "tool", "tool_call_id": "1", "content": "15C"}
PICTURE = {"type": "image_url", "image_url": {"url": "https://a.org/a.png"}}


TEXT_FILE = "data:text/plain;base64,SGk="
NO_PDF = (
    "Invalid file data: 'messages[0].content[0].file.file_data'. Expected a base64-encoded data "
    "URL with an application/pdf MIME type (e.g. "
    "'data:application/pdf;base64,SGVsbG8sIFdvcmxkIQ=='), "
)


def chat(*messages: Any) -> ErrorBody | None:
    return check_openai_chat({"messages": list(messages)}, Issued())


def test_what_chat_completions_accept() -> None:
    assert chat(USER, TOOLS, ANSWER, {"role": "user", "content": [PICTURE]}) is None


@pytest.mark.parametrize(
    ("messages", "message", "param"),
    [
        (
            [],
            (
                "Invalid 'messages': empty array. Expected an array with minimum length 1, "
                "but got an "
                "empty array instead."
            ),
            "messages",
        ),
        (
            [USER, TOOLS, USER],
            (
                "An assistant message with 'tool_calls' must be followed by tool messages "
                "responding to "
                "each 'tool_call_id'. The following tool_call_ids did not have response "
                "messages: 1"
            ),
            "messages.[2].role",
        ),
        (
            [USER, ANSWER],
            (
                "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
                "message with 'tool_calls'."
            ),
            "messages.[1].role",
        ),
        (
            [USER, TOOLS, ANSWER, ANSWER],
            (
                "Invalid parameter: Duplicate value for 'tool_call_id' of '1', in messages[2] and "
                "messages[3]."
            ),
            "messages.[3].tool_call_id",
        ),
        (
            [{"role": "user", "content": None}],
            "Invalid value for 'content': expected a string, got null.",
            "messages.[0].content",
        ),
        (
            [{"role": "user", "content": []}],
            (
                "Invalid 'messages[0].content': empty array. Expected an array with minimum "
                "length 1, "
                "but got an empty array instead."
            ),
            "messages[0].content",
        ),
        (
            [{"role": "critic"}],
            (
                "Invalid value: 'critic'. Supported values are: 'system', 'assistant', 'user', "
                "'function', 'tool', and 'developer'."
            ),
            "messages[0].role",
        ),
        (
            [{**TOOLS, "tool_calls": [], "content": "x"}],
            (
                "Invalid 'messages[0].tool_calls': empty array. Expected an array with "
                "minimum length "
                "1, but got an empty array instead."
            ),
            "messages[0].tool_calls",
        ),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": SVG}}]}],
            NO_IMAGE,
            "messages[0].content[0].image_url.url",
        ),
        (
            [{"role": "user", "content": [{"type": "image_url"}]}],
            (
                "Invalid 'messages[0].content[0].image_url.url'. Expected a valid URL, but got a "
                "value with an invalid format."
            ),
            "messages[0].content[0].image_url.url",
        ),
        (
            [{"role": "user", "content": [{"type": "file", "file": {"file_data": TEXT_FILE}}]}],
            NO_PDF + "but got unsupported MIME type 'text/plain'.",
            "messages[0].content[0].file.file_data",
        ),
        (
            [{"role": "user", "content": [{"type": "file", "file": {"file_data": "x"}}]}],
            NO_PDF + "but got an invalid base64-encoded value.",
            "messages[0].content[0].file.file_data",
        ),
        (
            [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
            (
                "Invalid value: 'input_text'. Supported values are: 'text', 'image_url', "
                "'input_audio', 'refusal', 'audio', and 'file'."
            ),
            "messages[0].content[0]",
        ),
        (
            [{"role": "user", "content": [{"type": "text"}]}],
            "Missing required parameter: 'messages[0].content[0].text'.",
            "messages[0].content[0].text",
        ),
        (
            [USER, TOOLS, {**ANSWER, "content": [PICTURE]}],
            (
                "Invalid 'messages[2]'. Image URLs are only allowed for messages with role "
                "'user', but "
                "this message with role 'tool' contains an image URL."
            ),
            "messages[2]",
        ),
        (
            [{**TOOLS, "tool_calls": [{"id": "x" * 41, "function": {"arguments": "{}"}}]}],
            (
                "Invalid 'messages[0].tool_calls[0].id': string too long. Expected a string with "
                "maximum length 40, but got a string with length 41 instead."
            ),
            "messages[0].tool_calls[0].id",
        ),
        (
            [{**TOOLS, "tool_calls": [{"id": "1", "function": {}}]}],
            "Missing required parameter: 'messages[0].tool_calls[0].function.arguments'.",
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            [TOOLS, ANSWER, TOOLS, ANSWER],
            "Duplicate value for 'tool_calls[].id': '1'.",
            "messages[2].tool_calls[0]",
        ),
    ],
)
def test_what_chat_completions_refuse(messages: list[Any], message: str, param: str) -> None:
    error = chat(*messages)
    assert error is not None
    assert error.message == message
    assert error.body["error"]["param"] == param


def test_reasoning_content_is_wanted_back_in_each_turn_that_had_calls() -> None:
    issued = Issued()
    issued.chat_message({**TOOLS, "reasoning_content": "Hm"})

    def refused(*messages: Any) -> str | None:
        error = check_openai_chat({"messages": list(messages)}, issued)
        return None if error is None else error.message

    missing = "Missing `reasoning_content` field in the assistant message at message index"
    empty = "thinking is enabled but reasoning_content is missing in assistant tool call message at"
    thought = {**TOOLS, "reasoning_content": "Hm"}
    assistant = {"role": "assistant", "content": "Wait."}
    assert refused(USER, TOOLS, ANSWER) == f"{missing} 1."
    assert refused(USER, TOOLS, ANSWER, USER) == f"{missing} 1."
    assert refused(USER, {**TOOLS, "reasoning_content": ""}, ANSWER) == f"{empty} index 1"
    assert refused(USER, assistant, thought, ANSWER) == f"{missing} 1."
    assert refused(USER, {**assistant, "reasoning_content": ""}, thought, ANSWER) is None
    assert refused(USER, thought, ANSWER, assistant, USER) is None
    assert refused(USER, assistant, USER, thought, ANSWER) is None


def test_a_server_takes_back_the_parts_that_it_sent_and_another_does_not() -> None:
    issued = Issued()
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
    answer = {"role": "assistant", "content": [thought]}
    issued.chat_message(answer)
    assert check_openai_chat({"messages": [USER, answer]}, issued) is None
    refused = check_openai_chat({"messages": [USER, answer]}, Issued())
    assert refused is not None
    assert refused.message.startswith("Invalid value: 'thinking'.")
    asked = {"role": "user", "content": [thought]}
    assert check_openai_chat({"messages": [asked]}, issued) is not None


def test_mistral_wants_answers_between_results_and_users_and_ids_of_nine_letters() -> None:
    def refused(*messages: Any) -> str | None:
        request = {"model": "mistral-large-latest", "messages": list(messages)}
        error = check_openai_chat(request, Issued())
        return None if error is None else error.message

    called = {**TOOLS, "tool_calls": [{**TOOLS["tool_calls"][0], "id": "call00001"}]}
    result = {**ANSWER, "tool_call_id": "call00001"}
    assistant = {"role": "assistant", "content": "15C."}
    assert refused(USER, called, result) is None
    assert refused(USER, called, result, assistant, USER) is None
    assert refused(USER, called, result, USER) == "Unexpected role 'user' after role 'tool'"
    assert refused(USER, result) == "Unexpected role 'tool' after role 'user'"
    assert refused(USER, TOOLS, ANSWER) == (
        "Tool call id was 1 but must be a-z, A-Z, 0-9, with a length of 9."
    )
    assert refused(USER, assistant) == (
        "Expected last role User or Tool (or Assistant with prefix True) for serving but got "
        "assistant"
    )
