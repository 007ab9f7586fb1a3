"""Bytes that the log of an ended run takes in an SQLite file."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import apsw

from benchmarks.harness import Pace, Table, Target, at_most, progress, short
from tailrace.app import Tailrace
from tailrace.runtime.tasks.task import Task

ROOT = Path(__file__).parents[1]
SIZES = (300, 2_000, 20_000)
EVENTS = 20_000
"""About so many events of each size are written, in several runs if they are short."""


def text(count: int) -> list[str]:
    """English of this repository in pieces of four characters: a repeated text would be smaller."""
    pages = [ROOT / "PROTOCOL.md", *sorted((ROOT / "docs").glob("*.md"))]
    whole = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    return [whole[at % len(whole) :][:4] for at in range(0, 4 * count, 4)]


async def _talk(task: Task) -> None:
    with task.message() as message:
        for piece in text(task.input):
            message.text(piece)
            await task.drain()  # a row for each event, as at human pace


async def _write(database: str, count: int, runs: int) -> tuple[int, int]:
    """What some runs of `count` deltas add to the file: as they are written, and when joined."""
    app = Tailrace({"talker": _talk}, database)
    async with app.running():
        before = _used(database)
        run_ids = [await app._runs.start("talker", count) for _ in range(runs)]
        for run_id in run_ids:
            async for _ in app._runs.follow(run_id):
                pass
        written = _used(database)
        for run_id in run_ids:
            await app._runs.store.repack(run_id)
        return written - before, _used(database) - before


def _used(database: str) -> int:
    """The bytes of the pages in use; SQLite writes later runs into the others."""
    db = apsw.Connection(database)
    pages = int(db.pragma("page_count")) - int(db.pragma("freelist_count"))
    size = pages * int(db.pragma("page_size"))
    db.close()
    return size


def run(pace: Pace) -> tuple[list[Table], list[Target]]:
    """Short and long runs."""
    title = "stored: bytes of an ended run"
    sizes: dict[int, dict[str, list[float]]] = {}
    for count in SIZES[: pace.amount(full=3, quick=2, once=1)]:
        progress(f"{title}: {short(count)}, writing")
        with tempfile.TemporaryDirectory() as folder:
            runs = max(1, pace.amount(full=EVENTS, quick=EVENTS, once=EVENTS // 10) // count)
            written, joined = asyncio.run(_write(f"{folder}/stored.db", count, runs))
        sizes[count] = {
            "limit: the text": [float(sum(len(one.encode()) for one in text(count)))],
            "tailrace": [joined / runs],
            "tailrace, before rows are joined": [written / runs],
        }
    table = Table(
        title,
        sizes,
        "tailrace",
        "limit: the text",
        scale=1.0,
        remark=(
            "Deltas of four characters, each stored in a row of its own as at human pace. A few "
            "seconds after the end of a run its rows are joined and compressed. Everything counts "
            "that the run adds to the SQLite file: its row, its events, its snapshots, indexes."
        ),
    )
    most = max(table.best("tailrace", size) or 0.0 for size in table.sizes)
    return [table], [at_most(f"{title}, for each event", 20, most, "bytes")]
