"""The 17 cases of the Open Responses compliance suite (spec 2026-04-24), written from the spec."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.compacted_response import CompactedResponse
from pydantic import TypeAdapter
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.serving import Served

Json = dict[str, Any]

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABh6FO1AAAAABJRU5ErkJggg=="  # noqa: E501
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}},
}

NUMBER, TEXT = (int, float), (str,)
REQUIRED: dict[str, tuple[type, ...]] = {
    "id": TEXT,
    "object": TEXT,
    "created_at": (int,),
    "completed_at": (int, type(None)),
    "status": TEXT,
    "incomplete_details": (dict, type(None)),
    "model": TEXT,
    "previous_response_id": (str, type(None)),
    "instructions": (str, type(None)),
    "output": (list,),
    "error": (dict, type(None)),
    "tools": (list,),
    "tool_choice": (str, dict),
    "truncation": TEXT,
    "parallel_tool_calls": (bool,),
    "text": (dict,),
    "top_p": NUMBER,
    "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER,
    "top_logprobs": (int,),
    "temperature": NUMBER,
    "reasoning": (dict, type(None)),
    "usage": (dict, type(None)),
    "max_output_tokens": (int, type(None)),
    "max_tool_calls": (int, type(None)),
    "store": (bool,),
    "background": (bool,),
    "service_tier": TEXT,
    "metadata": (dict,),
    "safety_identifier": (str, type(None)),
    "prompt_cache_key": (str, type(None)),
}
"""The fields that the specification requires of every response object."""


@pytest.fixture
def served(reading: Served) -> Served:
    return reading


def checked(response: Json) -> Json:
    for name, kinds in REQUIRED.items():
        assert isinstance(response[name], kinds), (name, response[name])
    assert {"type"} <= response["text"]["format"].keys()
    for tool in response["tools"]:
        assert {"type", "name", "description", "parameters", "strict"} <= tool.keys()
    Response.model_validate(response)
    return response


def post(served: Served, body: Json, path: str = "", status: int = 200) -> Json:
    answer = httpx.post(f"{served.url}/v1/responses{path}", json=body, timeout=30)
    assert answer.status_code == status, answer.text
    found: Json = answer.json()
    return found


def asked(served: Served, given: Any, **body: Any) -> Json:
    found = checked(post(served, {"model": "reader", "input": given, **body}))
    assert found["status"] == "completed"
    assert found["output"]
    return found


def request_of(response: Json) -> Json:
    """What the model was asked, as it says."""
    texts = [item["content"][0]["text"] for item in response["output"] if "content" in item]
    found: Json = json.loads(texts[-1])
    return found


def message(role: str, content: Any, **more: str) -> Json:
    return {"type": "message", "role": role, "content": content, **more}


class Socket:
    """A WebSocket at `/v1/responses`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def send(self, given: Any, **body: Any) -> None:
        request = {"type": "response.create", "model": "reader", "input": given, **body}
        self.connection.send(json.dumps(request))

    def events(self) -> list[Json]:
        """The events of one turn, up to its last."""
        found: list[Json] = []
        ends = ("response.completed", "response.failed", "response.incomplete", "error")
        while not found or found[-1]["type"] not in ends:
            found.append(json.loads(self.connection.recv(timeout=30)))
        return found

    def ask(self, given: Any, **body: Any) -> Json:
        """A turn that completes: its response, after its events were checked."""
        self.send(given, **body)
        found = self.events()
        for event in found:
            EVENT.validate_python(event)
        numbers = [event["sequence_number"] for event in found]
        assert numbers == sorted(set(numbers))
        assert found[0]["type"] == "response.created"
        response = checked(found[-1]["response"])
        assert response["status"] == "completed"
        return response

    def refused(self, given: Any, **body: Any) -> Json:
        """A turn that fails before it begins: its error."""
        self.send(given, **body)
        (event,) = self.events()
        assert event["type"] == "error"
        assert isinstance(event["status"], int)
        error: Json = event["error"]
        assert error.keys() == {"type", "code", "message", "param"}
        return error


@pytest.fixture
def socket(served: Served) -> Iterator[Socket]:
    with opened(served) as connection:
        yield Socket(connection)


def opened(served: Served, **options: Any) -> Connection:
    url = served.url.replace("http", "ws", 1)
    return connect(f"{url}/v1/responses", **options)


# --- over HTTP -----------------------------------------------------------------------------------


def test_basic_response(served: Served) -> None:
    found = asked(served, [message("user", "Say hello in exactly 3 words.")])
    assert request_of(found)["read"] == ["Say hello in exactly 3 words."]


def test_assistant_phase(served: Served) -> None:
    given = [
        message("assistant", "I should answer with the saved number.", phase="commentary"),
        message("assistant", "The number is four.", phase="final_answer"),
        message("user", "Repeat only the number."),
    ]
    assert "The number is four." in str(request_of(asked(served, given))["read"])


def test_response_output_phase_schema(served: Served) -> None:
    found = asked(served, [message("user", "Count.")], model="phased")
    phases = [(item["phase"], item["content"][0]["text"]) for item in found["output"]]
    assert phases == [("commentary", "I count."), ("final_answer", "Four.")]


