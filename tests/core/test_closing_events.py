"""A run that stops anywhere can be ended legally, and keeps what it had."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.core import codec
from tailrace.core import events as ev
from tailrace.core.closing_events import close_steps, ending
from tailrace.core.errors import IllegalEvent, InvalidValue, StreamTooLarge
from tailrace.core.fold import State
from tailrace.core.items import (
    ErrorInfo,
    FileCitation,
    Image,
    ImageUrl,
    Message,
    RawAnnotation,
    RawItem,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from tailrace.core.rules import spare
from tailrace.core.run_object import client_view
from tailrace.testing.strategies import WrittenRun, legal_runs

R = "run_1"


def write(state: State, event: ev.Event) -> None:
    """What a run's writer does with an event: encode it, then fold it."""
    event = ev.recorded(event, state.sequence_number + 1)
    codec.encode_event(event)
    state.apply(event)


def end(state: State, last: ev.Event) -> dict[str, Any]:
    assert state.root is not None
    for event in ending(state.root, last):
        write(state, event)
    return client_view(state)


def texts(view: Any) -> list[str]:
    """Every text in a view, in order of appearance."""
    if isinstance(view, dict):
        own = [view[name] for name in ("text", "refusal") if isinstance(view.get(name), str)]
        return own + [text for value in view.values() for text in texts(value)]
    return [text for item in view for text in texts(item)] if isinstance(view, list) else []


@given(legal_runs(complete=False))
def test_wherever_a_run_stops_its_end_is_legal_and_loses_no_text(run: WrittenRun) -> None:
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
    steps = [step["status"] for step in client_view(state)["steps"]]
    assert steps == ["incomplete", "completed"]


def test_a_step_is_closed_with_the_steps_inside_it_and_not_with_those_around_it() -> None:
    state = State()
    for event in (ev.TaskCreated(task_id=R), ev.TaskInProgress(task_id=R)):
        write(state, event)
    for index, name in enumerate(("around", "left", "inside")):
        write(state, ev.StepStarted(task_id=R, step_index=index, name=name))
    for end_of_step in close_steps(state.tasks[R], 1):
        write(state, end_of_step)
    assert [step["status"] for step in client_view(state)["steps"]] == [
        *("in_progress", "incomplete", "incomplete"),
    ]


def with_a_sub_agent() -> State:
    """A run whose call is a sub-agent at work."""
    state = State()
    call = ToolCall(id="fc", call_id="call_1", name="helper")
    for event in (
        ev.TaskCreated(task_id=R),
        ev.TaskInProgress(task_id=R),
        ev.OutputItemAdded(task_id=R, output_index=0, item=call),
        ev.ArgumentsDone(task_id=R, item_id="fc", output_index=0, arguments="{}"),
        ev.OutputItemDone(task_id=R, output_index=0, item=call),
        ev.OutputItemAdded(task_id=R, output_index=1, item=ToolResult(id="fco", call_id="call_1")),
        ev.TaskCreated(task_id="call_1", parent_task_id=R, call_id="call_1"),
        ev.TaskInProgress(task_id="call_1"),
    ):
        write(state, event)
    return state


def test_a_sub_agent_and_the_result_that_holds_it_are_ended_before_their_parent() -> None:
    state = with_a_sub_agent()
    part: Any = {"item_id": "fco", "output_index": 1, "block_index": 0}
    write(state, ev.TextDone(task_id=R, **part, item=Text(text="so far")))
    output = end(state, ev.TaskCancelled(task_id=R))["output"]
    assert (output[1]["status"], output[1]["error"]["code"]) == ("failed", "interrupted")
    child = client_view(state, "call_1")
    assert (child["task_id"], child["status"]) == ("call_1", "cancelled")
    assert "output" in child


def test_a_sub_agent_that_has_ended_is_not_ended_again() -> None:
    state = with_a_sub_agent()
    write(state, ev.TaskCompleted(task_id="call_1"))
    end(state, ev.TaskCancelled(task_id=R))
    assert client_view(state, "call_1")["status"] == "completed"


# --- whatever was accepted can be closed ---------------------------------------------------------

