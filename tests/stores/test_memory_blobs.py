"""The kit of blobs, on a store that keeps them in memory and never suspends."""

from __future__ import annotations

import hashlib
from typing import Any, cast

import pytest

from tailrace.core.errors import NotFound
from tailrace.ports import Batch, NewRun, Store
from tailrace.ports.store import OpenStore
from tailrace.testing.store_kit.blobs import BlobTests


class MemoryBlobs:
    """Runs and their blobs in dictionaries: as much of a store as this kit asks for."""

    def __init__(self) -> None:
        self.users: dict[str, set[str]] = {}
        self.owners: dict[str, str] = {}
        self.blobs: dict[str, tuple[bytes, str]] = {}

    async def create(self, run: NewRun) -> NewRun:
        self.users[run.run_id] = set()
        self.owners[run.run_id] = run.owner
        return run

    async def append(self, batches: list[Batch]) -> list[None]:
        return [None for _ in batches]

    async def trim(self, run_id: str, snapshot: bytes) -> None:
        pass

    async def delete(self, run_id: str) -> bool:
        return self.users.pop(run_id, None) is not None

    async def put_blob(self, data: bytes, mime_type: str, run_id: str | None = None) -> str:
        digest = hashlib.sha256(data).hexdigest()
        if run_id is not None:
            self._used_by(run_id).add(digest)
        self.blobs[digest] = (data, mime_type)
        return digest

    async def blob(self, sha256: str, *, owner: str | None = None) -> tuple[bytes, str] | None:
        owners = {self.owners[run] for run, used in self.users.items() if sha256 in used}
        return self.blobs.get(sha256) if owner is None or owner in owners else None

    async def collect_blobs(self, unused_for: float, limit: int = 100) -> int:
        used = set().union(*self.users.values()) if self.users else set()
        gone = [] if unused_for > 0 else [one for one in self.blobs if one not in used][:limit]
        for digest in gone:
            del self.blobs[digest]
        return len(gone)

    async def close(self) -> None:
        pass

    def _used_by(self, run_id: str) -> set[str]:
        if run_id not in self.users:
            raise NotFound(f"There is no run {run_id!r}.")
        return self.users[run_id]


class TestBlobsInMemory(BlobTests):
    """The whole kit ends on such a store, and each promise holds."""

    @pytest.fixture
    def opener(self) -> OpenStore:
        """Opens the same dictionaries each time."""
        store = MemoryBlobs()

        async def opened(*_args: Any) -> Store:
            return cast("Store", store)

        return opened
