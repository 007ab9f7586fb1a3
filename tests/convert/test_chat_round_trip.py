"""Our own chat completions, read back: the same texts, reasoning and calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.convert.streams import RECORDINGS, converted, ids, read, source_of
from tests.traces import FOLDER, LOGS, Trace
from tests.wire.chat_checker import ChatReader


def check_read_back(stream: bytes) -> None:
    """What the ingest reads is what a strict reader holds."""
    reader: ChatReader = read("openai-chat", stream)
    view = read("json", converted(stream, "openai-chat", "json"))
    blocks = [
        block
        for item in view["output"]
        if item["type"] == "message"
        for block in item["block_list"]
    ]
    thoughts = [
        part["text"]
        for item in view["output"]
        if item["type"] == "reasoning"
        for part in item["summary"]
    ]
    assert "".join(block.get("text", "") for block in blocks) == reader.texts["content"]
    assert "".join(block.get("refusal", "") for block in blocks) == reader.texts["refusal"]
    assert "".join(thoughts) == reader.texts["reasoning_content"]
    images = [block["image_url"]["url"] for block in blocks if block["type"] == "image"]
    assert images == reader.images
    assert [_call(item) for item in view["output"] if item["type"] == "tool_call"] == [
        (one["id"], one["name"], one["arguments"]) for one in reader.calls
    ]
    if reader.error is not None:
        assert view["error"]["code"] == reader.error["code"]
    elif reader.finish_reason in ("stop", "tool_calls"):
        assert view["status"] == "completed"
    else:
        assert view["status"] == "incomplete"
    if reader.usage is not None:
        assert view["usage"]["input_tokens"] == reader.usage["prompt_tokens"]
        assert view["usage"]["output_tokens"] == reader.usage["completion_tokens"]


def _call(item: dict[str, Any]) -> tuple[str, str, str]:
    return item["call_id"], item["name"], item["arguments"]


@pytest.mark.parametrize("trace", LOGS, ids=lambda trace: trace.name)
def test_a_log_of_ours_comes_back_as_it_was_written(trace: Trace) -> None:
    source = (FOLDER / trace.name / "events.jsonl").read_bytes()
    check_read_back(converted(source, "task", "openai-chat"))


@pytest.mark.parametrize("recording", RECORDINGS, ids=ids)
def test_a_provider_s_answer_comes_back_as_it_was_written(recording: tuple[str, Path]) -> None:
    from_, path = recording
    check_read_back(converted(source_of(path), from_, "openai-chat"))


def test_citations_keep_their_places() -> None:
    source = (FOLDER / "parallel_tools" / "events.jsonl").read_bytes()
    stream = converted(source, "task", "openai-chat")
    view = read("json", converted(stream, "openai-chat", "json"))
    [text] = view["output"][-1]["block_list"]
    cited = [text["text"][one["start_index"] : one["end_index"]] for one in text["annotations"]]
    assert cited == ["[^3]", "[^1]", "[^2]"]
    assert json.dumps(text["annotations"]).count("tailrace:run_1/run_1/") == 3
