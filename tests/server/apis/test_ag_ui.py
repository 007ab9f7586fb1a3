"""AG-UI over HTTP: every stream is valid, conversations go on, interrupts are answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace import Agent, Context, Tailrace, Task, tool
from tailrace.core.items import ToolResult
from tailrace.models import Scripted, call, say, think
from tailrace.runtime.runs.all_runs import Runs
from tests.serving import client_of
from tests.wire.ag_ui_checker import check, read


@tool
async def get_weather(city: str) -> dict[str, str]:
    """Current weather."""
    return {"city": city, "sky": "clear"}


@tool(needs_approval=True)
async def send_mail(to: str) -> str:
    """Sends a mail."""
    return f"sent to {to}"


@tool(executor="client")
def locate() -> str:
    """Where the user is."""
    raise NotImplementedError  # the client carries it out


async def sees(task: Task) -> str:
    """Says what else than text a model would get."""
    [read] = (await task.history()).items
    return " ".join(str(part) for part in read["content"] if part["type"] != "input_text")


@tool(idempotent=True)
async def ask_city(ctx: Context) -> str:
    """Asks where the journey goes."""
    return str((await ctx.task.ask("Which city?")).value)


async def asker(task: Task) -> str:
    """Asks without a tool."""
    return str((await task.ask("Which city?")).value)


async def parrot(task: Task) -> str:
    """Says how many turns it knows."""
    return f"{len(await task.chain())}: {task.text}"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    weather = Agent(
        "weather",
        model=Scripted([think("Hm."), call("get_weather", city="Paris")], [say("Clear.[^1]")]),
        tools=[get_weather],
    )
    mailer = Agent(
        "mailer",
        model=Scripted([call("send_mail", to="ada")], [say("Done.")]),
        tools=[send_mail],
    )
    postman = Agent(
        "postman",
        model=Scripted([call("send_mail", to="ada"), call("send_mail", to="bob")], [say("Both.")]),
        tools=[send_mail],
    )
    guide = Agent(
        "guide", model=Scripted([call("locate")], [say("There.")], [say("Here.")]), tools=[locate]
    )
    picker = Agent(
        "picker", model=Scripted([call("pick_colour", of="hats")], [say("A fine colour.")])
    )
    traveller = Agent(
        "traveller", model=Scripted([call("ask_city")], [say("Bon voyage.")]), tools=[ask_city]
    )
    agency = Agent(
        "agency",
        model=Scripted([call("traveller", prompt="Go.")], [say("Booked.")]),
        tools=[traveller.as_tool()],
    )
    office = Agent(
        "office",
        model=Scripted([call("mailer", prompt="Go.")], [say("Sent.")]),
        tools=[mailer.as_tool()],
    )
    app = Tailrace(
        [weather, mailer, postman, guide, picker, traveller, agency, office, parrot, sees, asker],
        tmp_path / "x.db",
    )
    async with app.running(), client_of(app) as made:
        yield made


async def run(client: httpx.AsyncClient, agent: str, **body: Any) -> list[dict[str, Any]]:
    answer = await client.post(f"/ag-ui/{agent}", json={"threadId": "t", "messages": [], **body})
    assert answer.status_code == 200, answer.text
    events = read([answer.content])
    check(events)
    return events


def user(text: str, ident: str = "u1") -> dict[str, Any]:
    return {"id": ident, "role": "user", "content": text}


def texts(events: list[dict[str, Any]]) -> str:
    return "".join(e["delta"] for e in events if e["type"] == "TEXT_MESSAGE_CONTENT")


async def test_a_run_streams_reasoning_a_tool_and_the_answer(client: httpx.AsyncClient) -> None:
    events = await run(client, "weather", runId="r1", messages=[user("Paris?")])
    kinds = [event["type"] for event in events]
    assert kinds[0] == "RUN_STARTED"
    assert kinds[-1] == "RUN_FINISHED"
    assert events[0]["runId"] == "r1"
    assert "REASONING_MESSAGE_CONTENT" in kinds
    assert "TOOL_CALL_RESULT" in kinds
    assert texts(events) == "Clear.[^1]"


async def test_a_request_that_is_sent_again_is_the_same_run(client: httpx.AsyncClient) -> None:
    await run(client, "parrot", runId="r1", messages=[user("Hello")])
    again = await run(client, "parrot", runId="r1", messages=[user("Hello")])
    assert texts(again) == "1: Hello"
    assert len((await client.get("/threads/t")).json()["runs"]) == 1
    other = {"threadId": "other", "runId": "r1", "messages": [user("Hello")]}
    assert (await client.post("/ag-ui/parrot", json=other)).status_code == 404


async def test_a_run_id_with_another_question_or_agent_is_refused(
    client: httpx.AsyncClient,
) -> None:
    first = await run(client, "parrot", runId="r1", messages=[user("One")])
    [start] = [event for event in first if event["type"] == "TEXT_MESSAGE_START"]
    answer = {"id": start["messageId"], "role": "assistant", "content": texts(first)}
    for agent, messages in (
        ("parrot", [user("Delete everything?")]),
        ("parrot", [user("One"), answer, user("Two", "u2")]),
        ("weather", [user("One")]),
    ):
        body = {"threadId": "t", "runId": "r1", "messages": messages}
        refused = await client.post(f"/ag-ui/{agent}", json=body)
        assert refused.status_code == 422, refused.text
        error = refused.json()["error"]
        assert (error["code"], error["param"]) == ("idempotency_key_reused", "runId")
    # A client that lost its stream may have a part of the answer already.
    for messages in ([user("One"), answer], [user("One", "other")], []):
        again = await run(client, "parrot", runId="r1", messages=messages)
        assert texts(again) == texts(first)


async def test_the_next_message_continues_the_conversation(client: httpx.AsyncClient) -> None:
    first = await run(client, "parrot", runId="r1", messages=[user("One")])
    [start] = [event for event in first if event["type"] == "TEXT_MESSAGE_START"]
    assistant_message = {"id": start["messageId"], "role": "assistant", "content": texts(first)}
    messages = [user("One"), assistant_message, user("Two", "u2")]
    assert texts(await run(client, "parrot", runId="r2", messages=messages)) == "2: Two"


@pytest.mark.parametrize(
    ("payload", "output"),
    [
        (None, "sent to ada"),
        (False, "denied"),
        ({"approved": False, "reason": "Not now"}, "not now"),
        ({"approved": True, "arguments": {"to": "bob"}}, "sent to bob"),
    ],
)
async def test_an_interrupt_is_answered_by_the_next_request(
    client: httpx.AsyncClient, payload: Any, output: str
) -> None:
    paused = await run(client, "mailer", runId="r1", messages=[user("Write to Ada")])
    outcome = paused[-1]["outcome"]
    assert outcome["type"] == "interrupt"
    [interrupt] = outcome["interrupts"]
    entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}
    events = await run(client, "mailer", runId="r2", resume=[entry])
    [result] = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert output in result["content"].lower()
    assert texts(events) == "Done."


@pytest.mark.parametrize(("agent", "answer"), [("traveller", "Bon voyage."), ("agency", "Booked.")])
async def test_a_question_of_a_tool_is_an_interrupt_also_in_a_sub_agent(
    client: httpx.AsyncClient, agent: str, answer: str
) -> None:
    async with asyncio.timeout(120):  # without an interrupt, the stream would not end
        paused = await run(client, agent, runId="r1", messages=[user("Go")])
    [interrupt] = paused[-1]["outcome"]["interrupts"]
    assert interrupt["message"] == "Which city?"
    entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": "Paris"}
    events = await run(client, agent, runId="r2", resume=[entry])
    assert texts(events).endswith(answer)


@pytest.mark.parametrize("agent", ["mailer", "office", "traveller", "asker"])
@pytest.mark.parametrize("gone", ["cancel", "cancel sub-agent", "new run"])
async def test_an_interrupt_that_is_gone_is_answered_with_the_end_of_its_run(
    client: httpx.AsyncClient, agent: str, gone: str
) -> None:
    """`@ag-ui/client` sends no message before a request has answered all interrupts."""
    paused = await run(client, agent, runId="r1", messages=[user("Write to Ada")])
    [interrupt] = paused[-1]["outcome"]["interrupts"]
    task_id = interrupt.get("subagentRunId") if gone == "cancel sub-agent" else None
    if gone == "new run":
        made = await client.post("/threads/t/runs", json={"agent": "parrot", "input": "Hello"})
        assert made.status_code == 201
    else:
        about = {} if task_id is None else {"task_id": task_id}
        assert (await client.post("/runs/r1/cancel", params=about)).status_code == 200
        await client.get("/runs/r1/events")  # to its end
    payload = True if agent in ("mailer", "office") else "Paris"
    entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}
    events = await run(client, agent, runId="r2", resume=[entry])
    shown = [e["toolCallId"] for e in (*paused, *events) if e["type"] == "TOOL_CALL_START"]
    assert len(shown) == len(set(shown))  # the client would add to the arguments that it has
    is_cancelled = gone != "new run" and task_id is None
    assert events[-1]["outcome"] == {"type": "cancelled" if is_cancelled else "success"}
    assert (await client.get("/runs/r1")).json()["status"] != "input_required"


@pytest.mark.parametrize("ident", ["req_call_r1_99", "req_r1_2", "req_call_other_7", "x"])
async def test_an_interrupt_that_the_thread_never_had_is_unknown(
    client: httpx.AsyncClient, ident: str
) -> None:
    await run(client, "mailer", runId="other", threadId="t2", messages=[user("Write to Ada")])
    await run(client, "mailer", runId="r1", messages=[user("Write to Ada")])
    await client.post("/runs/r1/cancel")
    entry = {"interruptId": ident, "status": "resolved", "payload": True}
    body = {"threadId": "t", "runId": "r2", "messages": [], "resume": [entry]}
    assert (await client.post("/ag-ui/mailer", json=body)).status_code == 404


@pytest.mark.parametrize(
    ("status", "payload"),
    [
        ("resolved", "no"),
        ("resolved", {"approved": "no"}),
        ("resolved", {"approved": None}),
        ("resolved", {"denied": True}),
        ("resolved", {"approved": True, "arguments": "bob"}),
        ("refused", None),
    ],
)
async def test_an_answer_that_is_not_an_approval_is_refused_and_the_interrupt_stays(
    client: httpx.AsyncClient, status: str, payload: Any
) -> None:
    paused = await run(client, "mailer", runId="r1", messages=[user("Write to Ada")])
    [interrupt] = paused[-1]["outcome"]["interrupts"]
    entry = {"interruptId": interrupt["id"], "status": status, "payload": payload}
    body = {"threadId": "t", "runId": "r2", "messages": [], "resume": [entry]}
    refused = await client.post("/ag-ui/mailer", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "resume")
    entry |= {"status": "resolved", "payload": True}
    assert texts(await run(client, "mailer", runId="r3", resume=[entry])) == "Done."


@pytest.mark.parametrize(
    ("message", "status", "param"),
    [
        ({"id": "u1", "role": "robot", "content": "Hi"}, 400, "messages[0].role"),
        ({"id": "u1", "role": "tool", "toolCallId": "call_x", "content": "15 C"}, 404, "messages"),
    ],
)
async def test_a_message_that_cannot_be_read_is_refused(
    client: httpx.AsyncClient, message: Any, status: int, param: str
) -> None:
    body = {"threadId": "t1", "runId": "r1", "messages": [message]}
    refused = await client.post("/ag-ui/parrot", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (status, param)


async def test_interrupts_may_be_answered_one_after_the_other_and_again(
    client: httpx.AsyncClient,
) -> None:
    paused = await run(client, "postman", runId="r1", messages=[user("Write to both")])
    first, second = (
        {"interruptId": one["id"], "status": "resolved", "payload": True}
        for one in paused[-1]["outcome"]["interrupts"]
    )
    for _ in range(2):
        left = await run(client, "postman", runId="r2", resume=[first])
        [interrupt] = left[-1]["outcome"]["interrupts"]
        assert interrupt["id"] == second["interruptId"]
    assert texts(await run(client, "postman", runId="r3", resume=[second])) == "Both."


async def test_an_answer_is_awaited_although_another_tool_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, started = asyncio.Event(), asyncio.Event()

    @tool(needs_approval=True)
    async def post_letter(to: str) -> str:
        """Posts a letter."""
        if to == "ada":
            started.set()
            await slow.wait()
        return "posted"

    calls = [call("post_letter", to="ada"), call("post_letter", to="bob")]
    agent = Agent("postman", model=Scripted(calls, [say("Both.")]), tools=[post_letter])
    app = Tailrace([agent], tmp_path / "x.db")
    transport = httpx.ASGITransport(app=app)
    async with (
        asyncio.timeout(60),
        app.running(),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        paused = await run(client, "postman", runId="r1", messages=[user("Write to both")])
        first, second = (
            {"interruptId": interrupt["id"], "status": "resolved", "payload": True}
            for interrupt in paused[-1]["outcome"]["interrupts"]
        )
        await run(client, "postman", runId="r2", resume=[first])
        await started.wait()
        post, look, follow = Runs._post, Runs.look, Runs.follow
        reading = asyncio.Event()
        sending: list[asyncio.Task[None]] = []

        async def post_later(runs: Runs, run_id: str, *letter: Any) -> int:
            """The other tool ends; the answer comes once the client's request has read the run."""

            async def send() -> None:
                await reading.wait()
                await post(runs, run_id, *letter)

            slow.set()
            async for batch in follow(runs, run_id):
                items = [getattr(recorded.event, "item", None) for recorded in batch]
                if any(isinstance(item, ToolResult) and item.block_list for item in items):
                    break
            monkeypatch.setattr(Runs, "look", looked)
            monkeypatch.setattr(Runs, "follow", followed)
            sending.append(asyncio.create_task(send()))
            return 1

        async def looked(runs: Runs, run_id: str, *seq: Any) -> Any:
            found = await look(runs, run_id, *seq)
            reading.set()
            return found

        def followed(runs: Runs, run_id: str, *after: Any) -> Any:
            reading.set()
            return follow(runs, run_id, *after)

        monkeypatch.setattr(Runs, "_post", post_later)
        assert texts(await run(client, "postman", runId="r3", resume=[second])) == "Both."
        await asyncio.gather(*sending)


