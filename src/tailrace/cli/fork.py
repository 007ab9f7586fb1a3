"""`tailrace fork`: continue a run as a new run."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace.cli.options import LOCAL, AtEvent, KeyOption, RunName, Url
from tailrace.cli.output import fail, say_aside
from tailrace.cli.screen import AsJson
from tailrace.cli.server_client import ServerClient, address
from tailrace.cli.tail import follow
from tailrace.core.state import ENDED


def fork(
    run: RunName,
    question: Annotated[str, typer.Argument(help="The new input.")],
    at: AtEvent = None,
    url: Url = LOCAL,
    key: KeyOption = None,
    agent: Annotated[str | None, typer.Option(help="Another agent than the run's.")] = None,
    as_json: AsJson = False,
) -> None:
    """Continue a run as a new run with another input; the run itself stays.

    The new run remembers the run and what came before it. With --at it remembers
    the run as it was after that event, as if it had been cancelled there.

    Example: tailrace fork run_5f0c9a1d3b7e2468 "And on Sunday?" --at 40
    """
    url, run_id = address(run, url)
    server = ServerClient(url, key)
    view = server.ask(f"/runs/{run_id}")
    if at is None and view.get("status") not in ENDED:
        fail(f"Run {run_id} has not ended; wait for its end, or fork it after an event with --at.")
    body = {"agent": agent or view["agent"], "input": question, "previous_run_id": run_id}
    if at is not None:
        body["previous_seq"] = at
    started = server.ask("/runs", body)
    place = "" if at is None else f" after event {at}"
    say_aside(f"Run {started['run_id']} continues {run_id}{place}.")
    raise typer.Exit(follow(server, started["run_id"], as_json=as_json))
