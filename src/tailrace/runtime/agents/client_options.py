"""What the client of a run declares, as far as its agent allows it.

The names are those of the Responses API; every server API writes its requests in them. The rule:

* A client may set an option that the agent does not set.
* `Agent(client_options=…)` names options. Only these options may be set, and the client's value
  replaces the agent's.
* Instructions are appended to the agent's, and the smaller `max_output_tokens` counts. Messages of
  the system or the developer in an input are instructions, too.
* Other options are left out. The run's `options` and the response object show what is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from tailrace.core.fold import State
from tailrace.core.values import Json, dict_of, dicts_of, text_of
from tailrace.history.inputs import without_instructions
from tailrace.ports.model import TOOL_CHOICES, Effort, OutputSchema, Summary, ToolSpec
from tailrace.runtime.agents.output_types import OutputType

if TYPE_CHECKING:
    from tailrace.runtime.agents.agent import Agent

NOT_APPLIED = ("frequency_penalty", "presence_penalty", "service_tier", "top_logprobs")
"""Fields of a request that no agent applies."""

LEAVES_CALLS = {"client_calls": "complete"}
"""The option of a run whose client sends the outputs of its calls with its next request."""


def leaves_calls(options: Json) -> bool:
    """Whether calls that a client carries out complete the run, also those of the agent's tools."""
    return all(options.get(name) == value for name, value in LEAVES_CALLS.items())


class ClientRequest(msgspec.Struct, frozen=True):
    """What a client adds to the model requests of its run."""

    instructions: str | None = None
    settings: Json = {}
    """Fields of `Request` that replace the agent's own."""
    output: OutputType | None = None
    tools: dict[str, ToolSpec] = {}
    """The functions that the client carries out, by name."""
    only: frozenset[str] | None = None
    """The names of the tools that may be called; None: all."""
    max_tool_calls: int | None = None
    """How many calls the agent carries out in the run; None: any number."""


def allowed_options(agent: Agent, options: Json) -> Json:
    """The options of a run of this agent, without those that are not applied."""
    kept = {name: value for name, value in options.items() if name not in NOT_APPLIED}
    for name, rule in _RULES.items():
        if name in kept:
            value = rule(agent, kept.pop(name))
            if value is not None:
                kept[name] = value
    return kept


def client_request(agent: Agent, options: Json) -> ClientRequest:
    """What a client adds to the model requests of an agent."""
    found = allowed_options(agent, options)
    settings = {
        field: found[name]
        for name, field in (
            ("temperature", "temperature"),
            ("top_p", "top_p"),
            ("max_output_tokens", "max_output_tokens"),
            ("parallel_tool_calls", "parallel_calls"),
        )
        if name in found
    }
    settings |= found.get("reasoning", {})
    only = None
    choice = found.get("tool_choice")
    if isinstance(choice, dict) and choice["type"] == "allowed_tools":
        only = frozenset(tool.get("name") or tool.get("type") for tool in choice["tools"])
        choice = choice.get("mode", "auto")
    if choice is not None:
        settings["tool_choice"] = choice["name"] if isinstance(choice, dict) else choice
    tools = declared_tools(found)
    if only is not None:
        tools = {name: tool for name, tool in tools.items() if name in only}
    output = _output(found["text"]["format"]) if "text" in found else None
    return ClientRequest(
        found.get("instructions"), settings, output, tools, only, found.get("max_tool_calls")
    )


def readable_chain(agent: Agent, chain: Sequence[State]) -> list[State]:
    """A conversation as the agent's model may read it: without instructions of a client, if the
    agent takes none. The log has them, and another agent of the thread may take them.
    """
    if _may_set(agent, "instructions", None):
        return list(chain)
    return [_without_instructions(state) for state in chain]


def _without_instructions(state: State) -> State:
    root = state.root
    given = root.facts.get("input") if root is not None else None
    left = without_instructions(given)
    if root is None or left == given:
        return state
    # The history of a run is read from its root. The tasks below it stay with their own state,
    # which frees them.
    masked = State()
    masked.root = copy(root)
    masked.root.facts = {**root.facts, "input": left}
    masked.tasks = {root.task_id: masked.root}
    masked.sequence_number = state.sequence_number
    return masked


def declared_tools(options: Json) -> dict[str, ToolSpec]:
    """The functions that the client of the run declared and carries out, by name."""
    found: dict[str, ToolSpec] = {}
    for tool in dicts_of(options.get("tools")):
        if tool.get("type") == "function":
            facts = tool["function"] if isinstance(tool.get("function"), dict) else tool
            name, schema = facts.get("name"), facts.get("parameters")
            if isinstance(name, str):
                described = facts.get("description")
                found[name] = ToolSpec(
                    name=name,
                    description=text_of(described),
                    parameters=schema if isinstance(schema, dict) else {"type": "object"},
                    strict=facts.get("strict") is True,
                )
    return found


