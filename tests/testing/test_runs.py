"""The strategy that is shipped to users: what it promises about the runs that it draws."""

import json
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, seed, settings

from tailrace.core.events import KNOWN, Event
from tailrace.testing.strategies import WrittenRun, legal_runs
from tests.core.naive import ENDED, NaiveState
from tests.core.naive_rules import NaiveRules
from tests.forked import run


def as_json(value: Any) -> Any:
    return None if value is None else json.loads(msgspec.json.encode(value))


def folded(run: WrittenRun) -> NaiveState:
    state = NaiveState()
    for event, private in run:
        state.apply(as_json(event), as_json(private))
    return state


def test_every_event_of_the_protocol_comes_up() -> None:
    seen: Counter[type[Event]] = Counter()
    for start in range(80):

        @seed(start)
        @settings(max_examples=25, database=None, derandomize=False)
        @given(legal_runs())
        def draw_many(run: WrittenRun) -> None:
            seen.update(type(event) for event, _private in run)

        draw_many()
        if len(seen) == len(KNOWN):
            break
    assert [known.__name__ for known in KNOWN if known not in seen] == []


@given(legal_runs(complete=False))
def test_a_run_obeys_every_rule(run: WrittenRun) -> None:
    rules = NaiveRules()
    for event, private in run:
        assert rules.broken(as_json(event)) == set()
        rules.record(as_json(event), as_json(private))


@given(legal_runs())
def test_a_complete_run_ends_and_leaves_nothing_open(run: WrittenRun) -> None:
    state = folded(run)
    assert {task["status"] for task in state.tasks.values()} <= set(ENDED)
    assert not [i for task in state.tasks.values() for i in task["items"].values() if i["open"]]


@given(legal_runs(max_events=12))
def test_a_run_is_no_longer_than_asked(run: WrittenRun) -> None:
    assert 2 <= len(run) <= 12


@given(legal_runs(complete=False))
def test_events_are_recorded_without_holes(run: WrittenRun) -> None:
    assert [event.sequence_number for event, _private in run] == list(range(1, len(run) + 1))


@given(legal_runs(max_tasks=3, max_depth=1))
def test_tasks_and_depth_are_bounded(run: WrittenRun) -> None:
    tasks = folded(run).view().get("tasks", [])
    assert len(tasks) <= 2
    assert {task["parent_task_id"] for task in tasks} <= {run[0][0].task_id}


@given(legal_runs())
def test_every_annotation_of_a_reference_covers_its_marker(run: WrittenRun) -> None:
    for task in folded(run).tasks.values():
        for item in task["items"].values():
            for part in item["lists"].get("block_list", {}).values():
                for note in part["block"].get("annotations", []):
                    if note["type"] == "reference_to_block":
                        marker = part["block"]["text"][note["start_index"] : note["end_index"]]
                        assert marker == f"[^{note['reference_id']}]"


def test_a_run_has_at_least_its_beginning_and_its_end() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        legal_runs(max_events=1)


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("legal_runs", "hypothesis"),
        ("check_log", "hypothesis"),
        ("EventLogKit", "pytest"),
        ("FollowKit", "pytest"),
        ("BusKit", "pytest"),
    ],
)
def test_without_a_package_of_tests_the_import_says_what_to_install(
    name: str, package: str
) -> None:
    code = f"import sys; sys.modules['{package}'] = None; from tailrace.testing import {name}"
    result = run("-c", code)
    assert result.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: `{name}` of tailrace.testing needs {package}, which Tailrace does"
        f" not install. Run: pip install {package}"
    )


def test_another_missing_module_is_named_as_it_is() -> None:
    home = "tailrace.testing.bus_kit"
    code = f"import sys; sys.modules['{home}'] = None; from tailrace.testing import BusKit"
    assert (
        run("-c", code)
        .stderr.splitlines()[-1]
        .startswith(f"ModuleNotFoundError: import of {home} halted")
    )