async def test_a_tool_of_the_client_is_announced_and_its_output_continues(
    client: httpx.AsyncClient,
) -> None:
    tools = [{"name": "pick_colour", "description": "Picks.", "parameters": {"type": "object"}}]
    events = await run(client, "picker", runId="r1", messages=[user("Hat?")], tools=tools)
    [pending] = events[-1]["outcome"]["pendingToolCallIds"]
    [start] = [event for event in events if event["type"] == "TOOL_CALL_START"]
    assert start["toolCallId"] == pending
    function = {"name": "pick_colour", "arguments": "{}"}
    assistant_message = {
        "id": "a1",
        "role": "assistant",
        "toolCalls": [{"id": pending, "type": "function", "function": function}],
    }
    result = {"id": "t1", "role": "tool", "toolCallId": pending, "content": "red"}
    messages = [user("Hat?"), assistant_message, result]
    after = await run(client, "picker", runId="r2", messages=messages, tools=tools)
    assert texts(after) == "A fine colour."


@pytest.mark.parametrize("says", ["", "And now?"])
@pytest.mark.parametrize("error", [None, "No signal."])
async def test_a_tool_message_answers_the_run_that_asks_for_it(
    client: httpx.AsyncClient, error: str | None, says: str
) -> None:
    await run(client, "guide", runId="r1", messages=[user("Where?")])
    messages = (await client.get("/threads/t?format=ag-ui")).json()
    [call_id] = [call["id"] for one in messages for call in one.get("toolCalls", ())]
    about = {"error": error} if error else {}
    messages.append({"id": "t1", "role": "tool", "toolCallId": call_id, "content": "Rome", **about})
    messages += [user(says, "u2")] if says else []
    events = await run(client, "guide", runId="r2", messages=messages)
    results = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert [one["content"] for one in results] == [error or "Rome"]
    assert texts(events).startswith("There.")
    runs = (await client.get("/threads/t")).json()["runs"]
    assert [run["status"] for run in runs] == ["completed"] * (2 if says else 1)


