"""The Vercel AI SDK's chat: what `useChat` sends and resumes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Send

from tailrace.core.ids import check_id
from tailrace.core.values import Json
from tailrace.ports import RunInfo
from tailrace.server import request_fields
from tailrace.server.apis.base import HttpApi
from tailrace.server.mount import without_prefix
from tailrace.server.openapi import client_schemas
from tailrace.server.openapi.document import STREAM, operation
from tailrace.server.request_body import read_json
from tailrace.server.streams.abandoned import Answered
from tailrace.server.streams.resume_point import ResumePoint, after_state
from tailrace.server.streams.run_stream import RunStream
from tailrace.server.streams.sse_response import SseResponse
from tailrace.server.transport.connections import Connections
from tailrace.wire import vercel_ui
from tailrace.wire.base import Format

CHAT_GRACE_SECONDS = 300.0
"""How long after its end a chat's answer is replayed to a client that lost its connection."""

ARRIVAL_SECONDS = 30.0
"""How long after its end an answer is replayed although it was sent to its end. A client that was
cut may lack the last bytes, which a server cannot know: it is back within this time."""

SENT_ANSWERS = 10_000
"""How many answers that were sent to their end are remembered."""


class ChatResponse(SseResponse):
    """The stream of a chat's run. It notes the run's last event if it was sent to its end."""

    __slots__ = ("_noted", "_run_id", "_stream")

    def __init__(
        self, stream: RunStream, connections: Connections, run_id: str, noted: dict[str, int]
    ) -> None:
        super().__init__(stream, connections)
        self._stream = stream
        self._run_id = run_id
        self._noted = noted

    async def _pump(self, send: Send) -> bool:
        is_sent = False
        try:
            is_sent = await super()._pump(send)
        finally:
            self._noted.pop(self._run_id, None)
            if is_sent:
                self._noted[self._run_id] = self._stream.seen
            if len(self._noted) > SENT_ANSWERS:
                del self._noted[next(iter(self._noted))]
        return is_sent


