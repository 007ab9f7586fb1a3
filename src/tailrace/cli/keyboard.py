"""Whether a person sits at the terminal, and the keys that they press."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def is_interactive() -> bool:
    """Whether a person can read and type."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextmanager
def pressed_keys(wanted: bool) -> Iterator[asyncio.Queue[str]]:
    """The keys that are pressed, without Enter and without echo."""
    pressed: asyncio.Queue[str] = asyncio.Queue()
    if not wanted:
        yield pressed
        return
    import codecs
    import termios
    import tty

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    loop = asyncio.get_running_loop()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read() -> None:
        for character in decoder.decode(os.read(number, 1024)):
            pressed.put_nowait(character)

    tty.setcbreak(number)
    loop.add_reader(number, read)
    # uvloop makes it non-blocking, and with it the output to the same terminal.
    os.set_blocking(number, True)
    try:
        yield pressed
    finally:
        loop.remove_reader(number)
        # Not TCSADRAIN: it waits while the terminal does not read.
        termios.tcsetattr(number, termios.TCSANOW, before)
