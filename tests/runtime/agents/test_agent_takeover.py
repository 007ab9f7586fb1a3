"""A worker takes an agent's run over after every single event of its log.

A run with reasoning, parallel tools, a sub-agent and an approval is recorded. Its log is cut after
event n, for each n, as a killed process leaves it. Another worker goes on from each of the cuts;
its log is cut again, so that recovery itself is interrupted. The model is a strict provider.
`make test` takes a few events, other ones for each of the three APIs; `make soak` takes all.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace import Agent, Answer, Context, Tailrace, notify, streaming_tool, tool
from tailrace.core import events as ev
from tailrace.core.codec import decode_event
from tailrace.core.fold import State
from tailrace.core.items import Text, ToolCall, ToolResult
from tailrace.errors import CallerError
from tailrace.history import history
from tailrace.models import Patience, Scripted, call, say, think
from tailrace.ports import Batch, NewRun, Request, Store
from tailrace.runtime.runs.run import Result, Run
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.simulator import Simulator
from tests.effort import CUTS, SEED, SOAK, sample
from tests.runtime.agents.simulated import opened
from tests.runtime.agents.test_agent_outcomes import Raw, message, response

APIS = ["openai", "openai-chat", "anthropic"]
NEXT = "And now?"
ONCE = {"once", "inside", "pay"}
"""The tools that may not run twice."""

Log = list[tuple[bytes, bytes]]
"""The public and private parts of a run's events."""


def script(body: dict[str, Any]) -> list[Any]:
    """What the provider says to a request, by what it contains."""
    text = msgspec.json.encode(body).decode()
    is_child = '"inside"' in text.partition('"tools":')[2]
    has_results = any(
        mark in text for mark in ('"function_call_output"', '"role":"tool"', '"type":"tool_result"')
    )
    if NEXT in text:
        return [say("Sunny.")]
    if is_child:
        return [say("From inside.")] if has_results else [think("Deep."), call("inside")]
    if has_results:
        return [think("So."), say("All of it.")]
    return [
        think("Hm."),
        say("One moment."),
        call("once"),
        call("again"),
        call("pay", euros=5),
        call("child", prompt="?"),
    ]


class Ran:
    """Which tools ran, by run."""

    def __init__(self) -> None:
        self.by_run: dict[str, list[str]] = {}

    def note(self, ctx: Context, name: str) -> str:
        self.by_run.setdefault(ctx.task.run_id, []).append(name)
        return f"{name} ran"


def agent_of(model: Any, ran: Ran) -> Agent:
    @tool
    async def once(ctx: Context) -> str:
        """May not run twice."""
        return ran.note(ctx, "once")

    @tool(idempotent=True)
    async def again(ctx: Context) -> str:
        """May run twice."""
        return ran.note(ctx, "again")

    @tool(needs_approval=True)
    async def pay(euros: int, ctx: Context) -> str:
        """May not run twice, nor without approval."""
        return ran.note(ctx, "pay")

    @tool
    async def inside(ctx: Context) -> str:
        """May not run twice."""
        return ran.note(ctx, "inside")

    child = Agent("child", model=model, tools=[inside])
    return Agent("a", model=model, tools=[once, again, pay, child.as_tool()])


@asynccontextmanager
async def running(database: Path, agent: Agent, **options: Any) -> AsyncIterator[Tailrace]:
    app = Tailrace([agent], database=database, grace=timedelta(0), **options)
    async with app.running(), asyncio.timeout(120):
        yield app


async def finished(run: Run) -> Result:
    """Answer each question, twice as a client with a bad connection does, until the run ends."""
    async for event in run.events():
        if isinstance(event, ev.TaskInputRequired):
            for request in event.requests:
                given: Any = {"approved": True} if request.kind == "approval" else {"value": 4}
                answer = Answer(request_id=request.id, **given)
                with suppress(CallerError):  # it was answered before, and the run has ended
                    await run.send(answer)
                    await run.send(answer)
    return await run.result()


async def log_of(store: Store, run_id: str) -> Log:
    found = await store.read(run_id, 0)
    privates = await store.read_private(run_id)
    return [(one.public, privates.get(one.event.sequence_number, b"")) for one in found]


