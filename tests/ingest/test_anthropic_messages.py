"""Recorded streams of Anthropic's, rules over many streams, errors and limits.

Single streams and their objects are in `cases/anthropic-messages`.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tailrace.core import events as ev
from tailrace.core.codec import encode_event
from tailrace.core.errors import MalformedEvent, StreamError
from tailrace.core.items import Executor
from tailrace.ingest.anthropic_messages.reader import AnthropicMessages
from tailrace.ingest.base import Notebook, Outcome
from tests.ingest.streams import FIXTURES, check_readable, lines, shown

Json = dict[str, Any]
START: Json = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "model": "claude-x",
        "content": [],
        "usage": {"input_tokens": 10, "output_tokens": 1},
    },
}
STOP: Json = {"type": "message_stop"}


def ended(reason: Any, **more: Any) -> list[Json]:
    delta = {"stop_reason": reason, **more}
    return [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}}, STOP]


def begun(index: Any, **block: Any) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def more(index: Any, kind: Any, **delta: Any) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}


def stopped(index: Any) -> Json:
    return {"type": "content_block_stop", "index": index}


def block(index: Any, *deltas: Json, **start: Any) -> list[Json]:
    return [begun(index, **start), *deltas, stopped(index)]


def read(*events: Json) -> tuple[Json, Outcome]:
    """The object after these events, checked by the strict fold and by its own bytes."""
    book = Notebook()
    ingest = AnthropicMessages(book)
    for event in events:
        ingest.feed(json.dumps(event))
    outcome = ingest.end()
    assert not any(node.is_open for node in book.node.items.values())
    book.conclude(outcome)
    whole = shown(book)
    check_readable(book)
    return whole, outcome


def read_fixture(name: str) -> tuple[Json, Outcome]:
    path = FIXTURES / "anthropic-messages" / f"{name}.jsonl"
    return read(*(json.loads(line) for line in lines(path)))


def raw_events(*events: Json) -> list[str]:
    """The types of the events that were kept raw."""
    book = Notebook()
    ingest = AnthropicMessages(book)
    for event in events:
        ingest.feed(json.dumps(event))
    ingest.end()
    kept = [(event, private) for event, private in book.take() if hasattr(event, "event_type")]
    for _, private in kept:
        assert private is not None
        assert private.raw in events
    return [event.event_type for event, _ in kept if hasattr(event, "event_type")]


# --- what things become ------------------------------------------------------------------------


def test_each_kind_of_block_becomes_its_item() -> None:
    whole, outcome = read_fixture("every-block")
    assert outcome == Outcome(status="completed")
    kinds = [item["type"] for item in whole["output"]]
    assert kinds == [
        *["reasoning"] * 3,
        "message",
        *["tool_call", "tool_result"] * 3,
        *["raw"] * 2,
        "message",
        *["tool_call"] * 2,
    ]
    thinking, redacted, omitted, cited, search, found, _, refused, draw, drawn = whole["output"][
        :10
    ]
    assert thinking["summary"] == [{"type": "text", "text": "Hmm, naïve 🤔"}]
    assert thinking["private"]["signature"] == "c2VhbGVk"
    assert (redacted["summary"], omitted["summary"]) == ([], [])
    assert redacted["private"]["encrypted_content"] == "b3BhcXVl"
    assert omitted["private"]["raw"]["display"] == "omitted"
    assert [one["type"] for one in cited["block_list"][1]["annotations"]] == [
        *["raw"] * 3,
        *["url_citation"] * 2,
    ]
    facts = [search[name] for name in ("kind", "name", "executor", "call_id")]
    assert facts == ["web_search", "web_search", "provider", "srvtoolu_1"]
    assert found["block_list"] == [
        {
            "type": "data",
            "name": "web_search_result",
            "data": {
                "type": "web_search_result",
                "title": "Wet",
                "url": "https://example.org/",
                "page_age": None,
            },
        }
    ]
    assert refused["error"]["code"] == "max_uses_exceeded"
    assert (draw["kind"], draw["server_label"]) == ("mcp", "paint")
    assert drawn["status"] == "failed"
    assert [one["type"] for one in drawn["block_list"]] == ["text", "image", "data"]
    soak, dry = whole["output"][-2:]
    assert soak["arguments"] == '{"id": 123456789012345678901}'
    assert (dry["arguments"], dry["private"]["raw"]["caller"]) == ("{}", {"type": "direct"})


def test_usage_is_counted_once_and_includes_the_cached_input() -> None:
    whole, _ = read_fixture("every-block")
    assert whole["usage"] == {
        "calls": 1,
        "input_tokens": 117,
        "output_tokens": 90,
        "cached_input_tokens": 100,
        "cache_write_tokens": 5,
        "reasoning_tokens": 40,
        "model": "claude-x",
        "service_tier": "priority",
    }
    assert whole["private"]["provider"] == {
        "api": "anthropic_messages",
        "response_id": "msg_1",
        "model": "claude-x",
        "container": "container_1",
    }
    raw = whole["private"]["raw"]
    assert raw["usage"]["server_tool_use"] == {"web_search_requests": 2}
    assert raw["context_management"] == {"applied_edits": []}


def counted(*iterations: Any, **usage: Any) -> list[Json]:
    """The usage of each call inside of one message, last the message's own."""
    usage = {"input_tokens": 10, "output_tokens": 7, "iterations": list(iterations), **usage}
    book = Notebook()
    ingest = AnthropicMessages(book)
    for event in (START, *HELLO, {"type": "message_delta", "delta": {}, "usage": usage}, STOP):
        ingest.feed(json.dumps(event))
    ingest.end()
    written = [event for event, _ in book.take() if isinstance(event, ev.TaskUsage)]
    return [json.loads(encode_event(event))["usage"] for event in written]


