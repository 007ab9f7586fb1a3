"""Bytes on the wire: a sub-agent's tokens against the same tokens of the root."""

from __future__ import annotations

from benchmarks import traffic
from benchmarks.harness import Pace, Table, Target, Times, at_most
from tailrace.core import events as ev
from tailrace.testing.wire_kit import encoded
from tailrace.wire import openai_responses, task, vercel_ui
from tailrace.wire.base import Format

TOKENS = 2_000
FORMATS: tuple[Format, ...] = (task.FORMAT, openai_responses.FORMAT, vercel_ui.FORMAT)


def _bytes(wire: Format, events: list[ev.Event]) -> float:
    return float(sum(len(frame) for frames in encoded(wire, events) for frame in frames))


def run(pace: Pace) -> tuple[list[Table], list[Target]]:
    """Counted, not timed, so one round is enough and the pace does not matter."""
    del pace
    limit, ours = "as the root's text", "as a sub-agent's text"
    tables: list[Table] = []
    targets: list[Target] = []
    for wire in FORMATS:
        times: Times = {
            TOKENS: {
                limit: [_bytes(wire, traffic.text_run(TOKENS))],
                ours: [_bytes(wire, traffic.nested_run(TOKENS))],
            }
        }
        table = Table(
            f"weight: {wire.name}",
            times,
            ours,
            limit,
            unit="delta",
            scale=1.0,
            column=lambda size: f"{size} deltas",
        )
        tables.append(table)
        if wire is not openai_responses.FORMAT:
            targets.append(
                at_most(f"bytes of a sub-agent's text, {wire.name}", 1.2, table.worst(ours, limit))
            )
    tables[0].remark = (
        f"All frames of a run with {TOKENS:,} deltas of four characters, divided by that number. "
        "As a sub-agent's text they come inside a call of the root."
    )
    tables[1].remark = "This vocabulary has no word for a sub-agent: its text is not streamed."
    return tables, targets
