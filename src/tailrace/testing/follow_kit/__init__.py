"""Tests that every store passes with every bus: readers miss nothing, writers are fenced.

    class TestMyStoreWithMyBus(FollowKit):
        @pytest.fixture
        def open_store(self, tmp_path: Path) -> OpenStore:
            return lambda: MyStore.open(tmp_path / "place")

        @pytest.fixture
        def open_bus(self) -> OpenBus:
            return MyBus.open

Each call of an opener stands for another process. The store must be the same. The bus may be the
same, which wakes readers at once, or another, which makes readers poll the store.
"""

from __future__ import annotations

from tailrace.ports.bus import OpenBus
from tailrace.ports.store import OpenStore
from tailrace.testing.follow_kit.lossy_bus import LossyBusTests
from tailrace.testing.follow_kit.readers import ReaderTests
from tailrace.testing.follow_kit.stalls import StallTests
from tailrace.testing.follow_kit.streams import StreamTests, ThreadTests
from tailrace.testing.follow_kit.workers import CancelTests, WorkerTests

__all__ = ["FollowKit", "OpenBus", "OpenStore"]


class FollowKit(
    ReaderTests, LossyBusTests, StreamTests, StallTests, ThreadTests, WorkerTests, CancelTests
):
    """Everything that the runtime promises on top of a store and a bus."""
