"""The sub-agents of a run as our own UI message streams tell them, and what else is only ours.

    data-task        who a sub-agent is and how it fares
    data-task-item   one of its items; it is written when it is done
    data-step, data-notice, data-progress     of the run or of a sub-agent

A stream that somebody joined late tells what is past in few chunks: a sub-agent's end before its
items, a result before the sub-agents below it. So a sub-agent that was not seen to begin closes a
result when it goes on, and one that was over before ends with the message. What has no place in the
run, such as a sub-agent of an unknown call, is left to the caller, who keeps it raw.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from tailrace.core import events as ev
from tailrace.core.items import Item, ToolResult, Usage
from tailrace.core.state import ENDED
from tailrace.core.writers import Sink
from tailrace.ingest.vercel_calls import Calls
from tailrace.ingest.vercel_child import Child, Steps
from tailrace.ingest.vercel_values import Json, dict_of, text_of, usage_of


class Tasks:
    """All sub-agents of the run, and the root's own steps, notices and progress."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._children: dict[str, Child] = {}
        self._ids = {sink.task_id}
        self._live: Counter[str] = Counter()  # how many work on a call, by its id
        self._born: Counter[str] = Counter()
        self._steps = Steps(sink)
        self._settling: dict[Steps, None] = {}
        self._noticed: set[str] = set()
        self.root_id: str | None = None
        """What the stream calls the root, if it is ours."""
        self.calls: Calls
        """Those of the root: set by whoever makes both."""

    def are_at_work(self, call_id: str, tasks: list[str]) -> bool:
        """Whether a result must stay open: for a sub-agent of the call, or one that it names."""
        return bool(self._live[call_id]) or any(one not in self._children for one in tasks)

    # --- sub-agents ------------------------------------------------------------------------------

    def task(self, chunk: Json) -> bool:
        """A sub-agent begins, or fares otherwise."""
        data = dict_of(chunk.get("data"))
        task_id = data.get("task_id")
        if not isinstance(task_id, str):
            return False
        child = self._children.get(task_id) or self._create(task_id, data)
        if child is None:
            return False
        if not child.is_ended:
            child.data = data
            is_over = data.get("status") in ENDED and not child.is_retold
            if is_over and not child.live_children:
                self._end(child)
        return True

    def _create(self, task_id: str, data: Json) -> Child | None:
        parent_id, ident = data.get("parent_task_id"), data.get("call_id")
        parent = self._children.get(parent_id) if isinstance(parent_id, str) else None
        if not isinstance(ident, str) or (parent is None and parent_id != self.root_id):
            return None
        if parent is None:
            call_id = self.calls.for_child(ident)
        else:
            result = parent.open_result(ident)
            call_id = None if result is None else result.call_id
        if call_id is None:
            return None
        ours = call_id if not self._born[call_id] else f"{call_id}/{self._born[call_id] + 1}"
        if ours in self._ids:
            return None
        self._ids.add(ours)
        self._born[call_id] += 1
        self._live[call_id] += 1
        child = self._children[task_id] = Child(self._sink, ours, call_id, parent, data)
        if parent is not None:
            parent.live_children += 1
        self._sink.emit(
            ev.TaskCreated(
                task_id=ours,
                parent_task_id=self._sink.task_id if parent is None else parent.task_id,
                call_id=call_id,
                agent=text_of(data.get("agent")) or None,
                model=text_of(data.get("model")) or None,
            )
        )
        self._sink.emit(ev.TaskInProgress(task_id=ours))
        return child

    def _end(self, child: Child) -> None:
        child.end()
        self._live[child.call_id] -= 1
        if child.parent is None:
            self.calls.child_ended(child.call_id)
        else:
            child.parent.live_children -= 1
            self._settle(child.parent, child.their_call_id)

    def item(self, chunk: Json) -> bool:
        """An item of a sub-agent, which is written when it is done. Its pieces pass by."""
        data, place = dict_of(chunk.get("data")), text_of(chunk.get("id"))
        child = self._children.get(text_of(data.get("task_id")))
        if child is None:
            return bool(chunk.get("transient"))  # the root's own results come as a call's output
        if child.is_ended or place in child.done_items or data.get("status") == "in_progress":
            return True
        try:
            item = msgspec.convert(data, Item)
        except (msgspec.ValidationError, ValueError):
            return False
        held, child.held = child.held, {}
        for call_id in held:
            self._settle(child, call_id)
        child.take(place, item)
        if isinstance(item, ToolResult):
            if child.has_joined:
                child.held[item.call_id] = None
            else:
                self._settle(child, item.call_id)
        return True

    def _settle(self, child: Child, call_id: str) -> None:
        """Close a result that has come, unless sub-agents are at work on it or may follow."""
        if child.is_retold or call_id in child.held:
            return
        if call_id in child.closing and not self._live[child.results[call_id].call_id]:
            child.close_result(call_id)

    def knows(self, number: int, about: Json) -> bool:
        """Whether the root can cite a number; a sub-agent's reference is imported for it."""
        if self._sink.knows(number):
            return True
        child = self._children.get(text_of(about.get("task_id")))
        index = about.get("block_index")
        if child is None or child.parent is not None or not isinstance(index, int) or number < 1:
            return False
        place = f"{about['task_id']}/{about.get('output_index')}"
        theirs = child.numbers.get((place, index))
        if theirs is None:
            return False
        self._sink.emit(
            ev.ReferenceImported(
                task_id=self._sink.task_id,
                reference_id=number,
                source_task_id=child.task_id,
                source_reference_id=theirs,
            )
        )
        return True

    # --- what passes by --------------------------------------------------------------------------

    def _of(self, data: Json) -> Child | Sink | None:
        """The task that a chunk is about, while it lives."""
        task_id = data.get("task_id")
        if task_id == self.root_id:
            return self._sink
        child = self._children.get(text_of(task_id))
        return None if child is None or child.is_ended else child

    def step(self, chunk: Json) -> bool:
        """A named stage that began or ended."""
        data = dict_of(chunk.get("data"))
        task = self._of(data)
        if task is None:
            return False
        steps = task.steps if isinstance(task, Child) else self._steps
        self._settling[steps] = None
        return steps.take(data)

    def settle_steps(self) -> None:
        """Something else than a stage is told: those that are over hold nothing more."""
        for steps in self._settling:
            steps.settle()
        self._settling.clear()

    def notice(self, chunk: Json) -> bool:
        """Something for the person who watches; its id tells whether it came before."""
        data, ident = dict_of(chunk.get("data")), text_of(chunk.get("id"))
        task, message = self._of(data), data.get("message")
        if task is None or not isinstance(message, str):
            return False
        if ident and ident in self._noticed:
            return True
        self._noticed.add(ident)
        self._sink.emit(
            ev.Notice(
                task_id=task.task_id,
                message=message,
                level=text_of(data.get("level")) or "info",
                data=data.get("data"),
            )
        )
        return True

    def progress(self, chunk: Json) -> bool:
        """How far a call, or a task, has come."""
        data = dict_of(chunk.get("data"))
        task, ident = self._of(data), data.get("call_id")
        if task is None:
            return False
        call_id = None
        if ident is not None:
            calls = task.calls if isinstance(task, Child) else self.calls.writers
            if not isinstance(ident, str) or ident not in calls:
                return False
            call_id = calls[ident].call_id
        current, total = data.get("current"), data.get("total")
        self._sink.emit(
            ev.Progress(
                task_id=task.task_id,
                call_id=call_id,
                message=text_of(data.get("message")) or None,
                current=current if isinstance(current, int | float) else None,
                total=total if isinstance(total, int | float) else None,
            )
        )
        return True

    # --- steps of the message, and the end -------------------------------------------------------

    def reset(self) -> None:
        """What was cut short of a sub-agent is made again."""
        for child in self._children.values():
            child.supersede()

    def usages(self) -> list[Usage]:
        """What each sub-agent used, where it is told."""
        found = [usage_of(child.data) for child in self._children.values()]
        return [usage for usage in found if usage is not None]

    def close(self) -> None:
        """The message is over: so are its sub-agents, the innermost first."""
        for child in reversed(self._children.values()):
            if not child.is_ended:
                self._end(child)
        self._steps.close()
