"""A run as lines, in a pipe."""

from __future__ import annotations

import pytest

from tailrace.cli.durations import seconds
from tailrace.cli.screen import LineScreen, LiveScreen
from tailrace.core.events import (
    AgentSwitched,
    AnyEvent,
    Event,
    Notice,
    OutputItemAdded,
    OutputItemDone,
    TaskAttempt,
    TaskCancelled,
    TaskCompleted,
    TaskCreated,
    TaskFailed,
    TaskInputReceived,
    TaskInputRequired,
    ToolCallStarted,
    recorded,
)
from tailrace.core.items import ErrorInfo, InputRequest, ToolCall, ToolResult


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


@pytest.mark.parametrize("kind", [LineScreen, LiveScreen])
def test_a_failure_says_why_and_changed_arguments_are_shown(
    capsys: pytest.CaptureFixture[str], kind: type[LineScreen | LiveScreen]
) -> None:
    requests = [InputRequest(id=name, kind="approval", message="Pay?") for name in ("a", "b")]
    events = (
        TaskCreated(task_id="run_1", agent="desk", thread_id="t", input="?"),
        TaskInputRequired(task_id="run_1", requests=requests),
        TaskInputReceived(task_id="run_1", request_id="a", approved=True, value={"euros": 5}),
        TaskInputReceived(task_id="run_1", request_id="b", approved=True),
        TaskFailed(task_id="run_1", error=ErrorInfo(code="x", message="No money is left.")),
    )
    with kind() as screen:
        screen.show(recorded(event, number) for number, event in enumerate(events, 1))
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if "arguments" in line] == [
        '! approved with other arguments: {"euros":5}'
    ]
    assert lines[-2].removeprefix("✗ ") == "No money is left."
    assert lines[-1] == "✗ desk failed"


def timed_run(*times: float | None) -> list[AnyEvent]:
    """A run with one call, whose events have these times."""
    created, started, ended, done = times
    call = ToolCall(id="fc_1", call_id="c", name="look", arguments="{}")
    result = ToolResult(id="fr_1", call_id="c", block_list=[])
    events: list[Event] = [
        TaskCreated(task_id="run_1", agent="desk", thread_id="t", created_at=created, input="?"),
        OutputItemAdded(task_id="run_1", output_index=0, item=call),
        OutputItemDone(task_id="run_1", output_index=0, item=call),
        ToolCallStarted(task_id="run_1", item_id="fc_1", output_index=0, at=started),
        OutputItemAdded(task_id="run_1", output_index=1, item=result),
        OutputItemDone(task_id="run_1", output_index=1, item=result, at=ended),
        TaskCompleted(task_id="run_1", at=done),
    ]
    return [recorded(event, number) for number, event in enumerate(events, 1)]


def test_a_call_and_a_run_show_how_long_they_took(capsys: pytest.CaptureFixture[str]) -> None:
    screens = (LineScreen(), LiveScreen())
    for screen in screens:
        with screen:
            screen.show(timed_run(100.0, 100.5, 100.7, 112.0))
    out = capsys.readouterr().out
    assert out.count("desk completed · 12 s") == 2
    assert "look {} 200 ms" in out


@pytest.mark.parametrize("times", [(None, None, None, None), (100.0, None, 100.7, None)])
def test_a_log_without_times_shows_none(
    capsys: pytest.CaptureFixture[str], times: tuple[float | None, ...]
) -> None:
    with LiveScreen() as screen:
        screen.show(timed_run(*times))
    assert capsys.readouterr().out.splitlines()[-1].rstrip() == "✓ desk completed"


def test_durations_are_never_negative_and_read_well() -> None:
    screen = LineScreen()
    screen.show(timed_run(100.0, 100.5, 100.4, 99.0))
    assert screen._took == {"fc_1": "<1 ms", "run_1": "<1 ms"}
    assert [seconds(time) for time in (0.2014, 1.25, 48.4)] == ["201 ms", "1.2 s", "48 s"]
