"""Providers that fail, hang, break off and talk nonsense: what a caller sees of it."""

from __future__ import annotations

import asyncio
import logging
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import msgspec
import pytest

from tailrace.core import events as ev
from tailrace.core.codec import encode_event
from tailrace.core.run_object import whole_object
from tailrace.ingest.base import Notebook, Outcome
from tailrace.models import open_model
from tailrace.models.scripted.script import (
    Script,
    call,
    cut,
    fail,
    garbage,
    say,
    silence,
    think,
    wait,
)
from tailrace.models.transport import retry_after
from tailrace.ports import Request
from tailrace.runtime.model_calls.call import Patience, call_model
from tailrace.testing.simulator import Simulator
from tests.models.talking import APIS, HASTY, model_at, texts

QUESTION = {
    "openai": [{"role": "user", "content": "Hello?"}],
    "anthropic": [{"role": "user", "content": "Hello?"}],
    "openai-chat": [{"role": "user", "content": "Hello?"}],
}


async def asked(
    api: str, *answers: Script, patience: Patience = HASTY, **options: Any
) -> tuple[Notebook, Outcome, list[Any], Simulator]:
    """One call; the task, how it ended, and its events."""
    async with Simulator(*answers) as provider:
        model = model_at(provider, api, **options)
        book = Notebook()
        request = Request(input=QUESTION[api])
        outcome = await asyncio.wait_for(call_model(model, request, book, patience=patience), 20)
        await model.close()
    return book, outcome, [event for event, _ in book.take()], provider


def notices(events: list[Any]) -> list[str]:
    return [event.data["code"] for event in events if isinstance(event, ev.Notice)]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("code", "status"),
    [("rate_limited", 429), ("overloaded", 529), ("overloaded", 503), ("provider_failed", 500)],
)
async def test_a_passing_fault_is_tried_again_and_shown(api: str, code: str, status: int) -> None:
    failing = [fail(code, status=status, retry_after=0.001)]
    book, outcome, events, provider = await asked(api, failing, failing, [say("Hello")])
    assert outcome.status == "completed"
    assert texts(book) == ["Hello"]
    assert notices(events) == [code, code]
    assert len(provider.requests) == 3
    assert not any(isinstance(event, ev.TaskAttempt) for event in events)


@pytest.mark.parametrize("api", APIS)
async def test_a_fault_that_stays_is_given_up_after_the_last_retry(api: str) -> None:
    _, outcome, events, provider = await asked(api, [fail("rate_limited", retry_after=7)])
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == "rate_limited"
    assert outcome.error.retry_after == 7  # passed on, though this test does not wait
    assert len(provider.requests) == 1 + HASTY.retries
    waits = [event.data["wait_seconds"] for event in events if isinstance(event, ev.Notice)]
    assert waits == [HASTY.longest_wait] * HASTY.retries


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("where", ["event", "json", "character"])
@pytest.mark.parametrize("last", [say("Half of "), call("get_weather", city="Paris"), think("Hm.")])
async def test_an_answer_that_breaks_off_is_made_again_as_a_new_attempt(
    api: str, where: Any, last: Any
) -> None:
    broken: Script = [think("Hm. "), last, cut(where)]
    book, outcome, events, _ = await asked(api, broken, [say("All of it.")])
    assert outcome.status == "completed"
    assert texts(book) == ["All of it."]
    assert notices(events) == ["cut"]
    attempts = [event for event in events if isinstance(event, ev.TaskAttempt)]
    assert [(one.attempt, one.reason) for one in attempts] == [(2, "cut")]
    # What was cut is out of the object and the history; it stays in the log.
    shown = [item.get("status") for item in whole_object(book.state)["output"]]
    assert "incomplete" not in shown
    assert any(node.superseded for node in book.node.items.values())


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_an_answer_with_a_whole_call_is_not_asked_for_twice(api: str) -> None:
    made: Script = [call("get_weather", city="Paris"), wait(0.001), cut("json")]
    book, outcome, events, provider = await asked(api, made, [say("Never asked.")])
    assert outcome.status == "cut"
    assert outcome.error is not None
    assert outcome.error.code == "cut"
    assert notices(events) == []
    assert len(provider.requests) == 1
    statuses = [node.item.status for node in book.node.items.values()]
    assert statuses == ["completed"]


