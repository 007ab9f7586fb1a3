"""The proxy between a real client and a backend that misbehaves on purpose."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tailrace.core.errors import CallerError
from tailrace.server.proxy import Proxy
from tests.repair.streams import Read, events_of, response, stream, sunny
from tests.server.raw_backend import STREAM, Answer, Exchange, backend, serving

FRAMES = [stream(event) for event in sunny(raw=True)]
RAW = {"type": "reasoning", "id": "rs_0", "content": [{"type": "reasoning_text", "text": "Hm."}]}


@asynccontextmanager
async def proxied(
    answer: Answer, path: str = "", **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the proxy in front of such a backend."""
    async with (
        backend(answer) as upstream,
        serving(Proxy(upstream + path, **options)) as url,
        httpx.AsyncClient(base_url=url, timeout=20, trust_env=False) as client,
        asyncio.timeout(120),
    ):
        yield client


@asynccontextmanager
async def uploading(serve: Any, header: bytes) -> AsyncIterator[asyncio.StreamWriter]:
    """A client that has begun to send a file, through the proxy, to a backend that reads it so."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    upstream = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with serving(Proxy(upstream)) as url, asyncio.timeout(120):
        host, port = url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/files HTTP/1.1\r\nhost: localhost\r\n%b\r\n\r\n" % header)
        yield writer
    server.close()


async def post(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post("/v1/responses", json={"model": "m", **fields})


async def test_a_request_reaches_the_backend_as_it_is() -> None:
    seen: list[Exchange] = []

    async def answer(exchange: Exchange) -> None:
        seen.append(exchange)
        await exchange.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with proxied(answer, "/base/") as client:
        url = "/v1/files%2Fa/b?x=%20&y&x=2"
        headers = {"X-Own": "Mine", "Authorization": "Bearer secret", "TE": "gzip", "Cookie": "a=b"}
        headers["Accept-Encoding"] = "gzip, deflate"  # httpx's own depends on what is installed
        hop = {"Connection": "x-hop, keep-alive", "X-Hop": "1"}
        found = await client.request(
            "PATCH", url, headers={**headers, **hop}, content=b"\0\xffbody"
        )
        assert found.status_code == 204
        await client.get("/v1/models")
    first, second = seen
    assert first.line == b"PATCH /base/v1/files%2Fa/b?x=%20&y&x=2 HTTP/1.1"
    assert first.body == b"\0\xffbody"
    assert first.header(b"x-own") == b"Mine"
    assert first.header(b"authorization") == b"Bearer secret"
    assert first.header(b"cookie") == b"a=b"
    assert first.header(b"accept-encoding") == b"gzip, deflate"
    for name in (b"te", b"x-hop", b"connection"):
        assert first.header(name) is None
    host = first.header(b"host")
    assert host is not None
    assert host.startswith(b"127.0.0.1:")
    assert second.line == b"GET /base/v1/models HTTP/1.1"
    assert second.header(b"content-length") is None


async def test_a_body_of_unknown_length_reaches_the_backend_while_it_is_sent() -> None:
    async def answer(exchange: Exchange) -> None:
        length = b"%d" % len(exchange.body)
        await exchange.send(
            b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(length), length)
        )

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 1000

    async with proxied(answer) as client:
        assert (await client.post("/v1/files", content=pieces())).text == "3000"


async def test_an_answer_reaches_the_client_as_it_is() -> None:
    body = b"\x1f\x8b not really gzip"
    head = (
        b"HTTP/1.1 418 Teapot\r\nServer: theirs\r\nDate: yesterday\r\nX-Two: a\r\nX-Two: b\r\n"
        b"Content-Type: x/y\r\nContent-Encoding: odd\r\nSet-Cookie: s=1\r\nKeep-Alive: 5\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    seen = []

    async def answer(exchange: Exchange) -> None:
        seen.append(exchange.header(b"cookie"))
        await exchange.send(head + body)

    async with proxied(answer) as client:
        for _ in range(2):
            async with client.stream("GET", "/any/thing") as found:
                assert b"".join([chunk async for chunk in found.aiter_raw()]) == body
            client.cookies.clear()
    assert found.status_code == 418
    # ASGI has names in lower case.
    assert found.headers.raw == [
        (b"server", b"theirs"),
        (b"date", b"yesterday"),
        (b"x-two", b"a"),
        (b"x-two", b"b"),
        (b"content-type", b"x/y"),
        (b"content-encoding", b"odd"),
        (b"set-cookie", b"s=1"),
        (b"content-length", b"%d" % len(body)),
    ]
    assert seen == [None, None], "no client gets another's cookies"


async def test_each_frame_is_sent_on_before_the_next_one_comes() -> None:
    heard = asyncio.Queue[None]()

    async def answer(exchange: Exchange) -> None:
        await exchange.send(STREAM)
        for frame in FRAMES:
            await exchange.chunk(frame)
            await heard.get()  # the backend goes on only when the client has what it sent
        await exchange.chunk(b"")

    body = b""
    async with proxied(answer) as client, client.stream("POST", "/v1/responses", json={}) as found:
        heard.put_nowait(None)  # the end of the raw part says nothing to the client
        async for chunk in found.aiter_raw():
            body += chunk
            heard.put_nowait(None)
    assert Read(events_of(body)).texts("reasoning") == [["Sun or rain?"]]


async def test_a_json_answer_is_repaired() -> None:
    body = json.dumps(response("completed", [RAW])).encode()

    async def answer(exchange: Exchange) -> None:
        assert exchange.header(b"accept-encoding") == b"identity"
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        await exchange.send(head % len(body) + body)

    async with proxied(answer) as client:
        found = await post(client)
    assert found.json()["output"][0]["summary"] == [{"type": "summary_text", "text": "Hm."}]


async def test_a_stream_cut_inside_a_frame_ends_with_a_failure() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(STREAM)
        await exchange.chunk(b"".join(FRAMES[:5]) + FRAMES[5][:20])

    async with proxied(answer) as client:
        found = await post(client, stream=True)
    events = events_of(found.content)
    assert events[-2]["delta"] == "Sun "
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["type"] == "upstream_cut"
    assert Read(events).final is not None


async def test_a_backend_that_falls_silent_in_its_stream_is_given_up() -> None:
    gone = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.send(STREAM)
        await exchange.chunk(FRAMES[0])
        assert await exchange.left()
        gone.set()

    async with proxied(answer, silence_seconds=0.1) as client:
        found = await post(client, stream=True)
        await gone.wait()
    last = events_of(found.content)[-1]
    assert "ReadTimeout" in last["response"]["error"]["message"]


async def test_an_error_of_the_backend_passes() -> None:
    body = b'{"error": {"message": "mine", "type": "x", "param": null, "code": null}}'

    async def answer(exchange: Exchange) -> None:
        head = b"HTTP/1.1 500 No\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        await exchange.send(head % len(body) + body)

    async with proxied(answer) as client:
        found = await post(client, stream=True)
    assert found.status_code == 500
    assert found.content == body


async def test_a_backend_that_is_not_there_is_a_502() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        upstream = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with serving(Proxy(upstream)) as url, httpx.AsyncClient(base_url=url) as client:
            found = await post(client, stream=True)
    assert found.status_code == 502
    error = found.json()["error"]
    assert error["code"] == error["type"] == "upstream_unreachable"
    assert upstream in error["message"]
    assert "ConnectError" in error["message"]


async def test_a_backend_that_closes_without_an_answer_is_a_502() -> None:
    async def answer(exchange: Exchange) -> None:
        pass

    async with proxied(answer) as client:
        assert (await post(client)).json()["error"]["code"] == "upstream_unreachable"


async def test_a_backend_that_never_answers_is_a_504() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.left()

    async with proxied(answer, silence_seconds=0.1) as client:
        found = await post(client)
    assert found.status_code == 504
    assert found.json()["error"]["code"] == "upstream_timeout"


BOTH = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("length", [3, 5, 30])
async def test_an_answer_with_a_length_and_chunks_reaches_the_client_whole(length: int) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(BOTH % length)
        await exchange.chunk(b"hello")
        await exchange.chunk(b"")

    async with proxied(answer) as client:
        assert (await client.get("/v1/files/1")).content == b"hello"


@pytest.mark.parametrize(
    ("head", "fault"),
    [
        (b"HTTP/1.1 999 Odd\r\n", "status is 999"),
        (b"HTTP/1.1 600 Odd\r\n", "status is 600"),
        (b"HTTP/1.1 200 OK\r\nx-odd: a\x01\r\n", "header 'x-odd' has a control character"),
    ],
)
async def test_an_answer_that_no_server_can_send_is_a_502(head: bytes, fault: str) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(head + b"content-length: 5\r\n\r\nhello")

    async with proxied(answer) as client:
        found = await client.get("/v1/files/1")
    assert found.status_code == 502
    assert found.json()["error"]["code"] == "upstream_invalid"
    assert fault in found.json()["error"]["message"]


CLIMBING = (
    b"/../x",
    b"/a/..",
    b"/%2e%2E/x",
    b"/.%2e/x",
    b"/..%2fx",
    b"/a%5c..%5cx",
    b"/..;a=b/x",
    b"/%252e%252e/x",
    b"*",
)


async def test_a_path_outside_the_upstream_prefix_never_reaches_the_backend() -> None:
    seen = []

    async def answer(exchange: Exchange) -> None:
        seen.append(exchange.line.split()[1])
        await exchange.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with backend(answer) as upstream:
        for prefix, paths in ((b"/base", (b"/..a/b..c/...?x=/../y",)), (b"", CLIMBING)):
            async with serving(Proxy(upstream + prefix.decode())) as url:
                for path in paths:
                    assert await _status_of(url, path) == b"204"
                    assert seen.pop() == prefix + path
        async with serving(Proxy(f"{upstream}/base")) as url:
            for path in CLIMBING:
                assert await _status_of(url, path) == b"400", path
    assert not seen


async def _status_of(url: str, target: bytes) -> bytes:
    """The status of a request whose target no client library has tidied."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % target)
    line = await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    return line.split()[1]


