"""The bus between processes, on a real Redis that is killed, restarted, flushed and taken away."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis as Client

from tailrace.buses import mirror_of, open_bus
from tailrace.buses.redis import connections, reader, writer
from tailrace.buses.redis.bus import RedisBus
from tailrace.core.errors import BusUnavailable, CallerError
from tailrace.ports import Bus
from tailrace.testing.bus_kit import DEADLINE, RUN, ServerBusKit, heard, notices, until_heard
from tailrace.testing.waiting import until
from tests.services import Redis


@pytest.fixture
async def client(redis: Redis) -> AsyncIterator[Any]:
    """An outsider with a connection of its own."""
    async with Client.from_url(redis.url) as made:
        yield made


@pytest.fixture
async def buses(redis: Redis) -> AsyncIterator[tuple[RedisBus, RedisBus]]:
    one, other = await RedisBus.open(redis.url), await RedisBus.open(redis.url)
    yield one, other
    await other.close()
    await one.close()


class TestRedisBus(ServerBusKit):
    server: Redis

    @pytest.fixture(autouse=True)
    def _server(self, redis: Redis) -> None:
        self.server = redis

    async def make(self) -> Bus:
        return await RedisBus.open(self.server.url)

    async def make_other(self, bus: Bus) -> Bus:
        return await self.make()

    async def stop_server(self) -> None:
        await asyncio.to_thread(self.server.stop)

    async def start_server(self) -> None:
        await asyncio.to_thread(self.server.start)

    async def flush_server(self) -> None:
        await asyncio.to_thread(self.server.flush)

    async def trim_server(self) -> None:
        async with Client.from_url(self.server.url) as client:
            for key in await client.keys("tailrace:bus:*"):
                if await client.type(key) == b"stream":
                    await client.xtrim(key, maxlen=0, approximate=False)

    async def on_the_server(self) -> bytes:
        async with Client.from_url(self.server.url) as client:
            kept = [await client.dump(key) for key in await client.keys("*")]
            streams = [
                await client.xrange(key)
                for key in await client.keys("*")
                if await client.type(key) == b"stream"
            ]
        return repr((kept, streams)).encode()


async def sent(bus: RedisBus) -> None:
    async with asyncio.timeout(DEADLINE):
        await bus._lanes[0].writer.sent()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """After each failure, how many there were before it; the bus tries again soon."""
    found: list[int] = []

    def pause(failures: int) -> float:
        found.append(failures)
        return 0.0005

    monkeypatch.setattr(reader, "pause", pause)
    monkeypatch.setattr(writer, "pause", pause)
    return found


async def test_what_was_published_together_is_one_entry_with_the_public_bytes(
    buses: tuple[RedisBus, RedisBus], client: Any
) -> None:
    events = notices(7, 106)
    buses[0].publish(RUN, events)
    await sent(buses[0])
    (key,) = await client.keys("tailrace:bus:*")
    ((_, fields),) = await client.xrange(key)
    assert fields[b"events"] == b"\n".join(one.public for one in events)
    assert (fields[b"run"], fields[b"seq"], fields[b"epoch"]) == (RUN.encode(), b"7", b"3")


async def test_runs_share_a_fixed_number_of_streams_that_are_trimmed(
    redis: Redis, client: Any
) -> None:
    bus = await RedisBus.open(redis.url, prefix="x", shards=4, max_entries=100)
    for n in range(40):
        for _ in range(50):
            bus.publish(f"run_{n}", notices(1, 1))
    await sent(bus)
    keys = await client.keys("*")
    assert sorted(keys) == [f"x:bus:{n}".encode() for n in range(4)]
    # Trimming is approximate: whole nodes of a hundred entries go.
    assert max([await client.xlen(key) for key in keys]) <= 200
    await bus.close()


async def test_one_connection_waits_however_many_runs_are_followed(
    buses: tuple[RedisBus, RedisBus], client: Any
) -> None:
    bus, other = buses
    subscriptions = [other.subscribe(f"run_{n}") for n in range(500)]
    for n in (0, 250, 499):
        await until_heard(bus, subscriptions[n], f"run_{n}")
    assert len(await client.client_list()) <= 1 + 2 + 2
    blocked = await client.info("clients")
    assert blocked["blocked_clients"] <= 1


async def test_without_readers_no_connection_waits(
    buses: tuple[RedisBus, RedisBus], client: Any
) -> None:
    bus, other = buses
    subscription = other.subscribe(RUN)
    await until_heard(bus, subscription)
    subscription.close()
    async with asyncio.timeout(DEADLINE):
        while len(await client.client_list()) > 1 + 2:
            pass
    subscription = other.subscribe(RUN)
    await until_heard(bus, subscription)


async def test_listening_to_one_more_shard_does_not_wait_for_the_read_to_end(
    buses: tuple[RedisBus, RedisBus], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "BLOCK_SECONDS", 4 * DEADLINE)
    bus, other = buses
    for n in range(40):
        await until_heard(bus, other.subscribe(f"run_{n}"), f"run_{n}")


async def read_far_ahead(bus: RedisBus, subscription: Any, client: Any) -> Any:
    """Let the reader stand behind an id that no clock has reached; the key of its stream.

    New ids of that stream, once it is empty, are smaller than the place of the reader.
    """
    await until_heard(bus, subscription)
    (key,) = [one for one in await client.keys("tailrace:bus:*") if one[-1:].isdigit()]
    await client.xadd(key, {"run": RUN, "events": ""}, id="9999999999999-1")
    bus.publish(RUN, notices(1, 1))
    await heard(subscription, 1)
    return key


async def test_a_flushed_server_whose_ids_begin_anew_is_heard_again(
    buses: tuple[RedisBus, RedisBus], client: Any, redis: Redis
) -> None:
    bus, other = buses
    subscription = other.subscribe(RUN)
    key = await read_far_ahead(bus, subscription, client)
    await client.flushall()
    bus.publish(RUN, notices(2, 2))
    await sent(bus)
    assert await client.xlen(key)
    await until_heard(bus, subscription)


async def test_a_stream_that_was_deleted_is_heard_again(
    buses: tuple[RedisBus, RedisBus], client: Any
) -> None:
    bus, other = buses
    subscription = other.subscribe(RUN)
    key = await read_far_ahead(bus, subscription, client)
    await client.delete(key)
    async with asyncio.timeout(DEADLINE):
        while await subscription.get(10 * DEADLINE):
            pass
    bus.publish(RUN, notices(2, 2))
    assert (await heard(subscription, 2))[-1:] == notices(2, 2)


async def test_a_reader_that_was_overtaken_by_trimming_learns_of_it(
    redis: Redis, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "READ_ENTRIES", 10)
    bus = await RedisBus.open(redis.url)
    subscription = bus.subscribe(RUN)
    await until_heard(bus, subscription)
    await sent(bus)
    (key,) = [one for one in await client.keys("tailrace:bus:*") if one[-1:].isdigit()]
    async with asyncio.timeout(DEADLINE):
        while bus._lanes[0].reader._places.get(key) != (await client.xrevrange(key, count=1))[0][0]:
            pass
    while await subscription.get(0):
        pass
    # Of another run: nothing tells the reader that it missed something, except the check.
    async with client.pipeline(transaction=True) as together:
        for n in range(50):
            together.xadd(key, {"run": "x", "n": str(n)})
        together.xtrim(key, maxlen=10, approximate=False)
        await together.execute()
    async with asyncio.timeout(DEADLINE):
        while await subscription.get(10 * DEADLINE):
            pass
    await bus.close()


@pytest.mark.parametrize(
    "spoilt",
    [
        {"events": "no json"},
        {"seq": "9"},
        {"seq": "x"},
        {"epoch": ""},
        {"events": '{"type":"task.notice"}'},
        {"events": '{"type":"task.notice","task_id":"r","sequence_number":1,"message":"\udcff"}'},
    ],
)
async def test_an_entry_that_is_not_ours_sends_the_reader_to_the_log(
    buses: tuple[RedisBus, RedisBus], client: Any, spoilt: dict[str, str]
) -> None:
    bus, other = buses
    subscription = other.subscribe(RUN)
    await until_heard(bus, subscription)
    (key,) = [one for one in await client.keys("tailrace:bus:*") if one[-1:].isdigit()]
    good = {"run": RUN, "seq": "0", "epoch": "3", "events": notices(0, 0)[0].public.decode()}
    fields = {name: text.encode(errors="surrogateescape") for name, text in (good | spoilt).items()}
    await client.xadd(key, fields)
    async with asyncio.timeout(DEADLINE):
        while await subscription.get(10 * DEADLINE):
            pass
    await client.xadd(key, {"nothing": "of ours"})
    bus.publish(RUN, notices(1, 1))
    assert (await heard(subscription, 1))[-1:] == notices(1, 1)


async def test_away_and_back_are_logged_once_each_and_shown_without_any_setting(
    buses: tuple[RedisBus, RedisBus],
    redis: Redis,
    caplog: pytest.LogCaptureFixture,
    pauses: list[int],
) -> None:
    caplog.set_level(logging.WARNING, "tailrace")
    bus, other = buses
    subscriptions = [other.subscribe(f"run_{n}") for n in range(20)]
    await until_heard(bus, subscriptions[0], "run_0")
    await asyncio.to_thread(redis.stop)
    await until(lambda: len(caplog.messages) == 1)

    def has_failed_often() -> bool:
        other.publish(RUN, notices(1, 1))
        return max(pauses, default=0) > 20

    await until(has_failed_often)
    assert len(caplog.messages) == 1
    assert f"127.0.0.1:{redis.port}" in caplog.messages[0]
    await asyncio.to_thread(redis.start)
    await until_heard(other, other.subscribe(RUN))
    await until(lambda: len(caplog.messages) == 2)
    assert caplog.messages[1].endswith("is back")
    await bus.close()


async def test_what_is_published_first_after_a_restart_is_not_lost(
    redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    bus = await RedisBus.open(redis.url)
    await asyncio.to_thread(redis.restart)
    bus.publish(RUN, notices(1, 1))
    await sent(bus)
    async with Client.from_url(redis.url) as client:
        assert len(await client.keys("tailrace:bus:*")) == 1
    assert not caplog.messages
    await bus.close()


async def test_without_redis_for_good_the_bus_reconnects_more_rarely_and_keeps_nothing(
    redis: Redis, pauses: list[int]
) -> None:
    bus = await RedisBus.open(redis.url)
    subscription = bus.subscribe(RUN)
    await until_heard(bus, subscription)
    await asyncio.to_thread(redis.stop)
    for n in range(1, 100):
        bus.publish(RUN, notices(n, n))
        assert await heard(subscription, n)
    await until(lambda: max(pauses, default=0) > 20)
    assert not bus._lanes[0].writer._queue
    assert bus._lanes[0].writer._bytes == 0
    async with asyncio.timeout(120):
        await bus.close()


def test_pauses_grow_are_jittered_and_end_somewhere() -> None:
    for failures in (0, 1, 5, 10, 10_000):
        longest = min(connections.FIRST_PAUSE * 2.0 ** min(failures, 10), 2.0)
        pauses = {connections.pause(failures) for _ in range(50)}
        assert len(pauses) > 40
        assert all(longest / 2 <= one <= longest for one in pauses)


async def test_a_stalled_server_bounds_what_waits(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert redis._process is not None
    monkeypatch.setattr(writer, "MAX_QUEUED_COMMANDS", 10)
    monkeypatch.setattr(writer, "MAX_QUEUED_BYTES", 5000)
    bus = await RedisBus.open(redis.url)
    redis._process.send_signal(signal.SIGSTOP)
    for n in range(1, 200):
        bus.publish(RUN, notices(n, n, size=n))
        await asyncio.sleep(0)
        assert len(bus._lanes[0].writer._queue) <= 10
        assert 0 <= bus._lanes[0].writer._bytes <= 5000
    redis._process.send_signal(signal.SIGCONT)
    await sent(bus)
    assert bus._lanes[0].writer._bytes == 0
    await bus.close()


async def test_a_stalled_server_is_given_up_after_a_while_and_found_again(
    redis: Redis, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert redis._process is not None
    bus = await RedisBus.open(redis.url, patience=0.05)
    redis._process.send_signal(signal.SIGSTOP)
    bus.publish(RUN, notices(1, 1))
    await until(lambda: bool(caplog.messages))
    redis._process.send_signal(signal.SIGCONT)
    async with asyncio.timeout(DEADLINE):
        while not await client.keys("tailrace:bus:*"):
            bus.publish(RUN, notices(2, 2))
            await asyncio.sleep(0.01)
    await bus.close()


async def test_a_server_that_refuses_entries_is_away_until_it_takes_some(
    redis: Redis, client: Any, caplog: pytest.LogCaptureFixture, pauses: list[int]
) -> None:
    caplog.set_level(logging.INFO, "tailrace")
    bus = await RedisBus.open(redis.url)

    def was_refused_often() -> bool:
        bus.publish(RUN, notices(1, 1))
        return len(pauses) > 20

    await client.config_set("maxmemory", "1")
    try:
        await until(was_refused_often)
        assert len(caplog.messages) == 1
        assert "memory" in caplog.messages[0]
    finally:
        await client.config_set("maxmemory", "0")
    async with asyncio.timeout(DEADLINE):
        while len(caplog.messages) < 2:
            bus.publish(RUN, notices(1, 1))
            await asyncio.sleep(0.01)
    await bus.close()


async def test_what_was_published_before_closing_is_still_sent(
    buses: tuple[RedisBus, RedisBus],
) -> None:
    bus, other = buses
    subscription = other.subscribe(RUN)
    await until_heard(bus, subscription)
    bus.publish(RUN, notices(1, 3))
    await bus.close()
    assert await heard(subscription, 3) == notices(1, 3)


@pytest.mark.parametrize("end", ["", "/0", "?db=1", "?mirror=true&db=1", "?db=1&mirror=false"])
async def test_the_bus_is_chosen_by_its_url(redis: Redis, end: str) -> None:
    bus = await open_bus(f"redis://127.0.0.1:{redis.port}{end}")
    assert isinstance(bus, RedisBus)
    assert (mirror_of(bus) is not None) == ("mirror=true" in end)
    await bus.close()


async def test_the_mirror_is_asked_for_with_true_or_false() -> None:
    with pytest.raises(CallerError, match="mirror=true"):
        await open_bus("redis://localhost?mirror=maybe")


@pytest.mark.parametrize(
    "url",
    [
        "redis:localhost",
        "redis://:pa/ss@host:secret",
        "redis://localhost:999999",
        "redis://localhost?no_such_option=secret",
        "redis://localhost?socket_timeout=secret",
    ],
)
async def test_a_bad_url_is_one_sentence_without_its_secrets(url: str) -> None:
    with pytest.raises(CallerError, match=r"^Not a Redis URL. .*redis://") as caught:
        await open_bus(url)
    assert "secret" not in str(caught.value)


async def test_a_process_that_starts_while_redis_is_away_connects_later(
    redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tailrace")
    await asyncio.to_thread(redis.stop)
    early = await open_bus(redis.url)
    subscription = early.subscribe(RUN)
    early.publish(RUN, notices(1, 1))
    assert await heard(subscription, 1) == notices(1, 1)
    await asyncio.to_thread(redis.start)
    later = await open_bus(redis.url)
    await until_heard(later, subscription)
    later.publish(RUN, notices(2, 2))
    assert await heard(subscription, 2) == notices(2, 2)
    other = later.subscribe(RUN)
    await until_heard(early, other)
    assert (getattr(early, "outages", 0), getattr(later, "outages", 0)) == (1, 0)
    await early.close()
    await later.close()
    logged = [one.getMessage() for one in caplog.records if one.name == "tailrace"]
    assert [text.partition(" (")[0] for text in logged] == [
        f"Redis at redis://127.0.0.1:{redis.port} is away",
        f"Redis at redis://127.0.0.1:{redis.port} is back",
    ]


async def test_a_wrong_password_is_one_sentence(redis: Redis, client: Any) -> None:
    await client.config_set("requirepass", "right")
    try:
        with pytest.raises(BusUnavailable, match="refuses the connection"):
            await open_bus(f"redis://:secret@127.0.0.1:{redis.port}")
        bus = await open_bus(f"redis://:right@127.0.0.1:{redis.port}")
        await bus.close()
    finally:
        async with Client.from_url(f"redis://:right@127.0.0.1:{redis.port}") as owner:
            await owner.config_set("requirepass", "")


def test_without_the_driver_one_sentence_says_what_to_install() -> None:
    code = (
        "import sys, asyncio; sys.modules['redis'] = None\n"
        "from tailrace.buses import open_bus\n"
        "try: asyncio.run(open_bus('redis://localhost'))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("CallerError ")
    assert "pip install 'tailrace[redis]'" in done.stdout
