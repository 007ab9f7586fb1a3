"""The file in which model calls are kept, to be played again.

JSON lines. A call begins with `{"call": name, "api": …, "model": …}` and its `host`, if it has one;
each chunk of its answer is `{"call": name, "at": seconds, "events": […]}`, an error
`{"call": name, "at": …, "error": …}`. Each line says whose it is and is written as it comes: calls
that are made at once may share a file, and a crash costs no more than what had not come.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tailrace.core.errors import CallerError
from tailrace.core.history import Api


class NoRecording(CallerError):
    """A file without the call that is asked for, or that is no recording."""

    code = "no_recording"


class Begun(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A call, and who was asked."""

    call: str
    api: Api
    model: str
    host: str = ""


class Chunk(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What came of a call `at` so many seconds after it was made: events, or an error."""

    call: str
    at: float
    events: list[str] = []
    error: str | None = None
    message: str = ""
    retry_after: float | None = None


class Call(msgspec.Struct):
    """One call, whole."""

    begun: Begun
    chunks: list[Chunk]


def read_calls(path: str | Path) -> list[Call]:
    """The calls of a recording, in the order in which they were made.

    Its last line may be cut short: whoever wrote it was. `NoRecording` says which line is wrong.
    """
    path = Path(path)
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise NoRecording(f"{path} cannot be read: {error.strerror}.") from None
    calls: dict[str, Call] = {}
    whole = lines[:-1]  # the last one has no line feed: empty, or cut short
    for number, line in enumerate(whole, 1):
        try:
            value = msgspec.json.decode(line)
            if isinstance(value, dict) and "api" in value:
                begun = msgspec.convert(value, Begun)
                calls[begun.call] = Call(begun, [])
            else:
                chunk = msgspec.convert(value, Chunk)
                calls[chunk.call].chunks.append(chunk)
        except (ValueError, KeyError) as error:
            why = "its call is not in the file" if isinstance(error, KeyError) else str(error)
            said = f"{path.name}, line {number}, is no part of a recording: {why}."
            raise NoRecording(said) from None
    if not calls:
        raise NoRecording(f"{path.name} holds no answer.")
    return list(calls.values())
