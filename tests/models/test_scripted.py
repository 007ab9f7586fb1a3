"""Models that answer what is written down."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tailrace.core.errors import InvalidValue
from tailrace.ingest.base import Notebook
from tailrace.models import UnknownModel, open_model
from tailrace.models.scripted import (
    InvalidScript,
    Scripted,
    call,
    cut,
    fail,
    say,
    silence,
    think,
    tries,
    wait,
)
from tailrace.ports import Request
from tailrace.runtime.model_calls.call import Patience, call_model
from tailrace.testing.simulator import Simulator
from tests.models.talking import HASTY, Talk


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


def test_an_invalid_script_is_an_error_when_the_name_is_looked_up() -> None:
    with pytest.raises(UnknownModel, match=r"Write weather_talk = Scripted"):
        open_model("scripted:tests.models.talking:weather_talk")
    with pytest.raises(UnknownModel, match=r"takes no options\. Remove base_url"):
        open_model("scripted:tests.models.test_scripted:GREETER", base_url="http://x")


ANYTHING: Any = 5
MIDDLE: Any = "middle"


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([], "an answer|no answer"),
        ([say("Hello")], "Answer 1 is Say.*: write a list of steps"),
        (["Hello"], "Answer 1 is 'Hello': write a list of steps"),
        ([[say("Hi")], [think("Hm."), "Hi"]], "Answer 2, step 2, is 'Hi': write say"),
        ([tries()], "Answer 1 has no tries"),
        ([tries([cut()], [ANYTHING])], "Answer 1, try 2, step 1, is 5"),
        ([[cut(), say("Hi")]], r"Answer 1, step 2, is never played: it comes after cut\(\)"),
        ([[silence(), say("Hi")]], r"step 2, is never played: it comes after silence\(\)"),
        ([[say(ANYTHING)]], "step 1: its text is 5"),
        ([[say("Hi", pace=-1)]], "step 1: its pace is -1: write words per second"),
        ([[wait(float("nan"))]], "step 1: it waits for nan"),
        ([[cut(MIDDLE)]], "step 1: it cuts at 'middle': write event, json, character"),
        ([[call("f", at=object())]], "step 1: its arguments have no JSON"),
    ],
)
def test_a_mistake_in_a_script_says_where_it_is(answers: Any, message: str) -> None:
    with pytest.raises(InvalidScript, match=message):
        Scripted(*answers)
    if "try" not in message and "tries" not in message:
        with pytest.raises(InvalidScript, match=message):
            Simulator(*answers)


async def test_a_function_that_answers_no_script_gets_an_error_with_the_turn() -> None:
    model = Scripted(lambda _: "Hello")  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidScript, match=r"The function's answer in turn 0 is 'Hello'"):
        await call_model(model, Request(input=[]), Notebook(), patience=HASTY)


@pytest.mark.parametrize("field", ["retries", "idle", "first_wait"])
def test_patience_is_no_less_than_none(field: str) -> None:
    with pytest.raises(InvalidValue, match=rf"Patience\({field}=-1\)"):
        Patience(**{field: -1})
