"""The output items of OpenAI's Responses API that a run becomes.

The API has a single list of items. This module decides which of our items and blocks are in it, in
which order, and what their JSON is.

| here | there |
| --- | --- |
| reasoning | `reasoning`: the summary; raw text too if it came before any summary |
| message | `message`: texts, refusals, and files as links; data blocks are left out |
| tool_call, executor `client` | `function_call`, or `custom_tool_call` for the kind `custom` |
| tool_call of a provider's code interpreter | `code_interpreter_call`: its images are `outputs` |
| any other tool_call with its result | `mcp_call`: the SDKs do not try to execute it |
| image in a result or a message | `image_generation_call` |
| approval of a server's call | `mcp_approval_request`; the response ends with it (`segments.py`) |
| structured output of a run without text | `message`: its JSON |
| raw item, a sub-agent's items | nothing: the sub-agent's last message is its call's `output` |
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tailrace.core.approval_pauses import ITEM
from tailrace.core.data_url import data_type
from tailrace.core.items import (
    Annotation,
    ErrorInfo,
    FileCitation,
    Image,
    ImageUrl,
    Item,
    Message,
    Reasoning,
    ReferenceToBlock,
    ToolCall,
    ToolResult,
    UrlCitation,
)
from tailrace.core.state import ImageNode, ItemNode, Part, TaskNode, TextNode
from tailrace.core.tool_arguments import is_json
from tailrace.core.values import Json, dict_of, json_text
from tailrace.wire.projection import (
    Sources,
    arguments_of,
    block_text,
    file_link,
    inline_image,
    is_client,
    is_cut,
    is_raw_first,
    output_text,
    result_of,
    server_name,
)

EntryKey = tuple[int, int]
"""An entry of `output`: our item's index, and the block's index if it is an image, else `ITEM`."""

CONTAINER = "provider"
"""The container of a code interpreter. The API requires an id, and the real id is private."""

SEALED_REASONING = "reasoning.encrypted_content"
"""The value of `include` that asks for reasoning which can be sent back."""

APPROVAL_REQUEST = "mcp_approval_request"

NO_IMAGES: Mapping[str, str] = {}

_FORMATS = {"png": "png", "webp": "webp", "jpeg": "jpeg", "gif": "gif", "svg+xml": "svg"}


# --- which entries there are ---------------------------------------------------------------------


def keys(task: TaskNode, superseded: Collection[int] | None = None) -> list[EntryKey]:
    """The entries of `output`, in order of arrival.

    A call that people may be asked for arrives when it begins: a response that ends with the
    request has no end for the call.
    `superseded` are the items that were superseded then, if not those of now.
    """
    found: list[tuple[int, int, int]] = []
    for index, node in task.items.items():
        if node.superseded if superseded is None else index in superseded:
            continue
        if is_entry(node.item) and node.begun_at is not None:
            found.append((node.begun_at, node.output_index, ITEM))
        if isinstance(node.item, Message | ToolResult) and not is_code_result(task, node):
            found += [
                (part.at, node.output_index, index)
                for index, part in node.parts.items()
                if part.kind == "image"
            ]
    return [(output_index, block_index) for _, output_index, block_index in sorted(found)]


def is_entry(item: Item) -> bool:
    """Whether an item of ours is an entry. What an MCP server asks is only a request."""
    if isinstance(item, ToolCall):
        return item.kind != APPROVAL_REQUEST
    return isinstance(item, Reasoning | Message)


def is_code(item: Item) -> bool:
    """Whether a call is of a provider's code interpreter: its arguments are the code."""
    is_theirs = isinstance(item, ToolCall) and item.executor == "provider"
    return is_theirs and item.kind == "code_interpreter"  # type: ignore[union-attr]


def is_code_result(task: TaskNode, node: ItemNode) -> bool:
    """Whether an item is the result of a code interpreter, whose images are not entries."""
    call = task.calls.get(node.item.call_id) if isinstance(node.item, ToolResult) else None
    return call is not None and is_code(call.item)


def is_closed(task: TaskNode, key: EntryKey) -> bool:
    """Whether an entry cannot change any more. A server's call stays open until its result."""
    node = task.items[key[0]]
    if key[1] != ITEM:
        return not node.parts[key[1]].is_open
    if node.is_open or not isinstance(node.item, ToolCall):
        return not node.is_open
    if is_client(node.item):
        return not is_cut(node)
    result = result_of(task, node)
    return (
        task.ended or node.item.status != "completed" or (result is not None and not result.is_open)
    )


def in_order(parts: Iterable[Any]) -> list[Any]:
    """Parts in order of arrival."""
    return sorted(parts, key=lambda part: part.at)


def is_content(part: Part) -> bool:
    """Whether a block of a message is in its `content`."""
    return part.kind in ("text", "refusal", "file")


# --- items ---------------------------------------------------------------------------------------


