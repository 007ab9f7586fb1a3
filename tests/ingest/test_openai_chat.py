"""Rules of the chat ingest over many streams, its errors and its limits.

Single streams and their objects are in `cases/openai-chat`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.core.errors import MalformedEvent, StreamTooLarge
from tailrace.core.items import Executor
from tailrace.ingest.base import Notebook, Outcome
from tailrace.ingest.openai_chat.reader import OpenAIChat
from tests.ingest.streams import FIXTURES, check_readable, ingested, kept_raw, lines, shown


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


USAGE = json.dumps({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})


@pytest.mark.parametrize("end", ["[DONE]", USAGE])
@pytest.mark.parametrize("finish_reason", [None, "", "null"])
def test_an_answer_without_finish_reason_is_completed_by_done_or_the_final_usage(
    end: str, finish_reason: Any
) -> None:
    """Snowflake Cortex sends no `finish_reason`."""
    chunks = [chunk({"content": "a"}, finish_reason), calls(fragment("f", '{"a":1}', index=0))]
    object_, outcome = read(*chunks, end, json.dumps({"choices": "none"}))
    assert outcome == Outcome(status="completed")
    assert [item.get("status") for item in object_["output"]] == [None, None]
    # Nothing may follow what ends an answer, and an answer has to be there.
    assert read(end)[1].status == "cut"
    assert read(*chunks, USAGE, chunk({"content": "b"}))[1].status == "cut"
    assert read(*chunks, json.dumps({"error": {"message": "No"}}), end)[1].status == "failed"


@pytest.mark.parametrize("end", ["[DONE]", USAGE])
@pytest.mark.parametrize("arguments", ['{"a":', "", '{"a":1}}'])
def test_a_call_that_may_be_cut_is_not_completed_without_finish_reason(
    end: str, arguments: str
) -> None:
    object_, outcome = read(calls(fragment("f", arguments, index=0)), end)
    assert outcome.status == "cut"
    assert object_["output"][0]["status"] == "incomplete"


def test_events_after_done_are_ignored() -> None:
    assert read(STOP, " [DONE]\n", chunk({"content": "late"}))[0]["output"] == []
    book = Notebook()
    ingest = OpenAIChat(book)
    ingest.feed(STOP.encode())
    ingest.feed(b"[DONE]")
    assert ingest.end().status == "completed"
    assert ingest.end() is ingest.end()


def test_an_empty_stream_is_a_cut() -> None:
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


def test_data_that_is_not_an_event_is_refused_and_changes_nothing() -> None:
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
def test_usage_is_read_in_the_words_of_each_provider(
    raw: dict[str, Any], found: dict[str, Any]
) -> None:
    counts = {"prompt_tokens": 3, "completion_tokens": 4}
    expected = {"calls": 1, "input_tokens": 3, "output_tokens": 4, "model": "m"}
    assert usage({**counts, **raw}) == {**expected, **found}


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


# --- the message ---------------------------------------------------------------------------------


def test_logprobs_and_audio_of_a_message_are_private() -> None:
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


def annotated(*annotations: Any) -> list[dict[str, Any]]:
    event = chunk({"annotations": list(annotations)})
    text = items(chunk({"content": "abcdef"}), event, event, STOP)[0]["block_list"][0]
    found: list[dict[str, Any]] = text.get("annotations", [])
    return found


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


def test_sources_of_the_whole_answer_are_a_citation_of_the_last_list() -> None:
    (message,) = fixture("perplexity-citations")["output"]
    assert [note["raw"]["type"] for note in message["block_list"][0]["annotations"]] == [
        "citations",
        "search_results",
    ]
    first = message["block_list"][0]["annotations"][0]["raw"]
    assert first["citations"] == ["https://a.example", "https://b.example"]


# --- unknown data --------------------------------------------------------------------------------


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
def test_deltas_with_wrong_types_are_kept_raw(delta: dict[str, Any]) -> None:
    assert kept(chunk(delta))[0] == json.loads(chunk(delta))


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


@pytest.mark.parametrize(
    "choice",
    [{"delta": "a"}, {"message": ["a"]}, {"logprobs": [1]}, {"usage": 5}, {"finish_reason": 5}],
)
def test_choices_with_wrong_types_are_kept_raw(choice: dict[str, Any]) -> None:
    assert kept(json.dumps({"choices": [choice]}))[0] == {"choices": [choice]}


# --- calls ---------------------------------------------------------------------------------------


def test_the_executor_of_a_call_is_asked_by_name() -> None:
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


def test_unknown_fields_of_a_call_are_private() -> None:
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


def test_unknown_fields_of_a_call_keep_their_order() -> None:
    names = "hgfedcba"
    piece = fragment("f", "{}", index=0, **dict.fromkeys(names, 1))
    piece["function"].update(dict.fromkeys(names, 2))
    (call,) = items(calls(piece), STOP)
    fields = call["private"]["provider"]["fields"]
    assert ("".join(fields), "".join(fields["function"])) == (names + "function", names)


def test_arguments_that_are_only_begun_are_never_whole() -> None:
    text = '{"a": [1, "x\\u00e9", {"b": null}]}'
    for end in range(1, len(text)):
        object_, outcome = read(calls(fragment("f", text[:end], index=0)), STOP)
        assert object_["output"][0]["status"] == "incomplete"
        assert (outcome.status, outcome.reason) == ("incomplete", "truncated_tool_call")


def test_reasoning_and_text_are_closed_before_a_call_begins() -> None:
    book = Notebook()
    ingest = OpenAIChat(book)
    for delta in ({"reasoning": "a"}, {"content": "b"}, {"reasoning": "c"}):
        ingest.feed(chunk(delta))
    ingest.feed(calls(fragment("f", "{}", index=0)))
    assert [node.is_open for node in book.node.items.values()] == [False, False, False, True]


def test_the_name_of_a_call_is_limited() -> None:
    pieces = [calls(fragment("ab" * index, "", index=0)) for index in range(1, 60)]
    assert len(items(*pieces, STOP)[0]["name"]) < 400
