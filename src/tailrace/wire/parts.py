"""Which part of its item an event is about, for the formats that tell parts by their places."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from tailrace.core import events as ev

DELTAS: dict[type[Any], Callable[[Any], int]] = {
    ev.TextDelta: attrgetter("block_index"),
    ev.SummaryTextDelta: attrgetter("summary_index"),
    ev.ReasoningTextDelta: attrgetter("text_index"),
    ev.RefusalDelta: attrgetter("block_index"),
    ev.ArgumentsDelta: lambda _event: 0,
}
"""The deltas, and the index of the part that each one lengthens."""

PARTS: dict[type[Any], tuple[Callable[[Any], int], str]] = {
    ev.SummaryItemAdded: (attrgetter("summary_index"), "parts"),
    ev.SummaryItemDone: (attrgetter("summary_index"), "parts"),
    ev.ReasoningTextAdded: (attrgetter("text_index"), "texts"),
    ev.ReasoningTextDone: (attrgetter("text_index"), "texts"),
    **dict.fromkeys(
        (
            ev.TextAdded,
            ev.TextDone,
            ev.ImageAdded,
            ev.ImageDelta,
            ev.ImageDone,
            ev.RefusalAdded,
            ev.RefusalDone,
            ev.DataDone,
            ev.FileDone,
        ),
        (attrgetter("block_index"), "parts"),
    ),
}
"""What brings, replaces or ends a part: its index, and the list of the item that it is in."""
