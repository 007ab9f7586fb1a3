"""`tailrace demo`: a run from start to end, without a key or a service."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from tailrace.cli.answer_requests import AnswerMode, RequestAnswerer
from tailrace.cli.background_screen import BackgroundScreen
from tailrace.cli.keyboard import is_interactive, pressed_keys
from tailrace.cli.options import finite
from tailrace.cli.output import fail, say, say_aside
from tailrace.cli.process import run_server
from tailrace.cli.screen import AsJson, open_screen
from tailrace.core.errors import TailraceError
from tailrace.settings import CONFIG_VARIABLE, read_settings

SCRIPT = "scripted"
KEYS = {
    "OPENAI_API_KEY": ("openai", "openai:gpt-5-mini"),
    "ANTHROPIC_API_KEY": ("anthropic", "anthropic:claude-sonnet-4-5"),
}
"""For each key: the package that it needs, and the model that the demo uses with it."""


def demo(
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port to listen on; default: 8000, or a free port."),
    ] = None,
    pace: Annotated[
        float,
        typer.Option(min=0, callback=finite, help="Seconds per word of the scripted model."),
    ] = 0.03,
    db: Annotated[
        Path | None, typer.Option("--db", help="SQLite file; default: a temporary file.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Stop after the run instead of serving it.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(help="A real model, e.g. openai:gpt-5-mini; `scripted` needs no key."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a whole run, live: no key, no service, no network.

    A scripted agent on SQLite thinks, calls tools in parallel, paints an image, asks
    sub-agents, waits for your approval and answers. With a provider's key in the
    environment, or --model, a real model does. Open the printed address to see the
    same run in a browser.

    Example: tailrace demo
    """
    from tailrace.app import Tailrace
    from tailrace.demo import QUESTION, assistant

    chosen = model or model_of_key(os.environ, say_aside)
    with tempfile.TemporaryDirectory(prefix="tailrace-demo-") as folder:
        try:
            agent = assistant(pace, None if chosen == SCRIPT else chosen)
            app = Tailrace([agent])
            # Whatever the variables and tailrace.toml say: the demo needs no key and no service.
            given = {"database": db or Path(folder) / "demo.db", "grace": timedelta(0)}
            app._configure(read_settings(given, {CONFIG_VARIABLE: os.devnull}))
        except TailraceError as error:
            fail(str(error))
        shows = _Show(app, QUESTION, once=once, as_json=as_json)
        any_port = port is None
        run_server(app, "127.0.0.1", 8000 if port is None else port, shows.run, any_port=any_port)
        if once and shows.code:
            raise typer.Exit(shows.code)


def model_of_key(
    environment: Mapping[str, str],
    note: Callable[[str], None],
    installed: Callable[[str], bool] = lambda package: find_spec(package) is not None,
) -> str:
    """The model of the first key whose package is installed, else the script."""
    for key, (package, model) in KEYS.items():
        if not environment.get(key):
            continue
        if installed(package):
            note(f"{key} is set, so {model} answers. --model scripted needs no key.")
            return model
        note(
            f"{key} is set, but the package {package} is missing, so the scripted model answers. "
            f"pip install 'tailrace[{package}]' changes that."
        )
    return SCRIPT


class _Show:
    """The run of the demo, beside its server."""

    def __init__(self, app: Any, question: str, *, once: bool, as_json: bool) -> None:
        self._app = app
        self._question = question
        self._once = once
        self._as_json = as_json
        asks = is_interactive() and not once and not as_json
        self._manner: AnswerMode = "ask" if asks else "approve"
        self.code = 0

    async def run(self, url: str) -> bool:
        """Show the run; whether the server goes on."""
        out = say_aside if self._as_json else say
        run = await self._app.start("assistant", self._question)
        events = f"{url}/runs/{run.id}/events"
        out("See and answer the same run in a browser, or follow it from another terminal:")
        out(f"  {url}/#{run.thread_id}")
        out(f"  curl -N {events}")
        out("")
        asks = self._manner == "ask"
        with pressed_keys(asks) as keys:
            async with BackgroundScreen(open_screen(as_json=self._as_json)) as screen:
                answering = RequestAnswerer(run, screen, self._manner, keys)
                try:
                    async for batch in self._app._runs.follow(run.id):
                        await screen.show([recorded.event for recorded in batch])
                        answering.look()
                finally:
                    answering.stop()
        self.code = screen.code
        if self._once:
            return False
        out("")
        out("The run stays until you stop the server. Replay it, or read it in another format:")
        out(f"  {_command()} replay {run.id} --url {url}")
        out(f"  curl -N '{events}?format=vercel-ui'")
        out("Ctrl-C stops the server.")
        return True


def _command() -> str:
    """How to call `tailrace` in another terminal: by its path, if it is not on the PATH."""
    if shutil.which("tailrace"):
        return "tailrace"
    program = Path(sys.executable).with_name("tailrace")
    here = Path.cwd()
    return str(program.relative_to(here) if program.is_relative_to(here) else program)
