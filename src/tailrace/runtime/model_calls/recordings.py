"""The file format of recorded model calls, which can be replayed.

JSON lines. A call begins with `{"call": name, "api": …, "model": …}` and its `host`, if it has one.
A chunk of its answer is `{"call": name, "at": seconds, "events": […]}`, an error is
`{"call": name, "at": …, "error": …}`. Each line names its call and is written as it arrives. So
calls at the same time may share a file, and a crash loses only what had not arrived.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tailrace.core.errors import CallerError
from tailrace.history import Api


class NoRecording(CallerError):
    """The file is not a recording, or lacks the call."""

    code = "no_recording"


class RecordedStart(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The first line of a call: the API, the model and the host."""

    call: str
    api: Api
    model: str
    host: str = ""


class RecordedChunk(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Events or an error that arrived `at` seconds after the call was made."""

    call: str
    at: float
    events: list[str] = []
    error: str | None = None
    message: str = ""
    retry_after: float | None = None


class RecordedCall(msgspec.Struct):
    """A complete call."""

    begun: RecordedStart
    chunks: list[RecordedChunk]


def read_calls(path: str | Path) -> list[RecordedCall]:
    """Read the calls of a recording, in the order in which they were made.

    The last line may be incomplete, if its writer was killed. `NoRecording` names a wrong line.
    """
    path = Path(path)
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise NoRecording(
            f"Recording {path} cannot be read: {error.strerror}. Check the path."
        ) from None
    calls: dict[str, RecordedCall] = {}
    whole = lines[:-1]  # the last line has no line feed: it is empty or incomplete
    for number, line in enumerate(whole, 1):
        try:
            value = msgspec.json.decode(line)
            if isinstance(value, dict) and "api" in value:
                begun = msgspec.convert(value, RecordedStart)
                calls[begun.call] = RecordedCall(begun, [])
            else:
                chunk = msgspec.convert(value, RecordedChunk)
                calls[chunk.call].chunks.append(chunk)
        except (ValueError, KeyError) as error:
            why = "its call is not in the file" if isinstance(error, KeyError) else str(error)
            raise NoRecording(f"Recording {path.name}, line {number}: {why}.") from None
    if not calls:
        raise NoRecording(f"Recording {path.name} is empty; record a call first.")
    return list(calls.values())