async def test_the_order_of_the_stream_is_that_of_the_same_conversation(tmp_path: Path) -> None:
    """A client's call is announced when the run asks for it, after calls that the model made later.

    The run has both, so the next run continues it.
    """
    script = [call("locate"), call("get_weather", city="Paris")]
    agent = Agent("guide", model=Scripted(script, [say("Here.")]), tools=[locate, get_weather])
    app = Tailrace([agent, parrot], tmp_path / "x.db")
    async with asyncio.timeout(120), app.running(), client_of(app) as client:
        paused = await run(client, "guide", runId="r1", messages=[user("Where?")])
        [interrupt] = paused[-1]["outcome"]["interrupts"]
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": "Rome"}
        rest = await run(client, "guide", runId="r2", resume=[entry])
        seen = [event for event in (*paused, *rest) if event["type"] == "TOOL_CALL_START"]
        known = {one["id"]: one for one in (await client.get("/threads/t?format=ag-ui")).json()}
        calls = [event["toolCallId"] for event in seen]
        assert [event["toolCallName"] for event in seen] == ["get_weather", "locate"]
        others = [one for ident, one in known.items() if ident not in calls]
        messages = [others[0], *(known[ident] for ident in calls), *others[1:]]
        await run(client, "parrot", runId="r3", messages=[*messages, user("And now?", "u2")])
        runs = (await client.get("/threads/t")).json()["runs"]
    assert [one["previous_run_id"] for one in runs] == [None, "r1"]


