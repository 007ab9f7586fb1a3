"""The examples of broken rules are what they say: legal up to the last event, which breaks one."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.core.events import Event
from tailrace.testing.strategies import WrittenRun, legal_runs
from tests.core.illegal import CONTENT_MAKES_KNOWN, ILLEGAL, LEGAL, mutations
from tests.core.naive_rules import NaiveRules

PROTOCOL = Path(__file__).parents[2] / "PROTOCOL.md"


def as_json(value: Any) -> Any:
    return None if value is None else json.loads(msgspec.json.encode(value))


def after(prefix: WrittenRun) -> NaiveRules:
    rules = NaiveRules()
    for event, private in prefix:
        assert rules.broken(as_json(event)) == set(), event
        rules.record(as_json(event), as_json(private))
    return rules


def test_every_rule_of_the_protocol_has_an_example() -> None:
    section = PROTOCOL.read_text().split("\n## ")[3]
    assert section.startswith("3. State machine and rules")
    assert list(ILLEGAL) == re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)


@pytest.mark.parametrize(
    ("rule", "prefix", "event"),
    [
        pytest.param(rule, prefix, event, id=f"{rule}-{number}")
        for rule, examples in ILLEGAL.items()
        for number, (prefix, event) in enumerate(examples)
    ],
)
def test_an_example_breaks_its_rule_and_no_other(
    rule: str, prefix: WrittenRun, event: Event
) -> None:
    assert after(prefix).broken(as_json(event)) == {rule}


@pytest.mark.parametrize("run", LEGAL)
def test_unusual_but_legal_runs_break_no_rule(run: WrittenRun) -> None:
    after(run)


def test_a_number_on_private_content_may_be_cited() -> None:
    prefix, event = CONTENT_MAKES_KNOWN
    assert after(prefix).broken(as_json(event)) == set()


@given(st.data(), legal_runs(complete=False))
def test_a_mutant_breaks_the_rule_that_it_names(data: st.DataObject, run: WrittenRun) -> None:
    prefix, event, rule = data.draw(mutations(run))
    assert rule in ILLEGAL
    assert after(prefix).broken(as_json(event)) == {rule}
