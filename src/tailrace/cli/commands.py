"""The list of commands. A command is a function in a file of its own, and a line here."""

from __future__ import annotations

import inspect
import sys
from typing import Annotated, Any

import typer
import typer.core

from tailrace import __version__
from tailrace.cli.convert import ConvertCommand, convert
from tailrace.cli.demo import demo
from tailrace.cli.doctor import doctor
from tailrace.cli.export import export
from tailrace.cli.fork import fork
from tailrace.cli.keys import keys
from tailrace.cli.output import say_error
from tailrace.cli.proxy import proxy
from tailrace.cli.replay import replay
from tailrace.cli.run import run
from tailrace.cli.schema import schema
from tailrace.cli.serve import serve, worker
from tailrace.cli.tail import tail
from tailrace.cli.threads import runs, threads


class Commands(typer.core.TyperGroup):
    """All commands. A wrong call ends with one sentence that names the help."""

    def main(self, args: Any = None, prog_name: Any = None, *more: Any, **options: Any) -> Any:
        """Run the command of these arguments."""
        is_program = options.pop("standalone_mode", True)
        options["standalone_mode"] = False
        _tidy(self)
        try:
            code = super().main(args, prog_name or "tailrace", *more, **options)
        except Exception as error:
            # Typer has a copy of click, or imports click: its errors have no public class.
            if not hasattr(error, "format_message"):
                raise
            context = getattr(error, "ctx", None)
            # Typer has printed the help of a command that needs another word.
            if type(error).__name__ != "NoArgsIsHelpError":
                path = context.command_path if context is not None else "tailrace"
                message = " ".join(error.format_message().split()).rstrip(".")
                say_error(f"{message}. See `{path} --help`.")
            code = getattr(error, "exit_code", 2)
        if is_program:
            sys.exit(code)
        return code


def _tidy(command: Any) -> None:
    """Make help readable in a terminal of any width.

    Lines of a docstring join; a flag, which takes no value, has no `<bool>`; arguments are named as
    in the docs.
    """
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for parameter in command.get_params(typer.Context(command)):
        if parameter.metavar is None and parameter.param_type_name == "argument":
            parameter.metavar = parameter.name.upper()
        elif parameter.metavar is None and parameter.is_flag:
            parameter.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        _tidy(inner)


cli = typer.Typer(
    cls=Commands,
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
