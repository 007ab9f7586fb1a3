"""The run envelope as a source: events of the document, of other backends, and broken events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.core.errors import MalformedEvent
from tailrace.ingest.base import Notebook, Outcome
from tailrace.ingest.run import RunEvents, run_facts
from tests.ingest.streams import (
    check_breaks_nothing,
    check_readable,
    golden,
    ingested,
    items,
    lines,
    raw_types,
    recordings,
    view_of,
)

Json = dict[str, Any]

FIXTURES = Path(__file__).parent / "fixtures" / "run"


def event(kind: str, run_id: str = "r", **data: Any) -> Json:
    return {"type": kind, "threadId": "t", "runId": run_id, "data": data}


def ended(*events: Any) -> tuple[Notebook, Outcome]:
    return ingested(RunEvents, events)


def view(*events: Any) -> Json:
    return view_of(ended(*events)[0])


def output(*events: Any) -> list[Json]:
    return items(ended(*events)[0])


def texts(*events: Any) -> list[str]:
    return [
        "".join(block["text"] for block in item["block_list"])
        for item in output(*events)
        if item["type"] == "message"
    ]


def raw_of(*events: Any) -> list[str]:
    return raw_types(ended(*events)[0])


START, FINISHED = event("run.started"), event("run.finished")


def text_message(*pieces: str, ident: str = "m", **end: Any) -> list[Json]:
    deltas = [event("text.delta", messageId=ident, delta=piece) for piece in pieces]
    start = event("text.start", messageId=ident, role="assistant", stage="worker")
    return [start, *deltas, event("text.end", messageId=ident, role="assistant", **end)]


def call(**data: Any) -> Json:
    return {"messageId": "m", "toolCallId": "c", "toolName": "tool", "stage": "worker", **data}


def result(**output: Any) -> Json:
    given: Json = {"tool_name": "tool", "tool_call_id": "c", "tool_call_args": {"a": 1}}
    given |= {"status": "success", "result_summary": "ok", "ui_hints": None, "attachments": None}
    return event("tool.result", **call(toolAgentOutput=given | output))


CALLED = {"type": "tool_call", "call_id": "c", "name": "tool"}
TEXT = {"type": "text", "text": "ok"}


# --- the document --------------------------------------------------------------------------------


def test_the_documents_events_make_the_run_that_it_describes() -> None:
    shown = view(*lines(FIXTURES / "document.jsonl"))
    assert shown["status"] == "completed"
    assert [one["name"] for one in shown["steps"]] == ["router", "worker"]
    asked, answer, message = shown["output"]
    assert json.loads(asked["arguments"]) == {"start_date": "2024-01-01", "end_date": "2024-01-07"}
    assert answer["block_list"] == [{"type": "text", "text": "找到3个事件..."}]
    assert message["block_list"] == [{"type": "text", "text": "这是新增的文本内容"}]
    assert shown["usage"] == {
        "calls": 1,
        "model": "gpt-4o",
        "input_tokens": 1000,
        "output_tokens": 500,
        "cost": 0.025,
        "latency_ms": 1500,
    }
    assert "structured_output" not in shown


def test_a_rich_answer_is_a_structured_output_and_attachments_are_files() -> None:
    shown = view(*lines(FIXTURES / "rich-answer.jsonl"))
    value = shown["structured_output"]["value"]
    assert value["ui_hints"]["ui_mode"] == "calendar"
    assert value["key_points"] == ["9:00"]
    # It was not streamed: the answer is the text.
    assert shown["output"][1]["block_list"] == [{"type": "text", "text": "两个会议"}]
    failed = shown["output"][2]
    assert failed["error"] == {"code": "tool_error", "message": "quota"}
    file = {"type": "file", "url": "https://b.example/log.txt", "mime_type": "text/plain"}
    assert failed["block_list"] == [{**file, "bucket": "b", "path": "log.txt"}]


def test_a_run_that_fails_keeps_what_it_had() -> None:
    events = lines(FIXTURES / "error.jsonl")
    shown = view(*events)
    assert shown["error"] == {"code": "run_error", "message": "runtime execution failed"}
    message, asked = shown["output"]
    assert (message["status"], asked["status"]) == ("incomplete", "incomplete")
    assert raw_of(*events) == ["future.event"]


# --- the run -------------------------------------------------------------------------------------


def test_a_run_ends_as_it_says() -> None:
    def outcome(*events: Any) -> tuple[str, str | None]:
        found = ended(START, *events)[1]
        return found.status, found.reason or (found.error.code if found.error else None)

    assert outcome() == ("cut", None)
    assert outcome(FINISHED) == ("completed", None)
    assert outcome(event("run.error")) == ("failed", "run_error")
    assert outcome(event("run.error", message="x", code="boom")) == ("failed", "boom")
    assert outcome(event("run.error", message="x", code="cancelled")) == ("cancelled", "x")
    assert outcome(FINISHED, event("run.error", message="late")) == ("completed", None)
    error = {"code": "cancelled", "message": "stop"}
    cut = text_message("Half", workerAgentOutput={"status": "failed", "error": error})
    assert outcome(*cut, event("run.error", message="stop")) == ("cancelled", "stop")
    assert outcome(*cut, event("run.error", message="other")) == ("failed", "run_error")
    partly = text_message("Half", workerAgentOutput={"status": "partial_success", "error": None})
    assert outcome(*partly, FINISHED) == ("incomplete", "incomplete")
    assert outcome(*partly, *text_message("Whole", ident="n"), FINISHED) == ("completed", None)


def test_a_run_has_its_own_name_and_thread() -> None:
    assert run_facts(json.dumps(START)) == {"task_id": "r", "thread_id": "t"}
    assert run_facts('{"runId":"r","threadId":"r"}') == {"task_id": "r"}
    assert run_facts('{"runId":"r","threadId":7}') == {"task_id": "r"}
    for nameless in ("{}", '{"runId":""}', '{"runId":7}'):
        assert run_facts(nameless) == {}


def test_another_run_is_refused_wherever_it_begins() -> None:
    for events in ([START], [START, FINISHED]):
        with pytest.raises(MalformedEvent, match="one run at a time"):
            ended(*events, event("run.started", "other"))
    nameless = {"type": "run.finished"}
    assert view(nameless, {**START, "runId": None})["status"] == "completed"


def test_what_has_no_name_or_no_sense_is_kept_raw() -> None:
    odd = [
        event("run.gap", reason="trimmed"),
        event("text.start"),
        event("text.delta", messageId="m"),
        event("text.delta", delta="x"),
        event("text.end"),
        event("tool.start", toolCallId="c"),
        event("tool.args", toolName="tool", args={}),
        event("tool.result", toolCallId="c", toolName="tool"),
        event("tool.result", toolAgentOutput={"status": "success"}),
        event("step.start"),
        event("step.finish", stepName="never begun"),
        event("agent.switched", reason="no name"),
        {"type": "step.start", "data": None},
    ]
    assert raw_of(*odd) == [one["type"] for one in odd]
    assert raw_of({"type": 7}, {}) == ["", ""]
    assert raw_of({"type": "x" * 1000}) == ["x" * 200]
    again = event("delta.unknown", piece="a")
    assert raw_of(again, again) == ["delta.unknown"] * 2  # it may be a delta
    for broken in ("{never", "7", "[]"):
        with pytest.raises(MalformedEvent):
            ended(broken)


def test_the_agent_that_speaks_is_read_and_a_repeated_switch_is_not() -> None:
    switch = event("agent.switched", agent="billing", reason="An invoice.")
    shown = view(START, switch, switch, event("agent.switched", agent="refunds"), FINISHED)
    assert [(one["agent"], one.get("reason")) for one in shown["switches"]] == [
        ("billing", "An invoice."),
        ("refunds", None),
    ]


def test_a_step_that_was_cut_is_incomplete_with_those_inside_of_it() -> None:
    events = [event("step.start", stepName=name) for name in ("whole", "inside")]
    events.append(event("step.finish", stepName="whole", status="incomplete"))
    shown = view(START, *events, FINISHED)
    assert [step["status"] for step in shown["steps"]] == ["incomplete", "incomplete"]


def test_a_step_ends_with_those_inside_of_it() -> None:
    names = ("outer", "inner", "innermost")
    events = [event("step.start", stepName=name) for name in names]
    events += [event("step.finish", stepName=name) for name in ("inner", "outer", "outer")]
    shown = view(START, *events, event("step.start", stepName="next"), FINISHED)
    assert [(one["name"], one["depth"]) for one in shown["steps"]] == [
        ("outer", 0),
        ("inner", 1),
        ("innermost", 2),
        ("next", 0),
    ]


# --- messages ------------------------------------------------------------------------------------


def test_messages_may_interleave_and_begin_without_a_start() -> None:
    first, second = text_message("a", "b"), text_message("c", ident="n")
    mixed = [first[1], second[0], second[1], first[2], second[2], first[3], FINISHED]
    assert texts(*mixed) == ["ab", "c"]
    assert texts(event("text.end", messageId="m", workerAgentOutput={"answer": "all"})) == ["all"]
    assert texts(*text_message(), FINISHED) == [""]


def test_a_message_that_an_attempt_left_behind_leaves_the_run() -> None:
    lost = {"status": "failed", "error": {"code": "interrupted", "message": "…"}}
    shown = view(
        *text_message("Half", workerAgentOutput=lost), *text_message("Whole", ident="n"), FINISHED
    )
    assert (shown["status"], shown["attempt"]) == ("completed", 2)
    assert [one["block_list"][0]["text"] for one in shown["output"]] == ["Whole"]


def test_after_a_gap_what_is_known_is_passed_over() -> None:
    gap = event("run.gap", reason="trimmed")
    first, second = text_message("One"), text_message("Two", " more", ident="n")
    stream = [START, *first, *second[:2], gap, START, *first, *second, FINISHED]
    assert texts(*stream) == ["One", "Two more"]
    # All at once, and on from there.
    delta = event("text.delta", messageId="n", delta="Two and more")
    assert texts(*second[:2], gap, second[0], delta, second[-1]) == ["Two and more"]
    # A start that merely comes twice takes nothing away.
    assert texts(*second[:2], second[0], *second[2:], FINISHED) == ["Two more"]


def test_another_text_under_an_id_that_was_used_is_another_message() -> None:
    assert texts(*text_message("One"), *text_message("Two")) == ["One", "Two"]
    assert texts(*text_message("One"), *text_message("One", " more")) == ["One", "One more"]
    assert texts(*text_message("One"), *text_message("O", "ther")) == ["One", "Other"]
    assert texts(*text_message("One"), *text_message("On", "e")) == ["One"]
    late = event("text.delta", messageId="m", delta=" late")
    assert texts(*text_message("One"), late) == ["One", " late"]
    whole = text_message(workerAgentOutput={"answer": "Two"})
    assert texts(*text_message("One"), *whole) == ["One", "Two"]
    assert texts(*text_message("Two"), *whole) == ["Two"]
    assert texts(*text_message("Two"), whole[-1]) == ["Two"]


def test_only_the_first_rich_answer_can_be_the_structured_output() -> None:
    rich = {"answer": "a", "result_type": "error_report", "status": "failed"}
    other = {"answer": "b", "suggested_actions": ["x"]}
    shown = view(
        *text_message("a", workerAgentOutput=rich),
        *text_message("b", ident="n", workerAgentOutput=other),
    )
    assert shown["structured_output"]["value"] == rich
    assert "status" not in shown["output"][0]


def test_usage_is_the_sum_so_far_unless_it_falls() -> None:
    def used(*ends: Json) -> Any:
        stream = [
            one for n, end in enumerate(ends) for one in text_message("x", ident=str(n), **end)
        ]
        return view(*stream, FINISHED).get("usage")

    sums = [{"inputTokens": 5, "outputTokens": 2, "model": "m"}]
    sums.append({"inputTokens": 9, "outputTokens": 4, "model": "m"})
    counts = {"input_tokens": 9, "output_tokens": 4, "model": "m"}
    assert used(*sums) == {"calls": 2, **counts}
    assert used(*sums, sums[-1]) == {"calls": 2, **counts}
    assert used(*reversed(sums)) == {"calls": 2, **counts, "input_tokens": 14, "output_tokens": 6}
    assert used({"inputTokens": 5, "cost": 0.5, "latencyMs": 7}) == {
        "calls": 1,
        "input_tokens": 5,
        "output_tokens": 0,
        "cost": 0.5,
        "latency_ms": 7,
    }
    for nothing in ({"inputTokens": None}, {"inputTokens": -1, "cost": "x"}, {"outputTokens": 1.5}):
        assert used(nothing) is None
    assert used({"inputTokens": 1, "model": 7}) == {
        "calls": 1,
        "input_tokens": 1,
        "output_tokens": 0,
    }


# --- tools ---------------------------------------------------------------------------------------


def test_a_call_is_whole_when_its_arguments_have_come() -> None:
    begun = [event("tool.start", **call()), event("tool.args", **call(args={"a": 1}))]
    whole = {**CALLED, "arguments": '{"a":1}'}
    assert output(*begun) == [whole]
    assert output(*begun[1:], event("tool.end", **call()), begun[1], begun[0]) == [whole]
    cut = {**CALLED, "arguments": "", "status": "incomplete"}
    nothing = event("tool.args", **call(args=None))
    assert output(begun[0], nothing, event("tool.end", **call()), FINISHED) == [cut]


def test_a_result_shows_that_its_call_was_made() -> None:
    answer = {"type": "tool_result", "call_id": "c", "block_list": [TEXT]}
    whole = {**CALLED, "arguments": '{"a":1}'}
    assert output(result()) == [whole, answer]
    nameless = result()
    nameless["data"] |= {"toolCallId": None, "toolName": ""}
    assert output(nameless) == [whole, answer]
    assert output(result(), result(result_summary="again")) == [whole, answer]
    unfinished = [event("tool.start", **call()), result(tool_call_args=None)]
    assert output(*unfinished) == [{**CALLED, "arguments": ""}, answer]


def test_a_result_holds_its_summary_its_files_and_its_hints() -> None:
    hints = {"ui_mode": "map"}
    files = [{"url": "/f"}, {"url": "/g", "bucket": "b", "path": 7, "mime_type": "a/b"}, 7, {}]
    answer = output(result(result_summary=None, attachments=files, ui_hints=hints))[1]
    assert answer["block_list"] == [
        {"type": "file", "url": "/f"},
        {"type": "file", "url": "/g", "mime_type": "a/b", "bucket": "b"},
        {"type": "data", "data": hints, "name": "ui_hints"},
    ]
    failed = output(result(status="failed", result_summary=""))[1]
    assert failed["error"] == {"code": "tool_error", "message": ""}


# --- whole streams -------------------------------------------------------------------------------

STREAMS = recordings("run")
TRACES = golden("run")


@pytest.mark.long(always=True)
@pytest.mark.parametrize(
    "path", [*STREAMS, *TRACES], ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_a_run_that_is_cut_anywhere_ends_legally(path: Path) -> None:
    events = lines(path)
    for count in range(len(events)):
        book, outcome = ended(*events[:count])
        assert outcome.status == "cut"
        check_readable(book)


POOL = [json.loads(one) for path in [*STREAMS, *TRACES] for one in lines(path)]
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, 0, -1, 2**53, "", "x", "m", [], {}, True, 1.5, {"a": [1]}]
)


@st.composite
def spoilt(draw: st.DrawFn) -> list[Json]:
    events = [dict(one) for one in draw(st.lists(st.sampled_from(POOL), max_size=25))]
    for one in events:
        one["runId"] = "r"
        data: Json = dict(one["data"])
        is_spoilt = draw(st.booleans())
        if data and is_spoilt:
            data[draw(st.sampled_from(sorted(data)))] = draw(ODD)
        one["data"] = data
    return events


@settings(suppress_health_check=list(HealthCheck))
@given(spoilt())
def test_no_stream_breaks_the_reader(events: list[Json]) -> None:
    check_breaks_nothing(RunEvents, events)
