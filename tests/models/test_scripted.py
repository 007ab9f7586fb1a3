"""Models that answer what is written down, or what was recorded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace.core.errors import RateLimited
from tailrace.core.view import whole_object
from tailrace.ingest.base import Notebook
from tailrace.models import UnknownModel, open_model
from tailrace.models.recording import NoRecording, record, replay
from tailrace.models.scripted import Scripted, call, cut, fail, say, silence, think, tries, wait
from tailrace.ports import Request
from tailrace.runtime.calling import Patience, call_model
from tailrace.testing.simulator import Simulator
from tests.models.talking import HASTY, Talk, model_at, weather_talk


async def test_a_script_goes_on_answer_by_answer_as_the_conversation_does() -> None:
    model = Scripted(
        [think("Which city?"), call("get_weather", city="Paris")],
        [say("It is sunny.")],
        [say("You are welcome.")],
    )
    talk = Talk(model, Request())
    assert await talk.ask("Is it sunny?") == "It is sunny."
    assert await talk.ask("Thanks.") == "You are welcome."
    assert await talk.ask("Thanks again.") == "You are welcome."
    items = [node.item for node in talk.chain[0].root.items.values()]  # type: ignore[union-attr]
    kinds = [type(item).__name__ for item in items]
    assert kinds == ["Reasoning", "ToolCall", "ToolResult", "Message"]


async def test_a_script_is_due_by_the_history_so_another_worker_goes_on_with_it() -> None:
    answers: Any = ([call("look")], [say("Seen.")])
    talk = Talk(Scripted(*answers), Request())
    await talk.ask("Look!")
    other = Talk(Scripted(*answers, [say("Still there.")]), Request(), chain=talk.chain)
    assert await other.ask("And now?") == "Still there."


async def test_a_script_may_be_a_function_of_the_turn() -> None:
    talk = Talk(Scripted(lambda turn: [say(f"Answer {turn}.")]), Request())
    assert [await talk.ask("?") for _ in range(3)] == ["Answer 0.", "Answer 1.", "Answer 2."]


async def test_a_script_may_fail_and_break_off_until_it_goes_well() -> None:
    model = Scripted(tries([fail("overloaded")], [say("It is"), cut()], [say("It is sunny.")]))
    talk = Talk(model, Request())
    assert await talk.ask("Is it sunny?") == "It is sunny."


async def test_a_script_keeps_its_pace() -> None:
    slow = Scripted([say("one two three", pace=50), wait(0.01)])
    loop = asyncio.get_running_loop()
    began = loop.time()
    await call_model(slow, Request(input=[]), Notebook(), patience=HASTY)
    assert loop.time() - began >= 2 / 50


async def test_a_silent_script_ends_as_a_silent_provider_does() -> None:
    patience = Patience(first_event=1, idle=0.02, retries=0)
    outcome = await call_model(
        Scripted([think("Hm."), silence()]), Request(input=[]), Notebook(), patience=patience
    )
    assert outcome.error is not None
    assert outcome.error.code == "idle_timeout"


GREETER = Scripted([say("Hello")], name="greeter")


def test_a_script_is_found_by_the_name_of_its_place() -> None:
    found = open_model("scripted:tests.models.test_scripted:GREETER")
    assert found.name == "greeter"
    for nowhere in ("scripted:tests.models.test_scripted", "scripted:no.such.module:x"):
        with pytest.raises(UnknownModel, match="scripted:<module>:<name>"):
            open_model(nowhere)


# --- recordings ---------------------------------------------------------------------------------


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
        said = [await talk.ask(f"Question {number}?") for number in range(2)]
        await model.close()
    again = Talk(open_model(f"replay:{path}"), Request())
    assert [await again.ask(f"Question {number}?") for number in range(2)] == said
    assert b"Question" not in path.read_bytes()
    assert b"sk-anything" not in path.read_bytes()
    with pytest.raises(NoRecording, match="holds 4 answers"):
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


async def test_a_recording_takes_its_time_only_if_it_is_told_to(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    await answered(record(Scripted([say("one two three", pace=50)]), path))
    loop = asyncio.get_running_loop()
    began = loop.time()
    _, quick = await answered(replay(path))
    middle = loop.time()
    _, paced = await answered(replay(path, pace=1))
    assert loop.time() - middle >= 2 / 50 > middle - began
    assert quick == paced


def test_a_file_without_an_answer_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(NoRecording):
        replay(tmp_path / "empty.jsonl")
