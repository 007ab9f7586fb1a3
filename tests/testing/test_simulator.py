"""The simulator of providers: what it refuses around a conversation, and how its answers come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import msgspec
import openai
import pytest
from anthropic.types import message_create_params
from openai.types.chat import completion_create_params
from openai.types.responses import response_create_params

from tailrace.core.run_object import whole_object
from tailrace.ingest.base import Notebook
from tailrace.models.recording import record
from tailrace.models.scripted.script import call, cut, fail, garbage, say, silence, think, wait
from tailrace.ports import Request
from tailrace.runtime.model_calls.call import call_model
from tailrace.testing.provider_rules.anthropic_messages.fields import MESSAGES
from tailrace.testing.provider_rules.openai_fields import CHAT, RESPONSES
from tailrace.testing.simulator import RecordedAnswer, Simulator, recorded_calls
from tests.ingest.streams import recordings
from tests.models.talking import APIS, HASTY, WEATHER, Talk, model_at, weather_talk
from tests.node import run_node

USER = {"role": "user", "content": "Hi"}
RESPONSE = ("/v1/responses", {"model": "m", "input": "Hi"})
COMPLETION = ("/v1/chat/completions", {"model": "m", "messages": [USER]})
MESSAGE = ("/v1/messages", {"model": "m", "max_tokens": 99, "messages": [USER]})
HEADERS = {"authorization": "Bearer k"}
VERSIONED = {**HEADERS, "anthropic-version": "2023-06-01"}
OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}}
CLOSED = {**OBJECT, "additionalProperties": False, "required": ["a"]}
F = {"type": "function", "name": "f", "parameters": OBJECT}
G = {"type": "function", "function": {"name": "f", "parameters": OBJECT}}
T = {"name": "f", "input_schema": OBJECT}
SCHEMA = {"type": "json_schema", "name": "answer", "schema": OBJECT, "strict": True}


@pytest.fixture
async def provider() -> AsyncIterator[Simulator]:
    async with Simulator([say("Hello")]) as found:
        yield found


async def asked(provider: Simulator, path: str, body: Any, **more: Any) -> httpx.Response:
    headers = VERSIONED if path == "/v1/messages" else HEADERS
    method = more.pop("method", "POST")
    async with httpx.AsyncClient(base_url=provider.url, headers=headers) as client:
        return await client.request(method, path, **({"json": body} | more))


@pytest.mark.parametrize(
    ("api", "changes", "message"),
    [
        (RESPONSE, {"model": None}, "you must provide a model parameter"),
        (RESPONSE, {"model": 5}, "Invalid type for 'model': expected a string, but got an integer"),
        (RESPONSE, {"max_tokens": 5}, "Unknown parameter: 'max_tokens'."),
        (RESPONSE, {"temperature": 9}, "decimal above maximum value. Expected a value <= 2"),
        (RESPONSE, {"temperature": -1}, "decimal below minimum value. Expected a value >= 0"),
        (RESPONSE, {"temperature": True}, "expected a decimal, but got a boolean instead."),
        (RESPONSE, {"max_output_tokens": 1}, "integer below minimum value. Expected a value >= 16"),
        (RESPONSE, {"input": 5}, "expected one of a string or an array, but got an integer"),
        (RESPONSE, {"input": [{"role": "user", "content": 5}]}, "'input[0].content'"),
        (RESPONSE, {"input": [{"role": 5, "content": "Hi"}]}, "'input[0].role': expected a string"),
        (
            RESPONSE,
            {"input": [{"type": "function_call_output", "call_id": "c", "output": 5}]},
            "'input[0].output': expected one of a string or an array",
        ),
        (RESPONSE, {"include": ["all"]}, "Invalid value: 'all'."),
        (RESPONSE, {"reasoning": {"effort": "huge"}}, "Supported values are: 'none', 'minimal',"),
        (RESPONSE, {"reasoning": {"summary": "long"}}, "'auto', 'concise', and 'detailed'."),
        (RESPONSE, {"truncation": "yes"}, "Supported values are: 'auto' and 'disabled'."),
        (RESPONSE, {"tools": [1]}, "Invalid type for 'tools[0]': expected an object"),
        (RESPONSE, {"tools": [{}]}, "Missing required parameter: 'tools[0].type'."),
        (RESPONSE, {"tools": [{"type": "telepathy"}]}, "Invalid value: 'telepathy'."),
        (RESPONSE, {"tools": [{"type": "function"}]}, "parameter: 'tools[0].name'."),
        (RESPONSE, {"tools": [{**F, "name": 5}]}, "'tools[0].name': expected a string"),
        (RESPONSE, {"tools": [{**F, "name": "a b"}]}, "matches the pattern '^[a-zA-Z0-9_-]+$'."),
        (
            RESPONSE,
            {"tools": [{**F, "parameters": {}}]},
            "Invalid schema for function 'f': schema must be a JSON Schema of 'type: \"object\"'",
        ),
        (RESPONSE, {"tools": [{**F, "strict": True}]}, "In context=(), 'additionalProperties' is"),
        (
            RESPONSE,
            {"tools": [{**F, "strict": True, "parameters": {**CLOSED, "required": []}}]},
            "including every key in properties. Missing 'a'.",
        ),
        (
            RESPONSE,
            {
                "tools": [
                    {
                        **F,
                        "strict": True,
                        "parameters": {
                            **CLOSED,
                            "properties": {"a": {"type": "array", "items": OBJECT}},
                        },
                    }
                ]
            },
            "In context=('properties', 'a', 'items'), 'additionalProperties'",
        ),
        (RESPONSE, {"tool_choice": "required"}, "must be specified with 'tools' parameter."),
        (RESPONSE, {"tools": [F], "tool_choice": "any"}, "'none', 'auto', and 'required'."),
        (
            RESPONSE,
            {"tools": [F], "tool_choice": {"type": "function", "name": "g"}},
            "Tool choice 'g' not found in 'tools' parameter.",
        ),
        (RESPONSE, {"text": {"format": {"type": "xml"}}}, "'json_object', 'json_schema', and"),
        (RESPONSE, {"text": {"format": {"type": "json_schema"}}}, "'text.format.name'."),
        (RESPONSE, {"text": {"format": SCHEMA}}, "Invalid schema for response_format 'answer': In"),
        (
            RESPONSE,
            {"text": {"format": {**SCHEMA, "schema": {"type": "array"}}}},
            "got 'type: \"array\"'.",
        ),
        (COMPLETION, {"messages": None}, "Missing required parameter: 'messages'."),
        (COMPLETION, {"messages": "Hi"}, "Invalid type for 'messages': expected an array"),
        (COMPLETION, {"messages": []}, "Invalid 'messages': empty array."),
        (COMPLETION, {"messages": [5]}, "Invalid type for 'messages[0]': expected an object"),
        (COMPLETION, {"messages": [{"role": "user", "content": 5}]}, "a string or an array of"),
        (COMPLETION, {"messages": [{"role": "user", "content": [5]}]}, "content[0]': expected an"),
        (
            COMPLETION,
            {"messages": [{"role": "user", "content": [{"type": "input_text"}]}]},
            "Invalid value: 'input_text'. Supported values are: 'text', 'image_url',",
        ),
        (COMPLETION, {"messages": [{"role": "assistant", "tool_calls": 5}]}, "an array of objects"),
        (COMPLETION, {"messages": [{"role": "assistant", "tool_calls": [5]}]}, "tool_calls[0]'"),
        (COMPLETION, {"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "_calls[0].id'."),
        (COMPLETION, {"reasoning_effort": "huge"}, "Invalid value: 'huge'."),
        (COMPLETION, {"max_completion_tokens": 0}, "Expected a value >= 1, but got 0 instead."),
        (COMPLETION, {"stream_options": {}}, "only allowed when 'stream' is enabled."),
        (COMPLETION, {"tool_choice": "auto"}, "only allowed when 'tools' are specified."),
        (COMPLETION, {"parallel_tool_calls": True}, "only allowed when 'tools' are specified."),
        (COMPLETION, {"tools": [1]}, "Invalid type for 'tools[0]': expected an object"),
        (COMPLETION, {"tools": [{"type": "web_search"}]}, "values are: 'function' and 'custom'."),
        (COMPLETION, {"tools": [F]}, "Missing required parameter: 'tools[0].function'."),
        (
            COMPLETION,
            {"tools": [G], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "Tool choice 'g' not found",
        ),
        (COMPLETION, {"response_format": {"type": "json_schema"}}, "response_format.json_schema'."),
        (
            COMPLETION,
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
            "'response_format.json_schema.schema'.",
        ),
        (MESSAGE, {"max_tokens": None}, "max_tokens: Field required"),
        (MESSAGE, {"max_tokens": "9"}, "max_tokens: Input should be a valid integer"),
        (MESSAGE, {"max_tokens": 0}, "max_tokens: Input should be greater than or equal to 1"),
        (MESSAGE, {"input": "Hi"}, "input: Extra inputs are not permitted"),
        (MESSAGE, {"temperature": 1.5}, "temperature: range: 0..1"),
        (MESSAGE, {"model": "claude-opus-5", "temperature": 1}, "deprecated for this model."),
        (MESSAGE, {"system": 5}, "system: Input should be a valid string"),
        (MESSAGE, {"messages": [{"role": "user", "content": 5}]}, "messages.0.content: Input"),
        (
            MESSAGE,
            {"messages": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]},
            "messages.0.content.0: Input tag 'input_text' found using 'type' does not match",
        ),
        (MESSAGE, {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "text.text: Fi"),
        (MESSAGE, {"tools": [1]}, "tools.0: Input should be a valid dictionary or object"),
        (MESSAGE, {"tools": [{"name": "f"}]}, "tools.0.custom.input_schema: Field required"),
        (MESSAGE, {"tools": [{**T, "name": "a b"}]}, "tools.0.custom.name: String should match"),
        (MESSAGE, {"tools": [{**T, "input_schema": 5}]}, "input_schema: Input should be a valid"),
        (MESSAGE, {"tools": [{**T, "input_schema": {}}]}, "input_schema.type: Field required"),
        (MESSAGE, {"tools": [{**T, "input_schema": {"type": "array"}}]}, "should be 'object'"),
        (MESSAGE, {"tools": [{**T, "strict": True}]}, "must be explicitly set to false"),
        (MESSAGE, {"tools": [T, T]}, "tools: Tool names must be unique."),
        (MESSAGE, {"tool_choice": {"type": "auto"}}, "only be specified while providing tools."),
        (MESSAGE, {"tools": [T], "tool_choice": {"type": "required"}}, "'auto', 'any', 'tool', "),
        (MESSAGE, {"tools": [T], "tool_choice": {"type": "tool", "name": "g"}}, "Tool 'g' not fou"),
        (MESSAGE, {"output_config": {"effort": "huge"}}, "'low', 'medium', 'high', 'xhigh' or"),
        (MESSAGE, {"output_config": {"format": {"type": "xml"}}}, "should be 'json_schema'"),
        (MESSAGE, {"output_config": {"format": {"type": "json_schema"}}}, "schema: Field required"),
        (MESSAGE, {"output_config": {"format": SCHEMA}}, "must be explicitly set to false"),
        (MESSAGE, {"thinking": {"type": "on"}}, "thinking: Input tag 'on' found using 'type'"),
        (MESSAGE, {"thinking": {"type": "enabled"}}, "thinking.enabled.budget_tokens: Field req"),
        (MESSAGE, {"thinking": {"type": "enabled", "budget_tokens": 9}}, "or equal to 1024"),
        (MESSAGE, {"thinking": {"type": "enabled", "budget_tokens": 2000}}, "`max_tokens` must be"),
        (
            MESSAGE,
            {"thinking": {"type": "adaptive"}, "temperature": 0.5},
            "`temperature` may only be set to 1 when thinking is enabled.",
        ),
        (
            MESSAGE,
            {
                "thinking": {"type": "enabled", "budget_tokens": 2000},
                "max_tokens": 3000,
                "tools": [T],
                "tool_choice": {"type": "any"},
            },
            "Thinking may not be enabled when tool_choice forces tool use.",
        ),
        (
            MESSAGE,
            {
                "model": "claude-sonnet-5-5",
                "thinking": {"type": "enabled", "budget_tokens": 2000},
                "max_tokens": 3000,
            },
            '"thinking.type.enabled" is not supported for this model.',
        ),
        (
            MESSAGE,
            {"thinking": {"type": "adaptive"}, "tools": [T], "tool_choice": {"type": "any"}},
            "Thinking may not be enabled when tool_choice forces tool use.",
        ),
        (
            MESSAGE,
            {"model": "claude-opus-5-5", "thinking": {"type": "disabled"}},
            '"thinking.type.disabled" is not supported for this model.',
        ),
        (
            MESSAGE,
            {"model": "claude-opus-4-6", "output_config": {"effort": "xhigh"}},
            "This model does not support effort level 'xhigh'.",
        ),
    ],
)
async def test_a_field_that_is_wrong_is_refused(
    api: Any, changes: Any, message: str, provider: Simulator
) -> None:
    path, body = api
    whole = await asked(provider, path, body)
    assert whole.status_code == 200, whole.text
    changed = {name: value for name, value in {**body, **changes}.items() if value is not None}
    answer = await asked(provider, path, changed)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
    assert [one.body for one in provider.refusals] == [answer.json()]


@pytest.mark.parametrize(
    ("known", "params"),
    [
        (RESPONSES, response_create_params.ResponseCreateParamsBase),
        (CHAT, completion_create_params.CompletionCreateParamsBase),
        (MESSAGES, message_create_params.MessageCreateParamsBase),
    ],
)
def test_every_field_of_the_sdks_is_known(known: Any, params: Any) -> None:
    headers = {"user_profile_id", "workspace_id"}  # of Anthropic's: not in the body
    assert set(params.__annotations__) - headers <= set(known)


@pytest.mark.parametrize("api", [RESPONSE, COMPLETION, MESSAGE])
async def test_the_simulator_refuses_requests_as_the_provider_does(api: Any) -> None:
    path, body = api
    async with Simulator([say("Hello")], key="right") as provider:
        answers = [
            await asked(provider, path, body, headers={"authorization": ""}),
            await asked(provider, path, body, headers={"authorization": "Bearer wrong"}),
            await asked(provider, path, None, headers={"authorization": "Bearer right"}),
            await asked(provider, path, body, method="GET"),
            await asked(provider, f"{path}/nowhere", body),
            await asked(provider, path, body, headers={"authorization": "Bearer right"}),
        ]
        bad = {"content": b"{", "headers": {"authorization": "Bearer right"}}
        answers.append(await asked(provider, path, None, **bad))
    assert [one.status_code for one in answers] == [401, 401, 400, 405, 404, 200, 400]
    for answer in answers[:5]:
        assert isinstance(answer.json()["error"]["message"], str)


async def test_anthropic_wants_its_version(provider: Simulator) -> None:
    path, body = MESSAGE
    async with httpx.AsyncClient(base_url=provider.url, headers={"x-api-key": "k"}) as client:
        answer = await client.post(path, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "anthropic-version: header is required"


# --- answers that are not streamed ------------------------------------------------------------


async def test_a_script_fails_in_one_piece_as_it_does_in_many() -> None:
    answers: Any = (
        [say("Half"), fail("overloaded")],
        [say("Half"), cut()],
        [garbage("<html>")],
        [wait(0.05), say("Late")],
    )
    path, body = RESPONSE
    async with Simulator(*answers) as provider:
        assert (await asked(provider, path, body)).status_code == 529
        with pytest.raises(httpx.RemoteProtocolError):
            await asked(provider, path, body)
        assert (await asked(provider, path, body)).text == "<html>"
        began = asyncio.get_running_loop().time()
        late = await asked(provider, path, body)
        assert asyncio.get_running_loop().time() - began >= 0.05
        assert late.json()["output"][0]["content"][0]["text"] == "Late"


async def test_silence_lasts_until_the_client_gives_up() -> None:
    path, body = RESPONSE
    async with Simulator([silence()]) as provider:
        with pytest.raises(httpx.ReadTimeout):
            await asked(provider, path, body, timeout=0.05)


async def test_items_of_a_response_that_the_client_left_can_be_sent_back() -> None:
    include: Any = ["reasoning.encrypted_content"]
    asked: Any = {"model": "gpt-5", "store": False, "include": include}
    async with (
        Simulator([think("Hm."), say("Hello."), wait(60), call("f")], [say("Again.")]) as provider,
        openai.AsyncOpenAI(base_url=provider.openai_url, api_key="k", max_retries=0) as client,
    ):
        kept: list[Any] = []
        stream = await client.responses.create(input=HI, stream=True, **asked)
        async for event in stream:
            if event.type == "response.output_item.done":
                kept.append(event.item.model_dump(exclude_none=True))
            if len(kept) == 2:
                break
        await stream.close()
        again = await client.responses.create(input=[*HI, *kept, *HI], **asked)
        assert again.output_text == "Again."
    assert provider.refusals == []


# --- recordings --------------------------------------------------------------------------------

FOLDERS = {
    "openai": "openai-responses",
    "anthropic": "anthropic-messages",
    "openai-chat": "chat-completions",
}
HI: Any = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("api", APIS)
async def test_a_recording_is_the_same_whether_it_is_streamed_or_not(api: str) -> None:
    for path in recordings(FOLDERS[api])[:6]:
        replies = []
        async with Simulator(RecordedAnswer.read(path)) as provider:
            for streamed in (True, False):
                model = model_at(provider, api)
                book = Notebook()
                request = Request(input=HI, options={"stream": streamed})
                await call_model(model, request, book, patience=HASTY)
                items = whole_object(book.state)["output"]
                replies.append([(item["type"], item.get("block_list")) for item in items])
                await model.close()
        assert provider.refusals == []
        assert replies[0] == replies[1], path.name


@pytest.mark.parametrize("api", APIS)
async def test_what_was_recorded_is_known_in_the_next_turn(api: str, tmp_path: Path) -> None:
    """Ids, signatures and sealed reasoning of a recording are the provider's own."""
    path = tmp_path / "answers.jsonl"
    request = Request(tools=[WEATHER], history="encrypted", effort="low")
    async with Simulator(weather_talk) as provider:
        model = record(model_at(provider, api), path)
        talk = Talk(model, request)
        replies = [await talk.ask("One?"), await talk.ask("Two?")]
        await model.close()
    async with Simulator(*recorded_calls(path)) as provider:
        model = model_at(provider, api)
        talk = Talk(model, request)
        assert [await talk.ask("One?"), await talk.ask("Two?")] == replies
        await model.close()
    assert provider.refusals == []
    assert len(provider.requests) == 4


