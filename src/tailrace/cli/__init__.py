"""The command `tailrace`. `commands.py` lists what it can do."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point of the `tailrace` command."""
    try:
        from tailrace.cli.commands import cli  # takes long enough for a Ctrl-C

        cli()
    except KeyboardInterrupt:
        sys.exit(130)  # as shells count it
