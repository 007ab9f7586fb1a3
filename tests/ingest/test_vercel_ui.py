"""UI message streams of the Vercel AI SDK as a source, chunk by chunk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.core.errors import MalformedEvent
from tailrace.core.view import client_view
from tailrace.ingest.base import Notebook, Outcome
from tailrace.ingest.vercel_ui.reader import VercelUi, message_facts
from tests.ingest.streams import (
    check_breaks_nothing,
    check_readable,
    items,
    lines,
    raw_types,
    recordings,
)
from tests.node import run_node

Json = dict[str, Any]

OURS: Json = {"type": "start", "messageId": "run_1", "messageMetadata": {"task_id": "run_1"}}
FINISH: Json = {"type": "finish", "finishReason": "stop"}


def ended(*chunks: Any, run_id: str = "run_1") -> tuple[Notebook, Outcome]:
    """A run that the chunks make, which the strict fold and the codec have checked."""
    book = Notebook(run_id)
    ingest = VercelUi(book, lambda _name: "client")
    for chunk in chunks:
        ingest.feed(chunk if isinstance(chunk, str) else json.dumps(chunk))
    outcome = ingest.end()
    assert ingest.end() is outcome
    book.conclude(outcome)
    return book, outcome


def view(*chunks: Any) -> Json:
    book, _ = ended(*chunks)
    shown = client_view(book.state)
    check_readable(book)
    return shown


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
RESET: Json = {"type": "reset-step"}
START_STEP: Json = {"type": "start-step"}


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
    said = client_view(book.state)["output"][0]
    assert said["block_list"] == [{"type": "text", "text": "Hi"}]
    assert said.get("status", "completed") == (
        "completed" if status == "completed" else "incomplete"
    )


def test_the_first_error_is_the_one_that_counts() -> None:
    errors = [{"type": "error", "errorText": word} for word in ("first", "second")]
    assert view(*errors)["error"] == {"code": "error", "message": "first"}


def test_ours_say_more_of_their_end_than_the_sdk_can() -> None:
    about = {"status": "incomplete", "reason": "max_turns"}
    last = {"type": "finish", "finishReason": "other", "messageMetadata": about}
    assert view(OURS, last)["reason"] == "max_turns"
    last["messageMetadata"] = {"status": "incomplete"}
    assert view(OURS, last)["reason"] == "incomplete"


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


def test_what_has_no_name_here_is_kept_raw() -> None:
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


# --- texts and reasoning -------------------------------------------------------------------------


def test_parts_that_follow_one_another_are_one_item() -> None:
    parts = [*text("0", "a", "b"), *text("1", "c"), FINISH]
    assert output(*parts) == [message("ab", "c")]
    parts = [*text("0", "a"), *text("r", "hm", kind="reasoning"), *text("1", "c"), FINISH]
    thought = {"type": "reasoning", "summary": [{"type": "text", "text": "hm"}]}
    assert output(*parts) == [message("a"), thought, message("c")]
    parts = [*text("0", "a"), {"type": "finish-step"}, START_STEP, *text("0", "b"), FINISH]
    assert output(*parts) == [message("a"), message("b")]


def test_a_part_says_what_it_belongs_to() -> None:
    parts = [*text("m1/0", "a"), *text("m1/1", "b"), *text("m2/0", "c"), FINISH]
    assert output(*parts) == [message("a", "b"), message("c")]
    about: list[Json] = [
        {"providerMetadata": {"openai": {"itemId": name}}} for name in ("x", "x", "y")
    ]
    parts = [chunk for n, one in enumerate(about) for chunk in text(str(n), str(n), **one)]
    assert output(*parts, FINISH) == [message("0", "1"), message("2")]
    parts = [*text("a/b", "0"), *text("c/d", "1"), FINISH]
    assert output(*parts) == [message("0", "1")]


def test_texts_may_stream_at_once_and_without_a_start() -> None:
    mixed = [
        {"type": "text-delta", "id": "a", "delta": "A"},
        {"type": "reasoning-delta", "id": "a", "delta": "R"},
        {"type": "text-start", "id": "b"},
        {"type": "text-start", "id": "b"},
        {"type": "text-delta", "id": "b", "delta": "B"},
        {"type": "text-delta", "id": "a", "delta": "a"},
        {"type": "text-end", "id": "b"},
        {"type": "reasoning-end", "id": "a"},
        {"type": "text-end", "id": "a"},
        {"type": "text-end", "id": "a"},
        FINISH,
    ]
    thought = {"type": "reasoning", "summary": [{"type": "text", "text": "R"}]}
    assert output(*mixed) == [message("Aa", "B"), thought]


def test_refusals_and_phases_of_ours_stay_what_they_are() -> None:
    about: Json = {"providerMetadata": {"tailrace": {"refusal": True, "phase": "final"}}}
    refusal = {"type": "refusal", "refusal": "No."}
    said = output(
        OURS, *text("m/0", "No.", **about), {"type": "source-url", "sourceId": "s"}, FINISH
    )
    assert said == [message(refusal, phase="final")]


def test_what_a_provider_says_of_a_part_is_kept_for_itself() -> None:
    start, delta, end = text("0", "hm", kind="reasoning")
    end["providerMetadata"] = {"anthropic": {"signature": "s"}, "odd": 7}
    start["providerMetadata"] = {"anthropic": {"redacted": False}}
    book, _ = ended(start, delta, end, FINISH)
    kept = [private for _, private in book.take() if private is not None]
    about = {"anthropic": {"redacted": False, "signature": "s"}, "odd": {}}
    assert [one.provider for one in kept] == [{"api": "vercel-ui", "metadata": about}]


# --- sources -------------------------------------------------------------------------------------

URL = {"type": "source-url", "sourceId": "s1", "url": "https://a.example", "title": "A"}
DOCUMENT = {"type": "source-document", "sourceId": "d1", "mediaType": "text/plain", "title": "D"}


def notes(*chunks: Any) -> list[list[Json]]:
    return [
        block.get("annotations", [])
        for item in view(*chunks, FINISH)["output"]
        if item["type"] == "message"
        for block in item["block_list"]
    ]


def test_a_source_belongs_to_the_text_that_is_open_or_has_ended_or_follows() -> None:
    start, delta, end = text("0", "Hello")
    whole: Json = {"type": "url_citation", "url": "https://a.example", "title": "A"}
    whole |= {"start_index": 0, "end_index": 5}
    document = {"type": "file_citation", "file_id": "d1", "filename": "D"}
    assert notes(start, delta, URL, DOCUMENT, end) == [[whole, document]]
    assert notes(start, delta, end, URL, DOCUMENT) == [[whole, document]]
    assert notes(URL, DOCUMENT, start, delta, end) == [[whole, document]]
    assert notes(start, delta, URL) == [[whole]]
    # Of an empty text nothing can be cited; the source is kept with it.
    assert notes(start, end, URL)[0][0]["type"] == "raw"


def test_a_source_that_no_text_can_cite_is_kept_raw() -> None:
    assert raw_of(*text("0", "hm", kind="reasoning"), URL, FINISH) == ["source-url"]
    nameless = {"type": "source-document", "sourceId": ""}
    assert notes(*text("0", "a"), nameless) == [[{"type": "raw", "raw": {**nameless, "id": ""}}]]


def test_citations_count_as_javascript_does_and_their_sources_are_not_written_twice() -> None:
    start, delta, end = text("0", "😀 yes")
    source = {"type": "source", "sourceType": "url", "id": "s1", "url": "https://a.example"}
    end["citations"] = [
        {"source": source, "startIndex": 3, "endIndex": 6},
        {"source": source | {"id": "s2"}},
        {"source": source, "startIndex": 5, "endIndex": 99},
        {"source": source, "startIndex": -5, "endIndex": True},
        {"source": None, "startIndex": 1},
        7,
    ]
    found = notes(start, delta, end, URL)[0]
    cited = {"type": "url_citation", "url": "https://a.example"}
    assert found[0] == {**cited, "start_index": 2, "end_index": 5}
    assert found[1] == {**cited, "start_index": 0, "end_index": 5}
    assert found[2]["type"] == "raw"
    assert found[3] == found[1]
    assert found[4] == {"type": "raw", "raw": {"source": None, "startIndex": 1}}
    assert len(found) == 5


# --- files and data ------------------------------------------------------------------------------


def test_files_and_data_stand_where_they_came() -> None:
    image = {"type": "file", "url": "https://a.example/x.png", "mediaType": "image/png"}
    pdf = {"type": "file", "url": "/f", "mediaType": "application/pdf"}
    named = {**pdf, "providerMetadata": {"tailrace": {"name": "f.pdf", "size": 3}}}
    wrong = {**pdf, "providerMetadata": {"tailrace": {"size": "large"}}}
    note = {"type": "data-note", "data": {"a": 1}}
    start, delta, end = text("m/0", "Look:")
    said = output(image, start, delta, pdf, end, note, named, wrong, FINISH)
    file = {"type": "file", "url": "/f", "mime_type": "application/pdf"}
    assert said == [
        message(
            {"type": "image", "image_url": {"url": "https://a.example/x.png"}},
            "Look:",
            file,
            {"type": "data", "name": "note", "data": {"a": 1}},
            {**file, "name": "f.pdf", "size": 3},
            file,
        )
    ]


def test_data_with_an_id_is_written_as_it_is_when_its_step_ends() -> None:
    def data(value: Any, ident: str) -> Json:
        return {"type": "data-weather", "id": ident, "data": value}

    parts = [data("?", "w"), *text("0", "a"), data("sun", "w"), {"type": "finish-step"}]
    shown = {"type": "data", "name": "weather"}
    assert output(*parts, FINISH) == [message("a", {**shown, "data": "sun"})]
    assert output(*parts[:-1]) == [message("a", {**shown, "data": "sun"}, **CUT)]
    # Ours are blocks of a message and are never replaced.
    assert output(data("x", "m/0"), *text("m/1", "a"), FINISH) == [
        message({**shown, "data": "x"}, "a")
    ]


def test_what_only_passes_by_is_a_notice() -> None:
    shown = view({"type": "data-status", "data": [1], "transient": True}, FINISH)
    assert shown["notices"] == [{"message": "data-status", "data": [1], "level": "debug"}]
    assert shown["output"] == []


def test_the_names_of_our_own_parts_are_free_to_others() -> None:
    for name in ("task", "task-item", "step", "notice", "progress", "output", "request", "delta"):
        said = output({"type": f"data-{name}", "data": 7}, FINISH)
        assert said == [message({"type": "data", "name": name, "data": 7})]


# --- calls ---------------------------------------------------------------------------------------


def streamed(*pieces: str, **about: Any) -> list[Json]:
    start, _ = call(**about)
    return [
        start,
        *({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": p} for p in pieces),
    ]


def whole(given: Any) -> Json:
    return {"type": "tool-input-available", "toolCallId": "c", "toolName": "tool", "input": given}


def test_a_call_is_made_of_its_whole_input_only() -> None:
    assert output(*streamed('{"a"', ":1}"), whole({"a": 1}), FINISH) == [a_call('{"a":1}')]
    assert output(*call(given={"a": [1]}), FINISH) == [a_call('{"a":[1]}')]
    assert output(*call(given={"a": 1})[1:], FINISH) == [a_call('{"a":1}')]
    # The input came, but not all of what was streamed of it.
    assert output(*streamed('{"a"'), whole({"a": 1}), FINISH) == [a_call('{"a":1}')]
    for last in ([], [FINISH], ["[DONE]"]):
        assert output(*streamed('{"a":1}'), *last) == [a_call('{"a":1}', **CUT)]


def test_an_input_that_was_checked_may_differ_from_what_the_model_wrote() -> None:
    book, _ = ended(*streamed('{ "a": 1 }'), whole({"a": 1, "unit": "C"}), FINISH)
    assert client_view(book.state)["output"][0]["arguments"] == '{ "a": 1 }'
    kept = [private.provider for _, private in book.take() if private is not None]
    assert kept == [{"api": "vercel-ui", "input": {"a": 1, "unit": "C"}}]


def test_an_input_that_was_mended_is_that_of_another_call() -> None:
    first, second, answer = output(*streamed('{"a": 1'), whole({"a": 1}), gave("ok"), FINISH)
    assert first == a_call('{"a": 1', **CUT)
    assert second == a_call('{"a":1}', call_id=second["call_id"])
    assert second["call_id"] != "c"
    assert answer == result("ok", call_id=second["call_id"])
    # The cut one leaves the run with its step; the whole one was made.
    kept = output(*streamed('{"a": 1'), whole({"a": 1}), RESET, gave("ok"), FINISH)
    assert [one["type"] for one in kept] == ["tool_call", "tool_result"]


def test_chunks_that_repeat_make_no_second_call_but_another_input_does() -> None:
    twice = [*call(given={"a": 1}), *call(given={"a": 1}), gave("ok"), gave("again")]
    assert output(*twice, *streamed("late"), whole({"a": 1}), FINISH) == [
        a_call('{"a":1}'),
        result("ok"),
    ]
    found = output(*call(given={"a": 1}), gave("ok"), *call(given={"a": 2}), gave("2"), FINISH)
    assert [item.get("arguments") for item in found] == ['{"a":1}', None, '{"a":2}', None]
    assert found[3] == result("2", call_id=found[2]["call_id"])


def test_free_text_is_the_input_of_a_custom_tool() -> None:
    custom: Json = {"kind": "custom"}
    parts = [*streamed("free ", inputEncoding="text"), whole("free text")]
    assert output(*parts, FINISH) == [a_call("free text", **custom)]
    parts = [*streamed('"quoted"', inputEncoding="text"), whole('"quoted"')]
    assert output(*parts, FINISH) == [a_call('"quoted"', **custom)]
    parts = [*streamed("{}", inputEncoding="text"), whole("else")]
    assert [item["arguments"] for item in output(*parts, FINISH)] == ["{}", "else"]
    assert output(*call(given="word"), FINISH) == [a_call('"word"')]


def test_who_carries_out_a_call_is_named_by_the_stream() -> None:
    def executor(*chunks: Any) -> Any:
        return view(*chunks, FINISH)["output"][0].get("executor", "server")

    assert executor(*call()) == "client"
    assert executor(*call(dynamic=True)) == "client"
    assert executor(*call(providerExecuted=True)) == "provider"
    assert executor(OURS, *call(providerExecuted=True)) == "server"
    about: Json = {"providerMetadata": {"tailrace": {"kind": "mcp", "server_label": "wiki"}}}
    ours = view(OURS, *call(providerExecuted=True, **about), FINISH)["output"][0]
    assert (ours["executor"], ours["kind"], ours["server_label"]) == ("provider", "mcp", "wiki")


def test_an_input_that_is_no_good() -> None:
    refused = {"type": "tool-input-error", "toolCallId": "c", "toolName": "tool"}
    refused["errorText"] = "city is missing"
    failed: Json = {
        "status": "failed",
        "error": {"code": "tool_error", "message": "city is missing"},
    }
    # A whole one was refused by the tool; the error that follows says so again.
    again = {"type": "tool-output-error", "toolCallId": "c", "errorText": "city is missing"}
    parts = [{**refused, "input": {"a": 1}}, again]
    assert output(*parts, FINISH) == [a_call('{"a":1}'), result(**failed)]
    # Half of one was never a call.
    parts = [*streamed('{"a'), {**refused, "input": '{"a":'}]
    assert output(*parts, FINISH) == [a_call('{"a":', **CUT)]
    assert output(*parts, parts[-1], FINISH) == [a_call('{"a":', **CUT)]
    assert output(*streamed('{"a'), {**refused, "input": "other"}, FINISH) == [a_call('{"a', **CUT)]
    assert output(refused, FINISH) == [a_call("", **CUT)]
    assert raw_of(refused, again, FINISH) == ["tool-output-error"]


# --- results -------------------------------------------------------------------------------------


def test_what_a_call_gave_is_text_or_the_text_of_its_json() -> None:
    for value, shown in [
        ("sunny", ["sunny"]),
        ({"sky": "blue"}, ['{"sky":"blue"}']),
        ([{"type": "text", "text": "not ours"}], ['[{"type":"text","text":"not ours"}]']),
        (0, ["0"]),
        (None, []),
        ("", []),
    ]:
        assert output(*call(), gave(value), FINISH) == [a_call(), result(*shown)]


def test_what_a_call_of_ours_gave_are_blocks() -> None:
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


def test_results_come_in_any_order_and_wait_for_their_calls() -> None:
    late = [gave("two", "b"), *call("a"), *call("b"), gave("one", "a"), FINISH]
    shown = [item.get("block_list") for item in output(*late)]
    assert shown == [
        None,
        None,
        [{"type": "text", "text": "two"}],
        [{"type": "text", "text": "one"}],
    ]
    piece = {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '{"a":'}
    early = [piece, {**piece, "inputTextDelta": "1}"}, *call(given={"a": 1}), FINISH]
    assert output(*early) == [a_call('{"a":1}')]


def test_results_and_pieces_of_no_call_are_kept_raw() -> None:
    piece = {"type": "tool-input-delta", "toolCallId": "x", "inputTextDelta": "{"}
    assert raw_of(gave("?"), piece, FINISH) == ["tool-output-available", "tool-input-delta"]
    assert output(gave("?"), piece, FINISH) == []


def test_a_tool_that_failed_or_was_refused() -> None:
    def failed(**chunk: Any) -> Any:
        return output(*call(), {"toolCallId": "c", **chunk}, FINISH)[1]["error"]

    error = {"code": "tool_error", "message": "no"}
    assert failed(type="tool-output-error", errorText="no") == error
    assert failed(type="tool-output-error")["message"] == "The tool failed."
    assert failed(type="tool-output-denied")["code"] == "approval_rejected"


def test_of_an_output_in_the_making_the_last_one_counts() -> None:
    parts = [*call(), gave("a", preliminary=True), gave("ab", preliminary=True)]
    assert output(*parts, gave("abc"), FINISH) == [a_call(), result("abc")]
    interrupted = {"code": "interrupted", "message": "The tool was interrupted."}
    assert output(*parts) == [a_call(), result("ab", status="failed", error=interrupted)]


# --- approvals -----------------------------------------------------------------------------------

ASK = {"type": "tool-approval-request", "approvalId": "a", "toolCallId": "c", "reason": "Really?"}


def test_a_message_that_waits_for_approval_leaves_the_run_waiting() -> None:
    _, outcome = ended(*call(), ASK, {"type": "finish", "finishReason": "tool-calls"})
    assert [(one.id, one.call_id, one.message) for one in outcome.requests] == [
        ("a", "c", "Really?")
    ]
    _, outcome = ended({**ASK, "toolCallId": "unknown"}, FINISH)
    assert outcome.requests[0].call_id is None


def test_what_was_answered_or_went_on_waits_no_more() -> None:
    answer = {"type": "tool-approval-response", "approvalId": "a", "approved": True}
    for then in ([answer], [gave("ok")], [{"type": "tool-output-denied", "toolCallId": "c"}]):
        _, outcome = ended(*call(), ASK, *then, FINISH)
        assert outcome == Outcome(status="completed")
    _, outcome = ended(*call(), ASK, {"type": "finish", "finishReason": "length"})
    assert not outcome.requests
    _, outcome = ended(*call(), ASK)
    assert outcome.status == "cut"


def test_questions_of_ours_are_asked_again() -> None:
    data = {"task_id": "run_1", "id": "q", "kind": "input", "message": "Size?", "schema": {}}
    ask = {"type": "data-request", "id": "q", "data": data}
    _, outcome = ended(OURS, ask, FINISH)
    assert [(one.id, one.kind, one.message) for one in outcome.requests] == [
        ("q", "input", "Size?")
    ]
    _, outcome = ended(OURS, ask, RESET, FINISH)
    assert not outcome.requests
    assert raw_of(OURS, {**ask, "data": {"id": 7}}, FINISH) == ["data-request"]


# --- taken back ----------------------------------------------------------------------------------


def test_what_was_not_final_leaves_the_run_and_what_is_sent_again_is_written_once() -> None:
    step = [*call(), gave("ok"), *text("0", "Half")]
    again = [*call(), gave("ok"), *text("1", "Whole"), FINISH]
    assert output(START_STEP, *step, RESET, *again) == [a_call(), result("ok"), message("Whole")]
    half = [*streamed('{"a'), *text("0", "Half")[:2], *text("r", "hm", kind="reasoning")[:2]]
    assert output(START_STEP, *half, RESET, *text("0", "Whole"), FINISH) == [message("Whole")]
    found = output(*streamed('{"a'), RESET, *call(given={"b": 1}), FINISH)
    assert found == [a_call('{"b":1}', call_id=found[0]["call_id"])]
    assert output(RESET, *text("0", "a"), RESET, FINISH) == []
    assert view(RESET, FINISH).get("attempt") is None


def test_completed_parts_that_come_again_are_written_once() -> None:
    image = {"type": "file", "url": "/i", "mediaType": "image/png"}
    first = [*text("0", "One", " text"), image, *text("r", "hm", kind="reasoning")]
    start, *rest = text("0", "One text")
    rest[-1] = {**rest[-1], "citations": [{"source": {"id": "s1"}}]}
    again = [start, *rest, URL, image, *text("r", "hm", kind="reasoning"), FINISH]
    thought = {"type": "reasoning", "summary": [{"type": "text", "text": "hm"}]}
    shown = {"type": "image", "image_url": {"url": "/i"}}
    assert output(*first, RESET, *again) == [message("One text", shown), thought]
    # A second picture is another one, and after the next step nothing is told again.
    assert output(*first, RESET, *again[:-1], image, FINISH)[-1] == message(shown)
    later = output(*first, START_STEP, RESET, *first, FINISH)
    assert later == [message("One text", shown), thought, message("One text", shown), thought]


def test_a_part_that_begins_as_before_and_goes_on_otherwise_is_another_part() -> None:
    first = [*text("0", "The sky"), *text("r", "hm", kind="reasoning")]
    other = output(*first, RESET, *text("0", "The s", "ea"), FINISH)
    assert [item["block_list"][0]["text"] for item in other if "block_list" in item] == [
        "The sky",
        "The sea",
    ]
    shorter = output(*first, RESET, *text("0", "The"), FINISH)
    assert shorter[-1] == message("The")
    unfinished = output(*first, RESET, *text("0", "The")[:2])
    assert unfinished[0] == message("The sky")


# --- parts of our own streams --------------------------------------------------------------------

SERVER: Json = {"providerExecuted": True}


def test_a_stream_of_ours_gives_the_items_of_the_root() -> None:
    def part(kind: str, **fields: Any) -> Json:
        return {"type": f"data-{kind}", "id": "c/0", "data": {"task_id": "c"}, **fields}

    parts = [part(kind) for kind in ("task", "task-item", "step")]
    parts += [part(kind, transient=True) for kind in ("delta", "block", "notice", "progress")]
    blocks = [{"type": "text", "text": "own"}, {"type": "task", "task_id": "c"}]
    shown = view(OURS, *call(**SERVER), *parts, gave(blocks), FINISH)
    assert [one["type"] for one in shown["output"]] == ["tool_call", "tool_result"]
    assert shown["output"][1]["block_list"] == blocks[:1]
    assert not shown.keys() & {"tasks", "steps", "notices", "progress"}
    assert raw_of(OURS, *parts, FINISH) == []


def test_a_citation_of_a_sub_agents_block_is_kept_raw() -> None:
    start, delta, end = text("m/0", "So.[^3]")
    source: Json = {"type": "source", "sourceType": "document", "id": "c/1/0"}
    source["providerMetadata"] = {"tailrace": {"reference_id": 3, "task_id": "c"}}
    end["citations"] = [{"source": source, "startIndex": 3, "endIndex": 7}]
    assert notes(OURS, start, delta, end)[0][0]["type"] == "raw"


def test_a_citation_whose_marker_stands_in_the_text_is_written_once() -> None:
    fact = {"type": "text", "text": "fact", "id": 1}
    start, delta, end = text("m/0", "So.[^1]")
    source: Json = {"type": "source", "sourceType": "document", "id": "c/1/0"}
    source["providerMetadata"] = {"tailrace": {"reference_id": 1}}
    end["citations"] = [
        {"source": source, "startIndex": 3, "endIndex": 7},
        {"source": source, "startIndex": 0, "endIndex": 2},
    ]
    found = notes(OURS, *call(**SERVER), gave([fact]), start, delta, end)[0]
    assert [one["type"] for one in found] == ["reference_to_block"] * 2
    assert [one["start_index"] for one in found] == [3, 0]


def test_the_structured_output_of_ours_is_read() -> None:
    part = {"type": "data-output", "id": "o", "data": {"value": None, "name": "n"}}
    assert view(OURS, part, FINISH)["structured_output"] == {"value": None, "name": "n"}
    assert raw_of(OURS, {**part, "data": {}}, FINISH) == ["data-output"]


# --- whole streams -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def backends() -> dict[str, list[str]]:
    """What backends on the AI SDK itself answer."""
    told = json.loads(run_node(["vercel_backend.mjs"], timeout=120))
    return {name: [line[6:] for line in body.split("\n") if line] for name, body in told.items()}


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
TRACES = sorted((Path(__file__).parents[2] / "conformance" / "traces").glob("*/vercel-ui.sse"))


def chunks_of(path: Path) -> list[str]:
    if path.suffix == ".jsonl":
        return lines(path)
    told = path.read_text(encoding="utf-8").split("\n")
    return [line[6:] for line in told if line.startswith("data: {")]


@pytest.mark.parametrize(
    "path", [*STREAMS, *TRACES], ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_a_message_that_is_cut_anywhere_ends_legally(path: Path) -> None:
    chunks = chunks_of(path)
    for count in range(len(chunks)):
        book, _ = ended(*chunks[:count])
        check_readable(book)


POOL = [json.loads(chunk) for path in [*STREAMS, *TRACES] for chunk in chunks_of(path)]
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
