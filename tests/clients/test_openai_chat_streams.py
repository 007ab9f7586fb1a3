"""Runs as chat completions, read by the openai package from PyPI, and by pydantic-ai on top of it.

A transport stands in for the endpoint: it answers with the format's bytes, or with what the real
server sends for a run.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest
from openai import APIError, AsyncOpenAI, LengthFinishReasonError, OpenAI
from pydantic_ai import Agent
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import TextPart, ThinkingPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, InputRequest, ToolCall
from tailrace.testing.wire_kit import as_recorded
from tailrace.wire.openai_chat import FORMAT
from tests.node import run_node
from tests.serving import Served
from tests.traces import LOGS, Trace
from tests.wire import openai_scripts as scripts
from tests.wire.chat_checker import ChatReader
from tests.wire.chat_runs import frames_of, joined, state_of
from tests.wire.frames import chunks_of
from tests.wire.openai_scripts import ANSWER, Script

MESSAGES: Any = [{"role": "user", "content": "Is it sunny?"}]


def tool(name: str) -> Any:
    """A tool whose arguments the helper parses, and fails on those that are no JSON."""
    schema = {"type": "object", "properties": {}, "additionalProperties": True}
    return {
        "type": "function",
        "function": {"name": name, "strict": True, "parameters": schema},
    }


def answered(frames: list[bytes]) -> httpx.MockTransport:
    """An endpoint that sends these frames, with a heartbeat before each."""
    body = b"".join(FORMAT.heartbeat + frame for frame in frames)
    headers = {"content-type": "text/event-stream"}
    return httpx.MockTransport(lambda _: httpx.Response(200, content=body, headers=headers))


def client_of(transport: httpx.BaseTransport) -> OpenAI:
    http: Any = httpx.Client(transport=transport)  # its types may name a fork of this package
    return OpenAI(base_url="http://test/v1", api_key="test", max_retries=0, http_client=http)


def read_by_helper(frames: list[bytes], *tools: str) -> Any:
    """The completion that `stream` ends up with."""
    extra: Any = {"tools": [tool(name) for name in tools]} if tools else {}
    with (
        client_of(answered(frames)) as client,
        client.chat.completions.stream(model="m", messages=MESSAGES, **extra) as stream,
    ):
        for _ in stream:
            pass
        try:
            return stream.get_final_completion()
        except LengthFinishReasonError as error:  # so the helper says that an answer was cut
            return error.completion


def check_completion(final: Any, reader: ChatReader) -> None:
    [choice] = final.choices
    message = json.loads(choice.message.model_dump_json(warnings=False))
    assert choice.finish_reason == reader.finish_reason
    assert message["content"] == reader.texts["content"]
    assert (message["refusal"] or "") == reader.texts["refusal"]
    assert message.get("reasoning_content", "") == reader.texts["reasoning_content"]
    calls = [
        (one["id"], one["function"]["name"], one["function"]["arguments"])
        for one in message["tool_calls"] or ()
    ]
    assert calls == [(one["id"], one["name"], one["arguments"]) for one in reader.calls]
    cited = [one["url_citation"] for one in message["annotations"] or ()]
    assert cited == reader.annotations
    assert [one["image_url"]["url"] for one in message.get("images", ())] == reader.images
    usage = final.usage.to_dict() if final.usage is not None else None
    assert usage == reader.usage


@pytest.mark.parametrize("trace", LOGS, ids=lambda trace: trace.name)
def test_the_stream_helper_ends_with_the_whole_message(trace: Trace) -> None:
    events = [event for event, _ in trace.events]
    frames = frames_of(events)
    reader = ChatReader().read(frames)
    if reader.error is not None:
        with pytest.raises(APIError) as raised:
            read_by_helper(frames)
        assert raised.value.message == reader.error["message"]
        assert raised.value.code == reader.error["code"]
    elif reader.is_done:
        check_completion(read_by_helper(frames), reader)


@pytest.mark.parametrize("trace", LOGS, ids=lambda trace: trace.name)
def test_a_client_that_asks_after_the_end_gets_the_same_from_a_replay(trace: Trace) -> None:
    events = [event for event, _ in trace.events]
    reader = joined(events, len(events))
    _, frames = FORMAT.open(state_of(events))
    if reader.error is None and reader.is_done:
        check_completion(read_by_helper(frames), reader)


def test_the_error_says_whether_the_run_goes_on() -> None:
    """In `type`, which the SDK keeps; it would take `length` for the limit of a model."""
    begun = Script().begin()
    asked = Script().begin()
    asked.add(ev.TaskInputRequired, requests=[InputRequest(id="in_1", kind="input")])
    lost = Script().begin()
    lost.add(ev.TaskFailed, error=ErrorInfo(code="interrupted", message="The worker was lost."))
    for script, kind in ((begun, "stream_cut"), (asked, "input_required"), (lost, "interrupted")):
        encoder = FORMAT.at(State())
        frames = [frame for one in as_recorded(script.events) for frame in encoder.encode(one)]
        with pytest.raises(APIError) as raised:
            read_by_helper([*frames, *encoder.close("The server is stopping; connect again.")])
        assert (raised.value.type, raised.value.code) == (kind, "424")


def test_chunks_can_be_read_one_by_one() -> None:
    frames = frames_of(scripts.everything().events)
    with client_of(answered(frames)) as client:
        stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == ANSWER
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 1515


def interleaved() -> Script:
    """Two calls whose arguments arrive at the same time."""
    items = [
        ToolCall(id=f"fc_{n}", call_id=f"call_{n}", name="sun", executor="client") for n in (0, 1)
    ]
    script = Script().begin().item(items[0], 0).item(items[1], 1)
    for piece in ('{"n":', '{"m":1}', "}"):
        for n in (1, 0):
            script.add(ev.ArgumentsDelta, item_id=f"fc_{n}", output_index=n, delta=piece)
    for n in (0, 1):
        whole = '{"n":{"m":1}}'
        script.add(ev.ArgumentsDone, item_id=f"fc_{n}", output_index=n, arguments=whole)
        script.done(items[n], n)
    return script.add(ev.TaskCompleted)


def test_the_helper_parses_each_of_several_calls_when_the_next_begins() -> None:
    final = read_by_helper(frames_of(interleaved().events), "sun")
    calls = final.choices[0].message.tool_calls
    assert [one.function.parsed_arguments for one in calls] == [{"n": {"m": 1}}] * 2
    assert final.choices[0].finish_reason == "tool_calls"


def test_a_call_that_was_cut_is_never_parsed() -> None:
    cut = scripts.client_call("incomplete").add(ev.TaskIncomplete, reason="max_output_tokens")
    frames = frames_of(cut.events)
    with pytest.raises(LengthFinishReasonError):
        read_by_helper(frames, ChatReader().read(frames).calls[0]["name"])


# --- the real server -----------------------------------------------------------------------------


class Following(httpx.BaseTransport):
    """Answers every request with the events of a run, as the real server streams them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = httpx.Client()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        asked = self._http.build_request("GET", self._url, params={"format": FORMAT.name})
        answer = self._http.send(asked, stream=True)
        return httpx.Response(
            answer.status_code, headers=answer.headers, stream=answer.stream, request=request
        )

    def close(self) -> None:
        self._http.close()


