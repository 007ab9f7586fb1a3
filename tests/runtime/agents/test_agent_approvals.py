"""People in the loop: approvals, questions and client-executed tools of an agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace import Agent, Answer, Context, Limits, Tailrace, Task, tool
from tailrace.core import events as ev
from tailrace.core.errors import CallerError, NotFound
from tailrace.core.items import ToolResult
from tailrace.models.scripted import Scripted, call, say
from tailrace.runtime.runs import input_checks
from tailrace.runtime.runs.quota import LimitReached
from tailrace.runtime.runs.run import Run
from tailrace.testing.waiting import until
from tailrace.wire import openai_responses, vercel_ui
from tailrace.wire.run.outputs import tool_agent_output


class Mail:
    """Counts what was sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []


@tool(needs_approval=True)
async def send_mail(to: str, ctx: Context) -> str:
    """Sends a mail."""
    ctx.deps.sent.append(to)
    return f"sent to {to}"


@tool
async def get_weather(city: str) -> str:
    """Current weather."""
    return f"{city}: sunny"


def mailer(mail: Mail, *tools: Any) -> Agent:
    model = Scripted(
        [call("send_mail", to="ada@example.org"), call("get_weather", city="Paris")],
        [say("Done.")],
    )
    return Agent("mailer", model=model, tools=[send_mail, get_weather, *tools], deps=mail)


@asynccontextmanager
async def running(path: Path, *agents: Any) -> AsyncIterator[Tailrace]:
    app = Tailrace(agents, database=path / "log.db")
    async with app.running(), asyncio.timeout(120):
        yield app


async def asked(run: Run) -> ev.TaskInputRequired:
    """Wait until the run asks people."""
    async for event in run.events():
        if isinstance(event, ev.TaskInputRequired):
            return event
    raise AssertionError("the run asked nothing")


async def test_an_approved_call_runs_once_and_the_others_do_not_wait_for_it(tmp_path: Path) -> None:
    mail = Mail()
    async with running(tmp_path, mailer(mail)) as app:
        run = await app.start("mailer", "Tell Ada.")
        [request] = (await asked(run)).requests
        assert request.kind == "approval"
        async for event in run.events():  # the weather has its result while the mail waits
            if isinstance(event, ev.OutputItemDone) and event.item.id.startswith("fco"):
                break
        assert mail.sent == []
        worker = app._runs.worker
        assert worker is not None
        await until(lambda: worker.parked == [run.id])
        await run.send(Answer(request_id=request.id, approved=True))
        # A second time changes nothing, also after the end.
        await run.send(Answer(request_id=request.id, approved=True))
        result = await run.result()
        await run.send(Answer(request_id=request.id, approved=True))
        with pytest.raises(CallerError, match="has no request"):
            await run.send({"request_id": "another"})
    assert result.text == "Done."
    assert mail.sent == ["ada@example.org"]


@pytest.mark.parametrize("word", ["", "send_mail", "approval", "ada@example.org"])
async def test_an_id_that_is_only_a_word_of_the_log_is_no_request(
    tmp_path: Path, word: str
) -> None:
    mail = Mail()
    async with running(tmp_path, mailer(mail)) as app:
        run = await app.start("mailer", "")
        [request] = (await asked(run)).requests
        with pytest.raises(NotFound, match=f"has no request '{word}'. Its open requests: req_"):
            await run.send(Answer(request_id=word, approved=True))
        await run.send(Answer(request_id=request.id, approved=True))
        assert (await run.result()).text == "Done."
        with pytest.raises(NotFound, match=f"has no request '{word}'. Its open requests: none"):
            await run.send(Answer(request_id=word, approved=True))


