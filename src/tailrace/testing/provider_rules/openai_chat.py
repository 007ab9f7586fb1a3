"""OpenAI's rules for the body of `POST /v1/chat/completions`, and those of compatible servers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tailrace.core.values import Json, dict_of
from tailrace.testing.provider_rules.openai_errors import (
    RequestError,
    data_of,
    image_error,
    missing,
    mistaken,
    too_long,
)

if TYPE_CHECKING:
    from tailrace.testing.provider_rules import Issued

_MISTRAL = re.compile(r"(mi|mini|magi|code|dev)stral|(mi|pi|vo)xtral")
_NINE = re.compile(r"[a-zA-Z0-9]{9}")
_PARTS = ("text", "image_url", "input_audio", "refusal", "audio", "file")
_ROLES = ("system", "assistant", "user", "function", "tool", "developer")


def errors(request: Mapping[str, Any], issued: Issued) -> Iterator[RequestError]:
    """All errors, in the order of the messages."""
    messages = request.get("messages")
    if messages is None:
        yield missing("messages")
        return
    if not isinstance(messages, list):
        yield mistaken("messages", "an array", messages)
        return
    if not messages:
        yield _empty("messages")
        return
    thoughtful = _start_of_reasoned_turn(messages, issued)
    if _MISTRAL.search(str(request.get("model"))):
        yield from _mistral(messages)
    seen: set[str] = set()
    waiting: dict[str, int] = {}
    answered: dict[str, int] = {}
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            yield mistaken(f"messages[{index}]", "an object", message)
            return
        role = _role(message)
        if role not in _ROLES:
            quoted = ", ".join(f"'{role}'" for role in _ROLES[:-1])
            reason = f"Supported values are: {quoted}, and '{_ROLES[-1]}'."
            place = f"messages[{index}].role"
            yield RequestError(f"Invalid value: '{role}'. {reason}", place, "invalid_value")
            return
        if role == "tool":
            yield from _answer(index, message, waiting, answered)
            yield from _content(index, message, issued)
            continue
        yield from _unanswered(index, waiting)
        waiting, answered = {}, {}
        yield from _content(index, message, issued)
        if role == "assistant" and "tool_calls" in message:
            mishapen = list(_call_shapes(index, message["tool_calls"]))
            yield from mishapen
            if mishapen:
                return
            yield from _calls(index, message, seen)
            waiting = dict.fromkeys((call["id"] for call in message["tool_calls"]), index)
        if role == "assistant":
            yield from _reasoning(index, message, index >= thoughtful, issued)
    yield from _unanswered(len(messages), waiting)


def _mistral(messages: list[Any]) -> Iterator[RequestError]:
    """Further rules of Mistral's models."""
    before = None
    for message in messages:
        role = _role(message)
        if (before, role) in (("tool", "user"), ("user", "tool")):
            reason = f"Unexpected role '{role}' after role '{before}'"
            yield RequestError(reason, None, "3230")
        for call in _ids(message) if role == "assistant" else ():
            if not _NINE.fullmatch(call):
                reason = "but must be a-z, A-Z, 0-9, with a length of 9."
                yield RequestError(f"Tool call id was {call} {reason}", None, "3280")
        before = role
    if before not in ("user", "tool"):
        reason = (
            "Expected last role User or Tool (or Assistant with prefix True) for serving but got"
        )
        yield RequestError(f"{reason} {before}", None, "3230")


def _ids(message: Any) -> list[str]:
    """The ids of a message's calls, even if the calls are invalid."""
    calls = dict_of(message).get("tool_calls")
    listed = calls if isinstance(calls, list) else []
    found = [call.get("id") for call in listed if isinstance(call, dict)]
    return [ident for ident in found if isinstance(ident, str)]


def _role(message: Any) -> Any:
    return dict_of(message).get("role")


def _empty(param: str) -> RequestError:
    return RequestError(
        f"Invalid '{param}': empty array. Expected an array with minimum length 1, but got an "
        "empty array instead.",
        param,
        "empty_array",
    )


def _answer(
    index: int, message: Json, waiting: dict[str, int], answered: dict[str, int]
) -> Iterator[RequestError]:
    ident = message.get("tool_call_id")
    if ident in answered:
        yield RequestError(
            f"Invalid parameter: Duplicate value for 'tool_call_id' of '{ident}', in "
            f"messages[{answered[str(ident)]}] and messages[{index}].",
            f"messages.[{index}].tool_call_id",
        )
    elif ident not in waiting:
        yield RequestError(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
            "message with 'tool_calls'.",
            f"messages.[{index}].role",
        )
    else:
        del waiting[str(ident)]
        answered[str(ident)] = index


def _unanswered(index: int, waiting: dict[str, int]) -> Iterator[RequestError]:
    if waiting:
        yield RequestError(
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(waiting),
            f"messages.[{index}].role",
        )


