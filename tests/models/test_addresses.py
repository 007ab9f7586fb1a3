"""Where providers are, what opens their doors, and what they say when they do not open."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tailrace.core.items import Usage
from tailrace.ingest.base import Notebook, Outcome
from tailrace.models import open_model
from tailrace.models.transport import InvalidAddress, InvalidKey
from tailrace.ports import Request
from tailrace.runtime.model_calls.call import Patience, call_model
from tests.models.talking import APIS

SECRET = "s3cret-0123456789"
HI = Request(input=[{"role": "user", "content": "Hi"}])


@asynccontextmanager
async def answering(
    answer: bytes, kind: str = "application/json", status: int = 400
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers everything so; where it is, and the heads of the requests."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).lower())
        head = f"HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-type: {kind}\r\n\r\n"
        writer.write(head.encode() + answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", heads
    server.close()


async def outcome_at(api: str, url: str, **options: Any) -> Outcome:
    model = open_model(f"{api}:m", base_url=url, **options)
    outcome = await call_model(model, HI, Notebook(), patience=Patience(retries=0))
    await model.close()
    return outcome


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "url",
    [
        f"localhost:1234/{SECRET}",
        f"ftp://localhost/{SECRET}",
        "http://",
        f"http://[::1/{SECRET}",
        f"http://localhost:99999/{SECRET}",
        f"http://localhost:port/{SECRET}",
        f"http://local\nhost/{SECRET}",
        f"https://localhost/v1?key={SECRET}",
        f"https://localhost/v1#{SECRET}",
    ],
)
def test_an_invalid_address_is_refused_without_being_shown(api: str, url: str) -> None:
    with pytest.raises(InvalidAddress, match="base_url") as caught:
        open_model(f"{api}:m", base_url=url, api_key="k")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("api", APIS)
async def test_a_password_in_an_address_is_sent_and_never_shown(
    api: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    error_body = msgspec.json.encode({"error": {"message": f"Not with {SECRET}, me."}})
    async with answering(error_body) as (place, heads):
        outcome = await outcome_at(api, f"http://me:{SECRET}@{place}/v1")
    assert b"authorization: basic " + b64encode(f"me:{SECRET}".encode()).lower() in heads[0]
    assert outcome.error is not None
    assert outcome.error.message == "HTTP 400: Not with [hidden], me."
    for record in caplog.records:
        assert SECRET not in record.getMessage()


@pytest.mark.parametrize("api", APIS)
async def test_an_address_in_the_environment_counts_as_given(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = api.partition("-")[0].upper()
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(f"{package}_BASE_URL", "http://localhost:1234/v1")
    name = "claude-3-5-haiku-latest" if api == "anthropic" else "gpt-4o"
    model = open_model(f"{api}:{name}")
    assert getattr(model, "host", None) == "localhost:1234"
    assert model.cost(Usage(input_tokens=1000)) is None  # no list has the prices of that server
    await model.close()


@pytest.mark.parametrize("api", APIS)
async def test_a_key_that_was_copied_badly_is_mended_or_refused_without_being_shown(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"{api.partition('-')[0].upper()}_API_KEY"
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    for bad in (f"sk-{SECRET}\u201d", f"sk-{SECRET}\nx"):
        monkeypatch.setenv(variable, bad)
        with pytest.raises(InvalidKey, match=f"The API key in {variable} has invalid") as caught:
            open_model(f"{api}:m")
        assert SECRET not in str(caught.value)
    monkeypatch.setenv(variable, f"sk-{SECRET}\n")
    async with answering(b"{}") as (place, heads):
        await outcome_at(api, f"http://{place}")
    assert f"sk-{SECRET}\r\n".encode() in heads[0]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"message": "No such model."}}, "No such model."),
        ({"error": "No such model."}, "No such model."),
        ({"message": "No such model.", "object": "error"}, "No such model."),
        ({"detail": "No such model."}, "No such model."),
        ({"detail": [{"loc": ["body", "n"], "msg": "too big"}]}, '"msg":"too big"'),
        ([{"error": {"code": 400, "message": "No such model."}}], "No such model."),
        ("No such model.", "No such model."),
        ({"error": {}}, "the provider gave no reason."),
        ([], "the provider gave no reason."),
        ("<html>", "the provider gave no reason."),
    ],
)
@pytest.mark.parametrize("status", [400, 403])
async def test_what_a_provider_says_is_passed_on_in_whatever_shape(
    body: Any, expected: str, status: int
) -> None:
    is_text = isinstance(body, str)
    raw = body.encode() if is_text else msgspec.json.encode(body)
    kind = "text/plain" if is_text else "application/json"
    async with answering(raw, kind, status) as (place, heads):
        outcome = await outcome_at("openai-chat", f"http://{place}/v1", api_key="k")
    assert len(heads) == 1
    assert outcome.error is not None
    assert outcome.error.code == ("request_refused" if status == 400 else "key_refused")
    assert outcome.error.message.startswith(f"HTTP {status}: ")
    assert expected in outcome.error.message


@pytest.mark.parametrize("field", ["code", "type"])
async def test_a_quota_that_is_used_up_is_not_waited_for(field: str) -> None:
    body = msgspec.json.encode({"error": {"message": "Pay.", field: "insufficient_quota"}})
    async with answering(body, status=429) as (place, _):
        outcome = await outcome_at("openai", f"http://{place}/v1", api_key="k")
    assert outcome.error is not None
    assert outcome.error.code == "request_refused"


@pytest.mark.parametrize("api", APIS)
async def test_a_page_instead_of_a_stream_is_called_one(api: str) -> None:
    async with answering(b"<html>Log in</html>", "text/html; charset=utf-8", 200) as (place, _):
        outcome = await outcome_at(api, f"http://{place}", api_key="k")
    assert outcome.status == "cut"
    assert outcome.error is not None
    assert outcome.error.message == "The answer (text/html) has no events. Check base_url."
