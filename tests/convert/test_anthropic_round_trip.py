"""Our own Messages stream, read back by our own ingest, has what the run has."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tailrace.core.codec import encode_event
from tests.convert.streams import converted
from tests.traces import LOGS, Trace

FORMAT = "anthropic-messages"
# What was sent and taken back is an error in the stream, so there is no run to compare.
TAKEN_BACK = ("recovered_attempt", "provider_retry")
READ_BACK = [trace for trace in LOGS if trace.name not in TAKEN_BACK]
LINK = re.compile(r"!?\[[^]^]+\](\(\S+\))?")
ENDS = {
    "completed": ("completed", None),
    "cancelled": ("incomplete", "max_output_tokens"),
    "incomplete": ("incomplete", "max_output_tokens"),
    "input_required": ("incomplete", "pause_turn"),
}


def there_and_back(trace: Trace) -> Any:
    source = b"\n".join(encode_event(event) for event, _ in trace.events)
    return json.loads(converted(converted(source, "task", FORMAT), FORMAT, "json"))


def blocks(view: Any, item_type: str, *kinds: str) -> list[Any]:
    return [
        block
        for item in view["output"]
        if item["type"] == item_type
        for block in item["block_list"]
        if block["type"] in kinds
    ]


def words(view: Any) -> list[str]:
    """The texts, without those that came as a link."""
    found = blocks(view, "message", "text", "refusal")
    texts = [block.get("text") or block.get("refusal") or "" for block in found]
    return [text for text in texts if text and not LINK.fullmatch(text)]


def thoughts(view: Any) -> list[str]:
    return [
        part["text"]
        for item in view["output"]
        if item["type"] == "reasoning"
        for part in item["summary"]
        if part["text"]
    ]


def calls(view: Any) -> list[Any]:
    return [
        (item["call_id"], item["name"], json.loads(item["arguments"] or "{}"))
        for item in view["output"]
        if item["type"] == "tool_call" and item.get("status", "completed") == "completed"
    ]


def by_client(view: Any) -> set[str]:
    return {item["call_id"] for item in view["output"] if item.get("executor") == "client"}


@pytest.mark.parametrize("trace", READ_BACK, ids=lambda trace: trace.name)
def test_a_run_comes_back_with_its_words_thoughts_and_calls(trace: Trace) -> None:
    view, back = trace.view, there_and_back(trace)
    texts = words(view)
    if not texts and "structured_output" in view:  # which is sent as text
        texts = [json.dumps(view["structured_output"]["value"], separators=(",", ":"))]
    assert words(back) == texts
    if trace.name != "reasoning_raw_and_summary":  # of which one is sent
        assert thoughts(back) == thoughts(view)
    if trace.name != "proto_keys":  # which are renamed
        assert calls(back) == calls(view)
    assert by_client(back) == by_client(view)


@pytest.mark.parametrize("trace", READ_BACK, ids=lambda trace: trace.name)
def test_a_run_comes_back_with_its_end_and_usage(trace: Trace) -> None:
    view, back = trace.view, there_and_back(trace)
    if view["status"] == "failed":
        assert back["status"] == "failed"
        assert back["error"]["message"] == view["error"]["message"]
        return
    status, reason = ENDS[view["status"]]
    if trace.name in ("refusal", "whole_parts"):  # whose last message refuses
        status, reason = "incomplete", "refusal"
    assert (back["status"], back.get("reason")) == (status, reason)
    # One message is one model call there, sub-agents' calls included.
    for name in ("input_tokens", "output_tokens", "cached_input_tokens"):
        assert back["usage"].get(name, 0) == view.get("usage", {}).get(name, 0)
