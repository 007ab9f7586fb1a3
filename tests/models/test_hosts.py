"""Which host is asked, what of the conversation it is sent, and what is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace.core import events as ev
from tailrace.ingest.base import Notebook
from tailrace.models import open_model
from tailrace.models.recording import record, replay
from tailrace.models.scripted import Scripted, cut, say, tries
from tailrace.ports import Request, host_of
from tailrace.runtime.model_calls.call import HISTORY_NOTE, call_model
from tailrace.testing.simulator import Simulator
from tests.models.talking import APIS, HASTY, WEATHER, Talk, model_at, weather_talk


@pytest.mark.parametrize("api", APIS)
def test_a_model_says_its_host_without_a_secret(api: str) -> None:
    default = "api.anthropic.com" if api == "anthropic" else "api.openai.com"
    assert host_of(open_model(f"{api}:m", api_key="k")) == default
    url = "http://me:secret@LocalHost:1234/v1"
    assert host_of(open_model(f"{api}:m", api_key="k", base_url=url)) == "localhost:1234"
    assert host_of(Scripted([say("Hi")])) is None


@pytest.mark.parametrize("mode", ["encrypted", "stored"])
@pytest.mark.parametrize("api", APIS)
async def test_a_conversation_moves_to_another_host_of_the_same_api(api: str, mode: Any) -> None:
    """The second host refuses what the first host sealed or named: nothing of it is sent."""
    request = Request(tools=[WEATHER], history=mode, effort="low")
    async with Simulator(weather_talk) as first, Simulator(weather_talk) as second:
        models = [model_at(provider, api) for provider in (first, second)]
        talk = Talk(models[0], request)
        answers = [await talk.ask("One?")]
        talk.model = models[1]
        answers.append(await talk.ask("Two?"))
        for model in models:
            await model.close()
    assert answers == ["It is sunny, answer 1."] * 2
    assert first.refusals == second.refusals == []
    root = talk.chain[0].root
    assert root is not None
    privates = [node.private for node in root.items.values()]
    places = [private["provider"] for private in privates if private.get("provider")]
    assert {place["host"] for place in places} == {first.url.partition("//")[2]}
    assert {place["model"] for place in places} == {"test-model"}


async def test_a_recording_keeps_the_host(tmp_path: Path) -> None:
    async with Simulator([say("Hello")]) as provider:
        model = record(model_at(provider, "openai"), tmp_path / "a.jsonl")
        await Talk(model, Request()).ask("Hi?")
        await model.close()
        assert host_of(replay(tmp_path / "a.jsonl")) == host_of(model) is not None
    await Talk(record(Scripted([say("Hi")]), tmp_path / "b.jsonl"), Request()).ask("Hi?")
    assert host_of(replay(tmp_path / "b.jsonl")) is None


def notes(book: Any) -> list[str]:
    """The notices of a task about what was left out."""
    found = [one for one in book.notices if one.get("data") == {"code": HISTORY_NOTE}]
    return [one["message"] for one in found]


@pytest.mark.parametrize("api", APIS)
async def test_what_a_history_leaves_out_is_shown_once_in_a_conversation(api: str) -> None:
    picture = [{"type": "image", "image_url": {"url": "/blobs/1"}}, {"type": "text", "text": "?"}]
    async with Simulator(weather_talk) as provider:
        talk = Talk(model_at(provider, api), Request(tools=[WEATHER]))
        await talk.ask(picture)
        await talk.ask("And?")
        await talk.model.close()
    roots = [state.root for state in talk.chain]
    [note] = notes(roots[0])
    assert "an image or file" in note
    assert notes(roots[1]) == []


async def test_a_sub_agent_has_its_own_notes_and_retries_add_none() -> None:
    class Noting(Scripted):
        def stream(self, request: Request) -> Any:
            request.note("Something is missing.")
            return super().stream(request)

    model = Noting(tries([say("It is"), cut()], [say("It is sunny.")]))
    book = Notebook(input="Hi?")
    await call_model(model, Request(chain=[book.state]), book, patience=HASTY)
    assert notes(book.node) == ["Something is missing."]
    emitted = [event for event, _ in book.take() if isinstance(event, ev.Notice)]
    assert [one.level for one in emitted] == ["info", "warning"]
    other = Notebook("run_2", input="Hi?")
    await call_model(model, Request(chain=[book.state, other.state]), other, patience=HASTY)
    assert notes(other.node) == []
    alone = Notebook("run_3", input="Hi?")
    chain = [book.state, alone.state]
    request = Request(chain=chain, task_id="run_3")
    await call_model(model, request, alone, patience=HASTY)
    assert notes(alone.node) == ["Something is missing."]
    Request().note("It is dropped.")
