"""How a command speaks: a line of output, or one sentence about a mistake."""

from __future__ import annotations

from contextlib import suppress
from typing import NoReturn

import typer


def say(line: str) -> None:
    """Print a line. A full disk behind the output must not stop the server."""
    with suppress(OSError):
        typer.echo(line)


def say_aside(line: str) -> None:
    """Print a line that is not part of the command's output, for the person who reads along."""
    with suppress(OSError):
        typer.echo(line, err=True)


def say_error(message: str) -> None:
    """Print an error message."""
    typer.secho(f"tailrace: {message}", fg="red", err=True)


def fail(message: str, code: int = 2) -> NoReturn:
    """End the command with an error message and an exit code."""
    say_error(message)
    raise typer.Exit(code)
