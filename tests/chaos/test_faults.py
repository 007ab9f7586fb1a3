"""One fault at a time, at a moment that is chosen, with what is promised for it held to the clock.

The nemesis does these things at random as well (`make soak`); here each is sure to happen.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from tests.chaos.actors import post
from tests.chaos.stage import Place, Stage, Watched, until
from tests.effort import SOAK
from tests.services import Postgres, Redis

SEED = 1
SERVERS = ("server 1", "server 2")
SLOWER = 1 if SOAK else 4
"""How much longer everything may take in `make test`, which runs beside others on any machine."""

RECOVERED_WITHIN = 5.0 * SLOWER
"""Seconds that another worker may take to go on, once the lease has ended."""

CLOSED_WITHIN = 5.0 * SLOWER
"""Seconds after which a run that is cancelled has ended, also where its writer is dead."""

REFUSED_WITHIN = 5.0 * SLOWER
"""Seconds after which a request that the store does not answer is refused."""


@pytest.fixture(params=["sqlite", "postgres-redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return Place(tmp_path)
    return Place(tmp_path, request.getfixturevalue("postgres"), request.getfixturevalue("redis"))


@asynccontextmanager
async def staged(place: Place, *workers: str, lease: float = 1.0) -> AsyncIterator[Stage]:
    """Servers that leave the work to these workers, or do it; in the end, nothing was found."""
    cast = (*SERVERS, *workers)
    async with Stage(place, SEED, lease=lease, servers_work=not workers, cast=cast) as stage:
        yield stage
        await stage.check_again()
    assert not stage.findings, "\n".join(stage.findings)
    assert stage.events > 0


async def test_the_run_of_a_killed_worker_goes_on_or_is_closed_in_time(place: Place) -> None:
    async with staged(place, "worker 1") as stage:
        run = await stage.begin(steps=400)
        await run.shown(20)
        first = run.epoch
        stage.actor("worker 2").start()
        stage.actor("worker 1").kill()
        took = await until(lambda: run.epoch > first, "another worker's event")
        assert took < stage.lease + RECOVERED_WITHIN

        await run.shown(run.seen + 20)
        stage.actor("worker 2").kill()
        begun = time.monotonic()
        status, answer = await post(stage.ports[0], f"/runs/{run.story.run_id}/cancel", {})
        assert (status, time.monotonic() - begun < CLOSED_WITHIN) == (200, True), answer
        run.story.cancelled = True
        await run.over()
        assert stage.endings == {"cancelled": 1}
        assert time.monotonic() - begun < CLOSED_WITHIN + 1  # its followers know it as well


async def test_the_run_of_a_killed_worker_is_left_alone_while_the_lease_that_is_set_lasts(
    tmp_path: Path,
) -> None:
    async with staged(Place(tmp_path), "worker 1", lease=5.0) as stage:
        run = await stage.begin(steps=20)
        await run.shown(20)
        first = run.epoch
        stage.actor("worker 2").start()
        stage.actor("worker 1").kill()
        took = await until(lambda: run.epoch > first, "another worker's event")
        # The worker had extended its lease a third of it ago, or a little more on a busy machine.
        assert stage.lease / 3 < took < stage.lease + RECOVERED_WITHIN
        await run.over()


async def test_a_worker_that_was_stopped_past_its_lease_writes_nothing_more(place: Place) -> None:
    async with staged(place, "worker 1") as stage:
        run = await stage.begin(steps=15)
        await run.shown(20)
        first = run.epoch
        stage.actor("worker 2").start()
        for within in (20.0, 20.0, 120.0):
            stage.actor("worker 1").pause()
            with suppress(TimeoutError):
                await until(lambda: run.epoch > first, "another worker's event", within)
            stage.actor("worker 1").resume()
            if run.epoch > first:
                break
            # It was stopped inside a transaction of SQLite, which keeps all others out.
            await asyncio.sleep(0.01)
        assert run.epoch > first
        let_go = f" dropped run {run.story.run_id} (agent "
        await until(lambda: let_go in stage.log.read_text(), "the stale writer's refusal")
        await run.over()
        assert stage.endings == {"completed": 1}


# --- the disk ------------------------------------------------------------------------------------


@contextmanager
def small_disk() -> Iterator[Path]:
    """A file system of its own, which can be filled without harm; only root may."""
    with tempfile.TemporaryDirectory(prefix="tailrace-disk-") as folder:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder],
            check=True,
            capture_output=True,
        )
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


def can_mount() -> bool:
    with suppress(OSError, subprocess.CalledProcessError), small_disk():
        return True
    return False


class Full:
    """No space is left: whatever is written to the disk fails."""

    def __init__(self, stage: Stage) -> None:
        assert stage.place.disk is not None
        self._filler = stage.place.disk / "filler"

    def fill(self) -> None:
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        self._filler.unlink()


class Failing:
    """The disk refuses what the processes write beyond what is there."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def fill(self) -> None:
        for actor in self._stage.actors:
            actor.limit_files(self._stage.place.wal_size())

    def free(self) -> None:
        for actor in self._stage.actors:
            actor.limit_files(None)


