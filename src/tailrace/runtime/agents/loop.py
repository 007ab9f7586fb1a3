"""The loop of an agent: ask the model, run its tool calls, feed the results back, until it ends.

Each step looks at the log of the task alone: are there calls without a result, requests without an
answer, an answer? So a worker that takes a run over goes on by the same rules.

What follows a model call:

* calls: their tools run in parallel (`agents.tool_calls`), and the model is asked again;
* a call of `transfer_to_<agent>`: that agent's model is asked (`agents.handoff`);
* a message without calls: the answer, after the checks on it (`agents.answer_check`);
* `pause_turn`: the model is asked again;
* an MCP server's approval request: a person is asked, then the model again;
* a call whose arguments broke off, in an answer that did not: a mistake, and asked for again;
* stopped by the provider (`max_output_tokens`, `content_filter`, …): `incomplete`, same reason;
* cut, or failed, behind complete calls: these run, and the partial items are superseded;
* cut behind a complete message: the answer, if nothing else was begun, else `incomplete` (`cut`);
* any other error: `failed` with the provider's error;
* a refusal is an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.items import Executor, InputRequest, ToolCall
from tailrace.core.state import ItemNode, TaskNode
from tailrace.history.entries import REFUSED_INPUT
from tailrace.history.inputs import user_text
from tailrace.ports import Request, ToolSpec
from tailrace.ports.model import TOOL_CHOICES
from tailrace.runtime.agents import handoff, takeover
from tailrace.runtime.agents.answer_check import accepts_answer, read_outcome
from tailrace.runtime.agents.client_options import (
    ClientRequest,
    client_request,
    leaves_calls,
    readable_chain,
)
from tailrace.runtime.agents.guardrails import refusal
from tailrace.runtime.agents.limits import named
from tailrace.runtime.agents.memory import COMPACT, compact, compact_all
from tailrace.runtime.agents.output_types import OutputType
from tailrace.runtime.agents.time_limit import TimeLimit
from tailrace.runtime.agents.tool_calls import (
    output_request,
    settle,
    settle_approvals,
    take_outputs,
)
from tailrace.runtime.model_calls.call import call_model
from tailrace.runtime.model_calls.request_check import InvalidRequest, check_request
from tailrace.runtime.tasks.call_writer import PendingCall
from tailrace.runtime.tasks.task import (
    CALL_CANCELLED,
    Task,
    announce,
    close_calls,
    mcp_approvals,
    pending_call,
)
from tailrace.runtime.tools.tool import Context, Tool

if TYPE_CHECKING:
    from tailrace.runtime.agents.agent import Agent


class Loop:
    """One agent at work on one task. `above` is the loop of the agent that called it."""

    def __init__(self, agent: Agent, task: Task, above: Loop | None = None) -> None:
        self.agent = agent
        """The agent that speaks now; another after a handoff."""
        self.limits = agent.limits
        """Of the agent that began: a handoff does not change them."""
        self.task = task
        self.above = above
        self._is_resumed = task.task_id in task._sink.emitter.resumed
        task._sink.emitter.resumed.discard(task.task_id)
        self._turns = takeover.turns_of(task._sink.node) if self._is_resumed else 0
        self.mistakes = 0
        """Turns in a row with nothing but mistakes."""
        self._is_price_checked = self._is_resumed
        self.correction: str | None = None
        """Why the last structured output or call was refused."""
        self._client = self._declared()
        self.tools: dict[str, Tool] = {}
        """The tools by name, those of MCP servers included; known once the loop runs."""
        self.unlogged: list[TaskNode] = []
        """The sub-agents at work below it whose usage is not in the log yet."""
        self.time_limit = TimeLimit()
        self.held_back: list[InputRequest] = []
        """Requests that wait a moment for other tools of their turn, or have been announced."""

    def _declared(self) -> ClientRequest:
        """What the client of the run adds to the requests of this agent; nothing for sub-agents."""
        if self.above is not None:
            return ClientRequest()
        return client_request(self.agent, self.task.options)

    async def _open_tools(self) -> None:
        """Open the tools of the agent that speaks, as far as the client allows them."""
        found, only = await self.agent._open_tools(self.task), self._client.only
        self.tools = {name: value for name, value in found.items() if only is None or name in only}

    async def run(self) -> None:
        """Work until the task has ended, or is to be completed."""
        seconds = self.limits.seconds
        try:
            left = seconds
            if seconds is not None and self._is_resumed:
                left = max(0.0, seconds - self.task._sink.emitter.clock.seconds(self.task.task_id))
            async with self.time_limit.running(left):
                await self._work()
        except TimeoutError:
            if seconds is None or not self.time_limit.is_over:
                raise
            self.stop(named("seconds", seconds))
        except asyncio.CancelledError as error:
            self.task._sink.after(error, lambda: close_calls(self.task, CALL_CANCELLED))
            raise

    @property
    def context(self) -> Context:
        """What functions of the agent get."""
        return Context(task=self.task, call_id="", agent=self.agent.name, deps=self.agent.deps)

    def loops(self) -> Iterator[Loop]:
        """This loop and those above it."""
        loop: Loop | None = self
        while loop is not None:
            yield loop
            loop = loop.above

    async def _work(self) -> None:
        task = self.task
        if task._sink.node.switches and not self._goes_on_with_speaker():
            return
        await self._open_tools()
        answered = self._is_resumed and takeover.has_answer(task._sink.node)
        if not (self._is_resumed and task._sink.node.items) and await self._refuses_input():
            return
        if task.task_id == task.run_id and task.options.get(COMPACT) is True:
            await compact_all(self)
            return
        memory = self.agent.memory
        if memory is not None and task.task_id == task.run_id and not task._sink.node.items:
            await compact(self, memory)
        while not task._sink.node.ended:
            if calls := self._calls():
                mistakes = await settle(self, calls)
                self.count_turn(mistakes=mistakes == len(calls))
                answered = False
            elif switch := handoff.chosen(task._sink.node, self.tools):
                await self._hand_over(*switch)
            elif self.client_calls():
                if not await take_outputs(self):
                    return
                answered = False
            elif asked := mcp_approvals(task):
                await settle_approvals(self, asked)
                answered = False
            elif answered:
                if await accepts_answer(self):
                    return
                answered = False
            else:
                answered = await self._turn()

    async def _refuses_input(self) -> bool:
        """Whether a guardrail stopped the task because of its input."""
        checks = self.agent.input_guardrails
        refused = await refusal(REFUSED_INPUT, checks, user_text(self.task.input), self.context)
        if refused is not None:
            self.task.fail(refused)
        return refused is not None

    def _goes_on_with_speaker(self) -> bool:
        """Continue with the agent that spoke last; False if it is declared no more."""
        speaker = self.task._sink.node.speaker
        found = handoff.handed_to(self.agent, speaker)
        if found is None:
            self.task.fail(
                "agent_unknown",
                f"The agent {speaker!r} speaks in this run, but {self.agent.name!r} has no handoff "
                f"to it. Add {speaker!r} to the handoffs of {self.agent.name!r}.",
            )
            return False
        self.agent = found
        self._client = self._declared()
        return True

    async def _hand_over(self, to: handoff.Handoff, call: ItemNode) -> None:
        """Let another agent speak, from the next model call on."""
        reason = to.reason_of(call)
        self.task.emit(
            ev.AgentSwitched(task_id=self.task.task_id, agent=to.agent.name, reason=reason)
        )
        self.agent, self.correction = to.agent, None
        self._client = self._declared()
        await self._open_tools()

    def _calls(self) -> list[Any]:
        """The calls that wait for us: all but those that the client of the run carries out.

        After a lost worker, also those whose result a sub-agent has begun.
        """
        begun = [id_ for id_, result in self.task._sink.node.call_results.items() if result.is_open]
        found = [*self.task.calls("server"), *self.task.calls("client")]
        found += [pending_call(self.task, call_id) for call_id in begun]
        left = [call for call in found if not self.is_for_client(call.name, call.executor)]
        return sorted(left, key=lambda call: call.index)

    def is_for_client(self, name: str, executor: Executor) -> bool:
        """Whether the client carries this call out after the run, which completes with it.

        The client declared the function, or is of an API that has no other way. A call of a
        sub-agent is asked for instead.
        """
        is_left = self.above is None and leaves_calls(self.task.options)
        return executor == "client" and (is_left or name in self._client.tools)

    def is_beyond_client(self, executor: Executor) -> bool:
        """Whether the client cannot carry this call out, or be asked to.

        It is a call of a sub-agent, and the client's API has only the calls of the run's agent.
        """
        *_, first = self.loops()
        return executor == "client" and first is not self and leaves_calls(first.task.options)

    def client_calls(self) -> list[PendingCall]:
        """The calls that the client of the run carries out, without a result."""
        found = self.task.calls("client")
        return [call for call in found if self.is_for_client(call.name, call.executor)]

    def calls_left(self, waiting: int = 0) -> int | None:
        """How many calls the client allows, besides those before the waiting calls; None: any."""
        most = self._client.max_tool_calls
        if most is None:
            return None
        made = [
            node.item
            for node in self.task._sink.node.calls.values()
            if isinstance(node.item, ToolCall) and not node.superseded
        ]
        ours = [one for one in made if not self.is_for_client(one.name, one.executor)]
        return max(0, most - (len(ours) - waiting))

    def count_turn(self, *, mistakes: bool) -> None:
        """Fail the task when the model makes nothing but mistakes, turn after turn."""
        self.mistakes = self.mistakes + 1 if mistakes else 0
        self.correction = self.correction if mistakes else None
        most = self.limits.mistakes
        if most is not None and self.mistakes > most and not self.task._sink.node.ended:
            self.task.fail(
                "invalid_calls",
                f"The model made only invalid calls in {self.mistakes} turns "
                f"({named('mistakes', most)}).",
            )

    # --- a turn --------------------------------------------------------------------------------

    async def _turn(self) -> bool:
        """Ask the model once; whether the answer is there."""
        reached = self._reached()
        if reached is not None:
            self.stop(reached)
            return False
        self._turns += 1
        task, first = self.task, len(self.task._sink.node.items)
        request = await self._request()
        try:
            check_request(request)
        except InvalidRequest as error:
            if self._client == ClientRequest():
                raise
            # The agent was checked where it was declared: the mistake is the client's.
            task.fail(error.code, str(error))
            return False
        with self.task.at_work():
            outcome = await call_model(
                self.agent.model,
                request,
                task,
                executor_of=self._executor,
                needs_approval=self._needs_approval,
                patience=self.agent.patience,
                drain=task._sink.emitter.pace,
                emit_output=False,
            )
        self._check_price()
        made = [node for index, node in sorted(task._sink.node.items.items()) if index >= first]
        return read_outcome(self, outcome, [node for node in made if not node.superseded])

    def _check_price(self) -> None:
        """Show, once, that a limit on cost cannot count the calls of this model."""
        usage = self.task._sink.node.usage
        limited = next(
            (loop.limits.cost for loop in self.loops() if loop.limits.cost is not None), None
        )
        if limited is None or self._is_price_checked or usage is None:
            return
        self._is_price_checked = True
        if "cost" not in usage.fields:
            self.task.notice(
                f"{named('cost', limited)} cannot be counted: the price of {self.agent.model.name} "
                "is unknown. Pass `prices` to `open_model`.",
                {"code": "price_unknown"},
            )

    def _reached(self) -> str | None:
        """The limit of this agent, or of an agent above it, that forbids another model call."""
        turns = self.limits.turns
        reached = named("turns", turns) if turns is not None and self._turns >= turns else None
        for loop in self.loops():
            reached = reached or loop.limits.spent([loop.task._sink.node, *loop.unlogged])
        return reached

    async def chain(self) -> list[State]:
        """The conversation as the model may read it."""
        whole = await self._whole_chain()
        return readable_chain(self.agent, whole) if self.above is None else whole

    async def _whole_chain(self) -> list[State]:
        task = self.task
        is_root = task.task_id == task.run_id
        return await task.chain() if is_root else [task._sink.emitter.state]

    async def _request(self) -> Request:
        agent, task = self.agent, self.task
        is_root = task.task_id == task.run_id
        chain, mode = await self.chain(), agent.history
        if mode == "stored" and chain != await self._whole_chain():
            mode = "drop"  # what the provider has stored may hold instructions of a client
        instructions = await agent._instructions_for(self.context, citable=_is_citable(task))
        client = self._client
        added = (instructions, client.instructions, self.correction)
        instructions = "\n\n".join(filter(None, added)) or None
        own = [value.spec() for name, value in self.tools.items() if name not in client.tools]
        tools: list[ToolSpec | dict[str, Any]] = [*own, *client.tools.values()]
        tools += [
            provider_tool
            for provider_tool in agent._provider_tools
            if client.only is None or provider_tool["type"] in client.only
        ]
        settings = agent._settings | client.settings
        # A client's choice is for its question: repeated, it would never end.
        if task._sink.node.calls:
            settings["tool_choice"] = agent._settings["tool_choice"]
        if self.calls_left() == 0 and not client.tools:
            settings["tool_choice"] = "none"
        if not tools and settings["tool_choice"] in TOOL_CHOICES:  # an unknown name is refused
            settings["tool_choice"] = None
        return Request(
            chain=chain,
            task_id=None if is_root else task.task_id,
            instructions=instructions,
            tools=tools,
            output=self.output.schema if self.output is not None else None,
            history=mode,
            store=self.store,
            attempt=1 + self.mistakes if self.correction is not None else 1,
            **settings,
        )

    @property
    def store(self) -> bool | None:
        """Whether the provider may keep answers; None leaves it to the mode of the history."""
        *_, first = self.loops()
        return False if first.task.options.get("store") is False else None

    @property
    def output(self) -> OutputType | None:
        """The type of the answer."""
        return self._client.output or self.agent.output

    def _executor(self, name: str) -> Executor:
        if name in self._client.tools:
            return "client"
        found = self.tools.get(name)
        return found.executor if found is not None else "server"

    def tool_of(self, call: ToolCall) -> Tool | None:
        """The tool that carries out a call."""
        if call.kind not in ("function", "custom"):
            return self.agent.handlers.get(call.kind)
        # Anthropic's own tools (`bash`, `computer`) are called as functions are.
        return self.tools.get(call.name) or self.agent.handlers.get(call.name)

    def _needs_approval(self, call: ToolCall) -> bool:
        found = self.tool_of(call)
        return found is not None and bool(found.needs_approval)

    # --- waiting and stopping ------------------------------------------------------------------

    async def ask(self, requests: list[InputRequest]) -> list[Any]:
        """Ask people; the answers, in order. The time limits stand still meanwhile."""
        self.announce(requests)
        with self.clocks_stopped():
            return await asyncio.gather(*(self.task.ask(request) for request in requests))

    def announce(self, requests: list[InputRequest]) -> None:
        """Show new requests to people, before a task waits for the answers."""
        new = [request for request in requests if not self.has_asked([request])]
        if new and self.task._sink.emitter.inputs is not None:
            if any(request.kind == "approval" for request in new):
                self.ask_for_outputs()
            if self.above is not None:
                self.above.hold_nothing_back()
            announce(self.task, new)

    def hold_nothing_back(self) -> None:
        """Announce what this loop and those above it hold back, before the run waits for people.

        A response of `useChat` or AG-UI ends there, and its client answers all requests at once.
        """
        for loop in reversed([*self.loops()]):
            loop.announce(loop.held_back)

    def has_asked(self, requests: list[InputRequest]) -> bool:
        """Whether the log has one of these requests."""
        node = self.task._sink.node
        known = {request.id for request in node.requests} | node.answers.keys()
        return any(request.id in known for request in requests)

    def ask_for_outputs(self) -> None:
        """Ask the client for the outputs of its calls, before the run waits for approvals.

        The clients of `/v1/responses` send both in one request. An output that does not come with
        the approvals is not waited for: the run completes with the call.
        """
        *_, first = self.loops()
        if leaves_calls(first.task.options):
            first.announce([output_request(call) for call in first.client_calls()])

    @contextmanager
    def clocks_stopped(self) -> Iterator[None]:
        """A block that waits for people: the time limits here and above stand still."""
        with ExitStack() as stack:
            for loop in self.loops():
                stack.enter_context(loop.time_limit.stopped())
            yield

    def stop(self, reason: str) -> None:
        """End the task without a full answer, with a result for each call; `reason` says why."""
        task = self.task
        with task._sink.emitter.closing():
            close_calls(task, CALL_CANCELLED)
        if task._sink.node.requests:  # rule `task-paused`: a pending request allows no `incomplete`
            task.fail(reason.partition("=")[0], f"The task was stopped: {reason}.")
        else:
            task.incomplete(reason)


def _is_citable(task: Task) -> bool:
    return task._sink.node.next_reference > 1
