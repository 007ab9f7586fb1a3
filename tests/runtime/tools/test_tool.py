"""What a tool does: runs, streams, times out, is retried, fails, and how it is declared."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from tailrace import Agent, Context, Tailrace, Tool, ToolError, notify, streaming_tool, tool
from tailrace.core.errors import CallerError, StorageError
from tailrace.core.items import Data, Text
from tailrace.core.sse import SseParser
from tailrace.models.scripted import Scripted, call, say
from tailrace.runtime.diagnostics.failures import ToolTimeout, tool_failure
from tailrace.runtime.tools import tool as module
from tailrace.runtime.tools.outputs import Notify, Output
from tailrace.runtime.tools.parameters import InvalidTool
from tailrace.server.request_body import decode_json


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.05)


def context(deps: Any = None) -> Context:
    return Context(cast(Any, None), "call_1", agent="tester", deps=deps)


async def events_of(made: Tool, **arguments: Any) -> list[Any]:
    return [event async for event in made.invoke(arguments, context())]


async def output_of(made: Tool, **arguments: Any) -> Any:
    *_, last = await events_of(made, **arguments)
    assert isinstance(last, Output)
    return last.value


# --- running -----------------------------------------------------------------------------------


async def test_an_async_function_gives_one_output() -> None:
    @tool
    async def double(n: int) -> int:
        return 2 * n

    assert await events_of(double, n=4) == [Output(8)]


async def test_a_tool_is_still_the_function_that_it_is_made_of() -> None:
    @tool
    async def double(n: int) -> int:
        """Doubles."""
        return 2 * n

    assert await double(4) == 8
    assert double.__doc__ == "Doubles."
    assert repr(double) == "<Tool double>"


async def test_the_context_reaches_a_tool_by_its_annotation() -> None:
    @tool
    def who(name: str, ctx: Context) -> tuple[str, str, str, Any]:
        return name, ctx.call_id, ctx.agent, ctx.deps

    made = [event async for event in who.invoke({"name": "x"}, context(deps=7))]
    assert made == [Output(("x", "call_1", "tester", 7))]


@pytest.mark.parametrize("is_async", [True, False])
async def test_progress_is_shown_in_order_and_before_the_output(is_async: bool) -> None:
    @tool
    async def on_the_loop(ctx: Context) -> int:
        ctx.progress("one", 0.5)
        ctx.progress("two", 1.0)
        return 1

    @tool
    def in_a_thread(ctx: Context) -> int:
        ctx.progress("one", 0.5)
        ctx.progress("two", 1.0)
        return 1

    assert await events_of(on_the_loop if is_async else in_a_thread) == [
        Notify("one", 0.5),
        Notify("two", 1.0),
        Output(1),
    ]
    context().progress("nobody listens")


# --- streaming ---------------------------------------------------------------------------------


async def test_a_streaming_tool_shows_notices_and_blocks_and_ends_with_its_output() -> None:
    closed = False

    @streaming_tool
    async def survey(topic: str) -> AsyncIterator[Any]:
        """Looks a topic up."""
        nonlocal closed
        try:
            yield notify("asking", progress=0.3, data={"n": 1})
            yield Text(text=topic)
            yield Data(data=[1])
            yield {"found": 3}
            raise AssertionError("the output ends the tool")
        finally:
            closed = True

    assert survey.streaming
    assert await events_of(survey, topic="x") == [
        Notify("asking", 0.3, {"n": 1}),
        Text(text="x"),
        Data(data=[1]),
        Output({"found": 3}),
    ]
    assert closed


async def test_a_streaming_tool_without_an_output_gives_none() -> None:
    @streaming_tool
    async def quiet() -> AsyncIterator[Any]:
        yield notify("done")

    assert await events_of(quiet) == [Notify("done"), Output(None)]


async def test_a_streaming_tool_waits_until_its_event_is_taken() -> None:
    made = 0

    @streaming_tool
    async def eager() -> AsyncIterator[Any]:
        nonlocal made
        for n in range(100):
            made = n
            yield notify(str(n))

    running = eager.invoke({}, context())
    async for _ in running:
        for _ in range(20):
            await asyncio.sleep(0)
        assert made <= 1
        break
    await running.aclose()


async def test_a_streaming_tool_that_is_cancelled_cleans_up() -> None:
    waiting, closed = asyncio.Event(), asyncio.Event()

    @streaming_tool
    async def endless() -> AsyncIterator[Any]:
        try:
            waiting.set()
            await asyncio.Event().wait()
            yield 1
        finally:
            closed.set()

    task = asyncio.create_task(output_of(endless))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed.is_set()


# --- failing -----------------------------------------------------------------------------------


async def test_a_tool_error_has_a_message_for_the_model() -> None:
    @tool
    async def failing() -> None:
        raise ToolError("There is no city of that name.")

    with pytest.raises(ToolError) as caught:
        await output_of(failing)
    error = tool_failure("run_1", "failing", caught.value)
    assert (error.code, error.message) == ("tool_error", "There is no city of that name.")


async def test_of_another_exception_the_model_reads_the_type_and_an_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    def failing() -> None:
        raise KeyError("sk-secret")

    with caplog.at_level(logging.INFO), pytest.raises(KeyError) as caught:
        await output_of(failing)
    error = tool_failure("run_1", "failing", caught.value)
    assert error.code == "tool_error"
    assert error.message.startswith("The tool failing failed: KeyError (err_")
    ident = error.message.partition("(")[2].removesuffix(").")
    assert f'{ident}; logging.getLogger("tailrace").setLevel("DEBUG") shows the text' in caplog.text
    assert "test_tool.py" in caplog.text
    assert "secret" not in caplog.text + error.message


async def test_of_our_own_errors_that_a_tool_raises_itself_the_model_reads_the_type_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    async def failing() -> None:
        raise StorageError("postgresql://me:sk-secret@db is away")

    with caplog.at_level(logging.INFO), pytest.raises(StorageError) as caught:
        await output_of(failing)
    error = tool_failure("run_1", "failing", caught.value)
    assert error.message.startswith("The tool failing failed: StorageError (err_")
    assert "secret" not in caplog.text + error.message


async def test_an_error_of_our_own_code_has_its_message_for_the_model() -> None:
    with pytest.raises(CallerError) as caught:
        decode_json(b'{"a": 1, "a": 2}')
    assert "twice" in tool_failure("run_1", "failing", caught.value).message


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (SystemExit(3), SystemExit),
        (StopIteration(), RuntimeError),
        (GeneratorExit(), RuntimeError),
        (BaseException(), RuntimeError),
    ],
)
async def test_an_exception_that_would_end_the_process_ends_the_tool_only(
    is_async: bool, error: BaseException, raised: type[BaseException]
) -> None:
    @tool
    async def on_the_loop() -> None:
        raise error

    @tool
    def in_a_thread() -> None:
        raise error

    with pytest.raises(raised):
        async with asyncio.timeout(120):
            await output_of(on_the_loop if is_async else in_a_thread)


async def test_something_cancelled_inside_a_tool_is_its_failure() -> None:
    @tool
    async def careless() -> None:
        inner = asyncio.ensure_future(asyncio.Event().wait())
        inner.cancel()
        await inner

    with pytest.raises(ToolError, match="waited for was cancelled"):
        await output_of(careless)


# --- time --------------------------------------------------------------------------------------


async def test_a_timeout_names_the_tool_and_the_time() -> None:
    cleaned = False

    @tool(timeout=0.02)
    async def slow() -> None:
        nonlocal cleaned
        try:
            await asyncio.Event().wait()
        finally:
            cleaned = True

    with pytest.raises(ToolTimeout, match=r"The tool slow did not finish within 0.02 seconds."):
        await output_of(slow)
    assert cleaned


async def test_a_tool_that_ignores_its_timeout_is_left_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = asyncio.Event()

    @tool(timeout=0.02)
    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    with pytest.raises(ToolTimeout):
        await output_of(stubborn)
    assert "stubborn ignores that it was cancelled" in caplog.text
    release.set()


async def test_a_timeout_is_for_the_whole_attempt_however_often_the_tool_yields() -> None:
    @streaming_tool(timeout=0.2)
    async def endless() -> AsyncIterator[Any]:
        while True:
            await asyncio.sleep(0.01)
            yield notify("still here")

    async with asyncio.timeout(120):
        with pytest.raises(ToolTimeout):
            await events_of(endless)


async def test_the_time_of_the_reader_of_events_does_not_count() -> None:
    @streaming_tool(timeout=0.3)
    async def quick() -> AsyncIterator[Any]:
        yield notify("one")
        yield "done"

    seen = []
    async for event in quick.invoke({}, context()):
        seen.append(event)
        await asyncio.sleep(0.35)
    assert seen == [Notify("one"), Output("done")]


# --- retries -----------------------------------------------------------------------------------


def flaky(error: Exception, times: int) -> Callable[[], Any]:
    left = [error] * times

    async def attempt() -> int:
        if left:
            raise left.pop()
        return 1

    return attempt


async def test_an_idempotent_tool_is_tried_again() -> None:
    made = tool(idempotent=True, retries=2)(flaky(LookupError(), 2))
    assert await output_of(made) == 1
    made = tool(idempotent=True, retries=1)(flaky(LookupError(), 2))
    with pytest.raises(LookupError):
        await output_of(made)


async def test_a_timeout_is_tried_again_and_a_tool_error_is_not() -> None:
    tries = 0

    @tool(idempotent=True, retries=1, timeout=0.02)
    async def slow_at_first() -> int:
        nonlocal tries
        tries += 1
        if tries == 1:
            await asyncio.Event().wait()
        return tries

    assert await output_of(slow_at_first) == 2
    made = tool(idempotent=True, retries=1)(flaky(ToolError("no"), 1))
    with pytest.raises(ToolError):
        await output_of(made)


async def test_a_streaming_tool_is_tried_again_until_it_has_shown_a_block() -> None:
    tries = 0

    @streaming_tool(idempotent=True, retries=5)
    async def showing() -> AsyncIterator[Any]:
        nonlocal tries
        tries += 1
        yield notify(f"try {tries}")
        if tries == 1:
            raise LookupError
        yield Text(text="shown")
        raise LookupError

    seen = []

    async def read() -> None:
        async for event in showing.invoke({}, context()):
            seen.append(event)  # noqa: PERF401 - it raises

    with pytest.raises(LookupError):
        await read()
    assert seen == [Notify("try 1"), Notify("try 2"), Text(text="shown")]


# --- approval and clients ----------------------------------------------------------------------


def test_approval_may_depend_on_the_arguments(caplog: pytest.LogCaptureFixture) -> None:
    async def pay(amount: int) -> str:
        return "paid"

    assert not tool(pay).asks_approval({"amount": 5})
    assert tool(needs_approval=True)(pay).asks_approval({"amount": 5})
    large = tool(needs_approval=lambda arguments: arguments["amount"] > 100)(pay)
    assert not large.asks_approval(large.validate('{"amount": 5}'))
    assert large.asks_approval(large.validate('{"amount": 500}'))
    assert large.asks_approval({})
    assert "needs_approval failed with KeyError" in caplog.text


def test_a_function_decides_about_approval_with_the_defaults_of_the_call() -> None:
    @tool(needs_approval=lambda arguments: arguments["severity"] != "nit")
    def comment(text: str, severity: str = "nit") -> str:
        return "ok"

    assert not comment.asks_approval(comment.validate('{"text": "hey"}'))
    assert comment.asks_approval(comment.validate('{"text": "hey", "severity": "major"}'))


async def test_a_client_tool_needs_no_body() -> None:
    @tool(executor="client")
    def get_location(precise: bool = False) -> dict[str, float]:
        """Where the user is."""
        raise NotImplementedError

    assert get_location.executor == "client"
    by_hand = Tool("locate", executor="client", description="Where the user is.")
    with pytest.raises(ToolError, match="runs at the client"):
        await output_of(by_hand)


async def test_hints_and_attachments_reach_the_run_format() -> None:
    attachment = {"bucket": "b", "path": "p", "mime_type": "text/csv", "url": "https://x/p"}
    hints = {"ui_mode": "table", "ui_state": {}, "actions": []}

    @tool
    def rows() -> dict[str, Any]:
        return {"rows": 3, "ui_hints": hints, "attachments": [attachment]}

    agent = Agent("a", model=Scripted([call("rows")], [say("Three.")]), tools=[rows])
    app = Tailrace([agent], "sqlite://:memory:")
    shown = []
    async with app.running():
        run = await app.start("a", "How many?")
        parser = SseParser()
        async for frames in run.events(format="run"):
            results = (one for one in parser.feed(frames) if one.event == "tool.result")
            shown += [json.loads(one.data)["data"]["toolAgentOutput"] for one in results]
    assert [one["ui_hints"] for one in shown] == [hints]
    assert [one["attachments"] for one in shown] == [[attachment]]
    assert [one["result_summary"] for one in shown] == ['{"rows":3}']


# --- declaring ---------------------------------------------------------------------------------


async def _nothing(arguments: dict[str, Any], _context: Context) -> dict[str, Any]:
    return arguments


async def test_a_tool_by_hand_gets_the_arguments_as_they_are() -> None:
    made = Tool("echo", function=_nothing)
    assert await output_of(made, a=1) == {"a": 1}
    assert made.spec().parameters == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "get weather"}, "1 to 64 letters"),
        ({"name": "x" * 65}, "1 to 64 letters"),
        ({"name": "none"}, "tool_choice"),
        ({"executor": "moon"}, '"server" or "client"'),
        ({"function": None}, "has no function"),
        ({"retries": 1}, "idempotent=True"),
        ({"timeout": 0}, "more than 0"),
        ({"timeout": "5"}, "more than 0"),
        ({"timeout": True}, "more than 0"),
        ({"needs_approval": "no"}, "is 'no'; pass a bool, or a function"),
        ({"needs_approval": _nothing}, "is async, but decides at once"),
        ({"parameters": {"type": "string"}}, 'type "object"'),
    ],
)
def test_a_wrong_declaration_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidTool, match=words):
        Tool(**{"name": "x", "function": _nothing, **options})


def test_the_decorator_fits_the_function() -> None:
    async def generates() -> AsyncIterator[int]:
        yield 1

    def generates_too() -> Any:
        yield 1

    async def returns() -> int:
        return 1

    with pytest.raises(InvalidTool, match="@streaming_tool"):
        tool(generates)
    with pytest.raises(InvalidTool, match="@streaming_tool"):
        tool(generates_too)
    with pytest.raises(InvalidTool, match="that yields"):
        streaming_tool(returns)
    with pytest.raises(InvalidTool, match="decorate it once"):
        tool(tool(returns))
    with pytest.raises(InvalidTool, match="made of a function"):
        tool(cast(Any, 3))