def begun(task: TaskNode, key: EntryKey) -> Json:
    """An item as `response.output_item.added` has it: open and empty."""
    node = task.items[key[0]]
    item = node.item
    if key[1] != ITEM:
        return {
            "type": "image_generation_call",
            "id": image_id(node, key[1]),
            "status": "in_progress",
            "result": None,
        }
    if isinstance(item, Reasoning):
        return {"type": "reasoning", "id": item.id, "status": "in_progress", "summary": []}
    if isinstance(item, ToolCall):
        return _begun_call(task, item)
    shown: Json = {
        "type": "message",
        "id": item.id,
        "status": "in_progress",
        "role": "assistant",
        "content": [],
    }
    phase = getattr(item, "phase", None)
    if phase in ("commentary", "final_answer"):
        shown["phase"] = phase
    return shown


def _begun_call(task: TaskNode, item: ToolCall) -> Json:
    shown: Json = {"id": item.id, "status": "in_progress", "name": item.name}
    if is_code(item):
        about = {"id": item.id, "status": "in_progress", "container_id": CONTAINER}
        return {"type": "code_interpreter_call", **about, "code": "", "outputs": None}
    if not is_client(item):
        label = server_name(item)
        extra: Json = {"server_label": label, "arguments": "", "output": None, "error": None}
        approval = approval_of(task, item.call_id)
        if approval is not None:
            extra["approval_request_id"] = approval
        return {"type": "mcp_call", **shown, **extra}
    shown["call_id"] = item.call_id
    if item.kind == "custom":
        return {"type": "custom_tool_call", **shown, "input": ""}
    return {"type": "function_call", **shown, "arguments": ""}


def item_json(
    sources: Sources, task: TaskNode, key: EntryKey, images: Mapping[str, str] = NO_IMAGES
) -> Json:
    """An item so far; at its end, as in `response.output_item.done`.

    `images` has `data:` URLs of images that are elsewhere, by their URLs.
    """
    shown = begun(task, key)
    node = task.items[key[0]]
    if key[1] != ITEM:
        part = node.parts[key[1]]
        assert isinstance(part, ImageNode)
        return shown if part.is_open else {**shown, **_picture(part.image, images)}
    if not node.is_open:
        shown["status"] = node.item.status
    if isinstance(node.item, Reasoning):
        _fill_reasoning(shown, node)
        if not node.is_open and _wants_sealed(task):
            shown["encrypted_content"] = sealed("reasoning", node.item.id)
    elif isinstance(node.item, Message):
        shown["content"] = [
            content_json(sources, task, part)
            for part in in_order(node.parts.values())
            if is_content(part)
        ]
    else:
        _fill_call(shown, task, node)
    return shown


def unfinished(task: TaskNode, key: EntryKey) -> Json:
    """An item that is left open at the end of its response, with what cannot change later."""
    shown = begun(task, key)
    shown.pop("approval_request_id", None)  # the answer may come later
    if "arguments" in shown:
        shown["arguments"] = arguments_json(task.items[key[0]])
    return cut_short(shown)


def cut_short(shown: Json) -> Json:
    """An item as it is in a response that has ended: there, nothing is in progress."""
    if shown.get("status") != "in_progress":
        return shown
    if "result" in shown:
        # The status of an image cannot be `incomplete`. The AI SDK requires a string as `result`.
        return {**shown, "status": "failed", "result": ""}
    return {**shown, "status": "incomplete"}


APPROVAL = "mcpr_"


def approval_id(run_id: str, request_id: str) -> str:
    """The id of a request for an approval, from which its run can be read."""
    return f"{APPROVAL}{run_id}~{request_id}"


def approval_of(task: TaskNode, call_id: str) -> str | None:
    """The id of the request that people answered for a call of the root."""
    answers = task.answers if task.parent is None else {}
    for request_id, answer in answers.items():
        if answer.get("call_id") == call_id and "approved" in answer:
            return approval_id(task.task_id, request_id)
    return None


def sealed(kind: str, ident: str) -> str:
    """An `encrypted_content`: an opaque reference to an item or run, whose content stays here."""
    return urlsafe_b64encode(f"tailrace {kind} {ident}".encode()).decode()


def _wants_sealed(task: TaskNode) -> bool:
    options = task.facts.get("options")
    include = dict_of(options).get("include")
    return isinstance(include, list) and SEALED_REASONING in include


def _fill_reasoning(shown: Json, node: ItemNode) -> None:
    raw_first = is_raw_first(node)
    summary = [*node.parts.values(), *(node.texts.values() if raw_first else ())]
    shown["summary"] = [{"type": "summary_text", "text": part.text} for part in in_order(summary)]
    if node.texts and not raw_first:
        shown["content"] = [
            {"type": "reasoning_text", "text": part.text} for part in in_order(node.texts.values())
        ]


