"""Unknown fields of known events are kept raw."""

from __future__ import annotations

import json
import typing

import pytest
from openai.types.responses import ResponseStreamEvent

from tailrace.core import events as ev
from tailrace.ingest.base import Notebook
from tailrace.ingest.openai_responses.events import FIELDS
from tailrace.ingest.openai_responses.reader import OpenAIResponses
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

MSG = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
THOUGHT = {"item_id": "rs_1", "output_index": 1}
SEARCH = {"item_id": "ws_1", "output_index": 2}
CALL = {"item_id": "fc_1", "output_index": 3}
IMAGE = {"item_id": "ig_1", "output_index": 4}
PART = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}
SUMMARY = {"type": "summary_text", "text": "So."}
URL = {"type": "url_citation", "url": "https://a.b", "start_index": 0, "end_index": 2}

UNDERSTOOD: list[Json] = [
    event("created", response={"id": "resp_1"}),
    event("queued", response={"id": "resp_1"}),
    event("in_progress", response={"id": "resp_1"}),
    added(0, message()),
    event("content_part.added", **MSG, part={**PART, "text": ""}),
    text("Hi", content_index=0, logprobs=[]),
    event("output_text.annotation.added", **MSG, annotation_index=0, annotation=URL),
    event("output_text.done", **MSG, text="Hi", logprobs=[]),
    event("content_part.done", **MSG, part=PART),
    done(0, message("Hi")),
    event("refusal.delta", item_id="msg_2", output_index=5, delta="No"),
    event("refusal.done", item_id="msg_2", output_index=5, refusal="No"),
    event("reasoning_summary_part.added", **THOUGHT, summary_index=0, part=SUMMARY),
    event("reasoning_summary_text.delta", **THOUGHT, summary_index=0, delta="So."),
    event("reasoning_summary_text.done", **THOUGHT, summary_index=0, text="So."),
    event("reasoning_summary_part.done", **THOUGHT, summary_index=0, part=SUMMARY),
    event("reasoning_text.delta", **THOUGHT, content_index=0, delta="Hm."),
    event("reasoning_text.done", **THOUGHT, content_index=0, text="Hm."),
    event("web_search_call.searching", **SEARCH),
    added(3, call("")),
    event("function_call_arguments.delta", **CALL, delta="{}"),
    event("function_call_arguments.done", **CALL, arguments="{}", name="weather"),
    event(
        "image_generation_call.partial_image",
        **IMAGE,
        partial_image_b64="iVBOR",
        partial_image_index=0,
        output_format="png",
        size="auto",
        quality="low",
        background="opaque",
    ),
    {"type": "keepalive"},
]


def without_ids(book: Notebook) -> list[Json]:
    """What was made of a stream; our own ids count all events."""
    return [{**item, "id": None} for item in streams.shown(book)["output"]]


def test_a_stream_of_known_fields_leaves_nothing_over() -> None:
    events = [{**one, "sequence_number": n} for n, one in enumerate(UNDERSTOOD)]
    book, _ = read(*[{**one, "obfuscation": "x7"} for one in events])
    assert kept_raw(book) == []


@pytest.mark.parametrize("at", range(len(UNDERSTOOD)))
def test_an_event_with_unknown_fields_is_kept_whole(at: int) -> None:
    events = list(UNDERSTOOD)
    plain, _ = read(*events)
    events[at] = {**events[at], "mood": "good", "sequence_number": 7, "nothing": None}
    book, _ = read(*events)
    assert kept_raw(book) == [(events[at]["type"], events[at])]
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
    "part",
    [
        {**PART, "mood": "good"},
        {**PART, "logprobs": [{"token": "Hi"}]},
        {"type": "refusal", "refusal": "No", "annotations": [URL]},
        {"type": "reasoning_text", "text": "Hm.", "logprobs": [1]},
    ],
)
def test_an_event_whose_part_has_unknown_fields_is_kept(part: Json) -> None:
    place = {"item_id": "it_1", "output_index": 0, "content_index": 0}
    one = event("content_part.added", **place, part=part)
    book, _ = read(one)
    assert kept_raw(book) == [(one["type"], one)]


def test_unknown_fields_of_a_delta_that_is_an_object_are_kept() -> None:
    delta = {"type": "text", "text": "Hm.", "signature": "s"}
    one = event("reasoning.delta", **THOUGHT, delta=delta)
    book, _ = read(one)
    assert kept_raw(book) == [(one["type"], one)]


# --- probabilities and citations -----------------------------------------------------------------


@pytest.mark.parametrize("where", ["text", "part"])
def test_probabilities_that_only_the_end_of_a_text_has_are_kept(where: str) -> None:
    one = {"token": "Hi", "logprob": -0.1, "rank": 3}
    end = event("output_text.done", **MSG, text="Hi", logprobs=[one])
    if where == "part":
        end = event("content_part.done", **MSG, part={**PART, "logprobs": [one]})
    [cut] = output(text("Hi", content_index=0), end)
    assert cut["private"]["raw"]["content"][0]["logprobs"] == [one]
    text_delta = text("Hi", content_index=0, logprobs=[one])
    [once] = output(text_delta, end, done(0, message("Hi")))
    assert once["private"]["raw"]["content"][0]["logprobs"] == [one]
    junk = {**end, "logprobs": 7, "part": {**PART, "logprobs": 7}}
    [junk] = output(text("Hi", content_index=0), junk)
    assert texts(junk) == ["Hi"]
    no = {"type": "refusal", "refusal": "No", "logprobs": [one]}
    book, _ = read(event("content_part.done", **MSG, part=no))
    assert [raw["part"] for _, raw in kept_raw(book)] == [no]


def test_citations_that_only_the_end_of_a_text_has_are_shown() -> None:
    [cut] = output(text("Hi"), event("output_text.done", **MSG, text="Hi", annotations=[URL]))
    assert [one["url"] for one in cut["block_list"][0]["annotations"]] == ["https://a.b"]


# --- how often -----------------------------------------------------------------------------------


def test_deltas_with_the_same_unknown_names_are_kept_once() -> None:
    events = [
        text(piece, item_id=f"msg_{index}", index=index, content_index=0, stamp=at)
        for at, piece in enumerate("Hello")
        for index in (0, 1)
    ]
    book, _ = read(*events)
    assert [texts(one) for one in streams.shown(book)["output"]] == [["Hello"], ["Hello"]]
    assert kept_raw(book) == [("response.output_text.delta", events[0])]


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


def test_new_fields_of_a_repeated_end_are_kept_raw() -> None:
    end = completed(message("Hi"), region="eu")
    book, _ = read(end, {**end, "type": "response.done"})
    assert kept_raw(book) == []
    book, _ = read(end, {**completed(region="us"), "type": "response.done"})
    assert kept_raw(book) == [("response.done", {"response": {"id": "resp_1", "region": "us"}})]


def test_the_fields_of_a_cut_response_are_kept_once_though_its_end_is_asked_for_twice() -> None:
    book = Notebook()
    ingest = OpenAIResponses(book)
    ingest.feed(json.dumps(event("created", response={"id": "resp_1", "price": 3})))
    assert ingest.end() == ingest.end()
    kept = {"response": {"id": "resp_1", "price": 3}}
    assert kept_raw(book) == [("response.created", kept)]


def test_fields_that_only_the_beginning_of_an_item_has_are_kept_with_its_end() -> None:
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
