"""The checker sees each fault that is planted in what it is given, and none where there is none."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import checker
from tests.chaos.checker import (
    Claimed,
    Held,
    Leases,
    Reading,
    Row,
    Shown,
    Story,
    Trouble,
    View,
    check,
    check_losses,
    digest,
    events_in,
    unpack,
)

RUN = "run_1"


def events() -> list[dict[str, Any]]:
    """A run that was begun again in epoch 3, with a tool, and a helper that is a task."""
    root = {"task_id": RUN}
    child = {"task_id": "call_2"}

    def message(task: dict[str, str], item: str, step: int, status: str | None) -> Any:
        place = {**task, "item_id": item, "output_index": 0, "block_index": 0}
        words = [f"{step}.0/2 ", f"{step}.1/2 "]
        yield {"type": "task.output_item.added", **task, "item": {"type": "message", "id": item}}
        yield {"type": "task.text.added", **place, "item": {"type": "text", "text": ""}}
        for word in words if status is None else words[:1]:
            yield {"type": "task.text.delta", **place, "delta": word}
        text = {"type": "text", "text": "".join(words if status is None else words[:1])}
        yield {"type": "task.text.done", **place, "item": text}
        done = {"type": "message", "id": item, "block_list": [text]}
        if status is not None:
            done["status"] = status
        yield {"type": "task.output_item.done", **task, "item": done}

    def called(item: str, call: str, step: int) -> Any:
        body = {"type": "tool_call", "id": item, "call_id": call}
        yield {"type": "task.output_item.added", **root, "item": body}
        whole = {**body, "arguments": json.dumps({"step": step})}
        yield {"type": "task.output_item.done", **root, "item": whole}

    def result(item: str, call: str) -> Any:
        body = {"type": "tool_result", "id": item, "call_id": call}
        yield {"type": "task.output_item.added", **root, "item": body}
        yield {"type": "task.output_item.done", **root, "item": body}

    story: list[dict[str, Any]] = [
        {"type": "task.created", **root, "input": {"steps": 3}},
        {"type": "task.in_progress", **root},
        *message(root, "msg_1", 0, "incomplete"),
        {"type": "task.attempt", **root, "attempt": 2, "superseded": ["msg_1"]},
        *message(root, "msg_2", 0, None),
        *called("fc_1", "call_1", 1),
        {"type": "task.tool_call.started", **root, "item_id": "fc_1"},
        *result("fco_1", "call_1"),
        *called("fc_2", "call_2", 2),
        {"type": "task.created", **child, "parent_task_id": RUN},
        *message(child, "msg_3", 2, None),
        {"type": "task.completed", **child},
        *result("fco_2", "call_2"),
        {"type": "task.completed", **root},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(story, 1)]


def story_of(script: list[dict[str, Any]] | None = None) -> Story:
    """The run's rows, and what four followers saw that came at different times."""
    lines = [json.dumps(event).encode() for event in script or events()]
    again = next((n for n, line in enumerate(lines) if b"task.attempt" in line), 3)
    cuts = [(0, 1, 1), (1, again, 2), (again, again + 5, 3), (again + 5, len(lines), 3)]
    rows = [Row(a + 1, b, epoch, b"\n".join(lines[a:b])) for a, b, epoch in cuts]
    frames = [
        Shown(f"{row.epoch}-{row.first_seq + n}", line)
        for row in rows
        for n, line in enumerate(row.public.split(b"\n"))
    ]
    readings = [Reading(after, frames[after:], True) for after in (0, 5, 12)]
    readings.append(Reading(0, frames[:7]))
    return Story(RUN, rows, readings, ["call_1"])


def test_it_finds_nothing_where_all_is_well() -> None:
    assert check(story_of()) == []


def _shown(change: Callable[[list[Shown]], None]) -> Callable[[Story], None]:
    def plant(story: Story) -> None:
        change(story.readings[1].shown)

    return plant


def _drop(shown: list[Shown]) -> None:
    del shown[4]


