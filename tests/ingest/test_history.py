"""What was read from a provider can be sent to it again, and to any other provider.

Each recording is the answer of a conversation's first turn, whole or cut somewhere. An account
remembers what the provider had sent out, read from the recording itself; whatever history makes of
our own items, no provider refuses it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tailrace.core.events import Private, TaskInputReceived, TaskInputRequired
from tailrace.core.fold import State
from tailrace.core.items import Message, TextPart, ToolCall
from tailrace.core.state import TextNode
from tailrace.core.writers import ResultWriter
from tailrace.history import Api, History, history
from tailrace.ingest.anthropic_messages.reader import AnthropicMessages
from tailrace.ingest.base import Notebook, Outcome
from tailrace.ingest.openai_chat.reader import OpenAIChat
from tailrace.ingest.openai_responses.reader import OpenAIResponses
from tailrace.testing.provider_rules import Issued
from tests.effort import sample
from tests.history.conversations import APIS
from tests.history.test_history_properties import MODES, refused
from tests.ingest.anthropic_oracle import messages_of
from tests.ingest.streams import Make, cut_points, lines, recordings

pytestmark = pytest.mark.long

Json = dict[str, Any]

FOLDERS: dict[str, tuple[Api, Make]] = {
    "openai-responses": ("openai_responses", OpenAIResponses),
    "anthropic-messages": ("anthropic_messages", AnthropicMessages),
    "chat-completions": ("openai_chat", OpenAIChat),
}
every_recording = pytest.mark.parametrize(
    "path", [path for folder in FOLDERS for path in recordings(folder)], ids=lambda path: path.stem
)


# --- what the providers remember ----------------------------------------------------------------


def account(api: Api, events: list[str]) -> Issued:
    """The provider's own memory of what a recording sent out, whole, wherever it is cut."""
    issued = Issued()
    if api == "openai_responses":
        for response_id, output in _responses([json.loads(event) for event in events]):
            issued.openai_response(response_id, output)
    elif api == "anthropic_messages":
        for letter in messages_of(events):
            blocks = [streamed for streamed in letter.blocks if not streamed.is_call]
            issued.anthropic_message([streamed.whole() for streamed in blocks])
    else:
        issued.chat_message(_chat_message([json.loads(event) for event in events]))
    return issued


def _responses(events: list[Json]) -> Iterator[tuple[str, list[Json]]]:
    """Each response with its items as they were at their ends."""
    ident, output = "", list[Json]()
    for event in events:
        response = event.get("response") or {}
        if event["type"] == "response.created":
            ident, output = response["id"], []
        elif event["type"] == "response.output_item.done":
            output.append(event["item"])
        elif event["type"] in ("response.completed", "response.incomplete", "response.failed"):
            ident = response.get("id") or ident
            yield ident, output or response.get("output") or []
            output = []
    if output:  # it never ended
        yield ident, output


def _chat_message(events: list[Json]) -> Json:
    choices = [choice for event in events for choice in event.get("choices") or []]
    deltas = [choice.get("delta") or choice.get("message") or {} for choice in choices]
    streamed = [delta.get("tool_calls") or [] for delta in deltas]
    calls = [call for one in streamed for call in (one if isinstance(one, list) else [one])]
    sent_texts = "".join(delta.get("reasoning_content") or "" for delta in deltas)
    parts = [delta["content"] for delta in deltas if isinstance(delta.get("content"), list)]
    return {
        "content": [part for content in parts for part in content],
        "reasoning_content": sent_texts,
        "tool_calls": [{"id": call["id"]} for call in calls if call.get("id")],
    }


# --- what is sent -------------------------------------------------------------------------------


def first_turn(make: Make, events: list[str]) -> tuple[Notebook, Outcome]:
    book = Notebook(input="What is it?")
    ingest = make(book)
    for event in events:
        ingest.feed(event)
    return book, ingest.end()


def ended(make: Make, events: list[str]) -> Notebook:
    book, outcome = first_turn(make, events)
    book.conclude(outcome)
    return book


def second_turn() -> State:
    return Notebook("run_2", input="And what else?").state


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from strings(one)


