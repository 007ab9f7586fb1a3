"""The command `tailrace`. `commands.py` lists what it can do."""

from __future__ import annotations

import os
import sys

DRAWING_SECONDS = 2.0
"""How long a command that ends waits for a terminal that does not read."""


def main() -> None:
    """The entry point of the `tailrace` command."""
    try:
        from tailrace.cli.commands import cli  # takes long enough for a Ctrl-C

        cli()
    except KeyboardInterrupt:
        sys.exit(130)  # as shells count it
    except SystemExit as ending:
        from tailrace.cli.background_screen import all_drawn

        if not all_drawn(DRAWING_SECONDS):
            # Python would wait for the thread that writes, also after SIGTERM.
            os._exit(ending.code if isinstance(ending.code, int) else 0)
        raise