async def test_half_a_json_answer_is_a_502() -> None:
    async def answer(exchange: Exchange) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n"
        await exchange.send(head + b'{"output":')

    async with proxied(answer) as client:
        found = await post(client)
    assert found.status_code == 502
    assert found.json()["error"]["code"] == "upstream_cut"


async def test_half_of_anything_else_is_half_for_the_client_too() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nhalf")

    async with proxied(answer) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get("/v1/files/1")


async def test_a_client_that_leaves_is_gone_for_the_backend_too() -> None:
    gone = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.send(STREAM)
        await exchange.chunk(FRAMES[0])
        assert await exchange.left()
        gone.set()

    async with proxied(answer) as client:
        async with client.stream("POST", "/v1/responses", json={}) as found:
            async for _ in found.aiter_raw():
                break
        await gone.wait()


async def test_a_client_that_leaves_inside_its_own_body_is_gone_for_the_backend_too() -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        begun.set()
        while await reader.read(1000):
            pass
        writer.close()
        gone.set()

    async with uploading(serve, b"content-length: 99") as writer:
        writer.write(b"x")
        await begun.wait()
        writer.close()
        await gone.wait()


async def test_a_client_that_reads_slowly_makes_the_backend_wait() -> None:
    """Or all that it does not read would lie in the proxy's memory."""
    waits = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.send(STREAM)
        try:
            async with asyncio.timeout(2):
                for _ in range(1000):
                    await exchange.chunk(stream({**sunny()[4], "delta": "x" * 100_000}))
        except TimeoutError:
            waits.set()

    async with proxied(answer) as client, client.stream("POST", "/v1/responses", json={}):
        await waits.wait()