def decoded(log: Log) -> list[Any]:
    return [decode_event(public) for public, _ in log]


async def leave(store: Store, run_id: str, log: Log, previous: str | None = None) -> None:
    """Write a log as a worker leaves it that is killed behind the last of these events.

    No other worker may use the store meanwhile: it could claim the run first.
    """
    public, private = log[0]
    new = NewRun(
        run_id=run_id,
        agent="a",
        thread_id=f"t_{run_id}",
        public=public,
        private=private,
        previous_run_id=previous,
    )
    assert await store.create(new) is not None
    [claim] = await store.claim("dead", ["a"], 600.0)  # until all are written
    assert claim.run_id == run_id
    if len(log) > 1:
        batch = Batch(
            run_id=run_id,
            epoch=claim.epoch,
            first_seq=2,
            publics=[public for public, _ in log[1:]],
            privates=[private for _, private in log[1:]],
        )
        assert await store.append([batch]) == [None]


async def set_free(store: Store, run_ids: list[str]) -> None:
    for run_id in run_ids:
        info = await store.info(run_id)
        assert info is not None
        await store.release(run_id, info.epoch)


def renamed(log: Log, before: str, after: str) -> Log:
    assert len(before) == len(after)
    swap = before.encode(), after.encode()
    return [(public.replace(*swap), private.replace(*swap)) for public, private in log]


def facts(log: Log) -> tuple[set[str], set[str]]:
    """The tools that have started in a log, and those that have a result."""
    names: dict[str, str] = {}
    items: dict[str, str] = {}
    started: set[str] = set()
    done: set[str] = set()
    for event in decoded(log):
        if isinstance(event, ev.OutputItemDone) and isinstance(event.item, ToolCall):
            names[event.item.call_id] = items[event.item.id] = event.item.name
        elif isinstance(event, ev.ToolCallStarted):
            started.add(items[event.item_id])
        elif isinstance(event, ev.OutputItemDone) and isinstance(event.item, ToolResult):
            done.add(names[event.item.call_id])
    return started, done


def check(before: Log, after: Log, ran: list[str], result: Result) -> None:
    """What holds for a run that was continued from a log."""
    assert after[: len(before)] == before
    state = State()
    for event in decoded(after):
        state.apply(event)
    assert (result.status, result.text) == ("completed", "All of it."), result.error
    assert all(task.ended for task in state.tasks.values())
    started, done = facts(before)
    counts = Counter(ran)
    for name, times in counts.items():
        assert name not in done, f"{name} has a result, and ran again"
        assert times == 1
        assert name not in ONCE or name not in started, f"{name} had started, and ran again"
    results = {
        item["call_id"]: item.get("error", {}).get("code")
        for item in result.items
        if item["type"] == "tool_result"
    }
    assert len(results) == 4
    assert set(results.values()) <= {None, "interrupted"}
    events = decoded(after)
    asked = [
        request.id
        for event in events
        if isinstance(event, ev.TaskInputRequired)
        for request in event.requests
    ]
    answered = [event.request_id for event in events if isinstance(event, ev.TaskInputReceived)]
    assert asked == answered
    assert len(asked) == 1


WHOLE = "run_000"


async def whole_run(path: Path, agent: Agent) -> tuple[Log, Result]:
    """The log and the result of a run whose worker was not lost."""
    async with running(path, agent) as app:
        run = await app.start("a", "?", run_id=WHOLE)
        result = await finished(run)
        return await log_of(app._runs.store, run.id), result


def cut_behind(whole: Log, places: Sequence[int]) -> dict[str, Log]:
    """The log up to each of these events, each as a run of its own."""
    return {(name := f"run_{n:03}"): renamed(whole[:n], WHOLE, name) for n in places}


def cut_again(logs: dict[str, Log], cuts: dict[str, Log]) -> dict[str, Log]:
    """Each log up to any of the events that were written after its cut."""
    chance = random.Random(SEED)
    return {
        run_id: log[: chance.randint(len(cuts[run_id]) + 1, len(log) - 1)]
        for run_id, log in logs.items()
        if len(log) > len(cuts[run_id]) + 1
    }


