"""The parts of messages and results for the model: texts, images, files, refusals.

Providers have different shapes for them, and accept them in different places. A part that has no
place becomes a short text, so that the model knows of it.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeGuard

import msgspec

from tailrace.core.data_url import base64_url, is_data_url, read_data_url, text_url
from tailrace.core.items import ContentPart, Data, File, FilePart, ImageUrlPart, Refusal, TextPart
from tailrace.core.state import ImageNode, Part, TextNode
from tailrace.core.values import Json, json_text, text_or_none


class ProviderPart(msgspec.Struct, frozen=True):
    """A part of a single API, such as audio or a file that the provider stores."""

    api: str
    part: Json


class DetailedImage(ImageUrlPart, frozen=True, kw_only=True):
    """An image of an input, and how closely the model looks at it."""

    detail: str


DETAILS = ("low", "high", "original")
"""OpenAI's words for it, besides `auto`. Chat completions do not have the last."""


def detail_of(piece: HistoryPart) -> str:
    """How closely the model looks at an image."""
    return piece.detail if isinstance(piece, DetailedImage) else "auto"


HistoryPart: TypeAlias = ContentPart | Refusal | ProviderPart

Load = Callable[[str], str | None]
"""From the URL of an image or file to a URL that the provider can load, or None."""


def reachable(url: str) -> str | None:
    """The URL if it is inline or on the web; None for our own blobs."""
    return url if url.startswith(("data:", "https://", "http://")) else None


PDF = "application/pdf"
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The image types that every provider accepts."""


_TEXTS = ("text/", "application/json", "application/xml", "application/yaml")


def picture(url: str) -> str | None:
    """The URL of an image in the form that providers accept, or None."""
    found = read_data_url(url)
    if found is None:
        return url if url.startswith(("https://", "http://")) else None
    mime = found[0].lower().replace("image/jpg", "image/jpeg")
    return base64_url(found[1], mime) if mime in PICTURES and found[1] else None


def is_image(piece: HistoryPart) -> TypeGuard[FilePart]:
    """Whether a file is an image, as some clients send theirs."""
    return isinstance(piece, FilePart) and piece.mime_type.startswith("image/")


def shown(piece: HistoryPart, load: Load) -> str | None:
    """The URL of an image for the provider, or None."""
    if isinstance(piece, ImageUrlPart):
        url = load(piece.image_url.url)
    elif is_image(piece):
        url = load(piece.url)
    else:
        return None
    return picture(url) if url else None


def written(url: str) -> str | None:
    """The text of a text file, where files are not accepted."""
    found = read_data_url(url)
    if found is None or not found[0].startswith(_TEXTS):
        return None
    try:
        return b64decode(found[1], validate=True).decode()
    except ValueError:
        return None


def block_pieces(parts: Mapping[int, Part]) -> list[Any]:
    """The blocks of an item as parts for the model."""
    return [_block_piece(part) for _, part in sorted(parts.items())]


def _block_piece(part: Part) -> ContentPart | Refusal:
    if isinstance(part, TextNode):
        if part.kind == "refusal":
            return Refusal(refusal=part.text)
        return TextPart(text=part.text, id=part.id)
    if isinstance(part, ImageNode):
        return ImageUrlPart(image_url=part.image.image_url, id=part.image.id)
    block = part.block
    if isinstance(block, Data):
        return TextPart(text=json_text(block.data), id=block.id)
    assert isinstance(block, File)
    return FilePart(url=block.url, mime_type=block.mime_type, name=block.name, id=block.id)


def plain(piece: HistoryPart) -> str:
    """A part as text."""
    if isinstance(piece, TextPart):
        return piece.text
    if isinstance(piece, Refusal):
        return piece.refusal
    if isinstance(piece, ImageUrlPart):
        return f"[image{_place(piece.image_url.url)}]"
    if isinstance(piece, FilePart):
        name = f" {piece.name}" if piece.name else ""
        return f"[file{name}{_place(piece.url)}]"
    return f"[{piece.part.get('type', 'part')}]"


def _place(url: str) -> str:
    return "" if not url or is_data_url(url) else f": {url}"


def is_blank(piece: HistoryPart) -> bool:
    """Whether a part is a blank text: providers refuse messages with blank texts only."""
    return isinstance(piece, TextPart | Refusal) and not plain(piece).strip()


def joined(pieces: Iterable[HistoryPart]) -> str:
    """All parts as text, joined by line breaks."""
    return "\n".join(plain(piece) for piece in pieces)


def source_url(source: Any) -> str | None:
    """The URL of an image or a document, from the `source` that Anthropic's API gives it."""
    if not isinstance(source, dict):
        return None
    url, data, mime = source.get("url"), source.get("data"), source.get("media_type")
    if isinstance(data, str) and isinstance(mime, str):
        if source.get("type") == "text":
            return text_url(data, mime)
        return base64_url(data, mime)
    return text_or_none(url)
