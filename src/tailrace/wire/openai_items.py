"""What a client of OpenAI's Responses API sees of a run: pure looks at a folded state.

Its world has one list of items, so this is where ours is flattened: which of our items and blocks
have a place there, in which order, and what their JSON is. `wire.openai_responses` tells the same
things piece by piece.

| here | there |
| --- | --- |
| reasoning | `reasoning`: the summary; raw thinking too when there was no summary before it |
| message | `message`: texts, refusals, and files as links; data blocks have no place |
| tool_call, executor `client` | `function_call`, or `custom_tool_call` for the kind `custom` |
| tool_call of a provider's code interpreter | `code_interpreter_call`: its images are `outputs` |
| any other tool_call with its result | `mcp_call`: what the SDKs don't try to execute themselves |
| image in a result or a message | `image_generation_call` |
| raw item, a sub-agent's items | nothing: the sub-agent's last message is its call's `output` |
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import msgspec

from tailrace.core.fold import State
from tailrace.core.items import (
    Annotation,
    Data,
    ErrorInfo,
    File,
    FileCitation,
    Image,
    Item,
    Message,
    Reasoning,
    ReferenceToBlock,
    ToolCall,
    ToolResult,
    UrlCitation,
)
from tailrace.core.state import (
    ImageNode,
    ItemNode,
    Part,
    TaskNode,
    TextNode,
    WholeNode,
    part_number,
)

Json = dict[str, Any]

Key = tuple[int, int]
"""What has an `output_index` there: our item's, and the block's if it is an image, else `ITEM`."""

ITEM = -1

CONTAINER = "provider"
"""The container of a code interpreter, which has to have a name there; ours is private."""

_FORMATS = {"png": "png", "webp": "webp", "jpeg": "jpeg", "gif": "gif", "svg+xml": "svg"}


# --- what has a place, and where -----------------------------------------------------------------


def keys(task: TaskNode) -> list[Key]:
    """Everything of a task that has a place there, in order of arrival: its `output_index`."""
    found: list[tuple[int, int, int]] = []
    for node in task.items.values():
        if node.superseded:
            continue
        if isinstance(node.item, Reasoning | Message | ToolCall):
            found.append((node.at, node.output_index, ITEM))
        if isinstance(node.item, Message | ToolResult) and not is_code_result(task, node):
            found += [
                (part.at, node.output_index, index)
                for index, part in node.parts.items()
                if part.kind == "image"
            ]
    return [(output_index, block_index) for _, output_index, block_index in sorted(found)]


def is_client(item: Item) -> bool:
    """Whether the call is the client's to execute."""
    return isinstance(item, ToolCall) and item.executor == "client"


def is_code(item: Item) -> bool:
    """Whether the call is of a provider's code interpreter: its arguments are the code itself."""
    is_theirs = isinstance(item, ToolCall) and item.executor == "provider"
    return is_theirs and item.kind == "code_interpreter"  # type: ignore[union-attr]


def is_code_result(task: TaskNode, node: ItemNode) -> bool:
    """Whether an item is what a code interpreter gave: its images have no place of their own."""
    call = task.calls.get(node.item.call_id) if isinstance(node.item, ToolResult) else None
    return call is not None and is_code(call.item)


def is_cut(node: ItemNode) -> bool:
    """Whether a call of the client's ended short of its arguments.

    Such a call is never told to be done, and leaves the object: some SDKs execute whatever parses.
    """
    return is_client(node.item) and not node.is_open and node.item.status != "completed"


def result_of(task: TaskNode, call: ItemNode) -> ItemNode | None:
    """The result that answers a call."""
    result = task.call_results.get(call.item.call_id)  # type: ignore[union-attr]  # a ToolCall
    return None if result is None or result.superseded else result


def is_closed(task: TaskNode, key: Key) -> bool:
    """Whether nothing more can happen to an item there; a server's call lasts until its result."""
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


def is_raw_first(node: ItemNode) -> bool:
    """Whether a reasoning's raw text goes out as its summary, the only thing that all SDKs show.

    It has to be settled when the first part begins: raw thinking that no summary preceded is
    summary, and so is every part after it; behind a summary it is `content`.
    """
    if not node.texts or not node.parts:
        return bool(node.texts)
    return next(iter(node.texts.values())).at < next(iter(node.parts.values())).at


def in_order(parts: Iterable[Any]) -> list[Any]:
    """Parts in order of arrival."""
    return sorted(parts, key=lambda part: part.at)


def is_content(part: Part) -> bool:
    """Whether a block of a message has a place in its `content`."""
    return part.kind in ("text", "refusal", "file")


# --- items ---------------------------------------------------------------------------------------


def begun(task: TaskNode, key: Key) -> Json:
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
        return _begun_call(item)
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


