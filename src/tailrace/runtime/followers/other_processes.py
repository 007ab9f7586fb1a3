"""Finds out whether another process follows a run.

The store carries the question and the answer, as names that are used for a moment. So a process
writes only about a run that another process asks for, and looks for questions with one query.
"""

from __future__ import annotations

import asyncio
import logging

from tailrace.core.errors import StorageError
from tailrace.ports import Tokens
from tailrace.runtime.followers.tail import Tails

LOOK_SECONDS = 1.0
"""How often a process that follows runs looks for questions."""

ANSWER_SECONDS = 3.0
"""How long a process waits for an answer, and how long a question and an answer are there."""

_QUESTION = "who follows "
_ANSWER = "follower of "

logger = logging.getLogger("tailrace")


class FollowedElsewhere:
    """The runs that this process follows, and questions to the other processes of the store."""

    def __init__(self, store: Tokens, tails: Tails) -> None:
        self._store = store
        self._tails = tails
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to answer other processes."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="followers")

    async def stop(self) -> None:
        """Answer no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def is_followed(self, run_id: str) -> bool:
        """Whether a process follows this run. It takes `ANSWER_SECONDS` if this process does not.

        A run that was followed a moment ago counts as well.
        """
        if self._tails.get(run_id) is not None or await self._store.used(_ANSWER + run_id):
            return True
        await self._store.use_once(_QUESTION + run_id, ANSWER_SECONDS)
        await asyncio.sleep(ANSWER_SECONDS)
        if self._tails.get(run_id) is not None:
            return True
        return bool(await self._store.used(_ANSWER + run_id))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._answer()
            except StorageError:
                continue  # `outage` logs it, and there is another look
            except Exception:
                logger.exception(
                    "failed to answer which runs are followed here; other processes may cancel"
                    " such runs as abandoned. If this repeats, restart this process"
                )

    async def _answer(self) -> None:
        if not len(self._tails):
            return
        for question in await self._store.used(_QUESTION):
            run_id = question.removeprefix(_QUESTION)
            if self._tails.get(run_id) is not None:
                await self._store.use_once(_ANSWER + run_id, ANSWER_SECONDS)
