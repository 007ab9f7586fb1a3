"""`tailrace serve` and `tailrace worker`: an application of the user's, until Ctrl-C."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from tailrace.cli.loading import load
from tailrace.cli.messages import fail, say
from tailrace.cli.options import Grace, Host, KeepEvents, KeepRuns, Port, duration
from tailrace.cli.reload import free_port, serve_again_and_again
from tailrace.cli.server import on_stop_signal, run_loop, run_server
from tailrace.core.errors import TailraceError


def serve(
    application: Annotated[str, typer.Argument(help="Your app as module:name, e.g. main:app.")],
    host: Host = "127.0.0.1",
    port: Port = 8000,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond loopback without API keys.")
    ] = False,
    worker: Annotated[
        bool, typer.Option(help="Also work on runs; otherwise `tailrace worker` does.")
    ] = True,
    keep_events: KeepEvents = None,
    keep_runs: KeepRuns = None,
    grace: Grace = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Start again when a Python file here changes.")
    ] = False,
) -> None:
    """Serve your application until Ctrl-C or SIGTERM.

    When it stops, it accepts no new runs, and running runs may finish. A second
    Ctrl-C ends the wait. With --reload, runs of an Agent continue in the new server.

    Example: tailrace serve main:app --reload
    """
    if reload:
        given = [argument for argument in sys.argv[1:] if argument != "--reload"]
        fixed = ["--port", str(port or free_port(host))]
        quick = ["--grace", "0"] if grace is None else []
        serve_again_and_again([*given, *fixed, *quick], Path.cwd())
    app = load(application)
    _set_grace(app, grace)
    keep(app, keep_events, keep_runs)
    app.worker = app.worker and worker
    run_server(app, host, port, _announce, insecure=insecure)


def worker(
    application: Annotated[str, typer.Argument(help="Your app as module:name, e.g. main:app.")],
    keep_events: KeepEvents = None,
    keep_runs: KeepRuns = None,
    grace: Grace = None,
) -> None:
    """Work on the runs that wait in your application's database, until Ctrl-C or SIGTERM.

    When it stops, its runs may finish. A second Ctrl-C ends the wait.

    Example: tailrace worker main:app
    """
    app = load(application)
    _set_grace(app, grace)
    keep(app, keep_events, keep_runs)
    app.worker = True
    try:
        run_loop(_work(app))
    except TailraceError as error:
        fail(str(error))


async def _work(app: Any) -> None:
    stop = on_stop_signal(app)
    async with app.running():
        say("Tailrace works on waiting runs  (Ctrl-C stops it)")
        await stop.wait()


async def _announce(url: str) -> bool:
    say(f"Tailrace is running at {url}  (Ctrl-C stops it)")
    return True


def _set_grace(app: Any, grace: float | None) -> None:
    if grace is not None:
        app.grace = timedelta(seconds=grace)


def keep(app: Any, events: str | None, runs: str | None) -> None:
    """Let the command line's retention override the application's."""
    try:
        app.keep(
            app.keep_events if events is None else duration(events),
            app.keep_runs if runs is None else duration(runs),
        )
    except TailraceError as error:
        fail(str(error))
