"""Which fields OpenAI's events have, and what stands beside them in an event that is understood.

An event that has no name here is kept whole. One that has is taken, and what it says in fields that
nobody knows is kept without what was taken. Some servers stamp each delta with the same words:
these are kept once.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.ingest.openai_parts import Json
from tailrace.ingest.openai_values import NOTHING, as_dict

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
"""What is known of a part, or of a delta that is an object; items and responses keep their own."""

_NAMED = ("item", "response")
"""What is told elsewhere, and named here by its id."""


class Delta(msgspec.Struct, forbid_unknown_fields=True):
    """The fields that a delta may have, each of any type.

    Nearly all events are deltas of these fields, so what has others is found while decoding.
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
    """The fields of an event of which these are taken."""
    return _EVERYWHERE.union(taken)


def unknown(event: Json, known: frozenset[str]) -> Json:
    """What an event says beyond its `fields`."""
    found = {name: event[name] for name in event.keys() - known}
    for name in ("part", "delta"):
        held = event.get(name)
        if isinstance(held, dict) and name in known:
            found[name] = _unknown_inside(held, event["type"])
    return _said(found)


def _said(values: Json) -> Json:
    return {name: value for name, value in values.items() if value not in NOTHING}


def _unknown_inside(held: Json, kind: str) -> Json:
    words = held.get("type")
    known = _PARTS.get(words, ()) if isinstance(words, str) else ()
    if "annotations" in known and kind.endswith(".done"):
        known = (*known, "logprobs")
    left = held.keys() - known
    return _said({name: held[name] for name in left if name not in _HELD})


def placed(event: Json, found: Json) -> Json:
    """These fields with what tells where they belong."""
    place = {name: event[name] for name in _PLACE if event.get(name) is not None}
    for name in _NAMED:
        ident = as_dict(event.get(name)).get("id")
        if ident is not None:
            place[name] = {"id": ident}
    return {**place, **found}
