"""A run that stops anywhere can be ended legally, and keeps what it had."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from tailrace.core import events as ev
from tailrace.core.closing import ending
from tailrace.core.fold import State
from tailrace.core.items import (
    ErrorInfo,
    Image,
    ImageUrl,
    Message,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from tailrace.core.view import client_view
from tailrace.testing.runs import Run, legal_runs

R = "run_1"


def end(state: State, last: ev.Event) -> dict[str, Any]:
    assert state.root is not None
    for event in ending(state.root, last):
        state.apply(ev.recorded(event, state.sequence_number + 1))
    return client_view(state)


def texts(view: Any) -> list[str]:
    """Every text in a view, in order of appearance."""
    if isinstance(view, dict):
        own = [view[name] for name in ("text", "refusal") if isinstance(view.get(name), str)]
        return own + [text for value in view.values() for text in texts(value)]
    return [text for item in view for text in texts(item)] if isinstance(view, list) else []


@given(legal_runs(complete=False))
def test_wherever_a_run_stops_its_end_is_legal_and_loses_no_text(run: Run) -> None:
    state = State()
    for event, private in run:
        state.apply(event, private)
    assert state.root is not None
    if state.root.ended:
        return
    before = texts(client_view(state)["output"])
    error = ErrorInfo(code="interrupted", message="It stopped.")
    view = end(state, ev.TaskFailed(task_id=state.root.task_id, error=error))
    assert view["status"] == "failed"
    assert texts(view["output"]) == before
    assert all(task.ended for task in state.tasks.values())


def test_every_kind_of_open_part_is_closed_as_far_as_it_came() -> None:
    state = State()
    message: dict[str, Any] = {"task_id": R, "item_id": "msg", "output_index": 0}
    thought: dict[str, Any] = {"task_id": R, "item_id": "rs", "output_index": 1}
    half = Image(image_url=ImageUrl(url="data:,half"))
    events: list[ev.Event] = [
        ev.TaskCreated(task_id=R),
        ev.TaskInProgress(task_id=R),
        ev.StepStarted(task_id=R, step_index=0, name="outer"),
        ev.StepStarted(task_id=R, step_index=1, name="inner"),
        ev.StepFinished(task_id=R, step_index=1),
        ev.OutputItemAdded(task_id=R, output_index=0, item=Message(id="msg", role="assistant")),
        ev.TextAdded(**message, block_index=0, item=Text(text="")),
        ev.TextDelta(**message, block_index=0, delta="half a te"),
        ev.RefusalAdded(**message, block_index=1, item=Refusal(refusal="")),
        ev.RefusalDelta(**message, block_index=1, delta="I ca"),
        ev.ImageAdded(**message, block_index=2, item=Image(image_url=ImageUrl(url=""))),
        ev.ImageDelta(**message, block_index=2, partial_image_index=0, item=half),
        ev.OutputItemAdded(task_id=R, output_index=1, item=Reasoning(id="rs")),
        ev.SummaryItemAdded(**thought, summary_index=0, item=Text(text="")),
        ev.SummaryTextDelta(**thought, summary_index=0, delta="half a thou"),
        ev.ReasoningTextAdded(**thought, text_index=0, item=Text(text="")),
        ev.ReasoningTextDone(**thought, text_index=1, item=Text(text="whole")),
    ]
    for number, event in enumerate(events, 1):
        state.absorb(ev.recorded(event, number))
    output = end(state, ev.TaskCancelled(task_id=R))["output"]
    assert [item["status"] for item in output] == ["incomplete", "incomplete"]
    assert output[0]["block_list"] == [
        {"type": "text", "text": "half a te"},
        {"type": "refusal", "refusal": "I ca"},
        {"type": "image", "image_url": {"url": "data:,half"}},
    ]
    assert output[1]["summary"] == [{"type": "text", "text": "half a thou"}]


def test_a_sub_agent_and_the_result_that_holds_it_are_ended_before_their_parent() -> None:
    state = State()
    call = ToolCall(id="fc", call_id="call_1", name="helper")
    events: list[ev.Event] = [
        ev.TaskCreated(task_id=R),
        ev.TaskInProgress(task_id=R),
        ev.OutputItemAdded(task_id=R, output_index=0, item=call),
        ev.ArgumentsDone(task_id=R, item_id="fc", output_index=0, arguments="{}"),
        ev.OutputItemDone(task_id=R, output_index=0, item=call),
        ev.OutputItemAdded(task_id=R, output_index=1, item=ToolResult(id="fco", call_id="call_1")),
        ev.TextDone(
            task_id=R, item_id="fco", output_index=1, block_index=0, item=Text(text="so far")
        ),
        ev.TaskCreated(task_id="call_1", parent_task_id=R, call_id="call_1"),
        ev.TaskInProgress(task_id="call_1"),
    ]
    for number, event in enumerate(events, 1):
        state.apply(ev.recorded(event, number))
    output = end(state, ev.TaskCancelled(task_id=R))["output"]
    assert (output[1]["status"], output[1]["error"]["code"]) == ("failed", "interrupted")
    child = client_view(state, "call_1")
    assert (child["task_id"], child["status"]) == ("call_1", "cancelled")
    assert "output" in child
