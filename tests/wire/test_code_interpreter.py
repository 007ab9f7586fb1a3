"""A provider's code interpreter: one call, with what it printed and drew, in every format."""

from __future__ import annotations

import json
from typing import Any

from tailrace.convert import Transcoder
from tailrace.core import events as ev
from tailrace.core.codec import encode_event
from tailrace.core.items import ErrorInfo, Image, ImageUrl, Text, ToolResult
from tailrace.core.sse import SseParser
from tests.convert.streams import frames_of
from tests.wire.openai_checker import Reader
from tests.wire.openai_scripts import PNG, Script

CODE = "print(6 * 7)"
PICTURE = Image(image_url=ImageUrl(url=f"data:image/png;base64,{PNG}"))


def ran(**fields: Any) -> bytes:
    script = Script().begin()
    script.call(0, "code_interpreter", CODE, kind="code_interpreter", executor="provider")
    item = ToolResult(id="fco_7_1", call_id="call_0")
    script.item(item, 1)
    for place, text in enumerate(("42", "")):
        script.block(item.id, 1, place, Text(text=text))
    where: Any = {"item_id": item.id, "output_index": 1, "block_index": 2}
    script.add(ev.ImageAdded, **where, item=Image(image_url=ImageUrl(url="")))
    script.add(ev.ImageDelta, **where, partial_image_index=0, item=PICTURE)
    script.add(ev.ImageDone, **where, item=PICTURE)
    script.done(ToolResult(id=item.id, call_id="call_0", **fields), 1)
    script.add(ev.TaskCompleted)
    return b"".join(encode_event(event) + b"\n" for event in script.events)


def converted(source: bytes, from_: str, to: str) -> bytes:
    transcoder = Transcoder(from_, to)
    return transcoder.feed(source) + transcoder.end()


def events_in(source: bytes, to: str) -> list[dict[str, Any]]:
    frames = SseParser().feed(converted(source, "task", to))
    return [json.loads(frame.data) for frame in frames if frame.data != "[DONE]"]


def test_code_goes_out_as_a_code_interpreter_call_whose_deltas_are_its_code() -> None:
    events = events_in(ran(), "openai-responses")
    deltas = [one["delta"] for one in events if one["type"].endswith("call_code.delta")]
    assert "".join(deltas) == CODE
    (item,) = events[-1]["response"]["output"]
    assert (item["type"], item["code"], item["status"]) == (
        "code_interpreter_call",
        CODE,
        "completed",
    )
    assert item["outputs"] == [
        {"type": "logs", "logs": "42"},
        {"type": "image", "url": PICTURE.image_url.url},
    ]
    Reader().read(frames_of(converted(ran(), "task", "openai-responses")))


def test_code_that_failed_says_why_in_its_outputs() -> None:
    error = ErrorInfo(code="x", message="It broke.")
    (item,) = events_in(ran(status="failed", error=error), "openai-responses")[-1]["response"][
        "output"
    ]
    assert item["status"] == "failed"
    assert item["outputs"][-1] == {"type": "logs", "logs": "It broke."}


def test_a_code_interpreter_call_reads_back_as_one_call() -> None:
    there = converted(ran(), "task", "openai-responses")
    shown = json.loads(converted(there, "openai-responses", "json"))["output"]
    assert [item["type"] for item in shown] == ["tool_call", "tool_result"]
    assert (shown[0]["kind"], shown[0]["arguments"]) == ("code_interpreter", CODE)
    assert [block["type"] for block in shown[1]["block_list"]] == ["text", "image"]


def test_code_is_not_an_input_error_to_the_ai_sdk() -> None:
    kinds = [one["type"] for one in events_in(ran(), "vercel-ui")]
    assert "tool-input-error" not in kinds
    assert "tool-input-available" in kinds
