"""The bus on a real Redis Cluster: three nodes, slots that move, a node that is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from zlib import crc32

import pytest
from redis.crc import key_slot

from tailrace.buses.redis.bus import RedisBus
from tailrace.core.errors import BusUnavailable, CallerError
from tailrace.core.events import Recorded
from tailrace.testing.bus_kit import DEADLINE, notices, until_heard
from tests.services import Redis, RedisCluster


@pytest.fixture
async def buses(redis_cluster: RedisCluster) -> AsyncIterator[tuple[RedisBus, RedisBus]]:
    one, other = [await RedisBus.open(redis_cluster.url) for _ in range(2)]
    yield one, other
    await other.close()
    await one.close()


async def test_runs_of_every_shard_are_heard_and_every_node_has_some(
    buses: tuple[RedisBus, RedisBus], redis_cluster: RedisCluster
) -> None:
    bus, other = buses
    subscriptions = {f"run_{n}": other.subscribe(f"run_{n}") for n in range(60)}
    await asyncio.gather(
        *(until_heard(bus, subscription, run) for run, subscription in subscriptions.items())
    )
    assert all(node.command("DBSIZE") != b":0" for node in redis_cluster.nodes)
    await bus.check()


async def test_a_shard_that_moves_to_another_node_is_heard_again(
    buses: tuple[RedisBus, RedisBus], redis_cluster: RedisCluster
) -> None:
    bus, other = buses
    subscription = other.subscribe("run_1")
    await until_heard(bus, subscription, "run_1")
    key = bus._keys[crc32(b"run_1") % len(bus._keys)]
    slot = key_slot(key)
    owner = redis_cluster.nodes[slot * 3 // 16384]
    to = next(node for node in redis_cluster.nodes if node is not owner)
    await asyncio.to_thread(redis_cluster.move, slot, owner, to)
    # Probes that were published before the move may still be heard; this event was not.
    got: list[Recorded] = []
    async with asyncio.timeout(DEADLINE):
        while not any(one.event.sequence_number for one in got):
            bus.publish("run_1", notices(1, 1))
            got = await subscription.get(0.02)
    assert to.command(f"EXISTS {key.decode()}") == b":1"


async def test_without_the_first_node_the_others_are_found_and_check_reports_it(
    buses: tuple[RedisBus, RedisBus], redis_cluster: RedisCluster
) -> None:
    bus, other = buses
    redis_cluster.nodes[0].stop()
    try:
        for node in redis_cluster.nodes[1:]:
            node.command("CONFIG SET cluster-require-full-coverage no")
        with pytest.raises(BusUnavailable, match="does not answer"):
            await bus.check()
        subscriptions = {f"run_{n}": other.subscribe(f"run_{n}") for n in range(60)}
        jobs = [
            asyncio.create_task(until_heard(bus, subscription, run))
            for run, subscription in subscriptions.items()
        ]
        async with asyncio.timeout(DEADLINE):
            while sum(job.done() for job in jobs) < 30:
                left = [job for job in jobs if not job.done()]
                await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await asyncio.to_thread(redis_cluster.nodes[0].start)
        await asyncio.to_thread(redis_cluster.wait)
    await asyncio.gather(*jobs)
    await bus.check()


async def test_a_url_that_does_not_fit_the_server_is_refused(
    redis_cluster: RedisCluster, redis: Redis
) -> None:
    with pytest.raises(BusUnavailable, match=r"add \?cluster=true"):
        await RedisBus.open(redis_cluster.nodes[1].url)
    with pytest.raises(BusUnavailable, match="cluster support disabled"):
        await RedisBus.open(f"{redis.url}?cluster=true")
    with pytest.raises(CallerError, match="cannot have the mirror"):
        await RedisBus.open(f"{redis_cluster.url}&mirror=true")
    with pytest.raises(CallerError, match="invalid cluster option"):
        await RedisBus.open(f"{redis.url}?cluster=maybe")
