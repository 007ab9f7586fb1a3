"""What a client's view shows a person, without ids: for comparing a run with itself read back.

It works on the JSON of `view.json` alone and knows nothing of readers, writers or their classes.
Each list is in the order of the output; what a format does not carry is left out by its own rules.
"""

from __future__ import annotations

import json
import re
from typing import Any

Json = dict[str, Any]


def of_ui(view: Json) -> Json:
    """What `vercel-ui` carries of a view: the items of the root."""
    view = _tame(view)
    shown = _task(view["output"])
    shown["status"] = view["status"]
    shown["reason"] = view.get("reason") if view["status"] in ("incomplete", "cancelled") else None
    shown["error"] = view.get("error", {}).get("message")
    shown["requests"] = [(one["kind"], one.get("message")) for one in view.get("requests", ())]
    shown["output"] = view.get("structured_output")
    shown["usage"] = {k: v for k, v in view.get("usage", {}).items() if k != "calls"}
    for name in ("task_id", "thread_id", "previous_run_id", "agent", "model", "created_at"):
        shown[name] = view.get(name)
    return shown


def _task(items: list[Json]) -> Json:
    """The items of one task by kind."""
    shown: Json = {"blocks": [], "thoughts": [], "calls": [], "results": []}
    calls = {one["call_id"]: one for one in items if one["type"] == "tool_call"}
    for item in items:
        if item["type"] == "message":
            blocks = [_block(one) for one in item["block_list"]]
            shown["blocks"] += [one for one in blocks if one[:2] != ("image", "")]
        elif item["type"] == "reasoning":
            shown["thoughts"] += [one["text"] for one in item["summary"]] or [
                one["text"] for one in item.get("reasoning_text", ())
            ]
        elif item["type"] == "tool_call":
            is_whole = item.get("status", "completed") == "completed"
            arguments = _tame(_value(item["arguments"])) if is_whole else item["arguments"]
            shown["calls"].append((item["name"], arguments, item.get("kind"), is_whole))
        elif item["type"] == "tool_result" and item["call_id"] in calls:
            shown["results"].append((calls[item["call_id"]]["name"], *_result(item)))
    shown["results"].sort(key=repr)  # tools that work side by side end in any order
    return shown


def _result(item: Json) -> tuple[Any, ...]:
    """A result: its own blocks, without what sub-agents did."""
    if item.get("status", "completed") != "completed":
        return "failed", item.get("error", {}).get("message", "The tool was interrupted.")
    own = [_block(one, numbered=True) for one in item["block_list"] if "task_id" not in one]
    return (own,)


def _block(block: Json, *, numbered: bool = False) -> tuple[Any, ...]:
    number = block.get("id") if numbered else None
    if block["type"] == "text":
        notes = sorted(filter(None, map(_note, block.get("annotations", ()))))
        return "text", block["text"], notes, number
    if block["type"] == "image":
        return "image", block["image_url"]["url"], number
    if block["type"] == "data":
        return (
            "data",
            _name(block.get("name")) if not numbered else block.get("name"),
            block["data"],
        )
    return tuple(sorted((k, v) for k, v in block.items() if k != "id"))


def _name(name: str | None) -> str:
    """`data-<name>` has few letters to choose from, and some names are taken."""
    found = re.sub("[^A-Za-z0-9_-]", "-", name or "") or "value"
    taken = ("block", "delta", "notice", "output", "progress", "request", "step", "task")
    return found + "_" if found in (*taken, "task-item") else found


def _note(note: Json) -> str:
    """A citation. One of a kind without a name is not carried; one of no known block comes raw."""
    if note["type"] == "raw":
        note = note["raw"]
        if note.get("type") != "reference_to_block":
            return ""
    kept = {k: v for k, v in note.items() if k != "index" and v not in ("", None)}
    return json.dumps(kept, sort_keys=True)


def _tame(value: Any) -> Any:
    """Keys that would pollute a prototype are written otherwise."""
    if isinstance(value, list):
        return [_tame(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for key, one in value.items():
        pollutes = key == "__proto__" or (
            key == "constructor" and isinstance(one, dict) and "prototype" in one
        )
        found[key + "_" if pollutes else key] = _tame(one)
    return found


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def of_run(view: Json) -> Json:
    """What `run` carries of a view: no reasoning, no pictures, no sub-agents; results in short."""
    texts, calls, results = [], [], []
    named = {one["call_id"]: one for one in view["output"] if one["type"] == "tool_call"}
    for item in view["output"]:
        is_whole = item.get("status", "completed") == "completed"
        if item["type"] == "message":
            texts.append("".join(b.get("text", b.get("refusal", "")) for b in item["block_list"]))
        elif item["type"] == "tool_call":
            arguments = _value(item["arguments"]) if is_whole else None
            is_object = isinstance(arguments, dict)
            calls.append((item["name"], arguments if is_object else None))
        elif item["type"] == "tool_result":
            files = [
                (one["url"], one["bucket"], one["path"])
                for one in item["block_list"]
                if one["type"] == "file" and one.get("bucket") and one.get("path")
            ]
            name = named[item["call_id"]]["name"] if item["call_id"] in named else ""
            results.append((name, is_whole, _summary(item), files))
    status = {"cancelled": "failed", "failed": "failed"}.get(view["status"], "finished")
    return {
        "texts": texts,
        "calls": calls,
        "results": sorted(results),
        "status": status,
        "steps": [(one["name"], one["depth"]) for one in view.get("steps", ())],
        "thread": view.get("thread_id"),
        "run": view["task_id"],
    }


def _summary(item: Json) -> str:
    if "error" in item:
        return str(item["error"]["message"])
    blocks = item["block_list"]
    own = [one for one in blocks if "task_id" not in one]
    texts = [
        b["text"] if b["type"] == "text" else b["refusal"]
        for b in own
        if b["type"] in ("text", "refusal")
    ]
    data = [
        json.dumps(b["data"], separators=(",", ":"), ensure_ascii=False)
        for b in own
        if b["type"] == "data"
    ]
    last: dict[str, Json] = {one["task_id"]: one for one in blocks if "task_id" in one}
    child_texts = [
        block["text"]
        for one in last.values()
        if one["type"] == "message"
        for block in one["block_list"]
        if block["type"] == "text"
    ]
    # JSON has several ways to write a number.
    text = "\n".join(texts or data or child_texts).replace("e+21", "e21").replace("e-07", "e-7")
    return text if len(text) <= 500 else text[:499] + "…"
