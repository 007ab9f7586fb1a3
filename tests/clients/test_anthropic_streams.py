"""The anthropic package from PyPI, unchanged, reads what a run becomes in its API's stream.

What it ends up with is compared with the golden views, which know nothing of the format.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic, APIStatusError, AsyncAnthropic, MessageStream, Stream, not_given
from anthropic.types import RawMessageStreamEvent

from tailrace.core.fold import State
from tailrace.core.values import json_text
from tailrace.testing.wire_kit import as_recorded
from tailrace.wire.anthropic_messages import FORMAT
from tests.clients.answering import Answers, answering
from tests.convert.streams import converted, source_of
from tests.ingest.anthropic_oracle import messages_of
from tests.ingest.streams import lines, recordings
from tests.node import run_node
from tests.serving import Served
from tests.traces import LOGS, Trace
from tests.wire import openai_scripts as scripts
from tests.wire.openai_scripts import ANSWER

ASK: Any = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "?"}]}


@pytest.fixture(scope="module")
def answers() -> Iterator[Answers]:
    with answering() as server:
        yield server


@pytest.fixture
def client(answers: Answers) -> Iterator[Anthropic]:
    with Anthropic(base_url=answers.url, api_key="test", max_retries=0) as client:
        yield client


def stream_of(events: list[Any]) -> bytes:
    """A run's stream to its end, or closed where the log stops, with pings in between."""
    encoder, sent = FORMAT.at(State()), [FORMAT.heartbeat]
    for one in as_recorded(events):
        sent += [*encoder.encode(one), FORMAT.heartbeat]
    return b"".join(sent + encoder.close("The log stops here."))


def texts_of(view: Any) -> list[str]:
    """Everything in a view's messages that a text block can say, in any order."""
    found = []
    for item in view["output"]:
        for block in item["block_list"] if item["type"] == "message" else ():
            if block["type"] == "file":
                name = block.get("name") or block.get("path") or "file"
                found.append(f"[{name}]({block['url']})")
            elif block["type"] == "image":
                url = block["image_url"]["url"]
                found.append("[image]" if url.startswith("data:") else f"![image]({url})")
            else:
                found.append(block.get("text") or block.get("refusal") or "")
    texts = sorted(text for text in found if text)
    output = view.get("structured_output")
    if output is not None and not texts and view["status"] == "completed":
        return [json_text(output["value"])]  # the clients read the answer as a text only
    return texts


def thoughts_of(view: Any) -> list[list[str]]:
    """What may be shown of the thinking: of each reasoning its summary or its raw text."""
    lists = [
        [one for one in (item["summary"], item.get("reasoning_text")) if one] or [[]]
        for item in view["output"]
        if item["type"] == "reasoning"
    ]
    return [
        sorted(part["text"] for parts in choice for part in parts if part["text"])
        for choice in product(*lists)
    ]


def calls_of(view: Any, *, clients: bool) -> list[tuple[str, str, Any]]:
    return sorted(
        (item["call_id"], item["name"], json.loads(item["arguments"] or "{}"))
        for item in view["output"]
        if item["type"] == "tool_call"
        and item.get("status", "completed") == "completed"
        and (item.get("executor") == "client") == clients
    )


def results_of(view: Any) -> list[tuple[str, bool]]:
    server = [one[0] for one in calls_of(view, clients=False)]
    return sorted(
        (item["call_id"], item.get("status") == "failed")
        for item in view["output"]
        if item["type"] == "tool_result"
        and item["call_id"] in server
        and item.get("status") not in ("incomplete", "in_progress")
    )


def check_content(blocks: list[Any], view: Any) -> None:
    def of(kind: str) -> list[Any]:
        return [block for block in blocks if block["type"] == kind]

    def calls(kind: str) -> list[Any]:
        return sorted((one["id"], one["name"], untamed(one["input"])) for one in of(kind))

    assert sorted(one["text"] for one in of("text")) == texts_of(view)
    assert sorted(one["thinking"] for one in of("thinking")) in thoughts_of(view)
    ids = {item["id"] for item in view["output"] if item["type"] == "reasoning"}
    assert {one["signature"] for one in of("thinking")} <= ids
    assert calls("tool_use") == calls_of(view, clients=True)
    assert calls("mcp_tool_use") == calls_of(view, clients=False)
    results = sorted((one["tool_use_id"], one["is_error"]) for one in of("mcp_tool_result"))
    assert results == results_of(view)