def places(events: int, api: str) -> Sequence[int]:
    """Behind which events the log is cut: each API has others."""
    if SOAK:
        return range(1, events)
    return sample(range(1 + APIS.index(api), events, len(APIS)), 2 * CUTS // 3)


async def continued(
    path: Path, agent: Agent, ran: Ran, cuts: dict[str, Log], check: Any, first: Any = None
) -> dict[str, Log]:
    """Let a worker finish all these runs, and a next turn of each; their logs."""
    store = SqliteStore(str(path))
    for run_id, log in cuts.items():
        await leave(store, run_id, log)
    ran.by_run.clear()
    if first is not None:  # while the dead worker still has its lease
        async with running(path, agent, worker=False) as app:
            await asyncio.gather(*[first(await app.run(run_id)) for run_id in cuts])
    await set_free(store, list(cuts))
    await store.close()
    logs: dict[str, Log] = {}
    failures: list[str] = []
    async with running(path, agent) as app:
        runs = [await app.run(run_id) for run_id in cuts]
        results = await asyncio.gather(*(finished(run) for run in runs))
        for run, result in zip(runs, results, strict=True):
            logs[run.id] = await log_of(app._runs.store, run.id)
            try:
                check(cuts[run.id], logs[run.id], ran.by_run.get(run.id, []), result)
            except Exception as error:  # noqa: BLE001
                last = decoded(cuts[run.id])[-1]
                failures.append(f"behind event {len(cuts[run.id])} {last}: {error!r}")
        assert not failures, "\n".join([f"{len(failures)} of {len(cuts)}", *failures[:10]])
        nexts = [await app.start("a", NEXT, previous_run=run_id) for run_id in cuts]
        answers = await asyncio.gather(*(run.result() for run in nexts))
    assert {result.status for result in answers} == {"completed"}
    return logs


@pytest.mark.parametrize("api", APIS)
async def test_a_worker_takes_over_behind_every_event(tmp_path: Path, api: str) -> None:
    ran = Ran()
    provider: Simulator
    async with (
        Simulator(lambda _: script(provider.requests[-1])) as provider,
        opened(api, provider) as model,
    ):
        agent = agent_of(model, ran)
        whole, result = await whole_run(tmp_path / "whole.db", agent)
        check(whole[:1], whole, ran.by_run[WHOLE], result)
        cuts = cut_behind(whole, places(len(whole), api))
        logs = await continued(tmp_path / "once.db", agent, ran, cuts, check)
        # The worker that took over is killed too, behind any of its events.
        await continued(tmp_path / "twice.db", agent, ran, cut_again(logs, cuts), check)
    assert provider.refusals == []


def check_cancelled(before: Log, after: Log, ran: list[str], result: Result) -> None:
    """What holds for a run that was cancelled behind the last event of a log."""
    assert after[: len(before)] == before
    state = State()
    for event in decoded(after):
        state.apply(event)
    assert (result.status, result.reason) == ("cancelled", "The user left.")
    assert all(task.ended for task in state.tasks.values())
    assert ran == []
    answers: dict[str, str] = {}
    for event in decoded(before):
        if isinstance(event, ev.TextDelta) and event.task_id == result.object["task_id"]:
            answers[event.item_id] = answers.get(event.item_id, "") + event.delta
    for ident, text in answers.items():  # the partial answer is kept
        [item] = [item for item in result.items if item["id"] == ident]
        assert item["block_list"][0]["text"] == text
    assert bool(result.usage.input_tokens) == any(
        isinstance(event, ev.TaskUsage) for event in decoded(before)
    )


@pytest.mark.parametrize("api", APIS)
async def test_a_conversation_goes_on_after_a_cancel_behind_every_event(
    tmp_path: Path, api: str
) -> None:
    ran = Ran()
    provider: Simulator
    async with (
        Simulator(lambda _: script(provider.requests[-1])) as provider,
        opened(api, provider) as model,
    ):
        agent = agent_of(model, ran)
        whole, _ = await whole_run(tmp_path / "whole.db", agent)
        cuts = cut_behind(whole, places(len(whole), api))
        cancel = partial(Run.cancel, reason="The user left.")
        await continued(tmp_path / "cut.db", agent, ran, cuts, check_cancelled, cancel)
    assert provider.refusals == []


# --- tools of every kind -------------------------------------------------------------------------


class Trip(msgspec.Struct):
    city: str


RICH_ONCE = {"survey", "pay", "deep", "hidden", "doubt"}


def rich_agent(ran: Ran) -> Agent:
    """Streaming tools, tools that ask people or agents, sub-agents of each kind, typed output."""

    @streaming_tool
    async def survey(ctx: Context) -> AsyncIterator[Any]:
        """Shows its progress, and may not run twice."""
        ran.note(ctx, "survey")
        yield notify("asking", progress=0.5)
        yield Text(text="half")
        yield "whole"

    @tool(idempotent=True)
    async def book(ctx: Context) -> str:
        """Asks a person, and may run twice."""
        ran.note(ctx, "book")
        answer = await ctx.task.ask("For how many?")
        return f"booked for {answer.value}"

    @tool
    async def doubt(ctx: Context) -> str:
        """Asks a person, and may not run twice."""
        ran.note(ctx, "doubt")
        return str((await ctx.task.ask("Really?")).value)

    @tool(executor="client")
    async def clipboard() -> str:
        """The client carries it out."""
        raise AssertionError("not here")

    @tool(needs_approval=True)
    async def pay(ctx: Context) -> str:
        """May not run twice, nor without approval."""
        return ran.note(ctx, "pay")

    @tool
    async def deep(ctx: Context) -> str:
        """May not run twice."""
        return ran.note(ctx, "deep")

    @tool
    async def hidden(ctx: Context) -> str:
        """May not run twice; its agent's events are not logged."""
        return ran.note(ctx, "hidden")

    helper = Agent("helper", model=Scripted([say("Helped.")]))

    @tool(idempotent=True)
    async def panel(ctx: Context) -> str:
        """Asks two agents at the same time, and may run twice."""
        ran.note(ctx, "panel")
        return " ".join(await asyncio.gather(ctx.ask(helper, "1?"), ctx.ask(helper, "2?")))

    low = Agent("low", model=Scripted([think("D."), call("deep")], [say("Low.")]), tools=[deep])
    middle = Agent(
        "middle",
        model=Scripted([call("pay"), call("low", prompt="?")], [say("Middle.")]),
        tools=[pay, low.as_tool()],
    )
    quiet = Agent("quiet", model=Scripted([call("hidden")], [say("Quiet.")]), tools=[hidden])
    names = ("survey", "book", "doubt", "clipboard", "panel")
    first = [call(name) for name in names] + [
        call(name, prompt="?") for name in ("middle", "quiet")
    ]
    return Agent(
        "a",
        model=Scripted([think("Hm."), *first], [think("So."), say('{"city": "Paris"}')]),
        tools=[
            *(survey, book, doubt, clipboard, panel, middle.as_tool()),
            quiet.as_tool(streaming=False),
        ],
        output=Trip,
    )


def check_rich(before: Log, after: Log, ran: list[str], result: Result) -> None:
    assert after[: len(before)] == before
    state = State()
    for event in decoded(after):
        state.apply(event)
    assert (result.status, result.output) == ("completed", Trip("Paris")), result.error
    assert all(task.ended for task in state.tasks.values())
    assert not any(task.requests for task in state.tasks.values())
    started, done = facts(before)
    for name, times in Counter(ran).items():
        assert times == 1
        assert name not in done, f"{name} has a result, and ran again"
        assert name not in RICH_ONCE or name not in started, f"{name} had started, and ran again"
    codes = Counter(
        (node.item.error.code if node.item.error else None)
        for task in state.tasks.values()
        for node in task.output()
        if isinstance(node.item, ToolResult)
    )
    assert set(codes) <= {None, "interrupted"}, codes
    results = [item for item in result.items if item["type"] == "tool_result"]
    assert len(results) == len({item["call_id"] for item in results}) == 7
    events = decoded(after)
    asked = [
        (request.message, request.id)
        for event in events
        if isinstance(event, ev.TaskInputRequired)
        for request in event.requests
    ]
    answered = [event.request_id for event in events if isinstance(event, ev.TaskInputReceived)]
    assert sorted(id_ for _, id_ in asked) == sorted(answered)
    twice = [text for text, times in Counter(text for text, _ in asked).items() if times > 1]
    assert not twice, f"asked twice: {twice}"


async def test_a_worker_takes_over_tools_of_every_kind_behind_every_event(tmp_path: Path) -> None:
    ran = Ran()
    agent = rich_agent(ran)
    whole, result = await whole_run(tmp_path / "whole.db", agent)
    check_rich(whole[:1], whole, ran.by_run[WHOLE], result)
    cuts = cut_behind(whole, sample(range(1, len(whole)), CUTS + CUTS // 3))
    logs = await continued(tmp_path / "once.db", agent, ran, cuts, check_rich)
    await continued(tmp_path / "twice.db", agent, ran, cut_again(logs, cuts), check_rich)


async def goes_on_without_asking(path: Path, agent: Agent, asked: Callable[[], int]) -> Result:
    """The result of a run whose worker dies behind the last event of the model's only turn."""
    async with running(path / "whole.db", agent) as app:
        run = await app.start("a", "?", run_id=WHOLE)
        await run.result()
        whole = await log_of(app._runs.store, run.id)
    before = asked()
    assert isinstance(decoded(whole)[-1], ev.TaskCompleted)
    store = SqliteStore(str(path / "left.db"))
    await leave(store, WHOLE, whole[:-1])
    await set_free(store, [WHOLE])
    await store.close()
    async with running(path / "left.db", agent) as app:
        result = await (await app.run(WHOLE)).result()
    assert asked() == before
    return result


@pytest.mark.parametrize("api", APIS)
async def test_an_answer_that_was_complete_is_not_asked_for_again(tmp_path: Path, api: str) -> None:
    async with Simulator([say("All of it.")]) as provider, opened(api, provider) as model:
        agent = Agent("a", model=model)
        result = await goes_on_without_asking(tmp_path, agent, lambda: len(provider.requests))
    assert (result.status, result.text) == ("completed", "All of it.")


async def test_a_cut_answer_that_was_complete_is_not_asked_for_again(tmp_path: Path) -> None:
    cut = response(1, message("Sunny."))[:-1]  # the last event, with usage, never came
    agent = Agent("a", model=Raw("openai_responses", cut), patience=Patience(retries=0))
    result = await goes_on_without_asking(tmp_path, agent, lambda: 0)
    assert (result.status, result.text) == ("completed", "Sunny.")
    assert result.object.get("attempt") is None


class McpShop(Raw):
    """A provider whose MCP server asks before it buys."""

    async def stream(self, request: Request) -> AsyncIterator[list[str]]:
        sent = history(request.chain, self.api, request.history, task_id=request.task_id).items
        is_answered = any(item["type"] == "mcp_approval_response" for item in sent)
        yield [json.dumps(event) for event in self.answers[is_answered]]


def check_bought(before: Log, after: Log, ran: list[str], result: Result) -> None:
    assert after[: len(before)] == before
    assert (result.status, result.text) == ("completed", "Bought."), result.items
    [asked] = [item for item in result.items if item["type"] == "tool_call"]
    [outcome] = [item for item in result.items if item["type"] == "tool_result"]
    assert outcome["call_id"] == asked["call_id"]
    assert outcome.get("error", {}).get("code") in (None, "interrupted")


async def test_a_worker_takes_over_an_approval_of_the_provider_behind_every_event(
    tmp_path: Path,
) -> None:
    facts = {"name": "buy", "server_label": "shop", "arguments": "{}"}
    wants = {"type": "mcp_approval_request", "id": "mcpr_1", **facts}
    model = McpShop("openai_responses", response(1, wants), response(2, message("Bought.")))
    agent = Agent("a", model=model)
    async with running(tmp_path / "whole.db", agent) as app:
        result = await finished(await app.start("a", "?", run_id="run_000"))
        whole = await log_of(app._runs.store, "run_000")
    check_bought(whole[:1], whole, [], result)
    cuts = {
        (name := f"run_{n:03}"): renamed(whole[:n], "run_000", name) for n in range(1, len(whole))
    }
    await continued(tmp_path / "once.db", agent, Ran(), cuts, check_bought)
