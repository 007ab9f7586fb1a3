"""`sanitize` for messages of Anthropic and of chat completions."""

from __future__ import annotations

import re
from typing import Any, TypeGuard

from tailrace.core.values import Json, dict_of, dicts_of, list_of
from tailrace.history.anthropic_messages import is_empty, is_paused, settled
from tailrace.history.content import PICTURES
from tailrace.history.entries import NO_RESULT
from tailrace.history.options import CONTINUE, NO_MESSAGE, tool_name
from tailrace.history.sanitize_parts import as_text, chat_content, short

_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")

_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
_OF_MODEL = ("tool_use", *_SERVER_CALLS, "thinking", "redacted_thinking")
_GIVEN = ("text", "image", "document", "search_result", "tool_reference")
"""The block types of a result; an error has only the first."""

# --- Anthropic -----------------------------------------------------------------------------------


def mend_anthropic(messages: list[Any], *, keep_thinking: bool) -> list[Any]:
    """Messages that alternate; the next message answers each call."""
    given = _merged(messages)
    mended = [(role, _blocks(role, blocks, keep_thinking=keep_thinking)) for role, blocks in given]
    mended = _answered(_regrouped(mended))
    sound = all(
        message == _instruction(message) for message in messages if _is_instruction(message)
    )
    if sound and mended == given and all(map(_says_something, messages)):
        return messages  # unchanged
    system = [_instruction(message) for message in messages if _is_instruction(message)]
    return [message for message in system if message["content"]] + [
        {"role": role, "content": blocks} for role, blocks in mended
    ]


