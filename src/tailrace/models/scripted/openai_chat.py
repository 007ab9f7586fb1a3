"""A script as chat completions stream it, with `reasoning_content`, as DeepSeek has it."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.core.sse import DONE
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


class PlayedChat(PlayedScript):
    """One completion; `message` is what has been streamed of it so far."""

    def __init__(
        self, name: str, script: Script, *, model: str = "scripted", input_tokens: int = 10
    ) -> None:
        super().__init__(name, script, model=model, input_tokens=input_tokens)
        self.id = f"chatcmpl-{name}"
        self.message: Json = {"role": "assistant", "content": None}

    @property
    def _reason(self) -> str:
        return "tool_calls" if "tool_calls" in self.message else "stop"

    @property
    def _usage(self) -> Json:
        return {
            "prompt_tokens": self._input_tokens,
            "completion_tokens": self._words,
            "total_tokens": self._input_tokens + self._words,
        }

    def object(self) -> Json:
        """The completion, whole."""
        choice = {
            "index": 0,
            "message": self.message,
            "finish_reason": self._reason,
            "logprobs": None,
        }
        return {**self._facts("chat.completion"), "choices": [choice], "usage": self._usage}

    def _facts(self, kind: str) -> Json:
        return {"id": self.id, "object": kind, "created": 1_700_000_000, "model": self._model}

    def _begin(self) -> Iterator[ScriptFrame]:
        yield self._delta({"role": "assistant", "content": ""})

    def _end(self) -> Iterator[ScriptFrame]:
        yield self._delta({}, self._reason)
        last = {**self._facts("chat.completion.chunk"), "choices": [], "usage": self._usage}
        yield ScriptFrame(json_text(last))
        yield ScriptFrame(DONE)

    def _fail(self, step: Fail) -> ScriptFrame:
        error = {"message": step.message, "type": "server_error", "code": step.code}
        return ScriptFrame(json_text({"error": error}))

    def _unfinished(self) -> ScriptFrame:
        return self._delta({"content": "… at the café"})

    def _delta(self, delta: Json, reason: str | None = None, after: float = 0) -> ScriptFrame:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        chunk = {**self._facts("chat.completion.chunk"), "choices": [choice]}
        return ScriptFrame(json_text(chunk), None, after)

    def _think(self, step: Think, *, is_whole: bool) -> Iterator[ScriptFrame]:  # noqa: ARG002
        yield from self._text("reasoning_content", step)

    def _say(self, step: Say, *, is_whole: bool) -> Iterator[ScriptFrame]:  # noqa: ARG002
        yield from self._text("content", step)

    def _text(self, field: str, step: Say | Think) -> Iterator[ScriptFrame]:
        for after, piece in self._paced(step.text, step.pace):
            yield self._delta({field: piece}, after=after)
        self.message[field] = (self.message.get(field) or "") + step.text

    def _call(self, step: Call, *, is_whole: bool) -> Iterator[ScriptFrame]:
        calls = self.message.setdefault("tool_calls", [])
        index = len(calls)
        ident = f"call_{self._name}_{index}"
        arguments = arguments_of(step, is_whole=is_whole)
        begun: Json = {
            "index": index,
            "id": ident,
            "type": "function",
            "function": {"name": step.name, "arguments": ""},
        }
        yield self._delta({"tool_calls": [begun]})
        for after, piece in self._paced(arguments, step.pace):
            more = {"index": index, "function": {"arguments": piece}}
            yield self._delta({"tool_calls": [more]}, after=after)
        function = {"name": step.name, "arguments": arguments}
        calls.append({"id": ident, "type": "function", "function": function})
