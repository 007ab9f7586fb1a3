"""The tools of an agent by name, with those that are known only at run time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from tailrace.runtime.tools.parameters import InvalidTool
from tailrace.runtime.tools.tool import Tool


@runtime_checkable
class ToolSource(Protocol):
    """Gives tools that are only known at run time, as an MCP server does."""

    async def tools(self) -> list[Tool]:
        """The tools that there are now; raises `ToolError` while they cannot be listed."""
        ...


async def open_tools(tools: Sequence[Tool | ToolSource]) -> dict[str, Tool]:
    """All tools by name, those of sources included; raises `InvalidTool` if two have one name."""
    found: list[Tool] = []
    for given in tools:
        found += [given] if isinstance(given, Tool) else await given.tools()
    return by_name(found)


def by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """The tools by name; raises `InvalidTool` if two have one name."""
    named: dict[str, Tool] = {}
    for made in tools:
        if made.name in named:
            raise InvalidTool(f"Two tools have the name {made.name!r}; give one another `name=`.")
        named[made.name] = made
    return named
