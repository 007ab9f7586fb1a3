"""A small writer that knows what is open in a run and picks its next legal move.

It keeps its own books instead of asking the fold whether a move is legal: a strategy that shared
its rules with the code under test would share its mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeVar

import msgspec
from hypothesis import strategies as st

from tailrace.core import events as ev
from tailrace.core.events import Event, Private, recorded
from tailrace.core.items import (
    Annotation,
    Block,
    Data,
    Executor,
    File,
    FileCitation,
    Image,
    ImageUrl,
    InputRequest,
    Item,
    Message,
    RawAnnotation,
    RawItem,
    Reasoning,
    ReferenceToBlock,
    Refusal,
    Status,
    Text,
    ToolCall,
    ToolResult,
    UrlCitation,
)
from tailrace.testing import _values as values

Run = list[tuple[Event, Private | None]]
"""Recorded events, numbered from 1, each with its private part if it has one."""

T = TypeVar("T")

# How many events a move writes at most, with those that close what it leaves open: a delegated call
# (seven, and two to close), and every other move.
_LONG_MOVE: Final = 9
_MOVE: Final = 3


class Draw(Protocol):
    """Hypothesis's `draw`: a value out of a strategy."""

    def __call__(self, strategy: st.SearchStrategy[T]) -> T: ...


@dataclass(eq=False)
class _Part:
    """A block, or a text of a reasoning."""

    value: Block
    index: int
    open: bool
    partial_images: int = 0


@dataclass(eq=False)
class _Item:
    """An item as it was added; `value` never changes, the parts beside it do."""

    value: Item
    index: int
    open: bool = True
    status: Status = "in_progress"
    superseded: bool = False
    summary: list[_Part] = field(default_factory=list)
    reasoning_text: list[_Part] = field(default_factory=list)
    blocks: list[_Part] = field(default_factory=list)
    # of a tool_call
    arguments: str = ""
    to_come: str = ""
    arguments_done: bool = False
    started: bool = False
    result: _Item | None = None
    # of a tool_result
    call: _Item | None = None
    children: list[_Task] = field(default_factory=list)

    def parts(self) -> list[_Part]:
        return [*self.summary, *self.reasoning_text, *self.blocks]


@dataclass(eq=False)
class _Task:
    """What a writer has to remember of one task."""

    id: str
    depth: int
    known: set[int]  # the numbers that it may cite
    begun: bool = False
    ended: bool = False
    items: list[_Item] = field(default_factory=list)
    children: list[_Task] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    open_steps: list[int] = field(default_factory=list)
    steps: int = 0
    attempt: int = 1
    has_output: bool = False

    def open_items(self) -> list[_Item]:
        return [item for item in self.items if item.open]

    def to_close(self) -> int:
        """How many events it takes, at least, to end this task."""
        if self.ended:
            return 0
        parts = sum(part.open for item in self.items for part in item.parts())
        return parts + len(self.open_items()) + len(self.open_steps) + 1


_Move = Callable[[], object]