MESSAGE: dict[str, Any] = {"task_id": R, "item_id": "msg", "output_index": 0}
THOUGHT: dict[str, Any] = {"task_id": R, "item_id": "rs", "output_index": 1}
CALL: dict[str, Any] = {"task_id": R, "item_id": "fc", "output_index": 2}
OPEN: list[ev.Event] = [
    ev.TaskCreated(task_id=R),
    ev.TaskInProgress(task_id=R),
    ev.OutputItemAdded(task_id=R, output_index=0, item=Message(id="msg", role="assistant")),
    ev.TextAdded(**MESSAGE, block_index=0, item=Text(text="")),
    ev.RefusalAdded(**MESSAGE, block_index=1, item=Refusal(refusal="")),
    ev.ImageAdded(**MESSAGE, block_index=2, item=Image(image_url=ImageUrl(url=""))),
    ev.OutputItemAdded(task_id=R, output_index=1, item=Reasoning(id="rs")),
    ev.SummaryItemAdded(**THOUGHT, summary_index=0, item=Text(text="")),
    ev.ReasoningTextAdded(**THOUGHT, text_index=0, item=Text(text="")),
    ev.OutputItemAdded(
        task_id=R, output_index=2, item=ToolCall(id="fc", call_id="call_1", name="f")
    ),
]
"""A part of every kind, open."""


def opened() -> State:
    state = State()
    for event in OPEN:
        write(state, event)
    return state


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def growth(piece: str, number: int) -> list[ev.Event]:
    """Every event that adds to what is open: `number` annotations and images came before."""
    url = ImageUrl(url=piece)
    return [
        ev.TextDelta(**MESSAGE, block_index=0, delta=piece),
        ev.RefusalDelta(**MESSAGE, block_index=1, delta=piece),
        ev.SummaryTextDelta(**THOUGHT, summary_index=0, delta=piece),
        ev.ReasoningTextDelta(**THOUGHT, text_index=0, delta=piece),
        ev.ArgumentsDelta(**CALL, delta=piece),
        ev.ImageDelta(
            **MESSAGE, block_index=2, partial_image_index=number, item=Image(image_url=url)
        ),
    ]


def annotation(number: int, note: Any) -> ev.Event:
    return ev.AnnotationAdded(**MESSAGE, block_index=0, annotation_index=number, annotation=note)


NOTES = st.one_of(
    st.builds(RawAnnotation, raw=st.builds(nested, st.integers(0, codec.MAX_DEPTH))),
    st.builds(RawAnnotation, raw=st.text(max_size=300)),
    st.builds(FileCitation, file_id=st.text(max_size=300), index=st.integers(0, 2**60)),
)
PIECES = st.text(st.sampled_from('aé👋"\\\x01'), min_size=20, max_size=300)


