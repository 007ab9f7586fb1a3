"""Frames taken apart, for the strict readers of the formats: they share nothing with a writer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]


def events_of(frames: list[bytes]) -> list[Json]:
    """The JSON of each frame, which has exactly an `event:` and a `data:` line.

    OpenAI's last frame `[DONE]` is no event.
    """
    found = []
    if frames[-1:] == [b"data: [DONE]\n\n"]:
        frames = frames[:-1]
    for frame in frames:
        assert frame.count(b"\n") == 3, frame
        name, data, *rest = frame.split(b"\n")
        assert rest == [b"", b""], frame
        value = json.loads(data.removeprefix(b"data: "))
        assert name == f"event: {value['type']}".encode(), frame
        found.append(value)
    return found


def chunks_of(frames: Iterable[bytes]) -> list[Any]:
    """The value of each frame, which is one `data:` line; `[DONE]` as itself."""
    found = []
    for frame in frames:
        assert frame.startswith(b"data: "), frame
        assert frame.endswith(b"\n\n"), frame
        assert frame.count(b"\n") == 2, frame
        data = frame[6:-2].decode()
        found.append(data if data == "[DONE]" else json.loads(data))
    return found
