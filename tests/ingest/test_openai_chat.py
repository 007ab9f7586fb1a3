"""Chat completions, point by point: what is kept where, and what cannot go wrong."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.core.errors import MalformedEvent, StreamError, StreamTooLarge
from tailrace.core.items import Executor
from tailrace.ingest.base import Notebook, Outcome
from tailrace.ingest.openai_chat.reader import OpenAIChat
from tests.ingest.streams import FIXTURES, check_readable, ingested, kept_raw, lines, shown

STREAMS = sorted((FIXTURES / "chat-completions").glob("*.jsonl"))


def chunk(delta: Any, finish_reason: Any = None, **top: Any) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return json.dumps({"id": "chatcmpl-1", "model": "m", "choices": [choice], **top})


def calls(*fragments: Any, **top: Any) -> str:
    return chunk({"tool_calls": list(fragments)}, **top)


def fragment(name: Any = None, arguments: Any = None, **more: Any) -> dict[str, Any]:
    return {**more, "function": {"name": name, "arguments": arguments}}


STOP = chunk({}, "stop")


def read(*events: str) -> tuple[dict[str, Any], Outcome]:
    """The task's object after a stream that was read back from its own bytes, and the outcome."""
    book, outcome = ingested(OpenAIChat, list(events))
    check_readable(book)
    return shown(book), outcome


def fixture(name: str) -> dict[str, Any]:
    return read(*lines(FIXTURES / "chat-completions" / f"{name}.jsonl"))[0]


def items(*events: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read(*events)[0].get("output", [])
    return found


def kept(*events: str) -> list[Any]:
    """What was kept raw."""
    book, _ = ingested(OpenAIChat, list(events))
    return [raw for _, raw in kept_raw(book)]


# --- how it ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("finish_reason", "status", "reason"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("function_call", "completed", None),
        ("STOP", "completed", None),
        ("eos", "completed", None),
        ("eos_token", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("model_length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
        ("insufficient_system_resource", "incomplete", "insufficient_system_resource"),
        ("Something_New", "incomplete", "Something_New"),
        ("", "cut", None),
        ("null", "cut", None),
        (None, "cut", None),
        (7, "cut", None),
    ],
)
def test_the_finish_reason_decides(finish_reason: Any, status: str, reason: str | None) -> None:
    object_, outcome = read(chunk({"content": "a"}), chunk({}, finish_reason))
    assert (outcome.status, outcome.reason) == (status, reason)
    assert object_["output"][0].get("status") == (None if status == "completed" else "incomplete")


def test_a_null_that_is_a_word_does_not_stand_in_the_way_of_the_finish_reason() -> None:
    assert read(chunk({"content": "a"}, "null"), STOP)[1].status == "completed"


def test_a_message_behind_its_deltas_repeats_them() -> None:
    """Some servers end so. What no delta had is still new."""
    fragments = [fragment("look", "{}", id="a")]
    last = {"role": "assistant", "content": "Hello", "tool_calls": fragments, "name": "M"}
    choice = {"index": 0, "message": last, "finish_reason": "stop"}
    whole = json.dumps({"object": "chat.completion", "choices": [choice]})
    for deltas in (["Hel", "lo"], [None], []):
        message, call = items(*(chunk({"content": piece}) for piece in deltas), whole)
        assert message["block_list"] == [{"type": "text", "text": "Hello"}]
        assert call["call_id"] == "a"


@pytest.mark.parametrize("delta", [{}, None])
def test_a_message_that_has_another_name_for_the_reasoning_does_not_tell_it_again(
    delta: Any,
) -> None:
    entry = {"type": "reasoning.text", "text": "Hm.", "signature": "s"}
    last = {"reasoning_content": "Hm.", "reasoning_details": [entry], "content": "Hello"}
    choice = {"index": 0, "delta": delta, "message": last, "finish_reason": "stop"}
    deltas = [chunk({"reasoning": "Hm."}), chunk({"content": "Hello"})]
    events = [*deltas, json.dumps({"choices": [choice]})]
    assert [item["type"] for item in items(*events)] == ["reasoning", "message"]
    whole = {"choices": [{"message": last}]} if delta == {} else {"choices": [choice]}
    assert kept(*events)[0] == whole


def test_a_stop_behind_everything_does_not_undo_the_text_before() -> None:
    call = calls(fragment("f", "{}", index=0))
    assert read(call, chunk({}, "length"), STOP)[1].reason == "max_output_tokens"
    assert read(call, chunk({}, "tool_calls"), STOP)[1].status == "completed"
    assert read(call, STOP, chunk({}, "length"))[1].status == "incomplete"


def test_a_finish_reason_that_says_error_is_a_failure_even_without_words() -> None:
    outcome = read(chunk({}, "error"))[1]
    assert outcome.error is not None
    assert (outcome.status, outcome.error.code) == ("failed", "provider_error")


USAGE = json.dumps({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})


@pytest.mark.parametrize("end", ["[DONE]", USAGE])
@pytest.mark.parametrize("finish_reason", [None, "", "null"])
def test_an_answer_without_finish_reason_is_completed_by_done_or_the_final_usage(
    end: str, finish_reason: Any
) -> None:
    """Snowflake Cortex sends no `finish_reason`."""
    said = [chunk({"content": "a"}, finish_reason), calls(fragment("f", '{"a":1}', index=0))]
    object_, outcome = read(*said, end, json.dumps({"choices": "none"}))
    assert outcome == Outcome(status="completed")
    assert [item.get("status") for item in object_["output"]] == [None, None]
    # Nothing may follow what ends an answer, and an answer has to be there.
    assert read(end)[1].status == "cut"
    assert read(*said, USAGE, chunk({"content": "b"}))[1].status == "cut"
    assert read(*said, json.dumps({"error": {"message": "No"}}), end)[1].status == "failed"


@pytest.mark.parametrize("end", ["[DONE]", USAGE])
@pytest.mark.parametrize("arguments", ['{"a":', "", '{"a":1}}'])
def test_a_call_that_may_be_cut_is_not_completed_without_finish_reason(
    end: str, arguments: str
) -> None:
    object_, outcome = read(calls(fragment("f", arguments, index=0)), end)
    assert outcome.status == "cut"
    assert object_["output"][0]["status"] == "incomplete"


def test_counts_so_far_do_not_complete_an_answer() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    assert read(chunk({"content": "a"}, usage=usage))[1].status == "cut"
    assert read(chunk({"content": "a"}), chunk({}, usage={"prompt_tokens": 3}))[1].status == "cut"


def test_nothing_is_read_behind_done() -> None:
    assert read(STOP, " [DONE]\n", chunk({"content": "late"}))[0]["output"] == []
    book = Notebook()
    ingest = OpenAIChat(book)
    ingest.feed(STOP.encode())
    ingest.feed(b"[DONE]")
    assert ingest.end().status == "completed"
    assert ingest.end() is ingest.end()


def test_nothing_at_all_is_a_cut() -> None:
    object_, outcome = read()
    assert outcome == Outcome(status="cut")
    assert object_["reason"] == "cut"


@pytest.mark.parametrize(
    ("event", "code", "message", "param"),
    [
        ({"error": {"message": "No.", "code": "x", "param": "p"}}, "x", "No.", "p"),
        ({"error": {"message": "No.", "type": "t", "code": None}}, "t", "No.", None),
        ({"error": {"message": "No.", "code": 429}}, "429", "No.", None),
        ({"error": "No."}, "provider_error", "No.", None),
        ({"error": {"message": {"a": 1}}}, "provider_error", '{"a":1}', None),
        ({"error": {"why": 1}}, "provider_error", '{"why":1}', None),
        ({"error": ["No."]}, "provider_error", '["No."]', None),
        ({"object": "error", "message": "No."}, "provider_error", "No.", None),
        ({"code": "InvalidApiKey", "message": "No."}, "InvalidApiKey", "No.", None),
        ({"choices": [], "x_groq": {"error": "No."}}, "provider_error", "No.", None),
        ({"base_resp": {"status_code": 1002, "status_msg": "No."}}, "1002", "No.", None),
        ({"choices": [{"error": {"code": 502, "message": "No."}}]}, "502", "No.", None),
    ],
)
def test_an_error_in_the_stream_is_a_failure_whatever_its_shape(
    event: Any, code: str, message: str, param: str | None
) -> None:
    events = [chunk({"content": "a"}), json.dumps(event), STOP]
    object_, outcome = read(*events)
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.message) == (code, message)
    assert outcome.error.param == param
    assert object_["output"][0]["status"] == "incomplete"
    assert kept(*events)[0] == event


