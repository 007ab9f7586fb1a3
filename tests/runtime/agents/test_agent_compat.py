"""An agent behind the compatibility endpoints, and the source document's examples by its loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pydantic
import pytest

from conformance.authoring import PNG
from conformance.stories.documents import ANSWER, WEATHER
from tailrace import Agent, Answer, Tailrace, ask_for_help, tool
from tailrace.core.events import TaskInputRequired
from tailrace.core.items import ToolResult
from tailrace.core.run_object import whole_object
from tailrace.models import Scripted, call, open_model, say
from tailrace.runtime.event_log.whole_state import whole_state
from tailrace.testing import Simulator
from tests.runtime.agents.test_agent_outcomes import Raw, response
from tests.traces import FOLDER

Json = dict[str, Any]


@asynccontextmanager
async def serving(path: Path, *agents: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Tailrace]]:
    app = Tailrace(agents, database=path / "log.db")
    transport = httpx.ASGITransport(app=app)
    async with (
        app.running(),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        asyncio.timeout(120),
    ):
        yield client, app


WINDOW = {
    "type": "function",
    "name": "open_window",
    "parameters": {"type": "object", "properties": {"angle": {"type": "integer"}}},
}


@tool
async def get_weather(location: str) -> dict[str, Any]:
    """Current weather."""
    image = {"type": "image_url", "image_url": {"url": PNG}, "id": 1}
    parts = [{"type": "text", "text": WEATHER, "id": 1}, image]
    return {"message_content": parts, "block_list": parts}


async def test_a_function_that_the_client_declares_completes_the_response(tmp_path: Path) -> None:
    model = Scripted([call("open_window", angle=3)], [say("It is open.")])
    async with serving(tmp_path, Agent("a", model=model, tools=[get_weather])) as (client, _):
        body = {"model": "a", "input": "Open it.", "tools": [WINDOW]}
        first = (await client.post("/v1/responses", json=body)).json()
        assert first["status"] == "completed"
        [wanted] = [item for item in first["output"] if item["type"] == "function_call"]
        assert (wanted["name"], json.loads(wanted["arguments"])) == ("open_window", {"angle": 3})
        output = {
            "type": "function_call_output",
            "call_id": wanted["call_id"],
            "output": "opened",
        }
        body = {
            "model": "a",
            "input": [output],
            "previous_response_id": first["id"],
            "tools": [WINDOW],
        }
        second = (await client.post("/v1/responses", json=body)).json()
    assert second["status"] == "completed"
    assert "It is open." in str(second["output"])


async def test_an_approval_is_answered_over_http(tmp_path: Path) -> None:
    @tool(needs_approval=True)
    async def pay(euros: int) -> str:
        """Pays."""
        return f"{euros} paid"

    model = Scripted([call("pay", euros=5)], [say("Paid.")])
    async with serving(tmp_path, Agent("a", model=model, tools=[pay])) as (client, app):
        begun = (await client.post("/runs", json={"agent": "a", "input": "Pay."})).json()
        run = await app.run(begun["run_id"])
        async for event in run.events():
            if isinstance(event, TaskInputRequired):
                break
        view = (await client.get(f"/runs/{run.id}")).json()
        answer = {"request_id": view["requests"][0]["id"], "approved": True}
        sent = await client.post(f"/runs/{run.id}/input", json=answer)
        assert sent.status_code == 202
        await run.result()
        view = (await client.get(f"/runs/{run.id}")).json()
    assert "5 paid" in str(view["output"])


@tool(executor="client")
async def locate() -> str:
    """Where the user is."""
    raise AssertionError("the client carries it out")


def outing(*, streaming: bool) -> Agent:
    """Its sub-agent's sub-agent calls a tool of the client."""
    low = Agent("low", model=Scripted([call("locate")], [say("Anywhere.")]), tools=[locate])
    asks = Scripted([call("low", prompt="?")], [say("Try the park.")])
    middle = Agent("middle", model=asks, tools=[low.as_tool(streaming=streaming)])
    model = Scripted([call("middle", prompt="?")], [say("Go to the park.")])
    return Agent("a", model=model, tools=[middle.as_tool(streaming=streaming)])


QUESTION = [{"role": "user", "content": "Where to?"}]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": QUESTION}),
        ("/v1/chat/completions", {"messages": QUESTION}),
        ("/v1/messages", {"messages": QUESTION, "max_tokens": 100}),
    ],
)
async def test_a_client_that_cannot_carry_out_a_sub_agents_call_gets_the_answer_without_it(
    tmp_path: Path, path: str, body: Json, streaming: bool
) -> None:
    async with serving(tmp_path, outing(streaming=streaming)) as (client, app):
        answer = await client.post(path, json={"model": "a", **body})
        assert "Go to the park." in answer.text
        streamed = await client.post(path, json={"model": "a", "stream": True, **body})
        assert "park." in streamed.text
        [run_id] = {one.run_id for one in (await app._runs.newest(1))}
        state = await whole_state(app._runs.store, run_id)
    items = [node.item for task in state.tasks.values() for node in task.output()]
    errors = [item.error for item in items if isinstance(item, ToolResult) and item.error]
    assert [error.code for error in errors] == ["client_cannot"] * streaming
    assert not any(task.requests or task.answers for task in state.tasks.values())


