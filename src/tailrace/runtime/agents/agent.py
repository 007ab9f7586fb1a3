"""An agent as a declaration: a model, instructions and tools.

    weather = Agent("weather", model="openai:gpt-5-mini", tools=[get_weather])
    app = Tailrace([weather])

The agent asks its model, runs the tools that the model calls, and feeds the results back. It ends
with the answer, at a limit, or when it is stopped. `tailrace.runtime.agents.loop` is how. All of it
is in the log, so another worker continues a run whose worker is lost.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any

from tailrace.core.errors import CallerError
from tailrace.history import Mode
from tailrace.ports.model import Effort, Model, Request, Summary
from tailrace.runtime.agents.busy_thread import BusyThread, check_busy_thread
from tailrace.runtime.agents.client_options import CLIENT_OPTIONS, allowed_options
from tailrace.runtime.agents.handoff import Handoff
from tailrace.runtime.agents.limits import Limits
from tailrace.runtime.agents.loop import Loop
from tailrace.runtime.agents.memory import Memory
from tailrace.runtime.agents.output_types import declared_output
from tailrace.runtime.agents.sub_agents import AgentTool, ask_for_help
from tailrace.runtime.agents.takeover import close_for_takeover
from tailrace.runtime.agents.unknown_keywords import checks_names
from tailrace.runtime.diagnostics.failures import ToolError
from tailrace.runtime.model_calls.call import PATIENT, Patience
from tailrace.runtime.model_calls.request_check import InvalidRequest, check_name, check_request
from tailrace.runtime.tasks.task import Task
from tailrace.runtime.tools.from_functions import check_tools, tool
from tailrace.runtime.tools.tool import Context, Tool
from tailrace.runtime.tools.tool_list import ToolSource, open_tools

CITE = (
    "Tool results may be marked as <referencable-item> with an ID. "
    "When you use one, cite it: write [^ID] behind the statement, for example [^1]."
)
"""The sentence of the instructions that explains citations, when there is a result to cite."""

Instructions = str | Callable[..., str | Awaitable[str]]
"""A text, or a function of nothing or of the `Context` that returns it."""

Guardrail = Callable[..., Any]
"""A function of the text, or of the text and the `Context`. It returns why the run must stop."""


class Agent:
    """A model with instructions and tools, which answers runs.

    `name` is what clients start runs with; `description` tells other agents what this agent does.
    `model` is a name for `open_model`, or a model. `tools` are tools, functions, other agents'
    `as_tool()`, `ask_for_help`, MCP servers, or a provider's own tools (`{"type": "web_search"}`).
    `handoffs` are agents that it may hand the conversation to; the model gets a tool
    `transfer_to_<name>` for each.
    `handlers` carry out the provider's `shell`, `apply_patch` and `computer` calls.

    `instructions` may be a function. `output` is the type of the answer: a msgspec struct, a
    dataclass, a pydantic model or a JSON Schema. `history` is how the reasoning of earlier turns
    is sent back (`drop`, `encrypted` or `stored`). With `memory`, older runs of a long conversation
    are compacted. `deps` reaches tools as `context.deps`.

    `busy_thread` is what happens to a new run of a thread that is busy, instead of the app's.

    `limits` bound turns, tokens, cost and time. `patience` has the timeouts and retries of a model
    call. `effort` is how much the model thinks, and `summary` how much of that clients read.
    `temperature`, `top_p` and `max_output_tokens` go to the model as they are. `tool_choice` is
    `auto`, `none`, `required` or a tool's name. `parallel_calls` says whether a turn may have
    several calls. `options` are further fields for the provider.

    `client_options` names what the client of a run may set, such as `temperature`; None: what the
    agent leaves open.

    `input_guardrails` and `output_guardrails` may stop a run. `citations` is the sentence that
    tells the model how to cite results; False leaves it out.
    """

    restartable = True

    @checks_names
    def __init__(
        self,
        name: str,
        *,
        model: str | Model,
        instructions: Instructions | None = None,
        tools: Iterable[Any] = (),
        handoffs: Iterable[Agent] = (),
        handlers: Mapping[str, Any] | None = None,
        output: Any = None,
        history: Mode = "drop",
        memory: Memory | None = None,
        limits: Limits = Limits(),  # noqa: B008  # frozen
        deps: Any = None,
        input_guardrails: Sequence[Guardrail] = (),
        output_guardrails: Sequence[Guardrail] = (),
        citations: str | bool = True,
        description: str = "",
        effort: Effort | None = None,
        summary: Summary | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        max_output_tokens: int | None = None,
        tool_choice: str | None = None,
        parallel_calls: bool | None = None,
        options: Mapping[str, Any] | None = None,
        client_options: Iterable[str] | None = None,
        patience: Patience = PATIENT,
        busy_thread: BusyThread | None = None,
    ) -> None:
        check_name("An agent", name)
        check_busy_thread(busy_thread or "run")
        for field, value, kinds in (
            ("model", getattr(model, "stream", model), (str, Callable)),
            ("instructions", instructions, (str, Callable, NoneType)),
            ("limits", limits, (Limits,)),
            ("memory", memory, (Memory, NoneType)),
            ("patience", patience, (Patience,)),
            ("tools", tools, (Iterable,)),
            ("handoffs", handoffs, (Iterable,)),
            *(("input_guardrails", guardrail, (Callable,)) for guardrail in input_guardrails),
            *(("output_guardrails", guardrail, (Callable,)) for guardrail in output_guardrails),
        ):
            _check_kind(name, field, value, kinds)
        _check_call(name, "instructions", instructions, 0, 1)
        for check in (*input_guardrails, *output_guardrails):
            _check_call(name, "a guardrail", check, 1, 2)
        self.name = self.__name__ = name
        self.description = description
        self.instructions = instructions
        self.limits = limits
        self.deps = deps
        self.history = history
        self.memory = memory
        self.input_guardrails = list(input_guardrails)
        self.output_guardrails = list(output_guardrails)
        self.citations = CITE if citations is True else citations
        self.output = declared_output(output) if output is not None else None
        self.patience = patience
        self.busy_thread = busy_thread
        self._settings: dict[str, Any] = {
            "effort": effort,
            "summary": summary,
            "temperature": temperature,
            "top_p": top_p,
            "max_output_tokens": max_output_tokens,
            "tool_choice": tool_choice,
            "parallel_calls": parallel_calls,
            "options": dict(options or {}),
        }
        asked = Request(input=[], history=history, **self._settings | {"tool_choice": None})
        try:
            check_request(asked)
        except InvalidRequest as error:
            raise CallerError(f"Agent {name!r}: {error}") from None
        self.client_options = _client_options(client_options, name)
        self._model_name = model if isinstance(model, str) else None
        """What the app opens the model by; None if a model was given."""
        self._opened = None if isinstance(model, str) else model
        self.tools: list[Tool | ToolSource] = []
        self._provider_tools: list[dict[str, Any]] = []
        self.handlers = {kind: _tool(value, name) for kind, value in (handlers or {}).items()}
        self.add_tools(*tools)
        self.add_handoffs(*handoffs)

    def _allowed_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options of a run, without those that the client may not set."""
        return allowed_options(self, options)

    def add_tools(self, *tools: Any) -> None:
        """Give the agent more tools: those that need the agent itself, such as its `as_tool()`."""
        for declared in tools:
            if isinstance(declared, dict):
                self._provider_tools.append(declared)
            elif isinstance(declared, ToolSource) and not isinstance(declared, Tool | Agent):
                self.tools.append(declared)
            else:
                self.tools.append(
                    ask_for_help() if declared is ask_for_help else _tool(declared, self.name)
                )
        check_tools(self.tools)

    def add_handoffs(self, *agents: Agent) -> None:
        """Let the agent hand the conversation to more agents, such as back to its caller."""
        for agent in agents:
            if not isinstance(agent, Agent):
                raise CallerError(f"Agent {self.name!r} got {agent!r} as a handoff; pass an Agent.")
            if agent is self:
                raise CallerError(
                    f"Agent {self.name!r} cannot hand the conversation to itself. "
                    "Remove it from `handoffs`."
                )
        self.add_tools(*(Handoff(agent) for agent in agents))

    @property
    def model(self) -> Model:
        """The model that the agent asks."""
        if self._opened is None:
            raise CallerError(
                f"The model {self._model_name!r} of agent {self.name!r} is not open. Pass the "
                "agent to `Tailrace([...])`, or a model to the agent: `model=open_model(...)`."
            )
        return self._opened

    def _open_models(self, open_model: Callable[[str], Model]) -> None:
        """Open the models that are given by name, of the agent and of all that it may reach."""
        for agent in self._family():
            if agent._opened is None and agent._model_name is not None:
                agent._opened = open_model(agent._model_name)

    async def _close(self) -> None:
        """Close the models that were opened by name, and the sources of tools.

        `_open_models` opens the models again, and the next run the sources, such as MCP servers.
        """
        for agent in self._family():
            if agent._model_name is not None and agent._opened is not None:
                model, agent._opened = agent._opened, None
                await model.close()
            for declared in agent.tools:
                close = None if isinstance(declared, Tool) else getattr(declared, "close", None)
                if close is not None:
                    await close()

    def _family(self) -> list[Agent]:
        """The agent, its sub-agents, and the agents that they hand over to."""
        found: list[Agent] = []
        left = [self]
        while left:
            agent = left.pop()
            if agent not in found:
                found.append(agent)
                tools = [declared for declared in agent.tools if isinstance(declared, AgentTool)]
                left += [
                    below
                    for declared in tools
                    for below in declared.agents
                    if isinstance(below, Agent)
                ]
                left += [
                    declared.agent for declared in agent.tools if isinstance(declared, Handoff)
                ]
        return found

    def as_tool(
        self,
        name: str | None = None,
        description: str | None = None,
        *,
        streaming: bool = True,
        needs_approval: bool = False,
    ) -> AgentTool:
        """A tool that asks this agent; the agent works as a sub-agent of the caller.

        Its events are shown while it works. With `streaming=False` only its answer and its usage
        are logged.
        """
        return AgentTool(
            self,
            name=name or self.name,
            description=description or self.description or f"Asks the agent {self.name}.",
            streaming=streaming,
            needs_approval=needs_approval,
        )

    async def _open_tools(self, task: Task) -> dict[str, Tool]:
        """The tools by name. A source that cannot list its tools is left out, with a notice."""
        found: list[Tool] = []
        for declared in self.tools:
            if isinstance(declared, Tool):
                found.append(declared)
                continue
            try:
                found += await declared.tools()
            except ToolError as error:
                task.notice(str(error), {"code": error.code})
        return await open_tools(found)

    async def _instructions_for(self, context: Context, *, citable: bool) -> str | None:
        """The instructions of the next model call; `citable`: there are results to cite."""
        found: Any = self.instructions
        if callable(found):
            takes = bool(inspect.signature(found).parameters)
            found = found(context) if takes else found()
            if inspect.isawaitable(found):
                found = await found
        if found is not None and not isinstance(found, str):
            raise CallerError(
                f"The instructions of agent {self.name!r} returned {type(found).__name__}; return "
                "a text."
            )
        texts = [found] if found else []
        if citable and self.citations:
            texts.append(str(self.citations))
        return "\n\n".join(texts) or None

    async def __call__(self, task: Task) -> None:
        """Work on a run until it ends. A run that was begun is continued."""
        await self._work_below(task)

    async def _work_below(self, task: Task, above: Loop | None = None) -> None:
        """Work on a task, for the agent whose loop is `above` if it is a sub-agent's."""
        await Loop(self, task, above).run()

    def _begin_again(self, task: Task, reason: str) -> None:
        """Make a run that its worker left ready to go on; `reason` is why it left."""
        close_for_takeover(task, reason)


