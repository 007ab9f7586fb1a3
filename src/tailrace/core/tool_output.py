"""Convert a tool's return value to the two lists of the protocol.

A tool may return a string, any JSON value, or the two lists. The result can be stored, sent and
read in any language.
"""

from __future__ import annotations

import math
import re
from typing import Any, get_args

import msgspec

from tailrace.core.codec import MAX_DEPTH, MAX_INTEGER
from tailrace.core.data_url import data_url
from tailrace.core.errors import InvalidToolOutput, InvalidValue
from tailrace.core.items import (
    Annotation,
    Block,
    ContentPart,
    Data,
    File,
    FilePart,
    Image,
    ImageUrl,
    ImageUrlPart,
    RawAnnotation,
    ReferenceToBlock,
    Refusal,
    Text,
    TextPart,
)
from tailrace.core.values import json_text, quoted

# Events and snapshots add a few levels around the value.
_MAX_DEPTH = MAX_DEPTH - 10
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_LISTS = ("message_content", "block_list")
_BLOCKS = get_args(Block)
_BYTES = (bytes, bytearray, memoryview)

UI_HINTS = "ui_hints"
"""The name of the data block that says how a client may show a result."""

ATTACHMENTS = "attachments"

OCTETS = "application/octet-stream"
_SIGNATURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"%PDF-"), "application/pdf"),
)


class ToolOutput(msgspec.Struct, frozen=True):
    """A tool's output: `message_content` for the model, `block_list` for the client.

    An `id` is local to this output: parts and blocks with the same id are one reference. The pool
    replaces it by a number.
    """

    message_content: list[ContentPart]
    block_list: list[Block]


def mime_type_of(data: bytes) -> str:
    """The media type of PNG, JPEG, GIF, WebP and PDF, by their first bytes."""
    head = bytes(data[:16])
    found = (mime_type for signature, mime_type in _SIGNATURES if signature.match(head))
    return next(found, OCTETS)


def image(data: bytes, media_type: str | None = None) -> Image:
    """An image for a tool to return, as a block; its type is read from its first bytes."""
    mime_type = media_type or mime_type_of(data)
    if not mime_type.startswith("image/"):
        raise InvalidToolOutput(
            "The bytes are not PNG, JPEG, GIF or WebP. Pass `media_type`, or use `file`."
        )
    return Image(image_url=ImageUrl(url=data_url(data, mime_type)))


def file(data: bytes | str, name: str | None = None, media_type: str | None = None) -> File:
    """A file for a tool to return, as a block: its bytes, or its text."""
    plain = data.encode("utf-8", "replace") if isinstance(data, str) else bytes(data)
    mime_type = media_type or ("text/plain" if isinstance(data, str) else mime_type_of(plain))
    url = data_url(plain, mime_type)
    return File(url=url, name=name, mime_type=mime_type, size=len(plain))


def tool_output(value: Any) -> ToolOutput:
    """The two lists of a tool's return value.

    An object (dict, struct, dataclass, pydantic model) may have `message_content` and `block_list`.
    An absent list is made from the other; an empty list stays empty. Ids may be integers or
    strings, and 1 and "1" are different: they become 1, 2, … in order of appearance. `image_url`
    blocks become `image` blocks. A string, or the compact JSON of any other value, becomes a text
    in both lists, as one reference. So does a block (`image`, `file`), bytes, or a list with any of
    these.

    An object may also have `ui_hints` (an object) and `attachments` (a list of objects with a
    `bucket`, a `path` and a `url`). They are for the client only.

    Values that JSON, a database or another language cannot hold are replaced. NUL and lone
    surrogates become U+FFFD, NaN null, huge integers strings. A tool may return foreign text, and
    should not fail for it. `InvalidToolOutput` is for mistakes of the tool's author.
    """
    if isinstance(value, ToolOutput):
        return value
    try:
        shown = _blocks_of(value)
        if shown:
            return ToolOutput([_part(block) for block in shown], shown)
        plain = _plain(value)
        if isinstance(plain, str):
            return _one_text(plain)
        if not isinstance(plain, dict):
            return _one_text(_json(plain))
        plain, beside = _beside(plain)
        if plain.keys().isdisjoint(_LISTS):
            text = _one_text(_json(plain))
            return ToolOutput(text.message_content, text.block_list + beside)
        parts, blocks = (_storable(plain.get(name)) for name in _LISTS)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidToolOutput(
            f"The tool returned a value without JSON: {error}. Return a string, JSON, or"
            " message_content and block_list."
        ) from error
    if parts is None and blocks is None:
        raise InvalidToolOutput(
            "The tool's message_content and block_list are both null. Set one of them."
        )
    ids: dict[int | str, int] = {}
    content = None if parts is None else _read_parts(parts, ids)
    # Parts have the shape of blocks, except for tags, so the same list is read again.
    block_list = _read_blocks(parts if blocks is None else blocks, ids)
    if content is None:
        content = [_part(block) for block in block_list]
    return ToolOutput(content, block_list + beside)


def _blocks_of(value: Any) -> list[Block]:
    """The blocks of a block, of bytes, or of a list with any of these; else empty."""
    values = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(item, (*_BLOCKS, *_BYTES)) for item in values):
        return [_block(item) for item in values]
    return []


