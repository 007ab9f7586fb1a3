"""A run in the terminal: the object so far, drawn again as it grows.

Reasoning is dim, calls grow with their arguments, sub-agents stand inside the call that they
answer, citations are coloured where they stand.
"""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

MARKS = {"completed": "[ok]", "failed": "[failed]", "cancelled": "[stopped]"}


def draw(view: dict[str, Any]) -> RenderableType:
    """The client's view of a run as something that rich can print."""
    usage = view.get("usage", {})
    title = f"{view.get('agent', 'run')} · {view.get('status', '')}"
    subtitle = f"{usage.get('output_tokens', 0)} tokens" if usage else ""
    names = {task["task_id"]: task.get("agent", "sub-agent") for task in view.get("tasks", ())}
    lines: list[RenderableType] = []
    if view.get("input"):
        lines.append(Text(f"> {view['input']}", style="bold"))
    lines += [Text(f"! {note['message']}", style="yellow") for note in view.get("notices", ())]
    lines += [_item(item, names) for item in view.get("output", ())]
    if "error" in view:
        lines.append(Text(view["error"]["message"], style="bold red"))
    return Panel(Group(*lines), title=title, subtitle=subtitle, title_align="left")


def _item(item: dict[str, Any], names: dict[str, str]) -> RenderableType:
    kind = item["type"]
    if kind == "reasoning":
        parts = item["summary"] or item.get("reasoning_text", [])
        return Text("\n".join(part["text"] for part in parts), style="dim italic")
    if kind == "tool_call":
        line = Text.assemble(("→ ", "cyan"), (item["name"], "bold cyan"), " ", item["arguments"])
        progress = item.get("progress")
        if progress:
            line.append(f"   {progress.get('message', '')}", style="dim")
        return line
    if kind in ("tool_result", "message"):
        blocks = Group(*_blocks(item["block_list"], names))
        if kind == "message":
            return blocks
        failed = item.get("error")
        note = Text(failed["message"], style="red") if failed else Text("")
        return Padding(Group(blocks, note) if failed else blocks, (0, 0, 0, 2))
    return Text(f"({kind})", style="dim")


def _blocks(blocks: list[dict[str, Any]], names: dict[str, str]) -> list[RenderableType]:
    """Blocks in order; the items of one sub-agent, which stand together, in a box of their own."""
    drawn: list[RenderableType] = []
    child: str | None = None
    inside: list[RenderableType] = []
    for block in [*blocks, {}]:
        if block.get("task_id") != child:
            if child is not None:
                name = names.get(child, "sub-agent")
                drawn.append(Panel(Group(*inside), title=name, title_align="left", style="blue"))
            child, inside = block.get("task_id"), []
        if not block:
            break
        (inside if child is not None else drawn).append(
            _item(block, names) if child is not None else _block(block)
        )
    return drawn


def _block(block: dict[str, Any]) -> RenderableType:
    if block["type"] == "text":
        number = f"[{block['id']}] " if "id" in block else ""
        text = Text(block["text"])
        for note in block.get("annotations", ()):
            if note["type"] == "reference_to_block":
                text.stylize("bold green", note["start_index"], note["end_index"])
        return Text.assemble((number, "bold green"), text)
    if block["type"] == "image":
        size = len(block["image_url"]["url"])
        return Text(f"▣ image, {size} characters" if size else "▣ image …", style="magenta")
    if block["type"] == "refusal":
        return Text(block["refusal"], style="red")
    if block["type"] == "file":
        return Text(f"▤ {block.get('name') or block['url']}", style="magenta")
    return Text(f"{{…}} {block.get('name', 'data')}", style="magenta")
