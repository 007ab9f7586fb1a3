"""OpenAI's Responses API: one POST is one run, and `model` names the agent.

`openai_responses_requests` reads what a POST continues or answers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tailrace.core.data_url import data_url
from tailrace.core.errors import CallerError, NotFound
from tailrace.core.events import TaskInputReceived, TaskInputRequired
from tailrace.core.json_pieces import object_pieces
from tailrace.core.values import Json
from tailrace.runtime.agents.agent import Agent
from tailrace.runtime.agents.memory import COMPACT
from tailrace.runtime.event_log.offload import SharedBytes, build
from tailrace.runtime.tasks.blobs import BLOB_PATH
from tailrace.server import request_fields
from tailrace.server.access.guard import json_response
from tailrace.server.apis.anthropic_messages import estimated_tokens
from tailrace.server.apis.openai_responses_requests import ResponseRequests
from tailrace.server.apis.openai_responses_socket import ResponsesSocket, Segment
from tailrace.server.openapi import client_schemas
from tailrace.server.openapi.document import FLAG, OBJECT, STREAM, operation
from tailrace.server.request_body import read_json
from tailrace.server.streams.large_json import LargeJsonResponse
from tailrace.server.streams.resume_point import naming, resume_point
from tailrace.wire import openai_responses
from tailrace.wire.base import MAX_CURSOR

INLINE_IMAGES = 8 * 1024 * 1024
"""How many bytes of images that are blobs a response has. Further images have only their URL."""

MAX_ITEMS = 100
"""How many input items an answer holds."""

_DELETED = (
    "Responses that continue this response no longer know it, nor the responses before it, which "
    "are still stored."
)


class ResponsesApi(ResponseRequests):
    """`/v1/responses`."""

    def routes(self) -> list[Route]:
        """The routes of OpenAI's clients."""
        path = "/v1/responses/{response_id}"
        return [
            Route("/v1/responses", self.create_response, methods=["POST"]),
            Route("/v1/responses/compact", self.compact, methods=["POST"]),
            Route("/v1/responses/input_tokens", self.count_input, methods=["POST"]),
            Route(path, self.get_response, methods=["GET"]),
            Route(path, self.delete_response, methods=["DELETE"]),
            Route(f"{path}/cancel", self.cancel_response, methods=["POST"]),
            Route(f"{path}/input_items", self.list_input, methods=["GET"]),
            Route("/v1/models", self.list_models, methods=["GET"]),
            Route("/v1/models/{agent}", self.get_model, methods=["GET"]),
        ]

    def sockets(self) -> dict[str, Callable[[], ASGIApp]]:
        """`/v1/responses` takes a WebSocket, too."""
        return {"/v1/responses": partial(ResponsesSocket, self.begin, self.connections)}

    @operation(
        body=client_schemas.RESPONSE_REQUEST,
        answers={200: {"application/json": client_schemas.RESPONSE, **STREAM}},
        errors=(409, 422, 423),
    )
    async def create_response(self, request: Request) -> ASGIApp:
        """Start a run of the agent that `model` names, or answer the approvals a run waits for."""
        body = await read_json(request)
        stream = request_fields.optional(body, "stream", bool)
        key = request.headers.get("idempotency-key")
        found = await self.begin(body, key=key)
        if stream:
            return self.stream(found.wire, found.run_id)
        if body.get("background") is not True:
            await self.until(self._over(found))
        if found.again:
            view = openai_responses.requests_object
            return await self.object(found.run_id, view, found.number)
        return await self._shown(found.run_id, found.number)

    async def _shown(self, run_id: str, segment: int) -> ASGIApp:
        """A response as one object, with its images, up to `INLINE_IMAGES` bytes of them."""
        look = await self.runs.look(run_id)
        images, room = dict[str, str](), INLINE_IMAGES
        for url in openai_responses.linked_images(look.state, segment):
            sha256 = url.removeprefix(BLOB_PATH)
            found = await self.runs.blob(sha256) if sha256 != url else None
            if found is not None:
                room -= len(found[0])
                if room < 0:
                    break
                images[url] = data_url(*found)
        if not images:
            return await self.object(run_id, openai_responses.response_object, segment)

        def made() -> SharedBytes:
            shown = openai_responses.response_object(look.state, segment, images=images)
            return SharedBytes(object_pieces(shown))

        return LargeJsonResponse(await build(look.weight + INLINE_IMAGES, made))

    async def _over(self, response: Segment) -> None:
        """Wait for the end of a response: its run ends, or asks for approvals."""
        async for batch in self.runs.follow(response.run_id):
            if any(
                isinstance(recorded.event, TaskInputRequired | TaskInputReceived)
                for recorded in batch
            ):
                look = await self.runs.look(response.run_id)
                if openai_responses.is_segment_paused(look.state, response.number):
                    return

    @operation(
        body=client_schemas.COMPACT_REQUEST,
        answers={200: OBJECT},
        errors=(422,),
    )
    async def compact(self, request: Request) -> ASGIApp:
        """Compact a conversation: `output` is the `input` of the response that continues it."""
        body = await read_json(request)
        model = self.agent(body)
        if not isinstance(self.runs.agents[model], Agent):
            message = f"Agent {model!r} is a function without a model, so it compacts nothing."
            raise CallerError(message, param="model")
        options = {COMPACT: True, **request_fields.response_options(body)}
        named = request_fields.optional_id(body, "previous_response_id")
        given = None
        if body.get("input") is not None or named is None:
            given = request_fields.response_input(body)
        given, continued = await self.continued(given, named, options)
        run = await self.started(
            request.headers.get("idempotency-key"),
            model,
            given,
            previous_run_id=continued.run_id,
            previous_seq=continued.seq,
            options=options,
        )
        run_id = run.run_id
        await self.ended(run_id)
        state = (await self.runs.look(run_id)).state
        if state.root is not None and state.root.compacted is not None:
            return json_response(openai_responses.compaction_object(state))
        failed = json_response({"error": openai_responses.response_object(state)["error"]}, 500)
        failed.headers["x-should-retry"] = "false"
        return failed

    @operation(body=client_schemas.RESPONSE_REQUEST, answers={200: OBJECT})
    async def count_input(self, request: Request) -> Response:
        """Estimate the tokens of an `input` without a model call.

        Its `instructions` and `tools` count, but neither those of the agent nor earlier responses.
        """
        body = await read_json(request)
        self.agent(body)
        counted = [request_fields.response_input(body), body.get("instructions"), body.get("tools")]
        found = {"object": "response.input_tokens", "input_tokens": estimated_tokens(counted)}
        return json_response(found)

    @operation(
        query={
            "stream": FLAG,
            "starting_after": {"type": "integer", "minimum": 0, "maximum": MAX_CURSOR},
        },
        answers={200: {"application/json": client_schemas.RESPONSE, **STREAM}},
    )
    async def get_response(self, request: Request) -> ASGIApp:
        """A response, whole; or its stream, from the start or after a `sequence_number`."""
        run_id, segment, _ = await self._asked_for(request)
        wire = openai_responses.FORMAT.after(segment)
        text = request.query_params.get("starting_after")
        with naming("starting_after"):
            cursor = wire.cursor(text) if text else None
        if not request_fields.flag(request.query_params, "stream"):
            return await self._shown(run_id, segment)
        with naming("starting_after", text, "[0-9]+"):
            point = await resume_point(self.runs, wire, run_id, cursor)
        return self.stream(wire, run_id, point)

    async def _asked_for(self, request: Request) -> Segment:
        """The response that a path names."""
        response_id = request.path_params["response_id"]
        found = await self.segment(response_id)
        if found is None:
            raise NotFound(
                f"There is no response {response_id[:80]}. Check its id; it may have been deleted.",
                param="response_id",
            )
        return found

    @operation(answers={200: client_schemas.RESPONSE})
    async def cancel_response(self, request: Request) -> ASGIApp:
        """Cancel a response. A second cancel changes nothing."""
        run_id, segment, _ = await self._asked_for(request)
        await self.runs.cancel(run_id)
        return await self._shown(run_id, segment)

    @operation(answers={200: OBJECT})
    async def delete_response(self, request: Request) -> Response:
        """Delete a response. A response in progress is cancelled first.

        Responses that continue it no longer know it, nor the responses before it.
        """
        await self.runs.delete((await self._asked_for(request)).run_id)
        named = request.path_params["response_id"]
        deleted = {"id": named, "object": "response", "deleted": True}
        return json_response({**deleted, "message": _DELETED})

    @operation(
        query={
            "order": {"type": "string", "enum": ["asc", "desc"]},
            "after": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_ITEMS},
        },
        answers={200: client_schemas.LISTED},
    )
    async def list_input(self, request: Request) -> Response:
        """The input of a response as items, newest first."""
        items = await self._input_of(await self._asked_for(request))
        query = request.query_params
        order = query.get("order", "desc")
        if order not in ("asc", "desc"):
            raise CallerError(f"`order` is {order[:80]!r}; use asc or desc.", param="order")
        if order == "desc":
            items.reverse()
        if after := query.get("after"):
            places = [place for place, item in enumerate(items, 1) if item["id"] == after]
            if not places:
                raise NotFound(
                    f"The input has no item {after[:80]}. Send the id of the last item you read.",
                    param="after",
                )
            items = items[places[0] :]
        page = items[: request_fields.limit(query, 20, MAX_ITEMS)]
        return json_response(_listed(page, has_more=len(page) < len(items)))

    async def _input_of(self, response: Segment) -> list[Json]:
        """The input of a response, with the conversation that it named by its items."""
        state = (await self.runs.look(response.run_id)).state
        items = openai_responses.input_items(state, response.number)
        previous = None if response.number else openai_responses.named_run(state)
        if previous is None or not await self.runs.exists(previous):
            return items
        output = openai_responses.output_items((await self.runs.look(previous)).state)
        return [*await self._input_of(Segment(previous)), *output, *items]

    @operation(answers={200: client_schemas.LISTED})
    async def list_models(self, _request: Request) -> Response:
        """The agents as models, for clients of OpenAI and of Anthropic."""
        models = [_model(name) for name in sorted(self.runs.agents)]
        return json_response(_listed(models, has_more=False))

    @operation(answers={200: client_schemas.MODEL})
    async def get_model(self, request: Request) -> Response:
        """An agent as a model."""
        name = request.path_params["agent"]
        self.runs.check_agent(name, "model")
        return json_response(_model(name))


def _listed(entries: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    ids = [entry["id"] for entry in entries] or [None]
    found = {"object": "list", "data": entries, "has_more": has_more}
    return {**found, "first_id": ids[0], "last_id": ids[-1]}


def _model(name: str) -> dict[str, Any]:
    """An agent with the fields of both APIs. The time of its creation is not known."""
    theirs = {"type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
    return {"id": name, "object": "model", "created": 0, "owned_by": "tailrace", **theirs}
