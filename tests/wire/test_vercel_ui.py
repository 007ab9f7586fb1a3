"""The Vercel AI SDK's UI message stream, chunk by chunk and as a whole."""

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
    File,
    FileCitation,
    Image,
    ImageUrl,
    InputRequest,
    Message,
    RawAnnotation,
    RawItem,
    Reasoning,
    ReferenceToBlock,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    UrlCitation,
    Usage,
)
from tailrace.core.parts import DELTAS
from tailrace.testing.strategies import Run, legal_runs
from tailrace.testing.wire_kit import as_recorded, check_wire, encoded, is_log
from tailrace.wire.vercel_ui.chunks import image_type
from tailrace.wire.vercel_ui.encoder import _ENCODE, FORMAT, answers_of, run_of
from tests.node import run_node
from tests.traces import TRACES
from tests.wire.frames import chunks_of
from tests.wire.vercel_checker import Json, UiReader, responses_of
from tests.wire.vercel_story import PNG, RUN, Story, full_story, text_block


def said(story: Story) -> list[Any]:
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


def opened(story: Story) -> list[Any]:
    return chunks_of(FORMAT.open(story.state)[1])


def kinds(chunks: list[Any]) -> list[str]:
    return [one if one == "[DONE]" else one["type"] for one in chunks]


# --- the message ---------------------------------------------------------------------------------


def test_a_run_is_one_message_of_one_step() -> None:
    about: Json = {"thread_id": "t1", "previous_run_id": "run_6", "agent": "assistant"}
    about |= {"model": "m", "created_at": 1790000000}
    story = Story(**about, metadata={"a": 1}, options={"b": 2}, input="Hi")
    story.say("Hel", "lo.")
    story.add(ev.TaskUsage(task_id=RUN, usage=Usage(input_tokens=3, output_tokens=2)))
    usage = {"calls": 1, "input_tokens": 3, "output_tokens": 2}
    assert said(story.complete()) == [
        {"type": "start", "messageId": RUN, "messageMetadata": {"task_id": RUN, **about}},
        {"type": "start-step"},
        {"type": "text-start", "id": "msg_0/0"},
        {"type": "text-delta", "id": "msg_0/0", "delta": "Hel"},
        {"type": "text-delta", "id": "msg_0/0", "delta": "lo."},
        {"type": "text-end", "id": "msg_0/0"},
        {"type": "finish-step"},
        {
            "type": "finish",
            "finishReason": "stop",
            "messageMetadata": {"status": "completed", "usage": usage},
        },
        "[DONE]",
    ]


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
    assert said(Story(input=given))[0]["messageId"] == message_id


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


def test_the_message_shows_the_reasoning_once_whatever_the_provider_sends() -> None:
    story = Story()
    at = story.begin(Reasoning(id="r"))
    empty = Text(text="")
    raw_first = after(
        story,
        ev.ReasoningTextAdded(**at, text_index=0, item=empty),
        ev.ReasoningTextDelta(**at, text_index=0, delta="Hmm."),
        ev.SummaryItemAdded(**at, summary_index=0, item=empty),
        ev.SummaryTextDelta(**at, summary_index=0, delta="Thought."),
        ev.SummaryItemDone(**at, summary_index=0, item=Text(text="Thought.")),
        ev.ReasoningTextDone(**at, text_index=0, item=Text(text="Hmm.")),
    )
    assert raw_first == [
        {"type": "reasoning-start", "id": "r/0"},
        {"type": "reasoning-delta", "id": "r/0", "delta": "Hmm."},
        {"type": "reasoning-end", "id": "r/0"},
    ]
    assert opened(story)[2:] == raw_first

    story = Story()
    at = story.begin(Reasoning(id="r"))
    summary_first = after(
        story,
        ev.SummaryItemAdded(**at, summary_index=0, item=empty),
        ev.SummaryTextDelta(**at, summary_index=0, delta="Thought."),
        ev.ReasoningTextAdded(**at, text_index=0, item=empty),
        ev.ReasoningTextDelta(**at, text_index=0, delta="Hmm."),
    )
    assert summary_first[1:] == [{"type": "reasoning-delta", "id": "r/0", "delta": "Thought."}]
    assert opened(story)[2:] == summary_first


def test_a_refusal_is_a_text_that_says_so() -> None:
    story = Story()
    at = story.begin(Message(id="m", role="assistant"))
    shown = after(
        story,
        ev.RefusalAdded(**at, block_index=0, item=Refusal(refusal="")),
        ev.RefusalDelta(**at, block_index=0, delta="No."),
        ev.RefusalDone(**at, block_index=0, item=Refusal(refusal="No.")),
    )
    assert shown == [
        {
            "type": "text-start",
            "id": "m/0",
            "providerMetadata": {"tailrace": {"refusal": True}},
        },
        {"type": "text-delta", "id": "m/0", "delta": "No."},
        {"type": "text-end", "id": "m/0"},
    ]


