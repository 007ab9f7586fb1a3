"""`tailrace serve` and `tailrace worker`: an application of the user's, until Ctrl-C."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tailrace.cli.load_app import load
from tailrace.cli.options import Config, use_config, with_settings
from tailrace.cli.output import fail, say, say_at_end
from tailrace.cli.process import (
    STOPPED,
    relax_collector,
    run_loop,
    run_server,
    say_wait,
    stop_event,
)
from tailrace.cli.reload import free_port, serve_with_reload
from tailrace.core.errors import TailraceError
from tailrace.settings import read_settings, unknown_variables

logger = logging.getLogger("tailrace")

Application = Annotated[str, typer.Argument(help="Your app as module:name, e.g. main:app.")]


@with_settings("serve")
def serve(
    application: Application,
    *,
    config: Config = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Start again when a Python file here changes.")
    ] = False,
    flags: Mapping[str, Any],
) -> None:
    """Serve your application until Ctrl-C or SIGTERM.

    When it stops, it accepts no new runs, and running runs may finish. A second
    Ctrl-C ends the wait. With --reload, runs of an Agent continue in the new server.

    Each option is also a variable and a line of tailrace.toml (docs/reference/settings.md).

    Example: tailrace serve main:app --reload
    """
    use_config(config)
    if reload:
        _reload(flags)
    app = configured(application, flags)
    from tailrace.server.access.auth import ApiKeys

    if isinstance(app._auth, ApiKeys):
        app._auth.read_again()  # the log names a missing file now, not at the first client
    host, port = app._settings["host"], app._settings["port"]
    run_server(app, host, port, _announce, insecure=app._settings["insecure"])


@with_settings("worker")
def worker(application: Application, *, config: Config = None, flags: Mapping[str, Any]) -> None:
    """Work on the runs that wait in your application's database, until Ctrl-C or SIGTERM.

    When it stops, its runs may finish. A second Ctrl-C ends the wait.

    Each option is also a variable and a line of tailrace.toml (docs/reference/settings.md).

    Example: tailrace worker main:app
    """
    use_config(config)
    app = configured(application, flags)
    app._worker = True
    try:
        run_loop(_work(app))
    except TailraceError as error:
        fail(str(error))


def configured(application: str, flags: Mapping[str, Any]) -> Any:
    """The application, with the settings of the command line above its own."""
    app = load(application)
    from tailrace.cli import logs  # it needs what the application has imported

    try:
        app._configure(app._settings.with_flags(flags))
    except TailraceError as error:
        fail(str(error))
    logs.set_up(app._settings)
    if unknown := unknown_variables(os.environ):
        logger.warning("unknown variables are ignored: %s", ", ".join(unknown))
    return app


def _reload(flags: Mapping[str, Any]) -> None:
    """Serve again and again, on the same port and with a short grace."""
    try:
        settings = read_settings({}).with_flags(flags)
    except TailraceError as error:
        fail(str(error))
    given = [argument for argument in sys.argv[1:] if argument != "--reload"]
    fixed = ["--port", str(settings["port"] or free_port(settings["host"]))]
    quick = ["--grace", "0"] if settings.origin("grace") == "default" else []
    serve_with_reload([*given, *fixed, *quick], Path.cwd())


async def _work(app: Any) -> None:
    stop = stop_event(app)
    async with app.running():
        relax_collector()
        with app._metrics() as url:
            shown = f"; numbers at {url}" if url else ""
            say(f"Tailrace works on waiting runs{shown}  (Ctrl-C stops it)")
            await stop.wait()
            say_wait(app)
    say_at_end(STOPPED)


async def _announce(url: str) -> bool:
    say(f"Tailrace is running at {url}  (Ctrl-C stops it)")
    return True
