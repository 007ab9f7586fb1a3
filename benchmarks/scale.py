"""Does the model of docs/scale.md hold? It is fitted with 1 worker, and checked with 2 and 4.

Workers on PostgreSQL and Redis have the same number of runs each. The model has four numbers, all
measured with one worker: the CPU time of an idle worker a second, the CPU time of an event, the
events a second that a busy worker writes, and the CPU time of an event then. A fifth number is the
machine's: how much longer a program takes while all cores are busy. The model says:

    CPU a second of W workers    W × idle + events a second × CPU of an event
    events a second, paced       W × those of one worker
    events a second, unpaced     a queue: W workers and their PostgreSQL processes share the cores

Only a window in the middle counts, in which all runs stream. CPU time is that of the workers, of
PostgreSQL and of Redis. Take the figures of a quiet machine: other work takes cores away.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import Pace, Table, Target, at_least, at_most, progress
from tailrace.app import Tailrace
from tailrace.runtime.tasks.task import Task

PROCESSES = (1, 2, 4)
RATE = 10.0
"""Events a second of a paced run: a fast reader's pace."""

PACED_RUNS = 25
UNPACED_RUNS = 16
"""Runs for each worker."""

MESSAGE_EVENTS = 200
TICKS = os.sysconf("SC_CLK_TCK")
CORES = len(os.sched_getaffinity(0))


async def _paced(task: Task) -> None:
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        with task.message() as message:
            for _ in range(MESSAGE_EVENTS):
                due += 1 / RATE
                await asyncio.sleep(due - loop.time())
                message.text("word ")
                await task.drain()


async def _unpaced(task: Task) -> None:
    while True:
        with task.message() as message:
            for _ in range(MESSAGE_EVENTS):
                message.text("word ")
                await task.drain()


AGENTS = {"paced": _paced, "unpaced": _unpaced}
app = Tailrace(AGENTS)


@dataclass(frozen=True)
class Load:
    """What one second took."""

    events: float
    workers: float
    store: float
    bus: float

    @property
    def cpu(self) -> float:
        """CPU seconds of all."""
        return self.workers + self.store + self.bus


@dataclass(frozen=True)
class Queue:
    """Busy workers that share the cores: the machine repairman's queue.

    A worker and its process of PostgreSQL each need half of an event's CPU, and then wait for each
    other and the disk. With more of them than cores, they also wait for a core. An event takes more
    CPU the more of the cores are busy.
    """

    needed: float
    """CPU seconds of an event on a machine that does nothing else."""
    waited: float
    slowdown: float

    @classmethod
    def fitted(cls, alone: Load, slowdown: float) -> Queue:
        """The queue in which one worker writes what it wrote."""
        taken = alone.cpu / alone.events
        needed = taken / (1 + (slowdown - 1) * min(alone.cpu / CORES, 1))
        waited = _root(lambda waited: alone.events - _repaired(1, taken, waited))
        return cls(needed, waited, slowdown)

    def of(self, workers: int) -> tuple[float, float]:
        """The events and CPU seconds a second of some workers."""

        def taken(busy: float) -> float:
            return self.needed * (1 + (self.slowdown - 1) * busy)

        busy = _root(
            lambda busy: busy - _repaired(workers, taken(busy), self.waited) * taken(busy) / CORES
        )
        events = _repaired(workers, taken(busy), self.waited)
        return events, events * taken(busy)


def _repaired(workers: int, taken: float, waited: float) -> float:
    """Events a second of workers whose events take so much CPU, and wait so long besides."""
    customers, served = 2 * workers, taken / 2
    weights = [1.0]
    for count in range(customers):
        waiting, at_work = customers - count, min(count + 1, CORES)
        weights.append(weights[-1] * waiting * served / (waited * at_work))
    busy = sum(min(count, CORES) * weight for count, weight in enumerate(weights)) / sum(weights)
    return busy / taken


