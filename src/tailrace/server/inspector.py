"""Serves the inspector: the page at `/` and its files, from the package, with a strict CSP."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from tailrace.core.errors import NotFound

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; img-src 'self' data: blob:"
)
"""The policy of the page; the origins of `inspector_images` follow."""
_IMAGES = b'<meta name="images" content="'
"""Where the page reads these origins."""
_TYPES = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}


@cache
def _read(path: str) -> tuple[bytes, str, str] | None:
    """A file of the page: its bytes, its type and its tag."""
    folder, _, name = path.rpartition("/")
    kind = _TYPES.get(name.rpartition(".")[2])
    if kind is None or folder not in ("", "client") or "/" in name or name.startswith("."):
        return None
    found = files("tailrace.inspector").joinpath(*path.split("/"))
    if not found.is_file():
        return None
    body = found.read_bytes()
    return body, f"{kind}; charset=utf-8", _tag(body)


def _tag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:16]}"'


def page_file(request: Request, path: str, images: Sequence[str] = ()) -> Response:
    """A file of the page, which loads images of these origins; 304 where the browser has it."""
    found = _read(path)
    if found is None:
        raise NotFound(f"The inspector has no file {path[:80]!r}. Open it at /.")
    body, kind, tag = found
    if images and path == "index.html":
        names = " ".join(images).encode()
        body = body.replace(_IMAGES, _IMAGES + names)
        tag = _tag(body)
    headers = {
        "cache-control": "no-cache",
        "content-security-policy": " ".join((CSP, *images)),
        "etag": tag,
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers | {"content-type": kind})


def wants_page(request: Request) -> bool:
    """Whether a browser asks: curl and scripts get the list of routes as plain text."""
    return "text/html" in request.headers.get("accept", "")


def plain(lines: list[str]) -> Response:
    """The list of routes."""
    return PlainTextResponse("\n".join(lines) + "\n", headers={"vary": "accept"})