async def test_input_that_the_agent_does_not_read_is_bounded_and_does_not_keep_out_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_checks, "UNREAD_BYTES", 5 * input_checks.LETTER_BYTES)
    async with running(tmp_path, mailer(Mail())) as app:
        run = await app.start("mailer", "Tell Ada.")
        [request] = (await asked(run)).requests
        await app._runs.send(run.id, {"note": "x" * input_checks.LETTER_BYTES})  # counts twice
        for _ in range(3):
            await app._runs.send(run.id, {"note": ""})
        with pytest.raises(LimitReached, match="has 4 inputs that its agent has not read"):
            await app._runs.send(run.id, {"note": ""})
        await run.send(Answer(request_id=request.id, approved=True))
        assert (await run.result()).text == "Done."
        with pytest.raises(CallerError, match="has ended and takes no input"):
            await app._runs.send(run.id, {"note": ""})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "is an approval: send `approved`, true or false"),
        ({"value": {"to": "eve"}}, "is an approval: send `approved`, true or false"),
        ({"approved": True, "value": "eve"}, "replaces the arguments of send_mail"),
        ({"approved": True, "request_id": None}, "names no request. Send the `request_id`"),
    ],
)
async def test_an_answer_that_does_not_fit_an_approval_is_refused_and_the_run_waits(
    tmp_path: Path, wrong: dict[str, Any], words: str
) -> None:
    mail = Mail()
    async with running(tmp_path, mailer(mail)) as app:
        run = await app.start("mailer", "Tell Ada.")
        [request] = (await asked(run)).requests
        answer = {"request_id": request.id, **wrong}
        sent = {name: value for name, value in answer.items() if value is not None}
        with pytest.raises(CallerError, match=words):
            await app._runs.send(run.id, sent)
        assert await run.requests() == [request]
        await run.send(True)
        result = await run.result()
    assert (result.status, mail.sent) == ("completed", ["ada@example.org"])


@tool(executor="client")
def locate(precise: bool) -> str:
    """Where the user is."""
    raise NotImplementedError


async def test_a_request_has_the_name_and_the_arguments_of_its_call(tmp_path: Path) -> None:
    async def own_loop(task: Task) -> None:
        with task.call("paint") as call:
            call.arguments('{"colour": "red"}')
        await task.ask("Paint it red?", kind="approval", call=call)

    async def free_text(task: Task) -> None:
        with task.call("run_sql") as call:
            call.arguments("select 1")
        await task.ask("Run this?", kind="approval", call=call)

    async def question(task: Task) -> None:
        await task.ask("Which city?")

    locator = Agent(
        "locator", model=Scripted([call("locate", precise=True)], [say("x")]), tools=[locate]
    )
    shown = {}
    for name, agent in {
        "mailer": mailer(Mail()),
        "locator": locator,
        "own_loop": own_loop,
        "free_text": free_text,
        "question": question,
    }.items():
        (folder := tmp_path / name).mkdir()
        async with running(folder, agent) as app:
            run = await app.start(name, "Go.")
            [request] = (await asked(run)).requests
            assert await run.requests() == [request]
            shown[name] = (request.name, request.arguments)
            await run.cancel()
    assert shown == {
        "mailer": ("send_mail", {"to": "ada@example.org"}),
        "locator": ("locate", {"precise": True}),
        "own_loop": ("paint", {"colour": "red"}),
        "free_text": ("run_sql", "select 1"),
        "question": (None, None),
    }


async def test_a_denied_call_does_not_run_and_the_model_reads_the_reason(tmp_path: Path) -> None:
    mail = Mail()
    async with running(tmp_path, mailer(mail)) as app:
        run = await app.start("mailer", "Tell Ada.")
        [request] = (await asked(run)).requests
        await run.send(Answer(request_id=request.id, approved=False, reason="She is asleep."))
        result = await run.result()
    assert mail.sent == []
    [error] = [item["error"] for item in result.items if item.get("status") == "failed"]
    assert error == {"code": "denied", "message": "A person denied the call: She is asleep."}
    assert result.status == "completed"


