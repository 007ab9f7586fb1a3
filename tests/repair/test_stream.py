"""What the repairer does about each fault, one by one."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from tailrace.repair import items
from tailrace.repair import stream as repairing
from tailrace.repair.answer import repaired_body
from tailrace.repair.stream import ResponsesRepair
from tests.repair.streams import (
    HERE,
    Json,
    Read,
    Told,
    events_of,
    frame,
    repaired,
    repaired_events,
    response,
    stream,
    sunny,
)

CREATED: Json = {
    "type": "response.created",
    "response": response("in_progress"),
    "sequence_number": 0,
}
REASONING: Json = {
    "type": "response.output_item.added",
    "output_index": 0,
    "item": {"type": "reasoning", "id": "rs_0", "summary": []},
    "sequence_number": 1,
}


def kinds(events: list[Json]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def about(verb: str, **fields: Any) -> Json:
    """An event about the reasoning item."""
    return {"type": f"response.{verb}", "item_id": "rs_0", "output_index": 0, **fields}


def raw(verb: str, text: str, index: int = 0) -> Json:
    field = "delta" if verb == "delta" else "text"
    return about(f"reasoning_text.{verb}", content_index=index, **{field: text})


def summary(verb: str, text: str, index: int = 0) -> Json:
    field = "delta" if verb == "delta" else "text"
    return about(f"reasoning_summary_text.{verb}", summary_index=index, **{field: text})


def summary_part(verb: str, text: str = "", index: int = 0) -> Json:
    part = {"type": "summary_text", "text": text}
    return about(f"reasoning_summary_part.{verb}", summary_index=index, part=part)


def done(**item: Any) -> Json:
    return {
        "type": "response.output_item.done",
        "output_index": 0,
        "item": {"type": "reasoning", "id": "rs_0", **item},
    }


def shown(events: list[Json]) -> list[str]:
    """The reasoning that a client shows of a stream that begins with `CREATED, REASONING`."""
    return Read(events).texts("reasoning")[0]


# --- reasoning ------------------------------------------------------------------------------------


def test_raw_reasoning_becomes_a_summary() -> None:
    told = repaired_events(*sunny(raw=True))
    reasoning = [event for event in told if event.get("item_id") == "rs_0"]
    assert kinds(reasoning) == [
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
    ]
    assert reasoning[1] == {
        "type": "response.reasoning_summary_text.delta",
        "item_id": "rs_0",
        "output_index": 0,
        "summary_index": 0,
        "delta": "Sun ",
        "sequence_number": 4,
    }
    assert shown(told) == ["Sun or rain?"]


def test_the_names_of_the_frames_change_with_their_types() -> None:
    body = repaired(stream(*sunny(raw=True)))
    for block in body.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        assert name == f"event: {json.loads(data[6:])['type']}"


def test_the_end_of_the_item_and_of_the_response_have_the_summary_and_keep_the_raw_text() -> None:
    told = repaired_events(*sunny(raw=True))
    whole = next(event["item"] for event in told if event["type"] == "response.output_item.done")
    assert whole["summary"] == [{"type": "summary_text", "text": "Sun or rain?"}]
    assert whole["content"] == [{"type": "reasoning_text", "text": "Sun or rain?"}]
    assert told[-1]["response"]["output"][0] == whole


def test_each_raw_text_becomes_a_part_of_its_own() -> None:
    told = Told()
    told.reasoning(["One."], ["Two."], raw=True)
    assert shown(repaired_events(*told.completed())) == ["One.", "Two."]


def test_the_whole_text_once_more_as_a_delta_is_dropped() -> None:
    """agentscope-runtime ends its reasoning so."""
    deltas = [raw("delta", "Sun "), raw("delta", "or rain?")]
    again = raw("delta", "Sun or rain?")
    end = raw("done", "Sun or rain?")
    whole = done(content=[{"type": "reasoning_text", "text": "Sun or rain?"}])
    for rest in ([again, end, whole], [again, whole]):
        told = repaired_events(CREATED, REASONING, *deltas, *rest)
        assert shown(told) == ["Sun or rain?"]


@pytest.mark.parametrize(
    "rest",
    [
        [raw("done", "haha")],
        [raw("delta", "!"), raw("done", "haha!")],
        [raw("delta", "?", 1)],
        [raw("done", "ha", 1)],
        [done(content=[{"type": "reasoning_text", "text": "haha"}])],
        [done(summary=[])],
        [{**raw("done", "ha"), "item_id": "rs_9", "output_index": 9}],
        [],
    ],
)
def test_a_delta_that_repeats_all_so_far_and_is_meant_is_kept(rest: list[Json]) -> None:
    told = repaired_events(CREATED, REASONING, raw("delta", "ha"), raw("delta", "ha"), *rest)
    assert shown(told)[0].startswith("haha")


def test_a_held_delta_survives_a_cut() -> None:
    repair = ResponsesRepair("abc")
    out = repair.feed(stream(CREATED, REASONING, raw("delta", "ha"), raw("delta", "ha")))
    assert shown(events_of(out)) == ["ha"]
    assert shown(events_of(out + repair.cut("Gone."))) == ["haha"]


def test_reasoning_that_only_its_end_has_is_sent() -> None:
    whole = done(content=[{"type": "reasoning_text", "text": "Hm."}], summary=None)
    assert shown(repaired_events(CREATED, REASONING, whole)) == ["Hm."]
    whole = done(summary=[{"type": "summary_text", "text": "Hm."}])
    assert shown(repaired_events(CREATED, REASONING, whole)) == ["Hm."]
    assert shown(repaired_events(CREATED, REASONING, raw("done", "Hm."))) == ["Hm."]


def test_reasoning_that_is_encrypted_gets_an_empty_summary() -> None:
    nothings: list[Any] = [[], None, 5]
    for summary_ in nothings:
        told = repaired_events(CREATED, REASONING, done(summary=summary_, encrypted_content="x"))
        assert told[2]["item"]["summary"] == []


@pytest.mark.parametrize("interleaved", [True, False])
def test_both_families_with_the_same_text_show_it_once(interleaved: bool) -> None:
    old = [raw("delta", "Sun "), raw("delta", "or rain?"), raw("done", "Sun or rain?")]
    new = [
        summary("delta", "Sun "),
        summary("delta", "or rain?"),
        summary("done", "Sun or rain?"),
    ]
    parts = [summary_part("added"), summary_part("done", "Sun or rain?")]
    both = (
        [one for pair in zip(old, new, strict=True) for one in pair] if interleaved else old + new
    )
    whole = done(
        summary=[{"type": "summary_text", "text": "Sun or rain?"}],
        content=[{"type": "reasoning_text", "text": "Sun or rain?"}],
    )
    told = repaired_events(CREATED, REASONING, *both[:1], parts[0], *both[1:], parts[1], whole)
    assert shown(told) == ["Sun or rain?"]
    assert told[-2]["item"]["summary"] == [{"type": "summary_text", "text": "Sun or rain?"}]


def test_a_summary_that_comes_first_is_left_alone_and_so_is_the_raw_text() -> None:
    told = Told()
    told.reasoning(["Sun?"])
    events = told.completed()
    place = {"item_id": "rs_0", "output_index": 0, "content_index": 0}
    part = {"type": "reasoning_text", "text": "Sun, sun."}
    both = [
        *events[:5],
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        {"type": "response.reasoning_text.delta", **place, "delta": "Sun, sun."},
        {"type": "response.reasoning_text.done", **place, "text": "Sun, sun."},
        {"type": "response.content_part.done", **place, "part": part},
        *events[5:],
    ]
    for number, event in enumerate(both):
        event["sequence_number"] = number
    assert repaired(stream(*both)) == stream(*both)


def test_a_summary_that_says_something_else_becomes_a_further_part() -> None:
    old = [raw("delta", "Sun or rain? Sun."), raw("done", "Sun or rain? Sun.")]
    new = [
        summary_part("added"),
        summary("delta", "Sun or "),
        summary("delta", "clouds?"),
        summary("done", "Sun or clouds?"),
        summary_part("done", "Sun or clouds?"),
    ]
    told = repaired_events(CREATED, REASONING, *old, *new, done(summary=[]))
    assert shown(told) == ["Sun or rain? Sun.", "Sun or clouds?"]
    assert [part["text"] for part in told[-2]["item"]["summary"]] == shown(told)


def test_a_summary_that_moves_says_so_also_where_its_number_is_right() -> None:
    events = [CREATED, REASONING, raw("delta", "Sun."), summary("delta", "Clouds.")]
    told = repaired_events(*({**one, "sequence_number": 100 * n} for n, one in enumerate(events)))
    assert shown(told) == ["Sun.", "Clouds."]


def test_raw_text_behind_the_announcement_of_a_summary_fills_it() -> None:
    content = [{"type": "reasoning_text", "text": "Sun?"}]
    for rest in ([raw("delta", "Sun?"), raw("done", "Sun?")], [raw("delta", "Sun?")], []):
        told = repaired_events(
            CREATED, REASONING, summary_part("added"), *rest, done(content=content)
        )
        assert shown(told) == ["Sun?"]
        assert told[-1]["response"]["output"][0]["summary"] == [
            {"type": "summary_text", "text": "Sun?"}
        ]


def test_raw_text_behind_the_whole_part_of_a_summary_stays_raw() -> None:
    whole = summary_part("done", "Sun?")
    told = repaired_events(CREATED, REASONING, whole, raw("delta", "Sun, sun."))
    assert kinds(told)[5] == "reasoning_text.delta"


def test_two_summaries_that_repeat_two_raw_texts_are_dropped() -> None:
    old = [raw("delta", "One."), raw("done", "One."), raw("delta", "Two.", 1)]
    new = [summary("delta", "One."), summary("delta", "Two.", 1)]
    assert shown(repaired_events(CREATED, REASONING, *old, *new)) == ["One.", "Two."]


def test_raw_text_that_only_the_end_of_its_part_has_is_sent() -> None:
    part = {"type": "reasoning_text", "text": "Hm."}
    end = about("content_part.done", content_index=0, part=part)
    assert shown(repaired_events(CREATED, REASONING, end)) == ["Hm."]


def test_raw_text_behind_a_summary_without_its_part_stays_raw() -> None:
    told = repaired_events(CREATED, REASONING, summary("delta", "Sun?"), raw("delta", "Sun, sun."))
    assert kinds(told)[3:5] == ["reasoning_summary_text.delta", "reasoning_text.delta"]


def test_a_different_summary_that_only_its_end_has_becomes_a_further_part() -> None:
    for end in (summary("done", "Clouds."), summary_part("done", "Clouds.", 1)):
        unplaced = {key: value for key, value in end.items() if key != "summary_index"}
        for one in (end, unplaced):
            told = repaired_events(CREATED, REASONING, raw("delta", "Sun."), one, done(summary=[]))
            assert shown(told) == ["Sun.", "Clouds."]


def test_a_repeat_without_a_text_is_dropped() -> None:
    told = repaired_events(
        CREATED, REASONING, raw("delta", "Sun."), about("reasoning_summary_text.done")
    )
    assert shown(told) == ["Sun."]


# --- items, parts, texts --------------------------------------------------------------------------


def test_an_item_that_ends_under_another_index_is_known_by_its_id() -> None:
    """agentscope-runtime ends a reasoning item under the index of the next one."""
    told = repaired_events(CREATED, REASONING, raw("delta", "Hm."), {**done(), "output_index": 2})
    assert told[-2]["output_index"] == 0


def test_ids_that_change_are_those_of_the_announcement() -> None:
    """GitHub Copilot gives every event a new id."""
    events = sunny()
    for number, event in enumerate(events):
        for holder, key in ((event, "item_id"), (event.get("item", {}), "id")):
            if key in holder:
                holder[key] = f"changed_{number}"
        if "response" in event:
            event["response"]["id"] = f"changed_{number}"
            for place, item in enumerate(event["response"]["output"]):
                item["id"] = f"changed_{number}_{place}"
    got = Read(repaired_events(*events))
    assert got.texts("message") == [["It is sunny."]]
    assert got.final is not None
    assert got.final["id"] == "changed_0"
    assert [item["id"] for item in got.final["output"]] == [
        got.items[index]["id"] for index in sorted(got.items)
    ]


def test_an_id_that_goes_with_encrypted_content_stays() -> None:
    told = repaired_events(CREATED, REASONING, {**done(encrypted_content="x", id="rs_other")})
    assert told[2]["item"]["id"] == "rs_other"


def test_one_index_for_all_items_is_made_one_for_each() -> None:
    events = sunny()
    for event in events:
        if "output_index" in event:
            event["output_index"] = 0
    bare = [event for event in events if event["type"] != "response.output_item.added"]
    for some in (events, bare):
        got = Read(repaired_events(*some))
        assert sorted(got.items) == [0, 1, 2]
        assert got.texts("message") == [["It is sunny."]]
    told = Told()
    told.message(["One."])
    told.message(["Two."])
    twice = told.completed()
    for event in twice:
        if "output_index" in event:
            event["output_index"] = 0
    bare = [event for event in twice if event["type"] != "response.output_item.added"]
    assert Read(repaired_events(*bare)).texts("message") == [["One."], ["Two."]]


def test_indexes_with_gaps_stay() -> None:
    events = sunny()
    for event in events:
        if "output_index" in event:
            event["output_index"] = event["output_index"] + 1
    assert repaired(stream(*events)) == stream(*events)
    unplaced = [event for event in events if event.get("item", {}).get("id") != "msg_2"]
    for event in unplaced:
        if event.get("item_id") == "msg_2":
            del event["output_index"]
    got = Read(repaired_events(*unplaced))
    assert got.texts("message") == [["It is sunny."]]


def test_an_announcement_that_comes_late_is_not_repeated() -> None:
    events = sunny()
    added = [n for n, event in enumerate(events) if event["type"].endswith(".added")]
    for at in reversed(added):
        events[at], events[at + 1] = events[at + 1], events[at]
    got = Read(repaired_events(*events))
    assert got.texts("reasoning") == [["Sun or rain?"]]
    assert got.texts("function_call") == [['{"city":"Paris"}']]
    assert got.texts("message") == [["It is sunny."]]


def test_a_call_is_never_shown_before_it_has_a_name() -> None:
    events = [e for e in sunny() if e["type"] != "response.output_item.added"]
    told = kinds(repaired_events(*events))
    at = told.index("function_call_arguments.delta")
    assert told[at - 1 : at + 3] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]


def test_a_call_gets_what_only_its_deltas_had() -> None:
    events = sunny()
    for event in events:
        item = event.get("item", {})
        if event["type"] == "response.output_item.done" and item["type"] == "function_call":
            del item["arguments"], item["status"]
        if event["type"] == "response.function_call_arguments.done":
            del event["arguments"]
        if event["type"] == "response.completed":
            event["response"]["output"] = []
    told = repaired_events(*events)
    call = told[-1]["response"]["output"][1]
    assert call["arguments"] == '{"city":"Paris"}'
    assert call["status"] == "completed"


@pytest.mark.parametrize(
    ("item", "lists"),
    [
        ({"type": "reasoning", "content": []}, {"summary": []}),
        ({"type": "message", "text": "?"}, {"role": "assistant", "content": []}),
        ({"type": "function_call", "name": "f"}, {"call_id": "x", "arguments": ""}),
    ],
)
def test_an_item_that_only_its_end_has_is_announced_with_all_that_clients_read(
    item: Json, lists: Json
) -> None:
    end = {"type": "response.output_item.done", "item": {**item, "id": "x"}}
    announced = repaired_events(CREATED, end)[1]
    assert announced["type"] == "response.output_item.added"
    assert announced["item"] == {**item, "id": "x", **lists}


def test_a_call_that_only_its_end_has_is_announced_without_its_arguments() -> None:
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f"}
    end = {"type": "response.output_item.done", "item": {**item, "arguments": "{}"}}
    told = repaired_events(CREATED, end)
    assert told[1]["item"] == {**item, "arguments": ""}
    assert told[2]["item"] == {**item, "arguments": "{}", "status": "completed"}
    assert told[3]["type"] == "response.completed"


def test_items_of_tools_are_announced_and_named_and_otherwise_left_alone() -> None:
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"a": 1}}
    searching = {"type": "response.web_search_call.searching", "item_id": "ws_1"}
    end = {"type": "response.output_item.done", "item": item}
    told = repaired_events(
        CREATED, searching, end, searching, {**searching, "type": "response.new"}
    )
    assert "output_index" not in told[1]
    assert told[2]["item"] == {**item, "status": "in_progress"}
    assert told[3]["item"] == item
    assert told[4]["output_index"] == 0
    assert told[-1]["type"] == "response.completed"


def test_a_tool_that_never_ended_leaves_the_response_incomplete() -> None:
    added = {
        "type": "response.output_item.added",
        "item": {"type": "web_search_call", "id": "ws_1", "status": "in_progress"},
    }
    last = repaired_events(CREATED, added)[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_refusals_are_texts_too() -> None:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    delta = {"type": "response.refusal.delta", **place, "delta": "No"}
    end = {"type": "response.refusal.done", **place, "refusal": "No."}
    told = repaired_events(CREATED, delta, end)
    assert kinds(told)[1:-1] == [
        "output_item.added",
        "content_part.added",
        "refusal.delta",
        "refusal.delta",
        "refusal.done",
        "content_part.done",
        "output_item.done",
    ]
    assert told[2]["part"] == {"type": "refusal", "refusal": ""}
    assert told[-1]["response"]["output"][0]["content"] == [{"type": "refusal", "refusal": "No."}]


def test_a_citation_comes_behind_its_part() -> None:
    note = {
        "type": "response.output_text.annotation.added",
        "item_id": "msg_1",
        "output_index": 0,
        "annotation": {"type": "url_citation"},
    }
    told = repaired_events(CREATED, note)
    assert kinds(told)[1:4] == [
        "output_item.added",
        "content_part.added",
        "output_text.annotation.added",
    ]
    assert told[3]["content_index"] == 0
    events = sunny()
    at = next(n for n, event in enumerate(events) if event["type"] == "response.output_text.done")
    for n, event in enumerate(events[at:], at + 1):
        event["sequence_number"] = n
    changed = {**note, "item_id": "msg_new", "output_index": 2, "content_index": 0}
    told = repaired_events(*events[:at], {**changed, "sequence_number": at}, *events[at:])
    assert told[at]["item_id"] == "msg_2"


@pytest.mark.parametrize("text", ["It is sunny.", None])
def test_the_end_of_a_text_is_sent_once_where_that_of_its_part_is_missing(text: str | None) -> None:
    events = [event for event in sunny() if event["type"] != "response.content_part.done"]
    end = next(event for event in events if event["type"] == "response.output_text.done")
    end["text"] = text
    told = kinds(repaired_events(*events))
    assert told.count("output_text.done") == 1
    assert told[told.index("output_text.done") + 1] == "content_part.done"


def test_parts_that_lack_themselves_are_filled_in() -> None:
    place = {"item_id": "msg_1", "output_index": 0}
    begin = {"type": "response.content_part.added", **place}
    half = {**begin, "part": {"type": "output_text"}}
    delta = {"type": "response.output_text.delta", **place, "delta": "Hi."}
    end = {"type": "response.content_part.done", **place}
    for first in (begin, half):
        for last in (end, {**end, "part": {"type": "output_text"}}):
            told = repaired_events(CREATED, first, delta, last, last)
            assert told[2]["part"] == {"type": "output_text", "text": "", "annotations": []}
            assert kinds(told)[3:5] == ["output_text.delta", "content_part.done"]
            assert told[4]["part"] == {"type": "output_text", "text": "Hi.", "annotations": []}


def test_a_part_of_an_unknown_type_passes() -> None:
    event = {
        "type": "response.content_part.added",
        "item_id": "x",
        "part": {"type": "hologram"},
        "sequence_number": 1,
    }
    body = stream(CREATED, event)
    assert repaired(body).startswith(body)


def test_a_message_without_content_gets_what_was_sent() -> None:
    events = sunny()
    end = next(
        event
        for event in events
        if event["type"] == "response.output_item.done" and event["item"]["type"] == "message"
    )
    end["item"]["content"] = []
    told = repaired_events(*events)
    assert told[-2]["item"]["content"][0]["text"] == "It is sunny."


def test_a_message_that_only_its_end_has_is_sent() -> None:
    content = [
        {"type": "output_text", "text": "Hi.", "annotations": []},
        {"type": "output_text", "text": "", "annotations": []},
        {"type": "hologram"},
        None,
    ]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": content}
    told = repaired_events(CREATED, {"type": "response.output_item.done", "item": item})
    assert kinds(told) == [
        "created",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


def test_an_empty_message_stays_empty() -> None:
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
    end = {"type": "response.output_item.done", "output_index": 0, "item": item}
    told = repaired_events(CREATED, {**end, "type": "response.output_item.added"}, end)
    assert told[2]["item"] == item


def test_item_events_without_an_item_pass() -> None:
    events = [
        {"type": f"response.output_item.{verb}", "item": None, "sequence_number": n}
        for n, verb in ((1, "added"), (2, "done"))
    ]
    body = stream(CREATED, *events)
    assert repaired(body).startswith(body)


def test_raw_reasoning_without_places_is_sent_part_by_part() -> None:
    def unplaced(event: Json) -> Json:
        return {key: value for key, value in event.items() if key != "content_index"}

    part = {"type": "reasoning_text", "text": ""}
    late = about("content_part.added", content_index=0, part=part)
    told = repaired_events(
        CREATED,
        REASONING,
        unplaced(raw("delta", "One.")),
        late,
        unplaced(raw("done", "One.")),
        unplaced(raw("delta", "Two.")),
        done(content=[{"type": "reasoning_text", "text": text} for text in ("One.", "Two.", "")]),
    )
    assert shown(told) == ["One.", "Two."]


def test_a_new_id_without_an_index_is_a_new_item() -> None:
    told = repaired_events(
        CREATED,
        {"type": "response.output_text.delta", "delta": "One."},
        {"type": "response.output_text.delta", "item_id": "msg_a", "delta": " More."},
        {"type": "response.output_text.delta", "item_id": "msg_b", "delta": "Two."},
        {"type": "response.output_text.done", "item_id": "msg_b"},
        {"type": "response.output_text.delta", "item_id": "msg_b"},
    )
    got = Read([event for event in told if event.get("delta") or "delta" not in event["type"]])
    assert got.texts("message") == [["One. More."], ["Two."]]
    assert got.items[0]["id"] == "msg_1_0"


def test_what_clients_read_of_an_announced_item_is_filled_in() -> None:
    added = {"type": "response.output_item.added", "output_index": 0}
    for item, filled in (
        ({"type": "message"}, {"id": "msg_1_0", "role": "assistant", "content": []}),
        ({"type": "reasoning"}, {"id": "rs_1_0", "summary": []}),
        (
            {"type": "function_call", "id": "fc_1", "name": "f"},
            {"call_id": "fc_1", "arguments": ""},
        ),
        ({"type": "hologram"}, {"id": "item_1_0"}),
    ):
        told = repaired_events(CREATED, {**added, "item": item})
        assert told[1]["item"] == {**item, **filled}


def test_arguments_that_are_no_text_wait_for_nothing() -> None:
    delta = {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": None}
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f"}
    end = {"type": "response.output_item.done", "item": {**item, "arguments": "{}"}}
    assert kinds(repaired_events(CREATED, delta, end))[1:3] == [
        "output_item.added",
        "output_item.done",
    ]


def test_a_resumed_stream_begins_after_its_cursor() -> None:
    events = sunny()
    body = stream(*events)
    assert repaired(body, after=5) == stream(*events[6:])
    part_lost = stream(*(event for event in events if not event["type"].endswith("part.added")))
    rest = events_of(repaired(part_lost, after=5))
    assert rest == events_of(repaired(part_lost))[6:]
    assert repaired(b": ping\n\n" + body, after=5).startswith(b": ping\n\n")


# --- the response ---------------------------------------------------------------------------------


def test_what_the_announcement_of_a_response_lacks_is_filled_in() -> None:
    told = repaired_events({"type": "response.created", "response": {"id": "resp_9", "model": "m"}})
    assert told[0]["response"] == {
        "id": "resp_9",
        "model": "m",
        "object": "response",
        "created_at": 1700000000,
        "status": "in_progress",
        "output": [],
    }


def test_a_response_without_an_announcement_gets_one() -> None:
    told = repaired_events(*sunny()[1:])
    assert kinds(told)[:2] == ["created", "in_progress"]
    assert told[0]["response"]["id"] == "resp_1"
    told = repaired_events(*sunny()[2:])
    assert told[0]["response"]["id"] == told[-1]["response"]["id"] == "resp_abc"
    told = repaired_events(*sunny()[2:-1])
    assert told[-1]["response"]["id"] == "resp_abc"
    assert told[-1]["response"]["object"] == "response"


def test_a_response_that_failed_at_once_is_announced_without_its_error() -> None:
    failed = {**response("failed"), "error": {"code": "x", "message": "y"}}
    told = repaired_events({"type": "response.failed", "response": failed})
    assert told[0]["response"]["error"] is None
    assert told[1]["response"]["error"] == {"code": "x", "message": "y"}


def test_a_bare_response_under_the_name_of_an_event_is_wrapped() -> None:
    """agentscope-runtime reports its errors so."""
    error = {"code": "timeout", "message": "Too late."}
    bare = {"id": "resp_5", "object": "response", "status": "failed", "error": error}
    body = stream(CREATED) + f"event: response.failed\ndata: {json.dumps(bare)}\n\n".encode()
    last = events_of(repaired(body))[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["id"] == "resp_1"
    assert last["response"]["error"] == error
    numbered = {**bare, "sequence_number": 7}
    body = stream(CREATED) + f"event: response.failed\ndata: {json.dumps(numbered)}\n\n".encode()
    assert events_of(repaired(body))[-1]["sequence_number"] == 7


def test_an_end_without_its_output_gets_the_items_that_were_done() -> None:
    events = sunny()
    whole = events[-1]["response"]["output"]
    nothings: list[Any] = [[], None]
    for nothing in nothings:
        events[-1]["response"]["output"] = nothing
        assert repaired_events(*events)[-1]["response"]["output"] == whole


def test_a_failure_keeps_its_empty_output_and_leaves_open_what_is_open() -> None:
    events = [*sunny()[:-3], {"type": "response.failed", "response": response("failed")}]
    events[-1]["sequence_number"] = 99
    assert repaired(stream(*events)) == stream(*events)


def test_items_without_an_end_end_as_the_final_response_has_them() -> None:
    events = [event for event in sunny() if not event["type"].endswith("item.done")]
    got = Read(repaired_events(*events))
    assert got.final is not None
    assert [got.done[index] for index in sorted(got.done)] == got.final["output"]


def test_items_that_the_final_response_lacks_too_end_as_they_were_sent() -> None:
    events = [event for event in sunny() if not event["type"].endswith("item.done")]
    events[-1]["response"]["output"] = []
    got = Read(repaired_events(*events))
    assert got.final is not None
    assert [item["type"] for item in got.final["output"]] == [
        "reasoning",
        "function_call",
        "message",
    ]
    assert got.final["output"][1]["arguments"] == '{"city":"Paris"}'


def test_items_of_the_final_response_that_were_never_announced_have_their_reasoning_shown() -> None:
    item = {
        "type": "reasoning",
        "id": "rs_7",
        "content": [{"type": "reasoning_text", "text": "Hm"}],
    }
    end = {"type": "response.completed", "response": response("completed", [item])}
    last = repaired_events(CREATED, end)[-1]
    assert last["response"]["output"][0]["summary"] == [{"type": "summary_text", "text": "Hm"}]


# --- the end --------------------------------------------------------------------------------------


def test_a_stream_without_its_end_is_completed_if_all_was_sent() -> None:
    events = sunny()[:-1]
    assert repaired_events(*events)[-1]["type"] == "response.completed"
    assert repaired_events(*events[:-1])[-1]["type"] == "response.completed"
    got = Read(repaired_events(*events[:-1]))
    assert got.final is not None
    assert len(got.final["output"]) == 3


def test_a_stream_that_ends_inside_a_text_is_incomplete_and_keeps_the_text() -> None:
    events = [event for event in sunny() if event["sequence_number"] < 20]
    got = Read(repaired_events(*events))
    assert got.final is not None
    assert got.final["status"] == "incomplete"
    assert got.final["output"][-1]["status"] == "incomplete"
    assert got.final["output"][-1]["content"][0]["text"] == got.texts("message")[0][0]


def test_a_stream_that_ends_inside_a_call_fails_and_makes_no_call() -> None:
    events = [event for event in sunny() if event["sequence_number"] < 11]
    told = repaired_events(*events)
    assert told[-1]["response"]["error"]["type"] == "incomplete_function_call"
    assert "function_call" not in json.dumps(told[-1]["response"]["output"])


def test_done_inside_a_call_or_a_tool_completes_nothing() -> None:
    call = [event for event in sunny() if event["sequence_number"] < 11]
    searching = {"type": "response.output_item.added", "item": {"type": "web_search_call"}}
    for some, status in ((call, "failed"), ([CREATED, searching], "incomplete")):
        last = events_of(repaired(stream(*some) + b"data: [DONE]\n\n"))[-1]
        assert last["response"]["status"] == status


def test_the_end_comes_before_done() -> None:
    body = repaired(stream(*sunny()[:-1]) + b"data: [DONE]\n\n")
    assert body.endswith(b"}\n\ndata: [DONE]\n\n")
    assert events_of(body)[-1]["type"] == "response.completed"
    unended = repaired(stream(*sunny()[:-1]) + b"data: [DONE]")
    assert unended + b"\n\n" == body


@pytest.mark.parametrize("body", [b"", b": ping\n\n", b"data: [DONE]\n\n", b"\n"])
def test_a_stream_that_says_nothing_fails(body: bytes) -> None:
    told = events_of(repaired(body))
    assert kinds(told) == ["created", "failed"]
    assert told[1]["response"]["error"]["type"] == "empty_stream"


def test_a_stream_of_another_api_is_not_ours_to_end() -> None:
    for body in (
        b'data: {"object":"chat.completion.chunk"}\n\ndata: [DONE]\n\n',
        b"data: hello\n\n",
        b"data: {",
    ):
        assert repaired(body) == body


def test_an_error_ends_the_stream_and_gets_its_number() -> None:
    error = {"type": "error", "code": "x", "message": "y", "param": None}
    told = repaired_events(CREATED, error)
    assert told[1:] == [{**error, "sequence_number": 1}]
    body = stream(CREATED) + b'data: {"error":{"message":"y"}}\n\n'
    assert repaired(body) == body


def test_what_follows_the_end_only_gets_its_number() -> None:
    body = stream(*sunny())
    late = stream({"type": "response.reasoning_text.delta", "delta": "x"})
    told = events_of(repaired(body + late))
    assert told[-1]["type"] == "response.reasoning_text.delta"
    assert told[-1]["sequence_number"] == told[-2]["sequence_number"] + 1
    assert repaired(body + b"data: {hal") == body + b"data: {hal"


def test_a_last_event_without_its_blank_line_is_completed() -> None:
    body = stream(*sunny())
    for cut in (1, 2):
        assert events_of(repaired(body[:-cut])) == events_of(body)
    assert repaired(body.replace(b"\n", b"\r")) == body.replace(b"\n", b"\r")


def test_a_stream_that_ends_inside_an_event_was_cut() -> None:
    last = events_of(repaired(stream(*sunny())[:-20]))[-1]
    assert last["response"]["error"]["type"] == "upstream_cut"
    assert last["response"]["output"] == sunny()[-1]["response"]["output"]


def test_a_cut_after_the_end_does_not_count() -> None:
    repair = ResponsesRepair("abc")
    repair.feed(stream(*sunny()))
    assert repair.cut("Gone.") == b""


# --- everything else ------------------------------------------------------------------------------


def test_comments_keepalives_and_foreign_events_pass() -> None:
    events = sunny()
    keepalive = b'data: {"type":"keepalive","sequence_number":5}\n\n'
    ping = b'event: ping\ndata: {"type":"ping"}\n\n: hello\n\nid: 4\n\n'
    body = stream(*events[:5]) + keepalive + ping
    assert repaired(body).startswith(body)
    unnumbered = stream(*events[:5]) + b'data: {"type":"keepalive"}\n\n'
    assert events_of(repaired(unnumbered))[5]["sequence_number"] == 5
    falling = stream(*events[:5]) + b'data: {"type":"ping","sequence_number":1}\n\n'
    assert events_of(repaired(falling))[5]["sequence_number"] == 5


def test_frames_are_sent_on_as_soon_as_they_are_whole() -> None:
    repair = ResponsesRepair("abc")
    for event in sunny(raw=True)[:-1]:
        body = stream(event)
        assert repair.feed(body[:-1]) == b""
        swallowed = event["type"] == "response.content_part.done" and event["output_index"] == 0
        assert (repair.feed(body[-1:]) == b"") == swallowed


def test_a_frame_too_large_to_hold_passes_unread() -> None:
    huge = stream({"type": "response.image", "b64": "x" * 500})
    body = stream(CREATED) + huge
    out = repaired(body, max_frame=400)
    assert out.startswith(body)
    assert events_of(out)[-1]["type"] == "response.failed"
    half = repaired(body[:-20], max_frame=400)
    assert half.startswith(body[:-20] + b"\n\n")
    repair = ResponsesRepair("abc", max_frame=400)
    out = repair.feed(body[:-20]) + repair.cut("Gone.")
    assert out.startswith(body[:-20] + b"\n\nevent: response.failed\n")


def test_of_a_response_too_large_to_remember_nothing_is_completed_from_memory() -> None:
    for limit in range(0, 800, 7):
        for raw_ in (True, False):
            events = sunny(raw=raw_)
            got = Read(events_of(repaired(stream(*events), max_kept=limit)))
            assert got.texts("message") == [["It is sunny."]]
            assert got.final is not None
            assert got.final["output"][2] == events[-1]["response"]["output"][2]
            assert got.final["output"][0]["summary"] == [
                {"type": "summary_text", "text": "Sun or rain?"}
            ]
    bare = [event for event in sunny() if not event["type"].endswith((".done", ".added"))]
    for limit in range(0, 100, 3):
        got = Read(events_of(repaired(stream(*bare), max_kept=limit)))
        assert got.final is not None
    named = [event for event in sunny() if event["type"] != "response.output_item.added"]
    told = events_of(repaired(stream(*named), max_kept=20))
    assert told[-1]["type"] == "response.completed"
    told = events_of(repaired(stream(*sunny()[:-1]), max_kept=20))
    assert told[-1]["response"]["output"] == []


def many(kind: str, number: int) -> Json:
    """An event that a backend can send without end, each about something new."""
    message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": []}
    item = {"output_index": number, "item": message}
    if kind == "added":
        return {"type": "response.output_item.added", **item}
    if kind == "done":
        return {"type": "response.output_item.done", **item}
    if kind == "part":
        return summary_part("added", index=number)
    if kind == "raw part":
        part = {"type": "reasoning_text", "text": ""}
        return about("content_part.done", content_index=number, part=part)
    if kind == "id":
        return {"type": "response.output_text.delta", "item_id": f"msg_{number}", "delta": ""}
    assert kind == "repeat"
    return summary("delta", "", index=number)


@pytest.mark.parametrize("kind", ["added", "done", "part", "raw part", "repeat", "id"])
def test_a_response_of_any_number_of_items_takes_bounded_memory(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "MAX_NAMES", 100)
    repair = ResponsesRepair("abc", max_records=100)
    head = [CREATED, REASONING, raw("delta", "Hm.")] if kind == "repeat" else [CREATED, REASONING]
    if kind == "id":
        text = {"type": "message", "id": "msg", "role": "assistant", "content": []}
        head.append({"type": "response.output_item.added", "output_index": 1, "item": text})
    repair.feed(stream(*head))
    for number in range(1, 150):
        repair.feed(frame(many(kind, number)))
    tracemalloc.start()
    for number in range(150, 450):
        repair.feed(frame(many(kind, number)))
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown < 12_000, "bytes for 300 more events"


def test_what_follows_more_items_than_are_remembered_passes_with_its_number() -> None:
    head = [CREATED, REASONING, *(many("added", number) for number in range(1, 12))]
    late = {**many("done", 40), "sequence_number": 40}
    final = {"type": "response.completed", "response": response("completed"), "sequence_number": 41}
    out = repaired(stream(*head, late, final), max_records=10)
    assert out.endswith(stream(late, final))
    assert [event["sequence_number"] for event in events_of(out)] == [*range(13), 40, 41]
    for rest, kind in ((b"", "incomplete"), (b"data: [DONE]\n\n", "completed")):
        last = events_of(repaired(stream(*head, late) + rest, max_records=10))[-1]
        assert last["type"] == f"response.{kind}"
        assert last["response"]["output"] == []


def test_the_end_of_a_forgotten_text_is_not_made_up() -> None:
    body = stream(
        CREATED, REASONING, summary("delta", "x" * 99), about("reasoning_summary_text.done")
    )
    told = events_of(repaired(body, max_kept=50))
    assert "text" not in told[4]
    body = stream(CREATED, REASONING, summary("delta", "x" * 99), done(summary=[]))
    told = events_of(repaired(body, max_kept=50))
    assert kinds(told)[3:5] == ["reasoning_summary_text.delta", "output_item.done"]


def test_an_end_that_comes_twice_is_sent_once() -> None:
    end = summary_part("done", "Hm.")
    assert shown(repaired_events(CREATED, REASONING, summary("delta", "Hm."), end, end)) == ["Hm."]


def test_an_event_that_names_no_item_is_not_given_one() -> None:
    event = {"type": "response.shell_call_command.delta", "output_index": 0, "sequence_number": 2}
    body = stream(CREATED, REASONING, event)
    assert repaired(body).startswith(body)


def test_a_summary_behind_a_forgotten_text_is_dropped() -> None:
    body = stream(CREATED, REASONING, raw("delta", "x" * 99), summary("delta", "x"))
    assert shown(events_of(repaired(body, max_kept=50))) == ["x" * 99]


def test_an_event_nested_too_deep_to_write_passes_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(*_: object) -> bytes:
        raise RecursionError

    body = stream({**CREATED, "sequence_number": None})
    monkeypatch.setattr(repairing, "rewritten", too_deep)
    assert repaired(body).startswith(body)


# --- bodies ---------------------------------------------------------------------------------------


def test_a_body_gets_its_summary() -> None:
    reasoning = {
        "type": "reasoning",
        "id": "rs_0",
        "content": [{"type": "reasoning_text", "text": "é"}],
    }
    body = json.dumps(response("completed", [reasoning])).encode()
    item = json.loads(repaired_body(body, "abc"))["output"][0]
    assert item["summary"] == [{"type": "summary_text", "text": "é"}]
    assert item["content"] == reasoning["content"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1]",
        b"not json",
        b'{"error": {"message": "x"}}',
        json.dumps(sunny()[-1]["response"], indent=2).encode(),
        b'{"output": [5, {"type": "reasoning", "id": "r", "summary": [], "content": [{}, 4]}]}',
    ],
)
def test_a_body_that_needs_nothing_stays_as_it_is(body: bytes) -> None:
    assert repaired_body(body, "abc") is body


def test_a_body_that_is_the_last_event_becomes_its_response() -> None:
    body = (HERE / "agentscope-runtime-1.1.6.json").read_bytes()
    value = json.loads(repaired_body(body, "abc"))
    assert value["object"] == "response"
    assert value["output"][0]["summary"] == [{"type": "summary_text", "text": "Sun or rain? Sun."}]
