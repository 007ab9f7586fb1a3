"""What each event of the Responses API becomes, in order and out of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.core.errors import MalformedEvent, StreamTooLarge
from tailrace.core.items import InputRequest
from tailrace.ingest.base import Notebook, Outcome
from tailrace.ingest.openai_responses.reader import OpenAIResponses
from tests.ingest import streams
from tests.ingest.streams import kept_raw

Json = dict[str, Any]


def event(kind: str, **fields: Any) -> Json:
    return {"type": f"response.{kind}", **fields}


def text(piece: str, item_id: str | None = "msg_1", index: int | None = 0, **more: Any) -> Json:
    return event("output_text.delta", item_id=item_id, output_index=index, delta=piece, **more)


def arguments(piece: str, item_id: str | None = "fc_1", index: int | None = 0) -> Json:
    place = {"item_id": item_id, "output_index": index}
    return event("function_call_arguments.delta", **place, delta=piece)


def added(index: Any, item: Json) -> Json:
    return event("output_item.added", output_index=index, item=item)


def done(index: Any, item: Json) -> Json:
    return event("output_item.done", output_index=index, item=item)


def message(*texts: str, item_id: str = "msg_1", **more: Any) -> Json:
    content = [{"type": "output_text", "text": one, "annotations": []} for one in texts]
    return {"type": "message", "id": item_id, "role": "assistant", "content": content, **more}


def call(given: str | None = None, item_id: str = "fc_1", **more: Any) -> Json:
    item = {"type": "function_call", "id": item_id, "call_id": "call_1", "name": "weather", **more}
    return item if given is None else {**item, "arguments": given}


def completed(*output: Json, **response: Any) -> Json:
    return event("completed", response={"id": "resp_1", "output": list(output), **response})


def read(*events: Json, **options: Any) -> tuple[Notebook, Outcome]:
    lines = [json.dumps(one) for one in events]
    book, outcome = streams.ingested(lambda sink: OpenAIResponses(sink, **options), lines)
    kept = list(book._written)
    streams.check_readable(book)
    book._written = kept
    return book, outcome


def output(*events: Json, **options: Any) -> list[Json]:
    book, _ = read(*events, **options)
    found: list[Json] = streams.shown(book)["output"]
    return found


def texts(item: Json) -> list[str]:
    return [block.get("text", block.get("refusal")) for block in item["block_list"]]


# --- the document --------------------------------------------------------------------------------

DOCUMENT: list[Json] = json.loads((streams.FIXTURES / "openai-document.json").read_text())


@pytest.mark.parametrize("example", DOCUMENT)
def test_every_example_of_the_document_is_ingested(example: Json) -> None:
    is_event = example["type"].startswith(("response.", "error"))
    book, _ = read(example if is_event else done(0, example))
    assert is_event or [item["type"] for item in streams.shown(book)["output"]]


def test_the_examples_of_the_document_are_one_stream() -> None:
    events = [one for one in DOCUMENT if one["type"].startswith("response.")]
    events = [one for one in events if one["type"] != "response.incomplete"]
    events.sort(key=lambda one: one["type"] == "response.completed")
    items = [one for one in DOCUMENT if not one["type"].startswith(("response.", "error"))]
    events[-1:-1] = [done(place, item) for place, item in enumerate(items, 5)]
    book, outcome = read(*events)
    assert outcome.status == "completed"
    shown = streams.shown(book)
    assert shown["usage"]["reasoning_tokens"] == 150
    assert shown["usage"]["service_tier"] == "default"
    kinds = [item.get("kind", item["type"]) for item in shown["output"]]
    assert {"web_search", "file_search", "code_interpreter", "image_generation"} <= set(kinds)
    [image] = [one for one in shown["output"] if "generated-image" in json.dumps(one)][-1:]
    assert image["block_list"][0]["image_url"]["url"] == "https://example.com/generated-image.png"


# --- which item ----------------------------------------------------------------------------------


def test_a_delta_before_its_item_begins_it() -> None:
    [item] = output(text("Hel"), added(0, message(phase="final_answer")), text("lo"), completed())
    assert texts(item) == ["Hello"]
    assert item["phase"] == "final_answer"
    assert item["private"]["provider"] == {
        "api": "openai_responses",
        "response_id": "resp_1",
        "id": "msg_1",
    }


def test_arguments_before_their_call_wait_for_its_name() -> None:
    [item] = output(
        arguments('{"a"'), added(0, call("")), arguments(":1}"), done(0, call('{"a":1}'))
    )
    assert (item["name"], item["arguments"]) == ("weather", '{"a":1}')
    assert "status" not in item


def test_the_end_of_the_arguments_may_bring_the_name() -> None:
    whole = event("function_call_arguments.done", output_index=0, arguments="{}", name="weather")
    [item] = output(arguments("{", None), whole, completed())
    assert (item["name"], item["arguments"]) == ("weather", "{}")
    assert "status" not in item


def test_a_call_that_never_gets_a_name_is_never_made() -> None:
    whole = event("function_call_arguments.done", output_index=0, arguments="{}")
    [item] = output(arguments("{}"), whole, completed())
    assert (item["name"], item["status"]) == ("", "incomplete")
    assert output(added(0, {"type": "function_call", "id": "fc_1"})) == []


def test_ids_that_change_with_every_event_are_found_by_their_index() -> None:
    items = output(
        added(0, message(item_id="a")),
        text("one", "b", 0),
        added(1, call("", "c")),
        arguments("{", "d", 1),
        text(" two", "e", 0),
        done(0, message("one two", item_id="f")),
        arguments("}", "g", 1),
        done(1, call("{}", "h", status="completed")),
        completed(message("one two", item_id="i"), call("{}", "j")),
    )
    assert [item["type"] for item in items] == ["message", "tool_call"]
    assert texts(items[0]) == ["one two"]
    assert items[1]["arguments"] == "{}"


def test_one_index_for_all_items_is_found_by_their_ids() -> None:
    items = output(
        added(0, call("", "fc_1", call_id="a")),
        added(0, call("", "fc_2", call_id="b")),
        arguments('{"n":1}', "fc_1", 0),
        arguments('{"n":2}', "fc_2", 0),
        text("Done.", "msg_1", 0),
        completed(),
    )
    assert [item.get("arguments") for item in items] == ['{"n":1}', '{"n":2}', None]
    assert texts(items[2]) == ["Done."]


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_one_id_for_all_items_is_found_by_their_indexes(first: int, second: int) -> None:
    items = output(
        added(first, message(item_id="x")),
        added(second, message(item_id="x")),
        text("first", "x", first),
        text("second", "x", second),
        completed(),
    )
    assert [texts(item) for item in items] == [["first"], ["second"]]


def test_events_without_any_address_mean_the_latest_item_of_their_kind() -> None:
    items = output(
        added(None, {"type": "reasoning"}),
        event("reasoning_summary_text.delta", delta="Hm."),
        text("Hello", None, None),
        text(" there", None, None),
        completed(),
    )
    assert items[0]["summary"] == [{"type": "text", "text": "Hm."}]
    assert texts(items[1]) == ["Hello there"]


def test_an_item_that_begins_or_ends_twice_is_one_item() -> None:
    items = output(
        added(0, message()),
        added(0, message()),
        text("Hi"),
        done(0, message("Hi")),
        done(0, message("Hi")),
        added(0, message()),
        completed(message("Hi")),
        completed(message("Hi")),
    )
    assert [texts(item) for item in items] == [["Hi"]]


def test_items_without_ids_at_one_index_are_found_by_their_kind_and_call() -> None:
    first, second = call("", call_id="a"), call("", call_id="b")
    for item in (first, second):
        del item["id"]
    items = output(
        added(0, first), added(0, first), added(0, second), arguments("{}", None), completed()
    )
    assert [item["call_id"] for item in items] == ["a", "b"]
    assert [item["arguments"] for item in items] == ["", "{}"]


def test_a_delta_for_an_item_of_another_kind_or_after_its_end_is_kept_raw() -> None:
    late = text(" more")
    strange = event("refusal.delta", item_id="rs_1", output_index=1, delta="No")
    book, _ = read(
        done(0, message("Hi")), late, added(1, {"type": "reasoning", "id": "rs_1"}), strange
    )
    assert kept_raw(book) == [(late["type"], late), (strange["type"], strange)]


def test_an_unknown_id_at_a_used_index_is_another_item() -> None:
    items = output(done(0, message("Hi")), text("Again", "msg_2", 0), completed())
    assert [texts(item) for item in items] == [["Hi"], ["Again"]]


def test_what_only_the_final_response_has_is_added() -> None:
    items = output(completed(message("Hi"), call("{}"), {"type": "hologram", "id": "h_1"}))
    assert [item["type"] for item in items] == ["message", "tool_call", "raw"]


def test_final_items_in_other_places_are_matched_by_id_call_and_order() -> None:
    reasoning = {"type": "reasoning", "id": "other", "summary": []}
    items = output(
        done(3, message("one", item_id="a")),
        done(5, call("{}", "b")),
        done(7, {"type": "reasoning", "id": "c", "summary": []}),
        completed(reasoning, call("{}", "changed"), message("one", item_id="a")),
    )
    assert [item["type"] for item in items] == ["message", "tool_call", "reasoning"]


def test_open_calls_get_their_own_arguments_from_the_final_response() -> None:
    def named(n: int, given: str, item_id: str) -> Json:
        return call(given, item_id, call_id=f"call_{n}")

    items = output(
        added(3, named(1, "", "a")),
        added(5, named(2, "", "b")),
        completed(named(2, "[2]", "c"), named(1, "[1]", "d")),
    )
    assert [(item["call_id"], item["arguments"]) for item in items] == [
        ("call_1", "[1]"),
        ("call_2", "[2]"),
    ]


def test_a_call_whose_name_comes_after_the_end_is_not_begun_again() -> None:
    [item] = output(arguments("{}"), completed(), added(0, call("")), done(0, call("{}")))
    assert (item["name"], item["status"]) == ("", "incomplete")


def test_final_items_that_are_junk_are_passed_over() -> None:
    junk: Any = [None, 7, {"id": "no type"}, {"type": ["list"]}, {"type": ""}]
    assert output(event("completed", response={"output": junk})) == []


# --- messages ------------------------------------------------------------------------------------


def test_the_whole_text_brings_what_the_deltas_had_not() -> None:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "Hello there, you", "annotations": []}
    book, _ = read(
        text("Hello", content_index=0),
        event("output_text.done", **place, text="Hello there"),
        event("content_part.done", **place, part=part),
        done(0, message("Hello there, you all")),
        event("output_text.done", **place, text="Hello there"),
        event("content_part.done", **place, part=part),
    )
    [item] = streams.shown(book)["output"]
    assert texts(item) == ["Hello there, you all"]
    assert kept_raw(book) == []


def test_a_whole_text_that_contradicts_what_was_shown_is_kept_privately() -> None:
    last = message("Something else", status="completed")
    [item] = output(text("Hello"), done(0, last))
    assert texts(item) == ["Hello"]
    assert item["private"]["raw"] == last


@pytest.mark.parametrize("last", [None, 3, 4])
def test_deltas_that_each_have_an_index_are_not_written_again_with_the_whole(
    last: int | None,
) -> None:
    """vLLM counts its deltas in `content_index`."""
    pieces = ["He", "l", "l", "o"]
    place = {"item_id": "rs_1", "output_index": 0}
    part = {"type": "reasoning_text", "text": "Hello"}
    thoughts = [
        event("reasoning_text.delta", **place, content_index=at, delta=piece)
        for at, piece in enumerate(pieces)
    ]
    words = [text(piece, index=1, content_index=at) for at, piece in enumerate(pieces)]
    if last is not None:
        thoughts.append(event("reasoning_text.done", **place, content_index=last, text="Hello"))
        thoughts.append(event("content_part.done", **place, content_index=last, part=part))
        there = {"item_id": "msg_1", "output_index": 1, "content_index": last}
        words.append(event("output_text.done", **there, text="Hello"))
        words.append(event("content_part.done", **there, part=message("Hello")["content"][0]))
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [part]}
    reasoning, answer = output(*thoughts, done(0, thought), *words, done(1, message("Hello")))
    assert [one["text"] for one in reasoning["reasoning_text"]] == pieces
    assert reasoning["private"]["raw"] == thought
    assert texts(answer) == pieces
    assert answer["private"]["raw"] == message("Hello")


def test_two_parts_of_other_words_than_the_whole_are_no_cut_of_it() -> None:
    pieces = [text("ab", content_index=0), text("cd", content_index=1)]
    [answer] = output(*pieces, done(0, message("abxy")))
    assert texts(answer) == ["abxy", "cd"]


@pytest.mark.parametrize("end", [[], [completed()]])
def test_what_was_all_there_when_it_was_added_is_shown_without_an_end(end: list[Json]) -> None:
    thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "So."}],
        "content": [{"type": "reasoning_text", "text": "Hm."}],
    }
    reasoning, answer = output(added(0, thought), added(1, message("Hello")), *end)
    assert reasoning["summary"] == [{"type": "text", "text": "So."}]
    assert reasoning["reasoning_text"] == [{"type": "text", "text": "Hm."}]
    assert texts(answer) == ["Hello"]
    status = None if end else "incomplete"
    assert [item.get("status") for item in (reasoning, answer)] == [status, status]


def test_parts_whose_indexes_lie_are_matched_in_order() -> None:
    [item] = output(
        text("one", content_index=4), text("two", content_index=9), done(0, message("one", "two"))
    )
    assert texts(item) == ["one", "two"]


def test_refusals_stream_and_come_whole() -> None:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "refusal", "refusal": "No, never."}
    [item] = output(
        event("content_part.added", **place, part={"type": "refusal", "refusal": ""}),
        event("refusal.delta", **place, delta="No"),
        event("refusal.done", **place, refusal="No, nev"),
        event("content_part.done", **place, part=part),
        done(0, {**message(), "content": [part, {"type": "refusal"}]}),
    )
    assert item["block_list"] == [part, {"type": "refusal", "refusal": ""}]


def test_the_whole_of_another_kind_of_part_is_kept_raw() -> None:
    whole = event("refusal.done", item_id="msg_1", output_index=0, refusal="No")
    book, _ = read(text("Yes"), whole)
    assert texts(streams.shown(book)["output"][0]) == ["Yes"]
    assert kept_raw(book) == [("response.refusal.done", whole)]


@pytest.mark.parametrize("first", ["text", "refusal"])
def test_a_part_does_not_change_its_kind(first: str) -> None:
    place = {"item_id": "msg_1", "output_index": 0}
    refusal = event("refusal.delta", **place, delta="No")
    content = [{"type": "refusal", "refusal": "No"}]
    if first == "refusal":
        book, _ = read(refusal, text("Yes"), done(0, message("Yes")))
    else:
        book, _ = read(text("Yes"), refusal, done(0, {**message(), "content": content}))
    [item] = streams.shown(book)["output"]
    assert texts(item) == (["No"] if first == "refusal" else ["Yes"])
    assert item["private"]["raw"]["id"] == "msg_1"
    assert len(kept_raw(book)) == 1


def test_an_unknown_part_of_a_message_is_shown_as_data() -> None:
    part = {"type": "output_audio", "data": "UklGRg=="}
    [item] = output(done(0, {**message(), "content": [part]}))
    assert item["block_list"] == [{"type": "data", "name": "output_audio", "data": part}]
    book, _ = read(event("content_part.added", output_index=0, part=part))
    assert len(kept_raw(book)) == 1


def test_fields_that_we_have_no_place_for_are_kept_privately() -> None:
    items = output(
        done(0, message("Hi", mood="good")),
        done(1, message("Hi", item_id="msg_2", mood=None)),
        done(2, {"type": "reasoning", "id": "rs_1", "summary": [], "format": "v2"}),
        done(3, call("{}", namespace="eu")),
        done(4, {**message("Hi", item_id="msg_3"), "role": "tool"}),
    )
    has_raw = [item["private"].get("raw") is not None for item in items]
    assert has_raw == [True, False, True, True, True]


def test_probabilities_are_kept_privately() -> None:
    one, two = {"token": "Hi", "logprob": -0.1}, {"token": "!", "logprob": -0.2}
    deltas = [text("Hi", logprobs=[one]), text("!", logprobs=[two])]
    [cut] = output(*deltas)
    assert cut["private"]["raw"]["content"][0]["logprobs"] == [one, two]
    [item] = output(*deltas, done(0, message("Hi!", status="completed")))
    assert item["private"]["raw"]["content"][0]["logprobs"] == [one, two]
    [item] = output(*deltas, done(0, {**message("Hi!"), "content": [{"type": "refusal"}] * 2}))
    assert item["private"]["raw"]["content"][1] == {"type": "refusal"}
    whole = message("Hi!")
    whole["content"][0]["logprobs"] = [one, two]
    [item] = output(text("Hi!", logprobs="junk"), done(0, whole))
    assert item["private"]["raw"] == whole
    assert texts(item) == ["Hi!"]


@pytest.mark.parametrize("content", ["Hello", [{"type": "text", "text": "Hello"}]])
def test_a_message_in_other_backends_words_is_a_message(content: Any) -> None:
    part = {"type": "text", "text": "Hello", "annotations": []}
    place = {"item_id": "msg_1", "output_index": 0}
    [item] = output(
        event("content_part.added", **place, part={"type": "text", "text": ""}),
        text("Hel"),
        event("content_part.done", **place, part=part),
        done(0, {**message(), "content": content}),
    )
    assert texts(item) == ["Hello"]
    cited = {"type": "url_citation", "url": "https://a.b", "start_index": 0, "end_index": 2}
    [item] = output(
        text("Hi"),
        event("content_part.done", **place, part={**part, "text": "Hi", "annotations": [cited]}),
    )
    assert [one["url"] for one in item["block_list"][0]["annotations"]] == ["https://a.b"]
    refusal = {"type": "refusal", "refusal": "No", "annotations": []}
    [item] = output(event("content_part.done", **place, part=refusal))
    assert texts(item) == ["No"]


# --- citations -----------------------------------------------------------------------------------


def cite(annotation: Any, **place: Any) -> Json:
    return event("output_text.annotation.added", annotation=annotation, **place)


URL = {
    "type": "url_citation",
    "url": "https://a.example",
    "title": "A",
    "start_index": 0,
    "end_index": 5,
}


def test_a_citation_that_comes_before_its_text_waits_for_it() -> None:
    [item] = output(text("He"), cite(URL, item_id="msg_1"), text("llo"), done(0, message("Hello")))
    assert item["block_list"][0]["annotations"] == [URL]


def test_citations_of_the_last_word_come_once() -> None:
    other = {**URL, "url": "https://b.example"}
    last = message("Hello")
    last["content"][0]["annotations"] = [other, URL, URL]
    [item] = output(text("Hello"), cite(URL), done(0, last))
    urls = [one["url"] for one in item["block_list"][0]["annotations"]]
    assert urls == [URL["url"], other["url"], URL["url"]]


def test_a_citation_that_the_last_event_changes_is_still_a_citation() -> None:
    last = message("Hello")
    other, another = {**URL, "title": "Other"}, {**URL, "title": "Another"}
    last["content"][0]["annotations"] = [other]
    [item] = output(text("Hello"), cite(URL), done(0, last))
    assert item["block_list"][0]["annotations"] == [URL]
    last["content"][0]["annotations"] = [other, another]
    [item] = output(text("Hello"), cite(URL), done(0, last))
    assert item["block_list"][0]["annotations"] == [URL, other]


def test_citations_without_a_place_in_the_text_are_kept() -> None:
    beyond = {**URL, "end_index": 99}
    file = {"type": "file_citation", "file_id": "f", "start_index": 7, "end_index": 99}
    nowhere = {"type": "url_citation", "url": "https://b.example"}
    no_file = {"type": "file_citation", "filename": "x"}
    half = {"type": "file_citation", "file_id": "h", "start_index": 1}
    cites = [cite(one) for one in (beyond, file, nowhere, no_file, half)]
    [item] = output(text("Hello"), *cites, done(0, message("Hello")))
    assert item["block_list"][0]["annotations"] == [
        {"type": "raw", "raw": no_file},
        {"type": "file_citation", "file_id": "h"},
        {"type": "raw", "raw": beyond},
        {"type": "file_citation", "file_id": "f"},
        {**nowhere, "start_index": 0, "end_index": 5},
    ]
    assert item["private"]["raw"]["type"] == "message"


def test_a_citation_of_the_whole_answer_covers_its_text() -> None:
    page = {**URL, "start_index": 0, "end_index": 0}
    last = message("Hello")
    last["content"][0]["annotations"] = [page]
    [item] = output(text("Hello"), cite(page), done(0, last))
    assert item["block_list"][0]["annotations"] == [{**page, "end_index": 5}]
    assert item["private"]["raw"] == last
    [item] = output(text(""), cite(page), done(0, message("")))
    assert item["block_list"][0]["annotations"] == [{"type": "raw", "raw": page}]


def test_a_citation_of_nothing_is_kept_raw() -> None:
    refusal = event("refusal.delta", output_index=0, delta="No")
    book, _ = read(cite(URL), text("Hi"), cite(None), cite(URL, output_index=7))
    assert len(kept_raw(book)) == 2
    book, _ = read(refusal, cite(URL, output_index=0))
    assert len(kept_raw(book)) == 1


def test_more_citations_than_a_text_can_carry_are_kept_raw() -> None:
    long = {"type": "url_citation", "url": "x" * 300_000}
    last = message("Hello")
    last["content"][0]["annotations"] = [long, long, long]
    book, _ = read(text("Hello"), cite(long), cite(long), done(0, last))
    [item] = streams.shown(book)["output"]
    assert len(item["block_list"][0]["annotations"]) == 1
    assert item["private"]["raw"] == last
    assert len(kept_raw(book)) == 1


# --- reasoning -----------------------------------------------------------------------------------


def test_reasoning_comes_in_every_spelling() -> None:
    place = {"item_id": "rs_1", "output_index": 0}
    [item] = output(
        event("reasoning_part.added", **place, part={"type": "reasoning_text", "text": ""}),
        event("reasoning.delta", **place, delta={"text": "Hm"}),
        event("reasoning_text.delta", **place, delta=", well"),
        event("reasoning.done", **place, text="Hm, well."),
        event("reasoning_part.done", **place, part={"type": "reasoning_text", "text": "Hm, well."}),
        event("reasoning_summary.delta", **place, delta="So"),
        event("reasoning_summary.done", **place, text="So."),
        event("reasoning_summary_text.done", **place, text="So."),
        done(
            0,
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "So."}],
                "content": [{"type": "reasoning_text", "text": "Hm, well."}],
                "encrypted_content": "sealed",
            },
        ),
        event("reasoning_summary_text.done", **place, text="So."),
    )
    assert item["summary"] == [{"type": "text", "text": "So."}]
    assert item["reasoning_text"] == [{"type": "text", "text": "Hm, well."}]
    assert item["private"] == {
        "provider": {"api": "openai_responses", "id": "rs_1"},
        "encrypted_content": "sealed",
    }


def test_parts_of_a_summary_that_share_an_index_stay_apart() -> None:
    place = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
    parts = ["First.", "Then."]
    events = []
    for part in parts:
        events += [
            event("reasoning_summary_part.added", **place),
            event("reasoning_summary_text.delta", **place, delta=part),
            event("reasoning_summary_part.done", **place, part={"text": part}),
        ]
    summary = [{"type": "summary_text", "text": part} for part in parts]
    [item] = output(*events, done(0, {"type": "reasoning", "id": "rs_1", "summary": summary}))
    assert [part["text"] for part in item["summary"]] == parts


def test_pieces_of_a_summary_that_has_ended_are_kept_raw() -> None:
    place = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
    late = event("reasoning_summary_text.delta", **place, delta=" More.")
    bad = event("reasoning_summary_text.done", **place, text=7)
    other = event("reasoning_summary_part.added", item_id="msg_1", output_index=1)
    book, _ = read(
        event("reasoning_summary_text.done", **place, text="Hm."),
        late,
        bad,
        text("", index=1),
        other,
    )
    assert [raw for _, raw in kept_raw(book)] == [late, bad, other]


def test_a_summary_without_a_text_is_kept_privately() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text"}]}
    [shown] = output(done(0, item))
    assert shown["summary"] == []
    assert shown["private"]["raw"] == item


# --- calls ---------------------------------------------------------------------------------------


def test_arguments_that_happen_to_be_json_make_no_call() -> None:
    for events in (
        [added(0, call("")), arguments('{"a":1}')],
        [added(0, call("")), arguments('{"a":1}'), done(0, call())],
        [added(0, call("")), arguments('{"a":1}'), done(0, call(status="in_progress"))],
        [added(0, call("")), done(0, call('{"a":1}', status="in_progress"))],
        [added(0, call("")), arguments('{"a":1}'), event("failed", response={})],
        [added(0, call("")), arguments('{"a":1}'), event("incomplete", response={})],
        [added(0, call("")), done(0, call('{"a":1}', status="incomplete"))],
        [added(0, call("")), arguments("{"), completed()],
        [added(0, call("")), arguments("{"), done(0, call(status="completed"))],
        [event("function_call_arguments.done", item_id="fc_1", arguments="{}", name="weather")],
    ):
        [item] = output(*events)
        assert item["status"] == "incomplete"


def test_arguments_that_were_marked_complete_make_a_call() -> None:
    whole = event("function_call_arguments.done", item_id="fc_1", output_index=0, arguments="{}")
    for events in (
        [added(0, call("")), whole, done(0, call(status="in_progress"))],
        [added(0, call("")), arguments("{}"), done(0, call(status="completed"))],
        [added(0, call("")), done(0, call("{}"))],
        [added(0, call("")), arguments("{}"), completed()],
        [added(0, call("")), completed(call("{}", status="in_progress"))],
        [added(0, call("")), arguments("{}"), whole, whole, completed()],
        [done(0, call("{}")), whole],
    ):
        [item] = output(*events)
        assert "status" not in item
        assert item["arguments"] == "{}"


@pytest.mark.parametrize("part", ['{"a":', "[1,", "-", '{"a":"'])
def test_arguments_that_break_off_make_no_call_whatever_says_that_they_are_whole(
    part: str,
) -> None:
    whole = event("function_call_arguments.done", item_id="fc_1", output_index=0, arguments=part)
    for events in (
        [done(0, call(part, status="completed")), completed()],
        [added(0, call("")), arguments(part[:1]), done(0, call(part)), completed()],
        [added(0, call("")), whole, completed()],
        [added(0, call("")), completed(call(part, status="in_progress"))],
    ):
        book, outcome = read(*events)
        [item] = streams.items(book)
        assert (item["status"], item["arguments"]) == ("incomplete", part)
        assert outcome == Outcome(status="incomplete", reason="truncated_tool_call")


def test_a_call_that_the_provider_made_is_its_own_affair() -> None:
    item = {"type": "mcp_call", "id": "mcp_1", "name": "look", "arguments": "{", "output": "x"}
    book, outcome = read(done(0, {**item, "status": "completed"}), completed())
    assert [one["type"] for one in streams.items(book)] == ["tool_call", "tool_result"]
    assert outcome == Outcome(status="completed")


def test_arguments_that_are_no_json_are_the_models() -> None:
    [item] = output(done(0, call("{a: 1}")), completed())
    assert ("status" not in item, item["arguments"]) == (True, "{a: 1}")


def test_a_call_without_arguments_is_whole_when_its_item_says_so() -> None:
    [item] = output(added(0, call("")), done(0, call("", status="completed")))
    assert item["arguments"] == ""
    assert "status" not in item


def test_arguments_may_be_the_object_itself() -> None:
    whole = event("function_call_arguments.done", output_index=0, arguments={"a": 1})
    for events in ([whole, completed()], [done(0, call() | {"arguments": {"a": 1}})]):
        [item] = output(added(0, call("")), *events)
        assert item["arguments"] == '{"a":1}'
        assert "status" not in item


def test_pieces_after_the_whole_arguments_are_kept_raw() -> None:
    whole = event("function_call_arguments.done", item_id="fc_1", output_index=0, arguments="{}")
    book, _ = read(added(0, call("")), whole, arguments("}"), whole | {"arguments": None})
    assert len(kept_raw(book)) == 2


@pytest.mark.parametrize("place", [0, 1, None])
def test_a_call_that_ends_without_its_id_is_found_by_its_place_or_call(place: int | None) -> None:
    last = {**call("{}"), "id": None, "item_id": "fc_1", "output_index": place}
    again = {**call("{}"), "id": "fc_2"}
    streamed = [added(0, call("")), arguments("{}"), done(place, last)]
    [item] = output(*streamed, completed(message("Hi"), again), done(place, last))[:1]
    assert item["arguments"] == "{}"
    assert item["private"] == {"provider": {"api": "openai_responses", "id": "fc_1"}}
    items = output(*streamed, completed(message("Hi"), again))
    assert [one["type"] for one in items] == ["tool_call", "message"]


def test_calls_of_one_call_id_are_found_by_their_places() -> None:
    two = [added(at, call("", item_id=f"fc_{at}")) for at in range(2)]
    ends = [done(at, {**call(f"[{at}]"), "id": None}) for at in range(2)]
    assert [item["arguments"] for item in output(*two, *ends)] == ["[0]", "[1]"]


def test_a_call_that_ends_as_something_else_is_never_made() -> None:
    """So Perplexity tells of a tool that it runs itself. Only the place tells what that was."""
    found = {"type": "search_results", "results": [1]}
    one, other = output(added(0, call("{}")), done(0, found), completed(found))
    assert (one["type"], one["status"], one["arguments"]) == ("tool_call", "incomplete", "{}")
    assert other["raw"] == found
    [made, _] = output(added(0, call("{}")), done(0, {**found, "id": "x"}), completed())
    assert "status" not in made


def test_what_is_known_of_an_incomplete_call_is_shown() -> None:
    events = [added(0, call("")), arguments('{"a'), done(0, call('{"a":', status="incomplete"))]
    [item] = output(*events)
    assert item["arguments"] == '{"a":'


def test_the_same_json_in_other_spaces_is_the_same_call() -> None:
    [item] = output(added(0, call("")), arguments('{"a":1}'), done(0, call('{"a": 1}')))
    assert item["arguments"] == '{"a":1}'
    assert "status" not in item


@pytest.mark.parametrize("last", [call('{"a":2}'), call('{"a":1}', name="other")])
def test_a_call_that_ends_as_another_one_replaces_the_streamed_one(last: Json) -> None:
    first, second = output(added(0, call("")), arguments('{"a":1}'), done(0, last))
    assert first["status"] == "incomplete"
    assert "status" not in second
    assert (second["name"], second["arguments"]) == (last["name"], last["arguments"])
    assert second["call_id"] != first["call_id"] == "call_1"
    assert second["private"]["provider"]["call_id"] == "call_1"


def test_a_call_id_that_was_used_before_is_kept_beside_ours() -> None:
    first, second = output(done(0, call("{}")), done(1, call("{}", "fc_2")))
    assert first["private"]["provider"] == {"api": "openai_responses", "id": "fc_1"}
    assert second["private"]["provider"]["call_id"] == "call_1" != second["call_id"]


def test_a_call_without_any_id_gets_one_of_ours() -> None:
    [item] = output(done(0, {"type": "function_call", "name": "weather", "arguments": "{}"}))
    assert item["call_id"]
    assert item["private"] == {"provider": {"api": "openai_responses"}}


def test_who_carries_out_a_call_is_asked_for_its_name() -> None:
    custom = {"type": "custom_tool_call", "id": "c", "name": "x_search", "input": "from:me"}
    items = output(
        done(0, call("{}")),
        done(1, {**custom, "call_id": "c"}),
        executor_of=lambda name: "provider" if name == "x_search" else "client",
    )
    assert [item.get("executor") for item in items] == ["client", "provider", None]
    assert items[1]["kind"] == "custom"
    assert items[2]["block_list"] == []


# --- tools that the provider runs ----------------------------------------------------------------


def test_a_search_shows_its_progress_query_and_sources() -> None:
    sources = [{"type": "url", "url": "https://a.example"}]
    item = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q", "sources": sources},
        "results": [1],
    }
    place = {"item_id": "ws_1", "output_index": 0}
    searched, found = output(
        event("web_search_call.searching", **place),
        done(0, item),
        event("web_search_call.completed", **place),
    )
    assert searched["progress"] == {"message": "searching"}
    assert json.loads(searched["arguments"]) == {"type": "search", "query": "q"}
    assert searched["executor"] == "provider"
    assert searched["private"]["raw"] == item
    assert [block["data"] for block in found["block_list"]] == [sources, [1]]


@pytest.mark.parametrize(
    ("given", "shown"), [('{"query":"q"}', '{"query":"q"}'), ("q", '{"arguments":"q"}'), (7, "{}")]
)
def test_the_way_in_which_xai_searches(given: Any, shown: str) -> None:
    item = {"type": "web_search_call", "id": "ws_1", "arguments": given, "name": "browse"}
    searched, found = output(added(0, {**item, "arguments": ""}), done(0, item))
    assert (searched["name"], searched["arguments"]) == ("browse", shown)
    assert found["block_list"] == []


def test_progress_of_what_has_no_name_is_kept_raw() -> None:
    long = event("web_search_call." + "x" * 2000, output_index=0)
    book, _ = read(event("mcp_call.in_progress", output_index=0), event("hologram_call.done"), long)
    assert len(kept_raw(book)) == 3


def test_outputs_of_code_are_blocks() -> None:
    outputs = [
        {"type": "logs", "logs": "hi"},
        {"type": "image", "url": "https://a.example/plot.png"},
        {"type": "table"},
    ]
    item = {"type": "code_interpreter_call", "id": "ci_1", "code": "x", "outputs": outputs}
    place = {"item_id": "ci_1", "output_index": 0}
    ran, result = output(
        added(0, {**item, "code": "", "outputs": None}),
        event("code_interpreter_call_code.delta", **place, delta="x"),
        event("code_interpreter_call.code.done", **place, code="x"),
        done(0, item),
    )
    assert (ran["kind"], ran["arguments"]) == ("code_interpreter", "x")
    assert [block["type"] for block in result["block_list"]] == ["text", "image", "data"]


@pytest.mark.parametrize(
    ("item", "url"),
    [
        ({"result": "iVBORw0K"}, "data:image/png;base64,iVBORw0K"),
        ({"result": "/9j/4AAQ"}, "data:image/jpeg;base64,/9j/4AAQ"),
        ({"result": "AAAA"}, "data:image/png;base64,AAAA"),
        ({"result": "AAAA", "output_format": "jpg"}, "data:image/jpeg;base64,AAAA"),
        ({"result": "https://a.example/x.png"}, "https://a.example/x.png"),
    ],
)
def test_images_come_as_base64_or_urls(item: Json, url: str) -> None:
    given = {"type": "image_generation_call", "id": "ig_1", "prompt": "A cat.", **item}
    drawn, result = output(done(0, given))
    assert json.loads(drawn["arguments"]) == {"prompt": "A cat."}
    assert [block["image_url"]["url"] for block in result["block_list"]] == [url]


def test_an_image_sharpens_until_it_is_cut() -> None:
    place = {"item_id": "ig_1", "output_index": 0}
    partial = event("image_generation_call.partial_image", **place, partial_image_b64="AAAA")
    for rest in ([], [done(0, {"type": "image_generation_call", "status": "incomplete"})]):
        drawn, result = output(partial, partial, *rest)
        assert "status" not in drawn
        assert result["status"] == "failed"
        assert result["block_list"][0]["image_url"]["url"].endswith("AAAA")


def test_an_image_that_failed_after_a_sketch_keeps_the_sketch() -> None:
    place = {"item_id": "ig_1", "output_index": 0}
    partial = event("image_generation_call.partial_image", **place, partial_image_b64="AAAA")
    item = {"type": "image_generation_call", "id": "ig_1", "status": "failed", "result": None}
    _, result = output(partial, done(0, item), partial | {"partial_image_b64": 7})
    assert result["status"] == "failed"
    assert result["error"]["message"] == "The provider's tool failed."
    assert len(result["block_list"]) == 1
    assert result["private"]["raw"] == item


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        ("No such tool.", "provider_error", "No such tool."),
        ({"type": "http_error", "code": 500, "message": "Down."}, "http_error", "Down."),
        (
            {"type": "mcp_tool_execution_error", "content": [{"text": "Bad"}, {"text": "sku"}]},
            "mcp_tool_execution_error",
            "Bad\nsku",
        ),
    ],
)
def test_a_failed_tool_of_a_server_says_why(error: Any, code: str, words: str) -> None:
    item = {"type": "mcp_call", "id": "m", "name": "buy", "arguments": "{}", "error": error}
    made, result = output(done(0, {**item, "server_label": "shop"}))
    assert made["server_label"] == "shop"
    assert "status" not in made
    assert (result["status"], result["error"]) == ("failed", {"code": code, "message": words})


def test_a_server_may_return_more_than_text() -> None:
    item = {"type": "mcp_call", "id": "m", "name": "buy", "arguments": "{}", "output": {"n": 1}}
    listed = {"type": "mcp_list_tools", "id": "l", "server_label": "shop", "tools": []}
    items = output(done(0, item), done(1, listed))
    assert items[1]["block_list"] == [{"type": "data", "name": "output", "data": {"n": 1}}]
    assert items[3]["block_list"] == []


def test_an_approval_is_a_call_that_waits_for_a_person() -> None:
    item = {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "name": "buy",
        "arguments": "{}",
        "server_label": "shop",
    }
    book, outcome = read(added(0, item), done(0, item), done(0, item), completed(item))
    [asked] = streams.shown(book)["output"]
    assert (asked["kind"], asked["private"]["raw"]) == ("mcp_approval_request", item)
    message = "May shop run buy?"
    wanted = InputRequest(id="mcpr_1", kind="approval", call_id="mcpr_1", message=message)
    assert outcome.requests == [wanted]


def test_tools_that_only_the_response_says_to_be_complete_are_complete() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "action": {"query": "q"}}
    code = {"type": "code_interpreter_call", "id": "ci_1", "container_id": "c", "code": ""}
    asked = {"type": "mcp_approval_request", "id": "a_1", "name": "buy", "arguments": "{}"}
    given = event("code_interpreter_call_code.delta", item_id="ci_1", output_index=1, delta="x")
    book, outcome = read(
        added(0, search), added(1, code), given, added(2, asked), added(3, code), completed()
    )
    items = streams.shown(book)["output"]
    raws = [item["private"]["raw"] for item in items if item["type"] == "tool_call"][:2]
    ended: Json = {"status": "completed"}
    assert raws == [search | ended, code | ended | {"code": "x"}]
    assert [item.get("status") for item in items][2:] == [None, "incomplete", None, None]
    assert [request.id for request in outcome.requests] == ["a_1"]
    [item] = output(added(0, call('{"a":')), completed())
    assert item["status"] == "incomplete"


def test_items_that_only_the_provider_understands_are_kept_raw() -> None:
    item = {"type": "hologram_call", "id": "cu_1", "call_id": "c", "action": {"type": "click"}}
    sealed = {"type": "compaction", "id": "cmp_1", "encrypted_content": "secret"}
    clicked, compacted = output(added(0, {**item, "action": None}), done(0, item), done(1, sealed))
    assert clicked["raw"] == item
    assert clicked["source"] == "openai_responses"
    assert compacted["raw"] == {"type": "compaction", "id": "cmp_1"}
    assert compacted["private"]["raw"] == sealed
    [whole] = output(added(0, item), completed())
    assert whole["raw"] == item
    assert "status" not in whole
    [cut] = output(added(0, item))
    assert cut["status"] == "incomplete"


@pytest.mark.parametrize(
    ("item", "kind", "arguments"),
    [
        ({"type": "shell_call", "action": {"commands": ["ls"]}}, "shell", {"commands": ["ls"]}),
        (
            {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"]}},
            "local_shell",
            {"type": "exec", "command": ["ls"]},
        ),
        (
            {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}},
            "apply_patch",
            {"type": "delete_file", "path": "a"},
        ),
        ({"type": "computer_call", "action": {"type": "click"}}, "computer", {"type": "click"}),
        (
            {"type": "computer_call", "actions": [{"type": "wait"}]},
            "computer",
            {"actions": [{"type": "wait"}]},
        ),
        ({"type": "computer_call", "action": None}, "computer", {}),
    ],
)
def test_a_shell_a_patch_and_a_computer_are_calls_for_us_to_carry_out(
    item: Json, kind: str, arguments: Any
) -> None:
    whole = {**item, "id": "x_1", "call_id": "c", "status": "completed"}
    begun = {"type": item["type"], "id": "x_1", "call_id": "c", "status": "in_progress"}
    for stream in ((added(0, begun), done(0, whole)), (added(0, begun), completed(whole))):
        [call] = output(*stream)
        assert (call["kind"], call["name"], call["call_id"]) == (kind, kind, "c")
        assert call.get("executor", "server") == "server"
        assert json.loads(call["arguments"]) == arguments
        assert call["private"]["raw"] == whole
    # Nobody carries out what was begun and never told to its end.
    for last in ([], [completed()]):
        [call] = output(added(0, begun), *last)
        assert call["status"] == "incomplete"


def test_what_runs_in_the_providers_own_container_is_not_ours_to_run() -> None:
    place = {"type": "container_reference", "container_id": "cntr_1"}
    shell = {"type": "shell_call", "id": "sh_1", "call_id": "c", "environment": place}
    [kept] = output(added(0, shell), done(0, shell))
    assert (kept["type"], kept["raw"]) == ("raw", shell)


# --- the response --------------------------------------------------------------------------------


def test_waiting_in_a_queue_is_shown() -> None:
    queued = event("queued", response={"id": "resp_1", "status": "queued"})
    book, _ = read(queued)
    assert streams.shown(book)["progress"] == {"message": "queued"}
    book, _ = read(queued, event("in_progress", response={}), event("in_progress", response={}))
    assert streams.shown(book)["progress"] == {"message": "in_progress"}


def test_usage_is_counted_once_with_the_ids_of_the_response() -> None:
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "output_tokens": 5.0,
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    last = completed(model="gpt-5", usage=usage, service_tier="flex")
    book, outcome = read(event("created", response={"id": "resp_1"}), last, last)
    shown = streams.shown(book)
    assert outcome == Outcome(status="completed")
    assert shown["usage"] == {
        "calls": 1,
        "input_tokens": 10,
        "output_tokens": 5,
        "cached_input_tokens": 4,
        "cache_write_tokens": 2,
        "reasoning_tokens": 3,
        "model": "gpt-5",
        "service_tier": "flex",
    }
    provider = {"api": "openai_responses", "response_id": "resp_1", "model": "gpt-5"}
    assert shown["private"] == {"provider": provider}


@pytest.mark.parametrize(
    ("usage", "more"),
    [
        ({"input_tokens": 1, "cost_in_usd_ticks": 7}, {}),
        ({"input_tokens_details": {"audio_tokens": 7}}, {}),
        ({"input_tokens": True, "output_tokens": -1}, {"copilot_usage": {"total": 7}}),
    ],
)
def test_what_else_was_counted_is_kept_privately(usage: Json, more: Json) -> None:
    book, _ = read(completed(usage=usage) | more)
    assert streams.shown(book)["private"]["raw"] == usage | more


def test_what_a_response_says_beside_its_request_is_kept_privately() -> None:
    said: Json = {
        "tool_usage": {"web_search": {"num_requests": 3}},
        "moderation": {"output": {"flagged": True}},
        "new": 1,
    }
    usage, echo = {"input_tokens": 1}, {"temperature": 1.0, "tools": [{"type": "web_search"}]}
    for more, raw in ((said, usage | said), (dict.fromkeys(said), None)):
        book, _ = read(completed(usage=usage, **echo, **more))
        assert streams.shown(book)["private"].get("raw") == raw


@pytest.mark.parametrize("usage", [{"cost": 0.5}, {"cost_in_usd_ticks": 5_000_000_000}])
def test_what_a_response_cost_is_shown(usage: Json) -> None:
    book, _ = read(completed(usage=usage))
    assert streams.shown(book)["usage"]["cost"] == 0.5


def test_a_failed_response_without_usage_counts_nothing() -> None:
    book, _ = read(event("failed", response={"error": {"code": "x", "message": "y"}}))
    assert "usage" not in streams.shown(book)
    book, _ = read(event("failed", response={"usage": {"input_tokens": 3}}))
    assert streams.shown(book)["usage"]["input_tokens"] == 3


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ({"reason": "max_tokens"}, "max_output_tokens"),
        ({"reason": "content_filter"}, "content_filter"),
        (None, "unknown"),
    ],
)
def test_an_incomplete_response_says_why(details: Any, reason: str) -> None:
    last = message("Hel", status="incomplete")
    response = {"incomplete_details": details, "output": [last]}
    book, outcome = read(text("He"), event("incomplete", response=response))
    assert (outcome.status, outcome.reason) == ("incomplete", reason)
    [item] = streams.shown(book)["output"]
    assert (item["status"], texts(item)) == ("incomplete", ["Hel"])


def test_an_item_in_progress_at_an_incomplete_end_is_incomplete() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "searching"}
    [item] = output(added(0, search), event("incomplete", response={"output": [search]}))
    assert item["status"] == "incomplete"


@pytest.mark.parametrize(
    ("kind", "status", "wanted"),
    [
        ("completed", "incomplete", "incomplete"),
        ("completed", "failed", "failed"),
        ("done", None, "completed"),
        ("cancelled", "cancelled", "incomplete"),
        ("incomplete", ["junk"], "incomplete"),
    ],
)
def test_the_status_of_the_response_is_its_last_word(kind: str, status: Any, wanted: str) -> None:
    _, outcome = read(event(kind, response={"status": status}))
    assert outcome.status == wanted
    assert outcome.status != "failed" or outcome.error is not None
    assert kind != "cancelled" or outcome.reason == "cancelled"


def test_a_stream_that_just_ends_is_cut() -> None:
    book, outcome = read(event("created", response={"id": "resp_1"}), text("Hel"))
    assert outcome.status == "cut"
    [item] = streams.shown(book)["output"]
    assert (item["status"], texts(item)) == ("incomplete", ["Hel"])


def test_responses_that_follow_each_other_do_not_mix() -> None:
    first = event("created", response={"id": "resp_1"})
    second = event("created", response={"id": "resp_2"})
    book, outcome = read(
        first, text("one"), first, text(" more"), second, text("two"), completed(), second
    )
    items = streams.shown(book)["output"]
    assert [texts(item) for item in items] == [["one more"], ["two"]]
    assert items[0]["status"] == "incomplete"
    assert outcome.status == "cut"


# --- errors --------------------------------------------------------------------------------------


def test_an_error_keeps_its_number_code_and_param() -> None:
    error = {
        "type": "error",
        "code": "rate_limit_exceeded",
        "message": "Slow down.",
        "param": "model",
        "sequence_number": 5,
    }
    book, outcome = read(error)
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.param) == ("rate_limit_exceeded", "model")
    assert kept_raw(book) == [("error", error)]


@pytest.mark.parametrize(
    "error",
    [
        {"type": "error", "error": {"type": "overloaded", "message": "Busy."}},
        {"error": {"code": "overloaded", "message": "Busy."}},
        {"type": "response.error", "code": "overloaded", "message": "Busy."},
    ],
)
def test_errors_come_in_several_shapes(error: Json) -> None:
    _, outcome = read(text("Hel"), error)
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.message) == ("overloaded", "Busy.")


def test_the_failed_response_and_the_error_before_it_are_one() -> None:
    error = {"type": "error", "code": "x", "message": "No.", "param": "model"}
    for response in ({"error": {"code": "x", "message": "No."}}, {}):
        _, outcome = read(error, event("failed", response=response))
        assert outcome.error is not None
        assert outcome.error.param == "model"
    _, outcome = read(error, event("failed", response={"error": {"code": "y", "message": "Z"}}))
    assert outcome.error is not None
    assert outcome.error.code == "y"


def test_a_response_that_completes_after_an_error_is_complete() -> None:
    error = {"type": "error", "error": "Something is slow."}
    _, outcome = read(error, text("Hi"), completed())
    assert outcome.status == "completed"
    _, outcome = read(error, event("created", response={}), text("Hi"))
    assert outcome.status == "cut"


# --- what is none of these -----------------------------------------------------------------------


def test_an_answer_that_did_not_stream_is_read_as_well() -> None:
    whole = {"object": "response", "id": "resp_1", "output": [message("Hi")]}
    book, outcome = read({**whole, "status": "completed", "usage": {"input_tokens": 3}})
    assert outcome.status == "completed"
    assert streams.shown(book)["usage"]["input_tokens"] == 3
    assert texts(streams.shown(book)["output"][0]) == ["Hi"]
    _, outcome = read({**whole, "status": "incomplete"})
    assert outcome.status == "incomplete"
    _, outcome = read({**whole, "status": "queued", "output": []})
    assert outcome.status == "cut"


@pytest.mark.parametrize("stop", ["[DONE]", b"[DONE]"], ids=["text", "bytes"])
def test_the_end_of_a_chat_stream_says_nothing(stop: str | bytes) -> None:
    book = Notebook()
    ingest = OpenAIResponses(book)
    ingest.feed(json.dumps(completed()))
    ingest.feed(stop)
    assert ingest.end().status == "completed"
    assert kept_raw(book) == []


def test_signs_of_life_leave_no_trace() -> None:
    book, _ = read({"type": "keepalive", "sequence_number": 3})
    assert kept_raw(book) == []


@pytest.mark.parametrize(
    "strange",
    [
        {"type": "response.hologram.delta", "delta": "x"},
        {"type": 7},
        {},
        {"type": "response.output_text.delta", "delta": None, "output_index": 0},
        {"type": "response.output_item.added", "item": []},
        {"type": "response.output_item.done", "item": {"type": 7}},
        {"type": "response.output_text.done", "text": 7},
        {"type": "response.content_part.done", "part": "x"},
        {"type": "response.content_part.added", "part": {"type": ["x"]}},
    ],
)
def test_events_that_have_no_name_or_make_no_sense_are_kept_raw(strange: Json) -> None:
    book, _ = read(strange)
    [(_, raw)] = kept_raw(book)
    assert raw == strange


def test_what_is_no_json_is_refused_and_changes_nothing() -> None:
    book = Notebook()
    ingest = OpenAIResponses(book)
    ingest.feed(json.dumps(text("Hel")))
    for junk in ("", "{", "[]", "7", b"\xff", '{"type":"response.output_text.delta","delta":"x"'):
        with pytest.raises(MalformedEvent):
            ingest.feed(junk)
    ingest.feed(json.dumps(text("lo")))
    book.conclude(ingest.end())
    assert texts(streams.shown(book)["output"][0]) == ["Hello"]


def test_characters_that_no_database_holds_are_replaced() -> None:
    [item] = output(text("a\x00b"), text("c"), completed())
    assert texts(item) == ["a\ufffdbc"]


def test_events_and_texts_that_are_too_large_are_refused_and_the_rest_stands() -> None:
    book = Notebook()
    ingest = OpenAIResponses(book)
    piece = "x" * (8 * 1024 * 1024)
    ingest.feed(json.dumps(text(piece)))
    for heavy in (text(piece), text(piece * 2), added(1, {"type": "hologram", "x": piece * 2})):
        with pytest.raises(StreamTooLarge):
            ingest.feed(json.dumps(heavy))
    with pytest.raises(StreamTooLarge):
        ingest.feed(piece * 2)
    book.conclude(ingest.end())
    assert texts(streams.shown(book)["output"][0]) == [piece]


def test_a_final_response_may_repeat_more_than_one_event_could_hold() -> None:
    picture = "A" * (8 * 1024 * 1024)
    items = [
        {"type": "image_generation_call", "id": f"ig_{n}", "result": picture, "status": "completed"}
        for n in range(2)
    ]
    shown = output(*(done(n, item) for n, item in enumerate(items)), completed(*items))
    assert [item["type"] for item in shown] == ["tool_call", "tool_result"] * 2
    huge = {"type": "image_generation_call", "id": "ig_9", "result": picture * 2}
    [item] = output(completed(huge))
    assert item["status"] == "incomplete"


def test_the_results_of_mcp_are_shown_as_what_they_are() -> None:
    said = {"type": "mcp_call", "id": "m", "name": "buy", "arguments": "{}", "output": "Bought."}
    listed = {"type": "mcp_list_tools", "id": "l", "server_label": "s", "tools": [{"name": "buy"}]}
    found = output(done(0, said), done(1, listed), completed(said, listed))
    blocks = [item["block_list"] for item in found if item["type"] == "tool_result"]
    assert blocks[0] == [{"type": "text", "text": "Bought."}]
    assert blocks[1] == [{"type": "data", "name": "tools", "data": [{"name": "buy"}]}]


def test_a_picture_that_sharpened_ends_as_the_last_one() -> None:
    item = {"type": "image_generation_call", "id": "ig_1"}
    partial = event(
        "image_generation_call.partial_image",
        item_id="ig_1",
        output_index=0,
        partial_image_index=0,
        partial_image_b64="AAAA",
    )
    last = {**item, "status": "completed", "result": "BBBB"}
    found = output(added(0, item), partial, done(0, last), completed(last))
    (result,) = [one for one in found if one["type"] == "tool_result"]
    (block,) = result["block_list"]
    assert block["image_url"]["url"].endswith("BBBB")


@pytest.mark.parametrize("kind", ["file_citation", "hologram_citation"])
def test_a_citation_of_no_file_or_of_a_new_kind_is_kept_raw(kind: str) -> None:
    raw = {"type": kind, "filename": "notes.txt"}
    item = message("Read it.")
    item["content"][0]["annotations"] = [raw]
    (found,) = output(done(0, item), completed(item))
    assert found["block_list"][0]["annotations"] == [{"type": "raw", "raw": raw}]
