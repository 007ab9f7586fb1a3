"""A script as Anthropic's Messages API streams it."""

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

ERRORS = {
    "overloaded": "overloaded_error",
    "rate_limited": "rate_limit_error",
    "provider_failed": "api_error",
    "key_refused": "authentication_error",
}
"""Anthropic's words for errors."""


class PlayedMessages(PlayedScript):
    """One message; `content` is what has been streamed of it so far, whole blocks only."""

    def __init__(
        self, name: str, script: Script, *, model: str = "scripted", input_tokens: int = 10
    ) -> None:
        super().__init__(name, script, model=model, input_tokens=input_tokens)
        self.id = f"msg_{name}"
        self.content: list[Json] = []

    def object(self) -> Json:
        """The message, whole."""
        has_calls = any(block["type"] == "tool_use" for block in self.content)
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": self.content,
            "stop_reason": "tool_use" if has_calls else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": self._input_tokens, "output_tokens": self._words},
        }

    def _begin(self) -> Iterator[ScriptFrame]:
        begun = {**self.object(), "content": [], "stop_reason": None}
        yield _frame("message_start", message=begun)
        yield _frame("ping")

    def _end(self) -> Iterator[ScriptFrame]:
        whole = self.object()
        delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield _frame("message_delta", delta=delta, usage={"output_tokens": self._words})
        yield _frame("message_stop")

    def _fail(self, step: Fail) -> ScriptFrame:
        code = ERRORS.get(step.code, step.code)
        return _frame("error", error={"type": code, "message": step.message})

    def _unfinished(self) -> ScriptFrame:
        delta = {"type": "text_delta", "text": "… at the café"}
        return _frame("content_block_delta", index=99, delta=delta)

    def _say(self, step: Say, *, is_whole: bool) -> Iterator[ScriptFrame]:
        text = {"type": "text", "text": ""}
        yield from self._block(text, "text", step.text, step.pace)
        if is_whole:
            yield self._stop({"type": "text", "text": step.text})

    def _think(self, step: Think, *, is_whole: bool) -> Iterator[ScriptFrame]:
        index = len(self.content)
        start = {"type": "thinking", "thinking": "", "signature": ""}
        yield from self._block(start, "thinking", step.text, step.pace)
        if not is_whole:
            return
        signature = f"signed:{self._name}:{index}"
        delta = {"type": "signature_delta", "signature": signature}
        yield _frame("content_block_delta", index=index, delta=delta)
        yield self._stop({"type": "thinking", "thinking": step.text, "signature": signature})

    def _call(self, step: Call, *, is_whole: bool) -> Iterator[ScriptFrame]:
        ident = f"toolu_{self._name}_{len(self.content)}"
        block = {"type": "tool_use", "id": ident, "name": step.name}
        arguments = arguments_of(step, is_whole=is_whole)
        yield from self._block({**block, "input": {}}, "input_json", arguments, step.pace)
        if is_whole:
            yield self._stop({**block, "input": step.arguments})

    def _block(self, start: Json, kind: str, text: str, pace: float) -> Iterator[ScriptFrame]:
        index = len(self.content)
        field = "partial_json" if kind == "input_json" else kind
        yield _frame("content_block_start", index=index, content_block=start)
        for after, piece in self._paced(text, pace):
            delta = {"type": f"{kind}_delta", field: piece}
            yield _frame("content_block_delta", after, index=index, delta=delta)

    def _stop(self, block: Json) -> ScriptFrame:
        index = len(self.content)
        self.content.append(block)
        return _frame("content_block_stop", index=index)


def _frame(kind: str, after: float = 0, **fields: Any) -> ScriptFrame:
    return ScriptFrame(json_text({"type": kind, **fields}), kind, after)
