"""Anthropic's Messages stream: every run is a legal one, and what each item becomes in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given

from tailrace.core import events as ev
from tailrace.core.errors import InvalidCursor
from tailrace.core.fold import State
from tailrace.core.items import (
    Data,
    ErrorInfo,
    File,
    FileCitation,
    Image,
    ImageUrl,
    InputRequest,
    Message,
    RawAnnotation,
    RawItem,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    UrlCitation,
    Usage,
)
from tailrace.testing.strategies import Run, legal_runs
from tailrace.testing.wire_kit import as_recorded, check_wire, encoded
from tailrace.wire.anthropic_messages import message_object
from tailrace.wire.anthropic_messages.encoder import FORMAT, IN_DELTAS
from tests.traces import TRACES, Trace
from tests.wire import openai_scripts as scripts
from tests.wire.anthropic_checker import MessageReader
from tests.wire.frames import events_of
from tests.wire.openai_scripts import ANSWER, RUN, Script, cite, picture

Json = dict[str, Any]


def flat(frames: list[list[bytes]]) -> list[bytes]:
    return [frame for each in frames for frame in each]


def read(script: Script) -> MessageReader:
    """What a strict client ends up with, once the kit has tried the run at every place."""
    return MessageReader().read(flat(check_wire(FORMAT, script.events)))


def ended(script: Script) -> MessageReader:
    """The same of a run that is completed now."""
    return read(script.add(ev.TaskCompleted))


def closed(script: Script, reason: str = "The server stops.") -> MessageReader:
    """What a client has that is sent away here."""
    encoder = FORMAT.at(State())
    reader = MessageReader()
    for one in as_recorded(script.events):
        reader.read(encoder.encode(one))
    last = encoder.close(reason)
    assert encoder.close(reason) == last, "closing changes nothing"
    return reader.read(last)


def folded(events: Sequence[ev.AnyEvent]) -> State:
    state = State()
    for event in events:
        state.absorb(event)
    return state


def joined(events: Sequence[ev.AnyEvent], place: int) -> MessageReader:
    """A client that comes in after so many events and stays to the end."""
    encoder, frames = FORMAT.open(folded(events[:place]))
    reader = MessageReader().read(frames)
    for one in as_recorded(events[place:]):
        reader.read(encoder.encode(one))
    return reader


# --- every legal run -----------------------------------------------------------------------------


@given(legal_runs())
def test_every_run_is_a_stream_that_the_strict_reader_takes(run: Run) -> None:
    reader = MessageReader().read(flat(encoded(FORMAT, [event for event, _ in run])))
    assert reader.is_done


@given(legal_runs(max_events=40, complete=False))
def test_a_stream_that_is_closed_anywhere_has_an_end(run: Run) -> None:
    encoder, reader = FORMAT.at(State()), MessageReader()
    for one in as_recorded([event for event, _ in run]):
        reader.read(encoder.encode(one))
    reader.read(encoder.close("enough"))
    assert reader.is_done


@given(legal_runs(max_events=25))
def test_a_client_that_joins_anywhere_ends_with_the_same_message(run: Run) -> None:
    events = [event for event, _ in run]
    whole = joined(events, len(events))
    for place in range(1, len(events)):
        reader = joined(events, place)
        assert reader.is_done
        if reader.error is None or "begun again" not in reader.error["message"]:
            assert reader.content == whole.content
            assert (reader.stop_reason, reader.usage) == (whole.stop_reason, whole.usage)


@given(legal_runs(max_events=40))
def test_nothing_private_is_in_any_frame(run: Run) -> None:
    state = State()
    private = ev.Private(signature="canary", encrypted_content="canary", provider={"id": "canary"})
    for one in as_recorded([event for event, _ in run]):
        state.absorb(one.event, private)
    assert b"canary" not in b"".join(FORMAT.open(state)[1])


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_a_foreign_log_is_a_legal_stream_too(trace: Any) -> None:
    events = [event for event, _ in trace.events]
    reader = MessageReader().read(flat(encoded(FORMAT, events)))
    root = folded(events).root
    if root is not None and root.ended:
        assert reader.is_done


# --- the message ---------------------------------------------------------------------------------


def test_a_run_is_one_message_of_its_agent() -> None:
    run = Script(agent="helper", model="m-1").begin()
    reader = ended(run.message(0, Text(text="Hello!")))
    assert reader.message is not None
    assert reader.message["id"] == f"msg_{RUN}"
    assert reader.message["model"] == "helper"
    assert reader.content == [{"type": "text", "text": "Hello!"}]
    assert reader.stop_reason == "end_turn"


def test_a_model_answers_where_there_is_no_agent_and_an_id_keeps_its_prefix() -> None:
    created = ev.TaskCreated(task_id="msg_1", sequence_number=1, model="m-1")
    [event] = events_of(flat(encoded(FORMAT, [created])))
    assert (event["message"]["id"], event["message"]["model"]) == ("msg_1", "m-1")


def test_usage_is_of_the_whole_run_and_counts_the_cache_apart() -> None:
    assert read(scripts.everything()).usage == {
        "input_tokens": 1010 - 200 - 30,
        "cache_creation_input_tokens": 30,
        "cache_read_input_tokens": 200,
        "output_tokens": 505,
        "output_tokens_details": {"thinking_tokens": 40},
    }
    run = Script().begin()
    run.add(ev.TaskUsage, usage=Usage(input_tokens=1, output_tokens=2, cached_input_tokens=3))
    assert ended(run).usage == {
        "input_tokens": 0,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 3,
        "output_tokens": 2,
    }


def test_everything_that_an_agent_does_in_order() -> None:
    reader = read(scripts.everything())
    assert [block["type"] for block in reader.content] == [
        "thinking",
        "thinking",
        "mcp_tool_use",
        "mcp_tool_result",
        "mcp_tool_use",
        "mcp_tool_result",
        "thinking",
        "text",
    ]
    thoughts = ["Thinking about Paris.", "Let me look it up.", "Raw thinking."]
    assert reader.texts("thinking") == thoughts
    assert reader.content[2]["input"] == {"city": "Paris ☀"}
    assert reader.content[2]["server_name"] == "tailrace"
    [shown] = reader.content[3]["content"]
    assert shown["text"] == "15 °C, sunny\n[report.pdf](https://files.example/report.pdf)"
    assert reader.content[5]["content"][0]["text"] == "It is sunny, says the expert."
    assert reader.texts() == [ANSWER]
    assert [one["url"] for one in reader.content[7]["citations"]] == [
        "tailrace:run_7/run_7/1",
        "https://files.example/report.pdf",
        "tailrace:run_7/call_3/1",
    ]
    assert [one["title"] for one in reader.content[7]["citations"]] == [
        "get_weather",
        "report.pdf",
        "lookup",
    ]


def test_each_delta_is_sent_as_it_comes() -> None:
    run = Script().begin().reasoning(0, "Which city?").message(1, Text(text="In Paris."))
    events = events_of(flat(encoded(FORMAT, run.events)))
    pieces = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert pieces == [
        {"type": "thinking_delta", "thinking": "Whic"},
        {"type": "thinking_delta", "thinking": "h ci"},
        {"type": "thinking_delta", "thinking": "ty?"},
        {"type": "signature_delta", "signature": run.state.tasks[RUN].items[0].id},
        {"type": "text_delta", "text": "In P"},
        {"type": "text_delta", "text": "aris"},
        {"type": "text_delta", "text": "."},
    ]


def test_a_ping_keeps_a_silent_stream_alive_and_there_is_no_cursor() -> None:
    assert FORMAT.heartbeat == b'event: ping\ndata: {"type":"ping"}\n\n'
    assert not FORMAT.resumable
    MessageReader().read([FORMAT.heartbeat])
    with pytest.raises(InvalidCursor):
        FORMAT.cursor("1")


# --- one block at a time -------------------------------------------------------------------------


def interleaved() -> Script:
    """Two messages and two calls of the client's, all open at once and ended in another order."""
    run = Script().begin()
    for index in (0, 1):
        run.item(Message(id=f"msg_7_{index}", role="assistant"), index)
        where: Any = {"item_id": f"msg_7_{index}", "output_index": index, "block_index": 0}
        run.add(ev.TextAdded, **where, item=Text(text=""))
    for index in (2, 3):
        item = ToolCall(id=f"fc_7_{index}", call_id=f"call_{index}", name="t", executor="client")
        run.item(item, index)
    for word in ("one ", "two "):
        for index in (1, 0):
            where = {"item_id": f"msg_7_{index}", "output_index": index, "block_index": 0}
            run.add(ev.TextDelta, **where, delta=f"{index}{word}")
        for index in (3, 2):
            piece = '{"n":' if word == "one " else f"{index}}}"
            run.add(ev.ArgumentsDelta, item_id=f"fc_7_{index}", output_index=index, delta=piece)
    for index in (3, 2):
        item = ToolCall(id=f"fc_7_{index}", call_id=f"call_{index}", name="t", executor="client")
        arguments = f'{{"n":{index}}}'
        run.add(ev.ArgumentsDone, item_id=f"fc_7_{index}", output_index=index, arguments=arguments)
        run.done(item, index)
    for index in (1, 0):
        where = {"item_id": f"msg_7_{index}", "output_index": index, "block_index": 0}
        run.add(ev.TextDone, **where, item=Text(text=f"{index}one {index}two "))
        run.done(Message(id=f"msg_7_{index}", role="assistant"), index)
    return run


