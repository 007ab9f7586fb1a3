"""Tests that every store passes: the promises of `tailrace.ports`.

    class TestMyStore(EventLogKit):
        @pytest.fixture
        def opener(self, tmp_path: Path) -> OpenStore:
            return lambda: MyStore.open(tmp_path / "place")

`opener` opens the store of a test. The store is empty at first; later calls open the same store.
Async tests need a plugin; with anyio's, set `anyio_mode = "auto"`.

* `durable = False` for a store that is gone when it is closed, and that cannot be opened twice.
* `wait` lets leases end: override it if the store takes a clock.
"""

from __future__ import annotations

import inspect
from typing import Any

from tailrace.ports.store import OpenStore
from tailrace.testing.store_kit.blobs import BlobTests
from tailrace.testing.store_kit.inbox import LetterTests
from tailrace.testing.store_kit.log import AppendTests, ReadTests
from tailrace.testing.store_kit.parking import ParkTests
from tailrace.testing.store_kit.queue import ClaimTests
from tailrace.testing.store_kit.retention import RetentionTests

__all__ = ["EventLogKit", "OpenStore"]


class EventLogKit(
    AppendTests, ReadTests, RetentionTests, ClaimTests, ParkTests, LetterTests, BlobTests
):
    """Everything that a `Store` promises: its log, its queue, its inbox, its blobs."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.durable:
            return
        # A store that cannot be opened again has no such tests: a skip would look like a failure.
        for name in dir(cls):
            if name.startswith("test_"):
                wanted = inspect.signature(getattr(cls, name)).parameters
                if "second" in wanted or "opener" in wanted:
                    setattr(cls, name, None)
