"""Puts the prefix of a mount before the paths of blobs.

The log has blobs as `/blobs/<sha256>`: a worker does not know where servers are mounted. A server
that is mounted at `/ai` answers with `/ai/blobs/<sha256>`, in every format.
"""

from __future__ import annotations

import re
from functools import wraps
from typing import Any

import msgspec
from starlette.types import Message, Send

from tailrace.runtime.tasks.blobs import BLOB_PATH

_PATH = BLOB_PATH.encode()
_HASH = 64
_BLOB = re.compile(rb'(?<=[^\\]"|\]\()' + _PATH + rb'(?=[0-9a-f]{%d}["\)])' % _HASH)
"""A blob as a JSON string, or as the target of a Markdown link in a text."""

_HEX = re.compile(rb"[0-9a-f]*")
_TYPES = (b"application/json", b"text/event-stream")


class _Prefixed:
    """Rewrites a body that comes in pieces. A piece may end inside of a path."""

    def __init__(self, prefix: str) -> None:
        self._path = prefix.encode() + _PATH
        self._held = b""
        self._sent = b""  # the last byte: a quote behind a backslash does not begin a string

    def take(self, piece: bytes, *, more: bool) -> bytes:
        """The next bytes to send. The beginning of a path is held back until the next piece."""
        body = _BLOB.sub(self._path, self._sent + self._held + piece)
        sent = len(self._sent)
        end = max(_whole(body) if more else len(body), sent)
        self._held, self._sent = body[end:], body[max(end - 1, 0) : end]
        return body[sent:end]


def _whole(body: bytes) -> int:
    """The length of a body without the beginning of a path at its end."""
    start = max(body.rfind(b'"'), body.rfind(b"(")) + 1
    rest = body[start:]
    if len(rest) > len(_PATH) + _HASH or not start:
        return len(body)
    if not _PATH.startswith(rest[: len(_PATH)]) or not _HEX.fullmatch(rest[len(_PATH) :]):
        return len(body)
    return max(start - 2, 0)


def prefixed(prefix: str, send: Send) -> Send:
    """A `send` that puts the prefix before the blobs of JSON answers, streams and WebSockets."""
    body: _Prefixed | None = None
    waiting: Message | None = None  # a start whose length depends on the body

    @wraps(send)  # `asgi_transport` looks for the server's own `send`
    async def send_prefixed(message: Message) -> None:
        nonlocal body, waiting
        if message["type"] == "http.response.start":
            headers = dict(message.get("headers", ()))
            if headers.get(b"content-type", b"").startswith(_TYPES):
                body = _Prefixed(prefix)
                if b"content-length" in headers:
                    waiting = message
                    return
        elif body is not None and message["type"] == "http.response.body":
            more = message.get("more_body", False)
            made = body.take(message.get("body", b""), more=more)
            if waiting is not None:
                length = None if more or not made else len(made)
                start, waiting = _measured(waiting, length), None
                await send(start)
            message = {**message, "body": made}
        elif message["type"] == "websocket.send" and "text" in message:
            text = _BLOB.sub(prefix.encode() + _PATH, message["text"].encode())
            message = {**message, "text": text.decode()}
        await send(message)

    return send_prefixed


def without_prefix(prefix: str, value: Any) -> Any:
    """A value that a client sends, with the paths of blobs as the log has them."""
    body = msgspec.json.encode(value)
    path = re.escape(prefix.encode() + _PATH)
    if not prefix or not re.search(path, body):
        return value
    blob = rb'(?<=[^\\]"|\]\()' + path + rb'(?=[0-9a-f]{%d}["\)])' % _HASH
    return msgspec.json.decode(re.sub(blob, _PATH, body))


def _measured(start: Message, length: int | None) -> Message:
    """The start with the length of the new body; without it if the body comes in pieces."""
    headers = [header for header in start["headers"] if header[0] != b"content-length"]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    return {**start, "headers": headers}
