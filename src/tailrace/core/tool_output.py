"""What a tool returned, in the protocol's shape, or a clear word why it has none.

Tools are other people's code. They may return a string, any JSON value, or the two lists of the
protocol; whatever comes out of here can be logged, sent and read in any language.
"""

from __future__ import annotations

import math
import re
from typing import Any, Literal

import msgspec

from tailrace.core.codec import MAX_DEPTH, MAX_INTEGER
from tailrace.core.errors import InvalidToolOutput
from tailrace.core.items import (
    Annotation,
    Block,
    ContentPart,
    Data,
    File,
    FilePart,
    Image,
    ImageUrlPart,
    RawAnnotation,
    ReferenceToBlock,
    Text,
    TextPart,
)

# An event and a snapshot put a few levels of their own around what a tool returned.
_MAX_DEPTH = MAX_DEPTH - 10
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_LISTS = ("message_content", "block_list")


class ToolOutput(msgspec.Struct, frozen=True):
    """What a tool has for the model and what it has for the client.

    An `id` is the tool's own, good within this output only: parts and blocks that share one are one
    reference. The pool replaces it by a number.
    """

    message_content: list[ContentPart]
    block_list: list[Block]


def tool_output(value: Any) -> ToolOutput:
    """The two lists of what a tool returned.

    An object (dict, struct, dataclass, pydantic model) with `message_content` or `block_list` gives
    them. Where one is absent it is made from the other, because a tool that says something once
    means it for both sides; an empty list is not absent, and means "nothing for this side". Ids may
    be any integers or strings, and 1 and "1" are two: they come out as 1, 2, … in order of
    appearance. `image_url` blocks become `image` blocks. A string, or any other JSON value as its
    compact JSON, is one text in both lists and one reference.

    What JSON, a database or another language can't hold is replaced: NUL and lone surrogates by
    U+FFFD, NaN by null, huge integers by strings. A tool may read what strangers wrote, and should
    not fail for it. `InvalidToolOutput` is for what the tool's author has to mend.
    """
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_foreign)
        if isinstance(plain, str):
            return _one_text(plain)
        if not isinstance(plain, dict) or plain.keys().isdisjoint(_LISTS):
            return _one_text(_json(plain))
        parts, blocks = (_storable(plain.get(name)) for name in _LISTS)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidToolOutput(
            f"A tool returns a string, JSON, or message_content and block_list: {error}"
        ) from error
    if parts is None and blocks is None:
        raise InvalidToolOutput("message_content and block_list are both null; give one of them.")
    ids: dict[int | str, int] = {}
    content = None if parts is None else _read_parts(parts, ids)
    # Parts are written as blocks are, tags aside, so the given list is simply read again.
    block_list = _read_blocks(parts if blocks is None else blocks, ids)
    if content is None:
        content = [_part(block) for block in block_list]
    return ToolOutput(content, block_list)


def _one_text(text: str) -> ToolOutput:
    text = _clean(text)
    return ToolOutput([TextPart(text=text, id=1)], [Text(text=text, id=1)])


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(_storable(value)).decode()


def _foreign(value: Any) -> Any:
    # msgspec takes no subclass for the thing itself; markup strings and numpy's floats are such.
    for kind in (str, float, int):
        if isinstance(value, kind):
            return kind(value)
    # pydantic is not ours to import, and its models are what many tools return.
    dump = getattr(value, "model_dump", None)
    if not callable(dump):
        raise TypeError(f"{type(value).__name__} has no JSON")
    return dump(mode="json")


def _storable(value: Any, depth: int = 1) -> Any:
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, dict | list):
        if depth > _MAX_DEPTH:
            raise InvalidToolOutput(
                f"JSON nested more than {_MAX_DEPTH} deep; flatten it or return it as text."
            )
        if isinstance(value, list):
            return [_storable(item, depth + 1) for item in value]
        return {_clean(key): _storable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
        return str(value)
    return value


def _clean(text: str) -> str:
    if text.isascii() and "\x00" not in text:
        return text
    return _UNSTORABLE.sub("\ufffd", text)


def _read_parts(entries: Any, ids: dict[int | str, int]) -> list[ContentPart]:
    return [
        _convert(entry, ContentPart, "image", "image_url", f"message_content[{index}]", ids)
        for index, entry in enumerate(_list(entries, "message_content"))
    ]


def _read_blocks(entries: Any, ids: dict[int | str, int]) -> list[Block]:
    return [
        _without_citations(
            _convert(entry, Block, "image_url", "image", f"block_list[{index}]", ids)
        )
        for index, entry in enumerate(_list(entries, "block_list"))
    ]


def _list(entries: Any, name: Literal["message_content", "block_list"]) -> list[Any]:
    if not isinstance(entries, list):
        raise InvalidToolOutput(
            f'{name} is a list such as [{{"type": "text", "text": "…"}}], '
            f"not {type(entries).__name__}."
        )
    return entries


def _convert(
    entry: Any, kind: Any, alias: str, name: str, where: str, ids: dict[int | str, int]
) -> Any:
    if not isinstance(entry, dict):
        raise InvalidToolOutput(f"{where} is an object with a type, not {type(entry).__name__}.")
    entry = dict(entry)
    if entry.get("type") == alias:
        entry["type"] = name
    local = entry.pop("id", None)
    if local is not None:
        if isinstance(local, bool) or not isinstance(local, int | str):
            raise InvalidToolOutput(f"{where}: an id is an integer or a string.")
        entry["id"] = ids.setdefault(local, len(ids) + 1)
    try:
        return msgspec.convert(entry, kind)
    except msgspec.ValidationError as error:
        raise InvalidToolOutput(f"{where}: {error}") from error


def _without_citations(block: Block) -> Block:
    if isinstance(block, Text) and block.annotations:
        kept = [note for note in block.annotations if _may_stay(note, len(block.text))]
        return msgspec.structs.replace(block, annotations=kept)
    return block


def _may_stay(annotation: Annotation, length: int) -> bool:
    # A citation means a number of our pool, which no tool knows; a range must lie in the text.
    if isinstance(annotation, ReferenceToBlock):
        return False
    if isinstance(annotation, RawAnnotation):
        return True
    start, end = annotation.start_index, annotation.end_index
    return start is None or end is None or 0 <= start < end <= length


def _part(block: Block) -> ContentPart:
    """What the model reads of a block."""
    match block:
        case Text():
            return TextPart(text=block.text, id=block.id)
        case Image():
            return ImageUrlPart(image_url=block.image_url, id=block.id)
        case File():
            return FilePart(url=block.url, mime_type=block.mime_type, name=block.name, id=block.id)
        case Data():
            return TextPart(text=_json(block.data), id=block.id)
    return TextPart(text=block.refusal)
