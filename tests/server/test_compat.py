"""The middleware around any ASGI application, message by message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from tailrace import ResponsesCompat
from tailrace.server import repair_middleware
from tailrace.server.repair_middleware import BackendCut
from tests.repair.streams import HERE, Read, events_of, repaired, response, stream, sunny

RAW = {"type": "reasoning", "id": "rs_0", "content": [{"type": "reasoning_text", "text": "Hm."}]}


class App:
    """Answers with the messages that it was given, then fails or not."""

    def __init__(
        self,
        *bodies: bytes,
        kind: str = "text/event-stream; charset=utf-8",
        status: int = 200,
        headers: dict[str, str] | None = None,
        failure: Exception | None = None,
        ends: bool = True,
    ) -> None:
        self.bodies = bodies
        given = {"Content-Type": kind, "X-Own": "1", **(headers or {})}
        self.headers = [(k.encode(), v.encode()) for k, v in given.items()]
        self.status = status
        self.failure = failure
        self.ends = ends
        self.scope: Scope = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        start = {"type": "http.response.start", "status": self.status, "headers": self.headers}
        await send(start)
        for number, body in enumerate(self.bodies, 1):
            more = number < len(self.bodies) or not self.ends
            await send({"type": "http.response.body", "body": body, "more_body": more})
        if self.failure is not None:
            raise self.failure


async def answer(
    app: Any, path: str = "/v1/responses", method: str = "POST", query: str = ""
) -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("nothing to receive")

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"accept", b"*/*"), (b"accept-encoding", b"gzip")],
    }
    await ResponsesCompat(app)(scope, receive, send)
    return sent


def body_of(sent: list[Message]) -> bytes:
    assert sent[-1].get("more_body", False) is False
    return b"".join(message["body"] for message in sent[1:])


async def test_a_stream_is_repaired_frame_by_frame() -> None:
    frames = [stream(event) for event in sunny(raw=True)]
    sent = await answer(App(*frames))
    assert Read(events_of(body_of(sent))).texts("reasoning") == [["Sun or rain?"]]
    assert len(sent) == len(frames)  # one frame was dropped, for the headers one was added


async def test_a_stream_that_ends_without_its_end_gets_it() -> None:
    sent = await answer(App(stream(*sunny()[:-1])))
    assert events_of(body_of(sent))[-1]["type"] == "response.completed"


async def test_what_needs_nothing_passes_with_its_headers() -> None:
    app = App(stream(*sunny()))
    sent = await answer(app)
    assert sent[0] == {"type": "http.response.start", "status": 200, "headers": app.headers}
    assert body_of(sent) == stream(*sunny())


async def test_a_stream_has_no_content_length() -> None:
    sent = await answer(App(stream(*sunny(raw=True)), headers={"Content-Length": "5"}))
    assert b"Content-Length" not in dict(sent[0]["headers"])
    assert (b"X-Own", b"1") in sent[0]["headers"]


async def test_a_json_answer_gets_its_summary_and_its_new_length() -> None:
    before = json.dumps(response("completed", [RAW])).encode()
    length = {"content-length": str(len(before))}
    sent = await answer(App(before[:9], before[9:], kind="application/json", headers=length))
    body = body_of(sent)
    assert json.loads(body)["output"][0]["summary"] == [{"type": "summary_text", "text": "Hm."}]
    assert dict(sent[0]["headers"])[b"content-length"] == b"%d" % len(body)


async def test_digests_of_a_body_are_not_sent_with_a_changed_body() -> None:
    measured = {"Content-MD5": "x", "Digest": "x", "content-digest": "x", "Repr-Digest": "x"}
    before = json.dumps(response("completed", [RAW])).encode()
    app = App(before, kind="application/json", headers={**measured, "ETag": "x"})
    names = {name.lower() for name, _ in (await answer(app))[0]["headers"]}
    assert names == {b"content-type", b"x-own", b"etag", b"content-length"}
    app = App(stream(*sunny(raw=True)), headers=measured)
    names = {name.lower() for name, _ in (await answer(app))[0]["headers"]}
    assert names == {b"content-type", b"x-own"}
    whole = json.dumps(sunny()[-1]["response"]).encode()
    app = App(whole, kind="application/json", headers=measured)
    assert (await answer(app))[0]["headers"] == app.headers


async def test_the_headers_of_a_stream_that_is_not_sent_are_left_alone() -> None:
    app = App(b"", headers={"Content-Length": "5"})
    sent = await answer(app, method="HEAD")
    assert sent[0]["headers"] == app.headers
    assert body_of(sent) == b""


async def test_a_stream_that_calls_itself_json_is_a_stream() -> None:
    frames = [stream(event) for event in sunny(raw=True)]
    for first in (frames[0], b"\n" + frames[0].partition(b"\n")[2], b": hello\n\n" + frames[0]):
        sent = await answer(App(b"", first, *frames[1:], kind="application/json"))
        assert Read(events_of(body_of(sent))).texts("reasoning") == [["Sun or rain?"]]
        assert len(sent) > len(frames) - 1, "each frame as it comes"


@pytest.mark.parametrize(
    ("path", "touched"),
    [
        ("/v1/responses", True),
        ("/compatible-mode/v1/responses/", True),
        ("/v1/responses/resp_1", True),
        ("/v1/responses/resp_1/cancel", True),
        ("/v1/responses/resp_1/input_items", False),
        ("/v1/chat/completions", False),
        ("/responses/of/others/x", False),
    ],
)
async def test_only_the_paths_of_responses_are_touched(path: str, touched: bool) -> None:
    before = json.dumps(response("completed", [RAW])).encode()
    app = App(before, kind="application/json")
    assert (body_of(await answer(app, path)) != before) == touched
    asked = dict(app.scope["headers"])[b"accept-encoding"]
    assert asked == (b"identity" if touched else b"gzip")


@pytest.mark.parametrize(
    "app",
    [
        App(b'{"output": []}', kind="application/json", headers={"content-encoding": "gzip"}),
        App(b"data: {}\n", headers={"Content-Encoding": "br"}),
        App(b'{"error": {}}', kind="application/json", status=500),
        App(b"data: {}\n", status=202),
        App(b"hello", kind="text/plain"),
    ],
)
async def test_errors_other_types_and_what_is_compressed_pass(app: App) -> None:
    sent = await answer(app)
    assert sent[0] == {"type": "http.response.start", "status": app.status, "headers": app.headers}
    assert body_of(sent) == app.bodies[0]


async def test_a_json_answer_too_large_to_hold_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair_middleware, "MAX_BODY_BYTES", 20)
    before = json.dumps(response("completed", [RAW])).encode()
    for bodies in ([before], [before[:10], before[10:60], before[60:]]):
        app = App(*bodies, kind="application/json")
        sent = await answer(app)
        assert body_of(sent) == before
        assert sent[0]["headers"] == app.headers


async def test_a_file_that_is_sent_by_its_path_passes() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.pathsend", "path": "/some/file"})

    sent = await answer(app)
    assert [message["type"] for message in sent][-1] == "http.response.pathsend"
    assert sent[0]["type"] == "http.response.start"


async def test_an_application_that_fails_in_its_stream_fails_in_the_open() -> None:
    frames = [stream(event) for event in sunny()[:6]]
    app = App(*frames, failure=ValueError("a bug"), ends=False)
    sent: list[Message] = []
    with pytest.raises(ValueError, match="a bug"):
        await answer(_keeping(app, sent))
    assert events_of(b"".join(m["body"] for m in sent[1:]))[-1]["type"] == "response.failed"


def _keeping(app: App, sent: list[Message]) -> Any:
    """The middleware itself, with what it sends kept, for when it raises."""

    async def keeping(scope: Scope, receive: Receive, send: Send) -> None:
        async def both(message: Message) -> None:
            sent.append(message)
            await send(message)

        await ResponsesCompat(app)(scope, receive, both)

    return keeping


async def test_a_stream_that_is_cut_or_left_open_ends_with_a_failure() -> None:
    frames = [stream(event) for event in sunny()[:6]]
    for failure, words in ((BackendCut("It broke."), "It broke."), (None, "stopped")):
        sent = await answer(App(*frames, failure=failure, ends=False))
        last = events_of(body_of(sent))[-1]
        assert last["type"] == "response.failed"
        assert words in last["response"]["error"]["message"]
        assert last["sequence_number"] == 6


async def test_a_json_answer_that_is_cut_becomes_an_error() -> None:
    app = App(b'{"outp', kind="application/json", failure=BackendCut("It broke."), ends=False)
    sent = await answer(app)
    assert sent[0]["status"] == 502
    assert json.loads(body_of(sent))["error"] == {
        "code": "upstream_cut",
        "message": "It broke.",
        "type": "upstream_cut",
        "param": None,
    }


async def test_a_json_answer_whose_application_fails_is_left_to_the_server() -> None:
    app = App(b'{"outp', kind="application/json", failure=ValueError("a bug"), ends=False)
    with pytest.raises(ValueError, match="a bug"):
        await answer(app)


async def test_a_cut_of_anything_else_is_the_servers_to_show() -> None:
    app = App(b"hel", kind="text/plain", failure=BackendCut("It broke."), ends=False)
    with pytest.raises(BackendCut):
        await answer(app)


async def test_a_client_resumes_in_the_repaired_stream() -> None:
    body = (HERE / "agentscope-runtime-1.1.6.sse").read_bytes()
    app = App(body)
    whole = events_of(repaired(body))
    query = "stream=true&starting_after=7&include[]=a%20b&include[]=b&bare"
    sent = await answer(app, "/v1/responses/resp_1", "GET", query)
    assert app.scope["query_string"] == b"stream=true&include[]=a%20b&include[]=b&bare"
    assert events_of(body_of(sent)) == [e for e in whole if e["sequence_number"] > 7]


@pytest.mark.parametrize("after", ["", "-1", "x", "٣", "1" * 30])
async def test_an_invalid_cursor_is_passed_to_the_application(after: str) -> None:
    from urllib.parse import quote

    app = App(stream(*sunny()))
    query = f"stream=true&starting_after={quote(after)}"
    await answer(app, "/v1/responses/resp_1", "GET", query)
    assert app.scope["query_string"] == query.encode()


async def test_other_scopes_pass() -> None:
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    await ResponsesCompat(app)({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert seen == ["lifespan"]
