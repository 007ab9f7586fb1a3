"""The transcoder between two file descriptors, as a command of a pipe."""

from __future__ import annotations

import os
import signal
from types import FrameType

from tailrace.convert.transcoder import Transcoder
from tailrace.core.errors import CallerError

_EXIT_INTERRUPTED = 128 + signal.SIGINT
_EXIT_READER_GONE = 128 + signal.SIGPIPE
"""The exit codes of a shell for these signals."""

_CHUNK = 64 * 1024


def pump(transcoder: Transcoder, source: int, target: int) -> int:
    """Convert until the source ends; return the exit code of the command.

    Ctrl-C gives the target a proper end. A closed pipe stops the command.
    """
    code = 0
    interrupts = _Interrupts()
    before = signal.signal(signal.SIGINT, interrupts.note)
    try:
        while not transcoder.is_over and (chunk := interrupts.read(source)):
            _write(target, transcoder.feed(chunk))
        if interrupts.came:
            code = _EXIT_INTERRUPTED
        _write(target, transcoder.end())
    except BrokenPipeError:
        code = _EXIT_READER_GONE
    finally:
        signal.signal(signal.SIGINT, before)
    return code


def _write(target: int, frames: bytes) -> None:
    """Write without a buffer, so that readers get each event at once."""
    left = memoryview(frames)
    try:
        while left:
            left = left[os.write(target, left) :]
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CallerError(
            f"The output cannot be written ({error.strerror}). Check the disk and the path."
        ) from error


class _Interrupts:
    """Ctrl-C interrupts the waiting for more, never the work on what has come."""

    def __init__(self) -> None:
        self.came = False
        self._is_waiting = False

    def note(self, _number: int, _frame: FrameType | None) -> None:
        self.came = True
        if self._is_waiting:
            raise InterruptedError

    def read(self, source: int) -> bytes:
        """The next bytes; none at the end, or when Ctrl-C came."""
        try:
            self._is_waiting = True
            return b"" if self.came else os.read(source, _CHUNK)
        except InterruptedError:
            return b""
        finally:
            self._is_waiting = False
