"""Who sends a request: API keys in a file, or a function of the application.

A key is 256 random bits, so its SHA-256 is enough: the file holds no key. The file is read again
when it changes, so that a new key works and a revoked key fails without a restart.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import HTTPConnection

from tailrace.core.errors import CallerError, TailraceError
from tailrace.core.ids import check_id, is_id

KEYS_VARIABLE = "TAILRACE_KEYS"
"""The variable with the path of the file of API keys."""

PREFIX = "tr_"

logger = logging.getLogger("tailrace")


class Unauthorized(TailraceError):
    """The request has no valid key."""

    code = "unauthorized"


class AuthFailed(TailraceError):
    """The application's `auth` function failed; the log has the details."""

    code = "internal"


class Principal(msgspec.Struct, frozen=True):
    """The sender of a request. Runs, threads and blobs belong to its `id`.

    `key` is the id of the API key that it used.
    """

    id: str
    key: str = ""


Authenticate = Callable[[Any], Principal | Awaitable[Principal | None] | None]
"""Finds the sender of a request (Starlette's `Request`); None refuses it."""


class ApiKey(msgspec.Struct, kw_only=True):
    """A key in the file: its hash, and the times (Unix seconds) when it begins and ends."""

    id: str
    principal: str
    sha256: str
    created: float
    expires: float | None = None
    revoked: float | None = None

    def is_valid(self, now: float) -> bool:
        """Whether a request may use it now."""
        return self.revoked is None and (self.expires is None or now < self.expires)


class _File(msgspec.Struct):
    keys: list[ApiKey] = []


class ApiKeys:
    """The API keys of a file. A principal may have several, so that a key can be replaced.

    `tailrace keys create` makes the file. Pass its path, or set `TAILRACE_KEYS`.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        path = path or os.environ.get(KEYS_VARIABLE)
        if not path:
            raise CallerError(
                f"`ApiKeys` needs the path of a file: pass it, or set {KEYS_VARIABLE}. "
                "`tailrace keys create NAME --file keys.json` makes the file."
            )
        self.path = Path(path)
        self._seen: tuple[int, int, int] | None = None
        self._keys: dict[str, ApiKey] = {}

    def __call__(self, request: HTTPConnection) -> Principal | None:
        """The principal of the request's key."""
        sent = sent_key(request)
        return self.find(sent) if sent else None

    def find(self, text: str) -> Principal | None:
        """The principal of a key; None for an unknown, expired or revoked key."""
        self.read_again()
        ident = text.removeprefix(PREFIX).partition("_")[0]
        key = self._keys.get(ident)
        right = hmac.compare_digest(_digest(text), key.sha256 if key is not None else "")
        if key is None or not right or not key.is_valid(time.time()):
            return None
        return Principal(key.principal, key.id)

    def is_valid(self, principal: Principal) -> bool:
        """Whether the principal's key can still be used."""
        self.read_again()
        key = self._keys.get(principal.key)
        return key is not None and key.is_valid(time.time())

    def read_again(self) -> None:
        """Read the file if it changed. A file that cannot be read leaves the keys as they are."""
        try:
            found = self.path.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen != self._seen:
                self._seen = seen
                self._keys = {key.id: key for key in read_keys(self.path)}
        except FileNotFoundError:
            if self._keys or self._seen is None:
                logger.error("there is no file of API keys at %s; no key is valid", self.path)
            self._seen, self._keys = (0, 0, 0), {}
        except (OSError, CallerError) as error:
            logger.error("the API keys were not read again: %s", error)


def sent_key(request: HTTPConnection) -> str | None:
    """The key in `Authorization: Bearer` or `x-api-key`."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return request.headers.get("x-api-key", "").strip() or None


# --- the file ------------------------------------------------------------------------------------


def read_keys(path: Path) -> list[ApiKey]:
    """The keys of a file; none if there is no file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File).keys
    except msgspec.MsgspecError as error:
        raise CallerError(
            f"{path} is not a file of API keys: {error}. Make one with `tailrace keys create`."
        ) from error


def create_key(path: Path, principal: str, *, seconds: float | None = None) -> tuple[str, ApiKey]:
    """Add a key for a principal; returns the key itself, which is stored nowhere, and its row."""
    check_id(principal, "principal")
    keys = read_keys(path) if path.exists() else []
    now = time.time()
    ident = secrets.token_hex(4)
    text = f"{PREFIX}{ident}_{secrets.token_urlsafe(32)}"
    key = ApiKey(
        id=ident,
        principal=principal,
        sha256=_digest(text),
        created=now,
        expires=None if seconds is None else now + seconds,
    )
    _write(path, [*keys, key])
    return text, key


def revoke_key(path: Path, ident: str) -> ApiKey:
    """Revoke a key by its id."""
    keys = read_keys(path)
    for key in keys:
        if key.id == ident:
            key.revoked = key.revoked or time.time()
            _write(path, keys)
            return key
    raise CallerError(f"{path} has no key {ident[:80]!r}; run `tailrace keys list` to see the ids.")


def _write(path: Path, keys: list[ApiKey]) -> None:
    """Replace the file at once, readable for its user alone."""
    body = json.dumps({"keys": msgspec.to_builtins(keys)}, indent=2) + "\n"
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def checked(found: object) -> Principal | None:
    """The result of an application's `auth` function, if it is usable."""
    if found is None or (isinstance(found, Principal) and is_id(found.id)):
        return found
    raise AuthFailed(
        f"`auth` returned a {type(found).__name__} that cannot be used; "
        "return a Principal with a valid id, or None."
    )