def _begun_call(item: ToolCall) -> Json:
    shown: Json = {"id": item.id, "status": "in_progress", "name": item.name}
    if is_code(item):
        about = {"id": item.id, "status": "in_progress", "container_id": CONTAINER}
        return {"type": "code_interpreter_call", **about, "code": "", "outputs": None}
    if not is_client(item):
        label = server_name(item)
        extra = {"server_label": label, "arguments": "", "output": None, "error": None}
        return {"type": "mcp_call", **shown, **extra}
    shown["call_id"] = item.call_id
    if item.kind == "custom":
        return {"type": "custom_tool_call", **shown, "input": ""}
    return {"type": "function_call", **shown, "arguments": ""}


def server_name(item: ToolCall) -> str:
    """The server that carries a call out, for APIs in which it has to have a name."""
    return item.server_label or ("tailrace" if item.kind == "function" else item.kind)


def item_json(sources: Sources, task: TaskNode, key: Key) -> Json:
    """An item as far as it is; the final one is what `response.output_item.done` has."""
    shown = begun(task, key)
    node = task.items[key[0]]
    if key[1] != ITEM:
        part = node.parts[key[1]]
        return shown if part.is_open else {**shown, **_picture(part.image)}  # type: ignore[union-attr]
    if not node.is_open:
        shown["status"] = node.item.status
    if isinstance(node.item, Reasoning):
        _fill_reasoning(shown, node)
    elif isinstance(node.item, Message):
        shown["content"] = [
            content_json(sources, task, part)
            for part in in_order(node.parts.values())
            if is_content(part)
        ]
    else:
        _fill_call(shown, task, node)
    return shown


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
    shown[name or "arguments"] = arguments_json(node)
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
    """What code printed and drew, and why it failed."""
    outputs: list[Json] = []
    for part in in_order(result.parts.values()):
        if isinstance(part, ImageNode):
            outputs.append({"type": "image", "url": part.image.image_url.url})
        elif text := _block_text(part):
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


def arguments_json(node: ItemNode) -> str:
    """A call's arguments; once they are whole, always JSON, since SDKs parse them unasked.

    None at all is `{}`. What is no JSON (free-form input, or arguments that were cut) is a JSON
    string in an `mcp_call`; the input of a `custom_tool_call` stays what it is.
    """
    assert node.arguments is not None
    text, item = node.arguments.text, node.item
    assert isinstance(item, ToolCall)
    if node.arguments.is_open or is_code(item) or (is_client(item) and item.kind == "custom"):
        return text
    if not text or is_client(item):
        return text or "{}"
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return msgspec.json.encode(text).decode()
    return text


def output_text(task: TaskNode, result: ItemNode) -> str:
    """A result as the text that an `mcp_call` has room for, a sub-agent's last message included."""
    entries = [(part.at, _block_text(part)) for part in result.parts.values()]
    call_id = result.item.call_id  # type: ignore[union-attr]  # a ToolResult
    for child in task.children:
        if child.call_id == call_id:
            said = [node for node in child.output() if isinstance(node.item, Message)]
            entries += [
                (node.at, _block_text(part)) for node in said[-1:] for part in node.parts.values()
            ]
    entries.sort(key=lambda entry: entry[0])
    return "\n".join(text for _, text in entries if text)


def _block_text(part: Part) -> str:
    if isinstance(part, TextNode):
        return part.text
    if isinstance(part, WholeNode):
        return file_link(part) if part.kind == "file" else _data_text(part)
    url = part.image.image_url.url
    return f"![image]({url})" if url and inline(part.image) is None else ""


def _data_text(part: WholeNode) -> str:
    assert isinstance(part.block, Data)
    return msgspec.json.encode(part.block.data).decode()


def file_link(part: WholeNode) -> str:
    """A file as the text that shows it: a Markdown link."""
    assert isinstance(part.block, File)
    return f"[{part.block.name or part.block.path or 'file'}]({part.block.url})"


def content_json(sources: Sources, task: TaskNode, part: Part) -> Json:
    """One part of a message's `content`."""
    if part.kind == "refusal":
        return {"type": "refusal", "refusal": part.text}  # type: ignore[union-attr]
    if isinstance(part, TextNode):
        cited = [sources.citation(task, annotation, part.at) for annotation in part.annotations]
        annotations = [citation for citation in cited if citation is not None]
        text = part.text
    else:
        annotations, text = [], file_link(part)  # type: ignore[arg-type]  # `is_content` said so
    return {"type": "output_text", "text": text, "annotations": annotations, "logprobs": []}


# --- images --------------------------------------------------------------------------------------


