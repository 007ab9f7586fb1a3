"""OpenAI's Responses API, as OpenAI, xAI, GitHub Copilot, LM Studio and others speak it.

Here stands what each event means. What a part's, an item's or the response's last word has, and
the deltas had not, is written then; nothing is written twice. Several responses may follow each
other in one stream; the last one's end is the outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from tailrace.core import events as ev
from tailrace.core import sse
from tailrace.core.items import ErrorInfo, InputRequest
from tailrace.core.texts import Sink, StreamedText, TextWriter
from tailrace.ingest.base import MOST_BYTES, ExecutorOf, Outcome, read_json, server_tools
from tailrace.ingest.openai_items import Json, MessageSlot
from tailrace.ingest.openai_output import Output
from tailrace.ingest.openai_tools import TOOLS
from tailrace.ingest.openai_values import (
    API,
    as_dict,
    as_index,
    as_text,
    as_word,
    dicts,
    error_of,
    image_url,
    reason_of,
    usage_of,
    usage_says_more,
)


class _Delta(msgspec.Struct):
    """The fields of a delta, each of any type; everything else is skipped while decoding."""

    type: str = ""
    item_id: Any = None
    output_index: Any = None
    content_index: Any = None
    summary_index: Any = None
    delta: Any = None
    logprobs: Any = None


_decode_delta = msgspec.json.Decoder(_Delta).decode

_STREAMING_CALLS = {
    "response.function_call_arguments": "function_call",
    "response.custom_tool_call_input": "custom_tool_call",
    "response.mcp_call_arguments": "mcp_call",
    "response.mcp_call.arguments": "mcp_call",  # their first name
    "response.code_interpreter_call_code": "code_interpreter_call",
    "response.code_interpreter_call.code": "code_interpreter_call",
}

_STATUSES = ("completed", "incomplete", "failed", "cancelled")
_ENDS = {
    "response.completed": "completed",
    "response.done": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}


def _place(event: Json) -> tuple[Any, Any]:
    return event.get("item_id"), event.get("output_index")


def _added(part: StreamedText | None, piece: str) -> bool:
    if part is None or not part.is_open:
        return False
    part.add(piece)
    return True


class OpenAIResponses:
    """Reads one model call's stream into a task (`tailrace.ingest.base`)."""

    def __init__(self, sink: Sink, executor_of: ExecutorOf = server_tools) -> None:
        self._sink = sink
        self._executor_of = executor_of
        self._requests: dict[str, InputRequest] = {}
        self._is_queued = False
        self._begin()

    def _begin(self) -> None:
        """Another response: its items have nothing to do with those before."""
        self._response: Json = {}
        self._outcome: Outcome | None = None
        self._error: ErrorInfo | None = None
        self._output = Output(self._sink, self._executor_of)
        # Where the last text went: the next one mostly goes there too.
        self._last: tuple[Any, Any, Any] | None = None
        self._last_text: TextWriter | None = None

    # --- the stream ----------------------------------------------------------------------------

    def feed(self, data: str | bytes) -> None:
        """Take the JSON of the next event; `MalformedEvent` if it is none."""
        try:
            delta = _decode_delta(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            delta = None
        if delta is not None and delta.type in self._deltas and not delta.logprobs:
            piece = delta.delta
            if type(piece) is str and "\x00" not in piece and len(data) <= MOST_BYTES:
                last = self._last_text
                if (
                    last is not None
                    and last.is_open
                    and delta.type == "response.output_text.delta"
                    and (delta.item_id, delta.output_index, delta.content_index) == self._last
                ):
                    last.add(piece)
                    return
                if self._deltas[delta.type](self, delta):
                    return
        self._feed_rare(data, delta)

    def _feed_rare(self, data: str | bytes, delta: _Delta | None) -> None:
        is_end = delta is not None and delta.type in _ENDS
        # The last event repeats all items, which came one by one before.
        event = read_json(data, sse.MAX_EVENT_BYTES if is_end else MOST_BYTES)
        kind = event.get("type")
        if kind is None and isinstance(event.get("error"), dict):
            kind = "error"  # how proxies report that their upstream failed
        if not isinstance(kind, str):
            self._keep(event, "")
            return
        if kind in self._deltas:
            known = self._take_delta(event)
        elif kind in self._events:
            known = self._events[kind](self, event)
        else:
            known = self._progress(kind, event)
        if not known:
            self._keep(event, kind)

    def _take_delta(self, event: Json) -> bool:
        """A delta with something unusual about it."""
        piece = event.get("delta")
        if isinstance(piece, dict):
            piece = piece.get("text")  # how the first reasoning deltas came
        if not isinstance(piece, str):
            return False
        delta = _Delta(
            type=event["type"],
            item_id=event.get("item_id"),
            output_index=event.get("output_index"),
            content_index=event.get("content_index"),
            summary_index=event.get("summary_index"),
            delta=piece,
        )
        if not self._deltas[event["type"]](self, delta):
            return False
        if event.get("logprobs") and event["type"] == "response.output_text.delta":
            slot = self._output.message(delta.item_id, delta.output_index)
            part = slot.text_part(as_index(delta.content_index) or 0) if slot else None
            if part is not None and isinstance(event["logprobs"], list):
                part.logprobs.extend(event["logprobs"])
        return True

    def _keep(self, event: Json, kind: str) -> None:
        """What has no name or no place here."""
        raw = ev.RawEvent(task_id=self._sink.task_id, source=API, event_type=kind[:200])
        self._sink.emit(raw, ev.Private(raw=event))

    def end(self) -> Outcome:
        """The stream is over: close what is still open, and say how the call ended."""
        self._output.cut()
        self._collect_requests()
        outcome = self._outcome
        if outcome is None and self._error is not None:
            outcome = Outcome(status="failed", error=self._error)
        elif outcome is None:
            outcome = Outcome(status="cut")
        return msgspec.structs.replace(outcome, requests=list(self._requests.values()))

    def _collect_requests(self) -> None:
        for request in self._output.requests:
            self._requests.setdefault(request.id, request)

    # --- deltas --------------------------------------------------------------------------------

    def _text_delta(self, delta: _Delta) -> bool:
        slot = self._output.message(delta.item_id, delta.output_index)
        part = slot.text_part(as_index(delta.content_index) or 0) if slot else None
        if part is None:
            return False
        if type(delta.item_id) is str and type(delta.output_index) is int:
            self._last = (delta.item_id, delta.output_index, delta.content_index)
            self._last_text = part.writer
        part.writer.add(delta.delta)
        return True

    def _refusal_delta(self, delta: _Delta) -> bool:
        slot = self._output.message(delta.item_id, delta.output_index)
        part = slot.refusal_part(as_index(delta.content_index) or 0) if slot else None
        return _added(part, delta.delta)

    def _summary_delta(self, delta: _Delta) -> bool:
        slot = self._output.reasoning(delta.item_id, delta.output_index)
        return slot is not None and _added(
            slot.summary_part(as_index(delta.summary_index) or 0), delta.delta
        )

    def _reasoning_delta(self, delta: _Delta) -> bool:
        slot = self._output.reasoning(delta.item_id, delta.output_index)
        return slot is not None and _added(
            slot.text_part(as_index(delta.content_index) or 0), delta.delta
        )

    # --- parts ---------------------------------------------------------------------------------

    def _part_added(self, event: Json) -> bool:
        """A part begins; what it holds comes again in its deltas or its end."""
        return self._part(event, as_dict(event.get("part")).get("type")) is not None

    def _part(self, event: Json, kind: Any) -> Any:
        place, index = _place(event), as_index(event.get("content_index")) or 0
        if kind == "reasoning_text":
            reasoning = self._output.reasoning(*place)
            return reasoning and reasoning.text_part(index)
        message = self._output.message(*place) if kind in ("output_text", "refusal") else None
        if message is None:
            return None
        return message.refusal_part(index) if kind == "refusal" else message.text_part(index)

    def _part_done(self, event: Json) -> bool:
        part = as_dict(event.get("part"))
        kind = part.get("type")
        name = "refusal" if kind == "refusal" else "text"
        if not self._whole_text(event, kind, part.get(name)):
            return False
        if kind == "output_text" and not self._output.is_over(event):
            self._part(event, kind).annotate_missing(dicts(part.get("annotations")))
        return True

    def _text_done(self, event: Json) -> bool:
        return self._whole_text(event, "output_text", event.get("text"))

    def _refusal_done(self, event: Json) -> bool:
        return self._whole_text(event, "refusal", event.get("refusal"))

    def _reasoning_done(self, event: Json) -> bool:
        return self._whole_text(event, "reasoning_text", event.get("text"))

    def _whole_text(self, event: Json, kind: Any, text: Any) -> bool:
        """A text as a whole. The last word is the item's, so what contradicts is passed over."""
        if self._output.is_over(event):
            return True
        part = self._part(event, kind) if isinstance(text, str) else None
        if part is None:
            return False
        getattr(part, "writer", part).fill(text)
        return True

    def _summary_added(self, event: Json) -> bool:
        slot = self._output.reasoning(*_place(event))
        if slot is None:
            return False
        slot.summary_part(as_index(event.get("summary_index")) or 0, is_new=True)
        return True

    def _summary_done(self, event: Json) -> bool:
        if self._output.is_over(event):
            return True
        text = event.get("text", as_dict(event.get("part")).get("text"))
        slot = self._output.reasoning(*_place(event)) if isinstance(text, str) else None
        if slot is None:
            return False
        slot.summary_part(as_index(event.get("summary_index")) or 0).done(text)
        return True

    def _annotation(self, event: Json) -> bool:
        raw = event.get("annotation")
        slot = self._output.find(*_place(event)) or self._output.latest("message")
        if not isinstance(raw, dict) or not isinstance(slot, MessageSlot) or not slot.is_open:
            return False
        part = slot.text_part(as_index(event.get("content_index")) or 0)
        return part is not None and part.annotate(raw)

    # --- calls ---------------------------------------------------------------------------------

    def _progress(self, kind: str, event: Json) -> bool:
        """`response.web_search_call.searching` and its like."""
        words = kind.split(".")
        if len(words) != 3 or words[0] != "response" or words[1] not in TOOLS:
            return False
        if self._output.is_over(event):
            return True
        slot = self._output.call(words[1], *_place(event)) if as_word(words[2]) else None
        return slot is not None and slot.progress(words[2])

    def _partial_image(self, event: Json) -> bool:
        url = image_url(event.get("partial_image_b64"), event.get("output_format"))
        slot = self._output.call("image_generation_call", *_place(event)) if url else None
        if slot is None or url is None:
            return False
        slot.partial_image(url)
        return True

    def _arguments_delta(self, delta: _Delta) -> bool:
        item_type = _STREAMING_CALLS[delta.type.removesuffix(".delta")]
        slot = self._output.call(item_type, delta.item_id, delta.output_index)
        return slot is not None and slot.add(delta.delta)

    def _arguments_done(self, event: Json) -> bool:
        if self._output.is_over(event):
            return True
        item_type = _STREAMING_CALLS[event["type"].removesuffix(".done")]
        text = as_text(event.get(TOOLS[item_type].arguments))
        slot = self._output.call(item_type, *_place(event)) if text is not None else None
        if slot is None or text is None:
            return False
        slot.arguments_done(text, event.get("name"))
        return True

    # --- items ---------------------------------------------------------------------------------

    def _item_added(self, event: Json) -> bool:
        item = event.get("item")
        if not isinstance(item, dict) or as_word(item.get("type")) is None:
            return False
        self._output.added(item, event.get("output_index"))
        return True

    def _item_done(self, event: Json) -> bool:
        item = event.get("item")
        if not isinstance(item, dict) or as_word(item.get("type")) is None:
            return False
        self._output.done(item, event.get("output_index"))
        return True

    # --- the response --------------------------------------------------------------------------

    def _created(self, event: Json) -> bool:
        response = as_dict(event.get("response"))
        is_other = self._outcome is not None or self._error is not None
        if is_other or (self._output and response.get("id") != self._response.get("id")):
            self._output.cut()
            self._collect_requests()
            self._begin()
        return self._going_on(event)

    def _queued(self, event: Json) -> bool:
        self._is_queued = True
        self._tell("queued")
        return self._going_on(event)

    def _in_progress(self, event: Json) -> bool:
        if self._is_queued:
            self._is_queued = False
            self._tell("in_progress")
        return self._going_on(event)

    def _tell(self, message: str) -> None:
        self._sink.emit(ev.Progress(task_id=self._sink.task_id, message=message))

    def _going_on(self, event: Json) -> bool:
        self._response = {**self._response, **as_dict(event.get("response"))}
        return True

    def _failure(self, event: Json) -> bool:
        """An `error`, whose number, code and param are kept with it."""
        nested = event.get("error")
        self._error = error_of(nested if isinstance(nested, dict | str) else event)
        return False

    def _ended(self, event: Json) -> bool:
        """The last word: what it has and the stream had not, the usage, and how it ended."""
        if self._outcome is not None:
            return True
        self._going_on(event)
        response = self._response
        status = response.get("status")
        if status not in _STATUSES:
            status = _ENDS[event["type"]]
        self._output.complete_from(dicts(response.get("output")), is_complete=status == "completed")
        if status == "completed":
            self._output.settle()
        self._output.cut()
        self._use(event, response, has_failed=status == "failed")
        if status == "completed":
            self._outcome = Outcome(status="completed")
        elif status == "failed":
            self._outcome = Outcome(status="failed", error=self._last_error(response.get("error")))
        else:
            reason = status if status == "cancelled" else reason_of(response)
            self._outcome = Outcome(status="incomplete", reason=reason)
        return True

    def _last_error(self, error: Any) -> ErrorInfo:
        """The response's error; the `error` event before it may have said more."""
        before, info = self._error, error_of(error)
        if before is not None and (not error or (before.code == info.code and not info.param)):
            return before
        return info

    def _use(self, event: Json, response: Json, *, has_failed: bool) -> None:
        usage = as_dict(response.get("usage"))
        model = as_word(response.get("model"))
        if not usage and has_failed:
            return
        named = {"api": API, "response_id": as_word(response.get("id")), "model": model}
        provider = {name: value for name, value in named.items() if value is not None}
        more = {name: value for name, value in event.items() if name.endswith("_usage")}
        raw = {**usage, **more} if more or usage_says_more(usage) else None
        counted = usage_of(usage, model, as_word(response.get("service_tier")))
        self._sink.emit(
            ev.TaskUsage(task_id=self._sink.task_id, usage=counted),
            ev.Private(provider=provider, raw=raw),
        )

    def _nothing(self, _event: Json) -> bool:
        """A sign of life."""
        return True

    # --- the tables ----------------------------------------------------------------------------

    _deltas: ClassVar[dict[str, Callable[[Any, _Delta], bool]]] = {
        "response.output_text.delta": _text_delta,
        "response.refusal.delta": _refusal_delta,
        "response.reasoning_summary_text.delta": _summary_delta,
        "response.reasoning_summary.delta": _summary_delta,
        "response.reasoning_text.delta": _reasoning_delta,
        "response.reasoning.delta": _reasoning_delta,
        **dict.fromkeys([f"{name}.delta" for name in _STREAMING_CALLS], _arguments_delta),
    }

    _events: ClassVar[dict[str, Callable[[Any, Json], bool]]] = {
        "response.created": _created,
        "response.queued": _queued,
        "response.in_progress": _in_progress,
        **dict.fromkeys(_ENDS, _ended),
        "error": _failure,
        "response.error": _failure,
        "keepalive": _nothing,
        "response.output_item.added": _item_added,
        "response.output_item.done": _item_done,
        "response.content_part.added": _part_added,
        "response.content_part.done": _part_done,
        "response.reasoning_part.added": _part_added,
        "response.reasoning_part.done": _part_done,
        "response.output_text.done": _text_done,
        "response.refusal.done": _refusal_done,
        "response.reasoning_text.done": _reasoning_done,
        "response.reasoning.done": _reasoning_done,
        "response.reasoning_summary_part.added": _summary_added,
        "response.reasoning_summary_part.done": _summary_done,
        "response.reasoning_summary_text.done": _summary_done,
        "response.reasoning_summary.done": _summary_done,
        "response.output_text.annotation.added": _annotation,
        "response.output_text_annotation.added": _annotation,
        "response.image_generation_call.partial_image": _partial_image,
        **dict.fromkeys([f"{name}.done" for name in _STREAMING_CALLS], _arguments_done),
    }