def test_items_that_stream_at_once_are_sent_one_after_the_other() -> None:
    reader = ended(interleaved())
    assert reader.texts() == ["0one 0two ", "1one 1two "]
    assert [block["input"] for block in reader.content[2:]] == [{"n": 2}, {"n": 3}]
    assert reader.stop_reason == "tool_use"


def test_what_waited_is_sent_at_once_and_goes_on_live() -> None:
    run = Script().begin()
    for index in (0, 1):
        run.item(Message(id=f"msg_7_{index}", role="assistant"), index)
        where: Any = {"item_id": f"msg_7_{index}", "output_index": index, "block_index": 0}
        run.add(ev.TextAdded, **where, item=Text(text=""))
        run.add(ev.TextDelta, **where, delta=f"{index}")
        run.add(ev.TextDelta, **where, delta="a")
    where["output_index"], where["item_id"] = 0, "msg_7_0"
    run.add(ev.TextDone, **where, item=Text(text="0a"))
    where["output_index"], where["item_id"] = 1, "msg_7_1"
    run.add(ev.TextDelta, **where, delta="b")
    events = events_of(flat(check_wire(FORMAT, run.events)))
    pieces = [event["delta"]["text"] for event in events if event["type"].endswith("block_delta")]
    assert pieces == ["0", "a", "1a", "b"]


