"""The source document's worked examples by our own writer: the same JSON, ids aside."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.authoring import PNG
from conformance.stories.documents import ANSWER, WEATHER
from tailrace.core.codec import decode_private
from tailrace.core.items import ReferenceToBlock, Text
from tailrace.runtime.tasks.call_writer import CallWriter
from tailrace.runtime.tasks.task import Task
from tests.runtime.tasks.begun import begun_in
from tests.traces import FOLDER

RUN = "task_1234xyz"
IDS = ("id", "item_id", "call_id", "task_id", "parent_task_id", "source_task_id")
CITATION = ReferenceToBlock(reference_id=1, start_index=56, end_index=60)


def think(task: Task, tool: str) -> None:
    with task.reasoning() as thinking:
        thinking.summary("Thinking about the weather ")
        thinking.summary("in Paris.")
        thinking.next_part()
        thinking.summary("Decided to call ")
        thinking.summary(f"{tool} function.")


def called(task: Task, name: str, *pieces: str) -> CallWriter:
    with task.call(name) as call:
        for piece in pieces:
            call.arguments(piece)
    return call


def get_weather(task: Task, *pieces: str) -> None:
    image = {"type": "image_url", "image_url": {"url": PNG}, "id": 1}
    parts = [{"type": "text", "text": WEATHER, "id": 1}, image]
    output = {"message_content": parts, "block_list": parts}
    called(task, "get_weather", *pieces).result(output, partial_images=[PNG, PNG])


def answer(task: Task) -> None:
    with task.message() as message:
        message.whole(Text(text=ANSWER, annotations=[CITATION]))


def weather(task: Task) -> None:
    think(task, "get_weather")
    get_weather(task, '{"', "location", '":"', "Paris", ",", " France", '"}')
    answer(task)
    task.complete()


def subagent(task: Task) -> None:
    think(task, "ask_for_help")
    arguments = (
        '{"name":"WeatherAgent","description":"An agent that provides weather information.",'
        '"prompt":"Get the current weather in Paris, France."}'
    )
    with called(task, "ask_for_help", arguments).delegate("WeatherAgent") as child:
        think(child, "get_weather")
        get_weather(child, '{"location":"Paris', ', France"}')
        answer(child)
    answer(task)
    task.complete()


def without_ids(lines: list[bytes]) -> list[Any]:
    """The events, with each id replaced by the number of its first appearance."""
    found: dict[str, str] = {}

    def plain(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: plain(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [plain(one) for one in value]
        if name in IDS and isinstance(value, str):
            return found.setdefault(value, f"id {len(found)}")
        return value

    return [plain(json.loads(line)) for line in lines]


async def written(folder: Path, story: Callable[[Task], None]) -> tuple[list[bytes], Any]:
    """The public events and private contents that a story leaves in the log."""
    async with begun_in(folder, RUN) as begun:
        story(begun.task)
        await begun.task.drain()
        lines = [one.public for one in await begun.log.read(RUN, 0)]
        privates = await begun.log.read_private(RUN, 0)
    contents = [decode_private(privates[number]).content for number in sorted(privates)]
    return lines, [content for content in contents if content is not None]


@pytest.mark.parametrize(("name", "story"), [("s0_weather", weather), ("s0_subagent", subagent)])
async def test_the_writer_emits_the_json_of_the_source_document(
    tmp_path: Path, name: str, story: Callable[[Task], None]
) -> None:
    lines, contents = await written(tmp_path, story)
    golden = (FOLDER / name / "events.jsonl").read_bytes().splitlines()
    assert without_ids(lines) == without_ids(golden)
    hidden = (FOLDER / name / "private.jsonl").read_bytes().splitlines()
    expected = [decode_private(line).content for line in hidden]
    assert contents == expected
