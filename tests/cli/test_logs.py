"""The logs of a server: a line of JSON for each, with its run; an access log without secrets."""

from __future__ import annotations

import json
import logging
import re
import signal
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tailrace.cli import logs
from tailrace.ports import RunInfo
from tailrace.runtime.diagnostics.failures import DebugHint
from tailrace.runtime.diagnostics.log_fields import about_run
from tailrace.server import access_log
from tailrace.server.access.auth import create_key
from tailrace.settings import Settings, read_settings
from tests.cli.commands import running

APP = """
import logging
from tailrace import Tailrace, Task

async def talks(task: Task) -> None:
    logging.getLogger("mine").warning("talks to %s", task.text)

async def breaks(task: Task) -> None:
    raise RuntimeError(task.text)

app = Tailrace([talks, breaks], "log.db")
"""


def record(message: str, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("tailrace", logging.WARNING, "file.py", 1, message, None, None)
    made.__dict__.update(extra)
    return made


def test_the_log_of_a_server_has_the_run_of_each_line_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(APP)
    key, row = create_key(tmp_path / "keys.json", "ann")
    settings = ("--keys", "keys.json", "--log-format", "json", "--access-log", "--port", "0")
    with running("serve", "mine:app", *settings, cwd=tmp_path) as serving:
        assert serving.stdout is not None
        first = json.loads(serving.stdout.readline())  # a container has both outputs in one
        assert (first["level"], first["logger"]) == ("info", "tailrace")
        found = re.search(r"http://\S+", first["message"])
        assert found
        with httpx.Client(base_url=found[0], headers={"x-api-key": key}, timeout=30) as client:
            started = {"agent": "talks", "input": "Ann", "thread_id": "t1"}
            talks = client.post("/runs", json=started).json()["run_id"]
            stream = f"/runs/{talks}/events"
            client.get(stream)
            ticket = client.post("/tickets", json={"path": stream}).json()["ticket"]
            with httpx.Client(base_url=found[0], timeout=30) as keyless:
                followed = keyless.get(stream, params={"ticket": ticket})
            breaks = client.post("/runs", json={"agent": "breaks", "input": "hunter2"})
            client.get(f"/runs/{breaks.json()['run_id']}/events")
            wrong = client.get("/runs/none", headers={"x-api-key": "tr_hunter2"})
        address = f"{found[0].replace('http', 'ws', 1)}/v1/responses"
        for refused in ({"x-api-key": "tr_hunter2"}, {"origin": "http://evil.example"}):
            with pytest.raises(InvalidStatus):
                connect(address, additional_headers=refused)
        with connect(address, additional_headers={"x-api-key": key}) as socket:
            socket.send(json.dumps({"type": "response.create", "model": "none", "input": "é"}))
            sent = len(str(socket.recv(30)).encode())
        assert (followed.status_code, wrong.status_code) == (200, 401)
        serving.send_signal(signal.SIGTERM)
        assert serving.stderr is not None
        written = serving.stderr.read()
        assert serving.wait() == 0
    lines = [json.loads(line) for line in written.splitlines()]
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
    [inside] = [line for line in lines if line["logger"] == "mine"]
    assert {name: inside[name] for name in ("level", "message", "run", "agent", "thread")} == {
        "level": "warning",
        "message": "talks to Ann",
        "run": talks,
        "agent": "talks",
        "thread": "t1",
    }
    [failed] = [line for line in lines if line["level"] == "error"]
    assert (failed["agent"], failed["run"]) == ("breaks", breaks.json()["run_id"])
    requests = [line for line in lines if line["logger"] == "tailrace.access"]
    seen = [(one["method"], one["path"], one["status"], one["principal"]) for one in requests]
    assert seen == [
        ("POST", "/runs", 201, "ann"),
        ("GET", stream, 200, "ann"),
        ("POST", "/tickets", 201, "ann"),
        ("GET", stream, 200, "ann"),
        ("POST", "/runs", 201, "ann"),
        ("GET", f"/runs/{breaks.json()['run_id']}/events", 200, "ann"),
        ("GET", "/runs/none", 401, ""),
        ("GET", "/v1/responses", 401, ""),
        ("GET", "/v1/responses", 403, ""),
        ("GET", "/v1/responses", 101, "ann"),
    ]
    assert requests[-1]["bytes"] == sent
    assert requests[3]["bytes"] == len(followed.content)
    assert all(one["ms"] >= 0 for one in requests)
    for secret in (key, "hunter2", ticket, row.sha256):
        assert secret not in written


async def test_a_path_or_a_principal_forges_no_line_and_no_field(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        scope[access_log.PRINCIPAL].append("ann\n200")
        await send({"type": "http.response.start", "status": 404, "headers": []})

    async def sent(message: Any) -> None: ...

    caplog.set_level(logging.INFO, "tailrace.access")
    scope = {"type": "http", "method": "GET", "path": "/runs/a\r\nGET 200 é\u2028~2:\ud800"}
    await access_log.AccessLog(answer)(scope, sent, sent)  # type: ignore[arg-type]
    [line] = caplog.messages
    assert line.startswith("GET /runs/a%0D%0AGET%20200%20%C3%A9%E2%80%A8~2:%3F 404 ")
    assert line.endswith(" ann%0A200 0")


def test_a_line_that_cannot_be_encoded_is_logged_all_the_same() -> None:
    line = json.loads(logs.JsonLines().format(record("half \ud800")))
    assert line["message"] == "half ?"


def test_a_line_for_people_has_its_exception() -> None:
    try:
        raise ValueError("why")
    except ValueError:
        made = record("it failed", exc_info=sys.exc_info())
    text = logs.TextLines().format(made)
    assert re.match(r"\d{4}-\d\d-\d\dT\S+Z WARNING it failed\nTraceback", text)
    assert "ValueError: why" in json.loads(logs.JsonLines().format(made))["error"]


def test_an_application_keeps_its_own_log_unless_a_format_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = logging.getLogger()
    own = logging.NullHandler()
    monkeypatch.setattr(root, "handlers", [own])
    level, access = root.level, access_log.logger.level
    try:
        monkeypatch.setattr(DebugHint, "flag", None)
        logs.set_up(_settings({}))
        assert (root.handlers, DebugHint.flag) == ([own], None)
        logs.set_up(_settings({"TAILRACE_LOG_FORMAT": "text", "TAILRACE_LOG_LEVEL": "info"}))
        assert (root.handlers != [own], root.level) == (True, logging.INFO)
        assert DebugHint.text() == "--log-level debug shows the text"
    finally:
        root.setLevel(level)
        access_log.logger.setLevel(access)


def _settings(environment: dict[str, str]) -> Settings:
    return read_settings({}, environment)


def test_a_line_names_its_run_agent_and_thread_as_text_and_as_json() -> None:
    info = RunInfo(
        run_id="r1",
        agent="helper",
        thread_id="t1",
        owner="",
        ordinal=1,
        previous_run_id=None,
        last_seq=1,
        epoch=1,
        attempts=1,
        created_at=0.0,
        ended_at=None,
        trimmed_to=0,
    )
    line = record("a stream broke off", **about_run(info))
    assert (
        logs.TextLines()
        .format(line)
        .endswith("WARNING a stream broke off (run r1, agent helper, thread t1)")
    )
    written = json.loads(logs.JsonLines().format(line))
    assert (written["run"], written["agent"], written["thread"]) == ("r1", "helper", "t1")
    named = record("run r1 (agent helper) failed\nat line 1", **about_run(info))
    assert (
        logs.TextLines()
        .format(named)
        .endswith("run r1 (agent helper) failed (thread t1)\nat line 1")
    )
    assert logs.TextLines().format(record("Redis is away")).endswith("WARNING Redis is away")