async def test_a_person_may_edit_the_arguments_and_the_model_reads_that(tmp_path: Path) -> None:
    mail = Mail()
    async with running(tmp_path, mailer(mail)) as app:
        run = await app.start("mailer", "Tell Ada.")
        [request] = (await asked(run)).requests
        edited = {"to": "eve@example.org"}
        await run.send(Answer(request_id=request.id, approved=True, value=edited))
        result = await run.result()
        state = (await app._runs.look(run.id)).state
    assert state.root is not None
    assert mail.sent == ["eve@example.org"]
    thread = openai_responses.FORMAT.messages([state])
    calls = {item["name"]: item["arguments"] for item in thread if item["type"] == "mcp_call"}
    assert calls["send_mail"] == '{"to":"eve@example.org"}'
    assert "ada@example.org" not in str(vercel_ui.FORMAT.messages([state]))
    *_, node = state.root.call_results.values()
    assert isinstance(node.item, ToolResult)
    assert tool_agent_output(state.root, node, node.item)["tool_call_args"] == edited
    read = [item for item in result.to_input_list() if item.get("type") == "function_call_output"]
    assert "changed the arguments" in str(read)


async def test_arguments_of_a_person_that_the_tool_does_not_take_are_refused(
    tmp_path: Path,
) -> None:
    """Of the root, of a sub-agent, of its sub-agent after a handoff, and of a provider's tool."""
    mail = Mail()

    @tool(needs_approval=True)
    def run_shell(commands: list[str]) -> str:
        """Runs commands."""
        return "README.md"

    asks = [call("send_mail", to="ada@example.org")]
    script = Scripted([call("transfer_to_other")], asks, [say("Sent.")])
    below = Agent("below", model=script)
    other = Agent("other", model=script, tools=[send_mail], deps=mail)
    below.add_handoffs(other)
    child = Agent(
        "child",
        model=Scripted([*asks, call("below", prompt="?")], [say("Sent.")]),
        tools=[send_mail, below.as_tool(needs_approval=True)],
        deps=mail,
    )
    agent = Agent(
        "a",
        model=Scripted(
            [*asks, call("child", prompt="?"), call("bash", commands=[])], [say("Yes.")]
        ),
        tools=[send_mail, child.as_tool(), {"type": "bash_20250124", "name": "bash"}],
        handlers={"bash": run_shell},
        deps=mail,
    )
    invalid = {"send_mail": {"to": 5}, "below": {"prompt": 5}, "bash": {"commands": "ls"}}
    refused: list[str] = []
    async with running(tmp_path, agent) as app:
        run = await app.start("a", "Tell Ada.")
        async for event in run.events():
            for request in event.requests if isinstance(event, ev.TaskInputRequired) else []:
                value = invalid[request.name or ""]
                with pytest.raises(CallerError, match="invalid") as error:
                    await run.send(Answer(request_id=request.id, approved=True, value=value))
                assert error.value.param == "value"
                refused.append(request.name or "")
                await run.send(Answer(request_id=request.id, approved=True))
        result = await run.result()
    assert sorted(refused) == ["bash", "below", "send_mail", "send_mail", "send_mail"]
    assert mail.sent == ["ada@example.org"] * 3
    assert result.text == "Yes."


async def test_a_tool_that_is_known_at_run_time_only_refuses_arguments_when_it_runs(
    tmp_path: Path,
) -> None:
    class Source:
        async def tools(self) -> list[Any]:
            return [send_mail]

    class Odd(msgspec.Struct):
        """A type that fails in its own way."""

        name: str

        def __post_init__(self) -> None:
            if self.name == "odd":
                raise LookupError(self.name)

    @tool(needs_approval=True)
    async def greet(who: Odd) -> str:
        """Greets."""
        raise AssertionError

    mail = Mail()
    asks = [call("send_mail", to="ada@example.org"), call("greet", who={"name": "ada"})]
    model = Scripted(asks, [say("Done.")])
    agent = Agent("a", model=model, tools=[Source(), greet], deps=mail)
    values = {"send_mail": {"to": 5}, "greet": {"who": {"name": "odd"}}}
    async with running(tmp_path, agent) as app:
        run = await app.start("a", "Tell Ada.")
        for request in (await asked(run)).requests:
            value = values[request.name or ""]
            await run.send(Answer(request_id=request.id, approved=True, value=value))
        result = await run.result()
    assert mail.sent == []
    read = [item for item in result.to_input_list() if item.get("type") == "function_call_output"]
    assert "Expected `str`" in str(read[0])
    assert "LookupError" in str(read[1])


