"""What the APIs share: the runs, a run as one object, a run as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from msgspec import UNSET
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route
from starlette.types import ASGIApp

from tailrace.core.errors import CallerError, NotFound
from tailrace.core.fold import State
from tailrace.core.json_pieces import object_pieces
from tailrace.core.values import Json
from tailrace.history.agreement import Read, agreement
from tailrace.ports import RunInfo, Trimmed
from tailrace.runtime.event_log.offload import LARGE_BYTES, SharedBytes, build
from tailrace.runtime.event_log.store_retry import within
from tailrace.runtime.model_calls.request_check import InvalidRequest, UnknownTool
from tailrace.runtime.runs.all_runs import Runs
from tailrace.runtime.tasks.chain import forked_at
from tailrace.server import request_fields
from tailrace.server.access.admission import admitted
from tailrace.server.access.guard import json_response, status_of
from tailrace.server.idempotency import KeyReused, check_same, check_same_answers, keyed_name
from tailrace.server.streams.abandoned import AbandonableStream, AbandonedRuns
from tailrace.server.streams.large_json import LargeJsonResponse
from tailrace.server.streams.resume_point import ResumePoint
from tailrace.server.streams.run_stream import RunStream
from tailrace.server.streams.sse_response import SseResponse
from tailrace.server.threads import conversation
from tailrace.server.transport.asgi import client_left
from tailrace.server.transport.connections import Connections, WaitingRequest
from tailrace.wire import openai_responses
from tailrace.wire.base import Format


class ShowsMessages(Protocol):
    """What shows a conversation as a list: a format, or its package."""

    def messages(self, chain: Sequence[State]) -> list[Json]:
        """The runs of a conversation, oldest first, as a client that followed them holds them."""


class HttpApi:
    """An API of the server: `routes` are what it answers."""

    abandoned: AbandonedRuns
    """Cancels runs without clients, for formats without a way back."""

    def __init__(self, formats: Mapping[str, Format], connections: Connections) -> None:
        self.formats = formats
        self.connections = connections

    @property
    def runs(self) -> Runs:
        """The runs that belong to the sender of the current request; others do not exist."""
        return admitted.get().runs

    def routes(self) -> list[Route]:
        """The routes of this API."""
        raise NotImplementedError

    def sockets(self) -> dict[str, Callable[[], ASGIApp]]:
        """The WebSockets of this API: what makes the handler of each, by path."""
        return {}

    def agent(self, body: dict[str, Any], field: str = "model") -> str:
        """The name of the agent in a request; `NotFound` with the field for an unknown agent."""
        name = request_fields.text(body, field, "name one of GET /agents")
        self.runs.check_agent(name, field)
        return name

    async def started(
        self,
        key: str | None,
        agent: str,
        given: Any,
        *,
        forget: bool = False,
        follows: bool = True,
        waits: bool = False,
        **fields: Any,
    ) -> RunInfo:
        """A new run, or the run that a request with the same `Idempotency-Key` has started.

        `follows`: the request streams the run, or waits for its end. `waits`: the run begins after
        the earlier runs of its thread.
        """
        runs = self.runs
        if follows:
            # A run whose stream would be refused must not start: the client would start it again.
            self.connections.sender()
        if key is None:
            return await runs.create(agent, given, forget=forget, waits=waits, **fields)
        name = keyed_name(runs.owner, key)
        named = {field: value for field, value in fields.items() if value not in (None, UNSET)}
        if not named.keys() & {"thread_id", "previous_run_id"}:
            fields["thread_id"] = named["thread_id"] = f"thread_{name}"
        try:
            return await runs.create(
                agent, given, run_id=f"run_{name}", forget=forget, waits=waits, **fields
            )
        except (CallerError, NotFound):
            found = await runs.find(f"run_{name}")
            if found is None:
                raise
            options = runs.allowed_options(agent, fields.get("options"), forget=forget)
            asked = {"agent": agent, "input": given, "metadata": None, **named, "options": options}
            check_same((await runs.look(found.run_id)).state, asked)
            return found

    async def check_answers(
        self, key: str | None, state: State, answers: list[dict[str, Any]]
    ) -> None:
        """Raise `KeyReused` if a request with this key started a run, or sent other answers."""
        if key is None:
            return
        if await self.runs.find(f"run_{keyed_name(self.runs.owner, key)}") is not None:
            raise KeyReused(
                "`Idempotency-Key` was used to start a run; send a new key.",
                param="Idempotency-Key",
            )
        check_same_answers(state, answers)

    async def unknown_calls(
        self, outputs: Iterable[str], known: set[str], previous: str | None
    ) -> list[str]:
        """The calls with an output that neither are known nor are in the runs before."""
        known, seen = set(known), set[str]()
        while (left := [one for one in outputs if one not in known]) and previous is not None:
            if previous in seen or await self.runs.find(previous) is None:
                break
            seen.add(previous)  # a deleted run's id can be used again, further down
            root = (await self.runs.look(previous)).state.root
            assert root is not None
            given = root.facts.get("input")
            known |= (
                root.calls.keys()
                | openai_responses.calls_of(given)
                | request_fields.calls_in(given)
            )
            previous = root.facts.get("previous_run_id")
        return left

    async def agreed(
        self,
        wire: ShowsMessages,
        messages: list[Json],
        run_id: str,
        read: Read,
        *,
        written: Collection[int],
        cut: Collection[int] = (),
    ) -> tuple[Json, list[Json]]:
        """Where a run continues that a client asks for with all its messages, and its input.

        `run_id` is the run of its last answer, and `written` has the indices of that answer.
        The run continues it, if the client has it and all runs before it unchanged. If not, the run
        continues the last run up to which the client has them. `cut` has the indices of answers
        that it has only in part.
        """
        info = await self.runs.info(run_id)
        if info.forget:
            return {"previous_run_id": None}, messages
        chain, weight = await conversation(self.runs, info)
        root = chain[-1].root
        if root is not None and not root.ended:
            cut = {*cut, *written}
        shown = partial(_first, wire, chain)
        compare = partial(agreement, messages, len(chain), shown, read, cut)
        runs, new = await build(weight, compare)
        last = chain[runs - 1].root if runs else None
        fields: Json = {"previous_run_id": None if last is None else last.task_id}
        if 0 < runs < len(chain):
            fields["previous_seq"] = forked_at(chain[runs])
        return fields, new

    async def object(
        self, run_id: str, view: Callable[..., dict[str, Any]], *which: int
    ) -> ASGIApp:
        """The run as one object. Requests at the same time share the bytes of a large run.

        `which` names a part of the run, for a view that needs it.
        """
        look = await self.runs.look(run_id)
        if look.weight <= LARGE_BYTES:
            return json_response(view(look.state, *which))
        key = (run_id, view.__name__, look.state.sequence_number, *which)
        make = partial(
            build, look.weight, lambda: SharedBytes(object_pieces(view(look.state, *which)))
        )
        return LargeJsonResponse(await self.runs.streams.answers.get(key, make))

    def stream(
        self,
        wire: Format,
        run_id: str,
        point: ResumePoint | None = None,
        *,
        snapshot: bool = False,
    ) -> SseResponse:
        """The run as a stream, from its start, after a cursor or with a snapshot."""
        source = RunStream(self.runs, wire, run_id, point, snapshot=snapshot)
        return SseResponse(source, self.connections)

    async def ended(self, run_id: str) -> None:
        """Wait for the end of a run, however long it takes; `Stopping` if the server stops."""
        await self.until(self._followed(run_id))

    async def until(self, end: Awaitable[None]) -> None:
        """Wait for this, however long it takes; `Stopping` if the server stops.

        A run whose events were trimmed has ended.
        """
        with within(None), suppress(Trimmed):
            await WaitingRequest(self.connections).until(end)

    async def _followed(self, run_id: str) -> None:
        async for _ in self.runs.follow(run_id):
            pass


def _first(wire: ShowsMessages, chain: list[State], runs: int) -> list[Json]:
    return wire.messages(chain[:runs])


_CLIENTS = {error.code: status_of(error) for error in (InvalidRequest, UnknownTool)}
"""The status of errors of a run that are the client's, by their code."""


