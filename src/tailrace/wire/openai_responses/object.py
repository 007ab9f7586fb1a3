"""A run as OpenAI's `response` object. The last frame of a stream has it too."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Collection, Iterator, Mapping
from operator import sub
from typing import Any

from tailrace.core.approval_pauses import ITEM
from tailrace.core.data_url import is_data_url
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, ToolCall
from tailrace.core.openai_response import error_json, incomplete_details
from tailrace.core.state import ImageNode, TaskNode
from tailrace.core.values import Json, dict_of, list_of
from tailrace.history.content import joined, plain, reachable
from tailrace.history.inputs import (
    ClientOutput,
    InputCall,
    InputItem,
    InputMessage,
    is_aside,
    read_input,
)
from tailrace.history.openai_responses import content_part
from tailrace.wire.openai_responses.items import (
    NO_IMAGES,
    EntryKey,
    cut_short,
    item_json,
    sealed,
    unfinished,
)
from tailrace.wire.openai_responses.outputs import received_outputs
from tailrace.wire.openai_responses.segments import (
    OUTPUTS,
    answer_items,
    approval_items,
    entries,
    is_left_open,
    is_segment_paused,
    response_id,
    speakers,
)
from tailrace.wire.projection import (
    INCOMPLETE_CALL,
    Sources,
    TokenCounts,
    is_client,
    is_cut,
    structured_text,
    token_counts,
    usage_of_run,
)

TOO_LONG = ErrorInfo(
    code="too_long",
    message="The response is too long to be streamed; retrieve it without `stream`.",
)
ECHOED: dict[str, tuple[type, ...]] = {
    "background": (bool,),
    "frequency_penalty": (int, float),
    "instructions": (str,),
    "max_output_tokens": (int,),
    "max_tool_calls": (int,),
    "parallel_tool_calls": (bool,),
    "presence_penalty": (int, float),
    "prompt_cache_key": (str,),
    "reasoning": (dict,),
    "safety_identifier": (str,),
    "service_tier": (str,),
    "store": (bool,),
    "temperature": (int, float),
    "text": (dict,),
    "tool_choice": (str, dict),
    "tools": (list,),
    "top_logprobs": (int,),
    "top_p": (int, float),
    "truncation": (str,),
    "user": (str,),
}
"""The fields of a request that every response repeats, from the task's public `options`."""

CONTENT_PARTS = ("input_text", "input_image", "input_file", "input_audio", "output_text", "refusal")
"""The content parts of a message."""

_FOREIGN = frozenset(("parts", "tool_calls", "tool_call_id"))
"""The fields of messages of other APIs."""

_TIERS = ("auto", "default", "flex", "scale", "priority")


def response_object(
    state: State,
    segment: int | None = None,
    begun: Collection[EntryKey] = (),
    images: Mapping[str, str] = NO_IMAGES,
) -> Json:
    """A segment of the run as a `response`: for `GET /responses/{id}` and for the last frame.

    `begun` are the entries that a stream has begun: the SDKs refuse its end without them. `images`
    has `data:` URLs of images that are elsewhere, by their URLs.
    """
    root = state.root
    if root is None:
        return {}
    sources = Sources(state)
    shown = begun_response(state, segment)
    shown["model"] = speakers(state, root, segment).last
    shown["status"] = "in_progress" if root.status in (None, "input_required") else root.status
    shown["output"] = [
        unfinished(root, key)
        if is_left_open(state, segment, key)
        else item_json(sources, root, key, images)
        for key in entries(state, root, segment)
        if not is_withheld(state, root, segment, key, begun)
    ]
    shown["output"] += approval_items(state, segment)
    tier = (usage_of_run(state) or {}).get("service_tier")
    if tier in _TIERS:  # clients refuse other values
        shown["service_tier"] = tier  # the tier that the provider used, not the requested tier
    time = root.end_time
    if segment is not None and is_segment_paused(state, segment):
        time = state.pauses[segment].time
        shown |= {"status": "completed", "usage": usage_json(state, segment)}
    elif root.ended:
        shown["usage"] = usage_json(state, segment)
        _end(shown, root)
        shown["output"] += [
            *empty_answer(state, root, segment),
            *structured_answer(state, root, segment),
        ]
    if shown["status"] == "completed" and time is not None:
        shown["completed_at"] = int(time)
    return shown


def structured_answer(state: State, root: TaskNode, segment: int | None) -> list[Json]:
    """The structured output of a run as a message, if its last response has no other text."""
    nodes = [root.items[index] for index, _ in entries(state, root, segment)]
    text = structured_text(root, nodes)
    if text is None:
        return []
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    about = {"type": "message", "id": f"msg_{root.task_id}_output", "role": "assistant"}
    return [{**about, "status": "completed", "content": [part]}]


def linked_images(state: State, segment: int | None = None) -> list[str]:
    """The URLs of the images of a response that are not inline."""
    root = state.root
    found = entries(state, root, segment) if root is not None else []
    parts = [root.items[index].parts[block] for index, block in found if block != ITEM]  # type: ignore[union-attr]
    urls = [part.image.image_url.url for part in parts if isinstance(part, ImageNode)]
    return list(dict.fromkeys(url for url in urls if url and not is_data_url(url)))


