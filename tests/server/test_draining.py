"""A server that stops lets its runs finish, however it is served and whatever is open."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from tailrace.app import Tailrace
from tailrace.cli.process import UNREAD_SECONDS
from tailrace.core.errors import CallerError, Stopping
from tailrace.core.run_object import client_view
from tailrace.runtime.agents.functions import restartable
from tailrace.runtime.tasks.task import Task
from tests.forked import Forked

ROOT = Path(__file__).parents[2]

APPLICATION = """
import asyncio, os
from contextlib import asynccontextmanager
from pathlib import Path
from datetime import timedelta
from tailrace.app import Tailrace
from tailrace.runtime.agents.functions import restartable
from starlette.applications import Starlette

async def slow(task):
    task.notice(type(asyncio.get_running_loop()).__module__)
    await task.drain()
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    with task.message() as message:
        message.text("Finished.")

async def endless(task):
    task.notice("begun")
    await asyncio.sleep(3600)

async def large(task):
    for _ in range(20):
        with task.message() as message:
            message.text("x" * 1_000_000)
        await task.drain()

app = Tailrace(
    {"large": large, "slow": slow, "endless": endless, "again": restartable(endless)},
    "log.db",
    grace=timedelta(seconds=float(os.environ.get("GRACE", "30"))),
)
host = Starlette()
host.mount("/mounted", app)

@asynccontextmanager
async def lifespan(_host):
    async with app.running():
        yield

