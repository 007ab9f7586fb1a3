"""Tools that a model may call, and how a call of a tool runs.

The agent's loop calls `validate` with what the model wrote and `invoke` with what that gave. It
records each event that `invoke` yields, and an error that it raises as the result of the call.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from tailrace.core.errors import MalformedJson
from tailrace.core.tool_arguments import read_arguments
from tailrace.core.values import quoted
from tailrace.ports import ToolSpec
from tailrace.ports.model import TOOL_CHOICES
from tailrace.runtime.diagnostics.failures import ToolError, ToolTimeout
from tailrace.runtime.tools.os_threads import Raised, as_error, from_any_thread, in_thread
from tailrace.runtime.tools.outputs import SHOWN, Notify, Output, Streamed
from tailrace.runtime.tools.parameters import InvalidArguments, InvalidTool

if TYPE_CHECKING:
    from tailrace.runtime.tasks.task import Task

logger = logging.getLogger("tailrace")

RETRY_SECONDS = 0.2
"""How long a failed idempotent tool waits before its second attempt; twice as long each time."""

GRACE_SECONDS = 1.0
"""How long a tool may take to clean up after a cancel; then the run goes on without it."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Context:
    """What a tool may know of the call that it answers.

    A tool gets it by annotation: a parameter `ctx: Context` is filled in and is not part of the
    schema. `deps` is what the agent was declared with.
    """

    def __init__(
        self,
        task: Task,
        call_id: str = "",
        *,
        agent: str = "",
        deps: Any = None,
        send: Callable[[Notify], None] | None = None,
        ask: Callable[[Any, str], Awaitable[str]] | None = None,
    ) -> None:
        self.task = task
        self.call_id = call_id
        self.agent = agent
        self.deps = deps
        self._send = send
        self._ask = ask

    @property
    def run_id(self) -> str:
        """The run that the call belongs to."""
        return self.task._sink.emitter.logged.run_id

    @property
    def thread_id(self) -> str:
        """The thread that the run belongs to."""
        return self.task.thread_id

    @property
    def owner(self) -> str:
        """The id of the principal that started the run; "" for no principal."""
        return self.task.owner

    @property
    def metadata(self) -> Any:
        """The metadata that the run was started with."""
        return self.task.metadata

    def progress(self, message: str, progress: float | None = None) -> None:
        """Show how far the tool has come; `progress` is from 0 to 1. Any thread may call it."""
        if self._send is not None:
            self._send(Notify(message, progress))

    async def ask(self, agent: Any, prompt: str) -> str:
        """Let an agent work as a sub-agent of this call, shown while it works; its answer.

        A call may ask several agents, also at the same time. An agent that ends without an answer
        raises `ToolError`.
        """
        if self._ask is None:
            raise ToolError(
                "Agents can be asked only while a tool runs. Use `context.ask` inside the tool."
            )
        return await self._ask(agent, prompt)

    def _sending(self, send: Callable[[Notify], None]) -> Context:
        """The same context for one attempt of a call, whose progress goes to `send`."""
        return Context(
            self.task, self.call_id, agent=self.agent, deps=self.deps, send=send, ask=self._ask
        )


NeedsApprovalRule: TypeAlias = bool | Callable[[dict[str, Any]], bool]
Function: TypeAlias = Callable[[dict[str, Any], Context], Any]
"""The work of a tool by hand: it gets the arguments and the context.

It returns a value, an awaitable, or, for a streaming tool, an async iterator.
"""


