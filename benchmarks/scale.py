"""Does the model of docs/scale.md hold? It is fitted with 1 worker, and checked with 2 and 4.

Workers on PostgreSQL and Redis have the same number of runs each. The model has numbers that are
all measured with one worker: the CPU time of an idle worker a second, the CPU time of a paced
event, the events a second that a busy worker writes, and the CPU time of each of them, alone and
beside programs that keep all cores busy. The model says:

    CPU a second of W workers    W × idle + events a second × CPU of an event
    events a second, paced       W × those of one worker
    events a second, unpaced     a queue: W workers and their PostgreSQL processes share the cores

The events of paced runs are spread evenly over time. Runs that tick together share transactions,
which takes half of the CPU or less, and which runs do is chance. Each round measures everything;
the median of the rounds counts. Only a window in the middle counts, in which all runs stream. CPU
time is that of the workers, of PostgreSQL and of Redis. Take the figures of a quiet machine: other
work takes cores away.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Pace, Table, Target, at_least, at_most, progress
from tailrace.app import Tailrace
from tailrace.runtime.tasks.task import Task

if TYPE_CHECKING:
    from tests.services import Postgres, Redis

PROCESSES = (1, 2, 4)
RATE = 10.0
"""Events a second of a paced run: a fast reader's pace."""

PACED_RUNS = 25
UNPACED_RUNS = 16
"""Runs for each worker."""

MESSAGE_EVENTS = 200
TICKS = os.sysconf("SC_CLK_TCK")
CORES = len(os.sched_getaffinity(0))
SPREAD = (math.sqrt(5) - 1) / 2
"""Any consecutive multiples of it are spread evenly over 0 to 1, so those of each worker are."""


async def _paced(task: Task) -> None:
    """Events at moments that are a fixed part of the period away from those of other runs."""
    loop = asyncio.get_running_loop()  # its clock is the machine's, the same for all workers
    due = (math.ceil(loop.time() * RATE) + task.input * SPREAD % 1) / RATE
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


def _agents(worker: int) -> dict[str, Callable[[Task], Awaitable[None]]]:
    """Each worker has agents of its own, so that it gets as many runs as the others."""
    return {f"paced-{worker}": _paced, f"unpaced-{worker}": _unpaced}


app = Tailrace(_agents(int(os.environ.get("SCALE_WORKER", "0"))))


@dataclass(frozen=True)
class Load:
    """What one second took."""

    events: float
    workers: float
    store: float
    bus: float
    commits: float
    others: float
    """CPU seconds of all other programs of the machine."""

    @property
    def cpu(self) -> float:
        """CPU seconds of all."""
        return self.workers + self.store + self.bus

    @property
    def of_event(self) -> float:
        """CPU seconds of an event."""
        return self.cpu / self.events


@dataclass(frozen=True)
class Queue:
    """Busy workers that share the cores: the machine repairman's queue.

    A worker and its process of PostgreSQL each need half of an event's CPU, and then wait for each
    other and the disk. With more of them than cores, they also wait for a core. An event takes more
    CPU the more of the cores are busy: processes lose their caches to others, and move from core to
    core.
    """

    idle: float
    """CPU seconds of an event on a machine that does nothing else."""
    busy: float
    """CPU seconds of an event while all cores are busy."""
    waited: float

    @classmethod
    def fitted(cls, alone: Load, beside: Load) -> Queue:
        """The queue in which one worker writes what it wrote, alone and beside other programs."""
        part = min(alone.cpu / CORES, 0.9)
        idle = (alone.of_event - part * beside.of_event) / (1 - part)
        waited = _root(lambda waited: alone.events - _repaired(1, alone.of_event, waited))
        return cls(idle, beside.of_event, waited)

    def of(self, workers: int) -> tuple[float, float]:
        """The events and CPU seconds a second of some workers."""

        def taken(busy: float) -> float:
            return self.idle + (self.busy - self.idle) * busy

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


@contextmanager
def _busy_cores() -> Iterator[None]:
    """Keep all cores busy with programs that leave them to any other program at once."""
    command = [sys.executable, "-c", "from benchmarks.scale import burn; burn()"]
    burning = [subprocess.Popen(command) for _ in range(CORES)]
    try:
        yield
    finally:
        for one in burning:
            one.kill()
            one.wait()