def test_the_first_error_counts() -> None:
    outcome = read('{"error": "one"}', '{"error": "two"}')[1]
    assert outcome.error is not None
    assert outcome.error.message == "one"


def test_a_null_error_is_not_an_error() -> None:
    assert read(chunk({"content": "a"}, "stop", error=None))[1].status == "completed"


def test_what_is_no_event_changes_nothing() -> None:
    book = Notebook()
    ingest = OpenAIChat(book)
    ingest.feed(chunk({"content": "a"}))
    for data in ("", "{", "[]", "1", "[DONE", b"\xff", '{"a": NaN}'):
        with pytest.raises(MalformedEvent):
            ingest.feed(data)
    with pytest.raises(MalformedEvent):
        ingest.feed('{"a":' * 95 + "1" + "}" * 95)
    with pytest.raises(StreamTooLarge):
        ingest.feed(" " * (16 * 1024 * 1024 + 1))
    ingest.feed(chunk({"content": "b"}, "stop"))
    assert ingest.end().status == "completed"
    book.conclude(ingest.end())
    assert shown(book)["output"][0]["block_list"][0]["text"] == "ab"


def test_values_that_no_database_holds_do_not_end_the_stream() -> None:
    """Some tell a seed in 64 bits; models say U+0000, and proxies cut emojis in two."""
    object_, outcome = read(
        chunk({"content": "a\0"}, seed=2**63),
        '{"choices":[{"index":0,"delta":{"content":"\\ud83d"},"finish_reason":"stop"}]}',
    )
    assert outcome.status == "completed"
    assert object_["output"][0]["block_list"] == [{"type": "text", "text": "a\ufffd\ufffd"}]


# --- usage ---------------------------------------------------------------------------------------


def usage(raw: Any, **top: Any) -> dict[str, Any]:
    object_, _ = read(chunk({"content": "a"}, "stop", usage=raw, **top))
    found: dict[str, Any] = object_.get("usage", {})
    return found


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}, {}),
        ({"prompt_tokens_details": {"cached_tokens": 2}}, {"cached_input_tokens": 2}),
        ({"prompt_cache_hit_tokens": 2}, {"cached_input_tokens": 2}),
        ({"cached_tokens": 2}, {"cached_input_tokens": 2}),
        ({"num_cached_tokens": 2}, {"cached_input_tokens": 2}),
        ({"cache_creation_input_tokens": 2}, {"cache_write_tokens": 2}),
        ({"prompt_tokens_details": {"cache_write_tokens": 2}}, {"cache_write_tokens": 2}),
        ({"prompt_tokens_details": {"cache_creation_input_tokens": 2}}, {"cache_write_tokens": 2}),
        ({"completion_tokens_details": {"reasoning_tokens": 2}}, {"reasoning_tokens": 2}),
        (
            {"completion_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 9},
            {"reasoning_tokens": 2, "output_tokens": 6},
        ),
        ({"reasoning_tokens": 2}, {"reasoning_tokens": 2}),
        ({"cost": 0.5}, {"cost": 0.5}),
        ({"cost": {"total_cost": 0.5}}, {"cost": 0.5}),
        ({"cost_in_usd_ticks": 5_000_000_000}, {"cost": 0.5}),
        ({"cost": "much", "cached_tokens": True, "prompt_tokens_details": 5}, {}),
        ({"cached_tokens": -1, "prompt_cache_hit_tokens": 1e300, "cost": None}, {}),
    ],
)
def test_usage_in_everybodys_words(raw: dict[str, Any], found: dict[str, Any]) -> None:
    counts = {"prompt_tokens": 3, "completion_tokens": 4}
    expected = {"calls": 1, "input_tokens": 3, "output_tokens": 4, "model": "m"}
    assert usage({**counts, **raw}) == {**expected, **found}


def test_usage_that_says_nothing_does_not_undo_what_was_counted() -> None:
    counted = chunk({"content": "a"}, "stop", usage={"prompt_tokens": 3})
    assert read(counted, chunk({}, usage={}))[0]["usage"]["input_tokens"] == 3