class Tool:
    """A function that a model may call.

    `@tool` and `@streaming_tool` make one of a Python function. By hand:
    `Tool("name", function=work, parameters={…})`, where `work` takes the arguments, as the model
    wrote them, and the context.
    """

    def __init__(
        self,
        name: str,
        *,
        function: Function | None = None,
        description: str = "",
        parameters: dict[str, Any] | None = None,
        needs_approval: NeedsApprovalRule = False,
        idempotent: bool = False,
        executor: Literal["server", "client"] = "server",
        timeout: float | None = None,
        retries: int = 0,
        streaming: bool = False,
        in_thread: bool = False,
        strict: bool = False,
        allowed_callers: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.description = description
        self.parameters = parameters or {"type": "object", "properties": {}}
        self.needs_approval = needs_approval
        self.idempotent = idempotent
        self.executor = executor
        self.timeout = timeout
        self.retries = retries
        self.streaming = streaming
        self.strict = strict
        self.allowed_callers = allowed_callers
        self._function = function
        self._in_thread = in_thread
        self._check()

    def _check(self) -> None:
        who = f"Tool {self.name!r}"
        if not _NAME.fullmatch(self.name):
            raise InvalidTool(
                f"{who}: providers take names of 1 to 64 letters, digits, `_` and `-`; "
                "give another with `name=`."
            )
        if self.name in TOOL_CHOICES:
            raise InvalidTool(f"{who}: its name is a value of `tool_choice`; give another name.")
        if self.executor not in ("server", "client"):
            raise InvalidTool(
                f'{who}: `executor` must be "server" or "client", not {self.executor!r}.'
            )
        if self._function is None and self.executor == "server":
            raise InvalidTool(f'{who} has no function; give one, or `executor="client"`.')
        if self.retries < 0 or (self.retries and not self.idempotent):
            raise InvalidTool(
                f"{who}: only a tool that may run twice is retried; declare it "
                "`idempotent=True`, or leave `retries` out."
            )
        if inspect.iscoroutinefunction(self.needs_approval):
            raise InvalidTool(
                f"{who}: `needs_approval` is async, but decides at once; write a plain function."
            )
        if not (isinstance(self.needs_approval, bool) or callable(self.needs_approval)):
            raise InvalidTool(
                f"{who}: `needs_approval` is {self.needs_approval!r}; "
                "pass a bool, or a function of the arguments."
            )
        if self.timeout is not None and not (
            type(self.timeout) in (int, float) and self.timeout > 0
        ):
            raise InvalidTool(
                f"{who}: `timeout` must be seconds, more than 0, not {self.timeout!r}."
            )
        callers = self.allowed_callers
        if isinstance(callers, str) or not all(isinstance(one, str) for one in callers):
            raise InvalidTool(
                f"{who}: `allowed_callers` must be a list of strings, not {callers!r}."
            )
        if self.parameters.get("type") != "object":
            kind = quoted(self.parameters.get("type"))
            raise InvalidTool(
                f'{who}: the type of `parameters` is {kind}; write a JSON Schema of type "object".'
            )

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    def spec(self) -> ToolSpec:
        """The tool as a model gets it."""
        return ToolSpec(
            name=self.name,
            description=self.description,
            parameters=self.parameters,
            strict=self.strict,
            allowed_callers=tuple(self.allowed_callers),
        )

    def validate(self, arguments: str | dict[str, Any]) -> dict[str, Any]:
        """The arguments that a model wrote, in the types of the function's annotations.

        Raises `InvalidArguments` with a message for the model. A tool by hand gets them as they
        are; only the `required` names of its schema are checked.
        """
        value: Any = arguments
        if isinstance(arguments, str):
            try:
                value = read_arguments(arguments)
            except MalformedJson as error:
                raise self._invalid(f"they are not JSON: {error}") from None
        if value is None:  # some models write null where there is nothing to write
            value = {}
        if not isinstance(value, dict):
            raise self._invalid(f"they must be a JSON object, not {type(value).__name__}")
        try:
            return self._convert(value)
        except (msgspec.ValidationError, RecursionError) as error:
            raise self._invalid(str(error)) from None

    def _convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        missing = [name for name in self.parameters.get("required", ()) if name not in arguments]
        if missing:
            raise msgspec.ValidationError(f"required fields are missing: {', '.join(missing)}")
        return arguments

    def _defaults(self) -> dict[str, Any]:
        return {}

    def _invalid(self, why: str) -> InvalidArguments:
        return InvalidArguments(f"The arguments of {self.name} are invalid: {why}.")

    def asks_approval(self, arguments: dict[str, Any]) -> bool:
        """Whether a person has to approve a call with these validated arguments.

        The function that decides this gets the defaults too. If it fails, a person decides.
        """
        if not callable(self.needs_approval):
            return self.needs_approval
        try:
            return bool(self.needs_approval({**self._defaults(), **arguments}))
        except Exception as error:  # noqa: BLE001 - it is the user's code
            logger.warning(
                "tool %s: needs_approval failed with %s; a person is asked",
                self.name,
                type(error).__name__,
            )
            return True

    async def invoke(
        self, arguments: dict[str, Any], context: Context
    ) -> AsyncGenerator[Streamed | Output, None]:
        """Run the tool with validated arguments: what it shows, then exactly one `Output`.

        Errors are raised: `ToolTimeout`, `ToolError`, or what the function raised. An idempotent
        tool is tried again, unless the error is a `ToolError` or a block was shown already.
        """
        for attempt in range(self.retries + 1):
            shown = False
            try:
                async with aclosing(self._attempt(arguments, context)) as events:
                    async for event in events:
                        shown = shown or not isinstance(event, Notify)
                        yield event
                return
            except Exception as error:
                deliberate = isinstance(error, ToolError) and not isinstance(error, ToolTimeout)
                if shown or deliberate or attempt == self.retries:
                    raise
                logger.info("tool %s failed and is tried again", self.name)
            await asyncio.sleep(RETRY_SECONDS * 2**attempt)

    async def _attempt(
        self, arguments: dict[str, Any], context: Context
    ) -> AsyncGenerator[Streamed | Output, None]:
        """Run the function in a task of its own: the run need not wait until it gives up."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Streamed | Output | Raised] = asyncio.Queue()
        own = context._sending(partial(from_any_thread, loop, events))  # noqa: SLF001
        body = loop.create_task(self._run(arguments, own, events), name=f"tool {self.name}")
        left = self.timeout
        try:
            while True:
                since = loop.time()
                try:
                    async with asyncio.timeout(left):
                        event = await events.get()
                except TimeoutError:
                    raise ToolTimeout(
                        f"The tool {self.name} did not finish within {self.timeout:g} seconds."
                    ) from None
                if isinstance(event, Raised):
                    raise event.error
                if left is not None:
                    left -= loop.time() - since
                yield event
                if isinstance(event, Output):
                    return
                events.task_done()
        finally:
            await self._stop(body)

    async def _stop(self, body: asyncio.Task[None]) -> None:
        if not body.done():
            body.cancel()
            await asyncio.wait({body}, timeout=GRACE_SECONDS)
            if not body.done():
                logger.warning("tool %s ignores that it was cancelled; left behind", self.name)

    async def _run(
        self,
        arguments: dict[str, Any],
        context: Context,
        events: asyncio.Queue[Streamed | Output | Raised],
    ) -> None:
        try:
            value = await self._value(arguments, context, events)
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
            why = f"The tool {self.name} failed: something that it waited for was cancelled."
            events.put_nowait(Raised(ToolError(why)))
        except KeyboardInterrupt:  # on the event loop, it may be a Ctrl-C
            raise
        except BaseException as error:  # noqa: BLE001 - it is the user's code
            events.put_nowait(Raised(as_error(error)))
        else:
            events.put_nowait(Output(value))

    async def _value(
        self,
        arguments: dict[str, Any],
        context: Context,
        events: asyncio.Queue[Streamed | Output | Raised],
    ) -> Any:
        if self._function is None:
            raise ToolError(
                f"Tool {self.name} runs at the client; answer the request instead of calling it."
            )
        if self._in_thread:
            return await in_thread(partial(self._function, arguments, context))
        value = self._function(arguments, context)
        if not self.streaming:
            return await value if inspect.isawaitable(value) else value
        async with aclosing(value):
            async for event in value:
                if not isinstance(event, SHOWN):
                    return event
                shown: Streamed = event
                events.put_nowait(shown)
                await events.join()  # the tool goes on when the event was taken
        return None
