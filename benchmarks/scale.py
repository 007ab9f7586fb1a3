"""Does the cost of an event depend on how many processes work? The model of docs/scale.md says no.

1, 2 and 4 worker processes on PostgreSQL and Redis have the same number of paced runs each. The CPU
time of the workers and of PostgreSQL is counted, not the clock: other work of the machine matters
less.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.harness import FULL, Pace, Table, Target, at_most, progress
from tailrace.app import Tailrace
from tailrace.runtime.task import Task

PROCESSES = (1, 2, 4)
RATE = 10.0
"""Events a second of a run: a fast reader's pace."""

TICKS = os.sysconf("SC_CLK_TCK")


async def _paced(task: Task) -> None:
    loop = asyncio.get_running_loop()
    with task.message() as message:
        due = loop.time()
        for _ in range(int(task.input)):
            due += 1 / RATE
            await asyncio.sleep(due - loop.time())
            message.text("word ")
            await task.drain()


app = Tailrace({"paced": _paced})


def run(pace: Pace) -> tuple[list[Table], list[Target]]:
    """CPU time for each event, by the number of worker processes."""
    from tests.services import Postgres, Redis

    runs, events = (50, 60) if pace is FULL else (20, 30)
    title = "scale: CPU of an event by the number of workers"
    postgres, redis = Postgres(fsync=True), Redis()
    sizes: dict[int, dict[str, list[float]]] = {}
    try:
        for count in PROCESSES:
            progress(f"{title}: {count}")
            places = {"TAILRACE_DATABASE": postgres.url, "TAILRACE_BUS": redis.url}
            worker, store = _measured(count, places, postgres.pid, runs * count, events)
            first = sizes.get(1, {}).get("tailrace", [worker + store])
            sizes[count] = {
                "tailrace": [worker + store],
                "of it workers": [worker],
                "of it PostgreSQL": [store],
                "model: as with one worker": first,
            }
    finally:
        redis.close()
        postgres.close()
    table = Table(
        title,
        sizes,
        "tailrace",
        "model: as with one worker",
        per=lambda _: 1.0,
        remark=(
            f"{runs} runs for each worker process, of {events} events, {RATE:g} a second, stored "
            "in PostgreSQL and published on Redis, without readers. The columns are workers. "
            "The model of docs/scale.md says that an event costs the same in each."
        ),
    )
    worst = table.worst("tailrace", "model: as with one worker")
    return [table], [at_most(f"{title}, to the cost with one worker", 1.3, worst)]


def _measured(
    count: int, places: dict[str, str], postmaster: int, runs: int, events: int
) -> tuple[float, float]:
    """CPU seconds for each event: of the workers, and of PostgreSQL."""
    command = [sys.executable, "-m", "tailrace.cli", "worker", "benchmarks.scale:app"]
    environment = {**os.environ, **places}
    workers = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    try:
        for one in workers:
            assert one.stdout is not None
            assert "works" in one.stdout.readline()
        ids = [one.pid for one in workers]
        store_before, workers_before = _postgres_cpu(postmaster), sum(map(_cpu, ids))
        asyncio.run(_work(places, runs, events))
        written = runs * events
        spent = sum(map(_cpu, ids)) - workers_before
        return spent / written, (_postgres_cpu(postmaster) - store_before) / written
    finally:
        for one in workers:
            one.kill()
            one.wait()


async def _work(places: dict[str, str], runs: int, events: int) -> None:
    """Start the runs and wait for their ends, without reading them."""
    served = Tailrace(
        {"paced": _paced}, places["TAILRACE_DATABASE"], bus=places["TAILRACE_BUS"], worker=False
    )
    async with served.running():
        waiting = {(await served.start("paced", events)).id for _ in range(runs)}
        deadline = time.monotonic() + 300
        while waiting:
            await asyncio.sleep(0.5)
            heads: dict[str, Any] = await served.runs.store.heads(list(waiting))
            waiting -= {run_id for run_id, head in heads.items() if head.ended}
            assert time.monotonic() < deadline, f"{len(waiting)} runs do not end"


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _postgres_cpu(postmaster: int) -> float:
    """CPU time of a PostgreSQL server: of its processes, and of those that have ended."""
    total = 0
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):  # it ended meanwhile
                stat = (place / "stat").read_text(encoding="utf-8")
                fields = stat.rpartition(")")[2].split()
                if postmaster in (int(place.name), int(fields[1])):
                    total += sum(map(int, fields[11:15]))
    return total / TICKS
