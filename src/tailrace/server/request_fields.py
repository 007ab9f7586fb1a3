"""Reads the fields of request bodies. A wrong field raises `CallerError` with its name."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from tailrace.core.errors import CallerError, NotFound
from tailrace.core.ids import check_id
from tailrace.core.values import quoted
from tailrace.history.inputs import ClientOutput, InputCall, read_input
from tailrace.ports.model import Effort, Summary
from tailrace.runtime.agents.client_options import LEAVES_CALLS, is_text_format, is_tool_choice
from tailrace.runtime.model_calls.request_check import TOOL_NAME
from tailrace.runtime.tools.json_schema import Checker
from tailrace.wire import openai_responses

T = TypeVar("T")

Body = dict[str, Any]

_NAMES: dict[type, str] = {
    bool: "true or false",
    dict: "an object",
    int: "a whole number",
    list: "a list",
    str: "a string",
}

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("", "0", "false", "no", "off")

_ROLES = ("user", "assistant", "system", "developer")
_CHAT_ROLES = ("user", "assistant", "system")
_AG_UI_ROLES = (*_ROLES, "tool", "reasoning", "activity")

ITEM_TYPES = frozenset(
    (
        *("message", "item_reference", "reasoning", "compaction", "compaction_trigger"),
        *("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"),
        *("mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"),
        *("shell_call", "shell_call_output", "local_shell_call", "local_shell_call_output"),
        *("apply_patch_call", "apply_patch_call_output", "computer_call", "computer_call_output"),
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
        *("tool_search_call", "tool_search_output", "program", "program_output"),
        *("additional_tools", "configuration_update"),
        *("agent_message", "multi_agent_call", "multi_agent_call_output"),
    )
)
"""The types of items that OpenAI's API takes as `input`. The last three are of its beta."""

TEXT_PARTS = ("text", "input_text", "output_text")
"""The types of parts that have a `text`, of all APIs."""

_ELSEWHERE = {
    "conversation": "send `previous_response_id` of the last response",
    "prompt": "send its text in `instructions` or `input`",
}
"""Fields that name what OpenAI stores. Without it the answer would be wrong."""

_METADATA_PAIRS, _METADATA_KEY, _METADATA_VALUE = 16, 64, 512
"""OpenAI's limits on `metadata`."""


def wrong(field: str, value: Any, wanted: str) -> CallerError:
    """The error of a field: its name, its value, and what it must be."""
    return CallerError(f"`{field}` is {quoted(value)}; it must be {wanted}.", param=field)


def text(body: Body, name: str, advice: str) -> str:
    """A required string."""
    value = body.get(name)
    if not isinstance(value, str):
        raise wrong(name, value, f"a string: {advice}")
    return value


def optional(body: Body, name: str, kind: type[T], inside: str = "") -> T | None:
    """A value of this type, or None. `inside` is where the body is in the request."""
    value = whole(body.get(name)) if kind is int else body.get(name)
    is_flag = isinstance(value, bool) and kind is int  # a bool is an int in Python
    if value is not None and (is_flag or not isinstance(value, kind)):
        raise wrong(f"{inside}.{name}" if inside else name, value, _NAMES[kind])
    return value


def whole(value: Any) -> Any:
    """`5.0` as `5`: both are the same number in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def flag(query: Mapping[str, str], name: str) -> bool:
    """A query value that means true or false; false if it is not there."""
    value = query.get(name, "").lower()
    if value not in (*_TRUE, *_FALSE):
        raise CallerError(f"`{name}` is {quoted(value)}; use true or false.", param=name)
    return value in _TRUE


def limit(query: Mapping[str, str], default: int, most: int) -> int:
    """How many entries an answer may have: the query value `limit`."""
    value = query.get("limit", str(default))
    if not value.isascii() or not value.isdecimal() or not 1 <= int(value[:4]) <= most:
        raise wrong("limit", value, f"from 1 to {most}")
    return int(value)


def optional_id(body: Body, name: str) -> str | None:
    """An id that follows the rule for ids, or None."""
    value = optional(body, name, str)
    return None if value is None else check_id(value, name)


def only(body: Body, names: tuple[str, ...]) -> None:
    """Refuse a field that this request does not have: a misspelt field would be ignored."""
    for name in body:
        if name not in names:
            near = get_close_matches(name, names, 1)
            advice = f"Did you mean `{near[0]}`?" if near else f"Known: {', '.join(names)}."
            raise CallerError(f"Unknown field `{name[:80]}`. {advice}", param=name[:80])


def response_input(body: Body) -> str | list[Body]:
    """The `input` of a Responses request: a text, or a list of items."""
    value = body.get("input")
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong("input", value, "a string or a list of items")
    if not value:
        raise CallerError("`input` is an empty list; send at least one item.", param="input")
    for index, item in enumerate(value):
        _check_item(item, f"input[{index}]")
    return value


def renamed_options(body: Body, names: Mapping[str, str]) -> Body:
    """`response_options`, for an API with other names: an error names the client's own field."""
    try:
        return response_options(body)
    except CallerError as error:
        field = error.param or ""
        own = names.get(field, field)
        raise CallerError(str(error).replace(f"`{field}`", f"`{own}`"), param=own) from None


