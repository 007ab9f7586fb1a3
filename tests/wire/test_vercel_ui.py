"""The Vercel AI SDK's UI message stream. What each event becomes is in `cases/vercel-ui`."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from tailrace.core import events as ev
from tailrace.core.errors import CallerError, InvalidCursor
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.items import (
    Annotation,
    Data,
    ErrorInfo,
    InputRequest,
    Message,
    ReferenceToBlock,
    Text,
    ToolResult,
)
from tailrace.core.parts import DELTAS
from tailrace.history.inputs import InputMessage
from tailrace.testing.strategies import WrittenRun, legal_runs
from tailrace.testing.wire_kit import as_recorded, check_wire, encoded
from tailrace.wire.vercel_ui import (
    FORMAT,
    answers_of,
    is_cut,
    read,
    results_of,
    run_of,
    without_outputs,
)
from tailrace.wire.vercel_ui.chunks import image_type
from tailrace.wire.vercel_ui.encoder import _ENCODE
from tests.node import run_node
from tests.traces import LOGS, TRACES
from tests.wire.frames import chunks_of
from tests.wire.vercel_checker import Json, UiReader, responses_of
from tests.wire.vercel_story import PNG, RUN, Story, full_story, text_block


def shown_of(story: Story) -> list[Any]:
    """The chunks of a story, which the kit has checked."""
    frames = [frame for frames in check_wire(FORMAT, story.events) for frame in frames]
    UiReader().read(frames)
    return chunks_of(frames)


def after(story: Story, *events: ev.Event) -> list[Any]:
    """The chunks of the events that are added to a story."""
    before = len(story.events)
    story.add(*events)
    frames = [frame for one in check_wire(FORMAT, story.events)[before:] for frame in one]
    return chunks_of(frames)


def kinds(chunks: list[Any]) -> list[str]:
    return [one if one == "[DONE]" else one["type"] for one in chunks]


# --- the message ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message_id"),
    [
        ({"role": "assistant", "id": "msg_of_before", "parts": []}, "msg_of_before"),
        ({"role": "user", "id": "msg_of_the_user", "parts": []}, RUN),
        ({"role": "assistant", "id": 7}, RUN),
        ({"role": "assistant"}, RUN),
        ("assistant", RUN),
    ],
)
def test_a_run_that_answers_a_message_of_the_assistant_goes_on_with_it(
    given: Any, message_id: str
) -> None:
    assert shown_of(Story(input=given))[0]["messageId"] == message_id


@pytest.mark.parametrize(
    ("message", "run_id"),
    [
        ({"role": "assistant", "id": "run_1", "metadata": {"task_id": "run_2"}}, "run_2"),
        ({"role": "assistant", "id": "run_1", "metadata": {"task_id": 2}}, "run_1"),
        ({"role": "assistant", "id": "run_1"}, "run_1"),
        ({"role": "assistant", "id": 1}, None),
        ({"role": "user", "id": "run_1"}, None),
        ("run_1", None),
    ],
)
def test_a_message_names_the_last_run_that_wrote_it(message: Any, run_id: str | None) -> None:
    assert run_of(message) == run_id


def test_a_replay_says_each_text_in_one_delta_and_goes_on_live() -> None:
    story = Story()
    at = story.begin(Message(id="m", role="assistant", phase="final"))
    story.add(ev.TextAdded(**at, block_index=0, item=Text(text="")))
    for word in ("one ", "two ", "three"):
        story.add(ev.TextDelta(**at, block_index=0, delta=word))
    encoder, frames = FORMAT.open(story.state)
    start: Json = {"type": "text-start", "id": "m/0"}
    start |= {"providerMetadata": {"tailrace": {"phase": "final"}}}
    assert chunks_of(frames)[2:] == [
        start,
        {"type": "text-delta", "id": "m/0", "delta": "one two three"},
    ]
    delta = ev.TextDelta(**at, block_index=0, delta=" four", sequence_number=99)
    assert encoder.encode(Recorded(delta, b"")) == [
        b'data: {"type":"text-delta","id":"m/0","delta":" four"}\n\n'
    ]


def test_an_empty_state_sends_nothing() -> None:
    assert FORMAT.open(State())[1] == []
    assert FORMAT.reopen(State())[1] == []


@pytest.mark.parametrize(
    "name", ["block", "delta", "notice", "output", "progress", "request", "step", "task-item"]
)
def test_a_name_that_means_something_here_is_changed(name: str) -> None:
    story = Story()
    at = story.begin(Message(id="m", role="assistant"))
    (shown,) = after(story, ev.DataDone(**at, block_index=0, item=Data(data=1, name=name)))
    assert shown["type"] == f"data-{name}_"


@pytest.mark.parametrize(
    ("url", "media_type"),
    [
        (PNG, "image/png"),
        ("data:image/svg+xml,<svg/>", "image/svg+xml"),
        ("data:;base64,AAAA.png", "image/*"),
        ("https://x.example/a.JPG?w=1", "image/jpeg"),
        ("https://x.example/a.svg#b", "image/svg+xml"),
        ("/blobs/a.webp", "image/webp"),
        ("https://x.example/a.pdf", "image/*"),
        ("/blobs/9a", "image/*"),
    ],
)
def test_the_media_type_of_a_picture(url: str, media_type: str) -> None:
    assert image_type(url) == media_type


# --- citations -----------------------------------------------------------------------------------


def cited(story: Story, text: str, *annotations: Annotation) -> list[Any]:
    at = story.begin(Message(id="m", role="assistant"))
    whole = Text(text=text, annotations=list(annotations))
    return after(story, ev.TextDone(**at, block_index=0, item=whole))[2:]


def reference(number: int, start: int = 0, end: int = 4) -> ReferenceToBlock:
    return ReferenceToBlock(reference_id=number, start_index=start, end_index=end)


def test_offsets_count_as_javascript_counts() -> None:
    text = "🌤️ 晴れ[^1] 👩‍👩‍👧‍👦[^1]"
    story = Story()
    story.call("{}", call_id="c")
    story.result("c", text_block(0, "Sunny", 1), text_block(1, "Not to be cited."))
    starts = [index for index in range(len(text)) if text.startswith("[^1]", index)]
    end, source = cited(story, text, *(reference(1, at, at + 4) for at in starts))
    units = text.encode("utf-16-le")
    for citation in end["citations"]:
        found = units[2 * citation["startIndex"] : 2 * citation["endIndex"]]
        assert found.decode("utf-16-le") == "[^1]"
    assert source == {
        "type": "source-document",
        "sourceId": f"{RUN}/1/0",
        "mediaType": "text/plain",
        "title": "Reference 1",
        "providerMetadata": {
            "tailrace": {
                "reference_id": 1,
                "task_id": RUN,
                "output_index": 1,
                "block_index": 0,
                "call_id": "c",
            }
        },
    }


# --- calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ['{"a":', "[" * 100_000])
def test_arguments_that_are_not_json_are_an_error_and_may_have_a_result(arguments: str) -> None:
    story = Story()
    story.call(arguments, call_id="c")
    shown = shown_of(story)[-1]
    assert (shown["type"], shown["input"]) == ("tool-input-error", arguments)
    error = ErrorInfo(code="invalid_arguments", message="Not JSON.")
    story.result("c", status="failed", error=error)
    assert shown_of(story)[-1]["errorText"] == "Not JSON."


def test_a_result_without_its_call_is_not_shown() -> None:
    encoder = FORMAT.at(Story().state)
    result = ToolResult(id="r", call_id="nobody's")
    done = ev.OutputItemDone(task_id=RUN, output_index=0, item=result, sequence_number=9)
    assert encoder.encode(Recorded(done, b"")) == []


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ({"__proto__": [1]}, {"__proto___": [1]}),
        ([{"constructor": {"prototype": 1}}], [{"constructor_": {"prototype": 1}}]),
        ({"constructor": {"name": "Ferrari"}}, {"constructor": {"name": "Ferrari"}}),
        ({"constructor": "prototype"}, {"constructor": "prototype"}),
        ({"a": {"__proto__": {"b": "c"}}, "d": None}, {"a": {"__proto___": {"b": "c"}}, "d": None}),
    ],
)
def test_keys_that_kill_the_clients_parser_are_renamed(data: Any, shown: Any) -> None:
    story = Story()
    at = story.begin(Message(id="m", role="assistant"))
    story.add(ev.DataDone(**at, block_index=0, item=Data(data=data)))
    assert shown_of(story)[-1]["data"] == shown


def begun_child(story: Story, call_id: str = "c") -> dict[str, Any]:
    story.call("{}", call_id=call_id)
    at = story.begin(ToolResult(id="r" + call_id, call_id=call_id))
    story.add(
        ev.TaskCreated(task_id=call_id, parent_task_id=RUN, call_id=call_id, agent="helper"),
        ev.TaskInProgress(task_id=call_id),
    )
    return at


# --- attempts ------------------------------------------------------------------------------------


def cut_message(story: Story, text: str = "Half") -> None:
    item = Message(id="m", role="assistant")
    at = story.begin(item)
    story.stream_text(at, text)
    story.done(msgspec.structs.replace(item, status="incomplete"), at)


def attempt(*superseded: str) -> ev.TaskAttempt:
    return ev.TaskAttempt(task_id=RUN, attempt=2, reason="lost", superseded=list(superseded))


def test_an_attempt_of_an_unknown_task_sends_nothing() -> None:
    again = ev.TaskAttempt(task_id="unknown", attempt=2, reason="lost", sequence_number=99)
    assert FORMAT.at(Story().state).encode(Recorded(again, b"")) == []


def test_an_attempt_after_the_end_takes_nothing_back() -> None:
    story = Story()
    cut_message(story)
    story.complete()
    late = ev.recorded(attempt("m"), 99)
    assert FORMAT.at(story.state).encode(Recorded(late, b"")) == []


def test_an_attempt_of_a_sub_agent_that_has_ended_takes_nothing_back() -> None:
    story = Story()
    begun_child(story)
    item = Message(id="m", role="assistant")
    story.done(msgspec.structs.replace(item, status="incomplete"), story.begin(item, "c"))
    story.add(ev.TaskCompleted(task_id="c"))
    late = msgspec.structs.replace(attempt("m"), task_id="c", sequence_number=99)
    assert FORMAT.at(story.state).encode(Recorded(late, b"")) == []


# --- people --------------------------------------------------------------------------------------


def request(ident: str, kind: Any = "approval", **facts: Any) -> InputRequest:
    return InputRequest(id=ident, kind=kind, **facts)


def test_a_client_that_returns_after_an_answer_gets_the_next_response() -> None:
    story = Story()
    story.call("{}", call_id="c")
    at = story.begin(Message(id="m", role="assistant"))
    story.add(ev.TextAdded(**at, block_index=0, item=Text(text="")))
    story.add(ev.TextDelta(**at, block_index=0, delta="before "))
    story.add(ev.TaskInputRequired(task_id=RUN, requests=[request("a1", call_id="c")]))
    story.add(ev.TextDelta(**at, block_index=0, delta="meanwhile"))
    next_response = after(story, ev.TaskInputReceived(task_id=RUN, request_id="a1", approved=True))
    assert kinds(next_response[:2]) == ["start", "reset-step"]
    assert {"type": "text-delta", "id": "m/0", "delta": "before meanwhile"} in next_response
    assert chunks_of(FORMAT.reopen(story.state)[1]) == next_response


def test_a_response_asks_for_approvals_when_no_other_tool_runs() -> None:
    story = Story()
    story.call("{}", call_id="pay")
    story.call("{}", call_id="other")
    story.add(ev.ToolCallStarted(task_id=RUN, item_id="fc_other", output_index=1))
    asked = ev.TaskInputRequired(task_id=RUN, requests=[request("a", call_id="pay")])
    assert after(story, asked) == []
    before = len(story.events)
    story.result("other")
    paused = chunks_of([one for some in encoded(FORMAT, story.events)[before:] for one in some])
    shown = [kind for kind in kinds(paused) if not kind.startswith("data-")]
    assert shown[:2] == ["tool-output-available", "tool-approval-request"]
    assert shown[-1] == "[DONE]"


def test_a_response_asks_for_approvals_when_the_output_of_the_page_has_become_a_result() -> None:
    story = Story()
    story.call("{}", call_id="pay")
    story.call("{}", call_id="place", executor="client")
    asked = [request("a", call_id="pay"), request("req_place", "input", call_id="place")]
    story.add(ev.TaskInputRequired(task_id=RUN, requests=asked))
    answered = after(story, ev.TaskInputReceived(task_id=RUN, request_id="req_place", value=1))
    assert kinds(answered) == [
        *("start", "reset-step", "tool-input-start", "tool-input-available"),
        *("tool-input-start", "tool-input-delta"),
    ]
    before = len(story.events)
    story.result("place")
    paused = chunks_of([one for some in encoded(FORMAT, story.events)[before:] for one in some])
    shown = [kind for kind in kinds(paused) if not kind.startswith("data-")]
    expected = ["tool-input-available", "tool-output-available", "tool-approval-request"]
    assert shown[:3] == expected


def test_arguments_that_a_person_changed_replace_those_of_the_model() -> None:
    story = Story()
    for call_id in ("pay", "slow"):
        story.call('{"n":1}', call_id=call_id, name="f", needs_approval=True)
    story.add(ev.ToolCallStarted(task_id=RUN, item_id="fc_slow", output_index=1))
    asked = [request("a", call_id="pay"), request("b", call_id="slow")]
    story.add(ev.TaskInputRequired(task_id=RUN, requests=asked))
    for one, answer in (("b", None), ("a", {"n": 7})):
        story.add(ev.TaskInputReceived(task_id=RUN, request_id=one, approved=True, value=answer))
    before = len(story.events)
    story.result("pay")
    frames = [frame for one in check_wire(FORMAT, story.events)[before:] for frame in one]
    shown = [one for one in chunks_of(frames) if one["type"].startswith("tool-")]
    assert kinds(shown) == ["tool-input-available", "tool-output-available"]
    assert shown[0]["input"] == {"n": 7}
    story.result("slow")
    [message] = FORMAT.messages([story.complete().state])[-1:]
    inputs = [part["input"] for part in message["parts"] if "input" in part]
    assert inputs == [{"n": 7}, {"n": 1}]


@pytest.mark.parametrize("call_id", [None, "other"])
def test_a_tool_that_asks_does_not_keep_its_response_open(call_id: str | None) -> None:
    story = Story()
    story.call("{}", call_id="other")
    story.add(ev.ToolCallStarted(task_id=RUN, item_id="fc_other", output_index=0))
    asked = [request("a", "input", call_id=call_id)]
    paused = after(story, ev.TaskInputRequired(task_id=RUN, requests=asked))
    assert kinds(paused)[0] == "data-request"
    assert "finish" in kinds(paused)


def test_a_sub_agent_asks_through_the_call_that_it_answers() -> None:
    story = Story()
    begun_child(story)
    story.add(ev.ToolCallStarted(task_id=RUN, item_id="fc_c", output_index=0))
    story.call("{}", call_id="other")
    started = ev.ToolCallStarted(task_id=RUN, item_id="fc_other", output_index=2)
    asked = ev.TaskInputRequired(task_id="c", requests=[request("a"), request("b")])
    (waiting,) = after(story, started, asked)[-1:]
    assert waiting["data"]["requests"][0] == {"id": "a", "kind": "approval"}
    before = len(story.events)
    story.result("other")
    paused = chunks_of([one for some in encoded(FORMAT, story.events)[before:] for one in some])
    assert paused[-5:-3] == [
        {"type": "tool-approval-request", "approvalId": "a", "toolCallId": "c"},
        {
            "type": "data-request",
            "id": "b",
            "data": {"task_id": "c", "id": "b", "kind": "approval"},
        },
    ]
    encoder, frames = FORMAT.reopen(story.state, ["a", "unknown"])
    assert (encoder.over, frames) == (False, [])
    answer = ev.TaskInputReceived(task_id="c", request_id="a")
    next_response = chunks_of(encoder.encode(Recorded(answer, b"")))
    assert kinds(next_response[:2]) == ["start", "reset-step"]
    assert next_response[-4]["approvalId"] == "b"
    assert encoder.over


@pytest.mark.parametrize("answer", [None, {}, {"id": "a"}, {"id": "a", "approved": "yes"}])
def test_an_answer_that_is_wrong_is_refused(answer: Any) -> None:
    part = {"type": "dynamic-tool", "state": "approval-responded", "approval": answer}
    with pytest.raises(CallerError, match="approval"):
        answers_of({"parts": [part]})


def test_the_answers_of_a_message_are_its_approvals_with_their_reasons() -> None:
    answers = [{"id": "a", "approved": True}, {"id": "b", "approved": False, "reason": "Why?"}]
    parts = [
        {"type": "text", "text": "Yes."},
        *({"state": "approval-responded", "approval": answer} for answer in answers),
    ]
    assert answers_of({"parts": parts}) == [
        {"request_id": "a", "approved": True},
        {"request_id": "b", "approved": False, "reason": "Why?"},
    ]
    assert answers_of({}) == []


def part_of(call_id: str, state: str = "output-available", **facts: Any) -> Json:
    return {"type": "tool-f", "toolCallId": call_id, "state": state, **facts}


def test_a_run_that_waits_for_its_client_announces_the_calls_and_takes_the_results() -> None:
    story = Story()
    for call_id in ("a", "b", "c"):
        story.call('{"n":1}', call_id=call_id, name="f", executor="client")
    asked = [request(f"r{call_id}", "input", call_id=call_id) for call_id in ("a", "b")]
    question = request("q", "input", message="Which city?")
    paused = after(story, ev.TaskInputRequired(task_id=RUN, requests=[*asked, question]))
    available = {"type": "tool-input-available", "toolName": "f", "input": {"n": 1}}
    later: Json = {"toolCallId": "c", "providerExecuted": True}
    announced = [later, *({"toolCallId": call_id} for call_id in ("a", "b"))]
    assert paused[:3] == [available | about for about in announced]
    assert (paused[3]["type"], paused[-2]["finishReason"]) == ("data-request", "tool-calls")

    failed = part_of("b", "output-error", errorText="No.")
    sent = {"parts": [{"type": "text"}, part_of("a", output=[1]), failed, part_of("other")]}
    assert results_of(sent, story.state) == [
        {"request_id": "ra", "value": [1]},
        {"request_id": "rb", "approved": False, "reason": "No."},
    ]
    for nothing in ({}, {"parts": [part_of("a", "input-available"), part_of("c")]}):
        assert results_of(nothing, story.state) is None
    story.add(ev.TaskInputReceived(task_id=RUN, request_id="ra"))
    story.result("a")
    assert results_of({"parts": [part_of("a")]}, story.state) == []
    assert results_of({"parts": [part_of("a", providerExecuted=True)]}, story.state) is None
    assert results_of({"parts": [part_of("a", toolCallId=["a"])]}, story.state) is None


def test_outputs_that_a_page_added_are_taken_out_of_its_message() -> None:
    text, other = {"type": "text", "text": "Hi."}, part_of("b", output=2)
    sent = {"id": "m", "parts": [text, part_of("a", output=1), other]}
    asked = part_of("a", "input-available")
    assert without_outputs(sent, {"a"}) == {"id": "m", "parts": [text, asked, other]}
    assert without_outputs({"id": "m"}, {"a"}) == {"id": "m", "parts": []}


def test_the_client_is_not_asked_for_a_result_of_a_sub_agent() -> None:
    story = Story()
    begun_child(story)
    story.call("{}", call_id="inner", executor="client", task_id="c")
    asked = request("r", "input", call_id="inner")
    paused = after(story, ev.TaskInputRequired(task_id="c", requests=[asked]))
    assert [one for one in kinds(paused) if one.startswith("tool")] == []
    assert "data-request" in kinds(paused)


# --- endings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "finish_reason"),
    [
        ("max_output_tokens", "length"),
        ("max_tokens", "length"),
        ("length", "length"),
        ("content_filter", "content-filter"),
        ("bored", "other"),
        ("", "other"),
    ],
)
def test_an_incomplete_run_says_why_it_is_short(reason: str, finish_reason: str) -> None:
    shown = after(Story(), ev.TaskIncomplete(task_id=RUN, reason=reason))
    assert shown[1]["finishReason"] == finish_reason
    assert shown[1]["messageMetadata"] == {"status": "incomplete", "reason": reason}


def test_nothing_follows_the_end() -> None:
    story = full_story()
    encoder = FORMAT.at(story.state)
    late = ev.Notice(task_id="call_2", message="late", sequence_number=999)
    created = ev.TaskCreated(task_id="x", parent_task_id=RUN, sequence_number=1000)
    begun = ev.TaskInProgress(task_id="x", sequence_number=1001)
    added = ev.OutputItemAdded(
        task_id="x", output_index=0, item=Message(id="m", role="a"), sequence_number=1002
    )
    at: Json = {"task_id": "x", "item_id": "m", "output_index": 0, "block_index": 0}
    text = ev.TextAdded(**at, item=Text(text=""), sequence_number=1003)
    delta = ev.TextDelta(**at, delta="late", sequence_number=1004)
    for event in (late, created, begun, added, text, delta):
        assert encoder.encode(Recorded(event, b"")) == []


def test_a_stream_that_stops_short_ends_with_an_error() -> None:
    story = Story()
    at = story.begin(Message(id="m", role="assistant"))
    story.add(ev.TextAdded(**at, block_index=0, item=Text(text="")))
    _, frames = FORMAT.open(story.state)
    ends = FORMAT.at(story.state).close("The server stops.")
    assert chunks_of(ends) == [
        {"type": "text-end", "id": "m/0"},
        {"type": "error", "errorText": "The server stops."},
        "[DONE]",
    ]
    assert UiReader().read(frames + ends).is_done
    assert kinds(chunks_of(FORMAT.at(State()).close("x"))) == ["error", "[DONE]"]


def test_a_stream_that_has_ended_or_waits_needs_no_end() -> None:
    assert FORMAT.at(Story().complete().state).close("x") == []
    story = Story()
    story.add(ev.TaskInputRequired(task_id=RUN, requests=[request("a")]))
    assert FORMAT.at(story.state).close("x") == []


# --- streams of others ---------------------------------------------------------------------------


def test_a_stream_that_never_created_its_task_begins_all_the_same() -> None:
    at: Json = {"task_id": "x", "item_id": "m", "output_index": 0, "block_index": 0}
    encoder = FORMAT.at(State())
    unknown = ev.Unknown(task_id="x", sequence_number=0, type="y", raw=b"{}")
    assert encoder.encode(Recorded(unknown, b"")) == []
    lost = ev.TextDelta(**at, delta="lost")
    assert kinds(chunks_of(encoder.encode(Recorded(lost, b"")))) == ["start", "start-step"]
    assert encoder.encode(Recorded(lost, b"")) == []
    assert encoder.encode(Recorded(ev.TextAdded(**at, item=Text(text="")), b"")) == []


def test_an_event_that_comes_twice_is_sent_once() -> None:
    story = full_story()
    encoder = FORMAT.at(State())
    for one in as_recorded(story.events):
        encoder.encode(one)
        assert encoder.encode(one) == []


# --- the format ----------------------------------------------------------------------------------


def test_the_format_has_the_sdks_header_and_no_cursor() -> None:
    assert FORMAT.name == "vercel-ui"
    assert FORMAT.headers == {"x-vercel-ai-ui-message-stream": "v1"}
    assert FORMAT.stateful
    assert not FORMAT.resumable
    assert not FORMAT.preamble()
    assert FORMAT.heartbeat == b": ping\n\n"
    with pytest.raises(InvalidCursor):
        FORMAT.cursor("0")


def test_every_event_is_encoded_or_left_out_on_purpose() -> None:
    elsewhere = {
        ev.TaskAttempt,  # takes back what was shown
        ev.TaskUsage,  # metadata of the end
        ev.StructuredOutputDone,  # the last part
        ev.AnnotationAdded,  # stands at the end of its text
        ev.ArgumentsDone,  # the item's end follows
        ev.ToolCallStarted,  # the SDK has no such state
        ev.ReferenceImported,  # `Sources` reads imports from the state
        ev.RawEvent,
    }
    assert set(_ENCODE) | set(DELTAS) | elsewhere == set(ev.KNOWN)


# --- as a whole ----------------------------------------------------------------------------------


def without_late(parts: list[Json]) -> list[Json]:
    """Without pictures and sources: they come when they are whole, a replay knows only when they
    began, and other parts may have begun in between."""
    return [part for part in parts if not part["type"].startswith(("file", "source-"))]


def check_run(events: list[ev.AnyEvent]) -> UiReader:
    """One run, live and joined after every event."""
    frames = check_wire(FORMAT, events)
    live = UiReader()
    for one in frames:
        live.read(one)
    state = State()
    joined: list[UiReader] = []
    for place, event in enumerate([*events, None]):
        reader = UiReader().read(FORMAT.open(state)[1])
        for one in frames[place:]:
            reader.read(one)
        joined.append(reader)
        if event is not None:
            state.absorb(event)
    if state.root is not None and state.root.ended:
        for reader in joined:
            assert reader.message["metadata"] == live.message["metadata"]
            assert without_late(reader.parts) == without_late(live.parts)
            assert sorted(map(spelled, reader.parts)) == sorted(map(spelled, live.parts))
    return live


def spelled(part: Json) -> str:
    return json.dumps(part, sort_keys=True)


@settings(suppress_health_check=list(HealthCheck))
@given(legal_runs())
def test_every_legal_run_is_a_legal_stream_from_wherever_it_is_joined(run: WrittenRun) -> None:
    assert check_run([event for event, _ in run]).is_done


@settings(suppress_health_check=list(HealthCheck))
@given(legal_runs(complete=False))
def test_a_run_that_still_works_is_a_legal_stream_so_far(run: WrittenRun) -> None:
    check_run([event for event, _ in run])


def test_the_full_story_is_the_same_message_from_wherever_it_is_joined() -> None:
    story = full_story()
    frames = check_wire(FORMAT, story.events)
    live = UiReader().read(frame for one in frames for frame in one)
    state = State()
    for place, event in enumerate(story.events):
        joined = UiReader().read(FORMAT.open(state)[1])
        assert joined.read(frame for one in frames[place:] for frame in one).parts == live.parts
        state.absorb(event)


# The other traces are encoded from every place in every format (`test_kit.py`).
FOREIGN = [trace for trace in TRACES if trace not in LOGS]


@pytest.mark.parametrize("trace", FOREIGN, ids=lambda trace: trace.name)
def test_a_golden_trace_of_a_foreign_writer_is_encoded_alike_from_every_place(trace: Any) -> None:
    check_wire(FORMAT, [event for event, _ in trace.events])


@pytest.mark.long(always=True)
def test_the_ai_sdk_takes_every_stream_and_holds_the_message_that_we_mean() -> None:
    runs: list[list[ev.AnyEvent]] = [list(full_story().events)]

    @settings(suppress_health_check=list(HealthCheck), database=None)
    @given(legal_runs())
    def collect(run: WrittenRun) -> None:
        runs.append([event for event, _ in run])

    collect()
    streams: list[list[bytes]] = []
    for events in runs:
        streams.append([frame for one in encoded(FORMAT, events) for frame in one])
        state = State()
        for event in events[: len(events) // 2]:
            state.absorb(event)
        encoder, opening = FORMAT.open(state)
        rest = as_recorded(events[len(events) // 2 :])
        streams.append(opening + [frame for one in rest for frame in encoder.encode(one)])
    answers = json.loads(
        run_node(["vercel_read.mjs"], stdin=json.dumps([responses_of(one) for one in streams]))
    )
    assert len(answers) == len(streams)
    for frames, answer in zip(streams, answers, strict=True):
        ours = UiReader().read(frames)
        texts = [one["errorText"] for one in chunks_of(frames) if "errorText" in one]
        assert all(error in texts for error in answer["errors"]), answer["errors"]
        assert answer["message"] == ours.message


@pytest.mark.parametrize(
    ("metadata", "cut"),
    [
        ({"task_id": "run_1", "status": "completed"}, False),
        ({"task_id": "run_1", "status": "in_progress"}, True),
        ({"task_id": "run_1"}, True),
        ({"task_id": 1}, False),
        (None, False),
    ],
)
def test_an_answer_is_cut_if_its_page_knows_no_end(metadata: Any, cut: bool) -> None:
    assert is_cut({"id": "run_1", "role": "assistant", "metadata": metadata}) is cut
    assert not is_cut("run_1")


def test_a_ui_message_is_read_as_a_model_reads_it() -> None:
    message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "?"}]}
    (found,) = read(message)
    assert isinstance(found, InputMessage)
    assert found.role == "user"
