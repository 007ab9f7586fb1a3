"""`tailrace run`: ask an agent of a module, without a server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import typer

from tailrace.cli.answer_requests import AnswerMode, RequestAnswerer
from tailrace.cli.background_screen import BackgroundScreen
from tailrace.cli.keyboard import is_interactive, pressed_keys
from tailrace.cli.options import with_settings
from tailrace.cli.output import fail, say_aside
from tailrace.cli.process import run_loop, stop_event
from tailrace.cli.screen import EXIT_INTERRUPTED, EXIT_WAITING, AsJson, open_screen
from tailrace.cli.serve import configured
from tailrace.core.errors import TailraceError

CANCEL_SECONDS = 10.0
"""How long the end of a cancelled run is waited for."""


@with_settings("run")
def run(
    application: Annotated[str, typer.Argument(help="Your app as module:name, e.g. main:app.")],
    question: Annotated[str, typer.Argument(help="The input; - reads standard input.")],
    agent: Annotated[
        str | None, typer.Option(help="Name of the agent; needed if the app has several.")
    ] = None,
    thread: Annotated[
        str | None, typer.Option(help="Thread to continue, so that the agent remembers.")
    ] = None,
    approve: Annotated[
        bool, typer.Option("--approve", help="Approve every call that needs an approval.")
    ] = False,
    as_json: AsJson = False,
    *,
    flags: Mapping[str, Any],
) -> None:
    """Ask an agent of your application, without a server.

    The run is stored in the application's database. Approvals are asked in the
    terminal. Ctrl-C cancels the run. While it runs, the command is a worker of the
    database like any other: it may finish other runs that wait there.

    Example: tailrace run examples.weather:app "Is it sunny?"
    """
    app = configured(application, flags)
    if question == "-":
        question = sys.stdin.read().strip()
    name = _agent_of(app, agent)
    app._worker = True
    manner: AnswerMode = "leave"
    if approve:
        manner = "approve"
    elif is_interactive() and not as_json:
        manner = "ask"
    codes: list[int] = []

    async def main() -> None:
        codes.append(await _ask(app, name, question, thread, manner, as_json=as_json))

    try:
        run_loop(main())
    except TailraceError as error:
        fail(str(error))
    raise typer.Exit(codes[0])


def _agent_of(app: Any, agent: str | None) -> str:
    names: list[str] = sorted(app.agents)
    if agent is None and len(names) == 1:
        return names[0]
    if agent is None or agent not in names:
        what = f"Unknown agent {agent!r}" if agent else "The application has several agents"
        fail(f"{what}; use --agent {', --agent '.join(names) or '…'}.")
    return agent


async def _ask(
    app: Any, agent: str, question: str, thread: str | None, manner: AnswerMode, *, as_json: bool
) -> int:
    stop = stop_event(app)
    async with app.running():
        run = await app.start(agent, question, thread=thread)
        shown = asyncio.create_task(_show(app, run, manner, as_json=as_json))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([shown, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if shown.done():
            return shown.result()
        with suppress(TailraceError):
            await run.cancel("Ctrl-C")
        await asyncio.wait([shown], timeout=CANCEL_SECONDS)
        if not shown.cancel():  # a terminal that does not read shows no end
            await shown
        return EXIT_INTERRUPTED


async def _show(app: Any, run: Any, manner: AnswerMode, *, as_json: bool) -> int:
    with pressed_keys(manner == "ask") as keys:
        async with BackgroundScreen(open_screen(as_json=as_json)) as screen:
            answering = RequestAnswerer(run, screen, manner, keys)
            try:
                async for batch in app._runs.follow(run.id):
                    await screen.show([recorded.event for recorded in batch])
                    left = answering.look()
                    if left is not None:
                        break
                else:
                    return screen.code
            finally:
                answering.stop()
    say_aside(
        f"Run {run.id} waits for an answer to {left.id}. Run the command in a terminal or with "
        "--approve, or serve the application and answer there."
    )
    return EXIT_WAITING
