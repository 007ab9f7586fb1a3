"""Kills what it can while runs are written and followed, and has every run checked.

    async with Chaos(Place(...), seed=7) as chaos:
        await chaos.strike(kills=40)
    assert not chaos.findings

The seed decides what happens to whom and in which order; the machine decides when exactly.
"""

from __future__ import annotations

import asyncio
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.chaos.actors import DEAD, Follower, get
from tests.chaos.checker import Story, View
from tests.chaos.stage import LEASE, RUN_SECONDS, Place, Stage
from tests.services import Postgres, Redis

RUNS_AT_ONCE = 6


@dataclass
class Chaos(Stage):
    """Servers, workers, their followers, and the faults that strike them."""

    servers_work: bool = True
    pace: float = 0.12
    """Seconds between two faults, on average."""
    stops: int = 1
    """How often a process is stopped past its lease, for ten that are killed."""
    cancels: float = 0.15
    """Which part of the runs is cancelled."""
    bursts: float = 0.15
    """Which part of the runs is written in bursts, and read by late followers that stall."""
    burst_steps: tuple[int, int] = (10, 25)
    mixes: float = 0.15
    """Which part of the runs mixes large rows with small rows, and is viewed while it goes on."""
    claims: int = 1
    """How often a run is claimed by a worker that dies at once, for ten that are killed."""
    away: float = 0.0
    """For how many seconds, at most, Redis and PostgreSQL stay down and the disk stays full."""
    kills: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._started = 0
        self._mourned = 0
        self._over = False
        self._timers: list[asyncio.TimerHandle] = []
        self._stories: dict[str, Story] = {}

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for timer in self._timers:
            timer.cancel()
        await super().__aexit__(kind, error, trace)

    async def strike(self, kills: int, *, until: str = "") -> None:
        """Kill so many processes while runs go on; then let everything end, and check it all.

        The first finding that matches `until` is enough.
        """
        load = [asyncio.ensure_future(self._keep_running()) for _ in range(RUNS_AT_ONCE)]
        watch = asyncio.ensure_future(self._restart_the_dead())
        try:
            while self.kills < kills and not self.found(until):
                for one in (*load, watch):
                    if one.done():
                        one.result()
                await self._wait(self._chance.expovariate(1 / self.pace), until)
                await self._strike()
                if self.kills and self.kills % 10 == 0 and self.kills != self._mourned:
                    self._mourned = self.kills
                    self.say(f"kill {self.kills} of {kills}, {self.events} events checked")
            self._over = True
            if not self.found(until):
                await asyncio.gather(*load)
                await self.check_again()
                self.check_leases()
        finally:
            for one in (*load, watch):
                one.cancel()
            await asyncio.gather(*load, watch, return_exceptions=True)
        self.say(self.summary())

    async def _wait(self, seconds: float, until: str) -> None:
        """Wait for the next blow, or for a finding that is enough."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not self.found(until):
            await asyncio.sleep(min(left, 0.1))
            if until:
                self.check_leases()

    def found(self, what: str) -> str:
        """The first finding that matches a pattern; "" without a pattern or a match."""
        return next((one for one in self.findings if what and re.search(what, one)), "")

    def summary(self) -> str:
        """What happened, in one line."""
        endings = ", ".join(f"{count} {kind}" for kind, count in self.endings.most_common())
        faults = ", ".join(f"{count} {kind}" for kind, count in self.faults.most_common())
        return (
            f"seed {self.seed}: {self.kills} kills ({faults}); {len(self._digests)} runs"
            f" ({endings}); {self.connections} connections, {self.events} events checked;"
            f" {len(self.findings)} findings"
        )

    # --- faults ---------------------------------------------------------------------------------

    async def _strike(self) -> None:
        faults: list[tuple[int, Callable[[], Any]]] = [
            (10, self._kill),
            (self.stops, self._stop),
            (self.claims, self._claim),
        ]
        if self.place.redis is not None:
            faults += [(1, self._flush_redis), (1, self._restart_redis)]
        if self.place.postgres is not None:
            faults += [(1, self._restart_postgres)]
        else:
            faults += [(1, self._fill_disk)]
        weights, chosen = zip(*faults, strict=True)
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

    async def _claim(self) -> None:
        """Claim a run that has a writer. The writer is alive, and may not write any more."""
        if self._stories:
            story = self._chance.choice(list(self._stories.values()))
            self.interfered.add(story.run_id)
            if (claimed := await self.place.claim(story.run_id)) is not None:
                story.claims.append(claimed)
                self.faults["claimed"] += 1

    async def _flush_redis(self) -> None:
        assert self.place.redis is not None
        await asyncio.to_thread(self.place.redis.flush)
        self.faults["redis flushed"] += 1

    async def _restart_redis(self) -> None:
        assert self.place.redis is not None
        await asyncio.to_thread(self.place.redis.stop)
        self.faults["redis killed"] += 1
        await self._wait_a_while()
        await asyncio.to_thread(self.place.redis.start)

    async def _restart_postgres(self) -> None:
        assert self.place.postgres is not None
        await asyncio.to_thread(self.place.postgres.stop)
        self.faults["postgres crashed"] += 1
        await self._wait_a_while()
        await asyncio.to_thread(self.place.postgres.start)

    async def _fill_disk(self) -> None:
        """For the processes of now, while the faults go on; new processes may write."""
        length = 0.2 + self.away * self._chance.random()
        full = [actor for actor in self.actors if actor.pid is not None]
        size = self.place.wal_size()
        for actor in full:
            actor.limit_files(size)
            later = asyncio.get_running_loop().call_later(length, actor.limit_files, None)
            self._timers.append(later)
        self.faults["disk full"] += 1

    async def _wait_a_while(self) -> None:
        await asyncio.sleep(self.away * self._chance.random())

    async def _restart_the_dead(self) -> None:
        """A process may end by itself when it is started while its database or disk is away."""
        while True:
            await asyncio.sleep(0.3)
            for actor in self.actors:
                if (status := actor.status()) is not None:
                    self.faults["ended by itself"] += 1
                    if self.place.postgres is None and not actor.may_give_up:
                        last = self.log.read_text(errors="replace")[-400:]
                        self.findings.append(
                            f"{actor.name} ended by itself, status {status}: …{last}"
                        )
                    actor.start()

    # --- runs ------------------------------------------------------------------------------------

    async def _keep_running(self) -> None:
        while not self._over:
            self._started += 1
            await self._one_run(random.Random(f"{self.seed}/{self._started}"))

    async def _one_run(self, chance: random.Random) -> None:
        agent = "again" if chance.random() < 0.85 else "once"
        task = {"steps": chance.randint(2, 8), "seed": chance.randrange(10**6)}
        if stalls := chance.random() < self.bursts:
            agent, task["steps"] = "burst", chance.randint(*self.burst_steps)
        elif chance.random() < self.mixes:
            agent, task["steps"] = "mixed", chance.randint(10, 25)
        run_id = await self.start_run(chance, {"agent": agent, "input": task})
        first = Follower(run_id, self.ports, random.Random(chance.random()))
        followers = [first]
        story = self._stories[run_id] = Story(run_id, [], [])
        try:
            async with asyncio.timeout(RUN_SECONDS), asyncio.TaskGroup() as group:
                group.create_task(first.follow())
                if chance.random() < self.cancels:
                    group.create_task(self._cancel(chance, story))
                if agent == "mixed":
                    group.create_task(self._view(random.Random(chance.random()), story, first))
                for _ in range(chance.randint(1, 3)):
                    await asyncio.sleep(chance.uniform(0, 0.5))
                    late = Follower(run_id, self.ports, random.Random(chance.random()))
                    late.stalls = stalls
                    if first.cursor and chance.random() < 0.3:
                        late.cursor = first.cursor
                        late.seen.after = int(first.cursor.partition("-")[2])
                    followers.append(late)
                    group.create_task(late.follow())
        except TimeoutError:
            self.findings.append(f"run {run_id} did not end within {RUN_SECONDS:.0f} s")
        del self._stories[run_id]
        await self.check_run(story, followers)

    async def _view(self, chance: random.Random, story: Story, first: Follower) -> None:
        """Ask for the state of the run until it has ended, at any event and at the newest."""
        while not first.seen.finished and not first.confused:
            await asyncio.sleep(chance.uniform(0, 0.2))
            after = len(first.seen.shown)
            at = chance.randint(1, after) if after and chance.random() < 0.5 else None
            path = f"/runs/{story.run_id}" + (f"?at={at}" if at is not None else "")
            with suppress(*DEAD, ValueError):
                status, view = await get(chance.choice(self.ports), path)
                if status == 200:
                    story.views.append(View(texts_in(view), 0 if at is not None else after, at))
                elif status != 503:
                    self.findings.append(f"GET {path} was answered {status}: {view}")

    async def _cancel(self, chance: random.Random, story: Story) -> None:
        await asyncio.sleep(chance.uniform(0, 1))
        await self.cancel_run(chance, story)


def texts_in(view: Any) -> list[str]:
    """The texts of the messages in a client's view."""
    messages = [item for item in view["output"] if item["type"] == "message"]
    return ["".join(block["text"] for block in message["block_list"]) for message in messages]


