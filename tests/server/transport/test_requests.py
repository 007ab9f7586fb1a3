"""What the server takes and what it refuses, asked over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

from tailrace.app import Tailrace
from tailrace.server import request_body
from tailrace.server.transport import http_protocol
from tests.node import run_node
from tests.serving import Served, serving

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("server") / "log.db")
    yield made
    made.kill()


def begin(served: Served, agent: str = "endless", **more: Any) -> str:
    answer = httpx.post(f"{served.url}/runs", json={"agent": agent, **more})
    return str(answer.json()["run_id"])


def raw(served: Served, request: bytes, seconds: float = 20.0) -> bytes:
    """Send bytes as they are; what the server answers until it closes the connection."""
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), seconds) as connection:
        connection.sendall(request)
        found = b""
        while piece := connection.recv(65536):
            found += piece
        return found


@pytest.mark.parametrize("headers", [{}, {"content-type": "application/json"}])
def test_a_cancel_needs_no_body(served: Served, headers: dict[str, str]) -> None:
    run_id = begin(served)
    url = f"{served.url}/runs/{run_id}/cancel"
    assert httpx.post(url, headers=headers).json()["status"] == "cancelled"
    assert httpx.post(url, headers=headers).json()["status"] == "cancelled"


def test_a_response_is_cancelled_by_its_own_path(served: Served) -> None:
    request = {"model": "endless", "input": "?", "background": True}
    found = httpx.post(f"{served.url}/v1/responses", json=request).json()
    url = f"{served.url}/v1/responses/{found['id']}/cancel"
    for _ in range(2):
        answer = httpx.post(url).json()
        assert (answer["object"], answer["id"]) == ("response", found["id"])
        assert answer["status"] == "cancelled"
    missing = httpx.post(f"{served.url}/v1/responses/resp_nobody/cancel")
    assert missing.status_code == 404


def test_metadata_is_kept_and_echoed(served: Served) -> None:
    metadata = {"order": "17"}
    request = {"model": "assistant", "input": "?", "metadata": metadata}
    found = httpx.post(f"{served.url}/v1/responses", json=request, timeout=20).json()
    assert found["metadata"] == metadata
    again = httpx.get(f"{served.url}/v1/responses/{found['id']}").json()
    assert again["metadata"] == metadata
    run_id = begin(served, "assistant", metadata={"any": ["thing"]})
    assert httpx.get(f"{served.url}/runs/{run_id}").json()["metadata"] == {"any": ["thing"]}


ASKED = {"model": "assistant", "input": "?"}


@pytest.mark.parametrize(
    ("path", "asked", "param"),
    [
        ("/v1/responses", {"model": "assistant"}, "input"),
        ("/v1/responses", {**ASKED, "input": 5}, "input"),
        ("/v1/responses", {**ASKED, "input": ["?"]}, "input[0]"),
        ("/v1/responses", {**ASKED, "input": [{"role": 5, "content": "?"}]}, "input[0].role"),
        ("/v1/responses", {**ASKED, "input": [{"type": 5, "content": "?"}]}, "input[0].type"),
        ("/v1/responses", {**ASKED, "input": [{"type": "weather", "id": "x"}]}, "input[0].type"),
        (
            "/v1/responses",
            {**ASKED, "input": [{"type": "input_text", "text": "?"}]},
            "input[0].type",
        ),
        (
            "/v1/responses",
            {**ASKED, "input": [{"role": "user", "content": "?"}, {"type": "functon_call"}]},
            "input[1].type",
        ),
        ("/v1/responses", {**ASKED, "input": [{"role": "user", "content": 5}]}, "input[0].content"),
        (
            "/v1/responses",
            {**ASKED, "input": [{"role": "user", "content": [5]}]},
            "input[0].content",
        ),
        ("/v1/responses", {**ASKED, "input": []}, "input"),
        ("/v1/responses", {**ASKED, "input": [{}]}, "input[0].role"),
        ("/v1/responses", {**ASKED, "input": [{"role": "user"}]}, "input[0].content"),
        (
            "/v1/responses",
            {**ASKED, "input": [{"type": "message", "role": "user"}]},
            "input[0].content",
        ),
        ("/v1/responses", {**ASKED, "input": [{"role": "robot", "content": "?"}]}, "input[0].role"),
        *(
            (path, {"model": "assistant", name: [{"role": "user", "content": [part]}]}, param)
            for path, name in (
                ("/v1/responses", "input"),
                ("/v1/chat/completions", "messages"),
            )
            for part, param in (
                ({}, f"{name}[0].content[0].type"),
                ({"type": 5}, f"{name}[0].content[0].type"),
                ({"type": "text"}, f"{name}[0].content[0].text"),
                ({"type": "input_text", "text": 5}, f"{name}[0].content[0].text"),
            )
        ),
        ("/v1/responses", {**ASKED, "previous_response_id": "a\0b"}, "previous_response_id"),
        ("/runs", {"agent": "assistant", "thread_id": "a\0b"}, "thread_id"),
        ("/runs", {"agent": "assistant", "imput": "?"}, "imput"),
        ("/v1/responses", {**ASKED, "stream": "yes"}, "stream"),
        ("/v1/responses", {**ASKED, "background": 1}, "background"),
        ("/v1/responses", {**ASKED, "temperature": "hot"}, "temperature"),
        ("/v1/responses", {**ASKED, "store": "no"}, "store"),
        ("/v1/responses", {**ASKED, "previous_response_id": 5}, "previous_response_id"),
        ("/v1/responses", {**ASKED, "metadata": "x"}, "metadata"),
        ("/v1/responses", {**ASKED, "metadata": {"x": 1}}, "metadata"),
        ("/v1/responses", {**ASKED, "metadata": {"x": "y" * 513}}, "metadata"),
        ("/v1/responses", {"input": "?"}, "model"),
        ("/runs", {"agent": 5}, "agent"),
        ("/runs", {"agent": "assistant", "thread_id": 5}, "thread_id"),
        ("/runs", {"agent": "assistant", "metadata": 5}, "metadata"),
        ("/runs", {"agent": "assistant", "store": "no"}, "store"),
    ],
)
def test_a_field_of_the_wrong_type_is_refused_by_its_name(
    served: Served, path: str, asked: dict[str, Any], param: str
) -> None:
    answer = httpx.post(served.url + path, json=asked)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert f"`{param}`" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "messages",
    [
        *([5], [], None, "hi", [{"role": 5}], [{"role": "user"}]),
        [{"role": "user", "parts": 5}],
        [{"role": "user", "parts": [5]}],
        [{"role": "tool", "parts": []}],
        [{"role": "user", "parts": [{}]}],
        [{"role": "user", "parts": [{"type": "text"}]}],
    ],
)
def test_use_chat_gets_a_sentence_and_no_json(served: Served, messages: Any) -> None:
    answer = httpx.post(f"{served.url}/api/chat", json={"id": "c", "messages": messages})
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text.startswith("`messages")


def test_every_error_on_the_chat_path_is_a_sentence(served: Served) -> None:
    url = f"{served.url}/api/chat"
    for answer in (
        httpx.post(url, content=b"{", headers=JSON),
        httpx.post(url, content=b"{}", headers={"content-type": "text/plain"}),
        httpx.post(url, json={"id": "c", "messages": [{}], "agent": "nobody"}),
        httpx.get(url),
        httpx.get(f"{url}/c/nowhere"),
    ):
        assert answer.status_code in (400, 404, 405, 415)
        assert answer.headers["content-type"].startswith("text/plain")
        assert answer.text.endswith((".", "`"))
        assert "{" not in answer.text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"agent":"assistant","agent":"slow"}', "'agent' twice"),
        (b'{"agent":"assistant","input":{"a":1,"a":2}}', "'a' twice"),
        (b'{"agent":"assistant","input":"\\ud800"}', "\\ud800, half of a surrogate pair"),
        (b'{"agent":"assistant","input":"\\udc00\\ud800"}', "\\udc00, half of a surrogate pair"),
        (b'{"agent":"assistant","input":NaN}', "NaN"),
        (b'{"agent":"assistant","input":1e999}', "infinity"),
        (b'{"agent":"assistant","input":%b}' % (b"9" * 5000), "too many digits"),
    ],
)
def test_a_body_that_is_not_strict_json_is_refused_with_its_reason(
    served: Served, content: bytes, words: str
) -> None:
    answer = httpx.post(f"{served.url}/runs", content=content, headers=JSON)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


def test_a_whole_surrogate_pair_is_one_character(served: Served) -> None:
    content = b'{"agent":"assistant","input":"\\ud83d\\ude00"}'
    answer = httpx.post(f"{served.url}/runs", content=content, headers=JSON)
    run = httpx.get(served.url + answer.headers["location"]).json()
    assert run["input"] == "😀"


def test_a_wrong_method_is_405_with_the_allowed_methods(served: Served) -> None:
    answer = httpx.get(f"{served.url}/runs")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    answer = httpx.delete(f"{served.url}/health")
    assert answer.status_code == 405
    assert {*answer.headers["allow"].split(", ")} == {"GET", "HEAD"}


def test_who_looks_for_a_list_of_runs_is_sent_to_the_threads(served: Served) -> None:
    answer = httpx.get(f"{served.url}/runs/")
    assert answer.status_code == 405
    assert "use POST. GET /threads lists" in answer.json()["error"]["message"]
    other = httpx.put(f"{served.url}/runs")
    assert "/threads" not in other.json()["error"]["message"]


def test_a_mistyped_run_id_is_not_found(served: Served) -> None:
    for name in ("run_nobody", "Run_7", "run-7", "resp_run_7"):
        answer = httpx.get(f"{served.url}/runs/{name}/events")
        assert answer.status_code == 404
        assert f"/threads/{name}/events" in answer.json()["error"]["message"]


def test_a_run_id_with_one_mistake_anywhere_is_not_found(served: Served) -> None:
    run_id = begin(served)
    wrong = {run_id[:at] + "x" + run_id[at:] for at in range(len(run_id) + 1)}
    wrong |= {run_id[:at] + run_id[at + 1 :] for at in range(len(run_id))}
    wrong |= {run_id[:at] + "z" + run_id[at + 1 :] for at in range(len(run_id))}
    wrong |= {run_id[:at] + run_id[at : at + 2][::-1] + run_id[at + 2 :] for at in range(4)}
    wrong |= {run_id.upper(), run_id.capitalize(), f"{run_id} ", f" {run_id}", f"{run_id}~1"}
    with httpx.Client(base_url=served.url, timeout=20) as client:
        for name in sorted(wrong - {run_id}):
            for path in ("", "/events"):
                with client.stream("GET", f"/runs/{name}{path}") as answer:
                    assert answer.status_code == 404, name
        client.post(f"/runs/{run_id}/cancel")


def test_a_stream_that_waits_for_a_thread_s_first_run_says_so(served: Served) -> None:
    for path in ("/runs/later/events", "/threads/later/events", "/runs/later/events?format=task"):
        with httpx.stream("GET", served.url + path) as stream:
            received = b""
            for piece in stream.iter_raw():
                received += piece
                if b"\n: " in received:
                    break
        assert b": thread later has no runs; waiting for the next\n\n" in received


def test_a_head_request_for_a_stream_is_answered_at_once(served: Served) -> None:
    run_id = begin(served)
    for path in (f"/runs/{run_id}/events", "/threads/later/events"):
        head = f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        answer = raw(served, head.encode(), 5.0)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"content-type: text/event-stream" in answer
    httpx.post(f"{served.url}/runs/{run_id}/cancel")


@pytest.mark.parametrize(
    "hosts",
    [
        *(["localhost:80@evil.com"], ["evil.com@localhost"], ["localhost:80:80"], ["localhost/"]),
        *(["localhost, evil.com"], ["[::1].evil.com"], ["[::1"], ["localhost:"], [""], []),
        ["localhost", "evil.com"],
        ["localhost", "localhost"],
    ],
)
def test_an_odd_host_is_refused(served: Served, hosts: list[str]) -> None:
    lines = "".join(f"Host: {host}\r\n" for host in hosts)
    head = f"GET /health HTTP/1.1\r\n{lines}Connection: close\r\n\r\n"
    assert raw(served, head.encode()).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("path", ["/threads/%ff", "/runs/%C3", "/runs/a?at=%ff"])
def test_a_url_that_is_not_utf8_is_refused(served: Served, path: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = raw(served, head.encode())
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"not UTF-8" in answer


def test_an_origin_that_only_looks_like_ours_is_refused(served: Served) -> None:
    for origin in (
        "http://localhost:80@evil.com",
        "http://localhost.evil.com",
        "localhost",
        "null",
    ):
        answer = httpx.get(f"{served.url}/health", headers={"Origin": origin})
        assert answer.status_code == 403, origin


def test_a_head_beyond_the_bound_is_refused_while_it_arrives(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        sent = 0
        with suppress(OSError):  # reset or broken pipe
            while sent < 100_000_000:
                sent += connection.send(b"x" * 65536)
    assert sent < 20_000_000
    answer = httpx.get(f"{served.url}/health", headers={"X-Long": "x" * 70_000})
    assert answer.status_code == 431
    long = httpx.get(f"{served.url}/health?{'x' * 60_000}")
    assert long.status_code == 200


CHUNKED = (b"transfer-encoding", b"chunked")


async def ask(
    app: Any, chunks: AsyncIterator[bytes], length: tuple[bytes, bytes] = CHUNKED
) -> tuple[int, dict[bytes, Any]]:
    """POST /runs to an application in this process; the body may never end."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/runs",
        "query_string": b"",
        "headers": [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            length,
        ],
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": await anext(chunks), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], {**dict(sent[0]["headers"]), b"body": json.loads(sent[1]["body"])}