def _drop_first(shown: list[Shown]) -> None:
    del shown[0]


def _drop_last(shown: list[Shown]) -> None:
    del shown[-1]


def _duplicate(shown: list[Shown]) -> None:
    shown.insert(4, shown[4])


def _swap(shown: list[Shown]) -> None:
    shown[3], shown[4] = shown[4], shown[3]


def _restart(shown: list[Shown]) -> None:
    shown[6:] = shown


def _change_a_byte(shown: list[Shown]) -> None:
    shown[4] = replace(shown[4], data=shown[4].data.replace(b"task", b"tusk", 1))


def _add_one(shown: list[Shown]) -> None:
    shown.append(Shown("3-99", b'{"type":"task.text.delta"}'))


def _other_epoch(shown: list[Shown]) -> None:
    shown[0] = replace(shown[0], id="9-6")


def _no_id(shown: list[Shown]) -> None:
    shown[4] = replace(shown[4], id="")


def _leak(shown: list[Shown]) -> None:
    shown[4] = replace(shown[4], data=shown[4].data[:-1] + b', "private": "canary"}')


def _epoch_falls(story: Story) -> None:
    story.rows[3] = replace(story.rows[3], epoch=1)


def _hole(story: Story) -> None:
    del story.rows[2]


def _overlap(story: Story) -> None:
    story.rows.append(replace(story.rows[2], epoch=4))


def _short_row(story: Story) -> None:
    story.rows[3] = replace(story.rows[3], last_seq=story.rows[3].last_seq + 1)


def _nothing(story: Story) -> None:
    story.rows.clear()


def _garbage(story: Story) -> None:
    story.rows[0] = replace(story.rows[0], public=b"{")


def _writes_after_a_claim(story: Story) -> None:
    story.claims = [Claimed(3, 7), Claimed(3, 6)]


def _ran_twice(story: Story) -> None:
    story.executed.append("call_1")


def _ran_unknown(story: Story) -> None:
    story.executed.append("call_2")


INPUTS: list[tuple[Callable[[Story], None], str]] = [
    (_shown(_drop), "I1: a gap"),
    (_shown(_drop_first), "I1: a gap"),
    (_shown(_drop_last), "I1: it ended before"),
    (_shown(_duplicate), "I1: a repeat"),
    (_shown(_swap), "I1: a repeat or a reorder"),
    (_shown(_restart), "I1: a repeat"),
    (_shown(_change_a_byte), "I2: event 10 was shown as"),
    (_shown(_add_one), "I2: event 99 was shown, and the log ends"),
    (_shown(_other_epoch), "I3: event 6 was shown in epoch 9"),
    (_shown(_no_id), "I1: frame 4 has the id ''"),
    (_shown(_leak), "a private part is on the wire"),
    (_epoch_falls, "I3: at event 13 the epoch falls from 3 to 1"),
    (_hole, "I3: after event 7 the log goes on with 13"),
    (_overlap, "I3: after event 12 the log goes on with 8"),
    (_short_row, "row 13..33 has 20 events"),
    (_nothing, "the log has nothing of it"),
    (_garbage, "is no event"),
    (_writes_after_a_claim, "I3: event 7 was written in epoch 2 after the claim of 3"),
    (_ran_twice, "I6: the tool of call_1 ran 2 times"),
    (_ran_unknown, "I6: the tool of call_2 ran, and the log does not know"),
]


@pytest.mark.parametrize(("plant", "finding"), INPUTS, ids=range(len(INPUTS)))
def test_it_sees_a_fault_in_what_was_shown_or_stored(
    plant: Callable[[Story], None], finding: str
) -> None:
    story = story_of()
    plant(story)
    found = check(story)
    assert any(finding in one for one in found), found


def _where(script: list[dict[str, Any]], kind: str, task_id: str = RUN) -> int:
    return next(
        n for n, event in enumerate(script) if event["type"] == kind and event["task_id"] == task_id
    )


