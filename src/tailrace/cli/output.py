"""How a command speaks: a line of output, or one sentence about a mistake."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import typer

UNREAD_SECONDS = 0.5
"""How long a line at the end of a command waits for a terminal that does not read."""


class Lines:
    """How lines are printed: as they are, or as lines of a log in JSON."""

    shape: Callable[[str], str] = str


def say(line: str) -> None:
    """Print a line. A full disk behind the output must not stop the server."""
    with suppress(OSError):
        typer.echo(Lines.shape(line))


def say_aside(line: str) -> None:
    """Print a line that is not part of the command's output, for the person who reads along."""
    with suppress(OSError):
        typer.echo(Lines.shape(line), err=True)


def say_at_end(line: str) -> None:
    """Print a line aside while the command ends. A terminal that does not read delays it shortly.

    The line is written without the lock of `sys.stderr`, which Python needs when it ends.
    """
    text = f"{Lines.shape(line)}\n".encode()

    def write() -> None:
        with suppress(OSError):
            os.write(2, text)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    writer.join(UNREAD_SECONDS)


def say_error(message: str) -> None:
    """Print an error message."""
    typer.echo(coloured(f"tailrace: {message}", "red"), err=True)


def coloured(text: str, colour: str) -> str:
    """The text in a colour, unless NO_COLOR is set (https://no-color.org)."""
    return text if os.environ.get("NO_COLOR") else typer.style(text, fg=colour)


def fail(message: str, code: int = 2) -> NoReturn:
    """End the command with an error message and an exit code."""
    say_error(message)
    raise typer.Exit(code)
