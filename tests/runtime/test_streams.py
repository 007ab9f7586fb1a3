"""What a stream checks before it sends anything."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.buses.local import LocalBus
from tailrace.core.errors import StorageError
from tailrace.core.fold import State
from tailrace.runtime.follow import Reader
from tailrace.runtime.shared import Streams
from tailrace.stores.sqlite import SqliteLog
from tailrace.testing._follow import Counting, begun, end, write
from tailrace.wire.base import Format
from tailrace.wire.formats import FORMATS


@pytest.mark.parametrize("wire", FORMATS.values(), ids=FORMATS)
async def test_events_that_do_not_continue_after_the_last_sent_event_are_not_sent(
    wire: Format,
) -> None:
    store, bus = SqliteLog(":memory:"), LocalBus()
    emitter = await begun(store, bus)
    write(emitter, 5)
    await end(emitter)

    class Early(Counting):
        """A log that answers with events that the reader has."""

        async def read(self, run_id: str, after: int, limit: int = 10_000) -> Any:
            return await store.read(run_id, after - 1, limit)

        async def read_lines(self, run_id: str, after: int, limit: int) -> Any:
            return await store.read_lines(run_id, after - 1, limit)

    early: Any = Early(store)
    stream = Streams(Reader(early, bus)).stream(wire, "run_1", wire.at(State()), 3)
    with pytest.raises(StorageError, match="Event 3 of run run_1 does not follow event 3"):
        await stream.next()
    assert stream.seen == 3
    stream.close()
    await store.close()
