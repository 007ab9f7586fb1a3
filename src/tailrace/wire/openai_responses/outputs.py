"""The outputs of client functions that come together with answers to approvals.

A response may ask for approvals and call functions of its client. The client's next request has
both: then the run takes the outputs, and its model goes on. Outputs that come in a later request
are the input of a run of their own.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from tailrace.core.errors import CallerError
from tailrace.core.fold import State
from tailrace.core.items import ContentPart, TextPart
from tailrace.core.state import ItemNode, TaskNode
from tailrace.core.values import Json, dict_of, dicts_of, json_text, list_of
from tailrace.history.content import HistoryPart, plain, reachable
from tailrace.history.inputs import ClientOutput, read_input
from tailrace.history.openai_responses import content_part
from tailrace.wire.openai_responses.segments import OUTPUTS, answers_start, response_id
from tailrace.wire.projection import is_client, result_of


def answers_with_outputs(
    state: State, given: Any, segment: int, asking: Collection[str] = ()
) -> list[Json]:
    """What a run is sent for the outputs at the end of an `input`, beside its approvals.

    Outputs that the run has already, and those of earlier runs, are left out. `segment` is the
    response that follows, and `asking` has the ids of the response that asks.
    """
    root = state.root
    assert root is not None
    asked = {request.call_id: request.id for request in root.requests if request.kind == "input"}
    found: list[Json] = []
    start = answers_start(given, asking)
    for index, item in enumerate(list_of(given)[start:], start):
        call_id = item.get("call_id")
        node = root.calls.get(call_id) if isinstance(call_id, str) else None
        if item.get("type") not in OUTPUTS or node is None or call_id in root.call_results:
            continue
        if call_id in asked:
            found.append({"request_id": asked[call_id], "value": output_value(item)})
        elif not any(answer.get("call_id") == call_id for answer in _outputs(root)):
            raise CallerError(
                f"The run does not wait for the output of {call_id}. Send it after the approvals, "
                f"with the `previous_response_id` {response_id(root.task_id, segment)}.",
                param=f"input[{index}]",
            )
    return found


def output_value(item: Json) -> Any:
    """The output of a function as the value that a run takes: parts and blocks.

    They have no ids, so the model reads them as it reads the outputs in an `input`. Images are for
    the model only: as blocks, they would be shown as images that the run made.
    """
    [read] = (one for one in read_input([item]) if isinstance(one, ClientOutput))
    parts = [_part(piece) for piece in read.pieces]
    blocks = [part for part in parts if part["type"] != "image_url"]
    return {"message_content": parts, "block_list": blocks}


def _part(piece: HistoryPart) -> Json:
    if isinstance(piece, ContentPart):
        return dict_of(msgspec.to_builtins(piece))
    return {"type": "text", "text": plain(piece)}


def received_outputs(state: State, segment: int | None = None) -> list[Json]:
    """The outputs that a run got from its client, as items; those of a segment, or all."""
    root = state.root
    assert root is not None
    found: list[Json] = []
    for answer in _outputs(root):
        node = root.calls[answer["call_id"]]
        result = result_of(root, node)
        if result is None or (segment and not _is_in(state, segment, result)):
            continue
        kind = "custom_tool_call" if node.item.kind == "custom" else "function_call"  # type: ignore[union-attr]
        about = {"type": f"{kind}_output", "id": f"{result.item.id}_out"}
        about |= {"call_id": answer["call_id"], "output": _shown(answer["value"])}
        found.append({**about, "status": "completed"})
    return found


def _outputs(root: TaskNode) -> list[Json]:
    """The answers that have the output of a client's call."""
    return [
        answer
        for answer in root.answers.values()
        if "value" in answer
        and (node := root.calls.get(answer.get("call_id", ""))) is not None
        and is_client(node.item)
    ]


def _is_in(state: State, segment: int, node: ItemNode) -> bool:
    """Whether an item came in this segment."""
    ends = [*(pause.at for pause in state.pauses[segment:]), state.position]
    return state.pauses[segment - 1].at < node.at <= ends[0]


def _shown(value: Any) -> Any:
    """The value of an output as a client sends it: a text, or content parts."""
    parts = dict_of(value).get("message_content")
    if parts is None:
        return value if isinstance(value, str) else json_text(value)
    read = msgspec.convert(dicts_of(parts), list[ContentPart])
    if len(read) == 1 and isinstance(read[0], TextPart):
        return read[0].text
    return [content_part(part, reachable) for part in read]