async def test_a_recording_fails_as_it_did_and_takes_its_time(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    answers: Any = ([fail("rate_limited", retry_after=0.001)], [say("It"), cut()], [say("It is.")])
    async with Simulator(*answers) as provider:
        model = record(model_at(provider, "openai"), path)
        await Talk(model, Request()).ask("Hi")
        await model.close()
    async with Simulator(*recorded_calls(path, pace=1)) as provider:
        model = model_at(provider, "openai")
        talk = Talk(model, Request())
        assert await talk.ask("Hi") == "It is."
        await model.close()
    assert len(provider.requests) == 3
    slow: list[Any] = [{"call": "a", "api": "openai_chat", "model": "m"}]
    slow += [{"call": "a", "at": at, "events": ['{"choices":[]}']} for at in (0.02, 0.06)]
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in slow))
    assert recorded_calls(path, pace=2)[0].pauses == pytest.approx((0.01, 0.02))


async def test_the_sdks_read_a_recording_that_is_not_streamed() -> None:
    script: Any = [think("Hm."), say("Let me see."), call("get_weather", city="Paris")]

    async def streamed(path: str, body: Any) -> RecordedAnswer:
        async with Simulator(script) as provider:
            text = (await asked(provider, path, {**body, "stream": True})).text
        lines = [line.removeprefix("data: ") for line in text.split("\n")]
        return RecordedAnswer(tuple(line for line in lines if line.startswith(("{", "["))))

    async with (
        Simulator(await streamed(*MESSAGE)) as provider,
        anthropic.AsyncAnthropic(base_url=provider.url, api_key="k") as client,
    ):
        message = await client.messages.create(model="m", max_tokens=9, messages=HI)
        assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
        assert message.content[2].model_dump()["input"] == {"city": "Paris"}
        assert message.stop_reason == "tool_use"
    async with (
        Simulator(await streamed(*COMPLETION)) as provider,
        openai.AsyncOpenAI(base_url=provider.openai_url, api_key="k") as other,
    ):
        completion = await other.chat.completions.create(model="m", messages=HI)
        found = completion.choices[0].message
        assert found.content == "Let me see."
        assert found.tool_calls
        assert found.tool_calls[0].model_dump()["function"]["arguments"] == '{"city":"Paris"}'


