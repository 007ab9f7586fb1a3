"""A strict reader of UI message streams that shares nothing with their writer.

It knows the chunks that the AI SDK publishes, field by field, and the order that its reducer needs;
what it holds in the end is the message that the SDK would hold (a test compares the two).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.wire.frames import chunks_of

Json = dict[str, Any]

_TOOL = "toolCallId toolName"
_TOOL_OPTIONS = "providerExecuted dynamic providerMetadata"
_FIELDS: dict[str, tuple[str, str]] = {
    "start": ("messageId messageMetadata", ""),
    "start-step": ("", ""),
    "reset-step": ("", ""),
    "finish-step": ("", ""),
    "finish": ("finishReason messageMetadata", ""),
    "error": ("errorText", ""),
    "abort": ("", "reason"),
    "message-metadata": ("messageMetadata", ""),
    "text-start": ("id", "providerMetadata"),
    "text-delta": ("id delta", ""),
    "text-end": ("id", "citations"),
    "reasoning-start": ("id", ""),
    "reasoning-delta": ("id delta", ""),
    "reasoning-end": ("id", ""),
    "file": ("url mediaType", "providerMetadata"),
    "source-url": ("sourceId url", "title providerMetadata"),
    "source-document": ("sourceId mediaType title", "filename providerMetadata"),
    "tool-input-start": (_TOOL, _TOOL_OPTIONS + " inputEncoding"),
    "tool-input-delta": ("toolCallId inputTextDelta", ""),
    "tool-input-available": (_TOOL + " input", _TOOL_OPTIONS),
    "tool-input-error": (_TOOL + " input errorText", _TOOL_OPTIONS),
    "tool-output-available": ("toolCallId output providerExecuted", "dynamic"),
    "tool-output-error": ("toolCallId errorText providerExecuted", "dynamic"),
    "tool-approval-request": ("approvalId toolCallId", "reason"),
}
_NULLABLE = ("data", "input", "output")
_FINISH_REASONS = ("stop", "length", "content-filter", "tool-calls", "other")
_ALWAYS_TRANSIENT = (
    *("data-delta", "data-block", "data-step", "data-notice", "data-progress"),
    *("data-agent", "data-history"),
)
_ENDS = ("finish", "error", "abort")


def responses_of(frames: list[bytes]) -> list[str]:
    """The bytes of each response: a run that waited has several."""
    whole = b"".join(frames).decode()
    end = "data: [DONE]\n\n"
    return [one + end for one in whole.split(end)[:-1]]


class UiReader:
    """Takes chunks one by one, and complains about the first chunk that does not fit."""

    def __init__(self) -> None:
        self.message: Json = {}
        self.parts: list[Json] = []
        self.ending: str | None = None
        self.responses = 0
        self.transient: list[Json] = []
        self._phase = "done"
        self._texts: dict[str, Json] = {}
        self._reasonings: dict[str, Json] = {}
        self._calls: dict[str, Json] = {}
        self._inner: dict[str, Json] = {}
        self._task_ids: dict[str, str] = {}
        self._streamed: dict[str, str] = {}

    def read(self, frames: Iterable[bytes]) -> UiReader:
        for chunk in chunks_of(frames):
            self.take(chunk)
        return self

    @property
    def is_done(self) -> bool:
        """Whether the last response is over, down to its `[DONE]`."""
        return self._phase == "done" and self.responses > 0

    def take(self, chunk: Any) -> None:
        if chunk == "[DONE]":
            assert self._phase == "ended", "[DONE] without an end"
            self._phase = "done"
            return
        kind = chunk["type"]
        _check_fields(chunk)
        if self._phase == "done":
            assert kind == "start", f"a response begins with {kind}"
        elif self._phase == "started":
            step = "start-step" if self.responses == 1 else "reset-step"
            assert kind == step, f"{kind} where {step} belongs"
        elif self._phase == "finishing":
            assert kind == "finish", f"{kind} after finish-step"
        else:
            assert self._phase == "open", f"{kind} after the end"
        if kind.startswith("data-"):
            self._data(chunk)
        else:
            getattr(self, "_" + kind.replace("-", "_"))(chunk)

    # --- the response --------------------------------------------------------------------------

    def _start(self, chunk: Json) -> None:
        self.responses += 1
        self.ending = None
        self._phase = "started"
        if self.responses > 1:
            assert chunk["messageId"] == self.message["id"], "another message"
        self._task_ids = {"0": chunk["messageMetadata"]["task_id"]}
        self.message = {
            "id": chunk["messageId"],
            "role": "assistant",
            "metadata": {**self.message.get("metadata", {}), **chunk["messageMetadata"]},
            "parts": self.parts,
        }

    def _start_step(self, _chunk: Json) -> None:
        assert self._phase == "started", "a second step"
        self._phase = "open"
        self.parts.append({"type": "step-start"})

    def _reset_step(self, _chunk: Json) -> None:
        self._phase = "open"
        del self.parts[1:]
        for memory in (self._texts, self._reasonings, self._calls, self._inner, self._streamed):
            memory.clear()
        self._task_ids = {"0": self._task_ids["0"]}

    def _finish_step(self, _chunk: Json) -> None:
        self._phase = "finishing"

    def _end(self, chunk: Json) -> None:
        self.ending = chunk["type"]
        self._phase = "ended"
        assert not self._texts, "a text without its end"
        assert not self._reasonings, "a reasoning without its end"

    def _finish(self, chunk: Json) -> None:
        assert self._phase == "finishing", "finish without finish-step"
        assert chunk["finishReason"] in _FINISH_REASONS
        self._message_metadata(chunk)
        self._end(chunk)

    _error = _abort = _end

    def _message_metadata(self, chunk: Json) -> None:
        self.message["metadata"] |= chunk["messageMetadata"]

    # --- texts ---------------------------------------------------------------------------------

    def _text_start(self, chunk: Json) -> None:
        assert chunk["id"] not in self._texts
        part = {"type": "text", "text": "", "state": "streaming"}
        if "providerMetadata" in chunk:
            part["providerMetadata"] = chunk["providerMetadata"]
        self._texts[chunk["id"]] = part
        self.parts.append(part)

    def _text_delta(self, chunk: Json) -> None:
        self._texts[chunk["id"]]["text"] += chunk["delta"]

    def _text_end(self, chunk: Json) -> None:
        part = self._texts.pop(chunk["id"])
        part["state"] = "done"
        units = len(part["text"].encode("utf-16-le")) // 2
        for citation in chunk.get("citations", ()):
            assert set(citation) <= {"source", "startIndex", "endIndex"}
            assert citation.get("endIndex", 0) <= units, "a citation outside of its text"
        if "citations" in chunk:
            part["citations"] = chunk["citations"]

    def _reasoning_start(self, chunk: Json) -> None:
        assert chunk["id"] not in self._reasonings
        part = {"type": "reasoning", "id": chunk["id"], "text": "", "state": "streaming"}
        self._reasonings[chunk["id"]] = part
        self.parts.append(part)

    def _reasoning_delta(self, chunk: Json) -> None:
        self._reasonings[chunk["id"]]["text"] += chunk["delta"]

    def _reasoning_end(self, chunk: Json) -> None:
        self._reasonings.pop(chunk["id"])["state"] = "done"

    # --- other parts ---------------------------------------------------------------------------

    def _whole(self, chunk: Json) -> None:
        self.parts.append(chunk)

    _file = _source_url = _source_document = _whole

    # --- tools ---------------------------------------------------------------------------------

    def _tool_input_start(self, chunk: Json) -> None:
        assert chunk["toolCallId"] not in self._calls, "a call twice"
        part: Json = {"toolCallId": chunk["toolCallId"], "state": "input-streaming"}
        if chunk.get("dynamic"):
            part |= {"type": "dynamic-tool", "toolName": chunk["toolName"]}
        else:
            part["type"] = "tool-" + chunk["toolName"]
        part |= {k: chunk[k] for k in ("providerExecuted", "inputEncoding") if k in chunk}
        if "providerMetadata" in chunk:
            part["callProviderMetadata"] = chunk["providerMetadata"]
        self._calls[chunk["toolCallId"]] = part
        self.parts.append(part)

    def _tool_input_delta(self, chunk: Json) -> None:
        part = self._calls[chunk["toolCallId"]]
        assert part["state"] == "input-streaming"
        part["rawInput"] = part.get("rawInput", "") + chunk["inputTextDelta"]

    def _tool_input_available(self, chunk: Json) -> None:
        self._input(chunk, "input-available")

    def _tool_input_error(self, chunk: Json) -> None:
        self._input(chunk, "output-error")["errorText"] = chunk["errorText"]

    def _input(self, chunk: Json, state: str) -> Json:
        part = self._calls[chunk["toolCallId"]]
        assert part["state"] == "input-streaming", "the input of a call twice"
        assert bool(chunk.get("dynamic")) == (part["type"] == "dynamic-tool")
        raw = part.pop("rawInput", None)
        part.pop("inputEncoding", None)
        if raw and chunk["input"] != raw:
            assert _same_json(raw, chunk["input"]), "another input than was streamed"
        part |= {"state": state, "input": chunk["input"]}
        if "providerExecuted" in chunk:
            part["providerExecuted"] = True
        if "providerMetadata" in chunk:
            part["callProviderMetadata"] = chunk["providerMetadata"]
        return part

    def _tool_output_available(self, chunk: Json) -> None:
        part = self._output(chunk, "output-available")
        part["output"] = chunk["output"]
        for ident, item in self._inner.items():
            if item["type"] == "tool_result" and item["call_id"] == chunk["toolCallId"]:
                for index, block in enumerate(chunk["output"]):
                    self._compare(f"{ident}/{index}", block)

    def _tool_output_error(self, chunk: Json) -> None:
        self._output(chunk, "output-error")["errorText"] = chunk["errorText"]

    def _output(self, chunk: Json, state: str) -> Json:
        part = self._calls[chunk["toolCallId"]]
        # A call whose input is not JSON may have a result, which says so.
        assert part["state"] in ("input-available", "output-error"), part["state"]
        part.pop("errorText", None)
        part |= {"state": state, "providerExecuted": True}
        return part

    def _tool_approval_request(self, chunk: Json) -> None:
        part = self._calls[chunk["toolCallId"]]
        assert part["state"] == "input-available", part["state"]
        approval = {"id": chunk["approvalId"]}
        if "reason" in chunk:
            approval["requestReason"] = chunk["reason"]
        part |= {"state": "approval-requested", "approval": approval}

    # --- data ----------------------------------------------------------------------------------

    def _data(self, chunk: Json) -> None:
        if chunk["type"] == "data-task":
            self._name_task(chunk)
        elif chunk["type"] in ("data-task-item", "data-delta", "data-block"):
            self._live(chunk)
        if chunk.get("transient"):
            self.transient.append(chunk)
            return
        assert chunk["type"] not in _ALWAYS_TRANSIENT, "this would pile up in the message"
        for part in self.parts:
            if part["type"] == chunk["type"] and part["id"] == chunk["id"]:
                part["data"] = chunk["data"]
                return
        self.parts.append(chunk)

    def _name_task(self, chunk: Json) -> None:
        """Take note of the number by which the pieces of a sub-agent name it."""
        number, task_id = str(chunk["data"]["task_index"]), chunk["data"]["task_id"]
        assert chunk["id"] == task_id
        assert self._task_ids.setdefault(number, task_id) == task_id, "a number of two tasks"
        assert list(self._task_ids.values()).count(task_id) == 1, "a task with two numbers"

    def _live(self, chunk: Json) -> None:
        """What a page does that shows sub-agents and results while they work."""
        ident, data = chunk["id"], chunk["data"]
        if chunk["type"] == "data-task-item":
            is_open = data.get("status") == "in_progress"
            for index, part in _texts_of(data).items():
                place = f"{ident}/{index}"
                # Arguments may come whole with the item that they belong to.
                whole = data["type"] == "tool_call" and not self._streamed.get(place)
                if ident in self._inner and not is_open and not whole:
                    self._compare(place, part)
                self._streamed[place] = _text_of(part)
            self._inner[ident] = data
            return
        number, output_index, index = ident.split("/")
        assert number in self._task_ids, f"{ident} of a task that was never announced"
        owner = f"{self._task_ids[number]}/{output_index}"
        place = f"{owner}/{index}"
        if chunk["type"] == "data-block" and owner not in self._inner:
            # A picture of the message itself that is still being made: it will be a file.
            assert data["type"] == "image"
            return
        assert owner in self._inner, f"{ident} of an item that was never announced"
        assert self._inner[owner]["status"] == "in_progress"
        if chunk["type"] == "data-delta":
            self._streamed[place] = self._streamed.get(place, "") + data
        else:
            self._streamed[place] = _text_of(data)

    def _compare(self, place: str, part: Json) -> None:
        assert self._streamed.get(place, "") == _text_of(part), f"{place} was streamed otherwise"


def _check_fields(chunk: Json) -> None:
    kind = chunk["type"]
    if kind.startswith("data-"):
        assert set(chunk) <= {"type", "id", "data", "transient"}, chunk
        assert isinstance(chunk["id"], str)
        assert chunk.get("transient", True) is True
    else:
        required, optional = (set(names.split()) for names in _FIELDS[kind])
        assert required | {"type"} <= set(chunk) <= required | optional | {"type"}, chunk
    for name, value in chunk.items():
        assert value is not None or name in _NULLABLE, f"{name} is null in {chunk}"


def _texts_of(item: Json) -> dict[int, Json]:
    """The parts of an item by index; a reasoning shows its summary or its raw text, never both."""
    if item["type"] == "tool_call":
        return {0: {"text": item["arguments"]}}
    lists = [item[name] for name in ("block_list", "summary", "reasoning_text") if name in item]
    assert len(lists) == (item["type"] != "raw")
    return dict(enumerate(lists[0])) if lists else {}


def _text_of(block: Json) -> str:
    return str(block.get("text", block.get("refusal", "")))


def _same_json(text: str, value: Any) -> bool:
    try:
        parsed = json.loads(text)
    except ValueError:
        return False
    return bool(_tame(parsed) == value)


def _tame(value: Any) -> Any:
    if isinstance(value, list):
        return [_tame(item) for item in value]
    if isinstance(value, dict):
        return {k if k != "__proto__" else "__proto___": _tame(v) for k, v in value.items()}
    return value