def test_blocks_stand_in_order_of_arrival_for_newcomers_too() -> None:
    run = Script().begin()
    for index in (0, 1):
        run.item(Message(id=f"msg_7_{index}", role="assistant"), index)
        run.block(f"msg_7_{index}", index, 0, Text(text=f"{index}.0"))
    run.block("msg_7_0", 0, 1, Text(text="0.1"))
    for index in (0, 1):
        run.done(Message(id=f"msg_7_{index}", role="assistant"), index)
    assert ended(run).texts() == ["0.0", "1.0", "0.1"]
    assert joined(run.events, len(run.events)).texts() == ["0.0", "1.0", "0.1"]


def test_a_sub_agent_s_words_never_slip_into_a_text_at_the_same_place() -> None:
    run = Script().begin().item(Message(id="msg_7_0", role="assistant"), 0)
    where: Any = {"item_id": "msg_7_0", "output_index": 0, "block_index": 0}
    run.add(ev.TextAdded, **where, item=Text(text=""))
    run.add(ev.TextDelta, **where, delta="Let me ask.")
    run.call(1, "ask", "{}").item(ToolResult(id="fco", call_id="call_1"), 2)
    run.add(ev.TaskCreated, "call_1", parent_task_id=RUN, call_id="call_1").begin("call_1")
    run.message(0, Text(text="Inside."), task_id="call_1").add(ev.TaskCompleted, "call_1")
    run.done(ToolResult(id="fco", call_id="call_1"), 2)
    run.add(ev.TextDone, **where, item=Text(text="Let me ask."))
    assert ended(run.done(Message(id="msg_7_0", role="assistant"), 0)).texts() == ["Let me ask."]


# --- thinking ------------------------------------------------------------------------------------


def test_of_a_summary_and_raw_thinking_what_came_first_is_shown() -> None:
    run = Script().begin()
    item = Reasoning(id="rs_7_0")
    run.item(item, 0).thought(0, 0, "Raw.", raw=True).thought(0, 0, "Sum.").done(item, 0)
    item = Reasoning(id="rs_7_1")
    run.item(item, 1).thought(1, 0, "Sum.").thought(1, 0, "Raw.", raw=True).done(item, 1)
    assert ended(run).texts("thinking") == ["Raw.", "Sum."]


def test_raw_thinking_may_come_whole() -> None:
    run = Script().begin().item(Reasoning(id="rs_7_0"), 0)
    where: Any = {"item_id": "rs_7_0", "output_index": 0, "text_index": 0}
    run.add(ev.ReasoningTextDone, **where, item=Text(text="Hmm."))
    events = events_of(flat(encoded(FORMAT, run.events)))
    assert events[2]["delta"] == {"type": "thinking_delta", "thinking": "Hmm."}


def test_reasoning_without_text_and_empty_texts_are_no_blocks() -> None:
    run = Script().begin().reasoning(0).reasoning(1, "")
    run.message(2, Text(text=""), Text(text="Hello!"))
    assert ended(run).content == [{"type": "text", "text": "Hello!"}]


# --- messages ------------------------------------------------------------------------------------


def test_a_refusal_is_a_text_and_the_reason_of_the_end() -> None:
    reader = ended(Script().begin().message(0, Refusal(refusal="I can't help with that.")))
    assert reader.texts() == ["I can't help with that."]
    assert reader.stop_reason == "refusal"


def test_an_answer_after_a_refusal_is_an_answer() -> None:
    run = Script().begin().message(0, Refusal(refusal="No.")).message(1, Text(text="Well, yes."))
    assert ended(run).stop_reason == "end_turn"


def test_a_refusal_streams() -> None:
    run = Script().begin().item(Message(id="msg_7_0", role="assistant"), 0)
    where: Any = {"item_id": "msg_7_0", "output_index": 0, "block_index": 0}
    run.add(ev.RefusalAdded, **where, item=Refusal(refusal=""))
    for piece in ("I ", "can't."):
        run.add(ev.RefusalDelta, **where, delta=piece)
    frames = encoded(FORMAT, run.events)
    assert b'"text":"can\'t."' in frames[-1][0]


