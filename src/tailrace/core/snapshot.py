"""Save a state as JSON, and restore it: PROTOCOL.md, section 6.

fold(restore(save(s)), tail) = fold(all). A client that joins late gets these bytes without the
private parts: a snapshot costs what the state weighs, for any number of events. The private parts
are the last lines, so that a stored state can be sent without them, and without restoring it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tailrace.core import json_pieces
from tailrace.core.approval_pauses import Pause
from tailrace.core.errors import MalformedEvent
from tailrace.core.events import Private, TaskCreated, Unknown
from tailrace.core.fold import State
from tailrace.core.items import (
    Block,
    ErrorInfo,
    InputRequest,
    Item,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from tailrace.core.run_object import show_own, show_task
from tailrace.core.state import (
    ENDED,
    ImageNode,
    ItemNode,
    Step,
    TaskNode,
    TextNode,
    UsageSum,
    note_numbers,
    part_number,
    part_of,
    text_node,
)
from tailrace.core.values import Json, quoted

VERSION = 2
_VERSIONS = (1, VERSION)  # in version 1, the usage of a task lacks the tasks below it
HEADS = tuple(b'{"version":%d,' % version for version in _VERSIONS)
"""A saved state begins like this: one for each version that can be restored, the newest last."""
_FACTS = tuple(
    name for name in TaskCreated.__struct_fields__ if name not in ("task_id", "sequence_number")
)


_ITEM = b'{"output_index":'  # the JSON of an item begins like this, and no other line does
PRIVATE_LINE = b',"private":{'
"""The private parts begin like this, and no other line does."""


def save(state: State, *, private: bool = False) -> bytes:
    """The state as JSON; with `private`, for the store only.

    Items are on lines of their own, so that `restore` can decode them separately.
    """
    return encode_saved(saved(state, private=private))


def save_pieces(state: State, *, private: bool = False) -> Iterator[bytes]:
    """The state as JSON, in pieces that are encoded on demand."""
    return _pieces(saved(state, private=private))


def encode_saved(value: Json) -> bytes:
    """What `saved` returned, as JSON. A thread may do it while the state goes on."""
    return b"\n".join(_pieces(value))


def _pieces(value: Json) -> Iterator[bytes]:
    tasks, hidden = value.pop("tasks"), value.pop("private", None)
    yield msgspec.json.encode(value)[:-1] + b',"tasks":['
    for place, task in enumerate(tasks):
        if place:
            yield b","
        yield from json_pieces.object_pieces(task)
    if hidden is None:
        yield b"]}"
    else:
        first, *rest = json_pieces.object_pieces(hidden)
        yield b"]"
        yield PRIVATE_LINE + first[1:]
        yield from rest
        yield b"}"


def saved(state: State, *, private: bool = False) -> Json:
    """The state as the JSON value of section 6, which later events do not change."""
    value: Json = {
        "version": VERSION,
        "position": state.position,
        "sequence_number": state.sequence_number,
        "tasks": [_save_task(task) for task in state.tasks.values()],
    }
    if state.unknown:
        value["unknown"] = [msgspec.Raw(event.raw) for event in state.unknown]
    if private:
        value["private"] = _save_private(state)
    return value


def _save_private(state: State) -> Json:
    """What only the store has: pauses, and the private parts of tasks and items."""
    return {
        "pauses": list(state.pauses),
        "tasks": [_hidden(task) for task in state.tasks.values()],
        "items": [
            {"output_index": index, "task_index": task.task_index, "private": dict(node.private)}
            for task in state.tasks.values()
            for index, node in sorted(task.items.items())
            if node.private
        ],
    }


def _hidden(task: TaskNode) -> Json:
    value: Json = {}
    if task.private:
        value["private"] = dict(task.private)
    # For history and our own encoders; clients do not need it.
    if task.answers:
        value["answers"] = dict(task.answers)
    begun = [
        (index, node.begun_at)
        for index, node in sorted(task.items.items())
        if node.begun_at not in (None, node.at)
    ]
    if begun:
        value["begun"] = begun
    if task.settling is not None:
        value["settling"] = task.settling
    if task.end_time is not None:
        value["end_time"] = task.end_time
    return value


def _save_task(task: TaskNode) -> Json:
    value = show_task(task)
    value["at"] = task.at
    for place, (index, entry) in enumerate(
        zip(sorted(task.steps), value.get("steps", ()), strict=True)
    ):
        if index != place:
            entry["step_index"] = index
    value["items"] = [_save_item(node) for _, node in sorted(task.items.items())]
    return value


def _save_item(node: ItemNode) -> Json:
    parts: list[Json] = []
    lists: list[tuple[str, Any]] = []
    if isinstance(node.item, Reasoning):
        lists = [("summary", node.parts), ("reasoning_text", node.texts)]
    elif isinstance(node.item, ToolCall):
        lists = [("arguments", {0: node.arguments})]
    elif isinstance(node.item, ToolResult | Message):
        lists = [("block_list", node.parts)]
    for name, stored in lists:
        for index, part in sorted(stored.items()):
            entry = {"list": name, "index": index, "at": part.at}
            if part.is_open:
                entry["open"] = True
            if isinstance(part, ImageNode) and part.partial_image_index is not None:
                entry["partial_image_index"] = part.partial_image_index
            parts.append(entry)
    value: Json = {
        "output_index": node.output_index,
        "at": node.at,
        "item": show_own(node),
        "parts": parts,
    }
    if node.is_open:
        value["open"] = True
    if node.superseded:
        value["superseded"] = True
    return value


def restore(raw: bytes) -> State:
    """Restore a saved state; `MalformedEvent` if the bytes are not a saved state."""
    try:
        value = _decoded(raw)
        version = value.get("version")
        if version not in _VERSIONS:
            raise MalformedEvent(
                f"The saved state has version {quoted(version)}, not {VERSION}. "
                "Fold the run's events again."
            )
        state = _restore(value)
        if version == 1:
            _add_usage_below(state)
        return state
    except (
        msgspec.DecodeError,
        msgspec.ValidationError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        raise MalformedEvent(f"Not a saved state: {type(error).__name__}.") from error


def _decoded(raw: bytes) -> Json:
    """The JSON of a saved state, decoded line by line."""
    whole = memoryview(raw)
    items: list[list[Json]] = []
    rest: list[bytes] = []
    start = 0
    while start < len(raw):
        end = raw.find(b"\n", start) + 1 or len(raw)
        if raw.startswith(_ITEM, start):
            line = bytes(whole[start:end]).rstrip(b",\n")
            rest.append(b"%d" % len(items) + raw[start + len(line) : end])
            items.append(msgspec.json.decode(b"[%b]" % line))
        else:
            rest.append(raw[start:end])
        start = end
    value: Json = msgspec.json.decode(b"".join(rest))
    hidden: Json = value.pop("private", {})
    if items:
        for holder in (*value["tasks"], *([hidden] if hidden else [])):
            holder["items"] = [item for place in holder["items"] for item in items[place]]
    _add_private_parts(value, hidden)
    return value


def _add_private_parts(value: Json, hidden: Json) -> None:
    """Put the private parts where they belong. States of older versions have them there."""
    if not hidden:
        return
    value["pauses"] = hidden["pauses"]
    places: dict[tuple[int, int], Json] = {}
    for number, (task, own) in enumerate(zip(value["tasks"], hidden["tasks"], strict=True)):
        task.update(own)
        places |= {(number, item["output_index"]): item for item in task["items"]}
    for entry in hidden["items"]:
        places[entry["task_index"], entry["output_index"]]["private"] = entry["private"]


def _restore(value: Json) -> State:
    state = State()
    state.position = value["position"]
    state.sequence_number = value["sequence_number"]
    for shown in value["tasks"]:
        _restore_task(state, shown)
    state.pauses = msgspec.convert(value.get("pauses", []), list[Pause])
    for event in value.get("unknown", ()):
        state.unknown.append(
            Unknown(
                task_id=event["task_id"],
                sequence_number=event.get("sequence_number", 0),
                type=event["type"],
                raw=msgspec.json.encode(event),
            )
        )
    return state


def _add_usage_below(state: State) -> None:
    """Add the usage of each task to its parent's, the last tasks first."""
    for task in reversed(state.tasks.values()):
        if task.parent is not None and task.usage is not None:
            fields = dict(task.usage.fields)
            above = task.parent.usage = task.parent.usage or UsageSum()
            calls = fields.pop("calls")
            above.add(msgspec.convert(fields, Usage), calls, below=True)


