"""`tailrace replay`: show a run again."""

from __future__ import annotations

import math
import sys
import time
from typing import Annotated

import msgspec
import typer

from tailrace.cli.options import LOCAL, AtEvent, Db, KeyOption, RunName, Url
from tailrace.cli.output import fail
from tailrace.cli.screen import AsJson, open_screen
from tailrace.cli.stored_events import stored_events
from tailrace.core.fold import State
from tailrace.core.run_object import client_view

EVENTS_PER_SECOND = 60.0


def replay(
    run: RunName,
    at: AtEvent = None,
    url: Url = LOCAL,
    key: KeyOption = None,
    db: Db = None,
    speed: Annotated[
        float, typer.Option(min=0.0, help="Events per second; 0 shows all at once.")
    ] = EVENTS_PER_SECOND,
    as_json: AsJson = False,
) -> None:
    """Show a run again, or its state at an event.

    The run is on a server, in a database (--db), or in a file that `tailrace export`
    wrote. With --at and --json the state is printed as one object.

    Example: tailrace replay run_5f0c9a1d3b7e2468 --at 40
    """
    events = stored_events(run, url, key, db)
    if at is not None and at > len(events):
        fail(f"The run has {len(events)} events; --at {at} is behind the last.")
    if at is not None and as_json:
        state = State()
        for event in events[:at]:
            state.absorb(event)
        typer.echo(msgspec.json.format(msgspec.json.encode(client_view(state)), indent=2).decode())
        return
    paced = at is None and speed > 0 and math.isfinite(speed) and sys.stdout.isatty()
    with open_screen(as_json=as_json) as screen:
        if at is not None or not paced:
            screen.show(events[:at])
            screen.show_open()
            return
        for event in events:
            screen.show([event])
            time.sleep(1 / speed)
