"""The input of a run, in any of the usual shapes.

A string; a list of content parts; a message or a list of messages of OpenAI's two APIs, Anthropic
or the Vercel AI SDK. It may contain outputs of the client's tools and answers to requests of
the provider. It may also contain calls that the server executed (`mcp_call`, `mcp_tool_use` with
its result, or a part of a UI message). Reasoning and the provider's own calls are not read, because
clients do not have them whole. The server replaces references to items by the items. The model
reads any other JSON as JSON text.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import msgspec

from tailrace.core.data_url import data_type
from tailrace.core.items import FilePart, ImageUrl, ImageUrlPart, Refusal, TextPart
from tailrace.core.tool_arguments import are_same
from tailrace.core.values import Json, dict_of, json_text, text_or_none
from tailrace.history.content import (
    DETAILS,
    PDF,
    DetailedImage,
    HistoryPart,
    ProviderPart,
    source_url,
)


class InputMessage(msgspec.Struct, frozen=True):
    """A message; `item_id` if it is an item of ours."""

    role: str
    pieces: list[HistoryPart]
    item_id: str = ""


class InputCall(msgspec.Struct, frozen=True):
    """A call in the input of a client.

    Calls are equal if a model reads the same: many clients parse the JSON of arguments, and write
    it anew when they send it back.
    """

    call_id: str
    name: str
    arguments: str
    kind: str = "function"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InputCall):
            return NotImplemented
        mine, theirs = (self.call_id, self.name, self.kind), (other.call_id, other.name, other.kind)
        compare = operator.eq if self.kind == "custom" else are_same  # free text is no JSON
        return mine == theirs and compare(self.arguments, other.arguments)

    def __ne__(self, other: object) -> bool:  # a struct has one of its own
        return not self == other

    def __hash__(self) -> int:
        return hash((self.call_id, self.name, self.kind))


class ClientOutput(msgspec.Struct, frozen=True):
    """The output of a client's tool."""

    call_id: str
    pieces: list[HistoryPart]
    failed: bool = False
    raw: Json | None = None
    """The output itself, if its type has a form of its own."""


class ApprovalAnswer(msgspec.Struct, frozen=True):
    """The answer to a request of the provider."""

    request_id: str
    approved: bool
    reason: str | None = None


class ItemReference(msgspec.Struct, frozen=True):
    """An `item_reference`: an item that the input does not contain."""


InputItem = InputMessage | InputCall | ClientOutput | ApprovalAnswer | ItemReference

_ROLES = ("user", "assistant", "system", "developer")
_TYPED = tuple(
    f"{tool}_call_output" for tool in ("shell", "local_shell", "apply_patch", "computer")
)
"""Outputs with a form of their own."""
_NOT_READ = (
    "reasoning",
    "thinking",
    "redacted_thinking",
    "mcp_list_tools",
    "mcp_approval_request",
    "server_tool_use",
)
"""Nor the results of Anthropic's own tools, as `web_search_tool_result`."""


def is_aside(value: Any) -> bool:
    """Whether an AG-UI message is not for the model: reasoning, an activity, or a sub-agent's."""
    if not isinstance(value, dict):
        return False
    return value.get("role") in ("reasoning", "activity") or "subagentRunId" in value


def read_input(value: Any) -> Iterator[InputItem]:
    """The contents of an input, in order."""
    if value is None:
        return
    if not isinstance(value, list):
        yield from _read(value, logged=True)
    elif value and all(map(_is_part, value)):
        yield from _split("user", value)
    else:
        for member in value:
            yield from _read(member)


def without_instructions(value: Any) -> Any:
    """An input without the messages that instruct the model: those of the system or developer."""
    if isinstance(value, list):
        return [member for member in value if not _instructs(member)]
    return None if _instructs(value) else value


def _instructs(value: Any) -> bool:
    return isinstance(value, dict) and value.get("role") in ("system", "developer")


def user_text(value: Any) -> str:
    """The text of every message of the user, joined by line breaks."""
    return _text_of(list(read_input(value)))


