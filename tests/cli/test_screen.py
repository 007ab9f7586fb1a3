"""A run as lines, in a pipe."""

from __future__ import annotations

import pytest

from tailrace.cli.screen import LineScreen
from tailrace.core.events import (
    AgentSwitched,
    Notice,
    TaskAttempt,
    TaskCancelled,
    TaskCreated,
    recorded,
)


def test_notices_and_another_agent_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    screen = LineScreen()
    events = (
        TaskCreated(task_id="run_1", agent="desk", thread_id="t", input="Hello \x1b[2J"),
        Notice(task_id="run_1", message="The model is slow."),
        AgentSwitched(task_id="run_1", agent="billing", reason="an invoice"),
        TaskAttempt(task_id="run_1", attempt=2, reason="worker_lost", superseded=["msg_1"]),
        TaskCancelled(task_id="run_1", reason="stopped"),
    )
    screen.show(recorded(event, number) for number, event in enumerate(events, 1))
    assert capsys.readouterr().out.splitlines()[:4] == [
        "> desk: Hello \ufffd[2J",
        "! The model is slow.",
        "» billing: an invoice",
        "! attempt 2 (worker_lost); unfinished items are made again",
    ]
    assert screen.code == 1
