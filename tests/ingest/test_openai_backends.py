"""Streams as other servers of the Responses API send them, shortened."""

from __future__ import annotations

from typing import Any

import pytest

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


def thoughts(item: Json) -> list[str]:
    parts = [*item.get("summary", ()), *item.get("reasoning_text", ())]
    return [part["text"] for part in parts]


def calls(*events: Json) -> list[tuple[str, str, str, Any]]:
    return [
        (item["call_id"], item["name"], item["arguments"], item.get("status"))
        for item in output(*events)
        if item["type"] == "tool_call"
    ]


def made(call_id: str, name: str, given: str | None = None) -> Json:
    item = {"type": "function_call", "call_id": call_id, "name": name}
    return item if given is None else {**item, "arguments": given}


# --- which call ----------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["item_id", "call_id"])
@pytest.mark.parametrize("end", ["items", "arguments", "response"])
def test_calls_whose_items_have_no_id_are_found_by_their_calls(address: str, end: str) -> None:
    """llama.cpp gives an item no id and no place, and its pieces the call's as `item_id`."""

    def given(kind: str, ident: str, **fields: Any) -> Json:
        return event(f"function_call_arguments.{kind}", **{address: ident}, **fields)

    one, two = made("fc_1", "rain", '{"at":"Rome"}'), made("fc_2", "snow", "{}")
    begin = [
        event("output_item.added", item=made("fc_1", "rain", "")),
        event("output_item.added", item=made("fc_2", "snow", "")),
        given("delta", "fc_1", delta='{"at":'),
        given("delta", "fc_2", delta="{}"),
        given("delta", "fc_1", delta='"Rome"}'),
    ]
    ends = {
        "items": [event("output_item.done", item=item) for item in (one, two)],
        "arguments": [
            given("done", "fc_1", arguments='{"at":"Rome"}'),
            given("done", "fc_2", arguments="{}"),
        ],
        "response": [],
    }
    found = calls(*begin, *ends[end], completed(one, two))
    assert found == [("fc_1", "rain", '{"at":"Rome"}', None), ("fc_2", "snow", "{}", None)]


def test_pieces_that_name_their_call_may_come_before_it() -> None:
    piece = event("function_call_arguments.delta", call_id="call_1", delta="{}")
    assert calls(piece, added(0, call("")), done(0, call("{}"))) == [
        ("call_1", "weather", "{}", None)
    ]


def test_pieces_for_a_call_that_has_ended_begin_no_other() -> None:
    end = event("output_item.done", item=made("fc_1", "rain", "{}"))
    late = event("function_call_arguments.delta", item_id="fc_1", delta="{}")
    assert calls(end, late, completed()) == [("fc_1", "rain", "{}", None)]


def test_pieces_under_the_calls_id_belong_to_the_item_at_their_place() -> None:
    """Some name the call, though the item has an id of its own, and begin it whole."""
    whole = call('{"a":1}', status="completed")
    place = {"item_id": "call_1", "output_index": 0}
    events = [
        added(0, whole),
        event("function_call_arguments.delta", **place, delta='{"a":1}'),
        event("function_call_arguments.done", **place, arguments='{"a":1}', name="weather"),
        done(0, whole),
        completed(whole),
    ]
    assert calls(*events) == [("call_1", "weather", '{"a":1}', None)]


# --- reasoning -----------------------------------------------------------------------------------


def test_reasoning_that_ends_in_another_field_than_it_streamed_is_written_once() -> None:
    """LiteLLM gives every piece a new id and the message's place, and ends with a content."""

    def thought(piece: str, ident: str) -> Json:
        return event("reasoning_summary_text.delta", item_id=ident, output_index=0, delta=piece)

    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    final = {
        "type": "reasoning",
        "id": "rs_z",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "So so.", "annotations": []}],
    }
    answer, reasoning = output(
        added(0, message()),
        event("content_part.added", **place, part={"type": "output_text", "text": ""}),
        thought("So ", "rs_a"),
        thought("so.", "rs_b"),
        text("Hi", content_index=0),
        event("output_text.done", **place, text="Hi"),
        done(0, message("Hi")),
        completed(final, message("Hi", item_id="msg_9")),
    )
    assert texts(answer) == ["Hi"]
    assert thoughts(reasoning) == ["So so."]
    assert reasoning["private"]["raw"]["content"] == final["content"]