def _restore_task(state: State, shown: Json) -> None:
    parent_id = shown.get("parent_task_id")
    parent = None if parent_id is None else state.tasks[parent_id]
    facts = {name: shown[name] for name in _FACTS if name in shown}
    switches = shown.get("switches", [])
    if switches:
        facts["agent"] = switches[0].get("from")
        if facts["agent"] is None:
            del facts["agent"]
    task = TaskNode(shown["task_id"], len(state.tasks), shown["at"], parent, facts)
    task.switches, task.compacted = switches, shown.get("compacted")
    state.tasks[task.task_id] = task
    if parent is None:
        state.root = task
    else:
        parent.children.append(task)
    task.status = shown.get("status")
    task.ended = task.status in ENDED
    task.attempt = shown.get("attempt")
    task.structured_output = shown.get("structured_output")
    if "usage" in shown:
        task.usage = UsageSum(shown["usage"])
    if "error" in shown:
        task.error = msgspec.convert(shown["error"], ErrorInfo)
    task.reason = shown.get("reason")
    task.settling, task.end_time = shown.get("settling"), shown.get("end_time")
    task.requests = msgspec.convert(shown.get("requests", []), list[InputRequest])
    task.answers = shown.get("answers", {})
    for place, step in enumerate(shown.get("steps", ())):
        index = step.get("step_index", place)
        task.steps[index] = Step(step["name"], step["depth"])
        task.steps[index].status = step["status"]
        if task.steps[index].is_open:
            task.open_steps.append(index)
    task.notices = shown.get("notices", [])
    task.progress = shown.get("progress")
    for entry in shown.get("imports", ()):
        task.imports[entry["reference_id"]] = (
            entry["source_task_id"],
            entry["source_reference_id"],
        )
    task.numbers.update(task.imports)
    task.private = _restore_private(task, shown)
    # In order of arrival: of two calls with the same id, the first counts.
    for item in sorted(shown["items"], key=lambda item: item["at"]):
        _restore_item(task, item)
    for index, at in shown.get("begun", ()):
        task.items[index].begun_at = at


