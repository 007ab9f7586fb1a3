"""Reads the answers of the official SDKs: raw bytes in, events and typed errors out, no secrets.

The SDKs connect and authenticate. Their stream parsing (an object for each event) and their
retries, which the log would not show, are not used.
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
from tailrace.core.values import json_text

HIDDEN = "[hidden]"
"""Replaces a key that a provider quoted."""

_LONGEST_MESSAGE = 1000
_KEYS = re.compile(r"\b(?:sk|key|gsk|xai)-[A-Za-z0-9_*-]{4,}")
"""A string that looks like a key, whole or masked."""


class MissingSdk(CallerError):
    """The provider's SDK is not installed."""

    code = "missing_sdk"


class MissingKey(CallerError):
    """The provider needs a key, and no key is set."""

    code = "missing_key"


def missing_sdk(package: str) -> MissingSdk:
    """The error for an SDK that is not installed."""
    return MissingSdk(f"The package {package} is missing. Run: pip install 'tailrace[{package}]'")


class InvalidKey(CallerError):
    """A key with invalid characters; the message does not show it."""

    code = "invalid_key"


class InvalidAddress(CallerError):
    """An invalid `base_url`; the message does not show it."""

    code = "invalid_address"


def key_for(variable: str, given: str | None, base_url: str | None) -> str:
    """The given key, or the key in the environment. With a `base_url`, no key is allowed."""
    found = (given or os.environ.get(variable) or "").strip()  # files end with a line feed
    if not found and base_url is None:
        raise MissingKey(f"No API key: set {variable} in the environment, or pass api_key.")
    if not found.isascii() or not found.isprintable():
        where = "" if given else f" in {variable}"
        raise InvalidKey(f"The API key{where} has invalid characters. Copy it again.")
    return found or "none"


class Address(NamedTuple):
    """A provider's URL, without the password that it may have held."""

    url: str | None
    headers: dict[str, str]
    secrets: list[str]


def address(variable: str, base_url: str | None) -> Address:
    """The given URL, or the URL in the environment; None is the provider's own.

    URLs appear in logs. A user and password move to a header. A query, which may hold a key, is
    refused.
    """
    found = base_url or os.environ.get(variable)
    if not found:
        return Address(None, {}, [])
    try:
        parts = urlsplit(found.strip())
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # an invalid port or IPv6 address
        valid = False
    if not valid or not found.strip().isprintable():
        raise InvalidAddress("base_url is not a URL. Write for example http://localhost:11434/v1.")
    if parts.query or parts.fragment:
        raise InvalidAddress("base_url has a query, which logs would show. Remove it.")
    login, _, place = parts.netloc.rpartition("@")
    if not login:
        return Address(found.strip(), {}, [])
    user, _, password = login.partition(":")
    basic = b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    url = urlunsplit(parts._replace(netloc=place))
    headers = {"Authorization": f"Basic {basic}"}
    return Address(url, headers, [password, unquote(password), basic])


def hide(text: str, secrets: Sequence[str]) -> str:
    """The text with each secret replaced."""
    for secret in secrets:
        if len(secret) >= 8 and secret in text:
            text = text.replace(secret, HIDDEN)
    return text


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """The seconds to wait that a provider demands (RFC 9110, 10.2.3: a number or a date)."""
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
    """The events of an answer, chunk by chunk; `sdk` is the module whose errors to catch."""
    import httpx2

    try:
        async with opening() as response:
            kind = response.headers.get("content-type", "").partition(";")[0].strip()
            if kind == "application/json":
                # The server does not stream: the answer is one event.
                yield [hide((await _whole(response)).decode("utf-8", "replace"), secrets)]
                return
            parser = sse.SseParser()
            has_come = False
            async for chunk in response.iter_bytes():
                events = [hide(event.data, secrets) for event in parser.feed(chunk)]
                has_come = has_come or bool(events)
                yield events
            if not has_come and kind != "text/event-stream":
                # Mostly a page of a gateway, of a proxy's login, or at a wrong URL.
                kind = kind or "no content-type"
                raise ProviderCut(f"The answer ({kind}) has no events. Check base_url.")
    except sdk.APIStatusError as error:
        raise _refusal(error, secrets) from None
    except sdk.APITimeoutError:
        raise ConnectTimeout("No connection to the provider in time. Check base_url.") from None
    except (sdk.APIError, httpx2.RequestError) as error:
        kind = type(error.__cause__ or error).__name__
        raise ProviderCut(f"The connection to the provider broke off ({kind}).") from None


async def _whole(response: Any) -> bytes:
    body = bytearray()
    async for chunk in response.iter_bytes():
        body += chunk
        if len(body) > sse.MAX_PARSED_BYTES:
            raise StreamTooLarge(
                f"The answer has more than {sse.MAX_PARSED_BYTES} bytes. Check base_url."
            )
    return bytes(body)


def _refusal(error: Any, secrets: Sequence[str]) -> ProviderError:
    """The typed error for an HTTP status."""
    status, after = int(error.status_code), retry_after(error.response.headers)
    if status == 401:
        # Providers quote the key in these messages.
        return KeyRefused(f"The provider does not accept the key (HTTP {status}); check it.")
    codes, message = _parsed_error(error.body)
    message = _KEYS.sub(HIDDEN, hide(message, secrets))[:_LONGEST_MESSAGE]
    message = f"HTTP {status}: {message}"
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


def _parsed_error(body: Any) -> tuple[list[Any], str]:
    """The codes and the message of an error body. Every provider has its own shape."""
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
            facts = json_text(facts)
    if isinstance(facts, str) and facts.strip() and not facts.lstrip().startswith("<"):
        return codes, facts.strip()
    return codes, "the provider gave no reason."  # an empty body, or HTML