@pytest.mark.parametrize("format_", ["task", "ag-ui"])
async def test_a_client_that_can_be_asked_carries_out_a_sub_agents_call(
    tmp_path: Path, format_: str
) -> None:
    async with serving(tmp_path, outing(streaming=True)) as (client, app):
        if format_ == "task":
            made = (await client.post("/runs", json={"agent": "a", "input": "Where to?"})).json()
            run = await app.run(made["run_id"])
            async for event in run.events():
                if isinstance(event, TaskInputRequired):
                    break
        else:
            facts: Json = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": []}
            asked = [{"id": "m", **QUESTION[0]}]
            shown = await client.post(
                "/ag-ui/a", json={**facts, "messages": asked, "forwardedProps": {}}
            )
            assert '"interrupt"' in shown.text
            [run_id] = {one.run_id for one in (await app._runs.newest(1))}
            run = await app.run(run_id)
        [request] = await run.requests()
        await run.send(Answer(request_id=request.id, value="In Paris."))
        result = await run.result()
    assert (result.status, result.text) == ("completed", "Go to the park.")
    assert "In Paris." in str(result.items)


# --- the source document ---------------------------------------------------------------------


def thought(number: int, tool_name: str) -> Json:
    texts = ["Thinking about the weather in Paris.", f"Decided to call {tool_name} function."]
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": f"rs_{number}", "summary": summary}


def wants(number: int, name: str, arguments: str) -> Json:
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": "call_1",  # the same in parent and child, as providers do
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def message(number: int) -> Json:
    content = [{"type": "output_text", "text": ANSWER, "annotations": []}]
    facts = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
    return {**facts, "content": content}


def weather() -> Agent:
    asks = wants(1, "get_weather", '{"location":"Paris, France"}')
    model = Raw(
        "openai_responses",
        response(1, thought(1, "get_weather"), asks),
        response(2, message(2)),
    )
    return Agent("WeatherAgent", model=model, tools=[get_weather])


def subagent() -> Agent:
    arguments = (
        '{"name":"WeatherAgent","description":"An agent that provides weather information.",'
        '"prompt":"Get the current weather in Paris, France."}'
    )
    model = Raw(
        "openai_responses",
        response(3, thought(3, "ask_for_help"), wants(3, "ask_for_help", arguments)),
        response(4, message(4)),
    )
    return Agent("main", model=model, tools=[ask_for_help(weather())])


def plain(value: Any, found: dict[str, str] | None = None, name: str = "") -> Any:
    """An object without what only a log has, its ids replaced by the order of their appearance."""
    found = {} if found is None else found
    if isinstance(value, dict):
        left = {key: one for key, one in value.items() if key not in ("private", "started")}
        return {key: plain(one, found, key) for key, one in left.items()}
    if isinstance(value, list):
        return [plain(one, found) for one in value]
    if name in ("id", "call_id", "task_id") and isinstance(value, str):
        return found.setdefault(value, f"id {len(found)}")
    return value


@pytest.mark.parametrize("name", ["s0_weather", "s0_subagent"])
async def test_the_loop_makes_the_object_of_the_source_document(tmp_path: Path, name: str) -> None:
    agent = weather() if name == "s0_weather" else subagent()
    app = Tailrace([agent], database=tmp_path / "log.db")
    async with app.running(), asyncio.timeout(120):
        run = await app.start(agent.name, "Is it sunny in Paris?")
        await run.result()
        found = whole_object(await whole_state(app._runs.store, run.id))
    golden = json.loads((FOLDER / name / "whole.json").read_bytes())
    assert plain(json.loads(json.dumps(found["output"], default=vars))) == plain(golden["output"])


# --- types of the answer ---------------------------------------------------------------------


@dataclass
class Place:
    city: str
    people: list[str]


class Model(pydantic.BaseModel):
    city: str
    people: list[str]


SCHEMA = {
    "type": "object",
    "title": "Place",
    "properties": {
        "city": {"type": "string"},
        "people": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city", "people"],
}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Place, Place("Paris", ["Ada"])),
        (Model, Model(city="Paris", people=["Ada"])),
        (SCHEMA, {"city": "Paris", "people": ["Ada"]}),
    ],
)
async def test_the_answer_may_have_any_kind_of_type(
    tmp_path: Path, kind: Any, expected: Any
) -> None:
    wrong = ['{"city": "Paris", "people": [1]}', '{"city": "Paris"}', "[]"]
    right = '```json\n{"city": "Paris", "people": ["Ada"]}\n```'
    answers = [[say(text)] for text in (*wrong, right)]
    async with Simulator(*answers) as provider, asyncio.timeout(120):
        model = open_model("anthropic:claude-opus-5", base_url=provider.url, api_key="any")
        agent = Agent("a", model=model, output=kind)
        app = Tailrace([agent], database=tmp_path / "log.db")
        async with app.running():
            result = await (await app.start("a", "?")).result()
        await model.close()
    assert provider.refusals == []
    assert result.output == expected
    assert result.object["attempt"] == 4