def test_the_response_and_its_usage_are_kept_as_they_came() -> None:
    raw = {"prompt_tokens": 3, "completion_tokens": 4, "queue_time": 0.5}
    object_, _ = read(
        chunk({}, None, id="", model="", service_tier=None),
        chunk({"content": "a"}, "stop", service_tier="auto", system_fingerprint="fp"),
        json.dumps({"choices": [], "usage": raw, "service_tier": "flex", "id": "other"}),
    )
    assert object_["usage"]["service_tier"] == "flex"
    assert object_["private"]["provider"] == {
        "api": "openai_chat",
        "response_id": "chatcmpl-1",
        "model": "m",
        "service_tier": "flex",
        "system_fingerprint": "fp",
        "finish_reason": "stop",
        "usage": raw,
    }


def test_without_usage_the_response_is_kept_all_the_same() -> None:
    assert kept(STOP)[0]["response"] == {
        "response_id": "chatcmpl-1",
        "model": "m",
        "finish_reason": "stop",
    }


def test_usage_may_stand_in_x_groq_and_survives_a_cut() -> None:
    event = json.dumps({"x_groq": {"usage": {"prompt_tokens": 1}}, "model": 7, "service_tier": []})
    object_, outcome = read(event)
    assert outcome.status == "cut"
    assert object_["usage"] == {"calls": 1, "input_tokens": 1, "output_tokens": 0}


# --- reasoning -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "reasoning_text", "thinking"])
@pytest.mark.parametrize(
    "value",
    ["Hm.", {"content": "Hm."}, {"text": "Hm."}, [{"type": "text", "text": "Hm."}], ["H", "m."]],
)
def test_reasoning_is_a_summary_whatever_it_is_called(name: str, value: Any) -> None:
    reasoning, message = items(chunk({name: value}), chunk({"content": "a"}, "stop"))
    assert reasoning["summary"] == [{"type": "text", "text": "Hm."}]
    assert reasoning["private"]["provider"] == {"api": "openai_chat", "field": name}
    assert message["type"] == "message"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}], "signature": "s"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
    ],
)
def test_reasoning_may_be_a_part_of_the_content(part: dict[str, Any]) -> None:
    reasoning, message = items(chunk({"content": [part]}), chunk({"content": "So."}, "stop"))
    assert reasoning["summary"] == [{"type": "text", "text": "Hm."}]
    assert reasoning["private"].get("signature") == part.get("signature")
    assert message["block_list"] == [{"type": "text", "text": "So."}]


def test_a_part_that_only_seals_the_reasoning_is_kept_for_the_next_request() -> None:
    parts = [
        {"type": "thinking", "thinking": []},
        {"type": "thinking", "signature": "s", "text": ""},
    ]
    (reasoning,) = items(chunk({"content": parts}), STOP)
    assert reasoning["summary"] == []
    assert reasoning["private"] == {
        "provider": {"api": "openai_chat", "field": "content", "part": "thinking"},
        "signature": "s",
    }
    details = chunk({"reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]})
    for part in parts:
        (reasoning,) = items(chunk({"content": [part]}), details, STOP)
        assert reasoning["summary"] == [{"type": "text", "text": "Hm."}]


def test_two_fields_with_one_text_are_one_text_and_with_two_are_two() -> None:
    both = chunk({"reasoning": "a", "reasoning_content": "a"})
    assert items(both, both)[0]["summary"][0]["text"] == "aa"
    other = chunk({"reasoning": "a", "reasoning_content": "b"})
    assert items(other)[0]["summary"][0]["text"] == "ba"


def test_sealed_reasoning_is_private_and_kept_entry_by_entry() -> None:
    first, _, late = fixture("openrouter-reasoning-details")["output"]
    assert first["private"]["signature"] == "c2ln"
    assert first["private"]["encrypted_content"] == "c2VjcmV0"
    assert [entry["type"] for entry in first["private"]["provider"]["reasoning_details"]] == [
        "reasoning.text",
        "reasoning.encrypted",
    ]
    assert first["private"]["provider"]["reasoning_details"][0]["text"] == "Thinking."
    assert late["private"]["encrypted_content"] == "bGF0ZQ=="
    assert late["summary"] == []


def test_sealed_reasoning_of_two_entries_is_not_run_together() -> None:
    sealed = [{"type": "reasoning.encrypted", "data": data} for data in ("one", "two")]
    (reasoning,) = items(chunk({"reasoning_details": sealed}))
    assert reasoning["private"]["provider"]["reasoning_details"] == sealed


def test_opaque_reasoning_after_a_call_is_an_item_of_its_own() -> None:
    call = calls(fragment("f", "{}", index=0))
    found = items(call, chunk({"reasoning_opaque": "x"}, "stop"))
    assert [item["type"] for item in found] == ["tool_call", "reasoning"]
    assert found[1]["private"]["encrypted_content"] == "x"


def test_opaque_reasoning_may_come_in_pieces_or_again_in_every_chunk() -> None:
    for pieces in (("ab", "c"), ("abc", "abc", "abc")):
        (reasoning,) = items(*(chunk({"reasoning_opaque": piece}) for piece in pieces), STOP)
        assert reasoning["private"]["provider"]["reasoning_opaque"] == "abc"
        assert reasoning["private"]["encrypted_content"] == "abc"


def test_sealed_reasoning_is_kept_under_the_name_that_it_came_with() -> None:
    blocks = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]
    (reasoning,) = items(chunk({"thinking_blocks": blocks}), STOP)
    assert reasoning["summary"] == [{"type": "text", "text": "Hm."}]
    assert reasoning["private"]["provider"]["thinking_blocks"] == blocks
    both = {"thinking_blocks": blocks, "reasoning_details": [{"type": "x", "text": "Hm."}]}
    (reasoning,) = items(chunk(both), STOP)
    assert reasoning["summary"] == [{"type": "text", "text": "Hm."}]


def test_pieces_of_details_that_are_alike_are_not_taken_for_one() -> None:
    piece = chunk({"reasoning_details": [{"type": "reasoning.text", "text": "ha"}]})
    assert items(piece, piece)[0]["summary"][0]["text"] == "haha"
    other = chunk({"reasoning": "ha"})
    assert items(other, other)[0]["summary"][0]["text"] == "haha"
    assert items(chunk({"reasoning": "Oh"}), piece)[0]["summary"][0]["text"] == "Ohha"


def test_thoughts_that_are_content_are_reasoning_without_a_field_to_go_back_in() -> None:
    flag = {"extra_content": {"google": {"thought": True}}}
    thought = [chunk({"content": piece, **flag}) for piece in ("<thought>a ", "<thought>b")]
    reasoning, message = items(*thought, chunk({"content": ""}), chunk({"content": "c"}), STOP)
    assert reasoning["summary"] == [{"type": "text", "text": "a <thought>b"}]
    assert reasoning["private"]["provider"] == {"api": "openai_chat", "field": "thought"}
    assert message["block_list"] == [{"type": "text", "text": "c"}]
    _, message = items(*thought, chunk({"content": "</thought>", **flag}), chunk({"content": "d"}))
    assert message["block_list"] == [{"type": "text", "text": "d"}]
    for other in ({"google": {"thought": "yes"}}, {"google": 1}, {"other": 1}, "x"):
        (message,) = items(chunk({"content": "<thought>", "extra_content": other}), STOP)
        assert message["block_list"] == [{"type": "text", "text": "<thought>"}]


def test_thinking_and_text_that_alternate_keep_their_order() -> None:
    found = items(
        chunk({"reasoning": "a"}),
        chunk({"content": "b"}),
        chunk({"reasoning": "c", "content": ""}),
        chunk({"content": "d", "reasoning": ""}),
        STOP,
    )
    assert [item["type"] for item in found] == ["reasoning", "message"] * 2


# --- the message ---------------------------------------------------------------------------------


def test_what_is_heard_is_shown_unless_it_is_written_too() -> None:
    heard = chunk({"audio": {"transcript": "Hello"}})
    (message,) = items(heard, STOP)
    assert message["block_list"] == [{"type": "text", "text": "Hello"}]
    (message,) = items(chunk({"content": "Hello"}), heard, STOP)
    assert message["block_list"] == [{"type": "text", "text": "Hello"}]
    assert message["private"]["provider"]["audio"] == {"transcript": "Hello"}


def test_what_goes_with_the_message_is_private() -> None:
    (message,) = fixture("openai-logprobs")["output"]
    assert [one["token"] for one in message["private"]["provider"]["logprobs"]["content"]] == [
        "Hi",
        "!",
    ]
    (message,) = fixture("openai-audio")["output"]
    assert message["private"]["provider"]["audio"] == {
        "id": "audio_1",
        "transcript": "Hello",
        "data": "AAAABBBB",
        "expires_at": 1770003600,
    }


def test_logprobs_of_no_message_are_kept() -> None:
    choice = {"delta": {}, "logprobs": {"content": [1]}, "finish_reason": "stop"}
    assert kept(json.dumps({"choices": [choice]}))[-1]["delta"] == {"logprobs": {"content": [1]}}


def annotated(*annotations: Any) -> list[dict[str, Any]]:
    event = chunk({"annotations": list(annotations)})
    text = items(chunk({"content": "abcdef"}), event, event, STOP)[0]["block_list"][0]
    found: list[dict[str, Any]] = text.get("annotations", [])
    return found


def test_citations_are_annotations_once_however_often_they_are_sent() -> None:
    place = {"start_index": 1, "end_index": 3}
    nested = {"type": "url_citation", "url_citation": {"url": "u", "content": "c", **place}}
    assert annotated(nested) == [{"type": "url_citation", "url": "u", **place}]
    flat = {"type": "url_citation", "url": "u", "title": "t", **place}
    assert annotated(flat) == [flat]
    file = {"type": "file_citation", "file_citation": {"file_id": "f", "index": 2}}
    assert annotated(file) == [{"type": "file_citation", "file_id": "f", "index": 2}]


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "news", "url": "u"},
        {"type": ["url_citation"]},
        {"type": "url_citation", "url": 5},
        "https://a.example",
        None,
    ],
)
def test_a_citation_of_another_shape_is_kept_raw(raw: Any) -> None:
    assert annotated(raw) == [{"type": "raw", "raw": raw}]


