"""The chunks of the AI SDK's UI message stream, and what stands in them.

The client validates every chunk against a closed union (`uiMessageChunkSchema`): a type of our own
must begin with `data-`, and an optional field is absent, never null. Our own objects keep the names
of PROTOCOL.md; only their offsets are the client's, which counts UTF-16.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tailrace.core.citations import to_utf16
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
from tailrace.core.state import ImageNode, ItemNode, Part, TaskNode, TextNode, WholeNode
from tailrace.core.view import Json, show_block, show_own, show_task
from tailrace.wire.base import Frame

encode_json = msgspec.json.Encoder().encode

DONE: Frame = b"data: [DONE]\n\n"
"""The last frame of every response: whoever wrote it closes the connection."""

_RESERVED = frozenset(
    ("block", "delta", "notice", "output", "progress", "request", "step", "task", "task-item")
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
    """One chunk as a frame."""
    return b"data: %b\n\n" % tame(encode_json({"type": kind, **fields}))


def tame(raw: bytes) -> bytes:
    """JSON that the AI SDK's parser takes.

    It throws on keys that could pollute a prototype, which ends the stream; a model or a tool may
    well have written one.
    """
    if b'"__proto__":' in raw or b'"constructor":' in raw:
        return encode_json(_tamed(msgspec.json.decode(raw)))
    return raw


def _tamed(value: Any) -> Any:
    if isinstance(value, list):
        return [_tamed(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key + "_" if _pollutes(key, item) else key: _tamed(item) for key, item in value.items()}


def _pollutes(key: str, value: Any) -> bool:
    if key == "constructor":
        return isinstance(value, dict) and "prototype" in value
    return key == "__proto__"


def part_id(item_id: str, index: int) -> str:
    """The id of a text or reasoning part: no other item can have the same."""
    return f"{item_id}/{index}"


def live_id(task: TaskNode, node: ItemNode, index: int) -> str:
    """Where a piece of a result or sub-agent belongs: short, since every token carries one."""
    return f"{task.task_index}/{node.output_index}/{index}"


# --- text ----------------------------------------------------------------------------------------


def text_start(node: ItemNode, index: int, part: TextNode) -> Frame:
    """Where a text begins; what kind of text it is goes into `providerMetadata`."""
    about: Json = {}
    if isinstance(node.item, Message) and node.item.phase is not None:
        about["phase"] = node.item.phase
    if part.kind == "refusal":
        about["refusal"] = True
    extra = {"providerMetadata": {"tailrace": about}} if about else {}
    return chunk("text-start", id=part_id(node.id, index), **extra)


def channel(node: ItemNode) -> dict[int, TextNode]:
    """The parts that are shown: of a reasoning its summary or its raw text, what came first.

    Never both: whoever sends both sends the same thoughts twice.
    """
    summary: dict[int, TextNode] = node.parts  # type: ignore[assignment]
    texts = node.texts
    if texts and (not summary or _first(texts) < _first(summary)):
        return texts
    return summary


def _first(parts: dict[int, TextNode]) -> int:
    return next(iter(parts.values())).at


class Place(NamedTuple):
    """Where a cited block is: `output[block_index]` of a call, or of a task's item."""

    task: TaskNode
    node: ItemNode
    block_index: int
    part: Part


Places = Mapping[int, Sequence[Place]]


def text_end(
    node: ItemNode, index: int, part: TextNode, places: Places, previous: str | None
) -> list[Frame]:
    """Where a text ends: its citations, and each cited source once as a part of the message."""
    ident = part_id(node.id, index)
    sources: dict[str, Json] = {}
    cited: list[Json] = []
    shown = _in_utf16(part.text, part.annotations)
    for annotation, offsets in zip(part.annotations, shown, strict=True):
        source = _source(annotation, part.at, places, previous)
        if source is None:
            continue
        sources.setdefault(source["id"], source)
        citation: Json = {"source": source}
        for name, ours in (("startIndex", "start_index"), ("endIndex", "end_index")):
            if ours in offsets:
                citation[name] = offsets[ours]
        cited.append(citation)
    extra = {"citations": cited} if cited else {}
    return [chunk("text-end", id=ident, **extra), *map(_source_part, sources.values())]


def _source(annotation: Annotation, at: int, places: Places, previous: str | None) -> Json | None:
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
        for place in places.get(number, ()):
            # What came after the text began cannot be meant: its writer had not seen it.
            if place.part.at < at:
                return _block_source(number, place)
        about = {"reference_id": number}  # type: ignore[dict-item]
        if previous is not None:
            about["previous_run_id"] = previous
        return _document(f"{previous or ''}#{number}", "text/plain", f"Reference {number}", about)
    return None


def _block_source(number: int, place: Place) -> Json:
    task, node, index, part = place
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
    places = [(one, name) for one in shown for name in ("start_index", "end_index") if name in one]
    for (one, name), offset in zip(
        places, to_utf16(text, [one[name] for one, name in places]), strict=True
    ):
        one[name] = offset
    return shown


# --- other blocks --------------------------------------------------------------------------------


def image_type(url: str) -> str:
    """The media type of an image; `image/*` is legal, and enough for `startsWith("image/")`."""
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
    """A block of JSON under its own name, as `data-<name>`."""
    name = _NOT_IN_NAMES.sub("-", block.name or "") or "value"
    if name in _RESERVED:
        name += "_"
    return chunk(f"data-{name}", id=ident, data=block.data)


def shown_block(part: Part) -> Json:
    """A block as the client's view shows it, but for UTF-16 offsets."""
    shown = show_block(part)
    if isinstance(part, TextNode) and part.annotations:
        shown["annotations"] = _in_utf16(part.text, part.annotations)
    return shown


