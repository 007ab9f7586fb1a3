"""Responses streams for the repairer: written by hand, healthy at random, damaged on purpose.

The reader at the end is an oracle that shares nothing with the code: it builds what a client shows
from the deltas alone, and refuses whatever the strict clients refuse.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tailrace.repair.stream import ResponsesRepair

Json = dict[str, Any]

HERE = Path(__file__).parent / "recorded"
ROOT = Path(__file__).parents[2]
RECORDINGS = Path(os.environ.get("TAILRACE_RECORDINGS", ROOT.parent / "shared" / "recordings"))
TERMINAL = ("response.completed", "response.incomplete", "response.failed")


def frame(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def stream(*events: Json) -> bytes:
    return b"".join(map(frame, events))


def events_of(body: bytes) -> list[Json]:
    """Every event of a stream, read by the letter of the format."""
    found = []
    for block in body.decode().replace("\r\n", "\n").split("\n\n"):
        data = [line[5:].strip() for line in block.split("\n") if line.startswith("data:")]
        if data and data != ["[DONE]"]:
            found.append(json.loads("\n".join(data)))
    return found


def repaired(body: bytes, **options: Any) -> bytes:
    repair = ResponsesRepair("abc", 1700000000, **options)
    return repair.feed(body) + repair.end()


def repaired_events(*events: Json) -> list[Json]:
    return events_of(repaired(stream(*events)))


def recorded(folder: Path) -> dict[str, bytes]:
    """The recordings that are there, as streams."""
    found = {}
    for path in sorted(folder.glob("*.jsonl")):
        lines = path.read_bytes().splitlines()
        found[path.name] = b"".join(
            b"event: %b\ndata: %b\n\n" % (json.loads(line)["type"].encode(), line) for line in lines
        )
    return found


# --- a healthy stream -----------------------------------------------------------------------------


def response(status: str, output: list[Json] | None = None) -> Json:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1700000000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": "thinker",
        "output": output or [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }


class HealthyStream:
    """Writes a healthy stream, event by event, as OpenAI's server does."""

    def __init__(self) -> None:
        self.events: list[Json] = []
        self.output: list[Json] = []
        self.say("response.created", response=response("in_progress"))
        self.say("response.in_progress", response=response("in_progress"))

    def say(self, kind: str, **fields: Any) -> None:
        self.events.append({"type": kind, **fields, "sequence_number": len(self.events)})

    def _texts(
        self,
        about: Json,
        part: Json,
        part_name: str,
        text_name: str,
        index: str,
        n: int,
        pieces: Any,
    ) -> Json:
        text = "".join(pieces)
        place = {**about, index: n}
        extra: Json = {"logprobs": []} if part["type"] == "output_text" else {}
        self.say(f"{part_name}.added", **place, part=part)
        for piece in pieces:
            self.say(f"{text_name}.delta", **place, delta=piece, **extra)
        self.say(f"{text_name}.done", **place, text=text, **extra)
        whole = {**part, "text": text}
        self.say(f"{part_name}.done", **place, part=whole)
        return whole

    def _item(self, item: Json, whole: Any) -> None:
        at = len(self.output)
        self.say("response.output_item.added", output_index=at, item=item)
        done = whole({"item_id": item["id"], "output_index": at})
        self.output.append(done)
        self.say("response.output_item.done", output_index=at, item=done)

    def reasoning(self, *parts: list[str], raw: bool = False) -> None:
        """Reasoning as a summary, or only as raw text."""
        name = f"rs_{len(self.output)}"
        kind, texts, key = (
            ("response.content_part", "response.reasoning_text", "content_index")
            if raw
            else (
                "response.reasoning_summary_part",
                "response.reasoning_summary_text",
                "summary_index",
            )
        )
        part = {"type": "reasoning_text" if raw else "summary_text", "text": ""}

        def whole(about: Json) -> Json:
            shown = [
                self._texts(about, part, kind, texts, key, n, pieces)
                for n, pieces in enumerate(parts)
            ]
            if raw:
                return {"type": "reasoning", "id": name, "summary": [], "content": shown}
            return {"type": "reasoning", "id": name, "summary": shown}

        self._item({"type": "reasoning", "id": name, "summary": []}, whole)

    def message(self, *parts: list[str]) -> None:
        item = {
            "type": "message",
            "id": f"msg_{len(self.output)}",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }
        part = {"type": "output_text", "text": "", "annotations": []}

        def whole(about: Json) -> Json:
            kind, texts = "response.content_part", "response.output_text"
            shown = [
                self._texts(about, part, kind, texts, "content_index", n, pieces)
                for n, pieces in enumerate(parts)
            ]
            return {**item, "status": "completed", "content": shown}

        self._item(item, whole)

    def call(self, arguments: list[str], name: str = "get_weather") -> None:
        number = len(self.output)
        item = {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": name,
            "arguments": "",
            "status": "in_progress",
        }

        def whole(about: Json) -> Json:
            for piece in arguments:
                self.say("response.function_call_arguments.delta", **about, delta=piece)
            text = "".join(arguments)
            self.say("response.function_call_arguments.done", **about, arguments=text)
            return {**item, "arguments": text, "status": "completed"}

        self._item(item, whole)

    def completed(self) -> list[Json]:
        self.say("response.completed", response=response("completed", self.output))
        return json.loads(json.dumps(self.events))  # type: ignore[no-any-return]