def response_options(body: Body) -> Body:
    """The options of a Responses request: what the response repeats, and who has its calls."""
    for name, advice in _ELSEWHERE.items():
        if body.get(name) is not None:
            raise CallerError(f"`{name}` is not supported; {advice}.", param=name)
    whole_numbers = [name for name, kinds in openai_responses.ECHOED.items() if kinds == (int,)]
    body = {**body, **{name: whole(body.get(name)) for name in whole_numbers}}
    kept = openai_responses.echoed(body)
    for name, kinds in openai_responses.ECHOED.items():
        if body.get(name) is not None and name not in kept:
            words = "a number" if float in kinds else " or ".join(_NAMES[kind] for kind in kinds)
            raise wrong(name, body[name], words)
    _check_options(kept)
    include = optional(body, "include", list)
    if include is not None and not all(isinstance(name, str) for name in include):
        odd = next(number for number, name in enumerate(include) if not isinstance(name, str))
        raise wrong(f"include[{odd}]", include[odd], "a string")
    return {**kept, **LEAVES_CALLS, **({"include": include} if include else {})}


def _check_options(options: Body) -> None:
    """Refuse values that no model takes; an agent may still ignore the others."""
    for name, least, most in (("temperature", 0, 2), ("top_p", 0, 1)):
        if not least <= options.get(name, least) <= most:
            raise wrong(name, options[name], f"from {least} to {most}")
    for name in ("max_output_tokens", "max_tool_calls"):
        if options.get(name, 1) < 1:
            raise wrong(name, options[name], "at least 1")
    reasoning = options.get("reasoning", {})
    for name, words in (("effort", get_args(Effort)), ("summary", get_args(Summary))):
        if reasoning.get(name) not in (None, *words):
            raise wrong(f"reasoning.{name}", reasoning[name], f"{', '.join(words)} or null")
    form = options.get("text", {}).get("format")
    if form is not None and not is_text_format(form):
        kinds = "of type text, json_object, or json_schema with a `schema`"
        raise wrong("text.format", form, kinds)
    if form is not None and form["type"] == "json_schema":
        try:
            Checker(form["schema"], foreign=True)
        except CallerError as error:
            raise CallerError(f"`text.format`: {error}", param="text.format") from error
    if options.get("truncation", "auto") not in ("auto", "disabled"):
        raise wrong("truncation", options["truncation"], "auto or disabled")
    for index, tool in enumerate(options.get("tools", ())):
        _check_object(tool, f"tools[{index}]")
        name = tool.get("name")
        is_name = isinstance(name, str) and re.fullmatch(TOOL_NAME, name)
        if tool.get("type") == "function" and not is_name:
            kind = "of up to 128 characters a to z, A to Z, 0 to 9, _ and -"
            raise wrong(f"tools[{index}].name", name, kind)
    choice = options.get("tool_choice")
    # Other objects choose a tool of the provider: an agent ignores them.
    is_named = not isinstance(choice, dict) or choice.get("type") in ("function", "allowed_tools")
    if choice is not None and is_named and not is_tool_choice(choice):
        kinds = 'auto, none, required or {"type": "function", "name": …}'
        raise wrong("tool_choice", choice, kinds)


def response_metadata(body: Body) -> dict[str, str] | None:
    """The `metadata` of a Responses request: up to 16 short strings, by name."""
    found = optional(body, "metadata", dict)
    if found is None:
        return None
    fits = len(found) <= _METADATA_PAIRS and all(
        len(name) <= _METADATA_KEY and isinstance(value, str) and len(value) <= _METADATA_VALUE
        for name, value in found.items()
    )
    if not fits:
        raise CallerError(
            f"`metadata` is too large, or has other values than strings; send up to "
            f"{_METADATA_PAIRS} strings of {_METADATA_VALUE} characters, with names of up to "
            f"{_METADATA_KEY} characters.",
            param="metadata",
        )
    return found


def chat_messages(body: Body) -> list[Body]:
    """The messages that `useChat` sends: all of the chat, or as `message` only the last message."""
    if body.get("messages") is None and body.get("message") is not None:
        body = {"messages": [body["message"]]}
    found = _messages(body, _CHAT_ROLES)
    for param, message in found.items():
        _check_parts(message, "parts", param)
        if message.get("parts") is None:
            _check_content(message, param, "send the message's `parts`")
    return list(found.values())


