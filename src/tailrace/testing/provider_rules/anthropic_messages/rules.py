"""Anthropic's rules for the body of `POST /v1/messages`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.core.values import Json, dict_of

if TYPE_CHECKING:
    from tailrace.testing.provider_rules import Issued

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_THINKING = ("thinking", "redacted_thinking")
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


class _Block(NamedTuple):
    """A block and its path in the request."""

    message: int
    place: str
    value: Json

    @property
    def kind(self) -> str:
        return str(self.value.get("type"))


class _Turn(NamedTuple):
    """A turn: neighbouring messages of one role."""

    role: str
    blocks: list[_Block]


def errors(request: Mapping[str, Any], issued: Issued) -> Iterator[str]:
    """All errors, in the order in which Anthropic checks."""
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    for index, message in enumerate(messages):
        yield from _shape(index, message, is_final=index == len(messages) - 1)
    turns = _turns(messages)
    if turns[0].role != "user":
        yield 'messages: first message must use the "user" role'
    yield from _texts(turns)
    yield from _final(turns[-1])
    yield from _calls(turns)
    yield from _server_tools(turns, has_container=bool(request.get("container")))
    yield from _all_thinking(turns, issued)
    # Adaptive thinking does not have this rule (Anthropic's docs, "Validation changes").
    if (request.get("thinking") or {}).get("type") == "enabled":
        yield from _starts_with_thinking(turns)


def _shape(index: int, message: Any, *, is_final: bool) -> Iterator[str]:
    place = f"messages.{index}"
    role = dict_of(message).get("role")
    if role not in ("user", "assistant", "system"):
        yield f'messages: Unexpected role "{role}". Allowed roles are "user" or "assistant"'
        return
    content = message.get("content")
    if not content and not (is_final and role == "assistant"):
        yield (
            f"{place}: all messages must have non-empty content except for the optional final "
            "assistant message"
        )
    if isinstance(content, list):
        for at, block in enumerate(content):
            yield from _block(f"{place}.content.{at}", role, block)
    elif content is not None and not isinstance(content, str):
        yield f"{place}.content: Input should be a valid string"


def _block(place: str, role: str, block: Any) -> Iterator[str]:
    kind = dict_of(block).get("type")
    if not isinstance(kind, str):
        yield f"{place}: Input should be a valid dictionary or object to extract fields from"
    elif kind == "tool_use":
        if role != "assistant":
            yield f"{place}: `tool_use` blocks can only be in `assistant` messages"
        if not _ID.fullmatch(str(block.get("id"))):
            yield f"{place}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        if not _NAME.fullmatch(str(block.get("name"))):
            yield f"{place}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        if not isinstance(block.get("input"), dict):
            yield f"{place}.tool_use.input: Input should be a valid dictionary"
    elif kind == "tool_result":
        if role != "user":
            yield f"{place}: `tool_result` blocks can only be in `user` messages"
        content = block.get("content")
        for at, inner in enumerate(content if isinstance(content, list) else ()):
            yield from _block(f"{place}.tool_result.content.{at}", role, inner)
            if inner.get("type") == "text" and not inner["text"]:
                yield "messages: text content blocks must be non-empty"
            elif inner.get("type") != "text" and block.get("is_error") is True:
                yield f"{place}.tool_result: all content must be type `text` if `is_error` is true"
    elif kind == "image":
        yield from _image(place, block.get("source"))
    elif kind.startswith("input_") or kind in ("output_text", "image_url", "refusal"):
        # OpenAI's words. Anthropic's own blocks are many, and there are more of them every month.
        yield (
            f"{place}: Input tag '{kind}' found using 'type' does not match any of the expected "
            "tags: 'document', 'image', 'redacted_thinking', 'search_result', 'text', 'thinking', "
            "'tool_result', 'tool_use'"
        )
    elif kind == "text" and not isinstance(block.get("text"), str):
        yield f"{place}.text.text: Field required"
    elif kind == "thinking" and not isinstance(block.get("signature"), str):
        yield f"{place}.thinking.signature: Field required"


def _image(place: str, source: Any) -> Iterator[str]:
    kind = dict_of(source).get("type")
    if kind == "base64" and source.get("media_type") not in _IMAGES:
        yield (
            f"{place}.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', "
            "'image/gif' or 'image/webp'"
        )
    elif kind == "base64" and not source.get("data"):
        yield f"{place}.image.source.base64: image cannot be empty"
    elif kind == "url" and not str(source.get("url")).startswith("https://"):
        yield f"{place}.image.source.url.url: Only HTTPS URLs are supported."
    elif kind not in ("base64", "url", "file"):
        yield f"{place}.image.source: Field required"


def _turns(messages: list[Json]) -> list[_Turn]:
    turns: list[_Turn] = []
    for index, message in enumerate(messages):
        content = message.get("content")
        listed = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        blocks = [
            _Block(index, f"messages.{index}.content.{at}", block)
            for at, block in enumerate(listed)
            if isinstance(block, dict)
        ]
        role = message.get("role")
        if role == "system":
            continue
        if turns and turns[-1].role == role:
            turns[-1].blocks.extend(blocks)
        else:
            turns.append(_Turn(str(role), blocks))
    return turns or [_Turn("system", [])]


def _texts(turns: list[_Turn]) -> Iterator[str]:
    for turn in turns:
        for block in turn.blocks:
            if block.kind == "text" and not block.value.get("text"):
                yield "messages: text content blocks must be non-empty"
            elif block.kind == "text" and not str(block.value["text"]).strip():
                yield "messages: text content blocks must contain non-whitespace text"


def _final(turn: _Turn) -> Iterator[str]:
    if turn.role != "assistant" or not turn.blocks:
        return
    last = turn.blocks[-1]
    if last.kind == "text" and last.value["text"] != str(last.value["text"]).rstrip():
        yield "messages: final assistant content cannot end with trailing whitespace"
    if last.kind not in _SERVER_CALLS and not _is_server_result(last):
        yield (
            "This model does not support assistant message prefill. The conversation must end "
            "with a user message."
        )


def _calls(turns: list[_Turn]) -> Iterator[str]:
    seen: set[str] = set()
    waiting: list[_Block] = []
    for turn in [*turns, _Turn("user", [])]:
        if turn.role == "assistant":
            waiting = [block for block in turn.blocks if block.kind == "tool_use"]
            for block in waiting:
                if block.value["id"] in seen:
                    yield "messages: `tool_use` ids must be unique"
                seen.add(block.value["id"])
            continue
        wanted = {block.value["id"] for block in waiting}
        given: set[str] = set()
        is_first = True  # results stand before anything else
        for block in turn.blocks:
            is_first = is_first and block.kind == "tool_result"
            ident = block.value.get("tool_use_id")
            if block.kind != "tool_result":
                continue
            if ident not in wanted:
                yield (
                    f"{block.place}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{ident}. Each `tool_result` block must have a corresponding `tool_use` block "
                    "in the previous message."
                )
            elif ident in given:
                yield (
                    f"{block.place}: each tool_use must have a single result. Found multiple "
                    f"`tool_result` blocks with id: {ident}"
                )
            elif is_first:
                given.add(str(ident))
        missing = [block.value["id"] for block in waiting if block.value["id"] not in given]
        if missing:
            yield (
                f"messages.{waiting[0].message}: `tool_use` ids were found without `tool_result` "
                f"blocks immediately after: {', '.join(missing)}. Each `tool_use` block must have "
                "a corresponding `tool_result` block in the next message."
            )
        waiting = []


def _is_server_result(block: _Block) -> bool:
    return block.kind.endswith("_tool_result")


def _server_tools(turns: list[_Turn], *, has_container: bool) -> Iterator[str]:
    """Each call has its result in its message, or later if it waits for results of the user."""
    waiting: dict[Any, _Block] = {}
    for turn in turns:
        is_answer = turn.role == "assistant"
        if is_answer:
            yield from _server_results(turn, waiting)
        stops = is_answer and any(block.kind == "tool_use" for block in turn.blocks)
        goes_on = not is_answer and all(block.kind == "tool_result" for block in turn.blocks)
        if stops or goes_on or (is_answer and turn is turns[-1]):
            continue
        for ident, block in waiting.items():
            name = block.value.get("name")
            yield (
                f"messages.{block.message}: `{name}` tool use with id `{ident}` was found without "
                f"a corresponding `{name}_tool_result` block"
            )
        waiting = {}
    codes = [block for block in waiting.values() if block.value.get("name") == "code_execution"]
    if codes and turns[-1].role == "user" and not has_container:
        yield (
            "container_id is required when there are pending tool uses generated by code execution "
            "with tools."
        )


def _server_results(turn: _Turn, waiting: dict[Any, _Block]) -> Iterator[str]:
    """Note the calls of an answer as waiting, and take those that have a result off."""
    for block in turn.blocks:
        ident = block.value.get("tool_use_id")
        caller = (block.value.get("caller") or {}).get("tool_id")
        if block.kind in ("tool_use", *_SERVER_CALLS) and caller not in (None, *waiting):
            yield f"{block.place}: `caller.tool_id` {caller} names no code execution that runs"
        if block.kind in _SERVER_CALLS:
            waiting[block.value.get("id")] = block
        elif _is_server_result(block):
            needed = "mcp_tool_use" if block.kind.startswith("mcp") else "server_tool_use"
            call = waiting.pop(ident, None)
            if call is None or call.kind != needed:
                yield (
                    f"{block.place}: unexpected `tool_use_id` found in `{block.kind}` blocks: "
                    f"{ident}. Each `{block.kind}` block must have a corresponding `{needed}` "
                    "block before it."
                )


def _all_thinking(turns: list[_Turn], issued: Issued) -> Iterator[str]:
    answers = [turn for turn in turns if turn.role == "assistant"]
    for turn in answers:
        thoughts = [block for block in turn.blocks if block.kind in _THINKING]
        if not thoughts:
            continue
        for block in thoughts:
            if not _is_genuine(block.value, issued):
                yield f"{block.place}: Invalid `signature` in `{block.kind}` block"
        if turn.blocks[0].kind not in _THINKING:
            yield (
                f"{turn.blocks[0].place}: If an assistant message contains any thinking blocks, "
                "the first block must be `thinking` or `redacted_thinking`. Found "
                f"`{turn.blocks[0].kind}`."
            )
        if turn.blocks[-1].kind in _THINKING:
            yield (
                f"messages.{turn.blocks[-1].message}: The final block in an assistant message "
                f"cannot be `{turn.blocks[-1].kind}`."
            )
        if turn is answers[-1] and not _is_unchanged(thoughts, issued):
            yield (
                f"{thoughts[0].place}: `thinking` or `redacted_thinking` blocks in the latest "
                "assistant message cannot be modified. These blocks must remain as they were in "
                "the original response."
            )


def _seal(block: Json) -> str:
    return str(block.get("signature") if block["type"] == "thinking" else block.get("data"))


def _is_genuine(block: Json, issued: Issued) -> bool:
    known = issued.thinking.get(_seal(block))
    return known is not None and known[0] == block.get("thinking")


def _is_unchanged(thoughts: list[_Block], issued: Issued) -> bool:
    """Whether the thinking of each original message is present and in order.

    The end of a message may be missing: a client that was cut off never received it.
    """
    given: dict[int, list[str]] = {}
    for block in thoughts:
        seal = _seal(block.value)
        if seal in issued.thinking:
            given.setdefault(issued.thinking[seal][1], []).append(seal)
    return all(
        seals == issued.message_thinking[message][: len(seals)] for message, seals in given.items()
    )


def _starts_with_thinking(turns: list[_Turn]) -> Iterator[str]:
    if len(turns) < 2 or turns[-1].role != "user":
        return
    if any(block.kind == "tool_result" for block in turns[-1].blocks):
        first = turns[-2].blocks[0]
        if first.kind not in _THINKING:
            yield (
                f"{first.place}.type: Expected `thinking` or `redacted_thinking`, but found "
                f"`{first.kind}`. When `thinking` is enabled, a final `assistant` message must "
                "start with a thinking block (preceeding the lastmost set of `tool_use` and "
                "`tool_result` blocks). We recommend you include thinking blocks from previous "
                "turns. To avoid this requirement, disable `thinking`. Please consult our "
                "documentation at "
                "https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
            )
