"""The Responses stream. What each item becomes is in `cases/openai-responses`."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.items import Image, ImageUrl, Reasoning
from tailrace.testing.wire_kit import as_recorded, check_wire, encoded
from tailrace.wire.openai_responses import (
    DONE_FRAME,
    FORMAT,
    linked_images,
    response_object,
)
from tests.wire import openai_scripts as scripts
from tests.wire.frames import events_of
from tests.wire.openai_scripts import ANSWER, Script
from tests.wire.responses_runs import SCRIPTS, events_shown, flat, folded, output


@pytest.mark.long(always=True)
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_kit_takes_the_written_runs(script: Script) -> None:
    check_wire(FORMAT, script.events)


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_strict_reader_takes_the_written_runs(script: Script) -> None:
    assert events_shown(script)[-1]["type"] in (
        "response.completed",
        "response.incomplete",
        "response.failed",
    )


def test_frames_have_no_id_and_the_heartbeat_is_a_comment() -> None:
    # With an id anywhere, openai-python reads the blank line after a comment as an event.
    frames = flat(encoded(FORMAT, scripts.everything().events))
    assert frames[-1] == DONE_FRAME
    assert not [frame for frame in frames if b"\nid:" in frame or frame.startswith(b"id:")]
    assert FORMAT.heartbeat.startswith(b":")
    assert FORMAT.preamble() == b""
    assert FORMAT.at(State()).close("the server stops") == []


def test_a_join_before_the_first_event_says_nothing_yet() -> None:
    encoder, frames = FORMAT.open(State())
    assert frames == []
    assert response_object(State()) == {}
    first = encoder.encode(as_recorded(scripts.failed().events)[0])
    assert [event["type"] for event in events_of(first)] == ["response.created"]


def test_a_join_sends_open_items_as_far_as_they_are() -> None:
    script = scripts.everything()
    place = max(
        place for place, event in enumerate(script.events) if isinstance(event, ev.ImageDelta)
    )
    _, frames = FORMAT.open(folded(script.events[: place + 1]))
    assert [event["type"] for event in events_of(frames)][:2] == [
        "response.created",
        "response.in_progress",
    ]
    last = events_of(frames)[-1]
    assert last["type"] == "response.image_generation_call.partial_image"
    assert last["partial_image_index"] == 1
    _, queued = FORMAT.open(folded(script.events[:1]))
    assert [event["type"] for event in events_of(queued)] == ["response.created"]


def test_a_response_in_the_background_ends_without_an_error() -> None:
    created = ev.TaskCreated(task_id="r", options={"background": True}, sequence_number=1)
    state = State()
    state.absorb(created)
    assert FORMAT.at(state).close("The server stops.") == []


def test_a_sub_agent_shows_in_its_call_alone() -> None:
    frames = b"".join(flat(encoded(FORMAT, scripts.everything().events)))
    assert b"The child's own thoughts." not in frames
    assert b"fc_7_c1" not in frames
    assert frames.count(b"It is sunny, says the expert.") == 2  # its call, and the response


def cited(script: Script) -> list[dict[str, Any]]:
    events = events_shown(script)
    notes = [event["annotation"] for event in events if "annotation" in event]
    content = [part for item in output(script) for part in item.get("content", ())]
    assert [note for part in content for note in part["annotations"]] == notes
    return notes


def test_citations_have_urls_titles_and_places_in_code_points() -> None:
    notes = cited(scripts.everything())
    assert [(note["url"], note["title"]) for note in notes] == [
        ("tailrace:run_7/run_7/1", "get_weather"),
        ("https://files.example/report.pdf", "report.pdf"),
        ("tailrace:run_7/call_3/1", "lookup"),
    ]
    assert [ANSWER[note["start_index"] : note["end_index"]] for note in notes] == [
        "[^1]",
        "[^3]",
        "[^4]",
    ]


@pytest.mark.parametrize(
    ("options", "is_sealed"),
    [({"include": ["reasoning.encrypted_content"]}, True), ({"include": ["x"]}, False), (5, False)],
)
def test_reasoning_has_an_opaque_reference_if_the_client_asks_for_it(
    options: Any, is_sealed: bool
) -> None:
    script = Script(options=options).begin()
    script.add(ev.OutputItemAdded, output_index=0, item=Reasoning(id="rs_1"))
    assert "encrypted_content" not in response_object(script.state)["output"][0]
    done = Reasoning(id="rs_1", status="completed")
    script.add(ev.OutputItemDone, output_index=0, item=done).add(ev.TaskCompleted)
    (item,) = response_object(script.state)["output"]
    assert ("encrypted_content" in item) is is_sealed
    events = events_of(flat(encoded(FORMAT, script.events)))
    (sent,) = [one["item"] for one in events if one["type"] == "response.output_item.done"]
    assert sent == item


def test_images_that_are_elsewhere_can_be_handed_in() -> None:
    link, inline = "/blobs/abc", "data:image/webp;base64,AAAA"
    blocks = [Image(image_url=ImageUrl(url=url)) for url in (link, link, inline, "")]
    script = Script().begin().call(0, "draw", "{}").result(1, 0, *blocks).add(ev.TaskCompleted)
    assert linked_images(script.state) == [link]
    assert linked_images(State()) == []
    found = response_object(script.state, images={link: "data:image/png;base64,BBBB"})["output"]
    assert [item["result"] for item in found[1:]] == ["BBBB", "BBBB", "AAAA", ""]
    assert [item["status"] for item in found[1:]] == [*["completed"] * 3, "failed"]
    found = response_object(script.state)["output"]
    assert (found[1]["status"], found[1]["result"], found[1]["url"]) == ("completed", "", link)
