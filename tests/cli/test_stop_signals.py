"""A stop signal ends `serve` and `worker` with 0 at any moment, also while they start or end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.effort import sample
from tests.forked import DEADLINE

SIGNALS = (signal.SIGTERM, signal.SIGINT)

APP = """
from tailrace import Tailrace, Task

async def agent(task: Task) -> None: pass

app = Tailrace([agent], database="log.db")
"""

SAY = "print('here', flush=True)\n"
BLOCK = """
import time
try:
    time.sleep(600)
except BaseException:
    time.sleep(600)
"""
AS_TYPER = """
import sys
sys.path.remove(__file__.rpartition("/")[0])
del sys.modules["typer"]
import typer
"""


@contextmanager
def started(folder: Path, command: str, first: str = "") -> Iterator[subprocess.Popen[str]]:
    """The command, once it has printed its first line. `first` stands in for its first import."""
    (folder / "first").mkdir()
    if first:
        (folder / "first" / "typer.py").write_text(SAY + first)
    port = ["--port", "0"] if command == "serve" else []
    with subprocess.Popen(
        [sys.executable, "-m", "tailrace", command, "main:app", *port],
        cwd=folder,
        env={"PYTHONPATH": str(folder / "first")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), process.stderr and process.stderr.read()
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code, and what it wrote to standard error."""
    _, errors = process.communicate(timeout=DEADLINE)
    return process.returncode, errors


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("command", ["serve", "worker"])
@pytest.mark.parametrize("importing", ["tailrace", "the application"])
def test_a_signal_during_the_imports_ends_the_process_at_once(
    tmp_path: Path, importing: str, command: str, number: signal.Signals
) -> None:
    (tmp_path / "main.py").write_text(SAY + BLOCK)
    with started(tmp_path, command, BLOCK if importing == "tailrace" else "") as process:
        process.send_signal(number)
        assert ended(process) == (0, "")


@pytest.mark.parametrize("number", SIGNALS)
def test_what_the_application_registered_for_its_exit_is_called(
    tmp_path: Path, number: signal.Signals
) -> None:
    left = "import atexit, pathlib\natexit.register(pathlib.Path('left').touch)\n"
    (tmp_path / "main.py").write_text(left + SAY + BLOCK)
    with started(tmp_path, "serve") as process:
        process.send_signal(number)
        assert ended(process) == (0, "")
    assert (tmp_path / "left").exists()


@pytest.mark.parametrize("milliseconds", sample(range(0, 420, 20), 5))
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_at_any_moment_of_the_start_ends_with_0(
    tmp_path: Path, number: signal.Signals, milliseconds: int
) -> None:
    (tmp_path / "main.py").write_text(APP)
    with started(tmp_path, "serve", AS_TYPER) as process:
        time.sleep(milliseconds / 1000)
        process.send_signal(number)
        code, errors = ended(process)
        assert (code, errors in ("", "Stopped.\n")) == (0, True)


@pytest.mark.parametrize("milliseconds", sample(range(0, 240, 10), 5))
@pytest.mark.parametrize("number", SIGNALS)
def test_a_second_signal_at_any_moment_of_the_end_ends_with_0(
    tmp_path: Path, number: signal.Signals, milliseconds: int
) -> None:
    (tmp_path / "main.py").write_text(APP)
    with started(tmp_path, "serve") as process:
        process.send_signal(number)
        time.sleep(milliseconds / 1000)
        process.send_signal(number)
        code, errors = ended(process)
        assert (code, errors in ("", "Stopped.\n")) == (0, True)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_process_that_a_signal_stops_says_so_at_last(
    tmp_path: Path, command: str, number: signal.Signals
) -> None:
    (tmp_path / "main.py").write_text(APP)
    with started(tmp_path, command) as process:
        process.send_signal(number)
        assert ended(process) == (0, "Stopped.\n")
