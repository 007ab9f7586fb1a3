"""What a provider's events say beyond what is read of them: kept, but not with each of them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec

from tailrace.core import events as ev
from tailrace.core.writers import Sink

_MOST_PLACES = 64
"""Of how many places (blocks, items) it is remembered what was kept last."""


class Leftovers:
    """Keeps fields that have no name here as `task.raw`, beside what was taken of their event.

    Some servers stamp each of a thousand deltas alike. So what says the same about the same place
    as the last time is not written again; only its hash is remembered.
    """

    def __init__(self, sink: Sink, source: str) -> None:
        self._sink = sink
        self._source = source
        self._last: dict[Hashable, dict[str, int]] = {}

    def keep(self, kind: str, place: Hashable, rest: dict[str, Any]) -> None:
        """Write what is left of an event of this type, unless it was the same the last time."""
        said = hash(msgspec.json.encode(rest))
        kept = self._last.get(place)
        if kept is None:
            if len(self._last) == _MOST_PLACES:
                del self._last[next(iter(self._last))]
            kept = self._last[place] = {}
        if kept.get(kind) != said:
            kept[kind] = said
            raw = ev.RawEvent(task_id=self._sink.task_id, source=self._source, event_type=kind)
            self._sink.emit(raw, ev.Private(raw=rest))

    def forget(self, place: Hashable) -> None:
        """Another block or item begins at this place, so what it says is news."""
        self._last.pop(place, None)