def _output(form: Json) -> OutputType | None:
    """The type of an answer whose form the client declares."""
    if form["type"] == "text":
        return None
    schema = form["schema"] if form["type"] == "json_schema" else {"type": "object"}
    made = OutputType(schema, foreign=True)
    name = form.get("name") or made.schema.name
    made.schema = OutputSchema(schema=schema, name=name, strict=form.get("strict") is True)
    return made


# --- one rule for each option --------------------------------------------------------------------


def _may_set(agent: Agent, name: str, own: Any) -> bool:
    if agent.client_options is None:
        return own is None
    return name in agent.client_options


def _instructions(agent: Agent, value: Any) -> str | None:
    takes = isinstance(value, str) and _may_set(agent, "instructions", None)
    return value if takes else None


def _tools(agent: Agent, value: Any) -> list[Any] | None:
    takes = isinstance(value, list) and _may_set(agent, "tools", None)
    return value if takes else None


def _number(name: str, most: float) -> Callable[[Agent, Any], Any]:
    def rule(agent: Agent, value: Any) -> Any:
        own = agent._settings[name]
        fits = type(value) in (int, float) and 0 <= value <= most
        return value if fits and _may_set(agent, name, own) else own

    return rule


def _max_output_tokens(agent: Agent, value: Any) -> int | None:
    own: int | None = agent._settings["max_output_tokens"]
    if type(value) is not int or value < 1 or not _may_set(agent, "max_output_tokens", None):
        return own
    return value if own is None else min(value, own)


def _max_tool_calls(agent: Agent, value: Any) -> int | None:
    takes = type(value) is int and value >= 1 and _may_set(agent, "max_tool_calls", None)
    return value if takes else None


def _reasoning(agent: Agent, value: Any) -> Json | None:
    found: Json = {}
    for name, words in (("effort", get_args(Effort)), ("summary", get_args(Summary))):
        own = agent._settings[name]
        sent = dict_of(value).get(name)
        takes = sent in words and _may_set(agent, "reasoning", own)
        found |= {name: sent if takes else own} if takes or own is not None else {}
    return found or None


def _text(agent: Agent, value: Any) -> Json | None:
    form = dict_of(value).get("format")
    if is_text_format(form) and _may_set(agent, "text", agent.output):
        return {"format": form}
    if agent.output is None:
        return None
    own = agent.output.schema
    shape = {"name": own.name, "schema": own.schema, "strict": own.strict}
    return {"format": {"type": "json_schema", **shape}}


def _tool_choice(agent: Agent, value: Any) -> Any:
    own = agent._settings["tool_choice"]
    if is_tool_choice(value) and _may_set(agent, "tool_choice", own):
        return value
    return {"type": "function", "name": own} if own and own not in TOOL_CHOICES else own


def _parallel(agent: Agent, value: Any) -> bool | None:
    own: bool | None = agent._settings["parallel_calls"]
    takes = isinstance(value, bool) and _may_set(agent, "parallel_tool_calls", own)
    return value if takes else own


_RULES: dict[str, Callable[[Agent, Any], Any]] = {
    "instructions": _instructions,
    "max_output_tokens": _max_output_tokens,
    "max_tool_calls": _max_tool_calls,
    "parallel_tool_calls": _parallel,
    "reasoning": _reasoning,
    "temperature": _number("temperature", 2),
    "text": _text,
    "tool_choice": _tool_choice,
    "tools": _tools,
    "top_p": _number("top_p", 1),
}

CLIENT_OPTIONS = tuple(_RULES)
"""What a client may set, if the agent allows it."""


def is_text_format(form: Any) -> bool:
    """Whether a value is the form of an answer: text, JSON, or JSON of a schema."""
    kind = dict_of(form).get("type")
    if kind == "json_schema":
        return isinstance(form.get("schema"), dict)
    return kind in ("text", "json_object")


def is_tool_choice(value: Any) -> bool:
    """Whether a value is a choice of functions: a word, a function, or a list of tools."""
    if not isinstance(value, dict):
        return value in TOOL_CHOICES
    if value.get("type") == "allowed_tools":
        tools = value.get("tools")
        return isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)
    return value.get("type") in ("function", "custom") and isinstance(value.get("name"), str)
