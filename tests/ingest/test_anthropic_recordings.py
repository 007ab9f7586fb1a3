"""Anthropic's streams, recorded and written: all content is read once, however it is cut."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest
from anthropic.lib.streaming import _beta_messages
from pydantic import BaseModel

from tailrace.core import events as ev
from tailrace.core.run_object import client_view
from tailrace.ingest.anthropic_messages.reader import AnthropicMessages
from tailrace.ingest.base import Notebook
from tests.effort import CUTS, sample
from tests.ingest.anthropic_oracle import (
    StreamedMessage,
    beside_of,
    leaves,
    messages_of,
    sealed,
    sent_back,
    unshown,
)
from tests.ingest.streams import (
    FIXTURES,
    as_frames,
    check_cut_everywhere,
    check_readable,
    fed_in_chunks,
    ingested,
    lines,
    random_sizes,
    recordings,
    shown,
)

pytestmark = pytest.mark.long

API = "anthropic-messages"
every_stream = pytest.mark.parametrize("path", recordings(API), ids=lambda path: path.stem)


def same_but_for_silence(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fields that hold nothing say nothing: a signature or list of citations that never came."""
    may_be_silent = ("signature", "citations", "encrypted_content")
    return [
        {name: one for name, one in block.items() if one or name not in may_be_silent}
        for block in blocks
    ]


def check_all_arrived(book: Notebook, letters: list[StreamedMessage]) -> None:
    whole = shown(book)
    blocks = [streamed for letter in letters for streamed in letter.blocks]
    sendable = [block for letter in letters for block in letter.sendable()]
    assert same_but_for_silence(sent_back(whole)) == same_but_for_silence(sendable)

    items = whole["output"]
    texts = [
        block
        for item in items
        if item["type"] == "message"
        for block in item["block_list"]
        if block["type"] == "text"
    ]
    text_blocks = [streamed for streamed in blocks if streamed.block["type"] == "text"]
    assert [block["text"] for block in texts] == [streamed.text("text") for streamed in text_blocks]
    for block, streamed in zip(texts, text_blocks, strict=True):
        check_citations(block, streamed.citations)
    thoughts = [
        "".join(part["text"] for part in item["summary"])
        for item in items
        if item["type"] == "reasoning"
    ]
    thinking = [streamed for streamed in blocks if str(streamed.block["type"]).endswith("thinking")]
    assert thoughts == [streamed.text("thinking") for streamed in thinking]
    calls = [item for item in items if item["type"] == "tool_call"]
    for call, streamed in zip(
        calls, (streamed for streamed in blocks if streamed.is_call), strict=True
    ):
        assert call["name"] == streamed.block["name"]
        if call.get("status") == "incomplete":
            assert streamed.arguments.startswith(call["arguments"])
        else:
            assert json.loads(call["arguments"]) == json.loads(streamed.arguments or "{}")
    for item in items:
        if item["type"] == "tool_result":
            seen = [*leaves(item["block_list"]), json.dumps(item.get("error"))]
            for leaf in leaves(item["private"]["raw"]["content"]):
                assert any(leaf in one for one in seen), leaf
    check_usage(whole.get("usage"), letters)
    public = leaves(client_view(book.state)["output"])
    for secret in sealed([(streamed.block, streamed.citations) for streamed in blocks]):
        assert secret not in public


def check_citations(block: dict[str, Any], citations: list[dict[str, Any]]) -> None:
    annotations = block.get("annotations", [])
    for annotation, citation in zip(annotations, citations, strict=True):
        url = citation.get("url") or citation.get("source") or ""
        is_link = url.startswith(("https://", "http://"))
        if is_link and block["text"]:
            assert annotation["url"] == url
            assert annotation.get("title", "") == (citation["title"] or "")
            assert (annotation["start_index"], annotation["end_index"]) == (0, len(block["text"]))
        elif not is_link:
            assert annotation == {"type": "raw", "raw": citation}


def check_usage(usage: dict[str, Any] | None, letters: list[StreamedMessage]) -> None:
    beside = [one for letter in letters for one in beside_of(letter.usage)]

    def total(*names: str) -> int:
        counted = [*(letter.usage for letter in letters), *beside]
        return sum(one.get(name) or 0 for one in counted for name in names)

    if not letters:
        assert usage is None
        return
    read, written = "cache_read_input_tokens", "cache_creation_input_tokens"
    assert usage is not None
    assert usage["calls"] == len(letters) + len(beside)
    assert usage["input_tokens"] == total("input_tokens", read, written)
    assert usage["output_tokens"] == total("output_tokens")
    assert usage.get("cached_input_tokens", 0) == total(read)
    assert usage.get("cache_write_tokens", 0) == total(written)