def test_calls_that_the_totals_of_a_message_leave_out_are_counted_by_their_own_model() -> None:
    counts = {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 4}
    found = counted(
        {"type": "compaction", **counts, "cache_creation_input_tokens": 8},
        {"type": "advisor_message", "model": "claude-wise", **counts},
        {"type": "message", **counts},
        {"type": "fallback_message", "model": "claude-y", **counts},
    )
    ours = {"input_tokens": 5, "output_tokens": 2, "cached_input_tokens": 4, "latency_ms": 0.0}
    model = found[-1]["model"]
    cached = {"input_tokens": 13, "cache_write_tokens": 8}
    assert found == [
        {**ours, **cached, "model": model},
        {**ours, "model": "claude-wise"},
        {"model": model, "input_tokens": 10, "output_tokens": 7},
    ]


def test_iterations_of_the_wrong_type_are_not_counted() -> None:
    assert len(counted(7, "compaction", {"type": "compaction", "input_tokens": -1})) == 2
    assert len(counted(iterations={"type": "compaction"})) == 1


def test_a_cost_that_a_gateway_reports_is_the_cost_of_all_iterations() -> None:
    found = counted({"type": "compaction", "input_tokens": 5}, cost=0.5)
    assert [one["cost"] for one in found] == [0.0, 0.5]


def test_the_end_of_a_chat_stream_is_ignored() -> None:
    ingest = AnthropicMessages(Notebook())
    for data in (json.dumps(START), json.dumps(STOP), "[DONE]", b" [DONE]"):
        ingest.feed(data)
    assert ingest.end().status == "completed"


def test_unknown_events_and_deltas_are_kept_raw() -> None:
    path = FIXTURES / "anthropic-messages" / "every-block.jsonl"
    kept = raw_events(*(json.loads(line) for line in lines(path)))
    assert kept == ["content_block_delta", "weather_report"]


def test_a_fallback_names_the_model_that_is_paid() -> None:
    whole, _ = read_fixture("thought-text-call")
    assert whole["usage"]["model"] == "claude-y"


def test_the_executor_of_a_call_is_asked_by_name() -> None:
    def browser_looks(name: str) -> Executor:
        return "client" if name == "look" else "server"

    book = Notebook()
    ingest = AnthropicMessages(book, browser_looks)
    for event in [START, *block(0, type="tool_use", id="t1", name="look", input={"at": 1})]:
        ingest.feed(json.dumps(event).encode())
    assert shown(book)["output"][0]["executor"] == "client"


def answered_later(*first: Json) -> Notebook:
    """The result of call s1 comes in an answer of its own, after these events."""
    book = Notebook()
    result = block(0, type="code_execution_tool_result", tool_use_id="s1", content="done")
    for events in (first, (*result, *ended("end_turn"))):
        ingest = AnthropicMessages(book)
        for event in (START, *events):
            ingest.feed(json.dumps(event))
        ingest.end()
    return book


def test_code_that_called_our_tool_is_answered_in_the_next_model_call() -> None:
    code = block(0, type="server_tool_use", id="s1", name="code_execution", input={"code": "x"})
    book = answered_later(*code, *ended("tool_use"))
    assert [item["type"] for item in shown(book)["output"]] == ["tool_call", "tool_result"]
    assert book.waiting_call("s1") is None


def test_the_result_of_a_call_that_broke_off_is_kept_as_it_came() -> None:
    code = block(0, type="server_tool_use", id="s1", name="code_execution", input={})
    book = answered_later(code[0])
    assert [item["type"] for item in shown(book)["output"]] == ["tool_call", "raw"]


# --- results ------------------------------------------------------------------------------------


