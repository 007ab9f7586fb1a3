"""Our own API: agents, runs, threads and blobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import unquote

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tailrace.core.errors import CallerError, NotFound, UnknownFormat
from tailrace.core.ids import check_id
from tailrace.core.json_pieces import entry_pieces
from tailrace.core.run_object import client_view
from tailrace.core.tool_output import OCTETS
from tailrace.core.values import quoted
from tailrace.history.content import PICTURES
from tailrace.ports import RunInfo
from tailrace.runtime.agents.descriptions import agent_info
from tailrace.runtime.event_log.offload import LARGE_BYTES, SharedBytes, build
from tailrace.runtime.followers.tail import run_not_found
from tailrace.runtime.runs.new_run import RUN_PREFIX
from tailrace.server import request_fields
from tailrace.server.access.admission import admitted
from tailrace.server.access.guard import json_response
from tailrace.server.access.tickets import TICKET_SECONDS, Tickets
from tailrace.server.apis.base import HttpApi
from tailrace.server.openapi import schemas
from tailrace.server.openapi.document import EVENTS, FLAG, OBJECT, operation
from tailrace.server.request_body import read_json
from tailrace.server.streams.large_json import LargeJsonResponse
from tailrace.server.streams.resume_point import naming, read_thread_cursor, resume_point
from tailrace.server.streams.run_stream import RunStream
from tailrace.server.streams.sse_response import SseResponse
from tailrace.server.streams.thread_stream import ThreadStream
from tailrace.server.threads import PAGE_RUNS, ThreadList, conversation, thread_not_found
from tailrace.wire.base import Format, ShowsThreads, ThreadFormat
from tailrace.wire.formats import format_named

_SHA256 = re.compile(r"[0-9a-f]{64}")
_STREAM_PATH = re.compile(r"/(runs|threads)/[^/]+/events")
_MIME_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)


THREAD_FORMAT = "run"
"""The format of a thread's stream if the client names none: an EventSource with named events."""


def _with_a_mistake(text: str) -> Iterator[str]:
    """Patterns of a text with a character left out, changed or added, or two swapped."""
    for at, character in enumerate(text):
        before, after = text[:at], text[at + 1 :]
        yield f"{before}.?{after}"
        yield f"{before}.{character}{after}"
        yield f"{before}{after[:1]}{character}{after[1:]}"


_MISTYPED = "|".join(_with_a_mistake(RUN_PREFIX))
_RUN_LIKE = re.compile(rf"(resp_)?(run[_-]|({_MISTYPED})[0-9a-f]{{15}})", re.IGNORECASE)
"""Ids that are meant as a run's: the prefix, or with one mistake, before the random part.

Any other unknown id may be a thread's before its first run.
"""


STREAM_QUERY = {
    "format": {"type": "string", "description": "A wire format."},
    "after": {"type": "string", "description": "A cursor: the id of the last event received."},
    "snapshot": {**FLAG, "description": "The state so far, then the later events."},
}
EVENT_NUMBER = {"type": "integer", "minimum": 1, "maximum": 10**15 - 1}
_COUNT = "[1-9][0-9]{0,14}"
_PLACE = rf"(0|{_COUNT})-(0|{_COUNT}(\.o?[1-9][0-9]{{0,3}})?)"
_IN_THREAD = rf"0:0|{_COUNT}:(0|{_PLACE})"
RUN_CURSOR = {**STREAM_QUERY["after"], "pattern": rf"^(0|{_COUNT}|{_PLACE}|{_IN_THREAD})?$"}
THREAD_CURSOR = {**STREAM_QUERY["after"], "pattern": rf"^(0|{_IN_THREAD})?$"}