def test_pictures_files_and_data_are_parts_of_the_message() -> None:
    story = Story()
    at = story.begin(Message(id="m", role="assistant"))
    picture = Image(image_url=ImageUrl(url=PNG))
    shown = after(
        story,
        ev.ImageAdded(**at, block_index=0, item=Image(image_url=ImageUrl(url=""))),
        ev.ImageDelta(**at, block_index=0, partial_image_index=0, item=picture),
        ev.ImageDone(**at, block_index=0, item=picture),
        ev.FileDone(**at, block_index=1, item=File(url="/f/1", mime_type="text/csv", name="a")),
        ev.FileDone(**at, block_index=2, item=File(url="/f/2")),
        ev.DataDone(**at, block_index=3, item=Data(data=None)),
        ev.DataDone(**at, block_index=4, item=Data(data=[1], name="my table!")),
        ev.DataDone(**at, block_index=5, item=Data(data=[2], name="task")),
        ev.ImageDone(**at, block_index=6, item=Image(image_url=ImageUrl(url=""))),
    )
    block = {"type": "image", "image_url": {"url": PNG}}
    parts = [
        {"type": "file", "url": PNG, "mediaType": "image/png"},
        {
            "type": "file",
            "url": "/f/1",
            "mediaType": "text/csv",
            "providerMetadata": {"tailrace": {"name": "a"}},
        },
        {"type": "file", "url": "/f/2", "mediaType": "application/octet-stream"},
        {"type": "data-value", "id": "m/3", "data": None},
        {"type": "data-my-table-", "id": "m/4", "data": [1]},
        {"type": "data-task_", "id": "m/5", "data": [2]},
    ]
    live = {"type": "data-block", "id": "0/0/0", "transient": True, "data": block}
    assert shown == [live, *parts]
    assert opened(story)[2:] == parts


def test_a_picture_that_is_still_made_is_shown_to_who_joins() -> None:
    story = Story()
    at = story.begin(Message(id="m", role="assistant"))
    story.add(ev.ImageAdded(**at, block_index=0, item=Image(image_url=ImageUrl(url=""))))
    assert len(opened(story)) == 2
    story.add(
        ev.ImageDelta(
            **at, block_index=0, partial_image_index=0, item=Image(image_url=ImageUrl(url=PNG))
        )
    )
    assert kinds(opened(story))[2:] == ["data-block"]


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


def test_each_kind_of_source_is_named_by_what_it_is() -> None:
    story = Story()
    story.call("{}", call_id="c")
    place: Json = {"task_id": "", "item_id": "", "output_index": 0}
    web = "https://x.example/"
    blocks = [
        ev.DataDone(**place, block_index=0, item=Data(data=1, name="table", id=1)),
        ev.DataDone(**place, block_index=1, item=Data(data=1, id=2)),
        ev.ImageDone(**place, block_index=2, item=Image(image_url=ImageUrl(url=PNG), id=3)),
        ev.ImageDone(
            **place, block_index=3, item=Image(image_url=ImageUrl(url=web + "a.png"), id=4)
        ),
        ev.FileDone(**place, block_index=4, item=File(url="/f", name="f.csv", id=5)),
        ev.FileDone(**place, block_index=5, item=File(url=web + "f", name="g.csv", id=6)),
        ev.FileDone(**place, block_index=6, item=File(url="/f", mime_type="text/csv", id=7)),
    ]
    story.result("c", *blocks)
    _, *sources = cited(story, "....", *(reference(number) for number in range(1, 8)))
    shown = [(one["type"], one.get("mediaType") or one.get("url"), one["title"]) for one in sources]
    assert shown == [
        ("source-document", "application/json", "table"),
        ("source-document", "application/json", "Reference 2"),
        ("source-document", "image/png", "Reference 3"),
        ("source-url", web + "a.png", "Reference 4"),
        ("source-document", "application/octet-stream", "f.csv"),
        ("source-url", web + "f", "g.csv"),
        ("source-document", "text/csv", "Reference 7"),
    ]
    assert {one["providerMetadata"]["tailrace"]["call_id"] for one in sources} == {"c"}


def test_citations_of_the_provider_are_kept() -> None:
    end, *sources = cited(
        Story(),
        "Some text.",
        UrlCitation(url="https://x.example/", start_index=0, end_index=4, title="X"),
        UrlCitation(url="https://x.example/", start_index=5, end_index=9),
        UrlCitation(url="https://y.example/", start_index=5, end_index=9),
        FileCitation(file_id="f1", filename="a.pdf", container_id="k", start_index=1, end_index=2),
        FileCitation(file_id="f2"),
        RawAnnotation(raw={"type": "hologram"}),
    )
    assert [set(one) - {"source"} for one in end["citations"]] == [
        {"startIndex", "endIndex"},
        {"startIndex", "endIndex"},
        {"startIndex", "endIndex"},
        {"startIndex", "endIndex"},
        set(),
    ]
    assert sources == [
        {
            "type": "source-url",
            "sourceId": "https://x.example/",
            "url": "https://x.example/",
            "title": "X",
        },
        {"type": "source-url", "sourceId": "https://y.example/", "url": "https://y.example/"},
        {
            "type": "source-document",
            "sourceId": "f1",
            "mediaType": "application/octet-stream",
            "title": "a.pdf",
            "filename": "a.pdf",
            "providerMetadata": {"tailrace": {"file_id": "f1", "container_id": "k"}},
        },
        {
            "type": "source-document",
            "sourceId": "f2",
            "mediaType": "application/octet-stream",
            "title": "File",
            "providerMetadata": {"tailrace": {"file_id": "f2"}},
        },
    ]


