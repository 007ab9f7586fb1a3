"""The routes: our own API, OpenAI's Responses, and the Vercel AI SDK's chat."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import UNSET
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tailrace.core.errors import NotFound, UnknownFormat
from tailrace.core.fold import State
from tailrace.core.ids import check_id
from tailrace.core.pieces import encoded
from tailrace.core.view import client_view
from tailrace.runtime.building import LARGE_BYTES, Parts, build
from tailrace.runtime.retry import within
from tailrace.runtime.runs import Runs
from tailrace.runtime.task import runs_of_item
from tailrace.server import fields
from tailrace.server.body import read_json
from tailrace.server.door import (
    LOOPBACK,
    Door,
    answering,
    error_response,
    json_response,
    truthy,
)
from tailrace.server.response import Answer, Connections, EventStream
from tailrace.server.stream import RunStream
from tailrace.server.thread import ThreadStream, read_place
from tailrace.wire import openai_responses, vercel_ui
from tailrace.wire.base import Format, ThreadFormat

CHAT_GRACE_SECONDS = 300.0
"""How long after its end a chat's answer is replayed to a client that lost its connection."""

THREAD_FORMAT = "run"
_RUN_LIKE = re.compile(r"(resp_)?run[_-]", re.IGNORECASE)
"""Ids that are meant as a run's. Any other unknown id may be a thread's before its first run."""
"""How a thread is told to a client that names no format: an EventSource with named events."""