def untamed(value: Any) -> Any:
    """A value with the keys that are renamed for the sake of another SDK."""
    if isinstance(value, dict):
        return {
            "__proto__"
            if name == "__proto___"
            else name.removesuffix("_")
            if name == "constructor_"
            else name: untamed(one)
            for name, one in value.items()
        }
    return value


FAILED = {"failed", "failed_before_start", "superseded_container"}
UNTELLABLE = FAILED | {"provider_retry", "recovered_attempt"}
"""Runs that failed, and those that took back what the stream had sent."""

STOPS = {"completed": ("end_turn", "tool_use", "refusal"), "cancelled": ("max_tokens",)}
STOPS |= {"incomplete": ("max_tokens", "refusal"), "input_required": ("pause_turn", "tool_use")}


@pytest.mark.parametrize("beta", [False, True], ids=["messages", "beta"])
@pytest.mark.parametrize("trace", LOGS, ids=lambda trace: trace.name)
def test_the_sdk_accumulates_every_golden_trace(
    answers: Answers, client: Anthropic, trace: Trace, beta: bool
) -> None:
    answers.stream = stream_of([event for event, _ in trace.events])
    messages: Any = client.beta.messages if beta else client.messages
    with messages.stream(**ASK) as stream:
        if trace.name in UNTELLABLE:
            with pytest.raises(APIStatusError):
                stream.until_done()
            return
        final = stream.get_final_message()
    assert final.stop_reason in STOPS[trace.view["status"]]
    check_content([block.to_dict() for block in final.content], trace.view)
    assert final.usage.output_tokens >= trace.view.get("usage", {}).get("output_tokens", 0)


def test_the_package_from_npm_accumulates_every_golden_trace() -> None:
    streams = [stream_of([event for event, _ in trace.events]).decode() for trace in LOGS]
    asking = json.dumps({"baseURL": "http://localhost", "model": "m"})
    printed = run_node(["anthropic_sdk.mjs", asking], stdin=json.dumps(streams))
    for trace, answer in zip(LOGS, json.loads(printed), strict=True):
        assert ("error" in answer) == (trace.name in UNTELLABLE), trace.name
        if "final" in answer:
            final = answer["final"]
            assert final["stop_reason"] in STOPS[trace.view["status"]]
            check_content(final["content"], trace.view)


def test_the_helper_s_events_come_as_the_text_does(answers: Answers, client: Anthropic) -> None:
    answers.stream = stream_of(scripts.everything().events)
    with client.messages.stream(**ASK) as stream:
        seen = list(stream)
        final = stream.get_final_message()
    assert "".join(event.text for event in seen if event.type == "text") == ANSWER
    thought = [event.thinking for event in seen if event.type == "thinking"]
    assert "".join(thought) == "Thinking about Paris.Let me look it up.Raw thinking."
    assert len([event for event in seen if event.type == "citation"]) == 3
    assert [event.type for event in seen].count("message_stop") == 1
    assert final.usage.input_tokens == 780
    assert final.usage.cache_read_input_tokens == 200