def texts(book: Notebook) -> list[str]:
    """The texts of the model for the user."""
    nodes = [node for node in book.node.items.values() if isinstance(node.item, Message)]
    # Anthropic's reasons for a refusal are shown; the model did not say them.
    nodes = [node for node in nodes if node.private.get("raw") != []]
    parts = [part for node in nodes for part in node.parts.values()]
    return [part.text for part in parts if isinstance(part, TextNode) and part.text.strip()]


def calls_to_answer(book: Notebook) -> list[ToolCall]:
    """The calls that came whole and are ours to carry out."""
    items = [node.item for node in book.node.items.values()]
    calls = [item for item in items if isinstance(item, ToolCall)]
    return [one for one in calls if one.status == "completed" and one.executor != "provider"]


ANSWERS = {
    f"{tool}_call": f"{tool}_call_output"
    for tool in ("function", "custom_tool", "shell", "local_shell", "apply_patch", "computer")
}


def called(items: list[Json]) -> Counter[str]:
    found: Counter[str] = Counter()
    for item in items:
        hosted = "container" in str(item.get("environment"))
        if item.get("type") in ANSWERS and not hosted:
            found[item["call_id"]] += 1
        found.update(call["id"] for call in item.get("tool_calls") or ())
        found.update(one["id"] for one in blocks(item) if one["type"] == "tool_use")
    return found


def answered(items: list[Json]) -> Counter[str]:
    found: Counter[str] = Counter()
    for item in items:
        # What the provider's own container gave has an id of the provider's.
        if item.get("type") in ANSWERS.values() and not str(item.get("id")).startswith("sho_"):
            found[item["call_id"]] += 1
        if item.get("role") == "tool":
            found[item["tool_call_id"]] += 1
        found.update(one["tool_use_id"] for one in blocks(item) if one["type"] == "tool_result")
    return found


def blocks(message: Json) -> list[Json]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def check(book: Notebook, api: Api, issued: Issued) -> None:
    """Before the user speaks again, as in a loop of tool calls, and after."""
    foreign = Issued()
    for chain, asked, mode in product(([book.state], [book.state, second_turn()]), APIS, MODES):
        for store in (True, False):
            made = history(chain, asked, mode, store=store)
            error = refused(made, issued if asked == api else foreign, store=store)
            assert error is None, f"{asked}, {mode}, {store}: {error.message}\n{made.request()}"
            check_says_all(book, made, issued)


def check_says_all(book: Notebook, made: History, issued: Issued) -> None:
    results = answered(made.items)
    assert set(results.values()) <= {1}
    if made.previous_response_id is not None:
        assert results == called(list(issued.responses[made.previous_response_id]))
        return
    assert results == called(made.items)
    assert len(results) == len(calls_to_answer(book))
    sent_texts = "\n".join(strings(made.items))
    for text in texts(book):
        assert text in sent_texts


@every_recording
def test_the_answer_of_a_provider_can_be_sent_to_it_and_to_the_others(path: Path) -> None:
    api, make = FOLDERS[path.parent.name]
    events = lines(path)
    check(ended(make, events), api, account(api, events))


@every_recording
def test_the_answer_of_a_provider_that_was_cut_off_can_be_sent_too(path: Path) -> None:
    api, make = FOLDERS[path.parent.name]
    events = lines(path)
    issued = account(api, events)
    for count in sample(cut_points(events), 6):
        check(ended(make, events[:count]), api, issued)


@every_recording
def test_what_the_tools_gave_is_written_once_for_each_call(path: Path) -> None:
    api, make = FOLDERS[path.parent.name]
    events = lines(path)
    book, _ = first_turn(make, events)
    for call in calls_to_answer(book):
        given = TextPart(text=f"Given for {call.call_id}.")
        ResultWriter(book, call.call_id).finish(Private(content=[given]))
    check(book, api, account(api, events))
    for asked in APIS:
        sent_texts = list(strings(history([book.state], asked).items))
        for call in calls_to_answer(book):
            assert sent_texts.count(f"Given for {call.call_id}.") == 1


