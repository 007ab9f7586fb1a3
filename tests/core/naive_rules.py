"""The rules of PROTOCOL.md section 3, a second time: which of them would this event break?

Like `naive.py` it is plain Python on dicts and shares nothing with `tailrace.core`. It names
*every* rule that an event breaks, as far as they can be distinguished, so that examples of illegal
events can be held to break just the one that they are about.
"""

from __future__ import annotations

from typing import Any, cast

from tests.core.naive import ENDED, LISTS, PARTS, TERMINAL

Dict = dict[str, Any]

SAME = ("type", "call_id", "name", "kind", "executor", "server_label", "needs_approval", "role")


class NaiveRules:
    """The books of a careful writer: `broken` looks, `record` believes."""

    def __init__(self) -> None:
        self.last = 0
        self.tasks: dict[str, Dict] = {}
        self.call_ids: set[str] = set()

    def broken(self, event: Dict) -> set[str]:
        """The rules that this event would break as the next one."""
        found: set[str] = set()
        if event.get("sequence_number", 0) != self.last + 1:
            found.add("seq-next")
        if event["type"] == "task.created":
            return found | self.broken_by_creation(event)
        if not self.tasks:
            return found | {"root-first"}
        if event["task_id"] not in self.tasks:
            return found | {"task-known"}
        task = self.tasks[event["task_id"]]
        if task["status"] in ENDED:
            return found | {"task-live"}
        begins = event["type"] == "task.in_progress"
        if begins == task["begun"] and event["type"] not in ("task.failed", "task.cancelled"):
            return found | {"task-begun"}
        if event["type"] in TERMINAL:
            found |= self.broken_by_end(task, event)
        elif event["type"] == "task.output_item.added":
            found |= self.broken_by_added(task, event)
        elif event["type"] == "task.output_item.done":
            found |= self.broken_by_done(task, event)
        elif "item_id" in event and event["type"] != "task.usage":
            found |= self.broken_in_item(task, event)
        else:
            found |= self.broken_in_task(task, event)
        return found

    # --- tasks ----------------------------------------------------------------------------------

    def broken_by_creation(self, event: Dict) -> set[str]:
        parent_id = event.get("parent_task_id")
        if (parent_id is None) == bool(self.tasks):
            return {"root-first"}
        if event["task_id"] in self.tasks:
            return {"task-new"}
        if parent_id is None:
            return set()
        parent = self.tasks.get(parent_id)
        if parent is None or parent["status"] in ENDED:
            return {"child-of-open-result"}
        open_results = [
            item
            for item in parent["items"]
            if item["type"] == "tool_result" and item["open"]
            if item["call_id"] == event.get("call_id")
        ]
        if not open_results:
            return {"child-of-open-result"}
        if (event["task_id"] == event["call_id"]) == bool(open_results[0]["children"]):
            return {"child-id"}
        return set()

    def broken_by_end(self, task: Dict, event: Dict) -> set[str]:
        found = set()
        if event["type"] in ("task.completed", "task.incomplete") and task["pending"]:
            found.add("task-paused")
        if any(child["status"] not in ENDED for child in task["children"]):
            found.add("children-first")
        if any(item["open"] for item in task["items"]):
            found.add("items-closed")
        if task["open_steps"]:
            found.add("steps-closed")
        return found

    def broken_in_task(self, task: Dict, event: Dict) -> set[str]:
        kind = event["type"]
        if kind == "task.step.started" and event["step_index"] != task["steps"]:
            return {"index-next"}
        if kind == "task.step.finished" and event["step_index"] not in task["open_steps"][-1:]:
            return {"step-innermost"}
        if kind == "task.agent.switched" and event["agent"] == task["agent"]:
            return {"agent-other"}
        if kind == "task.structured_output.done" and task["has_output"]:
            return {"output-once"}
        if kind == "task.input_required":
            ids = [request["id"] for request in event["requests"]]
            if len(set(ids)) < len(ids) or set(ids) & set(task["pending"]):
                return {"request-known"}
        if kind == "task.input_received" and event["request_id"] not in task["pending"]:
            return {"request-known"}
        if kind == "task.attempt":
            gone = event.get("superseded", [])
            closed = [
                item["id"] for item in task["items"] if not item["open"] and not item["superseded"]
            ]
            calls = [
                item["call_id"]
                for item in task["items"]
                if item["type"] == "tool_call" and item["id"] in gone
            ]
            left = [
                item["id"]
                for item in task["items"]
                if item["type"] == "tool_result"
                and item["call_id"] in calls
                and not item["superseded"]
                and item["id"] not in gone
            ]
            if event["attempt"] != task["attempt"] + 1:
                return {"attempt-next"}
            if not set(gone) <= set(closed) or left:
                return {"attempt-next"}
        if kind == "task.reference.imported":
            source = self.tasks.get(event["source_task_id"])
            if source is None or source not in task["children"]:
                return {"import-source"}
            if event["source_reference_id"] not in source["known"]:
                return {"import-source"}
            if event["reference_id"] in task["known"] or event["reference_id"] < 1:
                return {"import-source"}
        return set()

    # --- items ----------------------------------------------------------------------------------

    def broken_by_added(self, task: Dict, event: Dict) -> set[str]:
        item = event["item"]
        found = set()
        if event["output_index"] != len(task["items"]):
            found.add("index-next")
        if item["id"] in [other["id"] for other in task["items"]]:
            found.add("item-id-new")
        content = ("summary", "reasoning_text", "arguments", "block_list", "status", "error")
        if any(item.get(name) for name in content):
            found.add("item-empty")
        if item["type"] == "tool_call" and item["call_id"] in self.call_ids:
            found.add("call-id-new")
        if item["type"] == "tool_result":
            call = self.call(task, item["call_id"])
            if call is None or call["status"] != "completed" or call["result"] is not None:
                found.add("result-of-call")
        return found

    def call(self, task: Dict, call_id: str) -> Dict | None:
        for item in task["items"]:
            if item["type"] == "tool_call" and item["call_id"] == call_id:
                return cast(Dict, item)
        return None

    def broken_by_done(self, task: Dict, event: Dict) -> set[str]:
        payload = event["item"]
        if event["output_index"] >= len(task["items"]):
            return {"item-open"}
        item = task["items"][event["output_index"]]
        if not item["open"]:
            return {"item-open"}
        found = set()
        if payload["id"] != item["id"]:
            return {"item-same", "item-open"}  # either says so
        if any(payload.get(name) != item[name] for name in SAME):
            return {"item-same"}
        for name in LISTS[item["type"]]:
            made = [part["block"] for part in item["lists"][name]]
            if payload.get(name) is not None and payload[name] != made:
                found.add("item-same")
        if payload.get("arguments") is not None and payload["arguments"] != item["arguments"]:
            found.add("item-same")
        status = payload.get("status", "completed")
        allowed = ["completed", "incomplete"] + ["failed"] * (item["type"] == "tool_result")
        if status not in allowed or (payload.get("error") and status != "failed"):
            found.add("item-status")
        still_open = [
            part["block"]["type"]
            for parts in item["lists"].values()
            for part in parts
            if part["open"]
        ]
        if "image" in still_open or (status == "completed" and still_open):
            found.add("parts-closed")
        if item["type"] == "tool_call" and status == "completed" and item["arguments_open"]:
            found.add("parts-closed")
        if any(child["status"] not in ENDED for child in item["children"]):
            found.add("children-first")
        return found

    # --- parts ----------------------------------------------------------------------------------

    def broken_in_item(self, task: Dict, event: Dict) -> set[str]:
        index = event["output_index"]
        item = task["items"][index] if index < len(task["items"]) else None
        if event["type"] == "task.tool_call.started":
            if item is None or item["id"] != event["item_id"] or item["type"] != "tool_call":
                return {"call-ready"}
            done = item["result"] is not None and not item["result"]["open"]
            if item["status"] != "completed" or item["started"] or done:
                return {"call-ready"}
            return set()
        if item is None or not item["open"] or item["id"] != event["item_id"]:
            return {"item-open"}
        if event["type"].startswith("task.tool_call_arguments."):
            if item["type"] != "tool_call":
                return {"item-kind"}
            if not item["arguments_open"]:
                return {"part-open"}
            streamed = item["arguments"]
            if streamed and event.get("arguments", streamed) != streamed:
                return {"part-same"}
            return set()
        does, name, index_field, block_type = PARTS[event["type"]]
        if name not in LISTS[item["type"]]:
            return {"item-kind"}
        parts = item["lists"][name]
        index = event[index_field]
        if does == "added":
            found = {"index-next"} if index != len(parts) else set()
            block = event["item"]
            if block.get("text") or block.get("refusal") or block.get("annotations"):
                found.add("item-empty")
            return found | self.broken_by_id(item, event["item"])
        if does == "done" and index >= len(parts):
            found = {"index-next"} if index > len(parts) else set()
            return found | self.broken_by_id(item, event["item"]) | self.broken_in_text(task, event)
        if index >= len(parts) or not parts[index]["open"]:
            return {"part-open"}
        part = parts[index]
        if part["block"]["type"] != block_type:
            return {"part-open"}
        if does == "done":
            same = ("text", "refusal", "id", "annotations")
            if any(event["item"].get(key) != part["block"].get(key) for key in same):
                return {"part-same"}
        elif does == "annotation":
            annotations = part["block"].get("annotations", [])
            found = set()
            if event["annotation_index"] != len(annotations):
                found.add("index-next")
            return found | self.broken_by_citation(task, event["annotation"], part["block"]["text"])
        elif does == "image" and event["partial_image_index"] != part["partial_images"]:
            return {"index-next"}
        return set()

    def broken_by_id(self, item: Dict, block: Dict) -> set[str]:
        if block.get("id") is not None and (item["type"] != "tool_result" or block["id"] < 1):
            return {"id-in-results"}
        return set()

    def broken_in_text(self, task: Dict, event: Dict) -> set[str]:
        found: set[str] = set()
        for annotation in event["item"].get("annotations", []):
            found |= self.broken_by_citation(task, annotation, event["item"]["text"])
        return found

    def broken_by_citation(self, task: Dict, annotation: Dict, text: str) -> set[str]:
        found = set()
        start, end = annotation.get("start_index"), annotation.get("end_index")
        if start is not None and end is not None and not 0 <= start < end <= len(text):
            found.add("annotation-range")
        number = annotation.get("reference_id")
        if number is not None and number not in task["known"]:
            found.add("reference-known")
        return found

    # --- what was allowed is now true -----------------------------------------------------------

    def record(self, event: Dict, private: Dict | None = None) -> None:
        """Take a legal event into the books."""
        self.last += 1
        kind = event["type"]
        if kind == "task.created":
            self.record_creation(event)
        task = self.tasks[event["task_id"]]
        for part in (private or {}).get("content") or []:
            if isinstance(part.get("id"), int):
                task["known"].add(part["id"])
        if kind == "task.in_progress":
            task["begun"] = True
        elif kind in TERMINAL:
            task["status"] = kind.removeprefix("task.")
        elif kind == "task.output_item.added":
            self.record_added(task, event)
        elif kind == "task.output_item.done":
            item = task["items"][event["output_index"]]
            item["open"] = False
            item["status"] = event["item"].get("status", "completed")
        elif kind in PARTS or kind.startswith("task.tool_call"):
            self.record_in_item(task, event)
        elif kind == "task.step.started":
            task["open_steps"].append(task["steps"])
            task["steps"] += 1
        elif kind == "task.step.finished":
            task["open_steps"].pop()
        elif kind == "task.agent.switched":
            task["agent"] = event["agent"]
        elif kind == "task.structured_output.done":
            task["has_output"] = True
        elif kind == "task.input_required":
            task["pending"] += [request["id"] for request in event["requests"]]
        elif kind == "task.input_received":
            task["pending"].remove(event["request_id"])
        elif kind == "task.attempt":
            task["attempt"] += 1
            for item in task["items"]:
                item["superseded"] = item["superseded"] or item["id"] in event.get("superseded", [])
        elif kind == "task.reference.imported":
            task["known"].add(event["reference_id"])

    def record_creation(self, event: Dict) -> None:
        task: Dict = {
            "status": None,
            "begun": False,
            "items": [],
            "children": [],
            "pending": [],
            "open_steps": [],
            "steps": 0,
            "has_output": False,
            "agent": event.get("agent"),
            "attempt": 1,
            "known": set(range(1, event.get("reference_start", 1))),
        }
        self.tasks[event["task_id"]] = task
        if event.get("parent_task_id") is not None:
            parent = self.tasks[event["parent_task_id"]]
            parent["children"].append(task)
            for item in parent["items"]:
                if item["type"] == "tool_result" and item["call_id"] == event["call_id"]:
                    item["children"].append(task)

    def record_added(self, task: Dict, event: Dict) -> None:
        payload = event["item"]
        item: Dict = {
            "id": payload["id"],
            **{name: payload.get(name) for name in SAME},
            "open": True,
            "status": "in_progress",
            "lists": {name: [] for name in LISTS[payload["type"]]},
            "arguments": "",
            "arguments_open": payload["type"] == "tool_call",
            "started": False,
            "superseded": False,
            "result": None,
            "children": [],
        }
        if item["type"] == "tool_call":
            self.call_ids.add(item["call_id"])
        if item["type"] == "tool_result":
            for call in task["items"]:
                if call["type"] == "tool_call" and call["call_id"] == item["call_id"]:
                    call["result"] = item
        task["items"].append(item)

    def record_in_item(self, task: Dict, event: Dict) -> None:
        item = task["items"][event["output_index"]]
        kind = event["type"]
        if kind == "task.tool_call.started":
            item["started"] = True
            return
        if kind == "task.tool_call_arguments.delta":
            item["arguments"] += event["delta"]
            return
        if kind == "task.tool_call_arguments.done":
            item["arguments"] = event["arguments"]
            item["arguments_open"] = False
            return
        does, name, index_field, block_type = PARTS[kind]
        parts = item["lists"][name]
        if "item" in event and event["item"].get("id") is not None:
            task["known"].add(event["item"]["id"])
        if event[index_field] == len(parts):
            part = {"block": dict(event["item"]), "open": does == "added", "partial_images": 0}
            parts.append(part)
            return
        part = parts[event[index_field]]
        if does == "delta":
            part["block"][block_type] += event["delta"]
        elif does == "annotation":
            before = part["block"].get("annotations", [])
            part["block"]["annotations"] = [*before, event["annotation"]]
        else:
            part["block"] = dict(event["item"])
            part["partial_images"] += 1
            part["open"] = does == "image"