def test_files_and_pictures_are_links_and_data_has_no_place() -> None:
    run = Script().begin()
    run.message(
        0,
        File(url="https://files.example/a.pdf", name="a.pdf"),
        Image(image_url=ImageUrl(url="https://files.example/a.png")),
        picture(),
        Image(image_url=ImageUrl(url="")),
        Data(data={"rows": 1}),
    )
    assert ended(run).texts() == [
        "[a.pdf](https://files.example/a.pdf)",
        "![image](https://files.example/a.png)",
        "[image]",
    ]


def test_a_picture_that_is_being_made_waits_for_its_last_form() -> None:
    run = Script().begin().item(Message(id="msg_7_0", role="assistant"), 0)
    where: Any = {"item_id": "msg_7_0", "output_index": 0, "block_index": 0}
    run.add(ev.ImageAdded, **where, item=Image(image_url=ImageUrl(url="")))
    draft = Image(image_url=ImageUrl(url="https://files.example/draft.png"))
    run.add(ev.ImageDelta, **where, partial_image_index=0, item=draft)
    assert closed(run).content == []
    final = Image(image_url=ImageUrl(url="https://files.example/final.png"))
    run.add(ev.ImageDone, **where, item=final).done(Message(id="msg_7_0", role="assistant"), 0)
    assert ended(run).texts() == ["![image](https://files.example/final.png)"]


def test_raw_items_have_no_place() -> None:
    run = Script().begin()
    item = RawItem(id="raw_0", raw={"type": "hologram"})
    run.item(item, 0).done(item, 0).message(1, Text(text="Hello!"))
    assert [block["type"] for block in ended(run).content] == ["text"]


# --- citations -----------------------------------------------------------------------------------


def cited(*annotations: Any) -> list[Json]:
    text = Text(text="As they say.", annotations=list(annotations))
    content = ended(Script().begin().message(0, text)).content
    found: list[Json] = content[0].get("citations", [])
    return found


def test_a_link_is_a_result_of_a_search() -> None:
    assert cited(UrlCitation(url="https://a.example", title="A", start_index=0, end_index=2)) == [
        {
            "type": "web_search_result_location",
            "cited_text": "",
            "encrypted_index": "",
            "title": "A",
            "url": "https://a.example",
        }
    ]


def test_a_file_is_a_document() -> None:
    whole = FileCitation(file_id="f1", filename="a.txt", index=2, start_index=1, end_index=4)
    assert cited(whole, FileCitation(file_id="f2")) == [
        {
            "type": "char_location",
            "cited_text": "",
            "document_index": 2,
            "document_title": "a.txt",
            "file_id": "f1",
            "start_char_index": 1,
            "end_char_index": 4,
        },
        {
            "type": "char_location",
            "cited_text": "",
            "document_index": 0,
            "document_title": None,
            "file_id": "f2",
            "start_char_index": 0,
            "end_char_index": 0,
        },
    ]


PAGE: Json = {
    "type": "page_location",
    "cited_text": "so it is",
    "document_title": "Almanac",
    "document_index": 0,
    "start_page_number": 3,
    "end_page_number": 4,
}


def test_a_place_that_anthropic_named_is_named_again() -> None:
    untitled = {**PAGE, "document_title": 7, "more": "than is known"}
    assert cited(RawAnnotation(raw=PAGE), RawAnnotation(raw=untitled)) == [
        PAGE,
        {**PAGE, "document_title": None},
    ]


@pytest.mark.parametrize(
    "raw",
    [
        "so it is",
        {},
        {**PAGE, "type": 7},
        {**PAGE, "type": "search_result_location"},
        {**PAGE, "cited_text": None},
        {**PAGE, "document_index": True},
        {**PAGE, "start_page_number": "3"},
    ],
    ids=repr,
)
def test_what_no_client_knows_as_a_citation_is_left_out(raw: Any) -> None:
    assert cited(RawAnnotation(raw=raw)) == []


def test_a_citation_follows_the_text_that_ends_its_marker() -> None:
    run = Script().begin().call(0, "look", '{"at":1}').result(1, 0, Text(text="sun", id=1))
    text = "Sunny.[^1] Yes."
    run.message(2, Text(text=text, annotations=[cite(text, 1)]))
    events = events_of(flat(check_wire(FORMAT, run.events)))
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    kinds = [delta["type"] for delta in deltas]
    assert kinds == ["text_delta"] * 3 + ["citations_delta"] + ["text_delta"]


# --- calls ---------------------------------------------------------------------------------------


def test_a_call_of_the_client_s_streams_and_is_the_reason_of_the_end() -> None:
    reader = ended(scripts.client_call())
    assert reader.content[1] == {
        "type": "tool_use",
        "id": "call_1",
        "name": "pick_color",
        "input": {"n": 3},
    }
    assert reader.stop_reason == "tool_use"
    pieces = [
        event["delta"]["partial_json"]
        for event in events_of(flat(encoded(FORMAT, scripts.client_call().events)))
        if event.get("delta", {}).get("type") == "input_json_delta"
    ]
    assert pieces == ['{"n"', ":3}"]