async def test_a_recorded_break_also_breaks_an_answer_that_does_not_stream(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    async with Simulator([say("It"), cut()]) as provider:
        model = record(model_at(provider, "anthropic"), path)
        book = Talk(model, Request())
        await book.ask("Hi")
        await model.close()
    async with Simulator(*recorded_calls(path)) as provider:
        with pytest.raises(httpx.RemoteProtocolError):
            await asked(provider, *MESSAGE)


# --- clients from npm --------------------------------------------------------------------------


async def read_by_npm(script: str, *, root: bool) -> Any:
    """What a package from npm prints of an answer that thinks, speaks and calls."""
    answer: Any = [think("Hm."), say("Let me see."), call("get_weather", city="Paris")]
    async with Simulator(answer) as provider:
        asking = {"baseURL": provider.url if root else provider.openai_url, "model": "m"}
        argument = msgspec.json.encode(asking).decode()
        printed = await asyncio.to_thread(run_node, [script, argument])
    assert provider.refusals == []
    return msgspec.json.decode(printed)


async def test_the_openai_package_from_npm_reads_the_simulator() -> None:
    answer = await read_by_npm("openai_sdk.mjs", root=False)
    assert answer["final"]["output_text"] == "Let me see."
    assert [item["type"] for item in answer["final"]["output"]] == [
        "reasoning",
        "message",
        "function_call",
    ]
    assert answer["seen"][-1] == "response.completed"


async def test_the_anthropic_package_from_npm_reads_the_simulator() -> None:
    [answer] = await read_by_npm("anthropic_sdk.mjs", root=True)
    assert answer["seen"][-1] == "message_stop"
    thought, replies, called = answer["final"]["content"]
    assert (thought["thinking"], replies["text"]) == ("Hm.", "Let me see.")
    assert (called["name"], called["input"]) == ("get_weather", {"city": "Paris"})