def empty_answer(state: State, root: TaskNode, segment: int | None) -> list[Json]:
    """An empty message, if the run failed before any other output.

    The AI SDK sends a request again whose stream fails before any item: that would be another run.
    """
    if root.error is None or entries(state, root, segment):
        return []
    ident = f"msg_{root.task_id}_none"
    message = {"type": "message", "id": ident, "role": "assistant"}
    return [{**message, "status": "incomplete", "content": []}]


def is_withheld(
    state: State,
    root: TaskNode,
    segment: int | None,
    key: EntryKey,
    begun: Collection[EntryKey] = (),
) -> bool:
    """Whether a client must not see an entry.

    The arguments of a call are not complete. Or a call was unfinished at the end of its response:
    the next response has it. OpenAI's tool runner stops at a server's call that is not complete.
    """
    node = root.items[key[0]]
    if key[1] != ITEM or not is_left_open(state, segment, key):
        return key[1] == ITEM and is_cut(node)
    return is_client(node.item) or (isinstance(node.item, ToolCall) and key not in begun)


def output_items(state: State) -> list[Json]:
    """The output of all responses of a run. An item that two of them have is as in the last."""
    every = (response_object(state, segment) for segment in range(len(state.pauses) + 1))
    found = {item["id"]: item for response in every for item in response.get("output", ())}
    return list(found.values())


def run_items(state: State) -> list[Json]:
    """A run as items: its input, its output, and behind each call the output that it got."""
    if state.root is None:
        return []
    outputs = {item["call_id"]: item for item in received_outputs(state)}
    found: list[Json] = []
    for item in (*input_items(state), *output_items(state)):
        found.append(item)
        if _kind(item) in _CALLS and _call_id(item) in outputs:
            found.append(outputs.pop(_call_id(item)))
    return found


def compaction_object(state: State) -> Json:
    """A run that compacted its conversation, as `POST /responses/compact` returns it."""
    root = state.root
    assert root is not None
    ident, reference = f"cmp_{root.task_id}", sealed("compaction", root.task_id)
    item = {"type": "compaction", "id": ident, "encrypted_content": reference}
    return {
        "id": response_id(root.task_id),
        "object": "response.compaction",
        "created_at": int(root.facts.get("created_at", 0)),
        "output": [item],
        "usage": usage_json(state),
    }


def compaction_run(item: Any) -> str | None:
    """The run that a compaction item refers to; None for an item that is not of ours."""
    reference = dict_of(item).get("encrypted_content")
    if not isinstance(reference, str):
        return None
    try:
        found = urlsafe_b64decode(reference.encode()).decode()
    except ValueError:
        return None
    start = "tailrace compaction "
    return found.removeprefix(start) if found.startswith(start) else None


def is_compaction(item: Any) -> bool:
    """Whether an input item stands for a compacted conversation."""
    return isinstance(item, dict) and item.get("type") == "compaction"


_CALLS = ("function_call", "custom_tool_call", "mcp_call")


def calls_of(given: Any) -> set[str]:
    """The ids of the calls that an `input` contains."""
    return {_call_id(item) for item in list_of(given) if _kind(item) in _CALLS}


def outputs_of(given: Any) -> dict[str, str]:
    """The outputs of client functions in an `input`: their call ids, each with its field."""
    items = list_of(given)
    return {
        _call_id(item): f"input[{index}].call_id"
        for index, item in enumerate(items)
        if _kind(item) in OUTPUTS
    }


def _kind(item: Any) -> Any:
    return dict_of(item).get("type")


def _call_id(item: Json) -> str:
    return str(item.get("call_id") or item.get("id"))


def input_items(state: State, segment: int | None = None) -> list[Json]:
    """The input of a response as items, each with an id."""
    if segment:
        return [*answer_items(state, segment), *received_outputs(state, segment)]
    root = state.root
    given = root.facts.get("input") if root is not None else None
    if root is None or given is None:
        return []
    items = given if isinstance(given, list) else [given]
    if not all(map(_is_item, items)):  # the input of another API
        items = [item for entry in read_input(given) for item in _read_item(entry)]
    return [_input_item(item, f"{root.task_id}_in{index}") for index, item in enumerate(items)]


def _is_item(value: Any) -> bool:
    """Whether a value is an item or a message of this API, which is shown as it came."""
    if not isinstance(value, dict) or is_aside(value):
        return False
    if "role" not in value:
        return isinstance(value.get("type"), str) and value["type"] not in CONTENT_PARTS
    content = value.get("content")
    parts = list_of(content)
    known = all(isinstance(part, dict) and part.get("type") in CONTENT_PARTS for part in parts)
    return known and isinstance(content, str | list) and not value.keys() & _FOREIGN


