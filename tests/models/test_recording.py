"""Models whose raw streams are kept, and played again without them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace.core.errors import RateLimited
from tailrace.core.run_object import whole_object
from tailrace.ingest.base import Notebook
from tailrace.models import open_model
from tailrace.models.recording import NoRecording, record, replay
from tailrace.models.scripted import Scripted, cut, fail, say, silence, think, tries
from tailrace.ports import Request
from tailrace.runtime.model_calls.call import Patience, call_model
from tailrace.testing.simulator import Simulator
from tests.models.talking import HASTY, Talk, model_at, texts, weather_talk


async def answered(model: Any) -> Any:
    book = Notebook()
    outcome = await call_model(model, Request(input=[]), book, patience=HASTY)
    book.conclude(outcome)
    shown = whole_object(book.state)
    shown.pop("usage", None)  # how long it took differs
    return outcome, shown


@pytest.mark.parametrize("api", ["openai", "anthropic", "openai-chat"])
async def test_a_recording_says_the_same_again_without_a_network(api: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    async with Simulator(weather_talk) as provider:
        model = record(model_at(provider, api), path)
        talk = Talk(model, Request())
        answers = [await talk.ask(f"Question {number}?") for number in range(2)]
        await model.close()
    again = Talk(open_model(f"replay:{path}"), Request())
    assert [await again.ask(f"Question {number}?") for number in range(2)] == answers
    assert b"Question" not in path.read_bytes()
    assert b"sk-anything" not in path.read_bytes()
    with pytest.raises(NoRecording, match="has only 4 answers"):
        await again.ask("More?")


async def test_a_recording_keeps_faults_and_when_they_came(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    clock = iter(range(1000))
    made = Scripted(tries([fail("rate_limited", retry_after=0.001)], [say("Hello")]))
    first = await answered(record(made, path, now=lambda: float(next(clock))))
    assert await answered(replay(path)) == first
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert [line["at"] for line in lines if "at" in line][:3] == [1.0, 1.0, 2.0]
    with pytest.raises(RateLimited):
        async for _ in replay(path).stream(Request()):
            pass


async def test_a_recording_takes_its_time_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    hours = iter(range(0, 3600_000, 3600))
    made = Scripted([say("one two three", pace=50)])
    await answered(record(made, path, now=lambda: float(next(hours))))
    async with asyncio.timeout(60):
        _, quick = await answered(replay(path))
    loop = asyncio.get_running_loop()
    began = loop.time()
    _, paced = await answered(replay(path, pace=3600 / 0.02))
    assert loop.time() - began >= 2 * 0.02
    assert quick == paced


def test_a_file_without_an_answer_is_not_a_recording(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(NoRecording):
        replay(tmp_path / "empty.jsonl")


async def test_a_recording_is_written_as_the_answer_comes_so_a_crash_leaves_what_came(
    tmp_path: Path,
) -> None:
    path = tmp_path / "folder" / "answers.jsonl"
    stream = record(Scripted([think("Hm."), say("It is"), silence()]), path).stream(Request())
    came = [await anext(stream) for _ in range(6)]
    # The call is not ended properly, and the last line is cut in two.
    with path.open("ab") as file:
        file.write(b'{"call":"')
    again = [events async for events in replay(path).stream(Request())]
    assert again == came
    hasty = Patience(retries=0)
    outcome = await call_model(replay(path), Request(input=[]), Notebook(), patience=hasty)
    assert outcome.status == "cut"


async def test_calls_at_once_share_a_file_and_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    models = [record(Scripted([say(f"{n} {n} {n}", pace=200)]), path) for n in range(3)]
    await asyncio.gather(*(answered(model) for model in models))
    calls = [msgspec.json.decode(line)["call"] for line in path.read_bytes().splitlines()]
    assert calls != sorted(calls)  # they were made at once
    again = replay(path)
    answers = []
    for _ in range(3):
        book = Notebook()
        await call_model(again, Request(input=[]), book, patience=HASTY)
        answers += texts(book)
    assert answers == ["0 0 0", "1 1 1", "2 2 2"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"<html>", "answers.jsonl, line 2: JSON is malformed"),
        (b"[]", "line 2: Expected `object`, got `array`"),
        (b'{"type":"response.created"}', "line 2: "),
        (b'{"call":"x","at":1}', "line 2: its call is not in the file"),
        (b'{"call":"a","api":"smtp","model":"m"}', "line 2: .*Invalid enum value 'smtp'"),
    ],
)
def test_a_file_that_is_broken_says_where(line: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(b'{"call":"a","api":"openai_chat","model":"m"}\n' + line + b"\n")
    with pytest.raises(NoRecording, match=message):
        replay(path)


def test_a_file_that_is_not_there_or_of_several_apis_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoRecording, match=r"no\.jsonl cannot be read: No such file"):
        open_model(f"replay:{tmp_path / 'no.jsonl'}")
    path = tmp_path / "answers.jsonl"
    apis = ("openai_chat", "anthropic_messages")
    lines = [msgspec.json.encode({"call": api, "api": api, "model": "m"}) for api in apis]
    path.write_bytes(b"\n".join([*lines, b""]))
    with pytest.raises(NoRecording, match=r"several APIs \(anthropic_messages, openai_chat\)"):
        replay(path)


async def test_a_reader_that_stops_a_recorded_answer_stops_the_model(tmp_path: Path) -> None:
    class Watched(Scripted):
        ended = False

        async def stream(self, request: Request) -> Any:
            try:
                async for events in super().stream(request):
                    yield events
            finally:
                self.ended = True

    model = Watched([say("It is"), silence()])
    async with asyncio.timeout(60):  # the first event may take 300 s, and the second 0.02 s
        outcome = await call_model(
            record(model, tmp_path / "a.jsonl"),
            Request(input=[]),
            Notebook(),
            patience=Patience(idle=0.02, retries=0),
        )
    assert outcome.error is not None
    assert outcome.error.code == "idle_timeout"
    assert model.ended


async def test_an_answer_that_broke_off_breaks_off_again(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    model = Scripted(tries([say("It is"), cut()], [say("It is sunny.")]))
    first = await answered(record(model, path))
    assert await answered(replay(path)) == first
