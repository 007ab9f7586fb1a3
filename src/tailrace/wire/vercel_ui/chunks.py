"""The chunks of the AI SDK's UI message stream.

The client validates every chunk against a closed union (`uiMessageChunkSchema`): types of our own
begin with `data-`, and an optional field is absent, never null. Our own objects have the names of
PROTOCOL.md, except that offsets count UTF-16 units, as the client does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tailrace.core.citations import to_utf16
from tailrace.core.closing_events import TOOL_INTERRUPTED
from tailrace.core.items import (
    Annotation,
    Data,
    File,
    FileCitation,
    InputRequest,
    Message,
    ReferenceToBlock,
    ToolCall,
    UrlCitation,
)
from tailrace.core.run_object import show_block, show_own, show_task
from tailrace.core.state import ImageNode, ItemNode, Part, TaskNode, TextNode, WholeNode
from tailrace.core.tool_arguments import NOT_JSON, arguments_value
from tailrace.core.values import Json
from tailrace.wire.base import Frame, safe_json
from tailrace.wire.projection import CitedBlock, Sources, is_client, is_raw_first

encode_json = msgspec.json.Encoder().encode

"""The last frame of every response."""

_RESERVED = frozenset(
    (
        *("agent", "block", "delta", "history", "notice", "output", "progress", "request", "step"),
        *("task", "task-item"),
    )
)
_NOT_IN_NAMES = re.compile("[^A-Za-z0-9_-]")
_IMAGES = {"jpg": "jpeg", "svg": "svg+xml"} | {
    name: name for name in ("avif", "bmp", "gif", "jpeg", "png", "webp")
}
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)[;,]", re.ASCII)
_SUFFIX = re.compile(r"\.(\w{3,4})(?:[?#]|$)", re.ASCII)
_TASK_FIELDS = (
    "task_id",
    "task_index",
    "parent_task_id",
    "call_id",
    "agent",
    "model",
    "status",
    "requests",
    "structured_output",
    "usage",
    "error",
    "reason",
)


def chunk(kind: str, /, **fields: Any) -> Frame:
    """A chunk as a frame."""
    return b"data: %b\n\n" % safe_json(encode_json({"type": kind, **fields}))


def part_id(item_id: str, index: int) -> str:
    """The id of a text or reasoning part, unique in the run."""
    return f"{item_id}/{index}"


def live_id(task: TaskNode, node: ItemNode, index: int) -> str:
    """The id of a part of a result or sub-agent. It is short, because every delta has it."""
    return f"{task.task_index}/{node.output_index}/{index}"


# --- text ----------------------------------------------------------------------------------------


def text_start(node: ItemNode, index: int, part: TextNode) -> Frame:
    """The start of a text; `providerMetadata` has its phase and whether it is a refusal."""
    about: Json = {}
    if isinstance(node.item, Message) and node.item.phase is not None:
        about["phase"] = node.item.phase
    if part.kind == "refusal":
        about["refusal"] = True
    extra = {"providerMetadata": {"tailrace": about}} if about else {}
    return chunk("text-start", id=part_id(node.id, index), **extra)


def text_end(
    sources: Sources, root: TaskNode, node: ItemNode, index: int, part: TextNode
) -> list[Frame]:
    """The end of a text with its citations, and each cited source once as a part."""
    ident = part_id(node.id, index)
    parts: dict[str, Json] = {}
    cited: list[Json] = []
    shown = _in_utf16(part.text, part.annotations)
    for annotation, offsets in zip(part.annotations, shown, strict=True):
        source = _source(sources, root, annotation, part.at)
        if source is None:
            continue
        parts.setdefault(source["id"], source)
        citation: Json = {"source": source}
        for name, ours in (("startIndex", "start_index"), ("endIndex", "end_index")):
            if ours in offsets:
                citation[name] = offsets[ours]
        cited.append(citation)
    extra = {"citations": cited} if cited else {}
    return [chunk("text-end", id=ident, **extra), *map(_source_part, parts.values())]


def _source(sources: Sources, root: TaskNode, annotation: Annotation, at: int) -> Json | None:
    if isinstance(annotation, UrlCitation):
        return _url_source(annotation.url, annotation.url, annotation.title)
    if isinstance(annotation, FileCitation):
        name = annotation.filename
        about = {"file_id": annotation.file_id}
        if annotation.container_id is not None:
            about["container_id"] = annotation.container_id
        source = _document(annotation.file_id, "application/octet-stream", name or "File", about)
        return source | {"filename": name} if name else source
    if isinstance(annotation, ReferenceToBlock):
        number = annotation.reference_id
        _, _, block = sources.find(root.task_id, number, at)
        if block is not None:
            return _block_source(number, block)
        about = {"reference_id": number}  # type: ignore[dict-item]
        previous = root.facts.get("previous_run_id")
        if previous is not None:
            about["previous_run_id"] = previous
        return _document(f"{previous or ''}#{number}", "text/plain", f"Reference {number}", about)
    return None


def _block_source(number: int, block: CitedBlock) -> Json:
    task, node, index, part = block
    about: Json = {
        "reference_id": number,
        "task_id": task.task_id,
        "output_index": node.output_index,
        "block_index": index,
        "call_id": node.item.call_id,  # type: ignore[union-attr]  # only results hold references
    }
    ident = f"{task.task_id}/{node.output_index}/{index}"
    title = f"Reference {number}"
    if isinstance(part, TextNode):
        return _document(ident, "text/plain", title, about)
    if isinstance(part, WholeNode) and isinstance(part.block, Data):
        return _document(ident, "application/json", part.block.name or title, about)
    if isinstance(part, ImageNode):
        url, name, media = part.image.image_url.url, None, image_type(part.image.image_url.url)
    else:
        assert isinstance(part.block, File)
        url, name, media = part.block.url, part.block.name, part.block.mime_type
    if url.startswith(("https://", "http://")):
        return _url_source(ident, url, name or title) | {"providerMetadata": {"tailrace": about}}
    return _document(ident, media, name or title, about)


def _url_source(ident: str, url: str, title: str) -> Json:
    source: Json = {"type": "source", "sourceType": "url", "id": ident, "url": url}
    return source | {"title": title} if title else source


def _document(ident: str, media_type: str, title: str, about: Json) -> Json:
    return {
        "type": "source",
        "sourceType": "document",
        "id": ident,
        "mediaType": media_type,
        "title": title,
        "providerMetadata": {"tailrace": about},
    }


def _source_part(source: Json) -> Frame:
    fields = {
        name: value for name, value in source.items() if name not in ("type", "sourceType", "id")
    }
    return chunk(f"source-{source['sourceType']}", sourceId=source["id"], **fields)


def _in_utf16(text: str, annotations: Sequence[Annotation]) -> list[Json]:
    shown: list[Json] = msgspec.to_builtins(annotations)
    names = ("start_index", "end_index")
    fields = [(citation, name) for citation in shown for name in names if name in citation]
    offsets = to_utf16(text, [citation[name] for citation, name in fields])
    for (citation, name), offset in zip(fields, offsets, strict=True):
        citation[name] = offset
    return shown


# --- other blocks --------------------------------------------------------------------------------


def image_type(url: str) -> str:
    """The media type of an image; `image/*` if it is unknown, which clients accept."""
    found = _DATA_URL.match(url)
    if found:
        return found[1]
    suffix = None if url.startswith("data:") else _SUFFIX.search(url)
    return "image/" + _IMAGES.get(suffix[1].lower() if suffix else "", "*")


def file_part(part: ImageNode | WholeNode) -> Frame:
    """A file or a finished image of a message."""
    if isinstance(part, ImageNode):
        url = part.image.image_url.url
        return chunk("file", url=url, mediaType=image_type(url))
    about = msgspec.to_builtins(part.block)
    for name in ("type", "url", "mime_type"):
        about.pop(name, None)
    extra = {"providerMetadata": {"tailrace": about}} if about else {}
    assert isinstance(part.block, File)
    return chunk("file", url=part.block.url, mediaType=part.block.mime_type, **extra)


def data_part(ident: str, block: Data) -> Frame:
    """A data block as `data-<name>`."""
    name = _NOT_IN_NAMES.sub("-", block.name or "") or "value"
    if name in _RESERVED:
        name += "_"
    return chunk(f"data-{name}", id=ident, data=block.data)


def shown_block(part: Part) -> Json:
    """A block as in the client's view, with UTF-16 offsets."""
    shown = show_block(part)
    if isinstance(part, TextNode) and part.annotations:
        shown["annotations"] = _in_utf16(part.text, part.annotations)
    return shown