def test_a_run_of_the_real_server_is_followed_to_its_end(served: Served) -> None:
    asked = httpx.post(f"{served.url}/runs", json={"agent": "assistant", "input": "Is it sunny?"})
    run_id = asked.json()["run_id"]
    with (
        client_of(Following(f"{served.url}/runs/{run_id}/events")) as client,
        client.chat.completions.stream(model="m", messages=MESSAGES) as stream,
    ):
        seen = [event.type for event in stream]
        final = stream.get_final_completion()
    shown = httpx.get(f"{served.url}/runs/{run_id}").json()
    pieces = [
        "".join(block.get("text", "") for block in item["block_list"])
        for item in shown["output"]
        if item["type"] == "message"
    ]
    assert final.choices[0].message.content == "\n\n".join(pieces)
    assert final.choices[0].finish_reason == "stop"
    assert seen.count("content.delta") > 2


# --- the Vercel AI SDK ---------------------------------------------------------------------------


def read_by_ai_sdk(streams: list[list[bytes]], tool: str | None = None) -> list[Any]:
    asked = [{"body": b"".join(frames).decode(), "tool": tool} for frames in streams]
    found: list[Any] = json.loads(run_node(["chat_ai_sdk.mjs"], stdin=json.dumps(asked)))
    return found


def shown_text(frames: list[bytes]) -> str:
    """Text and refusals in the order in which they come, which is how the AI SDK shows them."""
    choices = [one for chunk in chunks_of(frames)[:-1] for one in chunk.get("choices", ())]
    deltas = [choice["delta"] for choice in choices]
    return "".join(one.get("content", "") + one.get("refusal", "") for one in deltas)


