"""Holds what followers were shown against the log. It imports nothing of the product.

All it knows is PROTOCOL.md and the invariants: what it is given are rows of a database and the
frames that came over sockets. Every function answers with findings, sentences that say what is
wrong; an empty list means that everything is right.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

TERMINAL = {f"task.{word}" for word in ("completed", "incomplete", "failed", "cancelled")}
SECRET = b"canary"
"""What the chaos application writes into every private part, and nowhere else."""


@dataclass(frozen=True)
class Row:
    """A row of the table of batches: consecutive events of one run, one per line or as frames."""

    first_seq: int
    last_seq: int
    epoch: int
    public: bytes


@dataclass(frozen=True)
class Logged:
    """One event of the final log; its number is its place."""

    epoch: int
    data: bytes


@dataclass(frozen=True)
class Shown:
    """One frame as it came: its `id:` and its `data:`."""

    id: str
    data: bytes


@dataclass
class Reading:
    """What a follower was shown over any number of connections, from after event `after`."""

    after: int = 0
    shown: list[Shown] = field(default_factory=list)
    finished: bool = False
    """Whether the server answered with 204: nothing more comes."""


@dataclass(frozen=True)
class View:
    """What `GET /runs/{id}` answered while the run went on: the texts of the root's messages."""

    texts: list[str]
    after: int
    """How many events had been shown before the request."""
    at: int | None = None
    """The event that it was asked for, with `?at=`."""


@dataclass(frozen=True)
class Claimed:
    """A claim: from then on, only writers of this epoch or a later one may write."""

    epoch: int
    last_seq: int
    """Where the log ended at that moment."""


@dataclass
class Story:
    """All that is known of one run when it is over."""

    run_id: str
    rows: list[Row]
    readings: list[Reading]
    executed: list[str] = field(default_factory=list)
    """The calls whose tool ran, one entry each time, as the tools themselves noted it."""
    cancelled: bool = False
    """Whether a cancel was answered with success."""
    claims: list[Claimed] = field(default_factory=list)
    """The claims that the nemesis made itself."""
    views: list[View] = field(default_factory=list)


@dataclass(frozen=True)
class Held:
    """A row of the table of runs: who has a run, and for how many seconds yet."""

    run_id: str
    epoch: int
    worker: str
    """"" if the run waits or has ended."""
    left: float
    last_seq: int


@dataclass(frozen=True)
class Loss:
    """A run that went from one worker to another."""

    run_id: str
    at: float
    epoch: int
    """The first that was seen of the new worker."""
    worker: str
    by: str
    wrote_at: float | None
    """When it last wrote an event although its lease had been neglected; None if it did not."""


@dataclass(frozen=True)
class Trouble:
    """A worker was dead, stopped or cut off from the store; "" means every worker."""

    worker: str
    since: float
    until: float


class Leases:
    """Looks at the table of runs again and again, and notes which runs change their workers.

    A worker extends its leases three times as often as needed. If it still writes a run of whose
    lease less than a third is left, it lives and has the store, and has missed two extensions.
    """

    def __init__(self, lease: float) -> None:
        self.lease = lease
        self.losses: list[Loss] = []
        self._last: dict[str, Held] = {}
        self._wrote: dict[str, float] = {}

    def see(self, at: float, rows: list[Held]) -> None:
        """Take in the rows of all runs that have not ended."""
        for row in rows:
            last = self._last.get(row.run_id)
            if last is None:
                continue
            if row.epoch != last.epoch:
                wrote_at = self._wrote.pop(row.run_id, None)
                if last.worker and row.worker != last.worker:
                    self.losses.append(
                        Loss(row.run_id, at, row.epoch, last.worker, row.worker, wrote_at)
                    )
            elif row.left > last.left:
                self._wrote.pop(row.run_id, None)
            elif row.last_seq > last.last_seq and last.left < self.lease / 3:
                self._wrote[row.run_id] = at
        self._last = {row.run_id: row for row in rows}