class Writer:
    """One run in the making. Every method that is a move writes events that are legal now."""

    def __init__(self, draw: Draw, *, max_events: int, max_tasks: int, max_depth: int) -> None:
        self.draw = draw
        self.max_events = max_events
        self.max_tasks = max_tasks
        self.max_depth = max_depth
        self.run: Run = []
        self.tasks: list[_Task] = []
        self.calls = 0
        self.requests = 0
        self.used_ids: set[str] = set()

    # --- drawing --------------------------------------------------------------------------------

    def pick(self, choices: Sequence[T]) -> T:
        return choices[0] if len(choices) == 1 else self.draw(st.sampled_from(choices))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def text(self) -> str:
        return self.draw(values.TEXT)

    def maybe(self, strategy: st.SearchStrategy[T]) -> T | None:
        return self.draw(strategy) if self.flag() else None

    def an_id(self, plain: str, taken: Callable[[str], bool]) -> str:
        """Mostly `plain`, and now and then an odd one."""
        odd = self.draw(st.sampled_from(("",) * 12 + values.ODD_IDS))
        return odd if odd and not taken(odd) else plain

    # --- the books ------------------------------------------------------------------------------

    def emit(self, event: Event, private: Private | None = None) -> None:
        if private == Private():
            private = None
        self.run.append((recorded(event, len(self.run) + 1), private))

    def room(self) -> int:
        """How many more events fit, once everything that is open has been closed."""
        return self.max_events - len(self.run) - sum(task.to_close() for task in self.tasks)

    def moves(self) -> list[_Move]:
        """Every legal move that leaves room to close what is open, some of them several times."""
        if self.room() < _MOVE:
            return []
        return [move for task in self.tasks if not task.ended for move in self.moves_of(task)]

    def moves_of(self, task: _Task) -> list[_Move]:
        """What drives a run forward stands here several times, and so is drawn more often."""
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
            if isinstance(item.value, ToolCall) and item.status == "completed"
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
        offer(1, self.ask, task)
        if task.pending:
            offer(3, self.answer, task)
        offer(1, self.new_attempt, task)
        if task.depth and self.may_end(task):  # the root ends when the run does, not before
            offer(3, self.end, task)
        return found

    def offer_moves_of_item(self, task: _Task, item: _Item, offer: Callable[..., None]) -> None:
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

    def create(self, parent: _Task | None = None, result: _Item | None = None) -> _Task:
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
        task = _Task(id=task_id, depth=depth, known=set(range(1, start)))
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

    def begin(self, task: _Task) -> None:
        self.emit(ev.TaskInProgress(task_id=task.id))
        task.begun = True

    def may_end(self, task: _Task) -> bool:
        children = all(child.ended for child in task.children)
        return children and not task.open_items() and not task.open_steps

    def end(self, task: _Task) -> None:
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

    def new_attempt(self, task: _Task) -> None:
        cut = [item for item in task.items if item.status == "incomplete" and not item.superseded]
        superseded = [item for item in cut if self.flag()]
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

    def ask(self, task: _Task) -> None:
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

    def answer(self, task: _Task) -> None:
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

    def usage(self, task: _Task) -> None:
        item_id = self.pick(task.items).value.id if task.items else None
        event = ev.TaskUsage(task_id=task.id, usage=self.draw(values.USAGE), item_id=item_id)
        self.emit(event, self.maybe(values.PROVIDER))

    def structured_output(self, task: _Task) -> None:
        task.has_output = True
        value, name = self.draw(values.JSON), self.maybe(values.WORD)
        self.emit(ev.StructuredOutputDone(task_id=task.id, value=value, name=name))

    def start_step(self, task: _Task) -> None:
        name = self.draw(values.WORD)
        self.emit(ev.StepStarted(task_id=task.id, step_index=task.steps, name=name))
        task.open_steps.append(task.steps)
        task.steps += 1

    def finish_step(self, task: _Task) -> None:
        self.emit(ev.StepFinished(task_id=task.id, step_index=task.open_steps.pop()))

    def some_call(self, task: _Task) -> str | None:
        """A call of this task, or of another one, or none at all."""
        calls = [item.value.call_id for item in task.items if isinstance(item.value, ToolCall)]
        return self.pick([None, *calls, "call_of_another_task"])

    def notice(self, task: _Task) -> None:
        self.emit(
            ev.Notice(
                task_id=task.id,
                message=self.text(),
                level=self.pick(("info", "warning", "error")),
                call_id=self.some_call(task),
                data=self.maybe(values.JSON),
            )
        )

    def progress(self, task: _Task) -> None:
        self.emit(
            ev.Progress(
                task_id=task.id,
                call_id=self.some_call(task),
                message=self.maybe(values.TEXT),
                current=self.maybe(values.NUMBER),
                total=self.maybe(values.NUMBER),
            )
        )

    def import_reference(self, task: _Task, sources: list[_Task]) -> None:
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

    def foreign_event(self, task: _Task) -> None:
        event = ev.RawEvent(
            task_id=task.id, source="openai_responses", event_type="response.hologram.delta"
        )
        self.emit(event, self.maybe(values.PROVIDER))

    # --- items ----------------------------------------------------------------------------------

    def next_item_id(self, task: _Task, prefix: str) -> str:
        taken = {item.value.id for item in task.items}
        return self.an_id(f"{prefix}_{len(task.items)}", lambda wanted: wanted in taken)

    def add(self, task: _Task, value: Item) -> _Item:
        item = _Item(value=value, index=len(task.items))
        event = ev.OutputItemAdded(task_id=task.id, output_index=item.index, item=value)
        self.emit(event, self.maybe(values.PROVIDER))
        task.items.append(item)
        return item

    def empty_list(self) -> list[Any] | None:
        """An empty list may be sent or left out."""
        return self.pick((None, []))

    def add_item(self, task: _Task) -> None:
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

    def add_message(self, task: _Task) -> None:
        value = Message(
            id=self.next_item_id(task, "msg"),
            role=self.pick(("assistant", "assistant", "developer")),
            block_list=self.empty_list(),
            phase=self.pick((None, None, "commentary")),
        )
        self.add(task, value)

    def add_call(self, task: _Task) -> _Item:
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
        )
        call = self.add(task, value)
        call.to_come = self.draw(values.ARGUMENTS)
        return call

    def whole_call(self, task: _Task) -> None:
        """A call from beginning to end: without it few runs would get as far as a result."""
        call = self.add_call(task)
        self.arguments_done(task, call)
        self.finish_item(task, call, "completed")

    def add_result(self, task: _Task, unanswered: list[_Item]) -> _Item:
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

    def start_call(self, task: _Task, calls: list[_Item]) -> None:
        call = self.pick(calls)
        call.started = True
        event = ev.ToolCallStarted(task_id=task.id, item_id=call.value.id, output_index=call.index)
        self.emit(event)

    def delegate(self, task: _Task) -> None:
        """A call that an agent answers, up to the child's first event."""
        call = self.add_call(task)
        self.arguments_done(task, call)
        self.finish_item(task, call, "completed")
        self.begin(self.create(task, self.add_result(task, [call])))

    def add_child(self, task: _Task, result: _Item) -> None:
        self.create(task, result)

    def close_item(self, task: _Task, item: _Item) -> None:
        statuses: list[Status] = ["completed", "completed", "incomplete"]
        if isinstance(item.value, ToolResult):
            statuses.append("failed")
        if isinstance(item.value, ToolCall) and not item.arguments_done:
            statuses = ["incomplete"]
        self.finish_item(task, item, self.pick(statuses))

    def finish_item(self, task: _Task, item: _Item, status: Status) -> None:
        """`done`: each list as the events made it, or left out."""

        def told(parts: list[_Part]) -> list[Any] | None:
            return [part.value for part in parts] if self.flag() else None

        changes: dict[str, Any] = {"status": status}
        private = self.maybe(values.PROVIDER)
        if isinstance(item.value, Reasoning):
            changes["summary"] = told(item.summary)
            changes["reasoning_text"] = told(item.reasoning_text)
        elif isinstance(item.value, ToolCall):
            changes["arguments"] = item.arguments if self.flag() else None
        elif isinstance(item.value, (ToolResult, Message)):
            changes["block_list"] = None if item.children else told(item.blocks)
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

    # --- parts ----------------------------------------------------------------------------------

    def place(self, task: _Task, item: _Item) -> dict[str, Any]:
        return {"task_id": task.id, "item_id": item.value.id, "output_index": item.index}

    def add_reasoning_part(
        self, task: _Task, item: _Item, name: Literal["summary", "reasoning_text"]
    ) -> None:
        parts = item.summary if name == "summary" else item.reasoning_text
        whole = self.pick((False, False, True))
        text = Text(text=self.text() if whole else "")
        part = _Part(text, len(parts), open=not whole)
        parts.append(part)
        where = self.place(task, item)
        if whole:
            self.emit_done(task, item, part)
        elif name == "summary":
            self.emit(ev.SummaryItemAdded(**where, summary_index=part.index, item=text))
        else:
            self.emit(ev.ReasoningTextAdded(**where, text_index=part.index, item=text))

    def arguments_delta(self, task: _Task, item: _Item) -> None:
        cut = self.draw(st.integers(0, len(item.to_come)))
        delta, item.to_come = item.to_come[:cut], item.to_come[cut:]
        item.arguments += delta
        self.emit(ev.ArgumentsDelta(**self.place(task, item), delta=delta))

    def arguments_done(self, task: _Task, item: _Item) -> None:
        if item.to_come:
            item.arguments += item.to_come
            self.emit(ev.ArgumentsDelta(**self.place(task, item), delta=item.to_come))
            item.to_come = ""
        item.arguments_done = True
        self.emit(ev.ArgumentsDone(**self.place(task, item), arguments=item.arguments))

    def a_number(self, task: _Task) -> int:
        """A number for a reference: the next one, or one that equal content has already."""
        return self.pick([max(task.known, default=0) + 1, *sorted(task.known)[-2:]])

    def block_id(self, task: _Task, item: _Item) -> int | None:
        """Only blocks of a result are references."""
        if not isinstance(item.value, ToolResult) or not self.flag():
            return None
        number = self.a_number(task)
        task.known.add(number)
        return number

    def add_block(self, task: _Task, item: _Item) -> None:
        """A block that streams."""
        kind = self.pick(("text", "text", "image", "refusal"))
        place = {**self.place(task, item), "block_index": len(item.blocks)}
        block: Block
        if kind == "text":
            block = Text(text="", id=self.block_id(task, item))
            self.emit(ev.TextAdded(**place, item=block))
        elif kind == "image":
            url = self.draw(st.just(ImageUrl(url="")) | values.IMAGE_URL)
            block = Image(image_url=url, id=self.block_id(task, item))
            self.emit(ev.ImageAdded(**place, item=block))
        else:
            block = Refusal(refusal="")
            self.emit(ev.RefusalAdded(**place, item=block))
        item.blocks.append(_Part(block, len(item.blocks), open=True))

    def whole_block(self, task: _Task, item: _Item) -> None:
        """A block that comes as its `done` alone."""
        kind = self.pick(("text", "image", "refusal", "data", "file"))
        citable = sorted(task.known)[-3:]  # not its own number: nobody has seen that yet
        number = None if kind == "refusal" else self.block_id(task, item)
        block: Block
        if kind == "text":
            block = Text(text=self.text(), id=number)
            if citable and self.flag():
                block, _deltas = self.with_citation(block, self.pick(citable))
        elif kind == "image":
            block = Image(image_url=self.draw(values.IMAGE_URL), id=number)
        elif kind == "refusal":
            block = Refusal(refusal=self.text())
        elif kind == "data":
            name = self.maybe(values.WORD)
            block = Data(data=self.draw(values.JSON), name=name, id=number)
        else:
            block = File(
                url="/blobs/9a",
                mime_type=self.pick(("application/octet-stream", "application/pdf")),
                name=self.maybe(values.TEXT),
                size=self.maybe(st.integers(0, 2**53 - 1)),
                sha256=self.maybe(st.just("9a" * 32)),
                bucket=self.maybe(values.WORD),
                path=self.maybe(values.TEXT),
                id=number,
            )
        part = _Part(block, len(item.blocks), open=False)
        item.blocks.append(part)
        self.emit_done(task, item, part)

    def emit_done(self, task: _Task, item: _Item, part: _Part) -> None:
        """The part's `done`, whole; which event that is follows from the part's list and type."""
        place = self.place(task, item)
        value = part.value
        if part in item.summary:
            assert isinstance(value, Text)
            self.emit(ev.SummaryItemDone(**place, summary_index=part.index, item=value))
        elif part in item.reasoning_text:
            assert isinstance(value, Text)
            self.emit(ev.ReasoningTextDone(**place, text_index=part.index, item=value))
        elif isinstance(value, Text):
            self.emit(ev.TextDone(**place, block_index=part.index, item=value))
        elif isinstance(value, Image):
            self.emit(ev.ImageDone(**place, block_index=part.index, item=value))
        elif isinstance(value, Refusal):
            self.emit(ev.RefusalDone(**place, block_index=part.index, item=value))
        elif isinstance(value, Data):
            self.emit(ev.DataDone(**place, block_index=part.index, item=value))
        else:
            self.emit(ev.FileDone(**place, block_index=part.index, item=value))

    def close_part(self, task: _Task, item: _Item, parts: list[_Part]) -> None:
        part = self.pick(parts)
        part.open = False
        if isinstance(part.value, Image) and self.flag():
            url = self.draw(values.IMAGE_URL)
            part.value = msgspec.structs.replace(part.value, image_url=url)
        self.emit_done(task, item, part)

    def stream(self, task: _Task, item: _Item, parts: list[_Part]) -> None:
        """One more piece of an open part."""
        part = self.pick(parts)
        if isinstance(part.value, Image):
            url = self.draw(values.IMAGE_URL)
            part.value = msgspec.structs.replace(part.value, image_url=url)
            self.emit(
                ev.ImageDelta(
                    **self.place(task, item),
                    block_index=part.index,
                    partial_image_index=part.partial_images,
                    item=part.value,
                )
            )
            part.partial_images += 1
        else:
            self.append(task, item, part, self.text())

    def append(self, task: _Task, item: _Item, part: _Part, delta: str) -> None:
        place = self.place(task, item)
        if isinstance(part.value, Refusal):
            refusal = part.value.refusal + delta
            part.value = msgspec.structs.replace(part.value, refusal=refusal)
            self.emit(ev.RefusalDelta(**place, block_index=part.index, delta=delta))
            return
        assert isinstance(part.value, Text)
        part.value = msgspec.structs.replace(part.value, text=part.value.text + delta)
        if part in item.summary:
            self.emit(ev.SummaryTextDelta(**place, summary_index=part.index, delta=delta))
        elif part in item.reasoning_text:
            self.emit(ev.ReasoningTextDelta(**place, text_index=part.index, delta=delta))
        else:
            self.emit(ev.TextDelta(**place, block_index=part.index, delta=delta))

    # --- citations ------------------------------------------------------------------------------

    def with_citation(self, text: Text, number: int) -> tuple[Text, list[str]]:
        """The text with a marker at its end and the annotation on it; the marker, cut in deltas."""
        marker = f"[^{number}]"
        start = len(text.text)  # Python counts code points, and so does the protocol
        annotation = ReferenceToBlock(
            reference_id=number, start_index=start, end_index=start + len(marker)
        )
        cut = self.draw(st.integers(0, len(marker) - 1))
        cited = msgspec.structs.replace(
            text, text=text.text + marker, annotations=[*text.annotations, annotation]
        )
        return cited, [piece for piece in (marker[:cut], marker[cut:]) if piece]

    def annotate(self, task: _Task, item: _Item, parts: list[_Part]) -> None:
        """A citation while the text streams: of a reference, or one that the provider made."""
        part = self.pick(parts)
        text = part.value
        assert isinstance(text, Text)
        to_cite = bool(task.known) and self.pick((True, True, False))
        if to_cite:
            number = self.pick(sorted(task.known)[-3:])
            cited, deltas = self.with_citation(text, number)
            for delta in deltas:
                self.append(task, item, part, delta)
            annotation: Annotation = cited.annotations[-1]
        elif text.text:
            annotation = self.foreign_annotation(len(text.text))
        else:
            annotation = RawAnnotation(raw=self.draw(values.JSON))
        self.emit(
            ev.AnnotationAdded(
                **self.place(task, item),
                block_index=part.index,
                annotation_index=len(text.annotations),
                annotation=annotation,
            )
        )
        assert isinstance(part.value, Text)
        annotations = [*text.annotations, annotation]
        part.value = msgspec.structs.replace(part.value, annotations=annotations)

    def foreign_annotation(self, length: int) -> Annotation:
        start = self.draw(st.integers(0, length - 1))
        end = self.draw(st.integers(start + 1, length))
        if self.flag():
            title = self.text()
            return UrlCitation(
                url="https://example.org/", start_index=start, end_index=end, title=title
            )
        ranged = self.flag()
        return FileCitation(
            file_id="file_1",
            filename=self.pick(("", "notes.md")),
            index=self.maybe(st.integers(0, 9)),
            container_id=self.pick((None, "cntr_1")),
            start_index=start if ranged else None,
            end_index=end if ranged else None,
        )

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