def checked_messages(body: Body, roles: tuple[str, ...], known: Collection[str] = ()) -> list[Body]:
    """The `messages` of a request, with its whole conversation or all after the `known` calls."""
    found = _messages(body, roles)
    called = set(known)
    for param, message in found.items():
        if message.get("content") is not None or message["role"] != "assistant":
            _check_content(message, param, "send a string or a list of content parts")
        _check_results(message, param, called)
    return list(found.values())


def completion_messages(body: Body) -> list[Body]:
    """The `messages` of a chat completion."""
    messages = checked_messages(body, (*_ROLES, "tool"))
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        if message["role"] == "tool":
            optional(message, "tool_call_id", str, place)
        else:
            calls: list[Any] = optional(message, "tool_calls", list, place) or []
            for number, call in enumerate(calls):
                _check_object(call, f"{place}.tool_calls[{number}]")
    return messages


def _check_results(message: Body, param: str, called: set[str]) -> None:
    """Refuse the result of a call that no message before it makes."""
    for one in read_input([message]):
        if isinstance(one, InputCall):
            called.add(one.call_id)
        elif isinstance(one, ClientOutput) and one.call_id not in called:
            raise NotFound(
                f"`{param}` has the result of call {one.call_id[:80]}, which no message before it "
                "makes; send the assistant's message with the call, too.",
                param=param,
            )


def calls_in(given: Any) -> set[str]:
    """The calls that an input of any API makes."""
    return {one.call_id for one in read_input(given) if isinstance(one, InputCall)}


def ag_ui_messages(body: Body) -> list[Body]:
    """The messages of AG-UI. A request that answers interrupts may have none."""
    if body.get("messages") == []:
        return []
    found = _messages(body, _AG_UI_ROLES)
    for param, message in found.items():
        if message.get("content") is not None and message["role"] != "activity":
            _check_content(message, param, "send a string or a list of content parts")
    return list(found.values())


def _messages(body: Body, roles: tuple[str, ...]) -> dict[str, Body]:
    """The `messages` of a request, by their place in it."""
    value = body.get("messages")
    if not isinstance(value, list):
        raise wrong("messages", value, "a list of messages")
    if not value:
        raise CallerError("`messages` is empty; send at least one message.", param="messages")
    found = {f"messages[{index}]": message for index, message in enumerate(value)}
    for param, message in found.items():
        _check_object(message, param)
        _check_role(message, param, roles)
    return found


def request_tools(body: Body) -> list[Body]:
    """The `tools` of a request: a list of objects."""
    found: list[Any] = optional(body, "tools", list) or []
    for index, item in enumerate(found):
        _check_object(item, f"tools[{index}]")
    return found


def _check_item(item: Any, param: str) -> None:
    """Check a message, an item or a reference (a bare `id`) of a Responses request."""
    _check_object(item, param)
    kind = optional(item, "type", str, param)
    if kind is not None and kind not in ITEM_TYPES:
        near = get_close_matches(kind, ITEM_TYPES, 1)
        advice = f"did you mean {near[0]}?" if near else "send an item of OpenAI's Responses API."
        raise CallerError(f"`{param}.type` is {quoted(kind)}; {advice}", param=f"{param}.type")
    if kind not in (None, "message"):
        return
    if kind is None and "role" not in item and isinstance(item.get("id"), str):
        return
    _check_role(item, param, _ROLES)
    _check_content(item, param, "send a string or a list of content parts")


def _check_object(value: Any, param: str) -> None:
    if not isinstance(value, dict):
        raise wrong(param, value, "an object")


def _check_role(message: Body, param: str, roles: tuple[str, ...]) -> None:
    role = message.get("role")
    if role not in roles:
        field = f"{param}.role"
        raise CallerError(f"`{field}` is {quoted(role)}; use {' or '.join(roles)}.", param=field)


def _check_content(message: Body, param: str, advice: str) -> None:
    if message.get("content") is None:
        field = f"{param}.content"
        raise CallerError(f"`{field}` is missing; {advice}.", param=field)
    if not isinstance(message["content"], str):
        _check_parts(message, "content", param)


def _check_parts(message: Body, name: str, param: str) -> None:
    value = message.get(name)
    field = f"{param}.{name}"
    is_list = isinstance(value, list) and all(isinstance(part, dict) for part in value)
    if value is not None and not is_list:
        raise wrong(field, value, "a list of parts, each an object")
    for index, part in enumerate(value or []):
        place = f"{field}[{index}]"
        kind = _string(part, "type", place)
        if kind in TEXT_PARTS:
            _string(part, "text", place)


def _string(part: Body, name: str, place: str) -> str:
    value = part.get(name)
    if not isinstance(value, str):
        raise wrong(f"{place}.{name}", value, "a string")
    return value