def test_a_citation_without_a_text_is_kept_raw() -> None:
    note = {"type": "url_citation", "url": "u", "start_index": 0, "end_index": 1}
    assert kept(chunk({"annotations": [note]}))[-1]["delta"] == {"annotations": [note]}
    assert kept(chunk({}, citations=["u"]))[-1]["delta"] == {"citations": ["u"]}
    reference = {"type": "reference", "reference_ids": [1]}
    assert kept(chunk({"content": [reference]}))[-1]["delta"] == {"annotations": [reference]}


def test_a_citation_that_comes_before_its_text_waits_for_it() -> None:
    place = {"start_index": 0, "end_index": 5}
    first, second = ({"type": "url_citation", "url": url, **place} for url in "ab")
    for beginning in ({"annotations": [first]}, {"content": "He", "annotations": [first]}):
        told = "llo" if "content" in beginning else "Hello"
        picture = {"images": [{"image_url": "https://i.example"}]}
        (message,) = items(
            chunk(beginning),
            chunk({"content": told}),
            chunk({"annotations": [second]}),
            chunk(picture),
            chunk({"content": "!"}, "stop"),
        )
        assert message["block_list"][0] == {
            "type": "text",
            "text": "Hello",
            "annotations": [second, first],
        }
        assert message["private"]["provider"]["annotations"] == [first, second]
        assert message["block_list"][2] == {"type": "text", "text": "!"}


def test_a_citation_without_a_place_covers_the_text_and_one_beyond_it_is_raw() -> None:
    page = {"type": "url_citation", "url": "u", "start_index": 0, "end_index": 0}
    beyond = {**page, "end_index": 9}
    assert annotated(page, beyond) == [{**page, "end_index": 6}, {"type": "raw", "raw": beyond}]


def test_sources_of_the_whole_answer_are_one_citation_of_the_last_list() -> None:
    (message,) = fixture("perplexity-citations")["output"]
    assert [note["raw"]["type"] for note in message["block_list"][0]["annotations"]] == [
        "citations",
        "search_results",
    ]
    first = message["block_list"][0]["annotations"][0]["raw"]
    assert first["citations"] == ["https://a.example", "https://b.example"]


def test_parts_of_the_content_may_be_anything() -> None:
    parts = [
        "a",
        {"type": "text", "text": "b"},
        {"type": "image_url", "image_url": "https://i.example"},
        {"type": "refusal", "refusal": "No"},
        {"type": "refusal", "refusal": "."},
        {"type": "refusal", "refusal": ""},
    ]
    (message,) = items(chunk({"content": parts}), STOP)
    assert [block["type"] for block in message["block_list"]] == ["text", "image", "refusal"]
    assert message["block_list"][2]["refusal"] == "No."