def live_block(task: TaskNode, node: ItemNode, index: int, part: Part) -> Frame:
    """A block of a result or a sub-agent, while it is made."""
    ident = live_id(task, node, index)
    return chunk("data-block", id=ident, transient=True, data=shown_block(part))


# --- tools ---------------------------------------------------------------------------------------


def tool_fields(call: ToolCall) -> Json:
    """The fields of every chunk about a call's input.

    With `providerExecuted` the client does not run the tool; with `dynamic` it need not know it.
    """
    fields: Json = {"toolCallId": call.call_id, "toolName": call.name}
    if not is_client(call):
        fields |= {"providerExecuted": True, "dynamic": True}
    return fields


def tool_kind(call: ToolCall) -> Json:
    """The kind of a call that is not of a function."""
    if call.kind == "function":
        return {}
    about = {"kind": call.kind}
    if call.server_label is not None:
        about["server_label"] = call.server_label
    return {"providerMetadata": {"tailrace": about}}


def tool_input(call: ToolCall, arguments: str, *, is_answered: bool = False) -> Frame:
    """The complete input of a call, or an error if it is not JSON."""
    fields = tool_fields(call)
    if is_answered:
        fields["providerExecuted"] = True
    fields |= tool_kind(call)
    value: Any = arguments
    if call.kind != "custom":  # the input of a custom tool is free text
        value = arguments_value(arguments, NOT_JSON)
        if value is NOT_JSON:
            if call.executor == "provider":  # a provider's tool may take other text, such as code
                return chunk("tool-input-available", **fields, input=arguments)
            text = "The arguments are not JSON."
            return chunk("tool-input-error", **fields, input=arguments, errorText=text)
    return chunk("tool-input-available", **fields, input=value)