def image_id(node: ItemNode, block_index: int) -> str:
    """The id of the item that an image block is there."""
    return f"{_IMAGE}{node.item.id}_{block_index}"


def own_id(ident: str) -> str:
    """Our id of the item that an id names there; of an image, the item that holds it."""
    return ident[len(_IMAGE) :].rpartition("_")[0] if ident.startswith(_IMAGE) else ident


_IMAGE = "ig_"


def inline(image: Image) -> str | None:
    """The picture in base64, if its URL is the picture itself."""
    head, comma, payload = image.image_url.url.partition(",")
    if not comma or not head.startswith("data:"):
        return None
    if head.endswith(";base64"):
        return payload
    return b64encode(unquote_to_bytes(payload)).decode()


def image_format(image: Image) -> str:
    """The `output_format` of a picture; some SDKs make its media type of it and must find one."""
    media_type = image.image_url.url[:40].partition(";")[0].partition(",")[0]
    return _FORMATS.get(media_type.removeprefix("data:image/"), "png")


def _picture(image: Image) -> Json:
    """The end of an image. Only base64 has room there, so a link is an error that says where."""
    payload = inline(image)
    if payload is not None:
        return {"status": "completed", "result": payload, "output_format": image_format(image)}
    url = image.image_url.url
    message = f"The image is not inline, but at {url}" if url else "There is no image."
    error = {"type": "image_not_inline", "code": "image_not_inline", "message": message}
    # The AI SDK takes nothing but a string for the result of an image that is done.
    return {"status": "failed", "result": "", "error": error}


# --- citations -----------------------------------------------------------------------------------


class Sources:
    """Where each reference stands: the first block with its number, per task."""

    def __init__(self, state: State) -> None:
        """The references that a state has so far."""
        self._state = state
        self._blocks: dict[tuple[str, int], tuple[ItemNode, int]] = {}
        found = [
            (part.at, task.task_id, node, index, number)
            for task in state.tasks.values()
            for node in task.items.values()
            if isinstance(node.item, ToolResult)
            for index, part in node.parts.items()
            if (number := part_number(part)) is not None
        ]
        for _, task_id, node, index, number in sorted(found, key=lambda entry: entry[0]):
            self.note(task_id, number, node, index)

    def note_event(self, event: Any) -> None:
        """An event has been folded; it may have brought a block with a number."""
        number = getattr(getattr(event, "item", None), "id", None)
        if isinstance(number, int):
            node = self._state.tasks[event.task_id].items[event.output_index]
            self.note(event.task_id, number, node, event.block_index)

    def note(self, task_id: str, number: int, node: ItemNode, block_index: int) -> None:
        """A block with a number has arrived; the first one with it stands for it."""
        self._blocks.setdefault((task_id, number), (node, block_index))

    def citation(self, task: TaskNode, annotation: Annotation, at: int) -> Json | None:
        """An annotation in the words of that API; it has none for a raw one.

        A text that arrived at `at` cites what was there before it, so that a citation is told in
        the same words when it appears and when the text is done.
        """
        if isinstance(annotation, ReferenceToBlock):
            url, title = self._resolve(task.task_id, annotation.reference_id, at)
            return _url_citation(url, title, annotation)
        if isinstance(annotation, UrlCitation):
            return _url_citation(annotation.url, annotation.title, annotation)
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

    def _resolve(self, task_id: str, number: int, at: int) -> tuple[str, str]:
        """The URL and title of a reference: PROTOCOL.md, section 7."""
        tasks = self._state.tasks
        block = None
        for _ in tasks:  # as many steps as an import can take
            block = self._block(task_id, number, at)
            imported = tasks[task_id].imports.get(number) if task_id in tasks else None
            if block is not None or imported is None:
                break
            task_id, number = imported
        run_id = next(iter(tasks))
        url = f"tailrace:{quote(run_id, safe='')}/{quote(task_id, safe='')}/{number}"
        if block is None:
            return url, f"[{number}]"
        node, part = block
        call = tasks[task_id].calls.get(node.item.call_id)  # type: ignore[union-attr]
        title = f"[{number}]" if call is None else call.item.name  # type: ignore[union-attr]
        if isinstance(part, WholeNode):
            title = part.block.name or title
            if isinstance(part.block, File):
                url = part.block.url
        return url, title

    def _block(self, task_id: str, number: int, at: int) -> tuple[ItemNode, Part] | None:
        place = self._blocks.get((task_id, number))
        if place is None:
            return None
        part = place[0].parts[place[1]]
        return (place[0], part) if part.at < at else None


def _url_citation(url: str, title: str, place: ReferenceToBlock | UrlCitation) -> Json:
    return {
        "type": "url_citation",
        "url": url,
        "title": title,
        "start_index": place.start_index,
        "end_index": place.end_index,
    }