# --- what has no name ----------------------------------------------------------------------------


def test_reasoning_that_stands_only_in_its_details_is_shown() -> None:
    details = [{"type": "reasoning.text", "text": "Let me see."}]
    (reasoning,) = items(chunk({"reasoning_details": details}))
    assert "Let me see." in json.dumps(
        {name: value for name, value in reasoning.items() if name != "private"}
    )


@pytest.mark.parametrize(
    "delta",
    [
        {"content": 5},
        {"content": [5, {"type": "text"}, {"type": "thinking", "thinking": 5}]},
        {"content": [{"type": ["text"], "text": "a"}]},
        {"content": [{"type": "image_url"}, {"type": "refusal"}, {"type": "new", "x": 1}]},
        {"refusal": {"a": 1}},
        {"reasoning": 5},
        {"reasoning": {"new": "a"}},
        {"reasoning_details": [5]},
        {"reasoning_details": {"a": 1}},
        {"thinking_blocks": "a"},
        {"reasoning_opaque": 5},
        {"images": "a"},
        {"images": [5, {"image_url": {}}]},
        {"audio": "a"},
        {"annotations": "a"},
        {"tool_calls": {"a": 1}},
        {"tool_calls": [5]},
        {"function_call": "a"},
        {"new": {"a": [1]}},
    ],
)
def test_what_is_not_understood_is_kept(delta: dict[str, Any]) -> None:
    assert kept(chunk(delta))[0] == json.loads(chunk(delta))


def test_a_chunk_with_unknown_fields_is_kept_whole_once_per_set_of_names() -> None:
    def event(at: int, **more: Any) -> str:
        choice = {"delta": {"content": "a", "beat": at}, "score": at, "delay": None}
        return json.dumps({"choices": [choice], "region": "eu", "obfuscation": "xyz", **more})

    events = [event(1), event(2), event(3, zone=7), event(4), event(5, zone=8)]
    assert kept(*events) == [json.loads(events[0]), json.loads(events[2])]


def test_many_pieces_of_other_choices_are_kept_in_several_events() -> None:
    book = Notebook()
    ingest = OpenAIChat(book)
    for at in range(12_000):
        choices = [{"index": n, "delta": {"content": f"{n}:{at}"}} for n in (0, 1)]
        ingest.feed(json.dumps({"choices": choices}))
    book.conclude(ingest.end())
    raws = [raw["choices"] for _, raw in kept_raw(book)]
    assert [len(one) for one in raws] == [10_000, 2_000]
    assert [choice["delta"]["content"] for one in raws for choice in one] == [
        f"1:{at}" for at in range(12_000)
    ]


def test_a_call_that_is_no_list_of_calls_is_one() -> None:
    function = {"name": "f", "arguments": "{}"}
    delta = {"tool_calls": {"index": 0, "id": "call_1", "function": function}}
    chunk = {"choices": [{"delta": delta, "finish_reason": "tool_calls"}]}
    object_, _ = read(json.dumps(chunk))
    [call] = object_["output"]
    assert (call["name"], call["arguments"], call.get("status")) == ("f", "{}", None)


@pytest.mark.parametrize(
    "choice",
    [{"delta": "a"}, {"message": ["a"]}, {"logprobs": [1]}, {"usage": 5}, {"finish_reason": 5}],
)
def test_what_is_of_the_wrong_type_in_a_choice_is_kept(choice: dict[str, Any]) -> None:
    assert kept(json.dumps({"choices": [choice]}))[0] == {"choices": [choice]}


def test_usage_of_the_wrong_type_is_kept_and_so_is_every_error() -> None:
    assert kept('{"usage": "much"}') == [{"usage": "much"}]
    assert kept('{"error": "one"}', '{"error": "two"}') == [{"error": "one"}, {"error": "two"}]


def test_what_a_part_of_the_content_has_beside_its_text_is_kept() -> None:
    note = {"type": "url_citation", "url": "u", "start_index": 0, "end_index": 1}
    picture = {"type": "image_url", "image_url": {"url": "u", "detail": "low"}, "b": 2}
    thought = {"type": "thinking", "thinking": "t", "closed": True, "c": 3}
    text = {"type": "text", "text": "x", "annotations": [note], "a": 1}
    assert items(chunk({"content": [thought, text, picture]}), STOP)[1]["block_list"][0][
        "annotations"
    ] == [note]
    image = {"image_url": {"url": "u"}, "index": 0, "type": "image_url", "revised": "r"}
    for part in (thought, text, picture, {**picture, "b": None}):
        event = chunk({"content": [part]})
        assert kept(event)[0] == json.loads(event)
    event = chunk({"images": [image]})
    assert kept(event)[0] == json.loads(event)


def test_the_choice_that_speaks_is_read_and_another_may_end_it() -> None:
    def told(index: int, delta: Any, finish_reason: Any = None) -> str:
        choice = {"index": index, "delta": delta, "finish_reason": finish_reason}
        return json.dumps({"choices": [choice]})

    said = [told(0, {"role": "assistant", "content": ""}), told(1, {"content": "a"})]
    object_, outcome = read(*said, told(0, {}, "stop"))
    assert outcome.status == "completed"
    assert object_["output"][0]["block_list"] == [{"type": "text", "text": "a"}]
    assert read(*said, told(0, {"content": "b"}, "stop"))[1].status == "cut"
    assert read(*said, told(1, {}, "length"), told(0, {}, "stop"))[1].status == "incomplete"
    assert read(told(3, {}, "stop"))[1].status == "completed"


def test_choices_that_are_none_and_other_choices_are_kept() -> None:
    assert kept('{"choices": "none"}') == [{"choices": "none"}]
    assert kept('{"choices": [5]}') == [{"choices": [5]}]
    other = {"index": 1, "delta": {"content": "b"}}
    events = [chunk({"content": "a"}), json.dumps({"choices": [other]})]
    assert kept(*events)[-1]["choices"] == [other]


# --- calls ---------------------------------------------------------------------------------------


def made(*events: str) -> list[tuple[str, str, str | None]]:
    return [
        (item["name"], item["arguments"], item.get("status"))
        for item in items(*events, STOP)
        if item["type"] == "tool_call"
    ]


