"""Compacted conversations: a summary in place of older runs, and the text that is summarized.

`task.history.compacted` of a run has the summary, and names the last run that it stands for. The
last such event of a chain counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tailrace.core.fold import State
from tailrace.core.state import TaskNode
from tailrace.history.content import joined
from tailrace.history.entries import CallEntry, Conversation, MessageEntry

SUMMARY = "Summary of the conversation so far:\n\n"
"""The first words of the message with the summary."""


class Compaction(msgspec.Struct, frozen=True):
    """The summary that a chain has, and where."""

    summary: str
    first: int
    """The index of the first run that the summary does not stand for."""
    at: int
    """The index of the run that has the event."""


def compaction(tasks: Sequence[TaskNode | None]) -> Compaction | None:
    """The summary that counts in a chain of root tasks."""
    for at in range(len(tasks) - 1, -1, -1):
        task = tasks[at]
        if task is not None and task.compacted is not None:
            # The summary of `/v1/responses/compact` stands for the input of its own run as well.
            ids = [task.task_id if task is not None else None for task in tasks[: at + 1]]
            run_id = task.compacted["run_id"]
            # Runs before a deleted run are not in the chain: the summary stands before the rest.
            first = ids.index(run_id) + 1 if run_id in ids else 0
            return Compaction(task.compacted["summary"], first, at)
    return None


def read_chain(
    tasks: Sequence[TaskNode | None], found: Compaction | None, end: int | None = None
) -> Conversation:
    """The conversation of a chain up to the run `end`, with the summary in place of older runs."""
    conversation = Conversation()
    if found is not None:
        conversation.add_summary(SUMMARY + found.summary)
        for task in tasks[: found.first]:
            if task is not None:
                conversation.leave_out(task)
    for task in tasks[found.first if found is not None else 0 : end]:
        if task is not None:
            conversation.add(task)
    return conversation


def transcript(
    chain: Sequence[State], end: int | None = None, *, longest: int | None = None
) -> str:
    """The conversation up to the run `end` as plain text, without reasoning.

    Of an entry with more than `longest` characters, the beginning is given.
    """
    tasks = [state.root for state in chain]
    lines = []
    for entry in read_chain(tasks, compaction(tasks), end).entries:
        if isinstance(entry, MessageEntry):
            line = f"{entry.role}: {joined(entry.pieces)}"
        elif isinstance(entry, CallEntry):
            result = joined(entry.outcome().in_words())
            line = f"assistant called {entry.name}({entry.arguments}), which returned: {result}"
        else:
            continue
        is_long = longest is not None and len(line) > longest
        lines.append(f"{line[:longest]} […]" if is_long else line)
    return "\n\n".join(lines)
