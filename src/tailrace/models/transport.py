"""How the official SDKs' answers are read: raw bytes in, typed errors out, never a secret.

The SDKs connect and authenticate. Their own reading of the stream (a model object for each event)
and their own retries, which nobody would see, are left aside.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from tailrace.core import sse
from tailrace.core.errors import (
    CallerError,
    ConnectTimeout,
    KeyRefused,
    Overloaded,
    ProviderCut,
    ProviderError,
    ProviderFailed,
    RateLimited,
    RequestRefused,
    StateLost,
    StreamTooLarge,
)

HIDDEN = "[hidden]"
"""What stands where a provider quoted our key."""

_LONGEST_MESSAGE = 1000
_KEYS = re.compile(r"\b(?:sk|key|gsk|xai)-[A-Za-z0-9_*-]{4,}")
"""What looks like a key, whole or masked by a provider that quotes it."""


class MissingSdk(CallerError):
    """A provider whose SDK is not installed."""

    code = "missing_sdk"


class MissingKey(CallerError):
    """A provider that cannot be asked without a key."""

    code = "missing_key"


def missing_sdk(package: str) -> MissingSdk:
    """What to do when an SDK is not there."""
    return MissingSdk(f"The package {package} is missing: pip install 'tailrace[{package}]'.")


class InvalidKey(CallerError):
    """A key that cannot be sent; the message does not show it."""

    code = "invalid_key"


class InvalidAddress(CallerError):
    """A `base_url` that nobody can be asked at; the message does not show it."""

    code = "invalid_address"


def key_for(variable: str, given: str | None, base_url: str | None) -> str:
    """The key: given, or from the environment; a server of one's own may want none."""
    found = (given or os.environ.get(variable) or "").strip()  # files end with a line feed
    if not found and base_url is None:
        raise MissingKey(f"There is no key: set {variable} in the environment.")
    if not found.isascii() or not found.isprintable():
        said = "holds characters that no key has: copy it again"
        raise InvalidKey(f"The key{'' if given else f' in {variable}'} {said}.")
    return found or "none"


class Address(NamedTuple):
    """Where a provider is, without the password that an address may hold."""

    url: str | None
    headers: dict[str, str]
    secrets: list[str]


def address(variable: str, base_url: str | None) -> Address:
    """The address that is given, or in the environment; None is the provider's own.

    Addresses stand in logs, so a name and password go into a header, and a query, which some
    providers take a key in, is refused.
    """
    found = base_url or os.environ.get(variable)
    if not found:
        return Address(None, {}, [])
    try:
        parts = urlsplit(found.strip())
        is_one = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is none, half of an IPv6 address
        is_one = False
    if not is_one or not found.strip().isprintable():
        raise InvalidAddress("base_url is no address: write http://localhost:11434/v1 or the like.")
    if parts.query or parts.fragment:
        raise InvalidAddress("base_url ends with its path: an address with a query is logged.")
    login, _, place = parts.netloc.rpartition("@")
    if not login:
        return Address(found.strip(), {}, [])
    user, _, password = login.partition(":")
    basic = b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    url = urlunsplit(parts._replace(netloc=place))
    headers = {"Authorization": f"Basic {basic}"}
    return Address(url, headers, [password, unquote(password), basic])


def hide(text: str, secrets: Sequence[str]) -> str:
    """The text without the secrets, should somebody have quoted them."""
    for secret in secrets:
        if len(secret) >= 8 and secret in text:
            text = text.replace(secret, HIDDEN)
    return text


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """The seconds that a provider asks us to wait (RFC 9110, 10.2.3: a number or a date)."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
            return float(value) / unit
        try:
            date = parsedate_to_datetime(value)
        except ValueError:
            continue
        if date.tzinfo is None:
            date = date.replace(tzinfo=UTC)
        return max(0.0, (date - (now or datetime.now(UTC))).total_seconds())
    return None


async def streamed(
    sdk: Any, opening: Callable[[], AbstractAsyncContextManager[Any]], secrets: Sequence[str]
) -> AsyncGenerator[list[str], None]:
    """The events of one answer, chunk by chunk; `sdk` is the module whose errors are raised."""
    import httpx2

    try:
        async with opening() as response:
            kind = response.headers.get("content-type", "").partition(";")[0].strip()
            if kind == "application/json":
                # A server that does not stream: its answer is one event.
                yield [hide((await _whole(response)).decode("utf-8", "replace"), secrets)]
                return
            parser = sse.Parser()
            has_come = False
            async for chunk in response.iter_bytes():
                events = [hide(event.data, secrets) for event in parser.feed(chunk)]
                has_come = has_come or bool(events)
                yield events
            if not has_come and kind != "text/event-stream":
                # Mostly a page: of a gateway, of a proxy that wants a login, of a wrong address.
                said = f"The answer ({kind or 'of no type'}) held no event: is base_url right?"
                raise ProviderCut(said)
    except sdk.APIStatusError as error:
        raise _refusal(error, secrets) from None
    except sdk.APITimeoutError:
        raise ConnectTimeout("The provider could not be reached in time.") from None
    except (sdk.APIError, httpx2.RequestError) as error:
        kind = type(error.__cause__ or error).__name__
        raise ProviderCut(f"The connection to the provider broke off ({kind}).") from None


async def _whole(response: Any) -> bytes:
    body = bytearray()
    async for chunk in response.iter_bytes():
        body += chunk
        if len(body) > sse.MAX_EVENT_BYTES:
            raise StreamTooLarge(f"An answer of more than {sse.MAX_EVENT_BYTES} bytes.")
    return bytes(body)


def _refusal(error: Any, secrets: Sequence[str]) -> ProviderError:
    """An HTTP status as the error that it means."""
    status, after = int(error.status_code), retry_after(error.response.headers)
    if status == 401:
        # Providers quote the key in these: our own words are safer.
        return KeyRefused(f"The provider does not accept the key (HTTP {status}).")
    codes, said = _told(error.body)
    message = f"HTTP {status}: {_KEYS.sub(HIDDEN, hide(said, secrets))[:_LONGEST_MESSAGE]}"
    if status == 403:
        return KeyRefused(message)
    if "previous_response_not_found" in codes:
        return StateLost(message)
    if status == 429 and "insufficient_quota" not in codes:
        return RateLimited(message, retry_after=after)
    if status in (503, 529):
        return Overloaded(message, retry_after=after)
    if status >= 500 or status in (408, 409):
        return ProviderFailed(message, retry_after=after)
    return RequestRefused(message)


def _told(body: Any) -> tuple[list[Any], str]:
    """The codes and the message of an error's body, which has a shape of its own everywhere."""
    facts = body[0] if isinstance(body, list) and body else body
    codes: list[Any] = []
    while isinstance(facts, dict):
        codes += [facts.get("code"), facts.get("type")]
        for name in ("error", "message", "detail", "msg"):  # Ollama, FastAPI and others
            if facts.get(name):
                facts = facts[name]
                break
        else:
            facts = None
        if isinstance(facts, list):
            facts = msgspec.json.encode(facts).decode()
    if isinstance(facts, str) and facts.strip() and not facts.lstrip().startswith("<"):
        return codes, facts.strip()
    return codes, "the provider said no more."  # nothing, or a page of HTML
