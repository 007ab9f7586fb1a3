"""The Responses API as the `openai` package uses it: state, references, WebSocket, compaction."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import httpx
import pytest
from anthropic import Anthropic, APIStatusError
from openai import APIError, BadRequestError, InternalServerError, NotFoundError, OpenAI
from openai.lib.responses_tool_runner import (
    RegisteredFunction,
    ResponsesToolRunner,
    ToolRunnerError,
)
from openai.types.beta import BetaResponseInputItemParam
from openai.types.responses import ResponseInputItemParam

from tailrace.server.request_fields import ITEM_TYPES
from tests.serving import Served

PICK: Any = {"type": "function", "name": "pick", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture
def client(reading: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{reading.url}/v1", api_key="test", max_retries=0) as client:
        yield client


def asked(client: OpenAI, given: Any = "?", **options: Any) -> Any:
    return client.responses.create(**{"model": "reader", "input": given, **options})


def read(response: Any) -> list[Any]:
    """What the model read."""
    found: list[Any] = json.loads(response.output_text)["read"]
    return found


# --- items ---------------------------------------------------------------------------------------


def test_the_types_of_input_items_are_those_of_openais_sdk() -> None:
    params = (*get_args(ResponseInputItemParam), *get_args(BetaResponseInputItemParam))
    found = {
        word
        for param in params
        for word in re.findall(r"'([a-z_]+)'", str(get_type_hints(param)["type"]))
    }
    assert found == ITEM_TYPES


@pytest.mark.parametrize("kind", sorted(ITEM_TYPES - {"compaction", "item_reference", "message"}))
def test_an_item_of_every_type_is_taken(client: OpenAI, kind: str) -> None:
    call: Any = {"type": "function_call", "call_id": "c1", "name": "pick", "arguments": "{}"}
    named: dict[str, Any] = {
        "id": "x_1",
        "call_id": "c1",
        "name": "pick",
        "arguments": "{}",
        "output": "",
        "input": "",
    }
    before = [call] if kind.endswith("_output") else []
    if kind == "mcp_approval_response":
        named |= {"approval_request_id": "mcpr_theirs", "approve": True}
    given = [*before, {**named, "type": kind}, {"role": "user", "content": "?"}]
    assert asked(client, given).status == "completed"


def test_an_item_of_an_unknown_type_is_refused_by_its_place_and_type(client: OpenAI) -> None:
    question = {"role": "user", "content": "?"}
    with pytest.raises(BadRequestError) as refused:
        asked(client, [question, {"type": "weather_card"}])
    assert refused.value.param == "input[1].type"
    assert "`input[1].type` is 'weather_card'; send an item of OpenAI's" in refused.value.message
    with pytest.raises(BadRequestError, match="did you mean function_call"):
        asked(client, [{"type": "functioncall"}, question])


# --- state ---------------------------------------------------------------------------------------


def test_a_conversation_goes_on_by_id_by_items_and_by_references(client: OpenAI) -> None:
    first = asked(client, "One?", metadata={"order": "17"}, truncation="auto", user="ann")
    assert (first.metadata, first.truncation, first.user) == ({"order": "17"}, "auto", "ann")
    second = asked(client, "Two?", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert read(second) == ["One?", first.output_text, "Two?"]
    question: Any = {"role": "user", "content": "Two?"}
    items = [item.to_dict() for item in first.output]
    names = [{"type": "item_reference", "id": item.id} for item in first.output]
    for output in (items, names):
        given = [{"role": "user", "content": "One?"}, *output, question]
        assert read(asked(client, given)) == ["One?", first.output_text, "Two?"]


def test_the_model_reads_the_words_of_a_failed_call_that_comes_back(client: OpenAI) -> None:
    request = client.responses.create(model="careful", input="Pay.").output[-1]
    no: Any = {"type": "mcp_approval_response", "approve": False, "reason": "Too much."}
    no["approval_request_id"] = request.id
    denied: Any = client.responses.create(model="careful", input=[no])
    assert denied.output[0].error.message == "A person denied the call: Too much."
    items = [item.to_dict() for item in denied.output]
    names = [{"type": "item_reference", "id": item.id} for item in denied.output]
    for output in (items, names):
        given = [{"role": "user", "content": "Pay."}, *output, {"role": "user", "content": "Why?"}]
        words = read(asked(client, given))
        failed = "Error: A person denied the call: Too much."
        assert words == ["Pay.", None, failed, "It is paid.", "Why?"]


@pytest.mark.parametrize("stream", [False, True])
def test_the_runner_of_tools_takes_calls_of_the_server_that_the_request_declares(
    client: OpenAI, stream: bool
) -> None:
    run = ResponsesToolRunner(functions=[RegisteredFunction(PICK, lambda _: "Rome")]).run
    picked = run(client, {"model": "reader", "input": "Where?"}, stream=stream)
    assert read(picked) == ["Where?", None, "Rome"]
    with pytest.raises(ToolRunnerError, match="declaration"):
        run(client, {"model": "tooled", "input": "?"}, stream=stream)
    ours: Any = {"type": "mcp", "server_label": "tailrace", "server_url": "http://localhost:9"}
    asked_for: list[str] = []

    def approve(request: Any) -> bool:
        asked_for.append(request.name)
        return True

    paid = run(
        client,
        {"model": "careful", "input": "Pay.", "tools": [ours]},
        stream=stream,
        approve_mcp=approve,
    )
    assert (asked_for, paid.output_text) == (["pay"], "It is paid.")
    known: Any = {"model": "tooled", "input": "?", "tools": [{**ours, "require_approval": "never"}]}
    looked: Any = run(client, known, stream=stream)
    assert [item.type for item in looked.output][:2] == ["reasoning", "mcp_call"]


def test_a_stream_that_showed_a_refused_answer_names_the_guardrail(
    reading: Served, client: OpenAI
) -> None:
    refused = ("output_guardrail", "A guardrail refused the answer.")
    given: Any = {"model": "withheld", "messages": [{"role": "user", "content": "?"}]}
    with client.responses.create(model="withheld", input="?", stream=True) as events:
        last: Any = list(events)[-1]
    assert (last.response.error.type, last.response.error.message) == refused
    with pytest.raises(APIError) as failed:
        list(client.chat.completions.create(**given, stream=True))
    assert (failed.value.type, failed.value.message) == refused
    with (
        Anthropic(base_url=reading.url, api_key="test") as other,
        pytest.raises(APIStatusError, match=refused[1]),
        other.messages.stream(**given, max_tokens=9) as stream,
    ):
        stream.until_done()
    body: Any = {"threadId": "withheld", "runId": "w1", "state": {}, "tools": [], "context": []}
    body["messages"] = [{"id": "u1", **given["messages"][0]}]
    shown = httpx.post(f"{reading.url}/ag-ui/withheld", json=body).text
    end = {"type": "RUN_ERROR", "message": refused[1], "code": refused[0]}
    assert json.loads(shown.strip().splitlines()[-1].removeprefix("data: ")) == end


def test_a_response_that_is_not_stored_cannot_be_continued(client: OpenAI) -> None:
    first = asked(client, store=False)
    assert first.store is False
    for ident in (first.id, "resp_unknown"):
        with pytest.raises(NotFoundError) as refused:
            asked(client, previous_response_id=ident)
        assert refused.value.code == "previous_response_not_found"
        assert refused.value.param == "previous_response_id"
    question = {"role": "user", "content": "Two?"}
    named: Any = [{"type": "item_reference", "id": first.output[-1].id}, question]
    with pytest.raises(NotFoundError, match="is not stored here"):
        asked(client, named)


def test_reasoning_comes_with_an_opaque_reference_that_can_be_sent_back(client: OpenAI) -> None:
    assert asked(client).output[0].encrypted_content is None
    first = asked(client, "One?", store=False, include=["reasoning.encrypted_content"])
    assert first.output[0].type == "reasoning"
    assert first.output[0].encrypted_content
    given = [*(item.to_dict() for item in first.output), {"role": "user", "content": "Two?"}]
    assert read(asked(client, given, store=False)) == [first.output_text, "Two?"]
    with pytest.raises(BadRequestError, match="include"):
        asked(client, include=[5])


def test_a_background_response_is_followed_from_any_event(client: OpenAI) -> None:
    begun: Any = {"model": "reader", "input": "?", "background": True, "stream": True}
    with client.responses.create(**begun) as stream:
        whole = list(stream)
    ident = whole[0].response.id
    assert {event.response.background for event in whole if hasattr(event, "response")} == {True}
    place = len(whole) // 2
    after = whole[place].sequence_number
    with client.responses.retrieve(ident, stream=True, starting_after=after) as rest:
        assert list(rest) == whole[place + 1 :]
    endless = client.responses.create(model="endless", input="?", background=True)
    assert endless.status in ("queued", "in_progress")
    assert client.responses.cancel(endless.id).status == "cancelled"


def test_a_function_of_the_client_is_answered_by_id_and_by_items(client: OpenAI) -> None:
    first = asked(client, "One?", tools=[PICK])
    call = first.output[-1]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "picked"}
    second = asked(client, [output], previous_response_id=first.id)
    assert (read(second)[0], read(second)[-1]) == ("One?", "picked")
    items = [item.to_dict() for item in first.output]
    third = asked(client, [{"role": "user", "content": "One?"}, *items, output])
    assert read(third) == read(second)
    later = asked(client, "Two?", previous_response_id=second.id)
    assert "picked" in read(asked(client, [output], previous_response_id=later.id))
    for options in ({}, {"previous_response_id": asked(client).id}):
        with pytest.raises(BadRequestError, match="no call") as refused:
            asked(client, [output], **options)
        assert refused.value.param == "input[0].call_id"


# --- compaction ----------------------------------------------------------------------------------


def test_a_compacted_conversation_goes_on(client: OpenAI) -> None:
    first = asked(client, "The code word is slate.")
    compacted = client.responses.compact(model="reader", previous_response_id=first.id)
    assert compacted.object == "response.compaction"
    output: list[Any] = [item.to_dict() for item in compacted.output]
    assert "slate" not in str(output)
    found = str(read(asked(client, [*output, {"role": "user", "content": "Which?"}])))
    assert found.index("The code word is slate.") < found.index("Which?")
    again = client.responses.compact(model="reader", input=[*output], instructions="Be short.")
    output = [item.to_dict() for item in again.output]
    assert "The code word is slate." in str(read(asked(client, output)))


def test_a_script_that_begins_with_a_call_can_be_asked_for_a_summary(client: OpenAI) -> None:
    compacted = client.responses.compact(model="pair", input="Pay one euro.")
    output: list[Any] = [item.to_dict() for item in compacted.output]
    assert "Both are done." in str(read(asked(client, output)))


def test_a_compaction_that_is_not_stored_here_is_unknown(client: OpenAI) -> None:
    compacted = client.responses.compact(model="reader", input="Hello.")
    client.responses.delete(compacted.id)
    theirs: Any = {"type": "compaction", "encrypted_content": "gAAAAABpM0Yj-...="}
    for item in (compacted.output[0].to_dict(), theirs):
        with pytest.raises(NotFoundError, match="compact again"):
            asked(client, [item])


def test_what_cannot_be_compacted_is_refused(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="'hello' is a function"):
        client.responses.compact(model="hello", input="?")
    with pytest.raises(BadRequestError, match="`input`"):
        client.responses.compact(model="reader")
    with pytest.raises(NotFoundError, match="Unknown agent"):
        client.responses.compact(model="gpt-9", input="?")
    with pytest.raises(InternalServerError, match="so there is no summary"):
        client.responses.compact(model="calling", input="?")
    with pytest.raises(InternalServerError, match=r"No\.") as failed:
        client.responses.compact(model="failing", input="?")
    assert failed.value.response.headers["x-should-retry"] == "false"


# --- a WebSocket ---------------------------------------------------------------------------------


def test_a_connection_answers_one_request_after_the_other(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        first = turn(connection, input="One?", store=False)
        second = turn(connection, input="Two?", previous_response_id=first.id)
        assert read(second) == ["One?", first.output_text, "Two?"]
        assert second.previous_response_id == first.id
        third = turn(connection, input="Three?", previous_response_id=second.id)
        assert read(third)[-1] == "Three?"
    stored = client.responses.retrieve(third.id)
    assert stored.to_dict() == third.to_dict()


def test_an_error_is_an_event_of_the_connection(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        connection.response.create(model="reader", input="?", previous_response_id="resp_unknown")
        event: Any = connection.recv()
        assert (event.type, event.error.code) == ("error", "previous_response_not_found")
        assert turn(connection, input="?").status == "completed"


def turn(connection: Any, **options: Any) -> Any:
    """The response of one turn, the same in its last event."""
    connection.response.create(**{"model": "reader", **options})
    for event in connection:
        if event.type in ("response.completed", "response.failed"):
            return event.response
    raise AssertionError("the connection ended")
