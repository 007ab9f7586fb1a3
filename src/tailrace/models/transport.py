"""How the official SDKs' answers are read: raw bytes in, typed errors out, never a secret.

The SDKs connect and authenticate. Their own reading of the stream (a model object for each event)
and their own retries, which nobody would see, are left aside.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

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


def key_for(variable: str, given: str | None, base_url: str | None) -> str:
    """The key: given, or from the environment; a server of one's own may want none."""
    found = given or os.environ.get(variable)
    if found:
        return found
    if base_url is not None:
        return "none"
    raise MissingKey(f"There is no key: set {variable} in the environment.")


def hide(text: str, secret: str) -> str:
    """The text without the secret, should somebody have quoted it."""
    return text.replace(secret, HIDDEN) if len(secret) >= 8 and secret in text else text


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
    sdk: Any, opening: Callable[[], AbstractAsyncContextManager[Any]], secret: str
) -> AsyncGenerator[list[str], None]:
    """The events of one answer, chunk by chunk; `sdk` is the module whose errors are raised."""
    import httpx2

    try:
        async with opening() as response:
            if "application/json" in response.headers.get("content-type", ""):
                # A server that does not stream: its answer is one event.
                yield [hide((await _whole(response)).decode("utf-8", "replace"), secret)]
                return
            parser = sse.Parser()
            async for chunk in response.iter_bytes():
                yield [hide(event.data, secret) for event in parser.feed(chunk)]
    except sdk.APIStatusError as error:
        raise _refusal(error, secret) from None
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


def _refusal(error: Any, secret: str) -> ProviderError:
    """An HTTP status as the error that it means."""
    status, after = int(error.status_code), retry_after(error.response.headers)
    if status in (401, 403):
        # Providers quote the key in these: our own words are safer.
        return KeyRefused(f"The provider does not accept the key (HTTP {status}).")
    code, said = _body(error.body)
    message = f"HTTP {status}: {_KEYS.sub(HIDDEN, hide(said, secret))[:_LONGEST_MESSAGE]}"
    if code == "previous_response_not_found":
        return StateLost(message)
    if status == 429 and code != "insufficient_quota":
        return RateLimited(message, retry_after=after)
    if status in (503, 529):
        return Overloaded(message, retry_after=after)
    if status >= 500 or status in (408, 409):
        return ProviderFailed(message, retry_after=after)
    return RequestRefused(message)


def _body(body: Any) -> tuple[Any, str]:
    """The code and the message of an error's body; a page of HTML says nothing."""
    if isinstance(body, dict):
        inner = body.get("error")
        facts = inner if isinstance(inner, dict) else body
        message = facts.get("message")
        if isinstance(message, str):
            return facts.get("code"), message
    return None, "the provider said no more."
