"""Items and messages of lists for `sanitize`."""

from __future__ import annotations

from typing import Any

from tailrace.history import sanitize

SHOP = {"server_label": "shop"}


NO_MESSAGE = [{"role": "user", "content": "(no message)"}]


PICTURE = "data:image/png;base64,iVBORw0KGgo="


NO_RESULT = "The call was interrupted: it has no result."


def user(text: str = "Hi") -> dict[str, Any]:
    return {"role": "user", "content": text}


def rs(number: int, sealed: bool = False) -> dict[str, Any]:
    item: dict[str, Any] = {"type": "reasoning", "id": f"rs_{number}", "summary": []}
    return {**item, "encrypted_content": f"sealed {number}"} if sealed else item


def msg(number: int) -> dict[str, Any]:
    content = [{"type": "output_text", "text": f"{number}", "annotations": []}]
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content}


def fc(number: int) -> dict[str, Any]:
    call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
    return {**call, "name": "f", "arguments": "{}"}


def out(number: int) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": "15C"}


def types(items: list[Any]) -> list[str]:
    return [item.get("id") or item.get("call_id") or item["role"] for item in items]


def use(ident: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": "f", "input": {}}


def got(ident: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": ident, "content": "15C"}


def a(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def u(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


HI = {"type": "text", "text": "Hi"}


THOUGHT = {"type": "thinking", "thinking": "Hm", "signature": "S"}


SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}


FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}


def anthropic(items: Any, **more: Any) -> list[Any]:
    return sanitize(items, "anthropic_messages", **more)


def assistant(*calls: str, content: Any = None) -> dict[str, Any]:
    made = [
        {"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for one in calls
    ]
    message = {"role": "assistant", "content": content}
    return {**message, "tool_calls": made} if calls else message


def answer(ident: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ident, "content": "15C"}


def chat(items: Any) -> list[Any]:
    return sanitize(items, "openai_chat")