def _second_end(script: list[dict[str, Any]]) -> None:
    script.append(script[-1])


def _goes_on(script: list[dict[str, Any]]) -> None:
    script.append(script[1])


def _no_end(script: list[dict[str, Any]]) -> None:
    del script[-1]


def _child_ends_twice(script: list[dict[str, Any]]) -> None:
    at = _where(script, "task.completed", "call_2")
    script.insert(at, script[at])


def _child_ends_late(script: list[dict[str, Any]]) -> None:
    script.append(script.pop(_where(script, "task.completed", "call_2")))


def _child_never_ends(script: list[dict[str, Any]]) -> None:
    del script[_where(script, "task.completed", "call_2")]


def _child_was_not_created(script: list[dict[str, Any]]) -> None:
    del script[_where(script, "task.created", "call_2")]


def _created_twice(script: list[dict[str, Any]]) -> None:
    script.insert(1, script[0])


def _foreign(script: list[dict[str, Any]]) -> None:
    script[0] = {**script[0], "task_id": "run_2"}


def _starts_twice(script: list[dict[str, Any]]) -> None:
    at = _where(script, "task.tool_call.started")
    script.insert(at, script[at])


def _loses_a_delta(script: list[dict[str, Any]]) -> None:
    del script[_where(script, "task.text.delta", "call_2")]


def _stays_open(script: list[dict[str, Any]]) -> None:
    del script[_where(script, "task.output_item.done", "call_2")]


def _forgets_a_step(script: list[dict[str, Any]]) -> None:
    script[0] = {**script[0], "input": {"steps": 4}}


def _keeps_a_torn_item(script: list[dict[str, Any]]) -> None:
    at = _where(script, "task.attempt")
    script[at] = {**script[at], "superseded": []}


LOGS: list[tuple[Callable[[list[dict[str, Any]]], None], str]] = [
    (_second_end, "I4: task run_1 ends again"),
    (_goes_on, "I4: task run_1 goes on"),
    (_no_end, "I4: task run_1 has no end"),
    (_child_ends_twice, "I4: task call_2 ends again"),
    (_child_ends_late, "before its child call_2"),
    (_child_never_ends, "I4: task call_2 has no end"),
    (_child_was_not_created, "which was not created"),
    (_created_twice, "is created twice"),
    (_foreign, "does not begin with the run"),
    (_starts_twice, "I6: call_1 started 2 times"),
    (_loses_a_delta, "do not make its text"),
    (_stays_open, "not opened and closed once"),
    (_forgets_a_step, "of 4 steps"),
    (_keeps_a_torn_item, "the run is complete, and msg_1 is incomplete"),
]


@pytest.mark.parametrize(("plant", "finding"), LOGS, ids=range(len(LOGS)))
def test_the_checker_finds_a_wrong_log(
    plant: Callable[[list[dict[str, Any]]], None], finding: str
) -> None:
    script = events()
    plant(script)
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(script, 1)]
    found = check(story_of(numbered))
    assert any(finding in one for one in found), found


def test_it_sees_a_view_that_no_events_make() -> None:
    words = [["0.0/2 "], ["0.0/2 0.1/2 "]]
    story = story_of()
    story.views = [View(words[0], 0, 5), View([], 0), View(words[1], 9), View(words[1], 32)]
    assert check(story) == []
    story.views = [View(words[0], 0, 4), View(words[0], 12), View(["0.1/2 "], 0)]
    assert check(story) == [
        "I5: the view at event 4 is not what the log makes",
        "I5: a view after event 12 is not what the log ever made",
        "I5: a view after event 0 is not what the log ever made",
    ]


def test_it_sees_an_event_with_a_wrong_number() -> None:
    script = events()
    script[4]["sequence_number"] = 4
    assert "I3: event 5 says it is 4" in check(story_of(script))


def test_it_sees_a_cancel_that_ended_nothing() -> None:
    story = story_of(events()[:-1])
    story.cancelled = True
    assert any("a cancel was answered" in one for one in check(story))


