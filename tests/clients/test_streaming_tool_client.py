"""A page that listens with `onmessage` and switches on `event_type`, in a real browser."""

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

PAGE = """<!doctype html><meta charset="utf-8"><script type="module">
const heard = { internal: [], items: [], notes: [], starts: [], ends: [] };
const showInternalProgress = (event) => heard.internal.push(event);
const updateConversation = (item) => heard.items.push(item);
const showNotification = (data) => heard.notes.push(data);
const showToolStart = (name) => heard.starts.push(name);
const showToolEnd = (name) => heard.ends.push(name);
const eventSource = new EventSource("SERVER/runs/RUN/events?format=agents");
eventSource.onerror = () => {
  if (eventSource.readyState !== EventSource.CLOSED) return; // 204 after the last event closes it
  fetch("/report", { method: "POST", body: JSON.stringify(heard) });
};

eventSource.onmessage = function(event) {
    const data = JSON.parse(event.data);

    switch(data.event_type) {
        case 'streaming_tool_context_event':
            showInternalProgress(data.internal_event);
            break;

        case 'run_item_stream_event':
            updateConversation(data.item);
            break;

        case 'notify_stream_event':
            showNotification(data.data);
            break;

        case 'tool_stream_start_event':
            showToolStart(data.tool_name);
            break;

        case 'tool_stream_end_event':
            showToolEnd(data.tool_name);
            break;
    }
};
</script>"""


def test_a_page_that_switches_on_event_type_hears_every_event_of_tools_and_sub_agents(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = f"http://localhost:{pages.port}"
    monkeypatch.setenv("TAILRACE_TEST_ORIGINS", origin)
    served = Served(tmp_path / "log.db")
    asked = {"agent": "editor", "input": "?"}
    run_id = str(httpx.post(f"{served.url}/runs", json=asked).json()["run_id"])
    pages.files = {"/": PAGE.replace("SERVER", served.url).replace("RUN", run_id)}
    with browser(f"{origin}/"):
        heard = pages.report(DEADLINE)
    answer = httpx.get(f"{served.url}/runs/{run_id}/events?format=agents", timeout=DEADLINE)
    served.kill()
    sent: list[dict[str, Any]] = [json.loads(one.data) for one in SseParser().feed(answer.content)]

    def fields(kind: str, name: str) -> list[Any]:
        return [one[name] for one in sent if one["event_type"] == kind]

    assert heard == {
        "internal": fields("streaming_tool_context_event", "internal_event"),
        "items": fields("run_item_stream_event", "item"),
        "notes": fields("notify_stream_event", "data"),
        "starts": fields("tool_stream_start_event", "tool_name"),
        "ends": fields("tool_stream_end_event", "tool_name"),
    }
    assert sorted(heard["notes"]) == ["searching for mountains", "searching for rivers"]
    assert sorted(heard["starts"]) == sorted(["rivers", "mountains", "search", "search"])
    assert sorted(heard["ends"]) == sorted(heard["starts"])
    assert {"reasoning_item", "tool_call_item"} <= {
        one["item"]["type"] for one in heard["internal"] if "item" in one
    }
    kinds = [item["type"] for item in heard["items"]]
    assert kinds == [*["tool_call_item"] * 2, *["tool_call_output_item"] * 2, "message_output_item"]