# --- several responses in a row -----------------------------------------------------------------


def written(number: int, *items: Json) -> list[str]:
    """A response of these items, as a stream."""
    response = {"id": f"resp_{number}", "status": "completed", "output": list(items)}
    events: list[Json] = [{"type": "response.created", "response": {"id": f"resp_{number}"}}]
    for index, item in enumerate(items):
        done = {"type": "response.output_item.done", "output_index": index, "item": item}
        events.append(done)
    events.append({"type": "response.completed", "response": response})
    return [json.dumps(event) for event in events]


CALLER = {"type": "program", "caller_id": "call_p"}
THOUGHT: Json = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
LOOK: Json = {"type": "function_call", "name": "look", "arguments": "{}", "caller": CALLER}
MESSAGE: Json = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "42", "annotations": []}],
}
PROGRAM = [
    written(
        1,
        THOUGHT,
        {"type": "program", "id": "cm_1", "call_id": "call_p", "code": "x"},
        {**LOOK, "id": "fc_1", "call_id": "call_1"},
    ),
    written(2, {**LOOK, "id": "fc_2", "call_id": "call_2"}),
    written(
        3, {"type": "program_output", "id": "cmo_1", "call_id": "call_p", "result": "42"}, MESSAGE
    ),
]
ASKED: Json = {"name": "buy", "arguments": "{}", "server_label": "shop"}
APPROVALS = [
    written(1, THOUGHT, {"type": "mcp_approval_request", "id": "mcpr_1", **ASKED}),
    written(2, {"type": "mcp_approval_request", "id": "mcpr_2", **ASKED}),
]


def recorded(name: str, *numbers: int) -> list[list[list[str]]]:
    """The same in the provider's own words, where we have them."""
    paths = {path.stem: path for path in recordings("openai-responses")}
    names = [f"{name}.{number}" for number in numbers]
    return [[lines(paths[one]) for one in names]] if set(names) <= paths.keys() else []


def played(responses: list[list[str]]) -> Notebook:
    """One run of several model calls; tools and people in between give what is wanted of them."""
    book = Notebook(input="What is it?")
    issued = Issued()
    for events in responses:
        for ident, output in _responses([json.loads(event) for event in events]):
            issued.openai_response(ident, output)
        ingest = OpenAIResponses(book)
        for event in events:
            ingest.feed(event)
        task_id, requests = book.task_id, ingest.end().requests
        if requests:
            book.emit(TaskInputRequired(task_id=task_id, requests=requests))
        for asked in requests:
            book.emit(TaskInputReceived(task_id=task_id, request_id=asked.id, approved=True))
        for call in calls_to_answer(book):
            if call.call_id not in book.node.call_results:
                ResultWriter(book, call.call_id).finish(Private(content=[TextPart(text="42")]))
        for mode, store in product(MODES, (True, False)):
            made = history([book.state], "openai_responses", mode, store=store)
            error = refused(made, issued, store=store)
            assert error is None, f"{mode}, {store}: {error.message}\n{made.request()}"
    return book


@pytest.mark.parametrize("responses", [PROGRAM, *recorded("programmatic-tool-calling", 1, 2, 3)])
def test_a_program_is_carried_through_several_responses(responses: list[list[str]]) -> None:
    book = played(responses)
    items = history([book.state], "openai_responses", "encrypted", store=False).items
    kinds = [item["type"] for item in items if item["type"] != "message"]
    calls = ["function_call", "function_call_output"] * 2
    assert kinds == ["reasoning", "program", *calls, "program_output"]
    assert all("caller" in item for item in items if item["type"].startswith("function_call"))


@pytest.mark.parametrize("responses", [APPROVALS, *recorded("openai-mcp-tool-approval", 1, 3)])
def test_approvals_go_back_with_their_requests(responses: list[list[str]]) -> None:
    items = history([played(responses).state], "openai_responses").items
    kinds = [item["type"] for item in items if item["type"].startswith("mcp_approval")]
    assert kinds == ["mcp_approval_request", "mcp_approval_response"] * 2
