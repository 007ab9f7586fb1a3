"""The rules of chat completions: each is broken once, and answered in the provider's words."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.testing.provider_rules import (
    ErrorBody,
    Issued,
    check_openai_chat,
)
from tests.testing.test_openai_responses_rules import NO_IMAGE, SVG

USER = {"role": "user", "content": "Hi"}
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