class ChatApi(HttpApi):
    """`/api/chat`."""

    def __init__(self, formats: Mapping[str, Format], connections: Connections) -> None:
        super().__init__(formats, connections)
        self._sent: dict[str, int] = {}  # by run: the last event, if its last response had it

    def routes(self) -> list[Route]:
        """The routes of `DefaultChatTransport`."""
        return [
            Route("/api/chat", self.chat, methods=["POST"]),
            Route("/api/chat/{thread}/stream", self.resume_chat, methods=["GET"]),
            Route("/api/chat/{thread}/stream", self.stop_chat, methods=["DELETE"]),
        ]

    @operation(
        body=client_schemas.CHAT_REQUEST,
        answers={200: STREAM, 204: None},
        errors=(409, 422, 423),
    )
    async def chat(self, request: Request) -> ASGIApp:
        """Start a run for `useChat`, or send what the chat's run waits for: approvals and results.

        The chat's id is the thread, its new message the input.
        """
        body = await read_json(request)
        chat_id = check_id(request_fields.text(body, "id", "send the chat's id"), "id")
        messages = request_fields.chat_messages(body)
        agent = request_fields.optional(body, "agent", str)
        if agent is None:
            agent = next(iter(self.runs.agents), "")
        self.runs.check_agent(agent, "agent")
        messages = without_prefix(request.scope.get("root_path", ""), messages)
        place, run_id = await self._last_answer(messages)
        fields: Json = {"previous_run_id": run_id}
        new: list[Json] = []
        is_whole = body.get("messages") is not None
        if run_id is None and not is_whole:  # the page sends no earlier message
            newest = await self.runs.continued(chat_id)
            run_id = fields["previous_run_id"] = None if newest is None else newest.run_id
        if run_id is not None and (not is_whole or place == len(messages) - 1):
            sent = await self._answers(run_id, messages[-1])
            if sent is not None:
                key = request.headers.get("idempotency-key")
                return await self._answered(run_id, sent, key)
        answered: Answered | None = None
        answers: list[dict[str, Any]] = []
        if is_whole:
            if run_id is not None and place < len(messages) - 1:
                answered, answers = await self._approved(run_id, messages[place])
                if answered is not None:
                    messages[place] = vercel_ui.without_outputs(messages[place], answered.calls)
            fields, new = await self._continued(messages, place, run_id)
        for answer in answers:
            await self.runs.send(str(run_id), answer)
        run = await self.started(
            request.headers.get("idempotency-key"),
            agent,
            _input(new) if new else messages[-1],
            thread_id=chat_id,
            options=_options(body),
            metadata=request_fields.optional(body, "metadata", dict),
            waits=answered is not None,
            **fields,
        )
        self.abandoned.replaced_by(run, answered)
        return self._stream(run.run_id)

    async def _approved(
        self, run_id: str, message: Json
    ) -> tuple[Answered | None, list[dict[str, Any]]]:
        """The approvals of a message that other messages follow, and the outputs beside them.

        The run that waits for them goes on, and the other messages are the next turn.
        """
        state = (await self.runs.look(run_id)).state
        pending = {request.id for _, request in state.requests()}
        approvals = [one for one in vercel_ui.answers_of(message) if one["request_id"] in pending]
        if not approvals:
            return None, []
        answers = [*approvals, *(vercel_ui.results_of(message, state) or ())]
        return Answered(state, {answer["request_id"] for answer in answers}), answers

    async def _last_answer(self, messages: list[Json]) -> tuple[int, str | None]:
        """The last message that a run of ours has written, and the run."""
        for index in range(len(messages) - 1, -1, -1):
            run_id = vercel_ui.run_of(messages[index])
            if run_id is not None and await self.runs.exists(run_id):
                return index, run_id
        return -1, None

    async def _continued(
        self, messages: list[Json], place: int, run_id: str | None
    ) -> tuple[Json, list[Json]]:
        """The run that a chat continues, and the messages that are not in the log.

        A chat sends its whole conversation, up to the message that it edits or regenerates. A page
        that ran a tool sends the answer with its call again, with the tool's output.
        """
        if run_id is None:
            return {"previous_run_id": None}, messages
        cut = [index for index, message in enumerate(messages) if vercel_ui.is_cut(message)]
        read = vercel_ui.read
        return await self.agreed(vercel_ui.FORMAT, messages, run_id, read, written=[place], cut=cut)

    async def _answers(self, run_id: str, message: Any) -> list[dict[str, Any]] | None:
        """What a page sends to a run that waits: approvals, and results of calls; None: nothing."""
        approvals = vercel_ui.answers_of(message)
        if vercel_ui.run_of(message) is None:
            return approvals or None
        look = await self.runs.look(run_id)
        results = vercel_ui.results_of(message, look.state)
        return approvals or None if results is None else [*approvals, *results]

    async def _answered(
        self, run_id: str, answers: list[dict[str, Any]], key: str | None
    ) -> ASGIApp:
        """Send the answers, and stream what the run does after its pause.

        Answers that are sent again, or to a run that has ended, change nothing: the page gets the
        run's message as it is.
        """
        look = await self.runs.look(run_id)
        await self.check_answers(key, look.state, answers)
        if look.info.ended_at is None:
            for answer in answers:
                await self.runs.send(run_id, answer)
        answered = [answer["request_id"] for answer in answers]
        encoder, frames = vercel_ui.FORMAT.reopen(look.state, answered)
        return self._stream(run_id, after_state(look.state, encoder, frames))

    @operation(answers={200: STREAM, 204: None})
    async def resume_chat(self, request: Request) -> ASGIApp:
        """The chat's last answer from its first chunk; 204 if there is nothing to resume.

        An ended answer is replayed for 5 minutes, or 30 seconds if this process sent it to its end.
        """
        found = await self.runs.latest(request.path_params["thread"])
        if found is None or self._is_over(found):
            return Response(status_code=204)
        return self._stream(found.run_id, snapshot=True)

    @operation(answers={204: None})
    async def stop_chat(self, request: Request) -> Response:
        """Cancel the chat's last run, and the run that it continues if that has not ended.

        `stop()` of `useChat` only closes the connection.
        """
        found = await self.runs.latest(request.path_params["thread"])
        if found is not None:
            await self.runs.cancel(found.run_id)
            earlier = found.previous_run_id
            if earlier is not None and await self.runs.exists(earlier):
                await self.runs.cancel(earlier)
        return Response(status_code=204)

    def _is_over(self, run: RunInfo) -> bool:
        if run.ended_at is None:
            return False
        is_sent = self._sent.get(run.run_id) == run.last_seq
        grace = ARRIVAL_SECONDS if is_sent else CHAT_GRACE_SECONDS
        return time.time() - run.ended_at > grace

    def _stream(
        self, run_id: str, point: ResumePoint | None = None, *, snapshot: bool = False
    ) -> ChatResponse:
        stream = RunStream(self.runs, vercel_ui.FORMAT, run_id, point, snapshot=snapshot)
        return ChatResponse(stream, self.connections, run_id, self._sent)


_FIELDS = frozenset(
    ("agent", "id", "message", "messageId", "messages", "metadata", "options", "trigger")
)
"""The fields of the AI SDK, and those that are read here."""


def _options(body: Json) -> Json | None:
    """The run's options: those of the body, and the page's own fields for the agent to read."""
    options = request_fields.optional(body, "options", dict) or {}
    own = {name: value for name, value in body.items() if name not in _FIELDS}
    return {**options, **({"forwarded_props": own} if own else {})} or None


def _input(new: list[Json]) -> Json | list[Json]:
    """New messages as an input. The log would be expected to have an assistant's message alone."""
    return new if len(new) > 1 or new[0].get("role") == "assistant" else new[0]
