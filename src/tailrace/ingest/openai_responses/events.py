"""The events of items: which fields they have, and what each of them does.

Each function takes the response's output and an event. It returns False if the event has no place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tailrace.core.values import Json, dict_of, dicts_of, index_of, text_or_none, word_of
from tailrace.ingest.openai_responses.calls import TOOLS
from tailrace.ingest.openai_responses.items import TEXTS, MessageSlot, ReasoningSlot
from tailrace.ingest.openai_responses.output import ResponseOutput, place
from tailrace.ingest.openai_responses.texts import CitedText, StreamedPart, is_split
from tailrace.ingest.openai_responses.values import as_arguments, image_url
from tailrace.ingest.unknown import unknown_names

_PLACE = (
    *("type", "response_id", "item_id", "call_id"),
    *("output_index", "content_index", "summary_index"),
)
_NOISE = ("sequence_number", "event_id", "obfuscation")
_EVERYWHERE = frozenset((*_PLACE, *_NOISE))

_PARTS: dict[Any, tuple[str, ...]] = {
    "output_text": ("annotations",),
    "text": ("annotations",),
    "refusal": ("refusal",),
}
_HELD = ("type", "text")
"""The known fields of a part, or of a delta that is an object."""


class Delta(msgspec.Struct, forbid_unknown_fields=True):
    """The fields that a delta may have, each of any type.

    Nearly all events are deltas, so unknown fields are found while decoding.
    """

    type: str = ""
    item_id: Any = None
    call_id: Any = None
    output_index: Any = None
    content_index: Any = None
    summary_index: Any = None
    delta: Any = None
    logprobs: Any = None
    sequence_number: Any = None
    obfuscation: Any = None
    response_id: Any = None
    event_id: Any = None


def fields(*taken: str) -> frozenset[str]:
    """The known fields of an event that has these beside its place."""
    return _EVERYWHERE.union(taken)


def unknown(event: Json, known: frozenset[str]) -> set[str]:
    """The names of the fields of an event, of its part and of its delta that are not known."""
    names = set(unknown_names(event, known))
    for name in ("part", "delta"):
        held = event.get(name)
        if isinstance(held, dict) and name in known:
            names.update(unknown_names(held, _known_inside(held, event["type"]), f"{name}."))
    return names


def _known_inside(held: Json, kind: str) -> tuple[str, ...]:
    words = held.get("type")
    known = _PARTS.get(words, ()) if isinstance(words, str) else ()
    if "annotations" in known and kind.endswith(".done"):
        known = (*known, "logprobs")
    return (*_HELD, *known)


TEXT_DELTAS = ("response.output_text.delta", "response.text.delta")
"""The text deltas of a message; realtime servers use the second name."""

_STREAMING_CALLS = {
    "response.function_call_arguments": "function_call",
    "response.custom_tool_call_input": "custom_tool_call",
    "response.mcp_call_arguments": "mcp_call",
    "response.mcp_call.arguments": "mcp_call",  # their first name
    "response.code_interpreter_call_code": "code_interpreter_call",
    "response.code_interpreter_call.code": "code_interpreter_call",
}


# --- deltas --------------------------------------------------------------------------------------


def _refusal_delta(output: ResponseOutput, delta: Delta) -> bool:
    slot = output.message(delta.item_id, delta.output_index)
    part = slot.refusal_part(index_of(delta.content_index) or 0) if slot else None
    return part is not None and part.add(delta.delta)


def _summary_delta(output: ResponseOutput, delta: Delta) -> bool:
    slot = output.reasoning(delta.item_id, delta.output_index)
    part = slot.summary_part(index_of(delta.summary_index) or 0) if slot else None
    return part is not None and part.add(delta.delta)


def _reasoning_delta(output: ResponseOutput, delta: Delta) -> bool:
    slot = output.reasoning(delta.item_id, delta.output_index)
    part = slot.text_part(index_of(delta.content_index) or 0) if slot else None
    return part is not None and part.add(delta.delta)


# --- parts ---------------------------------------------------------------------------------------


def _part_added(output: ResponseOutput, event: Json) -> bool:
    part = dict_of(event.get("part"))
    slot = _slot(output, event, part.get("type"))
    return slot is not None and slot.part_added(index_of(event.get("content_index")) or 0, part)


def _slot(output: ResponseOutput, event: Json, kind: Any) -> MessageSlot | ReasoningSlot | None:
    """The item that has a part of this kind."""
    kind = TEXTS.get(kind, kind) if isinstance(kind, str) else None
    if kind == "reasoning_text":
        return output.reasoning(*place(event))
    return output.message(*place(event)) if kind in ("output_text", "refusal") else None


def _part(slot: MessageSlot | ReasoningSlot, event: Json, kind: Any) -> StreamedPart[Any] | None:
    index = index_of(event.get("content_index")) or 0
    if isinstance(slot, MessageSlot) and kind == "refusal":
        return slot.refusal_part(index)
    return slot.text_part(index)


def _part_done(output: ResponseOutput, event: Json) -> bool:
    part = dict_of(event.get("part"))
    kind = part.get("type")
    name = "refusal" if kind == "refusal" else "text"
    if not _whole_text(output, event, kind, part.get(name)):
        return False
    _facts(output, event, kind, part)
    return True


def _text_done(output: ResponseOutput, event: Json) -> bool:
    is_known = _whole_text(output, event, "output_text", event.get("text"))
    if is_known:
        _facts(output, event, "output_text", event)
    return is_known


def _facts(output: ResponseOutput, event: Json, kind: Any, whole: Json) -> None:
    """Take citations and probabilities that only the end of a text has."""
    cited, logprobs = dicts_of(whole.get("annotations")), whole.get("logprobs")
    if not (cited or logprobs) or output.is_over(event):
        return
    slot = _slot(output, event, kind)
    part = None if slot is None else _part(slot, event, kind)
    if isinstance(part, CitedText):
        part.annotate_missing(cited)
        if isinstance(logprobs, list) and not part.logprobs:
            part.logprobs = logprobs


def _refusal_done(output: ResponseOutput, event: Json) -> bool:
    return _whole_text(output, event, "refusal", event.get("refusal"))


def _reasoning_done(output: ResponseOutput, event: Json) -> bool:
    return _whole_text(output, event, "reasoning_text", event.get("text"))


def _whole_text(output: ResponseOutput, event: Json, kind: Any, text: Any) -> bool:
    """Take a whole text. The item's final text counts, so a contradiction is ignored."""
    if output.is_over(event):
        return True
    slot = _slot(output, event, kind) if isinstance(text, str) else None
    if slot is None:
        return False
    if not is_split(text, slot.parts):
        part = _part(slot, event, kind)
        if part is None:
            return False
        part.fill(text)
    return True


