"""A script as OpenAI's Responses API streams it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tailrace.core.values import Json, json_text
from tailrace.models.scripted.script import (
    Call,
    Fail,
    PlayedScript,
    Say,
    Script,
    ScriptFrame,
    Think,
    arguments_of,
)

_CUT_SHORT: Json = {
    "type": "response.output_text.delta",
    "item_id": "msg_cut",
    "output_index": 99,
    "content_index": 0,
    "delta": "… at the café",
}


class PlayedResponses(PlayedScript):
    """One response; `output` is what has been streamed of it so far, whole items only."""

    def __init__(
        self,
        name: str,
        script: Script,
        *,
        model: str = "scripted",
        sealed: bool = False,
        input_tokens: int = 10,
    ) -> None:
        super().__init__(name, script, model=model, input_tokens=input_tokens)
        self.id = f"resp_{name}"
        self.output: list[Json] = []
        self.status = "in_progress"
        self._sealed = sealed
        self._sequence = 0

    def object(self) -> Json:
        """The response as it stands."""
        found: Json = {
            "id": self.id,
            "object": "response",
            "created_at": 1_700_000_000,
            "model": self._model,
            "status": self.status,
            "error": None,
            "incomplete_details": None,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "output": self.output,
        }
        if self.status == "completed":
            found["usage"] = {
                "input_tokens": self._input_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": self._words,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": self._input_tokens + self._words,
            }
        return found

    def _begin(self) -> Iterator[ScriptFrame]:
        yield self._frame("response.created", response=self.object())
        yield self._frame("response.in_progress", response=self.object())

    def _end(self) -> Iterator[ScriptFrame]:
        self.status = "completed"
        yield self._frame("response.completed", response=self.object())

    def _fail(self, step: Fail) -> ScriptFrame:
        self.status = "failed"
        error = {"code": step.code, "message": step.message}
        return self._frame("response.failed", response={**self.object(), "error": error})

    def _unfinished(self) -> ScriptFrame:
        return ScriptFrame(json_text(_CUT_SHORT), _CUT_SHORT["type"])

    def _frame(self, kind: str, after: float = 0, **fields: Any) -> ScriptFrame:
        event = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return ScriptFrame(json_text(event), kind, after)

    def _ident(self, prefix: str) -> str:
        return f"{prefix}_{self._name}_{len(self.output)}"

    def _think(self, step: Think, *, is_whole: bool) -> Iterator[ScriptFrame]:
        index, ident = len(self.output), self._ident("rs")
        item: Json = {"type": "reasoning", "id": ident, "summary": []}
        yield self._frame("response.output_item.added", output_index=index, item=item)
        place: Json = {"item_id": ident, "output_index": index, "summary_index": 0}
        part = {"type": "summary_text", "text": ""}
        yield self._frame("response.reasoning_summary_part.added", **place, part=part)
        for after, piece in self._paced(step.text, step.pace):
            kind = "response.reasoning_summary_text.delta"
            yield self._frame(kind, after, **place, delta=piece)
        if not is_whole:
            return
        part = {"type": "summary_text", "text": step.text}
        yield self._frame("response.reasoning_summary_text.done", **place, text=step.text)
        yield self._frame("response.reasoning_summary_part.done", **place, part=part)
        item = {**item, "summary": [part]}
        if self._sealed:
            item["encrypted_content"] = f"sealed:{ident}"
        yield self._done(item)

    def _say(self, step: Say, *, is_whole: bool) -> Iterator[ScriptFrame]:
        index, ident = len(self.output), self._ident("msg")
        item: Json = {
            "type": "message",
            "id": ident,
            "role": "assistant",
            "status": "in_progress",
            "content": [],
        }
        yield self._frame("response.output_item.added", output_index=index, item=item)
        place: Json = {"item_id": ident, "output_index": index, "content_index": 0}
        part: Json = {"type": "output_text", "text": "", "annotations": []}
        yield self._frame("response.content_part.added", **place, part=part)
        for after, piece in self._paced(step.text, step.pace):
            kind = "response.output_text.delta"
            yield self._frame(kind, after, **place, delta=piece, logprobs=[])
        if not is_whole:
            return
        part = {**part, "text": step.text}
        yield self._frame("response.output_text.done", **place, text=step.text, logprobs=[])
        yield self._frame("response.content_part.done", **place, part=part)
        yield self._done({**item, "status": "completed", "content": [part]})

    def _call(self, step: Call, *, is_whole: bool) -> Iterator[ScriptFrame]:
        index, ident = len(self.output), self._ident("fc")
        item: Json = {
            "type": "function_call",
            "id": ident,
            "call_id": self._ident("call"),
            "name": step.name,
            "arguments": "",
            "status": "in_progress",
        }
        yield self._frame("response.output_item.added", output_index=index, item=item)
        place: Json = {"item_id": ident, "output_index": index}
        arguments = arguments_of(step, is_whole=is_whole)
        for after, piece in self._paced(arguments, step.pace):
            kind = "response.function_call_arguments.delta"
            yield self._frame(kind, after, **place, delta=piece)
        if not is_whole:
            return
        kind = "response.function_call_arguments.done"
        yield self._frame(kind, **place, name=step.name, arguments=arguments)
        yield self._done({**item, "arguments": arguments, "status": "completed"})

    def _done(self, item: Json) -> ScriptFrame:
        index = len(self.output)
        self.output.append(item)
        return self._frame("response.output_item.done", output_index=index, item=item)