composed = Starlette(lifespan=lifespan)
composed.mount("/mounted", app)
"""

SERVERS = {
    "tailrace": ["-m", "tailrace", "serve", "mine:app", "--port", "0"],
    "uvicorn": ["-m", "uvicorn", "mine:app", "--port", "0"],
    "mounted": ["-m", "uvicorn", "mine:host", "--port", "0"],
    "composed": ["-m", "uvicorn", "mine:composed", "--port", "0"],
}


@contextmanager
def served(folder: Path, kind: str, grace: float = 30.0) -> Iterator[tuple[str, Forked]]:
    (folder / "mine.py").write_text(APPLICATION)
    process = Forked(
        *SERVERS[kind],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "GRACE": str(grace)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"http://[^\s(]+", line):
                break
        assert found
        yield found[0] + ("/mounted" if kind in ("mounted", "composed") else ""), process
    finally:
        process.close()


@pytest.mark.parametrize(
    ("kind", "number"),
    [("tailrace", signal.SIGTERM), ("tailrace", signal.SIGINT), ("uvicorn", signal.SIGTERM)],
)
def test_a_stop_signal_lets_runs_finish_with_their_streams_and_ends_with_success(
    tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    with served(tmp_path, kind) as (url, process):
        run = httpx.post(f"{url}/runs", json={"agent": "slow"}).json()["run_id"]
        with httpx.stream("GET", f"{url}/runs/{run}/events", timeout=20) as stream:
            lines = stream.iter_lines()
            loop = next(line for line in lines if "task.notice" in line)
            assert "uvloop" in loop or kind != "tailrace"
            process.send_signal(number)
            if kind == "tailrace":  # uvicorn accepts no connection any more
                refused = None
                while refused is None or refused.status_code == 201:
                    refused = httpx.post(f"{url}/runs", json={"agent": "slow"})
                assert refused.status_code == 503
                assert refused.json()["error"]["code"] == "stopping"
                assert refused.headers["retry-after"]
            (tmp_path / "go").touch()
            assert any("task.completed" in line for line in lines)
        # Of uvicorn: it ends as the signal would have ended it, after a clean shutdown.
        assert process.wait() == (0 if kind == "tailrace" else -number)


@pytest.mark.parametrize("kind", SERVERS)
async def test_after_the_grace_restartable_runs_are_released_and_others_end_as_interrupted(
    tmp_path: Path, kind: str
) -> None:
    def stop_while_streaming() -> dict[str, str]:
        with served(tmp_path, kind, grace=0.3) as (url, process):
            found = {}
            for agent in ("endless", "again"):
                found[agent] = httpx.post(f"{url}/runs", json={"agent": agent}).json()["run_id"]
            with (
                httpx.stream("GET", f"{url}/runs/{found['endless']}/events", timeout=20) as one,
                httpx.stream("GET", f"{url}/runs/{found['again']}/events", timeout=20) as two,
            ):
                streams = [one.iter_lines(), two.iter_lines()]
                for lines in streams:
                    assert any("task.notice" in line for line in lines)
                process.send_signal(signal.SIGTERM)
                assert process.wait() == (0 if kind == "tailrace" else -signal.SIGTERM)
                assert "task.failed" in "".join(streams[0])
            return found

    run_ids = await asyncio.to_thread(stop_while_streaming)
    app = Tailrace({}, tmp_path / "log.db", worker=False)
    async with app.running():
        shown = client_view(await app._runs.state(run_ids["endless"]))
        assert (shown["status"], shown["error"]["code"]) == ("failed", "interrupted")
        assert client_view(await app._runs.state(run_ids["again"]))["status"] == "in_progress"
        (claim,) = await app._runs.store.claim("next", ["again"], 10.0)  # at once: it was released
        assert (claim.run_id, claim.attempt) == (run_ids["again"], 1)


def test_a_second_signal_ends_the_wait(tmp_path: Path) -> None:
    with served(tmp_path, "tailrace") as (url, process):
        run = httpx.post(f"{url}/runs", json={"agent": "endless"}).json()["run_id"]
        with httpx.stream("GET", f"{url}/runs/{run}/events", timeout=20) as stream:
            lines = stream.iter_lines()
            assert any("task.notice" in line for line in lines)
            process.send_signal(signal.SIGTERM)
            while httpx.get(f"{url}/ready").status_code != 503:
                pass
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0
            assert "task.failed" in "".join(lines)


def test_a_client_that_does_not_read_is_cut_after_a_time_that_the_docs_name(
    tmp_path: Path,
) -> None:
    with served(tmp_path, "tailrace") as (url, process):
        run = httpx.post(f"{url}/runs", json={"agent": "large"}).json()["run_id"]
        with httpx.stream("GET", f"{url}/runs/{run}/events", timeout=60) as whole:
            assert whole.read()  # the run has ended
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(f"GET /runs/{run}/events HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert client.recv(100).startswith(b"HTTP/1.1 200")
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0
        assert process.stdout is not None
        assert "Traceback" not in process.stdout.read()
    for page in ("docs/how-to/deploy.md", "docs/how-to/postgres-redis.md", "PROTOCOL.md"):
        assert f" {UNREAD_SECONDS} s" in (ROOT / page).read_text()


async def test_an_application_that_stops_lets_its_runs_finish(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def agent(task: Task) -> None:
        task.notice("Here.")
        await go_on.wait()

    app = Tailrace({"a": restartable(agent)}, tmp_path / "log.db", grace=timedelta(seconds=20))
    async with app.running():
        runs = app._runs
        run_id = await runs.start("a", "?")
        async for batch in runs.follow(run_id):
            if batch and batch[-1].event.sequence_number > 2:
                break
        draining = asyncio.ensure_future(app.drain())
        await asyncio.sleep(0)
        with pytest.raises(Stopping):
            await runs.start("a", "?")
        go_on.set()
        await draining
        assert client_view(await runs.state(run_id))["status"] == "completed"


async def test_a_drain_that_fails_at_a_signal_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = asyncio.Event()
    drain = Tailrace.drain

    async def fails_once(app: Tailrace) -> None:
        if failed.is_set():
            return await drain(app)
        failed.set()
        raise ZeroDivisionError

    monkeypatch.setattr(Tailrace, "drain", fails_once)
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        app = Tailrace({}, tmp_path / "log.db")
        async with asyncio.timeout(120), app.running():
            os.kill(os.getpid(), signal.SIGTERM)
            await failed.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
    with pytest.raises(CallerError, match="Not running"):
        _ = app._runs
