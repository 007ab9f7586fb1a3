"""The kit that every store passes with every bus: readers miss nothing, writers are fenced.

    class TestMyStoreWithMyBus(FollowKit):
        @pytest.fixture
        def open_store(self, tmp_path: Path) -> OpenStore:
            return lambda: MyStore.open(tmp_path / "place")

        @pytest.fixture
        def open_bus(self) -> OpenBus:
            return MyBus.open

Each call of an opener stands for another process: the store must be the same one, the bus may be
(then readers hear of news at once) or may not (then they look into the store).
"""

from __future__ import annotations

from tailrace.testing._follow import OpenBus, OpenStore
from tailrace.testing._follow_hints import HintTests
from tailrace.testing._follow_readers import ReaderTests
from tailrace.testing._follow_stalls import StallTests
from tailrace.testing._follow_streams import StreamTests, ThreadTests
from tailrace.testing._follow_workers import CancelTests, WorkerTests

__all__ = ["FollowKit", "OpenBus", "OpenStore"]


class FollowKit(
    ReaderTests, HintTests, StreamTests, StallTests, ThreadTests, WorkerTests, CancelTests
):
    """Everything that the runtime promises on top of a store and a bus."""