def live_block(task: TaskNode, node: ItemNode, index: int, part: Part) -> Frame:
    """A block inside a result or a sub-agent, as soon as it can be seen."""
    ident = live_id(task, node, index)
    return chunk("data-block", id=ident, transient=True, data=shown_block(part))


# --- tools ---------------------------------------------------------------------------------------


def tool_fields(call: ToolCall) -> Json:
    """What every chunk about a call's input carries.

    `providerExecuted` keeps the client from running the tool and from answering by itself;
    `dynamic` means that it need not know the tool.
    """
    fields: Json = {"toolCallId": call.call_id, "toolName": call.name}
    if call.executor != "client":
        fields |= {"providerExecuted": True, "dynamic": True}
    return fields


def tool_kind(call: ToolCall) -> Json:
    """What kind of call it is, where it is none of a function: known when it begins."""
    if call.kind == "function":
        return {}
    about = {"kind": call.kind}
    if call.server_label is not None:
        about["server_label"] = call.server_label
    return {"providerMetadata": {"tailrace": about}}


def tool_input(call: ToolCall, arguments: str, *, carried_out: bool = False) -> Frame:
    """The whole input of a completed call, or that it is none."""
    fields = tool_fields(call)
    if carried_out:
        fields["providerExecuted"] = True
    fields |= tool_kind(call)
    value: Any = arguments
    if call.kind != "custom":  # whose input is free text
        try:
            value = msgspec.json.decode(arguments or "{}")
        except (msgspec.DecodeError, RecursionError):
            if call.executor == "provider":  # its own tool took them as they are, such as code
                return chunk("tool-input-available", **fields, input=arguments)
            text = "The arguments are not JSON."
            return chunk("tool-input-error", **fields, input=arguments, errorText=text)
    return chunk("tool-input-available", **fields, input=value)


def tool_cut(call: ToolCall, arguments: str, text: str) -> Frame:
    """A call that nobody will carry out: marked as the server's, so that no client does."""
    fields = tool_fields(call) | {"providerExecuted": True}
    return chunk("tool-input-error", **fields, input=arguments, errorText=text)


def tool_output(call: ToolCall, result: ItemNode, children: Iterable[TaskNode]) -> Frame:
    """What a call gave: its blocks by index, then the tasks that worked on it."""
    if result.item.status != "completed":
        error = result.item.error  # type: ignore[union-attr]  # a ToolResult
        text = "The tool was interrupted." if error is None else error.message or error.code
        return tool_failed(call, text)
    output = [shown_block(part) for _, part in sorted(result.parts.items())]
    output += [
        {"type": "task", "task_id": child.task_id}
        for child in children
        if child.call_id == call.call_id
    ]
    return chunk("tool-output-available", **_answer_fields(call), output=output)


def tool_failed(call: ToolCall, text: str) -> Frame:
    """A call that gave nothing."""
    return chunk("tool-output-error", **_answer_fields(call), errorText=text)


def _answer_fields(call: ToolCall) -> Json:
    fields = tool_fields(call) | {"providerExecuted": True}
    del fields["toolName"]
    return fields


# --- sub-agents, and what passes by --------------------------------------------------------------


def task_part(task: TaskNode) -> Frame:
    """A sub-agent: who it is and how it fares; a later chunk with the same id replaces it."""
    shown = show_task(task) | {"task_index": task.task_index}
    data = {name: shown[name] for name in _TASK_FIELDS if name in shown}
    return chunk("data-task", id=task.task_id, data=data)


def task_item(task: TaskNode, node: ItemNode, *, transient: bool) -> Frame:
    """An item of a sub-agent as far as it is, without what its own sub-agents did.

    Nor with what changes after its end: how far a call has come passes by as `data-progress`.
    """
    shown = show_own(node)
    shown.pop("started", None)
    shown.pop("progress", None)
    shown.pop("summary" if channel(node) is node.texts else "reasoning_text", None)
    if "block_list" in shown:
        shown["block_list"] = [shown_block(part) for _, part in sorted(node.parts.items())]
    extra = {"transient": True} if transient else {}
    ident = f"{task.task_id}/{node.output_index}"
    return chunk("data-task-item", id=ident, **extra, data={"task_id": task.task_id, **shown})


def request_part(task: TaskNode, request: InputRequest) -> Frame:
    """A question to the person, for which the AI SDK has no chunk of its own."""
    data = {"task_id": task.task_id, **msgspec.to_builtins(request)}
    return chunk("data-request", id=request.id, data=data)


def step(task: TaskNode, index: int) -> Frame:
    """A named stage that began or ended."""
    one = task.steps[index]
    data = {
        "task_id": task.task_id,
        "step_index": index,
        "name": one.name,
        "depth": one.depth,
        "status": "in_progress" if one.is_open else "completed",
    }
    return chunk("data-step", id=f"{task.task_id}/{index}", transient=True, data=data)


def notice(task: TaskNode, index: int) -> Frame:
    """Something for the person who watches; its id lets a page that reconnects show it once."""
    data = {"task_id": task.task_id, **task.notices[index]}
    return chunk("data-notice", id=f"{task.task_id}/{index}", transient=True, data=data)


def progress(task: TaskNode, call_id: str | None, value: Json) -> Frame:
    """How far a call, or a task, has come."""
    data = {"task_id": task.task_id}
    if call_id is not None:
        data["call_id"] = call_id
    return chunk("data-progress", id=call_id or task.task_id, transient=True, data=data | value)