def tool_cut(call: ToolCall, arguments: str, text: str) -> Frame:
    """A call that will not be executed; `providerExecuted` keeps the client from running it."""
    fields = tool_fields(call) | {"providerExecuted": True}
    return chunk("tool-input-error", **fields, input=arguments, errorText=text)


def tool_result(call: ToolCall, result: ItemNode, children: Iterable[TaskNode]) -> Frame:
    """The result of a call: its blocks, then the sub-agents that worked on it."""
    if result.item.status != "completed":
        error = result.item.error  # type: ignore[union-attr]  # a ToolResult
        error = error or TOOL_INTERRUPTED
        return tool_failed(call, error.message or error.code)
    output = [shown_block(part) for _, part in sorted(result.parts.items())]
    output += [
        {"type": "task", "task_id": child.task_id}
        for child in children
        if child.call_id == call.call_id
    ]
    return chunk("tool-output-available", **_answer_fields(call), output=output)


def tool_failed(call: ToolCall, text: str) -> Frame:
    """A call without a result."""
    return chunk("tool-output-error", **_answer_fields(call), errorText=text)


def _answer_fields(call: ToolCall) -> Json:
    fields = tool_fields(call) | {"providerExecuted": True}
    del fields["toolName"]
    return fields


# --- sub-agents and transient parts --------------------------------------------------------------


def task_part(task: TaskNode) -> Frame:
    """A sub-agent and its status; a later chunk with the same id replaces this."""
    shown = show_task(task) | {"task_index": task.task_index}
    data = {name: shown[name] for name in _TASK_FIELDS if name in shown}
    return chunk("data-task", id=task.task_id, data=data)


def task_item(task: TaskNode, node: ItemNode, *, transient: bool) -> Frame:
    """An item of a sub-agent so far, without its own sub-agents.

    Progress is left out, because it changes after the item's end: `data-progress` has it.
    """
    shown = show_own(node)
    shown.pop("started", None)
    shown.pop("progress", None)
    shown.pop("summary" if is_raw_first(node) else "reasoning_text", None)
    if "block_list" in shown:
        shown["block_list"] = [shown_block(part) for _, part in sorted(node.parts.items())]
    extra = {"transient": True} if transient else {}
    ident = f"{task.task_id}/{node.output_index}"
    return chunk("data-task-item", id=ident, **extra, data={"task_id": task.task_id, **shown})


def request_part(task: TaskNode, request: InputRequest) -> Frame:
    """A request for input, for which the AI SDK has no chunk."""
    data = {"task_id": task.task_id, **msgspec.to_builtins(request)}
    return chunk("data-request", id=request.id, data=data)


def step(task: TaskNode, index: int) -> Frame:
    """A step that began or ended."""
    node = task.steps[index]
    data = {
        "task_id": task.task_id,
        "step_index": index,
        "name": node.name,
        "depth": node.depth,
        "status": node.status,
    }
    return chunk("data-step", id=f"{task.task_id}/{index}", transient=True, data=data)


def notice(task: TaskNode, index: int) -> Frame:
    """A notice; by its id a page that reconnects shows it only once."""
    data = {"task_id": task.task_id, **task.notices[index]}
    return chunk("data-notice", id=f"{task.task_id}/{index}", transient=True, data=data)


def agent(task: TaskNode, index: int) -> Frame:
    """Who speaks from here on."""
    data = {"task_id": task.task_id, **task.switches[index]}
    return chunk("data-agent", id=f"{task.task_id}/{index}", transient=True, data=data)


def compacted(task: TaskNode) -> Frame:
    """The summary that stands for the older runs of the conversation."""
    data = {"task_id": task.task_id, **(task.compacted or {})}
    return chunk("data-history", id=task.task_id, transient=True, data=data)


def progress(task: TaskNode, call_id: str | None, value: Json) -> Frame:
    """The progress of a call or a task."""
    data = {"task_id": task.task_id}
    if call_id is not None:
        data["call_id"] = call_id
    return chunk("data-progress", id=call_id or task.task_id, transient=True, data=data | value)
