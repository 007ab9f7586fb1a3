"""Over HTTP: events a second, latency, late join, many readers; each beside what is possible."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from benchmarks import live_paced, live_peers
from benchmarks.client import Server, read_all, server
from benchmarks.harness import Pace, Table, Target, at_least, at_most, progress, short

ROUNDS = 5


@dataclass(frozen=True)
class Amounts:
    """How much of everything."""

    rounds: int = ROUNDS
    events: int = 20_000
    """Of one unpaced run."""
    paced_rounds: int = 3
    paced_seconds: float = 6.0
    paced_runs: int = live_paced.RUNS
    lone_seconds: float = 2.0
    joined_after: float = live_paced.JOINED_AFTER
    replays: int = 15
    """How often a run is joined late."""
    opened_seconds: float = 1.0
    """How long idle connections are given."""
    joined: tuple[int, ...] = (1_000, 20_000, 1_000_000)
    """Events of runs that are joined late; the second is the size that the target names."""
    people: int = 1_000
    shown: int = 2_000
    """Events that every reader gets."""


FULL = Amounts()
QUICK = Amounts(rounds=3, paced_rounds=1, paced_seconds=3.0, joined=FULL.joined[:2])
ONCE = Amounts(
    rounds=1,
    events=200,
    paced_rounds=1,
    paced_seconds=0.2,
    paced_runs=2,
    lone_seconds=0.2,
    joined_after=0.0,
    replays=1,
    opened_seconds=0.1,
    joined=(100, 200),
    people=20,
    shown=100,
)

Contenders = dict[str, Callable[[], float]]


def run(pace: Pace) -> tuple[list[Table], list[Target]]:
    """All tables, and the targets they speak of."""
    sizes = pace.amount(full=FULL, quick=QUICK, once=ONCE)
    rounds = sizes.rounds
    with tempfile.TemporaryDirectory() as folder, ExitStack() as started:
        limits = started.enter_context(server("limits", folder))
        ours = started.enter_context(_sqlite(folder))
        both, by_hand = started.enter_context(_shared(folder))
        synced = started.enter_context(_sqlite(folder, "synchronous=full"))
        with live_peers.frameworks(folder) as peers:
            first, wanted = _end_to_end(limits, ours, both, peers, sizes)
            contenders = {
                live_paced.LIMIT: limits,
                live_paced.OURS: ours,
                live_paced.SHARED: both,
                live_paced.BY_HAND: by_hand,
                live_paced.SYNCED: synced,
                **peers,
            }
            paced, paced_wanted = live_paced.run(
                contenders,
                sizes.paced_rounds,
                sizes.paced_seconds,
                sizes.paced_runs,
                sizes.joined_after,
            )
        alone = {name: contenders[name] for name in (live_paced.LIMIT, *live_paced.DURABLE)}
        parts = [
            live_paced.lone(alone, sizes.paced_rounds, sizes.lone_seconds),
            _late_join(limits, ours, sizes.joined, sizes.replays),
            _snapshot_join(limits, ours, sizes.joined[:2], rounds),
            _fan_out(limits, ours, sizes),
            _idle(folder, sizes.people, sizes.opened_seconds),
        ]
    tables = [first, *paced, *(table for table, _ in parts)]
    targets = [*wanted, *paced_wanted, *(target for _, found in parts for target in found)]
    return tables, targets


@contextmanager
def _sqlite(folder: str, options: str = "") -> Iterator[Server]:
    database = f"sqlite:///{folder}/tailrace{options}.db?{options}"
    with server("tailrace", folder, "--database", database) as found:
        yield found


@contextmanager
def _shared(folder: str) -> Iterator[tuple[Server, Server]]:
    """On Postgres and Redis: a server process with a worker process, and what is possible."""
    from tests.services import Postgres, Redis

    postgres, redis = Postgres(fsync=True), Redis()
    places = ("--database", postgres.url, "--bus", redis.url)
    try:
        with (
            server("worker", folder, *places) as worker,
            server("tailrace", folder, *places, "--no-worker") as found,
            server("limits", folder, *places) as by_hand,
        ):
            found.helpers.append(worker)
            yield found, by_hand
    finally:
        redis.close()
        postgres.close()


def _raced(title: str, size: int, rounds: int, contenders: Contenders) -> dict[str, list[float]]:
    """Seconds by contender: each round runs every one once, the next in the opposite order."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds):
        names = list(contenders) if turn % 2 == 0 else list(reversed(contenders))
        for name in names:
            progress(f"{title}: {short(size)}, round {turn + 1}, {name}")
            times[name].append(contenders[name]())
    progress("")
    return times


