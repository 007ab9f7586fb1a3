"""A strict provider of models, over real HTTP: for tests without a key, of any client.

    async with Simulator([think("Hm."), say("Hello")]) as provider:
        client = AsyncOpenAI(base_url=provider.openai_url, api_key="any")

It speaks OpenAI's Responses API, chat completions and Anthropic's Messages API. Each request is
checked by the providers' rules (`tailrace.testing.providers`) and refused in their words; what was
issued (ids, signatures, sealed reasoning, stored responses) is remembered. Answers are scripts
(`tailrace.runtime.scripts`), taken one after the other, or recorded events; they may fail, break
off inside of a character, or go silent.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, Self

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tailrace.core import sse
from tailrace.runtime.scripts import Fail, Frame, Script, opening_failure
from tailrace.runtime.scripts.chat import Chat
from tailrace.runtime.scripts.messages import ERRORS, Messages
from tailrace.runtime.scripts.responses import Responses
from tailrace.testing import _rules_fields as fields
from tailrace.testing.providers import (
    ErrorBody,
    Issued,
    check_anthropic_messages,
    check_openai_chat,
    check_openai_responses,
)

Json = dict[str, Any]


class Recorded(msgspec.Struct, frozen=True):
    """An answer that a real provider gave: the JSON of its events."""

    events: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Recorded:
        """From a file with one event a line."""
        lines = path.read_text(encoding="utf-8").split("\n")
        return cls(tuple(line for line in lines if line.strip()))

    def frames(self) -> Iterator[Frame]:
        """The events under their names."""
        for event in self.events:
            yield Frame(event, str(msgspec.json.decode(event).get("type", "")) or None)


Answer = Script | Recorded


class _Streams(Protocol):
    def frames(self) -> Iterator[Frame]: ...

    def object(self) -> Json: ...


class Simulator:
    """One provider on a free port of this machine, for as long as the block lasts.

    `answers` are lists of steps, taken one after the other, the last one again and again; or one
    function from the number of the answer, from 0, to such a list. `key`: the only one accepted.
    """

    def __init__(self, *answers: Answer | Callable[[int], Answer], key: str | None = None) -> None:
        self.requests: list[Json] = []
        """The bodies that came, refused ones too."""
        self.refusals: list[ErrorBody] = []
        """The errors that were answered because a request broke a rule."""
        self.issued = Issued()
        """What the provider remembers of what it sent."""
        self._answers = answers
        self._key = key
        self._given = 0
        self._closing = asyncio.Event()

    # --- the server ----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        routes = [
            Route("/v1/responses", self._responses, methods=["POST"]),
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/messages", self._messages, methods=["POST"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes),
            log_config=None,
            log_level="critical",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen()  # from here on who connects is served, if only a moment later
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        """Where it is; Anthropic's `base_url`."""
        self._server = uvicorn.Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listening]))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing.set()
        self._server.should_exit = True
        await self._serving

    @property
    def openai_url(self) -> str:
        """OpenAI's `base_url`."""
        return f"{self.url}/v1"

    # --- the three APIs ------------------------------------------------------------------------

    async def _responses(self, request: Request) -> Response:
        body = await self._read(request)
        refusal = self._locked(request) or _first_openai(fields.responses_errors(body))
        if refused := self._refused(refusal or check_openai_responses(body, self.issued)):
            return refused
        turn = self._next(anthropic=False)
        if not isinstance(turn, tuple):
            return turn
        name, script = turn
        sealed = "reasoning.encrypted_content" in (body.get("include") or ())
        made = Responses(
            name, script, model=body["model"], sealed=sealed, input_tokens=_size(body["input"])
        )
        store = body.get("store") is not False

        def remember() -> None:
            self.issued.openai_response(made.id, made.output, store=store)

        return self._reply(body, made, remember)

    async def _chat(self, request: Request) -> Response:
        body = await self._read(request)
        refusal = self._locked(request) or _first_openai(fields.chat_errors(body))
        if refused := self._refused(refusal or check_openai_chat(body, self.issued)):
            return refused
        turn = self._next(anthropic=False)
        if not isinstance(turn, tuple):
            return turn
        name, script = turn
        size = _size(body["messages"])
        made = Chat(name, script, model=body["model"], input_tokens=size)
        return self._reply(body, made, lambda: self.issued.chat_message(made.message))

    async def _messages(self, request: Request) -> Response:
        body = await self._read(request)
        refusal = self._locked(request, anthropic=True)
        for said in fields.messages_errors(body):
            refusal = refusal or _anthropic(400, "invalid_request_error", said)
        if refused := self._refused(refusal or check_anthropic_messages(body, self.issued)):
            return refused
        turn = self._next(anthropic=True)
        if not isinstance(turn, tuple):
            return turn
        name, script = turn
        size = _size(body["messages"])
        made = Messages(name, script, model=body["model"], input_tokens=size)
        return self._reply(body, made, lambda: self.issued.anthropic_message(made.content))

    # --- what they share -----------------------------------------------------------------------

    async def _read(self, request: Request) -> Json:
        body: Json = msgspec.json.decode(await request.body(), type=dict[str, Any])
        self.requests.append(body)
        return body

    def _locked(self, request: Request, *, anthropic: bool = False) -> ErrorBody | None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = given or request.headers.get("x-api-key", "")
        if given and self._key in (None, given):
            return None
        if anthropic:
            return _anthropic(401, "authentication_error", f"invalid bearer token {given}")
        # OpenAI quotes the key, masked; not every server that speaks its API masks it.
        error = {
            "message": f"Incorrect API key provided: {given}. You can find your API key at "
            "https://platform.openai.com/account/api-keys.",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_api_key",
        }
        return ErrorBody(status=401, body={"error": error})

    def _refused(self, error: ErrorBody | None) -> Response | None:
        if error is None:
            return None
        self.refusals.append(error)
        return JSONResponse(error.body, error.status)

    def _next(self, *, anthropic: bool) -> Response | tuple[str, Script]:
        """A script to play under a name; or what needs none: a recording, an error at once."""
        number = self._given
        self._given += 1
        found = self._answers[min(number, len(self._answers) - 1)]
        answer = found(number) if callable(found) else found
        if isinstance(answer, Recorded):
            return _Streaming(answer.frames(), self._closing)
        failure = opening_failure(answer)
        return _failure(failure, anthropic=anthropic) if failure else (f"sim{number}", answer)

    def _reply(self, body: Json, made: _Streams, remember: Callable[[], None]) -> Response:
        if body.get("stream"):
            return _Streaming(made.frames(), self._closing, remember)
        for _ in made.frames():
            pass
        remember()
        return JSONResponse(made.object())


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value)) // 4


