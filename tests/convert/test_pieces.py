"""However a stream is framed and cut, the same comes out."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.convert import Transcoder, target_names
from tailrace.core import sse
from tailrace.core.errors import MalformedEvent, StreamTooLarge
from tests.convert.streams import as_sse, converted, ended, read, source_of
from tests.ingest.streams import FIXTURES, lines

ANTHROPIC = FIXTURES / "anthropic-messages" / "thought-text-call.jsonl"
CHAT = FIXTURES / "chat-completions" / "vllm-reasoning-and-calls.jsonl"
RESPONSES = FIXTURES / "openai-responses" / "thinking-and-tools.jsonl"
SOURCES = [
    ("anthropic-messages", ANTHROPIC),
    ("openai-chat", CHAT),
    ("openai-responses", RESPONSES),
]


def in_pieces(source: bytes, cuts: list[int], from_: str, to: str) -> bytes:
    transcoder = Transcoder(from_, to)
    places = [0, *sorted(cuts), len(source)]
    out = [transcoder.feed(source[a:b]) for a, b in pairwise(places)]
    return b"".join(out) + transcoder.end()


@given(st.data())
def test_any_split_of_the_bytes_gives_the_same_output(data: st.DataObject) -> None:
    from_, path = data.draw(st.sampled_from(SOURCES))
    to = data.draw(st.sampled_from(target_names()))
    events = lines(path)
    source = data.draw(
        st.sampled_from(
            [
                as_sse(events),
                b"\xef\xbb\xbf\n\n" + as_sse(events).replace(b"\n", b"\r\n"),
                "\n".join(events).encode(),
                as_sse([*events[:4], "{broken", *events]),
            ]
        )
    )
    cuts = data.draw(st.lists(st.integers(0, len(source)), max_size=30))
    assert in_pieces(source, cuts, from_, to) == converted(source, from_, to)


@pytest.mark.parametrize(("from_", "path"), SOURCES)
def test_one_byte_at_a_time_gives_the_same_output(from_: str, path: Path) -> None:
    source = source_of(path)
    every = list(range(1, len(source)))
    assert in_pieces(source, every, from_, "task") == converted(source, from_, "task")


@pytest.mark.parametrize(("from_", "path"), SOURCES)
def test_events_and_json_lines_are_one_stream(from_: str, path: Path) -> None:
    events = lines(path)
    whole = converted(source_of(path), from_, "jsonl")
    text = "\n".join(events).encode()
    for source in (text, text + b"\n", text.replace(b"\n", b"\r\n\r\n"), b"\xef\xbb\xbf" + text):
        assert converted(source, from_, "jsonl") == whole
        assert converted(source, from_, "jsonl", jsonl=True) == whole
    assert converted(b": hello\n\nretry: 5\n\n" + as_sse(events), from_, "jsonl") == whole


@pytest.mark.parametrize(("from_", "path"), SOURCES)
def test_a_last_line_break_may_be_missing_but_half_an_event_is_an_error(
    from_: str, path: Path
) -> None:
    source = source_of(path)
    whole = converted(source, from_, "jsonl")
    for end in (source[:-1], source[:-2], source[:-1] + b"\r"):
        assert converted(end, from_, "jsonl") == whole
    for half in (source[:-3], "\n".join(lines(path)).encode()[:-1]):
        assert half
        without_last = converted(as_sse(lines(path)[:-1]), from_, "jsonl")
        assert converted(half, from_, "jsonl") == without_last


def test_an_answer_that_did_not_stream_may_be_laid_out_over_lines() -> None:
    answer = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"content": "Hi."}, "finish_reason": "stop"}],
    }
    for text in (json.dumps(answer), json.dumps(answer, indent=2), json.dumps(answer, indent=1)):
        shown = read("json", converted(text.encode(), "openai-chat", "json"))
        assert shown["status"] == "completed"
        assert shown["output"][0]["block_list"] == [{"type": "text", "text": "Hi."}]


def test_input_without_json_is_an_error() -> None:
    for text in (b"{\nhello\n", b"{\n", b"[\n1"):
        stream, transcoder = ended(text, "openai-chat", "json")
        assert isinstance(transcoder.error, MalformedEvent)
        assert read("json", stream)["status"] == "failed"


def test_a_stop_may_be_the_last_line_without_a_break() -> None:
    for source in (b"[DONE]", b"data: [DONE]"):
        stream, _ = ended(source, "openai-chat", "json")
        assert read("json", stream)["reason"] == "cut"


def test_an_html_page_is_an_empty_stream() -> None:
    stream, transcoder = ended(b"<html>\n<body>502\n\n", "openai-chat", "json")
    assert read("json", stream)["reason"] == "cut"
    assert transcoder.error is not None


def test_empty_data_is_a_sign_of_life() -> None:
    source = source_of(CHAT)
    alive = source.replace(b"\n\n", b"\n\ndata:\n\ndata: \n\n")
    assert converted(alive, "openai-chat", "task") == converted(source, "openai-chat", "task")


def test_a_line_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_PARSED_BYTES", 1000)
    for start in (b'{"a":"', b'{"choices":[]}\n{"a":"', b"{\n"):
        transcoder = Transcoder("openai-chat", "task")
        out = transcoder.feed(start)
        for _ in range(20):
            out += transcoder.feed(b"x" * 100)
        assert isinstance(transcoder.error, StreamTooLarge)
        assert read("task", out)["status"] == "failed"


def test_an_event_s_frames_are_given_out_with_its_last_byte() -> None:
    for to in ("task", "run", "openai-responses", "openai-chat", "vercel-ui", "jsonl"):
        for framed in (as_sse, lambda events: "".join(f"{one}\n" for one in events).encode()):
            transcoder = Transcoder("openai-chat", to)
            piece = '{"choices":[{"index":0,"delta":{"content":"%s"}}]}'
            transcoder.feed(framed([piece % "first"]))
            assert transcoder.feed(framed([piece % "second"])[:-1]) == b""
            assert b"second" in transcoder.feed(b"\n")
