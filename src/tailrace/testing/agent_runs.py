"""Run an agent in a test, and look at what it did.

    tested = await run_agent(weather, "Is it sunny?", model=Scripted([say("Yes.")]))
    tested.assert_called("get_weather", city="Paris")
    assert tested.result.text == "Yes."

The run is a real run, in a database in memory. `read_run` reads a run that `tailrace export` wrote,
for the same assertions; `replay_run` is an agent that repeats its events.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from tailrace.app import Tailrace
from tailrace.core.codec import decode_event, encode_event
from tailrace.core.errors import CallerError, TailraceError
from tailrace.core.events import (
    AnyEvent,
    Event,
    TaskCreated,
    TaskInProgress,
    TaskInputRequired,
    Unknown,
)
from tailrace.core.fold import State
from tailrace.core.items import (
    FileCitation,
    InputRequest,
    Message,
    ReferenceToBlock,
    ToolCall,
    UrlCitation,
)
from tailrace.core.run_object import show_block
from tailrace.core.state import ItemNode, TaskNode, TextNode
from tailrace.core.tool_arguments import arguments_value
from tailrace.core.values import json_text
from tailrace.ports import Model
from tailrace.runtime.agents.agent import Agent
from tailrace.runtime.agents.functions import AgentFunction, unknown_agent
from tailrace.runtime.runs.run import Result, Run, answer_text
from tailrace.runtime.tasks.task import Answer, Task

RUN_SECONDS = 60.0

Answers = Callable[[InputRequest], Any]
"""Answers a question of the run: True or False to an approval, any value to a question."""


class CalledTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call of a run, with its result."""

    name: str
    arguments: Any
    """The arguments, read from JSON; the text itself if it is no JSON."""
    result: str
    """The text of the result, or a sub-agent's answer; empty if there is no result."""
    failed: bool
    agent: str
    """The agent that made the call: the run's agent or a sub-agent."""


class CitedSource(msgspec.Struct, frozen=True, kw_only=True):
    """A citation in a message, with the source that it names."""

    text: str
    """The text of the cited block; the title of a web page; the name of a file."""
    url: str = ""
    reference_id: int | None = None
    agent: str = ""
    """The agent that wrote the message."""