def test_a_number_of_an_earlier_run_names_that_run() -> None:
    story = Story(previous_run_id="run_6", reference_start=3)
    _, source = cited(story, "....", reference(2))
    assert source["sourceId"] == "run_6#2"
    about = {"reference_id": 2, "previous_run_id": "run_6"}
    assert source["providerMetadata"] == {"tailrace": about}
    _, source = cited(Story(reference_start=3), "....", reference(2))
    assert source["providerMetadata"] == {"tailrace": {"reference_id": 2}}


def test_a_citation_means_what_its_writer_could_have_seen() -> None:
    story = Story(reference_start=2)
    story.call("{}", call_id="c")
    at = story.begin(Message(id="m", role="assistant"))
    story.add(ev.TextAdded(**at, block_index=0, item=Text(text="")))
    story.add(ev.TextDelta(**at, block_index=0, delta="[^1]"))
    story.add(ev.AnnotationAdded(**at, block_index=0, annotation_index=0, annotation=reference(1)))
    story.result("c", text_block(0, "late", 1))
    whole = Text(text="[^1]", annotations=[reference(1)])
    end, source = after(story, ev.TextDone(**at, block_index=0, item=whole))
    assert end["citations"][0]["source"]["id"] == source["sourceId"] == "#1"


def test_a_number_means_the_block_that_came_first() -> None:
    story = Story()
    story.call("{}", call_id="a")
    story.call("{}", call_id="b")
    early, late = (story.begin(ToolResult(id=f"r{one}", call_id=one)) for one in "ab")
    for at in (late, early):
        story.add(ev.TextDone(**at, block_index=0, item=Text(text="same", id=1)))
    _, source = cited(story, "....", reference(1))
    assert source["sourceId"] == f"{RUN}/3/0"


def test_numbers_are_looked_up_again_when_there_are_more() -> None:
    story = Story()
    sources: list[str] = []

    def cite(number: int) -> None:
        at = story.begin(Message(id=f"m{len(sources)}", role="assistant"))
        whole = Text(text="....", annotations=[reference(number)])
        sources.append(after(story, ev.TextDone(**at, block_index=0, item=whole))[-1]["sourceId"])

    for number in (1, 2):
        story.call("{}", call_id=f"c{number}")
        story.result(f"c{number}", text_block(0, f"fact {number}", number))
        cite(number)
    begun_child(story, "c3")
    story.call("{}", call_id="c4", task_id="c3")
    story.result("c4", text_block(0, "fact of a child", 1), task_id="c3")
    cite(1)
    imported = ev.ReferenceImported(
        task_id=RUN, reference_id=3, source_task_id="c3", source_reference_id=1
    )
    story.add(imported)
    cite(3)
    assert sources == [f"{RUN}/1/0", f"{RUN}/4/0", f"{RUN}/1/0", "c3/1/0"]


# --- calls ---------------------------------------------------------------------------------------


def test_a_call_of_ours_streams_its_input_and_has_its_output() -> None:
    story = Story()
    story.call('{"a"', ":\n1}", call_id="c", name="add", kind="mcp", server_label="math")
    story.result("c", text_block(0, "2"))
    ours = {"toolCallId": "c", "providerExecuted": True, "dynamic": True}
    named = {**ours, "toolName": "add"}
    about = {"providerMetadata": {"tailrace": {"kind": "mcp", "server_label": "math"}}}
    shown = [one for one in said(story)[2:] if not one.get("transient")]
    whole = [
        {"type": "tool-input-start", **named, **about},
        {"type": "tool-input-available", **named, "input": {"a": 1}, **about},
        {"type": "tool-output-available", **ours, "output": [{"type": "text", "text": "2"}]},
    ]
    assert shown == [
        whole[0],
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '{"a"'},
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": ":\n1}"},
        *whole[1:],
    ]
    assert opened(story)[2:] == whole


def test_a_call_that_still_streams_is_replayed_as_far_as_it_is() -> None:
    story = Story()
    story.begin(ToolCall(id="f", call_id="c", name="n", kind="custom"))
    assert kinds(opened(story))[2:] == ["tool-input-start"]
    assert opened(story)[2]["inputEncoding"] == "text"
    story.add(ev.ArgumentsDelta(task_id=RUN, item_id="f", output_index=0, delta="free "))
    assert opened(story)[3:] == [
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "free "}
    ]


@pytest.mark.parametrize(
    ("arguments", "kind", "value"),
    [("", "function", {}), ("free text", "custom", "free text"), ("[1]", "web_search", [1])],
)
def test_the_input_of_a_call(arguments: str, kind: str, value: Any) -> None:
    story = Story()
    story.call(arguments, call_id="c", kind=kind)
    about = {} if kind == "function" else {"providerMetadata": {"tailrace": {"kind": kind}}}
    assert said(story)[-1] == {
        "type": "tool-input-available",
        "toolCallId": "c",
        "toolName": "tool",
        "providerExecuted": True,
        "dynamic": True,
        "input": value,
        **about,
    }


