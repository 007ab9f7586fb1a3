"""Reads a request's JSON body, with limits on its size and on the time it takes."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from starlette.requests import Request
from starlette.types import Receive

from tailrace.core.codec import check_value
from tailrace.core.errors import CallerError, InvalidValue, StreamTooLarge, TailraceError
from tailrace.core.values import quoted

MAX_BODY_BYTES = 16 * 1024 * 1024

MAX_VALUES = 250_000
"""How many JSON values a body may have. Each takes up to 300 bytes of memory, and microseconds."""

MAX_BODIES_BYTES = 16 * MAX_BODY_BYTES
"""How large all unfinished bodies of the process may be together."""

BODY_SECONDS = 60.0
"""How long a client may take to send its body."""

DROPPED_BYTES = 4 * MAX_BODY_BYTES
"""How much of a body that is too large is read and dropped after the answer."""

DROP_SECONDS = 10.0
"""How long that may take."""

_LARGE_BYTES = 1024 * 1024
"""A body of this size is decoded in a thread, so that other requests go on."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class BodyTimeout(CallerError):
    """The client did not finish its body in time."""

    code = "request_timeout"


class TooManyBodies(TailraceError):
    """Unfinished bodies of other requests use all the memory for bodies."""

    code = "overloaded"


class BodyTooLarge(StreamTooLarge):
    """A request's body is larger than the limit."""


def too_large() -> BodyTooLarge:
    """The error for a body beyond the limit."""
    return BodyTooLarge(f"The body is larger than {MAX_BODY_BYTES} bytes; send less.")


async def drop_rest(receive: Receive) -> None:
    """Read the rest of a body and drop it, up to a limit.

    A connection that is closed while its client sends is reset, and the client loses the answer.
    """
    left = DROPPED_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(DROP_SECONDS):
            while left > 0:
                message = await receive()
                if not message.get("more_body"):  # the end, or the client has left
                    return
                left -= len(message.get("body", b""))


class _Bodies:
    """Counts the bytes of all bodies that are being received."""

    held = 0

    @contextmanager
    def receiving(self) -> Iterator[bytearray]:
        """An empty body to append to. Its bytes count until the block ends."""
        body = bytearray()
        try:
            yield body
        finally:
            self.held -= len(body)

    def add(self, body: bytearray, chunk: bytes) -> None:
        """Append to a body, or raise if a limit is exceeded."""
        if len(body) + len(chunk) > MAX_BODY_BYTES:
            raise too_large()
        if self.held + len(chunk) > MAX_BODIES_BYTES:
            raise TooManyBodies("Too many requests are being received; send it again later.")
        body += chunk
        self.held += len(chunk)


_bodies = _Bodies()


async def read_json(request: Request) -> dict[str, Any]:
    """Read the body as a JSON object, or raise the caller's error."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > MAX_BODY_BYTES:
        raise too_large()  # before any byte of it is read
    with _bodies.receiving() as body:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in request.stream():
                    _bodies.add(body, chunk)
        except TimeoutError:
            raise BodyTimeout(
                f"The body did not arrive within {BODY_SECONDS:.0f} seconds; send it again."
            ) from None
        if len(body) < _LARGE_BYTES:
            return _object(bytes(body))
        return await asyncio.to_thread(_object, bytes(body))


def _object(body: bytes) -> dict[str, Any]:
    value = decode_json(body)
    if not isinstance(value, dict):
        raise CallerError(f"The body is {quoted(value)}; send a JSON object.")
    return value


def decode_json(body: bytes) -> Any:
    """Decode strict JSON: no duplicate keys, no NaN, no lone surrogates."""
    if _marks(body) > MAX_VALUES and _marks(_without_strings(body)) > MAX_VALUES:
        raise StreamTooLarge(f"The body has more than {MAX_VALUES} JSON values; send a text.")
    try:
        text = body.decode()
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CallerError(f"The body is not JSON: {error}. Correct it.") from error
    except ValueError as error:  # Python's limit on digits
        raise CallerError("A number in the body has too many digits; send a string.") from error
    except RecursionError as error:
        raise CallerError("The body is nested too deeply; flatten it.") from error
    if _SURROGATE.search(text):
        _check_surrogates(value)
    _check_values(value)
    return value


def _marks(raw: bytes) -> int:
    """About how many values JSON without strings has."""
    return sum(map(raw.count, (b",", b"[", b"{")))


def _without_strings(body: bytes) -> bytes:
    """JSON without its strings. Splits at most `4 * MAX_VALUES` times; then the caller refuses."""
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    return b"".join(plain.split(b'"', 4 * MAX_VALUES)[::2])


def _check_values(value: Any) -> None:
    """Check what the log can hold; the error names the field of the body."""
    check_value(value if not isinstance(value, dict) else list(value))
    if isinstance(value, dict):
        for name, field in value.items():
            try:
                check_value(field, depth=1)
            except InvalidValue as error:
                raise InvalidValue(f"`{name[:80]}`: {error}", param=name[:80]) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise CallerError(
            f"The body has the key {twice[:100]!a} twice in one object; send it once."
        )
    return found


def _refuse_constant(name: str) -> Any:
    raise CallerError(f"The body is not JSON: {name} is not a JSON value; send null.")


def _check_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise CallerError(
            f"A string in the body holds {half}, half of a surrogate pair; send whole characters."
        ) from error
