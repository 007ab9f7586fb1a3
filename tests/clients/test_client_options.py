"""What clients declare reaches the model, as far as the agent allows it; by the real SDKs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from anthropic import Anthropic
from openai import BadRequestError, NotFoundError, OpenAI

from tests.serving import Served

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"read": {"type": "array"}}, "required": ["read"]}
FORM = {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}
PICK = {"type": "function", "name": "pick", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture
def client(reading: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{reading.url}/v1", api_key="test", max_retries=0) as client:
        yield client


def asked(client: OpenAI, model: str = "reader", **options: Any) -> tuple[Any, Json]:
    """The response, and what the model was asked."""
    given: Any = {"model": model, "input": "?", **options}
    response = client.responses.create(**given)
    return response, json.loads(response.output_text)


def test_what_the_agent_leaves_open_is_applied_and_shown(client: OpenAI) -> None:
    response, sent = asked(
        client,
        instructions="Speak like a pirate.",
        temperature=0.3,
        top_p=0.5,
        max_output_tokens=77,
        reasoning={"effort": "high", "summary": "concise"},
        text={"format": FORM},
        parallel_tool_calls=False,
    )
    assert sent["instructions"] == "Be brief.\n\nSpeak like a pirate."
    assert (sent["temperature"], sent["top_p"], sent["max_output_tokens"]) == (0.3, 0.5, 77)
    assert (sent["effort"], sent["summary"], sent["parallel_calls"]) == ("high", "concise", False)
    assert sent["output"] == ["place", SCHEMA, True]
    assert response.instructions == "Speak like a pirate."
    assert (response.temperature, response.top_p, response.max_output_tokens) == (0.3, 0.5, 77)
    assert (response.reasoning.effort, response.parallel_tool_calls) == ("high", False)
    assert response.text.format.name == "place"


def test_what_the_agent_sets_itself_stays(client: OpenAI) -> None:
    response, sent = asked(
        client,
        "fixed",
        temperature=1.5,
        top_p=0.1,
        max_output_tokens=1000,
        reasoning={"effort": "high", "summary": "auto"},
        text={"format": FORM},
        parallel_tool_calls=True,
    )
    assert (sent["temperature"], sent["top_p"], sent["max_output_tokens"]) == (0.2, 0.9, 100)
    assert (sent["effort"], sent["summary"], sent["parallel_calls"]) == ("low", "auto", False)
    assert sent["output"][0] == "mine"
    assert (response.temperature, response.top_p, response.max_output_tokens) == (0.2, 0.9, 100)
    assert (response.reasoning.effort, response.parallel_tool_calls) == ("low", False)
    assert response.text.format.name == "mine"
    assert asked(client, "fixed", max_output_tokens=50)[1]["max_output_tokens"] == 50


def test_an_agent_may_allow_nothing_or_name_what_it_allows(client: OpenAI) -> None:
    options: Any = {
        "instructions": "Speak like a pirate.",
        "temperature": 1.5,
        "top_p": 0.1,
        "max_output_tokens": 50,
        "reasoning": {"effort": "high"},
        "text": {"format": FORM},
        "tools": [PICK],
        "tool_choice": "required",
    }
    response, sent = asked(client, "closed", **options)
    assert sent["instructions"] is None
    assert {sent[name] for name in ("temperature", "top_p", "effort", "output")} == {None}
    assert sent["tools"] == []
    assert (response.instructions, response.temperature, response.tools) == (None, 1.0, [])
    response, sent = asked(client, "listed", **options)
    assert (sent["temperature"], sent["top_p"], sent["effort"]) == (1.5, 0.9, "high")
    assert (sent["instructions"], sent["tools"]) == (None, [])
    assert (response.temperature, response.top_p) == (1.5, 0.9)


SECRET = "Speak like a pirate."


@pytest.mark.parametrize("model", ["closed", "listed", "reader"])
def test_messages_of_the_system_are_instructions_in_every_api(reading: Served, model: str) -> None:
    """An agent that takes no instructions reads them in no API; the log has what was sent."""

    def streamed(path: str, body: Json) -> str:
        answer = httpx.post(f"{reading.url}{path}", json=body, timeout=30).raise_for_status().text
        frames = [line[6:] for line in answer.splitlines() if line.startswith("data: {")]
        return "".join(str(json.loads(frame).get("delta", "")) for frame in frames)

    user = {"role": "user", "content": "?"}
    system = {"role": "system", "content": SECRET}
    developer = {"role": "developer", "content": SECRET}
    found: dict[str, str] = {}
    with OpenAI(base_url=f"{reading.url}/v1", api_key="test", max_retries=0) as client:
        given: Any = [system, developer, user]
        response = client.responses.create(model=model, input=given)
        found["responses"] = response.output_text
        assert SECRET in str(client.responses.input_items.list(response.id).data)
        later = client.responses.create(model=model, input="And?", previous_response_id=response.id)
        found["a later response"] = later.output_text
        completion = client.chat.completions.create(model=model, messages=given)
        found["chat completions"] = completion.choices[0].message.content or ""
    with Anthropic(base_url=reading.url, api_key="test", max_retries=0) as anthropic:
        asked_for: Any = {"model": model, "max_tokens": 77, "messages": [user]}
        message = anthropic.messages.create(**asked_for, system=SECRET)
        found["messages"] = message.content[-1].text
    body: Json = {"id": f"chat_{model}", "agent": model}
    messages = [
        {
            "id": one["role"],
            "role": one["role"],
            "parts": [{"type": "text", "text": one["content"]}],
        }
        for one in (system, user)
    ]
    found["useChat"] = streamed("/api/chat", {**body, "messages": messages})
    body = {"threadId": f"ag_{model}", "runId": f"ag_{model}", "state": {}}
    messages = [{**message, "id": message["role"]} for message in given]
    found["AG-UI"] = streamed(f"/ag-ui/{model}", {**body, "messages": messages})
    found["runs"] = streamed("/runs", {"agent": model, "stream": True, "input": given})
    takes = model == "reader"
    assert {name: SECRET in text for name, text in found.items()} == dict.fromkeys(found, takes)
    assert all("?" in text for text in found.values())


def test_what_no_agent_applies_is_not_shown_as_applied(client: OpenAI) -> None:
    response, _ = asked(client, service_tier="flex", top_logprobs=2)
    assert (response.service_tier, response.top_logprobs) == ("default", 0)


def test_after_max_tool_calls_the_model_is_asked_to_call_nothing(client: OpenAI) -> None:
    response, sent = asked(client, "tooled", max_tool_calls=1)
    assert (response.max_tool_calls, sent["tool_choice"]) == (1, "none")
    assert [item.type for item in response.output].count("mcp_call") == 1
    response, sent = asked(client, "tooled", max_tool_calls=2)
    assert (response.max_tool_calls, sent["tool_choice"]) == (2, None)
    response, _ = asked(client, "closed", max_tool_calls=1)
    assert response.max_tool_calls is None


def test_a_function_gets_all_options(client: OpenAI) -> None:
    _, options = asked(client, "hello", temperature=1.5, top_logprobs=2)
    assert options == {"temperature": 1.5, "top_logprobs": 2, "client_calls": "complete"}


def test_a_tool_is_chosen_once_and_tools_may_be_forbidden(client: OpenAI) -> None:
    body: Any = {"model": "tooled", "input": "?", "tools": [PICK]}
    response = client.responses.create(**body, tool_choice={"type": "function", "name": "pick"})
    assert [item.type for item in response.output] == ["reasoning", "function_call"]
    _, sent = asked(client, "tooled", tool_choice="none")
    assert (sent["tool_choice"], sent["tools"]) == ("none", ["look_up"])
    # A choice that was repeated would have the tool called for ever.
    _, sent = asked(client, "tooled", tool_choice={"type": "function", "name": "look_up"})
    assert sent["tool_choice"] is None
    only = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "x"}]}
    _, sent = asked(client, "tooled", tools=[PICK], tool_choice=only)
    assert sent["tools"] == []


@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        ("temperature", 2.5, "temperature"),
        ("top_p", -1, "top_p"),
        ("max_output_tokens", 0, "max_output_tokens"),
        ("max_tool_calls", 0, "max_tool_calls"),
        ("reasoning", {"effort": "huge"}, "reasoning.effort"),
        ("reasoning", {"summary": "long"}, "reasoning.summary"),
        ("text", {"format": {"type": "xml"}}, "text.format"),
        ("text", {"format": {"type": "json_schema", "name": "x"}}, "text.format"),
        ("tool_choice", "always", "tool_choice"),
        ("tool_choice", {"type": "function"}, "tool_choice"),
        ("tools", ["pick"], "tools[0]"),
        ("tools", [{"type": "function"}], "tools[0].name"),
        ("truncation", "often", "truncation"),
    ],
)
def test_an_impossible_value_is_refused_with_its_name(
    client: OpenAI, name: str, value: Any, param: str
) -> None:
    with pytest.raises(BadRequestError) as refused:
        asked(client, **{name: value})
    assert refused.value.param == param


@pytest.mark.parametrize("model", ["tooled", "reader"], ids=["tools", "no tools"])
def test_a_tool_that_does_not_exist_is_named_in_the_error(
    client: OpenAI, reading: Served, model: str
) -> None:
    choice: Any = {"type": "function", "name": "nope"}
    response = client.responses.create(model=model, input="?", tool_choice=choice)
    assert response.status == "failed"
    assert response.error is not None
    assert response.error.message.startswith("tool_choice is 'nope'")
    asked: Any = {"model": model, "messages": [{"role": "user", "content": "?"}]}
    with pytest.raises(NotFoundError, match="tool_choice is 'nope'"):
        client.chat.completions.create(
            **asked, tool_choice={"type": "function", "function": {"name": "nope"}}
        )
    body = {**asked, "max_tokens": 9, "tool_choice": {"type": "tool", "name": "nope"}}
    refused = httpx.post(f"{reading.url}/v1/messages", json=body)
    assert (refused.status_code, refused.json()["error"]["type"]) == (404, "not_found_error")
    page = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
    assert f"| `unknown_tool` | `UnknownTool` | {refused.status_code} |" in page.read_text()


@pytest.mark.parametrize(
    ("path", "options", "field"),
    [
        ("/chat/completions", {"max_tokens": 0}, "max_tokens"),
        ("/chat/completions", {"max_completion_tokens": 0}, "max_completion_tokens"),
        ("/chat/completions", {"reasoning_effort": "huge"}, "reasoning_effort"),
        ("/chat/completions", {"response_format": {"type": "xml"}}, "response_format"),
        ("/messages", {"max_tokens": 0}, "max_tokens"),
        ("/messages", {"output_config": {"effort": "huge"}}, "output_config.effort"),
    ],
)
def test_errors_name_the_field_as_the_client_does(
    reading: Served, path: str, options: Json, field: str
) -> None:
    body = {"model": "reader", "messages": [{"role": "user", "content": "?"}], **options}
    refused = httpx.post(f"{reading.url}/v1{path}", json=body)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["message"].startswith(f"`{field}` ")
    assert error.get("param", field) == field


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/chat/completions", {"role": "tool", "tool_call_id": "call_x", "content": "15 C"}),
        (
            "/messages",
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_x"}]},
        ),
    ],
)
def test_the_result_of_a_call_that_the_messages_lack_is_refused(
    reading: Served, path: str, message: Json
) -> None:
    messages = [{"role": "user", "content": "?"}, message]
    body = {"model": "reader", "max_tokens": 9, "messages": messages}
    refused = httpx.post(f"{reading.url}/v1{path}", json=body)
    assert refused.status_code == 404
    assert "`messages[1]` has the result of call call_x" in refused.json()["error"]["message"]


def test_chat_completions_have_other_names_for_the_same(client: OpenAI) -> None:
    given: Any = {
        "model": "reader",
        "messages": [{"role": "system", "content": "Arr."}, {"role": "user", "content": "?"}],
        "temperature": 0.3,
        "top_p": 0.5,
        "max_completion_tokens": 77,
        "reasoning_effort": "high",
        "parallel_tool_calls": False,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "place", "schema": SCHEMA},
        },
    }
    found = client.chat.completions.create(**given).choices[0].message.content
    sent = json.loads(found or "")
    assert (sent["temperature"], sent["top_p"], sent["max_output_tokens"]) == (0.3, 0.5, 77)
    assert (sent["effort"], sent["parallel_calls"]) == ("high", False)
    assert sent["output"] == ["place", SCHEMA, False]
    assert sent["read"] == ["Arr.", "?"]
    given |= {"response_format": {"type": "json_object"}}
    found = client.chat.completions.create(**given).choices[0].message.content
    assert json.loads(found or "")["output"][1] == {"type": "object"}


def test_options_of_anthropics_api_reach_the_model(reading: Served) -> None:
    with Anthropic(base_url=reading.url, api_key="test", max_retries=0) as client:
        given: Any = {
            "model": "reader",
            "max_tokens": 77,
            "system": "Arr.",
            "messages": [{"role": "user", "content": "?"}],
            "extra_body": {"temperature": 0.3},  # the SDK's own models take none
            "output_config": {
                "effort": "high",
                "format": {"type": "json_schema", "schema": SCHEMA},
            },
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        }
        found = client.messages.create(**given)
        sent = json.loads(found.content[-1].text)
        assert (sent["temperature"], sent["max_output_tokens"]) == (0.3, 77)
        assert (sent["effort"], sent["parallel_calls"]) == ("high", False)
        assert sent["output"] == ["answer", SCHEMA, False]
        assert sent["read"] == ["Arr.", "?"]


def test_options_of_a_run_reach_the_model(reading: Served) -> None:
    body = {"agent": "fixed", "input": "?", "options": {"temperature": 2, "top_p": "x", "mine": 1}}
    answer = httpx.post(f"{reading.url}/runs", json=body).json()
    with httpx.stream("GET", f"{reading.url}/runs/{answer['run_id']}/events", timeout=30) as stream:
        stream.read()
    run = httpx.get(f"{reading.url}/runs/{answer['run_id']}").json()
    assert run["options"] == {"temperature": 0.2, "top_p": 0.9, "mine": 1}


def test_ag_ui_sends_tools_and_context(reading: Served) -> None:
    def run(agent: str, ident: str, **declared: Any) -> list[Json]:
        user = {"id": "m1", "role": "user", "content": "?"}
        body = {"threadId": ident, "runId": ident, "messages": [user], "state": {}, **declared}
        answer = httpx.post(f"{reading.url}/ag-ui/{agent}", json=body, timeout=30).text
        return [json.loads(frame[6:]) for frame in answer.split("\n\n") if frame[:6] == "data: "]

    def text_of(events: list[Json]) -> str:
        return "".join(one["delta"] for one in events if one["type"] == "TEXT_MESSAGE_CONTENT")

    context = [{"description": "The open page", "value": "orders"}, "wrong"]
    assert "The open page: orders" in text_of(run("reader", "with_context", context=context))
    assert "The open page" not in text_of(run("closed", "closed_context", context=context))
    tool = {"name": "pick", "description": "", "parameters": PICK["parameters"]}
    events = run("reader", "with_tool", tools=[tool])
    assert "pick" in [one.get("toolCallName") for one in events]
