"""Requests, runs and streams that a principal may have."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace import ServerLimits
from tailrace.core.errors import CallerError
from tailrace.runtime.runs import quota
from tailrace.server.access import limits
from tailrace.testing.waiting import until
from tests.server.principals import OpenStream, begun, serving


async def test_a_request_that_waits_for_its_run_counts_as_a_stream() -> None:
    async with serving(limits=ServerLimits(streams=1)) as (app, client), client("ann") as ann:
        body = {"model": "asking", "input": "?"}
        first = asyncio.ensure_future(ann.post("/v1/responses", json=body))
        async with asyncio.timeout(120):
            assert app._server is not None
            open_now = app._server.connections
            await until(lambda: len(open_now) == 1)
            [run] = await app._runs.of("ann").newest(9)
            path = f"/runs/{run.run_id}"
            assert (await ann.head(f"{path}/events")).status_code == 429
            assert (await ann.post("/v1/responses", json=body)).status_code == 429
            await ann.post(f"{path}/cancel")
            assert (await first).status_code == 200
        assert (await ann.head(f"{path}/events")).status_code == 200


async def test_too_many_requests_are_refused_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: now))
    asked = ServerLimits(requests_per_minute=20)
    async with serving(limits=asked) as (_, client), client("ann") as ann, client("bob") as bob:
        assert [(await ann.get("/agents")).status_code for _ in range(3)] == [200, 200, 429]
        refused = await ann.get("/agents")
        assert refused.headers["retry-after"] == "3"
        assert refused.json()["error"]["code"] == "limit_reached"
        assert (await ann.get("/health")).status_code == 200
        assert (await bob.get("/agents")).status_code == 200
        now = 3.0
        assert [(await ann.get("/agents")).status_code for _ in range(2)] == [200, 429]


async def test_too_many_unfinished_runs_are_refused_in_every_api(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quota, "LOOK_SECONDS", 0.0)
    asked = ServerLimits(runs=2)
    async with serving(limits=asked) as (_, client), client("ann") as ann, client("bob") as bob:
        runs = [await begun(ann, "asking") for _ in range(2)]
        message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "?"}]}
        for path, body in (
            ("/runs", {"agent": "assistant", "input": "?"}),
            ("/v1/responses", {"model": "assistant", "input": "?"}),
            ("/api/chat", {"id": "c", "messages": [message]}),
        ):
            refused = await ann.post(path, json=body)
            assert refused.status_code == 429, path
            assert refused.headers["retry-after"] == "1"
            assert "2 unfinished runs" in refused.text
        await begun(bob)
        assert (await ann.post(f"/runs/{runs[0]}/cancel")).status_code == 200
        await begun(ann)


async def test_too_many_streams_are_refused_until_one_is_closed() -> None:
    asked = ServerLimits(streams=1)
    async with serving(limits=asked) as (app, client), client("ann") as ann:
        run_id = await begun(ann, "asking")
        stream = OpenStream(app, f"/runs/{run_id}/events", "ann")
        async with asyncio.timeout(120):
            assert await stream.status == 200
        refused = await ann.get(f"/runs/{run_id}/events")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        # No run starts whose stream would be refused: the client would start it again.
        body = {"model": "assistant", "input": "?", "stream": True}
        assert (await ann.post("/v1/responses", json=body)).status_code == 429
        assert [run.run_id for run in await app._runs.of("ann").newest(9)] == [run_id]
        # Requests without a stream are answered, as far as the limit of runs goes.
        for where, quiet, status in (
            ("/runs", {"agent": "assistant", "input": "?"}, 201),
            ("/threads/t/runs", {"agent": "assistant", "input": "?"}, 201),
            ("/runs", {"agent": "assistant", "input": "?", "stream": True}, 429),
            ("/v1/responses", {**body, "stream": False, "background": True}, 200),
            ("/v1/responses", {**body, "background": True}, 429),
            ("/tickets", {"path": f"/runs/{run_id}/events"}, 201),
        ):
            assert (await ann.post(where, json=quiet)).status_code == status, (where, quiet)
        await stream.leave()
        assert (await ann.post("/v1/responses", json=body)).status_code == 200
        again = OpenStream(app, f"/runs/{run_id}/events", "ann")
        async with asyncio.timeout(120):
            assert await again.status == 200
        await again.leave()


def test_principals_without_requests_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(limits, "KEPT", 2)
    log: Any = None
    known = limits.Allowances(lambda owner: limits.Allowance(ServerLimits(), log, owner))
    first, second = known.of("ann"), known.of("bob")
    second.streams = 1
    assert known.of("ann") is first
    now = 61.0
    known.of("eve")
    assert known.of("bob") is second
    assert known.of("ann") is not first


def test_a_limit_is_at_least_one() -> None:
    with pytest.raises(CallerError, match="`streams`"):
        ServerLimits(streams=0)
