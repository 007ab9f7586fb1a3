"""What a loop makes of answers that only real providers send: broken calls, pauses, code."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tailrace import Agent, Limits, Tailrace, tool
from tailrace.models import Model, call, open_model, say
from tailrace.runtime.model_calls.call import Patience
from tailrace.runtime.runs.run import Result
from tailrace.runtime.tools.parameters import InvalidTool
from tailrace.testing import RecordedAnswer, Simulator

HASTY = Patience(first_wait=0.001, retries=1)


@tool
async def get_weather(city: str) -> str:
    """Current weather in a city."""
    return f"{city}: sunny"


def recorded(*events: Any) -> RecordedAnswer:
    return RecordedAnswer(tuple(map(json.dumps, events)))


def opened(api: str, provider: Simulator) -> Model:
    if api == "anthropic_messages":
        return open_model("anthropic:claude-opus-5", base_url=provider.url, api_key="any")
    name = "openai:gpt-5" if api == "openai_responses" else "openai-chat:gpt-4"
    return open_model(name, base_url=provider.openai_url, api_key="any")


async def turns(path: Path, agent: Agent, *questions: str) -> list[Result]:
    """The answers to the questions, in one thread."""
    app = Tailrace([agent], database=path / "log.db")
    async with app.running(), asyncio.timeout(120):
        return [
            await (await app.start(agent.name, text, thread="t")).result() for text in questions
        ]


# --- calls that broke off -----------------------------------------------------------------------


def broken(api: str, *whole: str) -> RecordedAnswer:
    """An answer that ends as it should, with a call that does not; before it, whole calls."""
    written = [*whole, '{"city": ']
    if api == "openai_chat":
        calls = [
            {"index": i, "id": f"call_{i}", "function": {"name": "get_weather", "arguments": text}}
            for i, text in enumerate(written)
        ]
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        delta = {"role": "assistant", "tool_calls": calls}
        return recorded(
            head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        )
    if api == "openai_responses":
        items = [
            {
                "type": "function_call",
                "id": f"fc_{i}",
                "call_id": f"call_{i}",
                "name": "get_weather",
                "arguments": text,
                "status": "completed",
            }
            for i, text in enumerate(written)
        ]
        return recorded(
            *(
                {"type": "response.output_item.done", "output_index": i, "item": item}
                for i, item in enumerate(items)
            ),
            {
                "type": "response.completed",
                "response": {"id": "resp_1", "status": "completed", "output": items},
            },
        )
    blocks: list[Any] = []
    for i, text in enumerate(written):
        use = {"type": "tool_use", "id": f"toolu_{i}", "name": "get_weather", "input": {}}
        delta = {"type": "input_json_delta", "partial_json": text}
        blocks += [
            {"type": "content_block_start", "index": i, "content_block": use},
            {"type": "content_block_delta", "index": i, "delta": delta},
            {"type": "content_block_stop", "index": i},
        ]
    return message(*blocks, stop_reason="tool_use")


def message(
    *blocks: Any, stop_reason: str = "end_turn", ident: str = "msg_1", **end: Any
) -> RecordedAnswer:
    """An answer of Anthropic, with the events of its blocks."""
    head = {"id": ident, "type": "message", "role": "assistant", "model": "m", "content": []}
    usage = {"input_tokens": 1, "output_tokens": 1}
    delta = {"stop_reason": stop_reason, **end}
    return recorded(
        {"type": "message_start", "message": head | {"usage": usage}},
        *blocks,
        {"type": "message_delta", "delta": delta, "usage": usage},
        {"type": "message_stop"},
    )


APIS = ("openai_responses", "openai_chat", "anthropic_messages")


@pytest.mark.parametrize("api", APIS)
async def test_a_call_that_broke_off_is_asked_for_again(api: str, tmp_path: Path) -> None:
    # A broken call of Anthropic counts as a cut stream first: the try is repeated.
    answers = [broken(api)] * (2 if api == "anthropic_messages" else 1)
    again = [call("get_weather", city="Paris")]
    async with Simulator(*answers, again, [say("Sunny.")], [say("Yes.")]) as provider:
        model = opened(api, provider)
        agent = Agent("a", model=model, tools=[get_weather], patience=HASTY)
        first, second = await turns(tmp_path, agent, "Is it sunny?", "Really?")
        await model.close()
    assert (first.status, first.text) == ("completed", "Sunny.")
    assert [item["type"] for item in first.items] == ["tool_call", "tool_result", "message"]
    assert second.text == "Yes."
    assert provider.refusals == []
    corrected = ["Your last call broke off." in json.dumps(sent) for sent in provider.requests]
    assert corrected[-3:] == [True, False, False]


@pytest.mark.parametrize("api", APIS)
async def test_calls_that_always_break_off_end_the_run(api: str, tmp_path: Path) -> None:
    async with Simulator(broken(api)) as provider:
        model = opened(api, provider)
        limits = Limits(mistakes=1)
        agent = Agent("a", model=model, tools=[get_weather], limits=limits, patience=HASTY)
        [result] = await turns(tmp_path, agent, "Is it sunny?")
        await model.close()
    assert result.error is not None
    assert (result.status, result.error.code) == ("failed", "invalid_calls")
    assert len(provider.requests) <= 4


@pytest.mark.parametrize("api", APIS)
async def test_the_whole_calls_of_an_answer_with_a_broken_call_run(
    api: str, tmp_path: Path
) -> None:
    async with Simulator(broken(api, '{"city": "Paris"}'), [say("Sunny.")]) as provider:
        model = opened(api, provider)
        agent = Agent("a", model=model, tools=[get_weather], patience=HASTY)
        [result] = await turns(tmp_path, agent, "Is it sunny?")
        await model.close()
    assert result.text == "Sunny."
    assert [item["type"] for item in result.items] == ["tool_call", "tool_result", "message"]
    assert provider.refusals == []


# --- pauses -------------------------------------------------------------------------------------


async def test_a_search_that_an_answer_paused_in_has_its_result_in_the_next_answer(
    tmp_path: Path,
) -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    page = {"type": "web_search_result", "url": "https://a.example", "title": "A"}
    sealed = {"encrypted_content": "c2VhbGVk", "page_age": None}
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [page | sealed],
    }
    query = {"type": "input_json_delta", "partial_json": '{"query": "rivers"}'}
    paused = message(
        {"type": "content_block_start", "index": 0, "content_block": search},
        {"type": "content_block_delta", "index": 0, "delta": query},
        {"type": "content_block_stop", "index": 0},
        stop_reason="pause_turn",
    )
    words = {"type": "text_delta", "text": "Three."}
    answered = message(
        {"type": "content_block_start", "index": 0, "content_block": found},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": words},
        {"type": "content_block_stop", "index": 1},
    )
    async with Simulator(paused, answered, [say("Yes.")]) as provider:
        model = opened("anthropic_messages", provider)
        own = {"type": "web_search_20250305", "name": "web_search"}
        agent = Agent("a", model=model, tools=[own])
        first, second = await turns(tmp_path, agent, "How many?", "Really?")
        await model.close()
    assert [item["type"] for item in first.items] == ["tool_call", "tool_result", "message"]
    assert first.items[1]["block_list"][0]["data"]["url"] == "https://a.example"
    assert second.text == "Yes."
    assert provider.refusals == []
    [answer] = [one for one in provider.requests[2]["messages"] if one["role"] == "assistant"]
    assert answer["content"][:2] == [search | {"input": {"query": "rivers"}}, found]


# --- code that calls tools ----------------------------------------------------------------------

CODE = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "code_execution",
    "input": {"code": "print(await get_weather('Paris'), await get_weather('Rome'))"},
}
PRINTED = {
    "type": "code_execution_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": {
        "type": "code_execution_result",
        "stdout": "sunny",
        "stderr": "",
        "return_code": 0,
        "content": [],
    },
}


def asked_by_code(ident: str, city: str) -> dict[str, Any]:
    caller = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
    use = {"type": "tool_use", "id": ident, "name": "get_weather", "input": {"city": city}}
    return use | {"caller": caller}


def of_blocks(ident: str, *blocks: Any, stop_reason: str = "tool_use") -> RecordedAnswer:
    """An answer of Anthropic whose blocks come whole."""
    events: list[Any] = []
    for index, block in enumerate(blocks):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_stop", "index": index},
        ]
    container = {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z"}
    return message(*events, stop_reason=stop_reason, ident=ident, container=container)


async def test_code_that_calls_tools_goes_on_with_their_results(tmp_path: Path) -> None:
    text = {"type": "text", "text": "Sunny in both."}
    first_ask, second_ask = asked_by_code("toolu_1", "Paris"), asked_by_code("toolu_2", "Rome")
    answers = (
        of_blocks("msg_1", CODE, first_ask),
        of_blocks("msg_2", second_ask),
        of_blocks("msg_3", PRINTED, text, stop_reason="end_turn"),
    )
    async with Simulator(*answers, [say("Yes.")]) as provider:
        model = opened("anthropic_messages", provider)
        own = {"type": "code_execution_20250825", "name": "code_execution"}
        agent = Agent("a", model=model, tools=[own, get_weather])
        first, second = await turns(tmp_path, agent, "Is it sunny?", "Really?")
        await model.close()
    assert provider.refusals == []
    assert (first.text, second.text) == ("Sunny in both.", "Yes.")
    containers = [sent.get("container") for sent in provider.requests]
    assert containers == [None, "container_1", "container_1", None]
    sent = [one["content"] for one in provider.requests[3]["messages"] if one["role"] != "user"]
    assert sent == [[CODE, first_ask], [second_ask], [PRINTED, text]]


async def test_code_may_call_a_tool_that_names_it_as_a_caller(tmp_path: Path) -> None:
    kind = "code_execution_20250825"

    @tool(allowed_callers=[kind], name="get_weather")
    async def for_code(city: str) -> str:
        """The weather in a city."""
        return f"sunny in {city}"

    @tool
    async def for_all() -> str:
        """Any caller."""
        return ""

    text = {"type": "text", "text": "Sunny."}
    answers = (
        of_blocks("msg_1", CODE, asked_by_code("toolu_1", "Paris")),
        of_blocks("msg_2", PRINTED, text, stop_reason="end_turn"),
    )
    async with Simulator(*answers) as provider:
        model = opened("anthropic_messages", provider)
        agent = Agent(
            "a", model=model, tools=[{"type": kind, "name": "code_execution"}, for_code, for_all]
        )
        [result] = await turns(tmp_path, agent, "Is it sunny?")
        await model.close()
    assert provider.refusals == []
    assert result.text == "Sunny."
    sent = {one["name"]: one for one in provider.requests[0]["tools"]}
    assert sent["get_weather"]["allowed_callers"] == [kind]
    assert "allowed_callers" not in sent["for_all"]
    assert "sunny in Paris" in str(provider.requests[1]["messages"][-1])


@pytest.mark.parametrize("callers", ["direct", [1]])
def test_callers_that_are_no_list_of_names_are_refused_where_the_tool_is_declared(
    callers: Any,
) -> None:
    with pytest.raises(InvalidTool, match="`allowed_callers` must be a list of strings"):
        tool(allowed_callers=callers, name="x")(lambda: None)


async def test_a_search_that_runs_beside_a_tool_goes_on_with_the_tools_result(
    tmp_path: Path,
) -> None:
    call_of = {"type": "server_tool_use", "id": "srvtoolu_2", "name": "web_search"}
    search = {**call_of, "input": {"query": "rivers"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_2", "content": []}
    use = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Rome"}}
    text = {"type": "text", "text": "Sunny."}
    answers = (
        of_blocks("msg_1", search, use),
        of_blocks("msg_2", found, text, stop_reason="end_turn"),
    )
    async with Simulator(*answers, [say("Yes.")]) as provider:
        model = opened("anthropic_messages", provider)
        own = {"type": "web_search_20250305", "name": "web_search"}
        agent = Agent("a", model=model, tools=[own, get_weather])
        first, second = await turns(tmp_path, agent, "Is it sunny?", "Really?")
        await model.close()
    assert provider.refusals == []
    assert (first.text, second.text) == ("Sunny.", "Yes.")
    [begun] = [one for one in provider.requests[1]["messages"] if one["role"] == "assistant"]
    assert begun["content"] == [search, use]
    sent = [one["content"] for one in provider.requests[2]["messages"] if one["role"] != "user"]
    assert sent == [[search, use], [found, text]]


async def test_code_that_never_ended_is_left_out_of_the_next_turn(tmp_path: Path) -> None:
    asked = asked_by_code("toolu_1", "Paris")
    async with Simulator(of_blocks("msg_1", CODE, asked), [say("Yes.")]) as provider:
        model = opened("anthropic_messages", provider)
        own = {"type": "code_execution_20250825", "name": "code_execution"}
        limits = Limits(turns=1)
        agent = Agent("a", model=model, tools=[own, get_weather], limits=limits)
        first, second = await turns(tmp_path, agent, "Is it sunny?", "Really?")
        await model.close()
    assert provider.refusals == []
    assert (first.status, second.text) == ("incomplete", "Yes.")
    [answer] = [one for one in provider.requests[1]["messages"] if one["role"] == "assistant"]
    assert answer["content"] == [{name: asked[name] for name in asked if name != "caller"}]
    assert "container" not in provider.requests[1]