def _first_openai(errors: Iterator[Any]) -> ErrorBody | None:
    for found in errors:
        error = {
            "message": found.message,
            "type": "invalid_request_error",
            "param": found.param,
            "code": found.code,
        }
        return ErrorBody(status=found.status, body={"error": error})
    return None


def _anthropic(status: int, kind: str, message: str) -> ErrorBody:
    error = {"type": kind, "message": message}
    return ErrorBody(status=status, body={"type": "error", "error": error})


def _failure(step: Fail, *, anthropic: bool) -> Response:
    headers = {} if step.retry_after is None else {"retry-after": step.retry_after}
    if anthropic:
        found = _anthropic(step.status, ERRORS.get(step.code, step.code), step.message)
        return JSONResponse(found.body, step.status, headers)
    error = {"message": step.message, "type": step.code, "param": None, "code": step.code}
    return JSONResponse({"error": error}, step.status, headers)


class _Streaming(Response):
    """Frames as server-sent events, each in its time; it may break off anywhere."""

    def __init__(
        self,
        frames: Iterator[Frame],
        closing: asyncio.Event,
        remember: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self._frames = frames
        self._closing = closing
        self._remember = remember

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async for chunk in self._chunks():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if not self._is_cut:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(self) -> AsyncIterator[bytes]:
        self._is_cut = False
        for frame in self._frames:
            # What was sent is known from then on, however the client fares with it.
            self._is_cut = frame.cut is not None
            if frame.after is None:
                self._remember()
                await self._closing.wait()
                return
            if frame.after:
                await asyncio.sleep(frame.after)
            if not frame.data:
                continue
            whole = sse.frame(frame.data.encode(), event=frame.event)
            if frame.cut is None:
                yield whole
            else:
                yield _part(whole, frame.cut)
        self._remember()


def _part(whole: bytes, where: str) -> bytes:
    if where == "event":
        return b""
    if where == "json":
        return whole[: len(whole) // 2]
    at = whole.rindex("é".encode())
    return whole[: at + 1]  # the first of its two bytes
