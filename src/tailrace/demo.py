"""The agent of `tailrace demo`. It needs no key, and shows every part of a run.

It thinks, and calls two tools at the same time; one of them paints an image that sharpens. It asks
a sub-agent that asks another, cites what they found, waits for an approval, and answers with a
typed object.
"""

from __future__ import annotations

import asyncio
import re
import struct
import zlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from tailrace.core.tool_output import image
from tailrace.core.values import json_text
from tailrace.models import Scripted, call, say, think, wait
from tailrace.models.scripted import conversation
from tailrace.models.scripted.script import Script, Wait
from tailrace.ports import Model, Request
from tailrace.runtime.agents.agent import Agent
from tailrace.runtime.tools.from_functions import streaming_tool, tool
from tailrace.runtime.tools.outputs import notify, partial_image

QUESTION = "Plan a sunny Saturday in Paris for two."

ARCHIVE = {
    "title": "Jardin du Luxembourg",
    "text": "The garden was laid out in 1612 for Marie de Medici. It opens at 7:30.",
}


class Plan(msgspec.Struct):
    """A day, planned."""

    title: str
    morning: str
    evening: str
    bring: list[str]


def assistant(pace: float = 0.03, model: Model | str | None = None) -> Agent:
    """An agent that writes a word every `pace` seconds, or uses a real model."""
    speed, first = _rhythm(pace)

    @tool(idempotent=True)  # may run again if its worker is killed
    async def get_weather(city: str) -> dict[str, str]:
        """Current weather in a city."""
        await asyncio.sleep(pace * 20)
        return {"city": city, "temperature": "15C", "condition": "Sunny"}

    @streaming_tool(idempotent=True)
    async def paint(subject: str) -> AsyncIterator[Any]:
        """Paints a small picture."""
        for done, height in enumerate((9, 18, 36, 72), 1):
            yield notify(f"painting {subject}", progress=done / 5)
            await asyncio.sleep(pace * 25)
            yield partial_image(_sun(height))
        yield image(await asyncio.to_thread(_sun, 144))
        yield f"A picture of {subject}."

    @tool(needs_approval=True)
    async def book_table(restaurant: str, guests: int, time: str) -> str:
        """Books a table. A person has to approve it."""
        return f"A table for {guests} at {restaurant} is booked, at {time}."

    guide = _guide(pace, model)
    return Agent(
        "assistant",
        description="Plans a day in Paris, and shows everything that a run can have.",
        model=model or Planner(first, speed),
        instructions=(
            "You plan a day in a city. First call get_weather and paint at the same time. Then "
            "ask the guide. Then book a table. Then answer, and cite what you use."
        ),
        tools=[get_weather, paint, guide.as_tool(), book_table],
        output=Plan,
    )


def _guide(pace: float, model: Model | str | None) -> Agent:
    """A sub-agent that asks the archivist."""
    speed, first = _rhythm(pace)
    script = Scripted(
        [
            first,
            think("A sunny morning: a garden. The archivist knows which.", speed),
            call("archivist", prompt="Which garden is worth a walk?"),
        ],
        [first, say("Walk in the Jardin du Luxembourg, laid out in 1612.[^1]", speed)],
    )
    return Agent(
        "guide",
        model=model or script,
        instructions="Ask the archivist once, then recommend one place in one sentence.",
        tools=[_archivist(pace, model).as_tool()],
        description="Knows where to go in Paris.",
    )


def _archivist(pace: float, model: Model | str | None) -> Agent:
    """A sub-agent of the guide, with a streaming tool."""
    speed, first = _rhythm(pace)

    @streaming_tool(idempotent=True)
    async def search(topic: str) -> AsyncIterator[Any]:
        """Searches the city's archive."""
        for shelf in range(1, 6):
            yield notify(f"reading shelf {shelf} of 5", progress=shelf / 5)
            await asyncio.sleep(pace * 10)
        yield {"topic": topic, **ARCHIVE}

    script = Scripted(
        [
            first,
            think("The archive knows its gardens.", speed),
            call("search", topic="gardens"),
        ],
        [first, say("The Jardin du Luxembourg is from 1612 and opens at 7:30.[^1]", speed)],
    )
    return Agent(
        "archivist",
        model=model or script,
        instructions="Search the archive once, then answer in one sentence.",
        tools=[search],
        description="Knows the history of Paris.",
    )


def _rhythm(pace: float) -> tuple[float, Wait]:
    """Words per second, and the wait until the first token, as real models have it."""
    return (1 / pace if pace else 0), wait(pace * 8)


class Planner(Scripted):
    """Plays the day for each question, and writes what fits the results of its tools."""

    def __init__(self, first: Wait, speed: float) -> None:
        super().__init__([first])
        self._first = first
        self._speed = speed

    async def stream(self, request: Request) -> AsyncIterator[list[str]]:
        """The events of the next answer."""
        messages = conversation(request)
        roles = [message.get("role") for message in messages]
        since = messages[len(roles) - roles[::-1].index("user") :]  # the last question
        turn = sum(message.get("role") == "assistant" for message in since)
        results = [str(message["content"]) for message in since if message.get("role") == "tool"]
        answer = Scripted([self._first, *self._steps(turn, results)])
        async for events in answer.stream(request):
            yield events

    def _steps(self, turn: int, results: list[str]) -> Script:
        weather, garden, table = (_cite(results, words) for words in ("15C", "1612", "booked"))
        if turn == 0:
            thought = "A plan for Saturday needs the weather first. A picture helps."
            return [
                think(thought, self._speed),
                call("get_weather", city="Paris"),
                call("paint", subject="the sun over Paris"),
            ]
        if turn == 1:
            return [
                say(f"It is sunny, at 15 °C.{weather} I ask the guide where to go.", self._speed),
                call("guide", prompt="Where do we walk on a sunny morning?"),
            ]
        if turn == 2:
            return [
                say(f"The garden it is.{garden} Now a table for the evening.", self._speed),
                call("book_table", restaurant="Chez Janou", guests=2, time="19:30"),
            ]
        booked = re.search(r"A table for .* is booked, at .*(?=\.)", "\n".join(results))
        plan = Plan(
            title="A sunny Saturday in Paris",
            morning=f"Walk in the Jardin du Luxembourg{garden}; it is sunny at 15 °C{weather}.",
            evening=f"{booked[0]}{table}." if booked else "Free: without a table.",
            bring=["a light jacket", "sunglasses"],
        )
        return [say(json_text(plan), self._speed)]


def _cite(results: list[str], words: str) -> str:
    """The mark that cites the result with these words; empty without such a result."""
    found = (re.search(rf"ID: (\d+)\n.*{words}", result) for result in results)
    return next((f"[^{match[1]}]" for match in found if match), "")


def _sun(height: int) -> bytes:
    """The sun over Paris, as a PNG. It is drawn here: no file, no network."""
    width = height * 16 // 9
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            rows += _color((x + 0.5) / height, (y + 0.5) / height)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


def _color(across: float, down: float) -> bytes:
    """The color of a point; `down` goes from 0 to 1, `across` from 0 to 16/9."""
    beside = abs(across - 0.5)
    if down > 0.9 or (down > 0.82 and int(across * 14) % 3):
        return b"\x2e\x36\x52"  # roofs
    if down > 0.16 and beside < 0.012 + 0.16 * max(0.0, down - 0.2) ** 2:
        return b"\x2e\x36\x52"  # the tower
    if (across - 1.2) ** 2 + (down - 0.42) ** 2 < 0.045:
        return b"\xff\xd3\x5c"  # the sun
    return bytes((int(120 + 125 * down), int(170 + 30 * down), int(245 - 60 * down)))
