"""Backends that go wrong in ways of their own: each says one thought and one answer, somehow.

Shared by the tests of the repairer and those of the real clients, which must show both, once.
"""

from __future__ import annotations

import json
from typing import Any

from tests.repair.streams import HealthyStream, Json, stream

THOUGHT, ANSWER = "Sun or rain?", "It is sunny."


def _plain(*, raw: bool = True) -> list[Json]:
    backend = HealthyStream()
    backend.reasoning(["Sun ", "or ", "rain?"], raw=raw)
    backend.message(["It ", "is ", "sunny."])
    return backend.completed()


def _changed(change: Any, *, raw: bool = True) -> list[Json]:
    """Every item of every event, changed."""
    events = _plain(raw=raw)
    for event in events:
        for item in [event.get("item"), *event.get("response", {}).get("output", [])]:
            if item is not None:
                change(item)
        if "item_id" in event:
            named = {"id": event["item_id"]}
            change(named)
            event["item_id"] = named["id"]
    return events


def _without(*ends: str) -> list[Json]:
    return [event for event in _plain() if not event["type"].endswith(ends)]


def _one_id(item: Json) -> None:
    item["id"] = "item_1"


def _no_id(item: Json) -> None:
    item["id"] = ""


def _texts_for_parts(item: Json) -> None:
    if item.get("type") == "message":
        item["content"] = "".join(part["text"] for part in item["content"])
    elif item.get("type") == "reasoning":
        item["summary"] = ""
        if "content" in item:
            item["content"] = [part["text"] for part in item["content"]]


def _parts_of_type_text(item: Json) -> None:
    for part in item.get("content", []):
        part["type"] = "text"
        part.pop("annotations", None)


def _announced_as_output_text() -> list[Json]:
    events = _plain()
    for event in events:
        if event.get("item_id") == "rs_0" and "part" in event:
            event["part"] = {"type": "output_text", "text": "", "annotations": []}
    return events


def _parts_events_of_type_text() -> list[Json]:
    events = _changed(_parts_of_type_text)
    for event in events:
        if event.get("part", {}).get("type") == "output_text":
            event["part"]["type"] = "text"
    return events


def _ended_twice() -> list[Json]:
    events = []
    for event in _plain():
        events += [event] * (2 if event["type"].endswith(".done") else 1)
    return events


def _texts_ended_after_their_items() -> list[Json]:
    events = _plain()
    at = [n for n, event in enumerate(events) if event["type"] == "response.output_item.done"]
    for n in at:
        events[n - 2 : n + 1] = [events[n], *events[n - 2 : n]]
    return events


def _final_without_reasoning() -> list[Json]:
    events = _plain()
    del events[-1]["response"]["output"][0]
    return events


def _reasoning_without_events() -> list[Json]:
    return [event for event in _plain() if event.get("output_index") != 0]


def _answers_only_at_the_end(*, created: bool) -> list[Json]:
    events = _plain()
    return [*events[: 1 if created else 0], events[-1]]


def _types_only_in_event_lines() -> bytes:
    frames = b""
    for event in _plain():
        kind = event.pop("type")
        frames += f"event: {kind}\ndata: {json.dumps(event)}\n\n".encode()
    return frames


def _framed_oddly() -> bytes:
    frames = b"\xef\xbb\xbfretry: 5000\r\n: hello\r\n\r\n"
    for event in _plain():
        lines = json.dumps(event, indent=1).split("\n")
        frames += b"".join(f"data:{line}\r\n".encode() for line in lines) + b"\r\n"
    return frames


def _numberless(*keys: str) -> list[Json]:
    return [{k: v for k, v in event.items() if k not in keys} for event in _plain()]


def _interleaved() -> list[Json]:
    events = _plain()
    thought = [event for event in events if event.get("output_index") == 0]
    answer = [event for event in events if event.get("output_index") == 1]
    both = [one for pair in zip(thought, answer, strict=True) for one in pair]
    return [*events[:2], *both, events[-1]]


def _only_deltas() -> list[Json]:
    return [
        {"type": "response.reasoning_text.delta", "delta": THOUGHT},
        {"type": "response.output_text.delta", "delta": "It is "},
        {"type": "response.output_text.delta", "delta": "sunny."},
        {"type": "response.completed", "response": {}},
    ]