def test_arguments_that_begin_with_blanks_stream_all_the_same() -> None:
    run = Script().begin()
    run.item(ToolCall(id="fc", call_id="call_0", name="t", executor="client"), 0)
    for piece in ("\n ", ' {"a"', ":1}"):
        run.add(ev.ArgumentsDelta, item_id="fc", output_index=0, delta=piece)
    deltas = [event["delta"] for event in events_of(flat(encoded(FORMAT, run.events))[2:])]
    assert [delta["partial_json"] for delta in deltas] == ['\n  {"a"', ":1}"]


@pytest.mark.parametrize(
    ("arguments", "kind", "value"),
    [
        ("", "function", {}),
        ("[1]", "function", {"input": [1]}),
        ("null", "function", {"input": "null"}),
        ("no JSON", "function", {"input": "no JSON"}),
        ("{free text", "custom", {"input": "{free text"}),
        ('\n {"a":1}', "function", {"a": 1}),
    ],
)
@pytest.mark.parametrize("executor", ["client", "server"])
def test_an_input_is_always_an_object(arguments: str, kind: str, value: Any, executor: str) -> None:
    run = Script().begin().call(0, "t", arguments, kind=kind, executor=executor)
    [block] = ended(run).content
    assert block["input"] == value


def test_an_empty_input_is_sent_as_a_delta() -> None:
    """Or a reader that is cut behind it takes the call for one that was never made."""
    frames = flat(encoded(FORMAT, Script().begin().call(0, "t", "{}").events))
    [delta] = [event["delta"] for event in events_of(frames) if "delta" in event]
    assert delta == {"type": "input_json_delta", "partial_json": "{}"}


def test_pydantic_ai_gets_the_input_of_a_server_s_call_in_deltas_alone() -> None:
    script = scripts.everything()
    events = events_of(flat(check_wire(IN_DELTAS, script.events)))
    starts = [event for event in events if "content_block" in event]
    indexes = [one["index"] for one in starts if one["content_block"]["type"] == "mcp_tool_use"]
    assert len(indexes) > 1
    assert all(starts[index]["content_block"]["input"] == {} for index in indexes)
    pieces = dict.fromkeys(indexes, "")
    for event in events:
        if event.get("delta", {}).get("type") == "input_json_delta":
            pieces[event["index"]] += event["delta"]["partial_json"]
    usual = MessageReader().read(flat(encoded(FORMAT, script.events))).content
    assert [json.loads(text) for text in pieces.values()] == [
        usual[index]["input"] for index in indexes
    ]


def test_a_server_s_call_whose_arguments_are_broken_is_sent_as_text() -> None:
    [block] = ended(Script().begin().call(0, "t", '{"a":')).content
    assert block["input"] == {"input": '{"a":'}


def test_a_server_s_call_names_its_server_or_its_kind() -> None:
    run = Script().begin().call(0, "t", "{}", kind="mcp", server_label="post")
    run.call(1, "web_search", "{}", kind="web_search", executor="provider")
    assert [block["server_name"] for block in ended(run).content] == ["post", "web_search"]


def test_no_key_of_an_input_can_end_the_ai_sdk_s_parser() -> None:
    [block] = ended(Script().begin().call(0, "t", '{"__proto__":{"a":1}}')).content
    assert block["input"] == {"__proto___": {"a": 1}}


def test_a_call_that_the_client_answered_in_the_run_is_no_reason_to_go_on() -> None:
    run = scripts.client_call()
    request = InputRequest(id="call_1", kind="input", call_id="call_1")
    run.add(ev.TaskInputRequired, requests=[request])
    run.add(ev.TaskInputReceived, request_id="call_1", value="red")
    run.result(2, 1, Text(text="red", id=1)).message(3, Text(text="Red it is."))
    reader = ended(run)
    assert [block["type"] for block in reader.content] == ["text", "tool_use", "text"]
    assert reader.stop_reason == "end_turn"


def test_a_failed_result_says_why() -> None:
    run = Script().begin().call(0, "t", "{}").call(1, "t", "{}")
    error = ErrorInfo(code="tool_timeout", message="It took too long.")
    run.result(2, 0, Text(text="Half of it"), status="failed", error=error)
    run.result(3, 1, status="failed")
    results = [block for block in ended(run).content if block["type"] == "mcp_tool_result"]
    assert [block["is_error"] for block in results] == [True, True]
    assert [[part["text"] for part in block["content"]] for block in results] == [
        ["Half of it", "It took too long."],
        ["The tool failed."],
    ]


def test_a_result_without_anything_to_show_is_empty() -> None:
    run = Script().begin().call(0, "t", "{}").result(1, 0)
    assert ended(run).content[1]["content"] == []