def last_question(value: Any) -> str:
    """What the user wrote since the answer or call before it, joined by line breaks."""
    since: list[InputItem] = []
    answered = False
    for given in read_input(value):
        if isinstance(given, InputCall) or (
            isinstance(given, InputMessage) and given.role == "assistant"
        ):
            answered = True
        elif isinstance(given, InputMessage) and given.role == "user":
            if answered:
                since = []
            since.append(given)
            answered = False
    return _text_of(since)


def _text_of(entries: list[InputItem]) -> str:
    return "\n".join(
        piece.text
        for given in entries
        if isinstance(given, InputMessage) and given.role == "user"
        for piece in given.pieces
        if isinstance(piece, TextPart)
    )


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str) and _piece(value) != []


def _read(value: Any, *, logged: bool = False) -> Iterator[InputItem]:
    """Read a message or item, alone (`logged`) or of a list.

    The log already has an assistant's UI message that comes alone.
    """
    if not isinstance(value, dict):
        yield InputMessage("user", _pieces(value))
        return
    if not logged and is_aside(value):
        return
    role, kind = value.get("role"), value.get("type")
    is_output = isinstance(kind, str) and kind.endswith(("_output", "tool_result"))
    if role == "tool" or is_output:
        yield from _output(value)
    elif kind == "item_reference":
        yield ItemReference()
    elif kind == "mcp_approval_response":
        yield from _approval(value)
    elif kind in ("function_call", "custom_tool_call", "tool_call"):
        yield from _use(value)
    elif kind == "mcp_call":
        yield from _server_call(value)
    elif isinstance(role, str) and value.keys() & {"content", "parts", "tool_calls", "refusal"}:
        yield from _message(role if role in _ROLES else "user", value, logged=logged)
    elif kind not in _NOT_READ and not str(kind).endswith("_call"):
        yield from _split("user", [value])


def _message(role: str, value: Json, *, logged: bool) -> Iterator[InputItem]:
    parts = value.get("parts")
    if isinstance(parts, list) and role != "assistant":
        yield from _split(role, parts)
        return
    if isinstance(parts, list):
        # The log lacks the outputs of the client's tools. In a list, messages of the assistant come
        # from another source: then the log lacks their text and calls, too.
        if logged:
            given = _split(role, parts)
            yield from (one for one in given if isinstance(one, ClientOutput | ApprovalAnswer))
        else:
            yield from _ui_answer(parts)
        return
    content, ident = value.get("content"), value.get("id")
    ours = ident if role == "assistant" and isinstance(ident, str) else ""
    spoken = content if isinstance(content, list) else [content]
    if value.get("refusal"):  # where chat completions have it
        spoken = [*spoken, {"type": "refusal", "refusal": value["refusal"]}]
    yield from _split(role, spoken, ours)
    for call in _list(value.get("tool_calls")):
        if isinstance(call, dict):
            named = dict_of(call.get("function") or call.get("custom"))
            yield from _use({**named, "call_id": call.get("id"), "type": call.get("type")})


def _split(role: str, content: list[Any], item_id: str = "") -> Iterator[InputItem]:
    """The outputs among the parts of a message, the rest as a message, then the calls."""
    spoken: list[HistoryPart] = []
    uses: list[InputItem] = []
    results = {part.get("tool_use_id"): part for part in content if _is_server_result(part)}
    for part in content:
        kind = _type(part)
        if kind == "tool_result":
            yield from _output(part)
        elif kind == "tool_use":
            uses += _use(part)
        elif kind == "mcp_tool_use":
            if part.get("id") in results:
                if spoken:
                    yield InputMessage(role, spoken)
                    spoken = []
                yield from _use(part)
                yield from _output(results[part["id"]])
        elif isinstance(kind, str) and "toolCallId" in part:
            yield from _client_output(part)
        elif kind not in _NOT_READ and not str(kind).endswith("_tool_result"):
            spoken += _pieces(part)
    if spoken:
        yield InputMessage(role, spoken, item_id)
    yield from uses


def _is_server_result(part: Any) -> bool:
    return _type(part) == "mcp_tool_result" and isinstance(part.get("tool_use_id"), str)


