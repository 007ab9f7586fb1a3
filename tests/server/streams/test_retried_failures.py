"""A provider that fails again and again: streams and stored answers name the same cause."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tailrace import Agent, Tailrace
from tailrace.history import history
from tailrace.models import Scripted, call, cut, fail, say, tries
from tailrace.ports import Request
from tailrace.runtime.model_calls.call import Patience

CAUSE = "The provider is overloaded."


class Failing(Scripted):
    """Begins an answer and fails; each retry fails without a word."""

    def __init__(self) -> None:
        failure = fail("overloaded", CAUSE)
        super().__init__(tries([say("It is"), failure], [failure]))
        self.read: list[Any] = []

    def stream(self, request: Request) -> AsyncIterator[list[str]]:
        items = history(request.chain, "openai_chat", task_id=request.task_id).items
        self.read.append([item["content"] for item in items])
        return super().stream(request)


def events(body: str) -> list[Any]:
    lines = [line for line in body.splitlines() if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


@pytest.mark.parametrize("path", ["responses", "chat/completions", "messages"])
async def test_the_stream_of_a_run_whose_retries_fail_ends_with_their_cause(path: str) -> None:
    model = Failing()
    patience = Patience(retries=2, first_wait=0.001)
    app = Tailrace([Agent("a", model=model, patience=patience)], ":memory:")
    asked: dict[str, Any] = {"model": "a", "messages": [{"role": "user", "content": "Sunny?"}]}
    if path == "responses":
        asked = {"model": "a", "input": "Sunny?"}
    async with app.running():
        sending = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=sending, base_url="http://localhost") as client:
            body = {**asked, "max_tokens": 9, "stream": True}
            streamed = events((await client.post(f"/v1/{path}", json=body, timeout=60)).text)
            stored = await client.post(f"/v1/{path}", json={**body, "stream": False}, timeout=60)
            if path == "responses":
                stored = await client.get(f"/v1/responses/{streamed[0]['response']['id']}")
    assert '"It' in json.dumps(streamed)  # the client has seen a part of the answer
    if path == "responses":
        assert streamed[-1]["type"] == "response.failed"
        assert streamed[-1]["response"] == stored.json()
        assert stored.json()["output"][0]["status"] == "incomplete"
    else:
        assert streamed[-1]["error"] == stored.json()["error"]
    assert CAUSE in stored.text
    # A retry does not take the broken answer for a turn of the conversation.
    assert model.read == [["Sunny?"]] * 6


@pytest.mark.parametrize("format", ["ag-ui", "vercel-ui"])
async def test_a_completed_run_whose_sub_agent_tried_twice_is_replayed_whole(format: str) -> None:
    model = Scripted(tries([say("It is not"), cut()], [say("It is sunny.")]))
    inner = Agent("inner", description="Looks.", model=model)
    outer_model = Scripted([call("inner", prompt="?")], [say("Done.")])
    app = Tailrace([Agent("outer", tools=[inner.as_tool()], model=outer_model)], ":memory:")
    async with app.running():
        run = await app.start("outer", "Sunny?")
        assert (await run.result()).status == "completed"
        sending = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=sending, base_url="http://localhost") as client:
            answer = await client.get(f"/runs/{run.id}/events", params={"format": format})
    found = events(answer.text)
    assert found[-1]["type"] in ("RUN_FINISHED", "finish")
    assert "Done." in answer.text
    assert "It is not" not in answer.text or format == "vercel-ui"
