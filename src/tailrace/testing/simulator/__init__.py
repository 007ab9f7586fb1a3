"""A strict model provider over real HTTP, to test any client without an API key.

    async with Simulator([think("Hm."), say("Hello")]) as provider:
        client = AsyncOpenAI(base_url=provider.openai_url, api_key="any")
        client = AsyncAnthropic(base_url=provider.url, api_key="any")

It speaks OpenAI's Responses API, chat completions and Anthropic's Messages API, streamed or not.
Each request is checked by `tailrace.testing.provider_rules` and refused in the provider's words;
what was issued (ids, signatures, sealed reasoning, stored responses) is remembered. Answers
are scripts (`tailrace.models.scripted.script`), taken in order, or recorded
(`RecordedAnswer.read`, `recorded_calls`); they may fail, break off inside a character, or go
silent.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Self

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tailrace.core.values import Json
from tailrace.models.scripted.anthropic_messages import ERRORS, PlayedMessages
from tailrace.models.scripted.openai_chat import PlayedChat
from tailrace.models.scripted.openai_responses import PlayedResponses
from tailrace.models.scripted.script import (
    Fail,
    InvalidScript,
    Script,
    checked,
    opening_failure,
)
from tailrace.testing.provider_rules import (
    ErrorBody,
    Issued,
    check_anthropic_messages,
    check_openai_chat,
    check_openai_responses,
    openai_fields,
)
from tailrace.testing.provider_rules.anthropic_messages import fields as anthropic_fields
from tailrace.testing.provider_rules.openai_errors import RequestError
from tailrace.testing.simulator.answers import (
    AnswerStreams,
    RecordedAnswer,
    StreamedResponse,
    WholeResponse,
    recorded_calls,
    whole_completion,
    whole_message,
    whole_response,
)

__all__ = ["RecordedAnswer", "Simulator", "recorded_calls"]

SimulatedAnswer = Script | RecordedAnswer


class Simulator:
    """A provider on a free local port, until the block ends.

    `answers` are lists of steps, taken in order; the last list is repeated. They may also be a
    function of the answer's number, from 0, that returns a list. Only `key` is accepted as a key.
    """

    def __init__(
        self, *answers: SimulatedAnswer | Callable[[int], SimulatedAnswer], key: str | None = None
    ) -> None:
        self.requests: list[Json] = []
        """The bodies of all requests, also of refused requests."""
        self.refusals: list[ErrorBody] = []
        """The errors that were answered because a request broke a rule."""
        self.issued = Issued()
        """What the provider remembers of what it sent."""
        if not answers:
            raise InvalidScript("There is no answer: write Simulator([say('Hello')]).")
        for number, answer in enumerate(answers, 1):
            if not callable(answer) and not isinstance(answer, RecordedAnswer):
                checked(answer, f"Answer {number}")
        self._answers = answers
        self._key = key
        self._given = 0
        self._closing = asyncio.Event()

    # --- the server ----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        routes = [
            Route("/v1/responses", self._guarded(self._responses), methods=["POST"]),
            Route("/v1/chat/completions", self._guarded(self._chat), methods=["POST"]),
            Route("/v1/messages", self._guarded(self._messages, anthropic=True), methods=["POST"]),
        ]
        app = Starlette(routes=routes, exception_handlers={HTTPException: _not_found})
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="critical",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen()  # connections are queued from here on
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

    def _responses(self, body: Json) -> Response:
        refusal = _openai(openai_fields.responses_errors(body))
        if refused := self._refused(refusal or check_openai_responses(body, self.issued)):
            return refused
        store = body.get("store") is not False

        def remember(response: Json) -> None:
            output = response.get("output") or []
            self.issued.openai_response(str(response.get("id")), output, store=store)

        def note(response: Json) -> None:
            self.issued.openai_response("", response.get("output") or [], store=False)

        def play(name: str, script: Script) -> PlayedResponses:
            sealed = "reasoning.encrypted_content" in (body.get("include") or ())
            size = _size(body["input"])
            return PlayedResponses(
                name, script, model=body["model"], sealed=sealed, input_tokens=size
            )

        return self._answer(body, play, whole_response, remember, note)

    def _chat(self, body: Json) -> Response:
        refusal = _openai(openai_fields.chat_errors(body))
        if refused := self._refused(refusal or check_openai_chat(body, self.issued)):
            return refused

        def remember(completion: Json) -> None:
            self.issued.chat_message(completion["choices"][0]["message"])

        def play(name: str, script: Script) -> PlayedChat:
            size = _size(body["messages"])
            return PlayedChat(name, script, model=body["model"], input_tokens=size)

        return self._answer(body, play, whole_completion, remember)

    def _messages(self, body: Json) -> Response:
        refusal = None
        for reason in anthropic_fields.messages_errors(body):
            refusal = refusal or _anthropic(400, "invalid_request_error", reason)
        if refused := self._refused(refusal or check_anthropic_messages(body, self.issued)):
            return refused

        def remember(message: Json) -> None:
            self.issued.anthropic_message(message["content"])

        def play(name: str, script: Script) -> PlayedMessages:
            size = _size(body["messages"])
            return PlayedMessages(name, script, model=body["model"], input_tokens=size)

        return self._answer(body, play, whole_message, remember, anthropic=True)

    # --- what they share -----------------------------------------------------------------------

    def _guarded(
        self, answer: Callable[[Json], Response], *, anthropic: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """Check the key and the JSON of a request."""

        async def guarded(request: Request) -> Response:
            raw = await request.body()
            try:
                body = msgspec.json.decode(raw, type=dict[str, Any])
            except ValueError:
                body = None
            if body is not None:
                self.requests.append(body)
            if refused := self._refused(self._key_error(request, anthropic=anthropic)):
                return refused
            if body is None:
                refusal = _no_json(anthropic=anthropic)
                return JSONResponse(refusal.body, refusal.status)
            return answer(body)

        return guarded

    def _key_error(self, request: Request, *, anthropic: bool) -> ErrorBody | None:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = bearer or (request.headers.get("x-api-key", "") if anthropic else "")
        if given and self._key in (None, given):
            if anthropic and "anthropic-version" not in request.headers:
                reason = "anthropic-version: header is required"
                return _anthropic(400, "invalid_request_error", reason)
            return None
        if anthropic:
            reason = "x-api-key header is required" if not given else "invalid x-api-key"
            return _anthropic(401, "authentication_error", reason)
        if not given:
            reason = (
                "You didn't provide an API key. You need to provide your API key in an "
                "Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."
            )
            return _error(401, reason)
        # OpenAI quotes the key, masked; not every server that speaks its API masks it.
        reason = (
            f"Incorrect API key provided: {given}. You can find your API key at "
            "https://platform.openai.com/account/api-keys."
        )
        return _error(401, reason, code="invalid_api_key")

    def _refused(self, error: ErrorBody | None) -> Response | None:
        if error is None:
            return None
        self.refusals.append(error)
        return JSONResponse(error.body, error.status)

    def _answer(
        self,
        body: Json,
        play: Callable[[str, Script], AnswerStreams],
        whole: Callable[[tuple[str, ...]], Json],
        remember: Callable[[Json], None],
        note: Callable[[Json], None] = lambda _: None,
        *,
        anthropic: bool = False,
    ) -> Response:
        """Send the next answer from its script or recording, streamed or whole."""
        number = self._given
        self._given += 1
        found = self._answers[min(number, len(self._answers) - 1)]
        answer = found(number) if callable(found) else found
        failure = _opening(answer)
        if failure is not None:
            return _failure(failure, anthropic=anthropic)
        if isinstance(answer, RecordedAnswer):
            if body.get("stream"):
                keep = lambda: remember(whole(answer.events))  # noqa: E731
                return StreamedResponse(answer.frames(), self._closing, keep)
            remember(made := whole(answer.events))
            script = [answer.end] if answer.end else []
            return WholeResponse(script, made, self._closing)
        streams = play(f"sim{number}", answer)
        if body.get("stream"):
            return StreamedResponse(
                streams.frames(),
                self._closing,
                lambda: remember(streams.object()),
                lambda: note(streams.object()),
            )
        for _ in streams.frames():
            pass
        for step in answer:
            if isinstance(step, Fail):  # half of an answer is not an answer
                return _failure(step, anthropic=anthropic)
        remember(streams.object())
        return WholeResponse(answer, streams.object(), self._closing)


def _opening(answer: SimulatedAnswer) -> Fail | None:
    if isinstance(answer, RecordedAnswer):
        return answer.end if isinstance(answer.end, Fail) else None
    return opening_failure(answer)


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value)) // 4


# --- errors, in the providers' words -----------------------------------------------------------


def _openai(errors: Iterator[RequestError]) -> ErrorBody | None:
    for found in errors:
        return _error(found.status, found.message, param=found.param, code=found.code)
    return None


def _error(
    status: int, message: str, *, param: str | None = None, code: str | None = None
) -> ErrorBody:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return ErrorBody(status=status, body={"error": error})


def _anthropic(status: int, kind: str, message: str) -> ErrorBody:
    error = {"type": kind, "message": message}
    return ErrorBody(status=status, body={"type": "error", "error": error})


def _no_json(*, anthropic: bool) -> ErrorBody:
    if anthropic:
        return _anthropic(400, "invalid_request_error", "The request body is not valid JSON")
    reason = (
        "We could not parse the JSON body of your request. (HINT: This likely means you aren't "
        "using your HTTP library correctly. The OpenAI API expects a JSON payload, but what was "
        "sent was not valid JSON.)"
    )
    return _error(400, reason)


async def _not_found(request: Request, error: Exception) -> Response:
    """Answer an unknown path or method."""
    assert isinstance(error, HTTPException)
    status, path = error.status_code, request.url.path
    if "x-api-key" in request.headers or "anthropic-version" in request.headers:
        kind = "not_found_error" if status == 404 else "invalid_request_error"
        found = _anthropic(status, kind, error.detail)
    elif status == 404:
        found = _error(404, f"Invalid URL ({request.method} {path})")
    else:
        reason = f"Not allowed to {request.method} on {path}."
        found = _error(status, reason, code="method_not_supported")
    return JSONResponse(found.body, status, error.headers)


def _failure(step: Fail, *, anthropic: bool) -> Response:
    headers = {} if step.retry_after is None else {"retry-after": step.retry_after}
    if anthropic:
        found = _anthropic(step.status, ERRORS.get(step.code, step.code), step.message)
        return JSONResponse(found.body, step.status, headers)
    error = {"message": step.message, "type": step.code, "param": None, "code": step.code}
    return JSONResponse({"error": error}, step.status, headers)