class OneWayApi(HttpApi):
    """An API without a way back: a run that its client leaves is cancelled after a while."""

    def only_stream(self, wire: Format, run_id: str) -> SseResponse:
        """The run as the stream of its only client."""
        source = AbandonableStream(self.runs, wire, run_id, self.abandoned)
        return SseResponse(source, self.connections)

    async def answer(
        self, request: Request, run_id: str, view: Callable[[State], dict[str, Any]]
    ) -> ASGIApp:
        """The run as one object, at its end; status 424, 400 or 404 if it has an `error`."""
        await self._ended_or_left(request, run_id)
        look = await self.runs.look(run_id)
        made = await build(look.weight, lambda: view(look.state))
        if "error" in made:
            root = look.state.root
            error = root.error if root is not None else None
            status = 424 if error is None else _CLIENTS.get(error.code, 424)
            # Clients repeat a request after a 5xx, and that would be another run. The AI SDK looks
            # at the status only; the SDKs of OpenAI and Anthropic read the header first.
            failed = json_response(made, status)
            failed.headers["x-should-retry"] = "false"
            return failed
        if look.weight <= LARGE_BYTES:
            return json_response(made)
        return LargeJsonResponse(await build(look.weight, lambda: SharedBytes(object_pieces(made))))

    async def _ended_or_left(self, request: Request, run_id: str) -> None:
        self.abandoned.waits(run_id)
        end = asyncio.ensure_future(self.ended(run_id))
        left = asyncio.ensure_future(client_left(request.receive))
        try:
            await asyncio.wait((end, left), return_when=asyncio.FIRST_COMPLETED)
            if not end.done():
                raise ClientDisconnect
            await end
        finally:
            for waiting in (end, left):
                waiting.cancel()
            await asyncio.gather(end, left, return_exceptions=True)
            self.abandoned.left(run_id)