def _response_as_items() -> list[Json]:
    """Each event has the response's id as `item_id`; an item is never announced or ended."""
    events = [event for event in _plain() if "item" not in event]
    for event in events:
        if "item_id" in event:
            event["item_id"] = "resp_1"
            del event["output_index"]
    events[-1]["response"]["output"] = []
    return events


def _new_ids_and_no_indexes() -> list[Json]:
    events = _plain()
    for number, event in enumerate(events):
        event.pop("output_index", None)
        for holder, key in ((event, "item_id"), (event.get("item", {}), "id")):
            if key in holder:
                holder[key] = f"changed_{number}"
    return events


def _summary_of_the_same() -> list[Json]:
    """The end of the item has a summary too, with the text of all its raw parts in one."""
    backend = HealthyStream()
    backend.reasoning([THOUGHT], raw=True)
    backend.message([ANSWER])
    events = backend.completed()
    for event in events:
        for item in [event.get("item", {}), *event.get("response", {}).get("output", [])]:
            if "content" in item and item["type"] == "reasoning":
                item["summary"] = [{"type": "summary_text", "text": f" {THOUGHT}\n"}]
    return events


_SENT: dict[str, list[Json] | bytes] = {
    "one id for all items": _changed(_one_id),
    "an empty id for all items": _changed(_no_id),
    "one id and no announcements": [
        event for event in _changed(_one_id) if event["type"] != "response.output_item.added"
    ],
    "one id and no indexes": [
        {key: value for key, value in event.items() if key != "output_index"}
        for event in _changed(_one_id)
    ],
    "new ids in every event, and no indexes": _new_ids_and_no_indexes(),
    "the response's id as every item's": _response_as_items(),
    "texts where parts belong": _changed(_texts_for_parts),
    "texts where parts belong, and no deltas": [
        event
        for event in _changed(_texts_for_parts)
        if event["type"].startswith(("response.output_item", "response.c")) and "part" not in event
    ],
    "a summary as a text": _changed(_texts_for_parts, raw=False),
    "parts of type text": _parts_events_of_type_text(),
    "raw reasoning announced as output_text": _announced_as_output_text(),
    "each end twice": _ended_twice(),
    "texts that end after their items": _texts_ended_after_their_items(),
    "a final response without the reasoning": _final_without_reasoning(),
    "reasoning only in the final response": _reasoning_without_events(),
    "everything only in the final response": _answers_only_at_the_end(created=True),
    "nothing but the final response": _answers_only_at_the_end(created=False),
    "no ends of items": _without("output_item.done"),
    "no ends at all": _without(".done"),
    "no parts": [event for event in _plain() if "part" not in event],
    "no announcements of any kind": _without(".added", ".created", ".in_progress"),
    "types only in event lines": _types_only_in_event_lines(),
    "BOM, CRLF, comments, retry, data on many lines": _framed_oddly(),
    "no indexes of any kind": _numberless("output_index", "content_index"),
    "no ids, indexes or numbers": _numberless(
        "item_id", "output_index", "content_index", "sequence_number"
    ),
    "interleaved": _interleaved(),
    "only deltas and an empty end": _only_deltas(),
    "a summary of the same at the end": _summary_of_the_same(),
    "no end, and [DONE]": stream(*_plain()[:-1]) + b"data: [DONE]\n\n",
    "only deltas, and [DONE]": stream(*_only_deltas()[:-1]) + b"data: [DONE]\n\n",
    "only deltas, and half a line of [DONE]": stream(*_only_deltas()[:-1]) + b"data: [DONE]",
    "no end, and the last blank line missing": stream(*_plain()[:-1])[:-1],
}
BACKENDS = {
    name: sent if isinstance(sent, bytes) else stream(*sent) for name, sent in _SENT.items()
}


def twice() -> bytes:
    """Two responses in one stream, as an agent that asks again by itself sends them."""
    second = json.loads(json.dumps(_plain()).replace("resp_1", "resp_2"))
    return stream(*_plain(), *second)
