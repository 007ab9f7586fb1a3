"""What an event that is understood says in fields that nobody knows is kept raw."""

from __future__ import annotations

import json
import typing
from typing import Any

import pytest
from openai.types.responses import ResponseStreamEvent

from tailrace.core import events as ev
from tailrace.ingest.base import Notebook
from tailrace.ingest.openai_events import FIELDS
from tailrace.ingest.openai_responses import OpenAIResponses
from tests.ingest import streams
from tests.ingest.test_openai_responses import (
    Json,
    added,
    call,
    completed,
    done,
    event,
    kept_raw,
    message,
    output,
    read,
    text,
    texts,
)

MSG = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
THOUGHT = {"item_id": "rs_1", "output_index": 1}
SEARCH = {"item_id": "ws_1", "output_index": 2}
CALL = {"item_id": "fc_1", "output_index": 3}
IMAGE = {"item_id": "ig_1", "output_index": 4}
PART = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}
SUMMARY = {"type": "summary_text", "text": "So."}
URL = {"type": "url_citation", "url": "https://a.b", "start_index": 0, "end_index": 2}

# Each event with what is told of it elsewhere, and with what of it names its place.
UNDERSTOOD: list[tuple[Json, set[str]]] = [
    (event("created", response={"id": "resp_1"}), {"response"}),
    (event("queued", response={"id": "resp_1"}), {"response"}),
    (event("in_progress", response={"id": "resp_1"}), {"response"}),
    (added(0, message()), {"item"}),
    (event("content_part.added", **MSG, part={**PART, "text": ""}), {"part"}),
    (text("Hi", content_index=0, logprobs=[]), {"delta", "logprobs"}),
    (event("output_text.annotation.added", **MSG, annotation_index=0, annotation=URL),
     {"annotation", "annotation_index"}),
    (event("output_text.done", **MSG, text="Hi", logprobs=[]), {"text", "logprobs"}),
    (event("content_part.done", **MSG, part=PART), {"part"}),
    (done(0, message("Hi")), {"item"}),
    (event("refusal.delta", item_id="msg_2", output_index=5, delta="No"), {"delta"}),
    (event("refusal.done", item_id="msg_2", output_index=5, refusal="No"), {"refusal"}),
    (event("reasoning_summary_part.added", **THOUGHT, summary_index=0, part=SUMMARY), {"part"}),
    (event("reasoning_summary_text.delta", **THOUGHT, summary_index=0, delta="So."), {"delta"}),
    (event("reasoning_summary_text.done", **THOUGHT, summary_index=0, text="So."), {"text"}),
    (event("reasoning_summary_part.done", **THOUGHT, summary_index=0, part=SUMMARY), {"part"}),
    (event("reasoning_text.delta", **THOUGHT, content_index=0, delta="Hm."), {"delta"}),
    (event("reasoning_text.done", **THOUGHT, content_index=0, text="Hm."), {"text"}),
    (event("web_search_call.searching", **SEARCH), set()),
    (added(3, call("")), {"item"}),
    (event("function_call_arguments.delta", **CALL, delta="{}"), {"delta"}),
    (event("function_call_arguments.done", **CALL, arguments="{}", name="weather"),
     {"arguments", "name"}),
    (event("image_generation_call.partial_image", **IMAGE, partial_image_b64="iVBOR",
           partial_image_index=0, output_format="png", size="auto", quality="low",
           background="opaque"),
     {"partial_image_b64", "partial_image_index", "output_format", "size", "quality",
      "background"}),
    ({"type": "keepalive"}, set()),
]  # fmt: skip


def without_ids(book: Notebook) -> list[Json]:
    """What was made of a stream; our own ids count all events."""
    return [{**item, "id": None} for item in streams.shown(book)["output"]]


def test_a_stream_of_known_fields_leaves_nothing_over() -> None:
    events = [{**one, "sequence_number": n} for n, (one, _) in enumerate(UNDERSTOOD)]
    book, _ = read(*[{**one, "obfuscation": "x7"} for one in events])
    assert kept_raw(book) == []


@pytest.mark.parametrize("at", range(len(UNDERSTOOD)))
def test_unknown_fields_of_any_event_are_kept_without_what_was_taken(at: int) -> None:
    events = [one for one, _ in UNDERSTOOD]
    plain, _ = read(*events)
    known, taken = UNDERSTOOD[at]
    events[at] = {**known, "mood": "good", "sequence_number": 7, "nothing": None}
    book, _ = read(*events)
    [(kind, raw)] = kept_raw(book)
    assert kind == known["type"]
    place = {name: value for name, value in known.items() if name not in taken}
    for name in ("item", "response"):
        if name in taken:
            place[name] = {"id": known[name]["id"]}
    assert raw == {**place, "mood": "good"}
    assert without_ids(book) == without_ids(plain)