def streamed(served: Served, given: Any, **body: Any) -> list[Json]:
    """The events of a stream, each checked."""
    request = {"model": "reader", "input": given, "stream": True, **body}
    answer = httpx.post(f"{served.url}/v1/responses", json=request, timeout=30)
    *frames, done, last = answer.text.split("\n\n")
    assert (done, last) == ("data: [DONE]", "")
    events = [json.loads(frame.partition("data: ")[2]) for frame in frames]
    for event in events:
        EVENT.validate_python(event)
    assert checked(events[-1]["response"])["status"] == "completed"
    return events


def test_streaming_response(served: Served) -> None:
    types = [event["type"] for event in streamed(served, [message("user", "Count.")])]
    assert "response.output_text.delta" in types


def test_tool_calling_streaming(served: Served) -> None:
    """In a version of the suite after the specification."""
    events = streamed(served, [message("user", "What's the weather like?")], tools=[WEATHER])
    types = [event["type"] for event in events if event.get("output_index") == 1]
    assert types[0] == "response.output_item.added"
    assert "response.function_call_arguments.delta" in types
    assert types[-2:] == ["response.function_call_arguments.done", "response.output_item.done"]


def test_system_prompt(served: Served) -> None:
    given = [message("system", "You are a pirate."), message("user", "Say hello.")]
    assert request_of(asked(served, given))["read"] == ["You are a pirate.", "Say hello."]


def test_tool_calling(served: Served) -> None:
    found = asked(served, [message("user", "What's the weather like?")], tools=[WEATHER])
    assert [item["type"] for item in found["output"]] == ["reasoning", "function_call"]


def test_image_input(served: Served) -> None:
    parts = [
        {"type": "input_text", "text": "What do you see?"},
        {"type": "input_image", "image_url": PIXEL},
    ]
    read = request_of(asked(served, [message("user", parts)]))["read"]
    assert [part["type"] for part in read[0]] == ["text", "image_url"]


def test_multi_turn(served: Served) -> None:
    given = [
        message("user", "My name is Alice."),
        message("assistant", "Hello Alice!"),
        message("user", "What is my name?"),
    ]
    assert request_of(asked(served, given))["read"] == [one["content"] for one in given]


def test_compact_response(served: Served) -> None:
    given = [message("user", "We launch on Tuesday."), message("assistant", "Understood.")]
    body = {"model": "reader", "prompt_cache_key": "key", "input": given}
    found = post(served, body, "/compact")
    CompactedResponse.model_validate(found)
    assert found["object"] == "response.compaction"
    assert [item["type"] for item in found["output"]] == ["compaction"]
    assert found["usage"]["total_tokens"] > 0
    following = asked(served, [*found["output"], message("user", "When?")])
    read = str(request_of(following)["read"])
    assert read.index("We launch on Tuesday.") < read.index("When?")


def test_compact_missing_model(served: Served) -> None:
    found = post(served, {"input": [message("user", "Compact this.")]}, "/compact", 400)
    assert found["error"]["param"] == "model"


# --- over a WebSocket ----------------------------------------------------------------------------


def test_websocket_response(socket: Socket) -> None:
    found = socket.ask([message("user", "Count from 1 to 3.")])
    assert request_of(found)["read"] == ["Count from 1 to 3."]


def test_websocket_sequential_responses(socket: Socket) -> None:
    for text in ("first", "second"):  # the second waits for the end of the first
        socket.send(text, store=False)
    for text in ("first", "second"):
        found = socket.events()
        assert request_of(found[-1]["response"])["read"] == [text]


def test_websocket_continuation(socket: Socket) -> None:
    first = socket.ask("The code word is cobalt.", store=False)
    second = socket.ask("Which?", store=False, previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    third = socket.ask("Sure?", store=False, previous_response_id=second["id"])
    read = request_of(third)["read"]
    assert (read[0], read[2], read[4]) == ("The code word is cobalt.", "Which?", "Sure?")
    assert len(read) == 5


def test_websocket_reconnect_store_false_recovery(served: Served, socket: Socket) -> None:
    first = socket.ask("The code word is copper.", store=False)
    with opened(served) as connection:
        other = Socket(connection)
        error = other.refused("Go on.", store=False, previous_response_id=first["id"])
        assert error["code"] == "previous_response_not_found"
        assert other.ask([message("user", "Start again.")], store=False)["output"]


def test_websocket_previous_response_not_found(socket: Socket) -> None:
    error = socket.refused("Go on.", store=False, previous_response_id="resp_missing")
    assert (error["code"], error["param"]) == (
        "previous_response_not_found",
        "previous_response_id",
    )


def test_websocket_failed_continuation_evicts_cache(socket: Socket) -> None:
    first = socket.ask("The code word is ember.", store=False)
    named = {"store": False, "previous_response_id": first["id"]}
    output = {"type": "function_call_output", "call_id": "call_missing", "output": "?"}
    error = socket.refused([output], **named)
    assert (error["code"], error["param"]) == ("invalid_request", "input[0].call_id")
    assert socket.refused("Go on.", **named)["code"] == "previous_response_not_found"


def test_websocket_compact_new_chain(served: Served, socket: Socket) -> None:
    given = [
        message("user", [{"type": "input_text", "text": "The code word is slate."}]),
        message("assistant", [{"type": "output_text", "text": "OK."}]),
    ]
    compacted = post(served, {"model": "reader", "input": given}, "/compact")
    window = [*compacted["output"], message("user", "Continue from here.")]
    found = socket.ask(window, store=False, tools=[])
    assert "The code word is slate." in str(request_of(found)["read"])
