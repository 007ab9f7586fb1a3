"""The kit that every store passes: the promises of `tailrace.ports`, as tests.

    class TestMyStore(EventLogKit):
        @pytest.fixture
        def opener(self, tmp_path: Path) -> Opener:
            return lambda: MyStore.open(tmp_path / "place")

`opener` opens the one store of a test: an empty one at first, and the same one whenever it is
called again. Async tests need a plugin; with anyio's, set `anyio_mode = "auto"`.

* `durable = False` for a store that is gone when it is closed, and that cannot be opened twice.
* `wait` lets leases end: override it where the store's clock is handed in.
"""

from __future__ import annotations

import inspect
from typing import Any

from tailrace.testing._store import Opener
from tailrace.testing._store_blobs import BlobTests
from tailrace.testing._store_log import AppendTests, ReadTests
from tailrace.testing._store_park import ParkTests
from tailrace.testing._store_rest import ClaimTests, KeepingTests, LetterTests

__all__ = ["EventLogKit", "Opener"]


class EventLogKit(
    AppendTests, ReadTests, KeepingTests, ClaimTests, ParkTests, LetterTests, BlobTests
):
    """Everything that a `Store` promises: its log, its queue, its inbox, its blobs."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.durable:
            return
        # What cannot be opened again has no such tests; a skipped one would look like a failure.
        for name in dir(cls):
            if name.startswith("test_"):
                wanted = inspect.signature(getattr(cls, name)).parameters
                if "second" in wanted or "opener" in wanted:
                    setattr(cls, name, None)
