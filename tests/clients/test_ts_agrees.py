"""The TypeScript reducer and the Python fold, event by event, on random runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.core import events as ev
from tailrace.core import snapshot
from tailrace.core.codec import encode_event
from tailrace.core.fold import State
from tailrace.core.run_object import client_view, whole_object
from tailrace.testing.strategies import WrittenRun, legal_runs
from tests.node import CLIENT_TS, node_env, node_path


class Reducer:
    """One node process that folds whatever it is asked to."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [str(node_path()), "test/fold-stdin.ts"],
            cwd=CLIENT_TS,
            env=node_env(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def fold(self, events: list[Any], private: list[Any], *, resume: bool) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"events": events, "private": private, "resume": resume}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def reducer() -> Iterator[Reducer]:
    made = Reducer()
    yield made
    made.close()


def as_json(value: Any) -> Any:
    return None if value is None else json.loads(msgspec.json.encode(value))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(legal_runs(), st.booleans())
def test_both_see_the_same_after_every_event(
    reducer: Reducer, run: WrittenRun, resume: bool
) -> None:
    events = [json.loads(encode_event(event)) for event, _ in run]
    answer = reducer.fold(events, [as_json(private) for _, private in run], resume=resume)
    state = State()
    for (event, private), seen in zip(run, answer["views"], strict=True):
        state.apply(event, private)
        assert seen == client_view(state)
    assert answer["whole"] == whole_object(state)
    ours = snapshot._decoded(snapshot.save(state, private=True))  # the private parts in place
    for task in ours["tasks"]:
        task.pop("answers", None)  # for the history of the next call, which no client makes
        task.pop("begun", None)  # for the order in the responses of a run
        task.pop("end_time", None)  # for `completed_at` of a response
    ours.pop("pauses", None)  # for the responses of a run, which no client encodes
    assert answer["saved"] == ours


@given(legal_runs(), st.data())
def test_both_make_the_same_of_disorder(
    reducer: Reducer, run: WrittenRun, data: st.DataObject
) -> None:
    events = [ev.recorded(event, 0) for event, _ in run]
    chaos = data.draw(st.lists(st.sampled_from(events), max_size=60))
    answer = reducer.fold([as_json(event) for event in chaos], [], resume=False)
    state = State()
    for event, seen in zip(chaos, answer["views"], strict=True):
        state.absorb(event)
        assert (seen or {}) == client_view(state)