@pytest.mark.parametrize("arguments", ['{"a":', "[" * 100_000])
def test_arguments_that_are_no_json_are_an_error_and_may_have_a_result(arguments: str) -> None:
    story = Story()
    story.call(arguments, call_id="c")
    shown = said(story)[-1]
    assert (shown["type"], shown["input"]) == ("tool-input-error", arguments)
    error = ErrorInfo(code="invalid_arguments", message="Not JSON.")
    story.result("c", status="failed", error=error)
    assert said(story)[-1]["errorText"] == "Not JSON."


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ({"status": "failed", "error": ErrorInfo(code="timeout", message="")}, "timeout"),
        ({"status": "incomplete"}, "The tool was interrupted."),
    ],
)
def test_an_invalid_result_is_an_error(end: Json, text: str) -> None:
    story = Story()
    story.call("{}", call_id="c")
    story.result("c", text_block(0, "half"), **end)
    shown = said(story)[-1]
    assert (shown["type"], shown["errorText"]) == ("tool-output-error", text)


def test_a_cut_call_is_never_carried_out_by_the_client() -> None:
    story = Story()
    story.cut_call('{"a":1}', call_id="c", executor="client")
    shown = said(story.complete())
    cut = next(one for one in shown if one["type"] == "tool-input-error")
    assert cut["providerExecuted"] is True
    assert "tool-input-available" not in kinds(shown)
    assert shown[-2]["finishReason"] == "stop"


def test_a_call_of_the_client_is_announced_when_the_run_completes() -> None:
    story = Story()
    story.call('{"a":1}', call_id="c", executor="client")
    assert kinds(said(story))[2:] == ["tool-input-start", "tool-input-delta"]
    assert kinds(opened(story))[2:] == ["tool-input-start", "tool-input-delta"]
    available = {"toolCallId": "c", "toolName": "tool", "input": {"a": 1}}
    ending = after(story, ev.TaskCompleted(task_id=RUN))
    assert ending[0] == {"type": "tool-input-available", **available}
    assert ending[2]["finishReason"] == "tool-calls"


@pytest.mark.parametrize(
    "end",
    [
        ev.TaskFailed(task_id=RUN, error=ErrorInfo(code="c", message="m")),
        ev.TaskCancelled(task_id=RUN),
        ev.TaskIncomplete(task_id=RUN, reason="max_output_tokens"),
    ],
)
def test_a_call_of_the_client_is_dropped_when_the_run_does_not_complete(end: ev.Event) -> None:
    story = Story()
    story.call('{"a":1}', call_id="c", executor="client")
    assert after(story, end)[0] == {
        "type": "tool-input-error",
        "toolCallId": "c",
        "toolName": "tool",
        "providerExecuted": True,
        "input": '{"a":1}',
        "errorText": "The run ended before this tool was called.",
    }


def test_a_call_of_the_client_that_was_answered_here_is_not_carried_out_again() -> None:
    story = Story()
    story.call('{"a":1}', call_id="c", executor="client")
    story.result("c", text_block(0, "2"))
    shown = said(story.complete())
    available = [one for one in shown[:-1] if one["type"] == "tool-input-available"]
    assert [one["providerExecuted"] for one in available] == [True]
    assert shown[-2]["finishReason"] == "stop"


def test_a_call_without_a_result_does_not_spin_for_ever() -> None:
    story = Story()
    story.call("{}", call_id="c")
    assert after(story, ev.TaskCompleted(task_id=RUN))[0] == {
        "type": "tool-output-error",
        "toolCallId": "c",
        "providerExecuted": True,
        "dynamic": True,
        "errorText": "The run ended before this tool did.",
    }


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
    assert said(story)[-1]["data"] == shown


# --- sub-agents and results while they work ------------------------------------------------------


def begun_child(story: Story, call_id: str = "c") -> dict[str, Any]:
    story.call("{}", call_id=call_id)
    at = story.begin(ToolResult(id="r" + call_id, call_id=call_id))
    story.add(
        ev.TaskCreated(task_id=call_id, parent_task_id=RUN, call_id=call_id, agent="helper"),
        ev.TaskInProgress(task_id=call_id),
    )
    return at


def test_a_sub_agent_is_beside_the_text_and_its_items_are_parts_with_stable_ids() -> None:
    story = Story()
    result = begun_child(story)
    before = len(said(story))
    story.say("Hi ", "there", ident="mc", task_id="c")
    story.add(ev.TaskCompleted(task_id="c"))
    story.done(ToolResult(id="rc", call_id="c"), result)
    item = {"task_id": "c", "type": "message", "id": "mc", "role": "assistant"}
    delta = {"type": "data-delta", "id": "1/0/0", "transient": True}
    task = {"task_id": "c", "task_index": 1, "parent_task_id": RUN, "call_id": "c"}
    task["agent"] = "helper"
    assert said(story)[before:] == [
        {
            "type": "data-task-item",
            "id": "c/0",
            "data": {**item, "block_list": [], "status": "in_progress"},
        },
        {**delta, "data": "Hi "},
        {**delta, "data": "there"},
        {
            "type": "data-task-item",
            "id": "c/0",
            "data": {**item, "block_list": [{"type": "text", "text": "Hi there"}]},
        },
        {"type": "data-task", "id": "c", "data": {**task, "status": "completed"}},
        {
            "type": "tool-output-available",
            "toolCallId": "c",
            "providerExecuted": True,
            "dynamic": True,
            "output": [{"type": "task", "task_id": "c"}],
        },
    ]
    assert "text-start" not in kinds(said(story))