class AgentRun:
    """A run that has ended: its `result`, its `events`, and what happened in it."""

    def __init__(self, events: Iterable[AnyEvent], result: Result | None = None) -> None:
        self.events = list(events)
        self.state = State()
        for event in self.events:
            self.state.absorb(event)
        if self.state.root is None:
            raise CallerError("A run has at least one event; there are none.")
        self.result = result or Result(self.state)

    def __repr__(self) -> str:
        """The number of events and the result, for people."""
        return f"AgentRun({len(self.events)} events, {self.result!r})"

    # --- what happened -------------------------------------------------------------------------

    @property
    def calls(self) -> list[CalledTool]:
        """The tool calls of the run and its sub-agents, in their order."""
        found = [
            (node.at, _called(task, node, node.item))
            for task in self.state.tasks.values()
            for node in task.output()
            if isinstance(node.item, ToolCall)
        ]
        return [call for _, call in sorted(found, key=lambda entry: entry[0])]

    @property
    def citations(self) -> list[CitedSource]:
        """The citations in the messages of the run and its sub-agents."""
        return [
            self._cited(task, annotation)
            for task in self.state.tasks.values()
            for node in task.output()
            if isinstance(node.item, Message)
            for _, part in sorted(node.parts.items())
            if isinstance(part, TextNode)
            for annotation in part.annotations
        ]

    @property
    def cost(self) -> float | None:
        """The cost of all model calls in US dollars; None if it is not known."""
        return self.result.usage.cost

    # --- assertions ----------------------------------------------------------------------------

    def assert_called(self, name: str, /, **arguments: Any) -> CalledTool:
        """Assert that a tool was called, with at least these arguments; returns the first call."""
        __tracebackhide__ = True
        named = [call for call in self.calls if call.name == name]
        for call in named:
            if arguments.items() <= _fields(call.arguments):
                return call
        if not named:
            raise AssertionError(f"Tool {name!r} was not called. Calls: {_names(self.calls)}.")
        shown = "; ".join(json_text(call.arguments) for call in named)
        wanted = json_text(arguments)
        raise AssertionError(f"Tool {name!r} was not called with {wanted}, but with {shown}.")

    def assert_not_called(self, name: str) -> None:
        """Assert that a tool was not called."""
        __tracebackhide__ = True
        for call in self.calls:
            if call.name == name:
                shown = json_text(call.arguments)
                raise AssertionError(f"Tool {name!r} was called with {shown}.")

    def assert_cited(self, text: str) -> CitedSource:
        """Assert that a message cites a source with this text or URL; returns the citation."""
        __tracebackhide__ = True
        found = self.citations
        for citation in found:
            if text in citation.text or (citation.url and text in citation.url):
                return citation
        shown = "; ".join(f"{(source.text or source.url)[:80]!r}" for source in found) or "none"
        raise AssertionError(f"No message cites {text!r}. Cited sources: {shown}.")

    def assert_cost(self, *, at_most: float) -> None:
        """Assert that the model calls cost no more than this, in US dollars."""
        __tracebackhide__ = True
        cost = self.cost
        if cost is None:
            raise AssertionError(
                "The cost of the run is not known: the model has no price. Pass `prices` to it."
            )
        if cost > at_most:
            raise AssertionError(f"The run cost ${cost:.6f}, more than ${at_most:.6f}.")

    def _cited(self, task: TaskNode, annotation: Any) -> CitedSource:
        agent = str(task.speaker or "")
        if isinstance(annotation, ReferenceToBlock):
            number = annotation.reference_id
            text = self._source(task, number)
            return CitedSource(text=text, reference_id=number, agent=agent)
        if isinstance(annotation, UrlCitation):
            return CitedSource(text=annotation.title, url=annotation.url, agent=agent)
        if isinstance(annotation, FileCitation):
            return CitedSource(text=annotation.filename or annotation.file_id, agent=agent)
        return CitedSource(text=json_text(annotation), agent=agent)

    def _source(self, task: TaskNode, number: int) -> str:
        """The text of the blocks with a number; it may have come from a sub-agent."""
        while number in task.imports:
            source, number = task.imports[number]
            task = self.state.tasks[source]
        texts = [
            _block_text(block)
            for node in task.output()
            for _, part in sorted(node.parts.items())
            if (block := show_block(part)).get("id") == number
        ]
        # Results with the same content have the same number.
        return "\n".join(dict.fromkeys(text for text in texts if text))


def _called(task: TaskNode, node: ItemNode, item: ToolCall) -> CalledTool:
    written = node.arguments_text
    arguments = arguments_value(written, written)
    result = task.call_results.get(item.call_id)
    parts = sorted(result.parts.items()) if result is not None else []
    texts = [_block_text(show_block(part)) for _, part in parts]
    texts += [answer_text(child) for child in task.children if child.call_id == item.call_id]
    error = getattr(result.item, "error", None) if result is not None else None
    return CalledTool(
        name=item.name,
        arguments=arguments,
        result="\n".join(text for text in texts if text) or (error.message if error else ""),
        failed=error is not None,
        agent=str(task.speaker or ""),
    )


def _block_text(block: dict[str, Any]) -> str:
    if "data" in block:
        return json_text(block["data"])
    return str(block.get("text", ""))


def _fields(arguments: Any) -> Any:
    return arguments.items() if isinstance(arguments, dict) else {}.items()


def _names(calls: list[CalledTool]) -> str:
    return ", ".join(call.name for call in calls) or "none"


# --- run an agent --------------------------------------------------------------------------------


async def run_agent(
    agent: AgentFunction,
    input: Any = None,
    *,
    model: Model | Mapping[str, Model] | None = None,
    answer: Answers | Any = msgspec.UNSET,
    options: Any = None,
    timeout: float = RUN_SECONDS,  # noqa: ASYNC109
) -> AgentRun:
    """Run an agent to its end, in a database in memory.

    `model` is used in place of the agent's own; a mapping names the models of sub-agents too.
    `answer` answers the questions of the run: a value, or a function of the `InputRequest`.
    A run that takes longer than `timeout` seconds is stopped with `TimeoutError`.
    """
    async with application_of(agent, model) as app:
        run = await app.start(next(iter(app.agents)), input, options=options)
        return await finished(run, answer, timeout)