def _content(index: int, message: Json, issued: Issued) -> Iterator[RequestError]:
    content, role = message.get("content"), message["role"]
    if content is None:
        if role != "assistant" or not (message.get("tool_calls") or message.get("refusal")):
            reason = "Invalid value for 'content': expected a string, got null."
            yield RequestError(reason, f"messages.[{index}].content")
    elif not isinstance(content, str | list):
        wanted = "one of a string or an array of objects"
        yield mistaken(f"messages[{index}].content", wanted, content)
    elif isinstance(content, list):
        if not content:
            yield _empty(f"messages[{index}].content")
        for at, part in enumerate(content):
            if not isinstance(part, dict):
                yield mistaken(f"messages[{index}].content[{at}]", "an object", part)
            # Thinking that some servers (Mistral) put there is taken back by them, and by no other.
            elif role != "assistant" or part.get("type") not in issued.chat_parts:
                yield from _part(index, at, part, role)


def _part(index: int, at: int, part: Json, role: str) -> Iterator[RequestError]:
    kind, place = part.get("type"), f"messages[{index}].content[{at}]"
    if kind not in _PARTS:
        listed = ", ".join(f"'{part}'" for part in _PARTS[:-1])
        reason = f"Supported values are: {listed}, and '{_PARTS[-1]}'."
        yield RequestError(f"Invalid value: '{kind}'. {reason}", place, "invalid_value")
    elif kind == "text" and not isinstance(part.get("text"), str):
        yield missing(f"{place}.text")
    elif kind == "image_url" and role != "user":
        yield RequestError(
            f"Invalid 'messages[{index}]'. Image URLs are only allowed for messages with role "
            f"'user', but this message with role '{role}' contains an image URL.",
            f"messages[{index}]",
            "invalid_value",
        )
    elif kind == "image_url":
        url = (part.get("image_url") or {}).get("url")
        if error := image_error(f"{place}.image_url.url", url):
            yield error
    elif kind == "file" and (part.get("file") or {}).get("file_id") is None:
        found = data_of(str((part.get("file") or {}).get("file_data")))
        if found is None or found[0] != "application/pdf":
            got = (
                f"unsupported MIME type '{found[0]}'"
                if found
                else "an invalid base64-encoded value"
            )
            yield RequestError(
                f"Invalid file data: '{place}.file.file_data'. Expected a base64-encoded data URL "
                "with an application/pdf MIME type (e.g. "
                f"'data:application/pdf;base64,SGVsbG8sIFdvcmxkIQ=='), but got {got}.",
                f"{place}.file.file_data",
                "invalid_value",
            )


def _call_shapes(index: int, calls: Any) -> Iterator[RequestError]:
    place = f"messages[{index}].tool_calls"
    if not isinstance(calls, list):
        yield mistaken(place, "an array of objects", calls)
        return
    for at, call in enumerate(calls):
        if not isinstance(call, dict):
            yield mistaken(f"{place}[{at}]", "an object", call)
            continue
        kind = call.get("type", "function")
        for name in ("id", kind):
            if call.get(name) is None:
                yield missing(f"{place}[{at}].{name}")


def _calls(index: int, message: Json, seen: set[str]) -> Iterator[RequestError]:
    if not message["tool_calls"]:
        yield _empty(f"messages[{index}].tool_calls")
    for at, call in enumerate(message["tool_calls"]):
        place = f"messages[{index}].tool_calls[{at}]"
        if len(call["id"]) > 40:
            yield too_long(f"{place}.id", call["id"], 40)
        if call["id"] in seen:
            yield RequestError(f"Duplicate value for 'tool_calls[].id': '{call['id']}'.", place)
        seen.add(call["id"])
        if not isinstance(call["function"].get("arguments"), str):
            reason = f"Missing required parameter: '{place}.function.arguments'."
            yield RequestError(reason, f"{place}.function.arguments", "missing_required_parameter")


def _reasoning(
    index: int, message: Json, thoughtful: bool, issued: Issued
) -> Iterator[RequestError]:
    """Servers that send `reasoning_content` require it back in each turn with calls."""
    reasoning, calls = message.get("reasoning_content"), message.get("tool_calls") or ()
    known = any(call["id"] in issued.reasoning_of_calls for call in calls)
    if (known or thoughtful) and reasoning is None:
        reason = (
            f"Missing `reasoning_content` field in the assistant message at message index {index}."
        )
        yield RequestError(reason, None, "invalid_request_error")
    elif known and not reasoning:
        reason = (
            "thinking is enabled but reasoning_content is missing in assistant tool call message "
            f"at index {index}"
        )
        yield RequestError(reason, None, "invalid_request_error")


def _start_of_reasoned_turn(messages: list[Any], issued: Issued) -> int:
    """The start of the last turn, if it has calls with reasoning."""
    turn = max((n for n, message in enumerate(messages) if _role(message) == "user"), default=0)
    called = (call for message in messages[turn:] for call in _ids(message))
    known = any(call in issued.reasoning_of_calls for call in called)
    return turn if known else len(messages)
