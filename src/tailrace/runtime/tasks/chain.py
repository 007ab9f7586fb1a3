"""The conversation of a run: the run that it continues, the run before that, and so on."""

from __future__ import annotations

from tailrace.core.fold import State
from tailrace.ports import RunInfo, Store, Trimmed
from tailrace.runtime.event_log.store_retry import patiently
from tailrace.runtime.event_log.whole_state import read_whole


class Chain:
    """The runs that one run continues. They are read when an agent first asks for them."""

    def __init__(self, store: Store, info: RunInfo | None, state: State) -> None:
        self._store = store
        self._info = info
        self._state = state
        self._states: list[State] | None = None

    async def earlier(self) -> list[State]:
        """The states of the earlier runs, oldest first, with private parts."""
        if self._states is None:
            continues = self._info is not None and self._info.previous_run_id is not None
            self._states = await patiently(self._read) if continues else []
        return self._states

    async def _read(self) -> list[State]:
        """Follow `previous_run_id`, at `previous_seq` if the run is a fork.

        A deleted run, or a run of another owner, ends the chain; so does a fork of events that
        retention has removed.
        """
        states: list[State] = []
        state = self._state
        seen: set[str] = set()
        info = self._info
        owner = info.owner if info is not None else ""
        while info is not None and info.previous_run_id is not None:
            seen.add(info.run_id)  # a deleted run's id can be used again, further down
            info = await self._store.info(info.previous_run_id)
            if info is None or info.owner != owner or info.run_id in seen:
                break
            try:
                state = await read_whole(self._store, info.run_id, forked_at(state))
            except Trimmed:
                break
            states.append(state)
        return states[::-1]


def forked_at(state: State) -> int | None:
    """The event of its previous run after which a run was forked; None if it was not."""
    return state.root.facts.get("previous_seq") if state.root is not None else None
