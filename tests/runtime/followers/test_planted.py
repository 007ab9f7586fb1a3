"""The follow kit finds what is wrong: each of these mistakes, planted into the runtime.

Every one of them is met by a test of the kit that forces the situation in which it shows, so it is
found at once and on any machine. The same test passes without it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tailrace.buses.local import LocalBus
from tailrace.core.codec import decode_event
from tailrace.core.errors import TailraceError
from tailrace.core.events import Recorded
from tailrace.core.log_lines import LogLines
from tailrace.ports import Batch, Bus, Store, Trimmed
from tailrace.runtime.event_log.offload import FrameRange, LogRead
from tailrace.runtime.event_log.pipeline import Pipeline
from tailrace.runtime.followers import tail
from tailrace.runtime.followers.fanout import FrameRing, Stream
from tailrace.runtime.followers.follow import Reader
from tailrace.runtime.followers.tail import Tail
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.follow_kit import FollowKit

FOUND = (AssertionError, TimeoutError, TailraceError)
"""How a mistake shows."""

WITHIN = 2.0
"""Seconds for a test of the kit with a mistake: what never comes is not waited for any longer."""

PATIENCE = 60.0
"""Seconds for a test of the kit without mistakes."""

real_init, real_follow, real_feed = Reader.__init__, Reader.follow, Tail.feed
real_lines, real_history, real_may_share = Stream._lines, Stream._history, Stream._may_share
real_next = Stream.next


def takes_repeats(self: Tail, events: list[Recorded]) -> bool:
    """Whatever the bus brings is passed on."""
    if self.last >= 0:
        for one in events:
            self._ring.append(one)
            self.last = max(self.last, one.event.sequence_number)
        self.wake()
    return True


def takes_holes(self: Tail, events: list[Recorded]) -> bool:
    """What is newer is passed on, whether or not it joins."""
    if self.last < 0:
        return real_feed(self, events)
    for one in events:
        if one.event.sequence_number > self.last:
            self._ring.append(one)
            self.last = one.event.sequence_number
    self.wake()
    return True


def trusts_the_bus(self: Reader, log: Any, bus: Bus, _: float | None = None) -> None:
    """The store is never asked."""
    real_init(self, log, bus, 1e6)


def believes_a_drop(self: Tail) -> Awaitable[None]:
    """A hole is not filled: the next event will come."""
    return asyncio.sleep(0)


def starts_one_late(self: Reader, run_id: str, after: Any = 0) -> Any:
    return real_follow(self, run_id, after + 1)


def starts_one_early(self: Reader, run_id: str, after: Any = 0) -> Any:
    return real_follow(self, run_id, max(after - 1, 0))


async def publishes_first(
    self: Pipeline, batches: list[Batch]
) -> tuple[list[Exception | None], bool]:
    """Before it is durable, and so also what is refused."""
    for one in batches:
        events = [Recorded(decode_event(raw), raw, one.epoch) for raw in one.publics]
        self._bus.publish(one.run_id, events)
    return await self._log.append(batches), False


async def shares_a_gap(self: Tail) -> None:
    """All followers of the run here get a gap."""
    raise Trimmed("gone")


def passes_anything(self: Stream, piece: FrameRange) -> bytes:
    """A piece is sent wherever it begins."""
    self.seen = piece.last
    return piece.frames


async def takes_any_read_ahead(self: Stream) -> LogRead[LogLines]:
    """Lines that were read ahead are used wherever the reader is now."""
    if self._ahead is not None:
        self._ahead = self._ahead._replace(after=self.seen)
    return await real_lines(self)


def keeps_read_ahead(self: Stream) -> None:
    """Lines that were read ahead are kept while the reader takes other events."""


async def takes_lines_first(self: Stream, tail: Tail) -> FrameRange | None:
    """Lines are read although fetched events are still to be sent."""
    fetched: Sequence[Recorded] = ()
    if self._wire.name == "task" and tail.since(self.seen) is None:
        fetched, self._fetched = self._fetched, ()
    try:
        return await real_history(self, tail)
    finally:
        self._fetched = fetched or self._fetched


def keeps_the_encoder_it_gave(self: Stream, tail: Tail, shared: FrameRing) -> bool:
    """A reader that the ring does not reach encodes with the ring's encoder."""
    own = self._encoder
    may_share = real_may_share(self, tail, shared)
    if not may_share:
        self._encoder = own
    return may_share


