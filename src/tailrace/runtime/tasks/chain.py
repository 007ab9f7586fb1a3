"""The conversation of a run: the run that it continues, the run before that, and so on."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import msgspec

from tailrace.core.fold import State
from tailrace.core.state import ImageNode, TextNode
from tailrace.ports import RunInfo, Store, Trimmed
from tailrace.runtime.event_log.store_retry import patiently
from tailrace.runtime.event_log.whole_state import read_whole

KEPT_BYTES = 16 * 1024 * 1024
"""How many bytes of ended runs a process keeps in memory."""

TASK_BYTES, ITEM_BYTES = 4096, 1024
"""About what a task and an item take beside their contents."""

PAGE_RUNS = 100
"""How many rows of a thread are read at a time."""


class FoldedRun(NamedTuple):
    """The state of a run with its private parts, and about how many bytes it takes."""

    state: State
    size: int


class EndedRuns:
    """The states of ended runs. Each turn of a conversation needs those of all turns before.

    They are shared, so they must not be changed. The least recently used leave first.
    """

    def __init__(self, store: Store, kept_bytes: int = KEPT_BYTES) -> None:
        self._store = store
        self._kept_bytes = kept_bytes
        self._kept: OrderedDict[tuple[str, float], FoldedRun] = OrderedDict()
        self._bytes = 0

    async def read(self, info: RunInfo, at: int | None = None) -> FoldedRun:
        """A run, ended or not; with `at`, as if it had been cancelled after this event.

        Raises `Trimmed` if retention has removed that event.
        """
        if at is not None or info.ended_at is None:
            return await self._folded(info, at)
        key = (info.run_id, info.created_at)  # a deleted run's id can be used again
        found = self._kept.get(key)
        if found is None:
            found = await self._folded(info)
            self._keep(key, found)
        else:
            self._kept.move_to_end(key)
        return found

    async def _folded(self, info: RunInfo, at: int | None = None) -> FoldedRun:
        state = await read_whole(self._store, info.run_id, at)
        return FoldedRun(state, _size(state))

    def _keep(self, key: tuple[str, float], run: FoldedRun) -> None:
        if run.size > self._kept_bytes or key in self._kept:  # another reader may have kept it
            return
        self._kept[key] = run
        self._bytes += run.size
        while self._bytes > self._kept_bytes:
            self._bytes -= self._kept.popitem(last=False)[1].size


class Chain:
    """The runs that one run continues. They are read when an agent first asks for them."""

    def __init__(
        self, store: Store, info: RunInfo | None, state: State, ended: EndedRuns | None = None
    ) -> None:
        self._store = store
        self._info = info
        self._state = state
        self._ended = ended or EndedRuns(store)
        self._runs: list[FoldedRun] | None = None

    async def earlier(self) -> list[State]:
        """The states of the earlier runs, oldest first, with private parts.

        Other runs share them, so they must not be changed.
        """
        return [run.state for run in await self.runs()]

    async def runs(self) -> list[FoldedRun]:
        """The earlier runs, oldest first."""
        if self._runs is None:
            continues = self._info is not None and self._info.previous_run_id is not None
            self._runs = await patiently(self._read) if continues else []
        return self._runs

    async def _read(self) -> list[FoldedRun]:
        """Follow `previous_run_id`, at `previous_seq` if the run is a fork.

        A deleted run, or a run of another owner, ends the chain; so does a fork of events that
        retention has removed.
        """
        found: list[FoldedRun] = []
        state = self._state
        rows: dict[str, RunInfo] = {}
        info = self._info
        owner = info.owner if info is not None else ""
        seen: set[str] = set()
        while info is not None and (previous := info.previous_run_id) is not None:
            seen.add(info.run_id)  # a deleted run's id can be used again, further down
            if previous not in rows:
                rows = await self._rows_before(info)
            info = rows.get(previous) or await self._store.info(previous)
            if info is None or info.owner != owner or info.run_id in seen:
                break
            try:
                run = await self._ended.read(info, forked_at(state))
            except Trimmed:
                break
            found.append(run)
            state = run.state
        return found[::-1]

    async def _rows_before(self, info: RunInfo) -> dict[str, RunInfo]:
        """The rows of the runs before a run in its thread: most of them are in the chain."""
        first = max(info.ordinal - PAGE_RUNS, 1)
        page = await self._store.thread_runs(
            info.thread_id, owner=info.owner, first=first, limit=info.ordinal - first
        )
        return {run.run_id: run for run in page}


def forked_at(state: State) -> int | None:
    """The event of its previous run after which a run was forked; None if it was not."""
    return state.root.facts.get("previous_seq") if state.root is not None else None


def _size(state: State) -> int:
    """About how many bytes of memory a state takes: its texts, the rest as JSON, and its nodes."""
    found, rest = 0, list[object]()
    for task in state.tasks.values():
        found += TASK_BYTES + len(task.items) * ITEM_BYTES
        rest += (task.facts, task.private, task.structured_output, task.notices)
        for item in task.items.values():
            rest += (item.item, item.private)
            for part in (*item.parts.values(), *item.texts.values(), item.arguments):
                if isinstance(part, TextNode):
                    found += len(part.text)
                elif part is not None:
                    rest.append(part.image if isinstance(part, ImageNode) else part.block)
    return found + len(msgspec.json.encode(rest))
