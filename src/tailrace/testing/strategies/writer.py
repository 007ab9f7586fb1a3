"""A small writer that knows what is open in a run and picks its next legal move."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal

import msgspec
from hypothesis import strategies as st

from tailrace.core import events as ev
from tailrace.core.events import Private
from tailrace.core.items import (
    Executor,
    InputRequest,
    Item,
    Message,
    RawItem,
    Reasoning,
    Status,
    StepEnd,
    Text,
    ToolCall,
    ToolResult,
)
from tailrace.testing.strategies import values
from tailrace.testing.strategies.open_items import ItemRecord, PartRecord, TaskRecord
from tailrace.testing.strategies.parts import PartMoves

# How many events a move writes at most, with those that close what it leaves open. The first is for
# a delegated call (seven, and two to close), the second for every other move.
_LONG_MOVE: Final = 9
_MOVE: Final = 3

_Move = Callable[[], object]


class RunWriter(PartMoves):
    """Writes a random run. Each move writes events that are legal now."""

    def moves(self) -> list[_Move]:
        """Every legal move that leaves room to close what is open, some of them several times."""
        if self.room() < _MOVE:
            return []
        return [move for task in self.tasks if not task.ended for move in self.moves_of(task)]

    def moves_of(self, task: TaskRecord) -> list[_Move]:
        """Moves that advance the run are listed several times, so they are drawn more often."""
        found: list[_Move] = []

        def offer(weight: int, move: Callable[..., object], *args: Any) -> None:
            found.extend([partial(move, *args)] * weight)

        if not task.begun:
            offer(9, self.begin, task)
            offer(1, self.end, task)
            return found

        for item in task.open_items():
            self.offer_moves_of_item(task, item, offer)
        closed_calls = [
            item
            for item in task.items
            if isinstance(item.value, ToolCall)
            and item.status == "completed"
            and not item.superseded
        ]
        unanswered = [call for call in closed_calls if call.result is None]
        to_start = [
            call
            for call in closed_calls
            if not call.started and (call.result is None or call.result.open)
        ]
        sources = [child for child in task.children if child.known]
        offer(1, self.notice, task)
        offer(2, self.add_item, task)
        if self.room() >= _LONG_MOVE:
            offer(2, self.whole_call, task)
            if len(self.tasks) < self.max_tasks and task.depth < self.max_depth:
                offer(2, self.delegate, task)
        if unanswered:
            offer(4, self.add_result, task, unanswered)
        if to_start:
            offer(2, self.start_call, task, to_start)
        if sources:
            offer(3, self.import_reference, task, sources)
        offer(1, self.progress, task)
        offer(1, self.usage, task)
        offer(1, self.foreign_event, task)
        offer(1, self.start_step, task)
        if task.open_steps:
            offer(2, self.finish_step, task)
        if not task.has_output:
            offer(1, self.structured_output, task)
        offer(1, self.switch, task)
        offer(1, self.compact, task)
        offer(1, self.ask, task)
        if task.pending:
            offer(3, self.answer, task)
        offer(1, self.new_attempt, task)
        if task.depth and self.may_end(task):  # the root ends when the run does, not before
            offer(3, self.end, task)
        return found

    def offer_moves_of_item(
        self, task: TaskRecord, item: ItemRecord, offer: Callable[..., None]
    ) -> None:
        if isinstance(item.value, Reasoning):
            offer(2, self.add_reasoning_part, task, item, "summary")
            offer(2, self.add_reasoning_part, task, item, "reasoning_text")
        elif isinstance(item.value, ToolCall):
            if not item.arguments_done:
                offer(2, self.arguments_delta, task, item)
                offer(1, self.arguments_done, task, item)
        elif isinstance(item.value, (ToolResult, Message)):
            offer(2, self.add_block, task, item)
            offer(2, self.whole_block, task, item)
        open_parts = [part for part in item.parts() if part.open]
        if open_parts:
            offer(9, self.stream, task, item, open_parts)
            offer(2, self.close_part, task, item, open_parts)
        texts = [part for part in open_parts if isinstance(part.value, Text)]
        cited = [part for part in texts if part in item.blocks]
        if cited:
            offer(6, self.annotate, task, item, cited)
        room_for_child = len(self.tasks) < self.max_tasks and task.depth < self.max_depth
        if isinstance(item.value, ToolResult) and room_for_child:
            offer(1, self.add_child, task, item)
        ended = all(child.ended for child in item.children)
        if not open_parts and ended:
            offer(2, self.close_item, task, item)

    # --- the life of a task ---------------------------------------------------------------------

    def create(
        self, parent: TaskRecord | None = None, result: ItemRecord | None = None
    ) -> TaskRecord:
        start = self.pick((1, 1, 1, 4))
        taken = [task.id for task in self.tasks]
        task_id = self.an_id("run_1", lambda _: False)
        call_id = None
        if parent is not None and result is not None:
            assert isinstance(result.value, ToolResult)
            call_id = result.value.call_id
            task_id = f"{call_id}/{len(result.children) + 1}" if result.children else call_id
        assert task_id not in taken
        self.used_ids.add(task_id)
        depth = 0 if parent is None else parent.depth + 1
        task = TaskRecord(id=task_id, depth=depth, known=set(range(1, start)))
        self.emit(
            ev.TaskCreated(
                task_id=task.id,
                agent=self.maybe(values.WORD),
                parent_task_id=None if parent is None else parent.id,
                call_id=call_id,
                thread_id=None if parent else self.maybe(values.TEXT),
                previous_run_id="run_0" if start > 1 and parent is None else None,
                created_at=self.maybe(values.NUMBER),
                model=self.maybe(values.WORD),
                input=self.maybe(values.JSON),
                options=self.maybe(values.JSON),
                metadata=self.maybe(values.JSON),
                reference_start=start,
            ),
            self.maybe(values.SECRETS),
        )
        if parent is not None and result is not None:
            parent.children.append(task)
            result.children.append(task)
        self.tasks.append(task)
        return task

    def begin(self, task: TaskRecord) -> None:
        self.emit(ev.TaskInProgress(task_id=task.id))
        task.begun = True

    def may_end(self, task: TaskRecord) -> bool:
        children = all(child.ended for child in task.children)
        return children and not task.open_items() and not task.open_steps

    def end(self, task: TaskRecord) -> None:
        endings = ["cancelled", "failed"]
        if task.begun and not task.pending:
            endings = ["completed", "completed", "incomplete", *endings]
        ending = self.pick(endings)
        if ending == "completed":
            self.emit(ev.TaskCompleted(task_id=task.id))
        elif ending == "incomplete":
            reason = self.pick(("max_output_tokens", "max_turns"))
            self.emit(ev.TaskIncomplete(task_id=task.id, reason=reason))
        elif ending == "failed":
            self.emit(ev.TaskFailed(task_id=task.id, error=self.draw(values.ERROR)))
        else:
            self.emit(ev.TaskCancelled(task_id=task.id, reason=self.maybe(values.TEXT)))
        task.pending.clear()
        task.ended = True

    def new_attempt(self, task: TaskRecord) -> None:
        closed = [item for item in task.items if not item.open and not item.superseded]
        superseded: list[ItemRecord] = []
        for item in closed:
            if not item.superseded and self.is_lost(item):
                result = item.result if item.result and not item.result.superseded else None
                superseded += [item, result] if result is not None else [item]
                for item in superseded:
                    item.superseded = True
        task.attempt += 1
        self.emit(
            ev.TaskAttempt(
                task_id=task.id,
                attempt=task.attempt,
                reason=self.pick(("worker_lost", "provider_error")),
                superseded=[item.value.id for item in superseded],
            )
        )

    def is_lost(self, item: ItemRecord) -> bool:
        """Mostly what was cut short. A call takes its result along, which must be closed."""
        if item.result is not None and item.result.open:
            return False
        return self.flag() if item.status == "incomplete" else self.pick((False, False, True))

    def ask(self, task: TaskRecord) -> None:
        requests = []
        for _ in range(self.pick((1, 1, 2))):
            self.requests += 1
            kinds: tuple[Literal["approval", "input"], ...] = ("approval", "input")
            requests.append(
                InputRequest(
                    id=f"req_{self.requests}",
                    kind=self.pick(kinds),
                    call_id=self.some_call(task),
                    message=self.maybe(values.TEXT),
                    schema=self.maybe(values.JSON),
                )
            )
        task.pending.extend(request.id for request in requests)
        self.emit(ev.TaskInputRequired(task_id=task.id, requests=requests))

    def answer(self, task: TaskRecord) -> None:
        request_id = self.pick(task.pending)
        task.pending.remove(request_id)
        self.emit(
            ev.TaskInputReceived(
                task_id=task.id,
                request_id=request_id,
                approved=self.maybe(st.booleans()),
                value=self.maybe(values.JSON),
                reason=self.maybe(values.TEXT),
            )
        )

    def usage(self, task: TaskRecord) -> None:
        item_id = self.pick(task.items).value.id if task.items else None
        event = ev.TaskUsage(task_id=task.id, usage=self.draw(values.USAGE), item_id=item_id)
        self.emit(event, self.maybe(values.PROVIDER))

    def structured_output(self, task: TaskRecord) -> None:
        task.has_output = True
        value, name = self.draw(values.JSON), self.maybe(values.WORD)
        self.emit(ev.StructuredOutputDone(task_id=task.id, value=value, name=name))

    def switch(self, task: TaskRecord) -> None:
        task.switches += 1
        agent = f"{self.draw(values.WORD)}/{task.switches}"
        reason = self.maybe(values.TEXT)
        self.emit(ev.AgentSwitched(task_id=task.id, agent=agent, reason=reason))

    def compact(self, task: TaskRecord) -> None:
        summary, run_id = self.text(), self.draw(values.WORD)
        self.emit(ev.HistoryCompacted(task_id=task.id, summary=summary, run_id=run_id))

    def start_step(self, task: TaskRecord) -> None:
        name = self.draw(values.WORD)
        self.emit(ev.StepStarted(task_id=task.id, step_index=task.steps, name=name))
        task.open_steps.append(task.steps)
        task.steps += 1

    def finish_step(self, task: TaskRecord) -> None:
        status: StepEnd = "incomplete" if self.flag() else "completed"
        index = task.open_steps.pop()
        self.emit(ev.StepFinished(task_id=task.id, step_index=index, status=status))

    def some_call(self, task: TaskRecord) -> str | None:
        """A call of this task, a call of another task, or None."""
        calls = [item.value.call_id for item in task.items if isinstance(item.value, ToolCall)]
        return self.pick([None, *calls, "call_of_another_task"])

    def notice(self, task: TaskRecord) -> None:
        self.emit(
            ev.Notice(
                task_id=task.id,
                message=self.text(),
                level=self.pick(("info", "warning", "error")),
                call_id=self.some_call(task),
                data=self.maybe(values.JSON),
            )
        )

    def progress(self, task: TaskRecord) -> None:
        self.emit(
            ev.Progress(
                task_id=task.id,
                call_id=self.some_call(task),
                message=self.maybe(values.TEXT),
                current=self.maybe(values.NUMBER),
                total=self.maybe(values.NUMBER),
            )
        )

    def import_reference(self, task: TaskRecord, sources: list[TaskRecord]) -> None:
        source = self.pick(sources)
        number = max(task.known, default=0) + self.pick((1, 1, 2))
        self.emit(
            ev.ReferenceImported(
                task_id=task.id,
                reference_id=number,
                source_task_id=source.id,
                source_reference_id=self.pick(sorted(source.known)),
            )
        )
        task.known.add(number)

    def foreign_event(self, task: TaskRecord) -> None:
        event = ev.RawEvent(
            task_id=task.id, source="openai_responses", event_type="response.hologram.delta"
        )
        self.emit(event, self.maybe(values.PROVIDER))

    # --- items ----------------------------------------------------------------------------------

    def next_item_id(self, task: TaskRecord, prefix: str) -> str:
        taken = {item.value.id for item in task.items}
        return self.an_id(f"{prefix}_{len(task.items)}", lambda wanted: wanted in taken)

    def add(self, task: TaskRecord, value: Item) -> ItemRecord:
        item = ItemRecord(value=value, index=len(task.items))
        event = ev.OutputItemAdded(task_id=task.id, output_index=item.index, item=value)
        self.emit(event, self.maybe(values.PROVIDER))
        task.items.append(item)
        return item

    def empty_list(self) -> list[Any] | None:
        """An empty list may be sent or left out."""
        return self.pick((None, []))

    def add_item(self, task: TaskRecord) -> None:
        kind = self.pick(("message", "reasoning", "tool_call", "raw"))
        if kind == "message":
            self.add_message(task)
        elif kind == "reasoning":
            value = Reasoning(id=self.next_item_id(task, "rs"), summary=self.empty_list())
            self.add(task, value)
        elif kind == "tool_call":
            self.add_call(task)
        else:
            item_id = self.next_item_id(task, "raw")
            source = self.maybe(st.just("openai_responses"))
            self.add(task, RawItem(id=item_id, raw=self.draw(values.JSON), source=source))

    def add_message(self, task: TaskRecord) -> None:
        value = Message(
            id=self.next_item_id(task, "msg"),
            role=self.pick(("assistant", "assistant", "developer")),
            block_list=self.empty_list(),
            phase=self.pick((None, None, "commentary")),
        )
        self.add(task, value)

    def add_call(self, task: TaskRecord) -> ItemRecord:
        self.calls += 1
        call_id = self.an_id(f"call_{self.calls}", lambda wanted: wanted in self.used_ids)
        self.used_ids.add(call_id)
        kinds: tuple[tuple[str, Executor, str | None], ...] = (
            ("function", "server", None),
            ("function", "client", None),
            ("web_search", "provider", None),
            ("mcp", "provider", "maps"),
        )
        kind, executor, server_label = self.pick(kinds)
        value = ToolCall(
            id=self.next_item_id(task, "fc"),
            call_id=call_id,
            name=self.draw(values.WORD),
            arguments=self.pick((None, "")),
            kind=kind,
            executor=executor,
            server_label=server_label,
            needs_approval=executor == "server" and self.draw(st.booleans()),
        )
        call = self.add(task, value)
        call.to_come = self.draw(values.ARGUMENTS)
        return call

    def whole_call(self, task: TaskRecord) -> None:
        """A call from beginning to end: without it few runs would get as far as a result."""
        call = self.add_call(task)
        self.arguments_done(task, call)
        self.finish_item(task, call, "completed")

    def add_result(self, task: TaskRecord, unanswered: list[ItemRecord]) -> ItemRecord:
        call = self.pick(unanswered)
        assert isinstance(call.value, ToolCall)
        value = ToolResult(
            id=self.next_item_id(task, "fco"),
            call_id=call.value.call_id,
            block_list=self.empty_list(),
        )
        result = self.add(task, value)
        call.result, result.call = result, call
        return result

    def start_call(self, task: TaskRecord, calls: list[ItemRecord]) -> None:
        call = self.pick(calls)
        call.started = True
        event = ev.ToolCallStarted(task_id=task.id, item_id=call.value.id, output_index=call.index)
        self.emit(event)

    def delegate(self, task: TaskRecord) -> None:
        """A call that an agent answers, up to the child's first event."""
        call = self.add_call(task)
        self.arguments_done(task, call)
        self.finish_item(task, call, "completed")
        self.begin(self.create(task, self.add_result(task, [call])))

    def add_child(self, task: TaskRecord, result: ItemRecord) -> None:
        self.create(task, result)

    def close_item(self, task: TaskRecord, item: ItemRecord) -> None:
        statuses: list[Status] = ["completed", "completed", "incomplete"]
        if isinstance(item.value, ToolResult):
            statuses.append("failed")
        if isinstance(item.value, ToolCall) and not item.arguments_done:
            statuses = ["incomplete"]
        self.finish_item(task, item, self.pick(statuses))

    def finish_item(self, task: TaskRecord, item: ItemRecord, status: Status) -> None:
        """`done`: each list as the events made it, or left out."""

        def finals(parts: list[PartRecord]) -> list[Any] | None:
            return [part.value for part in parts] if self.flag() else None

        changes: dict[str, Any] = {"status": status}
        private = self.maybe(values.PROVIDER)
        if isinstance(item.value, Reasoning):
            changes["summary"] = finals(item.summary)
            changes["reasoning_text"] = finals(item.reasoning_text)
        elif isinstance(item.value, ToolCall):
            changes["arguments"] = item.arguments if self.flag() else None
        elif isinstance(item.value, (ToolResult, Message)):
            changes["block_list"] = None if item.children else finals(item.blocks)
            if self.flag():
                number = self.a_number(task)
                content = self.draw(values.content(st.just(number)))
                private = msgspec.structs.replace(private or Private(), content=content)
                if any(part.id == number for part in content):
                    task.known.add(number)
        if status == "failed":
            changes["error"] = self.draw(values.ERROR)
        done = msgspec.structs.replace(item.value, **changes)
        event = ev.OutputItemDone(task_id=task.id, output_index=item.index, item=done)
        self.emit(event, private)
        item.open, item.status = False, status

    # --- the end --------------------------------------------------------------------------------

    def close_everything(self) -> None:
        """End all tasks, the youngest first, so that children end before their parents."""
        for task in reversed(self.tasks):
            if task.ended:
                continue
            for item in task.open_items():
                for part in item.parts():
                    if part.open:
                        self.close_part(task, item, [part])
                self.close_item(task, item)
            while task.open_steps:
                self.finish_step(task)
            self.end(task)
