"""A second fold, written from PROTOCOL.md alone, to hold the real one against.

It is naive on purpose: plain dicts, strings that grow by `+=`, a view that is built anew each
time. Nothing here is shared with `tailrace.core`, so a mistake has to be made twice to go unseen.
Where the protocol numbers its rules (section 4), the method says which one it follows.

Events come as the JSON objects that a client gets. An event that is malformed in other ways than
rule 9 speaks of (a required field that is missing, a string where a number belongs) is outside of
what this reader decides.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

Json = Any
Dict = dict[str, Any]

REQUIRED = object()

# Section 2: the fields of everything that has a shape, each with its default. A field that is
# missing, null, or equal to its default is left out; a field that is not named here is unknown.
SHAPES: dict[str, Dict] = {
    # annotations
    "annotation:reference_to_block": {
        "reference_id": REQUIRED,
        "start_index": REQUIRED,
        "end_index": REQUIRED,
    },
    "annotation:url_citation": {
        "url": REQUIRED,
        "start_index": REQUIRED,
        "end_index": REQUIRED,
        "title": "",
    },
    "annotation:file_citation": {
        "file_id": REQUIRED,
        "filename": "",
        "index": None,
        "container_id": None,
        "start_index": None,
        "end_index": None,
    },
    "annotation:raw": {"raw": REQUIRED},
    # blocks
    "block:text": {"text": REQUIRED, "id": None, "annotations": []},
    "block:image": {"image_url": REQUIRED, "id": None},
    "block:refusal": {"refusal": REQUIRED},
    "block:data": {"data": REQUIRED, "name": None, "id": None},
    "block:file": {
        "url": REQUIRED,
        "mime_type": "application/octet-stream",
        "name": None,
        "size": None,
        "sha256": None,
        "bucket": None,
        "path": None,
        "id": None,
    },
    # items, without the lists and the string that events build up, and without `status`
    "item:reasoning": {"id": REQUIRED},
    "item:tool_call": {
        "id": REQUIRED,
        "call_id": REQUIRED,
        "name": REQUIRED,
        "kind": "function",
        "executor": "server",
        "server_label": None,
        "needs_approval": False,
    },
    "item:tool_result": {"id": REQUIRED, "call_id": REQUIRED, "error": None},
    "item:message": {"id": REQUIRED, "role": REQUIRED, "phase": None},
    "item:raw": {"id": REQUIRED, "raw": REQUIRED, "source": None},
    # the rest
    "image_url": {"url": REQUIRED},
    "error": {"code": REQUIRED, "message": REQUIRED, "param": None, "retry_after": None},
    "request": {
        "id": REQUIRED,
        "kind": REQUIRED,
        "call_id": None,
        "message": None,
        "schema": None,
    },
    "notice": {"message": REQUIRED, "level": "info", "call_id": None, "data": None},
    "progress": {"message": None, "current": None, "total": None},
    "structured_output": {"value": REQUIRED, "name": None},
    "switch": {"agent": REQUIRED, "reason": None},
    "compacted": {"summary": REQUIRED, "run_id": REQUIRED},
    "import": {
        "reference_id": REQUIRED,
        "source_task_id": REQUIRED,
        "source_reference_id": REQUIRED,
    },
    "created": {
        "parent_task_id": None,
        "call_id": None,
        "agent": None,
        "thread_id": None,
        "previous_run_id": None,
        "previous_seq": None,
        "created_at": None,
        "model": None,
        "input": None,
        "options": None,
        "metadata": None,
        "reference_start": 1,
    },
}

STATUSES = ("completed", "in_progress", "incomplete", "failed")
EXECUTORS = ("server", "client", "provider")
REQUESTS = ("approval", "input")
STEP_ENDS = ("completed", "incomplete")
TERMINAL = ("task.completed", "task.incomplete", "task.failed", "task.cancelled")
ENDED = ("completed", "incomplete", "failed", "cancelled")

# Which lists of parts an item of a type has, and what its parts may be.
LISTS: dict[str, tuple[str, ...]] = {
    "reasoning": ("summary", "reasoning_text"),
    "tool_call": (),
    "tool_result": ("block_list",),
    "message": ("block_list",),
    "raw": (),
}
PART_TYPES = {
    "summary": ("text",),
    "reasoning_text": ("text",),
    "block_list": ("text", "image", "refusal", "data", "file"),
}

# Section 2.3: event type → (what it does, the list it belongs to, the field with the part's place,
# the type of the part).
PARTS: dict[str, tuple[str, str, str, str]] = {
    "task.reasoning_summary_item.added": ("added", "summary", "summary_index", "text"),
    "task.reasoning_summary_text.delta": ("delta", "summary", "summary_index", "text"),
    "task.reasoning_summary_item.done": ("done", "summary", "summary_index", "text"),
    "task.reasoning_text.added": ("added", "reasoning_text", "text_index", "text"),
    "task.reasoning_text.delta": ("delta", "reasoning_text", "text_index", "text"),
    "task.reasoning_text.done": ("done", "reasoning_text", "text_index", "text"),
    "task.text.added": ("added", "block_list", "block_index", "text"),
    "task.text.delta": ("delta", "block_list", "block_index", "text"),
    "task.text.annotation.added": ("annotation", "block_list", "block_index", "text"),
    "task.text.done": ("done", "block_list", "block_index", "text"),
    "task.image.added": ("added", "block_list", "block_index", "image"),
    "task.image.delta": ("image", "block_list", "block_index", "image"),
    "task.image.done": ("done", "block_list", "block_index", "image"),
    "task.refusal.added": ("added", "block_list", "block_index", "refusal"),
    "task.refusal.delta": ("delta", "block_list", "block_index", "refusal"),
    "task.refusal.done": ("done", "block_list", "block_index", "refusal"),
    "task.data.done": ("done", "block_list", "block_index", "data"),
    "task.file.done": ("done", "block_list", "block_index", "file"),
}


class UnknownTypeError(Exception):
    """Something inside a known event has a `type`, or an enumeration a value, without meaning."""


def shaped(kind: str, value: Dict) -> Dict:
    """The fields of `value` that `kind` has, without those that say nothing."""
    result: Dict = {}
    for field, default in SHAPES[kind].items():
        given = value.get(field) is not None and value[field] != default
        if default is REQUIRED or given:
            result[field] = copy.deepcopy(value[field])
    if "error" in result:
        result["error"] = shaped("error", result["error"])
    return result


def annotation_from(value: Dict) -> Dict:
    """An annotation as it is shown."""
    if "annotation:" + str(value.get("type")) not in SHAPES:
        raise UnknownTypeError
    return {"type": value["type"], **shaped("annotation:" + value["type"], value)}


def block_from(value: Dict, types: tuple[str, ...]) -> Dict:
    """A block, or a part of a reasoning, as it is shown."""
    if value.get("type") not in types:
        raise UnknownTypeError
    block = {"type": value["type"], **shaped("block:" + value["type"], value)}
    if "annotations" in block:
        block["annotations"] = [annotation_from(one) for one in block["annotations"]]
    if "image_url" in block:
        block["image_url"] = shaped("image_url", block["image_url"])
    return block


def item_from(value: Dict) -> Dict:
    """Rule 9: an item of an unknown type is a raw item that holds it whole."""
    if "item:" + str(value.get("type")) in SHAPES:
        return value
    wrapped: Dict = {"type": "raw", "id": value.get("id") or "", "raw": value}
    if value.get("status") in STATUSES:
        wrapped["status"] = value["status"]
    return wrapped


class NaiveState:
    """All that a reader knows after some events of one run."""

    def __init__(self) -> None:
        self.position = 0
        self.sequence_number = 0
        self.root: Dict | None = None
        self.tasks: dict[str, Dict] = {}  # in order of creation
        self.unknown: list[Dict] = []

    # --- events in ------------------------------------------------------------------------------

    def apply(self, event: Dict, private: Dict | None = None) -> None:
        """Fold one event, and the private part that is logged beside it."""
        # Rule 1.
        number = event.get("sequence_number") or 0
        if number > 0:
            if number <= self.sequence_number:
                return
            self.sequence_number = number
        self.position += 1

        # Rule 9, before the others, because unknown events are exempt from rules 3 and 4.
        if not self.is_known(event):
            self.unknown.append(copy.deepcopy(event))
            return

        if event["type"] == "task.created":
            task = self.create(event)
        else:
            task = self.tasks.get(event["task_id"]) or self.create_silently(event["task_id"])
            if task is None or task["status"] in ENDED:  # rules 3 and 4
                return
            if not HANDLERS[event["type"]](self, task, event):
                return
        if task is not None and private:
            self.keep_private(task, event, private)

    def is_known(self, event: Dict) -> bool:
        """Whether this event, and everything with a type inside of it, has a meaning here."""
        kind = event.get("type")
        if kind != "task.created" and kind not in HANDLERS:
            return False
        try:
            if kind in ("task.output_item.added", "task.output_item.done"):
                item = item_from(event["item"])
                if (item.get("status") or STATUSES[0]) not in STATUSES:
                    raise UnknownTypeError
                if (item.get("executor") or EXECUTORS[0]) not in EXECUTORS:
                    raise UnknownTypeError
                for name in LISTS[item["type"]]:
                    for part in item.get(name) or []:
                        block_from(part, PART_TYPES[name])
            elif kind in PARTS and "item" in event:
                block_from(event["item"], (PARTS[kind][3],))
            elif kind == "task.text.annotation.added":
                annotation_from(event["annotation"])
        except UnknownTypeError:
            return False
        if kind == "task.step.finished":
            return event.get("status", STEP_ENDS[0]) in STEP_ENDS
        requests = event["requests"] if kind == "task.input_required" else []
        return all(request["kind"] in REQUESTS for request in requests)

    # --- tasks ----------------------------------------------------------------------------------

    def create(self, event: Dict) -> Dict | None:
        """Rule 2."""
        parent_id = event.get("parent_task_id")
        if event["task_id"] in self.tasks:
            return None
        if parent_id is None:
            if self.root is not None:
                return None
            task = self.new_task(event["task_id"], shaped("created", event))
        else:
            if parent_id not in self.tasks:
                return None
            task = self.new_task(event["task_id"], shaped("created", event))
        task["status"] = "queued"
        return task

    def create_silently(self, task_id: str) -> Dict | None:
        """Rule 3."""
        if self.root is None:
            return self.new_task(task_id, {})
        best: tuple[Dict, Dict] | None = None
        for task in self.tasks.values():
            holder = self.open_result(task, task_id)
            if holder is not None and (best is None or holder["at"] > best[1]["at"]):
                best = (task, holder)
        if best is None:
            return None
        parent, _ = best
        created = {"parent_task_id": parent["task_id"], "call_id": task_id}
        return self.new_task(task_id, created)

    def open_result(self, task: Dict, call_id: str | None) -> Dict | None:
        """The open `tool_result` of this call, the last to arrive if there are several."""
        results = [
            item
            for item in task["items"].values()
            if item["type"] == "tool_result" and item["open"]
            if item["fields"]["call_id"] == call_id
        ]
        return max(results, key=lambda item: item["at"], default=None)

    def new_task(self, task_id: str, created: Dict) -> Dict:
        task: Dict = {
            "task_id": task_id,
            "created": created,
            "status": None,
            "attempt": None,
            "items": {},  # by output_index
            "structured_output": None,
            "switches": [],
            "compacted": None,
            "usages": [],
            "error": None,
            "reason": None,
            "requests": [],
            "steps": {},  # by step_index
            "notices": [],
            "progress": {},
            "imports": [],
            "private": {},
        }
        if self.root is None:
            self.root = task
        self.tasks[task_id] = task
        return task

    # --- items ----------------------------------------------------------------------------------

    def new_item(self, task: Dict, index: int, payload: Dict) -> Dict:
        item: Dict = {
            "at": self.position,
            "type": payload["type"],
            "fields": shaped("item:" + payload["type"], payload),
            "status": "completed",
            "open": False,
            "superseded": False,
            "lists": {name: {} for name in LISTS[payload["type"]]},  # of parts, by index
            "arguments": payload.get("arguments") or "",
            "arguments_open": False,
            "started": False,
            "progress": {},
            "private": {},
        }
        for name in item["lists"]:
            self.replace_list(item, name, payload.get(name))
        task["items"][index] = item
        return item

    def replace_list(self, item: Dict, name: str, parts: list[Dict] | None) -> None:
        """Rule 5: a list replaces all its parts; a part keeps the arrival that its index had."""
        if parts is None:
            return
        before = item["lists"][name]
        item["lists"][name] = {}
        for index, part in enumerate(parts):
            at = before[index]["at"] if index in before else self.position
            block = block_from(part, PART_TYPES[name])
            item["lists"][name][index] = {"at": at, "open": False, "block": block}

    def close_item(self, item: Dict) -> None:
        item["open"] = False
        item["arguments_open"] = False
        for parts in item["lists"].values():
            for part in parts.values():
                part["open"] = False

    def item_added(self, task: Dict, event: Dict) -> bool:
        """Rule 5."""
        if event["output_index"] in task["items"]:
            return False
        item = self.new_item(task, event["output_index"], item_from(event["item"]))
        item["status"] = "in_progress"
        item["open"] = True
        item["arguments_open"] = item["type"] == "tool_call"
        return True

    def item_done(self, task: Dict, event: Dict) -> bool:
        """Rule 5."""
        payload = item_from(event["item"])
        item = task["items"].get(event["output_index"])
        if item is None:
            item = self.new_item(task, event["output_index"], payload)
        else:
            if not item["open"] or item["type"] != payload["type"]:
                return False
            item["fields"] = shaped("item:" + payload["type"], payload)
            if payload.get("arguments") is not None:
                item["arguments"] = payload["arguments"]
            for name in item["lists"]:
                self.replace_list(item, name, payload.get(name))
        self.close_item(item)
        item["status"] = payload.get("status") or "completed"
        return True

    def call_started(self, task: Dict, event: Dict) -> bool:
        """Rule 8."""
        item = task["items"].get(event["output_index"])
        if item is None or item["type"] != "tool_call" or item["fields"]["id"] != event["item_id"]:
            return False
        item["started"] = True
        return True

    # --- parts ----------------------------------------------------------------------------------

    def open_item(self, task: Dict, event: Dict) -> Dict | None:
        """Rule 6: the item that the event names, if it is open and the names agree."""
        item: Dict | None = task["items"].get(event["output_index"])
        if item is None or not item["open"] or item["fields"]["id"] != event["item_id"]:
            return None
        return item

    def part(self, task: Dict, event: Dict) -> bool:
        """Rule 6."""
        does, name, index_field, block_type = PARTS[event["type"]]
        item = self.open_item(task, event)
        if item is None or name not in item["lists"]:
            return False
        parts = item["lists"][name]
        index = event[index_field]
        part = parts.get(index)

        if does == "added":
            if part is not None:
                return False
            block = block_from(event["item"], PART_TYPES[name])
            parts[index] = {"at": self.position, "open": True, "block": block}
            return True
        if does == "done" and part is None:
            block = block_from(event["item"], PART_TYPES[name])
            parts[index] = {"at": self.position, "open": False, "block": block}
            return True

        if part is None or not part["open"] or part["block"]["type"] != block_type:
            return False
        if does == "done":
            part["block"] = block_from(event["item"], PART_TYPES[name])
            part["open"] = False
        elif does == "delta":
            part["block"][block_type] += event["delta"]  # a text's `text`, a refusal's `refusal`
        elif does == "annotation":
            annotation = annotation_from(event["annotation"])
            part["block"]["annotations"] = [*part["block"].get("annotations", []), annotation]
        elif does == "image":
            part["block"] = block_from(event["item"], PART_TYPES[name])
        return True

    def arguments_delta(self, task: Dict, event: Dict) -> bool:
        """Rule 6: for arguments, the item is the part."""
        item = self.open_item(task, event)
        if item is None or not item["arguments_open"]:
            return False
        item["arguments"] += event["delta"]
        return True

    def arguments_done(self, task: Dict, event: Dict) -> bool:
        """Rule 6."""
        item = self.open_item(task, event)
        if item is None or not item["arguments_open"]:
            return False
        item["arguments"] = event["arguments"]
        item["arguments_open"] = False
        return True

    # --- the life of a task ---------------------------------------------------------------------

    def ended(self, task: Dict, event: Dict) -> bool:
        """Rule 7."""
        for item in task["items"].values():
            if item["open"]:
                self.close_item(item)
                item["status"] = "incomplete"
        task["requests"] = []
        task["status"] = event["type"].removeprefix("task.")
        if event["type"] == "task.failed":
            task["error"] = shaped("error", event["error"])
        if event["type"] in ("task.incomplete", "task.cancelled"):
            task["reason"] = event.get("reason")
        return True

    def in_progress(self, task: Dict, event: Dict) -> bool:
        task["status"] = "in_progress"
        if event.get("reference_start") is not None:
            task["created"]["reference_start"] = event["reference_start"]
        return True

    def input_required(self, task: Dict, event: Dict) -> bool:
        task["status"] = "input_required"
        for request in event["requests"]:
            if request["id"] not in [pending["id"] for pending in task["requests"]]:
                task["requests"].append(shaped("request", request))
        return True

    def input_received(self, task: Dict, event: Dict) -> bool:
        left = [one for one in task["requests"] if one["id"] != event["request_id"]]
        if len(left) == len(task["requests"]):
            return False
        task["requests"] = left
        if not left and task["status"] == "input_required":
            task["status"] = "in_progress"
        return True

    def attempt(self, task: Dict, event: Dict) -> bool:
        task["attempt"] = event["attempt"]
        for ident in event.get("superseded") or []:
            named = (one for one in task["items"].values() if one["fields"]["id"] == ident)
            if (first := next(named, None)) is not None:
                first["superseded"] = True
        return True

    def usage(self, task: Dict, event: Dict) -> bool:
        at: Dict | None = task
        while at is not None:
            at["usages"].append((at is task, copy.deepcopy(event["usage"])))
            at = self.tasks.get(at["created"].get("parent_task_id"))
        return True

    def structured_output(self, task: Dict, event: Dict) -> bool:
        task["structured_output"] = shaped("structured_output", event)
        return True

    def switched(self, task: Dict, event: Dict) -> bool:
        speaks = [task["created"].get("agent")] + [one["agent"] for one in task["switches"]]
        switch = shaped("switch", event)
        switch["output_index"] = max([-1, *task["items"]]) + 1
        if speaks[-1] is not None:
            switch["from"] = speaks[-1]
        task["switches"].append(switch)
        return True

    def compacted(self, task: Dict, event: Dict) -> bool:
        task["compacted"] = shaped("compacted", event)
        return True

    def step_started(self, task: Dict, event: Dict) -> bool:
        steps = task["steps"]
        if event["step_index"] in steps:
            return False
        depth = len([step for step in steps.values() if step["status"] == "in_progress"])
        steps[event["step_index"]] = {
            "name": event["name"],
            "depth": depth,
            "status": "in_progress",
        }
        return True

    def step_finished(self, task: Dict, event: Dict) -> bool:
        step = task["steps"].get(event["step_index"])
        if step is None or step["status"] != "in_progress":
            return False
        step["status"] = event.get("status", "completed")
        return True

    def notice(self, task: Dict, event: Dict) -> bool:
        task["notices"].append(shaped("notice", event))
        return True

    def progress(self, task: Dict, event: Dict) -> bool:
        if event.get("call_id") is None:
            task["progress"] = shaped("progress", event)
            return True
        calls = [
            item
            for item in task["items"].values()
            if item["type"] == "tool_call" and item["fields"]["call_id"] == event["call_id"]
        ]
        if not calls:
            return False
        min(calls, key=lambda item: item["at"])["progress"] = shaped("progress", event)
        return True

    def imported(self, task: Dict, event: Dict) -> bool:
        if event["reference_id"] in [one["reference_id"] for one in task["imports"]]:
            return False
        task["imports"].append(shaped("import", event))
        return True

    def nothing(self, task: Dict, event: Dict) -> bool:
        return True

    def keep_private(self, task: Dict, event: Dict, private: Dict) -> None:
        """Section 5: it belongs to the item that the event names, else to the task."""
        owner = task
        if "output_index" in event:
            owner = task["items"][event["output_index"]]
        for field, value in private.items():
            if value is not None:
                owner["private"][field] = copy.deepcopy(value)

    # --- the object out -------------------------------------------------------------------------

    def view(self, task_id: str | None = None) -> Dict:
        """Section 5: what a client is shown of a task; of the root without `task_id`."""
        return self.show(task_id, whole=False)

    def whole(self, task_id: str | None = None) -> Dict:
        """Section 5: the same for the server's side, with private parts and every output."""
        return self.show(task_id, whole=True)

    def show(self, task_id: str | None, *, whole: bool) -> Dict:
        task = self.root if task_id is None else self.tasks.get(task_id)
        if task is None:
            return {}
        shown = self.show_task(task, whole)
        shown["output"] = self.show_output(task, whole)
        if task is self.root:
            others = []
            for other in self.tasks.values():
                if other is not self.root:
                    entry = self.show_task(other, whole)
                    if whole:
                        entry["output"] = self.show_output(other, whole)
                    others.append(entry)
            if others:
                shown["tasks"] = others
            if self.unknown:
                shown["unknown"] = copy.deepcopy(self.unknown)
        return shown

    def show_task(self, task: Dict, whole: bool) -> Dict:
        """Everything but `output`, `tasks` and `unknown`."""
        shown: Dict = {"task_id": task["task_id"]}
        if task["status"] is not None:
            shown["status"] = task["status"]
        shown.update(copy.deepcopy(task["created"]))
        if task["attempt"] is not None:
            shown["attempt"] = task["attempt"]
        if task["switches"]:
            shown["agent"] = task["switches"][-1]["agent"]
        if task["structured_output"] is not None:
            shown["structured_output"] = copy.deepcopy(task["structured_output"])
        if task["usages"]:
            shown["usage"] = self.show_usage(task["usages"])
        if task["error"] is not None:
            shown["error"] = copy.deepcopy(task["error"])
        if task["reason"] is not None:
            shown["reason"] = task["reason"]
        if task["steps"]:
            shown["steps"] = copy.deepcopy([step for _, step in sorted(task["steps"].items())])
        for name in ("requests", "notices", "progress", "imports", "switches", "compacted"):
            if task[name]:
                shown[name] = copy.deepcopy(task[name])
        if whole:
            self.show_private(shown, task)
        return shown

    def show_usage(self, usages: list[tuple[bool, Dict]]) -> Dict:
        total: Dict = {"calls": len(usages), "input_tokens": 0, "output_tokens": 0}
        optional = {"cached_input_tokens": 0, "cache_write_tokens": 0, "reasoning_tokens": 0}
        for is_own, usage in usages:
            total["input_tokens"] += usage.get("input_tokens") or 0
            total["output_tokens"] += usage.get("output_tokens") or 0
            for field in optional:
                optional[field] += usage.get(field) or 0
            for field in ("cost", "latency_ms"):
                if usage.get(field) is not None:
                    total[field] = total[field] + usage[field] if field in total else usage[field]
            if usage.get("time_to_first_token_ms") is not None:
                total.setdefault("time_to_first_token_ms", usage["time_to_first_token_ms"])
            for field in ("model", "service_tier"):
                if usage.get(field) is not None and (is_own or field not in total):
                    total[field] = usage[field]
        total.update({field: count for field, count in optional.items() if count != 0})
        return total

    def show_output(self, task: Dict, whole: bool) -> list[Dict]:
        items = task["items"]
        return [
            self.show_item(items[index], whole)
            for index in sorted(items)
            if not items[index]["superseded"]
        ]

    def show_item(self, item: Dict, whole: bool) -> Dict:
        shown: Dict = {"type": item["type"], **copy.deepcopy(item["fields"])}
        if item["type"] == "tool_call":
            shown["arguments"] = item["arguments"]
            if item["started"]:
                shown["started"] = True
            if item["progress"]:
                shown["progress"] = dict(item["progress"])
        for name in item["lists"]:
            parts = item["lists"][name]
            if name == "reasoning_text" and not parts:
                continue
            shown[name] = [copy.deepcopy(parts[index]["block"]) for index in sorted(parts)]
        if item["type"] == "tool_result":
            shown["block_list"] = self.show_blocks_and_children(item)
        if item["status"] != "completed":
            shown["status"] = item["status"]
        if whole:
            if item["type"] == "tool_result" and "content" in item["private"]:
                shown["content"] = copy.deepcopy(item["private"]["content"])
            if item["type"] == "message":
                texts = [
                    {"type": "text", "text": block["text"]}
                    for block in shown["block_list"]
                    if block["type"] == "text"
                ]
                shown["content"] = copy.deepcopy(item["private"].get("content", texts))
            self.show_private(shown, item)
        return shown

    def show_blocks_and_children(self, result: Dict) -> list[Dict]:
        """Own blocks, and the items of the tasks that answer the call, in order of arrival."""
        arrived: list[tuple[int, int, Dict]] = []
        for index, part in result["lists"]["block_list"].items():
            arrived.append((part["at"], index, copy.deepcopy(part["block"])))
        for child in self.children_of(result):
            for index, item in child["items"].items():
                if not item["superseded"]:
                    shown = self.show_item(item, whole=False)
                    shown["task_id"] = child["task_id"]
                    arrived.append((item["at"], index, shown))
        return [shown for _at, _index, shown in sorted(arrived, key=lambda entry: entry[:2])]

    def children_of(self, result: Dict) -> list[Dict]:
        """Rule 2: the tasks of this call, if this is its first result."""
        call_id = result["fields"]["call_id"]
        owner = next(
            task
            for task in self.tasks.values()
            if any(item is result for item in task["items"].values())
        )
        results = [
            item
            for item in owner["items"].values()
            if item["type"] == "tool_result" and item["fields"]["call_id"] == call_id
        ]
        if min(results, key=lambda item: int(item["at"])) is not result:
            return []
        return [
            task
            for task in self.tasks.values()
            if task["created"].get("parent_task_id") == owner["task_id"]
            and task["created"].get("call_id") == call_id
        ]

    def show_private(self, shown: Dict, owner: Dict) -> None:
        private = {
            field: copy.deepcopy(value)
            for field, value in owner["private"].items()
            if field != "content"
        }
        if private:
            shown["private"] = private


