"""Python processes that start in milliseconds: forked from a process that has the product.

    done = run("-m", "tailrace", "--version")         as `subprocess.run`
    Forked("-m", "tailrace", "serve", "mine:app")     as `subprocess.Popen`

To import the product takes most of a second. A test that is about the start of a process, or about
what is imported, uses `subprocess`.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, Self

ROOT = Path(__file__).parents[1]
DEADLINE = 120.0
"""Seconds that a command may take; a busy machine is slow, and slowness is no failure."""


class _Zygote:
    """The process that forks the others: `zygote.py`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.zygote", str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for pytest, which ends the others
            )
        atexit.register(self._close)

    def ask(self, order: dict[str, Any], files: list[int]) -> int:
        with self._lock:
            socket.send_fds(self._orders, [json.dumps(order).encode()], files)
            answer = self._orders.recv(1000)
        assert answer, "The process that forks the others has ended."
        return int(answer)

    def _close(self) -> None:
        self._orders.close()
        self._process.wait(DEADLINE)


_zygote = cache(_Zygote)


class Forked:
    """A Python process, with the methods of `subprocess.Popen`.

    Each of its files is a file, a descriptor, `PIPE`, `DEVNULL` or, for the last one, `STDOUT`. A
    `terminal` is the descriptor of one that becomes all three.
    """

    stdin: IO[Any] | None = None
    stdout: IO[Any] | None = None
    stderr: IO[Any] | None = None

    def __init__(
        self,
        *arguments: str | Path,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
        stdin: int | IO[Any] = subprocess.DEVNULL,
        stdout: int | IO[Any] = 1,
        stderr: int | IO[Any] = 2,
        terminal: int | None = None,
        text: bool = True,
    ) -> None:
        given: list[int] = []  # what is closed here as soon as the process has it

        def descriptor(name: str, file: int | IO[Any]) -> int:
            if not isinstance(file, int):
                return file.fileno()
            if file == subprocess.PIPE:
                reading, writing = os.pipe()
                theirs, ours, mode = (
                    (reading, writing, "w") if name == "stdin" else (writing, reading, "r")
                )
                opened = os.fdopen(ours, mode if text else f"{mode}b", -1 if text else 0)
                setattr(self, name, opened)
            elif file == subprocess.DEVNULL:
                theirs = os.open(os.devnull, os.O_RDWR)
            else:
                return file
            given.append(theirs)
            return theirs

        if terminal is not None:
            files = [terminal]
        else:
            files = [descriptor("stdin", stdin), descriptor("stdout", stdout)]
            same = stderr == subprocess.STDOUT
            files.append(files[1] if same else descriptor("stderr", stderr))
        order = {
            "run": list(map(str, arguments)),
            "cwd": str(cwd),
            "env": dict(os.environ if env is None else env),
            "terminal": terminal is not None,
        }
        try:
            self.pid = _zygote().ask(order, files)
        finally:
            for one in given:
                os.close(one)
        self._pidfd = os.pidfd_open(self.pid)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, if it has ended: minus the signal that killed it."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float = DEADLINE) -> int:
        """Wait for its end; the exit code."""
        if self.returncode is None:
            ended = select.poll()
            ended.register(self._pidfd, select.POLLIN)
            if not ended.poll(timeout * 1000):
                raise subprocess.TimeoutExpired("python", timeout)
            self.returncode = _zygote().ask({"wait": self.pid}, [])
            os.close(self._pidfd)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """SIGKILL: it is gone when this returns."""
        self.send_signal(signal.SIGKILL)
        self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill it, and close our ends of its pipes."""
        self.kill()
        for file in (self.stdin, self.stdout, self.stderr):
            if file is not None:
                file.close()


def run(
    *arguments: str | Path,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    text: bool = True,
) -> subprocess.CompletedProcess[Any]:
    """Run it to its end, in pipes: the exit code and what it wrote."""
    pipe = subprocess.PIPE
    process = Forked(*arguments, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=False)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with ThreadPoolExecutor(2) as readers:
        reading = [readers.submit(file.read) for file in (process.stdout, process.stderr)]
        try:
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(stdin)
            code = process.wait()
        finally:
            process.kill()
        output, errors = (one.result() for one in reading)
    process.close()
    if text:
        return subprocess.CompletedProcess(arguments, code, output.decode(), errors.decode())
    return subprocess.CompletedProcess(arguments, code, output, errors)