def test_a_sub_agent_s_tokens_are_not_sent() -> None:
    frames = encoded(FORMAT, scripts.everything().events)
    events = scripts.everything().events
    assert not [
        each for event, each in zip(events, frames, strict=True) if event.task_id != RUN and each
    ]


# --- how runs end --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "stop_reason"),
    [
        ("max_output_tokens", "max_tokens"),
        ("max_turns", "max_tokens"),
        ("refusal", "refusal"),
        ("content_filter", "refusal"),
        ("pause_turn", "pause_turn"),
        ("model_context_window_exceeded", "model_context_window_exceeded"),
    ],
)
def test_an_incomplete_run_stops_with_its_reason(reason: str, stop_reason: str) -> None:
    run = Script().begin().message(0, Text(text="Half an ans"), status="incomplete")
    reader = read(run.add(ev.TaskIncomplete, reason=reason))
    assert reader.texts() == ["Half an ans"]
    assert reader.stop_reason == stop_reason


@pytest.mark.parametrize("reason", ["cut", "incomplete_call"])
def test_an_answer_that_broke_off_is_an_error(reason: str) -> None:
    run = Script().begin().message(0, Text(text="Half an ans"), status="incomplete")
    reader = read(run.add(ev.TaskIncomplete, reason=reason))
    assert reader.texts() == ["Half an ans"]
    assert reader.error == {
        "type": "api_error",
        "message": "The stream ended before the answer did.",
    }


def test_a_cancelled_run_keeps_what_it_had_and_asks_for_nothing() -> None:
    reader = read(scripts.cancelled())
    assert reader.texts() == ["I will look"]
    assert reader.content[1]["type"] == "mcp_tool_use"
    assert reader.stop_reason == "max_tokens"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("agent_error", "api_error"),
        ("overloaded", "overloaded_error"),
        ("overloaded_error", "overloaded_error"),
        ("rate_limited", "rate_limit_error"),
        ("worker_lost", "api_error"),
        ("odd code_error", "api_error"),
    ],
)
def test_a_failure_is_an_error_of_a_kind_that_clients_know(code: str, kind: str) -> None:
    error = ErrorInfo(code=code, message="It broke.")
    reader = read(Script().begin().add(ev.TaskFailed, error=error))
    assert reader.error == {"type": kind, "message": "It broke."}


def test_a_call_of_the_client_s_that_was_cut_is_never_one_that_was_made() -> None:
    run = scripts.client_call("incomplete")
    run.message(2, Text(text="never told")).add(ev.TaskIncomplete, reason="max_output_tokens")
    reader = read(run)
    assert [block["type"] for block in reader.content] == ["text"]
    assert reader.error is not None
    assert "inside a tool call" in reader.error["message"]


def test_arguments_that_turn_out_to_be_no_json_end_in_an_error() -> None:
    run = Script().begin().call(0, "t", '{"a": nothing}', executor="client")
    reader = ended(run)
    assert reader.content == []
    assert reader.error is not None


def test_a_run_that_failed_inside_a_call_says_why_it_failed() -> None:
    run = scripts.client_call("incomplete")
    run.add(ev.TaskFailed, error=ErrorInfo(code="overloaded", message="Too much."))
    assert read(run).error == {"type": "overloaded_error", "message": "Too much."}


def test_calls_that_were_cut_before_their_arguments_and_a_server_s_are_left_out() -> None:
    run = Script().begin().call(0, "t", "", "incomplete", executor="client")
    run.call(1, "t", "some tex", "incomplete", executor="client", kind="custom")
    run.call(2, "t", '{"a"', "incomplete")
    reader = read(run.add(ev.TaskIncomplete, reason="max_output_tokens"))
    assert reader.content == []
    assert reader.stop_reason == "max_tokens"


def test_an_interrupted_result_is_not_sent() -> None:
    run = Script().begin().call(0, "t", "{}").result(1, 0, status="incomplete")
    reader = read(run.add(ev.TaskCancelled))
    assert [block["type"] for block in reader.content] == ["mcp_tool_use"]


# --- attempts ------------------------------------------------------------------------------------


def test_what_was_sent_and_then_superseded_ends_the_stream() -> None:
    script = scripts.superseded()
    reader = read(script)
    assert reader.error is not None
    assert "begun again" in reader.error["message"]
    events = script.events
    attempt = next(n for n, event in enumerate(events) if isinstance(event, ev.TaskAttempt))
    for place in range(attempt + 1, len(events) + 1):
        late = joined(events, place)
        assert late.texts() == ["A whole answer."]
        assert late.stop_reason == "end_turn"