def sunny(*, raw: bool = False) -> list[Json]:
    """Reasoning, a call and an answer."""
    backend = HealthyStream()
    backend.reasoning(["Sun ", "or ", "rain?"], raw=raw)
    backend.call(['{"city":', '"Paris"}'])
    backend.message(["It ", "is ", "sunny."])
    return backend.completed()


pieces = st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4)


@st.composite
def healthy(draw: st.DrawFn, raw: bool | None = None) -> list[Json]:
    """A healthy stream; with `raw`, its reasoning is raw or a summary."""
    backend = HealthyStream()
    for kind in draw(st.lists(st.sampled_from(("reasoning", "message", "call")), max_size=4)):
        if kind == "reasoning":
            parts = draw(st.lists(pieces, min_size=1, max_size=2))
            backend.reasoning(*parts, raw=draw(st.booleans()) if raw is None else raw)
        elif kind == "message":
            backend.message(*draw(st.lists(pieces, min_size=1, max_size=2)))
        else:
            backend.call(draw(st.sampled_from((['{"a":', "1}"], ["{}"]))))
    backend.message(draw(pieces))
    return backend.completed()


# --- an oracle ------------------------------------------------------------------------------------


class Read:
    """What a strict client makes of a stream, from its deltas alone."""

    def __init__(self, events: list[Json]) -> None:
        self.items: dict[int, Json] = {}
        self.done: dict[int, Json] = {}
        self.final: Json | None = None
        self.response_id: str | None = None
        last = -1
        for event in events:
            number = event["sequence_number"]
            assert number > last, f"{number} after {last}"
            last = number
            assert self.final is None, f"{event['type']} after the end"
            self._take(event)

    def _take(self, event: Json) -> None:
        kind = event["type"]
        if "response" in event:
            if self.response_id is None:
                assert kind == "response.created", f"{kind} comes first"
                self.response_id = event["response"]["id"]
            assert event["response"]["id"] == self.response_id
            if kind in TERMINAL:
                self.final = event["response"]
            return
        assert self.response_id is not None, f"{kind} comes first"
        index = event["output_index"]
        if kind == "response.output_item.added":
            assert index not in self.items, "an index twice"
            item = event["item"]
            assert item["id"] not in [one["id"] for one in self.items.values()], "an id twice"
            self.items[index] = {"type": item["type"], "id": item["id"], "texts": {}, "open": set()}
            if item["type"] == "function_call":
                assert item["name"]
                assert item["call_id"]
            return
        item = self.items[index]
        if kind == "response.output_item.done":
            assert event["item"]["id"] == item["id"]
            assert not item["open"], "a part is open"
            assert index not in self.done
            self.done[index] = event["item"]
            return
        assert event["item_id"] == item["id"]
        assert index not in self.done, f"{kind} after the item's end"
        name, _, verb = kind.rpartition(".")
        place = event.get("content_index", event.get("summary_index"))
        if name in ("response.content_part", "response.reasoning_summary_part"):
            if verb == "added":
                assert place not in item["texts"]
                item["texts"][place] = ""
                item["open"].add(place)
            else:
                assert event["part"].get("text") == item["texts"][place]
                item["open"].remove(place)
        elif verb == "delta":
            if item["type"] == "function_call":
                place = 0
                item["texts"].setdefault(0, "")
            else:
                assert place in item["open"], "a delta without its part"
            item["texts"][place] += event["delta"]
        else:
            assert event.get("text", event.get("arguments")) == item["texts"][place or 0]

    def texts(self, type_: str) -> list[list[str]]:
        """Per item of a type, its texts."""
        return [
            [item["texts"][place] for place in sorted(item["texts"])]
            for _, item in sorted(self.items.items())
            if item["type"] == type_
        ]