def _restore_private(task: TaskNode, shown: Json) -> Json:
    value: Json = shown.get("private", {})
    if "content" in value:
        value["content"] = msgspec.convert({"content": value["content"]}, Private).content
        note_numbers(task, value["content"])
    return value


def _restore_item(task: TaskNode, value: Json) -> None:
    shown: Json = value["item"]
    lists = {name: shown.pop(name, None) for name in ("summary", "reasoning_text", "block_list")}
    arguments = shown.pop("arguments", None)
    started, progress = shown.pop("started", False), shown.pop("progress", None)
    is_open = value.get("open", False)
    if is_open:
        shown.pop("status", None)
    node = ItemNode(msgspec.convert(shown, Item), value["output_index"], value["at"])
    node.is_open = is_open
    node.started, node.progress = started, progress
    node.superseded = value.get("superseded", False)
    places: dict[str, int] = {}
    for entry in value["parts"]:
        name, at, part_open = entry["list"], entry["at"], entry.get("open", False)
        if name == "arguments":
            node.arguments = TextNode("arguments", node.id, at, arguments, is_open=part_open)
            continue
        place = places[name] = places.get(name, -1) + 1
        raw = lists[name][place]
        if name == "block_list":
            part = part_of(node.id, msgspec.convert(raw, Block), at, is_open=part_open)
            if isinstance(part, ImageNode):
                part.partial_image_index = entry.get("partial_image_index")
            number = part_number(part)
            if number is not None:
                task.numbers.add(number)
            node.parts[entry["index"]] = part
        else:
            text = text_node(name, node.id, at, msgspec.convert(raw, Text), is_open=part_open)
            (node.parts if name == "summary" else node.texts)[entry["index"]] = text
    task.add_item(node)
    node.private = _restore_private(task, value)
