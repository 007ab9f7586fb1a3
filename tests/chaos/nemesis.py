"""Kills what it can while runs are written and followed, and has every run checked.

    async with Chaos(Place(...), seed=7) as chaos:
        await chaos.rage(kills=40)
    assert not chaos.findings

The seed decides what happens to whom and in which order; the machine decides when exactly.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.chaos.actors import DEAD, Actor, Follower, Zygote, environment, post
from tests.chaos.checker import Row, Story, check, digest
from tests.services import Postgres, Redis, _free_port

LEASE = 1.0
RUN_SECONDS = 120.0
"""Within this time after it was started a run has ended and everybody knows: far above the 4 s
that a lost worker costs, five times over, on a busy machine."""

RUNS_AT_ONCE = 6


@dataclass
class Place:
    """Where the log is kept: an SQLite file, or PostgreSQL and Redis."""

    folder: Path
    postgres: Postgres | None = None
    redis: Redis | None = None
    url: str = ""

    def __post_init__(self) -> None:
        if self.postgres is not None:
            self.url = self.postgres.schema()
        else:
            self.url = str(self.folder / "chaos.db")

    async def rows(self, run_id: str) -> list[Row]:
        """A run's log, read by an outsider."""
        if self.postgres is None:
            return await asyncio.to_thread(self._from_file, run_id)
        import asyncpg  # type: ignore[import-untyped]

        url, _, schema = self.url.partition("?schema=")
        deadline = time.monotonic() + 60
        while True:
            try:
                db = await asyncpg.connect(url)
                try:
                    found = await db.fetch(
                        f'select first_seq, last_seq, epoch, public from "{schema}".batches'
                        " where run_id = $1 order by first_seq",
                        run_id,
                    )
                    return [Row(*one) for one in found]
                finally:
                    await db.close()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.2)

    def _from_file(self, run_id: str) -> list[Row]:
        with closing(sqlite3.connect(self.url, timeout=60)) as db:
            found = db.execute(
                "select first_seq, last_seq, epoch, public from batches"
                " where run_id = ? order by first_seq",
                (run_id,),
            )
            return [Row(*one) for one in found]


