"""The command line as a user runs it: in a pipe, in the background, in a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.forked import Forked, run

ROOT = Path(__file__).parents[2]
DEADLINE = 120.0
_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "NO_COLOR", "FORCE_COLOR")


def environment(cwd: Path = ROOT) -> dict[str, str]:
    """Without keys, and with the folder in the path."""
    kept = {name: value for name, value in os.environ.items() if name not in _KEYS}
    paths = [str(cwd), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "TERM": "xterm-256color"}


def tailrace(
    *arguments: str, cwd: Path = ROOT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    given = {**environment(cwd), **(env or {})}
    return run("-m", "tailrace", *arguments, cwd=cwd, env=given)


@contextmanager
def running(
    *arguments: str, cwd: Path = ROOT, stdout: int | IO[bytes] = subprocess.PIPE
) -> Iterator[Forked]:
    process = Forked(
        *("-m", "tailrace", *arguments),
        cwd=cwd,
        env=environment(cwd),
        stdout=stdout,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.close()


class Terminal:
    """A command in a terminal of 100 columns."""

    def __init__(self, *arguments: str, cwd: Path = ROOT) -> None:
        self._number, theirs = pty.openpty()
        fcntl.ioctl(self._number, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        command = ("-m", "tailrace", *arguments)
        self._process = Forked(*command, cwd=cwd, env=environment(cwd), terminal=theirs)
        os.close(theirs)
        self._seen = b""

    @property
    def text(self) -> str:
        """What was written so far, without colours and movements."""
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self._seen.decode(errors="replace"))

    @property
    def raw(self) -> str:
        return self._seen.decode(errors="replace")

    def until(self, words: str) -> str:
        """Wait until the words are on the screen."""
        deadline = time.monotonic() + DEADLINE
        while words not in self.text:
            assert time.monotonic() < deadline, f"{words!r} did not come:\n{self.text}"
            assert self._read(1.0), f"{words!r} did not come before the end:\n{self.text}"
        return self.text

    def press(self, keys: str) -> None:
        os.write(self._number, keys.encode())

    def signal(self, number: int) -> None:
        """Send a signal to the command."""
        self._process.send_signal(number)

    def end(self) -> int:
        """Wait for the end of the command: its exit code."""
        deadline = time.monotonic() + DEADLINE
        while self._read(1.0):
            assert time.monotonic() < deadline, f"It does not end:\n{self.text}"
        return self._process.wait()

    def close(self) -> None:
        self._process.kill()
        os.close(self._number)

    def _read(self, wait: float) -> bool:
        """Read what there is; False at the end."""
        if not select.select([self._number], [], [], wait)[0]:
            return True
        try:
            found = os.read(self._number, 65536)
        except OSError:  # Linux reports the end so
            return False
        self._seen += found
        return bool(found)


@contextmanager
def terminal(*arguments: str, cwd: Path = ROOT) -> Iterator[Terminal]:
    opened = Terminal(*arguments, cwd=cwd)
    try:
        yield opened
    finally:
        opened.close()
