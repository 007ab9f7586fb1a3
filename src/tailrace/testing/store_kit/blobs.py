"""The store kit: blobs."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from tailrace.core.errors import NotFound
from tailrace.ports import Store
from tailrace.testing.store_kit.setup import StoreTests, created, ended, public

NOW = -1.0
"""Collect unused blobs at once: an age below zero works with a clock of any resolution."""


class BlobTests(StoreTests):
    """Large content."""

    @pytest.mark.parametrize("size", [0, 1, 5_000_000])
    async def test_a_blob_is_found_by_its_hash(self, store: Store, size: int) -> None:
        data = bytes(range(256)) * (size // 256 + 1)
        data = data[:size]
        digest = await store.put_blob(data, "image/png")
        assert digest == hashlib.sha256(data).hexdigest()
        assert await store.blob(digest) == (data, "image/png")

    async def test_the_same_bytes_are_kept_once(self, store: Store) -> None:
        digests = await asyncio.gather(*(store.put_blob(b"x", "text/plain") for _ in range(20)))
        assert len(set(digests)) == 1
        assert await store.blob(digests[0]) == (b"x", "text/plain")

    async def test_a_blob_stays_as_long_as_a_run_that_uses_it(self, store: Store) -> None:
        for run_id in ("one", "two"):
            await ended(store, run_id)
        digest = await store.put_blob(b"x", "text/plain", "one")
        assert await store.put_blob(b"x", "text/plain", "two") == digest
        await store.put_blob(b"x", "text/plain")
        await store.trim("one", b"final")
        assert await store.collect_blobs(NOW) == 0
        await store.delete("one")
        assert await store.collect_blobs(NOW) == 0
        await store.delete("two")
        assert await store.collect_blobs(3600) == 0
        assert await store.blob(digest) == (b"x", "text/plain")
        assert await store.collect_blobs(NOW) == 1
        assert await store.blob(digest) is None
        assert await store.collect_blobs(NOW) == 0

    async def test_a_blob_is_found_by_the_owners_of_the_runs_that_use_it(
        self, store: Store
    ) -> None:
        for owner in ("her", "him"):
            await created(store, owner, owner=owner)
        digest = await store.put_blob(b"x", "text/plain", "her")
        assert await store.blob(digest, owner="her") == (b"x", "text/plain")
        assert await store.blob(digest, owner="him") is None
        assert await store.blob(digest, owner="") is None
        await store.put_blob(b"x", "text/plain", "him")
        assert await store.blob(digest, owner="him") == (b"x", "text/plain")

    async def test_a_blob_that_was_put_waits_for_the_run_that_will_use_it(
        self, store: Store
    ) -> None:
        used, unused = [await store.put_blob(data, "text/plain") for data in (b"1", b"2")]
        await created(store, "r")
        assert await store.collect_blobs(3600) == 0
        for _ in range(2):  # a second use changes nothing
            assert await store.put_blob(b"1", "text/plain", "r") == used
        assert await store.collect_blobs(NOW) == 1
        assert await store.blob(used) is not None
        assert await store.blob(unused) is None

    async def test_a_blob_that_was_collected_can_be_put_again(self, store: Store) -> None:
        await created(store, "r")
        await store.put_blob(b"x", "text/plain")
        assert await store.collect_blobs(NOW) == 1
        digest = await store.put_blob(b"x", "text/plain", "r")
        assert await store.collect_blobs(NOW) == 0
        assert await store.blob(digest) == (b"x", "text/plain")

    async def test_a_run_that_is_not_there_uses_nothing(self, store: Store) -> None:
        await store.put_blob(b"x", "text/plain")
        with pytest.raises(NotFound):
            await store.put_blob(b"x", "text/plain", "missing")
        assert await store.collect_blobs(NOW) == 1

    async def test_some_blobs_are_collected_at_a_time(self, store: Store) -> None:
        for number in range(5):
            await store.put_blob(b"%d" % number, "text/plain")
        assert [await store.collect_blobs(NOW, 2) for _ in range(4)] == [2, 2, 1, 0]

    async def test_collecting_never_takes_what_a_run_just_got(
        self, store: Store, second: Store
    ) -> None:
        """Users come and go on one side while the other side collects all the time."""
        digest = hashlib.sha256(b"x").hexdigest()

        async def come_and_go(number: int) -> None:
            for turn in range(8):
                run_id = f"run {number} {turn}"
                await ended(store, run_id, thread_id=run_id)
                await store.put_blob(b"x", "text/plain", run_id)
                assert await second.blob(digest) == (b"x", "text/plain")
                await asyncio.sleep(0)
                assert await second.put_blob(b"x", "text/plain", run_id) == digest
                await (store, second)[turn % 2].delete(run_id)

        async def collect() -> None:
            while True:
                await second.collect_blobs(NOW)
                await asyncio.sleep(0)  # a store in memory may never suspend

        collector = asyncio.ensure_future(collect())
        await asyncio.gather(*(come_and_go(number) for number in range(6)))
        collector.cancel()
        await asyncio.gather(collector, return_exceptions=True)
        await second.collect_blobs(NOW)
        assert await store.blob(digest) is None

    async def test_there_is_no_blob_that_was_not_put(self, store: Store) -> None:
        await store.put_blob(b"x", "text/plain")
        for digest in ("", "0" * 64, public("r", 1).decode()):
            assert await store.blob(digest) is None