async def test_a_pending_approval_survives_a_restart_and_is_answered_exactly_once(
    tmp_path: Path,
) -> None:
    mail = Mail()
    async with running(tmp_path, mailer(mail)) as app:
        run = await app.start("mailer", "Tell Ada.")
        [request] = (await asked(run)).requests
        worker = app._runs.worker
        assert worker is not None
        await until(lambda: worker.parked == [run.id])
    async with running(tmp_path, mailer(mail)) as app:
        run = await app.run(run.id)
        assert [one.id for one in await run.requests()] == [request.id]
        await run.send(Answer(request_id=request.id, approved=True))
        result = await run.result()
        events = [event async for event in run.events()]
    assert result.text == "Done."
    assert mail.sent == ["ada@example.org"]
    assert sum(isinstance(event, ev.TaskInputRequired) for event in events) == 1
    assert not any(isinstance(event, ev.TaskAttempt) for event in events)


async def test_a_run_is_not_parked_while_a_sub_agent_works_between_its_turns(
    tmp_path: Path,
) -> None:
    """If its worker died then, the run would wait for an answer, and clients for the sub-agent."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def instructions(_ctx: Context) -> str:
        begun.set()
        await go_on.wait()
        return "Work."

    works = Agent("works", model=Scripted([say("Worked.")]), instructions=instructions)
    model = Scripted([call("mailer", prompt="?"), call("works", prompt="?")], [say("Done.")])
    mail = Mail()
    agent = Agent("a", model=model, tools=[mailer(mail).as_tool(), works.as_tool()])
    quick = Agent("quick", model=Scripted([say("Hello.")]))
    async with running(tmp_path, agent, quick) as app:
        run = await app.start("a", "Tell Ada.")
        [request] = (await asked(run)).requests
        await begun.wait()
        worker = app._runs.worker
        assert worker is not None
        for _ in range(3):  # the worker looks for runs to claim and to park
            await (await app.start("quick", "?")).result()
        assert (worker.parked, run.id in worker.runs) == ([], True)
        go_on.set()
        await until(lambda: worker.parked == [run.id])
        await run.send(Answer(request_id=request.id, approved=True))
        result = await run.result()
    assert (result.text, mail.sent) == ("Done.", ["ada@example.org"])


async def test_a_client_executed_tool_gets_its_result_through_the_inbox(tmp_path: Path) -> None:
    @tool(executor="client")
    async def read_clipboard() -> str:
        """What the user copied."""
        raise AssertionError("the client carries it out")

    model = Scripted([call("read_clipboard")], [say("You copied: hello.[^1]")])
    async with running(tmp_path, Agent("a", model=model, tools=[read_clipboard])) as app:
        run = await app.start("a", "What did I copy?")
        [request] = (await asked(run)).requests
        assert request.kind == "input"
        await run.send(Answer(request_id=request.id, value={"text": "hello"}))
        result = await run.result()
    assert result.items[0]["executor"] == "client"
    assert "hello" in result.items[1]["block_list"][0]["text"]
    assert result.text == "You copied: hello.[^1]"


@pytest.mark.parametrize("declined", [False, True])
async def test_the_result_of_a_client_needs_a_value_or_the_client_declines(
    tmp_path: Path, declined: bool
) -> None:
    model = Scripted([call("locate", precise=True)], [say("Done.")])
    async with running(tmp_path, Agent("a", model=model, tools=[locate])) as app:
        run = await app.start("a", "Where am I?")
        [request] = (await asked(run)).requests
        for empty in ({}, {"result": "Paris"}, {"approved": True}):
            with pytest.raises(CallerError, match="the result of locate: send `value`"):
                await run.send({"request_id": request.id, **empty})
        if declined:
            await run.send(Answer(request_id=request.id, approved=False, reason="No GPS."))
        else:
            await run.send(Answer(request_id=request.id, value=None))
        result = await run.result()
    if declined:
        assert result.items[1]["error"] == {"code": "tool_error", "message": "No GPS."}
    else:
        assert result.items[1]["block_list"][0]["text"] == "null"


async def test_whether_a_call_needs_approval_may_depend_on_its_arguments(tmp_path: Path) -> None:
    paid: list[int] = []

    @tool(needs_approval=lambda arguments: arguments["euros"] > 10)
    async def pay(euros: int) -> str:
        """Pays."""
        paid.append(euros)
        return "paid"

    model = Scripted([call("pay", euros=5), call("pay", euros=50)], [say("Paid.")])
    async with running(tmp_path, Agent("a", model=model, tools=[pay])) as app:
        run = await app.start("a", "Pay.")
        [request] = (await asked(run)).requests
        await until(lambda: paid == [5])
        await run.send(Answer(request_id=request.id, approved=True))
        await run.result()
    assert paid == [5, 50]


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("restart", [True, False])
async def test_a_tool_may_ask_a_question_and_the_run_is_parked_meanwhile(
    tmp_path: Path, idempotent: bool, restart: bool
) -> None:
    @tool(idempotent=idempotent)
    async def book(ctx: Context) -> str:
        """Books a table."""
        answer = await ctx.task.ask("For how many?", schema={"type": "integer", "maximum": 8})
        return f"booked for {answer.value}"

    agent = Agent("a", model=Scripted([call("book")], [say("Booked.")]), tools=[book])
    async with running(tmp_path, agent) as app:
        run = await app.start("a", "A table, please.")
        [request] = (await asked(run)).requests
        worker = app._runs.worker
        assert worker is not None
        await until(lambda: worker.parked == [run.id])
        for wrong in (9, None):
            with pytest.raises(CallerError, match="does not fit its schema: the value"):
                await run.send(Answer(request_id=request.id, value=wrong))
        if not restart:
            await run.send(Answer(request_id=request.id, value=4))
            await run.result()
    async with running(tmp_path, agent) as app:
        run = await app.run(run.id)
        if restart:
            await run.send(Answer(request_id=request.id, value=4))
        result = await run.result()
    assert result.status == "completed"
    if idempotent or not restart:
        assert result.items[1]["block_list"][0]["text"] == "booked for 4"
    else:
        assert result.items[1]["error"]["code"] == "interrupted"


@pytest.mark.parametrize("levels", [1, 2])
async def test_a_sub_agent_asks_for_approval_as_its_caller_does(
    tmp_path: Path, levels: int
) -> None:
    mail = Mail()
    agent = mailer(mail)
    for level in range(levels):
        model = Scripted([call(agent.name, prompt="Tell Ada.")], [say("She knows.")])
        agent = Agent(f"above{level}", model=model, tools=[agent.as_tool()])
    async with running(tmp_path, agent) as app:
        run = await app.start(agent.name, "?")
        question = await asked(run)
        assert question.task_id != run.id
        await run.send(Answer(request_id=question.requests[0].id, approved=True))
        result = await run.result()
    assert (result.text, mail.sent) == ("She knows.", ["ada@example.org"])


@tool
async def ask_back(ctx: Context) -> str:
    """Asks a person itself."""
    return str((await ctx.task.ask("Which Ada?")).value)


@pytest.mark.parametrize("by", ["approval", "tool"])
async def test_the_time_limit_does_not_count_waiting_for_people(tmp_path: Path, by: str) -> None:
    agent = mailer(Mail())
    if by == "tool":
        model = Scripted([call("ask_back")], [say("Done.")])
        agent = Agent("mailer", model=model, tools=[ask_back])
    agent.limits = Limits(seconds=1.0)
    async with running(tmp_path, agent) as app:
        run = await app.start("mailer", "Tell Ada.")
        [request] = (await asked(run)).requests
        worker = app._runs.worker
        assert worker is not None
        await until(lambda: worker.parked == [run.id])
        loop = asyncio.get_running_loop()
        waited = loop.create_future()
        loop.call_later(1.2, waited.set_result, None)  # longer than the limit
        await waited
        await run.send(Answer(request_id=request.id, approved=True))
        result = await run.result()
    assert (result.status, result.text) == ("completed", "Done.")