def _summary_added(output: ResponseOutput, event: Json) -> bool:
    slot = output.reasoning(*place(event))
    if slot is None:
        return False
    part = slot.summary_part(index_of(event.get("summary_index")) or 0, is_new=True)
    part.begin(text_or_none(dict_of(event.get("part")).get("text")) or "")
    return True


def _summary_done(output: ResponseOutput, event: Json) -> bool:
    if output.is_over(event):
        return True
    text = text_or_none(event.get("text", dict_of(event.get("part")).get("text")))
    slot = output.reasoning(*place(event)) if text is not None else None
    if slot is None or text is None:
        return False
    slot.summary_part(index_of(event.get("summary_index")) or 0).done(text)
    return True


def _annotation(output: ResponseOutput, event: Json) -> bool:
    raw = event.get("annotation")
    slot = output.find(*place(event)) or output.latest("message")
    if not isinstance(raw, dict) or not isinstance(slot, MessageSlot) or not slot.is_open:
        return False
    part = slot.text_part(index_of(event.get("content_index")) or 0)
    return part is not None and part.annotate(raw)


# --- calls ---------------------------------------------------------------------------------------


def progress(output: ResponseOutput, kind: str, event: Json) -> bool:
    """`response.web_search_call.searching` and its like."""
    words = kind.split(".")
    if len(words) != 3 or words[0] != "response" or words[1] not in TOOLS:
        return False
    if output.is_over(event):
        return True
    slot = output.call(words[1], *place(event)) if word_of(words[2]) else None
    if slot is None:
        return False
    if isinstance(event.get("action"), dict):
        slot.seen["action"] = event["action"]  # it may not be in the item
    return slot.progress(words[2])