def test_who_carries_a_call_out_is_asked_by_name() -> None:
    asked: list[str] = []

    def executor_of(name: str) -> Executor:
        asked.append(name)
        return "client"

    book = Notebook()
    ingest = OpenAIChat(book, executor_of)
    ingest.feed(calls(fragment("f", "{}", index=0)))
    book.conclude(ingest.end())
    assert asked == ["f"]
    assert shown(book)["output"][0]["executor"] == "client"


def test_an_id_that_comes_late_or_is_taken_is_private() -> None:
    (call,) = fixture("late-name-and-id")["output"]
    assert call["call_id"] == "call_1_3"
    assert call["private"]["provider"] == {"api": "openai_chat", "call_id": "call_a"}
    one, two = items(
        calls(fragment("f", "{}", index=0, id="same"), fragment("f", "[]", index=1, id="same"))
    )
    assert one["call_id"] == "same"
    assert two["private"]["provider"]["call_id"] == "same"


def test_what_a_call_carries_beside_it_is_private() -> None:
    (call,) = fixture("gemini-thought-signature")["output"]
    fields: dict[str, Any] = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    assert call["private"]["provider"]["fields"] == fields
    builtin = {"index": 0, "type": "builtin_function", "function": {"name": "$web", "a": 1}}
    (call,) = items(calls(builtin), calls({"index": 0, "function": {"b": 2}}), STOP)
    fields = {"type": "builtin_function", "function": {"a": 1, "b": 2}}
    assert call["private"]["provider"]["fields"] == fields
    (call,) = fixture("openai-legacy-function-call")["output"]
    assert call["private"]["provider"]["function_call"] is True
    (call,) = fixture("openai-custom-tool")["output"]
    assert call["kind"] == "custom"


def test_a_call_without_a_name_is_no_call_and_is_kept() -> None:
    nameless = fragment(None, "{}", index=0, id="x", more=1)
    object_, outcome = read(calls(nameless), STOP)
    assert object_["private"]["raw"]["delta"]["tool_calls"] == [
        {"id": "x", "arguments": "{}", "more": 1}
    ]
    assert (outcome.status, outcome.reason) == ("incomplete", "truncated_tool_call")


def test_arguments_that_are_no_json_are_the_models_and_the_call_is_whole() -> None:
    assert made(calls(fragment("f", "{'a': 1}", index=0))) == [("f", "{'a': 1}", None)]
    assert made(calls(fragment("f", "12", index=0))) == [("f", "12", None)]


def test_arguments_that_are_only_begun_are_never_whole() -> None:
    text = '{"a": [1, "x\\u00e9", {"b": null}]}'
    for end in range(1, len(text)):
        object_, outcome = read(calls(fragment("f", text[:end], index=0)), STOP)
        assert object_["output"][0]["status"] == "incomplete"
        assert (outcome.status, outcome.reason) == ("incomplete", "truncated_tool_call")


def test_arguments_that_were_looked_at_on_the_way_are_still_only_begun() -> None:
    # Each repeated name makes us look whether the call so far is whole.
    pieces = [calls(fragment("f", piece)) for piece in ('{"a":', "[1", ",2")]
    assert made(*pieces) == [("f", '{"a":[1,2', "incomplete")]


def test_a_call_without_arguments_is_whole() -> None:
    assert made(calls(fragment("f", "", index=0)), calls(fragment("", None, index=0))) == [
        ("f", "", None)
    ]


def test_calls_show_in_the_order_in_which_they_began() -> None:
    begun = calls(fragment("f", "", index=0), fragment("g", '{"a":', index=1))
    assert made(begun, calls(fragment(None, "{}", index=0), fragment(None, "1}", index=1))) == [
        ("f", "{}", None),
        ("g", '{"a":1}', None),
    ]


def test_the_same_index_with_another_id_and_name_is_another_call() -> None:
    one = fragment("f", "", index=0, id="a")
    assert made(calls(one), calls(fragment("g", "", index=0, id="b"))) == [
        ("f", "", None),
        ("g", "", None),
    ]


def test_the_same_index_without_ids_and_with_a_new_name_is_another_call() -> None:
    one, two = fragment("f", "{}", index=0), fragment("g", "{}", index=0)
    assert made(calls(one), calls(two)) == [("f", "{}", None), ("g", "{}", None)]
    assert made(calls(one), calls({**one, "function": {"name": "f", "arguments": "[1]"}})) == [
        ("f", "{}", None),
        ("f", "[1]", None),
    ]


def test_white_space_behind_the_arguments_belongs_to_them() -> None:
    one = fragment("f", "{}", index=0)
    assert made(calls(one), calls(fragment("f", "\n", index=0))) == [("f", "{}\n", None)]


def test_pieces_that_name_no_call_belong_to_one_call_each_if_they_are_as_many() -> None:
    """So Moonshot goes on with two calls at once, without an index."""
    two = calls(fragment("f", "", id="a"), fragment("g", None, id="b"))
    more = [calls(*({"function": {"arguments": one}} for one in pair)) for pair in ("{[", "}]")]
    assert made(two, *more) == [("f", "{}", None), ("g", "[]", None)]
    assert made(two, calls({"function": {"arguments": "{}"}})) == [
        ("f", "", None),
        ("g", "{}", None),
    ]


def test_pieces_that_are_each_all_so_far_make_the_call_of_the_last() -> None:
    """Some send arguments so; what was shown of their run is a call that nobody makes."""

    def sent(*pieces: str) -> list[str]:
        begun = calls(fragment("f", None, index=0, id="a"))
        return [begun, *(calls(fragment(None, piece, index=0)) for piece in pieces)]

    shown, call = items(*sent('{"a"', '{"a":1', '{"a":1}', '{"a":1}'), STOP)
    assert (shown["status"], shown["call_id"]) == ("incomplete", "a")
    assert (call["arguments"], "status" in call) == ('{"a":1}', False)
    assert call["private"]["provider"]["call_id"] == "a"
    cut = items(*sent('{"a"', '{"a":1}'))
    assert [(one["arguments"], one["status"]) for one in cut] == [('{"a"{"a":1}', "incomplete")]
    nested = sent('{"a":', '{"a":1}}')
    assert made(*nested) == [("f", '{"a":{"a":1}}', None)]
    for broken in (['{"a"', '{"a":1'], ['{"a"', "{b}"], ["{'a': 1}"]):
        assert [one["arguments"] for one in items(*sent(*broken), STOP)] == ["".join(broken)]