def test_a_sub_agent_that_works_is_replayed_as_far_as_it_is() -> None:
    story = Story()
    begun_child(story)
    at = story.begin(Message(id="mc", role="assistant"), "c")
    story.add(ev.TextAdded(**at, block_index=0, item=Text(text="")))
    story.add(ev.TextDelta(**at, block_index=0, delta="Hi"))
    shown = opened(story)
    assert kinds(shown)[4:] == ["data-task-item", "data-task", "data-task-item"]
    assert shown[-1]["data"]["block_list"] == [{"type": "text", "text": "Hi"}]
    assert shown[-1]["data"]["status"] == "in_progress"


def test_pieces_of_sub_agents_name_their_task_by_its_place_in_the_run() -> None:
    story = Story()
    begun_child(story, "first")
    begun_child(story, "second")
    story.call("{}", call_id="inner", task_id="first")
    story.begin(ToolResult(id="ri", call_id="inner"), "first")
    story.add(ev.TaskCreated(task_id="inner", parent_task_id="first", call_id="inner"))
    story.add(ev.TaskInProgress(task_id="inner"))
    tasks = ("second", "inner", "first")
    places = [story.begin(Message(id=f"m_{one}", role="assistant"), one) for one in tasks]
    for at in places:
        story.add(ev.TextAdded(**at, block_index=0, item=Text(text="")))
    deltas = [ev.TextDelta(**at, block_index=0, delta=at["task_id"]) for at in places * 2]
    shown = after(story, *deltas)
    pieces = [("2/0/0", "second"), ("3/0/0", "inner"), ("1/2/0", "first")] * 2
    assert [(one["id"], one["data"]) for one in shown] == pieces
    indexes = {"first": 1, "second": 2, "inner": 3}
    for chunks in (said(story), opened(story)):
        found = [one["data"] for one in chunks if one["type"] == "data-task"]
        assert {one["task_id"]: one["task_index"] for one in found} == indexes


def test_a_task_keeps_its_number_when_an_earlier_one_was_taken_back() -> None:
    story = Story()
    at = begun_child(story, "lost")
    story.add(ev.TaskCancelled(task_id="lost"))
    story.done(ToolResult(id="rlost", call_id="lost", status="incomplete"), at)
    story.add(ev.TaskAttempt(task_id=RUN, attempt=2, reason="lost", superseded=["rlost"]))
    begun_child(story, "next")
    at = story.begin(Message(id="m", role="assistant"), "next")
    story.add(ev.TextAdded(**at, block_index=0, item=Text(text="")))
    tasks = [one["data"] for one in opened(story) if one["type"] == "data-task"]
    assert [(one["task_id"], one["task_index"]) for one in tasks] == [("next", 2)]
    (piece,) = after(story, ev.TextDelta(**at, block_index=0, delta="Hi"))
    assert piece["id"] == "2/0/0"


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (ev.TaskCompleted(task_id="c"), {"status": "completed"}),
        (
            ev.TaskIncomplete(task_id="c", reason="tired"),
            {"status": "incomplete", "reason": "tired"},
        ),
        (
            ev.TaskFailed(task_id="c", error=ErrorInfo(code="e", message="m")),
            {"status": "failed", "error": {"code": "e", "message": "m"}},
        ),
    ],
)
def test_a_sub_agents_part_says_how_it_fared(end: ev.Event, how: Json) -> None:
    story = Story()
    story.call("{}", call_id="c")
    story.begin(ToolResult(id="rc", call_id="c"))
    facts: Json = {
        "task_id": "c",
        "parent_task_id": RUN,
        "call_id": "c",
        "agent": "a",
        "model": "m",
    }
    shown = after(
        story,
        ev.TaskCreated(**facts, input="a long prompt"),
        ev.TaskInProgress(task_id="c"),
        ev.StructuredOutputDone(task_id="c", value=7),
        ev.TaskUsage(task_id="c", usage=Usage(input_tokens=1)),
        end,
    )
    usage = {"calls": 1, "input_tokens": 1, "output_tokens": 0}
    facts["task_index"] = 1
    assert [one["data"] for one in shown] == [
        {**facts, "status": "queued"},
        {**facts, "status": "in_progress"},
        {**facts, "structured_output": {"value": 7}, "usage": usage, **how},
    ]


def test_a_sub_agents_reasoning_is_streamed_once_too() -> None:
    story = Story()
    begun_child(story)
    at = story.begin(Reasoning(id="rs"), "c")
    shown = after(
        story,
        ev.ReasoningTextAdded(**at, text_index=0, item=Text(text="")),
        ev.SummaryItemAdded(**at, summary_index=0, item=Text(text="")),
        ev.SummaryTextDelta(**at, summary_index=0, delta="Thought."),
        ev.ReasoningTextDelta(**at, text_index=0, delta="Hmm."),
    )
    assert [one["data"] for one in shown] == ["Hmm."]
    item = opened(story)[-1]["data"]
    assert "summary" not in item
    assert item["reasoning_text"] == [{"type": "text", "text": "Hmm."}]


