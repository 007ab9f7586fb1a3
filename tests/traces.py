"""The golden traces, read for tests in this language."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from conformance.authoring import canonical
from tailrace.core.codec import decode_event
from tailrace.core.events import AnyEvent, Private
from tailrace.testing.wire_kit import is_log

FOLDER = Path(__file__).parents[1] / "conformance" / "traces"


class Trace(NamedTuple):
    """One folder of `conformance/traces`."""

    name: str
    events: list[tuple[AnyEvent, Private | None]]
    digests: list[str]
    view: Any
    whole: Any

    def digest(self, value: Any) -> str:
        return hashlib.sha256(canonical(value).encode()).hexdigest()


def _read(folder: Path) -> Trace:
    lines = (folder / "events.jsonl").read_text(encoding="utf-8").split("\n")
    events = [decode_event(line.encode()) for line in lines if line]
    privates: dict[int, Private] = {}
    hidden = folder / "private.jsonl"
    if hidden.exists():
        for line in hidden.read_text(encoding="utf-8").split("\n"):
            if not line:
                continue
            value = json.loads(line)
            number = value.pop("sequence_number", None)
            if number is None:
                at = value.pop("line") - 1
            else:
                at = next(i for i, event in enumerate(events) if event.sequence_number == number)
            privates[at] = msgspec.convert(value, Private)
    return Trace(
        folder.name,
        [(event, privates.get(n)) for n, event in enumerate(events)],
        (folder / "digests.txt").read_text().split(),
        json.loads((folder / "view.json").read_text(encoding="utf-8")),
        json.loads((folder / "whole.json").read_text(encoding="utf-8")),
    )


TRACES = [_read(folder) for folder in sorted(FOLDER.iterdir())] if FOLDER.is_dir() else []
LOGS = [trace for trace in TRACES if is_log([event for event, _ in trace.events])]
"""The traces that a log can hold: numbered, and each event legal after the last."""