@contextmanager
def _models(agent: AgentFunction, model: Model | Mapping[str, Model] | None) -> Iterator[None]:
    """Use other models for an agent and those that it may ask."""
    if model is None:
        yield
        return
    if not isinstance(agent, Agent):
        raise CallerError(f"`model` is for an `Agent`; {agent!r} chooses its model itself.")
    models = model if isinstance(model, Mapping) else {agent.name: model}
    family = {member.name: member for member in agent._family()}
    if unknown := sorted(set(models) - set(family)):
        raise CallerError(unknown_agent(unknown[0], family), param="model")
    before = {name: family[name]._opened for name in models}
    try:
        for name, value in models.items():
            family[name]._opened = value
        yield
    finally:
        for name, opened in before.items():
            family[name]._opened = opened


@asynccontextmanager
async def application_of(
    agent: AgentFunction, model: Model | Mapping[str, Model] | None
) -> AsyncIterator[Tailrace]:
    """An application with one agent and a database in memory."""
    with _models(agent, model):
        app = Tailrace([agent], "sqlite://:memory:", inspector=False, grace=timedelta(0))
        async with app.running():
            yield app


async def finished(run: Run, answer: Answers | Any, seconds: float) -> AgentRun:
    """Follow a run to its end, and answer its questions."""
    events: list[AnyEvent] = []
    try:
        async with asyncio.timeout(seconds):
            async for event in run.events():
                events.append(event)
                if isinstance(event, TaskInputRequired):
                    for request in event.requests:
                        await run.send(_answer(request, answer))
    except TimeoutError:
        last = type(events[-1]).__struct_config__.tag if events else "none"
        raise TimeoutError(
            f"The run has not ended after {seconds:g} s. Its last event is {last}, the "
            f"{len(events)}th. Pass a longer `timeout`, or look for what it waits for."
        ) from None
    return AgentRun(events, await run.result())


def _answer(request: InputRequest, answer: Answers | Any) -> Answer:
    if answer is msgspec.UNSET:
        asked = request.message or request.id
        raise CallerError(
            f"The run asks for an {request.kind}: {asked!r}. Pass `answer=True`, or a function of "
            "the request."
        )
    found = answer(request) if callable(answer) else answer
    if isinstance(found, Answer):
        return found
    if request.kind == "approval":
        return Answer(request_id=request.id, approved=bool(found))
    return Answer(request_id=request.id, value=found)


# --- runs that were exported ---------------------------------------------------------------------


def read_run(path: str | Path) -> AgentRun:
    """Read a run that `tailrace export` wrote."""
    path = Path(path)
    events: list[AnyEvent] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                events.append(decode_event(line))
            except TailraceError as error:
                raise CallerError(
                    f"{path.name}, line {number} is not an event of an exported run: {error}"
                ) from error
    if not events:
        raise CallerError(f"{path.name} has no events. Write it with `tailrace export`.")
    return AgentRun(events)


def replay_run(path: str | Path, *, pace: float = 0) -> AgentFunction:
    """An agent that repeats the events of an exported run, for tests of a front end.

    `pace` is the number of events per second; 0 is as fast as possible. Ids are new in each run.
    Questions are answered as they were in the exported run: it does not wait for people.
    """
    exported = read_run(path)
    assert exported.state.root is not None
    old = exported.state.root.task_id

    async def replay(task: Task) -> None:
        for event in exported.events:
            if isinstance(event, Unknown) or _is_begun(event, old):
                continue
            task.emit(_renamed(event, old, task.task_id))
            if pace:
                await asyncio.sleep(1 / pace)
            await task.drain()

    replay.__name__ = str(exported.state.root.facts.get("agent") or "replay")
    return replay


def _is_begun(event: Event, root: str) -> bool:
    """Whether the runtime writes this event itself: the beginning of the run."""
    return event.task_id == root and isinstance(event, TaskCreated | TaskInProgress)


_IDS = ("task_id", "parent_task_id", "source_task_id", "item_id", "call_id", "id", "request_id")


def _renamed(event: Event, old: str, new: str) -> Event:
    """The event with the ids of another run: an id that is made here contains the run's id."""
    before, after = old.removeprefix("run_"), new.removeprefix("run_")

    def renamed(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: renamed(member, key) for key, member in value.items()}
        if isinstance(value, list):
            return [renamed(member, "id" if name == "superseded" else "") for member in value]
        if isinstance(value, str) and name in _IDS:
            return new if value == old else value.replace(before, after)
        return value

    raw = msgspec.json.decode(encode_event(event))
    found = decode_event(msgspec.json.encode(renamed(raw)))
    assert isinstance(found, Event)
    return found