def test_a_call_id_that_is_used_twice_is_kept_privately() -> None:
    whole, outcome = read_fixture("two-calls-one-id")
    assert outcome == Outcome(status="incomplete", reason="pause_turn")
    first, second, result, again = whole["output"]
    assert first["call_id"] == "srvtoolu_1" != second["call_id"] == result["call_id"]
    assert second["private"]["provider"]["call_id"] == "srvtoolu_1"
    assert result["private"]["provider"]["call_id"] == "srvtoolu_1"
    assert "call_id" not in first["private"]["provider"]
    assert again["type"] == "raw"


# --- how a message ends ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("end_turn", Outcome(status="completed")),
        ("tool_use", Outcome(status="completed")),
        ("stop_sequence", Outcome(status="completed")),
        (None, Outcome(status="completed")),
        (7, Outcome(status="completed")),
        ("max_tokens", Outcome(status="incomplete", reason="max_output_tokens")),
        ("pause_turn", Outcome(status="incomplete", reason="pause_turn")),
        ("compaction", Outcome(status="incomplete", reason="compaction")),
        ("refusal", Outcome(status="incomplete", reason="refusal")),
        (
            "model_context_window_exceeded",
            Outcome(status="incomplete", reason="model_context_window_exceeded"),
        ),
        ("bored", Outcome(status="incomplete", reason="bored")),
    ],
)
def test_a_stop_reason_says_how_the_call_ended(reason: Any, outcome: Outcome) -> None:
    assert read(START, *ended(reason))[1] == outcome


def test_an_error_fails_the_call_and_keeps_what_came() -> None:
    whole, outcome = read_fixture("overloaded")
    assert outcome.status == "failed"
    assert whole["error"] == {"code": "overloaded_error", "message": "Overloaded"}
    (message,) = whole["output"]
    assert (message["status"], message["block_list"][0]["text"]) == ("incomplete", "Once upon")


def test_a_call_that_ran_out_of_tokens_is_never_completed() -> None:
    whole, outcome = read_fixture("max-tokens-in-a-call")
    assert outcome == Outcome(status="incomplete", reason="max_output_tokens")
    assert [item["status"] for item in whole["output"]] == ["incomplete"]


def test_a_call_that_ran_out_of_tokens_before_its_arguments_is_incomplete() -> None:
    whole, _ = read_fixture("max-tokens-before-arguments")
    first, second = whole["output"]
    assert first["arguments"] == "{}"
    assert "status" not in first
    assert second["status"] == "incomplete"


@pytest.mark.parametrize("text", ['{"a":', "[]", "5", "null", "{}{}", " ", "[" * 5000])
def test_arguments_that_are_not_an_object_make_no_call(text: str) -> None:
    piece = more(0, "input_json_delta", partial_json=text)
    call = block(0, piece, type="tool_use", id="t1", name="look", input={})
    whole, outcome = read(START, *call, *ended("tool_use"))
    assert whole["output"][0]["status"] == "incomplete"
    assert outcome == Outcome(status="cut", reason="incomplete_call")


def test_blocks_that_overlap_are_kept_apart_by_their_index() -> None:
    whole, outcome = read_fixture("overlapping-blocks")
    assert outcome.status == "completed"
    message, *calls = whole["output"]
    assert message["block_list"] == [{"type": "text", "text": "Both at once."}]
    assert [call["arguments"] for call in calls] == ["{}", "{}"]
    assert all("status" not in item for item in whole["output"])


def test_an_answer_without_streaming_is_read() -> None:
    whole, outcome = read_fixture("whole-message")
    assert outcome.status == "completed"
    kinds = [item["type"] for item in whole["output"]]
    assert kinds == ["reasoning", "message", "tool_call"]
    assert whole["output"][2]["arguments"] == '{"at":"it"}'


# --- broken streams ----------------------------------------------------------------------------

HELLO = block(0, more(0, "text_delta", text="Hello"), type="text", text="")


def test_an_empty_stream_is_a_cut() -> None:
    whole, outcome = read()
    assert outcome == Outcome(status="cut")
    assert "usage" not in whole


def test_the_end_may_come_twice() -> None:
    ingest = AnthropicMessages(Notebook())
    ingest.feed(json.dumps(START))
    assert ingest.end() == ingest.end() == Outcome(status="cut")


def test_blocks_without_an_index_follow_each_other() -> None:
    odd: list[Any] = [None, "0", 1.5, True, [0], {}]
    for junk in odd:
        events = [{**event, "index": junk} for event in HELLO]
        whole, _ = read(START, *events, *ended("end_turn"))
        assert whole["output"][0]["block_list"] == [{"type": "text", "text": "Hello"}]


