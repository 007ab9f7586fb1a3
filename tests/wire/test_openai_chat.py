"""The chat completions stream. What each item becomes is in `cases/openai-chat`."""

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
    ErrorInfo,
    FileCitation,
    InputRequest,
    Message,
    Text,
    ToolCall,
    UrlCitation,
)
from tailrace.testing.wire_kit import as_recorded, check_wire, encoded
from tailrace.wire.openai_chat import FORMAT, WITHOUT_USAGE, completion
from tests.effort import CUTS, sample
from tests.traces import LOGS, Trace
from tests.wire import openai_scripts as scripts
from tests.wire.chat_checker import ChatReader
from tests.wire.chat_runs import check, frames_of, joined, state_of
from tests.wire.frames import chunks_of
from tests.wire.openai_scripts import RUN, Script, picture


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


@pytest.mark.parametrize("trace", LOGS, ids=lambda trace: trace.name)
def test_every_golden_trace_is_sent_whole_or_not_at_all(trace: Trace) -> None:
    events = [event for event, _ in trace.events]
    check(events, ChatReader().read(frames_of(events)))
    for place in sample(range(1, len(events) + 1), CUTS):
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
    assert reader.texts["content"] == "One and a half, behind\n\nTwo…!"
    streamed = deltas_of(frames_of(script.events))
    assert [one["content"] for one in streamed] == [
        "One",
        " and a half",
        ", behind",
        "\n\nTwo…",
        "!",
    ]
    for place in range(before, len(script.events)):
        assert joined(script.events, place).texts["content"] == reader.texts["content"]


def test_what_waits_is_sent_when_the_run_ends() -> None:
    first, second = (Message(id=f"msg_7_{n}", role="assistant") for n in (0, 1))
    script = Script().begin().item(first, 0).item(second, 1)
    block(script, 0, 0, ev.TextAdded, item=Text(text=""))
    block(script, 0, 0, ev.TextDelta, delta="One")
    block(script, 1, 0, ev.TextDone, item=Text(text="Two"))
    script.done(second, 1)
    cut = ev.TaskCancelled(task_id=RUN, sequence_number=len(script.events) + 1)
    reader = ChatReader().read(frames_of([*script.events, cut]))
    assert reader.texts["content"] == "One\n\nTwo"
    assert (reader.finish_reason, reader.native_finish_reason) == ("length", "cancelled")


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
    content = reader.texts["content"]
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
    content_text = reader.texts["content"]
    cited = [
        (one["title"], content_text[one["start_index"] : one["end_index"]])
        for one in reader.annotations
    ]
    assert cited[0] == ("get_weather", "[^1]")


# --- what is taken back --------------------------------------------------------------------------


def attempt(script: Script, *names: str) -> Script:
    return script.add(ev.TaskAttempt, attempt=2, reason="worker_lost", superseded=list(names))


def test_a_sub_agent_that_begins_again_does_not_change_the_message() -> None:
    trace = next(trace for trace in LOGS if trace.name == "recovered_child")
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
    assert reader.texts["content"] == "Half"


def test_a_run_that_waits_sends_nothing_and_a_close_while_it_waits_is_an_error_of_its_own() -> None:
    script = says(Script().begin(), 0, "May I?")
    asked = script.add(ev.TaskInputRequired, requests=[InputRequest(id="in_1", kind="input")])
    streamed = as_recorded(asked.events)
    encoder = FORMAT.at(State())
    frames = [frame for one in streamed for frame in encoder.encode(one)]
    left = ChatReader().read([*frames, *encoder.close("The run waits for an answer.")])
    assert left.error is not None
    assert (left.error["type"], left.error["code"]) == ("input_required", "424")
    assert left.error["message"] == "The run waits for an answer."
    asked.add(ev.TaskInputReceived, request_id="in_1", value=True)
    assert read(says(asked, 1, "Thanks.").add(ev.TaskCompleted)).finish_reason == "stop"


def test_a_stream_that_is_closed_early_is_an_error() -> None:
    for events in ([], says(Script().begin(), 0, "Half").events):
        encoder = FORMAT.at(State())
        frames = [frame for one in as_recorded(events) for frame in encoder.encode(one)]
        reader = ChatReader().read([*frames, *encoder.close("The server stops.")])
        assert reader.error is not None
        assert reader.error["message"] == "The server stops."
        assert reader.error["type"] == "stream_cut"
        assert encoder.close("The server stops.") == encoder.close("The server stops.")