def _partial_image(output: ResponseOutput, event: Json) -> bool:
    url = image_url(event.get("partial_image_b64"), event.get("output_format"))
    slot = output.call("image_generation_call", *place(event)) if url else None
    if slot is None or url is None:
        return False
    slot.partial_image(url)
    return True


def _arguments_delta(output: ResponseOutput, delta: Delta) -> bool:
    item_type = _STREAMING_CALLS[delta.type.removesuffix(".delta")]
    ident = delta.call_id if delta.item_id is None else delta.item_id
    slot = output.call(item_type, ident, delta.output_index)
    return slot is not None and slot.add(delta.delta)


def _arguments_done(output: ResponseOutput, event: Json) -> bool:
    if output.is_over(event):
        return True
    item_type = _STREAMING_CALLS[event["type"].removesuffix(".done")]
    text = as_arguments(event.get(TOOLS[item_type].arguments))
    slot = output.call(item_type, *place(event)) if text is not None else None
    if slot is None or text is None:
        return False
    slot.arguments_done(text, event.get("name"))
    return True


# --- items ---------------------------------------------------------------------------------------


def _item_added(output: ResponseOutput, event: Json) -> bool:
    item = event.get("item")
    if not isinstance(item, dict) or word_of(item.get("type")) is None:
        return False
    output.added(item, event.get("output_index"))
    return True


def _item_done(output: ResponseOutput, event: Json) -> bool:
    item = event.get("item")
    if not isinstance(item, dict) or word_of(item.get("type")) is None:
        return False
    output.done(item, event.get("output_index"))
    return True


DELTAS: dict[str, Callable[[ResponseOutput, Delta], bool]] = {
    "response.refusal.delta": _refusal_delta,
    "response.reasoning_summary_text.delta": _summary_delta,
    "response.reasoning_summary.delta": _summary_delta,
    "response.reasoning_text.delta": _reasoning_delta,
    "response.reasoning.delta": _reasoning_delta,
    **dict.fromkeys([f"{name}.delta" for name in _STREAMING_CALLS], _arguments_delta),
}

EVENTS: dict[str, Callable[[ResponseOutput, Json], bool]] = {
    "response.output_item.added": _item_added,
    "response.output_item.done": _item_done,
    "response.content_part.added": _part_added,
    "response.content_part.done": _part_done,
    "response.reasoning_part.added": _part_added,
    "response.reasoning_part.done": _part_done,
    "response.output_text.done": _text_done,
    "response.text.done": _text_done,
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

_TAKEN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(TEXT_DELTAS, ("delta", "logprobs")),
    **dict.fromkeys(DELTAS, ("delta",)),
    "response.output_item.added": ("item",),
    "response.output_item.done": ("item",),
    "response.content_part.added": ("part",),
    "response.content_part.done": ("part",),
    "response.reasoning_part.added": ("part",),
    "response.reasoning_part.done": ("part",),
    "response.output_text.done": ("text", "logprobs", "annotations"),
    "response.text.done": ("text", "logprobs", "annotations"),
    "response.refusal.done": ("refusal",),
    "response.reasoning_text.done": ("text",),
    "response.reasoning.done": ("text",),
    "response.reasoning_summary_part.added": ("part",),
    "response.reasoning_summary_part.done": ("part", "text"),
    "response.reasoning_summary_text.done": ("part", "text"),
    "response.reasoning_summary.done": ("part", "text"),
    "response.output_text.annotation.added": ("annotation", "annotation_index"),
    "response.output_text_annotation.added": ("annotation", "annotation_index"),
    "response.image_generation_call.partial_image": (
        *("partial_image_b64", "partial_image_index", "output_format"),
        *("background", "quality", "size"),  # the item has them too
    ),
    **{
        f"{name}.done": ("name", TOOLS[item_type].arguments)
        for name, item_type in _STREAMING_CALLS.items()
    },
}
FIELDS = {kind: fields(*names) for kind, names in _TAKEN.items()}
"""The known fields of each event; other events, such as a tool's progress, have only a place."""
