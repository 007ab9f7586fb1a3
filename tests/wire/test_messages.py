"""Conversations as lists of messages: what the real clients hold after the same streams."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ag_ui.core import Message
from hypothesis import HealthCheck, given, settings
from pydantic import TypeAdapter

from tailrace.core import events as ev
from tailrace.core import items
from tailrace.core.fold import State
from tailrace.testing.strategies import WrittenRun, legal_runs
from tailrace.wire import ag_ui, openai_responses, vercel_ui
from tailrace.wire.base import ShowsThreads
from tailrace.wire.formats import FORMATS
from tailrace.wire.vercel_ui.chunks import chunk
from tailrace.wire.vercel_ui.messages import reduced
from tests.node import run_node
from tests.traces import TRACES
from tests.wire.ag_ui_checker import read
from tests.wire.vercel_story import full_story

Json = dict[str, Any]

_MESSAGES: TypeAdapter[Any] = TypeAdapter(list[Message])
PNG = "data:image/png;base64,iVBORw0KGgo="


def folded(events: list[ev.AnyEvent]) -> State:
    state = State()
    for event in events:
        state.absorb(event)
    return state


def states() -> list[State]:
    """Runs that have ended, wait or go on."""
    runs: list[list[ev.AnyEvent]] = [list(full_story().events)]
    runs += [[event for event, _ in trace.events] for trace in TRACES]

    @settings(suppress_health_check=list(HealthCheck), database=None)
    @given(legal_runs())
    def collect(run: WrittenRun) -> None:
        runs.append([event for event, _ in run])

    collect()
    runs += [events[: len(events) // 2] for events in runs]
    return [state for state in map(folded, runs) if state.root is not None]


def answers(messages: list[Json], state: State) -> list[Json]:
    """The messages of a run without its input."""
    assert state.root is not None
    given = state.root.facts.get("input")
    count = len(FORMATS["ag-ui"].messages([created(given)])) if given is not None else 0  # type: ignore[attr-defined]
    return messages[count:]


def created(given: Any, *, run_id: str = "run_1", previous: str | None = None) -> State:
    return folded([ev.TaskCreated(task_id=run_id, input=given, previous_run_id=previous)])


def without_partial(message: Json) -> Json:
    """A message without inputs that are still written: the SDK guesses how they end."""
    for part in message["parts"]:
        if part.get("state") == "input-streaming":
            part.pop("input", None)
    return message


def test_a_ui_message_is_what_the_ai_sdk_holds_after_the_stream() -> None:
    found = states()
    streams = [b"".join(vercel_ui.FORMAT.open(state)[1]).decode() for state in found]
    held = json.loads(run_node(["vercel_read.mjs"], stdin=json.dumps([[one] for one in streams])))
    for state, answer in zip(found, held, strict=True):
        message = json.loads(json.dumps(vercel_ui.FORMAT.messages([state])[-1]))
        if message["parts"] != [{"type": "step-start"}]:  # which the SDK does not report
            assert without_partial(message) == without_partial(answer["message"])


def is_unique(state: State) -> bool:
    """Whether no message has the id of a call."""
    nodes = [node for task in state.tasks.values() for node in task.items.values()]
    calls = {node.item.call_id for node in nodes if isinstance(node.item, items.ToolCall)}
    return calls.isdisjoint(node.id for node in nodes if isinstance(node.item, items.Message))


def test_ag_ui_messages_are_what_its_client_holds_after_the_stream() -> None:
    found = states()
    streams = [read(ag_ui.FORMAT.open(state)[1]) for state in found]
    held = json.loads(run_node(["ag_ui_read.mjs"], stdin=json.dumps(streams)))
    compared = 0
    for state, answer in zip(found, held, strict=True):
        messages = ag_ui.FORMAT.messages([state])
        _MESSAGES.validate_python(messages)
        # The random runs use an id twice, which our ids never do: the client refuses or mixes them.
        if is_unique(state) and not any("Cannot send" in error for error in answer["errors"]):
            assert answers(messages, state) == answer["messages"], answer["errors"]
            compared += 1
    assert compared > len(TRACES)


INPUTS: list[tuple[Any, list[Json]]] = [
    ("Hello", [{"role": "user", "parts": [{"type": "text", "text": "Hello"}]}]),
    (
        [{"type": "input_text", "text": "See"}, {"type": "input_image", "image_url": PNG}],
        [
            {
                "role": "user",
                "parts": [
                    {"type": "text", "text": "See"},
                    {"type": "file", "url": PNG, "mediaType": "image/png"},
                ],
            }
        ],
    ),
    (
        [
            {"role": "developer", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "file", "url": "https://a.test/b", "name": "b.pdf"},
                    {"type": "file", "url": "https://a.test/c", "mediaType": "audio/mpeg"},
                ],
            },
        ],
        [
            {"role": "system", "parts": [{"type": "text", "text": "Be brief."}]},
            {
                "role": "user",
                "parts": [
                    {
                        "type": "file",
                        "url": "https://a.test/b",
                        "mediaType": "application/octet-stream",
                        "filename": "b.pdf",
                    },
                    {"type": "file", "url": "https://a.test/c", "mediaType": "audio/mpeg"},
                ],
            },
        ],
    ),
]


@pytest.mark.parametrize(("given", "expected"), INPUTS)
def test_the_input_of_any_api_becomes_ui_messages(given: Any, expected: list[Json]) -> None:
    made = vercel_ui.FORMAT.messages([created(given)])
    assert [{"role": one["role"], "parts": one["parts"]} for one in made[:-1]] == expected
    run_node(["vercel_messages.mjs"], stdin=json.dumps([made]))
    messages = ag_ui.FORMAT.messages([created(given)])
    _MESSAGES.validate_python(messages)
    assert len(messages) == len(expected)


TOOL_TALK = [
    {"role": "user", "content": "Pick."},
    {"type": "function_call", "call_id": "c1", "name": "pick", "arguments": '{"of": 1}'},
    {"type": "custom_tool_call", "call_id": "c2", "name": "write", "input": "text"},
    {"type": "function_call_output", "call_id": "c1", "output": '{"colour": "red"}'},
    {"type": "function_call_output", "call_id": "c2", "output": "broken", "status": "failed"},
    {"type": "function_call_output", "call_id": "c9", "output": "of no call"},
    {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
]


def test_calls_and_outputs_of_a_client_find_each_other() -> None:
    [_, first, second, _] = vercel_ui.FORMAT.messages([created(TOOL_TALK)])
    [part] = first["parts"]
    assert (part["state"], part["output"]) == ("output-available", {"colour": "red"})
    [part] = second["parts"]
    assert (part["state"], part["errorText"]) == ("output-error", "broken")
    messages = ag_ui.FORMAT.messages([created(TOOL_TALK)])
    _MESSAGES.validate_python(messages)
    assert [one["role"] for one in messages] == [
        *("user", "assistant", "tool", "assistant", "tool", "tool")
    ]
    assert messages[4]["error"] == "broken"


def test_a_page_that_sends_its_answer_again_continues_it() -> None:
    first = created("Pick.", run_id="run_1")
    [user, answer] = vercel_ui.FORMAT.messages([first])
    sent = {**answer, "parts": [{"type": "text", "text": "as the page has it"}]}
    listed = [{"role": "user", "parts": [{"type": "text", "text": "more"}]}, "and more", sent]
    second = created(sent, run_id="run_2", previous="run_1")
    made = vercel_ui.FORMAT.messages([first, second])
    assert made[0] == user
    assert [part["type"] for part in made[1]["parts"]] == ["text", "step-start"]
    assert made[1]["metadata"]["task_id"] == "run_2"
    assert sent["parts"] == [{"type": "text", "text": "as the page has it"}]
    third = created(listed, run_id="run_3", previous="run_2")
    made = vercel_ui.FORMAT.messages([first, State(), third])
    assert [one["id"] for one in made] == ["run_1_in0", "run_1", "run_3_in2", "run_3_in3", "run_3"]
    odd = {"role": "assistant", "parts": []}
    assert len(vercel_ui.FORMAT.messages([created([odd, {"role": "user", "parts": [7]}])])) == 2


def test_ag_ui_keeps_the_ids_of_its_client_and_shows_media() -> None:
    given = [
        {"id": "u1", "role": "user", "content": [{"type": "input_image", "image_url": PNG}]},
        {"id": "u1", "role": "user", "content": [{"type": "file", "url": "https://a.test/b"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "https://a.test/c"}]},
        {"id": "u4", "role": "user", "content": [{"type": "input_audio", "data": "…"}]},
        {"id": "u5", "role": "user", "content": [_file("video/mp4"), _file("text/css")]},
    ]
    made = ag_ui.FORMAT.messages([State(), created(given)])
    _MESSAGES.validate_python(made)
    assert [one["id"] for one in made] == ["u1", "run_1_in1", "run_1_in2", "u4", "u5"]
    source = {"type": "data", "value": "iVBORw0KGgo=", "mimeType": "image/png"}
    assert made[0]["content"][0]["source"] == source
    assert made[1]["content"][0]["type"] == "document"
    assert made[2]["content"][0]["source"] == {"type": "url", "value": "https://a.test/c"}
    assert [part["type"] for part in made[4]["content"]] == ["video", "document"]


def _file(mime: str) -> Json:
    return {"type": "file", "url": "https://a.test/f", "mediaType": mime}


def test_an_ag_ui_message_with_a_known_id_takes_the_place_of_the_first() -> None:
    """A log that another program wrote may use an id in two runs of a conversation."""
    chain = []
    for run_id, text in (("run_1", "It rains."), ("run_2", "It is sunny.")):
        block = items.Text(text=text)
        message = items.Message(id="m", role="assistant", block_list=[block])
        at: Json = {"task_id": run_id, "output_index": 0}
        log = [
            ev.TaskCreated(task_id=run_id, sequence_number=1),
            ev.OutputItemAdded(**at, sequence_number=2, item=message),
            ev.OutputItemDone(**at, sequence_number=3, item=message),
        ]
        chain.append(folded([*log]))
    assert ag_ui.FORMAT.messages(chain) == [
        {"id": "m", "role": "assistant", "content": "It is sunny."}
    ]


def test_open_ai_items_show_the_input_of_other_apis_as_items() -> None:
    given = [
        {"role": "user", "content": [{"type": "text", "text": "See"}]},
        {"role": "assistant", "content": None, "tool_calls": [_chat_call("function")]},
        {"role": "assistant", "content": "Well.", "tool_calls": [_chat_call("custom")]},
        {"role": "tool", "tool_call_id": "c1", "content": "red"},
        {"type": "item_reference", "id": "msg_9"},
    ]
    items = openai_responses.FORMAT.messages([created(given)])
    assert [item["type"] for item in items] == [
        *("message", "function_call", "message", "custom_tool_call", "function_call_output")
    ]
    assert items[0]["content"] == [{"type": "input_text", "text": "See"}]
    assert items[2]["content"][0]["type"] == "output_text"
    assert (items[4]["call_id"], items[4]["output"]) == ("c1", "red")
    part = openai_responses.FORMAT.messages([created([{"type": "input_text", "text": "Hi"}])])
    assert part[0]["role"] == "user"


def _chat_call(kind: str) -> Json:
    return {"id": "c1", "type": kind, kind: {"name": "pick", "arguments": "{}", "input": "x"}}


def test_an_item_that_a_client_sends_again_is_listed_once() -> None:
    item = {"type": "message", "role": "user", "content": "Hi", "id": "msg_1"}
    runs = [created([item], run_id="run_1"), created([item, "more"], run_id="run_2")]
    assert openai_responses.FORMAT.messages(runs)[0]["id"] == "msg_1"
    assert openai_responses.FORMAT.messages([State(), runs[0], created([item])]) == [
        {**item, "status": "completed", "content": [{"type": "input_text", "text": "Hi"}]}
    ]


def test_three_formats_have_lists_of_messages() -> None:
    shown = [name for name, wire in FORMATS.items() if isinstance(wire, ShowsThreads)]
    assert shown == ["openai-responses", "vercel-ui", "ag-ui"]


def test_an_input_that_is_still_written_is_shown_as_far_as_it_is_certain() -> None:
    def shown(text: str, **about: Any) -> Any:
        frames = [
            chunk("tool-input-start", toolCallId="c", toolName="pick", **about),
            chunk("tool-input-delta", toolCallId="c", inputTextDelta=text),
        ]
        [part] = reduced({"parts": []}, frames)["parts"]
        return part.get("input")

    assert shown('{"city": "Pa') == {"city": "Pa"}
    assert shown("half a", inputEncoding="text") == "half a"
    assert shown("not JSON") is None
    assert shown(" ") is None
