"""Checks the `Host` of a request, and the pages that may call from another origin (CORS).

Every web page that a user opens can reach a server on loopback. So the `Host` must be listed
(against DNS rebinding), and so must the pages of other origins: of other sites and other ports.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import wraps

from starlette.types import Message, Send

from tailrace.core.errors import CallerError

_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://" + _AUTHORITY.pattern)

EXPOSED = ("location", "retry-after", "x-should-retry", "x-vercel-ai-ui-message-stream")
"""Headers of our answers that a page of another origin may read."""

PREFLIGHT_SECONDS = 600

_PORTS = {"http": ":80", "https": ":443"}
"""The port of an origin that names none (RFC 6454, section 4)."""


def authority_host(authority: str) -> str | None:
    """The name in `name` or `name:port`, also for `[::1]:port`; None for anything else."""
    found = _AUTHORITY.fullmatch(authority.lower())
    return found[1] if found else None


def is_same_origin(origin: str, authority: str, *, https: bool) -> bool:
    """Whether a page of this origin has the scheme, host and port of a request's own URL.

    `authority` is the request's `Host`. A request that arrives as http may have left the browser as
    https, because a proxy ended TLS. So without `https` pages of both schemes count.
    """
    scheme, _, page = origin.lower().partition("://")
    default = _PORTS.get(scheme)
    if default is None or (https and scheme != "https"):
        return False
    of_page, of_request = (_AUTHORITY.fullmatch(each) for each in (page, authority.lower()))
    if of_page is None or of_request is None:
        return False
    return (of_page[1], of_page[2] or default) == (of_request[1], of_request[2] or default)


def checked_hosts(hosts: Iterable[str]) -> frozenset[str]:
    """The hosts that an application lists, each as `authority_host` reads it from a request."""
    if isinstance(hosts, str):
        raise CallerError("`hosts` is a list: write hosts=['ai.example.com'].")
    found = frozenset(host.lower() for host in hosts)
    for host in found:
        if authority_host(host) != host:
            raise CallerError(
                f"`hosts` has {host!r}: write ai.example.com, without scheme and port. "
                "There is no wildcard; list each host."
            )
    return found


def checked_origins(origins: Iterable[str], setting: str = "origins") -> frozenset[str]:
    """The origins that a setting lists, each as a browser writes it."""
    if isinstance(origins, str):
        raise CallerError(f"`{setting}` is a list: write {setting}=['http://localhost:3000'].")
    found = frozenset(origin.lower() for origin in origins)
    for origin in found:
        if not _ORIGIN.fullmatch(origin):
            raise CallerError(
                f"`{setting}` has {origin!r}: write scheme://host:port, without a path. "
                "There is no wildcard; list each origin."
            )
    return found


def preflight(requested_headers: bytes) -> list[tuple[bytes, bytes]]:
    """The headers that allow a listed origin our methods and the headers it asks for."""
    return [
        (b"access-control-allow-methods", b"GET, HEAD, POST, DELETE"),
        (b"access-control-allow-headers", requested_headers or b"content-type"),
        (b"access-control-max-age", b"%d" % PREFLIGHT_SECONDS),
    ]


def allowing(origin: str, send: Send) -> Send:
    """Add the headers that let a page of a listed origin read the answer."""
    headers = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-credentials", b"true"),
        (b"access-control-expose-headers", ", ".join(EXPOSED).encode()),
        (b"vary", b"origin"),
    ]

    @wraps(send)  # `asgi_transport` looks for the server's own `send`
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        await send(message)

    return send_with_headers
