"""Streams in the Responses format of logs that no writer of ours writes."""

from __future__ import annotations

from typing import Any

from tailrace.core import events as ev
from tailrace.core.items import (
    Message,
    Reasoning,
    ReferenceToBlock,
    Text,
    ToolCall,
    ToolResult,
)
from tailrace.testing.wire_kit import encoded
from tailrace.wire.openai_responses import (
    FORMAT,
)
from tests.wire.frames import events_of
from tests.wire.openai_checker import Reader
from tests.wire.openai_scripts import RUN, Script, picture
from tests.wire.responses_runs import flat


def absorbed(*events: ev.AnyEvent) -> list[dict[str, Any]]:
    return events_of(flat(encoded(FORMAT, list(events))))


def test_what_is_open_when_a_foreign_task_ends_is_closed_first() -> None:
    script = Script().begin()
    script.item(Reasoning(id="rs_7_0"), 0)
    where: Any = {"item_id": "rs_7_0", "output_index": 0, "summary_index": 0}
    script.add(ev.SummaryItemAdded, **where, item=Text(text=""))
    script.add(ev.SummaryTextDelta, **where, delta="Thin")
    script.item(Message(id="msg_7_1", role="assistant"), 1)
    inside: Any = {"item_id": "msg_7_1", "output_index": 1}
    script.add(ev.TextAdded, **inside, block_index=0, item=Text(text=""))
    script.add(ev.ImageAdded, **inside, block_index=1, item=picture())
    script.item(ToolCall(id="fc_7_2", call_id="c2", name="a"), 2)
    script.item(ToolCall(id="fc_7_3", call_id="c3", name="b", executor="client"), 3)
    Reader().read(FORMAT.open(script.state)[1])
    number = len(script.events) + 1
    end = ev.TaskIncomplete(task_id=RUN, sequence_number=number, reason="max_output_tokens")
    frames = flat(encoded(FORMAT, [*script.events, end]))
    reader = Reader().read(frames)
    assert sorted(reader.done) == [0, 1, 2, 3]  # the image among them; not the client's call
    assert [item["type"] for item in reader.items][-1] == "function_call"
    statuses = {item["type"]: item["status"] for item in reader.done.values()}
    assert statuses == {
        "reasoning": "incomplete",
        "message": "incomplete",
        "image_generation_call": "completed",
        "mcp_call": "incomplete",
    }


def test_an_item_that_ends_with_an_open_text_closes_the_text_first() -> None:
    script = Script().begin().item(Message(id="msg_7_0", role="assistant"), 0)
    where: Any = {"item_id": "msg_7_0", "output_index": 0, "block_index": 0}
    script.add(ev.TextAdded, **where, item=Text(text=""))
    script.add(ev.TextDelta, **where, delta="Hi")
    number = len(script.events) + 1
    item = Message(id="msg_7_0", role="assistant")
    done = ev.OutputItemDone(task_id=RUN, sequence_number=number, output_index=0, item=item)
    frames = flat(encoded(FORMAT, [*script.events, done]))
    assert Reader().read(frames).done[0]["content"][0]["text"] == "Hi"


def test_foreign_events_that_fit_nowhere_say_nothing() -> None:
    first = ev.TaskCreated(task_id=RUN, sequence_number=1)
    nowhere: Any = {"item_id": "x", "output_index": 0, "block_index": 0}
    stray = ev.TextDelta(task_id=RUN, sequence_number=2, **nowhere, delta="lost")
    unknown = ev.Unknown(
        task_id=RUN,
        sequence_number=3,
        type="task.hologram",
        raw=b'{"type":"task.hologram","task_id":"run_7","sequence_number":3}',
    )
    assert absorbed(unknown) == []
    orphan = ev.TaskInProgress(task_id="nobody", sequence_number=4)
    result = ToolResult(id="r", call_id="unknown")
    added = ev.OutputItemAdded(task_id=RUN, sequence_number=5, output_index=0, item=result)
    done = ev.OutputItemDone(task_id=RUN, sequence_number=6, output_index=0, item=result)
    lost = ev.TaskAttempt(task_id=RUN, sequence_number=7, attempt=2, reason="x", superseded=["y"])
    loose = [
        ev.ArgumentsDone(
            task_id=RUN, sequence_number=number, item_id="r", output_index=index, arguments="{}"
        )
        for number, index in ((8, 0), (9, 5))
    ]
    events = absorbed(first, stray, unknown, orphan, added, done, lost, *loose)
    assert [event["type"] for event in events] == ["response.created"]


def test_a_foreign_stream_without_a_beginning_gets_one() -> None:
    note = ReferenceToBlock(reference_id=9, start_index=0, end_index=4)
    item = Message(id="m", role="assistant")
    where: Any = {"item_id": "m", "output_index": 0, "block_index": 0}
    text = Text(text="[^9]", annotations=[note])
    strange = ev.ReferenceImported(
        task_id=RUN, reference_id=9, source_task_id="elsewhere", source_reference_id=1
    )
    events: list[ev.AnyEvent] = [
        strange,
        ev.OutputItemAdded(task_id=RUN, output_index=0, item=item),
        ev.TextDone(task_id=RUN, **where, item=text),
    ]
    numbered = [ev.recorded(event, n) for n, event in enumerate(events, 1)]  # type: ignore[arg-type]
    found = absorbed(*numbered)
    assert found[0]["type"] == "response.created"
    assert found[-1]["part"]["annotations"][0]["url"] == "tailrace:run_7/elsewhere/1"


def test_a_result_without_its_call_is_a_source_without_a_name() -> None:
    note = ReferenceToBlock(reference_id=1, start_index=0, end_index=4)
    script = Script().begin()
    result = ToolResult(id="r", call_id="unknown")
    block = Text(text="found", id=1)
    item = Message(id="m", role="assistant")
    text = Text(text="[^1]", annotations=[note])
    foreign: list[ev.Event] = [
        ev.OutputItemAdded(task_id=RUN, output_index=0, item=result),
        ev.TextDone(task_id=RUN, item_id="r", output_index=0, block_index=0, item=block),
        ev.OutputItemAdded(task_id=RUN, output_index=1, item=item),
        ev.TextDone(task_id=RUN, item_id="m", output_index=1, block_index=0, item=text),
    ]
    events = [*script.events, *(ev.recorded(event, n) for n, event in enumerate(foreign, 3))]
    found = absorbed(*events)
    assert found[-1]["part"]["annotations"][0]["title"] == "[1]"