def test_it_sees_a_stored_frame_with_a_wrong_id() -> None:
    story = story_of()
    (first, *_), _ = events_in(story.rows[0])
    for place, found in ((b"1-1", []), (b"1-2", ["holds frames with wrong ids"])):
        story.rows[0] = replace(story.rows[0], public=b"id: %b\ndata: %b\n\n" % (place, first))
        assert [one[-27:] for one in check(story)] == found


def test_the_digest_knows_bytes_and_epochs_but_not_rows() -> None:
    rows = story_of().rows
    log, _ = unpack(rows)
    single = [Row(n, n, one.epoch, one.data) for n, one in enumerate(log, 1)]
    assert digest(rows) == digest(single)
    framed = [
        replace(one, public=b"id: %d-%d\ndata: %b\n\n" % (one.epoch, one.first_seq, one.public))
        for one in single
    ]
    assert digest(rows) == digest(framed)
    assert digest(rows) != digest([*single[:-1], replace(single[-1], public=b"{}")])
    assert digest(rows) != digest([*single[:-1], replace(single[-1], epoch=9)])


def losses_of(*looks: tuple[float, int, str, float, int]) -> Leases:
    """What is noted of a run at these times: epoch, worker, the rest of its lease, last event."""
    leases = Leases(1.0)
    for at, epoch, worker, left, last_seq in looks:
        leases.see(at, [Held(RUN, epoch, worker, left, last_seq)])
    return leases


NEGLECTED = [
    (10.0, 2, "w1", 0.9, 5),
    (10.6, 2, "w1", 0.3, 9),
    (10.8, 2, "w1", 0.1, 12),
    (10.95, 3, "w2", 0.95, 12),
]
"""w1 writes event 12 although it has missed two extensions, and w2 takes the run."""


@pytest.mark.parametrize(
    ("troubles", "found"),
    [
        ([], 1),
        ([Trouble("w2", 10.7, 11.0)], 1),
        ([Trouble("w1", 2.0, 8.7)], 1),
        ([Trouble("w1", 10.97, 11.0)], 1),
        ([Trouble("w1", 10.9, math.inf)], 0),
        ([Trouble("w1", 7.0, 9.0)], 0),
        ([Trouble("", 10.7, 10.8)], 0),
    ],
    ids=["no trouble", "another", "long ago", "later", "killed", "just before", "all"],
)
def test_it_sees_a_worker_that_lives_and_loses_a_run(troubles: list[Trouble], found: int) -> None:
    leases = losses_of(*NEGLECTED)
    findings = check_losses(leases.losses, troubles, leases.lease)
    assert [one.partition(": it wrote")[0] for one in findings] == (
        [f"run {RUN}: w1 lives, and lost the run to w2"] * found
    )


@pytest.mark.parametrize(
    "looks",
    [
        [*NEGLECTED[:2], (10.8, 2, "w1", 0.1, 9), (10.95, 3, "w2", 0.95, 9)],
        [*NEGLECTED[:3], (10.9, 2, "w1", 1.0, 13), (11.0, 3, "w2", 1.0, 13)],
        [(10.0, 2, "w1", 0.1, 5), (10.05, 3, "", 0.0, 5), (10.1, 4, "w2", 1.0, 5)],
        [*NEGLECTED[:3], (10.95, 3, "w1", 0.95, 12)],
    ],
    ids=["silent in the end", "extended late", "released", "claimed again"],
)
def test_a_worker_may_lose_a_run_that_it_does_not_write(looks: Any) -> None:
    leases = losses_of(*looks)
    assert check_losses(leases.losses, [], leases.lease) == []
    assert all(one.worker for one in leases.losses)


def test_it_imports_nothing_of_the_product() -> None:
    tree = ast.parse(Path(checker.__file__).read_text())
    named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    named += [
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    ]
    assert not [name for name in named if name.startswith(("tailrace", "tests", "msgspec"))]