Handler = Callable[[NaiveState, Dict, Dict], bool]
"""Folds one event of a live task; False when the event is ignored, and its private part with it."""

HANDLERS: dict[str, Handler] = {
    "task.in_progress": NaiveState.in_progress,
    "task.attempt": NaiveState.attempt,
    "task.input_required": NaiveState.input_required,
    "task.input_received": NaiveState.input_received,
    **dict.fromkeys(TERMINAL, NaiveState.ended),
    "task.usage": NaiveState.usage,
    "task.structured_output.done": NaiveState.structured_output,
    "task.agent.switched": NaiveState.switched,
    "task.history.compacted": NaiveState.compacted,
    "task.step.started": NaiveState.step_started,
    "task.step.finished": NaiveState.step_finished,
    "task.notice": NaiveState.notice,
    "task.progress": NaiveState.progress,
    "task.tool_call.started": NaiveState.call_started,
    "task.reference.imported": NaiveState.imported,
    "task.raw": NaiveState.nothing,
    "task.output_item.added": NaiveState.item_added,
    "task.output_item.done": NaiveState.item_done,
    "task.tool_call_arguments.delta": NaiveState.arguments_delta,
    "task.tool_call_arguments.done": NaiveState.arguments_done,
    **dict.fromkeys(PARTS, NaiveState.part),
}