def test_offsets_inside_a_sub_agent_count_as_javascript_counts() -> None:
    story = Story()
    begun_child(story)
    at = story.begin(Message(id="mc", role="assistant"), "c")
    link = UrlCitation(url="u", start_index=1, end_index=2)
    whole = Text(text="🌤x", annotations=[link])
    (shown,) = after(story, ev.TextDone(**at, block_index=0, item=whole))
    converted = [{"type": "url_citation", "url": "u", "start_index": 2, "end_index": 3}]
    assert shown["data"]["annotations"] == converted
    assert opened(story)[-1]["data"]["block_list"][0]["annotations"] == converted


def test_the_blocks_of_a_result_are_shown_while_it_works_each_once() -> None:
    story = Story()
    story.call("{}", call_id="c")
    at = story.begin(ToolResult(id="r", call_id="c"))
    blank, picture = (Image(image_url=ImageUrl(url=url), id=2) for url in ("", PNG))
    shown = after(
        story,
        ev.TextAdded(**at, block_index=0, item=Text(text="", id=1)),
        ev.TextDelta(**at, block_index=0, delta="row"),
        ev.TextDone(**at, block_index=0, item=Text(text="row", id=1)),
        ev.ImageAdded(**at, block_index=1, item=blank),
        ev.ImageDelta(**at, block_index=1, partial_image_index=0, item=picture),
        ev.ImageDone(**at, block_index=1, item=picture),
        ev.DataDone(**at, block_index=2, item=Data(data=1)),
    )
    image = {"type": "image", "image_url": {"url": PNG}, "id": 2}
    assert [(one["type"], one["id"], one["data"]) for one in shown] == [
        ("data-delta", "0/1/0", "row"),
        ("data-block", "0/1/1", image),
        ("data-block", "0/1/1", image),
        ("data-block", "0/1/2", {"type": "data", "data": 1}),
    ]
    assert all(one["transient"] for one in shown)


def test_what_happened_since_a_call_ended_does_not_change_its_part() -> None:
    story = Story()
    begun_child(story)
    item = story.call("{}", call_id="inner", task_id="c")
    part = said(story)[-1]
    story.add(
        ev.ToolCallStarted(task_id="c", item_id=item.id, output_index=0),
        ev.Progress(task_id="c", call_id="inner", current=1, total=2),
    )
    assert part in opened(story)


def test_a_sub_agent_of_a_result_that_was_taken_back_is_gone_with_it() -> None:
    story = Story()
    at = begun_child(story)
    story.call("{}", call_id="d", task_id="c")
    inner = story.begin(ToolResult(id="rd", call_id="d"), "c")
    story.add(
        ev.TaskCreated(task_id="d", parent_task_id="c", call_id="d"),
        ev.TaskCancelled(task_id="d"),
    )
    story.done(ToolResult(id="rd", call_id="d"), inner)
    story.add(ev.TaskCompleted(task_id="c"))
    story.done(ToolResult(id="rc", call_id="c", status="incomplete"), at)
    (reset, *rest) = after(
        story, ev.TaskAttempt(task_id=RUN, attempt=2, reason="lost", superseded=["rc"])
    )
    assert reset == {"type": "reset-step"}
    assert kinds(rest) == ["tool-input-start", "tool-input-available"]
    assert after(story, ev.TaskCompleted(task_id=RUN))[0]["type"] == "tool-output-error"


def test_an_item_of_an_unknown_kind_is_kept_only_in_sub_agents() -> None:
    story = Story()
    begun_child(story)
    assert after(story, *raw_item(RUN, 2)) == []
    assert [one["data"]["raw"] for one in after(story, *raw_item("c", 0))] == [7, 7]


def raw_item(task_id: str, index: int) -> list[ev.Event]:
    item = RawItem(id=f"raw_{task_id}", raw=7)
    return [
        kind(task_id=task_id, output_index=index, item=item)
        for kind in (ev.OutputItemAdded, ev.OutputItemDone)
    ]


# --- what passes by ------------------------------------------------------------------------------


def test_steps_notices_and_progress_pass_by_and_pass_again_in_a_replay() -> None:
    story = Story()
    story.call("{}", call_id="c")
    shown = after(
        story,
        ev.StepStarted(task_id=RUN, step_index=0, name="work"),
        ev.Notice(task_id=RUN, message="Cached.", level="warning"),
        ev.Progress(task_id=RUN, current=1, total=3),
        ev.Progress(task_id=RUN, call_id="c", message="page 3"),
    )
    step = {"task_id": RUN, "step_index": 0, "name": "work", "depth": 0, "status": "in_progress"}
    notice = {"task_id": RUN, "message": "Cached.", "level": "warning"}
    assert [(one["type"], one["id"], one["data"]) for one in shown] == [
        ("data-step", f"{RUN}/0", step),
        ("data-notice", f"{RUN}/0", notice),
        ("data-progress", RUN, {"task_id": RUN, "current": 1, "total": 3}),
        ("data-progress", "c", {"task_id": RUN, "call_id": "c", "message": "page 3"}),
    ]
    assert all(one["transient"] for one in shown)
    assert opened(story)[-4:] == shown
    (finished,) = after(story, ev.StepFinished(task_id=RUN, step_index=0))
    assert finished["data"] == {**step, "status": "completed"}


