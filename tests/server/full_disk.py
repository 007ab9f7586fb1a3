"""A server whose disk takes nothing more for a while, several times: what it answers.

python -m tests.server.full_disk FILE QUIET_SECONDS
"""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path

import httpx

from tailrace.app import Tailrace
from tailrace.runtime.event_log import outage
from tailrace.runtime.tasks.task import Task
from tailrace.testing.waiting import until
from tests.serving import client_of


async def agent(_task: Task) -> None:
    pass


async def main(path: Path, quiet: float) -> None:
    outage.QUIET_SECONDS = quiet
    app = Tailrace({"a": agent}, path)
    async with app.running():
        for _ in range(3):
            await fill(app)


async def fill(app: Tailrace) -> None:
    body = {"agent": "a", "input": "x" * 10_000}
    async with client_of(app) as client:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
        answer = await client.post("/runs", json=body)
        print(answer.status_code, answer.headers["retry-after"])
        print((await client.get("/ready")).status_code)
        print((await client.get("/health")).status_code)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

        async def ready() -> httpx.Response | None:
            answer = await client.get("/ready")
            return answer if answer.status_code == 200 else None

        print((await until(ready)).status_code)
        print((await client.post("/runs", json=body)).status_code)
        await until(lambda: not app._runs.outage.is_on)
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
