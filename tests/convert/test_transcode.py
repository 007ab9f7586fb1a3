"""The function: any iterable of bytes in, frames out as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import tailrace
from tailrace.convert import source_names, target_names, transcode
from tailrace.core.errors import UnknownFormat
from tests.convert.streams import as_sse, converted, read, source_of
from tests.convert.test_pieces import ANTHROPIC
from tests.ingest.streams import lines

PIECE = '{"choices":[{"index":0,"delta":{"content":"%s"}}]}'


async def gathered(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([frames async for frames in stream])


async def test_it_reads_async_and_plain_iterables() -> None:
    source = source_of(ANTHROPIC)
    chunks = [source[at : at + 100] for at in range(0, len(source), 100)]

    async def arriving() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    for to in target_names():
        whole = converted(source, "anthropic-messages", to, run_id="run_7")
        for stream in (chunks, arriving()):
            out = transcode(stream, "anthropic-messages", to, run_id="run_7")
            assert await gathered(out) == whole
    assert tailrace.transcode is transcode


async def test_json_lines_can_be_announced() -> None:
    events = "\n".join(lines(ANTHROPIC)).encode()
    out = await gathered(transcode([events], "anthropic-messages", "json", jsonl=True))
    assert read("json", out)["status"] == "completed"


async def test_every_run_has_another_name_unless_one_is_given() -> None:
    views = [
        read("json", await gathered(transcode([b""], "openai-chat", "json"))) for _ in range(2)
    ]
    assert views[0]["task_id"] != views[1]["task_id"]


async def test_what_comes_is_given_out_before_more_is_asked_for() -> None:
    waiting: asyncio.Queue[bytes] = asyncio.Queue()

    async def arriving() -> AsyncIterator[bytes]:
        while True:
            yield await waiting.get()

    out = transcode(arriving(), "openai-chat", "vercel-ui")
    for word in ("first", "second"):
        waiting.put_nowait(as_sse([PIECE % word]))
        assert word.encode() in await asyncio.wait_for(anext(out), 5)
    await out.aclose()


async def test_a_source_that_raises_ends_the_target_and_the_exception_goes_on() -> None:
    async def breaking() -> AsyncIterator[bytes]:
        yield as_sse([PIECE % "Hi"])
        raise ConnectionResetError("gone")

    for to in target_names():
        out = transcode(breaking(), "openai-chat", to)
        found = b""
        raised = ""
        while not raised:
            try:
                found += await anext(out)
            except ConnectionResetError as error:
                raised = str(error)
        assert raised == "gone"
        read(to, found)


async def test_after_its_end_nothing_more_is_read() -> None:
    read_on: list[str] = []

    def chunks() -> AsyncIterator[bytes]:
        async def arriving() -> AsyncIterator[bytes]:
            yield b"data: [DONE]\n\n"
            read_on.append("more")
            yield b"data: {}\n\n"

        return arriving()

    source = chunks()
    await gathered(transcode(source, "openai-chat", "task"))
    assert not read_on


def test_formats_that_cannot_be_are_refused_at_once_with_those_that_can() -> None:
    with pytest.raises(UnknownFormat, match="'morse' cannot be written") as refused:
        transcode([], "task", "morse")
    for name in target_names():
        assert name in str(refused.value)
    with pytest.raises(UnknownFormat, match="'morse' cannot be read") as refused:
        transcode([], "morse", "task")
    for name in source_names():
        assert name in str(refused.value)
    for name in set(target_names()) - set(source_names()):
        with pytest.raises(UnknownFormat, match="only be written"):
            transcode([], name, "task")