def check_losses(losses: list[Loss], troubles: list[Trouble], lease: float) -> list[str]:
    """No worker that lives, and that nothing keeps from the store, loses a run.

    After a trouble it has the time of two leases to extend what it has.
    """
    return [
        f"run {one.run_id}: {one.worker} lives, and lost the run to {one.by}: it wrote an event"
        f" {one.at - one.wrote_at:.2f} s before, and had not extended its lease"
        for one in losses
        if one.wrote_at is not None
        and not any(
            trouble.worker in ("", one.worker)
            and trouble.since <= one.at
            and one.wrote_at <= trouble.until + 2 * lease
            for trouble in troubles
        )
    ]


def check(story: Story) -> list[str]:
    """Everything that is wrong with a run."""
    log, findings = unpack(story.rows)
    if not log:
        return [*findings, "I2: the run was answered 2xx, and the log has nothing of it"]
    for number, reading in enumerate(story.readings):
        for finding in check_reading(log, reading):
            findings.append(f"follower {number}: {finding}")
    findings += check_claims(log, story.claims)
    events, broken = decode(log)
    findings += broken
    if not broken:
        findings += check_tasks(story.run_id, events)
        findings += check_items(events)
        findings += check_tools(events, story.executed)
        findings += check_script(story.run_id, events)
        findings += check_views(story.run_id, events, story.views)
        last = events[-1]["type"]
        if story.cancelled and last not in TERMINAL:
            findings.append(f"I2: a cancel was answered 2xx, and the log ends with {last}")
    return findings


def unpack(rows: Iterable[Row]) -> tuple[list[Logged], list[str]]:
    """I3: the log that rows make: 1..n without holes, in epochs that never fall."""
    log: list[Logged] = []
    findings: list[str] = []
    for row in sorted(rows, key=lambda row: row.first_seq):
        lines, ids = events_in(row)
        if any(
            one != b"%d-%d" % (row.epoch, number) for number, one in enumerate(ids, row.first_seq)
        ):
            findings.append(f"I3: row {row.first_seq}..{row.last_seq} holds frames with wrong ids")
        if row.first_seq != len(log) + 1:
            findings.append(f"I3: after event {len(log)} the log goes on with {row.first_seq}")
        if len(lines) != row.last_seq - row.first_seq + 1:
            findings.append(f"I3: row {row.first_seq}..{row.last_seq} has {len(lines)} events")
        if log and row.epoch < log[-1].epoch:
            findings.append(
                f"I3: at event {row.first_seq} the epoch falls from {log[-1].epoch} to {row.epoch}"
            )
        log += [Logged(row.epoch, line) for line in lines]
    return log, findings


def check_claims(log: list[Logged], claims: list[Claimed]) -> list[str]:
    """I3: once a run is claimed, no earlier epoch writes it."""
    return [
        f"I3: event {number} was written in epoch {one.epoch} after the claim of {claim.epoch}"
        for claim in claims
        for number, one in enumerate(log[claim.last_seq :], claim.last_seq + 1)
        if one.epoch < claim.epoch
    ]


def events_in(row: Row) -> tuple[list[bytes], list[bytes]]:
    """The events of a row; and the ids of their frames, if it holds frames."""
    if not row.public.startswith(b"id: "):
        return row.public.split(b"\n"), []
    frames = row.public.removesuffix(b"\n\n").split(b"\n\n")
    parts = [frame.partition(b"\ndata: ") for frame in frames]
    return [data for _, _, data in parts], [head.removeprefix(b"id: ") for head, _, _ in parts]


def digest(rows: Iterable[Row]) -> str:
    """What must not change any more once a run has ended, however its rows are cut."""
    log, _ = unpack(rows)
    whole = hashlib.sha256()
    for one in log:
        whole.update(b"%d %b\n" % (one.epoch, one.data))
    return whole.hexdigest()