@pytest.mark.parametrize("stalls", [False, True], ids=["endless", "stalled"])
async def test_a_body_whose_length_is_too_large_is_dropped_after_the_answer_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stalls: bool
) -> None:
    monkeypatch.setattr(request_body, "DROP_SECONDS", 0.05 if stalls else 120)
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 1024 * 1024
            yield b"x" * 1024 * 1024
            if stalls:
                await asyncio.Event().wait()

    app = Tailrace({}, tmp_path / "log.db")
    async with asyncio.timeout(120), app.running():
        length = (b"content-length", b"%d" % (request_body.MAX_BODY_BYTES + 1))
        status, answer = await ask(app, body(), length)
    assert (status, answer[b"connection"]) == (413, b"close")
    assert answer[b"body"]["error"]["code"] == "too_large"
    assert read == (1024 * 1024 if stalls else request_body.DROPPED_BYTES)
    assert request_body._bodies.held == 0


@pytest.mark.parametrize("plain", [False, True], ids=["serve", "uvicorn"])
def test_a_client_that_sends_too_much_can_read_why(
    served: Served, tmp_path: Path, *, plain: bool
) -> None:
    with serving(Tailrace({}, tmp_path / "log.db")) if plain else nullcontext(served.url) as url:
        _sends_too_much(url)


