"""AG-UI: what `HttpAgent` of `@ag-ui/client` and CopilotKit send."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tailrace.core.data_url import base64_url
from tailrace.core.errors import CallerError, NotFound, RunEnded
from tailrace.core.event_sink import runs_of_item, runs_of_request
from tailrace.core.fold import State
from tailrace.core.ids import check_id, is_id
from tailrace.core.values import Json, dict_of, dicts_of, list_of, quoted, text_or_none
from tailrace.history.inputs import InputItem, is_aside, read_input
from tailrace.ports import RunInfo, Trimmed
from tailrace.server import request_fields
from tailrace.server.apis.base import HttpApi
from tailrace.server.idempotency import KeyReused, keyed_name
from tailrace.server.mount import without_prefix
from tailrace.server.openapi import client_schemas
from tailrace.server.openapi.document import STREAM, operation
from tailrace.server.openapi.schemas import ID
from tailrace.server.request_body import read_json
from tailrace.server.streams.abandoned import Answered
from tailrace.server.streams.resume_point import after_state
from tailrace.server.streams.run_stream import RunStream
from tailrace.server.streams.runs_in_turn import RunsInTurn
from tailrace.server.streams.sse_response import SseResponse
from tailrace.wire import ag_ui
from tailrace.wire.projection import asked_of, is_paused

_OURS = ("assistant", "reasoning", "tool")
"""The roles of messages that a run of ours may have written."""


class AgUiApi(HttpApi):
    """`/ag-ui/{agent}`."""

    def routes(self) -> list[Route]:
        """The route of `HttpAgent`, and a way back to a stream that was cut."""
        return [
            Route("/ag-ui/{agent}", self.run, methods=["POST"]),
            Route("/ag-ui/{agent}", self.attach, methods=["GET"]),
        ]

    @operation(body=client_schemas.AG_UI_REQUEST, answers={200: STREAM}, errors=(409, 422, 423))
    async def run(self, request: Request) -> ASGIApp:
        """Start a run, or answer the interrupts of the thread's last run.

        The client's `runId` names the run, so a request that is sent again is the same run.
        """
        body = await read_json(request)
        agent = self.agent(request.path_params, "agent")
        thread_id = check_id(request_fields.text(body, "threadId", "send an id"), "threadId")
        named = check_id(request_fields.text(body, "runId", "send an id"), "runId")
        messages = request_fields.ag_ui_messages(body)
        messages = without_prefix(request.scope.get("root_path", ""), messages)
        entries = _entries(body["resume"]) if body.get("resume") else []
        asking = await self._asking(thread_id, messages, entries)
        if asking is not None and not asking.is_continued:
            return await self._resume(asking)
        # With auth two principals may choose the same id, and neither may notice the other.
        owner = self.runs.owner
        run_id = f"run_{keyed_name(owner, f'ag-ui:{named}')}" if owner else named
        if (repeated := await self._repeated(run_id, thread_id, agent, messages)) is not None:
            return repeated
        fields, new = await self._continued(messages)
        if all(map(is_aside, new)):
            raise CallerError(
                "`messages` has no new message for the agent; send one after its last answer.",
                param="messages",
            )
        given = [_item(message) for message in new]
        await self._check_results(given, fields["previous_run_id"])
        self.connections.sender()  # a run whose stream would be refused must not start
        if asking is not None:
            await self._send(asking)
        try:
            run = await self.runs.create(
                agent,
                given,
                thread_id=thread_id,
                run_id=run_id,
                options=_options(body),
                waits=asking is not None,
                **fields,
            )
        except CallerError:
            # The same request may have arrived twice at the same time.
            if (repeated := await self._repeated(run_id, thread_id, agent, messages)) is not None:
                return repeated
            raise
        if asking is None:
            self.abandoned.replaced_by(run)
            return self.stream(ag_ui.FORMAT, run_id)
        self.abandoned.replaced_by(run, asking.answered)
        rest = await self._rest(asking)
        whole = RunsInTurn(rest, RunStream(self.runs, ag_ui.FORMAT, run_id))
        return SseResponse(whole, self.connections)

    async def _repeated(
        self, run_id: str, thread_id: str, agent: str, messages: list[Json]
    ) -> ASGIApp | None:
        """The stream of a run that was started before; None if there is no such run.

        Its client may have more messages by now: those of the run. The last before them must be
        the last that the run was asked.
        """
        found = await self.runs.find(run_id)
        if found is None:
            return None
        if found.thread_id != thread_id:
            raise NotFound("`runId` is a run of another thread; send a new id.", param="runId")
        root = (await self.runs.look(run_id)).state.root
        given = list_of(root.facts.get("input")) if root is not None else []
        asked = [_item(message) for message in messages if run_id not in _runs_of(message)]
        is_same = not asked or _words(asked[-1]) == _words(given[-1] if given else None)
        if found.agent != agent or not is_same:
            raise KeyReused(
                "`runId` is a run with another question or agent; send a new id.", param="runId"
            )
        return self.stream(ag_ui.FORMAT, run_id, snapshot=True)

    @operation(query={"threadId": {**ID, "required": True}}, answers={200: STREAM, 204: None})
    async def attach(self, request: Request) -> ASGIApp:
        """The last run of a thread from its first event; 204 if the thread has no run."""
        self.agent(request.path_params, "agent")
        thread_id = check_id(request.query_params.get("threadId", ""), "threadId")
        found = await self.runs.latest(thread_id)
        if found is None:
            return Response(status_code=204)
        return self.stream(ag_ui.FORMAT, found.run_id, snapshot=True)

    async def _asking(
        self, thread_id: str, messages: list[Json], entries: list[Json]
    ) -> _Asking | None:
        """The run that the client answers: by `resume`, or by tool messages for the last run."""
        found = await self._resumed(thread_id, entries) or await self.runs.latest(thread_id)
        if found is None:
            if not entries:
                return None
            raise NotFound(
                f"Thread {thread_id} has no run to resume. Send `messages` without `resume`.",
                param="threadId",
            )
        if not entries and found.ended_at is not None:
            return None
        state = (await self.runs.look(found.run_id)).state
        kinds = {request.id: request.kind for _, request in state.requests()}
        answers = [_answer(entry, kinds.get(entry["interruptId"])) for entry in entries]
        new = _after(messages, state)
        named = {answer["request_id"] for answer in answers}
        answers += [one for one in _outputs(new, state) if one["request_id"] not in named]
        if not answers:
            return None
        answered = Answered(state, {answer["request_id"] for answer in answers})
        return _Asking(answered, answers, any(one.get("role") == "user" for one in new))

    async def _resumed(self, thread_id: str, entries: list[Json]) -> RunInfo | None:
        """The run of the thread that the ids of these interrupts name.

        It need not be the last: another client may have started a run meanwhile.
        """
        for entry in entries:
            for run_id in runs_of_request(entry["interruptId"]):
                found = await self.runs.find(run_id) if is_id(run_id) else None
                if found is not None and found.thread_id == thread_id:
                    return found
        return None

    async def _resume(self, asking: _Asking) -> ASGIApp:
        """Send the answers, and stream what the run does after its pause."""
        await self._send(asking)
        return SseResponse(await self._rest(asking), self.connections)

    async def _send(self, asking: _Asking) -> None:
        """Send the answers. A run that has ended needs none: its stream shows the end.

        An error instead would end the conversation. The client sends no message before it has
        answered all interrupts.
        """
        for answer in asking.answers:
            with suppress(RunEnded):
                await self.runs.send(asking.run_id, answer)

    async def _rest(self, asking: _Asking) -> RunStream:
        """The stream of a run after the answers that it was sent."""
        (state, requests), run_id = asking.answered, asking.run_id
        encoder = ag_ui.FORMAT.answered(state, requests)
        if encoder.waits:
            return RunStream(self.runs, ag_ui.FORMAT, run_id, after_state(state, encoder, []))
        # The run went on with an earlier answer, or has ended.
        earlier = await self._paused(state, requests)
        if earlier is None:
            return RunStream(self.runs, ag_ui.FORMAT, run_id, snapshot=True)
        encoder = ag_ui.FORMAT.answered(earlier, requests)
        return RunStream(self.runs, ag_ui.FORMAT, run_id, after_state(earlier, encoder, []))

    async def _paused(self, state: State, requests: set[str]) -> State | None:
        """A run as it was when a stream first ended with one of these requests; None if unknown.

        The client has the run up to there. It would add whatever is sent again to its messages.
        """
        paused, last = State(), state.sequence_number
        with suppress(Trimmed):
            async for batch in self.runs.follow(state.root.task_id if state.root else ""):
                for recorded in batch:
                    paused.absorb(recorded.event)
                    if asked_of(paused) & requests and is_paused(paused):
                        return paused
                    if recorded.event.sequence_number >= last:
                        return None
        return None

    async def _check_results(self, given: list[Json], previous: str | None) -> None:
        """Refuse the result of a call that the conversation does not have."""
        outputs = [one["call_id"] for one in given if one.get("type") == "function_call_output"]
        known = request_fields.calls_in(given)
        for call_id in await self.unknown_calls(outputs, known, previous):
            raise NotFound(
                f"A tool message answers call {str(call_id)[:80]}, which the conversation does not "
                "have; send the assistant's message with the call, too.",
                param="messages",
            )

    async def _continued(self, messages: list[Json]) -> tuple[Json, list[Json]]:
        """The run that the messages continue, and the messages that are not in the log.

        A client has no result of a call that it left without an answer: that call's run was
        cancelled later.
        """
        results = (one for one in messages if one.get("role") == "tool")
        answered = {text_or_none(one.get("toolCallId")) for one in results}
        cut = [
            at
            for at, one in enumerate(messages)
            if any(text_or_none(call.get("id")) not in answered for call in _calls(one))
        ]
        for message in reversed(messages):
            for run_id in _runs_of(message):
                if is_id(run_id) and await self.runs.exists(run_id):
                    own = [at for at, one in enumerate(messages) if run_id in _runs_of(one)]
                    return await self.agreed(
                        ag_ui.FORMAT, messages, run_id, _read, written=own, cut=cut
                    )
        return {"previous_run_id": None}, messages


class _Asking(NamedTuple):
    """A run that asks people, and what a request answers."""

    answered: Answered
    answers: list[Json]
    is_continued: bool
    """Whether the request has a new message, too: it is the next turn."""

    @property
    def run_id(self) -> str:
        """The run that asks."""
        assert self.answered.state.root is not None
        return self.answered.state.root.task_id


def _after(messages: list[Json], state: State) -> list[Json]:
    """The messages after the last message that is of a run, or that it was asked; none if unknown.

    A client that resumes a run may send no messages, or only some of the run's.
    """
    assert state.root is not None
    given, run_id = list_of(state.root.facts.get("input")), state.root.task_id
    asked = {text_or_none(dict_of(item).get("id")) for item in given} - {None}
    own = [
        at
        for at, one in enumerate(messages)
        if run_id in _runs_of(one) or text_or_none(one.get("id")) in asked
    ]
    return messages[own[-1] + 1 :] if own else []


def _outputs(messages: list[Json], state: State) -> Iterator[Json]:
    """The tool messages that are results of calls which a run asks its client for."""
    asked = {request.call_id: request for _, request in state.requests()}
    for message in messages:
        call_id = text_or_none(message.get("toolCallId"))
        request = asked.get(call_id) if message.get("role") == "tool" and call_id else None
        if request is None or request.kind != "input":
            continue
        answer: Json = {"request_id": request.id}
        if message.get("error"):
            yield {**answer, "approved": False, "reason": str(message["error"])}
        else:
            yield {**answer, "value": message.get("content")}


def _calls(message: Json) -> list[Json]:
    return dicts_of(message.get("toolCalls"))


def _runs_of(message: Json) -> list[str]:
    """The ids that the run has which may have written a message."""
    is_ours = message.get("role") in _OURS and isinstance(message.get("id"), str)
    return runs_of_item(message["id"]) if is_ours else []


def _read(message: Json) -> Iterator[InputItem]:
    """What a model would read of a message."""
    return read_input([_item(message)])


def _words(item: Any) -> Any:
    """An item without the id that its client gave it."""
    if not isinstance(item, dict):
        return item
    return {name: value for name, value in item.items() if name != "id"}


def _entries(value: Any) -> list[Json]:
    is_list = isinstance(value, list) and all(
        isinstance(member, dict)
        and isinstance(member.get("interruptId"), str)
        and member.get("status") in ("resolved", "cancelled")
        for member in value
    )
    if not is_list:
        kind = "a list of {interruptId, status}, with the status resolved or cancelled"
        raise request_fields.wrong("resume", value, kind)
    return list(value)


def _answer(entry: Json, kind: str | None) -> Json:
    """An entry of `resume` as the answer to a request."""
    payload, resolved = entry.get("payload"), entry.get("status") == "resolved"
    answer: Json = {"request_id": entry["interruptId"]}
    if kind != "approval":
        return {**answer, "value": payload} if resolved else {**answer, "approved": False}
    if isinstance(payload, bool | None):
        return {**answer, "approved": resolved and payload is not False}
    # A payload of another form may be meant as a denial, so it must not approve.
    if not isinstance(payload, dict) or not payload.keys() <= _APPROVAL.keys():
        raise _no_approval(payload)
    if not all(isinstance(value, _APPROVAL[name]) for name, value in payload.items()):
        raise _no_approval(payload)
    answer |= {"reason": payload.get("reason"), "value": payload.get("arguments")}
    return {**answer, "approved": resolved and payload.get("approved", True)}


_APPROVAL: dict[str, Any] = {
    "approved": bool,
    "reason": str | None,
    "arguments": dict | None,
}
"""The fields of a payload that answers an approval."""


def _no_approval(payload: Any) -> CallerError:
    return CallerError(
        f"The `payload` of an approval is {quoted(payload)}; "
        "send true, false or {approved, reason?, arguments?}.",
        param="resume",
    )


def _item(message: Json) -> Json:
    """A message of AG-UI as an input item that history reads."""
    if is_aside(message):
        return message
    named = {"id": message["id"]} if isinstance(message.get("id"), str) else {}
    if message.get("role") == "tool":
        content = message.get("content")
        output = content if isinstance(content, str) else _parts(content)
        return {
            "type": "function_call_output",
            "call_id": message.get("toolCallId"),
            "output": output,
            **named,
            **({"status": "failed"} if message.get("error") else {}),
        }
    calls = {"tool_calls": message["toolCalls"]} if message.get("toolCalls") else {}
    content = message.get("content")
    return {
        **named,
        "role": message.get("role"),
        "content": _parts(content) if isinstance(content, list) else content or "",
        **calls,
    }


def _parts(content: Any) -> list[Json]:
    """Content parts as the Responses API writes them."""
    return [_part(part) for part in dicts_of(content)]


def _part(part: Json) -> Json:
    if part.get("type") == "text":
        return {"type": "input_text", "text": str(part.get("text", ""))}
    url, kind = _media(part)
    if not isinstance(url, str):
        raise CallerError(
            f"A part of type {str(part.get('type'))[:80]!r} has no URL and no data; send either.",
            param="messages",
        )
    if part.get("type") == "image" or kind.startswith("image/"):
        return {"type": "input_image", "image_url": url}
    named = {"filename": part["filename"]} if isinstance(part.get("filename"), str) else {}
    typed = {"mime_type": kind} if kind else {}
    return {"type": "input_file", "file_url": url, **typed, **named}


def _media(part: Json) -> tuple[Any, str]:
    """The URL and the MIME type of a part. The older `binary` has them beside its type."""
    source = part.get("source")
    if isinstance(source, dict):
        kind = str(source.get("mimeType") or "")
        if source.get("type") == "data":
            return base64_url(str(source.get("value")), kind), kind
        return source.get("value") if source.get("type") == "url" else None, kind
    kind = str(part.get("mimeType") or "")
    if part.get("url") is None and isinstance(part.get("data"), str):
        return base64_url(part["data"], kind), kind
    return part.get("url"), kind


def _options(body: Json) -> Json | None:
    """What the client declares: its tools, its context and its state."""
    tools = body.get("tools")
    declared = [
        {
            "type": "function",
            "name": tool.get("name"),
            "description": tool.get("description") or "",
            "parameters": tool.get("parameters") or {"type": "object", "properties": {}},
        }
        for tool in dicts_of(tools)
    ]
    options = {
        "tools": declared,
        "instructions": _instructions(body.get("context")),
        "context": body.get("context"),
        "state": body.get("state"),
        "forwarded_props": body.get("forwardedProps"),
    }
    return {name: value for name, value in options.items() if value} or None


def _instructions(context: Any) -> str | None:
    """The client's context as instructions: what the page shows, for the model to read."""
    lines = [
        f"{fact['description']}: {fact['value']}"
        for fact in dicts_of(context)
        if {"description", "value"} <= fact.keys()
    ]
    return "\n".join(["The application gives this context:", *lines]) if lines else None