def check_reading(log: list[Logged], reading: Reading) -> list[str]:
    """I1 and I2: what it was shown is the log from its cursor on, byte for byte."""
    findings: list[str] = []
    expected = reading.after + 1
    for place, one in enumerate(reading.shown):
        if SECRET in one.data:
            findings.append(f"a private part is on the wire, in frame {one.id}")
        epoch, dash, seq = one.id.partition("-")
        if not (dash and epoch.isdigit() and seq.isdigit()):
            findings.append(f"I1: frame {place} has the id {one.id!r}")
            continue
        number = int(seq)
        if number > len(log):
            findings.append(f"I2: event {number} was shown, and the log ends at {len(log)}")
        elif one.data != log[number - 1].data:
            findings.append(
                f"I2: event {number} was shown as {_short(one.data)},"
                f" and the log has {_short(log[number - 1].data)}"
            )
        elif int(epoch) != log[number - 1].epoch:
            findings.append(
                f"I3: event {number} was shown in epoch {epoch},"
                f" and the log has it in {log[number - 1].epoch}"
            )
        if number != expected:
            kind = "a gap" if number > expected else "a repeat or a reorder"
            findings.append(f"I1: {kind}: event {number} came where {expected} was due")
        expected = number + 1
    if reading.finished and expected != len(log) + 1:
        findings.append(f"I1: it ended before event {expected}, and the log has {len(log)}")
    return findings


def decode(log: list[Logged]) -> tuple[list[dict[str, Any]], list[str]]:
    """The events, each of which says its own number."""
    events: list[dict[str, Any]] = []
    findings: list[str] = []
    for number, one in enumerate(log, 1):
        try:
            event = json.loads(one.data)
            if event["sequence_number"] != number:
                findings.append(f"I3: event {number} says it is {event['sequence_number']}")
            if not isinstance(event["type"], str) or not isinstance(event["task_id"], str):
                findings.append(f"event {number} has no type or no task")
            events.append(event)
        except (ValueError, KeyError, TypeError):
            findings.append(f"event {number} is no event: {_short(one.data)}")
    return events, findings


def check_tasks(run_id: str, events: list[dict[str, Any]]) -> list[str]:
    """I4: one terminal event per task, children before parents, the run's own last."""
    findings: list[str] = []
    parents: dict[str, str | None] = {}
    ended: dict[str, int] = {}
    for event in events:
        number, task_id, kind = event["sequence_number"], event["task_id"], event["type"]
        if kind == "task.created":
            if task_id in parents:
                findings.append(f"I4: task {task_id} is created twice, again at {number}")
            parents[task_id] = event.get("parent_task_id")
        elif task_id not in parents:
            findings.append(f"I4: event {number} is of task {task_id}, which was not created")
        if task_id in ended:
            again = "ends again" if kind in TERMINAL else "goes on"
            findings.append(f"I4: task {task_id} {again} at {number} after {ended[task_id]}")
        if kind in TERMINAL:
            for child, parent in parents.items():
                if parent == task_id and child not in ended:
                    findings.append(f"I4: task {task_id} ends at {number} before its child {child}")
            ended.setdefault(task_id, number)
    findings += [f"I4: task {task_id} has no end" for task_id in parents if task_id not in ended]
    if not events or events[0]["type"] != "task.created" or events[0]["task_id"] != run_id:
        findings.append("I4: the log does not begin with the run")
    if ended.get(run_id) != len(events):
        findings.append(f"I4: the run ends at {ended.get(run_id)}, its log at {len(events)}")
    return findings


def check_items(events: list[dict[str, Any]]) -> list[str]:
    """Every item is opened and closed once, and its text is what its deltas made."""
    findings: list[str] = []
    opened: Counter[str] = Counter()
    closed: Counter[str] = Counter()
    texts: dict[tuple[str, int], str] = {}
    for event in events:
        kind = event["type"]
        if kind == "task.output_item.added":
            opened[event["item"]["id"]] += 1
        elif kind == "task.output_item.done":
            closed[event["item"]["id"]] += 1
        elif kind == "task.text.delta":
            key = (event["item_id"], event["block_index"])
            texts[key] = texts.get(key, "") + event["delta"]
        elif kind == "task.text.done":
            made = texts.get((event["item_id"], event["block_index"]))
            if made is not None and made != event["item"]["text"]:
                findings.append(f"the deltas of {event['item_id']} do not make its text")
    if opened != closed or any(count != 1 for count in opened.values()):
        odd = {name for name in opened | closed if not opened[name] == closed[name] == 1}
        findings.append(f"items were not opened and closed once: {sorted(odd)}")
    return findings


