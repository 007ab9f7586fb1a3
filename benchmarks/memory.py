"""Memory and liveness of a server whose readers stop reading a large run.

A real server on an SQLite file, raw sockets that read nothing, and `/health` asked meanwhile.
"""

from __future__ import annotations

import asyncio
import http.client
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median

from benchmarks.client import Server, server
from benchmarks.harness import Figures, Pace, Target, at_most, number, progress
from benchmarks.live import last_id
from tailrace.app import Tailrace
from tailrace.runtime.tasks.task import Task

RUN_BYTES = 100_000_000
QUICK_BYTES = 20_000_000
LEAST_BYTES = 1_000_000
DELTA = "All work and no play makes Jack a dull boy. " * 90
MESSAGE_BYTES = 1_000_000
SETTLED_SECONDS = 2.0
"""So long without growth, and the readers are taken to have all that they will get."""


@dataclass(frozen=True)
class Crowd:
    """Readers of one path, none of which reads its answer."""

    title: str
    path: str
    readers: int


CROWDS = (
    Crowd("stalled readers, task", "/runs/{}/events", 50),
    Crowd("stalled readers, vercel-ui", "/runs/{}/events?format=vercel-ui", 50),
    Crowd("stalled snapshots, task", "/runs/{}/events?snapshot=true", 50),
    Crowd("stalled GET /runs", "/runs/{}", 20),
    Crowd("stalled GET /v1/responses", "/v1/responses/resp_{}", 20),
)
JOINING = Crowd("clients join a running run", "/runs/{}/events?snapshot=true", 50)
TALKER_EVENT_BYTES = 180
"""About so many bytes of JSON has an event of the server's own agent."""


@dataclass(frozen=True)
class Found:
    """What a crowd cost: bytes above the idle process, and the answers of `/health` meanwhile."""

    grown: int
    slowest: float
    usual: float = 0.0
    """The median."""


async def _talk(task: Task) -> None:
    left = task.input
    while left > 0:
        with task.message() as message:
            for _ in range(MESSAGE_BYTES // 2 // len(DELTA)):
                message.text(DELTA)
            await task.drain()
        left -= MESSAGE_BYTES


async def _write(database: str, size: int) -> str:
    app = Tailrace({"talker": _talk}, database)
    async with app.running():
        run_id = await app._runs.start("talker", size)
        async for _ in app._runs.follow(run_id):
            pass
        await app._runs.store.repack(run_id)
    return run_id


def write_run(database: str, size: int) -> str:
    """A finished run of about `size` bytes, half of them text; its id."""
    return asyncio.run(_write(database, size))


def measure(one: Server, run_id: str, crowd: Crowd, settled: float = SETTLED_SECONDS) -> Found:
    """Open the crowd's connections, and wait until the process grows no more."""
    _healthy(one)
    idle = one.memory()
    with ExitStack() as opened, _asking(one) as waits:
        path = crowd.path.format(run_id)
        for _ in range(crowd.readers):
            opened.enter_context(one.open(path))
        most, since = 0, time.monotonic()
        while time.monotonic() - since < settled:
            time.sleep(0.02)
            now = one.memory() - idle
            if now > most + 100_000:
                most, since = now, time.monotonic()
    return Found(most, max(waits), median(waits))


@contextmanager
def _asking(one: Server) -> Iterator[list[float]]:
    """Ask `/health` again and again; how long each answer took."""
    waits: list[float] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(0.01):
            waits.append(_healthy(one))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield waits
    finally:
        stop.set()
        asking.join()


def _healthy(one: Server) -> float:
    start = time.perf_counter()
    connection = http.client.HTTPConnection(*one.address, timeout=120)
    connection.request("GET", "/health")
    connection.getresponse().read()
    connection.close()
    return time.perf_counter() - start


def run(pace: Pace) -> tuple[list[Figures], list[Target]]:
    """Each crowd meets a server of its own: memory that was used once is kept by the process."""
    size = pace.amount(full=RUN_BYTES, quick=QUICK_BYTES, once=LEAST_BYTES)
    settled = pace.amount(full=SETTLED_SECONDS, quick=SETTLED_SECONDS, once=0.3)
    crowds = pace.amount(full=CROWDS, quick=CROWDS, once=CROWDS[:1])
    rows: list[tuple[str, ...]] = []
    targets: list[Target] = []

    def check(crowd: Crowd, found: Found) -> None:
        title = f"memory: {crowd.readers} {crowd.title}"
        figures = (found.grown / 1e6, found.grown / size, found.slowest * 1e3, found.usual * 1e3)
        rows.append((f"{crowd.readers} {crowd.title}", *map(number, figures)))
        targets.append(at_most(title, 2, found.grown / size, "× the run's bytes"))
        targets.append(at_most(f"{title}: /health", 100, found.slowest * 1e3, "ms"))

    with tempfile.TemporaryDirectory() as folder:
        database = f"{folder}/memory.db"
        progress("memory: writing the run")
        run_id = write_run(database, size)
        for crowd in crowds:
            progress(f"memory: {crowd.title}")
            with server("tailrace", folder, "--database", database) as ours:
                check(crowd, measure(ours, run_id, crowd, settled))
        progress(f"memory: {JOINING.title}")
        with server("tailrace", folder, "--database", database) as ours:
            count = size // TALKER_EVENT_BYTES
            alive = ours.start(count=count, rate=0, linger=True)
            last_id(ours, alive, count)
            ours.settle()
            check(JOINING, measure(ours, alive, JOINING, settled))
    head = (
        *("", "MB above the idle process", "× the run's bytes"),
        *("slowest `/health`, ms", "median `/health`, ms"),
    )
    remark = (
        f"A run of {size / 1e6:g} MB, and clients that ask for it and read nothing. Each crowd "
        "meets a server of its own. `/health` is asked on new connections, one after the other."
    )
    return [Figures("memory: stalled clients of a large run", head, rows, remark)], targets