def _block(value: Any) -> Block:
    """A value as a block of the output's reference."""
    if isinstance(value, _BYTES):
        data = bytes(value)
        value = image(data) if mime_type_of(data).startswith("image/") else file(data)
    plain = _plain(value)
    if isinstance(value, _BLOCKS):
        (made,) = _read_blocks([_storable(plain)], {})
        return made if isinstance(made, Refusal) else msgspec.structs.replace(made, id=1)
    return Text(text=_clean(plain if isinstance(plain, str) else _json(plain)), id=1)


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_foreign)


def _beside(plain: dict[str, Any]) -> tuple[dict[str, Any], list[Block]]:
    """An object without its hints and attachments; those, as blocks for the client.

    Only what has their shape is taken: `attachments` may be a word of the tool's own data.
    """
    hints, files = plain.get(UI_HINTS), plain.get(ATTACHMENTS)
    blocks: list[Block] = []
    taken = set()
    if isinstance(hints, dict):
        taken.add(UI_HINTS)
        blocks.append(Data(name=UI_HINTS, data=_storable(hints)))
    if isinstance(files, list) and files and all(map(_is_attachment, files)):
        taken.add(ATTACHMENTS)
        attached = [{**entry, "type": "file"} for entry in _storable(files)]
        blocks += _read_blocks(attached, {}, ATTACHMENTS)
    return {name: found for name, found in plain.items() if name not in taken}, blocks


def _is_attachment(entry: Any) -> bool:
    return isinstance(entry, dict) and {"bucket", "path", "url"} <= entry.keys()


def plain_json(value: Any) -> Any:
    """A value as plain JSON: dataclasses, structs and pydantic models become objects."""
    try:
        return _plain(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(
            f"{type(value).__name__} is no JSON: {error}. Convert it to dicts, lists and texts."
        ) from error


def _one_text(text: str) -> ToolOutput:
    text = _clean(text)
    return ToolOutput([TextPart(text=text, id=1)], [Text(text=text, id=1)])


def _json(value: Any) -> str:
    try:
        return json_text(value)
    except UnicodeEncodeError:
        return json_text(_storable(value))


def _foreign(value: Any) -> Any:
    # msgspec refuses subclasses, such as markup strings and numpy's floats.
    for kind in (str, float, int):
        if isinstance(value, kind):
            return kind(value)
    # Many tools return pydantic models; pydantic is not a dependency.
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
                f"The tool's JSON has more than {_MAX_DEPTH} levels. Flatten it, or return text."
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
    if "\x00" not in text:
        try:
            text.encode()  # many times as fast as the expression
        except UnicodeEncodeError:
            pass
        else:
            return text
    return _UNSTORABLE.sub("\ufffd", text)


def _read_parts(entries: Any, ids: dict[int | str, int]) -> list[ContentPart]:
    return [
        _convert(entry, ContentPart, "image", "image_url", f"message_content[{index}]", ids)
        for index, entry in enumerate(_list(entries, "message_content"))
    ]


def _read_blocks(entries: Any, ids: dict[int | str, int], where: str = "block_list") -> list[Block]:
    return [
        _without_citations(_convert(entry, Block, "image_url", "image", f"{where}[{index}]", ids))
        for index, entry in enumerate(_list(entries, where))
    ]


def _list(entries: Any, name: str) -> list[Any]:
    if not isinstance(entries, list):
        raise InvalidToolOutput(
            f'{name} must be a list such as [{{"type": "text", "text": "…"}}], '
            f"not {type(entries).__name__}."
        )
    return entries


def _convert(
    entry: Any, kind: Any, alias: str, name: str, where: str, ids: dict[int | str, int]
) -> Any:
    if not isinstance(entry, dict):
        raise InvalidToolOutput(
            f"{where} must be an object with a type, not {type(entry).__name__}."
        )
    entry = dict(entry)
    if entry.get("type") == alias:
        entry["type"] = name
    local = entry.pop("id", None)
    if local is not None:
        if isinstance(local, bool) or not isinstance(local, int | str):
            raise InvalidToolOutput(
                f"{where}: the id is {quoted(local)}; it must be an integer or a string."
            )
        entry["id"] = ids.setdefault(local, len(ids) + 1)
    try:
        return msgspec.convert(entry, kind)
    except msgspec.ValidationError as error:
        raise InvalidToolOutput(f"{where}: {error}. Correct it.") from error


def _without_citations(block: Block) -> Block:
    if isinstance(block, Text) and block.annotations:
        kept = [note for note in block.annotations if _may_stay(note, len(block.text))]
        return msgspec.structs.replace(block, annotations=kept)
    return block


def _may_stay(annotation: Annotation, length: int) -> bool:
    # Tools do not know the numbers of the pool. A range must be inside the text.
    if isinstance(annotation, ReferenceToBlock):
        return False
    if isinstance(annotation, RawAnnotation):
        return True
    start, end = annotation.start_index, annotation.end_index
    return start is None or end is None or 0 <= start < end <= length


def _part(block: Block) -> ContentPart:
    """A block as a part for the model."""
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