def test_a_call_of_the_client_s_arrives_piece_by_piece(answers: Answers, client: Anthropic) -> None:
    answers.stream = converted(
        b'{"choices":[{"index":0,"finish_reason":"tool_calls","delta":{"tool_calls":[{"index":0,'
        b'"id":"call_1","function":{"name":"sun","arguments":"{\\"city\\":\\"Paris\\"}"}}]}}]}',
        "openai-chat",
        "anthropic-messages",
    )
    with client.messages.stream(**ASK) as stream:
        seen = [event for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    assert "".join(event.partial_json for event in seen) == '{"city":"Paris"}'
    [call] = final.content
    assert call.type == "tool_use"
    assert (call.id, call.name, call.input) == ("call_1", "sun", {"city": "Paris"})
    assert final.stop_reason == "tool_use"


def test_a_client_that_is_cut_anywhere_gets_the_same_message_from_a_replay(
    answers: Answers, client: Anthropic
) -> None:
    events = scripts.everything().events
    answers.stream = stream_of(events)
    with client.messages.stream(**ASK) as stream:
        whole = stream.get_final_message()
    state = State()
    for place, event in enumerate(events, 1):
        state.absorb(event)
        encoder, frames = FORMAT.open(state)
        for one in as_recorded(events[place:]):
            frames += encoder.encode(one)
        answers.stream = b"".join(frames)
        with client.messages.stream(**ASK) as stream:
            assert stream.get_final_message() == whole


async def test_the_async_client_reads_the_same(answers: Answers) -> None:
    answers.stream = stream_of(scripts.everything().events)
    async with (
        AsyncAnthropic(base_url=answers.url, api_key="test", max_retries=0) as client,
        client.messages.stream(**ASK) as stream,
    ):
        assert await stream.get_final_text() == ANSWER


def test_an_error_is_raised_with_its_message(answers: Answers, client: Anthropic) -> None:
    answers.stream = stream_of(scripts.failed().events)
    with client.messages.stream(**ASK) as stream, pytest.raises(APIStatusError) as caught:
        stream.until_done()
    assert caught.value.body == {
        "type": "error",
        "error": {"type": "api_error", "message": "The provider is overloaded."},
    }


# --- from a server of ours -----------------------------------------------------------------------


def followed(served: Served, run_id: str) -> Any:
    """The message that the SDK makes of a run's own stream."""
    with Anthropic(base_url=served.url, api_key="test", max_retries=0) as client:
        union: Any = RawMessageStreamEvent
        raw = client.get(
            f"/runs/{run_id}/events",
            cast_to=union,
            options={"params": {"format": "anthropic-messages"}},
            stream=True,
            stream_cls=Stream[RawMessageStreamEvent],
        )
        with MessageStream(raw, output_format=not_given) as stream:
            return stream.get_final_message()


def test_a_run_is_followed_by_the_sdk(served: Served) -> None:
    final = followed(served, served.run())
    assert final.stop_reason == "end_turn"
    kinds = [block.type for block in final.content]
    assert "mcp_tool_use" in kinds
    assert kinds[-1] == "text"


def test_what_a_lost_worker_had_shown_is_not_shown_to_a_newcomer(served: Served) -> None:
    final = followed(served, served.run("recovered"))
    assert [block.text for block in final.content] == ["A whole answer."]


# --- converted -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", recordings("anthropic-messages"), ids=lambda path: path.stem)
def test_anthropic_s_own_streams_come_out_with_the_same_words(
    answers: Answers, client: Anthropic, path: Path
) -> None:
    source = source_of(path)
    sent_blocks = [block for letter in messages_of(lines(path)) for block in letter.blocks]
    texts = [one.text("text") for one in sent_blocks if one.block["type"] == "text"]
    # The explanation of a refusal stands beside Anthropic's blocks.
    view = json.loads(converted(source, "anthropic-messages", "json"))
    texts += [
        block["refusal"]
        for item in view["output"]
        for block in item.get("block_list", ())
        if block["type"] == "refusal"
    ]
    thoughts = [one.text("thinking") for one in sent_blocks if one.text("thinking")]
    answers.stream = converted(source, "anthropic-messages", "anthropic-messages")
    with client.beta.messages.stream(**ASK) as stream:
        if b"event: error" in answers.stream:
            with pytest.raises(APIStatusError):
                stream.until_done()
            content: list[Any] = stream.current_message_snapshot.content
            count = len([block for block in content if block.type == "thinking"])
            assert count <= len(thoughts)
            thoughts = thoughts[:count]
        else:
            content = stream.get_final_message().content
    assert "".join(block.text for block in content if block.type == "text") == "".join(texts)
    assert [block.thinking for block in content if block.type == "thinking"] == thoughts
