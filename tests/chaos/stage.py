"""Where faults are staged: servers, workers, their database, runs, and those who follow them.

    async with Stage(Place(...), seed=7) as stage:
        run = await stage.begin(steps=40)
        await run.shown(20)
        stage.actor("worker 1").kill()
        await run.over()
    assert not stage.findings

What happens to them is up to a test, or to the nemesis.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg  # type: ignore[import-untyped]

from tailrace.stores.rows import lines_of
from tests.chaos.actors import DEAD, Actor, Follower, environment, post
from tests.chaos.checker import (
    Claimed,
    Held,
    Leases,
    Row,
    Story,
    Trouble,
    check,
    check_losses,
    digest,
    events_in,
)
from tests.services import Postgres, Redis, _free_port

LEASE = 1.0
LOOK_SECONDS = 0.05
"""How often an outsider looks who has which run."""

STORE_AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, sqlite3.Error)

RUN_SECONDS = 120.0
"""Within this time after it was started a run has ended and every follower knows: far above the 4 s
that a lost worker costs, five times over, on a busy machine."""


@dataclass
class Place:
    """Where the log is kept: an SQLite file, or PostgreSQL and Redis."""

    folder: Path
    postgres: Postgres | None = None
    redis: Redis | None = None
    disk: Path | None = None
    """Where the SQLite file is, if not in the folder."""
    url: str = ""
    _connection: Any = None

    def __post_init__(self) -> None:
        if self.postgres is not None:
            self.url = self.postgres.schema()
        else:
            self.url = str((self.disk or self.folder) / "chaos.db")

    def wal_size(self) -> int:
        """How much of the disk SQLite's newest pages take."""
        wal = Path(self.url + "-wal")
        return wal.stat().st_size if wal.exists() else 0

    async def rows(self, run_id: str) -> list[Row]:
        """A run's log, read by an outsider."""
        if self.postgres is None:
            return await asyncio.to_thread(self._from_file, run_id)
        url, _, schema = self.url.partition("?schema=")
        deadline = time.monotonic() + 60
        while True:
            try:
                db = await asyncpg.connect(url)
                try:
                    found = await db.fetch(
                        "select first_seq, last_seq, epoch, public, unpacked"
                        f' from "{schema}".batches'
                        " where run_id = $1 order by first_seq",
                        run_id,
                    )
                    return [_row(*one) for one in found]
                finally:
                    await db.close()
            except STORE_AWAY:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.2)

    async def leases(self) -> list[Held]:
        """Who has which run, and for how many seconds yet; raises if the store is away."""
        if self.postgres is None:
            return await asyncio.to_thread(self._leases_in_file)
        url, _, schema = self.url.partition("?schema=")
        if self._connection is None:
            self._connection = await asyncpg.connect(url)
        try:
            found = await self._connection.fetch(
                "select run_id, epoch, coalesce(worker, ''),"
                " extract(epoch from coalesce(lease_until, clock_timestamp())"
                " - clock_timestamp())::float, last_seq"
                f' from "{schema}".runs where ended_at is null'
            )
        except STORE_AWAY:
            self.close()
            raise
        return [Held(*one) for one in found]

    def close(self) -> None:
        """Close the connection on which leases are looked at."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def _leases_in_file(self) -> list[Held]:
        with closing(sqlite3.connect(f"file:{self.url}?mode=ro", uri=True, timeout=1)) as db:
            found = db.execute(
                "select run_id, epoch, coalesce(worker, ''), coalesce(lease_until - :now, 0),"
                " last_seq from runs where ended_at is null",
                {"now": time.clock_gettime(time.CLOCK_BOOTTIME)},
            )
            return [Held(*one) for one in found]

    async def claim(self, run_id: str) -> Claimed | None:
        """Claim a run for a worker that dies at once; None if the run has ended.

        Its lease stays as long as it was: then a worker claims the run again.
        """
        change = (
            "set epoch = epoch + 1, worker = 'dead'"
            " where run_id = {} and ended_at is null returning epoch, last_seq"
        )
        if self.postgres is None:
            return await asyncio.to_thread(self._claim_in_file, change.format("?"), run_id)
        url, _, schema = self.url.partition("?schema=")
        db = await asyncpg.connect(url)
        try:
            found = await db.fetchrow(f'update "{schema}".runs {change.format("$1")}', run_id)
        finally:
            await db.close()
        return Claimed(*found) if found is not None else None

    def _claim_in_file(self, change: str, run_id: str) -> Claimed | None:
        with closing(sqlite3.connect(self.url, timeout=60, isolation_level=None)) as db:
            found = db.execute(f"update runs {change}", (run_id,)).fetchall()
        return Claimed(*found[0]) if found else None

    def _from_file(self, run_id: str) -> list[Row]:
        with closing(sqlite3.connect(self.url, timeout=60)) as db:
            found = db.execute(
                "select first_seq, last_seq, epoch, public, unpacked from"
                " (select * from batches union all select * from fresh)"
                " where run_id = ? order by first_seq",
                (run_id,),
            )
            return [_row(*one) for one in found]


def _row(first: int, last: int, epoch: int, public: bytes, unpacked: int | None) -> Row:
    """A row of the database, which is compressed some time after its run has ended."""
    return Row(first, last, epoch, lines_of(first, last, epoch, public, unpacked).raw)


@dataclass
class Stage:
    """Two servers, two or three workers, and all that is known of the runs that they had."""

    place: Place
    seed: int
    bug: str = ""
    say: Callable[[str], None] = lambda _: None
    lease: float = LEASE
    servers_work: bool = False
    """Whether the servers have workers of their own; where there is a bus, one of them."""
    cast: tuple[str, ...] = ()
    """Who is there from the start: by default all, with PostgreSQL a third worker too."""

    findings: list[str] = field(default_factory=list)
    events: int = 0
    """Events that followers were shown and that were held against the log."""
    connections: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    interfered: set[str] = field(default_factory=set)
    """Runs that were claimed by the nemesis or are to be cancelled: servers may take them."""

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._digests: dict[str, str] = {}
        self._tools = self.place.folder / "tools"
        self._workers = self.place.folder / "workers"
        for file in (self._tools, self._workers):
            file.touch()
        self._away: list[Trouble] = []
        self._watching: asyncio.Task[None] | None = None
        self.log = self.place.folder / "processes.log"

    async def __aenter__(self) -> Self:
        self.ports = [_free_port() for _ in range(2)]
        env = environment(
            db=self.place.url,
            bus=self.place.redis.url if self.place.redis is not None else "",
            lease=str(self.lease),
            tools=str(self._tools),
            workers=str(self._workers),
            bug=self.bug,
        )
        name = "tests.chaos.application:app"
        alone = ["--no-worker"]
        first = [] if self.servers_work else alone
        second = first if self.place.redis is None else alone
        commands = {
            "server 1": ["serve", name, "--port", str(self.ports[0]), *first],
            "server 2": ["serve", name, "--port", str(self.ports[1]), *second],
            "worker 1": ["worker", name],
            "worker 2": ["worker", name],
        }
        if self.place.postgres is not None:
            commands["worker 3"] = ["worker", name]
        self.actors = [Actor(who, argv, env, self.log) for who, argv in commands.items()]
        try:
            for who in self.cast or commands:
                self.actor(who).start()
            self._leases = Leases(self.lease)
            self._watching = asyncio.ensure_future(self._watch_leases())
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        self._end()

    def _end(self) -> None:
        self.place.close()
        for actor in self.actors:
            actor.kill()

    def actor(self, name: str) -> Actor:
        """One of the processes."""
        return next(one for one in self.actors if one.name == name)

    # --- runs and their followers --------------------------------------------------------------

    async def begin(self, steps: int, followers: int = 2, agent: str = "again") -> Watched:
        """Start a run that takes about a tenth of a second a step, and follow it."""
        task = {"steps": steps, "seed": self._chance.randrange(10**6)}
        run_id = await self.start_run(self._chance, {"agent": agent, "input": task})
        run = Watched(self, Story(run_id, [], []))
        for _ in range(followers):
            run.follow()
        return run

    async def start_run(self, chance: random.Random, body: Any) -> str:
        """Begin a run on any of the servers; asked until one of them answers."""
        deadline = time.monotonic() + RUN_SECONDS
        while time.monotonic() < deadline:
            with suppress(*DEAD, ValueError):
                status, answer = await post(chance.choice(self.ports), "/runs", body)
                if status == 201:
                    return str(answer["run_id"])
                if status != 503:
                    self.findings.append(f"POST /runs was answered {status}: {answer}")
            await asyncio.sleep(chance.uniform(0.01, 0.1))
        raise TimeoutError(f"no run could be started within {RUN_SECONDS:.0f} s")

    async def cancel_run(self, chance: random.Random, story: Story) -> None:
        """Stop a run; asks until a server answers."""
        self.interfered.add(story.run_id)
        while not story.cancelled:
            with suppress(*DEAD, ValueError):
                path = f"/runs/{story.run_id}/cancel"
                status, answer = await post(chance.choice(self.ports), path, {})
                story.cancelled = status == 200
                if status not in (200, 503):
                    self.findings.append(f"POST {path} was answered {status}: {answer}")
            await asyncio.sleep(chance.uniform(0.01, 0.1))

    # --- checks ----------------------------------------------------------------------------------

    async def check_run(self, story: Story, followers: list[Follower]) -> None:
        """Hold all that is known of a run against its log."""
        story.rows = await self.place.rows(story.run_id)
        story.readings = [one.seen for one in followers]
        story.executed = self._executed().get(story.run_id, [])
        for finding in check(story):
            self.findings.append(f"run {story.run_id}: {finding}")
        for number, one in enumerate(followers):
            self.connections += one.connections
            self.events += len(one.seen.shown)
            for complaint in one.complaints:
                self.findings.append(f"run {story.run_id}: follower {number}: {complaint}")
        self._digests[story.run_id] = digest(story.rows)
        self.check_joins()
        if story.rows:
            last = events_in(story.rows[-1])[0][-1].split(b'"')[3].decode()
            self.endings[last.removeprefix("task.")] += 1

    def check_joins(self) -> None:
        """I3: no worker tried to join rows with other events between them."""
        text = self.log.read_text(errors="replace")
        if (at := text.find("their rows are not joined")) >= 0:
            self.findings.append(f"I3: {text[:at].splitlines()[-1]}")

    async def check_again(self) -> None:
        """I3: what has ended does not change any more, and no tool ran late."""
        for run_id, before in self._digests.items():
            if digest(await self.place.rows(run_id)) != before:
                self.findings.append(f"run {run_id}: I3: its log changed after its end")
        for run_id, calls in self._executed().items():
            if len(set(calls)) != len(calls):
                self.findings.append(f"run {run_id}: I6: a tool ran twice: {calls}")

    async def _watch_leases(self) -> None:
        """Look who has which run. If a look fails, the workers have no store either."""
        seen, is_away = time.monotonic(), False
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                rows = await self.place.leases()
            except STORE_AWAY:
                is_away = True
                continue
            now = time.monotonic()
            if is_away:
                self._away.append(Trouble("", seen, now))
            self._leases.see(now, rows)
            seen, is_away = now, False

    def check_leases(self) -> None:
        """No worker lost a run that was not killed, stopped or cut off, nor lost it to us."""
        lines = [line.split() for line in self._workers.read_text().splitlines()]
        names = {int(pid): name for pid, name in lines}
        troubles = list(self._away)
        for actor in self.actors:
            for one in actor.troubles:
                # A process that was stopped inside a transaction of SQLite keeps all others out.
                all_wait = one.what == "stopped" and self.place.postgres is None
                name = "" if all_wait else names.get(one.pid, "none")
                troubles.append(Trouble(name, one.since, one.until))
        losses = [one for one in self._leases.losses if one.run_id not in self.interfered]
        found = check_losses(losses, troubles, self.lease)
        self.findings += [one for one in found if one not in self.findings]

    def _executed(self) -> dict[str, list[str]]:
        executed: dict[str, list[str]] = {}
        for line in self._tools.read_text().splitlines():
            run_id, _, call_id = line.partition(" ")
            executed.setdefault(run_id, []).append(call_id)
        return executed


@dataclass
class Watched:
    """A run that goes on, and those who follow it."""

    stage: Stage
    story: Story
    followers: list[Follower] = field(default_factory=list)
    _following: list[asyncio.Task[None]] = field(default_factory=list)

    def follow(self) -> Follower:
        """One more, from the start."""
        chance = random.Random(self.stage._chance.random())
        one = Follower(self.story.run_id, self.stage.ports, chance)
        self.followers.append(one)
        self._following.append(asyncio.ensure_future(one.follow()))
        return one

    @property
    def epoch(self) -> int:
        """The newest epoch of which anything was shown."""
        return max((int(one.cursor.partition("-")[0] or 0) for one in self.followers), default=0)

    @property
    def seen(self) -> int:
        """How many events every follower was shown."""
        return min(len(one.seen.shown) for one in self.followers)

    async def shown(self, count: int) -> None:
        """Wait until every follower was shown so many events."""
        await until(lambda: self.seen >= count or self.is_over, f"event {count} of the run")

    @property
    def is_over(self) -> bool:
        """Whether every follower knows that nothing more comes."""
        return all(one.seen.finished or one.confused for one in self.followers)

    async def over(self) -> None:
        """Wait until every follower has seen the run's end, and check it."""
        await until(lambda: self.is_over, f"the end of run {self.story.run_id}")
        await asyncio.gather(*self._following)
        await self.stage.check_run(self.story, self.followers)


async def until(true: Callable[[], bool], what: str, within: float = RUN_SECONDS) -> float:
    """Wait for a condition that has no event; returns the seconds that it took."""
    begun = time.monotonic()
    while not true():
        took = time.monotonic() - begun
        if took > within:
            raise TimeoutError(f"{what} did not come within {within:g} s")
        await asyncio.sleep(0.01)
    return time.monotonic() - begun