def test_arguments_that_are_sent_again_at_the_end_are_written_once() -> None:
    """OpenRouter ends Gemini's calls so. Pieces that are alike on the way are more of them."""
    for place in ({"index": 0}, {}):
        pieces = [calls(fragment("", piece, **place)) for piece in ('{"a":', "1}", '{"a":1}')]
        assert made(calls(fragment("f", "", **place)), *pieces) == [("f", '{"a":1}', None)]
        alike = [calls(fragment("", piece, **place)) for piece in ("[", "[", "]", "]")]
        assert made(calls(fragment("f", "", **place)), *alike) == [("f", "[[]]", None)]


def test_what_is_nothing_like_a_part_of_a_call_is_kept_beside_it() -> None:
    odd = {"index": "0", "id": 5, "function": {"name": "f", "arguments": 7}}
    (call,) = items(calls(odd), STOP)
    assert call["arguments"] == "7"
    assert call["private"]["provider"]["strange"] == {"index": "0", "id": 5}
    both = {"index": 0, "custom": {"name": "f", "input": "x"}, "function": {"name": "g"}}
    (call,) = items(calls(both), STOP)
    assert call["private"]["provider"]["strange"] == {"function": {"name": "g"}}
    nameless = {"index": 0, "function": "f", "type": 5}
    assert kept(calls(nameless))[-1]["delta"]["tool_calls"][0] == {
        "id": "",
        "arguments": "",
        "function": "f",
        "type": 5,
    }
    two = [calls(fragment("f", one, index="1")) for one in ('{"a":', "1}")]
    assert made(*two) == [("f", '{"a":1}', None)]


def test_an_id_alone_names_the_call() -> None:
    one, two = fragment("f", '{"a":', id="a"), fragment("f", '{"a":', id="b")
    rest = calls(fragment(None, "2}", id="b"), fragment(None, "1}", id="a"))
    assert made(calls(one, two), rest) == [("f", '{"a":1}', None), ("f", '{"a":2}', None)]
    again = calls(fragment("f", '{"a":1}', id="a"))
    assert len(made(calls(one, two), rest, again)) == 2


def test_bare_arguments_under_a_new_index_belong_to_the_call_that_waits_for_them() -> None:
    one = calls(fragment("f", "{}", index=0, id="a"))
    head = calls(fragment("g", '{"a":', index=0, id="b"))  # with the index of the call before
    assert made(one, head, calls(fragment(None, "1}", index=1))) == [
        ("f", "{}", None),
        ("g", '{"a":1}', None),
    ]
    assert made(calls(fragment("f", "", index=2, id="a")), calls(fragment("", "{}", index=1))) == [
        ("f", "{}", None)
    ]


def test_bare_arguments_under_a_new_index_behind_a_whole_call_wait_for_their_name() -> None:
    one = calls(fragment("f", "{}", index=0))
    rest = [calls(fragment(None, '{"a":', index=1)), calls(fragment("g", "1}", index=1))]
    assert made(one, *rest) == [("f", "{}", None), ("g", '{"a":1}', None)]


def test_one_id_under_several_indexes_is_one_call() -> None:
    pieces = [
        fragment("f", "", index=0, id="a"),
        fragment("f", '{"a":', index=1, id="a"),
        fragment(None, "1}", index=2, id="a"),
        fragment("f", '{"a":1}', index=3, id="a"),
    ]
    assert made(*map(calls, pieces)) == [("f", '{"a":1}', None)]
    other = fragment("g", "{}", index=0, id="b")
    swapped = [fragment(None, "2}", index=0, id="a")]
    assert made(calls(*pieces[:2]), calls(other), calls(*swapped)) == [
        ("f", '{"a":2}', None),
        ("g", "{}", None),
    ]


def test_calls_without_any_label_are_as_many_as_came() -> None:
    same = calls(fragment("f", {"a": 1}), fragment("f", {"a": 1}))
    assert len(made(same)) == 2


def test_parallel_calls_of_one_tool_without_ids_are_kept_apart_by_index() -> None:
    begun = calls(fragment("f", '{"a":', index=0), fragment("f", '{"a":', index=1))
    assert made(begun, calls(fragment(None, "2}", index=1), fragment(None, "1}", index=0))) == [
        ("f", '{"a":1}', None),
        ("f", '{"a":2}', None),
    ]


def test_reasoning_and_text_are_closed_before_a_call_begins() -> None:
    book = Notebook()
    ingest = OpenAIChat(book)
    for delta in ({"reasoning": "a"}, {"content": "b"}, {"reasoning": "c"}):
        ingest.feed(chunk(delta))
    ingest.feed(calls(fragment("f", "{}", index=0)))
    assert [node.is_open for node in book.node.items.values()] == [False, False, False, True]


def test_an_id_that_comes_late_without_an_index_belongs_to_the_last_call() -> None:
    one = calls(fragment("f", '{"a":'))
    assert made(one, calls(fragment(None, "1}", id="a"))) == [("f", '{"a":1}', None)]
    assert made(calls(fragment("f", "{}")), calls(fragment("f", "{}", id="a"))) == [
        ("f", "{}", None),
        ("f", "{}", None),
    ]


def test_arguments_that_come_as_an_object_are_whole_and_come_once() -> None:
    one = fragment("f", {"a": 1}, index=0)
    assert made(calls(one), calls(one)) == [("f", '{"a":1}', None)]
    again = calls(fragment(None, {"b": 2}, index=0))
    (call,) = items(calls(one), again, STOP)
    assert call["arguments"] == '{"a":1}'
    assert call["private"]["provider"]["fields"] == {"arguments": {"b": 2}}
    assert made(calls(fragment("f")), calls(fragment(None, {"a": 1}))) == [("f", '{"a":1}', None)]


def test_the_input_of_a_custom_tool_is_any_text_and_may_repeat_its_name() -> None:
    def piece(text: Any) -> str:
        return calls({"index": 0, "custom": {"name": "shell", "input": text}})

    assert made(piece("{"), piece("ls"), piece('"')) == [("shell", '{ls"', None)]
    (call,) = items(piece("ls"), piece({"a": 1}), STOP)
    assert call["arguments"] == "ls"
    assert call["private"]["provider"]["fields"] == {"arguments": {"a": 1}}