@pytest.mark.parametrize("api", APIS)
async def test_an_error_inside_of_the_stream_has_the_same_name_everywhere(api: str) -> None:
    _, outcome, events, provider = await asked(api, [think("Hm. "), fail("overloaded")])
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == "overloaded"
    assert notices(events) == ["overloaded"] * HASTY.retries
    assert len(provider.requests) == 1 + HASTY.retries


@pytest.mark.parametrize("api", APIS)
async def test_data_that_is_not_an_event_ends_the_attempt_without_output(api: str) -> None:
    book, outcome, events, _ = await asked(api, [garbage()], [say("Hello")])
    assert outcome.status == "completed"
    assert notices(events) == ["malformed_event"]
    assert texts(book) == ["Hello"]


@pytest.mark.parametrize("api", APIS)
async def test_a_provider_that_stops_in_the_middle_is_not_waited_for_for_ever(api: str) -> None:
    patience = Patience(first_event=5, idle=0.05, retries=0)
    book, outcome, _, _ = await asked(api, [think("Hm."), silence()], patience=patience)
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == "idle_timeout"
    assert all(not node.is_open for node in book.node.items.values())


async def test_a_provider_that_accepts_and_says_nothing_is_a_timeout_of_its_own() -> None:
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    silent.listen()
    url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
    model = open_model("openai:x", base_url=url, api_key="sk-anything")
    patience = Patience(first_event=0.05, retries=1, first_wait=0.001)
    book = Notebook()
    outcome = await call_model(model, Request(input=[]), book, patience=patience)
    await model.close()
    silent.close()
    assert outcome.error is not None
    assert outcome.error.code == "first_event_timeout"
    assert notices([event for event, _ in book.take()]) == ["first_event_timeout"]


async def test_a_pause_shorter_than_the_patience_is_not_a_fault() -> None:
    _, outcome, events, _ = await asked("openai", [think("Hm."), wait(0.02), say("Hello")])
    assert outcome.status == "completed"
    assert notices(events) == []


async def test_a_server_that_accepts_no_connection_is_a_timeout_of_its_own() -> None:
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    waiting = []  # they fill the queue of connections that are not accepted
    for _ in range(4):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(full.getsockname())
        waiting.append(one)
    url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
    model = open_model("openai:x", base_url=url, api_key="sk-anything", connect=0.05)
    patience = Patience(retries=0)
    outcome = await call_model(model, Request(input=[]), Notebook(), patience=patience)
    await model.close()
    for one in (*waiting, full):
        one.close()
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == "connect_timeout"


@pytest.mark.parametrize("api", APIS)
async def test_a_server_that_does_not_stream_is_understood(api: str) -> None:
    async with Simulator([think("Hm."), say("Hello")]) as provider:
        model = model_at(provider, api)
        book = Notebook()
        request = Request(input=QUESTION[api], options={"stream": False})
        outcome = await call_model(model, request, book, patience=HASTY)
        await model.close()
    assert outcome.status == "completed"
    assert texts(book) == ["Hello"]


@pytest.mark.parametrize("api", APIS)
async def test_a_call_that_is_cancelled_lets_go_of_its_connection_at_once(api: str) -> None:
    begun, closed = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"\r\n: still there\n\n")
        begun.set()
        await reader.read()  # the body, and then the end
        closed.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    model = open_model(f"{api}:x", base_url=url, api_key="sk-anything")
    asking = asyncio.create_task(call_model(model, Request(input=QUESTION[api]), Notebook()))
    await asyncio.wait_for(begun.wait(), 10)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.wait_for(closed.wait(), 10)
    await model.close()
    server.close()