def test_the_ai_sdk_reads_every_golden_trace() -> None:
    streams = [frames_of([event for event, _ in trace.events]) for trace in LOGS]
    for trace, frames, found in zip(LOGS, streams, read_by_ai_sdk(streams), strict=True):
        reader = ChatReader().read(frames)
        if not reader.is_done:
            continue
        assert found["text"] == shown_text(frames), trace.name
        assert found["sources"] == [one["url"] for one in reader.annotations], trace.name
        if reader.error is not None:
            assert reader.error["message"] in str(found["errors"]), trace.name
        else:
            assert found["errors"] == [], trace.name
            refused = "content-filter" if reader.texts["refusal"] else None
            reason = (reader.finish_reason or "").replace("_", "-")
            assert found["finish"] == (refused or reason), trace.name


# --- pydantic-ai ---------------------------------------------------------------------------------


@asynccontextmanager
async def agent_on(script: Script) -> AsyncGenerator[Agent, None]:
    """An agent whose model answers with a run."""
    http: Any = httpx.AsyncClient(transport=answered(frames_of(script.events)))
    async with AsyncOpenAI(base_url="http://test/v1", api_key="test", http_client=http) as client:
        yield Agent(OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client)))


async def test_pydantic_ai_reads_thinking_and_the_answer() -> None:
    async with (
        agent_on(scripts.everything()) as agent,
        agent.run_stream("Is it sunny?") as result,
    ):
        assert await result.get_output() == ANSWER
        parts = [part for message in result.all_messages() for part in message.parts]
    thoughts = "".join(part.content for part in parts if isinstance(part, ThinkingPart))
    assert thoughts == "Thinking about Paris.\n\nLet me look it up.\n\nRaw thinking."
    assert [part.content for part in parts if isinstance(part, TextPart)] == [ANSWER]


def cut_call(text: str) -> Script:
    """A call whose arguments may look whole, but that was never made."""
    item = ToolCall(id="fc_0", call_id="call_0", name="sun", executor="client")
    script = Script().begin().item(item, 0)
    if text:
        script.add(ev.ArgumentsDelta, item_id="fc_0", output_index=0, delta=text)
    script.add(ev.ArgumentsDone, item_id="fc_0", output_index=0, arguments=text)
    script.done(msgspec.structs.replace(item, status="incomplete"), 0)
    return script.add(ev.TaskIncomplete, reason="max_output_tokens")


async def test_pydantic_ai_which_executes_what_parses_does_not_execute_a_call_that_was_cut() -> (
    None
):
    made: list[int] = []

    def sun(n: int = 0) -> str:
        made.append(n)
        return "sunny"

    for text in ('{"n":1}', ""):
        async with agent_on(cut_call(text)) as agent:
            agent.tool_plain(sun)
            with pytest.raises(UnexpectedModelBehavior):
                async with agent.run_stream("Is it sunny?"):
                    pass
    assert made == []
