"""A strict reader of a Responses stream that shares nothing with its writer.

It knows two things: the types that openai-python publishes, and the order in which the SDKs need
the events. Whatever it lets pass, the SDKs take; what it gives back is what a client ends up with.
"""

from __future__ import annotations

import json
from typing import Any, get_args

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel

from tests.wire.frames import events_of

Json = dict[str, Any]

_EVENTS: dict[str, type[BaseModel]] = {
    get_args(model.model_fields["type"].annotation)[0]: model
    for model in get_args(get_args(ResponseStreamEvent)[0])
}
# Fields that the types leave out and the API, or another SDK, has all the same.
_EXTRAS = {
    ("McpToolExecutionError", "code"),
    ("McpToolExecutionError", "message"),
    ("ImageGenerationCall", "url"),
    ("ResponseCustomToolCall", "status"),
    ("Response", "store"),
    ("Response", "frequency_penalty"),
    ("Response", "presence_penalty"),
}
_NULL = {"completed_at", "max_output_tokens", "max_tool_calls", "safety_identifier"}
_NULL |= {"prompt_cache_key", "reasoning", "previous_response_id", "instructions", "usage", "error"}
_NULL |= {"incomplete_details"}
_SET = {"truncation", "text", "presence_penalty", "frequency_penalty", "top_logprobs", "tools"}
_SET |= {"service_tier", "temperature", "top_p", "metadata", "store", "background", "status"}
_PARTS = {
    "output_text": ("content", "content_index", "response.output_text", "text"),
    "refusal": ("content", "content_index", "response.refusal", "refusal"),
    "reasoning_text": ("content", "content_index", "response.reasoning_text", "text"),
    "summary_text": ("summary", "summary_index", "response.reasoning_summary_text", "text"),
}
_ARGUMENTS = {
    "response.function_call_arguments": ("function_call", "arguments"),
    "response.custom_tool_call_input": ("custom_tool_call", "input"),
    "response.mcp_call_arguments": ("mcp_call", "arguments"),
    "response.code_interpreter_call_code": ("code_interpreter_call", "code"),
}
CLIENT = ("function_call", "custom_tool_call")
TERMINAL = ("response.completed", "response.incomplete", "response.failed")


def check_response(body: Json) -> None:
    """A `response` object, by OpenAI's types and the fields that Open Responses requires."""
    assert body.keys() >= _NULL | _SET
    assert [name for name in _SET if body[name] is None] == []
    assert body["completed_at"] is None or body["status"] == "completed"
    if body["status"] not in ("queued", "in_progress"):
        assert "in_progress" not in [item.get("status") for item in body["output"]]
    assert body["text"]["format"]
    for one in body["tools"]:
        assert one["type"] != "function" or {"description", "parameters", "strict"} <= one.keys()
    _extras(Response.model_validate_json(json.dumps(body), strict=True))


def _extras(model: Any) -> None:
    if isinstance(model, list):
        for one in model:
            _extras(one)
    if isinstance(model, BaseModel):
        name = type(model).__name__
        unknown = {key for key in model.model_extra or {} if (name, key) not in _EXTRAS}
        assert not unknown, f"{name} has no {unknown}"
        for field in type(model).model_fields:
            if field not in ("tools", "text", "reasoning"):
                _extras(getattr(model, field))