def test_the_agent_that_takes_over_and_a_summary_pass_by_and_pass_again_in_a_replay() -> None:
    story = Story()
    shown = after(
        story,
        ev.HistoryCompacted(task_id=RUN, summary="Paris.", run_id="run_0"),
        ev.AgentSwitched(task_id=RUN, agent="billing", reason="An invoice."),
    )
    assert [(one["type"], one["id"]) for one in shown] == [
        ("data-history", RUN),
        ("data-agent", f"{RUN}/0"),
    ]
    history, agent = (one["data"] for one in shown)
    assert history == {"task_id": RUN, "summary": "Paris.", "run_id": "run_0"}
    assert (agent["agent"], agent["reason"], agent["output_index"]) == ("billing", "An invoice.", 0)
    assert all(one["transient"] for one in shown)
    assert opened(story)[-2:] == shown
    assert "agent" not in opened(story)[0]["messageMetadata"]  # nobody is named as the first


def test_a_sub_agents_part_names_the_agent_that_takes_over() -> None:
    story = Story()
    begun_child(story)
    part, agent = after(story, ev.AgentSwitched(task_id="c", agent="billing"))
    assert (part["type"], part["data"]["agent"]) == ("data-task", "billing")
    assert (agent["type"], agent["data"]["task_id"]) == ("data-agent", "c")


# --- attempts ------------------------------------------------------------------------------------


def cut_message(story: Story, text: str = "Half") -> None:
    item = Message(id="m", role="assistant")
    at = story.begin(item)
    story.stream_text(at, text)
    story.done(msgspec.structs.replace(item, status="incomplete"), at)


def attempt(*superseded: str) -> ev.TaskAttempt:
    return ev.TaskAttempt(task_id=RUN, attempt=2, reason="lost", superseded=list(superseded))


def test_what_an_attempt_unmakes_is_taken_back_and_the_rest_is_sent_again() -> None:
    story = Story()
    story.think("Hmm.")
    cut_message(story)
    shown = after(story, attempt("m"))
    assert shown == [
        {"type": "reset-step"},
        {"type": "reasoning-start", "id": "rs_0/0"},
        {"type": "reasoning-delta", "id": "rs_0/0", "delta": "Hmm."},
        {"type": "reasoning-end", "id": "rs_0/0"},
    ]
    story.say("Whole.", ident="m2")
    story.complete()
    texts = [part for part in UiReader().read(frames_of(story)).parts if part["type"] == "text"]
    assert [part["text"] for part in texts] == ["Whole."]


def test_a_citation_of_what_was_taken_back_leads_there_no_more() -> None:
    story = Story()
    story.call("{}", call_id="c")
    story.result("c", text_block(0, "fact", 1), status="incomplete")
    _, source = cited(story, "....", reference(1))
    assert source["sourceId"] == f"{RUN}/1/0"
    assert after(story, attempt("fco_c"))[-1]["sourceId"] == "#1"


def frames_of(story: Story) -> list[bytes]:
    return [frame for frames in encoded(FORMAT, story.events) for frame in frames]


def test_an_attempt_that_unmakes_nothing_says_nothing() -> None:
    story = Story()
    cut_message(story)
    assert after(story, attempt()) == []
    again = ev.TaskAttempt(task_id="who?", attempt=2, reason="lost", sequence_number=99)
    assert FORMAT.at(story.state).encode(Recorded(again, b"")) == []


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


def test_an_approval_ends_the_response_and_the_answer_begins_the_next() -> None:
    story = Story()
    story.call("{}", call_id="c")
    at = story.begin(Message(id="m", role="assistant"))
    story.add(ev.TextAdded(**at, block_index=0, item=Text(text="")))
    story.think("Hm", ident="rs")
    story.add(ev.TextDelta(**at, block_index=0, delta="before "))
    asked = ev.TaskInputRequired(
        task_id=RUN, requests=[request("a1", call_id="c", message="Send it?")]
    )
    shown = after(story, asked)
    assert shown == [
        {"type": "text-end", "id": "m/0"},
        {
            "type": "tool-approval-request",
            "approvalId": "a1",
            "toolCallId": "c",
            "reason": "Send it?",
        },
        {"type": "finish-step"},
        {
            "type": "finish",
            "finishReason": "tool-calls",
            "messageMetadata": {"status": "input_required"},
        },
        "[DONE]",
    ]
    assert opened(story)[-4:] == shown[1:]
    delta = ev.TextDelta(**at, block_index=0, delta="meanwhile")
    assert after(story, delta, ev.Notice(task_id=RUN, message="Waiting.")) == []
    answer = ev.TaskInputReceived(task_id=RUN, request_id="a1", approved=True)
    next_response = after(story, answer)
    assert kinds(next_response[:2]) == ["start", "reset-step"]
    assert {"type": "text-delta", "id": "m/0", "delta": "before meanwhile"} in next_response
    assert chunks_of(FORMAT.reopen(story.state)[1]) == next_response


