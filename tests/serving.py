"""The real server in a process of its own, to be killed and started again; or in this process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from tests.forked import Forked

ROOT = Path(__file__).parents[1]


def client_of(app: Any) -> httpx.AsyncClient:
    """A client of an application in this process, without a network."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """An application in a thread of this process, on a port of its own; its URL."""
    config = uvicorn.Config(app, port=0, log_level="warning", lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    waited = threading.Event()
    while not server.started:
        waited.wait(0.01)
        assert thread.is_alive()
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)


class Served:
    """`tailrace serve` on one database; `restart` is a SIGKILL and a new process."""

    def __init__(
        self,
        database: Path | str,
        application: str = "tests.serving_app:app",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.database = database
        self._application = application
        self._environment = environment or {}
        self._process: Forked | None = None
        self.url = ""
        self.start()

    def start(self, port: str = "0") -> None:
        environment = {**os.environ, **self._environment, "TAILRACE_TEST_DB": str(self.database)}
        self._process = Forked(
            *("-m", "tailrace", "serve", self._application, "--port", port),
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, f"the server printed {line!r}"
        self.url = found[0]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self, number: int = signal.SIGKILL) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def restart(self) -> None:
        self.kill()
        self.start()

    def run(self, agent: str = "assistant", question: str = "Is it sunny?") -> str:
        """Start a run and wait for its end; its id."""
        answer = httpx.post(f"{self.url}/runs", json={"agent": agent, "input": question})
        run_id = str(answer.json()["run_id"])
        with httpx.stream("GET", f"{self.url}/runs/{run_id}/events", timeout=30) as stream:
            for _ in stream.iter_bytes():
                pass
        return run_id