class NativeApi(HttpApi):
    """Agents, blobs, and runs and threads in any wire format."""

    tickets: Tickets

    def routes(self) -> list[Route]:
        """The routes of PROTOCOL.md, section 13."""
        self._threads = ThreadList()
        return [
            Route("/agents", self.agents, methods=["GET"]),
            Route("/threads", self.threads, methods=["GET"]),
            Route("/threads/{thread_id}", self.thread_runs, methods=["GET"]),
            Route("/threads/{thread_id}", self.delete_thread, methods=["DELETE"]),
            Route("/threads/{thread_id}/runs", self.start_in_thread, methods=["POST"]),
            # Not `thread_id`: by that name, OpenAPI tools (schemathesis) expect a thread that
            # exists. This stream waits for the first run of a new thread.
            Route("/threads/{thread}/events", self.thread, methods=["GET"]),
            Route("/runs", self.start, methods=["POST"]),
            Route("/runs/{run_id}", self.show, methods=["GET"]),
            Route("/runs/{run_id}/events", self.events, methods=["GET"]),
            Route("/runs/{run_id}/cancel", self.cancel, methods=["POST"]),
            Route("/runs/{run_id}/input", self.input, methods=["POST"]),
            Route("/blobs/{sha256}", self.blob, methods=["GET"]),
            Route("/tickets", self.ticket, methods=["POST"]),
        ]

    @operation(answers={200: schemas.Agents})
    async def agents(self, _request: Request) -> Response:
        """The names of the agents, the formats, and what each agent does with which tools."""
        agents = self.runs.agents
        found = {
            "agents": sorted(agents),
            "formats": list(self.formats),
            "details": [agent_info(name, agents[name]) for name in sorted(agents)],
        }
        return json_response(found)

    @operation(
        query={
            "search": {
                "type": "string",
                "description": "Text in a run's input, agent, status or id, or the thread's id.",
            },
            "before": {"type": "string", "description": "`next` of the page before."},
            "limit": {"type": "integer", "minimum": 1, "maximum": PAGE_RUNS},
        },
        answers={200: schemas.Threads},
    )
    async def threads(self, request: Request) -> Response:
        """A page of threads, newest first; with `search`, the threads with a run that has it."""
        query = request.query_params
        before = query.get("before")
        if before is not None:
            await self.runs.info(before, "before")
        search = query.get("search", "").strip()
        limit = request_fields.limit(query, PAGE_RUNS, PAGE_RUNS)
        return json_response(await self._threads.threads(self.runs, before, search, limit))

    @operation(
        query={
            "format": {"type": "string", "description": "A wire format with a list of messages."}
        },
        answers={200: {"anyOf": [schemas.ThreadRuns, {"type": "array", "items": OBJECT}]}},
    )
    async def thread_runs(self, request: Request) -> ASGIApp:
        """The runs of a thread; with `?format=` its conversation as a client of the format has it.

        The conversation is the newest run, after the runs that it continues.
        """
        thread_id, name = request.path_params["thread_id"], request.query_params.get("format")
        if name is None:
            return json_response(await self._threads.thread(self.runs, thread_id))
        wire = self.formats.get(name)
        if not isinstance(wire, ShowsThreads):
            known = [wire.name for wire in self.formats.values() if isinstance(wire, ShowsThreads)]
            raise UnknownFormat(
                f"Format {name[:80]!r} has no list of messages; use {' or '.join(known)}.",
                param="format",
            )
        newest = await self.runs.latest(thread_id)
        if newest is None:
            raise thread_not_found(thread_id)
        chain, weight = await conversation(self.runs, newest)
        if weight <= LARGE_BYTES:
            return json_response(wire.messages(chain))
        make = partial(
            build, weight, lambda: SharedBytes([b"[", *entry_pieces(wire.messages(chain)), b"]"])
        )
        return LargeJsonResponse(await make())

    @operation(answers={200: schemas.Deleted})
    async def delete_thread(self, request: Request) -> Response:
        """Delete the runs of a thread. Runs that have not ended are cancelled first."""
        thread_id = request.path_params["thread_id"]
        found = 0
        while page := await self.runs.of_thread(thread_id):
            for info in page:
                with suppress(NotFound):
                    await self.runs.delete(info.run_id)
            found += len(page)
        if not found:
            raise thread_not_found(thread_id)
        return json_response({"thread_id": thread_id, "deleted": True})

    @operation(
        query={"format": STREAM_QUERY["format"]},
        body=schemas.START,
        answers={200: EVENTS, 201: schemas.Started},
        errors=(422, 423),
    )
    async def start(self, request: Request) -> ASGIApp:
        """Start a run; in a thread, if the path names it. With `stream` the run is streamed."""
        body = await read_json(request)
        in_thread = "thread_id" in request.path_params
        schema = schemas.ThreadRunRequest if in_thread else schemas.RunRequest
        request_fields.only(body, schema.__struct_fields__)
        wire = self._format(request)
        stream = request_fields.optional(body, "stream", bool)
        run = await self._started({**body, **request.path_params}, request, follows=bool(stream))
        here = f"{request.scope.get('root_path', '')}/runs/{run.run_id}"
        if stream:
            source = RunStream(self.runs, wire, run.run_id, about=run)
            return SseResponse(source, self.connections, {"location": here})
        started = {"run_id": run.run_id, "thread_id": run.thread_id, "events": f"{here}/events"}
        answer = json_response(started, 201)
        answer.headers["location"] = here
        return answer

    @operation(
        query={"format": STREAM_QUERY["format"]},
        body=schemas.START_IN_THREAD,
        answers={200: EVENTS, 201: schemas.Started},
        errors=(422, 423),
    )
    async def start_in_thread(self, request: Request) -> ASGIApp:
        """Start a run in a thread: it continues the thread's newest run."""
        return await self.start(request)

    async def _started(self, body: dict[str, Any], request: Request, *, follows: bool) -> RunInfo:
        """The run of a request: a new run, or the run that the same key has started."""
        agent = self.agent(body, "agent")
        previous = request_fields.optional_id(body, "previous_run_id")
        thread_id = request_fields.optional_id(body, "thread_id")
        return await self.started(
            request.headers.get("idempotency-key"),
            agent,
            body.get("input"),
            thread_id=thread_id,
            previous_run_id=previous if "previous_run_id" in body else UNSET,
            previous_seq=request_fields.optional(body, "previous_seq", int),
            options=request_fields.optional(body, "options", dict),
            metadata=request_fields.optional(body, "metadata", dict),
            forget=request_fields.optional(body, "store", bool) is False,
            follows=follows,
        )

    @operation(
        query={"at": {**EVENT_NUMBER, "description": "The number of an event."}},
        answers={200: schemas.RunView},
    )
    async def show(self, request: Request) -> ASGIApp:
        """The client's view of a run, now or with `?at=` after an earlier event."""
        run_id, text = request.path_params["run_id"], request.query_params.get("at")
        if text is None:
            return await self.object(run_id, client_view)
        info = await self.runs.info(run_id)
        seq = int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0
        if seq < 1:
            raise CallerError(
                f"`at` is {quoted(text)}; it must be from 1 to {info.last_seq}.", param="at"
            )
        if seq > info.last_seq:
            raise NotFound(
                f"Run {run_id} has no event {seq} yet; use 1 to {info.last_seq}.", param="at"
            )
        if not info.keeps(seq):
            raise NotFound(
                f"The events of run {run_id} are no longer kept; ask without `at`.", param="at"
            )
        look = await self.runs.look(run_id, seq)
        return json_response(client_view(look.state))

    @operation(
        query={**STREAM_QUERY, "after": RUN_CURSOR},
        headers={"Last-Event-ID": {**RUN_CURSOR, "description": "The same as `after`."}},
        answers={200: EVENTS, 204: None},
    )
    async def events(self, request: Request) -> ASGIApp:
        """The stream of a run in any format, or of the thread with this id."""
        run_id = request.path_params["run_id"]
        text = _cursor_text(request)
        snapshot = not text and request_fields.flag(request.query_params, "snapshot")
        info = await self.runs.find(run_id)
        if info is None:
            return await self._thread(request, run_id, needs_run=bool(_RUN_LIKE.match(run_id)))
        wire = self._format(request)
        with naming(_cursor_place(request), text, RUN_CURSOR["pattern"]):
            cursor = wire.cursor(text) if text else None
            point = await resume_point(self.runs, wire, run_id, cursor)
        if point is not None and point.is_end:
            return Response(status_code=204)
        source = RunStream(self.runs, wire, run_id, point, snapshot=snapshot, info=info)
        return SseResponse(source, self.connections)

    def _format(self, request: Request) -> Format:
        """The format of a run's stream."""
        name = request.query_params.get("format", "task")
        return format_named(self.formats, name, param="format")

    @operation(answers={200: {"*/*": {"type": "string", "format": "binary"}}, 304: None})
    async def blob(self, request: Request) -> Response:
        """A large output of a tool, by the hash of its bytes.

        Its type is the tool's word, so a browser must neither guess another nor run what is in it.
        """
        sha256 = request.path_params["sha256"]
        found = await self.runs.blob(sha256) if _SHA256.fullmatch(sha256) else None
        if found is None:
            raise NotFound(
                f"There is no blob {sha256[:80]}. Check its hash; "
                "a blob is deleted with its last run.",
                param="sha256",
            )
        data, mime_type = found
        kind = mime_type if _MIME_TYPE.fullmatch(mime_type) else OCTETS
        headers = {
            "content-type": kind + ("; charset=utf-8" if kind.startswith("text/") else ""),
            "content-disposition": "inline" if kind in PICTURES else "attachment",
            "content-security-policy": "default-src 'none'; sandbox",
            "x-content-type-options": "nosniff",
            "cache-control": "private, max-age=31536000, immutable",
            "etag": f'"{sha256}"',
        }
        if _has_tag(request.headers.get("if-none-match", ""), headers["etag"]):
            return Response(status_code=304, headers=headers)
        return Response(data, headers=headers)

    @operation(body=schemas.TicketRequest, answers={201: schemas.Ticket})
    async def ticket(self, request: Request) -> Response:
        """A ticket for one stream, because `EventSource` cannot send a key."""
        body = await read_json(request)
        request_fields.only(body, schemas.TicketRequest.__struct_fields__)
        asked = request_fields.text(body, "path", "name the stream, such as /runs/{id}/events")
        root = request.scope.get("root_path", "")
        path = unquote(asked.partition("?")[0]).removeprefix(root)
        if not _STREAM_PATH.fullmatch(path):
            raise request_fields.wrong("path", asked, "/runs/{id}/events or /threads/{id}/events")
        check_id(path.split("/")[2], "path")
        principal = admitted.get().principal
        if principal is None:
            raise NotFound(
                "This server has no keys, so its streams need no ticket. Open them without."
            )
        made = {"ticket": self.tickets.issue(principal, path), "expires_in": TICKET_SECONDS}
        response = json_response(made, 201)
        response.headers["cache-control"] = "no-store"
        return response

    @operation(
        query={**STREAM_QUERY, "after": THREAD_CURSOR},
        headers={"Last-Event-ID": {**THREAD_CURSOR, "description": "The same as `after`."}},
        answers={200: EVENTS},
    )
    async def thread(self, request: Request) -> ASGIApp:
        """The stream of a thread: its runs one after another, and later runs as they start."""
        return await self._thread(request, request.path_params["thread"])

    async def _thread(
        self, request: Request, thread_id: str, *, needs_run: bool = False
    ) -> ASGIApp:
        """The stream of a thread. With `needs_run` a thread without runs is not found."""
        # Read in any case: if the store is away, the answer is 503 and not an empty stream.
        newest = await self.runs.latest(thread_id)
        if needs_run and newest is None and not await self.runs.last_ordinal(thread_id):
            raise NotFound(
                f"There is no run or thread {thread_id}. To wait for the first run of a thread, "
                f"use /threads/{thread_id}/events.",
                param="run_id",
            )
        name = request.query_params.get("format", THREAD_FORMAT)
        wire = self.formats.get(name)
        if not isinstance(wire, ThreadFormat):
            if wire is not None and "run_id" in request.path_params:
                raise run_not_found(thread_id)
            known = [wire.name for wire in self.formats.values() if isinstance(wire, ThreadFormat)]
            use = " or ".join(known)
            raise UnknownFormat(
                f"Format {name[:80]!r} cannot stream a thread; use {use}.", param="format"
            )
        text = _cursor_text(request)
        pattern = (RUN_CURSOR if "run_id" in request.path_params else THREAD_CURSOR)["pattern"]
        with naming(_cursor_place(request), text, pattern):
            place = read_thread_cursor(wire, text) if text else None
        snapshot = request_fields.flag(request.query_params, "snapshot")
        source = ThreadStream(self.runs, wire, thread_id, place, newest=newest, snapshot=snapshot)
        return SseResponse(source, self.connections)

    @operation(
        query={"task_id": {**schemas.ID, "description": "A sub-agent to stop alone."}},
        answers={200: schemas.RunView},
    )
    async def cancel(self, request: Request) -> ASGIApp:
        """Cancel a run, or with `?task_id=` a sub-agent. A second cancel changes nothing."""
        run_id = request.path_params["run_id"]
        await self.runs.info(run_id)
        task_id = request.query_params.get("task_id")
        if task_id is None or task_id == run_id:
            await self.runs.cancel(run_id)
        else:
            await self.runs.cancel_child(run_id, check_id(task_id, "task_id"))
        return await self.object(run_id, client_view)

    @operation(body=schemas.INPUT, answers={202: schemas.Accepted}, errors=(409,))
    async def input(self, request: Request) -> Response:
        """Send a value to a run's agent: 202 once it is stored."""
        body = await read_json(request)
        if "request_id" in body:
            request_fields.only(body, schemas.InputAnswer.__struct_fields__)
        await self.runs.send(request.path_params["run_id"], body)
        return json_response({"status": "accepted"}, 202)


def _has_tag(listed: str, tag: str) -> bool:
    """Whether `If-None-Match` has a tag (RFC 9110, section 13.1.2): the client has the bytes."""
    tags = [one.strip().removeprefix("W/") for one in listed.split(",")]
    return tag in tags or tags == ["*"]


def _cursor_place(request: Request) -> str:
    """The header or the parameter with the cursor."""
    return "Last-Event-ID" if request.headers.get("last-event-id") else "after"


def _cursor_text(request: Request) -> str | None:
    return request.headers.get("last-event-id") or request.query_params.get("after")
