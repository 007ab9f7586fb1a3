"""Checks a model request before it is sent."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from tailrace.core.errors import CallerError
from tailrace.history import Mode
from tailrace.ports.model import TOOL_CHOICES, Effort, OutputSchema, Request, Summary, ToolSpec

TOOL_NAME = r"[a-zA-Z0-9_-]{1,128}"
"""What providers take as the name of a tool. `Tool` allows 64 characters, as some of them do."""

_WORDS: dict[str, tuple[str, ...]] = {
    "effort": get_args(Effort),
    "summary": get_args(Summary),
    "history": get_args(Mode),
}


class InvalidRequest(CallerError):
    """No provider accepts this model request. Nothing was sent."""

    code = "invalid_request"


class UnknownTool(InvalidRequest):
    """The choice of a tool that the request does not have."""

    code = "unknown_tool"


def check_request(request: Request) -> None:
    """Raise `InvalidRequest` with the first mistake."""
    names: list[str] = []
    for message in _errors(request, names):
        raise InvalidRequest(message)
    for message in _choice(request, names):
        raise UnknownTool(message)


def _errors(request: Request, names: list[str]) -> Iterator[str]:
    """The mistakes. The names of the tools are added to `names`."""
    for field, words in _WORDS.items():
        value = getattr(request, field)
        if value is not None and value not in words:
            yield f"{field} is {value!r}: write {_listed(words)}."
    limit, temperature = request.max_output_tokens, request.temperature
    if limit is not None and (type(limit) is not int or limit < 1):
        yield f"max_output_tokens is {limit!r}: write a whole number from 1 up, or None."
    if temperature is not None and not _is_between(temperature, 0, 2):
        yield f"temperature is {temperature!r}: write a number from 0 to 2, or None."
    if request.top_p is not None and not _is_between(request.top_p, 0, 1):
        yield f"top_p is {request.top_p!r}: write a number from 0 to 1, or None."
    tools: Sequence[Any] = request.tools  # whatever was given
    for index, tool in enumerate(tools):
        if isinstance(tool, ToolSpec):
            yield from _tool(tool, names)
        elif isinstance(tool, dict):
            facts = tool.get("function")  # where chat completions have a tool's name
            name = (facts if isinstance(facts, dict) else tool).get("name")
            names += [name] if isinstance(name, str) else []
        else:
            yield f"tools[{index}] is {tool!r}: write a ToolSpec, or a provider's own tool."
    if request.output is not None:
        yield from _output(request.output)


def _listed(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _is_between(value: Any, least: float, most: float) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and least <= value <= most


def _tool(tool: ToolSpec, names: list[str]) -> Iterator[str]:
    yield from _name("A tool", tool.name)
    if tool.name in TOOL_CHOICES:
        yield f"A tool is named {tool.name!r}, a value of tool_choice: give it another name."
    if tool.name in names:
        yield f"Two tools are named {tool.name!r}: give each tool a name of its own."
    names.append(tool.name)
    schema: Any = tool.parameters
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield (
            f"The parameters of {tool.name!r} are not the JSON Schema of an object: write "
            '{"type": "object", "properties": {...}}.'
        )


def check_name(whose: str, name: Any) -> None:
    """Raise `InvalidRequest` for a name that no provider would take."""
    for message in _name(whose, name):
        raise InvalidRequest(message)


def _name(whose: str, name: Any) -> Iterator[str]:
    if not isinstance(name, str) or not re.fullmatch(TOOL_NAME, name):
        yield (
            f"{whose} is named {name!r}: use up to 128 characters of a to z, A to Z, 0 to 9, _ "
            "and -."
        )


def _choice(request: Request, names: list[str]) -> Iterator[str]:
    choice = request.tool_choice
    if choice is None or choice in ("auto", "none"):
        return
    if not request.tools:
        yield f"tool_choice is {choice!r}, but the request has no tools: add tools or leave it out."
    elif choice != "required" and choice not in names:
        yield f"tool_choice is {choice!r}: write {_listed((*TOOL_CHOICES, *names))}."


def _output(output: OutputSchema) -> Iterator[str]:
    yield from _name("The output", output.name)
    schema: Any = output.schema
    if not isinstance(schema, dict):
        yield f"The output's schema is {schema!r}: write a JSON Schema as a dict."
