"""A page that listens to a thread's named events with `addEventListener`, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.core.sse import SseParser
from tests.browser import Pages, browser
from tests.serving import Served

DEADLINE = 120.0

HEAD = """<!doctype html><meta charset="utf-8"><base href="SERVER/"><script>
const threadId = "conversation";
const heard = [];
console.log = (label, value) => {
  heard.push([label, value]);
  const ends = heard.filter(([label]) => label === "Agent finished:" || label === "Agent error:");
  if (ends.length === 2) fetch("PAGES/report", { method: "POST", body: JSON.stringify(heard) });
};
</script><script>
"""

CLIENT = """
const eventSource = new EventSource(`/runs/${threadId}/events`);

eventSource.addEventListener('run.started', (e) => {
  console.log('Agent started:', JSON.parse(e.data));
});

eventSource.addEventListener('step.start', (e) => {
  console.log('Step started:', JSON.parse(e.data));
});

eventSource.addEventListener('text.delta', (e) => {
  const data = JSON.parse(e.data);
  console.log('Text delta:', data.data.delta);
});

eventSource.addEventListener('tool.start', (e) => {
  const data = JSON.parse(e.data);
  console.log('Tool called:', data.data.toolName);
});

eventSource.addEventListener('tool.result', (e) => {
  const data = JSON.parse(e.data);
  console.log('Tool result:', data.data.toolAgentOutput);
});

eventSource.addEventListener('text.end', (e) => {
  const data = JSON.parse(e.data);
  console.log('Worker output:', data.data.workerAgentOutput);
  console.log('Usage:', {
    inputTokens: data.data.inputTokens,
    outputTokens: data.data.outputTokens,
    cost: data.data.cost
  });
});

eventSource.addEventListener('run.finished', (e) => {
  console.log('Agent finished:', JSON.parse(e.data));
});

eventSource.addEventListener('run.error', (e) => {
  console.log('Agent error:', JSON.parse(e.data));
});"""

PRINTED: dict[str, Any] = {
    "run.started": ("Agent started:", lambda event: event),
    "step.start": ("Step started:", lambda event: event),
    "text.delta": ("Text delta:", lambda event: event["data"]["delta"]),
    "tool.start": ("Tool called:", lambda event: event["data"]["toolName"]),
    "tool.result": ("Tool result:", lambda event: event["data"]["toolAgentOutput"]),
    "text.end": ("Worker output:", lambda event: event["data"]["workerAgentOutput"]),
    "run.finished": ("Agent finished:", lambda event: event),
    "run.error": ("Agent error:", lambda event: event),
}
"""What the client prints for each event that it listens for."""


def test_the_page_hears_every_event_that_it_listens_for(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = f"http://localhost:{pages.port}"
    monkeypatch.setenv("TAILRACE_TEST_ORIGINS", origin)
    served = Served(tmp_path / "log.db")
    page = HEAD.replace("SERVER", served.url).replace("PAGES", origin) + CLIENT + "</script>"
    pages.files = {"/": page}
    asked = {"input": "?", "thread_id": "conversation"}
    with browser(f"{origin}/"):
        runs = [
            httpx.post(f"{served.url}/runs", json={"agent": agent, **asked}).json()["run_id"]
            for agent in ("assistant", "broken")
        ]
        heard = pages.report(DEADLINE)
    sent = [
        json.loads(event.data)
        for run_id in runs
        for event in SseParser().feed(
            httpx.get(f"{served.url}/runs/{run_id}/events?format=run", timeout=DEADLINE).content
        )
    ]
    served.kill()
    expected = []
    for event in sent:
        if event["type"] in PRINTED:
            label, value = PRINTED[event["type"]]
            expected.append([label, value(event)])
        if event["type"] == "text.end":
            names = ("inputTokens", "outputTokens", "cost")
            expected.append(["Usage:", {name: event["data"][name] for name in names}])
    assert heard == expected
    assert {label for label, _ in heard} == {"Usage:", *(label for label, _ in PRINTED.values())}