@dataclass
class Chaos:
    """Two servers, two workers, their subscribers, and somebody who wants them dead."""

    place: Place
    seed: int
    bug: str = ""
    say: Callable[[str], None] = lambda _: None
    pace: float = 0.12
    """Seconds between two blows, on average."""
    stops: int = 1
    """How often a process is stopped past its lease, for ten that are killed."""

    findings: list[str] = field(default_factory=list)
    kills: int = 0
    events: int = 0
    """Events that subscribers were shown and that were held against the log."""
    connections: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._digests: dict[str, str] = {}
        self._tools = self.place.folder / "tools"
        self._tools.touch()
        self._started = 0
        self._mourned = 0
        self._over = False
        self._timers: list[asyncio.TimerHandle] = []

    async def __aenter__(self) -> Self:
        self._zygote = Zygote()
        self.ports = [_free_port() for _ in range(2)]
        env = environment(
            db=self.place.url,
            bus=self.place.redis.url if self.place.redis is not None else "",
            lease=str(LEASE),
            tools=str(self._tools),
            bug=self.bug,
        )
        name = "tests.chaos.application:app"
        # Where there is a bus, one of the servers leaves all work to others.
        apart = ["--no-worker"] if self.place.redis is not None else []
        commands = {
            "server 1": ["serve", name, "--port", str(self.ports[0])],
            "server 2": ["serve", name, "--port", str(self.ports[1]), *apart],
            "worker 1": ["worker", name],
            "worker 2": ["worker", name],
        }
        self.log = self.place.folder / "processes.log"
        self.actors = [
            Actor(self._zygote, who, argv, env, self.log) for who, argv in commands.items()
        ]
        try:
            for actor in self.actors:
                actor.start()
        except BaseException:
            self._zygote.close()
            raise
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        for timer in self._timers:
            timer.cancel()
        await asyncio.to_thread(self._zygote.close)

    async def rage(self, kills: int, *, until_found: bool = False) -> None:
        """Kill so many processes while runs go on; then let everything end, and check it all.

        With `until_found` the first finding is enough.
        """
        load = [asyncio.ensure_future(self._keep_running()) for _ in range(RUNS_AT_ONCE)]
        watch = asyncio.ensure_future(self._restart_the_dead())
        try:
            while self.kills < kills and not (until_found and self.findings):
                for one in (*load, watch):
                    if one.done():
                        one.result()
                await asyncio.sleep(self._chance.expovariate(1 / self.pace))
                await self._strike()
                if self.kills and self.kills % 10 == 0 and self.kills != self._mourned:
                    self._mourned = self.kills
                    self.say(f"kill {self.kills} of {kills}, {self.events} events checked")
            self._over = True
            if not (until_found and self.findings):
                await asyncio.gather(*load)
                await self._check_again()
        finally:
            for one in (*load, watch):
                one.cancel()
            await asyncio.gather(*load, watch, return_exceptions=True)
        self.say(self.summary())

    def summary(self) -> str:
        """What happened, in one line."""
        endings = ", ".join(f"{count} {kind}" for kind, count in self.endings.most_common())
        faults = ", ".join(f"{count} {kind}" for kind, count in self.faults.most_common())
        return (
            f"seed {self.seed}: {self.kills} kills ({faults}); {len(self._digests)} runs"
            f" ({endings}); {self.connections} connections, {self.events} events checked;"
            f" {len(self.findings)} findings"
        )

    # --- blows ---------------------------------------------------------------------------------

    async def _strike(self) -> None:
        blows: list[tuple[int, Callable[[], Any]]] = [(10, self._kill), (self.stops, self._stop)]
        if self.place.redis is not None:
            blows += [(1, self._flush_redis), (1, self._restart_redis)]
        if self.place.postgres is not None:
            blows += [(1, self._restart_postgres)]
        weights, chosen = zip(*blows, strict=True)
        await self._chance.choices(chosen, weights)[0]()

    async def _kill(self) -> None:
        actor = self._chance.choice(self.actors)
        pause = self._chance.choice((0.0, 0.05, 0.3))
        if actor.pid is None or actor.stopped:
            return
        actor.kill()
        self.kills += 1
        self.faults[actor.name.split()[0]] += 1
        await asyncio.sleep(pause)
        actor.start()

    async def _stop(self) -> None:
        """Past the lease, so that it is taken for dead and comes back."""
        actor = self._chance.choice(self.actors)
        length = LEASE + self._chance.uniform(0.2, 1.0)
        if actor.pid is None or actor.stopped:
            return
        actor.pause()
        self.faults["stopped"] += 1
        later = asyncio.get_running_loop().call_later(length, actor.resume)
        self._timers.append(later)

    async def _flush_redis(self) -> None:
        assert self.place.redis is not None
        await asyncio.to_thread(self.place.redis.flush)
        self.faults["redis flushed"] += 1

    async def _restart_redis(self) -> None:
        assert self.place.redis is not None
        await asyncio.to_thread(self.place.redis.restart)
        self.faults["redis killed"] += 1

    async def _restart_postgres(self) -> None:
        assert self.place.postgres is not None
        await asyncio.to_thread(self.place.postgres.restart)
        self.faults["postgres crashed"] += 1

    async def _restart_the_dead(self) -> None:
        """A process may end by itself when it is started while its database is away."""
        while True:
            await asyncio.sleep(0.3)
            for pid, status in self._zygote.ask(ended=[]):
                for actor in self.actors:
                    if actor.pid == pid:
                        self.faults["ended by itself"] += 1
                        if self.place.postgres is None:
                            self.findings.append(f"{actor.name} ended by itself, status {status}")
                        actor.start()

    # --- runs and their subscribers --------------------------------------------------------------

    async def _keep_running(self) -> None:
        while not self._over:
            self._started += 1
            await self._one_run(random.Random(f"{self.seed}/{self._started}"))

    async def _one_run(self, chance: random.Random) -> None:
        agent = "again" if chance.random() < 0.85 else "once"
        task = {"steps": chance.randint(2, 8), "seed": chance.randrange(10**6)}
        run_id = await self._start(chance, {"agent": agent, "input": task})
        first = Follower(run_id, self.ports, random.Random(chance.random()))
        followers = [first]
        story = Story(run_id, [], [])
        try:
            async with asyncio.timeout(RUN_SECONDS), asyncio.TaskGroup() as group:
                group.create_task(first.follow())
                if chance.random() < 0.15:
                    group.create_task(self._cancel(chance, story))
                for _ in range(chance.randint(1, 3)):
                    await asyncio.sleep(chance.uniform(0, 0.5))
                    late = Follower(run_id, self.ports, random.Random(chance.random()))
                    if first.cursor and chance.random() < 0.3:
                        late.cursor = first.cursor
                        late.seen.after = int(first.cursor.partition("-")[2])
                    followers.append(late)
                    group.create_task(late.follow())
        except TimeoutError:
            self.findings.append(f"run {run_id} did not end within {RUN_SECONDS:.0f} s")
        await self._check(story, followers)

    async def _start(self, chance: random.Random, body: Any) -> str:
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

    async def _cancel(self, chance: random.Random, story: Story) -> None:
        await asyncio.sleep(chance.uniform(0, 1))
        while not story.cancelled:
            with suppress(*DEAD, ValueError):
                path = f"/runs/{story.run_id}/cancel"
                status, answer = await post(chance.choice(self.ports), path, {})
                story.cancelled = status == 200
                if status not in (200, 503):
                    self.findings.append(f"POST {path} was answered {status}: {answer}")
            await asyncio.sleep(chance.uniform(0.01, 0.1))

    # --- checks ----------------------------------------------------------------------------------

    async def _check(self, story: Story, followers: list[Follower]) -> None:
        story.rows = await self.place.rows(story.run_id)
        story.subscribers = [one.seen for one in followers]
        story.executed = self._executed().get(story.run_id, [])
        for finding in check(story):
            self.findings.append(f"run {story.run_id}: {finding}")
        for number, one in enumerate(followers):
            self.connections += one.connections
            self.events += len(one.seen.shown)
            for complaint in one.complaints:
                self.findings.append(f"run {story.run_id}: subscriber {number}: {complaint}")
        self._digests[story.run_id] = digest(story.rows)
        if story.rows:
            last = story.rows[-1].public.rsplit(b"\n", 1)[-1].split(b'"')[3].decode()
            self.endings[last.removeprefix("task.")] += 1

    async def _check_again(self) -> None:
        """I3: what has ended does not change any more, and no tool ran late."""
        for run_id, before in self._digests.items():
            if digest(await self.place.rows(run_id)) != before:
                self.findings.append(f"run {run_id}: I3: its log changed after its end")
        for run_id, calls in self._executed().items():
            if len(set(calls)) != len(calls):
                self.findings.append(f"run {run_id}: I6: a tool ran twice: {calls}")

    def _executed(self) -> dict[str, list[str]]:
        executed: dict[str, list[str]] = {}
        for line in self._tools.read_text().splitlines():
            run_id, _, call_id = line.partition(" ")
            executed.setdefault(run_id, []).append(call_id)
        return executed


async def attack(
    kills: int,
    seed: int,
    *,
    bug: str = "",
    postgres: Postgres | None = None,
    redis: Redis | None = None,
    say: Callable[[str], None] = print,
) -> Chaos:
    """One storm in a folder that goes; with a bug, until the bug is found."""
    with tempfile.TemporaryDirectory(prefix="tailrace-chaos-") as folder:
        place = Place(Path(folder), postgres, redis)
        # A writer without fences does harm when it comes back, not when it dies.
        stops = 20 if bug == "no_fencing" else 1
        async with Chaos(place, seed, bug, say=say, stops=stops) as chaos:
            await chaos.rage(kills, until_found=bool(bug))
        text = chaos.log.read_text(errors="replace") if chaos.log.exists() else ""
        if "Traceback" in text and not bug:
            at = text.index("Traceback")
            say(f"a process said: {text[max(at - 300, 0) : at + 3000]}")
    return chaos
