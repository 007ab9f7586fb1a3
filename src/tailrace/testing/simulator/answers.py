"""The simulator's answers: scripts and recordings, streamed or whole, and their failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tailrace.core import sse
from tailrace.core.sse import DONE
from tailrace.core.tool_arguments import decoded
from tailrace.core.values import Json, dict_of
from tailrace.models.recording import RecordedCall, read_calls
from tailrace.models.scripted.script import (
    STATUSES,
    Cut,
    Fail,
    Garbage,
    Script,
    ScriptFrame,
    Wait,
)

_BREAKS = ("cut", "malformed_event", "connect_timeout", "first_event_timeout", "idle_timeout")


class RecordedAnswer(msgspec.Struct, frozen=True):
    """A real provider's answer: the JSON of its events, and how it ended."""

    events: tuple[str, ...]
    pauses: tuple[float, ...] = ()
    """Seconds before each event, if it is to take its time."""
    end: Fail | Cut | None = None

    @classmethod
    def read(cls, path: str | Path) -> RecordedAnswer:
        """Read a file with one event per line."""
        lines = Path(path).read_text(encoding="utf-8").split("\n")
        return cls(tuple(line for line in lines if line.strip()))

    def frames(self) -> Iterator[ScriptFrame]:
        """The events with their names and pauses."""
        for number, event in enumerate(self.events):
            pause = self.pauses[number] if self.pauses else 0
            name = None if event == DONE else msgspec.json.decode(event).get("type")
            yield ScriptFrame(event, name or None, pause)
        if self.end is not None:
            yield ScriptFrame("{}", cut="event")


def recorded_calls(path: str | Path, *, pace: float = 0) -> list[RecordedAnswer]:
    """The answers in a file of `tailrace.models.recording.record`, in their order.

    `pace` 1 keeps the recorded pauses, 2 halves them, 0 omits them.
    """
    return [_recorded(call, pace) for call in read_calls(path)]


def _recorded(call: RecordedCall, pace: float) -> RecordedAnswer:
    events: list[str] = []
    pauses: list[float] = []
    before = 0.0
    end: Fail | Cut | None = None
    for chunk in call.chunks:
        for event in chunk.events:
            events.append(event)
            pauses.append((chunk.at - before) / pace if pace else 0)
            before = chunk.at
        if chunk.error is not None:
            after = None if chunk.retry_after is None else str(chunk.retry_after)
            status = STATUSES.get(chunk.error, 400)
            end = Fail(code=chunk.error, message=chunk.message, status=status, retry_after=after)
            if events or chunk.error in _BREAKS:
                end = Cut()  # an error of HTTP comes before everything else
    return RecordedAnswer(tuple(events), tuple(pauses), end)


class AnswerStreams(Protocol):
    """A script as events of one API."""

    def frames(self) -> Iterator[ScriptFrame]:
        """The frames, in order."""
        ...

    def object(self) -> Json:
        """The answer as one object."""
        ...


class StreamedResponse(Response):
    """A response of server-sent events, each at its time; it may break off anywhere."""

    def __init__(
        self,
        frames: Iterator[ScriptFrame],
        closing: asyncio.Event,
        remember: Callable[[], None] = lambda: None,
        note: Callable[[], None] = lambda: None,
    ) -> None:
        """Play these; `remember` is called when all is sent, `note` after each whole item."""
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self._frames = frames
        self._closing = closing
        self._remember = remember
        self._note = note

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send it."""
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
                if frame.event == "response.output_item.done":
                    self._note()  # the client may leave before the end, and send it back
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


class WholeResponse(Response):
    """A response without a stream; it may be late, partial, invalid or missing."""

    def __init__(self, script: Script, made: Json, closing: asyncio.Event) -> None:
        """What the script comes to; `made` is the object of its provider."""
        body = msgspec.json.encode(made)
        for step in script:
            if isinstance(step, Garbage):
                body = step.text.encode()
        super().__init__(body, media_type="application/json")
        self._script = script
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        for step in self._script:
            if isinstance(step, Wait):
                if step.seconds is None:
                    await self._closing.wait()
                    return
                await asyncio.sleep(step.seconds)
            elif isinstance(step, Cut):
                head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
                await send(head)
                half = bytes(self.body)[: len(self.body) // 2]
                await send({"type": "http.response.body", "body": half, "more_body": True})
                return
        await super().__call__(scope, receive, send)


# --- a stream as one object ----------------------------------------------------------------------


def whole_response(events: Sequence[str]) -> Json:
    """The final response object of a Responses stream."""
    for event in reversed(events):
        found = _decoded(event).get("response")
        if isinstance(found, dict):
            return found
    return {}


def whole_message(events: Sequence[str]) -> Json:
    """The message of an Anthropic stream."""
    message: Json = {"content": []}
    blocks: dict[int, Json] = {}
    arguments: dict[int, str] = {}
    for value in map(_decoded, events):
        kind, index = value.get("type"), value.get("index", 0)
        if kind == "message_start":
            message = {**value["message"], "content": []}
        elif kind == "content_block_start":
            blocks[index] = dict(value["content_block"])
        elif kind == "content_block_delta":
            _grow(blocks[index], value["delta"], arguments, index)
        elif kind == "message_delta":
            message |= value["delta"]
            message["usage"] = {**(message.get("usage") or {}), **(value.get("usage") or {})}
    for index, text in arguments.items():
        blocks[index]["input"] = _decoded(text)
    message["content"] = [block for _, block in sorted(blocks.items())]
    return message


def _grow(block: Json, delta: Json, arguments: dict[int, str], index: int) -> None:
    kind = delta["type"]
    if kind == "input_json_delta":
        arguments[index] = arguments.get(index, "") + delta["partial_json"]
    elif kind == "citations_delta":
        block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
    else:  # text, thinking, signature: the delta's field is the block's
        for name, piece in delta.items():
            if name != "type" and isinstance(piece, str):
                block[name] = (block.get(name) or "") + piece


def whole_completion(events: Sequence[str]) -> Json:
    """The completion of a stream of chunks, with its first choice."""
    completion: Json = {"object": "chat.completion"}
    message: Json = {"role": "assistant", "content": None}
    calls: dict[int, Json] = {}
    reason = None
    for value in map(_decoded, events):
        for name in ("id", "created", "model", "usage"):
            if name in value:
                completion[name] = value[name]
        for choice in (value.get("choices") or ())[:1]:
            reason = choice.get("finish_reason") or reason
            for name, piece in (choice.get("delta") or {}).items():
                if name == "tool_calls":
                    for member in piece or ():
                        _called(calls, member)
                elif isinstance(piece, str) and name != "role":
                    message[name] = (message.get(name) or "") + piece
    if calls:
        message["tool_calls"] = list(calls.values())
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    return {**completion, "choices": [choice]}


def _called(calls: dict[int, Json], piece: Json) -> None:
    index = piece.get("index") or 0
    call = calls.setdefault(
        index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
    )
    call["id"] = piece.get("id") or call["id"]
    function = piece.get("function") or {}
    for name in ("name", "arguments"):
        call["function"][name] += function.get(name) or ""


def _decoded(text: str) -> Json:
    return dict_of(decoded(text))  # not `[DONE]`, nor arguments that were cut short