def _read_item(given: InputItem) -> Iterator[Json]:
    if isinstance(given, InputMessage):
        spoken = given.role == "assistant"
        texts = ({"type": "output_text", "text": plain(p), "annotations": []} for p in given.pieces)
        content = list(texts) if spoken else [content_part(p, reachable) for p in given.pieces]
        yield {"role": given.role, "content": content}
    elif isinstance(given, InputCall):
        call = {"call_id": given.call_id, "name": given.name}
        if given.kind == "custom":
            yield {"type": "custom_tool_call", **call, "input": given.arguments}
        else:
            yield {"type": "function_call", **call, "arguments": given.arguments}
    elif isinstance(given, ClientOutput):
        output = {"call_id": given.call_id, "output": joined(given.pieces)}
        yield {"type": "function_call_output", **output}


def _input_item(item: Json, ident: str) -> Json:
    if "role" not in item:
        return {"id": f"item_{ident}", **item}
    content = item["content"]
    if isinstance(content, str):
        if item["role"] == "assistant":
            content = [{"type": "output_text", "text": content, "annotations": []}]
        else:
            content = [{"type": "input_text", "text": content}]
    whole = {"type": "message", "id": f"msg_{ident}", "status": "completed"}
    return {**whole, **item, "content": content}


def failed_response(state: State, error: ErrorInfo, segment: int | None = None) -> Json:
    """The response of a stream that ends before its run does."""
    shown = response_object(state, segment)
    return {
        **shown,
        "output": [cut_short(item) for item in shown["output"]],
        "status": "failed",
        "completed_at": None,
        "error": error_json(error),
        "usage": usage_json(state, segment),
    }


def _end(shown: Json, root: TaskNode) -> None:
    if root.status == "incomplete":
        shown["incomplete_details"] = incomplete_details(root.reason)
    if root.error is not None:
        shown["error"] = error_json(root.error)
    elif any(is_cut(node) and not node.superseded for node in root.items.values()):
        # A client must not take a cut call for a complete call.
        shown["error"] = error_json(INCOMPLETE_CALL)
        if root.status != "cancelled":
            shown["status"] = "failed"


def begun_response(state: State, segment: int | None = None, agent: str | None = None) -> Json:
    """The response before its first item; `agent` has taken over since it began."""
    root = state.root
    assert root is not None
    facts = root.facts
    previous, metadata = facts.get("previous_run_id"), facts.get("metadata")
    plain = isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())
    shown: Json = {
        "id": response_id(root.task_id, segment),
        "object": "response",
        "created_at": int(facts.get("created_at", 0)),
        "status": "queued" if root.status == "queued" else "in_progress",
        "completed_at": None,
        "background": False,
        "error": None,
        "frequency_penalty": 0.0,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": metadata if plain else {},
        "model": agent or speakers(state, root, segment).first,
        "output": [],
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "previous_response_id": response_id(previous) if previous else None,
        "prompt_cache_key": None,
        "reasoning": None,
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
        "user": None,
    }
    options = facts.get("options")
    if isinstance(options, dict):
        shown |= _whole(echoed(options))
        if "previous_response_id" in options:
            shown["previous_response_id"] = options["previous_response_id"]
    if segment:
        shown["previous_response_id"] = response_id(root.task_id, segment - 1)
    return shown


def _whole(options: Json) -> Json:
    """The options with the inner fields that OpenAI's and Open Responses' schemas require."""
    if "text" in options:
        options["text"] = {"format": {"type": "text"}, **options["text"]}
    if "reasoning" in options:
        options["reasoning"] = {"effort": None, "summary": None, **options["reasoning"]}
    if "tools" in options:
        options["tools"] = [
            _FUNCTION | tool if isinstance(tool, dict) and tool.get("type") == "function" else tool
            for tool in options["tools"]
        ]
    return options


_FUNCTION: Json = {"description": None, "parameters": None, "strict": False}


def echoed(request: Mapping[str, Any]) -> Json:
    """The fields of a request that every response repeats: the public `options` of its run."""
    return {name: request[name] for name in ECHOED if _is_echo(name, request.get(name))}


def _is_echo(name: str, value: Any) -> bool:
    # In Python `True` is an `int`, but not a temperature.
    kinds = ECHOED[name]
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def usage_json(state: State, segment: int | None = None) -> Json:
    """The usage of the run with its sub-agents, in a segment."""
    counts = token_counts(state)
    if segment is not None and is_segment_paused(state, segment):
        counts = TokenCounts(**state.pauses[segment].used)
    if segment:
        before = TokenCounts(**state.pauses[segment - 1].used)
        counts = TokenCounts(*map(sub, counts, before))
    return _usage(counts)


def no_usage() -> Json:
    """The usage of a response that no model call belongs to."""
    return _usage(TokenCounts(*(0 for _ in TokenCounts._fields)))


def _usage(counts: TokenCounts) -> Json:
    return {
        "input_tokens": counts.input_tokens,
        "input_tokens_details": {
            "cached_tokens": counts.cached_input_tokens,
            "cache_write_tokens": counts.cache_write_tokens,
        },
        "output_tokens": counts.output_tokens,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning_tokens},
        "total_tokens": counts.input_tokens + counts.output_tokens,
    }
