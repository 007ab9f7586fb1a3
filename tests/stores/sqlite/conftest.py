"""A file, and a store on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tailrace.stores.sqlite import connections
from tailrace.stores.sqlite.store import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    made = await SqliteStore.open(path)
    yield made
    await made.close()


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that waits long for a CPU would find the disk slow, and leave its jobs to threads."""
    monkeypatch.setattr(connections, "SLOW_SECONDS", 3600.0)