class Reader:
    """A client of the stream: feed it frames, look at `items` and `final`."""

    def __init__(self) -> None:
        self.last = -1
        self.response_id: str | None = None
        self.items: list[Json] = []
        self.done: dict[int, Json] = {}
        self.open_parts: dict[tuple[int, str, int], Json] = {}
        self.final: Json | None = None
        self.error: Json | None = None

    @property
    def is_done(self) -> bool:
        """Whether the stream has its end."""
        return (self.final or self.error) is not None

    def read(self, frames: list[bytes]) -> Reader:
        """Take frames, or fail with what is wrong."""
        for event in events_of(frames):
            self._read(event)
        return self

    def _read(self, event: Json) -> None:
        kind = event["type"]
        assert (self.final, self.error) == (None, None), f"{kind} after the end"
        assert event["sequence_number"] > self.last, "numbers must rise"
        self.last = event["sequence_number"]
        model = _EVENTS[kind]
        checked = dict(event)
        if "response" in event:
            checked["response"] = event["response"]
        _extras(model.model_validate_json(json.dumps(checked), strict=True))
        if kind == "error":
            self.error = event
            return
        if "response" in event:
            self._lifecycle(kind, event["response"])
            return
        assert self.response_id is not None, f"{kind} before response.created"
        if kind == "response.output_item.added":
            self._added(event)
            return
        index = event["output_index"]
        assert index < len(self.items), f"{kind} before its item"
        assert index not in self.done, f"{kind} after its item is done"
        item = self.items[index]
        if kind == "response.output_item.done":
            self._item_done(index, item, event["item"])
            return
        assert event["item_id"] == item["id"], "an item's id never changes"
        self._about_item(kind, event, index, item)

    def _lifecycle(self, kind: str, response: Json) -> None:
        if self.response_id is None:
            assert kind == "response.created", f"{kind} comes first"
            self.response_id = response["id"]
        else:
            assert kind != "response.created"
        assert response["id"] == self.response_id
        if kind not in TERMINAL:
            assert response["output"] == []
            assert response["status"] in ("queued", "in_progress")
            assert response["usage"] is None
            return
        self.final = response
        assert response["usage"] is not None
        assert (kind == "response.failed") == (response["error"] is not None)
        if kind == "response.completed":
            assert response["status"] == "completed"
            # What is open at a request for an approval is done in the next response.
            asks = any(item["type"] == "mcp_approval_request" for item in response["output"])
            every = list(range(len(self.items)))
            assert asks or every == sorted(self.done), "an item is not done"
            left = {item["id"]: item for item in response["output"]}
            for index in every:
                item = self.items[index]
                if index not in self.done and item["type"] not in CLIENT:
                    assert left[item["id"]]["status"] in ("incomplete", "failed"), (
                        "the SDKs require the item"
                    )
                    self.done[index] = left[item["id"]]
            assert response["output"] == [self.done[index] for index in sorted(self.done)]
        elif response["error"] is None or response["error"]["type"] != "stream_cut":
            assert response["status"] in ("incomplete", "failed", "cancelled")
            assert response["output"] == [self.done[index] for index in sorted(self.done)]

    def _added(self, event: Json) -> None:
        item = event["item"]
        assert event["output_index"] == len(self.items), "output_index counts without holes"
        assert item["id"], "an id is never empty"
        assert item["id"] not in [one["id"] for one in self.items], "ids are new"
        assert item["type"] == "mcp_approval_request" or item["status"] == "in_progress"
        for name in ("content", "summary"):
            assert item.get(name, []) == []
        for name in ("arguments", "input") if "status" in item else ():
            assert item.get(name, "") == ""
        self.items.append(json.loads(json.dumps(item)))

    def _about_item(self, kind: str, event: Json, index: int, item: Json) -> None:
        name, _, verb = kind.rpartition(".")
        if name in ("response.content_part", "response.reasoning_summary_part"):
            self._part(verb, event, index, item)
        elif name in [lane[2] for lane in _PARTS.values()]:
            self._text(name, verb, event, index)
        elif kind == "response.output_text.annotation.added":
            part = self.open_parts[index, "content", event["content_index"]]
            assert event["annotation_index"] == len(part["annotations"])
            part["annotations"].append(event["annotation"])
        elif name in _ARGUMENTS:
            type_, field = _ARGUMENTS[name]
            assert item["type"] == type_
            self._arguments(verb, event, item, field)
        elif name == "response.mcp_call":
            assert item["type"] == "mcp_call"
            self._step(verb, item, {None: "in_progress", "in_progress": "completed failed"})
        elif name == "response.code_interpreter_call":
            assert item["type"] == "code_interpreter_call"
            steps: dict[str | None, str] = {
                None: "in_progress",
                "in_progress": "interpreting",
                "interpreting": "completed",
            }
            self._step(verb, item, steps)
        else:
            assert name == "response.image_generation_call"
            assert item["type"] == "image_generation_call"
            steps = {
                None: "in_progress",
                "in_progress": "generating",
                "generating": "partial_image completed",
                "partial_image": "partial_image completed",
            }
            self._step(verb, item, steps)
            if verb == "partial_image":
                assert event["partial_image_b64"]

    @staticmethod
    def _step(verb: str, item: Json, steps: dict[str | None, str]) -> None:
        assert verb in steps[item.get("_step")].split(), f"{verb} after {item.get('_step')}"
        item["_step"] = verb

    def _part(self, verb: str, event: Json, index: int, item: Json) -> None:
        part = event["part"]
        list_, place, _, field = _PARTS[part["type"]]
        assert item["type"] == ("message" if list_ == "content" else "reasoning") or (
            part["type"] == "reasoning_text" and item["type"] == "reasoning"
        )
        key = (index, list_, event[place])
        if verb == "added":
            parts = item.setdefault(list_, [])
            assert event[place] == len(parts), "parts are counted without holes"
            assert part[field] == ""
            assert part.get("annotations", []) == []
            self.open_parts[key] = json.loads(json.dumps(part))
            parts.append(self.open_parts[key])
        else:
            assert self.open_parts[key].pop("_done", False), "the text is done before its part"
            assert part == self.open_parts.pop(key), "the part is what was streamed"

    def _text(self, name: str, verb: str, event: Json, index: int) -> None:
        (type_, (list_, place, _, field)) = next(
            (type_, lane) for type_, lane in _PARTS.items() if lane[2] == name
        )
        part = self.open_parts[index, list_, event[place]]
        assert part["type"] == type_
        assert "_done" not in part
        if verb == "delta":
            part[field] += event["delta"]
        else:
            assert event[field] == part[field], "the text is what was streamed"
            part["_done"] = True

    @staticmethod
    def _arguments(verb: str, event: Json, item: Json, field: str) -> None:
        assert "_done" not in item
        if verb == "delta":
            item[field] += event["delta"]
            return
        item["_done"] = True
        if item["type"] == "mcp_call":
            json.loads(event[field])
            item[field] = event[field] if not _is_json(item[field]) else item[field]
        assert event[field] == item[field], "the arguments are what was streamed"

    def _item_done(self, index: int, item: Json, final: Json) -> None:
        for name in ("type", "id", "call_id", "name", "server_label"):
            assert final.get(name) == item.get(name), f"{name} never changes"
        assert not [key for key in self.open_parts if key[0] == index], "a part is open"
        assert final.get("status") != "in_progress"
        for name in ("content", "summary"):
            assert final.get(name, []) == item.get(name, []), f"{name} is what was streamed"
        if final["type"] in CLIENT:
            assert final["status"] == "completed", "the AI SDK executes every call that is done"
            assert item["_done"]
            name = "input" if "input" in final else "arguments"
            assert final[name] == item[name]
        if final["type"] == "mcp_call":
            json.loads(final["arguments"])
            assert item["_step"] == ("completed" if final["status"] == "completed" else "failed")
            assert (final["error"] is not None) == (final["status"] == "failed")
        if final["type"] == "code_interpreter_call":
            assert final["code"] == item["code"], "the code is what was streamed"
            assert (item["_step"] == "completed") == (final["status"] == "completed")
        if final["type"] == "image_generation_call":
            assert item["_step"] == "completed"
            assert isinstance(final["result"], str)
        self.done[index] = final


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
