"""Every stream of a provider, whole, cut or broken, is a legal stream of every target."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.convert import Transcoder, target_names
from tailrace.core.errors import MalformedEvent, StreamCut, StreamError, StreamTooLarge
from tests.convert.streams import RECORDINGS, as_sse, converted, ended, ids, read, source_of
from tests.effort import CUTS, sample
from tests.ingest.streams import cut_points, lines, somewhere

every_recording = pytest.mark.parametrize("recording", sample(RECORDINGS, 30), ids=ids)


def test_every_target_has_a_strict_reader() -> None:
    """It reads a short answer, and fails if the answer lacks its end."""
    source = as_sse([chat_text("Hi"), '{"choices":[{"delta":{},"finish_reason":"stop"}]}'])
    for to in target_names():
        whole = converted(source, "openai-chat", to)
        read(to, whole)
        if to not in ("task", "jsonl"):  # the log of a run that goes on is legal
            first = whole.find(b"\n\n", len(whole) // 2) + 2
            with pytest.raises((AssertionError, json.JSONDecodeError)):
                read(to, whole[:first] if to != "json" else whole[:-2])


@every_recording
def test_a_whole_stream_is_legal_in_every_target(recording: tuple[str, Path]) -> None:
    from_, path = recording
    source = source_of(path)
    view = read("json", converted(source, from_, "json"))
    for to in target_names():
        shown = read(to, converted(source, from_, to))
        if to in ("task", "jsonl"):
            assert shown == view


@every_recording
def test_a_stream_that_is_cut_ends_legally_in_every_target(recording: tuple[str, Path]) -> None:
    from_, path = recording
    events = lines(path)
    for count in sample(cut_points(events), CUTS // 2):
        source = as_sse(events[:count])
        for to in target_names():
            read(to, converted(source, from_, to))
    cut = source_of(path)[: somewhere(7, len(source_of(path)))]
    for to in target_names():
        read(to, converted(cut, from_, to))


@every_recording
def test_a_stream_that_turns_into_garbage_ends_legally_in_every_target(
    recording: tuple[str, Path],
) -> None:
    from_, path = recording
    events = lines(path)
    broken = as_sse([*events[: len(events) // 2], "{never", *events])
    for to in target_names():
        stream, transcoder = ended(broken, from_, to)
        read(to, stream)
        assert isinstance(transcoder.error, MalformedEvent)
        assert transcoder.is_over
        assert transcoder.feed(b"data: {}\n\n") == transcoder.end() == b""


def test_a_cut_and_a_broken_stream_are_different_errors() -> None:
    chunk = '{"choices":[{"index":0,"delta":{"content":"Hi"}}]}'
    cut, transcoder = ended(as_sse([chunk]), "openai-chat", "json")
    assert read("json", cut)["status"] == "incomplete"
    assert read("json", cut)["reason"] == "cut"
    assert isinstance(transcoder.error, StreamCut)
    broken, _ = ended(as_sse([chunk, "<html>"]), "openai-chat", "json")
    assert read("json", broken)["status"] == "failed"
    assert read("json", broken)["error"]["code"] == "malformed_event"
    assert read("json", broken)["output"][0]["block_list"] == [{"type": "text", "text": "Hi"}]


def test_a_complete_answer_stays_whatever_follows() -> None:
    events = [
        '{"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}',
        "garbage",
    ]
    stream, transcoder = ended(as_sse(events), "openai-chat", "json")
    assert read("json", stream)["status"] == "completed"
    assert isinstance(transcoder.error, MalformedEvent)


def test_a_failure_that_the_provider_reports_is_converted_and_no_error_of_ours() -> None:
    failed = '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    stream, transcoder = ended(as_sse([failed]), "anthropic-messages", "openai-responses")
    response = read("openai-responses", stream)
    assert response["status"] == "failed"
    assert response["error"]["type"] == "overloaded_error"
    assert transcoder.error is None


def test_an_empty_stream_is_a_cut_one() -> None:
    for to in target_names():
        stream, transcoder = ended(b"", "anthropic-messages", to)
        read(to, stream)
        assert isinstance(transcoder.error, StreamCut)


ASKED = (
    '{"type":"response.output_item.done","output_index":0,"item":{"type":"mcp_approval_request",'
    '"id":"mcpr_1","name":"mail","arguments":"{}","server_label":"post"}}'
)
APPROVAL = [
    '{"type":"response.created","response":{"id":"resp_1","model":"m","status":"in_progress"}}',
    ASKED,
    '{"type":"response.completed","response":{"id":"resp_1","status":"completed"}}',
]


def test_a_call_that_waits_for_an_approval_leaves_the_run_waiting() -> None:
    source = as_sse(APPROVAL)
    for to in ("task", "jsonl", "json"):
        stream, transcoder = ended(source, "openai-responses", to)
        shown = read(to, stream)
        assert shown["status"] == "input_required"
        assert shown["requests"][0]["kind"] == "approval"
        assert transcoder.error is None
    response = read("openai-responses", converted(source, "openai-responses", "openai-responses"))
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    parts = read("vercel-ui", converted(source, "openai-responses", "vercel-ui")).parts
    assert [part.get("state") for part in parts] == [None, "approval-requested"]
    message = read("openai-chat", converted(source, "openai-responses", "openai-chat"))
    assert message.error["type"] == "input_required"


def test_calls_are_for_the_target_s_reader_to_carry_out() -> None:
    call = (
        '{"choices":[{"index":0,"finish_reason":"tool_calls","delta":{"tool_calls":[{"index":0,'
        '"id":"call_1","function":{"name":"sun","arguments":"{\\"city\\":\\"Paris\\"}"}}]}}]}'
    )
    source = as_sse([call])
    response = read("openai-responses", converted(source, "openai-chat", "openai-responses"))
    assert response["output"][0]["type"] == "function_call"
    [_, part] = read("vercel-ui", converted(source, "openai-chat", "vercel-ui")).parts
    assert (part["state"], part["input"]) == ("input-available", {"city": "Paris"})
    [made] = read("openai-chat", converted(source, "openai-chat", "openai-chat")).calls
    assert (made["id"], made["name"]) == ("call_1", "sun")
    assert json.loads(made["arguments"]) == {"city": "Paris"}


def test_the_first_event_says_who_answers_and_since_when() -> None:
    for from_, event, facts in (
        ("openai-chat", '{"model":"m","created":17}', ("m", 17)),
        ("openai-responses", '{"type":"x","response":{"model":"m","created_at":17}}', ("m", 17)),
        ("anthropic-messages", '{"type":"message_start","message":{"model":"m"}}', ("m", None)),
        ("openai-chat", '{"model":"","created":-1}', (None, None)),
        ("openai-chat", '{"model":7,"created":"noon"}', (None, None)),
    ):
        shown = read("json", converted(as_sse([event]), from_, "json"))
        assert (shown.get("model"), shown.get("created_at")) == facts


def test_a_stop_ends_every_source_at_once() -> None:
    for from_ in ("openai-chat", "openai-responses", "anthropic-messages"):
        transcoder = Transcoder(from_, "json")
        stream = transcoder.feed(b"data: [DONE]\n\ndata: {nonsense\n\n")
        assert transcoder.is_over
        assert read("json", stream)["status"] == "incomplete"
        assert isinstance(transcoder.error, StreamCut)


def cited_too_much(*, stops: bool) -> bytes:
    """A text whose pieces and citations pass one by one, but not together."""
    citation = {"type": "web_search_result_location", "url": "u", "title": "t" * 6_000_000}
    start = {"type": "content_block_start", "index": 0}
    delta = {"type": "content_block_delta", "index": 0}
    events = [
        {"type": "message_start", "message": {"id": "m"}},
        {**start, "content_block": {"type": "text", "text": "Hello."}},
        *[{**delta, "delta": {"type": "citations_delta", "citation": citation}}] * 3,
        *([{"type": "content_block_stop", "index": 0}] if stops else []),
    ]
    return as_sse([json.dumps(event) for event in events])


def grown_too_much() -> bytes:
    return as_sse([chat_text("x" * 6_000_000)] * 3)


def chat_text(text: str) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]})


@pytest.mark.parametrize(
    ("from_", "source", "error"),
    [
        ("openai-chat", grown_too_much, StreamTooLarge),
        ("anthropic-messages", lambda: cited_too_much(stops=True), StreamTooLarge),
        ("anthropic-messages", lambda: cited_too_much(stops=False), StreamCut),
    ],
    ids=["text", "citations", "citations of a cut text"],
)
def test_what_outgrows_every_event_ends_the_target(
    from_: str, source: Callable[[], bytes], error: type[StreamError]
) -> None:
    too_large = source()
    for to in {"task", *sample(target_names(), 3)}:
        stream, transcoder = ended(too_large, from_, to)
        assert transcoder.error is not None
        if to not in ("task", "jsonl"):
            read(to, stream)
            continue
        # A reader of our events skips the event that is too large.
        assert isinstance(transcoder.error, error)
        shown = read("json", converted(stream, "task", "json"))
        assert shown["status"] in ("failed", "incomplete")
        assert shown["output"][0]["status"] == "incomplete"
        assert shown["output"][0]["block_list"][0]["text"][:5] in ("Hello", "xxxxx")