async def ends_with_its_run(self: Stream, *, wait: bool = True) -> bytes | None:
    """A reader of shared frames ends after the next piece as soon as the run has ended."""
    frames = await real_next(self, wait=wait)
    if self._encoder is None and self._tail is not None and self._tail.ended:
        self._ended = True
    return frames


STALLS = "test_a_reader_that_stalls_at_any_step_receives_each_event_once"
EVERY_CURSOR = "test_every_cursor_gets_the_rest_once_while_the_run_is_written"
PLANTED: dict[str, tuple[type, str, Callable[..., Any], str]] = {
    "repeats": (
        Tail,
        "feed",
        takes_repeats,
        "test_what_the_bus_repeats_is_shown_once_to_the_quick_and_to_the_slow",
    ),
    "takes holes": (
        Tail,
        "feed",
        takes_holes,
        "test_a_hole_is_filled_when_it_is_seen_and_not_at_the_next_poll",
    ),
    "trusts the bus": (
        Reader,
        "__init__",
        trusts_the_bus,
        "test_what_was_never_published_still_arrives_within_a_second",
    ),
    "believes a drop": (
        Tail,
        "catch_up",
        believes_a_drop,
        "test_a_hole_is_filled_when_it_is_seen_and_not_at_the_next_poll",
    ),
    "one late": (Reader, "follow", starts_one_late, EVERY_CURSOR),
    "one early": (Reader, "follow", starts_one_early, EVERY_CURSOR),
    "publishes first": (
        Pipeline,
        "_append",
        publishes_first,
        "test_the_bytes_of_a_stale_writer_never_appear",
    ),
    "shares a gap": (
        Tail,
        "_skip_to_end",
        shares_a_gap,
        "test_the_gap_of_one_follower_does_not_reach_another",
    ),
}


STALLED: dict[str, tuple[bool, dict[str, Callable[..., Any]]]] = {
    # name: (whether each reader is alone in its process, what is planted in `Stream`)
    "any read-ahead": (False, {"_lines": takes_any_read_ahead, "_drop_ahead": keeps_read_ahead}),
    "lines first": (False, {"_history": takes_lines_first}),
    "keeps the encoder": (True, {"_may_share": keeps_the_encoder_it_gave}),
    "ends with its run": (False, {"next": ends_with_its_run}),
}
"""Mistakes by which a reader that stalls is sent wrong frames, unless `_pass` stops them."""


async def try_it(path: Path, name: str, within: float = WITHIN, **more: Any) -> None:
    """One test of the kit, over SQLite and the bus inside the process."""
    stores: list[SqliteStore] = []
    bus = LocalBus()

    async def open_store() -> Store:
        stores.append(await SqliteStore.open(path))
        return stores[-1]

    async def open_bus() -> Bus:
        return bus

    test = getattr(FollowKit(), name)
    given = {
        "store": await open_store(),
        "bus": bus,
        "open_store": open_store,
        "open_bus": open_bus,
        **more,
    }
    wanted = inspect.signature(test).parameters
    try:
        async with asyncio.timeout(within):
            await test(**{name: given[name] for name in wanted})
    finally:
        for store in stores:
            await store.close()


@pytest.mark.parametrize("bug", PLANTED)
async def test_a_planted_mistake_is_found(
    bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, name, mistake, test = PLANTED[bug]
    await try_it(tmp_path / "well.db", test, within=PATIENCE)
    monkeypatch.setattr(where, name, mistake)
    with pytest.raises(FOUND):
        await try_it(tmp_path / "broken.db", test)


@pytest.mark.parametrize("mistake", STALLED)
async def test_a_stream_that_sends_events_twice_or_not_at_all_is_found(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, planted = STALLED[mistake]
    given = {"monkeypatch": monkeypatch, "alone": alone}
    monkeypatch.setattr(Stream, "_pass", passes_anything)
    monkeypatch.setattr(tail, "BEAT_SECONDS", 0.2)  # a reader that misses events waits for it
    await try_it(tmp_path / "well.db", STALLS, within=PATIENCE, **given)
    for name, value in planted.items():
        monkeypatch.setattr(Stream, name, value)
    with pytest.raises(AssertionError):
        await try_it(tmp_path / "broken.db", STALLS, within=PATIENCE, **given)
