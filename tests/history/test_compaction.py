"""A conversation whose older turns have a summary."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.writers import ResultWriter
from tailrace.history import history
from tailrace.history.compaction import transcript
from tests.history.conversations import APIS
from tests.history.runs import OPENAI, Run, weather


def compacted(number: int, run_id: str, summary: str = "It was about Paris.") -> Run:
    run = Run(f"Question {number}?", number)
    run.emit(ev.HistoryCompacted(task_id=run.task_id, summary=summary, run_id=run_id))
    return run


def turn(number: int) -> Run:
    run = Run(f"Question {number}?", number)
    run.say(f"msg_{number}", f"Answer {number}.")
    return run.end()


def states(*runs: Run) -> list[State]:
    return [run.state for run in runs]


@pytest.mark.parametrize("api", APIS)
def test_the_summary_stands_before_the_turns_that_are_kept(api: Any) -> None:
    made = history(states(turn(1), turn(2), turn(3), compacted(4, "run_2")), api)
    text = json.dumps(made.items)
    assert "It was about Paris." in text
    assert all(f"Question {kept}?" in text for kept in (3, 4))
    assert "Answer 3." in text
    assert not any(f"Question {gone}?" in text for gone in (1, 2))
    assert text.index("about Paris") < text.index("Question 3?")


def test_the_last_summary_of_a_chain_counts_also_in_later_runs() -> None:
    first = compacted(3, "run_1", "Old.")
    first.say("msg_3", "Answer 3.")
    second = compacted(5, "run_3", "New.")
    chain = states(turn(1), turn(2), first.end(), turn(4), second)
    second.say("msg_5", "Answer 5.")
    chain += states(Run("Question 6?", 6))
    second.end()
    text = json.dumps(history(chain, OPENAI).items)
    assert "New." in text
    assert "Question 4?" in text
    assert not any(gone in text for gone in ("Old.", "Question 3?", "Answer 3."))


def test_a_summary_whose_last_run_is_deleted_stands_before_what_is_left() -> None:
    text = json.dumps(history(states(turn(3), compacted(4, "run_2")), OPENAI).items)
    assert "It was about Paris." in text
    assert "Question 3?" in text


def test_runs_without_events_are_passed_over() -> None:
    text = json.dumps(history([State(), *states(compacted(2, "run_1"))], OPENAI).items)
    assert "It was about Paris." in text
    left = [*states(turn(1)), State(), *states(turn(2), compacted(3, "run_2"))]
    assert "Answer 2." not in json.dumps(history(left, OPENAI).items)
    assert transcript([State()]) == ""


def test_items_that_a_summary_stands_for_are_not_taken_from_the_input_again() -> None:
    old = weather()
    assert old.state.root is not None
    [call] = old.state.root.calls.values()
    sent_again: list[Any] = [
        {"type": "function_call", "call_id": "call_fc_1", "name": "get_weather", "arguments": "{}"},
        {"type": "message", "role": "user", "content": "And?"},
    ]
    run = Run(sent_again, 2)
    run.emit(ev.HistoryCompacted(task_id=run.task_id, summary="S.", run_id="run_1"))
    assert call.item.call_id == "call_fc_1"  # type: ignore[union-attr]
    made = history(states(old, run), OPENAI).items
    assert [item["type"] for item in made] == ["message", "message"]


def test_a_stored_response_from_before_the_summary_is_not_continued() -> None:
    last = compacted(3, "run_1")
    chain = states(turn(1), turn(2), last)
    made = history(chain, OPENAI, "stored")
    assert made.previous_response_id is None
    assert made.notes == []
    last.say("msg_3", "Answer 3.")
    last.end()
    again = history([*chain, *states(Run("Question 4?", 4))], OPENAI, "stored")
    assert again.previous_response_id == "resp_3_1"
    assert "Question 4?" in json.dumps(again.items)
    assert "about Paris" not in json.dumps(again.items)


def test_a_sub_agents_history_has_no_summary_of_its_run() -> None:
    run = compacted(2, "run_1")
    call = run.call("fc_1", tool="ask")
    result = ResultWriter(run, call)
    child: dict[str, Any] = {"task_id": call, "parent_task_id": run.task_id, "call_id": call}
    run.emit(ev.TaskCreated(**child, input="Help."))
    del result
    text = json.dumps(history(states(turn(1), run), OPENAI, task_id=call).items)
    assert "Help." in text
    assert "about Paris" not in text


def test_a_transcript_has_messages_calls_and_results_and_no_reasoning() -> None:
    run = weather()
    assert transcript(states(run)) == (
        "user: Is it sunny?\n\n"
        'assistant called get_weather({"city":"Paris"}), which returned: 15C\n\n'
        "assistant: Yes."
    )
    assert transcript(states(run, turn(2)), 1).endswith("Yes.")


def test_a_transcript_shortens_long_entries_and_begins_with_the_summary() -> None:
    chain = states(turn(1), compacted(2, "run_1"), Run("x" * 50, 3))
    text = transcript(chain, longest=30)
    assert text.startswith("user: Summary of the conversat […]")
    assert text.endswith(f"user: {'x' * 24} […]")


def test_a_summary_may_stand_for_the_input_of_its_own_run() -> None:
    chain = states(turn(1), compacted(2, "run_2").end(), Run("Question 3?", 3))
    text = json.dumps(history(chain, OPENAI).items)
    assert text.index("It was about Paris.") < text.index("Question 3?")
    assert not any(gone in text for gone in ("Question 1?", "Answer 1.", "Question 2?"))
