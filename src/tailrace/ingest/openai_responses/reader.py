"""OpenAI's Responses API, as OpenAI, xAI, GitHub Copilot, LM Studio and others speak it.

The end of a part, an item or the response adds what the deltas missed; nothing is written twice.
A stream may hold several responses; the last response gives the outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from tailrace.core import events as ev
from tailrace.core import sse
from tailrace.core.event_sink import Sink
from tailrace.core.items import ErrorInfo, InputRequest
from tailrace.core.text_writers import TextWriter
from tailrace.core.values import Json, dict_of, dicts_of, index_of, word_of
from tailrace.ingest.base import (
    MOST_BYTES,
    ExecutorOf,
    Outcome,
    is_stop,
    keep_raw,
    read_json,
    server_tools,
)
from tailrace.ingest.openai_responses.events import (
    DELTAS,
    EVENTS,
    FIELDS,
    TEXT_DELTAS,
    Delta,
    fields,
    progress,
    unknown,
)
from tailrace.ingest.openai_responses.output import ResponseOutput
from tailrace.ingest.openai_responses.texts import CitedText
from tailrace.ingest.openai_responses.values import (
    API,
    error_of,
    reason_of,
    usage_has_unknown,
    usage_of,
)
from tailrace.ingest.unknown import UnknownFields, has_unknown

_decode_delta = msgspec.json.Decoder(Delta).decode


class _Kind(msgspec.Struct):
    type: str = ""


_decode_kind = msgspec.json.Decoder(_Kind).decode

_TEXT_DELTA = TEXT_DELTAS[0]

_STATUSES = ("completed", "incomplete", "failed", "cancelled")
_ENDS = {
    "response.completed": "completed",
    "response.done": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}

_READ_ELSEWHERE = frozenset(
    (
        *("type", "sequence_number", "event_id", "response", "id", "object"),
        *("created_at", "completed_at"),
        *("status", "error", "incomplete_details", "model", "output", "output_text", "usage"),
        *("service_tier", "background", "frequency_penalty", "instructions", "max_output_tokens"),
        *("max_tool_calls", "metadata", "parallel_tool_calls", "presence_penalty", "prompt"),
        *("previous_response_id", "prompt_cache_key", "prompt_cache_retention", "reasoning"),
        *("safety_identifier", "store", "temperature", "text", "tool_choice", "tools", "user"),
        *("top_logprobs", "top_p", "truncation"),
    )
)
"""Fields of a response that repeat its request or are read elsewhere. Other fields are kept: usage
of OpenAI's tools, Copilot's prices, results of a moderation."""


_OUTCOME = {"error": ("code", "message", "param"), "incomplete_details": ("reason",)}

_RESPONSE, _PLACE = fields("response"), fields()


def _limit(data: str | bytes) -> int:
    """The limit of an event in bytes: the last event repeats all items, so it may be larger."""
    if len(data) <= MOST_BYTES:
        return MOST_BYTES
    try:
        is_end = _decode_kind(data).type in _ENDS
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        is_end = False
    return sse.MAX_PARSED_BYTES if is_end else MOST_BYTES


def _more(*holders: Json) -> Json:
    """The fields of a response, or of its last event, that are not read elsewhere."""
    return {
        name: value
        for holder in holders
        for name, value in holder.items()
        if value and (name not in _READ_ELSEWHERE or _has_unknown(name, value))
    }


def _has_unknown(name: str, value: Any) -> bool:
    """Whether an error or `incomplete_details` has more than an outcome holds."""
    return name in _OUTCOME and isinstance(value, dict) and has_unknown(value, _OUTCOME[name])


def _whole(response: Json) -> tuple[str, Json]:
    """A response that did not stream, as the last event of a stream."""
    going_on = response.get("status") in ("queued", "in_progress")
    kind = f"response.{response['status'] if going_on else 'completed'}"
    return kind, {"type": kind, "response": response}


class OpenAIResponses:
    """Reads the stream of a model call into a task (`tailrace.ingest.base`)."""

    def __init__(self, sink: Sink, executor_of: ExecutorOf = server_tools) -> None:
        self._sink = sink
        self._executor_of = executor_of
        self._requests: dict[str, InputRequest] = {}
        self._is_queued = False
        self._unknown = UnknownFields(sink, API)
        self._begin()

    def _begin(self) -> None:
        """Begin another response, with items of its own."""
        self._response: Json = {}
        self._last_phase = ""
        self._kept_more: Json = {}
        self._outcome: Outcome | None = None
        self._error: ErrorInfo | None = None
        self._output = ResponseOutput(self._sink, self._executor_of)
        # The text of the last delta: the next delta mostly continues it.
        self._last: tuple[Any, Any, Any] | None = None
        self._last_text: TextWriter | None = None

    # --- the stream ----------------------------------------------------------------------------

    def feed(self, data: str | bytes) -> None:
        """Take the JSON of the next event; raise `MalformedEvent` if it is not an event."""
        try:
            delta = _decode_delta(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            delta = None
        if delta is not None and delta.type.endswith(".delta") and not delta.logprobs:
            piece = delta.delta
            if type(piece) is str and "\x00" not in piece and len(data) <= MOST_BYTES:
                last = self._last_text
                if (
                    last is not None
                    and last.is_open
                    and delta.type == _TEXT_DELTA
                    and (delta.item_id, delta.output_index, delta.content_index) == self._last
                ):
                    last.add(piece)
                    return
                if self._take_delta(delta):
                    return
        self._feed_rare(data, delta)

    def _feed_rare(self, data: str | bytes, delta: Delta | None) -> None:
        if delta is None and is_stop(data):
            return
        event = read_json(data, _limit(data))
        kind = event.get("type")
        if kind is None and isinstance(event.get("error"), dict):
            kind = "error"  # how proxies report that their upstream failed
        elif kind is None and event.get("object") == "response":
            kind, event = _whole(event)
        if not isinstance(kind, str):
            self._keep(event, "")
            return
        if kind in self._events:
            known = self._events[kind](self, event)
        elif kind in EVENTS:
            known = EVENTS[kind](self._output, event)
        elif kind.endswith(".delta"):
            known = self._take_rare_delta(event)
        else:
            known = progress(self._output, kind, event)
        if not known:
            self._keep(event, kind)
        elif kind not in _ENDS:
            known_fields = _RESPONSE if kind in self._events else FIELDS.get(kind, _PLACE)
            self._unknown.keep(kind, unknown(event, known_fields), event)

    def _take_delta(self, delta: Delta) -> bool:
        if delta.type in DELTAS:
            return DELTAS[delta.type](self._output, delta)
        return delta.type in TEXT_DELTAS and self._text_delta(delta) is not None

    def _text_delta(self, delta: Delta) -> CitedText | None:
        slot = self._output.message(delta.item_id, delta.output_index)
        part = slot.text_part(index_of(delta.content_index) or 0) if slot else None
        if part is not None:
            part.add(delta.delta)
            if type(delta.item_id) is str and type(delta.output_index) is int and part.is_plain:
                self._last = (delta.item_id, delta.output_index, delta.content_index)
                self._last_text = part.writer
        return part

    def _take_rare_delta(self, event: Json) -> bool:
        """Take a delta with unusual fields."""
        piece = event.get("delta")
        if isinstance(piece, dict):
            piece = piece.get("text")  # how the first reasoning deltas came
        if not isinstance(piece, str):
            return False
        delta = Delta(
            type=event["type"],
            item_id=event.get("item_id"),
            call_id=event.get("call_id"),
            output_index=event.get("output_index"),
            content_index=event.get("content_index"),
            summary_index=event.get("summary_index"),
            delta=piece,
        )
        if delta.type not in TEXT_DELTAS:
            return self._take_delta(delta)
        part = self._text_delta(delta)
        if part is not None and isinstance(event.get("logprobs"), list):
            part.logprobs.extend(event["logprobs"])
        return part is not None

    def _keep(self, event: Json, kind: str) -> None:
        """Keep an unknown event, or an event of no item."""
        keep_raw(self._sink, API, kind, event)

    def end(self) -> Outcome:
        """End the stream: close open items and return the outcome."""
        self._close()
        outcome = self._outcome
        if outcome is None and self._error is not None:
            outcome = Outcome(status="failed", error=self._error)
        elif outcome is None:
            outcome = Outcome(status="cut")
        return msgspec.structs.replace(outcome, requests=list(self._requests.values()))

    def _close(self) -> None:
        """End the current response."""
        if self._outcome is None:
            if not self._output:
                # A response that is fetched while it is made has its items so far.
                self._output.complete_from(
                    dicts_of(self._response.get("output")), is_complete=False
                )
            self._keep_more(self._response, {"type": self._last_phase})
        self._output.cut()
        for request in self._output.requests:
            self._requests.setdefault(request.id, request)

    # --- the response --------------------------------------------------------------------------

    def _created(self, event: Json) -> bool:
        response = dict_of(event.get("response"))
        is_other = self._outcome is not None or self._error is not None
        if is_other or (self._output and response.get("id") != self._response.get("id")):
            self._close()
            self._begin()
        return self._going_on(event)

    def _queued(self, event: Json) -> bool:
        self._is_queued = True
        self._progress("queued")
        return self._going_on(event)

    def _in_progress(self, event: Json) -> bool:
        if self._is_queued:
            self._is_queued = False
            self._progress("in_progress")
        return self._going_on(event)

    def _progress(self, message: str) -> None:
        self._sink.emit(ev.Progress(task_id=self._sink.task_id, message=message))

    def _going_on(self, event: Json) -> bool:
        self._last_phase = event["type"]
        self._response.update(dict_of(event.get("response")))
        response_id = word_of(self._response.get("id"))
        if response_id is not None:
            self._output.origin["response_id"] = response_id
        return True

    def _failure(self, event: Json) -> bool:
        """Note an `error`; the event is kept raw, too."""
        nested = event.get("error")
        self._error = error_of(nested if isinstance(nested, dict | str) else event)
        return False

    def _ended(self, event: Json) -> bool:
        """End the response: missing items, usage, outcome."""
        if self._outcome is not None:
            self._keep_more(dict_of(event.get("response")), event)
            return True
        self._going_on(event)
        response = self._response
        status = response.get("status")
        if status not in _STATUSES:
            status = _ENDS[event["type"]]
        items = dicts_of(response.get("output"))
        if not items and not self._output and response.get("output_text"):
            # Some servers send only this sum of the texts.
            items = [{"type": "message", "content": response["output_text"]}]
        self._output.complete_from(items, is_complete=status == "completed")
        if status == "completed":
            self._output.settle()
        self._output.cut()
        self._use(event, response, has_failed=status == "failed")
        if status == "completed" and self._output.has_truncated_call:
            self._outcome = Outcome(status="incomplete", reason="truncated_tool_call")
        elif status == "completed":
            self._outcome = Outcome(status="completed")
        elif status == "failed":
            self._outcome = Outcome(status="failed", error=self._last_error(response.get("error")))
        else:
            reason = status if status == "cancelled" else reason_of(response)
            self._outcome = Outcome(status="incomplete", reason=reason)
        return True

    def _last_error(self, error: Any) -> ErrorInfo:
        """The error of the response, or of the earlier `error` event if that has more."""
        before, info = self._error, error_of(error)
        if before is not None and (not error or (before.code == info.code and not info.param)):
            return before
        return info

    def _use(self, event: Json, response: Json, *, has_failed: bool) -> None:
        usage = dict_of(response.get("usage"))
        model = word_of(response.get("model"))
        if not usage and has_failed:
            self._keep_more(response, event)
            return
        named = {"api": API, "response_id": word_of(response.get("id")), "model": model}
        provider = {name: value for name, value in named.items() if value is not None}
        more = _more(response, event)
        if not has_failed and response.get("error"):
            more["error"] = response["error"]  # a warning beside a complete answer
        self._kept_more = more
        raw = {**usage, **more} if more or usage_has_unknown(usage) else None
        counted = usage_of(usage, model, word_of(response.get("service_tier")))
        self._sink.emit(
            ev.TaskUsage(task_id=self._sink.task_id, usage=counted),
            ev.Private(provider=provider, raw=raw),
        )

    def _keep_more(self, response: Json, event: Json) -> None:
        """Keep facts of a response that has no usage, or whose usage is written."""
        more = _more(response, event)
        if more and more != self._kept_more:
            self._kept_more = more
            self._keep({"response": {"id": response.get("id"), **more}}, event["type"])

    def _nothing(self, _event: Json) -> bool:
        """Ignore a keep-alive."""
        return True

    _events: ClassVar[dict[str, Callable[[Any, Json], bool]]] = {
        "response.created": _created,
        "response.queued": _queued,
        "response.in_progress": _in_progress,
        **dict.fromkeys(_ENDS, _ended),
        "error": _failure,
        "response.error": _failure,
        "keepalive": _nothing,
    }
