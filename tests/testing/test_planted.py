"""`check_resume` finds what is wrong: each of these mistakes, planted into the resume of a stream.

It passes without them, in `test_agent_runs.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tailrace import Agent
from tailrace.errors import InvalidCursor
from tailrace.models import Scripted, say
from tailrace.testing import check_resume, resume_kit
from tailrace.wire.base import Cursor
from tailrace.wire.formats import FORMATS

CUT = 4
"""The event after which a resume goes wrong."""

Resume = Callable[[Cursor | None], AsyncIterator[bytes]]


async def frames(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The frames of a stream, one by one."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n\n")
        for frame in whole:
            yield frame + b"\n\n"


def without_cursor(frame: bytes) -> bytes:
    """A frame after which a client cannot resume, so that it reads the next."""
    lines = frame.split(b"\n")
    return b"\n".join(line for line in lines if not line.startswith(b"id:"))


async def loses_an_event(resume: Resume, cursor: Cursor) -> AsyncIterator[bytes]:
    lost = False
    async for frame in frames(resume(cursor)):
        if lost or b"data:" not in frame:
            yield frame
        lost = lost or b"data:" in frame


async def repeats_an_event(resume: Resume, cursor: Cursor) -> AsyncIterator[bytes]:
    async for frame in frames(resume(cursor)):
        yield without_cursor(frame)
        yield frame


async def changes_an_event(resume: Resume, cursor: Cursor) -> AsyncIterator[bytes]:
    async for frame in frames(resume(cursor)):
        yield frame.replace(b'{"', b'{"new":1,"', 1)


async def begins_again(resume: Resume, cursor: Cursor) -> AsyncIterator[bytes]:
    async for frame in frames(resume(None)):
        if b"data:" in frame:
            yield without_cursor(frame)
            break
    async for frame in frames(resume(cursor)):
        yield frame


async def ends_too_early(resume: Resume, cursor: Cursor) -> AsyncIterator[bytes]:
    async for _ in frames(resume(cursor)):
        return
    yield b""


@pytest.mark.parametrize("format_name", ["task", "agents"])
@pytest.mark.parametrize(
    "bug", [loses_an_event, repeats_an_event, changes_an_event, begins_again, ends_too_early]
)
async def test_the_kit_finds_a_resume_that(
    bug: Callable[[Resume, Cursor], AsyncIterator[bytes]],
    format_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original: Any = getattr(resume_kit, "run_frames")  # noqa: B009

    def planted(runs: Any, wire: Any, run_id: str, cursor: Cursor | None = None) -> Any:
        def resume(after: Cursor | None) -> Any:
            return original(runs, wire, run_id, after)

        wrong = cursor is not None and cursor.seq == CUT
        return bug(resume, cursor) if wrong and cursor is not None else resume(cursor)

    monkeypatch.setattr(resume_kit, "run_frames", planted)
    agent = Agent("speaker", model=Scripted([say("It is sunny in Paris today.")]))
    with pytest.raises(AssertionError, match=format_name):
        await check_resume(agent, "?", formats=[format_name])


async def test_the_kit_finds_a_format_that_refuses_its_own_cursor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = FORMATS["task"]
    original = wire.cursor

    def refusing(text: str) -> Cursor:
        found = original(text)
        if found.seq == CUT:
            raise InvalidCursor("Not a cursor.")
        return found

    monkeypatch.setattr(wire, "cursor", refusing)
    agent = Agent("speaker", model=Scripted([say("It is sunny in Paris today.")]))
    with pytest.raises(AssertionError, match="was sent and is refused"):
        await check_resume(agent, "?", formats=[wire])
