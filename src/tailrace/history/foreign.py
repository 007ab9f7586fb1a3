"""Foreign lists for `sanitize`, as JSON: dicts, objects of an SDK, or a string.

Invalid JSON items are removed later. A value that is not JSON is an error of the caller.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from tailrace.core.errors import CallerError
from tailrace.core.values import Json, json_text
from tailrace.history.content import picture


def as_json(items: Any) -> list[Any]:
    """The entries of a list; a string is a message of the user."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    if isinstance(items, Mapping | bytes) or not isinstance(items, Iterable):
        raise CallerError(
            f"Expected a list of items or messages, not {type(items).__name__}. Pass a list."
        )
    return [_entry(index, item) for index, item in enumerate(items)]


def _entry(index: int, item: Any) -> Any:
    item = _dumped(item)
    if isinstance(item, str):
        return {"role": "user", "content": item}
    if isinstance(item, dict):
        changed = {
            name: [_dumped(member) for member in value]
            for name, value in item.items()
            if isinstance(value, list) and any(hasattr(member, "model_dump") for member in value)
        }
        return {**item, **changed} if changed else item
    if item is None or isinstance(item, int | float | list):
        return item
    raise CallerError(
        f"Item {index} is a value of type {type(item).__name__}. "
        "Pass dicts, strings or objects of an SDK."
    )


def _dumped(value: Any) -> Any:
    """An object of OpenAI's or Anthropic's SDK as the SDK sends it."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        return value
    excluded = getattr(value, "__api_exclude__", None)
    return dump(mode="json", by_alias=True, exclude_unset=True, exclude=excluded)


def as_text(value: Any) -> str:
    """The value as a string."""
    return value if isinstance(value, str) else json_text(value)


def short(ident: str, limit: int) -> str:
    """A short id; equal ids stay equal."""
    if len(ident) <= limit:
        return ident
    return "call_" + hashlib.sha256(ident.encode()).hexdigest()[:32]


# --- parts of messages ---------------------------------------------------------------------------


def responses_parts(role: str, content: list[Any]) -> list[Json]:
    """The parts that the Responses API accepts from a role; parts of other APIs are converted."""
    mended = (_responses_part(role == "assistant", part) for part in content)
    return [part for part in mended if part is not None]


def _responses_part(spoken: bool, part: Any) -> Json | None:
    part = {"type": "text", "text": part} if isinstance(part, str) else part
    if not isinstance(part, dict):
        return None
    kind, text = part.get("type"), part.get("text", part.get("refusal"))
    if isinstance(text, str):
        if spoken and kind == "refusal":
            return part
        wanted = "output_text" if spoken else "input_text"
        return part if kind == wanted else {"type": wanted, "text": text}
    if spoken or not isinstance(kind, str):
        return None
    if kind in ("input_image", "image_url"):
        return part if kind == "input_image" and part.get("file_id") else _image(part)
    if kind == "input_file":
        return part if any(map(part.get, ("file_url", "file_data", "file_id"))) else None
    return part if kind.startswith("input_") and kind != "input_text" else None


def _image(part: Json) -> Json | None:
    given = part.get("image_url")
    given = given.get("url") if isinstance(given, dict) else given
    url = picture(given) if isinstance(given, str) else None
    if url is None:
        return None
    if part["type"] == "input_image" and part["image_url"] == url:
        return part
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def chat_content(role: str, content: Any) -> Any:
    """The content of a chat message that its role may have, or None."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        return as_text(content)
    parts = [part for given in content if (part := _chat_part(role, given)) is not None]
    return (content if parts == content else parts) or None


def _chat_part(role: str, part: Any) -> Json | None:
    part = {"type": "text", "text": part} if isinstance(part, str) else part
    if not isinstance(part, dict):
        return None
    kind, text = part.get("type"), part.get("text")
    if isinstance(text, str):
        return part if kind == "text" else {"type": "text", "text": text}
    if kind == "refusal" and role == "assistant":
        return part if isinstance(part.get("refusal"), str) else None
    if kind in ("image_url", "input_image"):
        found = _image({**part, "type": "image_url"})
        if role != "user" or found is None:
            return None
        given = part.get("image_url")
        same = isinstance(given, dict) and given.get("url") == found["image_url"]
        same = same and kind == "image_url"
        return part if same else {"type": "image_url", "image_url": {"url": found["image_url"]}}
    return part if isinstance(kind, str) and _is_of_chat(role, kind, part.get(kind)) else None


def _is_of_chat(role: str, kind: str, value: Any) -> bool:
    """Whether a part has the form of a chat part, known to any server."""
    if role == "assistant":  # Mistral's reasoning
        return kind == "thinking" and isinstance(value, list)
    is_url = kind.endswith("_url") and isinstance(value, str)
    return role == "user" and bool(value) and (isinstance(value, dict) or is_url)