def burn() -> None:
    """Encode and decode JSON until the process is killed."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    facts = [{"type": "task.text.delta", "number": n, "delta": f"word {n}"} for n in range(4_000)]
    while True:
        for fact in facts:
            json.loads(json.dumps(fact))


@dataclass
class Round:
    """What one round measured, by the number of workers, and the model that was fitted in it."""

    idle: Load
    beside: Load
    paced: dict[int, Load] = field(default_factory=dict)
    unpaced: dict[int, Load] = field(default_factory=dict)

    @property
    def of_event(self) -> float:
        """CPU seconds of a paced event."""
        return (self.paced[1].cpu - self.idle.cpu) / self.paced[1].events

    def model(self, kind: str, count: int) -> tuple[float, float]:
        """The events and CPU seconds a second that the model expects."""
        if kind == "unpaced":
            return Queue.fitted(self.unpaced[1], self.beside).of(count)
        events = count * self.paced[1].events
        return events, count * self.idle.cpu + events * self.of_event


@dataclass
class Bench:
    """PostgreSQL, Redis, and how long and with how many runs to measure."""

    postgres: Postgres
    redis: Redis
    counts: tuple[int, ...]
    seconds: float
    busy_runs: int
    least_events: int
    """Events of each run before the window begins."""
    settled: float
    """Seconds between then and the window."""

    def round(self, title: str) -> Round:
        """Measure everything once."""

        def measured(workers: int, agent: str, runs: int) -> Load:
            progress(f"{title}: {workers} {agent if runs else 'idle'}")
            return self._measured(workers, agent, runs)

        idle = measured(1, "paced", 0)
        with _busy_cores():
            beside = measured(1, "unpaced", self.busy_runs)
        found = Round(idle, beside)
        for count in self.counts:
            found.paced[count] = measured(count, "paced", PACED_RUNS)
            found.unpaced[count] = measured(count, "unpaced", self.busy_runs)
        return found

    def _measured(self, count: int, agent: str, runs: int) -> Load:
        """Some workers with so many runs each, on an empty schema."""
        self.postgres.sql("checkpoint")  # else one begins in some of the windows
        url = self.postgres.schema()
        places = {"TAILRACE_DATABASE": url, "TAILRACE_BUS": self.redis.url}
        command = [sys.executable, "-m", "tailrace", "worker", "benchmarks.scale:app"]
        environments = [{**os.environ, **places, "SCALE_WORKER": str(n)} for n in range(count)]
        workers = [
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            for environment in environments
        ]
        try:
            for one in workers:
                assert one.stdout is not None
                assert "works" in one.stdout.readline()
            roots = {"workers": [one.pid for one in workers]}
            roots |= {"store": [self.postgres.pid], "bus": [self.redis.pid]}
            agents = [f"{agent}-{worker}" for worker in range(count) for _ in range(runs)]
            return asyncio.run(self._window(url, roots, agents))
        finally:
            for one in workers:
                one.kill()
                one.communicate()
            name = url.rpartition("=")[2]
            self.postgres.sql(f"drop schema {name} cascade")  # nothing is left to vacuum

    async def _window(self, url: str, roots: dict[str, list[int]], agents: list[str]) -> Load:
        """Start the runs, wait until all stream, and count for some seconds."""
        known = {name: one for n in range(max(PROCESSES)) for name, one in _agents(n).items()}
        served = Tailrace(known, url, bus=self.redis.url, worker=False)
        loop = asyncio.get_running_loop()
        async with served.running():
            names = [(await served.start(agent, n)).id for n, agent in enumerate(agents)]
            async with asyncio.timeout(60):
                while any(seq < self.least_events for seq in (await _seqs(served, names)).values()):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await asyncio.sleep(self.settled)
            commits = self._commits()
            begun, seqs, cpu = loop.time(), await _seqs(served, names), _cpu(roots)
            await asyncio.sleep(self.seconds)
            taken, later, spent = loop.time() - begun, await _seqs(served, names), _cpu(roots)
            events = sum(later.values()) - sum(seqs.values())
            cpus = {name: (spent[name] - cpu[name]) / taken for name in spent}
            return Load(events / taken, **cpus, commits=(self._commits() - commits) / taken)

    def _commits(self) -> int:
        name = "select xact_commit from pg_stat_database where datname = current_database()"
        return int(self.postgres.sql(name))


async def _seqs(served: Tailrace, names: list[str]) -> dict[str, int]:
    heads: dict[str, Any] = await served._runs.store.heads(names)
    return {name: heads[name].last_seq for name in names}


def _cpu(roots: dict[str, list[int]]) -> dict[str, float]:
    """CPU seconds by name: of the processes, their children, and children that have ended.

    `others` is what the rest of the machine has used.
    """
    spent = dict.fromkeys(roots, 0.0)
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):  # it ended meanwhile
                stat = (place / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                own = {int(place.name), int(stat[1])}
                for name, pids in roots.items():
                    if not own.isdisjoint(pids):
                        spent[name] += sum(map(int, stat[11:15])) / TICKS
    user, nice, system, *_ = Path("/proc/stat").read_text(encoding="utf-8").split()[1:]
    spent["others"] = (int(user) + int(nice) + int(system)) / TICKS - sum(spent.values())
    return spent


def run(pace: Pace) -> tuple[list[Table], list[Target]]:
    """The model and what was measured, by the number of worker processes."""
    from tests.services import Postgres, Redis

    seconds = pace.amount(full=8.0, quick=4.0, once=1.0)
    counts = pace.amount(full=PROCESSES, quick=PROCESSES, once=PROCESSES[:2])
    busy_runs = pace.amount(full=UNPACED_RUNS, quick=UNPACED_RUNS, once=2)
    least_events = pace.amount(full=20, quick=20, once=5)
    settled = pace.amount(full=1.0, quick=1.0, once=0.0)
    title = "scale: the model of docs/scale.md, fitted with one worker"
    postgres, redis = Postgres(fsync=True), Redis()
    try:
        bench = Bench(postgres, redis, counts, seconds, busy_runs, least_events, settled)
        rounds = [bench.round(title) for _ in range(pace.amount(full=3, quick=2, once=1))]
    finally:
        redis.close()
        postgres.close()
    remark = (
        f"{PACED_RUNS} runs of {RATE:g} events a second for each worker, or {busy_runs} that write "
        f"as fast as they can; without readers. {len(rounds)} rounds of {seconds:g} s. "
        "The events of paced runs are spread evenly over time, so they share no transactions."
    )
    tables = [
        Table(
            f"{title}: CPU of a paced event",
            {
                count: _both(
                    [one.paced[count].of_event for one in rounds],
                    [_ratio(*reversed(one.model("paced", count))) for one in rounds],
                )
                for count in counts
            },
            *NAMES,
            per=lambda _: 1.0,
            remark="\n".join([remark, "", _fitted(rounds), "", *_lines(rounds, counts)]),
        ),
        Table(
            f"{title}: time of an unpaced event",
            {
                count: _both(
                    [1 / one.unpaced[count].events for one in rounds],
                    [1 / one.model("unpaced", count)[0] for one in rounds],
                )
                for count in counts
            },
            *NAMES,
            per=lambda _: 1.0,
        ),
    ]
    targets = [
        at_most(f"{table.title}, measured to model or model to measured", 1.2, _error(table))
        for table in tables
    ]
    gained = statistics.median(one.unpaced[2].events / one.unpaced[1].events for one in rounds)
    allowed = min(2.0, CORES / statistics.median(one.unpaced[1].cpu for one in rounds))
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


def _both(measured: list[float], model: list[float]) -> dict[str, list[float]]:
    return dict(zip(NAMES, (measured, model), strict=True))


def _ratio(one: float, other: float) -> float:
    return one / other


def _error(table: Table) -> float:
    return max(table.worst(*NAMES), 1 / table.least(*NAMES))


def _fitted(rounds: list[Round]) -> str:
    """What one worker showed: the medians of the rounds."""

    def middle(figure: Callable[[Round], float]) -> float:
        return statistics.median(map(figure, rounds))

    return (
        f"An idle worker takes {middle(lambda one: one.idle.cpu) * 1e3:.0f} ms of CPU a second, of "
        f"it PostgreSQL {middle(lambda one: one.idle.store) * 1e3:.0f}. A paced event takes "
        f"{middle(lambda one: one.of_event) * 1e6:.0f} µs. A busy worker writes "
        f"{middle(lambda one: one.unpaced[1].events):.0f} events a second, at "
        f"{middle(lambda one: one.unpaced[1].of_event) * 1e6:.0f} µs each, and at "
        f"{middle(lambda one: one.beside.of_event) * 1e6:.0f} µs while other programs keep all "
        f"{CORES} cores busy. Besides them, other programs took at most "
        f"{max(map(_disturbed, rounds)):.2f} s of CPU a second: with much more than 0.1 the "
        "figures mean little."
    )


def _disturbed(one: Round) -> float:
    """The CPU a second of other programs, in the worst window of a round."""
    return max(load.others for loads in (one.paced, one.unpaced) for load in loads.values())


def _lines(rounds: list[Round], counts: tuple[int, ...]) -> list[str]:
    """A line for each number of workers and kind of run: medians, and the median error."""
    head = (
        *("workers", "", "events a second", "model", "error"),
        *("CPU a second", "model", "error", "events in a transaction"),
    )
    lines = ["| " + " | ".join(head) + " |", "| ---: | --- |" + " ---: |" * 7]
    for count in counts:
        for kind in ("paced", "unpaced"):
            found: list[Load] = [getattr(one, kind)[count] for one in rounds]
            models = [one.model(kind, count) for one in rounds]
            events = [one.events for one in found]
            cpu = [one.cpu for one in found]
            cells = [f"{count}", kind]
            cells += _compared(events, [model[0] for model in models], ".0f")
            cells += _compared(cpu, [model[1] for model in models], ".2f")
            shared = statistics.median(one.events / max(one.commits, 1) for one in found)
            lines.append("| " + " | ".join([*cells, f"{shared:.1f}"]) + " |")
    return lines


def _compared(measured: list[float], model: list[float], shape: str) -> list[str]:
    error = statistics.median(one / other for one, other in zip(measured, model, strict=True)) - 1
    middles = [format(statistics.median(values), shape) for values in (measured, model)]
    return [*middles, f"{error:+.0%}"]
