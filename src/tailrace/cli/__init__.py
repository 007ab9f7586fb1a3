"""The command `tailrace`. `commands.py` lists what it can do."""

from __future__ import annotations

from tailrace.cli.commands import cli


def main() -> None:
    """The entry point of the `tailrace` command."""
    cli()