async def test_a_backend_that_reads_slowly_makes_the_client_wait() -> None:
    begun, waits = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        begun.set()
        await waits.wait()
        writer.close()

    async with uploading(serve, b"content-length: 100000000") as writer:
        await begun.wait()

        async def upload() -> None:
            for _ in range(1000):
                writer.write(b"x" * 100_000)
                await writer.drain()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(upload(), 2)
        waits.set()
        writer.transport.abort()


async def test_half_a_body_in_chunks_is_never_a_whole_one_for_the_backend() -> None:
    begun, gone = asyncio.Event(), asyncio.Event()
    got = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        while chunk := await reader.read(1000):
            got += chunk
            if b"half" in got:
                begun.set()
        writer.close()
        gone.set()

    async with uploading(serve, b"transfer-encoding: chunked") as writer:
        writer.write(b"4\r\nhalf\r\n")
        await begun.wait()
        writer.close()
        await gone.wait()
    assert got.endswith(b"4\r\nhalf\r\n"), "the last chunk, of length 0, says that it is whole"


async def test_a_proxy_that_stops_before_the_answer_says_so() -> None:
    asked = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        asked.set()
        await exchange.left()

    async with backend(answer) as upstream:
        proxy = Proxy(upstream)
        async with serving(proxy) as url, httpx.AsyncClient(base_url=url) as client:
            for path in ("/v1/responses", "/v1/chat/completions"):
                asked.clear()
                proxy._forward.stopping.clear()
                pending = asyncio.ensure_future(client.post(path, json={}))
                await asked.wait()
                await proxy.drain()
                found = await pending
                assert found.status_code == 503
                assert found.json()["error"]["code"] == "stopping"


async def test_a_proxy_that_stops_tells_its_clients() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(STREAM)
        await exchange.chunk(FRAMES[0])
        await exchange.left()

    async with backend(answer) as upstream:
        proxy = Proxy(upstream)
        body = b""
        async with (
            serving(proxy) as url,
            httpx.AsyncClient(base_url=url) as client,
            client.stream("POST", "/v1/responses", json={}) as found,
        ):
            async for chunk in found.aiter_raw():
                body += chunk
                await proxy.drain()
    assert "stopping" in events_of(body)[-1]["response"]["error"]["message"]