def _check_kind(agent: str, field: str, value: Any, kinds: tuple[Any, ...]) -> None:
    """Raise `CallerError` for a value of another kind: a run would fail with it."""
    if not isinstance(value, kinds):
        known = " or ".join(_KINDS[kind] for kind in kinds)
        known = "a name or a model" if field == "model" else known
        raise CallerError(f"Agent {agent!r}: {field} is {value!r}; write {known}.")


_KINDS = {str: "a text", Callable: "a function", Iterable: "a list", NoneType: "None"}
_KINDS |= {Limits: "Limits(…)", Memory: "Memory(…)", Patience: "Patience(…)"}


def _check_call(agent: str, field: str, called: Any, least: int, most: int) -> None:
    """Raise `CallerError` for a function that cannot be called with what it gets."""
    if not callable(called):
        return
    try:
        signature = inspect.signature(called)
    except ValueError:
        return  # a builtin function: it has no signature
    takes = len(signature.parameters)
    needs = [
        one
        for one in signature.parameters.values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if len(needs) > most or takes < least:
        what = "the text, or the text and the `Context`" if least else "nothing, or the `Context`"
        raise CallerError(
            f"Agent {agent!r}: {field} must take {what}, but {called!r} takes {takes}."
        )


def _client_options(names: Iterable[str] | None, agent: str) -> frozenset[str] | None:
    found = None if names is None else frozenset([names] if isinstance(names, str) else names)
    for name in sorted(found or ()):
        if name not in CLIENT_OPTIONS:
            known = ", ".join(CLIENT_OPTIONS)
            raise CallerError(f"Agent {agent!r}: client_options has {name!r}; use {known}.")
    return found


def _tool(declared: Any, agent: str) -> Tool:
    if isinstance(declared, Tool):
        return declared
    if isinstance(declared, Agent):
        return declared.as_tool()
    if callable(declared):
        made: Tool = tool(declared)
        return made
    raise CallerError(
        f"Agent {agent!r} got {declared!r} as a tool. Write a function with @tool, "
        '`agent.as_tool()`, or a provider\'s own tool such as {"type": "web_search"}.'
    )