@pytest.mark.parametrize("told", ["text", "call"])
def test_a_lost_attempt_that_had_shown_nothing_goes_unnoticed(told: str) -> None:
    run = Script().begin().call(0, "t", "{}")
    run.message(1, status="incomplete").result(2, 0, status="incomplete")
    run.call(3, "t", '{"a"', "incomplete").call(4, "t", "", "incomplete", executor="client")
    lost = ["msg_7_1", "fco_7_2", "fc_7_3", "fc_7_4"]
    if told == "call":
        run.call(5, "t", '{"a"', "incomplete", executor="client")
        lost.append("fc_7_5")
    run.add(ev.TaskAttempt, attempt=2, reason="worker_lost", superseded=lost)
    run.message(len(lost) + 1, Text(text="A whole answer."))
    reader = ended(run)
    assert (reader.error is None) == (told == "text")
    if told == "text":
        assert [block["type"] for block in reader.content] == ["mcp_tool_use", "text"]


def test_a_child_s_lost_attempt_is_the_child_s() -> None:
    run = Script().begin().call(0, "ask", "{}").item(ToolResult(id="fco", call_id="call_0"), 1)
    run.add(ev.TaskCreated, "call_0", parent_task_id=RUN, call_id="call_0").begin("call_0")
    run.message(0, Text(text="Half"), status="incomplete", task_id="call_0")
    attempt: Any = {"attempt": 2, "reason": "worker_lost", "superseded": ["msg_7_0"]}
    run.add(ev.TaskAttempt, "call_0", **attempt)
    run.message(1, Text(text="Whole."), task_id="call_0").add(ev.TaskCompleted, "call_0")
    run.done(ToolResult(id="fco", call_id="call_0"), 1)
    assert ended(run).content[1]["content"] == [{"type": "text", "text": "Whole."}]


# --- streams that stop short ---------------------------------------------------------------------


def test_a_stream_that_is_closed_says_so() -> None:
    run = Script().begin().message(0, Text(text="Hello!"))
    reader = closed(run)
    assert reader.texts() == ["Hello!"]
    assert reader.error == {"type": "api_error", "message": "The server stops."}
    assert closed(run.add(ev.TaskCompleted)).stop_reason == "end_turn"


def test_a_stream_that_is_closed_before_it_began_says_so() -> None:
    [event] = events_of(FORMAT.at(State()).close("enough"))
    assert event["error"]["message"] == "enough"
    assert FORMAT.open(State())[1] == []


def waiting(run: Script) -> Script:
    return run.add(ev.TaskInputRequired, requests=[InputRequest(id="apr_1", kind="approval")])


def test_a_run_that_waits_for_people_is_paused() -> None:
    run = waiting(Script().begin().call(0, "send_mail", "{}"))
    reader = closed(run)
    assert [block["type"] for block in reader.content] == ["mcp_tool_use"]
    assert reader.stop_reason == "pause_turn"


def test_a_run_that_waits_for_the_client_s_tool_asks_for_it() -> None:
    assert closed(waiting(scripts.client_call())).stop_reason == "tool_use"


def test_a_client_s_call_that_was_not_sent_yet_is_not_asked_for() -> None:
    run = waiting(Script().begin().call(0, "send_mail", "{}"))
    run.item(ToolResult(id="fco_7_1", call_id="call_0"), 1)
    reader = closed(run.call(2, "pick_color", "{}", executor="client"))
    assert [block["type"] for block in reader.content] == ["mcp_tool_use"]
    assert reader.stop_reason == "pause_turn"


def test_a_stream_that_is_open_while_its_run_waits_goes_on_after_the_answer() -> None:
    run = waiting(Script().begin().call(0, "send_mail", "{}"))
    run.add(ev.TaskInputReceived, request_id="apr_1", approved=True)
    run.result(1, 0, Text(text="sent", id=1)).message(2, Text(text="Done."))
    assert [block["type"] for block in ended(run).content] == [
        "mcp_tool_use",
        "mcp_tool_result",
        "text",
    ]


def test_a_pause_inside_a_text_ends_the_text_and_inside_a_call_is_an_error() -> None:
    run = Script().begin().item(Message(id="msg_7_0", role="assistant"), 0)
    where: Any = {"item_id": "msg_7_0", "output_index": 0, "block_index": 0}
    run.add(ev.TextAdded, **where, item=Text(text=""))
    run.add(ev.TextDelta, **where, delta="One moment")
    reader = closed(waiting(run))
    assert reader.texts() == ["One moment"]
    assert reader.stop_reason == "pause_turn"
    run = Script().begin()
    run.item(ToolCall(id="fc", call_id="call_0", name="t", executor="client"), 0)
    run.add(ev.ArgumentsDelta, item_id="fc", output_index=0, delta='{"a"')
    assert closed(waiting(run)).error is not None


# --- logs of other writers -----------------------------------------------------------------------


def foreign(*events: ev.Event) -> MessageReader:
    """A stream of events that no writer of ours would send."""
    numbered = [ev.recorded(event, number) for number, event in enumerate(events, 1)]
    return MessageReader().read(flat(encoded(FORMAT, numbered)))


def at_item(cls: type[Any], index: int, item: Any) -> ev.Event:
    event: ev.Event = cls(task_id=RUN, output_index=index, item=item)
    return event


