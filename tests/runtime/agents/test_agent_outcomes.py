"""Every outcome of a model call has a rule, whatever the provider."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace import Agent, Answer, Limits, Tailrace, tool
from tailrace.core import events as ev
from tailrace.core.items import Usage
from tailrace.history import history
from tailrace.models import Patience, Scripted, call, open_model, say, think
from tailrace.ports import Request
from tailrace.runtime.runs.run import Result
from tailrace.testing.simulator import Simulator
from tests.effort import SOAK

Json = dict[str, Any]


class Raw:
    """A model whose answers are given as the events of its API; it keeps what it was asked."""

    name = "raw"

    def __init__(self, api: Any, *answers: list[Json]) -> None:
        self.api = api
        self.answers = answers
        self.asked: list[list[Json]] = []

    async def stream(self, request: Request) -> AsyncIterator[list[str]]:
        sent = history(request.chain, self.api, request.history, task_id=request.task_id)
        self.asked.append(sent.items)
        yield [json.dumps(event) for event in self.answers[len(self.asked) - 1]]

    def cost(self, usage: Usage) -> float | None:
        return None

    async def close(self) -> None:
        """Nothing to close."""


def response(number: int, *items: Json, status: str = "completed", **facts: Any) -> list[Json]:
    """The events of a response with these items."""
    body: Json = {"id": f"resp_{number}", "object": "response", "output": [], "model": "raw"}
    events: list[Json] = [
        {"type": "response.created", "response": {**body, "status": "in_progress"}}
    ]
    for index, item in enumerate(items):
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    usage = {"input_tokens": 5, "output_tokens": 5, "total_tokens": 10}
    last = {**body, "status": status, "output": list(items), "usage": usage, **facts}
    return [*events, {"type": f"response.{status}", "response": last}]


def message(text: str) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "id": f"msg_{text[:3]}",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


@asynccontextmanager
async def running(path: Path, *agents: Any) -> AsyncIterator[Tailrace]:
    app = Tailrace(agents, database=path / "log.db")
    async with app.running(), asyncio.timeout(120):
        yield app


async def answer(path: Path, agent: Any) -> Result:
    async with running(path, agent) as app:
        return await (await app.start(agent.name, "?")).result()


SHELL = {
    "type": "shell_call",
    "id": "sh_1",
    "call_id": "call_1",
    "status": "completed",
    "action": {"commands": ["ls"], "timeout_ms": 1000, "max_output_length": 100},
}


async def test_a_builtin_call_is_carried_out_by_its_handler(tmp_path: Path) -> None:
    ran: list[Json] = []

    async def shell(commands: list[str], timeout_ms: int, max_output_length: int) -> str:
        """Runs commands."""
        ran.append({"commands": commands})
        return "a.txt"

    model = Raw("openai_responses", response(1, SHELL), response(2, message("One file.")))
    agent = Agent("a", model=model, tools=[{"type": "shell"}], handlers={"shell": shell})
    result = await answer(tmp_path, agent)
    assert ran == [{"commands": ["ls"]}]
    assert result.text == "One file."
    [output] = [item for item in model.asked[1] if item["type"] == "shell_call_output"]
    assert output["output"][0]["stdout"].count("a.txt") == 1


async def test_anthropics_own_tools_are_carried_out_by_name(tmp_path: Path) -> None:
    def run_command(command: str) -> str:
        """Runs a command."""
        return f"{command}: a.txt"

    model = Scripted([call("bash", command="ls")], [say("One file.")])
    own = {"type": "bash_20250124", "name": "bash"}
    agent = Agent("a", model=model, tools=[own], handlers={"bash": run_command})
    result = await answer(tmp_path, agent)
    assert result.items[1]["block_list"][0]["text"] == "ls: a.txt"


async def test_a_builtin_call_without_a_handler_is_an_error_that_the_model_reads(
    tmp_path: Path,
) -> None:
    model = Raw("openai_responses", response(1, SHELL), response(2, message("Sorry.")))
    result = await answer(tmp_path, Agent("a", model=model))
    assert result.items[1]["error"]["code"] == "unknown_tool"
    assert result.text == "Sorry."
    assert any(item["type"] == "shell_call_output" for item in model.asked[1])


DELETION = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "name": "delete_repo",
    "server_label": "github",
    "arguments": "{}",
}


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_that_a_providers_mcp_server_wants_is_asked_of_a_person(
    tmp_path: Path, approved: bool
) -> None:
    model = Raw("openai_responses", response(1, DELETION), response(2, message("Done.")))
    async with running(tmp_path, Agent("a", model=model)) as app:
        run = await app.start("a", "?")
        async for event in run.events():
            if isinstance(event, ev.TaskInputRequired):
                [request] = event.requests
                break
        assert "delete_repo" in str(request.message)
        await run.send(Answer(request_id=request.id, approved=approved, reason="Because."))
        result = await run.result()
    assert result.text == "Done."
    outcome = result.items[1]
    assert (outcome["type"], outcome["call_id"]) == ("tool_result", result.items[0]["call_id"])
    if not approved:
        assert outcome["error"] == {
            "code": "denied",
            "message": "A person denied the call: Because.",
        }
    assert outcome.get("status", "completed") == ("completed" if approved else "failed")
    [sent] = [item for item in model.asked[1] if item["type"] == "mcp_approval_response"]
    assert (sent["approve"], sent["approval_request_id"]) == (approved, "mcpr_1")


async def test_an_approval_that_no_person_can_be_asked_for_is_denied(tmp_path: Path) -> None:
    model = Raw("openai_responses", response(1, DELETION), response(2, message("I may not.")))
    child = Agent("child", model=model).as_tool(streaming=False)
    script = Scripted([call("child", prompt="?")], [say("A pity.")])
    result = await answer(tmp_path, Agent("a", model=script, tools=[child]))
    assert result.items[1]["block_list"][0]["text"] == "I may not."
    [sent] = [item for item in model.asked[1] if item["type"] == "mcp_approval_response"]
    assert sent["approve"] is False


async def test_a_refusal_is_an_answer(tmp_path: Path) -> None:
    refusal = {**message(""), "content": [{"type": "refusal", "refusal": "I can't."}]}
    model = Raw("openai_responses", response(1, refusal))
    agent = Agent("a", model=model, output={"type": "object"})
    result = await answer(tmp_path, agent)
    assert result.status == "completed"
    assert result.items[0]["block_list"] == [{"type": "refusal", "refusal": "I can't."}]
    assert result.output is None


async def test_an_answer_that_is_too_long_ends_the_run_with_the_providers_reason(
    tmp_path: Path,
) -> None:
    details = {"reason": "max_output_tokens"}
    cut = response(1, message("It is"), status="incomplete", incomplete_details=details)
    result = await answer(tmp_path, Agent("a", model=Raw("openai_responses", cut)))
    assert (result.status, result.reason) == ("incomplete", "max_output_tokens")
    assert result.text == "It is"


def anthropic(number: int, text: str, stop: str) -> list[Json]:
    usage = {"input_tokens": 5, "output_tokens": 5}
    body = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "raw",
        "content": [],
        "usage": usage,
    }
    return [
        {"type": "message_start", "message": body},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": text},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage},
        {"type": "message_stop"},
    ]


async def test_a_turn_that_pauses_is_continued(tmp_path: Path) -> None:
    model = Raw(
        "anthropic_messages",
        anthropic(1, "I search. ", "pause_turn"),
        anthropic(2, "Found.", "end_turn"),
    )
    result = await answer(tmp_path, Agent("a", model=model))
    assert (result.status, result.text) == ("completed", "Found.")
    assert len(model.asked) == 2
    assert "I search." in str(model.asked[1])


async def test_a_turn_that_only_pauses_ends_at_the_limit_on_turns(tmp_path: Path) -> None:
    model = Raw("anthropic_messages", *(anthropic(n, "Hm. ", "pause_turn") for n in range(1, 4)))
    result = await answer(tmp_path, Agent("a", model=model, limits=Limits(turns=3)))
    assert (result.status, result.reason) == ("incomplete", "max_turns=3")


async def test_a_provider_that_stops_for_a_refusal_ends_the_run_with_that_reason(
    tmp_path: Path,
) -> None:
    model = Raw("anthropic_messages", anthropic(1, "I", "refusal"))
    result = await answer(tmp_path, Agent("a", model=model))
    assert (result.status, result.reason) == ("incomplete", "refusal")


async def test_a_complete_message_before_a_cut_is_the_answer(tmp_path: Path) -> None:
    whole = response(1, message("Sunny."))[:-1]  # the last event never came
    agent = Agent("a", model=Raw("openai_responses", whole), patience=Patience(retries=0))
    result = await answer(tmp_path, agent)
    assert (result.status, result.text) == ("completed", "Sunny.")


# --- memory, with a strict provider --------------------------------------------------------------


TURNS = 10 if SOAK else 4


@tool
async def get_weather(city: str) -> str:
    """Current weather."""
    return f"{city}: sunny"


@pytest.mark.parametrize("mode", ["drop", "encrypted", "stored"])
@pytest.mark.parametrize("api", ["openai", "openai-chat", "anthropic"])
async def test_turns_with_restarts_in_between_are_accepted_by_the_provider(
    tmp_path: Path, api: str, mode: Any
) -> None:
    def script(number: int) -> Any:
        if number % 2:
            return [think("So."), say(f"Answer {number}.")]
        return [think("Hm."), call("get_weather", city=f"City {number}")]

    async with Simulator(script) as provider:
        for turn in range(TURNS):
            base = provider.url if api == "anthropic" else provider.openai_url
            model = open_model(f"{api}:model-1", base_url=base, api_key="any")
            agent = Agent("a", model=model, tools=[get_weather], history=mode)
            async with running(tmp_path, agent) as app:
                result = await (await app.start("a", f"Question {turn}?", thread="t")).result()
            await model.close()
            assert (result.status, result.text) == ("completed", f"Answer {2 * turn + 1}.")
        assert provider.refusals == []
    assert len(provider.requests) == 2 * TURNS
    if mode != "stored" or api != "openai":
        assert "Question 0?" in str(provider.requests[-1])


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("mode", ["drop", "encrypted", "stored"])
async def test_the_provider_keeps_nothing_of_a_run_that_is_not_stored(
    tmp_path: Path, mode: Any, *, streaming: bool
) -> None:
    turns: list[list[Any]] = [[think("Hm."), call("b", prompt="Go.")], [say("B.")], [say("A.")]]
    async with Simulator(lambda number: turns[number % 3]) as provider:
        model = open_model("openai:gpt-5", base_url=provider.openai_url, api_key="any")
        helper = Agent("b", model=model, history=mode)
        agent = Agent("a", model=model, history=mode, tools=[helper.as_tool(streaming=streaming)])
        async with running(tmp_path, agent) as app:
            await (await app.start("a", "Stored?", thread="t")).result()
            run = await app.start("a", "And now?", thread="t", store=False)
            result = await run.result()
        await model.close()
        assert provider.refusals == []
    assert (result.text, result.object["options"]) == ("A.", {"store": False})
    is_kept = mode != "encrypted"
    assert [one["store"] for one in provider.requests] == [is_kept] * 3 + [False] * 3
    last = provider.requests[-1]
    assert "previous_response_id" not in last
    assert last["include"] == ["reasoning.encrypted_content"]
    assert "Stored?" in str(last["input"])


@pytest.mark.parametrize("mode", ["drop", "encrypted", "stored"])
async def test_an_agent_without_client_instructions_reads_none_of_earlier_runs(
    tmp_path: Path, mode: Any
) -> None:
    """Not even those that another agent of the thread has taken, and its provider has stored."""
    async with Simulator(lambda number: [say(f"Answer {number}.")]) as provider:
        model = open_model("openai:gpt-5", base_url=provider.openai_url, api_key="any")
        open_, closed = (
            Agent(name, model=model, history=mode, client_options=options)
            for name, options in (("open", None), ("closed", ()))
        )
        asked = [{"role": "system", "content": "Arr."}, {"role": "user", "content": "One?"}]
        async with running(tmp_path, open_, closed) as app:
            for agent in ("open", "closed", "open"):
                await (await app.start(agent, asked, thread="t")).result()
        await model.close()
    first, second, third = provider.requests
    assert ["Arr." in str(one["input"]) for one in (first, second, third)] == [True, False, True]
    assert "previous_response_id" not in second
    assert "One?" in str(second["input"])
    assert "Answer 0." in str(second["input"])


async def test_a_run_may_continue_another_run_than_the_last_one(tmp_path: Path) -> None:
    asked: list[str] = []

    class Listening(Scripted):
        def stream(self, request: Any) -> Any:
            asked.append(str(history(request.chain, "openai_chat").items))
            return super().stream(request)

    async with running(tmp_path, Agent("a", model=Listening([say("Yes.")]))) as app:
        first = await app.start("a", "One?", thread="t")
        await first.result()
        await (await app.start("a", "Two?", thread="t")).result()
        await (await app.start("a", "Three?", thread="t", previous_run=first.id)).result()
        await (await app.start("a", "Four?", thread="t", previous_run=None)).result()
    assert "One?" in asked[1]
    assert "One?" in asked[2]
    assert "Two?" not in asked[2]
    assert "Three?" not in asked[3]