def _sends_too_much(url: str) -> None:
    def post(text: str, path: str = "/runs") -> httpx.Response:
        body = {"agent": "assistant", "input": text}
        return httpx.post(f"{url}{path}", json=body, timeout=120)

    large = "x" * 17 * 1024 * 1024
    for answer in [post(large) for _ in range(6)]:
        assert (answer.status_code, answer.headers["connection"]) == (413, "close")
        assert answer.json()["error"]["message"].startswith("The body is larger than")
    assert post(large, "/api/chat").text.startswith("The body is larger than")
    script = """
        const body = JSON.stringify({agent: "assistant", input: "x".repeat(17 * 1024 * 1024)});
        const headers = {"content-type": "application/json"};
        const found = [];
        for (let i = 0; i < 8; i++) {
            const sent = await fetch(process.env.SERVER + "/runs", {method: "POST", headers, body});
            found.push([sent.status, (await sent.json()).error.code]);
        }
        console.log(JSON.stringify(found));
    """
    printed = run_node(["--input-type=module", "-e", script], env={"SERVER": url})
    assert json.loads(printed) == [[413, "too_large"]] * 8


def test_a_misspelt_field_is_refused_with_the_right_name(served: Served) -> None:
    body = {"agent": "assistant", "imput": "?"}
    found = httpx.post(f"{served.url}/runs", json=body).json()["error"]["message"]
    assert found == "Unknown field `imput`. Did you mean `input`?"