def test_a_run_without_its_first_event_begins() -> None:
    delta = ev.TextDelta(task_id=RUN, item_id="m", output_index=0, block_index=0, delta="x")
    assert foreign(delta).message is not None
    done = at_item(ev.OutputItemDone, 0, Message(id="m", role="assistant"))
    assert foreign(delta, done).content == []


def test_items_that_are_there_at_once_are_sent_whole() -> None:
    reader = foreign(
        at_item(ev.OutputItemDone, 0, Reasoning(id="r", summary=[Text(text="a"), Text(text="b")])),
        at_item(ev.OutputItemDone, 1, ToolCall(id="c", call_id="c1", name="t", arguments="{}")),
        at_item(
            ev.OutputItemDone, 2, ToolResult(id="o", call_id="c1", block_list=[Text(text="x")])
        ),
        at_item(
            ev.OutputItemDone, 3, Message(id="m", role="assistant", block_list=[Text(text="y")])
        ),
        ev.TaskCompleted(task_id=RUN),
    )
    kinds = ["thinking", "thinking", "mcp_tool_use", "mcp_tool_result", "text"]
    assert [block["type"] for block in reader.content] == kinds


def test_a_result_without_its_call_is_not_sent() -> None:
    lonely = at_item(ev.OutputItemDone, 0, ToolResult(id="o", call_id="c1"))
    call = at_item(ev.OutputItemDone, 1, ToolCall(id="c", call_id="c1", name="t"))
    events = [lonely, call, ev.TaskCompleted(task_id=RUN)]
    assert [block["type"] for block in foreign(*events).content] == ["mcp_tool_use"]
    late = joined(events, len(events))
    assert [block["type"] for block in late.content] == ["mcp_tool_use"]


def test_a_result_of_a_call_that_was_never_made_is_not_sent() -> None:
    cut = ToolCall(id="c", call_id="c1", name="t", status="incomplete")
    result = at_item(ev.OutputItemDone, 1, ToolResult(id="o", call_id="c1"))
    events = [at_item(ev.OutputItemDone, 0, cut), result, ev.TaskCompleted(task_id=RUN)]
    assert foreign(*events).content == []


def test_what_grows_after_it_was_taken_back_is_not_sent() -> None:
    where: Any = {"task_id": RUN, "item_id": "m", "output_index": 0, "block_index": 0}
    reader = foreign(
        at_item(ev.OutputItemAdded, 0, Message(id="m", role="assistant")),
        ev.TextAdded(**where, item=Text(text="")),
        ev.TaskAttempt(task_id=RUN, attempt=2, reason="worker_lost", superseded=["m"]),
        ev.TextDelta(**where, delta="Wrong."),
        ev.TaskCompleted(task_id=RUN),
    )
    assert (reader.content, reader.stop_reason) == ([], "end_turn")


def test_a_result_whose_call_was_taken_back_is_not_sent() -> None:
    attempt: Any = {"attempt": 2, "reason": "worker_lost", "superseded": ["c"]}
    events = [
        at_item(ev.OutputItemDone, 0, ToolCall(id="c", call_id="c1", name="t")),
        ev.TaskAttempt(task_id=RUN, **attempt),
        at_item(ev.OutputItemDone, 1, ToolResult(id="o", call_id="c1")),
        ev.TaskCompleted(task_id=RUN),
    ]
    assert foreign(*events).error is not None
    assert joined(events, len(events)).content == []


@pytest.mark.parametrize("block_list", [[], [Data(data=1)]], ids=["none", "another"])
def test_a_text_that_its_item_s_end_takes_away_ends_there(block_list: list[Any]) -> None:
    where: Any = {"task_id": RUN, "item_id": "m", "output_index": 0, "block_index": 0}
    for begun in (
        [
            ev.TextAdded(**where, item=Text(text="")),
            ev.TextDelta(**where, delta="Hello!"),
        ],
        [ev.TextAdded(**where, item=Text(text=""))],
        [ev.ImageAdded(**where, item=Image(image_url=ImageUrl(url="")))],
    ):
        reader = foreign(
            at_item(ev.OutputItemAdded, 0, Message(id="m", role="assistant")),
            *begun,
            at_item(
                ev.OutputItemDone,
                0,
                Message(id="m", role="assistant", block_list=block_list),
            ),
            ev.TaskCompleted(task_id=RUN),
        )
        assert reader.texts() == ["Hello!"] * (len(begun) - 1)
        assert reader.stop_reason == "end_turn"


# --- the object ----------------------------------------------------------------------------------


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_the_object_has_what_the_events_of_a_replay_add_up_to(trace: Trace) -> None:
    state = State()
    for event, _ in trace.events:
        state.absorb(event)
    reader, found = MessageReader().read(FORMAT.open(state)[1]), message_object(state)
    if reader.error is not None:
        assert found == {"type": "error", "error": reader.error}
    else:
        assert found.get("content", []) == reader.content
        assert found.get("stop_reason") == reader.stop_reason
