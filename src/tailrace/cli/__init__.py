"""The command `tailrace`. `commands.py` lists what it can do."""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

UNTIL_STOPPED = ("serve", "worker", "proxy", "demo")
"""Commands that run until a stop signal, and end with 0 after it."""

EXIT_SECONDS = 2.0
"""How long the functions that are registered for the exit may take after a stop signal."""

DRAWING_SECONDS = 2.0
"""How long a command that ends waits for a terminal that does not read."""


def main() -> None:
    """The entry point of the `tailrace` command."""
    if sys.argv[1:] and sys.argv[1] in UNTIL_STOPPED:
        _end_at_stop_signals()
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


def _end_at_stop_signals() -> None:
    """End at once with 0 at a stop signal, except while an event loop handles the signals.

    That is during the imports, and after the loop has ended.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, _end)
        # While Python ends, it restores the default, which would kill the process.
        atexit.register(signal.signal, number, signal.SIG_IGN)


def _end(_number: int, _frame: Any) -> NoReturn:
    # Not by an exception: the code that is imported now may catch it. And in a thread of its own:
    # the interrupted code may hold a lock that a function at the exit needs.
    atexit.unregister(signal.signal)  # only the main thread may call it
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    ended = _thread.allocate_lock()
    ended.acquire()
    _thread.start_new_thread(_run_exit_functions, (ended,))
    ended.acquire(timeout=EXIT_SECONDS)
    os._exit(0)


def _run_exit_functions(ended: _thread.LockType) -> None:
    with suppress(Exception):
        atexit._run_exitfuncs()  # they remove temporary folders
        sys.stdout.flush()
        sys.stderr.flush()
    ended.release()