async def test_an_unfinished_body_is_given_up_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_body, "BODY_SECONDS", 0.05)

    async def stalls() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    app = Tailrace({}, tmp_path / "log.db")
    async with app.running():
        status, answer = await ask(app, stalls())
    assert (status, answer[b"connection"]) == (408, b"close")
    assert answer[b"body"]["error"]["code"] == "request_timeout"


async def test_unfinished_bodies_hold_a_bounded_amount_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_body, "MAX_BODIES_BYTES", 1000)
    filled, more = asyncio.Event(), asyncio.Event()

    async def fills() -> AsyncIterator[bytes]:
        yield b"x" * 900
        filled.set()
        await more.wait()
        yield b"x" * 101

    async def asks() -> AsyncIterator[bytes]:
        yield b"x" * 101

    app = Tailrace({}, tmp_path / "log.db")
    async with asyncio.timeout(120), app.running():
        first = asyncio.create_task(ask(app, fills()))
        await filled.wait()
        status, answer = await ask(app, asks())
        assert (status, answer[b"retry-after"]) == (503, b"1")
        more.set()
        assert (await first)[0] == 503
    assert request_body._bodies.held == 0


@asynccontextmanager
async def bounded(answer: Any) -> AsyncIterator[tuple[str, int]]:
    config, state = uvicorn.Config(answer), ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: http_protocol.BoundedHttp(config, state, {}), "127.0.0.1", 0
    )
    async with asyncio.timeout(120), server:
        yield server.sockets[0].getsockname()