async def test_a_thread_can_be_attached_to_again(client: httpx.AsyncClient) -> None:
    assert (await client.get("/ag-ui/parrot", params={"threadId": "t"})).status_code == 204
    await run(client, "parrot", runId="r1", messages=[user("Hello")])
    replay = read([(await client.get("/ag-ui/parrot", params={"threadId": "t"})).content])
    check(replay)
    assert texts(replay) == "1: Hello"


@pytest.mark.parametrize(
    ("part", "read"),
    [
        ({"type": "image", "source": {"type": "url", "value": "https://a.test/b"}}, "//a.test/b"),
        (
            {"type": "image", "source": {"type": "data", "mimeType": "image/png", "value": "aGk="}},
            "data:image/png;base64,aGk=",
        ),
        ({"type": "binary", "mimeType": "image/png", "url": "https://a.test/b"}, "input_image"),
        ({"type": "binary", "mimeType": "image/png", "data": "aGk="}, "data:image/png;base64,aGk="),
        (
            {"type": "binary", "mimeType": "text/csv", "data": "aGk=", "filename": "a.csv"},
            "a.csv",
        ),
    ],
)
async def test_what_a_message_shows_reaches_the_model(
    client: httpx.AsyncClient, part: dict[str, Any], read: str
) -> None:
    message = {**user(""), "content": [{"type": "text", "text": "See"}, part]}
    assert read in texts(await run(client, "sees", runId="r1", messages=[message]))


FILE = {"type": "image", "source": {"type": "file", "value": "file_1"}}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "threadId"),
        ({"threadId": "t"}, "runId"),
        ({"threadId": "t", "runId": "r", "messages": 3}, "messages"),
        ({"threadId": "t", "runId": "r", "messages": []}, "messages"),
        (
            {"threadId": "t", "runId": "r", "messages": [{**user(""), "content": [FILE]}]},
            "messages",
        ),
        ({"threadId": "t", "runId": "r", "messages": [], "resume": ["x"]}, "resume"),
    ],
)
async def test_a_wrong_field_is_named(
    client: httpx.AsyncClient, body: dict[str, Any], param: str
) -> None:
    answer = await client.post("/ag-ui/parrot", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