DISKS: dict[str, Callable[[Stage], Full | Failing]] = {"failing": Failing}
if can_mount():
    DISKS["full"] = Full


@pytest.mark.parametrize("kind", DISKS)
async def test_a_disk_that_takes_nothing_is_an_error_and_leaves_no_hole(
    kind: str, tmp_path: Path
) -> None:
    with small_disk() if kind == "full" else nullcontext() as folder:
        # The servers work themselves: what a writer publishes is shown there at once.
        async with staged(Place(tmp_path, disk=folder)) as stage:
            disk = DISKS[kind](stage)
            run = await stage.begin(steps=30)
            await run.shown(20)

            disk.fill()
            await refused(stage)
            await readers_go_on(run)
            await until(lambda: "the store is away: " in stage.log.read_text(), "its failure")
            assert not run.is_over
            disk.free()
            before = run.seen
            await run.shown(before + 20)  # the same processes go on

            disk.fill()
            await refused(stage)
            assert not run.is_over
            for actor in stage.actors:
                actor.kill()
            disk.free()
            for actor in stage.actors:
                actor.start()
            await run.over()  # others go on from what is on the disk
            await (await stage.begin(steps=2)).over()
            assert stage.endings == {"completed": 2}


async def refused(stage: Stage) -> None:
    """No client can start a run; the answer comes soon and says why."""
    assert "disk" in await refusal(stage.ports[0])


async def refusal(port: int) -> str:
    """What a server says that cannot write."""
    begun = time.monotonic()
    status, answer = await post(port, "/runs", {"agent": "again", "input": {"steps": 1}})
    assert status == 503, answer
    assert answer["error"]["code"] in ("storage_busy", "storage_full")
    assert time.monotonic() - begun < REFUSED_WITHIN
    return str(answer["error"]["message"])


async def readers_go_on(run: Watched) -> None:
    """A client that comes now gets all that there is."""
    there = max(len(one.seen.shown) for one in run.followers)
    late = run.follow()
    await until(lambda: len(late.seen.shown) >= there, "what is in the log")


# --- Redis and PostgreSQL ------------------------------------------------------------------------


async def test_without_redis_for_good_only_latency_suffers(
    tmp_path: Path, postgres: Postgres, redis: Redis
) -> None:
    async with staged(Place(tmp_path, postgres, redis), "worker 1", "worker 2") as stage:
        runs = [await stage.begin(steps=15) for _ in range(4)]
        for run in runs:
            await run.shown(10)
        await asyncio.to_thread(redis.stop)
        assert not any(run.is_over for run in runs)

        begun = time.monotonic()
        late = await stage.begin(steps=5)
        await late.shown(4)
        # The worker's look for runs, the follower's for events, and what both of them take.
        assert time.monotonic() - begun < 3 * SLOWER
        stage.actor("worker 1").kill()  # and it does not come back: it would not find Redis
        for run in (*runs, late):
            await run.over()
        assert stage.endings == {"completed": 5}


@pytest.mark.parametrize("lease", [1.0, 20.0])
async def test_runs_wait_for_a_postgres_that_stays_down_and_requests_do_not(
    tmp_path: Path, postgres: Postgres, redis: Redis, lease: float
) -> None:
    """With a long lease the same writer goes on; with a short one, maybe another does."""
    place = Place(tmp_path, postgres, redis)
    async with staged(place, "worker 1", "worker 2", lease=lease) as stage:
        runs = [await stage.begin(steps=10) for _ in range(3)]
        for run in runs:
            await run.shown(10)
        epochs = [run.epoch for run in runs]
        await asyncio.to_thread(postgres.stop)
        assert not any(run.is_over for run in runs)
        await asyncio.gather(*map(refusal, stage.ports))
        await asyncio.to_thread(postgres.start)

        for run in (*runs, await stage.begin(steps=1)):
            await run.over()
        assert stage.endings == {"completed": 4}
        if lease > 10:
            assert [run.epoch for run in runs] == epochs


def test_as_root_the_disk_is_really_full() -> None:
    """Else a test that was left out would look as if it had passed."""
    assert ("full" in DISKS) or os.geteuid() != 0
