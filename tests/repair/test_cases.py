"""Faulty Responses streams, and what clients get instead: see `tests/cases.py`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cases import cases, check
from tests.repair.streams import Json, Read, repaired_events

ROOT = Path(__file__).parent / "cases"
CASES = cases(ROOT)


def test_there_are_cases() -> None:
    assert CASES


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_a_stream_is_repaired_as_expected(case: Path) -> None:
    lines = (case / "stream.jsonl").read_text(encoding="utf-8").splitlines()
    sent = [json.loads(line) for line in lines]
    events = repaired_events(*sent)
    check(case, {**_shown(events), "events": _brief(events, sent)}, width=300)


def _shown(events: list[Json]) -> Json:
    """The texts that a strict client shows of each item, if it accepts the stream."""
    try:
        read = Read(events)
    except (AssertionError, KeyError):
        return {}
    return {
        "shown": [
            {"type": item["type"], "texts": [item["texts"][at] for at in sorted(item["texts"])]}
            for _, item in sorted(read.items.items())
        ]
    }


def _brief(events: list[Json], sent: list[Json]) -> list[Json]:
    """The events; those that pass unchanged by their lines, first and last.

    A number that counts up from 0 is left out, and so are fields of a response that are the same
    in its announcement.
    """
    announced = events[0]["response"]
    found: list[Json] = []
    for number, event in enumerate(events):
        if event in sent:
            line = sent.index(event) + 1
            if found and found[-1].get("lines", [0, 0])[1] == line - 1 > 0:
                found[-1]["lines"][1] = line
            else:
                found.append({"lines": [line, line]})
            continue
        brief = dict(event)
        if brief["sequence_number"] == number:
            del brief["sequence_number"]
        if number and "response" in event:
            assert event["response"].keys() >= announced.keys()
            same = announced.items()
            brief["response"] = {
                name: value
                for name, value in event["response"].items()
                if (name, value) not in same
            }
        found.append(brief)
    return found
