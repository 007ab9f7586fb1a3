"""OpenAI's rules for the Responses API: each is broken once, and answered in OpenAI's words."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.testing.provider_rules import (
    ErrorBody,
    Issued,
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
