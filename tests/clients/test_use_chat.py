"""The hook `useChat` of `@ai-sdk/react` in React components, unchanged, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.browser import Pages, browser
from tests.node import TESTS_JS, run_node
from tests.serving import Served

DEADLINE = 60.0


def text_of(message: Any) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def test_components_with_use_chat_talk_fail_and_resume_after_a_reload(
    pages: Pages, tmp_path: Path
) -> None:
    origin = f"http://localhost:{pages.port}"
    served = Served(tmp_path / "log.db", environment={"TAILRACE_TEST_ORIGINS": origin})
    esbuild = TESTS_JS / "node_modules" / "esbuild" / "bin" / "esbuild"
    options = ["--bundle", "--format=esm", "--platform=browser", "--log-level=error"]
    mode = '--define:process.env.NODE_ENV="production"'
    script = run_node([esbuild, "use_chat_page.mjs", *options, mode])
    head = f'<!doctype html><meta charset="utf-8"><script>var server = "{served.url}";</script>'
    page = f'{head}<body><script type="module" src="/page.js"></script>'
    pages.files = {"/": page, "/page.js": script}
    with browser(f"{origin}/"):
        reports = [pages.report(DEADLINE) for _ in range(3)]
    served.kill()
    found = {one["id"]: one for one in reports}
    talk = found["talk"]
    assert (talk["status"], talk["error"]) == ("ready", None)
    assert [one["role"] for one in talk["messages"]] == ["user", "assistant"] * 2
    assert text_of(talk["messages"][1]) == "one"
    assert text_of(talk["messages"][3]).endswith("one | two")
    assert {"reasoning", "dynamic-tool", "text"} <= {
        part["type"] for part in talk["messages"][1]["parts"]
    }
    assert talk["seen"][:2] == ["ready", "submitted"]
    assert found["failure"]["status"] == "error"
    assert found["failure"]["error"]
    assert "hunter2" not in str(found["failure"])
    [answer] = found["left"]["messages"]
    assert "It is sunny in Paris" in text_of(answer)
    assert found["left"]["status"] == "ready"
