"""The value so far of a call's arguments, looked at after each one-character delta."""

from __future__ import annotations

import json

import pydantic_core
from jiter import from_json

from benchmarks import traffic
from benchmarks.harness import Contender, Pace, Table, Target, at_most, flat, measure
from tailrace.core.partial_json import PartialJson

SIZES = (1_000, 10_000, 100_000)
MOST_MICROSECONDS = 2


def one_string(count: int) -> list[str]:
    """The arguments of a tool that writes a file: nearly all of it is one string."""
    head, tail = '{"path": "story.md", "text": "', '"}'
    text = "".join(traffic.pieces(count // 4 + 1))
    return list(head + text[: count - len(head) - len(tail)] + tail)


def many_values(count: int) -> list[str]:
    """A long list of small objects."""
    rows: list[str] = []
    left = count - len('{"rows": []}')
    while left >= 60:
        rows.append(json.dumps({"name": f"row {len(rows)}", "size": 12.5, "seen": True}))
        left -= len(rows[-1]) + 2
    text = f'{{"rows": [{", ".join(rows)}]}}'
    return list(text + " " * (count - len(text)))


def _append(deltas: list[str]) -> object:
    pieces: list[str] = []
    for delta in deltas:
        pieces.append(delta)  # noqa: PERF402  # a stream comes one by one
    return json.loads("".join(pieces))


def _look(deltas: list[str]) -> object:
    partial = PartialJson()
    shown: object = None
    for delta in deltas:
        partial.feed(delta)
        shown = partial.value
    return shown


def _reparse_as_the_anthropic_sdk(deltas: list[str]) -> object:
    # As `accumulate_event` of anthropic's streaming does for an `input_json_delta`.
    text = b""
    shown: object = None
    for delta in deltas:
        text += bytes(delta, "utf-8")
        shown = from_json(text, partial_mode=True)
    return shown


def _reparse_with_pydantic(deltas: list[str]) -> object:
    text = ""
    shown: object = None
    for delta in deltas:
        text += delta
        shown = pydantic_core.from_json(text, allow_partial="trailing-strings")
    return shown


def run(pace: Pace) -> tuple[list[Table], list[Target]]:
    """One long string, and many small values."""
    tables: list[Table] = []
    targets: list[Target] = []
    for title, prepare in (("one long string", one_string), ("many small values", many_values)):
        table = measure(
            f"partial JSON: {title}",
            [
                Contender("limit", prepare, _append),
                Contender("tailrace", prepare, _look),
                Contender(
                    "anthropic SDK's way: jiter after each delta",
                    prepare,
                    _reparse_as_the_anthropic_sdk,
                ),
                Contender(
                    "pydantic_core.from_json(allow_partial=…) after each delta",
                    prepare,
                    _reparse_with_pydantic,
                ),
            ],
            SIZES,
            pace,
            unit="delta",
            remark="The limit appends each delta to a list and parses once, at the end. The "
            "others parse the whole text after each delta; the anthropic SDK leaves an unfinished "
            "string out.",
        )
        tables.append(table)
        costs = [table.best(table.ours, size) for size in table.sizes]
        worst = max(cost for cost in costs if cost is not None)
        targets.append(
            at_most(f"{table.title}, a delta and a look", MOST_MICROSECONDS, worst, "µs")
        )
        targets.append(flat(table.title, table))
    return tables, targets