def test_a_fragment_cannot_pass_itself_off_as_another_api() -> None:
    forged = fragment("f", "{}", index=0, id="a", api="x", call_id="b")
    (call,) = items(calls(forged), STOP)
    fields = {"api": "x", "call_id": "b"}
    assert call["private"]["provider"] == {"api": "openai_chat", "fields": fields}


def test_a_name_grows_only_so_long() -> None:
    pieces = [calls(fragment("ab" * index, "", index=0)) for index in range(1, 60)]
    assert len(made(*pieces)[0][0]) < 400


# --- strangers -----------------------------------------------------------------------------------

_WORDS = st.sampled_from(
    [
        *("content", "reasoning", "reasoning_content", "reasoning_details", "tool_calls", "delta"),
        *("function", "name", "arguments", "index", "id", "type", "text", "thinking", "refusal"),
        *("choices", "usage", "error", "finish_reason", "stop", "annotations", "audio", "images"),
        *("function_call", "message", "logprobs", "citations", "x_groq", "url_citation", "custom"),
        *("thinking_blocks", "reasoning_opaque", "extra_content", "google", "signature", "summary"),
    ]
)
_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=8,
)


@st.composite
def mutated_streams(draw: st.DrawFn) -> list[str]:
    """A real stream in which values were replaced, dropped, swapped or doubled."""
    events = [json.loads(line) for line in lines(draw(st.sampled_from(STREAMS)))]
    for _ in range(draw(st.integers(1, 6))):
        _mutate(draw, events)
    return [json.dumps(event) for event in events]


def _mutate(draw: st.DrawFn, events: list[Any]) -> None:
    holder: Any = events
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return
        key = draw(st.sampled_from(keys))
        inner = holder[key]
        if isinstance(inner, dict | list) and inner and draw(st.integers(0, 4)):
            holder = inner
            continue
        how = draw(st.sampled_from(["replace", "drop", "double", "shuffle"]))
        if how == "replace":
            holder[key] = draw(_ANYTHING)
        elif how == "drop":
            del holder[key]
        elif how == "double" and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(inner))
        elif isinstance(holder, list):
            holder[:] = draw(st.permutations(holder))
        return


def check_hostile(events: list[str]) -> None:
    book = Notebook()
    ingest = OpenAIChat(book)
    for event in events:
        try:
            ingest.feed(event)
        except StreamError:
            continue
    outcome = ingest.end()
    book.conclude(outcome)
    check_readable(book)
    for item in shown(book).get("output", []):
        if item["type"] == "tool_call" and "status" not in item:
            assert outcome.status in ("completed", "incomplete")
            assert item["kind"] == "custom" if "kind" in item else _is_no_beginning(item)


def _is_no_beginning(call: dict[str, Any]) -> bool:
    """No characters at all, JSON, or what cannot become JSON by going on."""
    if not call["arguments"]:
        return True
    try:
        json.loads(call["arguments"])
    except json.JSONDecodeError as error:
        return error.pos < len(call["arguments"]) and "Unterminated" not in error.msg
    return True


@given(mutated_streams())
def test_a_stream_that_was_tampered_with_ends_legally(events: list[str]) -> None:
    check_hostile(events)


@given(st.lists(st.dictionaries(_WORDS, _ANYTHING, max_size=4).map(json.dumps), max_size=8))
def test_objects_that_are_no_chunks_end_legally(events: list[str]) -> None:
    check_hostile(events)


_DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "content": _ANYTHING,
        "reasoning": _ANYTHING,
        "reasoning_details": st.lists(_ANYTHING, max_size=2),
        "reasoning_opaque": _ANYTHING,
        "extra_content": st.just({"google": {"thought": True}}),
        "annotations": st.lists(_ANYTHING, max_size=2),
        "tool_calls": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "index": st.integers(0, 2) | st.none(),
                    "id": st.sampled_from(["", "a", "b"]) | st.none(),
                    "function": st.fixed_dictionaries(
                        {},
                        optional={
                            "name": st.sampled_from(["", "f", "g"]),
                            "arguments": st.sampled_from(["", "{}", '{"a":', "1}", "x", {"a": 1}]),
                        },
                    ),
                },
            ),
            max_size=3,
        ),
        "function_call": _ANYTHING,
        "refusal": st.text(max_size=2),
    },
)


@given(st.lists(_DELTAS, max_size=8), st.sampled_from(["stop", "tool_calls", "length", None]))
def test_any_deltas_in_any_order_end_legally(deltas: list[Any], finish: str | None) -> None:
    check_hostile([*(chunk(delta) for delta in deltas), chunk({}, finish)])


_LONG: dict[str, Callable[[int], str]] = {
    "text": lambda at: chunk({"content": "word "}),
    "turns": lambda at: chunk({"reasoning": "a", "content": "b"}),
    "one call": lambda at: calls(fragment("f", "1", index=0, id="a")),
    "new ids": lambda at: calls(fragment("f", "[", id=f"call_{at}", index=0)),
    "new ids of whole calls": lambda at: calls(fragment("f", "[1]", index=0, id=f"call_{at}")),
    "no ids": lambda at: calls(fragment("f", "[1]")),
    "new indexes": lambda at: calls(fragment("f", "", index=at)),
    "images": lambda at: chunk({"images": [{"image_url": {"url": "u"}}], "content": "a"}),
    "citations": lambda at: chunk({"content": "a", "annotations": [{"at": at}]}),
    "opaque": lambda at: chunk({"reasoning_opaque": f"{at}"}),
    "details": lambda at: chunk({"reasoning_details": [{"type": "reasoning.text", "text": "a"}]}),
    "unknown": lambda at: chunk({"new": "a", "audio": {"data": "a"}}, citations=["u"]),
}


@pytest.mark.growth
@pytest.mark.parametrize("make", _LONG.values(), ids=list(_LONG))
def test_the_cost_of_a_chunk_does_not_grow_with_what_came_before(
    make: Callable[[int], str],
) -> None:
    def seconds(count: int) -> float:
        events = [make(at) for at in range(count)]
        start = time.thread_time()
        book = Notebook()
        ingest = OpenAIChat(book)
        for event in events:
            ingest.feed(event)
        ingest.end()
        return time.thread_time() - start

    # Ten times the chunks; quadratic would be a hundred times the time.
    small = min(seconds(150) for _ in range(3))
    assert seconds(1_500) < small * 10 * 4
