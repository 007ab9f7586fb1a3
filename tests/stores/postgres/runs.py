"""Runs and events for the tests of PostgreSQL."""

from __future__ import annotations

from typing import Any

from tailrace.core.codec import encode_event
from tailrace.core.events import Notice, TaskCreated, recorded
from tailrace.ports import Batch, NewRun, RunInfo
from tailrace.stores.postgres.store import PostgresStore

LEASE = 60.0


DEADLINE = 60.0


def event(run_id: str, seq: int, text: str = "") -> bytes:
    made = (
        TaskCreated(task_id=run_id) if seq == 1 else Notice(task_id=run_id, message=f"{text}{seq}")
    )
    return encode_event(recorded(made, seq))


def new(run_id: str, thread_id: str = "t", **more: Any) -> NewRun:
    return NewRun(run_id=run_id, agent="a", thread_id=thread_id, public=event(run_id, 1), **more)


def batch(run_id: str, first: int, count: int = 1, **more: Any) -> Batch:
    fields: dict[str, Any] = {"epoch": 1, "privates": [b""] * count} | more
    publics = [event(run_id, seq) for seq in range(first, first + count)]
    return Batch(run_id=run_id, first_seq=first, publics=publics, **fields)


async def made(store: PostgresStore, run: NewRun) -> RunInfo:
    info = await store.create(run)
    assert info is not None
    return info


async def whole(store: PostgresStore, run_id: str) -> list[bytes]:
    """All events, in pages, checked to be 1..n."""
    publics: list[bytes] = []
    while events := await store.read(run_id, len(publics), 50):
        for one in events:
            publics.append(one.public)
            assert one.event.sequence_number == len(publics)
    return publics
