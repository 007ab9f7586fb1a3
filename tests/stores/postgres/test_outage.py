"""The server crashes, stays away, or its answer is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from tailrace.core.errors import (
    StorageBusy,
    StorageError,
)
from tailrace.ports import RunInfo
from tailrace.stores.postgres.store import PostgresStore
from tailrace.testing.waiting import until
from tests.services import Postgres
from tests.stores.postgres.runs import LEASE, batch, event, made, new, whole


async def test_a_server_that_crashes_during_appends_loses_and_repeats_nothing(
    store: PostgresStore, other: PostgresStore, postgres: Postgres
) -> None:
    runs = [f"r{n}" for n in range(4)]
    for run_id in runs:
        await made(store, new(run_id))
    acknowledged = dict.fromkeys(runs, 1)
    shown: dict[str, list[bytes]] = {run_id: [] for run_id in runs}
    posted: list[bytes] = []
    stop, progress = asyncio.Event(), asyncio.Event()

    async def write(writer: PostgresStore, mine: list[str]) -> None:
        while not stop.is_set():
            group = [batch(run_id, acknowledged[run_id] + 1, 3) for run_id in mine]
            assert await writer.append(group) == [None] * len(group)
            for run_id in mine:
                acknowledged[run_id] += 3
            progress.set()

    async def read() -> None:
        while not stop.is_set():
            for run_id in runs:
                shown[run_id] += [
                    one.public for one in await other.read(run_id, len(shown[run_id]))
                ]

    async def post() -> None:
        while not stop.is_set():
            body = b"letter %d" % len(posted)
            posted.append(body)
            assert await other.post("r0", "input", body) == len(posted)

    async def create() -> int:
        count = 0
        while not stop.is_set():
            count += 1
            assert (await made(other, new(f"made {count}", "crowd"))).ordinal == count
        return count

    async def more() -> None:
        target = acknowledged["r0"] + 60
        while acknowledged["r0"] < target:
            progress.clear()
            await progress.wait()

    async def crash() -> None:
        for _ in range(4):
            await more()
            await asyncio.to_thread(postgres.restart, "immediate")
        await more()
        stop.set()

    async with asyncio.timeout(120):
        *_, count = await asyncio.gather(
            crash(), write(store, runs[:2]), write(other, runs[2:]), read(), post(), create()
        )
    for run_id in runs:
        log = await whole(store, run_id)
        assert log == [event(run_id, seq) for seq in range(1, acknowledged[run_id] + 1)]
        assert shown[run_id] == log[: len(shown[run_id])]
    assert [letter.body for letter in (await store.letters(["r0"]))["r0"]] == posted
    assert len(await store.thread_runs("crowd", limit=10**6)) == count


COMMITTED = b"Z\0\0\0\5I"
"""The protocol's `ReadyForQuery`, with no transaction open: what was asked for is done."""


class Cutter:
    """Stands between a store and the server, and can lose an answer: the work is done, unheard."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.port is not None
        self._target = parts.port
        self.lose = False
        self.lost = 0
        self._parts = parts
        self._tasks: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        yield self._parts._replace(netloc=f"postgres@127.0.0.1:{port}").geturl()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await asyncio.wait(
                [
                    asyncio.create_task(self._pass(reader, back, False)),
                    asyncio.create_task(self._pass(there, writer, True)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            writer.close()
            back.close()

    async def _pass(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, answers: bool
    ) -> None:
        while data := await source.read(65536):
            if answers and self.lose and data.endswith(COMMITTED):
                self.lose = False
                self.lost += 1
                return
            target.write(data)
            await target.drain()


@pytest.fixture
async def cut(
    postgres_url: str, store: PostgresStore
) -> AsyncIterator[tuple[Cutter, PostgresStore]]:
    cutter = Cutter(postgres_url)
    async with cutter.listening() as url:
        opened = await PostgresStore.open(url, connections=1)
        yield cutter, opened
        await opened.close()


async def test_a_call_whose_answer_was_lost_is_not_done_twice(
    cut: tuple[Cutter, PostgresStore], store: PostgresStore
) -> None:
    cutter, unlucky = cut

    async def losing(work: Awaitable[Any]) -> Any:
        cutter.lose, cutter.lost = True, 0
        result = await work
        assert cutter.lost == 1
        return result

    await made(unlucky, new("r1"))
    created: RunInfo = await losing(unlucky.create(new("r2")))
    assert created.ordinal == 2
    assert await store.create(new("r2")) is None

    assert await unlucky.append([batch("r2", 2)]) == [None]
    assert await losing(unlucky.append([batch("r2", 3, 2), batch("r1", 2)])) == [None, None]
    assert len(await whole(store, "r2")) == 4

    # Two batches of one run are two statements and a commit, whose answer is lost.
    assert await losing(unlucky.append([batch("r2", 5), batch("r2", 6)])) == [None, None]
    assert len(await whole(store, "r2")) == 6

    (first,) = await unlucky.claim("w", ["a"], LEASE)
    (second,) = await losing(unlucky.claim("w", ["a"], LEASE))
    assert (first.run_id, second.run_id, second.epoch, second.attempt) == ("r1", "r2", 2, 1)

    taken = await losing(unlucky.take_over("r2", "v", LEASE))
    assert (taken.epoch, taken.attempt) == (3, 2)

    assert await unlucky.post("r2", "cancel", b"1") == 1
    assert await losing(unlucky.post("r2", "input", b"2")) == 2
    assert [one.body for one in (await store.letters(["r2"]))["r2"]] == [b"1", b"2"]

    assert await losing(unlucky.delete("r1"))
    assert not await unlucky.delete("r1")


async def test_a_claim_that_lost_its_connection_takes_no_run_whose_lease_ended_meanwhile(
    store: PostgresStore, outsider: Any
) -> None:
    await made(store, new("r1"))
    assert await store.claim("v", ["a"], 0.2)
    async with outsider.transaction():
        await outsider.execute("lock table runs in access exclusive mode")
        claiming = asyncio.create_task(store.claim("w", ["a"], LEASE))
        waiting = "select pid from pg_locks where relation = 'runs'::regclass and not granted"
        found = await until(lambda: outsider.fetch(waiting))
        await asyncio.sleep(0.3)  # the lease ends: that is the point
        await outsider.execute("select pg_terminate_backend($1)", found[0]["pid"])
    assert await claiming == []
    assert [claim.run_id for claim in await store.claim("w", ["a"], LEASE)] == ["r1"]


async def test_a_server_that_stays_away_is_one_typed_error_in_bounded_time(
    postgres_url: str, postgres: Postgres
) -> None:
    store = await PostgresStore.open(postgres_url, patience=0.3)
    await made(store, new("r"))
    postgres.stop()
    async with asyncio.timeout(120):
        with pytest.raises(StorageBusy, match=r"was away for 0\.3 s"):
            await store.append([batch("r", 2)])
        with pytest.raises(StorageError, match="was away"):
            await store.read("r", 0)
    postgres.start()
    assert await store.append([batch("r", 2)]) == [None]
    await store.close()