class Server:
    """The HTTP face of some runs."""

    def __init__(
        self,
        runs: Runs,
        formats: Mapping[str, Format],
        hosts: frozenset[str] = LOOPBACK,
        origins: frozenset[str] = frozenset(),
    ) -> None:
        self.runs = runs
        self.formats = formats
        self.connections = Connections()
        routes = [
            Route("/", answering(self.index), methods=["GET"]),
            Route("/health", answering(self.health), methods=["GET"]),
            Route("/ready", answering(self.ready), methods=["GET"]),
            Route("/agents", answering(self.agents), methods=["GET"]),
            Route("/runs", answering(self.start), methods=["POST"]),
            Route("/runs/{run_id}", answering(self.show), methods=["GET"]),
            Route("/runs/{run_id}/events", answering(self.events), methods=["GET"]),
            Route("/threads/{thread_id}/events", answering(self.thread), methods=["GET"]),
            Route("/runs/{run_id}/cancel", answering(self.cancel), methods=["POST"]),
            Route("/runs/{run_id}/input", answering(self.input), methods=["POST"]),
            Route("/v1/responses", answering(self.create_response), methods=["POST"]),
            Route("/v1/responses/{response_id}", answering(self.get_response), methods=["GET"]),
            Route(
                "/v1/responses/{response_id}/cancel",
                answering(self.cancel_response),
                methods=["POST"],
            ),
            Route("/api/chat", answering(self.chat), methods=["POST"]),
            Route("/api/chat/{chat_id}/stream", answering(self.resume_chat), methods=["GET"]),
        ]
        app = Starlette(
            routes=routes,
            exception_handlers={404: _no_route, 405: _no_route, 500: _our_fault},
        )
        self.app = Door(app, hosts, origins=origins)

    # --- our own API ---------------------------------------------------------------------------

    async def index(self, _request: Request) -> Response:
        """What there is, for whoever opens the address in a browser."""
        lines = [
            "Tailrace is running.",
            "",
            "GET  /health, /ready               does it answer; can it work",
            "GET  /agents                       the agents",
            'POST /runs {"agent": …, "input": …}  start a run',
            "GET  /runs/{id}                    the run as one object",
            "GET  /runs/{id}/events             the run as server-sent events",
            "GET  /threads/{id}/events          all its runs, those to come as well",
            f"     ?format={' | '.join(self.formats)}",
            "     ?after=CURSOR (or Last-Event-ID)  go on after an event",
            "     ?snapshot=true                the state so far, then the rest",
            "POST /runs/{id}/cancel             stop it",
            "POST /runs/{id}/input {…}          hand it an answer",
            "POST /v1/responses, GET /v1/responses/{id}, POST …/cancel   for OpenAI clients",
            "POST /api/chat, GET /api/chat/{id}/stream       for the Vercel AI SDK",
        ]
        return PlainTextResponse("\n".join(lines) + "\n")

    async def health(self, _request: Request) -> Response:
        """Liveness: the process answers, whatever the store does."""
        return json_response({"status": "ok"})

    async def ready(self, _request: Request) -> Response:
        """Readiness: runs are accepted, and the store can be read and written.

        A bus that is away costs only time.
        """
        checks = {"store": self.runs.store.check(), "bus": self.runs.bus.check()}
        found = await asyncio.gather(*checks.values(), return_exceptions=True)
        states = ["ok" if failure is None else "away" for failure in found]
        ready = found[0] is None and self.runs.accepts_runs
        body = {
            "status": "ready" if ready else "not_ready",
            **dict(zip(checks, states, strict=True)),
        }
        response = json_response(body, 200 if ready else 503)
        if not ready:
            response.headers["retry-after"] = "1"
        return response

    async def agents(self, _request: Request) -> Response:
        """The names that a run can be started with."""
        return json_response({"agents": sorted(self.runs.agents)})

    async def start(self, request: Request) -> Response:
        """Begin a run."""
        body = await read_json(request)
        agent = fields.text(body, "agent", "name one of GET /agents")
        previous = fields.optional_id(body, "previous_run_id")
        run_id = await self.runs.start(
            agent,
            body.get("input"),
            thread_id=fields.optional_id(body, "thread_id"),
            previous_run_id=previous if "previous_run_id" in body else UNSET,
            metadata=fields.optional(body, "metadata", dict),
            forget=fields.optional(body, "store", bool) is False,
        )
        here = f"{request.scope.get('root_path', '')}/runs/{run_id}"
        answer = json_response({"run_id": run_id, "events": f"{here}/events"}, 201)
        answer.headers["location"] = here
        return answer

    async def show(self, request: Request) -> object:
        """The run as its clients may see it, so far or at the end."""
        return await self._object(request.path_params["run_id"], client_view)

    async def _object(self, run_id: str, view: Callable[[State], dict[str, Any]]) -> object:
        """The run as one object. A large one is encoded once for all who ask at the same time."""
        look = await self.runs.reader.look(run_id)
        if look.weight <= LARGE_BYTES:
            return json_response(view(look.state))
        key = (run_id, view.__name__, look.state.sequence_number)
        make = partial(build, look.weight, lambda: Parts(encoded(view(look.state))))
        return Answer(await self.runs.streams.answers.get(key, make))

    async def events(self, request: Request) -> object:
        """The run as a stream, in any format; or the thread, if that is whose id it is."""
        run_id = request.path_params["run_id"]
        text = _cursor_text(request)
        look = None
        if not text and truthy(request.query_params.get("snapshot", "")):
            # All that there is to be read is read at once.
            with suppress(NotFound):
                look = await self.runs.reader.look(run_id)
        info = look.info if look is not None else await self.runs.store.info(run_id)
        if info is None:
            return await self._thread(request, run_id, needs_run=bool(_RUN_LIKE.match(run_id)))
        name = request.query_params.get("format", "task")
        wire = self.formats.get(name)
        if wire is None:
            raise UnknownFormat(f"There is no format {name!r}; use {', '.join(self.formats)}.")
        cursor = wire.cursor(text) if text else None
        source = RunStream(self.runs, wire, run_id, cursor, snapshot=look is not None, look=look)
        if await source.is_finished():
            return Response(status_code=204)
        return self.connections.answer(source)

    async def thread(self, request: Request) -> object:
        """All runs of a thread, one after another, also those to come."""
        return await self._thread(request, request.path_params["thread_id"])

    async def _thread(self, request: Request, thread_id: str, *, needs_run: bool = False) -> object:
        """The stream of a thread; with `needs_run` a thread without runs is not found."""
        # Asked in any case: a store that is away is a 503, not a stream in which nothing comes.
        last = await self.runs.store.last_ordinal(thread_id)
        if needs_run and not last:
            raise NotFound(
                f"There is no run or thread {thread_id}. To wait for the first run of a thread, "
                f"use /threads/{thread_id}/events."
            )
        name = request.query_params.get("format", THREAD_FORMAT)
        wire = self.formats.get(name)
        if not isinstance(wire, ThreadFormat):
            known = [one.name for one in self.formats.values() if isinstance(one, ThreadFormat)]
            raise UnknownFormat(f"A thread is not told as {name!r}; use {' or '.join(known)}.")
        text = _cursor_text(request)
        place = read_place(wire, text) if text else None
        snapshot = truthy(request.query_params.get("snapshot", ""))
        source = ThreadStream(self.runs, wire, thread_id, place, snapshot=snapshot)
        return self.connections.answer(source)

    def _stream(self, wire: Format, run_id: str, *, snapshot: bool = False) -> EventStream:
        return self.connections.answer(RunStream(self.runs, wire, run_id, snapshot=snapshot))

    async def cancel(self, request: Request) -> object:
        """Stop a run; a second time changes nothing."""
        run_id = request.path_params["run_id"]
        await self.runs.info(run_id)
        await self.runs.cancel(run_id)
        return await self._object(run_id, client_view)

    async def input(self, request: Request) -> Response:
        """Hand something to a run; 202 once it is durable, its agent reads it when it asks."""
        await self.runs.send(request.path_params["run_id"], await read_json(request))
        return json_response({"status": "accepted"}, 202)

    # --- OpenAI Responses ----------------------------------------------------------------------

    async def create_response(self, request: Request) -> object:
        """One POST is one run; `model` names the agent."""
        body = await read_json(request)
        model = fields.text(body, "model", "name one of GET /agents")
        asked = fields.response_input(body)
        stream = fields.optional(body, "stream", bool)
        previous = fields.optional_id(body, "previous_response_id")
        run_id = await self.runs.start(
            model,
            await self._resolved(asked),
            previous_run_id=_run_id_of(previous) if previous is not None else None,
            options=fields.response_options(body),
            metadata=fields.response_metadata(body),
            forget=body.get("store") is False,
        )
        if stream:
            return self._stream(openai_responses.FORMAT, run_id)
        if body.get("background") is not True:
            with within(None):  # the run may take as long as it likes
                async for _ in self.runs.follow(run_id):
                    pass
        return await self._object(run_id, openai_responses.response_object)

    async def _resolved(self, given: Any) -> Any:
        """An input with the items that it names by id. An item's id contains its run's.

        They are stored with the run, so agents read them, and deleting the other run loses nothing.
        """
        items: dict[str, Any] = {}
        for ident in openai_responses.references(given):
            if ident not in items:
                for run_id in runs_of_item(openai_responses.own_id(ident)):
                    if await self.runs.exists(run_id):
                        state = await self.runs.state(run_id)
                        output = openai_responses.response_object(state)["output"]
                        items |= {item["id"]: item for item in output}
            if ident not in items:
                raise NotFound(f"Item {ident[:80]} is not stored here. Send the item itself.")
        return openai_responses.resolved(given, items)

    async def get_response(self, request: Request) -> object:
        """A response, whole; or its stream, from the start or after a `sequence_number`."""
        run_id = _run_id_of(request.path_params["response_id"])
        await self.runs.info(run_id)
        if not truthy(request.query_params.get("stream", "")):
            return await self._object(run_id, openai_responses.response_object)
        wire = openai_responses.FORMAT
        text = request.query_params.get("starting_after")
        source = RunStream(self.runs, wire, run_id, wire.cursor(text) if text else None)
        await source.is_finished()  # refuses a number that was never sent
        return self.connections.answer(source)

    async def cancel_response(self, request: Request) -> object:
        """Stop a response; a second time changes nothing."""
        run_id = _run_id_of(request.path_params["response_id"])
        await self.runs.info(run_id)
        await self.runs.cancel(run_id)
        return await self._object(run_id, openai_responses.response_object)

    # --- Vercel AI SDK -------------------------------------------------------------------------

    async def chat(self, request: Request) -> object:
        """What `useChat` sends: the chat's id is the thread, its new message the input."""
        body = await read_json(request)
        chat_id = check_id(fields.text(body, "id", "send the chat's id"), "id")
        messages = fields.chat_messages(body)
        agent = fields.optional(body, "agent", str) or next(iter(self.runs.agents), "")
        previous, new = await self._continued(messages)
        run_id = await self.runs.start(
            agent,
            new[0] if len(new) == 1 else new,
            thread_id=chat_id,
            previous_run_id=previous,
        )
        return self._stream(vercel_ui.FORMAT, run_id)

    async def _continued(self, messages: list[Any]) -> tuple[str | None, list[Any]]:
        """The run that a chat continues, and the messages that the log does not have.

        A chat sends its whole conversation, cut off where it regenerates or edits a message. Its
        last message of the assistant names the run. A page that carried out a tool sends that
        message itself, with the output.
        """
        for index in range(len(messages) - 1, -1, -1):
            run_id = vercel_ui.run_of(messages[index])
            if run_id is not None and await self.runs.exists(run_id):
                return run_id, messages[index + 1 :] or messages[index:]
        return None, messages

    async def resume_chat(self, request: Request) -> object:
        """The chat's last answer from its first chunk, or 204 when there is nothing to resume."""
        found = await self.runs.latest(request.path_params["chat_id"])
        if found is None or _is_over(found.ended_at):
            return Response(status_code=204)
        return self._stream(vercel_ui.FORMAT, found.run_id, snapshot=True)


def _run_id_of(response_id: str) -> str:
    """The run behind a response's id: our run ids get the prefix that OpenAI's clients expect."""
    return response_id.removeprefix("resp_")


def _cursor_text(request: Request) -> str | None:
    return request.headers.get("last-event-id") or request.query_params.get("after")


def _is_over(ended_at: float | None) -> bool:
    return ended_at is not None and time.time() - ended_at > CHAT_GRACE_SECONDS


async def _no_route(request: Request, error: Any) -> Response:
    if error.status_code == 405:
        allowed = error.headers["Allow"]
        message = f"This path does not take {request.method}; use {allowed}."
        answer = error_response(405, "method_not_allowed", message)
        answer.headers["allow"] = allowed
        return answer
    return error_response(404, NotFound.code, f"There is nothing at {request.url.path}.")


async def _our_fault(_request: Request, _error: Any) -> Response:
    return error_response(500, "internal", "The server made a mistake; its log says which.")
