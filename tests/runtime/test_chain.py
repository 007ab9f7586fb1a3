"""A run continues the run that its caller named, and its history is that chain."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tailrace.app import Tailrace
from tailrace.core.errors import NotFound
from tailrace.runtime.runs import Runs
from tailrace.runtime.task import TaskWriter

Json = dict[str, Any]


async def remembers(task: TaskWriter) -> None:
    """Say what the conversation asked, question by question."""
    asked = [state.root.facts["input"] for state in await task.chain() if state.root is not None]
    with task.message() as message:
        message.text(json.dumps(asked))


@asynccontextmanager
async def serving(agent: Any = remembers) -> AsyncIterator[tuple[Runs, httpx.AsyncClient]]:
    app = Tailrace({"agent": agent}, ":memory:")
    async with app.running():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield app.runs, client


async def finished(runs: Runs, run_id: str) -> Json:
    """A run's facts and the words of its answer, once it has ended."""
    assert await runs.reader.ended(run_id, 20)
    root = (await runs.state(run_id)).root
    assert root is not None
    assert root.status == "completed", root.error
    said = [part.text for node in root.output() for part in node.parts.values()]  # type: ignore[union-attr]
    return {**root.facts, "said": json.loads(said[-1])}


async def respond(client: httpx.AsyncClient, text: str, previous: Json | None = None) -> Json:
    body = {"model": "agent", "input": text}
    if previous is not None:
        body["previous_response_id"] = previous["id"]
    answer = await client.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    made: Json = answer.json()
    return made


async def test_a_response_continues_the_response_that_the_client_named() -> None:
    async with serving() as (_, client):
        first = await respond(client, "one")
        await respond(client, "two", first)
        third = await respond(client, "three", first)
        fourth = await respond(client, "four", third)
    assert third["previous_response_id"] == first["id"]
    texts = [made["output"][0]["content"][0]["text"] for made in (third, fourth)]
    assert list(map(json.loads, texts)) == [["one", "three"], ["one", "three", "four"]]


async def test_a_run_continues_the_named_run_else_the_newest_of_its_thread() -> None:
    async with serving() as (runs, client):
        made: list[str] = []
        for text, named in (
            ("one", {}),
            ("two", {}),
            ("three", {"previous_run_id": 0}),
            ("four", {}),
            ("five", {"previous_run_id": None}),
        ):
            body: Json = {"agent": "agent", "input": text, "thread_id": "t", **named}
            if isinstance(body.get("previous_run_id"), int):
                body["previous_run_id"] = made[body["previous_run_id"]]
            answer = await client.post("/runs", json=body)
            assert answer.status_code == 201, answer.text
            made.append(answer.json()["run_id"])
            await finished(runs, made[-1])
        said = [(await finished(runs, run_id))["said"] for run_id in made]
        assert said == [
            ["one"],
            ["one", "two"],
            ["one", "three"],
            ["one", "three", "four"],
            ["five"],
        ]
        # Without a thread of its own, a run is in the thread of the run that it continues.
        body = {"agent": "agent", "input": "six", "previous_run_id": made[1]}
        answer = await client.post("/runs", json=body)
        last = await finished(runs, answer.json()["run_id"])
        assert (last["thread_id"], last["said"]) == ("t", ["one", "two", "six"])


async def test_a_previous_run_that_is_unknown_or_of_another_owner_is_not_found() -> None:
    async with serving() as (runs, client):
        hers = await runs.start("agent", "hers", thread_id="t", owner="her")
        await finished(runs, hers)
        with pytest.raises(NotFound):
            await runs.start("agent", "mine", previous_run_id=hers, owner="me")
        for previous in (hers, "run_0"):
            body: Json = {"agent": "agent", "input": "mine", "previous_run_id": previous}
            assert (await client.post("/runs", json=body)).status_code == 404
            body = {"model": "agent", "input": "mine", "previous_response_id": f"resp_{previous}"}
            assert (await client.post("/v1/responses", json=body)).status_code == 404
        answer = await client.post("/runs", json={"agent": "agent", "previous_run_id": 7})
        assert answer.status_code == 400
        assert await runs.latest("t", "me") is None


async def test_a_chain_ends_at_a_run_that_was_deleted() -> None:
    async with serving() as (runs, _):
        made = [await runs.start("agent", "one", thread_id="t")]
        for text in ("two", "three"):
            await finished(runs, made[-1])
            made.append(await runs.start("agent", text, thread_id="t"))
        await finished(runs, made[-1])
        await runs.store.delete(made[0])
        last = await finished(runs, await runs.start("agent", "four", thread_id="t"))
        assert last["said"] == ["two", "three", "four"]


async def test_a_chat_tells_what_the_log_does_not_have() -> None:
    one, two = ({"role": "user", "id": t, "parts": [{"type": "text", "text": t}]} for t in "ab")
    async with serving() as (runs, client):
        # Two questions, because the first run failed before it had said anything.
        body = {"id": "t", "messages": [one, two]}
        assert (await client.post("/api/chat", json=body)).status_code == 200
        first = await runs.latest("t")
        assert first is not None
        assert (await finished(runs, first.run_id))["said"] == [[one, two]]
        known, foreign = ({"role": "assistant", "id": i} for i in (first.run_id, "elsewhere"))
        body["messages"] = [one, known, two, foreign, one]
        assert (await client.post("/api/chat", json=body)).status_code == 200
        second = await runs.latest("t")
        assert second is not None
        assert second.previous_run_id == first.run_id
        assert (await finished(runs, second.run_id))["said"][-1] == [two, foreign, one]