def _type(value: Any) -> Any:
    return dict_of(value).get("type")


def _use(value: Json) -> Iterator[InputCall]:
    call_id, name = value.get("call_id") or value.get("id"), value.get("name")
    if not isinstance(call_id, str) or not isinstance(name, str):
        return
    arguments = value.get("arguments", value.get("input", "{}"))
    if not isinstance(arguments, str):
        arguments = json_text(arguments)
    custom = value.get("type") in ("custom_tool_call", "custom")
    yield InputCall(call_id, name, arguments, "custom" if custom else "function")


def _server_call(value: Json) -> Iterator[InputCall | ClientOutput]:
    """A call and its result in the same item."""
    error, output = value.get("error"), value.get("output")
    if error is not None or output is not None:
        for use in _use(value):
            yield use
            failed = error is not None
            yield ClientOutput(use.call_id, _failure(error) if failed else _pieces(output), failed)


def _failure(error: Any) -> list[HistoryPart]:
    """What the model reads of a failed `mcp_call`: a text, or the words of an object."""
    if isinstance(error, dict):
        error = error.get("content") or error.get("message") or error
    return [piece for part in _list(error) for piece in _pieces(part)]


def _output(value: Json) -> Iterator[ClientOutput]:
    names = ("call_id", "tool_call_id", "tool_use_id")
    call_id = next((value[name] for name in names if value.get(name)), None)
    if call_id is None and value.get("type") == "local_shell_call_output":
        call_id = value.get("id")  # by OpenAI's types
    if isinstance(call_id, str):
        content = value.get("output", value.get("content"))
        pieces = [piece for part in _list(content) for piece in _pieces(part)]
        failed = value.get("is_error") is True or value.get("status") == "failed"
        yield ClientOutput(call_id, pieces, failed, value if value.get("type") in _TYPED else None)


def _approval(value: Json) -> Iterator[ApprovalAnswer]:
    request_id = value.get("approval_request_id")
    if isinstance(request_id, str):
        reason = text_or_none(value.get("reason"))
        yield ApprovalAnswer(request_id, value.get("approve") is True, reason)


def _client_output(part: Json) -> Iterator[ClientOutput | ApprovalAnswer]:
    call_id, state = part["toolCallId"], part.get("state")
    if state == "approval-responded" and isinstance(part.get("approval"), dict):
        answer = part["approval"]
        known = {"approval_request_id": answer.get("id"), "approve": answer.get("approved")}
        yield from _approval({**answer, **known})
    if isinstance(call_id, str) and state in ("output-available", "output-error"):
        failed = state == "output-error"
        yield ClientOutput(call_id, _pieces(part.get("errorText" if failed else "output")), failed)


def _ui_answer(parts: list[Any]) -> Iterator[InputItem]:
    """An assistant's UI message: its words, calls and results, in their order."""
    words: list[Any] = []
    for part in parts:
        if _type(part) in ("text", "file"):
            words.append(part)
        elif _is_ui_call(part):
            yield from _split("assistant", words)
            words = []
            yield from _ui_call(part, parts)
    yield from _split("assistant", words)


def _is_ui_call(part: Any) -> bool:
    is_call = isinstance(part, dict) and isinstance(part.get("toolCallId"), str)
    return is_call and part.get("state") != "input-streaming"


def _ui_call(part: Json, parts: list[Any]) -> Iterator[InputItem]:
    """A call of a UI message, and its result. An input that is a text is a custom tool's."""
    call_id, given = part["toolCallId"], part.get("input", {})
    name = part.get("toolName") or str(part.get("type")).removeprefix("tool-")
    kind = "custom_tool_call" if isinstance(given, str) else "function_call"
    yield from _use({"type": kind, "call_id": call_id, "name": name, "arguments": given})
    if part.get("state") == "output-available":
        yield ClientOutput(call_id, _ui_output(part.get("output"), parts))
    elif part.get("state") == "output-denied":
        yield ClientOutput(call_id, [TextPart(text="A person denied the call.")], failed=True)
    else:
        yield from _client_output(part)


