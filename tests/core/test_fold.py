"""The fold against a second one, written from PROTOCOL.md alone, on random runs and traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.core import events as ev
from tailrace.core import items as it
from tailrace.core.codec import decode_event, encode_event, encode_private
from tailrace.core.errors import IllegalEvent, MalformedEvent, StreamTooLarge
from tailrace.core.fold import State
from tailrace.core.run_object import client_view, whole_object
from tailrace.core.snapshot import restore, save, saved
from tailrace.core.state import TaskNode, TextNode
from tailrace.core.state_copy import copy_state
from tailrace.core.transitions import FOLD
from tailrace.testing.strategies import WrittenRun, legal_runs
from tests.core.illegal import CONTENT_MAKES_KNOWN, ILLEGAL, LEGAL
from tests.core.naive import NaiveState
from tests.traces import FOLDER, TRACES, Trace


def as_json(value: Any) -> Any:
    return None if value is None else json.loads(msgspec.json.encode(value))


def folded(run: WrittenRun) -> State:
    state = State()
    for event, private in run:
        state.apply(event, private)
    return state


def test_of_two_items_with_one_id_the_first_to_arrive_counts() -> None:
    """No writer sends this. The second has the smaller index: arrival decides, not the index."""
    events: list[ev.Event] = [ev.TaskCreated(task_id="run_1", agent="a")]
    for index in (9, 7):
        call = it.ToolCall(id=f"fc_{index}", call_id="call_1", name="x")
        events.append(ev.OutputItemAdded(task_id="run_1", output_index=index, item=call))
    events.append(ev.Progress(task_id="run_1", call_id="call_1", current=1))
    for index in (5, 3):
        message = it.Message(id="msg_1", role="assistant", block_list=[])
        events.append(ev.OutputItemAdded(task_id="run_1", output_index=index, item=message))
    events.append(
        ev.TaskAttempt(task_id="run_1", attempt=2, reason="unknown", superseded=["msg_1"])
    )
    state, naive = State(), NaiveState()
    for number, event in enumerate(events, 1):
        state.absorb(ev.recorded(event, number))
        naive.apply(as_json(ev.recorded(event, number)))
    assert naive.view() == client_view(state)
    output = client_view(state)["output"]
    assert [item["id"] for item in output] == ["msg_1", "fc_7", "fc_9"]
    assert [item.get("progress") for item in output] == [None, None, {"current": 1}]


def test_a_run_may_learn_its_first_reference_number_when_it_begins() -> None:
    created = ev.TaskCreated(task_id="run_1", previous_run_id="run_0", reference_start=2)
    begun = ev.TaskInProgress(task_id="run_1", reference_start=5)
    state, naive = State(), NaiveState()
    for number, event in enumerate((created, begun), 1):
        state.apply(ev.recorded(event, number))
        naive.apply(as_json(ev.recorded(event, number)))
    assert client_view(state)["reference_start"] == 5
    assert naive.view() == client_view(state)
    assert state.root is not None
    assert (state.root.knows(4), state.root.next_reference) == (True, 5)


def test_every_event_has_its_place_in_the_table() -> None:
    assert set(FOLD) == set(ev.KNOWN)


@given(legal_runs())
def test_every_legal_run_is_accepted_and_looks_the_same_to_both_folds(run: WrittenRun) -> None:
    strict, reader, naive = State(), State(), NaiveState()
    for event, private in run:
        strict.apply(event, private)
        reader.absorb(event, private)
        naive.apply(as_json(event), as_json(private))
        view = client_view(reader)
        assert view == naive.view()
        assert client_view(strict) == view
    assert whole_object(reader) == naive.whole()
    for task_id in reader.tasks:
        assert client_view(reader, task_id) == naive.view(task_id)
        assert whole_object(reader, task_id) == naive.whole(task_id)


@given(legal_runs(complete=False), st.data())
def test_a_run_saved_anywhere_goes_on_as_if_it_had_not_been(
    run: WrittenRun, data: st.DataObject
) -> None:
    whole = folded(run)
    place = data.draw(st.integers(0, len(run)))
    state = restore(save(folded(run[:place]), private=True))
    assert saved(state, private=True) == saved(folded(run[:place]), private=True)
    for event, private in run[place:]:
        state.apply(event, private)
    assert save(state, private=True) == save(whole, private=True)
    assert whole_object(state) == whole_object(whole)


@given(legal_runs(complete=False), st.data())
def test_a_copy_of_a_state_goes_on_alone_and_shares_its_texts(
    run: WrittenRun, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(run)))
    state = folded(run[:place])
    copied = copy_state(state)
    before = saved(state, private=True)
    assert saved(copied) == saved(state) == saved(restore(save(state)))
    for one, other in zip(state.tasks.values(), copied.tasks.values(), strict=True):
        assert restore(save(state)).tasks[one.task_id].numbers == other.numbers
        for node in one.items.values():
            for index, part in node.parts.items():
                twin = other.items[node.output_index].parts[index]
                assert not isinstance(part, TextNode) or part.text is getattr(twin, "text", None)
    for event, _ in run[place:]:
        copied.absorb(event)
    assert saved(copied) == saved(folded(run))
    assert saved(state, private=True) == before


@given(legal_runs())
def test_what_clients_are_sent_of_a_state_holds_nothing_private(run: WrittenRun) -> None:
    hidden = [(event, _canary(private)) for event, private in run]
    state = folded(hidden)
    if any(private for _, private in hidden):
        assert b"CANARY" in save(state, private=True)
    assert b"CANARY" not in save(state)
    assert "CANARY" not in json.dumps(client_view(state))
    assert b"CANARY" not in save(copy_state(state), private=True)


def _canary(private: ev.Private | None) -> ev.Private | None:
    if private is None:
        return None
    return msgspec.structs.replace(private, signature="CANARY", provider={"id": "CANARY"})


@given(legal_runs())
def test_events_survive_json(run: WrittenRun) -> None:
    for event, _ in run:
        assert decode_event(encode_event(event)) == event


@given(legal_runs())
def test_reading_many_lines_is_reading_each(run: WrittenRun) -> None:
    state = State()
    state.absorb_lines(
        (encode_event(event) for event, _ in run),
        {event.sequence_number: encode_private(private) for event, private in run if private},
    )
    one_by_one = State()
    for event, private in run:
        one_by_one.absorb(event, private)
    assert save(state) == save(one_by_one)


def test_a_delta_among_many_lines_keeps_its_private_part() -> None:
    delta = ev.TextDelta(**M0, block_index=0, delta="x")
    events = [ev.recorded(event, n) for n, event in enumerate([*begun(), delta, delta, delta], 1)]
    state = State()
    state.absorb_lines(
        map(encode_event, events), {6: encode_private(ev.Private(signature="of the second"))}
    )
    task = state.tasks[M0["task_id"]]
    assert task.items[M0["output_index"]].private == {"signature": "of the second"}
    assert client_view(state)["output"][0]["block_list"][0]["text"] == "xxx"


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_the_lines_of_a_golden_trace_fold_to_its_view(trace: Trace) -> None:
    lines = (FOLDER / trace.name / "events.jsonl").read_bytes().split(b"\n")
    state = State()
    state.absorb_lines(line for line in lines if line)
    assert client_view(state) == trace.view


@pytest.mark.parametrize("line", [b"", b"{", b"\xff", b'{"type":"task.notice","task_id":"r"}'])
def test_a_line_that_is_not_an_event_stops_the_reading(line: bytes) -> None:
    state = State()
    head = [encode_event(ev.recorded(event, n)) for n, event in enumerate(begun(), 1)]
    with pytest.raises(MalformedEvent):
        state.absorb_lines([*head, line])
    assert state.sequence_number == 4


def test_a_line_with_nul_or_too_much_is_refused_in_bulk_too() -> None:
    head = [encode_event(ev.recorded(event, n)) for n, event in enumerate(begun(), 1)]
    delta = ev.TextDelta(**M0, sequence_number=5, block_index=0, delta="x")
    raw = encode_event(delta)
    with pytest.raises(MalformedEvent, match="U\\+0000"):
        State().absorb_lines([*head, raw.replace(b'"x"', b'"\\u0000"')])
    with pytest.raises(StreamTooLarge):
        State().absorb_lines([*head, raw.replace(b'"x"', b'"%b"' % (b"x" * 17_000_000))])


DELTAS = (
    ev.TextDelta,
    ev.SummaryTextDelta,
    ev.ReasoningTextDelta,
    ev.ArgumentsDelta,
    ev.RefusalDelta,
)


@given(legal_runs(), st.booleans())
def test_how_a_text_is_split_does_not_matter(run: WrittenRun, finest: bool) -> None:
    """Every text in single characters, or each delta in two halves: the same object."""
    state, again = folded(run), State()
    for event, private in run:
        pieces = [event]
        if isinstance(event, DELTAS):
            middle = len(event.delta) // 2
            cuts = list(event.delta) if finest else [event.delta[:middle], event.delta[middle:]]
            pieces = [msgspec.structs.replace(event, delta=cut) for cut in cuts]
        for piece in pieces:
            again.apply(ev.recorded(piece, again.sequence_number + 1), private)
    assert client_view(again) == client_view(state)


@given(legal_runs(), st.data())
def test_duplicates_change_nothing(run: WrittenRun, data: st.DataObject) -> None:
    state = State()
    for n, (event, private) in enumerate(run):
        state.absorb(event, private)
        if data.draw(st.booleans()):
            again, _ = run[data.draw(st.integers(0, n))]
            assert not state.absorb(again)
    assert save(state, private=True) == save(folded(run), private=True)


@given(legal_runs(), st.data())
def test_a_reader_survives_any_order_and_agrees_with_the_other(
    run: WrittenRun, data: st.DataObject
) -> None:
    """Events lost, repeated and out of order, without numbers: no exception, and one answer."""
    events = [event for event, _ in run]
    chaos = data.draw(st.lists(st.sampled_from(events), max_size=60))
    state, naive = State(), NaiveState()
    for event in chaos:
        unnumbered = ev.recorded(event, 0)
        state.absorb(unnumbered)
        naive.apply(as_json(unnumbered), None)
        if state.root is not None:
            assert client_view(state) == naive.view()
    assert saved(restore(save(state))) == saved(state)


EXAMPLES = [
    pytest.param(rule, prefix, event, id=f"{rule}-{number}")
    for rule, examples in ILLEGAL.items()
    for number, (prefix, event) in enumerate(examples)
]


@pytest.mark.parametrize(("rule", "prefix", "event"), EXAMPLES)
def test_an_illegal_event_is_refused_by_name_and_changes_nothing(
    rule: str, prefix: WrittenRun, event: ev.Event
) -> None:
    state = folded(prefix)
    before = save(state, private=True)
    with pytest.raises(IllegalEvent) as refusal:
        state.apply(event)
    assert refusal.value.rule == rule
    assert save(state, private=True) == before


@pytest.mark.parametrize("run", LEGAL)
def test_unusual_but_legal_runs_are_accepted(run: WrittenRun) -> None:
    folded(run)


def test_a_number_on_private_content_may_be_cited() -> None:
    prefix, event = CONTENT_MAKES_KNOWN
    folded(prefix).apply(event)


@given(legal_runs(), st.data())
def test_a_number_that_is_not_the_next_is_refused(run: WrittenRun, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(run) - 1))
    state = folded(run[:place])
    number = data.draw(st.integers(0, len(run) + 5).filter(lambda n: n != place + 1))
    with pytest.raises(IllegalEvent, match="seq-next"):
        state.apply(ev.recorded(run[place][0], number))


M0: dict[str, Any] = {"task_id": "r", "item_id": "m", "output_index": 0}
NOWHERE = [
    ev.TextDelta(**M0, block_index=1, delta="x"),
    ev.TextDelta(**{**M0, "output_index": 9}, block_index=0, delta="x"),
    ev.TextDelta(**{**M0, "item_id": "other"}, block_index=0, delta="x"),
    ev.SummaryTextDelta(**M0, summary_index=0, delta="x"),
    ev.SummaryTextDelta(**M0, summary_index=1, delta="x"),
    ev.ReasoningTextDelta(**M0, text_index=0, delta="x"),
    ev.ArgumentsDelta(**M0, delta="x"),
    ev.ArgumentsDelta(**{**M0, "output_index": 9}, delta="x"),
    ev.ArgumentsDone(**M0, arguments="x"),
    ev.RefusalDelta(**M0, block_index=0, delta="x"),
    ev.SummaryItemDone(**M0, summary_index=0, item=it.Text(text="x")),
    ev.SummaryItemAdded(**M0, summary_index=0, item=it.Text(text="")),
    ev.ReasoningTextDelta(task_id="r", item_id="rs", output_index=1, text_index=0, delta="x"),
    ev.SummaryItemDone(
        task_id="r", item_id="rs", output_index=1, summary_index=0, item=it.Text(text="again")
    ),
]


@pytest.mark.parametrize("event", NOWHERE)
def test_what_has_no_place_is_ignored_with_its_private_part(event: ev.Event) -> None:
    state = State()
    for n, head in enumerate([*begun(), *thought()], 1):
        state.apply(ev.recorded(head, n))
    before = client_view(state)
    assert not state.absorb(event, ev.Private(signature="s"))
    assert client_view(state) == before
    assert whole_object(state)["output"][0].get("private") is None


def thought() -> list[ev.Event]:
    place: dict[str, Any] = {"task_id": "r", "item_id": "rs", "output_index": 1}
    return [
        ev.OutputItemAdded(task_id="r", output_index=1, item=it.Reasoning(id="rs")),
        ev.SummaryItemDone(**place, summary_index=0, item=it.Text(text="whole")),
        ev.ReasoningTextDone(**place, text_index=0, item=it.Text(text="whole")),
    ]


def test_a_delta_may_have_a_private_part() -> None:
    state = State()
    for n, head in enumerate(begun(), 1):
        state.apply(ev.recorded(head, n))
    delta = ev.TextDelta(**M0, block_index=0, delta="x")
    state.apply(ev.recorded(delta, 5), ev.Private(provider={"id": "p"}))
    assert whole_object(state)["output"][0]["private"] == {"provider": {"id": "p"}}


def test_our_own_log_may_hold_an_unknown_event_of_a_known_task() -> None:
    state = State()
    state.apply(ev.recorded(ev.TaskCreated(task_id="r"), 1))
    state.apply(
        ev.Unknown(task_id="r", sequence_number=2, type="x", raw=b'{"type":"x","task_id":"r"}'),
        ev.Private(signature="s"),
    )
    assert "private" not in whole_object(state)
    stranger = ev.Unknown(task_id="z", sequence_number=3, type="x", raw=b"{}")
    with pytest.raises(IllegalEvent, match="task-known"):
        state.apply(stranger)


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_a_golden_trace_folds_to_its_states(trace: Trace) -> None:
    state = State()
    for n, (event, private) in enumerate(trace.events):
        state.absorb(event, private)
        assert trace.digest(client_view(state)) == trace.digests[n], f"after event {n + 1}"
    assert client_view(state) == trace.view
    assert whole_object(state) == trace.whole


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_a_golden_trace_is_saved_as_the_file_says_and_restored_from_it(trace: Trace) -> None:
    golden = (FOLDER / trace.name / "saved.json").read_bytes()
    state = State()
    for event, _ in trace.events:
        state.absorb(event)
    assert json.loads(save(state)) == json.loads(golden)
    assert client_view(restore(golden)) == trace.view


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_a_golden_trace_can_be_saved_at_every_event(trace: Trace) -> None:
    state = State()
    for event, private in trace.events:
        state.absorb(event, private)
        state = restore(save(state, private=True))
    assert whole_object(state) == trace.whole


@pytest.mark.growth
def test_a_million_deltas_fold_and_save() -> None:
    state = State()
    for n, event in enumerate(begun(), 1):
        state.apply(ev.recorded(event, n))
    delta = ev.TextDelta(task_id="r", item_id="m", output_index=0, block_index=0, delta="abcd")
    for n in range(5, 1_000_005):
        state.apply(ev.recorded(delta, n))
    block = client_view(state)["output"][0]["block_list"][0]
    assert len(block["text"]) == 4_000_000
    assert len(save(state)) < 4_001_000


def begun() -> list[ev.Event]:
    """A run whose message has an open text."""
    return [
        ev.TaskCreated(task_id="r"),
        ev.TaskInProgress(task_id="r"),
        ev.OutputItemAdded(task_id="r", output_index=0, item=it.Message(id="m", role="assistant")),
        ev.TextAdded(**M0, block_index=0, item=it.Text(text="")),
    ]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version":3}',
        b'{"version":2}',
        b'{"version":1}',
        b'{"version":1,"position":0,"sequence_number":0,"tasks":[{}]}',
        b'{"version":1,"position":0,"sequence_number":0,"tasks":[5]}',
        b'{"version":1,"position":0,"sequence_number":0,"tasks":[%b]}'
        % b'{"task_id":"a","at":1,"parent_task_id":"b","items":[]}',
    ],
)
def test_bytes_that_are_not_a_saved_state_are_one_typed_error(raw: bytes) -> None:
    with pytest.raises(MalformedEvent):
        restore(raw)


def test_the_counts_of_a_task_without_the_tasks_below_it_are_known() -> None:
    (trace,) = (trace for trace in TRACES if trace.name == "usage_of_sub_agents")
    state = State()
    for event, private in trace.events:
        state.absorb(event, private)
    tasks = list(state.tasks.values())
    assert [task.own_count("calls") for task in tasks] == [1, 1, 2]
    assert [task.own_count("input_tokens") for task in tasks] == [1000, 100, 11]
    assert TaskNode("r", 0, 1, None, {}).own_count("calls") == 0


def test_a_state_without_events_has_an_empty_view() -> None:
    assert client_view(State()) == {}
    assert restore(save(State())).root is None


def test_traces_are_there() -> None:
    folder = Path(__file__).parents[2] / "conformance" / "traces"
    assert len(TRACES) == len(list(folder.iterdir()))
    assert len(TRACES) >= 25


def test_a_citation_of_a_text_that_is_not_there_changes_nothing() -> None:
    state = State()
    state.absorb(ev.TaskCreated(task_id="r"))
    before = save(state)
    cited = it.UrlCitation(url="https://a.b", start_index=0, end_index=1)
    where: Any = {"task_id": "r", "item_id": "m", "output_index": 0, "block_index": 0}
    assert not state.absorb(ev.AnnotationAdded(**where, annotation_index=0, annotation=cited))
    assert msgspec.json.decode(save(state))["tasks"] == msgspec.json.decode(before)["tasks"]