def _root(rises: Callable[[float], float]) -> float:
    """Where a function that rises is 0, between 1e-7 and 1."""
    low, high = 1e-7, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(middle) < 0 else (low, middle)
    return high


def _slowdown(seconds: float) -> float:
    """How much longer a program takes while all cores are busy."""
    with ProcessPoolExecutor(CORES) as pool:
        list(pool.map(_rounds, [0.01] * CORES))  # every process has started
        alone = pool.submit(_rounds, seconds).result()
        beside = list(pool.map(_rounds, [seconds] * CORES))
    return max(1.0, alone * CORES / sum(beside))


def _rounds(seconds: float) -> int:
    """How many rounds of Python and system calls fit into some seconds."""
    rounds, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(100):
            os.stat("/")  # noqa: PTH116
            str({"delta": rounds, "text": "word " * 8})
        rounds += 1
    return rounds


def run(pace: Pace) -> tuple[list[Table], list[Target]]:
    """The model and what was measured, by the number of worker processes."""
    from tests.services import Postgres, Redis

    seconds = pace.amount(full=20.0, quick=5.0, once=1.0)
    counts = pace.amount(full=PROCESSES, quick=PROCESSES, once=PROCESSES[:2])
    busy = pace.amount(full=UNPACED_RUNS, quick=UNPACED_RUNS, once=2)
    title = "scale: the model of docs/scale.md, fitted with one worker"
    slowdown = _slowdown(pace.amount(full=2.0, quick=0.5, once=0.05))
    paced: dict[int, Load] = {}
    unpaced: dict[int, Load] = {}
    postgres, redis = Postgres(fsync=True), Redis()
    try:

        def measured(workers: int, agent: str, runs: int) -> Load:
            progress(f"{title}: {workers} {agent if runs else 'idle'}")
            places = {"TAILRACE_DATABASE": postgres.schema(), "TAILRACE_BUS": redis.url}
            pids = {"store": postgres.pid, "bus": redis.pid}
            return _measured(workers, places, pids, agent, runs * workers, seconds)

        idle = measured(1, "paced", 0)
        for count in counts:
            paced[count] = measured(count, "paced", PACED_RUNS)
        for count in counts:
            unpaced[count] = measured(count, "unpaced", busy)
    finally:
        redis.close()
        postgres.close()
    of_event = (paced[1].cpu - idle.cpu) / paced[1].events
    each = unpaced[1].cpu / unpaced[1].events
    queue = Queue.fitted(unpaced[1], slowdown)
    fitted = (
        f"An idle worker takes {idle.cpu * 1000:.0f} ms of CPU a second, of it PostgreSQL "
        f"{idle.store * 1000:.0f}. A paced event takes {of_event * 1e6:.0f} µs. A busy worker "
        f"writes {unpaced[1].events:.0f} events a second, at {each * 1e6:.0f} µs each. "
        f"{CORES} cores; while all are busy, a program takes {slowdown:.2f} × as long."
    )
    lines = [
        *(fitted, ""),
        "| workers | | events a second | model | error | CPU a second | model | error |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    cost, throughput = {}, {}
    for count in counts:
        predicted = count * paced[1].events
        cpu = count * idle.cpu + predicted * of_event
        lines.append(_line(count, "paced", paced[count], predicted, cpu))
        cost[count] = _both(paced[count].cpu / paced[count].events, cpu / predicted)
        predicted, cpu = queue.of(count)
        lines.append(_line(count, "unpaced", unpaced[count], predicted, cpu))
        throughput[count] = _both(1 / unpaced[count].events, 1 / predicted)
    remark = (
        f"{PACED_RUNS} runs of {RATE:g} events a second for each worker, or {busy} that "
        f"write as fast as they can, for {seconds:g} s; without readers.\n\n" + "\n".join(lines)
    )
    tables = [
        Table(f"{title}: CPU of a paced event", cost, *NAMES, per=lambda _: 1.0, remark=remark),
        Table(f"{title}: time of an unpaced event", throughput, *NAMES, per=lambda _: 1.0),
    ]
    targets = [
        at_most(f"{table.title}, measured to model or model to measured", 1.2, _error(table))
        for table in tables
    ]
    allowed = min(2.0, CORES / each / unpaced[1].events)
    gained = unpaced[2].events / unpaced[1].events
    if allowed >= 1.6:
        targets.append(at_least("scale: two workers to one, unpaced", 1.6, gained))
    else:
        tables[1].remark = (
            f"Two workers write {gained:.2f} × as much as one. {CORES} cores allow "
            f"{allowed:.2f} ×, because PostgreSQL and Redis take theirs. With more cores the "
            "target is 1.6 ×."
        )
    return tables, targets


NAMES = ("tailrace", "model")


def _both(measured: float, model: float) -> dict[str, list[float]]:
    return dict(zip(NAMES, ([measured], [model]), strict=True))


def _error(table: Table) -> float:
    return max(table.worst(*NAMES), 1 / table.least(*NAMES))


def _line(count: int, kind: str, found: Load, events: float, cpu: float) -> str:
    cells = [f"{count}", kind, f"{found.events:.0f}", f"{events:.0f}"]
    cells += [f"{found.events / events - 1:+.0%}", f"{found.cpu:.2f}", f"{cpu:.2f}"]
    return "| " + " | ".join([*cells, f"{found.cpu / cpu - 1:+.0%}"]) + " |"


def _measured(
    count: int,
    places: dict[str, str],
    servers: dict[str, int],
    agent: str,
    runs: int,
    seconds: float,
) -> Load:
    command = [sys.executable, "-m", "tailrace", "worker", "benchmarks.scale:app"]
    environment = {**os.environ, **places}
    workers = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    try:
        for one in workers:
            assert one.stdout is not None
            assert "works" in one.stdout.readline()
        roots = {"workers": [one.pid for one in workers]}
        roots |= {name: [pid] for name, pid in servers.items()}
        return asyncio.run(_window(places, roots, agent, runs, seconds))
    finally:
        for one in workers:
            one.kill()
            one.communicate()


async def _window(
    places: dict[str, str], roots: dict[str, list[int]], agent: str, runs: int, seconds: float
) -> Load:
    """Start the runs, wait until all stream, and count for some seconds."""
    url, bus = places["TAILRACE_DATABASE"], places["TAILRACE_BUS"]
    served = Tailrace(AGENTS, url, bus=bus, worker=False)
    loop = asyncio.get_running_loop()
    async with served.running():
        names = [(await served.start(agent)).id for _ in range(runs)]
        async with asyncio.timeout(60):
            while any(seq < 20 for seq in (await _seqs(served, names)).values()):
                pass
        await asyncio.sleep(1.0)
        begun, seqs, cpu = loop.time(), await _seqs(served, names), _cpu(roots)
        await asyncio.sleep(seconds)
        taken, later, spent = loop.time() - begun, await _seqs(served, names), _cpu(roots)
        events = sum(later.values()) - sum(seqs.values())
        return Load(events / taken, **{name: (spent[name] - cpu[name]) / taken for name in roots})


async def _seqs(served: Tailrace, names: list[str]) -> dict[str, int]:
    heads: dict[str, Any] = await served._runs.store.heads(names)
    return {name: heads[name].last_seq for name in names}


def _cpu(roots: dict[str, list[int]]) -> dict[str, float]:
    """CPU seconds by name: of the processes, their children, and children that have ended."""
    spent = dict.fromkeys(roots, 0.0)
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):  # it ended meanwhile
                stat = (place / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                own = {int(place.name), int(stat[1])}
                for name, pids in roots.items():
                    if not own.isdisjoint(pids):
                        spent[name] += sum(map(int, stat[11:15])) / TICKS
    return spent