async def test_a_server_that_is_not_there_is_a_cut_connection() -> None:
    free = socket.socket()
    free.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    model = open_model("openai:x", base_url=url, api_key="sk-anything")
    outcome = await call_model(model, Request(input=[]), Notebook(), patience=HASTY)
    await model.close()
    free.close()
    assert outcome.status == "cut"
    assert outcome.error is not None
    assert "ConnectError" in outcome.error.message


HEAD = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"\x00\x01 nonsense \r\n\r\n", "cut"),
        (HEAD + b"content-encoding: gzip\r\n\r\nno gzip at all", "cut"),
        (HEAD + b"\r\n<html>Bad gateway</html>", "cut"),
        (HEAD + b"\r\ndata: {\n\n", "malformed_event"),
        (b"", "cut"),
    ],
)
async def test_bytes_that_are_not_an_answer_are_a_typed_fault(
    api: str, answer: bytes, code: str
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    model = open_model(f"{api}:x", base_url=url, api_key="sk-anything")
    outcome = await call_model(
        model, Request(input=QUESTION[api]), Notebook(), patience=Patience(retries=0)
    )
    await model.close()
    server.close()
    assert outcome.status == "cut"
    assert outcome.error is not None
    assert outcome.error.code == code


@pytest.mark.parametrize("api", APIS)
async def test_a_refused_request_is_not_tried_again(api: str) -> None:
    async with Simulator([say("Hello")]) as provider:
        model = model_at(provider, api)
        request = Request(input=QUESTION[api], options={"no_such_field": 1})
        outcome = await call_model(model, request, Notebook(), patience=HASTY)
        await model.close()
    assert len(provider.refusals) == 1
    assert outcome.error is not None
    assert outcome.error.code == "request_refused"
    assert provider.refusals[0].message in outcome.error.message


# --- secrets ------------------------------------------------------------------------------------

SECRET = "sk-MARKED-0123456789"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("what", ["refused key", "quoted in an error", "quoted in the stream"])
async def test_a_key_is_in_no_log_no_error_and_no_event(
    api: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answers: list[Script] = [[say("Hello")]]
    if what == "quoted in an error":
        answers = [[fail("provider_failed", f"Not with {SECRET}.")]]
    elif what == "quoted in the stream":
        answers = [[think("Hm."), say(f"Your key is {SECRET}"), fail("odd", f"Key {SECRET}")]]
    key = "sk-another" if what == "refused key" else None
    async with Simulator(*answers, key=key) as provider:
        model = model_at(provider, api, api_key=SECRET)
        book = Notebook()
        outcome = await call_model(model, Request(input=QUESTION[api]), book, patience=HASTY)
        await model.close()
    assert len(provider.requests) >= 1
    assert outcome.status == "failed"
    written = book.take()
    kept = [encode_event(event) for event, _ in written]
    hidden = [msgspec.json.encode(private) for _, private in written]
    visible = msgspec.json.encode([outcome, whole_object(book.state)])
    for record in caplog.records:
        assert SECRET not in record.getMessage()
        assert SECRET not in repr(record.args)
    assert SECRET.encode() not in b"".join([*kept, *hidden, visible])
    if what == "refused key":
        assert outcome.error is not None
        assert outcome.error.code == "key_refused"
        assert len(provider.requests) == 1


# --- Retry-After --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "1" * 400}, None),
    ],
)
def test_retry_after_is_a_number_of_seconds(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_retry_after_may_be_a_date() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    later = format_datetime(now + timedelta(seconds=90), usegmt=True)
    assert retry_after({"retry-after": later}, now) == 90
    assert retry_after({"retry-after": later}, now + timedelta(hours=1)) == 0


def test_waits_grow_and_are_capped() -> None:
    patience = Patience(first_wait=1, longest_wait=10)
    for retry, base in ((1, 1), (2, 2), (3, 4)):
        assert 0.75 * base <= patience.wait(retry, None) <= 1.25 * base
    assert patience.wait(20, None) == 10
    assert patience.wait(1, 3600) == 10
    assert patience.wait(1, 2) == 2
    assert patience.wait(1, 0.0) >= 0.75  # else a clock that is ahead uses up all tries at once
