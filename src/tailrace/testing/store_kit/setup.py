"""Shared by the store kit: the store under test, and runs for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

try:
    import pytest
except ImportError as missing:
    raise ImportError("tailrace.testing.store_kit needs pytest: `pip install pytest`") from missing

from tailrace.core.codec import encode_event
from tailrace.core.events import Notice, TaskCompleted, TaskCreated, recorded
from tailrace.ports import Batch, NewRun, RunInfo, Store
from tailrace.ports.store import OpenStore


class StoreTests:
    """The base of the kit: the hooks that a store's tests fill in."""

    durable = True
    """Whether a store that was closed, or opened a second time, still has what was in it."""

    @pytest.fixture
    def opener(self) -> OpenStore:
        """Opens the store of this test, which is empty at first; again, the same store."""
        raise NotImplementedError("Give the kit a fixture `opener`.")

    async def wait(self, seconds: float) -> None:
        """Let time pass for leases; override it if the store takes a clock."""
        await asyncio.sleep(seconds)

    @pytest.fixture
    async def store(self, opener: OpenStore) -> AsyncIterator[Store]:
        """The store to try."""
        made = await opener()
        try:
            yield made
        finally:
            await made.close()

    @pytest.fixture
    async def second(self, opener: OpenStore, store: Store) -> AsyncIterator[Store]:  # noqa: ARG002
        """The same store, opened again as another process would."""
        made = await opener()
        try:
            yield made
        finally:
            await made.close()


def new_run(run_id: str, **fields: object) -> NewRun:
    """A run to create, of agent `a` in thread `t` unless given."""
    given = {"agent": "a", "thread_id": "t", "public": public(run_id, 1)} | fields
    return NewRun(run_id=run_id, **given)  # type: ignore[arg-type]


async def created(store: Store, run_id: str, **fields: object) -> RunInfo:
    """A run that was created just now."""
    info = await store.create(new_run(run_id, **fields))
    assert info is not None
    return info


def public(run_id: str, seq: int, text: str = "", *, end: bool = False) -> bytes:
    """The JSON of a run's event of this number."""
    if seq == 1:
        return encode_event(recorded(TaskCreated(task_id=run_id), 1))
    if end:
        return encode_event(recorded(TaskCompleted(task_id=run_id), seq))
    return encode_event(recorded(Notice(task_id=run_id, message=text or f"event {seq}"), seq))


def batch(
    run_id: str,
    first: int,
    count: int = 1,
    *,
    epoch: int = 1,
    text: str = "",
    private: bytes = b"",
    ended: bool = False,
    snapshot: bytes | None = None,
) -> Batch:
    """The run's events `first` … `first + count - 1`; the same arguments give the same bytes."""
    last = first + count - 1
    return Batch(
        run_id=run_id,
        epoch=epoch,
        first_seq=first,
        publics=[
            public(run_id, seq, text, end=ended and seq == last) for seq in range(first, last + 1)
        ],
        privates=[private] * count,
        ended=ended,
        snapshot=snapshot,
    )


async def written(store: Store, *batches: Batch) -> None:
    """Append batches that have to be accepted."""
    assert await store.append(list(batches)) == [None] * len(batches)


async def ended(store: Store, run_id: str, events: int = 3, **fields: object) -> None:
    """A run that was created and ended."""
    await created(store, run_id, **fields)
    await written(store, batch(run_id, 2, events - 1, ended=True))


async def numbers(store: Store, run_id: str, after: int = 0) -> list[int]:
    """The numbers of all events after a cursor, read as a follower reads."""
    found: list[int] = []
    while True:
        events = await store.read(run_id, found[-1] if found else after)
        if not events:
            return found
        found += [stored.event.sequence_number for stored in events]