def test_raw_reasoning_that_ends_as_a_summary_is_written_once() -> None:
    """As servers do that know only half of the words, or a proxy that fills the summary in."""
    last = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    piece = event("reasoning_text.delta", item_id="rs_1", output_index=0, delta="Hm.")
    [item] = output(piece, done(0, last))
    assert thoughts(item) == ["Hm."]
    assert item["private"]["raw"] == last
    [item] = output(piece, done(0, {**last, "summary": [{"type": "summary_text", "text": "So."}]}))
    assert thoughts(item) == ["So.", "Hm."]


def test_a_message_after_reasoning_that_was_never_announced_is_read() -> None:
    """LiteLLM again: the text's item has the reasoning's place, and no beginning."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "x", "text": "So."}]}
    reasoning, answer, weather = output(
        added(0, {"type": "reasoning", "id": "rs_1"}),
        event("reasoning_summary_text.delta", item_id="rs_a", output_index=0, delta="So."),
        done(0, thought),
        text("Hi ", "msg_7", 0),
        text("you", "msg_7", 0),
        done(0, message("Hi you", item_id="msg_7")),
        added(1, call("")),
        done(1, call("{}")),
        completed({**thought, "id": "rs_9"}, message("Hi you", item_id="msg_9"), call("{}")),
    )
    assert (thoughts(reasoning), texts(answer)) == (["So."], ["Hi you"])
    assert weather["arguments"] == "{}"


def test_parts_of_reasoning_under_the_name_of_a_messages_are_not_written_twice() -> None:
    """vLLM announces raw reasoning as `output_text`, and ends it one place further."""
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    there, next_place = {"item_id": "msg_r", "output_index": 0}, {"item_id": "msg_r"}
    thought = {"type": "reasoning", "id": "msg_r", "summary": []}
    whole = {**thought, "content": [{"type": "reasoning_text", "text": "Hm."}]}
    reasoning, answer = output(
        added(0, {**thought, "content": None}),
        event("content_part.added", **there, content_index=0, part=part),
        event("reasoning_text.delta", **there, content_index=0, delta="Hm."),
        event("reasoning_text.done", **next_place, output_index=1, content_index=0, text="Hm."),
        event("content_part.done", **next_place, output_index=1, part={**part, "text": "Hm."}),
        done(1, whole),
        added(1, message(item_id="msg_2")),
        text("Hi", "msg_2", 1),
        done(1, message("Hi", item_id="msg_2")),
        completed({**whole, "id": "rs_9"}, message("Hi", item_id="msg_9")),
    )
    assert (thoughts(reasoning), texts(answer)) == (["Hm."], ["Hi"])


# --- little at all -------------------------------------------------------------------------------


def test_a_stream_without_a_single_address_is_read_in_order() -> None:
    reasoning, answer = output(
        event("reasoning_text.delta", delta="Hm."),
        text("Hel", None, None),
        text("lo", None, None),
        event("output_text.done", text="Hello"),
        completed(),
    )
    assert (thoughts(reasoning), texts(answer)) == (["Hm."], ["Hello"])


def test_a_whole_answer_between_its_beginning_and_its_end_is_read_once() -> None:
    """Gateways to models that do not stream send everything in every event."""
    whole = message("Hello", status="completed")
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    [answer] = output(
        event("created", response={"id": "resp_1"}),
        added(0, whole),
        event("content_part.added", **place, part=whole["content"][0]),
        text("Hello", content_index=0),
        event("output_text.done", **place, text="Hello"),
        event("content_part.done", **place, part=whole["content"][0]),
        done(0, whole),
        completed(whole),
    )
    assert texts(answer) == ["Hello"]
    [answer] = output(event("output_text.done", text="Hello"), completed(message("Hello")))
    assert texts(answer) == ["Hello"]


def test_a_message_that_ends_after_its_first_piece_is_written_to_its_end() -> None:
    """OmniRoute ends the item, goes on with pieces, and has the text in its last word."""
    events = [added(0, message()), text("1"), done(0, message("1")), text("\n"), text("2")]
    first, rest = output(*events, completed(message("1\n2", phase="final_answer")))
    assert (texts(first), texts(rest)) == (["1"], ["\n2"])
    assert rest["phase"] == "final_answer"
    [only] = output(*events, completed(message("1")))
    assert texts(only) == ["1"]
    [only] = output(*events, completed(message("Other words")))
    assert texts(only) == ["1"]


@pytest.mark.parametrize("between", ["", "\n\n"])
def test_messages_that_the_response_makes_one_are_written_once(between: str) -> None:
    whole = completed(message(f"One{between}Two{between}Three"))
    parts = [done(n, {**message(word), "id": f"m_{n}"}) for n, word in enumerate(["One", "Two"])]
    later = {"type": "response.output_text.delta", "item_id": "m_2", "output_index": 2}
    answers = output(*parts, {**later, "delta": "Three"}, whole)
    assert [texts(one) for one in answers] == [["One"], ["Two"], ["Three"]]
    # A message that says something else is no reason to leave anything out.
    answers = output(*parts, completed(message("One, four")))
    assert [texts(one) for one in answers] == [["One"], ["Two"], [", four"]]


def test_a_message_that_ends_empty_gets_its_text_from_the_response() -> None:
    empty, answer = output(done(0, message()), completed(message("Hello")))
    assert (texts(empty), texts(answer)) == ([], ["Hello"])


@pytest.mark.parametrize("where", ["added", "done", "completed"])
def test_parts_that_are_bare_texts_are_read(where: str) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": ["So."], "content": "Hm."}
    answer = {**message(), "content": ["Hel", "lo", 7]}
    whole = {
        "added": [added(0, thought), added(1, answer)],
        "done": [done(0, thought), done(1, answer)],
        "completed": [completed(thought, answer)],
    }
    reasoning, said = output(*whole[where])
    assert (thoughts(reasoning), texts(said)) == (["So.", "Hm."], ["Hel", "lo"])


def test_what_a_search_did_may_stand_in_its_progress_alone() -> None:
    place = {"item_id": "ws_1", "output_index": 0}
    action = {"type": "search", "query": "rain", "sources": [{"url": "https://a.b"}]}
    search, result = output(
        event("web_search_call.searching", **place, action="junk"),
        event("web_search_call.completed", **place, action=action),
        completed(),
    )
    assert search["arguments"] == '{"type":"search","query":"rain"}'
    assert result["block_list"][0]["data"] == [{"url": "https://a.b"}]


def test_the_first_names_of_a_text_are_known() -> None:
    """Realtime servers of the first kind, which also number their events by id."""
    place = {"response_id": "resp_1", "item_id": "msg_1", "output_index": 0, "content_index": 0}
    book, _ = read(
        event("text.delta", **place, event_id="ev_1", delta="Hel"),
        event("text.delta", **place, event_id="ev_2", delta="lo"),
        event("text.done", **place, event_id="ev_3", text="Hello"),
        event("done", event_id="ev_4", response={"id": "resp_1", "status": "completed"}),
    )
    assert texts(streams.shown(book)["output"][0]) == ["Hello"]
    assert kept_raw(book) == []


def test_a_text_that_stands_beside_an_empty_output_is_read() -> None:
    [answer] = output(completed(output_text="Hello"))
    assert texts(answer) == ["Hello"]
    [answer] = output(text("Hello"), completed(output_text="Hello"))
    assert texts(answer) == ["Hello"]
    assert output(completed(output_text="")) == []
