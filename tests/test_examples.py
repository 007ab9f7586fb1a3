"""The examples run without a key, and show what they are about."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace import Answer, Tailrace
from tailrace.core import events as ev

ROOT = Path(__file__).parents[1]

FORMATS = [
    *("task", "run", "openai-responses", "openai-chat", "anthropic-messages", "vercel-ui"),
]


@asynccontextmanager
async def running(
    name: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Tailrace]:
    monkeypatch.chdir(path)
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    async with module.app.running(), asyncio.timeout(120):
        yield module.app


async def test_weather_is_a_short_file_whose_agent_answers_with_a_citation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (ROOT / "examples" / "weather.py").read_text().split('"""', 2)[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    async with running("weather", tmp_path, monkeypatch) as app:
        result = await (await app.start("weather", "Is it sunny in Paris?")).result()
    assert result.text == "Yes, it is sunny at 15C.[^1]"
    assert result.items[-1]["block_list"][0]["annotations"][0]["reference_id"] == 1


async def test_a_loop_of_your_own_has_the_same_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running("own_loop", tmp_path, monkeypatch) as app:
        result = await (await app.start("weather", "Is it sunny?")).result()
    assert result.text == "Yes, it is sunny at 15C.[^1]"


async def test_research_runs_two_sub_agents_and_cites_the_sources_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running("research", tmp_path, monkeypatch) as app:
        run = await app.start("editor", "What is France like?")
        events = [event async for event in run.events()]
        result = await run.result()
    children = [e.agent for e in events if isinstance(e, ev.TaskCreated) and e.parent_task_id]
    assert sorted(str(name) for name in children) == ["mountains", "rivers"]
    notes = result.items[-1]["block_list"][0]["annotations"]
    assert [note["reference_id"] for note in notes] == [1, 2]
    assert sum(isinstance(event, ev.ReferenceImported) for event in events) == 2
    assert "I look for" not in str(result.to_input_list())


async def test_the_router_shows_the_whole_envelope_in_the_run_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running("router", tmp_path, monkeypatch) as app:
        run = await app.start("assistant", "Book a table for two.", thread="t1")
        frames = b"".join([frame async for frame in run.events("run")]).decode()
    streamed = [json.loads(line) for line in re.findall(r"^data: (.*)$", frames, re.MULTILINE)]
    assert [one["type"] for one in streamed if one["type"] != "text.delta"] == [
        *("run.started", "step.start", "step.finish", "step.start"),
        *("tool.start", "tool.args", "tool.end", "tool.result"),
        *("text.start", "text.end", "step.finish", "run.finished"),
    ]
    steps = [one["data"]["stepName"] for one in streamed if one["type"] == "step.start"]
    assert steps == ["router", "worker"]
    [end] = [one["data"] for one in streamed if one["type"] == "text.end"]
    worker = end["workerAgentOutput"]
    assert (end["stage"], worker["status"], worker["answer"]) == (
        *("worker", "success", "Your table is booked."),
    )
    assert worker["result_type"] == "execution_report"
    assert worker["ui_hints"] == {"ui_mode": "booking", "ui_state": {"id": 42}, "actions": []}
    [result] = [one["data"] for one in streamed if one["type"] == "tool.result"]
    output = result["toolAgentOutput"]
    assert output["ui_hints"] == {"ui_mode": "card"}
    assert output["attachments"][0]["path"] == "42.pdf"
    assert {one["threadId"] for one in streamed} == {"t1"}


async def test_the_other_worker_answers_small_talk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running("router", tmp_path, monkeypatch) as app:
        result = await (await app.start("assistant", "Hello!")).result()
    assert result.output["answer"] == "Hello! I book tables."


@pytest.mark.parametrize("approved", [True, False])
async def test_a_payment_waits_for_an_approval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: bool
) -> None:
    async with running("approvals", tmp_path, monkeypatch) as app:
        run = await app.start("cashier", "Pay the baker 50 euros.")
        async for event in run.events():
            if isinstance(event, ev.TaskInputRequired):
                request = event.requests[0]
                break
        await run.send(Answer(request_id=request.id, approved=approved))
        result = await run.result()
    assert ("were paid" in str(result.items)) == approved
    assert result.text == "Done."


@pytest.mark.parametrize("wire", FORMATS)
async def test_an_agent_can_be_followed_in_every_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    async with running("research", tmp_path, monkeypatch) as app:
        run = await app.start("editor", "What is France like?")
        frames: list[Any] = [frame async for frame in run.events(wire)]
    streamed = b"".join(frames).decode()
    assert "Loire" in streamed
    assert '"error":{' not in streamed.replace(" ", "")
