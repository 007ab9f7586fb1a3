"""`/v1/responses` over a WebSocket: who may connect, what a message may be, and how it ends."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette

from tailrace import Principal, ServerLimits, Tailrace, Task
from tailrace.events import TaskInputRequired
from tailrace.server.apis import openai_responses_socket
from tailrace.server.transport import connections
from tailrace.testing.waiting import until

DEADLINE = 120.0
Json = dict[str, Any]


async def hello(task: Task) -> None:
    task.say("Hello")


async def linking(task: Task) -> None:
    task.say(f"[a picture](/blobs/{'a' * 64})")


async def asking(task: Task) -> str:
    return str(await task.ask("Which city?"))


def by_name(request: Any) -> Principal | None:
    name = request.headers.get("authorization", "").removeprefix("Bearer ")
    return Principal(name) if name in KEYS else None


KEYS = {"ann", "bob"}


class Socket:
    """The client's end of a WebSocket, by ASGI messages."""

    def __init__(self) -> None:
        self.to_server: asyncio.Queue[Json] = asyncio.Queue()
        self.from_server: asyncio.Queue[Json] = asyncio.Queue()

    async def message(self) -> Json:
        async with asyncio.timeout(DEADLINE):
            return await self.from_server.get()

    async def event(self) -> Json:
        found: Json = json.loads((await self.message())["text"])
        return found

    async def send(self, **body: Any) -> None:
        request = {"type": "response.create", "model": "hello", "input": "?", **body}
        await self.text(json.dumps(request))

    async def text(self, text: str) -> None:
        await self.to_server.put({"type": "websocket.receive", "text": text})

    async def ask(self, **body: Any) -> Json:
        """The last event of a turn."""
        await self.send(**body)
        while True:
            event = await self.event()
            if event["type"] in ("response.completed", "response.failed", "error"):
                return event


@asynccontextmanager
async def connected(
    app: Any, key: str = "", *, path: str = "/v1/responses", denials: bool = True, **headers: Any
) -> AsyncIterator[Socket]:
    socket = Socket()
    sent = {"host": "localhost", "authorization": f"Bearer {key}", **headers}
    scope = {
        "type": "websocket",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "scheme": "ws",
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        "extensions": {"websocket.http.response": {}} if denials else {},
    }
    await socket.to_server.put({"type": "websocket.connect"})
    task = asyncio.ensure_future(app(scope, socket.to_server.get, socket.from_server.put))
    try:
        yield socket
    finally:
        await socket.to_server.put({"type": "websocket.disconnect", "code": 1000})
        async with asyncio.timeout(DEADLINE):
            await task


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[Tailrace]:
    app = Tailrace({"hello": hello, "asking": asking, "linking": linking}, ":memory:", **options)
    async with app.running():
        yield app


async def accepted(socket: Socket) -> Socket:
    assert (await socket.message())["type"] == "websocket.accept"
    return socket


# --- who may connect -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "options", "status"),
    [
        ("", {}, 401),
        ("eve", {}, 401),
        ("ann", {"host": "evil.example"}, 421),
        ("ann", {"origin": "https://evil.example"}, 403),
        ("ann", {"origin": "http://localhost:9999"}, 403),
        ("ann", {"path": "/v1/models"}, 404),
    ],
)
async def test_a_handshake_is_refused_as_a_request_is(
    key: str, options: dict[str, Any], status: int
) -> None:
    async with serving(auth=by_name) as app:
        async with connected(app, key, **options) as socket:
            answer = await socket.message()
            assert (answer["type"], answer["status"]) == ("websocket.http.response.start", status)
            assert json.loads((await socket.message())["body"])["error"]["code"]
        async with connected(app, key, denials=False, **options) as socket:
            assert await socket.message() == {"type": "websocket.close", "code": 1008}


async def test_another_principals_response_is_unknown() -> None:
    async with serving(auth=by_name) as app:
        async with connected(app, "ann") as ann:
            hers = (await (await accepted(ann)).ask())["response"]["id"]
            assert (await ann.ask(previous_response_id=hers))["type"] == "response.completed"
        async with connected(app, "bob") as bob:
            refused = await (await accepted(bob)).ask(previous_response_id=hers)
            assert refused["error"]["code"] == "previous_response_not_found"
            assert refused["status"] == 404


async def test_the_limits_of_a_principal_count() -> None:
    async with (
        serving(auth=by_name, limits=ServerLimits(runs=1, streams=2)) as app,
        connected(app, "ann") as first,
        connected(app, "ann") as second,
    ):
        await accepted(first)
        assert (await (await accepted(second)).ask())["type"] == "response.completed"
        async with connected(app, "ann") as third:
            assert (await third.message())["status"] == 429
        await first.send(model="asking")
        assert (await first.event())["type"] == "response.created"
        refused = await second.ask()
        assert (refused["status"], refused["error"]["code"]) == (429, "limit_reached")


async def test_each_message_counts_as_a_request() -> None:
    allowed = ServerLimits(requests_per_minute=20)  # a burst of two
    async with serving(auth=by_name, limits=allowed) as app, connected(app, "ann") as socket:
        assert (await (await accepted(socket)).ask())["type"] == "response.completed"
        assert (await socket.ask())["status"] == 429


