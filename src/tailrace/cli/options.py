"""Options that several commands have."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Annotated

import typer

from tailrace.cli.messages import fail

Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free port.")
]
Host = Annotated[str, typer.Option(help="Address to listen on; beyond loopback it needs API keys.")]
KeepEvents = Annotated[
    str | None,
    typer.Option(help="How long ended runs keep their events, e.g. 30d; then their final state."),
]
KeepRuns = Annotated[
    str | None,
    typer.Option(help="After how long ended runs are deleted, e.g. 52w (s, m, h, d, w)."),
]
Grace = Annotated[
    float | None,
    typer.Option(
        min=0, help="Seconds that runs may take to finish when the server stops; default 30."
    ),
]


def finite(seconds: float) -> float:
    """Refuse `nan` and `inf` as a number of seconds."""
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is not a number of seconds.")
    return seconds


def duration(text: str) -> timedelta:
    """`90s`, `15m`, `12h`, `30d`, `52w`."""
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text)
    if found is None:
        fail(f"{text!r} is not a duration; write 90s, 15m, 12h, 30d or 52w.")
    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    return timedelta(**{units[found[2]]: int(found[1])})