def _is_instruction(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "system"


def _instruction(message: Json) -> Json:
    """A system message, with its text only."""
    content = message.get("content")
    if isinstance(content, str):
        return message if content.strip() else {**message, "content": []}
    blocks = _blocks("system", _content(content), keep_thinking=False)
    words = [block for block in blocks if block["type"] == "text"]
    return message if words == content else {**message, "content": words}


def _merged(messages: list[Any]) -> list[tuple[str, list[Any]]]:
    read = [
        (message["role"], _content(message.get("content")))
        for message in messages
        if isinstance(message, dict) and message.get("role") in ("user", "assistant")
    ]
    return _regrouped(read)


def _says_something(message: Any) -> bool:
    roles = ("user", "assistant", "system")
    return (
        isinstance(message, dict)
        and message.get("role") in roles
        and bool(_content(message.get("content")))
    )


def _content(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list_of(content)


def _regrouped(messages: list[tuple[str, list[Any]]]) -> list[tuple[str, list[Any]]]:
    """Merge neighbours of the same role, as the provider does; drop empty messages."""
    found: list[tuple[str, list[Any]]] = []
    for role, blocks in messages:
        if blocks and found and found[-1][0] == role:
            found[-1][1].extend(blocks)
        elif blocks:
            found.append((role, list(blocks)))
    return found


def _blocks(role: str, blocks: list[Any], *, keep_thinking: bool) -> list[Json]:
    return [
        _named(block)
        for block in map(_as_block, blocks)
        if isinstance(block, dict)
        and isinstance(block.get("type"), str)
        and not is_empty(block)
        and _is_sound(role, block, keep_thinking=keep_thinking)
    ]


def _as_block(block: Any) -> Any:
    return {"type": "text", "text": block} if isinstance(block, str) else block


def _named(block: Json) -> Json:
    """A block with the fields that the API accepts."""
    changed: Json = {}
    if block["type"] == "tool_use":
        changed = {"id": _call_id(block["id"]), "name": tool_name(block["name"])}
    elif block["type"] == "tool_result":
        changed = {"tool_use_id": _call_id(block["tool_use_id"]), **_content_of(block)}
    return block if changed.items() <= block.items() else {**block, **changed}


def _call_id(ident: str) -> str:
    """The id in characters that Anthropic accepts."""
    return _NOT_IN_IDS.sub("_", ident)


def _content_of(result: Json) -> Json:
    """The content of a result; an error has only text."""
    content = result.get("content")
    if content is None or isinstance(content, str):
        return {}
    parts = map(_as_block, content if isinstance(content, list) else [as_text(content)])
    words_only = result.get("is_error") is True
    taken = [
        part
        for part in parts
        if isinstance(part, dict)
        and part.get("type") in _GIVEN[: 1 if words_only else None]
        and not is_empty(part)
        and _is_sound("user", part, keep_thinking=False)
    ]
    return {"content": taken}


def _is_sound(role: str, block: Json, *, keep_thinking: bool) -> bool:
    kind = block["type"]
    if role != "assistant" and (kind in _OF_MODEL or _is_server_result(block)):
        return False
    if kind == "text":
        return isinstance(block.get("text"), str)
    if kind == "image":
        return role == "user" and _is_image(block.get("source"))
    if kind == "thinking":
        return keep_thinking and bool(block.get("signature"))
    if kind == "redacted_thinking":
        return keep_thinking and bool(block.get("data"))
    if kind in ("tool_use", *_SERVER_CALLS):
        ident = block.get("id")
        if not isinstance(ident, str) or kind != "tool_use":
            return isinstance(ident, str)
        return bool(ident and block.get("name")) and (
            isinstance(block["name"], str) and isinstance(block.get("input"), dict)
        )
    return not kind.endswith("tool_result") or isinstance(block.get("tool_use_id"), str)


def _is_image(source: Any) -> bool:
    kind = dict_of(source).get("type")
    if kind == "base64":
        return source.get("media_type") in PICTURES and bool(source.get("data"))
    return kind == "file" or (kind == "url" and str(source.get("url")).startswith("https://"))


def _answered(messages: list[tuple[str, list[Json]]]) -> list[tuple[str, list[Json]]]:
    """Each call with its result in the next message, and no result elsewhere."""
    results: dict[str, Json] = {}
    for _, blocks in messages:
        for block in blocks:
            if block["type"] == "tool_result":
                results.setdefault(block["tool_use_id"], block)
    found: list[tuple[str, list[Json]]] = []
    used: set[str] = set()
    for place, (role, blocks) in enumerate(messages):
        if role == "user":
            found.append((role, [block for block in blocks if block["type"] != "tool_result"]))
            continue
        spoken = [block for block in blocks if block["type"] != "tool_result"]
        spoken = [b for b in spoken if b["type"] != "tool_use" or _is_new(b["id"], used)]
        due = {b["id"]: results.get(b["id"]) for b in spoken if b["type"] == "tool_use"}
        behind = messages[place + 1][1] if place + 1 < len(messages) else []
        found.append((role, spoken))
        found.append(("user", _results(due, behind)))
    found = _regrouped(_server_tools(_regrouped(found)))
    found = [(role, settled(blocks) if role == "assistant" else blocks) for role, blocks in found]
    found = _regrouped(found)
    if not found or found[0][0] == "assistant":
        found.insert(0, ("user", [{"type": "text", "text": NO_MESSAGE}]))
    if found[-1][0] == "assistant" and not is_paused(found[-1][1][-1]):
        found.append(("user", [{"type": "text", "text": CONTINUE}]))
    return found


def _results(due: dict[str, Json | None], behind: list[Json]) -> list[Json]:
    """The results of the calls of an answer: those of the next message, then others."""
    here = []
    for block in behind:
        if block["type"] == "tool_result" and due.get(block["tool_use_id"]) is block:
            del due[block["tool_use_id"]]
            here.append(block)
    return here + [block or _interrupted(ident) for ident, block in due.items()]


def _server_tools(messages: list[tuple[str, list[Json]]]) -> list[tuple[str, list[Json]]]:
    """The messages without calls or results of the provider's tools that lack the other half.

    A call may wait for its result while our tools run: over messages with nothing but their
    results. The last block of all may be a call without a result, too: the provider continues it.
    """
    running: dict[str, tuple[int, int]] = {}
    gone: set[tuple[int, int]] = set()
    for place, (role, blocks) in enumerate(messages):
        if role == "assistant":
            gone |= _halves(place, blocks, messages, running)
            waits = any(block["type"] == "tool_use" for block in blocks)
        else:
            waits = all(block["type"] == "tool_result" for block in blocks)
        if not waits:
            last = (len(messages) - 1, len(blocks) - 1)
            gone.update(at for at in running.values() if role == "user" or at != last)
            running.clear()
    codes: set[str] = set()
    return [
        (
            role,
            [
                _by_caller(block, codes)
                for index, block in enumerate(blocks)
                if (place, index) not in gone
            ],
        )
        for place, (role, blocks) in enumerate(messages)
    ]


def _halves(
    place: int,
    blocks: list[Json],
    messages: list[tuple[str, list[Json]]],
    running: dict[str, tuple[int, int]],
) -> set[tuple[int, int]]:
    """The repeated calls of an answer, and its results without a call. Notes the calls that run."""
    gone: set[tuple[int, int]] = set()
    known = set(running)
    for index, block in enumerate(blocks):
        if block["type"] in _SERVER_CALLS:
            if _is_new(block["id"], known):
                running[block["id"]] = place, index
            else:
                gone.add((place, index))
        elif _is_server_result(block):
            at = running.get(block["tool_use_id"])
            call = {} if at is None else messages[at[0]][1][at[1]]
            by_mcp = block["type"] == "mcp_tool_result"
            if call.get("type") == ("mcp_tool_use" if by_mcp else "server_tool_use"):
                del running[block["tool_use_id"]]
            else:
                gone.add((place, index))
    return gone


def _by_caller(block: Json, codes: set[str]) -> Json:
    """The block; without `caller` if the code that made the call does not run. Notes what runs."""
    if block["type"] in _SERVER_CALLS:
        codes.add(block["id"])
    elif _is_server_result(block):
        codes.discard(block["tool_use_id"])
    caller = block.get("caller")
    code = dict_of(caller).get("tool_id")
    if code is None or (isinstance(code, str) and code in codes):
        return block
    return {name: value for name, value in block.items() if name != "caller"}


def _is_server_result(block: Json) -> bool:
    kind: str = block["type"]
    return kind.endswith("_tool_result")


def _is_new(ident: str, used: set[str]) -> bool:
    is_new = ident not in used
    used.add(ident)
    return is_new


def _interrupted(ident: str) -> Json:
    text = [{"type": "text", "text": NO_RESULT}]
    return {"type": "tool_result", "tool_use_id": ident, "content": text, "is_error": True}


# --- chat completions ----------------------------------------------------------------------------

_LONGEST = 40
"""The limit of the length of a call id."""
_CHAT_REASONING = ("reasoning_content", "reasoning", "reasoning_details")
_CHAT_ROLES = ("user", "assistant", "system", "developer", "tool", "function")


def mend_chat(messages: list[Any], *, keep_reasoning: bool = True) -> list[Any]:
    """Messages whose calls are answered at once, and no results elsewhere."""
    given = [_spoken(message, keep_reasoning=keep_reasoning) for message in messages]
    readable = [message for message in given if message is not None]
    answers: dict[str, Json] = {}
    for message in readable:
        if message["role"] == "tool" and message.get("content") is not None:
            answers.setdefault(message["tool_call_id"], message)
    found: list[Any] = []
    used: set[str] = set()
    for place, message in enumerate(readable):
        if message["role"] == "tool":  # it was moved to its call, or has no call
            continue
        calls = [call for call in message.get("tool_calls", ()) if _is_new(call["id"], used)]
        if not calls and message.get("content") is None and not message.get("refusal"):
            continue
        found.append(_with_calls(message, calls))
        due: dict[str, Json | None] = {c["id"]: answers.get(c["id"]) for c in calls}
        behind = place + 1
        while behind < len(readable) and readable[behind]["role"] == "tool":
            answer = readable[behind]
            if due.get(answer["tool_call_id"]) is answer:
                del due[answer["tool_call_id"]]
                found.append(answer)
            behind += 1
        for ident, given_ in due.items():
            closed = {"role": "tool", "tool_call_id": ident, "content": f"Error: {NO_RESULT}"}
            found.append(given_ or closed)
    return found or [{"role": "user", "content": NO_MESSAGE}]


def _spoken(message: Any, *, keep_reasoning: bool) -> Json | None:
    """A message with the content that its role may have, or None."""
    role = dict_of(message).get("role")
    if not isinstance(role, str) or role not in _CHAT_ROLES:
        return None
    gone = () if keep_reasoning else _CHAT_REASONING
    mended: Json = {name: value for name, value in message.items() if name not in gone}
    if "content" in mended:
        content = mended["content"]
        if isinstance(content, list) and not keep_reasoning:
            content = [part for part in content if not _is_thinking(part)]
        mended["content"] = chat_content(role, content)
    if "tool_calls" in mended:
        calls = _calls(mended.pop("tool_calls"))
        mended |= {"tool_calls": calls} if calls and role == "assistant" else {}
    if role == "tool":
        ident = mended.get("tool_call_id")
        if not isinstance(ident, str):
            return None
        mended["tool_call_id"] = short(ident, _LONGEST)
    return message if mended == message else mended


def _is_thinking(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "thinking"


def _calls(given: Any) -> list[Json]:
    return [
        _call(call)
        for call in dicts_of(given)
        if isinstance(call.get("id"), str) and call["id"]
        if _has_name(call.get("function")) or _has_name(call.get("custom"))
    ]


def _has_name(function: Any) -> TypeGuard[Json]:
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _call(call: Json) -> Json:
    function = call.get("function")
    mended = {**call, "id": short(call["id"], _LONGEST)}
    if _has_name(function):
        arguments = function.get("arguments")
        mended["function"] = {
            **function,
            "name": tool_name(function["name"]),
            "arguments": "{}" if arguments is None else as_text(arguments),
        }
    return mended


def _with_calls(message: Json, calls: list[Json]) -> Json:
    if message.get("tool_calls", []) == calls:
        return message
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return {**rest, "tool_calls": calls} if calls else rest