def check_views(run_id: str, events: list[dict[str, Any]], views: list[View]) -> list[str]:
    """I5: a view has the texts that the events up to its own made."""
    made = [[], *_texts(run_id, events)] if views else []
    findings: list[str] = []
    for view in views:
        if view.at is not None and made[view.at] != view.texts:
            findings.append(f"I5: the view at event {view.at} is not what the log makes")
        if view.texts not in made[view.after :]:
            findings.append(f"I5: a view after event {view.after} is not what the log ever made")
    return findings


def _texts(run_id: str, events: list[dict[str, Any]]) -> Iterator[list[str]]:
    """The texts of the root's messages that count, after each event."""
    texts: dict[str, str] = {}
    for event in events:
        kind, item = event["type"], event.get("item", {})
        if event["task_id"] == run_id:
            if kind == "task.output_item.added" and item["type"] == "message":
                texts[item["id"]] = ""
            elif kind == "task.text.delta":
                texts[event["item_id"]] += event["delta"]
            elif kind == "task.attempt":
                for name in event.get("superseded", ()):
                    texts.pop(name, None)
        yield list(texts.values())


def check_tools(events: list[dict[str, Any]], executed: list[str]) -> list[str]:
    """I6: no tool starts twice, and none without the log knowing it before."""
    started: Counter[str] = Counter()
    calls: dict[str, str] = {}
    for event in events:
        if event["type"] == "task.output_item.added" and event["item"]["type"] == "tool_call":
            calls[event["item"]["id"]] = event["item"]["call_id"]
        elif event["type"] == "task.tool_call.started":
            started[calls.get(event["item_id"], event["item_id"])] += 1
    findings = [f"I6: {call} started {n} times" for call, n in started.items() if n > 1]
    for call, n in Counter(executed).items():
        if n > 1:
            findings.append(f"I6: the tool of {call} ran {n} times")
        if call not in started:
            findings.append(f"I6: the tool of {call} ran, and the log does not know")
    return findings


def check_script(run_id: str, events: list[dict[str, Any]]) -> list[str]:
    """A run that completed did each of its steps once, whole; `application.py` says what a step is.

    Each delta of a message is `step.place/length`, so that a piece which is lost, repeated or out
    of order is one that can be seen.
    """
    if events[-1]["type"] != "task.completed" or events[0].get("agent") == "declared":
        return []
    findings: list[str] = []
    superseded = {name for event in events for name in event.get("superseded", ())}
    steps: Counter[int] = Counter()
    for event in events:
        if event["type"] != "task.output_item.done" or event["task_id"] != run_id:
            continue
        item = event["item"]
        if item["id"] in superseded:
            continue
        if item.get("status", "completed") != "completed" and item["type"] != "tool_result":
            findings.append(f"the run is complete, and {item['id']} is {item['status']}")
        elif item["type"] == "message":
            pieces = "".join(block["text"] for block in item["block_list"]).split()
            step, length = pieces[0].partition(".")[0], len(pieces)
            if pieces != [f"{step}.{place}/{length}" for place in range(length)]:
                findings.append(f"the words of {item['id']} are not the script's: {pieces}")
            steps[int(step)] += 1
        elif item["type"] == "tool_call":
            steps[json.loads(item["arguments"])["step"]] += 1
    wanted = dict.fromkeys(range(events[0]["input"]["steps"]), 1)
    if dict(steps) != wanted:
        findings.append(f"of {len(wanted)} steps the run did {dict(sorted(steps.items()))}")
    return findings


def _short(data: bytes) -> str:
    text = data.decode(errors="replace")
    return text if len(text) <= 160 else f"{text[:157]}…"
