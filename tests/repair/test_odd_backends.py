"""Whatever a backend does to its one thought and its one answer, clients get both once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.repair.answer import repaired_body
from tailrace.repair.stream import ResponsesRepair
from tests.repair.odd_backends import ANSWER, BACKENDS, THOUGHT, twice
from tests.repair.streams import (
    HealthyStream,
    Json,
    Read,
    events_of,
    repaired,
    repaired_events,
    response,
    stream,
    sunny,
)

CREATED = sunny()[0]


def final_texts(final: Json | None) -> list[tuple[str, list[str]]]:
    assert final is not None
    return [
        (
            item["type"],
            [part["text"] for part in item.get("summary") or item["content"] if part["text"]],
        )
        for item in final["output"]
    ]


@pytest.mark.parametrize("name", BACKENDS)
def test_one_thought_and_one_answer_are_sent_once(name: str) -> None:
    body = repaired(BACKENDS[name])
    got = Read(events_of(body))
    assert got.texts("reasoning") == [[THOUGHT]]
    assert got.texts("message") == [[ANSWER]]
    assert set(got.done) == set(got.items)
    assert got.final is not None
    assert got.final["status"] == "completed"
    assert final_texts(got.final) == [("reasoning", [THOUGHT]), ("message", [ANSWER])]
    assert [item["id"] for item in got.final["output"]] == [
        got.items[index]["id"] for index in sorted(got.items)
    ]
    assert repaired(body) == body


@pytest.mark.long(always=True)
@pytest.mark.parametrize("name", BACKENDS)
def test_it_does_not_matter_where_the_bytes_are_cut(name: str) -> None:
    repair = ResponsesRepair("abc", 1700000000)
    bytewise = b"".join(repair.feed(bytes([byte])) for byte in BACKENDS[name])
    assert bytewise + repair.end() == repaired(BACKENDS[name])


def test_two_responses_in_one_stream_are_both_repaired() -> None:
    shown = events_of(repaired(twice()))
    assert not any("reasoning_text" in event["type"] for event in shown)
    numbers = [event["sequence_number"] for event in shown]
    assert numbers == sorted(set(numbers))
    at = next(n for n, event in enumerate(shown) if event["type"] == "response.completed") + 1
    for half, id_ in ((shown[:at], "resp_1"), (shown[at:], "resp_2")):
        got = Read(half)
        assert got.response_id == id_
        assert got.texts("reasoning") == [[THOUGHT]]
        assert got.texts("message") == [[ANSWER]]


def test_two_messages_that_share_an_id_are_two() -> None:
    backend = HealthyStream()
    backend.message(["One."])
    backend.message(["Two."])
    events = backend.completed()
    for event in events:
        if "item_id" in event:
            event["item_id"] = "msg"
        for item in [event.get("item", {}), *event.get("response", {}).get("output", [])]:
            item["id"] = "msg"
    silent = [event for event in events if event["type"] != "response.output_item.added"]
    never_ended = [event for event in events if event["type"] != "response.output_item.done"]
    for some in (events, silent, never_ended):
        got = Read(repaired_events(*some))
        assert got.texts("message") == [["One."], ["Two."]]
        assert got.final is not None
        assert len({item["id"] for item in got.final["output"]}) == 2


def test_text_after_the_end_of_its_item_is_an_item_of_its_own() -> None:
    backend = HealthyStream()
    backend.message(["Hi."])
    events = backend.completed()
    late = {**events[4], "delta": " More."}
    got = Read(repaired_events(*events[:-1], late, events[-1]))
    assert got.texts("message") == [["Hi."], [" More."]]
    assert [text for _, text in final_texts(got.final)] == [["Hi."], [" More."]]


def test_arguments_after_the_end_of_their_call_are_dropped() -> None:
    backend = HealthyStream()
    backend.call(["{}"])
    events = backend.completed()
    late = [{**event, "sequence_number": 50} for event in events if event.get("item_id") == "fc_0"]
    assert repaired_events(*events[:-1], *late) == repaired_events(*events[:-1])


def test_a_citation_after_the_end_of_its_item_passes() -> None:
    backend = HealthyStream()
    backend.message(["Hi."])
    events = backend.completed()
    note = {
        "type": "response.output_text.annotation.added",
        "item_id": "msg_0",
        "output_index": 0,
        "content_index": 0,
        "annotation": {"type": "url_citation"},
        "sequence_number": 50,
    }
    end = {**events[-1], "sequence_number": 51}
    body = stream(*events[:-1], note, end)
    assert repaired(body) == body


def test_a_summary_that_only_the_end_has_and_that_says_something_else_becomes_a_part() -> None:
    backend = HealthyStream()
    backend.reasoning(["Sun?"], ["Rain?"], raw=True)
    events = backend.completed()
    summary = [{"type": "summary_text", "text": text} for text in ("Sun? Rain?", "Weather.")]
    events[-2]["item"]["summary"] = summary
    got = Read(repaired_events(*events))
    assert got.texts("reasoning") == [["Sun?", "Rain?", "Weather."]]
    assert final_texts(got.final) == [("reasoning", ["Sun?", "Rain?", "Weather."])]


def test_a_summary_behind_a_raw_part_without_text_is_sent() -> None:
    place = {"item_id": "rs_0", "output_index": 0}
    empty = {"type": "response.content_part.done", "part": {"type": "reasoning_text"}, **place}
    part = {"type": "summary_text", "text": ""}
    begin = {"type": "response.reasoning_summary_part.added", "summary_index": 0, "part": part}
    delta = {"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": "Sun?"}
    got = Read(repaired_events(CREATED, empty, {**begin, **place}, {**delta, **place}))
    assert got.texts("reasoning") == [["Sun?"]]


def test_a_call_keeps_the_names_of_its_announcement() -> None:
    events = sunny()
    end = next(e for e in events if e.get("item", {}).get("arguments"))
    del end["item"]["call_id"], end["item"]["name"]
    done = next(
        event["item"]
        for event in repaired_events(*events)
        if event["type"] == "response.output_item.done" and event["item"]["id"] == "fc_1"
    )
    assert (done["call_id"], done["name"]) == ("call_1", "get_weather")


def test_items_without_a_type_are_known_by_their_id_or_kept() -> None:
    events = sunny()
    for event in events:
        if event["type"] == "response.output_item.done":
            del event["item"]["type"]
    got = Read(repaired_events(*events))
    assert got.texts("message") == [["It is sunny."]]
    item = {"id": "x", "status": "completed"}
    for verb in ("added", "done"):
        shown = repaired_events(
            CREATED, {"type": f"response.output_item.{verb}", "output_index": 0, "item": item}
        )
        assert shown[-2]["item"] == item


def test_an_error_that_only_its_event_line_names_is_an_error() -> None:
    body = stream(CREATED) + b'event: error\ndata: {"code":"x","message":"y"}\n\n'
    shown = events_of(repaired(body))
    assert shown[1:] == [{"code": "x", "message": "y", "type": "error", "sequence_number": 1}]


def test_an_item_that_the_final_response_has_no_place_for_keeps_its_own() -> None:
    """What the backend ended and then left out stays at its place."""
    events = sunny()
    output = events[-1]["response"]["output"]
    whole = [item["id"] for item in output]
    for gone in range(3):
        some = [json.loads(json.dumps(event)) for event in events]
        del some[-1]["response"]["output"][gone]
        last = repaired_events(*some)[-1]["response"]
        assert [item["id"] for item in last["output"]] == whole


@pytest.mark.parametrize(
    ("item", "name", "part"),
    [
        ({"type": "message", "content": "Hi."}, "content", "output_text"),
        (
            {"type": "message", "content": [{"type": "text", "text": "Hi."}]},
            "content",
            "output_text",
        ),
        ({"type": "reasoning", "summary": "Hi."}, "summary", "summary_text"),
        ({"type": "reasoning", "summary": ["Hi.", ""]}, "summary", "summary_text"),
        ({"type": "reasoning", "content": "Hi."}, "summary", "summary_text"),
    ],
)
def test_a_body_gets_parts_where_texts_stand(item: Json, name: str, part: str) -> None:
    body = json.dumps(response("completed", [item])).encode()
    [got] = json.loads(repaired_body(body, "abc"))["output"]
    extra: Json = {"annotations": []} if part == "output_text" else {}
    assert got[name] == [{"type": part, "text": "Hi.", **extra}]


def test_a_body_gets_the_ids_and_the_lists_that_it_lacks() -> None:
    text = {"type": "output_text", "text": "Hi."}
    output: list[Json] = [
        {"type": "reasoning", "summary": None},
        {"type": "message", "content": [text, {"type": "refusal", "refusal": "No."}, 5]},
        {"type": "function_call", "id": "fc", "call_id": "call", "name": "f", "arguments": "{}"},
        {"type": "message", "id": "fc", "role": "assistant", "content": []},
    ]
    for id_, base in (("resp_9", "9"), (None, "abc")):
        body = json.dumps({**response("completed", output), "id": id_}).encode()
        first, second, third, fourth = json.loads(repaired_body(body, "abc"))["output"]
        assert first == {"type": "reasoning", "id": f"rs_{base}_0", "summary": []}
        assert second["id"] == f"msg_{base}_1"
        assert second["role"] == "assistant"
        assert second["content"] == [{**text, "annotations": []}, *second["content"][1:]]
        assert third == output[2]
        assert fourth["id"] == f"msg_{base}_3", "one id for two items"


def test_arguments_that_are_an_object_become_their_text() -> None:
    item = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f"}
    whole = {**item, "arguments": {"city": "Zürich"}}
    end = {"type": "response.output_item.done", "output_index": 0, "item": whole}
    text = '{"city":"Zürich"}'
    shown = repaired_events(CREATED, end)
    assert shown[-2]["item"]["arguments"] == text
    body = json.dumps(response("completed", [whole])).encode()
    assert json.loads(repaired_body(body, "abc"))["output"] == [{**item, "arguments": text}]


@pytest.mark.parametrize(
    ("verb", "part"),
    [
        ("added", {"type": "text", "text": "", "annotations": []}),
        ("added", {"type": "output_text", "text": ""}),
        ("done", {"type": "text", "text": "It is sunny.", "annotations": []}),
        ("done", {"type": "output_text"}),
    ],
)
def test_a_part_is_mended_also_where_its_number_is_right(verb: str, part: Json) -> None:
    events = sunny()
    wanted = [event for event in events if event["type"] == f"response.content_part.{verb}"]
    before = [dict(event["part"]) for event in wanted]
    for event in wanted:
        event["part"] = part
    shown = repaired_events(*events)
    assert [event["type"] for event in shown] == [event["type"] for event in events]
    assert [e["part"] for e in shown if e["type"] == f"response.content_part.{verb}"] == before


def test_the_end_of_arguments_has_them_also_where_its_number_is_right() -> None:
    events = sunny()
    end = next(e for e in events if e["type"] == "response.function_call_arguments.done")
    whole = dict(end)
    del end["arguments"]
    assert whole in repaired_events(*events)


def test_arguments_that_only_their_end_has_are_those_of_the_call() -> None:
    kept = [
        event
        for event in sunny()
        if not event["type"].endswith(("arguments.delta", "item.done", "completed"))
    ]
    got = Read([e for e in repaired_events(*kept) if "arguments" not in e["type"]])
    assert got.final is not None
    assert got.final["status"] == "completed"
    assert got.final["output"][1]["arguments"] == '{"city":"Paris"}'


def test_a_second_name_of_an_item_is_remembered() -> None:
    backend = HealthyStream()
    backend.message(["One."])
    backend.message(["Two."])
    events = backend.completed()
    first, second = events[2:5], events[8:10]
    first[2]["item_id"] = "other"
    late = {"type": "response.output_text.delta", "item_id": "other", "delta": " More."}
    got = Read(repaired_events(*events[:2], *first, *second, late))
    assert got.texts("message") == [["One. More."], [""]]


def test_a_failure_shows_the_reasoning_that_it_has_and_nothing_more() -> None:
    item = {"type": "reasoning", "id": "rs_0", "content": "Hm."}
    failed = {"type": "response.failed", "response": response("failed", [item])}
    shown = repaired_events(CREATED, failed)
    assert len(shown) == 2
    [got] = shown[1]["response"]["output"]
    assert got["summary"] == [{"type": "summary_text", "text": "Hm."}]


@pytest.mark.parametrize("kind", [["x"], {}, None, 5])
def test_an_invalid_type_raises_nothing(kind: Any) -> None:
    item = {"type": kind, "id": "x", "content": "Hi."}
    added = {"type": "response.output_item.added", "output_index": 0, "item": item}
    end = {"type": "response.completed", "response": response("completed", [item])}
    assert repaired_events(CREATED, added, end)[-1]["type"] == "response.completed"
