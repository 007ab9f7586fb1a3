"""Many runs at the pace of people's models: latency, and CPU for each delivered event."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from benchmarks.client import Server, latencies
from benchmarks.harness import Table, Target, at_most, progress

RUNS, RATE = 50, 100
TICKS = os.sysconf("SC_CLK_TCK")
LIMIT, OURS, SHARED = "bare uvicorn", "tailrace", "tailrace, Postgres + Redis"
SYNCED = "tailrace, synchronous=full"
BY_HAND = "hand-written, Postgres + Redis"
DURABLE = (OURS, SHARED, SYNCED)
PARTS = (50, 90, 99)
JOINED_AFTER = 2.5
"""Rows are joined this many seconds after the end of their run."""

DISTANCE = 0.003
"""Seconds between the starts of two runs: their events come in every millisecond of their pace."""

BARE_SHARE = 2.7
"""The target is 65 µs of CPU where bare uvicorn takes 24."""

T = TypeVar("T")


def run(
    contenders: dict[str, Server], rounds: int, seconds: float, runs: int, joined_after: float
) -> tuple[list[Table], list[Target]]:
    """Two tables of the same rounds: milliseconds to the client, and CPU."""
    title = f"live: {runs} runs at {RATE} events/s"
    count = int(seconds * RATE)
    waits: dict[int, dict[str, list[float]]] = {part: {} for part in PARTS}
    worked: dict[str, list[float]] = {}
    for turn in range(rounds):
        for name in contenders if turn % 2 == 0 else reversed(contenders):
            progress(f"{title}: round {turn + 1}, {name}")
            one = contenders[name]
            before = one.cpu()
            found = _followed(one, name, count, runs)
            if name in DURABLE:
                time.sleep(joined_after)
            one.settle()  # what it does after the end of the runs is part of their cost
            # A server that did little may not have reached a tick of that clock.
            worked.setdefault(name, []).append(max(one.cpu() - before, 1 / TICKS))
            for part in PARTS:
                waits[part].setdefault(name, []).append(found[len(found) * part // 100])
    latency = Table(
        f"{title}, latency",
        {part: {name: waits[part][name] for name in contenders} for part in PARTS},
        OURS,
        LIMIT,
        scale=1e3,
        per=lambda _: 1.0,
        column=lambda part: f"p{part}",
        remark=(
            "Each delta carries the time at which the model made it; the client looks at its clock "
            "when the bytes are there. The runs begin 3 ms apart, so that those of each contender "
            "emit at even distances. The first half second, in which the streams are opened, is "
            f"left out. Each round lasts {seconds:g} s; checkpoints happen within it. The growth "
            "column is that from p50 to p99. The frameworks keep nothing. With synchronous=full "
            "SQLite waits for the disk at each transaction. The hand-written path is one process: "
            "it inserts what has gathered, publishes it on Redis after the commit, and sends what "
            "comes back. It has no fences, no snapshots and no recovery."
        ),
    )
    cpu = Table(
        f"{title}, CPU",
        {runs * count: {name: worked[name] for name in contenders}},
        OURS,
        LIMIT,
        remark=(
            "The CPU time of the contender's own processes for each delta that its client "
            "received. It counts from the first request until the server is idle again, so "
            "starting the runs and joining their rows is included. Postgres and Redis are not."
        ),
    )

    def middle(name: str, part: int) -> float:
        return statistics.median(waits[part][name]) * 1e3

    return [latency, cpu], [
        at_most(f"{title}, p50", 1.5, middle(OURS, 50), "ms"),
        at_most(f"{title}, p99", 4.0, middle(OURS, 99), "ms"),
        at_most(f"{title}, p50, Postgres + Redis", 3.0, middle(SHARED, 50), "ms"),
        at_most(f"{title}, p99, Postgres + Redis", 12.0, middle(SHARED, 99), "ms"),
        at_most(
            f"{title}, CPU for each delivered event",
            65.0,
            statistics.median(worked[OURS]) / (runs * count) * 1e6,
            "µs",
        ),
        at_most(
            f"{title}, CPU for each delivered event, to bare uvicorn",
            BARE_SHARE,
            statistics.median(
                ours / bare for ours, bare in zip(worked[OURS], worked[LIMIT], strict=True)
            ),
        ),
    ]


def lone(contenders: dict[str, Server], rounds: int, seconds: float) -> tuple[Table, list[Target]]:
    """The latency of a run that has the server for itself."""
    title = f"live: a lone run at {RATE} events/s, latency"
    waits: dict[int, dict[str, list[float]]] = {part: {} for part in PARTS}
    for turn in range(rounds):
        for name in contenders if turn % 2 == 0 else reversed(contenders):
            progress(f"{title}: round {turn + 1}, {name}")
            count = int(seconds * RATE)
            found = _followed(contenders[name], name, count, 1)
            for part in PARTS:
                waits[part].setdefault(name, []).append(found[len(found) * part // 100])
    table = Table(
        title,
        {part: {name: waits[part][name] for name in contenders} for part in PARTS},
        OURS,
        LIMIT,
        scale=1e3,
        per=lambda _: 1.0,
        column=lambda part: f"p{part}",
        remark=f"As above, with one run of {seconds:g} s: its events wait for no others.",
    )
    return table, [at_most(f"{title}, p50", 1.0, statistics.median(waits[50][OURS]) * 1e3, "ms")]


def _followed(one: Server, name: str, count: int, runs: int) -> list[float]:
    """How long the deltas of all runs took to their clients, ascending; seconds."""
    if name in DURABLE:
        start = partial(one.start, count=count, rate=RATE)
        streams = [one.open(f"/runs/{run_id}/events") for run_id in _spread(runs, start)]
    else:
        path = "/shared" if name == BY_HAND else "/stream"
        streams = _spread(runs, partial(one.open, f"{path}?count={count}&rate={RATE}"))
    opened = time.monotonic() + 0.5
    found = latencies(streams)
    for stream in streams:
        stream.close()
    if len(found) != runs * count:
        raise AssertionError(f"{len(found)} of {runs * count} events came")
    later = [took for made, took in found if made > opened]
    return sorted(later or [took for _, took in found])  # a busy machine may open them too late


def _spread(runs: int, begin: Callable[[], T]) -> list[T]:
    """Begin runs at even distances.

    Else the runs of a contender that begins them fast would emit together, and share its wake-ups,
    and the runs of a contender that begins them slowly would not.
    """
    begun: list[T] = []
    first = time.monotonic()
    for number in range(runs):
        time.sleep(max(0.0, first + number * DISTANCE - time.monotonic()))
        begun.append(begin())
    return begun
