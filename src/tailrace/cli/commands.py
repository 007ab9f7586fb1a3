"""The list of commands. A command is a function in a file of its own, and a line here."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace import __version__
from tailrace.cli.convert import ConvertCommand, convert
from tailrace.cli.demo import demo
from tailrace.cli.doctor import doctor
from tailrace.cli.follow import export, fork, replay, tail
from tailrace.cli.keys import keys
from tailrace.cli.listing import runs, schema, threads
from tailrace.cli.proxy import proxy
from tailrace.cli.run import run
from tailrace.cli.serve import serve, worker

cli = typer.Typer(
    help="Tailrace: the stateful streaming runtime for AI agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tailrace {__version__}")
        raise typer.Exit


@cli.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


for _command in (demo, serve, worker, run):
    cli.command()(_command)
for _of_a_run in (tail, replay, fork, export, threads, runs):
    cli.command(rich_help_panel="Runs on a server")(_of_a_run)
cli.command(cls=ConvertCommand, rich_help_panel="Streams")(convert)
cli.command(rich_help_panel="Streams")(proxy)
cli.command(rich_help_panel="Streams")(schema)
cli.add_typer(keys, name="keys", rich_help_panel="Operation")
cli.command(rich_help_panel="Operation")(doctor)