def test_every_field_that_the_sdk_names_has_a_place() -> None:
    """But how far a part of a summary came, which nothing here could show."""
    left = set()
    for one in typing.get_args(typing.get_args(ResponseStreamEvent)[0]):
        [kind] = typing.get_args(one.model_fields["type"].annotation)
        left |= {
            (kind, name) for name in set(one.model_fields) - FIELDS.get(kind, set(one.model_fields))
        }
    assert left == {("response.reasoning_summary_part.done", "status")}


@pytest.mark.parametrize(
    ("part", "left"),
    [
        ({**PART, "mood": "good"}, {"mood": "good"}),
        ({**PART, "logprobs": [{"token": "Hi"}]}, {"logprobs": [{"token": "Hi"}]}),
        ({"type": "refusal", "refusal": "No", "annotations": [URL]}, {"annotations": [URL]}),
        ({"type": "reasoning_text", "text": "Hm.", "logprobs": [1]}, {"logprobs": [1]}),
    ],
)
def test_unknown_fields_of_a_part_are_kept(part: Json, left: Json) -> None:
    place = {"item_id": "it_1", "output_index": 0, "content_index": 0}
    book, _ = read(event("content_part.added", **place, part=part))
    kept = {"type": "response.content_part.added", **place, "part": left}
    assert kept_raw(book) == [("response.content_part.added", kept)]


def test_unknown_fields_of_a_delta_that_is_an_object_are_kept() -> None:
    delta = {"type": "text", "text": "Hm.", "signature": "s"}
    book, _ = read(event("reasoning.delta", **THOUGHT, delta=delta))
    kept = {"type": "response.reasoning.delta", **THOUGHT, "delta": {"signature": "s"}}
    assert kept_raw(book) == [("response.reasoning.delta", kept)]


# --- probabilities and citations -----------------------------------------------------------------


@pytest.mark.parametrize("where", ["text", "part"])
def test_probabilities_that_only_the_end_of_a_text_has_are_kept(where: str) -> None:
    one = {"token": "Hi", "logprob": -0.1, "rank": 3}
    end = event("output_text.done", **MSG, text="Hi", logprobs=[one])
    if where == "part":
        end = event("content_part.done", **MSG, part={**PART, "logprobs": [one]})
    [cut] = output(text("Hi", content_index=0), end)
    assert cut["private"]["raw"]["content"][0]["logprobs"] == [one]
    told = text("Hi", content_index=0, logprobs=[one])
    [once] = output(told, end, done(0, message("Hi")))
    assert once["private"]["raw"]["content"][0]["logprobs"] == [one]
    junk = {**end, "logprobs": 7, "part": {**PART, "logprobs": 7}}
    [junk] = output(text("Hi", content_index=0), junk)
    assert texts(junk) == ["Hi"]
    no = {"type": "refusal", "refusal": "No", "logprobs": [one]}
    book, _ = read(event("content_part.done", **MSG, part=no))
    assert [raw["part"] for _, raw in kept_raw(book)] == [{"logprobs": [one]}]


def test_citations_that_only_the_end_of_a_text_has_are_shown() -> None:
    [cut] = output(text("Hi"), event("output_text.done", **MSG, text="Hi", annotations=[URL]))
    assert [one["url"] for one in cut["block_list"][0]["annotations"]] == ["https://a.b"]


# --- stamps --------------------------------------------------------------------------------------


def stamped(piece: str, stamp: Any, **place: Any) -> Json:
    return text(piece, **place, content_index=0, stamp=stamp)


def stamps(*events: Json) -> list[tuple[Any, Any]]:
    book, _ = read(*events)
    return [(raw["output_index"], raw["stamp"]) for _, raw in kept_raw(book)]


def test_deltas_that_are_all_stamped_alike_leave_one_stamp() -> None:
    book, _ = read(*[stamped(piece, {"by": "proxy"}) for piece in "Hello"])
    assert texts(streams.shown(book)["output"][0]) == ["Hello"]
    [(kind, raw)] = kept_raw(book)
    assert (kind, raw["stamp"]) == ("response.output_text.delta", {"by": "proxy"})
    assert "delta" not in raw


def test_a_stamp_that_changes_is_kept_each_time() -> None:
    assert stamps(*map(stamped, "abcd", (1, 1, 2, 1))) == [(0, 1), (0, 2), (0, 1)]


def test_each_item_has_stamps_of_its_own() -> None:
    two = [
        stamped("x", f"at {index}", item_id=f"msg_{index}", index=index)
        for _ in range(3)
        for index in (0, 1)
    ]
    assert stamps(*two) == [(0, "at 0"), (1, "at 1")]


def test_stamps_of_many_items_are_forgotten_rather_than_gathered() -> None:
    once = [stamped("x", 1, item_id=f"msg_{n}", index=n) for n in range(300)]
    assert len(stamps(*once, *once[-10:], once[0])) == 301