def _timed(work: Callable[[], object]) -> Callable[[], float]:
    def once() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return once


def _followed(one: Server, count: int, rate: float = 0) -> None:
    data = one.read(f"/runs/{one.start(count=count, rate=rate)}/events")
    found = data.count(b"task.text.delta")
    if found != count:
        raise AssertionError(f"{found} of {count} events came")


# --- events a second -----------------------------------------------------------------------------


def _end_to_end(
    limits: Server, ours: Server, both: Server, peers: Mapping[str, Server], sizes: Amounts
) -> tuple[Table, list[Target]]:
    title = "live: one run, one reader, unpaced"
    count = sizes.events
    query = f"count={count}&rate=0"
    times = _raced(
        title,
        count,
        sizes.rounds,
        {
            "hand-written": _timed(lambda: limits.read(f"/durable?{query}")),
            "tailrace": _timed(lambda: _followed(ours, count)),
            "tailrace, Postgres + Redis": _timed(lambda: _followed(both, count)),
            "hand-written, rests 5 ms": _timed(lambda: limits.read(f"/durable?{query}&rest=0.005")),
            "bare uvicorn, nothing kept": _timed(lambda: limits.read(f"/stream?{query}")),
            **{name: _timed(work) for name, work in live_peers.unpaced(peers, count).items()},
        },
    )
    table = Table(
        title,
        {count: times},
        "tailrace",
        "hand-written",
        remark=(
            "From the request that starts the run to the last byte of its stream. The model yields "
            "to the loop after each delta, as a network does. The hand-written path knows one run "
            "and nothing else: it encodes a delta, lets SQLite commit the deltas so far, and sends "
            "them. Postgres (with fsync) and Redis are shared by a server process and "
            "a worker process. Bare uvicorn sends each delta as a chunk and keeps nothing. "
            + live_peers.REMARK
        ),
    )
    targets = [
        at_least(f"{title}, of the hand-written path", 0.7, _share(table, "tailrace")),
        at_least(
            f"{title}, Postgres + Redis of the SQLite figure",
            0.4,
            1 / (table.ratio("tailrace, Postgres + Redis", "tailrace", count) or 1e9),
        ),
        *live_peers.targets(table),
    ]
    return table, targets


def _share(table: Table, name: str) -> float:
    """How much of the limit's speed a contender has."""
    return 1 / table.worst(name, table.limit)


# --- late join -----------------------------------------------------------------------------------


def _late_join(
    limits: Server, ours: Server, sizes: tuple[int, ...], replays: int
) -> tuple[Table, list[Target]]:
    title = "live: late join by replay"
    times: dict[int, dict[str, list[float]]] = {}
    for count in sizes:
        progress(f"{title}: {short(count)}, writing")
        ended = ours.start(count=count, rate=0)
        size = len(ours.read(f"/runs/{ended}/events"))
        contenders: Contenders = {
            "limit: joined bytes": _timed(partial(limits.read, f"/joined?bytes={size}")),
            "tailrace": _timed(partial(ours.read, f"/runs/{ended}/events")),
        }
        if count <= 20_000:
            # Still alive, so its rows are as the paced model wrote them.
            alive = ours.start(count=count, rate=4_000, linger=True)
            last = last_id(ours, alive, count)
            contenders["tailrace, a paced run that goes on"] = _timed(
                partial(ours.read_until, f"/runs/{alive}/events", last)
            )
        ours.settle()
        times[count] = _raced(title, count, 5 if count > 100_000 else replays, contenders)
    table = Table(
        title,
        times,
        "tailrace",
        "limit: joined bytes",
        remark=(
            "The whole stream of a run that has ended, or that goes on, in the native format. "
            "The limit sends as many bytes from memory."
        ),
        skipped={"tailrace, a paced run that goes on": "a million events would take minutes"},
    )
    wanted = f"live: late join to {short(sizes[1])} events by replay, to the joined bytes"
    paced = table.ratio("tailrace, a paced run that goes on", table.limit, sizes[1])
    return table, [
        at_most(wanted, 2.0, table.ratio("tailrace", table.limit, sizes[1]) or 1e9),
        at_most(f"{wanted}, a paced run", 2.0, paced or 1e9),
    ]


def last_id(one: Server, run_id: str, count: int) -> bytes:
    """Follow a run that does not end until all its deltas have come; the last one's `id` line."""
    with one.open(f"/runs/{run_id}/events") as connection:
        last, found, word = b"", 0, b"task.text.delta"
        while found < count or not last.endswith(b"\n\n\r\n"):
            last = last[-4096:]
            before = last.count(word)
            last += connection.recv(1 << 18)
            found += last.count(word) - before
    return last[last.rindex(b"id: ") :].partition(b"\n")[0] + b"\n"