@pytest.fixture
def small_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of at most two kilobytes: runs that fill them are short."""
    monkeypatch.setattr(codec, "MAX_EVENT_BYTES", 2000)
    monkeypatch.setattr(codec, "MAX_OPEN_BYTES", 1500)


@pytest.mark.usefixtures("small_events")
@given(st.data())
def test_whatever_was_accepted_can_be_closed(data: st.DataObject) -> None:
    state = opened()
    notes = images = 0
    kinds = data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=3))
    for _ in range(data.draw(st.integers(1, 25))):
        which = data.draw(st.sampled_from(kinds))
        if which == 6:
            event = annotation(notes, data.draw(NOTES))
        elif which == 7:
            index = len(state.tasks[R].items)
            item = RawItem(id=f"raw_{index}", raw=data.draw(PIECES) * 6)
            event = ev.OutputItemAdded(task_id=R, output_index=index, item=item)
        else:
            event = growth(data.draw(PIECES), images)[which]
        before = state.sequence_number
        try:
            write(state, event)
        except (StreamTooLarge, InvalidValue):
            assert state.sequence_number == before, "a refused event left a trace"
            continue
        notes, images = notes + (which == 6), images + (which == 5)
    written = texts(client_view(state)["output"])
    before = state.sequence_number
    view = end(state, ev.TaskCancelled(task_id=R))
    assert texts(view["output"]) == written
    parts, items = 5, len(view["output"])
    assert state.sequence_number - before == parts + items + 1, "something was not closed"


@pytest.mark.usefixtures("small_events")
@pytest.mark.parametrize("which", range(7))
def test_what_would_not_fit_into_one_event_is_refused_when_it_is_added(which: int) -> None:
    state = opened()
    with pytest.raises(StreamTooLarge, match="blob"):  # noqa: PT012
        for number in range(100):
            size = 100 * (number + 1) if which == IMAGE else 100
            write(state, [*growth("x" * size, number), annotation(number, NOTE)][which])
    assert number > 3, "what does fit was refused"
    for event in [*growth("", number)[:5], annotation(number if which == 6 else 0, SMALL_NOTE)]:
        write(state, event)  # the run goes on
    end(state, ev.TaskCancelled(task_id=R))


IMAGE = 5
NOTE = FileCitation(file_id="f" * 100)
SMALL_NOTE = RawAnnotation(raw=0)


def test_a_value_is_refused_that_a_later_event_would_hold_too_deep() -> None:
    state = opened()
    with pytest.raises(InvalidValue, match="Flatten"):
        write(state, annotation(0, RawAnnotation(raw=nested(codec.MAX_DEPTH - 5))))
    write(state, annotation(0, RawAnnotation(raw=nested(codec.MAX_DEPTH - 6))))
    end(state, ev.TaskCancelled(task_id=R))


@pytest.mark.parametrize(
    "event",
    [
        ev.TaskCreated(task_id="call_1" * 3000, parent_task_id=R, call_id="call_1"),
        ev.OutputItemAdded(task_id=R, output_index=3, item=Reasoning(id="x" * 20_000)),
        ev.OutputItemAdded(
            task_id=R, output_index=3, item=ToolCall(id="fc_2", call_id="x" * 20_000, name="f")
        ),
    ],
)
def test_an_id_that_every_later_event_would_repeat_is_refused_if_it_is_long(
    event: ev.Event,
) -> None:
    state = opened()
    with pytest.raises(StreamTooLarge, match="shorter"):
        write(state, event)


@pytest.mark.parametrize("pieces", [["x" * 2_500_000] * 8, ["\x01" * 900_000] * 4])
def test_a_text_beyond_16_mib_is_refused_and_its_run_can_be_closed(pieces: list[str]) -> None:
    state = opened()
    with pytest.raises(StreamTooLarge, match="new part"):  # noqa: PT012
        for piece in pieces:
            write(state, ev.TextDelta(**MESSAGE, block_index=0, delta=piece))
    assert end(state, ev.TaskCancelled(task_id=R))["status"] == "cancelled"


def test_a_run_that_an_older_version_let_grow_too_far_can_still_be_closed() -> None:
    state = State()
    grown: list[ev.Event] = [
        *OPEN,
        *(ev.TextDelta(**MESSAGE, block_index=0, delta="x" * 5_000_000) for _ in range(4)),
        annotation(0, RawAnnotation(raw=nested(codec.MAX_DEPTH - 3))),
    ]
    for number, event in enumerate(grown, 1):
        state.absorb(ev.recorded(event, number))
    with pytest.raises(StreamTooLarge):
        write(state, ev.TextDelta(**MESSAGE, block_index=0, delta="x"))
    view = end(state, ev.TaskCancelled(task_id=R))
    assert view["status"] == "cancelled"
    [block, *_] = view["output"][0]["block_list"]
    assert len(block["text"]) == 20_000_000
    assert len(block["annotations"]) == 1


def test_a_delta_that_finds_no_part_is_illegal_in_a_full_run_too() -> None:
    state = opened()
    write(state, annotation(0, SMALL_NOTE))  # from here on every delta's part is weighed
    for block in (1, 9):
        with pytest.raises(IllegalEvent, match="part-open"):
            write(state, ev.TextDelta(**MESSAGE, block_index=block, delta="x"))


def test_a_part_that_no_event_can_repeat_is_closed_by_its_item(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Logs of older versions hold such parts."""
    state = State()
    for event in (
        ev.TaskCreated(task_id=R),
        ev.TaskInProgress(task_id=R),
        ev.OutputItemAdded(task_id=R, output_index=0, item=Message(id="m", role="assistant")),
        ev.TextAdded(task_id=R, item_id="m", output_index=0, block_index=0, item=Text(text="")),
        ev.TextDelta(task_id=R, item_id="m", output_index=0, block_index=0, delta="x" * 2000),
    ):
        write(state, event)
    monkeypatch.setattr(codec, "MAX_OPEN_BYTES", 1400)
    monkeypatch.setattr(codec, "MAX_EVENT_BYTES", 1500)
    assert state.root is not None
    closing = [type(event) for event in ending(state.root, ev.TaskCancelled(task_id=R))]
    assert closing == [ev.OutputItemDone, ev.TaskCancelled]
    view = end(state, ev.TaskCancelled(task_id=R))
    assert (view["status"], view["output"][0]["status"]) == ("cancelled", "incomplete")
    assert texts(view) == ["x" * 2000]


def test_an_open_text_with_annotations_leaves_no_room_that_is_sure() -> None:
    state = State()
    where: Any = {"task_id": R, "item_id": "m", "output_index": 0, "block_index": 0}
    cited = FileCitation(file_id="f")
    for event in (
        ev.TaskCreated(task_id=R),
        ev.TaskInProgress(task_id=R),
        ev.OutputItemAdded(task_id=R, output_index=0, item=Message(id="m", role="assistant")),
        ev.TextAdded(**where, item=Text(text="")),
        ev.TextDelta(**where, delta="Hello."),
    ):
        write(state, event)
    assert spare(state) > 0
    write(state, ev.AnnotationAdded(**where, annotation_index=0, annotation=cited))
    assert spare(state) == 0
