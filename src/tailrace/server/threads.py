"""Lists threads and their runs: `GET /threads`, `GET /threads/{id}`."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from tailrace.core.codec import decode_event
from tailrace.core.errors import NotFound
from tailrace.core.events import TaskCreated, TaskInputReceived, TaskInputRequired
from tailrace.core.fold import State
from tailrace.ports import RunInfo, Trimmed
from tailrace.runtime.runs.all_runs import Runs
from tailrace.runtime.tasks.chain import Chain

PAGE_RUNS = 200
"""How many runs a page of the list of threads is made from."""

TITLE_CHARACTERS = 80
SEARCHED_CHARACTERS = 10_000
"""How much of a run's input is searched. It is kept in memory."""

_CACHED = 1000


class _Listed(msgspec.Struct):
    """What the lists show of a run. Only the events after `seen` are read again."""

    status: str = "queued"
    question: str = ""
    previous_seq: int | None = None
    seen: int = 0
    ended: bool = False
    asked: set[str] = msgspec.field(default_factory=set)

    @property
    def title(self) -> str:
        """The beginning of the question."""
        if len(self.question) <= TITLE_CHARACTERS:
            return self.question
        return self.question[: TITLE_CHARACTERS - 1].rstrip() + "…"


_REQUESTS = (b'"task.input_required"', b'"task.input_received"')


def thread_not_found(thread_id: str) -> NotFound:
    """The error for a thread without runs, or only with those of another owner."""
    return NotFound(
        f"Thread {thread_id} has no runs. Check its id, or start a run in it.", param="thread_id"
    )


async def conversation(runs: Runs, info: RunInfo) -> tuple[list[State], int]:
    """A run after the runs that it continues, and their size in bytes.

    A run that was forked counts as if it had been cancelled there. A deleted run ends the
    conversation, and so does a run of another owner.
    """
    look = await runs.look(info.run_id)
    earlier = await Chain(runs.store, info, look.state, runs.ended).runs()
    chain = [*(run.state for run in earlier), look.state]
    return chain, sum(run.size for run in earlier) + look.weight


class ThreadList:
    """The newest threads, each with its title and the status of its last run."""

    def __init__(self) -> None:
        self._listed: OrderedDict[tuple[str, float], _Listed] = OrderedDict()

    async def threads(
        self, runs: Runs, before: str | None = None, search: str = "", limit: int = PAGE_RUNS
    ) -> dict[str, Any]:
        """A page of threads, newest first by their last run, from the runs before run `before`.

        It has at most `limit` threads. With `search`, the threads with a run that has these words.
        `next` is the next page's `before`. A thread is listed once, except that a search may find
        older runs of it later.
        """
        page = await runs.newest(PAGE_RUNS, before)
        found: dict[str, list[RunInfo]] = {}
        for info in page:
            found.setdefault(info.thread_id, []).append(info)
        listed: list[dict[str, Any]] = []
        following = page[-1].run_id if len(page) == PAGE_RUNS else None
        last = before
        for thread_id, infos in found.items():
            if len(listed) == limit:
                following = last
                break
            last = infos[0].run_id
            match = await self._match(runs, infos, search.lower()) if search else infos[0]
            newest = infos[0] if before is None else await runs.latest(thread_id)
            # A thread with newer runs was on an earlier page.
            if match is None or newest is None or (not search and newest.run_id != match.run_id):
                continue
            listed.append(
                {
                    "thread_id": thread_id,
                    "title": (await self._look(runs, infos[-1])).title,
                    "agent": newest.agent,
                    "status": (await self._look(runs, newest)).status,
                    "runs": newest.ordinal,
                    "last_run_id": newest.run_id,
                    "created_at": infos[-1].created_at,
                    "updated_at": newest.created_at,
                    **({"found_run_id": match.run_id} if search else {}),
                }
            )
        return {"threads": listed, "next": following}

    async def _match(self, runs: Runs, infos: list[RunInfo], search: str) -> RunInfo | None:
        """The newest of these runs that has the words in an id, its question, agent or status."""
        for info in infos:
            listed = await self._look(runs, info)
            words = (info.thread_id, info.run_id, listed.question, info.agent, listed.status)
            if search in " ".join(words).lower():
                return info
        return None

    async def thread(self, runs: Runs, thread_id: str) -> dict[str, Any]:
        """The runs of a thread, oldest first."""
        infos: list[RunInfo] = []
        while page := await runs.of_thread(thread_id, infos[-1].ordinal + 1 if infos else 1):
            infos += page
        if not infos:
            raise thread_not_found(thread_id)
        return {
            "thread_id": thread_id,
            "runs": [
                {
                    "run_id": info.run_id,
                    "title": listed.title,
                    "agent": info.agent,
                    "status": listed.status,
                    "previous_run_id": info.previous_run_id,
                    "previous_seq": listed.previous_seq,
                    "created_at": info.created_at,
                    "ended_at": info.ended_at,
                    "last_seq": info.last_seq,
                    "attempts": info.attempts,
                }
                for info in infos
                for listed in (await self._look(runs, info),)
            ],
        }

    async def _look(self, runs: Runs, info: RunInfo) -> _Listed:
        """A run's status and question, from its new events. They are searched, not folded."""
        key = (info.run_id, info.created_at)  # a deleted run's id can be used again
        listed = self._listed.setdefault(key, _Listed())
        self._listed.move_to_end(key)
        while len(self._listed) > _CACHED:
            self._listed.popitem(last=False)
        # The run may be ahead of `info`: its last event may have been read while it ran.
        if listed.ended or (listed.seen == info.last_seq and info.ended_at is None):
            return listed
        if info.ended_at is not None:
            await self._look_at_end(runs, info, listed)
            return listed
        while listed.seen < info.last_seq:
            found = await runs.reader.read_lines(info.run_id, listed.seen)
            if not found:
                break
            for lines in found:
                if not listed.seen or any(mark in lines.raw for mark in _REQUESTS):
                    for line in lines.publics():
                        _read(listed, line)
                listed.seen = lines.last_seq
        if not listed.ended:
            working = "in_progress" if info.attempts else "queued"
            listed.status = "input_required" if listed.asked else working
        return listed

    async def _look_at_end(self, runs: Runs, info: RunInfo, listed: _Listed) -> None:
        """An ended run is folded once: a snapshot may be all that is left of it."""
        try:
            root = (await runs.look(info.run_id)).state.root
        except (NotFound, Trimmed):  # deleted meanwhile
            listed.status = "completed"
            return
        facts = root.facts if root is not None else {}
        listed.status = str((root.status if root is not None else None) or "completed")
        listed.question = _question(facts.get("input"))
        listed.previous_seq = facts.get("previous_seq")
        listed.ended = True


def _read(listed: _Listed, line: bytes) -> None:
    """Take from an event what the lists show."""
    if not (listed.seen == 0 or any(mark in line for mark in _REQUESTS)):
        return
    event = decode_event(line)
    if isinstance(event, TaskCreated) and event.parent_task_id is None:
        listed.question = _question(event.input)
        listed.previous_seq = event.previous_seq
        listed.seen = 1
    elif isinstance(event, TaskInputRequired):
        listed.asked.update(request.id for request in event.requests)
    elif isinstance(event, TaskInputReceived):
        listed.asked.discard(event.request_id)


def _question(given: Any) -> str:
    return " ".join(_text(given).split())[:SEARCHED_CHARACTERS]


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