async def test_a_head_that_does_not_end_is_given_up_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.05)

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with bounded(answer) as address:
        for start in (b"", b"GET / HTTP/1.1\r\nHost:"):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(start)
            assert (await reader.read()).startswith(b"HTTP/1.1 408")
            writer.close()
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
        writer.write(b"GET / HTTP/1.1\r\nHost:")  # the next one on the same connection
        assert (await reader.read()).startswith(b"HTTP/1.1 408")
        writer.close()


async def test_a_trailer_is_not_a_header() -> None:
    seen: list[tuple[bytes, bytes]] = []

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        seen.extend(scope["headers"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with bounded(answer) as address:
        reader, writer = await asyncio.open_connection(*address)
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head + b"2\r\n{}\r\n0\r\nX-User: ann\r\nHost: evil\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
        writer.close()
    assert seen == [(b"host", b"localhost"), (b"transfer-encoding", b"chunked")]


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize(
    ("start", "more"),
    [(b"0\r\n", b"X: y\r\n" * 10_000), (b"0\r\nX: ", b"x" * 60_000), (b"1;", b"x" * 60_000)],
)
async def test_trailers_without_an_end_are_refused(
    start: bytes, more: bytes, answers: bool
) -> None:
    left = asyncio.Event()

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if answers:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    async with bounded(answer) as address:
        reader, writer = await asyncio.open_connection(*address)
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head + b"2\r\n{}\r\n" + start)
        sent = 0
        with suppress(OSError):  # reset or broken pipe
            while sent < 50_000_000 and not left.is_set():
                writer.write(more)
                sent += len(more)
                await writer.drain()
        assert sent < 50_000_000
        received = b""
        with suppress(OSError):
            received = await reader.read()
        assert b" 431 " not in received  # inside another answer
        await left.wait()
        writer.close()


async def test_a_body_that_goes_on_after_its_answer_is_given_up_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n"
    async with bounded(answer) as address:
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(2):  # a body that ends does not cost the connection
            writer.write(head)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
            writer.write(b"abc")
        monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.5)
        writer.write(head)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
        writer.write(b"a")  # uvicorn stops its own timer when a byte arrives
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()