def _ui_output(output: Any, parts: list[Any]) -> list[HistoryPart]:
    """The output of a tool. The format `vercel-ui` has blocks, and names sub-agents by `task`."""
    if not isinstance(output, list) or not all(map(_is_block, output)):
        return _pieces(output)
    pieces: list[HistoryPart] = []
    for block in output:
        if block["type"] == "task":
            pieces += _ui_task(block.get("task_id"), parts)
        else:
            pieces += _pieces(block["data"] if block["type"] == "data" else block)
    return pieces


def _is_block(value: Any) -> bool:
    kind = _type(value)
    return kind == "task" or (kind == "data" and "data" in value) or _is_part(value)


def _ui_task(task_id: Any, parts: list[Any]) -> list[HistoryPart]:
    """The answer of a sub-agent: its last message."""
    shown = [dict_of(part.get("data")) for part in parts if _type(part) == "data-task-item"]
    of_task = [item for item in shown if item.get("task_id") == task_id]
    answers = [item.get("block_list") for item in of_task if item.get("type") == "message"]
    return [piece for block in _list(answers[-1] if answers else None) for piece in _pieces(block)]


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _pieces(value: Any) -> list[HistoryPart]:
    """A value as parts; other JSON becomes text."""
    if value is None:
        return []
    if isinstance(value, str):
        return [TextPart(text=value)]
    if isinstance(value, dict):
        return _piece(value) or [TextPart(text=json_text(value))]
    return [TextPart(text=json_text(value))]


def _piece(part: Json) -> list[HistoryPart]:
    """The parts of any API's content part; empty if it is not a part."""
    kind = part.get("type")
    text = part.get("text")
    if kind in ("text", "input_text", "output_text") and isinstance(text, str):
        return [TextPart(text=text)]
    refusal = part.get("refusal")
    if kind == "refusal" and isinstance(refusal, str):
        return [Refusal(refusal=refusal)]
    if kind in ("image", "image_url", "input_image", "computer_screenshot"):
        url = _image_url(part)
        if url is not None:
            return [_image(url, part)]
    if kind in ("file", "input_file", "document"):
        found = _file(part)
        if found is not None:
            return [found]
    if kind in ("document", "search_result") and (passages := _passages(part)):
        words = [(text_or_none(part.get(name)) or "") for name in ("title", "source")]
        about = "\n".join(word for word in words if word.strip())
        return [TextPart(text=about), *passages] if about else passages
    if isinstance(kind, str) and kind.startswith("input_"):
        return [ProviderPart("openai_responses", part)]
    return []


def _passages(part: Json) -> list[HistoryPart]:
    """The content of a search result, or of a document of blocks, in Anthropic's API."""
    content = part.get("content") or dict_of(part.get("source")).get("content")
    return [piece for block in _list(content) for piece in _pieces(block)]


def _image(url: str, part: Json) -> ImageUrlPart:
    inner = part.get("image_url")
    detail = inner.get("detail") if isinstance(inner, dict) else part.get("detail")
    if detail in DETAILS:
        return DetailedImage(image_url=ImageUrl(url=url), detail=detail)
    return ImageUrlPart(image_url=ImageUrl(url=url))


def _image_url(part: Json) -> str | None:
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    if isinstance(url, str):
        return url
    return source_url(part.get("source"))


def _file(part: Json) -> FilePart | None:
    inner = part.get("file")
    given = {**part, **inner} if isinstance(inner, dict) else part
    url = next((u for u in map(given.get, ("url", "file_url", "file_data")) if u), None)
    if url is None:
        url = source_url(given.get("source"))
    if not isinstance(url, str):
        return None
    names = map(given.get, ("name", "filename", "title"))
    mimes = map(given.get, ("mime_type", "mediaType"))
    mime = next((m for m in mimes if isinstance(m, str)), None)
    if mime is None:
        mime = data_type(url)
    if mime is None and (given.get("source") or url.partition("?")[0].lower().endswith(".pdf")):
        mime = PDF  # the only document that Anthropic's API takes by its URL
    return FilePart(
        url=url,
        mime_type=mime or "application/octet-stream",
        name=next((n for n in names if isinstance(n, str)), None),
    )
