"""The text of a part is in its start, its pieces and its end, and arrives once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tailrace.core import events as ev
from tests.ingest import streams
from tests.ingest.streams import kept_raw
from tests.ingest.test_openai_responses import (
    Json,
    added,
    call,
    completed,
    done,
    event,
    message,
    output,
    read,
    text,
    texts,
)

# --- the four kinds of parts ---------------------------------------------------------------------

PLACE = {"item_id": "it_1", "output_index": 0}


class Kind:
    """The events of a kind of part: added, in pieces, whole, and inside of its item."""

    def __init__(self, name: str, index: str, stem: str, part: str, item: Json) -> None:
        self.name, self.stem, self.part, self.item = name, stem, part, item
        self.place = {**PLACE, index: 0}
        self.field = "refusal" if part == "refusal" else "text"
        self.list = "summary" if part == "summary_text" else "content"
        self.added_name = "reasoning_summary_part" if part == "summary_text" else "content_part"

    def whole(self, words: str) -> Json:
        return {"type": self.part, self.field: words}

    def begins(self, words: str) -> Json:
        return event(f"{self.added_name}.added", **self.place, part=self.whole(words))

    def piece(self, words: str) -> Json:
        return event(f"{self.stem}.delta", **self.place, delta=words)

    def ends(self, words: str) -> Json:
        return event(f"{self.stem}.done", **self.place, **{self.field: words})

    def of_item(self, words: str, **more: Any) -> Json:
        return {**self.item, "id": "it_1", self.list: [self.whole(words)], **more}

    def shown(self, item: Json) -> list[str]:
        if item["type"] == "message":
            return texts(item)
        parts = item.get("summary" if self.list == "summary" else "reasoning_text", [])
        return [one["text"] for one in parts]


ANSWER = {"type": "message", "role": "assistant"}
THOUGHT = {"type": "reasoning"}
KINDS = [
    Kind("text", "content_index", "output_text", "output_text", ANSWER),
    Kind("refusal", "content_index", "refusal", "refusal", ANSWER),
    Kind("raw reasoning", "content_index", "reasoning_text", "reasoning_text", THOUGHT),
    Kind("summary", "summary_index", "reasoning_summary_text", "summary_text", THOUGHT),
]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
Rest = Callable[[Kind], list[Json]]

BEGINNINGS: dict[str, Callable[[Kind, str], list[Json]]] = {
    "the part": lambda kind, words: [kind.begins(words)],
    "the item": lambda kind, words: [added(0, kind.of_item(words))],
    "both": lambda kind, words: [added(0, kind.of_item(words)), kind.begins(words)],
    "an empty item": lambda kind, words: [added(0, kind.of_item("")), kind.begins(words)],
}
every_beginning = pytest.mark.parametrize("begin", BEGINNINGS.values(), ids=list(BEGINNINGS))

CASES: dict[str, tuple[Rest, str]] = {
    "nothing else: it is all there is": (lambda _: [], "Hello"),
    "an end without a text": (lambda kind: [kind.ends("")], "Hello"),
    "the whole is the same": (lambda kind: [kind.ends("Hello")], "Hello"),
    "the whole goes on": (lambda kind: [kind.ends("Hello there")], "Hello there"),
    "the whole is shorter": (lambda kind: [kind.ends("Hell")], "Hell"),
    "the whole is another text": (lambda kind: [kind.ends("Good day")], "Good day"),
    "the item has it whole": (lambda kind: [done(0, kind.of_item("Hello you"))], "Hello you"),
    "the item has no text": (lambda kind: [done(0, kind.of_item(""))], "Hello"),
    "the response has it whole": (lambda kind: [completed(kind.of_item("Hello you"))], "Hello you"),
    "the response has nothing": (lambda _: [completed()], "Hello"),
    "pieces go on": (lambda kind: [kind.piece(" the"), kind.piece("re")], "Hello there"),
    "an empty piece, and others": (lambda kind: [kind.piece(""), kind.piece("!")], "Hello!"),
    "pieces go on, and the whole agrees": (
        lambda kind: [kind.piece(" there"), kind.ends("Hello there")],
        "Hello there",
    ),
    "pieces go on, and the whole has more": (
        lambda kind: [kind.piece(" there"), kind.ends("Hello there, you")],
        "Hello there, you",
    ),
    "one piece says it again": (lambda kind: [kind.piece("Hello")], "Hello"),
    "one piece says it again and goes on": (
        lambda kind: [kind.piece("Hello there")],
        "Hello there",
    ),
    "pieces say it again and go on": (
        lambda kind: [kind.piece(one) for one in ("He", "l", "lo th", "ere", "Hello")],
        "Hello thereHello",
    ),
    "pieces say a part of it again": (lambda kind: [kind.piece("He"), kind.piece("l")], "Hello"),
    "pieces say a part of it again, then the whole": (
        lambda kind: [kind.piece("He"), kind.ends("Hello there")],
        "Hello there",
    ),
    "pieces begin as it does": (
        lambda kind: [kind.piece("He"), kind.piece("y")],
        "HelloHey",
    ),
    "pieces that were no repetition, as the whole shows": (
        lambda kind: [kind.piece("Hel"), kind.ends("HelloHel")],
        "HelloHel",
    ),
    "pieces, and a whole that contradicts": (
        lambda kind: [kind.piece(" there"), kind.ends("there")],
        "Hello there",
    ),
}


@pytest.mark.parametrize(("rest_of", "wanted"), CASES.values(), ids=list(CASES))
@every_beginning
@every_kind
def test_what_a_part_was_added_with_arrives_exactly_once(
    kind: Kind, begin: Callable[[Kind, str], list[Json]], rest_of: Rest, wanted: str
) -> None:
    book, outcome = read(*begin(kind, "Hello"), *rest_of(kind))
    item = streams.shown(book)["output"][0]
    assert kind.shown(item) == [wanted]
    if outcome.status == "cut":
        has_end = any(one["type"] == "response.output_item.done" for one in rest_of(kind))
        assert item.get("status") == (None if has_end else "incomplete")


@every_kind
def test_what_a_part_is_added_with_after_its_pieces_is_a_whole_text(kind: Kind) -> None:
    [item] = output(kind.piece("Hel"), kind.begins("Hello"), kind.piece("lo"))
    assert kind.shown(item) == ["Hello"]
    [item] = output(kind.piece("Hel"), kind.begins("Hello"))
    assert kind.shown(item) == ["Hello"]
    [item] = output(kind.piece("Hel"), kind.begins("Hi"))
    assert kind.shown(item) == ["Hel"]
    [item] = output(kind.piece("Hel"), kind.begins("Hello"), kind.ends("Help"))
    assert kind.shown(item) == ["Help"]


def test_the_beginning_of_a_part_is_shown_with_its_first_piece() -> None:
    kind = KINDS[0]
    book, _ = read(kind.begins("Hello"), kind.piece(" the"), kind.piece("re"))
    deltas = [one.delta for one, _ in book.take() if isinstance(one, ev.TextDelta)]
    assert deltas == ["Hello", " the", "re"]


def test_a_piece_that_is_empty_does_not_hide_the_beginning() -> None:
    kind = KINDS[0]
    [item] = output(kind.piece(""), kind.begins("Hello"), kind.piece(""), kind.piece(" there"))
    assert texts(item) == ["Hello there"]


@pytest.mark.parametrize("kind", KINDS[:3], ids=lambda kind: kind.name)
def test_a_part_that_came_whole_does_not_begin_again(kind: Kind) -> None:
    [item] = output(kind.ends("Good day"), kind.begins("Good day to you"))
    assert kind.shown(item) == ["Good day"]


def test_a_part_of_a_summary_that_has_ended_begins_another() -> None:
    kind = KINDS[3]
    [item] = output(kind.ends("One."), kind.begins("Two."))
    assert kind.shown(item) == ["One.", "Two."]


CITED = {"type": "url_citation", "url": "https://a.b", "start_index": 0, "end_index": 2}


@pytest.mark.parametrize("rest", [[], [text("Hi")], [completed(message("Hi"))]])
@pytest.mark.parametrize("where", ["the part", "the item"])
def test_citations_that_a_part_was_added_with_arrive_once(where: str, rest: list[Json]) -> None:
    whole = {"type": "output_text", "text": "Hi", "annotations": [CITED]}
    begin = event("content_part.added", item_id="msg_1", output_index=0, part=whole)
    if where == "the item":
        begin = added(0, {**message(), "content": [whole]})
    again = event("output_text.annotation.added", item_id="msg_1", output_index=0, annotation=CITED)
    for events in ([begin, *rest], [begin, again, *rest]):
        [item] = output(*events)
        [block] = item["block_list"]
        assert [one["url"] for one in block["annotations"]] == ["https://a.b"]


def test_parts_of_another_kind_begin_nothing() -> None:
    place = {"item_id": "msg_1", "output_index": 0}
    refusal = event("content_part.added", **place, part={"type": "refusal", "refusal": "No"})
    book, _ = read(text("Yes"), refusal)
    assert texts(streams.shown(book)["output"][0]) == ["Yes"]
    assert kept_raw(book) == [("response.content_part.added", refusal)]
    book, _ = read(refusal, event("content_part.added", **place, part={"type": "output_text"}))
    assert texts(streams.shown(book)["output"][0]) == ["No"]
    assert [kind for kind, _ in kept_raw(book)] == ["response.content_part.added"]


# --- what no last word repeats -------------------------------------------------------------------


@pytest.mark.parametrize(
    "item",
    [
        {**message("Hi"), "mood": "good"},
        {**message(), "content": [{"type": "output_text", "text": "Hi", "mood": "good"}]},
        {**message(), "content": [{"type": "output_audio", "data": "UklGRg=="}]},
        {"type": "reasoning", "id": "rs_1", "format": "v2"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "mood": 1}]},
        {"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_image"}]},
        {"type": "shell_call", "id": "sh_1", "call_id": "c", "action": {"commands": ["ls"]}},
    ],
)
@pytest.mark.parametrize("end", [[], [completed()]])
def test_what_only_the_beginning_of_an_item_had_is_kept(item: Json, end: list[Json]) -> None:
    [shown] = output(added(0, item), *end)
    assert shown["private"]["raw"] == item
    if "output_audio" in str(item):
        part = item["content"][0]
        assert shown["block_list"] == [{"type": "data", "name": "output_audio", "data": part}]


def test_what_a_citation_says_beyond_ours_is_kept_where_no_item_repeats_it() -> None:
    fuller = {**CITED, "snippet": "…"}
    cite = event("output_text.annotation.added", output_index=0, annotation=fuller)
    [cut] = output(text("Hi", index=0), cite)
    assert cut["private"]["raw"]["content"][0]["annotations"] == [fuller]
    [forgotten] = output(text("Hi", index=0), cite, done(0, message("Hi")))
    assert forgotten["private"]["raw"]["content"][0]["annotations"] == [fuller]
    far = {"type": "file_citation", "file_id": "f", "start_index": 7, "end_index": 9}
    [cut] = output(text("Hi", index=0), {**cite, "annotation": far}, cite)
    assert cut["private"]["raw"]["content"][0]["annotations"] == [fuller, far]


def test_what_a_tool_had_begun_with_is_kept_when_it_is_cut() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "action": {"query": "rain"}}
    [shown] = output(added(0, search))
    assert (shown["status"], shown["private"]["raw"]) == ("incomplete", search)
    [shown] = output(added(0, {"type": "web_search_call", "id": "ws_1", "status": "in_progress"}))
    assert "raw" not in shown["private"]
    half = call("{", namespace="eu")
    [shown] = output(added(0, half))
    assert (shown["status"], shown["private"]["raw"]) == ("incomplete", half)


def test_an_image_that_was_shown_and_cut_does_not_go_back_half_done() -> None:
    image = {"type": "image_generation_call", "id": "ig_1", "status": "generating", "size": "auto"}
    sketch = event("image_generation_call.partial_image", output_index=0, partial_image_b64="iVBOR")
    _, result = output(added(0, image), sketch)
    assert result["status"] == "failed"
    assert "raw" not in result["private"]
