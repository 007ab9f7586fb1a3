"""Approvals over `/v1/responses`, as the SDKs ask for them and answer them, on the real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from agents import Agent, HostedMCPTool, OpenAIResponsesModel, RunConfig, Runner
from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI

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
    """The stored responses, and their replays, are what the helper made of their streams."""
    for response in responses:
        with client.responses.stream(response_id=response.id) as stream:
            assert stream.get_final_response() == response
        stored = client.responses.retrieve(response.id).model_dump()
        made = response.model_dump()
        for content in (part for item in made["output"] for part in item.get("content") or ()):
            content.pop("parsed")
        assert stored == made


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
    assert kinds(first)[-1] == "mcp_approval_request"
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


def test_the_stream_helper_from_npm_goes_from_response_to_response(reading: Served) -> None:
    given = {"baseURL": f"{reading.url}/v1", "models": ["payer", "pair", "boss"]}
    for found in json.loads(run_node(["responses_approvals.mjs"], stdin=json.dumps(given))):
        assert len(found) > 1
        for response in found:
            assert response["output"] == response["replayed"]
            made = [(item["id"], item.get("status")) for item in response["output"]]
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
    ("agent", "results"), [("pair", ["Rome is foggy.", "paid 1"]), ("boss", ["It is paid."])]
)
def test_the_ai_sdk_goes_on_after_other_calls_were_in_progress(
    reading: Served, agent: str, results: list[str]
) -> None:
    options = {"baseURL": f"{reading.url}/v1", "model": agent, "approvals": [True]}
    answer = json.loads(run_node(["openai_ai_sdk.mjs", json.dumps(options)], timeout=120))
    assert answer["errors"] == []
    first, second, _ = answer["turns"]
    assert (first["approvals"], first["results"]) == (["mcp.pay"], [])
    assert second["results"] == results


def test_the_ai_sdk_shows_approvals_and_answers_them(reading: Served) -> None:
    options = {"baseURL": f"{reading.url}/v1", "model": "payer", "approvals": [True, False]}
    answer = json.loads(run_node(["openai_ai_sdk.mjs", json.dumps(options)], timeout=120))
    assert answer["errors"] == []
    assert [one["approvals"] for one in answer["turns"]] == [["mcp.pay"], ["mcp.pay"], [], []]
    assert answer["turns"][1]["results"] == ["paid 5"]
    assert answer["turns"][2]["text"].startswith("paid 5, ")
    assert "And?" in answer["turns"][3]["text"]
