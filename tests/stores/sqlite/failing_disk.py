"""A process whose disk refuses writes for a while: what it must live through.

python -m tests.stores.sqlite.failing_disk FILE
"""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path

from tailrace.core.errors import StorageError
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.store_kit.setup import batch, created, numbers, written


async def main(path: Path) -> None:
    store = await SqliteStore.open(path)
    await created(store, "r")
    await written(store, batch("r", 2, 2))
    wal = path.with_name(path.name + "-wal")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size + 5_000, hard))
    failed = 0
    for _ in range(3):
        try:
            await store.append([batch("r", 4, 1, text="x" * 100_000)])
        except StorageError as error:
            failed += "disk" in str(error)
        assert await numbers(store, "r") == [1, 2, 3]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await written(store, batch("r", 4, 1, text="x" * 100_000), batch("r", 5))
    assert await numbers(store, "r") == [1, 2, 3, 4, 5]
    await store.close()
    print("failed", failed)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
