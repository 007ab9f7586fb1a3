"""Unknown fields of a provider: the objects that have any are kept whole.

A reader takes the fields that it knows. An event with other fields is kept in `task.raw`, once per
new set of unknown names. Some servers add the same fields to each of a thousand deltas. An item
with other fields is kept in the private part of its own event, to be sent back.

An event of an unknown type is kept each time it comes (`keep_raw`): it may be a delta, whose text
would be lost.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from tailrace.core.event_sink import Sink
from tailrace.ingest.base import keep_raw

EMPTY: tuple[Any, ...] = (None, [], {})
"""Values that carry nothing: a field with such a value is not an unknown field."""

_MOST_SETS = 1000
"""How many sets of names a reader remembers, so that a hostile stream takes no memory."""


def unknown_names(
    fields: Mapping[str, Any], known: Container[str], under: str = ""
) -> Iterator[str]:
    """The names of the fields that are not known and not empty, with the prefix `under`."""
    for name, value in fields.items():
        if name not in known and value not in EMPTY:
            yield under + name


def has_unknown(fields: Mapping[str, Any], known: Container[str]) -> bool:
    """Whether an object has fields that are not known and not empty."""
    return any(True for _ in unknown_names(fields, known))


class UnknownFields:
    """Keeps the events of a stream that have unknown fields."""

    def __init__(self, sink: Sink, source: str) -> None:
        self._sink = sink
        self._source = source
        self._seen: set[tuple[str, frozenset[str]]] = set()

    def keep(self, kind: str, names: Iterable[str], event: dict[str, Any]) -> None:
        """Keep the event if its type comes with this set of unknown names for the first time."""
        found = kind, frozenset(names)
        if not found[1] or found in self._seen:
            return
        if len(self._seen) == _MOST_SETS:
            self._seen.clear()
        self._seen.add(found)
        keep_raw(self._sink, self._source, kind, event)
