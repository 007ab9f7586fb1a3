"""The runs of a process, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tailrace.runtime.runs.all_runs import Runs
from tailrace.runtime.workers.worker import Worker


@asynccontextmanager
async def opened_runs(runs: Runs) -> AsyncIterator[Runs]:
    """Open them, for two minutes at most, and close them."""
    runs.open()
    try:
        async with asyncio.timeout(120):
            yield runs
    finally:
        await runs.close()


def worker_of(runs: Runs) -> Worker:
    assert runs.worker is not None
    return runs.worker
