"""The tools of an agent by name, with those of a source."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tailrace import Tool, tool
from tailrace.runtime.tools.from_functions import check_tools
from tailrace.runtime.tools.parameters import InvalidTool
from tailrace.runtime.tools.tool_list import open_tools


async def test_the_tools_of_an_agent_have_different_names() -> None:
    async def one() -> int:
        return 1

    first = tool(one)
    assert [made.name for made in cast(Any, check_tools([one]))] == ["one"]
    with pytest.raises(InvalidTool, match="Two tools have the name 'one'"):
        check_tools([first, one])

    class Source:
        async def tools(self) -> list[Tool]:
            return [tool(name="two")(one)]

    checked = check_tools([first, Source()])
    assert list(await open_tools(checked)) == ["one", "two"]
    with pytest.raises(InvalidTool, match="'two'"):
        await open_tools([*checked, Source()])
