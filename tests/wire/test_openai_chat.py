"""The chat completions stream: read strictly, joined anywhere, cut, superseded, out of order."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from openai.types.chat import ChatCompletion

from tailrace.core import events as ev
from tailrace.core.codec import decode_event
from tailrace.core.errors import InvalidCursor
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.items import (
    Annotation,
    Data,
    ErrorInfo,
    File,
    FileCitation,
    Image,
    ImageUrl,
    InputRequest,
    Message,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    UrlCitation,
    Usage,
)
from tailrace.testing.wire_kit import as_recorded, check_wire, encoded, is_log
from tailrace.wire.openai_chat import FORMAT, WITHOUT_USAGE, completion
from tests.traces import TRACES, Trace
from tests.wire import openai_scripts as scripts
from tests.wire.chat_checker import ChatReader
from tests.wire.chat_runs import check, frames_of, joined, state_of
from tests.wire.frames import chunks_of
from tests.wire.openai_scripts import RUN, Script, picture

LOGGED = [trace for trace in TRACES if is_log([event for event, _ in trace.events])]


def read(script: Script) -> ChatReader:
    check_wire(FORMAT, script.events)
    return ChatReader().read(frames_of(script.events))


def deltas_of(frames: list[bytes]) -> list[Any]:
    return [
        choice["delta"]
        for chunk in chunks_of(frames)[:-1]
        for choice in chunk.get("choices", ())
        if choice["delta"]
    ][1:]


@pytest.mark.parametrize("trace", LOGGED, ids=lambda trace: trace.name)
def test_every_golden_trace_is_sent_whole_or_not_at_all(trace: Trace) -> None:
    events = [event for event, _ in trace.events]
    check(events, ChatReader().read(frames_of(events)))
    for place in range(1, len(events) + 1):
        check(events, joined(events, place))


def test_there_is_no_cursor() -> None:
    assert FORMAT.name == "openai-chat"
    assert not FORMAT.resumable
    assert FORMAT.heartbeat == b": ping\n\n"
    with pytest.raises(InvalidCursor, match="replay"):
        FORMAT.cursor("1")


def test_a_join_before_the_first_event_says_nothing_yet() -> None:
    encoder, frames = FORMAT.open(State())
    assert frames == []
    assert len(encoder.encode(as_recorded(Script().events)[0])) == 1


def test_names_and_times_come_from_the_run() -> None:
    reader = read(Script().begin().add(ev.TaskCompleted))
    assert reader.head == {
        "id": "chatcmpl-run_7",
        "object": "chat.completion.chunk",
        "created": 1790000000,
        "model": "assistant",
    }
    created = ev.TaskCreated(task_id="chatcmpl-9", sequence_number=1, model="gpt-9")
    reader = ChatReader().read(frames_of([created]))
    assert reader.head is not None
    assert (reader.head["id"], reader.head["model"]) == ("chatcmpl-9", "gpt-9")


# --- texts ---------------------------------------------------------------------------------------


def says(script: Script, index: int, *texts: str, status: Any = "completed") -> Script:
    item = Message(id=f"msg_7_{index}", role="assistant")
    script.item(item, index)
    for place, text in enumerate(texts):
        where: Any = {"item_id": item.id, "output_index": index, "block_index": place}
        script.add(ev.TextAdded, **where, item=Text(text=""))
        script.add(ev.TextDelta, **where, delta=text)
        script.add(ev.TextDone, **where, item=Text(text=text))
    return script.done(msgspec.structs.replace(item, status=status), index)


def block(script: Script, index: int, place: int, cls: Any, **fields: Any) -> Script:
    where: Any = {"item_id": f"msg_7_{index}", "output_index": index, "block_index": place}
    return script.add(cls, **where, **fields)


def test_messages_are_parted_by_a_blank_line_and_blocks_are_not() -> None:
    script = says(says(says(Script().begin(), 0, "I look ", "it up."), 1), 2, "Sunny.")
    assert read(script.add(ev.TaskCompleted)).said["content"] == "I look it up.\n\nSunny."


def test_reasoning_is_sent_once_and_its_texts_are_parted() -> None:
    script = Script().begin().reasoning(0, "First.", "Second.").reasoning(1, "Third.", raw=True)
    reader = read(says(script, 2, "Sunny.").add(ev.TaskCompleted))
    assert reader.said["reasoning_content"] == "First.\n\nSecond.\n\nThird."
    item = Reasoning(id="rs_7_0")
    script = Script().begin().item(item, 0).thought(0, 0, "Raw.", raw=True).thought(0, 0, "Short.")
    script.thought(0, 1, "Shorter.").thought(0, 1, "Raw again.", raw=True)
    reader = read(script.done(item, 0).add(ev.TaskCompleted))
    assert reader.said["reasoning_content"] == "Raw.\n\nRaw again."


def test_usage_that_names_a_reasoning_item_does_not_decide_which_thinking_is_shown() -> None:
    item = Reasoning(id="rs_7_0")
    script = Script().begin().item(item, 0)
    script.add(ev.TaskUsage, usage=Usage(input_tokens=1), item_id=item.id)
    reader = read(script.thought(0, 0, "Short.").done(item, 0).add(ev.TaskCompleted))
    assert reader.said["reasoning_content"] == "Short."
    check(script.events, reader)


def test_a_message_that_begins_while_another_speaks_waits_for_its_end() -> None:
    first, second = (Message(id=f"msg_7_{n}", role="assistant") for n in (0, 1))
    script = Script().begin().item(first, 0).item(second, 1)
    block(script, 1, 0, ev.TextAdded, item=Text(text=""))
    block(script, 0, 0, ev.TextAdded, item=Text(text=""))
    block(script, 1, 0, ev.TextDelta, delta="Two")
    block(script, 0, 0, ev.TextDelta, delta="One")
    block(script, 0, 1, ev.TextAdded, item=Text(text=""))
    block(script, 0, 1, ev.TextDelta, delta=", behind")
    block(script, 0, 0, ev.TextDelta, delta=" and a half")
    before = len(script.events)
    block(script, 0, 0, ev.TextDone, item=Text(text="One and a half"))
    block(script, 0, 1, ev.TextDone, item=Text(text=", behind"))
    block(script, 1, 0, ev.TextDelta, delta="…")
    script.done(first, 0)
    block(script, 1, 0, ev.TextDelta, delta="!")
    block(script, 1, 0, ev.TextDone, item=Text(text="Two…!"))
    script.done(second, 1).add(ev.TaskCompleted)
    reader = read(script)
    assert reader.said["content"] == "One and a half, behind\n\nTwo…!"
    told = deltas_of(frames_of(script.events))
    assert [one["content"] for one in told] == [
        "One",
        " and a half",
        ", behind",
        "\n\nTwo…",
        "!",
    ]
    for place in range(before, len(script.events)):
        assert joined(script.events, place).said["content"] == reader.said["content"]


def test_what_waits_is_sent_when_the_run_ends() -> None:
    first, second = (Message(id=f"msg_7_{n}", role="assistant") for n in (0, 1))
    script = Script().begin().item(first, 0).item(second, 1)
    block(script, 0, 0, ev.TextAdded, item=Text(text=""))
    block(script, 0, 0, ev.TextDelta, delta="One")
    block(script, 1, 0, ev.TextDone, item=Text(text="Two"))
    script.done(second, 1)
    cut = ev.TaskCancelled(task_id=RUN, sequence_number=len(script.events) + 1)
    reader = ChatReader().read(frames_of([*script.events, cut]))
    assert reader.said["content"] == "One\n\nTwo"
    assert (reader.finish_reason, reader.native_finish_reason) == ("length", "cancelled")


def test_blocks_may_come_whole_or_stay_empty() -> None:
    item = Message(id="msg_7_0", role="assistant")
    script = Script().begin().item(item, 0)
    block(script, 0, 0, ev.TextDone, item=Text(text="Whole"))
    block(script, 0, 1, ev.TextAdded, item=Text(text=""))
    block(script, 0, 1, ev.TextDelta, delta="")
    block(script, 0, 1, ev.TextDone, item=Text(text=""))
    block(script, 0, 2, ev.TextDone, item=Text(text="."))
    reader = read(script.done(item, 0).add(ev.TaskCompleted))
    assert reader.said["content"] == "Whole."


def test_a_refusal_has_a_field_of_its_own() -> None:
    item = Message(id="msg_7_0", role="assistant")
    script = Script().begin().item(item, 0)
    block(script, 0, 0, ev.TextDone, item=Text(text="Hm."))
    block(script, 0, 1, ev.RefusalAdded, item=Refusal(refusal=""))
    block(script, 0, 1, ev.RefusalDelta, delta="I ca")
    block(script, 0, 1, ev.RefusalDelta, delta="n't.")
    block(script, 0, 1, ev.RefusalDone, item=Refusal(refusal="I can't."))
    reader = read(script.done(item, 0).add(ev.TaskCompleted))
    assert reader.said == {"content": "Hm.", "refusal": "I can't.", "reasoning_content": ""}
    assert reader.finish_reason == "stop"


def test_a_file_is_a_link_in_a_paragraph_and_data_has_no_place() -> None:
    item = Message(id="msg_7_0", role="assistant")
    script = Script().begin().item(item, 0)
    block(script, 0, 0, ev.TextDone, item=Text(text="Here:"))
    block(script, 0, 1, ev.FileDone, item=File(url="https://f.example/a.pdf", name="a.pdf"))
    block(script, 0, 2, ev.DataDone, item=Data(data={"rows": 1}))
    block(script, 0, 3, ev.TextDone, item=Text(text="Done."))
    reader = read(script.done(item, 0).add(ev.TaskCompleted))
    assert reader.said["content"] == "Here:\n\n[a.pdf](https://f.example/a.pdf)\n\nDone."


def test_an_image_of_a_message_is_sent_once_when_it_is_done() -> None:
    item = Message(id="msg_7_0", role="assistant")
    nothing = Image(image_url=ImageUrl(url=""))
    script = Script().begin().item(item, 0)
    block(script, 0, 0, ev.ImageAdded, item=nothing)
    block(script, 0, 0, ev.ImageDelta, partial_image_index=0, item=picture("aGFsZg=="))
    block(script, 0, 0, ev.ImageDone, item=picture())
    block(script, 0, 1, ev.ImageDone, item=nothing)
    block(script, 0, 2, ev.ImageDone, item=picture("dHdv"))
    script.done(item, 0)
    url = picture().image_url.url
    reader = read(script.add(ev.TaskCompleted))
    assert reader.images == [url, "data:image/png;base64,dHdv"]
    assert joined(script.events, len(script.events) - 1).images == reader.images


def test_images_of_results_are_not_sent() -> None:
    assert read(scripts.everything()).images == []


def test_citations_have_their_places_in_the_whole_content() -> None:
    script = says(Script().begin(), 0, "I look.")
    item = Message(id="msg_7_1", role="assistant")
    script.item(item, 1)
    cited: list[Annotation] = [
        UrlCitation(url="https://a.example", title="A", start_index=0, end_index=2),
        FileCitation(file_id="file_1"),
        UrlCitation(url="https://b.example", start_index=3, end_index=5),
    ]
    block(script, 1, 0, ev.TextDone, item=Text(text="🌍a bc", annotations=cited))
    block(script, 1, 1, ev.TextDone, item=Text(text="d", annotations=cited[1:2]))
    last = UrlCitation(url="https://c.example", start_index=0, end_index=1)
    block(script, 1, 2, ev.TextDone, item=Text(text="e", annotations=[last]))
    reader = read(script.done(item, 1).add(ev.TaskCompleted))
    content = reader.said["content"]
    assert content == "I look.\n\n🌍a bcde"
    places = [content[one["start_index"] : one["end_index"]] for one in reader.annotations]
    assert places == ["🌍a", "bc", "e"]
    assert [one["url"] for one in reader.annotations] == [
        "https://a.example",
        "https://b.example",
        "https://c.example",
    ]


def test_a_cited_block_is_named_by_the_tool_that_returned_it() -> None:
    reader = read(scripts.everything())
    said = reader.said["content"]
    cited = [
        (one["title"], said[one["start_index"] : one["end_index"]]) for one in reader.annotations
    ]
    assert cited[0] == ("get_weather", "[^1]")


def test_structured_output_is_the_answer_of_a_run_that_says_nothing() -> None:
    value = {"sunny": True}
    alone = Script().begin().add(ev.StructuredOutputDone, value=value)
    assert json.loads(read(alone.add(ev.TaskCompleted)).said["content"]) == value
    beside = says(Script().begin(), 0, "Sunny.").add(ev.StructuredOutputDone, value=value)
    assert read(beside.add(ev.TaskCompleted)).said["content"] == "Sunny."


# --- calls ---------------------------------------------------------------------------------------


def call(
    script: Script,
    index: int,
    *pieces: str,
    status: Any = "completed",
    kind: str = "function",
    executor: Any = "client",
    whole: bool = False,
) -> Script:
    item = ToolCall(
        id=f"fc_7_{index}", call_id=f"call_{index}", name="sun", executor=executor, kind=kind
    )
    where: Any = {"item_id": item.id, "output_index": index}
    script.item(item, index)
    for piece in () if whole else pieces:
        script.add(ev.ArgumentsDelta, **where, delta=piece)
    script.add(ev.ArgumentsDone, **where, arguments="".join(pieces))
    return script.done(msgspec.structs.replace(item, status=status), index)


def arguments_told(script: Script) -> list[str]:
    """The fragments in which the arguments arrive."""
    return [
        (one.get("function") or one["custom"]).get("arguments", one.get("custom", {}).get("input"))
        for delta in deltas_of(frames_of(script.events))
        for one in delta.get("tool_calls", ())
    ]


def test_a_client_s_call_streams_and_its_end_is_kept_back_until_it_is_whole() -> None:
    pieces = (" ", "{", '"a":', '{"b":1}', " ", '}, "c', '":"}"', "}")
    script = call(Script().begin(), 0, *pieces)
    told = arguments_told(script.add(ev.TaskCompleted))
    assert told == [" {", '"a":', '{"b":1', '} }, "c', '":"}"', "}"]
    reader = read(script)
    assert reader.calls == [
        {"id": "call_0", "type": "function", "name": "sun", "arguments": "".join(pieces)}
    ]
    assert reader.finish_reason == "tool_calls"


def test_a_call_without_arguments_is_sent_when_it_is_whole() -> None:
    reader = read(call(Script().begin(), 0).add(ev.TaskCompleted))
    assert reader.calls[0]["arguments"] == "{}"


def test_arguments_that_come_whole_are_sent_whole() -> None:
    script = call(Script().begin(), 0, '{"a":1}', whole=True).add(ev.TaskCompleted)
    assert arguments_told(script) == ['{"a":1', "}"]
    assert read(script).calls[0]["arguments"] == '{"a":1}'


def test_arguments_that_are_no_object_are_sent_when_the_call_is_whole() -> None:
    script = call(Script().begin(), 0, "4", "2 }", "").add(ev.TaskCompleted)
    assert arguments_told(script) == ["42 }"]
    read(script)


@pytest.mark.parametrize("pieces", [("SELECT", " 1"), ()])
def test_a_custom_tool_gets_free_text_whole(pieces: tuple[str, ...]) -> None:
    script = call(Script().begin(), 0, *pieces, kind="custom").add(ev.TaskCompleted)
    assert arguments_told(script) == ["".join(pieces)]
    assert read(script).calls[0]["type"] == "custom"


def test_calls_at_the_same_time_are_sent_one_after_another() -> None:
    items = [
        ToolCall(id=f"fc_{n}", call_id=f"call_{n}", name="sun", executor="client") for n in (0, 1)
    ]
    script = Script().begin().item(items[0], 0).item(items[1], 1)
    for piece in ('{"n":', "1}"):
        for n in (1, 0):
            where: Any = {"item_id": f"fc_{n}", "output_index": n}
            script.add(ev.ArgumentsDelta, **where, delta=piece)
    for n in (1, 0):
        where = {"item_id": f"fc_{n}", "output_index": n}
        script.add(ev.ArgumentsDone, **where, arguments='{"n":1}').done(items[n], n)
    script.add(ev.TaskCompleted)
    reader = read(script)
    assert [one["id"] for one in reader.calls] == ["call_0", "call_1"]
    assert {one["arguments"] for one in reader.calls} == {'{"n":1}'}
    assert arguments_told(script) == ['{"n":', "1", "}", '{"n":1', "}"]


def test_calls_that_are_carried_out_here_never_reach_the_client() -> None:
    reader = read(scripts.everything())
    assert reader.calls == []
    assert reader.finish_reason == "stop"
    builtin = call(Script().begin(), 0, "{}", executor="provider", kind="web_search")
    assert read(builtin.add(ev.TaskCompleted)).calls == []


@pytest.mark.parametrize("end", [ev.TaskIncomplete, ev.TaskCompleted])
@pytest.mark.parametrize("text", ['{"city":"Paris"}', ""])
def test_a_call_that_was_cut_never_looks_whole(end: Any, text: str) -> None:
    fields = {"reason": "max_output_tokens"} if end is ev.TaskIncomplete else {}
    script = call(Script().begin(), 0, text, status="incomplete")
    script = call(script, 1, "{}").add(end, **fields)
    reader = read(script)
    assert [one["arguments"] for one in reader.calls] == ([text[:-1]] if text else [])
    if end is ev.TaskIncomplete:
        assert reader.finish_reason == "length"
    else:
        assert reader.error is not None
        assert reader.error["code"] == "incomplete_function_call"
    assert joined(script.events, len(script.events)).calls == []


def test_a_call_that_was_answered_meanwhile_is_not_sent_to_a_newcomer() -> None:
    script = call(Script().begin(), 0, "{}")
    result = ToolResult(id="fco_7_1", call_id="call_0")
    script.item(result, 1).done(result, 1)
    says(script, 2, "Sunny.").add(ev.TaskCompleted)
    reader = read(script)
    assert (len(reader.calls), reader.finish_reason) == (1, "stop")
    later = joined(script.events, len(script.events))
    assert (later.calls, later.finish_reason) == ([], "stop")


# --- what is taken back --------------------------------------------------------------------------


def attempt(script: Script, *names: str) -> Script:
    return script.add(ev.TaskAttempt, attempt=2, reason="worker_lost", superseded=list(names))


def test_an_answer_that_was_sent_and_taken_back_ends_the_stream() -> None:
    script = scripts.superseded()
    reader = read(script)
    assert reader.error is not None
    assert reader.error["code"] == "interrupted"
    assert "A whole answer." not in reader.said["content"]
    later = joined(script.events, len(script.events))
    assert later.said["content"] == "A whole answer."
    assert later.finish_reason == "stop"


def test_reasoning_images_files_and_calls_that_were_sent_end_it_too() -> None:
    thought = Script().begin().item(Reasoning(id="rs_7_0"), 0).thought(0, 0, "Hm.")
    thought.done(Reasoning(id="rs_7_0", status="incomplete"), 0)
    painted, filed = (
        Script().begin().item(Message(id="msg_7_0", role="assistant"), 0) for _ in range(2)
    )
    block(painted, 0, 0, ev.ImageDone, item=picture())
    block(filed, 0, 0, ev.FileDone, item=File(url="https://f.example"))
    for script in (painted, filed):
        script.done(Message(id="msg_7_0", role="assistant", status="incomplete"), 0)
    called = call(Script().begin(), 0, '{"a', status="incomplete")
    for script, name in (
        (thought, "rs_7_0"),
        (painted, "msg_7_0"),
        (filed, "msg_7_0"),
        (called, "fc_7_0"),
    ):
        says(attempt(script, name), 1, "Sunny.").add(ev.TaskCompleted)
        error = read(script).error
        assert error is not None
        assert error["code"] == "interrupted"
        later = joined(script.events, len(script.events))
        assert (later.said["content"], later.finish_reason) == ("Sunny.", "stop")
        assert not later.images
        assert not later.calls


def test_an_attempt_that_takes_back_nothing_sent_goes_on() -> None:
    script = Script().begin()
    item = Message(id="msg_7_0", role="assistant")
    script.item(item, 0)
    block(script, 0, 0, ev.DataDone, item=Data(data=1))
    block(script, 0, 1, ev.ImageDone, item=Image(image_url=ImageUrl(url="")))
    script.done(msgspec.structs.replace(item, status="incomplete"), 0)
    call(script, 1, status="incomplete")
    call(script, 2, '{"a', status="incomplete", executor="server")
    says(script, 3, status="incomplete")
    attempt(script, "msg_7_0", "fc_7_1", "fc_7_2", "msg_7_3")
    call(script, 4, "{}")
    reader = read(says(script, 5, "Sunny.").add(ev.TaskCompleted))
    assert reader.said["content"] == "Sunny."
    assert [one["id"] for one in reader.calls] == ["call_4"]
    assert reader.finish_reason == "tool_calls"


def test_a_sub_agent_that_begins_again_is_no_matter_of_the_message() -> None:
    trace = next(trace for trace in LOGGED if trace.name == "recovered_child")
    events = [event for event, _ in trace.events]
    reader = ChatReader().read(frames_of(events))
    assert reader.error is None


# --- endings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "finish_reason", "native"),
    [
        ("max_output_tokens", "length", None),
        ("max_tokens", "length", None),
        ("content_filter", "content_filter", None),
        ("max_turns", "length", "max_turns"),
    ],
)
def test_a_run_that_ends_short_says_so(reason: str, finish_reason: str, native: str | None) -> None:
    script = says(Script().begin(), 0, "Half").add(ev.TaskIncomplete, reason=reason)
    reader = read(script)
    assert (reader.finish_reason, reader.native_finish_reason) == (finish_reason, native)
    assert reader.said["content"] == "Half"


def test_a_failure_is_an_error_and_the_text_before_it_stays() -> None:
    error = ErrorInfo(code="overloaded", message="", param="model")
    reader = read(says(Script().begin(), 0, "Half").add(ev.TaskFailed, error=error))
    assert reader.error == {
        "message": "overloaded",
        "type": "server_error",
        "param": "model",
        "code": "overloaded",
    }
    assert reader.said["content"] == "Half"
    assert reader.usage is None


def test_usage_is_that_of_the_whole_run_where_it_is_known() -> None:
    used = Usage(
        input_tokens=10, output_tokens=5, cached_input_tokens=4, reasoning_tokens=3, cost=0.1
    )
    script = Script().begin().add(ev.TaskUsage, usage=used).add(ev.TaskUsage, usage=used)
    assert read(script.add(ev.TaskCompleted)).usage == {
        "prompt_tokens": 20,
        "completion_tokens": 10,
        "total_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 6},
    }
    assert read(Script().begin().add(ev.TaskCompleted)).usage is None


def test_a_run_that_waits_is_silent_and_one_that_is_left_waiting_is_cut_there() -> None:
    script = says(Script().begin(), 0, "May I?")
    asked = script.add(ev.TaskInputRequired, requests=[InputRequest(id="in_1", kind="input")])
    told = as_recorded(asked.events)
    encoder = FORMAT.at(State())
    frames = [frame for one in told for frame in encoder.encode(one)]
    left = ChatReader().read([*frames, *encoder.close("The run waits for an answer.")])
    assert (left.finish_reason, left.native_finish_reason) == ("length", "input_required")
    asked.add(ev.TaskInputReceived, request_id="in_1", value=True)
    assert read(says(asked, 1, "Thanks.").add(ev.TaskCompleted)).finish_reason == "stop"


def test_a_stream_that_is_closed_early_is_an_error() -> None:
    for events in ([], says(Script().begin(), 0, "Half").events):
        encoder = FORMAT.at(State())
        frames = [frame for one in as_recorded(events) for frame in encoder.encode(one)]
        reader = ChatReader().read([*frames, *encoder.close("The server stops.")])
        assert reader.error is not None
        assert reader.error["message"] == "The server stops."
        assert encoder.close("The server stops.") == encoder.close("The server stops.")


# --- strangers -----------------------------------------------------------------------------------


def strange(*events: ev.AnyEvent) -> ChatReader:
    """Events without numbers, as foreign streams have them."""
    encoder = FORMAT.at(State())
    frames = [frame for event in events for frame in encoder.encode(Recorded(event, b""))]
    return ChatReader().read(frames)


def test_a_foreign_stream_without_a_beginning_gets_one() -> None:
    lost = ev.TextDelta(task_id=RUN, item_id="m", output_index=0, block_index=0, delta="x")
    item = Message(id="m", role="assistant", block_list=[Text(text="Whole."), picture()])
    done = ev.OutputItemDone(task_id=RUN, output_index=0, item=item)
    reader = strange(lost, ev.TaskInProgress(task_id=RUN), done, ev.TaskCompleted(task_id=RUN))
    assert reader.said["content"] == "Whole."
    assert len(reader.images) == 1


def test_an_end_that_contradicts_what_was_sent_is_an_error() -> None:
    message = Message(id="m", role="assistant")
    where: Any = {"task_id": RUN, "item_id": "m", "output_index": 0}
    begun: list[ev.AnyEvent] = [
        ev.OutputItemAdded(task_id=RUN, output_index=0, item=message),
        ev.TextAdded(**where, block_index=0, item=Text(text="")),
        ev.TextDelta(**where, block_index=0, delta="Sunny"),
        ev.TextDone(**where, block_index=1, item=Text(text="!")),
    ]
    end = ev.TaskCompleted(task_id=RUN)
    others: list[Message] = [
        msgspec.structs.replace(message, block_list=[Text(text="Rain, I fear.")]),
        msgspec.structs.replace(message, block_list=[]),
    ]
    lies: list[ev.AnyEvent] = [
        ev.TextDone(**where, block_index=0, item=Text(text="Rain, I fear.")),
        *(ev.OutputItemDone(task_id=RUN, output_index=0, item=item) for item in others),
    ]
    for lie in lies:
        reader = strange(*begun, lie, end)
        assert reader.error is not None
        assert reader.error["code"] == "interrupted"
    more = msgspec.structs.replace(
        message, block_list=[Text(text="Sunny day"), Text(text="!"), Text(text="?")]
    )
    done = ev.OutputItemDone(task_id=RUN, output_index=0, item=more)
    assert strange(*begun, done, end).said["content"] == "Sunny day!?"
    called = ToolCall(id="c", call_id="c", name="sun", executor="client")
    where["item_id"] = "c"
    lied = strange(
        ev.OutputItemAdded(task_id=RUN, output_index=0, item=called),
        ev.ArgumentsDelta(**where, delta='{"a":'),
        ev.ArgumentsDone(**where, arguments="{}"),
    )
    assert lied.error is not None


def test_an_open_item_that_a_stranger_supersedes_is_heard_no_more() -> None:
    where: Any = {"task_id": RUN, "item_id": "m", "output_index": 0, "block_index": 0}
    reader = strange(
        ev.OutputItemAdded(task_id=RUN, output_index=0, item=Message(id="m", role="assistant")),
        ev.TextAdded(**where, item=Text(text="")),
        ev.TaskAttempt(task_id=RUN, attempt=2, reason="worker_lost", superseded=["m"]),
        ev.TextDelta(**where, delta="wrong"),
        ev.OutputItemDone(
            task_id=RUN,
            output_index=1,
            item=Message(id="n", role="assistant", block_list=[Text(text="right")]),
        ),
    )
    assert reader.said["content"] == "right"


def test_what_was_taken_back_before_a_reader_came_may_be_named_again() -> None:
    script = says(Script().begin(), 0, "Half", status="incomplete")
    encoder, frames = FORMAT.open(state_of(attempt(script, "msg_7_0").events))
    again = ev.TaskAttempt(task_id=RUN, attempt=3, reason="worker_lost", superseded=["msg_7_0"])
    frames += encoder.encode(Recorded(again, b""))
    assert ChatReader().read(frames).error is None


def test_events_of_other_tasks_and_unknown_ones_say_nothing() -> None:
    unknown = decode_event(b'{"type":"task.dream","task_id":"run_7"}')
    created = ev.TaskCreated(task_id="child", parent_task_id=RUN, call_id="c")
    gone = ev.TaskAttempt(task_id="nobody", attempt=2, reason="worker_lost", superseded=["m"])
    reader = strange(unknown, gone, ev.TaskInProgress(task_id=RUN), created, unknown)
    assert reader.said["content"] == ""


# --- the object ----------------------------------------------------------------------------------


@pytest.mark.parametrize("trace", LOGGED, ids=lambda trace: trace.name)
def test_the_object_has_what_the_chunks_of_a_replay_add_up_to(trace: Trace) -> None:
    events = [event for event, _ in trace.events]
    told, found = joined(events, len(events)), completion(state_of(events))
    if told.error is not None:
        assert found == {"error": told.error}
        return
    parsed = json.loads(ChatCompletion.construct(**found).model_dump_json(warnings=False))
    [choice] = found["choices"]
    message = choice["message"]
    assert parsed["object"] == found["object"] == "chat.completion"
    assert choice["finish_reason"] == told.finish_reason
    assert (message["content"] or "") == told.said["content"]
    assert (message["refusal"] or "") == told.said["refusal"]
    assert message.get("reasoning_content", "") == told.said["reasoning_content"]
    calls = message.get("tool_calls", [])
    assert [one["id"] for one in calls] == [one["id"] for one in told.calls]
    for one, heard in zip(calls, told.calls, strict=True):
        inner = one[one["type"]]
        assert inner.get("arguments", inner.get("input")) == heard["arguments"]
    assert [one["url_citation"] for one in message.get("annotations", ())] == told.annotations
    assert [one["image_url"]["url"] for one in message.get("images", ())] == told.images
    assert found["usage"] == told.usage


def test_without_usage_no_chunk_is_without_a_choice() -> None:
    events = scripts.everything().events
    frames = [frame for each in encoded(WITHOUT_USAGE, events) for frame in each]
    told = ChatReader().read(frames)
    assert (told.is_done, told.usage) == (True, None)
    replay = ChatReader().read(WITHOUT_USAGE.open(state_of(events))[1])
    assert (replay.is_done, replay.usage) == (True, None)