def test_an_open_reasoning_ends_with_the_response() -> None:
    story = Story()
    at = story.begin(Reasoning(id="r"))
    story.add(ev.SummaryItemAdded(**at, summary_index=0, item=Text(text="")))
    asked = ev.TaskInputRequired(task_id=RUN, requests=[request("q", "input")])
    assert after(story, asked)[0] == {"type": "reasoning-end", "id": "r/0"}


def test_a_request_that_no_call_can_carry_is_a_part_of_its_own() -> None:
    story = Story()
    story.call("{}", call_id="ours")
    story.call("{}", call_id="quiet")
    story.call("{}", call_id="theirs", executor="client")
    story.call("{}", call_id="answered")
    story.result("answered")
    story.cut_call("{}", call_id="cut")
    story.cut_call("{}", call_id="gone")
    story.add(attempt("fc_gone"))
    story.begin(ToolCall(id="fc_open", call_id="open", name="tool"))
    story.call("{}", call_id="working")
    story.begin(ToolResult(id="fco_working", call_id="working"))
    requests = [
        request("0", call_id="working"),
        request("1", call_id="ours"),
        request("2", call_id="ours"),
        request("3", call_id="theirs"),
        request("4", call_id="answered"),
        request("5", call_id="cut"),
        request("6", call_id="gone"),
        request("7", call_id="unknown"),
        request("8"),
        request("8b", call_id="open"),
        request("8c", "input", call_id="quiet"),
        request("9", "input", message="Which?", schema={"type": "string"}),
    ]
    shown = after(story, ev.TaskInputRequired(task_id=RUN, requests=requests))
    assert kinds(shown[:12]) == ["tool-approval-request"] * 2 + ["data-request"] * 10
    assert shown[11] == {
        "type": "data-request",
        "id": "9",
        "data": {
            "task_id": RUN,
            "id": "9",
            "kind": "input",
            "message": "Which?",
            "schema": {"type": "string"},
        },
    }


def test_of_several_requests_the_last_answer_goes_on() -> None:
    story = Story()
    asked = ev.TaskInputRequired(task_id=RUN, requests=[request("a"), request("b")])
    first, second = (ev.TaskInputReceived(task_id=RUN, request_id=one) for one in "ab")
    story.add(asked)
    assert after(story, first) == []
    assert kinds(after(story, second)) == ["start", "reset-step"]


def test_a_run_that_ends_while_it_waits_ends_its_last_response() -> None:
    story = Story()
    story.say("Text.")
    story.add(ev.TaskInputRequired(task_id=RUN, requests=[request("a")]))
    shown = after(story, ev.TaskCancelled(task_id=RUN, reason="stopped"))
    assert kinds(shown)[:3] == ["start", "reset-step", "text-start"]
    assert shown[-2:] == [{"type": "abort", "reason": "stopped"}, "[DONE]"]


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


@pytest.mark.parametrize(("message", "text"), [("Overloaded.", "Overloaded."), ("", "busy")])
def test_a_failed_run_is_an_error(message: str, text: str) -> None:
    failed = ev.TaskFailed(task_id=RUN, error=ErrorInfo(code="busy", message=message))
    assert after(Story(), failed) == [
        {"type": "message-metadata", "messageMetadata": {"status": "failed"}},
        {"type": "error", "errorText": text},
        "[DONE]",
    ]


def test_a_cancelled_run_is_an_abort_and_keeps_its_text() -> None:
    story = Story()
    cut_message(story)
    assert after(story, ev.TaskCancelled(task_id=RUN))[-2:] == [{"type": "abort"}, "[DONE]"]
    assert UiReader().read(frames_of(story)).parts[1]["text"] == "Half"


def test_a_structured_output_is_the_last_part() -> None:
    story = Story()
    output = ev.StructuredOutputDone(task_id=RUN, value={"answer": 42}, name="Answer")
    assert after(story, output) == []
    shown = after(story, ev.TaskCompleted(task_id=RUN))
    data = {"value": {"answer": 42}, "name": "Answer"}
    assert shown[0] == {"type": "data-output", "id": f"{RUN}/output", "data": data}


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


def test_every_event_is_thought_of() -> None:
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
def test_every_legal_run_is_a_legal_stream_from_wherever_it_is_joined(run: Run) -> None:
    assert check_run([event for event, _ in run]).is_done


@settings(suppress_health_check=list(HealthCheck))
@given(legal_runs(complete=False))
def test_a_run_that_still_works_is_a_legal_stream_so_far(run: Run) -> None:
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
FOREIGN = [trace for trace in TRACES if not is_log([event for event, _ in trace.events])]


@pytest.mark.parametrize("trace", FOREIGN, ids=lambda trace: trace.name)
def test_a_golden_trace_of_a_foreign_writer_is_encoded_alike_from_every_place(trace: Any) -> None:
    check_wire(FORMAT, [event for event, _ in trace.events])


def test_the_ai_sdk_takes_every_stream_and_holds_the_message_that_we_mean() -> None:
    runs: list[list[ev.AnyEvent]] = [list(full_story().events)]

    @settings(suppress_health_check=list(HealthCheck), database=None)
    @given(legal_runs())
    def collect(run: Run) -> None:
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