async def test_the_proxy_refuses_pages_of_other_sites() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with proxied(answer) as client:
        assert (await client.get("/", headers={"host": "evil.example"})).status_code == 421
        assert (await client.get("/", headers={"origin": "http://evil.example"})).status_code == 403
        own = {"origin": str(client.base_url).rstrip("/"), "content-type": "multipart/form-data"}
        assert (await client.post("/v1/files", headers=own, content=b"x")).status_code == 204
        for page in ("http://localhost:3000", own["origin"].replace("http:", "ftp:"), "null"):
            refused = await client.post("/v1/files", headers={**own, "origin": page}, content=b"x")
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "wrong_origin")


async def test_the_backend_decides_what_listed_pages_may_read() -> None:
    page = "http://localhost:3000"
    allowed = f"HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Origin: {page}\r\n\r\n"

    async def answer(exchange: Exchange) -> None:
        await exchange.send(allowed.encode())

    asks = {"origin": page, "access-control-request-method": "POST"}
    async with (
        backend(answer) as upstream,
        serving(Proxy(upstream, origins=[page])) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        for method, headers in (("OPTIONS", asks), ("POST", {"origin": page})):
            found = await client.request(method, "/v1/responses", headers=headers)
            assert found.status_code == 204
            assert found.headers.get_list("access-control-allow-origin") == [page]
        other = {**asks, "origin": "http://localhost:3001"}
        assert (await client.options("/v1/responses", headers=other)).status_code == 403


@pytest.mark.parametrize("extensions", [{}, {"websocket.http.response": {}}])
async def test_it_speaks_no_websocket(extensions: dict[str, Any]) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "extensions": extensions}
    await Proxy("http://localhost:1")(scope, None, send)  # type: ignore[arg-type]
    if extensions:
        assert sent[0]["status"] == 501
        assert json.loads(sent[1]["body"])["error"]["code"] == "no_websocket"
    else:
        assert sent == [{"type": "websocket.close", "code": 1003}]


@pytest.mark.parametrize(
    "upstream",
    [
        "",
        "localhost:8090",
        "ftp://host",
        "http://",
        "http:///x",
        "http://host:port",
        "http://host:99999",
        "http://host:0",
        "http://[::1",
        "http://me:secret@host:port",
    ],
)
def test_an_invalid_address_is_refused(upstream: str) -> None:
    with pytest.raises(CallerError, match="write http://host:port") as refused:
        Proxy(upstream)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("upstream", "words"),
    [
        ("http://me:secret@host:1/v1", "Authorization"),
        ("http://host:1/v1?key=1", "has a query or a fragment"),
        ("http://host:1/v1#x", "has a query or a fragment"),
    ],
)
def test_an_address_that_says_too_much_is_refused(upstream: str, words: str) -> None:
    with pytest.raises(CallerError, match=words) as refused:
        Proxy(upstream)
    assert "secret" not in str(refused.value)


async def test_a_proxy_of_the_environment_is_used_unless_the_backend_is_excepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = []

    async def answer(exchange: Exchange) -> None:
        lines.append(exchange.line)
        await exchange.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with backend(answer) as address, httpx.AsyncClient(trust_env=False) as client:
        monkeypatch.setenv("http_proxy", address)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        for upstream in ("http://backend.invalid", address):
            async with serving(Proxy(upstream)) as url:
                await client.get(f"{url}/x?y")
    assert lines == [b"GET http://backend.invalid/x?y HTTP/1.1", b"GET /x?y HTTP/1.1"]


async def test_a_proxy_of_the_environment_receives_its_user_and_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    async def answer(exchange: Exchange) -> None:
        seen.append(exchange.header(b"proxy-authorization"))
        await exchange.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with backend(answer) as address, httpx.AsyncClient(trust_env=False) as client:
        monkeypatch.setenv("http_proxy", address.removeprefix("http://"))
        monkeypatch.setenv("no_proxy", "")
        async with serving(Proxy("http://backend.invalid")) as url:
            await client.get(f"{url}/x")
        monkeypatch.setenv("http_proxy", address.replace("//", "//me:p%40ss@"))
        async with serving(Proxy("http://backend.invalid")) as url:
            await client.get(f"{url}/x")
    assert seen == [None, b"Basic " + base64.b64encode(b"me:p@ss")]


async def test_a_proxy_of_the_environment_that_refuses_is_a_502(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")

    async with backend(answer) as address, httpx.AsyncClient(trust_env=False) as client:
        monkeypatch.setenv("https_proxy", address)
        monkeypatch.setenv("no_proxy", "")
        async with serving(Proxy("https://backend.invalid")) as url:
            found = await client.get(f"{url}/x")
    assert found.status_code == 502
    assert "403 Forbidden" in found.json()["error"]["message"]