async def test_a_revoked_key_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(auth=by_name) as app, connected(app, "bob") as socket:
        await accepted(socket)
        monkeypatch.setattr("tests.server.apis.test_responses_socket.KEYS", {"ann"})
        refused = await socket.ask()
        assert (refused["status"], refused["error"]["code"]) == (401, "unauthorized")
        assert app._server is not None
        await app._server.connections._cut_refused()
        assert (await socket.event())["error"]["code"] == "unauthorized"
        assert await socket.message() == {"type": "websocket.close", "code": 1008}


# --- messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "param"),
    [
        ("{", None),
        ("[]", None),
        ('{"type": "session.update"}', "type"),
        ('{"type": "response.create"}', "model"),
        ('{"type": "response.create", "model": "hello"}', "input"),
        ('{"type": "response.create", "background": true}', "background"),
        ('{"type": "response.create", "generate": false}', "generate"),
    ],
)
async def test_a_wrong_message_is_an_error_and_the_connection_goes_on(
    text: str, param: str | None
) -> None:
    async with serving() as app, connected(app) as socket:
        await accepted(socket)
        await socket.text(text)
        event = await socket.event()
        assert (event["type"], event["status"]) == ("error", 400)
        assert event["error"]["param"] == param
        assert (await socket.ask())["type"] == "response.completed"


async def test_a_message_may_be_binary_and_name_a_stream() -> None:
    async with serving() as app, connected(app) as socket:
        await accepted(socket)
        body = {"type": "response.create", "model": "hello", "input": "?", "stream": True}
        await socket.to_server.put(
            {"type": "websocket.receive", "bytes": json.dumps(body).encode()}
        )
        assert (await socket.event())["type"] == "response.created"


async def test_a_bug_of_ours_is_an_error_and_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(_body: Json) -> None:
        raise ZeroDivisionError

    async with serving() as app, connected(app) as socket:
        await accepted(socket)
        with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "tailrace"):
            patch.setattr(openai_responses_socket, "_check", wrong)
            event = await socket.ask()
        assert (event["status"], event["error"]["code"]) == (500, "internal")
        assert "ZeroDivisionError" in caplog.text
        assert (await socket.ask())["type"] == "response.completed"


async def test_an_unstored_response_that_is_too_large_to_be_kept_cannot_be_continued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as app, connected(app) as socket:
        await accepted(socket)
        monkeypatch.setattr(openai_responses_socket, "MAX_BODY_BYTES", 300)
        first = await socket.ask(input="x" * 150, store=False)
        refused = await socket.ask(store=False, previous_response_id=first["response"]["id"])
        assert refused["error"]["code"] == "previous_response_not_found"
        refused = await socket.ask(input="x" * 400)
        assert (refused["status"], refused["error"]["code"]) == (413, "too_large")


async def test_large_messages_wait_at_the_client_while_a_response_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(openai_responses_socket, "WAITING_BYTES", 1000)
    async with serving() as app, connected(app) as socket:
        await accepted(socket)
        await socket.send(model="asking")
        response = (await socket.event())["response"]["id"]
        for _ in range(8):
            await socket.send(input="x" * 1000)
        await until(lambda: socket.to_server.qsize() <= 6)
        run = await app.run(response.removeprefix("resp_"))
        async for event in run.events():
            if isinstance(event, TaskInputRequired):
                assert socket.to_server.qsize() == 6  # one waits here, one for room
                await run.send({"request_id": event.requests[0].id, "value": "Paris"})
        for _ in range(9):
            while (await socket.event())["type"] != "response.completed":
                pass


# --- the end -------------------------------------------------------------------------------------


async def test_a_client_that_leaves_does_not_stop_its_run() -> None:
    async with serving() as app:
        async with connected(app) as socket:
            await accepted(socket)
            await socket.send(model="asking")
            run_id = (await socket.event())["response"]["id"].removeprefix("resp_")
        run = await app.run(run_id)
        async for event in run.events():
            if isinstance(event, TaskInputRequired):
                await run.send({"request_id": event.requests[0].id, "value": "Paris"})
        assert (await run.result()).status == "completed"
        assert app._server is not None
        assert not app._server.connections._open


async def test_a_connection_ends_with_the_server_and_after_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as app, connected(app) as socket:
        await accepted(socket)
        assert app._server is not None
        app._server.stop()
        event = await socket.event()
        assert (event["status"], event["error"]["code"]) == (503, "stopping")
        assert await socket.message() == {"type": "websocket.close", "code": 1012}
    monkeypatch.setattr(openai_responses_socket, "OPEN_SECONDS", 0.01)
    async with serving() as app, connected(app) as socket:
        await accepted(socket)
        event = await socket.event()
        assert event["error"]["code"] == "websocket_connection_limit_reached"
        assert await socket.message() == {"type": "websocket.close", "code": 1001}


async def test_a_client_that_does_not_read_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.05)
    async with serving() as app, connected(app) as socket:
        await accepted(socket)
        socket.from_server._maxsize = 1  # type: ignore[attr-defined]
        await socket.send()
        server = app._server
        assert server is not None
        await until(lambda: not server.connections._open)


async def test_it_works_when_mounted_and_links_carry_the_prefix() -> None:
    async with serving() as app:
        host = Starlette()
        host.mount("/ai", app)
        async with connected(host, path="/ai/v1/responses/") as socket:
            last = await (await accepted(socket)).ask(model="linking")
            text = last["response"]["output"][0]["content"][0]["text"]
            assert text == f"[a picture](/ai/blobs/{'a' * 64})"
