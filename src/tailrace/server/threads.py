"""Lists threads and their runs: `GET /threads`, `GET /threads/{id}`."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from tailrace.core.errors import NotFound
from tailrace.core.fold import State
from tailrace.core.view import client_view
from tailrace.ports import RunInfo
from tailrace.runtime.runs import Runs

RECENT_RUNS = 200
"""How many of the newest runs the list of threads is made from."""

TITLE_CHARACTERS = 80
_CACHED = 1000


class ThreadList:
    """The newest threads, each with its title and the status of its last run."""

    def __init__(self) -> None:
        self._facts: OrderedDict[tuple[str, int], tuple[str, str]] = OrderedDict()

    async def threads(self, runs: Runs) -> list[dict[str, Any]]:
        """Newest first, by their last run."""
        found: dict[str, list[RunInfo]] = {}
        for info in await runs.newest(RECENT_RUNS):
            found.setdefault(info.thread_id, []).append(info)
        listed = []
        for thread_id, infos in found.items():
            newest, oldest = infos[0], infos[-1]
            listed.append(
                {
                    "thread_id": thread_id,
                    "title": (await self._look(runs, oldest))[1],
                    "agent": newest.agent,
                    "status": (await self._look(runs, newest))[0],
                    "runs": newest.ordinal,
                    "last_run_id": newest.run_id,
                    "created_at": oldest.created_at,
                }
            )
        return listed

    async def thread(self, runs: Runs, thread_id: str) -> dict[str, Any]:
        """The runs of a thread, oldest first."""
        infos: list[RunInfo] = []
        while page := await runs.of_thread(thread_id, infos[-1].ordinal + 1 if infos else 1):
            infos += page
        if not infos:
            raise NotFound(f"Thread {thread_id} has no runs.")
        return {
            "thread_id": thread_id,
            "runs": [
                {
                    "run_id": info.run_id,
                    "agent": info.agent,
                    "status": (await self._look(runs, info))[0],
                    "previous_run_id": info.previous_run_id,
                    "created_at": info.created_at,
                    "ended_at": info.ended_at,
                    "last_seq": info.last_seq,
                }
                for info in infos
            ],
        }

    async def conversation(self, runs: Runs, thread_id: str) -> tuple[list[State], int]:
        """The newest run of a thread after the runs that it continues, and their size in bytes.

        A deleted run ends it, and so does a run of another owner.
        """
        info = await runs.latest(thread_id)
        if info is None:
            raise NotFound(f"Thread {thread_id} has no runs.", param="thread_id")
        chain: list[State] = []
        seen: set[str] = set()
        weight = 0
        while info is not None and info.run_id not in seen:
            seen.add(info.run_id)  # a deleted run's id can be used again, further down
            look = await runs.look(info.run_id)
            chain.append(look.state)
            weight += look.weight
            info = await runs.find(info.previous_run_id) if info.previous_run_id else None
        return chain[::-1], weight

    async def _look(self, runs: Runs, info: RunInfo) -> tuple[str, str]:
        """A run's status and title; kept until the run has more events."""
        key = (info.run_id, info.last_seq)
        if key not in self._facts:
            try:
                view = client_view((await runs.look(info.run_id)).state)
            except NotFound:  # deleted meanwhile
                return "completed", ""
            title = " ".join(_text(view.get("input")).split())[:TITLE_CHARACTERS]
            self._facts[key] = (str(view.get("status", "queued")), title)
            while len(self._facts) > _CACHED:
                self._facts.popitem(last=False)
        return self._facts[key]


def _text(given: Any) -> str:
    """The words of an input in any shape."""
    if isinstance(given, str):
        return given
    if isinstance(given, list):
        return " ".join(filter(None, map(_text, given)))
    if isinstance(given, dict):
        for name in ("text", "content", "parts"):
            if name in given:
                return _text(given[name])
    return ""