def test_a_run_that_cannot_go_on_has_another_error_than_a_stream_that_was_cut() -> None:
    """`interrupted` is the end of the run: a client that follows it again gets the same."""
    script = says(Script().begin(), 0, "Half")
    reader = read(script.add(ev.TaskFailed, error=ErrorInfo(code="interrupted", message="Lost.")))
    assert reader.error is not None
    assert reader.error["type"] == "interrupted"


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
    assert reader.texts["content"] == "Whole."
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
        assert reader.error["type"] == "stream_cut"
    more = msgspec.structs.replace(
        message, block_list=[Text(text="Sunny day"), Text(text="!"), Text(text="?")]
    )
    done = ev.OutputItemDone(task_id=RUN, output_index=0, item=more)
    assert strange(*begun, done, end).texts["content"] == "Sunny day!?"
    called = ToolCall(id="c", call_id="c", name="sun", executor="client")
    where["item_id"] = "c"
    lied = strange(
        ev.OutputItemAdded(task_id=RUN, output_index=0, item=called),
        ev.ArgumentsDelta(**where, delta='{"a":'),
        ev.ArgumentsDone(**where, arguments="{}"),
    )
    assert lied.error is not None


def test_an_open_item_that_a_foreign_stream_supersedes_is_not_sent() -> None:
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
    assert reader.texts["content"] == "right"


def test_an_answer_that_a_guardrail_refused_ends_with_its_error() -> None:
    script = says(Script().begin(), 0, "Half", status="incomplete")
    script.add(ev.TaskAttempt, attempt=2, reason="output_guardrail", superseded=["msg_7_0"])
    error = ChatReader().read(frames_of(script.events)).error
    assert error is not None
    assert error["type"] == "output_guardrail"
    assert error["message"] == "A guardrail refused the answer."


def test_what_was_taken_back_before_a_reader_came_may_be_named_again() -> None:
    script = says(Script().begin(), 0, "Half", status="incomplete")
    encoder, frames = FORMAT.open(state_of(attempt(script, "msg_7_0").events))
    again = ev.TaskAttempt(task_id=RUN, attempt=3, reason="worker_lost", superseded=["msg_7_0"])
    frames += encoder.encode(Recorded(again, b""))
    assert ChatReader().read(frames).error is None


def test_events_of_other_tasks_and_unknown_events_send_nothing() -> None:
    unknown = decode_event(b'{"type":"task.dream","task_id":"run_7"}')
    created = ev.TaskCreated(task_id="child", parent_task_id=RUN, call_id="c")
    gone = ev.TaskAttempt(task_id="nobody", attempt=2, reason="worker_lost", superseded=["m"])
    reader = strange(unknown, gone, ev.TaskInProgress(task_id=RUN), created, unknown)
    assert reader.texts["content"] == ""


# --- the object ----------------------------------------------------------------------------------


@pytest.mark.parametrize("trace", LOGS, ids=lambda trace: trace.name)
def test_the_object_has_what_the_chunks_of_a_replay_add_up_to(trace: Trace) -> None:
    events = [event for event, _ in trace.events]
    streamed, found = joined(events, len(events)), completion(state_of(events))
    if streamed.error is not None:
        assert found == {"error": streamed.error}
        return
    parsed = json.loads(ChatCompletion.construct(**found).model_dump_json(warnings=False))
    [choice] = found["choices"]
    message = choice["message"]
    assert parsed["object"] == found["object"] == "chat.completion"
    assert choice["finish_reason"] == streamed.finish_reason
    assert (message["content"] or "") == streamed.texts["content"]
    assert (message["refusal"] or "") == streamed.texts["refusal"]
    assert message.get("reasoning_content", "") == streamed.texts["reasoning_content"]
    calls = message.get("tool_calls", [])
    assert [one["id"] for one in calls] == [one["id"] for one in streamed.calls]
    for one, heard in zip(calls, streamed.calls, strict=True):
        inner = one[one["type"]]
        assert inner.get("arguments", inner.get("input")) == heard["arguments"]
    assert [one["url_citation"] for one in message.get("annotations", ())] == streamed.annotations
    assert [one["image_url"]["url"] for one in message.get("images", ())] == streamed.images
    assert found["usage"] == streamed.usage


def test_without_usage_no_chunk_is_without_a_choice() -> None:
    events = scripts.everything().events
    frames = [frame for each in encoded(WITHOUT_USAGE, events) for frame in each]
    streamed = ChatReader().read(frames)
    assert (streamed.is_done, streamed.usage) == (True, None)
    replay = ChatReader().read(WITHOUT_USAGE.open(state_of(events))[1])
    assert (replay.is_done, replay.usage) == (True, None)