def expected_status(events: list[str], letters: list[StreamedMessage]) -> str:
    if any(json.loads(event)["type"] == "error" for event in events):
        return "failed"
    if not letters or not letters[-1].ended:
        return "cut"
    reason = letters[-1].stop_reason
    broken = len(letters[-1].sendable()) < len(letters[-1].blocks)
    if reason == "tool_use" and broken:
        return "cut"
    answered = (None, "end_turn", "tool_use", "stop_sequence")
    return "completed" if reason in answered else "incomplete"


@every_stream
def test_all_of_a_stream_arrives_exactly_once(path: Path) -> None:
    book, outcome = ingested(AnthropicMessages, lines(path))
    letters = messages_of(lines(path))
    check_all_arrived(book, letters)
    check_readable(book)
    assert outcome.status == expected_status(lines(path), letters)


@every_stream
def test_events_that_no_item_has_a_place_for_are_kept_raw_once(path: Path) -> None:
    book, _ = ingested(AnthropicMessages, lines(path))
    raws = [private for event, private in book.take() if isinstance(event, ev.RawEvent)]
    assert [private.raw for private in raws if private] == unshown(lines(path))


@every_stream
def test_a_stream_cut_after_any_event_ends_legally(path: Path) -> None:
    check_cut_everywhere(AnthropicMessages, lines(path))


@every_stream
def test_a_cut_stream_keeps_what_came_and_completes_nothing_that_did_not(path: Path) -> None:
    events = lines(path)
    is_delta = ["content_block_delta" in event[:40] for event in events]
    edges = {
        at
        for at in range(len(events))
        if not is_delta[at] or not is_delta[at - 1] or len(events) < 130
    }
    edges.update(random.Random(path.stem).choices(range(len(events)), k=20))
    for count in sample(sorted(edges), CUTS):
        book, outcome = ingested(AnthropicMessages, events[:count])
        letters = messages_of(events[:count])
        check_all_arrived(book, letters)
        assert outcome.status == expected_status(events[:count], letters)


@every_stream
def test_a_stream_that_comes_byte_by_byte_gives_the_same_object(path: Path) -> None:
    whole, outcome = ingested(AnthropicMessages, lines(path))
    stream = as_frames(lines(path))
    bytewise = fed_in_chunks(AnthropicMessages, stream, itertools.repeat(1))
    assert (shown(bytewise[0]), bytewise[1]) == (shown(whole), outcome)
    for seed in range(3):
        piecewise = fed_in_chunks(AnthropicMessages, stream, random_sizes(seed))
        assert (shown(piecewise[0]), piecewise[1]) == (shown(whole), outcome)


@every_stream
def test_a_stream_cut_at_any_byte_ends_as_at_the_last_whole_event(path: Path) -> None:
    stream, chance = as_frames(lines(path)), random.Random(path.stem)
    for _ in range(12):
        cut = stream[: chance.randrange(len(stream))]
        count = cut.count(b"\n\n")
        whole, outcome = ingested(AnthropicMessages, lines(path)[:count])
        piecewise = fed_in_chunks(AnthropicMessages, cut, random_sizes(count))
        assert (shown(piecewise[0]), piecewise[1]) == (shown(whole), outcome)


def _holds_one_good_message(path: Path) -> bool:
    """All that the SDK reads: one message, whole blocks that do not overlap, no news."""
    letters = messages_of(lines(path))
    kinds = [json.loads(line)["type"] for line in lines(path)]
    own = path.parent.parent == FIXTURES and path.stem != "thought-text-call"
    whole = all(len(letter.sendable()) == len(letter.blocks) for letter in letters)
    return kinds.count("message_start") == 1 and "error" not in kinds and whole and not own


@pytest.mark.parametrize(
    "path",
    [path for path in recordings(API) if _holds_one_good_message(path)],
    ids=lambda path: path.stem,
)
def test_anthropics_own_sdk_accumulates_the_same_message(path: Path) -> None:
    events = [json.loads(line) for line in lines(path)]
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in events:
        if event["type"] != "ping":
            snapshot = _beta_messages.accumulate_event(
                event=event,
                current_snapshot=snapshot,
                json_bufs=buffers,
                request_headers=httpx.Headers(),  # type: ignore[arg-type]
            )
    book, _ = ingested(AnthropicMessages, lines(path))
    whole = shown(book)
    content = [plain(block) for block in snapshot.content]
    assert same_but_for_silence(sent_back(whole)) == same_but_for_silence(content)
    beside = sum(one["output_tokens"] for one in beside_of(snapshot.usage.model_dump()))
    assert whole["usage"]["output_tokens"] == snapshot.usage.output_tokens + beside
    assert whole["usage"]["model"] == snapshot.model
    assert whole["private"]["raw"]["stop_reason"] == snapshot.stop_reason


def plain(block: BaseModel) -> dict[str, Any]:
    plain = block.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {name: one for name, one in plain.items() if name != "parsed_output"}
