"""The same runs as events of each contender: pieces of four characters, and their wire bytes.

Nothing here is timed. Where a peer's events have fields that we do not need (logprobs, usage), they
are as short as the peer accepts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from tailrace.core import events as ev
from tailrace.core.codec import encode_event
from tailrace.core.items import Message, Text, ToolCall, ToolResult

RUN = "run_5b2f8c1d9e7a4063"
CALL = "call_5b2f8c1d9e7a4063_3"
_SENTENCE = "The stream goes on without readers, and a late reader still gets every piece. "

Json = dict[str, Any]


@lru_cache(4)
def pieces(count: int, length: int = 4) -> list[str]:
    """A text as a model would stream it."""
    text = _SENTENCE * (count * length // len(_SENTENCE) + 1)
    return [text[at * length : (at + 1) * length] for at in range(count)]


@lru_cache(4)
def argument_pieces(count: int) -> list[str]:
    """The JSON of one argument with a long string, cut anywhere."""
    opening, closing = '{"t":"', '"}'
    text = opening + "".join(pieces(count))[: 4 * count - len(opening) - len(closing)] + closing
    return [text[at * 4 : at * 4 + 4] for at in range(count)]


# --- our own -------------------------------------------------------------------------------------


def numbered(events: Iterable[ev.Event]) -> list[ev.Event]:
    """Events with their place in the log."""
    return [ev.recorded(event, number) for number, event in enumerate(events, 1)]


def _begun(task_id: str = RUN, **facts: Any) -> list[ev.Event]:
    return [
        ev.TaskCreated(task_id=task_id, agent="assistant", **facts),
        ev.TaskInProgress(task_id=task_id),
    ]


def _message(task_id: str, index: int, texts: list[str]) -> list[ev.Event]:
    ident = f"msg_{task_id[4:]}_{index}"
    place: Any = {"task_id": task_id, "item_id": ident, "output_index": index, "block_index": 0}
    item = Message(id=ident, role="assistant", block_list=[])
    whole = Text(text="".join(texts))
    done = Message(id=ident, role="assistant", block_list=[whole])
    return [
        ev.OutputItemAdded(task_id=task_id, output_index=index, item=item),
        ev.TextAdded(**place, item=Text(text="")),
        *(ev.TextDelta(**place, delta=piece) for piece in texts),
        ev.TextDone(**place, item=whole),
        ev.OutputItemDone(task_id=task_id, output_index=index, item=done),
    ]


def _call(task_id: str, index: int, call_id: str, name: str, texts: list[str]) -> list[ev.Event]:
    ident = f"fc_{call_id[5:]}"
    place: Any = {"task_id": task_id, "item_id": ident, "output_index": index}
    item = ToolCall(id=ident, call_id=call_id, name=name)
    whole = "".join(texts)
    done = ToolCall(id=ident, call_id=call_id, name=name, arguments=whole)
    return [
        ev.OutputItemAdded(task_id=task_id, output_index=index, item=item),
        *(ev.ArgumentsDelta(**place, delta=piece) for piece in texts),
        ev.ArgumentsDone(**place, arguments=whole),
        ev.OutputItemDone(task_id=task_id, output_index=index, item=done),
    ]


@lru_cache(1)
def text_run(count: int) -> list[ev.Event]:
    """A run whose one message comes in `count` deltas."""
    body = _message(RUN, 0, pieces(count))
    return numbered([*_begun(), *body, ev.TaskCompleted(task_id=RUN)])


@lru_cache(1)
def tool_run(count: int) -> list[ev.Event]:
    """A run whose one call has arguments that come in `count` deltas."""
    body = _call(RUN, 0, CALL, "write", argument_pieces(count))
    return numbered([*_begun(), *body, ev.TaskCompleted(task_id=RUN)])


@lru_cache(1)
def nested_run(count: int) -> list[ev.Event]:
    """A run whose one call is answered by a sub-agent that says `count` deltas."""
    result = ToolResult(id="fco_1", call_id=CALL, block_list=[])
    return numbered(
        [
            *_begun(),
            *_call(RUN, 0, CALL, "ask", ["{}"]),
            ev.OutputItemAdded(task_id=RUN, output_index=1, item=result),
            *_begun(CALL, parent_task_id=RUN, call_id=CALL),
            *_message(CALL, 0, pieces(count)),
            ev.TaskCompleted(task_id=CALL),
            ev.OutputItemDone(
                task_id=RUN, output_index=1, item=ToolResult(id="fco_1", call_id=CALL)
            ),
            ev.TaskCompleted(task_id=RUN),
        ]
    )


def long_run(events: int, characters: int, turns: int = 40) -> list[ev.Event]:
    """Many calls, results and messages: so many characters, cut into about so many deltas."""
    count = events // (2 * turns)
    texts = pieces(count, characters // (2 * turns * count))
    made = _begun()
    for turn in range(turns):
        call_id = f"call_{turn}"
        made += _call(RUN, 3 * turn, call_id, "search", ['{"q":"', *texts, '"}'])
        result = ToolResult(id=f"fco_{turn}", call_id=call_id, block_list=[])
        made.append(ev.OutputItemAdded(task_id=RUN, output_index=3 * turn + 1, item=result))
        place: Any = {"item_id": f"fco_{turn}", "output_index": 3 * turn + 1, "block_index": 0}
        block = Text(text='{"temperature":"15C","condition":"Sunny"}', id=turn + 1)
        made.append(ev.TextDone(task_id=RUN, **place, item=block))
        whole = ToolResult(id=f"fco_{turn}", call_id=call_id, block_list=[block])
        made.append(ev.OutputItemDone(task_id=RUN, output_index=3 * turn + 1, item=whole))
        made += _message(RUN, 3 * turn + 2, texts)
    # No end: the run is saved while its last message is still open, as a snapshot would find it.
    return numbered(made[:-2])


def as_bytes(events: Iterable[ev.Event]) -> list[bytes]:
    """Events as the log and the wire carry them."""
    return [encode_event(event) for event in events]


def deltas_only(events: Iterable[ev.Event], cls: type[ev.Event]) -> list[bytes]:
    """The deltas among them, which is all that the barest limit looks at."""
    return as_bytes(event for event in events if isinstance(event, cls))


# --- OpenAI's Responses --------------------------------------------------------------------------

_MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress"}
_FUNCTION = {"id": "fc_1", "type": "function_call", "call_id": CALL, "name": "write"}
_PART = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


def _response(status: str, output: list[Json]) -> Json:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1.0,
        "model": "model",
        "status": status,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def _openai(head: list[Json], deltas: Iterable[Json], tail: list[Json], done: Json) -> list[bytes]:
    events = [
        {"type": "response.created", "response": _response("in_progress", [])},
        *head,
        *deltas,
        *tail,
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": _response("completed", [done])},
    ]
    return [
        json.dumps({**event, "sequence_number": at}, separators=(",", ":")).encode()
        for at, event in enumerate(events)
    ]


def openai_text(count: int) -> list[bytes]:
    """`text_run` in OpenAI's words."""
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    whole = {**_PART, "text": "".join(pieces(count))}
    return _openai(
        [
            {
                "type": "response.output_item.added",
                "output_index": 0,
                "item": {**_MESSAGE, "content": []},
            },
            {"type": "response.content_part.added", **place, "part": _PART},
        ],
        (
            {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
            for piece in pieces(count)
        ),
        [
            {
                "type": "response.output_text.done",
                **place,
                "text": whole["text"],
                "logprobs": [],
            },
            {"type": "response.content_part.done", **place, "part": whole},
        ],
        {**_MESSAGE, "status": "completed", "content": [whole]},
    )


def openai_tool(count: int) -> list[bytes]:
    """`tool_run` in OpenAI's words."""
    place = {"item_id": "fc_1", "output_index": 0}
    name = "response.function_call_arguments"
    whole = "".join(argument_pieces(count))
    opened = {**_FUNCTION, "arguments": "", "status": "in_progress"}
    return _openai(
        [{"type": "response.output_item.added", "output_index": 0, "item": opened}],
        ({"type": f"{name}.delta", **place, "delta": piece} for piece in argument_pieces(count)),
        [{"type": f"{name}.done", **place, "arguments": whole, "name": "write"}],
        {**_FUNCTION, "status": "completed", "arguments": whole},
    )


# --- Anthropic's Messages ------------------------------------------------------------------------


def _anthropic(block: Json, deltas: Iterable[Json]) -> list[bytes]:
    message: Json = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "model",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    events: list[Json] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    return [json.dumps(event, separators=(",", ":")).encode() for event in events]


def anthropic_text(count: int) -> list[bytes]:
    """`text_run` in Anthropic's words."""
    block = {"type": "text", "text": ""}
    return _anthropic(block, ({"type": "text_delta", "text": one} for one in pieces(count)))


def anthropic_tool(count: int) -> list[bytes]:
    """`tool_run` in Anthropic's words."""
    block = {"type": "tool_use", "id": CALL, "name": "write", "input": {}}
    return _anthropic(
        block,
        ({"type": "input_json_delta", "partial_json": one} for one in argument_pieces(count)),
    )