def test_a_stream_that_stamps_its_deltas_is_read_as_any_other() -> None:
    lines = streams.lines(streams.FIXTURES / "openai-responses" / "interleaved.jsonl")
    events = [json.loads(line) for line in lines]
    plain, outcome = read(*events)
    book, same = read(*[{**one, "trace": "t"} for one in events])
    assert same == outcome
    assert without_ids(book) == without_ids(plain)


# --- responses and items -------------------------------------------------------------------------


def test_what_a_response_says_beside_its_request_is_kept_where_nothing_is_counted() -> None:
    begun = event("created", response={"id": "resp_1", "region": "eu"})
    kept = {"response": {"id": "resp_1", "region": "eu"}}
    book, _ = read(begun)
    assert kept_raw(book) == [("response.created", kept)]
    book, _ = read(begun, event("failed", response={"id": "resp_1", "status": "failed"}))
    assert kept_raw(book) == [("response.failed", kept)]
    book, _ = read(begun, text("Hi"), event("created", response={"id": "resp_2"}))
    assert kept_raw(book) == [("response.created", kept)]


def test_an_end_that_comes_twice_leaves_what_the_first_had_not() -> None:
    end = completed(message("Hi"), region="eu")
    book, _ = read(end, {**end, "type": "response.done"})
    assert kept_raw(book) == []
    book, _ = read(end, {**completed(region="us"), "type": "response.done"})
    assert kept_raw(book) == [("response.done", {"response": {"id": "resp_1", "region": "us"}})]


def test_what_a_cut_response_said_is_kept_once_though_its_end_is_asked_for_twice() -> None:
    book = Notebook()
    ingest = OpenAIResponses(book)
    ingest.feed(json.dumps(event("created", response={"id": "resp_1", "price": 3})))
    assert ingest.end() == ingest.end()
    kept = {"response": {"id": "resp_1", "price": 3}}
    assert kept_raw(book) == [("response.created", kept)]


def test_what_only_the_beginning_of_an_item_said_is_kept_with_its_end() -> None:
    events = [
        added(0, message(mood="good")),
        done(0, message("Hi")),
        added(1, {"type": "web_search_call", "id": "ws_1", "action": {"query": "rain"}}),
        done(1, {"type": "web_search_call", "id": "ws_1", "status": "completed"}),
        added(2, {"type": "hologram", "id": "ho_1", "depth": 3}),
        completed(message("Hi"), {"type": "hologram", "id": "ho_1", "width": 4}),
    ]
    answer, search, _, hologram = output(*events)
    assert answer["private"]["raw"] == message("Hi", mood="good")
    assert json.loads(search["arguments"]) == {"query": "rain"}
    shown = {"type": "hologram", "id": "ho_1", "depth": 3, "width": 4, "status": "completed"}
    assert hologram["raw"] == shown


def test_what_an_error_says_beyond_ours_is_kept() -> None:
    error = {"code": "server_error", "message": "No.", "param": None, "metadata": {"raw": "503"}}
    failed = {"id": "resp_1", "status": "failed", "error": error}
    book, outcome = read(event("failed", response=failed))
    assert outcome.error is not None
    assert outcome.error.code == "server_error"
    kept = {"response": {"id": "resp_1", "error": error}}
    assert kept_raw(book) == [("response.failed", kept)]
    book, _ = read(event("failed", response={**failed, "error": {**error, "metadata": None}}))
    assert kept_raw(book) == []
    usage = {"input_tokens": 1, "output_tokens": 2}
    details = {"reason": "content_filter", "filter": "violence"}
    stopped = {"status": "incomplete", "incomplete_details": details, "usage": usage}
    book, outcome = read(event("incomplete", response=stopped))
    assert outcome.reason == "content_filter"
    [private] = [private for one, private in book.take() if isinstance(one, ev.TaskUsage)]
    assert private is not None
    assert private.raw == {**usage, "incomplete_details": details}
    book, _ = read(completed(error={"code": "odd", "message": "But well."}, usage=usage))
    [private] = [private for one, private in book.take() if isinstance(one, ev.TaskUsage)]
    assert private is not None
    assert private.raw["error"]["message"] == "But well."


def test_what_a_response_has_so_far_is_shown_where_nothing_streams() -> None:
    so_far = [message("Hel", status="in_progress"), call("{", status="in_progress")]
    response = {"object": "response", "id": "resp_1", "status": "in_progress", "output": so_far}
    book, outcome = read(response)
    assert outcome.status == "cut"
    answer, half = streams.shown(book)["output"]
    assert (texts(answer), answer["status"]) == (["Hel"], "incomplete")
    assert (half["arguments"], half["status"]) == ("{", "incomplete")
    streaming = event("in_progress", response={"id": "resp_1", "output": so_far[:1]})
    [answer] = output(streaming, text("Hello"))
    assert texts(answer) == ["Hello"]
