"""Draws a run in the terminal: thinking is dim, a call is a tree, citations are coloured.

`parts` makes the parts of a run one by one, so that a live display prints finished parts once and
redraws the open parts only.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from tailrace.core.errors import MalformedJson
from tailrace.core.partial_json import PartialJson
from tailrace.core.values import Json

_ARGUMENT_CHARACTERS = 100
_TEXT_CHARACTERS = 400
_PICTURE_WIDTH = 32
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_TABLE_CHARACTERS = 20_000
_MARKS = {"completed": ("✓", "green"), "failed": ("✗", "red"), "cancelled": ("■", "yellow")}


class DrawnPart(NamedTuple):
    """A part of a run. A part that is `final` does not change any more."""

    key: str
    what: RenderableType
    final: bool


def parts(view: Json, took: Mapping[str, str] = {}) -> Iterator[DrawnPart]:
    """The parts of a client's view of a run in order: its input, its items, its answer, its end.

    `took` says how long calls and the run took, by their ids.
    """
    view = printable(view)
    names = {task["task_id"]: task.get("agent", "sub-agent") for task in view.get("tasks", ())}
    drawing = _Drawing(names, asked(view), took, _imports(view))
    yield DrawnPart("input", Text(f"> {_input(view.get('input'))}", style="bold"), final=True)
    yield from drawing.items(view.get("output", ()), view.get("task_id", ""))
    if "structured_output" in view:
        value = view["structured_output"]["value"]
        if value not in map(_fields, view.get("output", ())):
            yield DrawnPart("structured_output", _table(value), final=True)
    for request in view.get("requests", ()):
        if "call_id" not in request:
            question = Text(f"? {request.get('message', '')}", style="bold yellow")
            yield DrawnPart(request["id"], question, final=False)
    if "error" in view:
        yield DrawnPart("error", Text(view["error"]["message"], style="bold red"), final=True)
    end = draw_end(view, took.get(view.get("task_id", "")))
    yield DrawnPart("end", end, final=view.get("status") in (*_MARKS, "incomplete"))


def printable(value: Any) -> Any:
    """A JSON value whose texts cannot steer the terminal; lengths stay the same."""
    if isinstance(value, str):
        return value.translate(_CONTROLS)
    if isinstance(value, list):
        return [printable(item) for item in value]
    if isinstance(value, dict):
        return {name: printable(item) for name, item in value.items()}
    return value


def asked(view: Json) -> list[Json]:
    """The requests that a run and its sub-agents wait for."""
    tasks = [view, *view.get("tasks", ())]
    return [request for task in tasks for request in task.get("requests", ())]


def _input(given: Any) -> str:
    if isinstance(given, str):
        return given
    if isinstance(given, list):
        return " ".join(filter(None, map(_input, given)))
    if isinstance(given, dict):
        return next((_input(given[name]) for name in ("text", "content") if name in given), "")
    return "" if given is None else str(given)


def draw_end(view: Json, took: str | None = None) -> Text:
    """The last line: the status, the tokens and cost with sub-agents, the time."""
    status = str(view.get("status", "queued"))
    usage = view.get("usage", {})
    mark, style = _MARKS.get(status, ("…" if status != "incomplete" else "◌", "yellow"))
    words = "waits for an answer" if status == "input_required" else status.replace("_", " ")
    facts = [f"{view.get('agent', 'run')} {words}"]
    if "reason" in view:
        facts.append(str(view["reason"]))
    if usage:
        count = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        facts.append(f"{count:,} token{'' if count == 1 else 's'}")
    if cost := usage.get("cost"):
        facts.append(f"${cost:.4f}")
    if took is not None:
        facts.append(took)
    return Text.assemble((mark, style), " ", (" · ".join(facts), "dim"))


class _Drawing:
    """Draws items. `names` are the names of sub-agents, `waiting` the open requests."""

    def __init__(
        self,
        names: dict[str, str],
        waiting: list[Json],
        took: Mapping[str, str],
        imports: dict[tuple[str, int], tuple[str, int]],
    ) -> None:
        self._names = names
        self._took = took
        self._imports = imports
        self._waiting = {request.get("call_id"): request for request in waiting}

    def items(self, items: list[Json] | tuple[Json, ...], task_id: str) -> Iterator[DrawnPart]:
        """The items of a task in order; a call together with its result."""
        results = {item["call_id"]: item for item in items if item["type"] == "tool_result"}
        calls = {item["call_id"] for item in items if item["type"] == "tool_call"}
        for item in items:
            if item["type"] == "tool_call":
                yield self._call(item, results.get(item["call_id"]), task_id)
            elif item["type"] == "tool_result":
                if item["call_id"] not in calls:
                    tree = Tree(Text("→ (an earlier call)", style="cyan"))
                    self._add_result(tree, item, task_id)
                    yield DrawnPart(item["id"], tree, _is_final(item))
            else:
                yield DrawnPart(item["id"], _item(item), _is_final(item))

    def _call(self, call: Json, result: Json | None, task_id: str) -> DrawnPart:
        mark, style = ("→", "cyan")
        if result is not None and _is_final(result):
            mark, style = ("✗", "red") if result.get("error") else ("✓", "green")
        arguments = _short(call["arguments"], _ARGUMENT_CHARACTERS)
        label = Text.assemble((mark, style), " ", (call["name"], "bold cyan"), " ", (arguments, ""))
        if call["id"] in self._took:
            label.append(f" {self._took[call['id']]}", "dim")
        tree = Tree(label, guide_style="dim")
        request = self._waiting.get(call["call_id"])
        if request is not None:
            tree.add(Text(f"? {request.get('message', 'An answer is needed.')}", "bold yellow"))
        done = result is not None and _is_final(result)
        if "progress" in call and not done:
            tree.add(_progress(call["progress"]))
        if result is not None:
            self._add_result(tree, result, task_id)
        return DrawnPart(call["id"], tree, done)

    def _add_result(self, tree: Tree, result: Json, task_id: str) -> None:
        children: dict[str, list[Json]] = {}
        for block in result["block_list"]:
            if "task_id" in block:
                children.setdefault(block["task_id"], []).append(block)
        for block in result["block_list"]:
            if "task_id" not in block:
                tree.add(_block(block, self._numbers(task_id, block)))
            elif inside := children.pop(block["task_id"], None):
                name = self._names.get(block["task_id"], "sub-agent")
                branch = tree.add(Text(name, style="bold blue"), guide_style="blue")
                for part in self.items(inside, block["task_id"]):
                    branch.add(part.what)
        if result.get("error"):
            tree.add(Text(result["error"]["message"], style="red"))

    def _numbers(self, task_id: str, block: Json) -> str:
        """The numbers of a source: in its task, then in the tasks around it that cite it, too."""
        place = (task_id, block["id"]) if "id" in block else None
        places: list[tuple[str, int]] = []
        while place is not None and place not in places:
            places.append(place)
            place = self._imports.get(place)
        numbers = dict.fromkeys(str(number) for _, number in places)
        return f"[{', '.join(numbers)}] " if numbers else ""


def _imports(view: Json) -> dict[tuple[str, int], tuple[str, int]]:
    """For the source of a sub-agent, by task and number: the same in the task that imported it."""
    return {
        (one["source_task_id"], one["source_reference_id"]): (task["task_id"], one["reference_id"])
        for task in (view, *view.get("tasks", ()))
        for one in task.get("imports", ())
    }


def _is_final(item: Json) -> bool:
    return item.get("status") != "in_progress"


def _item(item: Json) -> RenderableType:
    kind = item["type"]
    if kind == "reasoning":
        thoughts = item["summary"] or item.get("reasoning_text", [])
        return Text("\n".join(part["text"] for part in thoughts), style="dim italic")
    if kind == "message":
        fields = _fields(item)
        return _table(fields) if fields else Group(*map(_block, item["block_list"]))
    return Text(f"({kind})", style="dim")


def _progress(progress: Json) -> RenderableType:
    line = Table.grid(padding=(0, 1))
    cells: list[RenderableType] = []
    current, total = progress.get("current"), progress.get("total")
    if current is not None and total:
        cells.append(ProgressBar(total=total, completed=current, width=20))
        cells.append(Text(f"{100 * current / total:.0f}%", style="dim"))
    cells.append(Text(progress.get("message") or "", style="dim"))
    line.add_row(*cells)
    return line


def _fields(item: Json) -> Json | None:
    """The object so far of a message that is JSON; None for a message of words."""
    if item["type"] != "message" or [block["type"] for block in item["block_list"]] != ["text"]:
        return None
    text = item["block_list"][0]["text"]
    if not text.startswith("{") or len(text) > _TABLE_CHARACTERS:
        return None
    read = PartialJson()
    try:
        read.feed(text)
    except MalformedJson:
        return None
    return read.value if isinstance(read.value, dict) else None


def _table(value: Any) -> RenderableType:
    """A structured answer: a row for each field."""
    if not isinstance(value, dict):
        return Text(str(value), style="bold")
    table = Table(show_header=False, border_style="dim")
    table.add_column(style="bold")
    table.add_column()
    for name, found in value.items():
        plain = ", ".join(map(str, found)) if isinstance(found, list) else str(found)
        table.add_row(Text(name), Text(plain))
    return table


def _short(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _block(block: Json, number: str = "") -> RenderableType:
    if block["type"] == "text":
        text = Text(block["text"] if not number else _short(block["text"], _TEXT_CHARACTERS))
        for note in block.get("annotations", ()):
            if note["type"] == "reference_to_block":
                text.stylize("bold green", note["start_index"], note["end_index"])
        return Text.assemble((number, "bold green"), text)
    if block["type"] == "image":
        url = block["image_url"]["url"]
        picture = _picture(url)
        if picture is not None:
            return picture
        return Text(f"▣ {url if len(url) < 90 else 'image'}" if url else "▣ …", style="magenta")
    if block["type"] == "refusal":
        return Text(block["refusal"], style="red")
    if block["type"] == "file":
        return Text(f"▤ {block.get('name') or _short(block['url'], 80)}", style="magenta")
    return Text(f"{{…}} {block.get('name', 'data')}", style="magenta")


def _picture(url: str) -> RenderableType | None:
    """A small PNG as coloured half blocks; None for any other image."""
    head, _, data = url.partition(",")
    if head != "data:image/png;base64" or len(data) > 100_000:
        return None
    try:
        return _Picture(*_pixels(base64.b64decode(data)))
    except (ValueError, IndexError, struct.error, zlib.error):
        return None


class _Picture:
    """Pixels, or their size in words on a console without colours."""

    def __init__(self, width: int, rows: list[list[bytes]]) -> None:
        self._width = width
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, rows = self._width, self._rows
        if console.no_color or console.color_system is None:
            yield Text(f"▣ image of {width} × {len(rows)} pixels", style="magenta")
            return
        columns = min(_PICTURE_WIDTH, options.max_width)
        lines = max(1, min(columns, columns * len(rows) // width) // 2)
        for line in range(lines):
            text = Text()
            for x in range(columns):
                column = (2 * x + 1) * width // (2 * columns)
                upper, lower = (
                    "#" + rows[(4 * line + half) * len(rows) // (4 * lines)][column].hex()
                    for half in (1, 3)
                )
                text.append("▀", style=f"{upper} on {lower}")
            yield text


def _pixels(png: bytes) -> tuple[int, list[list[bytes]]]:
    """The pixels of a PNG with 8 bits per colour, no alpha and unfiltered rows."""
    width, height, bits, colour = struct.unpack(">IIBB", png[16:26])
    if bits != 8 or colour != 2 or not 0 < width <= 512 or not 0 < height <= 512:
        raise ValueError("not a small PNG with 8 bits per colour")
    packed, at = b"", 8
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            packed += png[at + 8 : at + 8 + size]
        at += 12 + size
    stride = 3 * width + 1
    raw = zlib.decompressobj().decompress(packed, stride * height)
    if any(raw[y * stride] for y in range(height)):
        raise ValueError("filtered rows")
    return width, [
        [raw[y * stride + 1 + 3 * x : y * stride + 4 + 3 * x] for x in range(width)]
        for y in range(height)
    ]