async def attack(
    kills: int,
    seed: int,
    *,
    bug: str = "",
    until: str = "",
    postgres: Postgres | None = None,
    redis: Redis | None = None,
    away: float = 0.0,
    say: Callable[[str], None] = print,
) -> Chaos:
    """A storm in a folder of its own; it ends early when a finding matches `until`."""
    with tempfile.TemporaryDirectory(prefix="tailrace-chaos-") as folder:
        place = Place(Path(folder), postgres, redis)
        # A writer without fences does harm when it comes back, not when it dies.
        stops = 20 if bug == "no_fencing" else 1
        storm = Chaos(place, seed, bug, say=say, stops=stops, away=away)
        if bug == "no_epoch_check":
            storm.claims = 20  # only a claim shows it
        if bug == "no_bounds":
            # A run that cannot be closed shows when a cancel is answered, which takes seconds.
            storm.cancels, storm.pace = 1.0, 2.0
        if bug in ("plan_over_holes", "join_over_holes"):
            storm.bursts, storm.mixes, storm.pace = 0.0, 1.0, 2.0
        if bug == "no_renewal":
            # Only a worker that lives longer than its lease shows it, after a run that has ended.
            storm.bursts, storm.cancels, storm.pace = 0.6, 0.0, 3.0
            storm.stops, storm.claims, storm.burst_steps = 0, 0, (30, 60)
        if bug == "repeat_to_the_stalled":
            # A stream that is cut before it stalls shows nothing.
            storm.bursts, storm.cancels, storm.pace = 1.0, 0.0, 2.0
        async with storm as chaos:
            await chaos.strike(kills, until=until)
        text = chaos.log.read_text(errors="replace") if chaos.log.exists() else ""
        if "Traceback" in text and not bug:
            at = text.index("Traceback")
            say(f"a process printed: {text[max(at - 300, 0) : at + 3000]}")
    return chaos
