"""Tickets for streams, because `EventSource` cannot send a key.

A page asks for a ticket with its key, and opens the stream with `?ticket=`, once. The answer sets a
cookie for this stream alone, so that `EventSource` can connect again after the ticket has ended.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from tailrace.server.access.auth import Principal

TICKET_SECONDS = 60.0
COOKIE_SECONDS = 3600.0

COOKIE = "tailrace_stream"


class _Ticket(msgspec.Struct, array_like=True):
    kind: str
    principal: Principal
    path: str
    until: float
    number: str


class Tickets:
    """Signs and reads tickets. Processes that share a secret read each other's tickets."""

    def __init__(self, secret: str | None = None) -> None:
        self._secret = secret.encode() if secret else secrets.token_bytes(32)

    def issue(self, principal: Principal, path: str) -> str:
        """A ticket for the stream at this path."""
        until = time.time() + TICKET_SECONDS
        return self._signed(_Ticket("ticket", principal, path, until, secrets.token_hex(8)))

    def cookie(self, principal: Principal, path: str, root: str, *, secure: bool) -> str:
        """The `Set-Cookie` of a stream that was opened with a ticket."""
        value = self._signed(_Ticket("cookie", principal, path, time.time() + COOKIE_SECONDS, ""))
        flags = "HttpOnly; SameSite=Lax" + ("; Secure" if secure else "")
        place = "".join(_cookie_character(byte) for byte in (root + path).encode())
        return f"{COOKIE}={value}; Path={place}; Max-Age={COOKIE_SECONDS:.0f}; {flags}"

    def read(self, text: str, kind: str, path: str) -> Principal | None:
        """The principal of a ticket for this path; None if it is forged, ended or for another."""
        if not self.signed(text):
            return None
        body = text.partition(".")[0]
        found = msgspec.json.decode(urlsafe_b64decode(body + "=="), type=_Ticket)
        right = found.kind == kind and found.path == path and time.time() < found.until
        return found.principal if right else None

    def signed(self, text: str) -> bool:
        """Whether a ticket is signed with the secret of this process."""
        body, _, signature = text.partition(".")
        return hmac.compare_digest(self._sign(body).encode(), signature.encode())

    def _signed(self, ticket: _Ticket) -> str:
        body = urlsafe_b64encode(msgspec.json.encode(ticket)).decode().rstrip("=")
        return f"{body}.{self._sign(body)}"

    def _sign(self, body: str) -> str:
        digest = hmac.digest(self._secret, body.encode("utf-8", "surrogateescape"), hashlib.sha256)
        return urlsafe_b64encode(digest).decode().rstrip("=")


def _cookie_character(byte: int) -> str:
    """A byte of a path as the browser sends it in a URL, without what ends a cookie's field."""
    plain = chr(byte)
    return plain if plain.isascii() and (plain.isalnum() or plain in "/-._~") else f"%{byte:02X}"
