"""Rules of the UI message streams of the Vercel AI SDK over many streams, and whole streams.

Short streams and their objects are in `cases/vercel-ui`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.core.errors import MalformedEvent
from tailrace.core.run_object import client_view
from tailrace.ingest.base import Notebook, Outcome
from tailrace.ingest.vercel_ui.reader import VercelUi, message_facts
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
from tests.node import run_node

Json = dict[str, Any]

OURS: Json = {"type": "start", "messageId": "run_1", "messageMetadata": {"task_id": "run_1"}}
FINISH: Json = {"type": "finish", "finishReason": "stop"}


def ended(*chunks: Any, run_id: str = "run_1") -> tuple[Notebook, Outcome]:
    """A run that the chunks make, which the strict fold and the codec have checked."""
    return ingested(lambda book: VercelUi(book, lambda _name: "client"), chunks, run_id)


def view(*chunks: Any) -> Json:
    return view_of(ended(*chunks)[0])


def output(*chunks: Any) -> list[Json]:
    return items(ended(*chunks)[0])


def raw_of(*chunks: Any) -> list[str]:
    return raw_types(ended(*chunks)[0])


def text(ident: str, *pieces: str, kind: str = "text", **fields: Any) -> list[Json]:
    deltas = [{"type": f"{kind}-delta", "id": ident, "delta": piece} for piece in pieces]
    start = {"type": f"{kind}-start", "id": ident, **fields}
    return [start, *deltas, {"type": f"{kind}-end", "id": ident}]


def call(ident: str = "c", given: Any = None, name: str = "tool", **fields: Any) -> list[Json]:
    about = {"toolCallId": ident, "toolName": name, **fields}
    given = {} if given is None else given
    return [
        {"type": "tool-input-start", **about},
        {"type": "tool-input-available", **about, "input": given},
    ]


def gave(output: Any, ident: str = "c", **fields: Any) -> Json:
    return {"type": "tool-output-available", "toolCallId": ident, "output": output, **fields}


def message(*blocks: Any, **fields: Any) -> Json:
    shown = [{"type": "text", "text": one} if isinstance(one, str) else one for one in blocks]
    return {"type": "message", "block_list": shown, **fields}


def a_call(arguments: str = "{}", **fields: Any) -> Json:
    about = {"name": "tool", "call_id": "c", "executor": "client"}
    shown = {"type": "tool_call", **about, "arguments": arguments, **fields}
    return {name: value for name, value in shown.items() if value is not None}


def result(*blocks: Any, call_id: str = "c", **fields: Any) -> Json:
    return {**message(*blocks), "type": "tool_result", "call_id": call_id, **fields}


CUT = {"status": "incomplete"}


# --- the message ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        ([FINISH], ("completed", None)),
        ([{"type": "finish"}], ("completed", None)),
        ([{"type": "finish", "finishReason": "tool-calls"}], ("completed", None)),
        ([{"type": "finish", "finishReason": "length"}], ("incomplete", "max_output_tokens")),
        ([{"type": "finish", "finishReason": "content-filter"}], ("incomplete", "content_filter")),
        ([{"type": "finish", "finishReason": "other"}], ("incomplete", "other")),
        ([{"type": "finish", "finishReason": 7}], ("incomplete", "other")),
        ([{"type": "finish", "finishReason": ""}], ("incomplete", "other")),
        ([{"type": "finish", "finishReason": "error"}], ("failed", None)),
        ([{"type": "error", "errorText": "overloaded"}], ("failed", None)),
        ([{"type": "error"}, FINISH], ("failed", None)),
        ([{"type": "abort"}], ("cancelled", None)),
        ([{"type": "abort", "reason": "enough"}], ("cancelled", "enough")),
        (["[DONE]"], ("completed", None)),
        ([], ("cut", None)),
        ([FINISH, {"type": "start", "messageId": "m2"}], ("cut", None)),
    ],
)
def test_a_message_ends_as_it_says(last: list[Any], outcome: tuple[str, str | None]) -> None:
    book, found = ended({"type": "start", "messageId": "m"}, *text("0", "Hi"), *last)
    assert (found.status, found.reason) == outcome
    status = "incomplete" if found.status == "cut" else found.status
    assert client_view(book.state)["status"] == status
    item = client_view(book.state)["output"][0]
    assert item["block_list"] == [{"type": "text", "text": "Hi"}]
    assert item.get("status", "completed") == (
        "completed" if status == "completed" else "incomplete"
    )


def test_the_run_has_the_name_that_the_first_chunk_gives_it() -> None:
    def facts(**chunk: Any) -> Json:
        return message_facts(json.dumps({"type": "start", **chunk}))

    assert facts() == {}
    assert facts(messageId="m", messageMetadata=None) == {"task_id": "m"}
    assert facts(messageId="", messageMetadata={"modelId": "x"}) == {"model": "x"}
    # A foreign thread is no thread of ours.
    assert facts(messageId="m", messageMetadata={"agent": "a"}) == {"task_id": "m"}
    about = {"task_id": "r", "agent": "", "thread_id": "t", "created_at": 0, "model": "x"}
    assert facts(messageId="m", messageMetadata=about) == about
    about["created_at"] = -1
    assert "created_at" not in facts(messageId="m", messageMetadata=about)
    assert message_facts('{"type":"text-start","id":"0"}') == {}


def test_usage_is_read_by_its_names_here_and_in_the_ai_sdk() -> None:
    def usage(about: Json) -> Any:
        shown = view({"type": "message-metadata", "messageMetadata": about}, FINISH)
        return shown.get("usage")

    ours = {"input_tokens": 5, "output_tokens": 2, "cost": 0.5, "service_tier": "flex"}
    assert usage({"usage": ours | {"model": "m"}}) == {"calls": 1, **ours, "model": "m"}
    sdk: Json = {"inputTokens": 5, "outputTokens": 2, "cachedInputTokens": 1, "reasoningTokens": 2}
    counts = {"input_tokens": 5, "output_tokens": 2, "cached_input_tokens": 1}
    wanted = {"calls": 1, **counts, "reasoning_tokens": 2, "model": "m"}
    assert usage({"totalUsage": sdk, "model": "m"}) == wanted
    sdk = {"inputTokens": 5, "outputTokens": 2, "inputTokenDetails": {"cacheReadTokens": 1}}
    sdk["outputTokenDetails"] = {"reasoningTokens": 2}
    assert usage({"usage": sdk, "modelId": "m"}) == wanted
    for nothing in (None, 7, {}, {"inputTokens": -1, "outputTokens": True, "cost": "much"}):
        assert usage({"usage": nothing}) is None


def test_chunks_without_a_known_name_or_with_wrong_types_are_kept_raw() -> None:
    odd: list[Json] = [
        {"type": "hologram", "depth": 3},
        {"no": "type"},
        {"type": 7},
        {"type": "text-start"},
        {"type": "text-delta", "id": "0", "delta": 7},
        {"type": "text-end", "id": None},
        {"type": "file", "mediaType": "image/png"},
        {"type": "source-url", "url": "https://a.example"},
        {"type": "tool-input-start", "toolCallId": "c"},
        {"type": "tool-input-start", "toolName": "tool"},
        {"type": "tool-input-delta", "toolCallId": "c"},
        {"type": "tool-input-available", "toolCallId": "c", "input": {}},
        {"type": "tool-input-available", "toolCallId": "d", "toolName": "tool"},
        {"type": "tool-input-error", "toolCallId": "", "input": {}},
        {"type": "tool-output-available", "toolCallId": 7},
        {"type": "tool-approval-request", "toolCallId": "c"},
        {"type": "tool-approval-response", "approvalId": "a", "approved": True},
    ]
    assert raw_of(*odd) == ["hologram", "", "", *(one["type"] for one in odd[3:])]
    for broken in ("{never", "7", "[]"):
        with pytest.raises(MalformedEvent):
            ended(broken)


def test_a_stream_of_two_runs_is_refused_at_the_second() -> None:
    other = {"type": "start", "messageMetadata": {"task_id": "run_2"}}
    with pytest.raises(MalformedEvent, match="one run at a time"):
        ended(OURS, FINISH, other)
    assert view(OURS, *text("0", "a"), OURS, FINISH)["status"] == "completed"


# --- files and data ------------------------------------------------------------------------------


def test_the_names_of_our_own_parts_are_free_to_others() -> None:
    for name in ("task", "task-item", "step", "notice", "progress", "output", "request", "delta"):
        item = output({"type": f"data-{name}", "data": 7}, FINISH)
        assert item == [message({"type": "data", "name": name, "data": 7})]


# --- results -------------------------------------------------------------------------------------


def test_the_result_of_a_call_is_text_or_the_text_of_its_json() -> None:
    for value, shown in [
        ("sunny", ["sunny"]),
        ({"sky": "blue"}, ['{"sky":"blue"}']),
        ([{"type": "text", "text": "not ours"}], ['[{"type":"text","text":"not ours"}]']),
        (0, ["0"]),
        (None, []),
        ("", []),
    ]:
        assert output(*call(), gave(value), FINISH) == [a_call(), result(*shown)]


def test_the_result_of_a_call_of_our_own_stream_is_blocks() -> None:
    blocks: list[Any] = [
        {"type": "text", "text": "😀 a", "id": 1},
        {"type": "image", "image_url": {"url": "/i"}},
        {"type": "data", "data": 7, "name": "n"},
    ]
    ours: Json = {"executor": None}
    about: Json = {"providerExecuted": True}
    assert output(OURS, *call(**about), gave(blocks), FINISH) == [a_call(**ours), result(*blocks)]
    url = {"type": "url_citation", "url": "/", "start_index": 0, "end_index": 2}
    notes: list[Json] = [{"type": "raw", "raw": 1}]
    notes.append(
        {"type": "reference_to_block", "reference_id": 1, "start_index": 0, "end_index": 2}
    )
    notes.append(url)
    notes.append(url | {"start_index": 3, "end_index": 99})
    cited = {"type": "text", "text": "😀 a", "annotations": notes}
    kept = {**cited, "annotations": [notes[0], url | {"end_index": 1}]}
    assert output(OURS, *call(**about), gave([cited]), FINISH)[1] == result(kept)
    for odd in (
        [7],
        [{"type": "text"}],
        [{"type": "text", "text": "x", "id": 0}],
        {"type": "text"},
    ):
        shown = json.dumps(odd, separators=(",", ":"))
        assert output(OURS, *call(**about), gave(odd), FINISH)[1] == result(shown)


# --- whole streams -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def backends() -> dict[str, list[str]]:
    """What backends on the AI SDK itself answer."""
    bodies = json.loads(run_node(["vercel_backend.mjs"], timeout=120))
    return {name: [line[6:] for line in body.split("\n") if line] for name, body in bodies.items()}


def test_the_answers_of_ai_sdk_backends(backends: dict[str, list[str]]) -> None:
    found = {name: ended(*chunks)[1] for name, chunks in backends.items()}
    assert {name: (one.status, one.reason) for name, one in found.items()} == {
        "tool-loop": ("completed", None),
        "client-tool": ("completed", None),
        "approval": ("completed", None),
        "generator-tool": ("completed", None),
        "tool-throws": ("completed", None),
        "input-is-no-json": ("completed", None),
        "provider-tool": ("completed", None),
        "length": ("incomplete", "max_output_tokens"),
        "error": ("failed", None),
        "by-hand": ("completed", None),
    }
    for chunks in backends.values():
        assert raw_of(*chunks) == []
    about = {"call_id": "call_1", "name": "weather"}
    asked = a_call('{"city":"Paris"}', **about)
    assert output(*backends["tool-loop"]) == [
        {"type": "reasoning", "summary": [{"type": "text", "text": "Where? Paris."}]},
        asked,
        result('{"city":"Paris","sky":"sunny"}', call_id="call_1"),
        message(
            {
                "type": "text",
                "text": "It is sunny.",
                "annotations": [
                    {
                        "type": "url_citation",
                        "url": "https://a.example",
                        "title": "A",
                        "start_index": 0,
                        "end_index": 12,
                    }
                ],
            },
            {"type": "image", "image_url": {"url": "data:image/png;base64,aGk="}},
        ),
    ]
    assert view(*backends["tool-loop"])["usage"] == {
        "calls": 1,
        "input_tokens": 20,
        "output_tokens": 14,
        "cached_input_tokens": 8,
        "reasoning_tokens": 6,
        "model": "mock-1",
    }
    assert output(*backends["client-tool"]) == [asked]
    assert [one.call_id for one in found["approval"].requests] == ["call_1"]
    assert output(*backends["generator-tool"])[1] == result("found", call_id="call_1")
    assert output(*backends["input-is-no-json"]) == [a_call('{"city":', **about, **CUT)]
    assert output(*backends["by-hand"]) == [
        message(
            "Look:",
            {"type": "data", "name": "note", "data": 7},
            {"type": "data", "name": "weather", "data": {"sky": "blue"}},
        )
    ]


STREAMS = recordings("vercel-ui")
TRACES = golden("vercel-ui")


@pytest.mark.long(always=True)
@pytest.mark.parametrize(
    "path", [*STREAMS, *TRACES], ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_a_message_that_is_cut_anywhere_ends_legally(path: Path) -> None:
    chunks = lines(path)
    for count in range(len(chunks)):
        book, _ = ended(*chunks[:count])
        check_readable(book)


POOL = [json.loads(chunk) for path in [*STREAMS, *TRACES] for chunk in lines(path)]
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, 0, -1, 2**53, "", "x", "run_1", [], {}, True, 1.5, {"a": [1]}, "c/0"]
)


@st.composite
def spoilt(draw: st.DrawFn) -> list[Json]:
    """Chunks of real streams in any order, with fields that are not what they should be."""
    chunks = [dict(one) for one in draw(st.lists(st.sampled_from(POOL), max_size=25))]
    if draw(st.booleans()):
        chunks.insert(0, OURS)
    for chunk in chunks:
        if draw(st.integers(0, 3)) == 0:
            holder = chunk.get("data") if isinstance(chunk.get("data"), dict) else chunk
            holder = dict(holder)  # type: ignore[arg-type]
            name = draw(st.sampled_from(sorted(holder)))
            holder[name] = draw(ODD)
            chunk.update({"data": holder} if "data" in chunk and name != "type" else holder)
        if draw(st.integers(0, 9)) == 0:
            chunk["type"] = "reset-step"
    return chunks


@settings(suppress_health_check=list(HealthCheck))
@given(spoilt())
def test_no_stream_breaks_the_reader(chunks: list[Json]) -> None:
    check_breaks_nothing(VercelUi, chunks)
