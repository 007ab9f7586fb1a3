"""`data:` URLs (RFC 2397), which hold their bytes."""

from __future__ import annotations

from base64 import b64encode
from urllib.parse import quote, unquote_to_bytes


def data_url(data: bytes, mime_type: str) -> str:
    """The URL of bytes."""
    return base64_url(b64encode(data).decode(), mime_type)


def base64_url(encoded: str, mime_type: str) -> str:
    """The URL of bytes that are base64 already."""
    return f"data:{mime_type};base64,{encoded}"


def text_url(text: str, mime_type: str) -> str:
    """The URL of a text, readable."""
    return f"data:{mime_type},{quote(text)}"


def is_data_url(url: str) -> bool:
    """Whether a URL holds its bytes."""
    return url.startswith("data:")


def data_type(url: str) -> str | None:
    """The media type of a `data:` URL, "" if it has none; None for other URLs."""
    if not is_data_url(url):
        return None
    return url[len("data:") : 200].partition(",")[0].partition(";")[0]


def read_data_url(url: str) -> tuple[str, str] | None:
    """The media type and the base64 of a `data:` URL; None for other URLs."""
    head, comma, body = url.partition(",")
    if not comma or not is_data_url(head):
        return None
    mime, *rest = head.removeprefix("data:").split(";")
    if "base64" not in rest:
        body = b64encode(unquote_to_bytes(body)).decode()
    return mime or "text/plain", body
