"""The README's page, in a real browser, on another port than the server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.browser import Pages, browser
from tests.node import ROOT, TESTS_JS, run_node
from tests.serving import Served

DEADLINE = 120.0

REPORT = """
const report = (value) => fetch("/report", { method: "POST", body: JSON.stringify(value) });
"""

LISTED = """
const started = await fetch(`${server}/runs`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ agent: "assistant", input: "?" }),
});
const run = new URL(started.headers.get("location"), server);
const heard = await new Promise((resolve) => {
  const source = new EventSource(`${run}/events`);
  let events = 0;
  source.onmessage = () => (events += 1);
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) resolve(events); // after the 204 behind its end
  };
});
const missing = await fetch(`${server}/runs/nobody`);
await report({
  chat: chat.messages.map(({ role, parts }) => [role, parts.map((part) => part.text).join("")]),
  status: chat.status,
  events: heard,
  missing: [missing.status, (await missing.json()).error.code],
});
"""

UNLISTED = """
const json = { "content-type": "application/json" };
const tries = [
  fetch(`${server}/agents`),
  fetch(`${server}/runs`, { method: "POST", headers: json, body: "{}" }),
  new Promise((resolve, reject) => {
    const socket = new WebSocket(`${server.replace("http", "ws")}/v1/responses`);
    Object.assign(socket, { onopen: resolve, onerror: reject });
  }),
];
await fetch(`${server}/runs/${run}/cancel`, { method: "POST", mode: "no-cors" }); // not readable
const answers = await Promise.allSettled(tries);
await report({ refused: answers.map((answer) => answer.status) });
"""


def page(script: str) -> str:
    return f'<!doctype html><meta charset="utf-8"><script type="module" src="{script}"></script>'


def bundled(source: str, folder: Path) -> str:
    """The script as one file that a browser loads, with the packages that it imports."""
    (folder / "page.mjs").write_text(source)
    options = ["--bundle", "--format=esm", "--platform=browser", "--log-level=error"]
    esbuild = TESTS_JS / "node_modules" / "esbuild" / "bin" / "esbuild"
    environment = {"NODE_PATH": str(TESTS_JS / "node_modules")}
    return run_node([esbuild, folder / "page.mjs", *options], env=environment)


def test_the_page_of_the_docs_works_on_another_port_only_where_it_is_listed(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = f"http://localhost:{pages.port}"
    monkeypatch.setenv("TAILRACE_TEST_ORIGINS", listed)
    served = Served(tmp_path / "log.db")
    guide = (ROOT / "docs" / "clients.md").read_text()
    (example,) = re.findall(r"```ts\n(.*?)```", guide, re.DOTALL)
    head = f"{REPORT}const server = '{served.url}';\n"
    endless = httpx.post(f"{served.url}/runs", json={"agent": "endless", "input": "?"}).json()
    source = example.replace("http://localhost:8000", served.url)
    assert served.url in source
    script = bundled(source.replace("const chat", f"{head}const chat") + LISTED, tmp_path)
    unlisted = f"http://127.0.0.1:{pages.port}"
    pages.files = {
        "/listed": page("/listed.js"),
        "/listed.js": script,
        "/unlisted": page("/unlisted.js"),
        "/unlisted.js": f"{head}const run = '{endless['run_id']}';\n{UNLISTED}",
        "/": f'<iframe src="{listed}/listed"></iframe><iframe src="{unlisted}/unlisted"></iframe>',
    }
    with browser(f"{listed}/"):
        reports: dict[str, Any] = {}
        for _ in range(2):
            reports |= pages.report(DEADLINE)
    left = httpx.get(f"{served.url}/runs/{endless['run_id']}").json()
    served.kill()
    assert reports["refused"] == ["rejected"] * 3
    assert left["status"] == "in_progress"
    (question, asked), (role, answer) = reports["chat"]
    assert (question, asked, role) == ("user", "Is it sunny in Paris?", "assistant")
    assert "It is sunny in Paris" in answer
    assert reports["status"] == "ready"
    assert reports["events"] > 50
    assert reports["missing"] == [404, "not_found"]
