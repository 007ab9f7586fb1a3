"""An agent that writes its run itself: reasoning, a tool, a sub-agent, citations."""

from __future__ import annotations

import asyncio
import base64
import struct
import zlib
from collections.abc import Iterator

from tailrace.core.items import Usage
from tailrace.runtime.agents.functions import AgentFunction
from tailrace.runtime.tasks.task import Task


def assistant(pace: float = 0.03) -> AgentFunction:
    """An agent that writes a word every `pace` seconds."""

    async def run(task: Task) -> None:
        script = _Script(task, pace)
        with task.step("think"):
            await script.think("The weather in Paris decides this.", "First the facts.")
        with task.step("work"):
            await script.weather()
            await script.stylist()
        with task.step("answer"):
            await script.say(
                task,
                "It is sunny in Paris, at 15 °C.[^1] A light jacket is enough 🧥,[^2] "
                "and you can leave the umbrella at home.",
            )
        task.usage(
            Usage(
                model="scripted",
                input_tokens=412,
                output_tokens=96,
                reasoning_tokens=12,
                cost=0.00041,
                latency_ms=1840,
            )
        )

    return run


class _Script:
    def __init__(self, task: Task, pace: float) -> None:
        self._task = task
        self._pace = pace

    async def think(self, *parts: str, task: Task | None = None) -> None:
        with (task or self._task).reasoning() as thinking:
            for part in parts:
                for word in _words(part):
                    thinking.summary(word)
                    await self._beat()
                thinking.next_part()

    async def say(self, task: Task, text: str) -> None:
        with task.message() as message:
            for word in _words(text):
                message.text(word)
                await self._beat()

    async def weather(self) -> None:
        with self._task.call("get_weather") as call:
            for piece in ('{"ci', 'ty":"Par', "is, Fr", 'ance"}'):
                call.arguments(piece)
                await self._beat()
        call.start()
        await self._task.drain()
        for station in range(1, 4):
            call.progress(f"asking station {station} of 3", station, 3)
            await self._beat(4)
        facts = '{"temperature":"15C","condition":"Sunny"}'
        picture = {"type": "image", "image_url": {"url": _sun(64)}, "id": 1}
        text = {"type": "text", "text": facts, "id": 1}
        call.result(
            {"message_content": [text, picture], "block_list": [text, picture]},
            partial_images=[_sun(8), _sun(16)],
        )

    async def stylist(self) -> None:
        with self._task.call("ask_for_help") as call:
            for piece in ('{"name":"Stylist",', '"prompt":"What to wear', ' at 15C and sun?"}'):
                call.arguments(piece)
                await self._beat()
        call.start()
        await self._task.drain()
        with call.delegate("stylist", "What to wear at 15C and sun?") as child:
            await self.think("Fifteen degrees: layers.", task=child)
            with child.call("look_up_wardrobe") as lookup:
                lookup.arguments('{"degrees":15}')
            lookup.start()
            await self._beat(8)
            lookup.result("12–18 °C, dry: light jacket over a shirt.")
            await self.say(child, "A light jacket over a shirt.[^1]")
            child.usage(Usage(model="scripted", input_tokens=90, output_tokens=31, cost=0.0001))

    async def _beat(self, beats: int = 1) -> None:
        await asyncio.sleep(self._pace * beats)
        await self._task.drain()


def _words(text: str) -> Iterator[str]:
    start = 0
    for index, character in enumerate(text):
        if character == " ":
            yield text[start : index + 1]
            start = index + 1
    yield text[start:]


def _sun(size: int) -> str:
    """A yellow disc on blue, as a PNG. It is drawn here, so the demo needs no file or network."""
    rows = bytearray()
    for y in range(size):
        rows.append(0)
        for x in range(size):
            far = (x - size / 2 + 0.5) ** 2 + (y - size / 2 + 0.5) ** 2 > (size / 3) ** 2
            rows += b"\x6c\xb4\xee" if far else b"\xff\xd3\x3d"
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows))), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()
