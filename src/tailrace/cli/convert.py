"""`tailrace convert`: a stream in another format."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
import typer.core

from tailrace.cli.output import fail
from tailrace.core.errors import StreamCut, TailraceError


class ConvertCommand(typer.core.TyperCommand):
    """Lists the formats in its help. They are loaded only for that."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show the help with the names of all formats."""
        from tailrace.convert import source_names, target_names

        self.epilog = (
            f"Formats to convert from: {', '.join(source_names())}.\n\n"
            f"Formats to convert to: {', '.join(target_names())}; jsonl has an event per line, "
            "json is the final object.\n\n"
            "Formats that are missing in the first list can only be written."
        )
        super().format_help(ctx, formatter)


def _sources(incomplete: str) -> list[str]:
    """The formats to convert from that a shell can complete to."""
    from tailrace.convert import source_names

    return [name for name in source_names() if name.startswith(incomplete)]


def _targets(incomplete: str) -> list[str]:
    """The formats to convert to that a shell can complete to."""
    from tailrace.convert import target_names

    return [name for name in target_names() if name.startswith(incomplete)]


def convert(
    from_: Annotated[
        str,
        typer.Option(
            "--from", help="Format of the input, e.g. openai-chat.", autocompletion=_sources
        ),
    ],
    to: Annotated[
        str,
        typer.Option(help="Format of the output, e.g. vercel-ui.", autocompletion=_targets),
    ],
    file: Annotated[str, typer.Argument(help="File with the stream; - is standard input.")] = "-",
    jsonl: Annotated[
        bool,
        typer.Option("--jsonl", help="The input is JSON lines; by default its first byte decides."),
    ] = False,
    run_id: Annotated[
        str, typer.Option(help="Id of the run that a provider's stream becomes.")
    ] = "run_1",
) -> None:
    """Convert a stream to another format, as it arrives.

    A cut or broken stream gets a proper end. An error message names the place,
    and the exit code is 1.

    Example: tailrace convert --from openai-chat --to vercel-ui stream.jsonl
    """
    from tailrace.convert import Transcoder
    from tailrace.convert.pipe import pump

    try:
        transcoder = Transcoder(from_, to, run_id=run_id, jsonl=jsonl)
        source = sys.stdin.fileno() if file == "-" else os.open(file, os.O_RDONLY)
        code = pump(transcoder, source, sys.stdout.fileno())
    except TailraceError as error:
        fail(str(error))
    except OSError as error:
        fail(f"File {file} cannot be read ({error.strerror}).")
    if transcoder.error is not None and not code:
        where = "after" if isinstance(transcoder.error, StreamCut) else "in"
        place = f"{where} event {transcoder.events} of the stream"
        if not transcoder.events:
            place = "the stream has no events"
        fail(f"{transcoder.error} ({place})", 1)
    raise typer.Exit(code)
