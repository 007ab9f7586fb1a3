"""A process that writes a run into a file, one batch after another, and says what was answered.

python -m tests.stores.sqlite.writer FILE RUN COUNT
"""

from __future__ import annotations

import asyncio
import sys

from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.store_kit.setup import batch, new_run


async def main(path: str, run_id: str, count: int) -> None:
    store = await SqliteStore.open(path)
    await store.create(new_run(run_id))
    claim = await store.take_over(run_id, "writer", 60)
    assert claim is not None
    seq = claim.last_seq
    for _ in range(count):
        (answer,) = await store.append([batch(run_id, seq + 1, 3, epoch=claim.epoch, private=b"p")])
        assert answer is None, answer
        seq += 3
        print(seq, flush=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
