"""`tailrace serve --reload`: starts the server again when a Python file changes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from tailrace.cli.output import say_aside

POLL_SECONDS = 0.3
_SKIPPED = ("__pycache__", "node_modules")


def free_port(host: str) -> int:
    """A port that is free now, for a server that keeps its address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def serve_with_reload(arguments: list[str], folder: Path) -> None:
    """Run `tailrace` with these arguments, and again after each change, until a stop signal."""
    stopping: list[int] = []

    def stop(number: int, _frame: Any) -> None:
        stopping.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    while not stopping:
        seen = set(_files(folder))
        # A group of its own: Ctrl-C reaches it through this process only.
        command = [sys.executable, "-m", "tailrace", *arguments]
        server = subprocess.Popen(command, process_group=0)  # noqa: S603 - our own arguments
        changed: set[tuple[str, int, int]] = set()
        while not stopping and not changed:
            time.sleep(POLL_SECONDS)
            changed = set(_files(folder)) ^ seen
        _end(server, stopping)
        if changed and not stopping:
            names = sorted({os.path.relpath(name, folder) for name, _, _ in changed})
            say_aside(f"{', '.join(names[:3])} changed; the server starts again.")
    raise typer.Exit(max(server.returncode, 0))


def _end(server: subprocess.Popen[bytes], stopping: list[int]) -> None:
    """Stop the server, and pass further signals on: the second ends its wait for runs."""
    server.send_signal(signal.SIGTERM)
    passed = len(stopping)
    while server.poll() is None:
        if len(stopping) > passed and passed:
            server.send_signal(signal.SIGTERM)
        passed = len(stopping)
        time.sleep(0.05)


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    """The Python files below a folder, with their time and size."""
    for place, folders, names in os.walk(folder):
        here = Path(place)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED
            and not (here / name / "pyvenv.cfg").exists()
        ]
        for name in names:
            if name.endswith(".py"):
                with suppress(OSError):  # deleted meanwhile
                    found = (here / name).stat()
                    yield str(here / name), found.st_mtime_ns, found.st_size
