"""Makes tools of Python functions.

@tool
async def get_weather(city: str) -> dict:
    '''Current weather in a city.'''
    return {"temperature": "15C"}

@streaming_tool
async def survey(topic: str):
    '''Looks a topic up in several places.'''
    yield notify("asking three sources", progress=0.3)
    yield {"found": 3}
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, overload

from tailrace.runtime.tools.parameters import (
    InvalidTool,
    Parameters,
    strict_schema,
    written_function,
)
from tailrace.runtime.tools.tool import Context, NeedsApprovalRule, Tool
from tailrace.runtime.tools.tool_list import ToolSource, by_name


class FunctionTool(Tool):
    """A tool that is made of a Python function. Calling it calls the function."""

    def __init__(
        self, name: str, function: Callable[..., Any], signature: Parameters, **options: Any
    ) -> None:
        parameters = signature.schema
        if options.get("strict"):
            parameters = strict_schema(parameters, name)
        super().__init__(name, function=self._fill_in, parameters=parameters, **options)
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        self._signature = signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as if it were not a tool."""
        return self.__wrapped__(*args, **kwargs)

    def _convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._signature.convert(arguments)

    def _defaults(self) -> dict[str, Any]:
        return self._signature.defaults

    def _fill_in(self, arguments: dict[str, Any], context: Context) -> Any:
        return self.__wrapped__(**arguments, **dict.fromkeys(self._signature.contexts, context))


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: NeedsApprovalRule = False,
    idempotent: bool = False,
    executor: Literal["server", "client"] = "server",
    timeout: float | None = None,
    retries: int = 0,
    strict: bool = False,
    allowed_callers: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function, async or not: `@tool` or `@tool(timeout=5)`.

    The schema comes from the annotations, the descriptions from the docstring. A function that is
    not async runs in a thread. With `executor="client"` the function only declares: the client
    carries the call out. `needs_approval` may be a function of the arguments.
    """
    return _declared(function, options, streaming=False)


@overload
def streaming_tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def streaming_tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: NeedsApprovalRule = False,
    idempotent: bool = False,
    timeout: float | None = None,
    retries: int = 0,
    strict: bool = False,
    allowed_callers: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def streaming_tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of an async generator, which shows what it does while it runs.

    It yields `notify(…)`, blocks and events of a sub-agent. Any other value is the output and ends
    the tool.
    """
    return _declared(function, options, streaming=True)


def _declared(
    function: Callable[..., Any] | None, options: dict[str, Any], *, streaming: bool
) -> Any:
    # Types that are defined inside of the function that declares the tool.
    names = sys._getframe(2).f_locals  # noqa: SLF001
    if function is not None:
        return _from_function(function, names, streaming=streaming, **options)
    return lambda given: _from_function(given, names, streaming=streaming, **options)


def _from_function(
    function: Callable[..., Any],
    local_names: dict[str, Any],
    *,
    streaming: bool,
    name: str | None = None,
    description: str | None = None,
    **options: Any,
) -> FunctionTool:
    if isinstance(function, Tool):
        raise InvalidTool(f"Tool {function.name!r} is a tool already; decorate it once.")
    if not callable(function):
        raise InvalidTool(
            f"A tool is made of a function, not of {function!r}; write @tool above a `def`."
        )
    name = name or getattr(function, "__name__", None)
    if name is None:
        raise InvalidTool(f"{function!r} has no name; give one with `name=`.")
    target = written_function(function)
    generates = inspect.isasyncgenfunction(target)
    if streaming and not generates:
        raise InvalidTool(
            f"Tool {name!r} does not stream; write it as an `async def` that yields, or use @tool."
        )
    if not streaming and (generates or inspect.isgeneratorfunction(target)):
        raise InvalidTool(f"Tool {name!r} yields; declare it with @streaming_tool and `async def`.")
    signature = Parameters(function, Context, local_names)
    return FunctionTool(
        name,
        function,
        signature,
        description=signature.description if description is None else description,
        streaming=streaming,
        in_thread=not (streaming or inspect.iscoroutinefunction(target)),
        **options,
    )


def check_tools(tools: Iterable[Tool | ToolSource | Callable[..., Any]]) -> list[Tool | ToolSource]:
    """The tools that an agent declares: functions become tools, names must differ."""
    checked: list[Tool | ToolSource] = []
    for given in tools:
        if isinstance(given, Tool | ToolSource):
            checked.append(given)
        else:
            checked.append(tool(given))
    by_name(made for made in checked if isinstance(made, Tool))
    return checked