def _snapshot_join(
    limits: Server, ours: Server, sizes: tuple[int, ...], rounds: int
) -> tuple[Table, list[Target]]:
    title = "live: late join by snapshot"
    times: dict[int, dict[str, list[float]]] = {}
    for count in sizes:
        run_id = ours.start(count=count, rate=0)
        ours.read(f"/runs/{run_id}/events")
        path = f"/runs/{run_id}/events?snapshot=true"
        size = len(ours.read(path))
        contenders: Contenders = {
            "limit: the state's bytes": _timed(partial(limits.read, f"/joined?bytes={size}")),
            "tailrace": _timed(partial(ours.read, path)),
        }
        ours.settle()
        times[count] = _raced(title, count, 3 * rounds, contenders)
    table = Table(
        title,
        times,
        "tailrace",
        "limit: the state's bytes",
        remark="The state as one frame. The limit sends as many bytes from memory.",
    )
    return table, [at_most(title, 2.0, table.worst("tailrace", table.limit))]


# --- many readers --------------------------------------------------------------------------------


def _fan_out(limits: Server, ours: Server, sizes: Amounts) -> tuple[Table, list[Target]]:
    people, shown = sizes.people, sizes.shown
    title = f"live: one run for {people:,} readers"

    def limit() -> float:
        path = f"/crowd?count={shown}&people={people}"
        streams = [limits.open(path) for _ in range(people - 1)]
        limits.settle()
        start = time.perf_counter()
        streams.append(limits.open(path))
        return _all_read(streams, shown) - start

    def product() -> float:
        run_id = ours.start(count=shown, rate=0, wait=True)
        streams = [ours.open(f"/runs/{run_id}/events") for _ in range(people)]
        ours.settle()  # all readers are connected
        start = time.perf_counter()
        ours.post(f"/runs/{run_id}/input", {"go": True})
        return _all_read(streams, shown) - start

    ours.settle()
    contenders = {"limit: a shared log": limit, "tailrace": product}
    times = _raced(title, shown, sizes.rounds, contenders)
    table = Table(
        title,
        {shown: times},
        "tailrace",
        "limit: a shared log",
        unit="delivery",
        per=lambda count: float(count * people),
        remark=(
            f"{shown:,} events, unpaced, to {people:,} connections of one process, until the last "
            "one has the last byte. The limit keeps nothing: one list of frames, a place for each "
            "reader, one tick of 5 ms for all."
        ),
    )
    return table, [at_least(f"{title}, of the shared log", 0.5, _share(table, "tailrace"))]


def _all_read(streams: list[socket.socket], shown: int) -> float:
    sizes, ended = read_all(streams)
    for stream in streams:
        stream.close()
    # They may have come in other chunks; but a delta alone weighs more than a hundred bytes.
    if min(sizes) < 100 * shown or max(sizes) - min(sizes) > max(max(sizes) / 100, 1_000):
        raise AssertionError(f"readers got from {min(sizes)} to {max(sizes)} bytes")
    return ended


def _idle(folder: str, people: int, seconds: float) -> tuple[Table, list[Target]]:
    """In new processes: one that had a crowd before has room for the next."""
    title = "live: memory of an idle connection"
    progress(title)
    with server("limits", folder) as limits:
        bare = _weight(limits, "/idle", people, seconds)
    with server("tailrace", folder, "--database", f"{folder}/idle.db") as ours:
        run_id = ours.start(count=1, rate=0, wait=True)
        weight = _weight(ours, f"/runs/{run_id}/events", people, seconds)
    table = Table(
        title,
        {people: {"bare uvicorn": [bare], "tailrace": [weight]}},
        "tailrace",
        "bare uvicorn",
        unit="connection",
        scale=1.0,
        per=lambda _: 1.0,
        remark=f"What the process grows by with {people:,} readers of one silent run.",
    )
    return table, [at_most(title, 12, weight / 1024, "KiB")]


def _weight(one: Server, path: str, people: int, seconds: float) -> float:
    """What a connection adds to a server that has served some before."""
    streams = [one.open(path) for _ in range(50)]
    time.sleep(seconds / 2)
    before = one.memory()
    streams += [one.open(path) for _ in range(people)]
    known = -1
    while known != (known := one.memory()):  # until all are connected
        time.sleep(seconds)
    for stream in streams:
        stream.close()
    # Few connections may fit into memory that the process has already.
    return max(known - before, 1) / people
