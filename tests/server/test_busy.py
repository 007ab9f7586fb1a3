"""A database that others hold: the error says when to come back, and readers go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from tailrace.app import Tailrace
from tailrace.runtime.tasks.task import Task
from tailrace.stores.sqlite import schema
from tests.serving import client_of


async def agent(task: Task) -> None:
    with task.message() as message:
        message.text("It is sunny.")


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tailrace]:
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.2)
    made = Tailrace({"a": agent}, tmp_path / "log.db")
    async with asyncio.timeout(120), made.running():
        yield made


async def test_a_database_that_stays_busy_is_503_with_a_time_to_come_back(
    app: Tailrace, tmp_path: Path
) -> None:
    async with client_of(app) as client:
        body = {"agent": "a", "input": "?"}
        run_id = (await client.post("/runs", json=body)).json()["run_id"]
        assert await app._runs.reader.ended(run_id, 120)
        other = apsw.Connection(str(tmp_path / "log.db"))
        other.execute("pragma busy_timeout = 10000")
        other.execute("begin immediate")
        answer = await client.post("/runs", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage_busy")
        assert answer.headers["retry-after"] == "1"
        assert (await client.get(f"/runs/{run_id}")).json()["status"] == "completed"
        other.execute("rollback")
        other.close()
        assert (await client.post("/runs", json=body)).status_code == 201
