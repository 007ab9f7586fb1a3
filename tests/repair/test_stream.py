"""Bytes, cuts, limits and bodies of the repair.

Faulty streams and what becomes of them are in `cases`.
"""

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
    HealthyStream,
    Json,
    Read,
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


def test_the_names_of_the_frames_change_with_their_types() -> None:
    body = repaired(stream(*sunny(raw=True)))
    for block in body.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        assert name == f"event: {json.loads(data[6:])['type']}"


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
    found = repaired_events(CREATED, REASONING, raw("delta", "ha"), raw("delta", "ha"), *rest)
    assert shown(found)[0].startswith("haha")


def test_a_held_delta_survives_a_cut() -> None:
    repair = ResponsesRepair("abc")
    out = repair.feed(stream(CREATED, REASONING, raw("delta", "ha"), raw("delta", "ha")))
    assert shown(events_of(out)) == ["ha"]
    assert shown(events_of(out + repair.cut("Gone."))) == ["haha"]


def test_a_summary_that_comes_first_is_left_alone_and_so_is_the_raw_text() -> None:
    healthy = HealthyStream()
    healthy.reasoning(["Sun?"])
    events = healthy.completed()
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


# --- items, parts, texts --------------------------------------------------------------------------


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


def test_a_part_of_an_unknown_type_passes() -> None:
    event = {
        "type": "response.content_part.added",
        "item_id": "x",
        "part": {"type": "hologram"},
        "sequence_number": 1,
    }
    body = stream(CREATED, event)
    assert repaired(body).startswith(body)


def test_item_events_without_an_item_pass() -> None:
    events = [
        {"type": f"response.output_item.{verb}", "item": None, "sequence_number": n}
        for n, verb in ((1, "added"), (2, "done"))
    ]
    body = stream(CREATED, *events)
    assert repaired(body).startswith(body)


def test_a_resumed_stream_begins_after_its_cursor() -> None:
    events = sunny()
    body = stream(*events)
    assert repaired(body, after=5) == stream(*events[6:])
    part_lost = stream(*(event for event in events if not event["type"].endswith("part.added")))
    rest = events_of(repaired(part_lost, after=5))
    assert rest == events_of(repaired(part_lost))[6:]
    assert repaired(b": ping\n\n" + body, after=5).startswith(b": ping\n\n")


# --- the response ---------------------------------------------------------------------------------


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


def test_a_failure_keeps_its_empty_output_and_leaves_open_what_is_open() -> None:
    events = [*sunny()[:-3], {"type": "response.failed", "response": response("failed")}]
    events[-1]["sequence_number"] = 99
    assert repaired(stream(*events)) == stream(*events)


# --- the end --------------------------------------------------------------------------------------


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
    found = events_of(repaired(body))
    assert kinds(found) == ["created", "failed"]
    assert found[1]["response"]["error"]["type"] == "empty_stream"


def test_a_stream_of_another_api_is_not_ours_to_end() -> None:
    for body in (
        b'data: {"object":"chat.completion.chunk"}\n\ndata: [DONE]\n\n',
        b"data: hello\n\n",
        b"data: {",
    ):
        assert repaired(body) == body


def test_an_error_ends_the_stream_and_gets_its_number() -> None:
    error = {"type": "error", "code": "x", "message": "y", "param": None}
    found = repaired_events(CREATED, error)
    assert found[1:] == [{**error, "sequence_number": 1}]
    body = stream(CREATED) + b'data: {"error":{"message":"y"}}\n\n'
    assert repaired(body) == body


def test_what_follows_the_end_only_gets_its_number() -> None:
    body = stream(*sunny())
    late = stream({"type": "response.reasoning_text.delta", "delta": "x"})
    found = events_of(repaired(body + late))
    assert found[-1]["type"] == "response.reasoning_text.delta"
    assert found[-1]["sequence_number"] == found[-2]["sequence_number"] + 1
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
    found = events_of(repaired(stream(*named), max_kept=20))
    assert found[-1]["type"] == "response.completed"
    found = events_of(repaired(stream(*sunny()[:-1]), max_kept=20))
    assert found[-1]["response"]["output"] == []


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
    found = events_of(repaired(body, max_kept=50))
    assert "text" not in found[4]
    body = stream(CREATED, REASONING, summary("delta", "x" * 99), done(summary=[]))
    found = events_of(repaired(body, max_kept=50))
    assert kinds(found)[3:5] == ["reasoning_summary_text.delta", "output_item.done"]


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
