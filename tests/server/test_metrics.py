"""`GET /metrics`, read as Prometheus reads it."""

from __future__ import annotations

import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.principals import serving


def numbers(page: str) -> dict[str, float]:
    """Every sample: its name with its labels, and its value."""
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


async def test_metrics_count_runs_events_streams_and_requests_without_names() -> None:
    async with serving() as (app, client), client("ann") as ann, client() as stranger:
        run = (await ann.post("/runs", json={"agent": "assistant"})).json()
        stream = await ann.get(f"/runs/{run['run_id']}/events")
        parked = (await ann.post("/runs", json={"agent": "asking"})).json()
        while not app._runs.worker or not app._runs.worker.parked:
            await app._runs.reader.ended(parked["run_id"], 0.02)
        stored = sum(one.last_seq for one in await app._runs.store.latest_runs(owner="ann"))
        await ann.get("/runs/unknown")
        await ann.get("/made/up")
        await ann.get("/health", headers={"host": "evil.com"})
        answer = await ann.get("/metrics")
        found = numbers(answer.text)
        assert (await stranger.get("/metrics")).status_code == 401
        as_open_metrics = await ann.get(
            "/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"}
        )
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert as_open_metrics.text.endswith("# EOF\n")
    assert found["tailrace_runs working"] == 0
    assert found["tailrace_runs parked"] == 1
    assert found["tailrace_runs_started_total"] == found["tailrace_claims_total"] == 2
    assert found["tailrace_runs_ended_total completed"] == 1
    assert found["tailrace_events_total"] == stored - 2  # a first event is stored with its run
    flushes = found["tailrace_flush_seconds_count"]
    assert flushes == found["tailrace_flush_seconds_bucket +Inf"] >= 2
    assert 0 < found["tailrace_flush_seconds_sum"] < 60
    assert found["tailrace_streams"] == 0
    assert found["tailrace_stream_bytes_total"] == len(stream.content)
    assert found["tailrace_requests_total POST /runs 201"] == 2
    assert found["tailrace_requests_total GET /runs/{run_id}/events 200"] == 1
    assert found["tailrace_requests_total GET /runs/{run_id} 404"] == 1
    assert found["tailrace_requests_total   404"] == 1
    assert found["tailrace_requests_total   421"] == 1
    assert found["tailrace_store_outages_total"] == found["tailrace_bus_outages_total"] == 0
    assert found["process_open_fds"] > 0
    for name in (run["run_id"], run["thread_id"], "ann", "/made"):
        assert name not in answer.text


async def test_without_the_extra_the_answer_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    async with serving(None) as (_, client), client() as caller:
        answer = await caller.get("/metrics")
    assert answer.status_code == 404
    assert "pip install 'tailrace[metrics]'" in answer.json()["error"]["message"]