def test_deltas_of_the_wrong_kind_or_shape_are_kept_raw() -> None:
    call: Json = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    cases: list[tuple[Json, list[tuple[Any, Json]]]] = [
        ({"type": "text"}, [("thinking_delta", {"thinking": 5}), ("text_delta", {"text": 5})]),
        ({"type": "text"}, [("citations_delta", {}), (None, {}), ("signature_delta", {})]),
        ({"type": "thinking"}, [("text_delta", {"text": ""}), ("signature_delta", {})]),
        ({"type": "thinking"}, [("thinking_delta", {"thinking": ["x"]})]),
        ({"type": "redacted_thinking", "data": "x"}, [("input_json_delta", {"text": "x"})]),
        (call, [("citations_delta", {}), ("input_json_delta", {"partial_json": {}})]),
        ({"type": "mcp_tool_result"}, [("text_delta", {"text": None})]),
    ]
    for start, deltas in cases:
        events = [more(0, kind, **delta) for kind, delta in deltas]
        no_delta = {"type": "content_block_delta", "index": 0, "delta": "x"}
        kept = raw_events(START, *block(0, *events, no_delta, **start), *ended("end_turn"))
        assert kept == ["content_block_delta"] * (len(deltas) + 1)


@pytest.mark.parametrize("data", ["", "{", "[]", "5", '"text"', "{}", '{"type":5}', b"\xff"])
def test_data_that_is_not_an_event_is_refused_and_changes_nothing(data: str | bytes) -> None:
    book = Notebook()
    ingest = AnthropicMessages(book)
    ingest.feed(json.dumps(START))
    ingest.feed(json.dumps(begun(0, type="text")))
    before = book.state.sequence_number
    with pytest.raises(MalformedEvent):
        ingest.feed(data)
    assert book.state.sequence_number == before


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\0b", "a\ufffdb"), ("a\ud83d", "a\ufffd"), ("long" * 20_000, "long" * 20_000)],
)
def test_text_that_no_database_holds_is_mended(text: str, shown: str) -> None:
    whole, _ = read(begun(0, type="text"), more(0, "text_delta", text=text, n=2**63), stopped(0))
    assert whole["output"][0]["block_list"] == [{"type": "text", "text": shown}]


def test_values_that_nest_too_deep_are_refused() -> None:
    def nested(depth: int) -> Any:
        value: Any = "deep"
        for _ in range(depth):
            value = [value]
        return value

    citing = more(0, "citations_delta", citation={"url": nested(80)})
    call = block(1, type="server_tool_use", id="s", name="x", input={"deep": nested(80)})
    result = block(2, type="x_tool_result", tool_use_id="s", content=[{"deep": nested(80)}])
    raw = block(3, type="new", deep=nested(80))
    whole, outcome = read(
        START, *block(0, citing, type="text"), *call, *result, *raw, *ended("end_turn")
    )
    assert len(whole["output"]) == 4
    assert outcome.status == "completed"
    ingest = AnthropicMessages(Notebook())
    with pytest.raises(StreamError):
        ingest.feed(json.dumps(begun(0, type="new", deep=nested(90))))
    piece = json.dumps({"deep": nested(95)})
    arguments = more(0, "input_json_delta", partial_json=piece)
    whole, _ = read(START, *block(0, arguments, type="mcp_tool_use", id="s", name="x", input={}))
    assert whole["output"][0]["arguments"] == piece
    assert "input" not in whole["output"][0]["private"]["raw"]


@pytest.mark.growth
@pytest.mark.parametrize(
    "kind", ["text", "cited", "call", "raw", "starts", "blocks", "calls", "stray"]
)
def test_time_grows_no_faster_than_the_stream(kind: str) -> None:
    def event(n: int) -> Json:
        return {
            "text": more(0, "text_delta", text="[^1] and so on"),
            "cited": more(0, "citations_delta", citation={"url": "https://a.example"}),
            "call": more(0, "input_json_delta", partial_json="[[{"),
            "raw": more(0, "citations_delta", citation={}),
            "starts": begun(0, type="tool_use", id="t", name="look", input={}, n=n),
            "blocks": begun(n, type="text", text="x"),
            "calls": begun(n, type="tool_use", id=f"t{n}", name="look", input={}),
            "stray": stopped(5),
        }[kind]

    def events(count: int) -> list[bytes]:
        start = {
            "text": begun(0, type="text"),
            "cited": begun(0, type="text"),
            "call": begun(0, type="tool_use", id="t", name="look", input={}),
        }.get(kind, begun(0, type="odd"))
        stream = [START, start, *(event(n) for n in range(count))]
        return [json.dumps(one).encode() for one in stream]

    def seconds(stream: list[bytes]) -> float:
        ingest = AnthropicMessages(Notebook())
        began = time.process_time()
        for one in stream:
            ingest.feed(one)
        ingest.end()
        return time.process_time() - began

    # Of several attempts the best one: whatever else the machine does only adds to it.
    small, large = events(250), events(3_000)
    short, long = (min(seconds(stream) for _ in range(2)) for stream in (small, large))
    assert long < 12 * short * 4  # 12 times as much takes 144 times as long if it is quadratic