def _fill_call(shown: Json, task: TaskNode, node: ItemNode) -> None:
    name = {"custom_tool_call": "input", "code_interpreter_call": "code"}.get(shown["type"])
    shown[name or "arguments"] = arguments_json(node, arguments_of(task, node))
    if is_client(node.item):
        return
    result = result_of(task, node)
    if not is_closed(task, (node.output_index, ITEM)):
        shown["status"] = "in_progress"
    elif result is None:
        shown["status"] = "incomplete"
    else:
        item: ToolResult = result.item  # type: ignore[assignment]
        shown["status"] = item.status
        if is_code(node.item):
            shown["outputs"] = _code_outputs(item, result)
            return
        shown["output"] = output_text(task, result)
        if item.status == "failed":
            shown["error"] = _tool_error(item.error)


def _code_outputs(item: ToolResult, result: ItemNode) -> list[Json]:
    """The logs and images of a code interpreter, and its error."""
    outputs: list[Json] = []
    for part in in_order(result.parts.values()):
        if isinstance(part, ImageNode):
            outputs.append({"type": "image", "url": part.image.image_url.url})
        elif text := block_text(part):
            outputs.append({"type": "logs", "logs": text})
    if item.status == "failed":
        outputs.append({"type": "logs", "logs": _tool_error(item.error)["message"]})
    return outputs


def _tool_error(error: ErrorInfo | None) -> Json:
    code, message = (error.code, error.message) if error else ("tool_failed", "The tool failed.")
    return {
        "type": "mcp_tool_execution_error",
        "code": code,
        "message": message,
        "content": [{"type": "text", "text": message}],
    }


def arguments_json(node: ItemNode, text: str | None = None) -> str:
    """A call's arguments. Once they are complete they are JSON, because SDKs parse them.

    `text` are those that it is carried out with; None: those of the model. No arguments are `{}`.
    Other text (free-form input, or arguments that were cut) is a JSON string in an `mcp_call`. The
    input of a `custom_tool_call` is not changed.
    """
    assert node.arguments is not None
    text, item = node.arguments.text if text is None else text, node.item
    assert isinstance(item, ToolCall)
    if node.arguments.is_open or is_code(item) or (is_client(item) and item.kind == "custom"):
        return text
    if not text or is_client(item):
        return text or "{}"
    return text if is_json(text) else json_text(text)


def content_json(sources: Sources, task: TaskNode, part: Part) -> Json:
    """A part of a message's `content`."""
    if part.kind == "refusal":
        return {"type": "refusal", "refusal": part.text}  # type: ignore[union-attr]
    if isinstance(part, TextNode):
        cited = [
            citation_json(sources, task, annotation, part.at) for annotation in part.annotations
        ]
        annotations = [citation for citation in cited if citation is not None]
        text = part.text
    else:
        annotations, text = [], file_link(part)  # type: ignore[arg-type]  # a file
    return {"type": "output_text", "text": text, "annotations": annotations, "logprobs": []}


# --- images --------------------------------------------------------------------------------------


def image_id(node: ItemNode, block_index: int) -> str:
    """The id of an image block's item."""
    return f"{_IMAGE}{node.item.id}_{block_index}"


def own_id(ident: str) -> str:
    """Our id of an item; for an image, of the item that holds it."""
    return ident[len(_IMAGE) :].rpartition("_")[0] if ident.startswith(_IMAGE) else ident


_IMAGE = "ig_"


def image_format(image: Image) -> str:
    """The `output_format` of an image. Some SDKs derive the media type from it and require it."""
    media_type = data_type(image.image_url.url) or ""
    return _FORMATS.get(media_type.removeprefix("image/"), "png")


def _picture(image: Image, images: Mapping[str, str]) -> Json:
    """The end of an image. The API takes only base64: an image elsewhere has a `url` of ours."""
    url = image.image_url.url
    if url in images:
        image = Image(image_url=ImageUrl(url=images[url]))
    payload = inline_image(image)
    if payload is not None:
        return {"status": "completed", "result": payload, "output_format": image_format(image)}
    # The AI SDK requires a string as the result of an image.
    if url:
        return {"status": "completed", "result": "", "url": url}
    error = {"type": "no_image", "code": "no_image", "message": "There is no image."}
    return {"status": "failed", "result": "", "error": error}


# --- citations -----------------------------------------------------------------------------------


def citation_json(sources: Sources, task: TaskNode, annotation: Annotation, at: int) -> Json | None:
    """An annotation of a text that arrived at `at`; raw annotations are left out."""
    link = sources.link(task, annotation, at)
    if link is not None:
        assert isinstance(annotation, ReferenceToBlock | UrlCitation)
        return {
            "type": "url_citation",
            "url": link[0],
            "title": link[1],
            "start_index": annotation.start_index,
            "end_index": annotation.end_index,
        }
    if not isinstance(annotation, FileCitation):
        return None
    shown: Json = {"file_id": annotation.file_id, "filename": annotation.filename}
    if annotation.container_id is None:
        return {"type": "file_citation", **shown, "index": annotation.index or 0}
    return {
        "type": "container_file_citation",
        **shown,
        "container_id": annotation.container_id,
        "start_index": annotation.start_index or 0,
        "end_index": annotation.end_index or 0,
    }
