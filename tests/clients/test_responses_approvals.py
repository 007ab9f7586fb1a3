"""Approvals over `/v1/responses`, as the SDKs ask for them and answer them, on the real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from agents import Agent, HostedMCPTool, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI
from openai.lib.responses_tool_runner import AsyncRegisteredFunction, AsyncResponsesToolRunner

from tests.node import run_node
from tests.serving import Served


@pytest.fixture
def client(reading: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{reading.url}/v1", api_key="test", max_retries=0) as client:
        yield client


def asked(client: OpenAI, given: Any = "pay", **options: Any) -> Any:
    return client.responses.create(**{"model": "payer", "input": given, **options})


def answers(response: Any, **answer: Any) -> list[Any]:
    """The input that answers all requests of a response."""
    requests = [item for item in response.output if item.type == "mcp_approval_request"]
    common = {"type": "mcp_approval_response", "approve": True}
    return [{**common, "approval_request_id": item.id, **answer} for item in requests]


def kinds(response: Any) -> list[str]:
    return [item.type for item in response.output]


def finished(events: list[Any]) -> Any:
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type == "response.completed"
    return events[-1].response


def helped(client: OpenAI, model: str, given: Any = "pay", **options: Any) -> tuple[Any, list[Any]]:
    """What the stream helper, which is strict about items without an end, makes of a response."""
    with client.responses.stream(model=model, input=given, **options) as stream:
        events = list(stream)
        return stream.get_final_response(), events


def check_stored(client: OpenAI, *responses: Any) -> None:
    """The stored responses, and their replays, are what the helper made of their streams.

    A call that is unfinished at the end of its response is in the stream only, which has begun it.
    """
    for response in responses:
        with client.responses.stream(response_id=response.id) as stream:
            assert stream.get_final_response() == response
        stored = client.responses.retrieve(response.id).model_dump()
        made = response.model_dump()
        made["output"] = [item for item in made["output"] if not is_unfinished(item)]
        for content in (part for item in made["output"] for part in item.get("content") or ()):
            content.pop("parsed")
        assert stored == made


def is_unfinished(item: Any) -> bool:
    return bool(item["type"] == "mcp_call" and item["status"] == "incomplete")


def test_the_stream_helper_gets_the_request_for_a_call_and_then_the_call(client: OpenAI) -> None:
    first, events = helped(client, "payer")
    assert kinds(first) == ["message", "mcp_approval_request"]
    added = [event for event in events if event.type == "response.output_item.added"]
    assert [(one.output_index, one.item.id) for one in added] == list(
        enumerate(item.id for item in first.output)
    )
    second, events = helped(client, "payer", answers(first), previous_response_id=first.id)
    assert kinds(second) == ["mcp_call", "message", "mcp_approval_request"]
    begun = [event.type for event in events if "mcp_call" in event.type]
    assert begun == [
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
        "response.mcp_call.completed",
    ]
    check_stored(client, first, second)


def test_a_call_beside_a_waiting_call_is_shown(client: OpenAI) -> None:
    first, _ = helped(client, "pair")
    assert kinds(first) == ["mcp_call", "mcp_approval_request"]
    assert first.output[0].status == "completed"  # a quick tool ends before people are asked
    second, _ = helped(client, "pair", answers(first), previous_response_id=first.id)
    assert second.output_text == "Both are done."
    calls = [item for response in (first, second) for item in response.output]
    done = [item.name for item in calls if item.type == "mcp_call" and item.status == "completed"]
    assert sorted(done) == ["look_up", "pay"]
    check_stored(client, first, second)


def test_a_sub_agent_asks_while_its_call_is_not_complete(client: OpenAI) -> None:
    first, _ = helped(client, "boss")
    assert kinds(first) == ["mcp_call", "mcp_approval_request"]
    call, request = first.output
    assert (call.name, call.status, request.name) == ("careful", "incomplete", "pay")
    second, _ = helped(client, "boss", answers(first), previous_response_id=first.id)
    assert kinds(second) == ["mcp_call", "message"]
    assert (second.output[0].status, second.output[0].output) == ("completed", "It is paid.")
    check_stored(client, first, second)


def test_a_call_that_is_not_complete_is_in_the_next_response(client: OpenAI) -> None:
    first = asked(client, model="boss")
    assert kinds(first) == ["mcp_approval_request"]
    second = asked(client, answers(first), model="boss", previous_response_id=first.id)
    assert kinds(second) == ["mcp_call", "message"]
    assert (second.output[0].status, second.output[0].output) == ("completed", "It is paid.")


def test_the_stream_helper_from_npm_goes_from_response_to_response(reading: Served) -> None:
    given = {"baseURL": f"{reading.url}/v1", "models": ["payer", "pair", "boss"]}
    for found in json.loads(run_node(["responses_approvals.mjs"], stdin=json.dumps(given))):
        assert len(found) > 1
        for response in found:
            assert response["output"] == response["replayed"]
            output = [item for item in response["output"] if not is_unfinished(item)]
            made = [(item["id"], item.get("status")) for item in output]
            assert [(item["id"], item.get("status")) for item in response["stored"]] == made


@pytest.mark.parametrize("streams", [True, False])
def test_approvals_are_answered_by_the_next_request(client: OpenAI, streams: bool) -> None:
    def turn(given: Any, **options: Any) -> Any:
        if not streams:
            return asked(client, given, **options)
        with asked(client, given, stream=True, **options) as stream:
            return finished(list(stream))

    first = turn("pay")
    assert (first.status, kinds(first)) == ("completed", ["message", "mcp_approval_request"])
    request = first.output[1]
    assert (request.server_label, request.name) == ("tailrace", "pay")
    assert json.loads(request.arguments) == {"euros": 5}
    second = turn(answers(first), previous_response_id=first.id)
    assert kinds(second) == ["mcp_call", "message", "mcp_approval_request"]
    call = second.output[0]
    assert (call.status, call.output) == ("completed", "paid 5")
    assert call.approval_request_id == request.id
    third = turn(answers(second, approve=False, reason="Too much."), previous_response_id=second.id)
    assert kinds(third) == ["mcp_call", "message"]
    assert third.output[0].status == "failed"
    assert third.output_text.startswith("paid 5, ")
    assert "Too much." in third.output_text
    for response in (first, second, third):
        assert client.responses.retrieve(response.id).output == response.output
    # Once more, and with another answer: what was done is shown.
    again = turn(answers(second), previous_response_id=second.id)
    assert (again.id, again.output) == (third.id, third.output)
    listed = list(client.responses.input_items.list(third.id))
    assert [(item.approval_request_id, item.approve) for item in listed] == [  # type: ignore[union-attr]
        (second.output[2].id, False)
    ]
    later = turn("What now?", previous_response_id=third.id)
    assert "What now?" in later.output_text
    assert "Too much." in later.output_text
    assert later.previous_response_id == third.id
    # An earlier response is continued as it was: without what the run did after its approvals.
    branch = turn("And else?", previous_response_id=first.id)
    assert "And else?" in branch.output_text
    assert "paid 5" not in branch.output_text
    assert branch.previous_response_id == first.id
    branch = turn("And else?", previous_response_id=second.id)
    assert "paid 5" in branch.output_text
    assert "Too much." not in branch.output_text
    assert branch.previous_response_id == second.id


def test_a_response_in_the_background_can_be_polled(client: OpenAI) -> None:
    first = asked(client, background=True)
    while first.status != "completed":
        first = client.responses.retrieve(first.id)
    assert kinds(first) == ["message", "mcp_approval_request"]
    second = asked(client, answers(first), previous_response_id=first.id, background=True)
    assert second.id == f"{first.id}~2"
    while second.status != "completed":
        second = client.responses.retrieve(second.id)
    assert kinds(second) == ["mcp_call", "message", "mcp_approval_request"]
    assert client.responses.cancel(second.id).status == "completed"
    assert client.responses.retrieve(f"{first.id}~3").status == "cancelled"
    client.responses.delete(second.id)
    with pytest.raises(NotFoundError):
        client.responses.retrieve(first.id)


def test_answers_to_nothing_are_refused(client: OpenAI) -> None:
    first, other = asked(client), asked(client)
    for wrong, previous, param in (
        (answers(other), first.id, "input[0].approval_request_id"),
        (answers(first, approval_request_id="mcpr_1"), first.id, "input[0].approval_request_id"),
        (answers(first, approval_request_id="mcpr_r~1"), None, "input[0].approval_request_id"),
        (answers(first, approval_request_id="mcpr_abc"), None, "input[0].approval_request_id"),
        (answers(first, approval_request_id="zzz"), None, "input[0].approval_request_id"),
        (answers(first, approval_request_id=""), None, "input[0].approval_request_id"),
        (answers(first), "resp_unknown", "previous_response_id"),
        (answers(first), f"{first.id}~3", "previous_response_id"),
    ):
        with pytest.raises(NotFoundError) as missing:
            asked(client, wrong, previous_response_id=previous)
        assert missing.value.param == param
    # Only a request of another API that comes with its answer is history.
    foreign = {
        "type": "mcp_approval_request",
        "id": "mcpr_abc",
        "name": "pay",
        "arguments": "{}",
        "server_label": "theirs",
    }
    given = [foreign, *answers(first, approval_request_id="mcpr_abc")]
    assert "message" in kinds(asked(client, given))
    word = {"role": "user", "content": "?"}
    both = asked(client, "pay both")
    for given, previous, param in (
        ([*answers(first), word], first.id, "input"),
        ([word, *answers(first)], first.id, "input[0]"),
        ([word, *answers(first)], None, "input[0]"),
        ([*answers(first), word], None, "input"),
        (answers(first, approve="yes"), first.id, "input[0]"),
        (answers(both)[:1], both.id, "input"),
    ):
        with pytest.raises(BadRequestError) as refused:
            asked(client, given, previous_response_id=previous)
        assert refused.value.param == param
    # A request may be answered elsewhere. The other is left.
    ident = answers(both)[0]["approval_request_id"]
    run_id, _, request_id = ident.removeprefix("mcpr_").partition("~")
    answer = {"request_id": request_id, "approved": True}
    url = str(client.base_url).removesuffix("v1/")
    httpx.post(f"{url}runs/{run_id}/input", json=answer).raise_for_status()
    while len(httpx.get(f"{url}runs/{run_id}").json()["requests"]) > 1:
        pass
    done = asked(client, answers(both)[1:], previous_response_id=both.id)
    assert done.output_text == "paid 1, paid 2"


FIND: Any = {
    "type": "function",
    "name": "find",
    "description": "Finds a thing.",
    "parameters": {
        "type": "object",
        "properties": {"what": {"type": "string"}},
        "required": ["what"],
        "additionalProperties": False,
    },
    "strict": True,
}
TAILRACE: Any = {"type": "mcp", "server_label": "tailrace", "server_url": "https://x.example"}


def found(response: Any, output: Any = "on the shelf") -> list[Any]:
    """The outputs of all functions that a response calls."""
    calls = [item.call_id for item in response.output if item.type == "function_call"]
    return [{"type": "function_call_output", "call_id": ident, "output": output} for ident in calls]


@pytest.mark.parametrize("agent", ["buyer", "office"])
@pytest.mark.parametrize("order", ["outputs first", "approvals first"])
@pytest.mark.parametrize("way", ["previous response", "items", "stream"])
def test_approvals_and_outputs_of_functions_are_answered_in_one_request(
    client: OpenAI, agent: str, order: str, way: str
) -> None:
    first = asked(client, "buy", model=agent, tools=[FIND])
    assert {"function_call", "mcp_approval_request"} <= set(kinds(first))
    given = [*found(first), *answers(first)]
    given = given[::-1] if order == "approvals first" else given
    options: Any = {"model": agent, "tools": [FIND]}
    if way == "items":
        made = [item.model_dump(exclude_none=True) for item in first.output]
        second = asked(client, [{"role": "user", "content": "buy"}, *made, *given], **options)
    elif way == "stream":
        options["previous_response_id"] = first.id
        with asked(client, given, stream=True, **options) as stream:
            second = finished(list(stream))
    else:
        second = asked(client, given, previous_response_id=first.id, **options)
    assert second.id == f"{first.id}~2"
    assert kinds(second) == ["mcp_call", "message"]
    paid, output = json.loads(second.output_text)[1:]
    assert "paid" in paid
    assert output == "on the shelf"
    # The same again gets the same.
    again = asked(client, given, previous_response_id=first.id, **options_of(options))
    assert (again.id, again.output) == (second.id, second.output)
    listed = [item.type for item in client.responses.input_items.list(second.id)]
    assert listed == ["function_call_output", "mcp_approval_response"]
    later = asked(client, "And?", model=agent, previous_response_id=second.id)
    assert "on the shelf" in later.output_text


def options_of(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "previous_response_id"}


def test_an_output_may_come_after_the_approvals_in_a_request_of_its_own(client: OpenAI) -> None:
    options: Any = {"model": "buyer", "tools": [FIND]}
    first = asked(client, "buy", **options)
    second = asked(client, answers(first), previous_response_id=first.id, **options)
    assert kinds(second) == ["mcp_call"]
    with pytest.raises(BadRequestError, match=second.id) as refused:
        asked(client, [*answers(first), *found(first)], previous_response_id=first.id, **options)
    assert refused.value.param == "input[1]"
    third = asked(client, found(first), previous_response_id=second.id, **options)
    assert json.loads(third.output_text)[2] == "on the shelf"
    given = [{**found(first)[0], "call_id": "call_9"}, *answers(first)]
    with pytest.raises(BadRequestError, match="no call call_9"):
        asked(client, given, previous_response_id=first.id, **options)


@pytest.mark.parametrize("way", ["previous response", "items", "stream", "websocket"])
def test_an_output_may_come_before_the_approvals(client: OpenAI, way: str) -> None:
    options: Any = {"model": "buyer", "tools": [FIND]}
    first = asked(client, "buy", **options)
    given, before = found(first), {"previous_response_id": first.id}
    if way == "items":
        made = [item.model_dump(exclude_none=True) for item in first.output]
        called = [item for item in made if item["type"] == "function_call"]
        given, before = [{"role": "user", "content": "buy"}, *called, *given], {}
        again = asked(client, given, **options)
    elif way == "stream":
        again, _ = helped(client, options.pop("model"), given, **options, **before)
        options["model"] = "buyer"
    elif way == "websocket":
        with client.responses.connect() as connection:
            connection.response.create(input=given, **options, **before)
            events = []
            for event in connection:
                events.append(event)
                if event.type == "response.completed":
                    break
        again = finished(events)
    else:
        again = asked(client, given, **options, **before)
    # No second run: the same response, without the call that the client would make again.
    assert (again.id, again.status, again.usage.total_tokens) == (first.id, "completed", 0)
    assert [item.id for item in again.output] == [item.id for item in first.output[-1:]]
    repeated = asked(client, given, **options, **before)
    assert (repeated.id, repeated.output) == (again.id, again.output)
    second = asked(client, [*given, *answers(again)], **options, **before)
    assert second.id == f"{first.id}~2"
    assert kinds(second) == ["mcp_call", "message"]
    paid, output = json.loads(second.output_text)[1:]
    assert "paid 1" in paid
    assert output == "on the shelf"


def test_an_output_before_the_approvals_with_a_message_is_a_run_of_its_own(client: OpenAI) -> None:
    options: Any = {"model": "buyer", "tools": [FIND]}
    first = asked(client, "buy", **options)
    word = {"role": "user", "content": "And?"}
    options["previous_response_id"] = first.id
    for given in ([word, *found(first)], [*found(first), word]):
        assert asked(client, given, **options).id.partition("~")[0] != first.id
    with pytest.raises(NotFoundError):
        asked(client, found(first), **{**options, "previous_response_id": "resp_run_9"})


def test_the_ai_sdk_sends_outputs_before_the_approvals(reading: Served) -> None:
    options = {"baseURL": f"{reading.url}/v1", "model": "buyer", "approvals": [True]}
    run = ["openai_ai_sdk.mjs", json.dumps({**options, "input": "buy", "tool": "find"})]
    answer = json.loads(run_node(run, timeout=120))
    assert answer["errors"] == []
    first, second, _ = answer["turns"]
    assert (set(first["approvals"]), first["text"]) == ({"mcp.pay"}, "")
    paid, output = json.loads(second["text"])[1:]
    assert "paid 1" in paid
    assert output == "on the shelf"


def test_an_output_may_have_parts(client: OpenAI) -> None:
    options: Any = {"model": "buyer", "tools": [FIND]}
    first = asked(client, "buy", **options)
    parts = [{"type": "input_text", "text": "here"}, {"type": "input_text", "text": "or there"}]
    given = [*found(first, parts), *answers(first)]
    second = asked(client, given, previous_response_id=first.id, **options)
    assert json.loads(second.output_text)[2] == "here\nor there"
    [item] = client.responses.input_items.list(second.id, limit=1).data
    assert item.model_dump(exclude_none=True)["output"] == parts


def test_an_output_beside_an_approval_survives_its_server(tmp_path: Path) -> None:
    served = Served(tmp_path / "runs.db", "tests.responses_app:app", {"TAILRACE_LEASE": "1s"})
    try:
        client = OpenAI(base_url=f"{served.url}/v1", api_key="test", max_retries=0)
        options: Any = {"model": "buyer", "tools": [FIND], "background": True}
        first = asked(client, "buy", **options)
        while first.status != "completed":
            first = client.responses.retrieve(first.id)
        given = [*answers(first), *found(first)]
        asked(client, given, previous_response_id=first.id, **options)
        served.restart()  # while `pay` runs
        client = OpenAI(base_url=f"{served.url}/v1", api_key="test", max_retries=0)
        second = client.responses.retrieve(f"{first.id}~2")
        while second.status != "completed":
            second = client.responses.retrieve(second.id)
        assert json.loads(second.output_text)[2] == "on the shelf"
    finally:
        served.kill()


@pytest.mark.parametrize(
    ("agent", "streams", "last"),
    [
        ("buyer", True, "on the shelf"),
        ("buyer", False, "on the shelf"),
        ("pair", True, "Both are done."),
        ("pair", False, "Both are done."),
        ("boss", False, "My agent has paid."),
        ("painter", True, "Here."),
        ("painter", False, "Here."),
    ],
)
async def test_the_tool_runner_of_openai_answers_approvals_and_carries_out_functions(
    reading: Served, agent: str, streams: bool, last: str
) -> None:
    async def find(_arguments: Any) -> str:
        return "on the shelf"

    async def approve(_request: Any) -> bool:
        return True

    runner = AsyncResponsesToolRunner(functions=[AsyncRegisteredFunction(tool=FIND, execute=find)])
    async with AsyncOpenAI(base_url=f"{reading.url}/v1", api_key="test", max_retries=0) as client:
        declared = {**TAILRACE, "require_approval": {"always": {"tool_names": ["pay"]}}}
        tools = [declared, {"type": "image_generation"}]
        request: Any = {"model": agent, "input": "buy", "tools": tools}
        result = await runner.run(client, request, stream=streams, approve_mcp=approve, max_steps=4)
    assert last in result.output_text


@pytest.mark.parametrize("linked", [True, False])
async def test_openai_agents_answers_approvals_and_carries_out_functions(
    reading: Served, linked: bool
) -> None:
    @function_tool
    def find(what: str) -> str:
        return f"{what}: on the shelf"

    tool = HostedMCPTool(tool_config=TAILRACE, on_approval_request=lambda _: {"approve": True})
    async with AsyncOpenAI(base_url=f"{reading.url}/v1", api_key="test", max_retries=0) as client:
        one = Agent("A", model=OpenAIResponsesModel("buyer", client), tools=[find, tool])
        quiet = RunConfig(tracing_disabled=True)
        result = await Runner.run(one, "buy", run_config=quiet, auto_previous_response_id=linked)
    assert json.loads(result.final_output)[2] == "tea: on the shelf"


def test_a_second_response_goes_on_at_every_frame_in_another_process(tmp_path: Path) -> None:
    lease = {"TAILRACE_LEASE": "1s"}
    served = Served(tmp_path / "runs.db", "tests.responses_app:app", lease)
    try:
        _check_cuts(served)
    finally:
        served.kill()


def _check_cuts(served: Served) -> None:
    def connected() -> OpenAI:
        return OpenAI(base_url=f"{served.url}/v1", api_key="test", max_retries=0)

    first = asked(connected())
    served.restart()  # while it waits
    begun: list[Any] = []
    given: Any = {"previous_response_id": first.id, "stream": True}
    with asked(connected(), answers(first), **given) as stream:
        for event in stream:
            begun.append(event)
            if event.type == "response.mcp_call.in_progress":
                break
    served.restart()  # while the tool runs
    client = connected()
    ident = f"{first.id}~2"
    after = begun[-1].sequence_number
    with client.responses.retrieve(ident, stream=True, starting_after=after) as rest:
        whole = [*begun, *rest]
    final = finished(whole)
    assert kinds(final) == ["mcp_call", "message", "mcp_approval_request"]
    assert final.output[0].output == "paid 5"
    assert client.responses.retrieve(ident).output == final.output
    for place, event in enumerate(whole):
        number = event.sequence_number
        with client.responses.retrieve(ident, stream=True, starting_after=number) as rest:
            assert list(rest) == whole[place + 1 :]
    with pytest.raises(NotFoundError):
        client.responses.retrieve(first.id, stream=True, starting_after=after)
    for identity in (first.id, ident):
        body = httpx.get(f"{served.url}/v1/responses/{identity}?stream=true").text
        assert body.endswith("data: [DONE]\n\n")


def test_the_websocket_takes_answers(client: OpenAI) -> None:
    with client.responses.connect() as connection:

        def turn(given: Any, **options: Any) -> Any:
            connection.response.create(model="payer", input=given, store=False, **options)
            for event in connection:
                if event.type == "response.completed":
                    return event.response
            raise AssertionError

        first = turn("pay")
        second = turn(answers(first), previous_response_id=first.id)
        third = turn(answers(second), previous_response_id=second.id)
        assert third.output_text == "paid 5, paid 6"
        later = turn("And?", previous_response_id=third.id)
        assert "paid 5, paid 6" in later.output_text


@pytest.mark.parametrize(
    ("agent", "last"), [("pair", "Both are done."), ("boss", "My agent has paid.")]
)
@pytest.mark.parametrize("streams", [True, False])
async def test_openai_agents_goes_on_after_other_calls_were_in_progress(
    reading: Served, agent: str, last: str, streams: bool
) -> None:
    declared: Any = {"type": "mcp", "server_label": "tailrace", "server_url": "https://x.example"}
    tool = HostedMCPTool(tool_config=declared, on_approval_request=lambda _: {"approve": True})
    async with AsyncOpenAI(base_url=f"{reading.url}/v1", api_key="test") as client:
        one = Agent("A", model=OpenAIResponsesModel(agent, client), tools=[tool])
        quiet = RunConfig(tracing_disabled=True)
        if streams:
            result: Any = Runner.run_streamed(one, "pay", run_config=quiet)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(one, "pay", run_config=quiet)
        assert result.final_output == last
        again = [*result.to_input_list(), {"role": "user", "content": "And?"}]
        later = await Runner.run(one, again, run_config=quiet)
    assert later.final_output == last


async def test_openai_agents_asks_its_hook_and_goes_on(reading: Served) -> None:
    asked_for: list[str] = []

    def approve(request: Any) -> Any:
        asked_for.append(request.data.name)
        return {"approve": len(asked_for) == 1, "reason": "Too much."}

    declared: Any = {"type": "mcp", "server_label": "tailrace", "server_url": "https://x.example"}
    tool = HostedMCPTool(tool_config=declared, on_approval_request=approve)
    quiet = RunConfig(tracing_disabled=True)
    async with AsyncOpenAI(base_url=f"{reading.url}/v1", api_key="test") as client:
        model = OpenAIResponsesModel("payer", client)
        result = Runner.run_streamed(Agent("A", model=model, tools=[tool]), "pay", run_config=quiet)
        async for _ in result.stream_events():
            pass
    assert asked_for == ["pay", "pay"]
    assert result.final_output == "paid 5, Error: A person denied the call: Too much."


@pytest.mark.parametrize(
    ("agent", "before", "after"),
    [("pair", ["Rome is foggy."], ["paid 1"]), ("boss", [], ["It is paid."])],
)
def test_the_ai_sdk_goes_on_after_other_calls_were_in_progress(
    reading: Served, agent: str, before: list[str], after: list[str]
) -> None:
    options = {"baseURL": f"{reading.url}/v1", "model": agent, "approvals": [True]}
    answer = json.loads(run_node(["openai_ai_sdk.mjs", json.dumps(options)], timeout=120))
    assert answer["errors"] == []
    first, second, _ = answer["turns"]
    assert (first["approvals"], first["results"]) == (["mcp.pay"], before)
    assert second["results"] == after


def test_the_ai_sdk_shows_approvals_and_answers_them(reading: Served) -> None:
    options = {"baseURL": f"{reading.url}/v1", "model": "payer", "approvals": [True, False]}
    answer = json.loads(run_node(["openai_ai_sdk.mjs", json.dumps(options)], timeout=120))
    assert answer["errors"] == []
    assert [one["approvals"] for one in answer["turns"]] == [["mcp.pay"], ["mcp.pay"], [], []]
    assert answer["turns"][1]["results"] == ["paid 5"]
    assert answer["turns"][2]["text"].startswith("paid 5, ")
    assert "And?" in answer["turns"][3]["text"]


def test_the_ai_sdk_answers_two_approvals_of_one_turn(reading: Served) -> None:
    options = {"baseURL": f"{reading.url}/v1", "model": "payer", "approvals": [True]}
    run = ["openai_ai_sdk.mjs", json.dumps({**options, "input": "pay both"})]
    answer = json.loads(run_node(run, timeout=120))
    assert answer["errors"] == []
    first, second, _ = answer["turns"]
    assert first["approvals"] == ["mcp.pay", "mcp.pay"]
    assert sorted(second["results"]) == ["paid 1", "paid 2"]  # the tools run at the same time
    assert second["text"] == "paid 1, paid 2"


def test_items_of_the_response_that_asks_may_stand_between_the_answers(client: OpenAI) -> None:
    first = asked(client, "pay both")
    given: list[Any] = [{"role": "user", "content": "pay both"}]
    for answer in answers(first):
        named = {"type": "item_reference", "id": answer["approval_request_id"]}
        given += [named, answer]
    second = asked(client, given)
    assert second.output_text == "paid 1, paid 2"
    assert asked(client, given).id == second.id
    # Of a run that asks twice, the first answer is history of the second.
    first = asked(client)
    one, *_ = answers(first)
    items = [{"role": "user", "content": "pay"}, *named_items(first), one]
    second = asked(client, items)
    items += [*named_items(second), *answers(second)]
    third = asked(client, items)
    assert third.output_text == "paid 5, paid 6"
    later = asked(client, [*items, *named_items(third), {"role": "user", "content": "And?"}])
    assert "And?" in later.output_text


def named_items(response: Any) -> list[Any]:
    return [{"type": "item_reference", "id": item.id} for item in response.output]
