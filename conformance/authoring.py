"""How a golden trace is written down: handles for tasks, items and parts that send events.

A story reads like its run:

    run = trace.task("run_1").created(input="Say hello.").begin()
    message = run.message("msg_1")
    message.text("Hello!")
    message.done()
    run.completed()

Handles count indices and repeat the deltas in `done`, as every writer must; nothing else is hidden.
The expected result is written by hand at the end of a story.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from tests.core.naive import NaiveState
from tests.core.naive_rules import NaiveRules

Json = Any
Dict = dict[str, Any]
WriteStory = Callable[["Trace"], None]

PNG = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA..."
"""The picture of the first document: its bytes are cut there, too."""


# --- JSON, in two dresses ------------------------------------------------------------------------


def compact(value: Json) -> str:
    """One line, keys as they come, other scripts as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def pretty(value: Json) -> str:
    """For people, and for diffs."""
    return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def canonical(value: Json) -> str:
    """RFC 8785: the canonical text of a JSON value."""
    if isinstance(value, dict):
        # by UTF-16 code units, not by code points (section 3.2.3)
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return "{" + ",".join(f"{canonical(key)}:{canonical(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(canonical(element) for element in value) + "]"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return number_text(value)
    return json.dumps(value, ensure_ascii=False)


def number_text(number: float) -> str:
    """A number as ECMAScript writes it (Number::toString), which RFC 8785 prescribes."""
    if number == 0:
        return "0"
    if number < 0:
        return "-" + number_text(-number)
    mantissa, _, exponent = f"{float(number)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0)  # where the decimal point stands in `whole + fraction`
    point -= len(whole + fraction) - len(digits)  # … and in `digits`
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{tail}e{'+' if point > 0 else '-'}{abs(point - 1)}"


def digest(view: Json) -> str:
    """The line of `digests.txt` for an event."""
    return hashlib.sha256(canonical(view).encode()).hexdigest()


# --- stories -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Story:
    """A trace: its function, and whether a writer may send it."""

    write: WriteStory
    legal: bool
    numbered: bool

    @property
    def about(self) -> str:
        """The purpose of the trace, in one line."""
        assert self.write.__doc__ is not None
        return self.write.__doc__.splitlines()[0]

    def trace(self) -> Trace:
        """The trace, after the story's assertions."""
        trace = Trace(numbered=self.numbered)
        self.write(trace)
        illegal = trace.illegal()
        assert bool(illegal) != self.legal, f"{self.write.__name__}: {illegal}"
        return trace


STORIES: dict[str, Story] = {}


def story(*, legal: bool = True, numbered: bool = True) -> Callable[[WriteStory], WriteStory]:
    """Register a function as the story of the trace that has its name."""

    def register(write: WriteStory) -> WriteStory:
        STORIES[write.__name__] = Story(write, legal, numbered)
        return write

    return register


# --- handles -------------------------------------------------------------------------------------


# The order in which our own writer sends the fields of an item.
ITEM_FIELDS = (
    *("type", "id", "role", "summary", "reasoning_text", "call_id", "name", "arguments", "kind"),
    *("executor", "server_label", "block_list", "status", "error", "phase"),
)


def ordered(item: Dict) -> Dict:
    """An item with its fields in the usual order, unusual fields last."""
    known = {name: item[name] for name in ITEM_FIELDS if name in item}
    return {**known, **item}


class Trace:
    """The events of a story, and the state of the naive fold."""

    def __init__(self, *, numbered: bool = True) -> None:
        self.numbered = numbered
        self.events: list[Dict] = []
        self.privates: list[Dict | None] = []

    def send(self, kind: str, task_id: str, private: Dict | None = None, **fields: Json) -> None:
        """The next event. Fields that are None are left out."""
        event: Dict = {"type": kind, "task_id": task_id}
        if self.numbered:
            event["sequence_number"] = 1 + max(
                (sent.get("sequence_number", 0) for sent in self.events), default=0
            )
        event.update({name: value for name, value in fields.items() if value is not None})
        self.put(event, private)

    def put(self, event: Dict, private: Dict | None = None) -> None:
        """An event as it stands, for streams that no writer of ours would send."""
        self.events.append(json.loads(json.dumps(event)))
        self.privates.append(json.loads(json.dumps(private)))

    def lines(self, text: str) -> None:
        """Events as a document prints them, one object after the other."""
        decoder = json.JSONDecoder(strict=False)
        rest = text.strip()
        while rest:
            event, end = decoder.raw_decode(rest)
            self.put(event)
            rest = rest[end:].strip()

    def again(self, line: int) -> None:
        """Line `line` a second time, as after a reconnect that went back too far."""
        self.put(self.events[line - 1], self.privates[line - 1])

    def task(self, task_id: str) -> Task:
        """A handle; the task exists when its first event says so."""
        return Task(self, task_id)

    # --- what comes out ---

    def state(self, after: int | None = None) -> NaiveState:
        """The naive fold of all events, or of the first `after` events."""
        state = NaiveState()
        for event, private in list(zip(self.events, self.privates, strict=True))[:after]:
            state.apply(event, private)
        return state

    def view(self, task_id: str | None = None, *, after: int | None = None) -> Dict:
        """The client's view of a task, at the end or after so many events."""
        return self.state(after).view(task_id)

    def whole(self, task_id: str | None = None) -> Dict:
        """The whole object of a task at the end."""
        return self.state().whole(task_id)

    def illegal(self) -> list[tuple[int, set[str]]]:
        """The first line that a writer must not send, with the rule that it breaks."""
        rules = NaiveRules()
        for line, (event, private) in enumerate(zip(self.events, self.privates, strict=True)):
            try:
                broken = rules.broken(event)
            except KeyError:
                broken = {"unknown"}
            if not NaiveState().is_known(event):
                broken = {"unknown"}
            if broken:
                return [(line + 1, broken)]
            rules.record(event, private)
        return []

    def digests(self) -> list[str]:
        """The digest of the view after each event."""
        state = NaiveState()
        found = []
        for event, private in zip(self.events, self.privates, strict=True):
            state.apply(event, private)
            found.append(digest(state.view()))
        return found


class Task:
    """A task of the run."""

    def __init__(self, trace: Trace, task_id: str) -> None:
        self.trace = trace
        self.id = task_id
        self.items = 0
        self.steps = 0

    def send(self, kind: str, private: Dict | None = None, **fields: Json) -> Self:
        """`kind` without its `task.`"""
        self.trace.send(f"task.{kind}", self.id, private, **fields)
        return self

    def created(self, private: Dict | None = None, **fields: Json) -> Self:
        """It exists."""
        return self.send("created", private, **fields)

    def begin(self) -> Self:
        """A worker takes it up."""
        return self.send("in_progress")

    def child(self, call_id: str, task_id: str | None = None, **fields: Json) -> Task:
        """A sub-agent that answers a call: created and begun."""
        child = Task(self.trace, task_id or call_id)
        child.created(
            agent=fields.pop("agent", None), parent_task_id=self.id, call_id=call_id, **fields
        )
        return child.begin()

    # --- items ---

    def add(self, item: Dict, private: Dict | None = None) -> int:
        """`output_item.added` at the next index."""
        index = self.items
        self.items += 1
        self.send("output_item.added", private, output_index=index, item=ordered(item))
        return index

    def reasoning(self, item_id: str) -> Item:
        """The model thinks."""
        return Item(self, {"type": "reasoning", "id": item_id}, {"summary": []})

    def call(self, item_id: str, call_id: str, name: str, **fields: Json) -> Call:
        """The model asks for a tool."""
        head = {"type": "tool_call", "id": item_id, "call_id": call_id, "name": name, **fields}
        return Call(self, head, {"arguments": ""})

    def whole_call(
        self, item_id: str, call_id: str, name: str, arguments: str, **fields: Json
    ) -> None:
        """A call whose arguments come in one piece; its tool is about to run."""
        call = self.call(item_id, call_id, name, **fields)
        call.delta(arguments)
        call.arguments_done()
        call.done()
        if fields.get("executor", "server") == "server":
            call.started()

    def result(self, item_id: str, call_id: str) -> Item:
        """Add the tool's result."""
        head = {"type": "tool_result", "id": item_id, "call_id": call_id}
        return Item(self, head, {"block_list": []})

    def message(self, item_id: str, **fields: Json) -> Item:
        """Add a message of the agent."""
        head = {"type": "message", "id": item_id, "role": "assistant", **fields}
        return Item(self, head, {"block_list": []})

    def says(self, item_id: str, *blocks: str) -> None:
        """A whole message of whole texts."""
        message = self.message(item_id)
        for block in blocks:
            message.text(block)
        message.done()

    # --- the rest of a task's life ---

    def step(self, name: str) -> int:
        """A stage begins."""
        self.send("step.started", step_index=self.steps, name=name)
        self.steps += 1
        return self.steps - 1

    def finish(self, step: int, **fields: Any) -> None:
        """A stage ends."""
        self.send("step.finished", step_index=step, **fields)

    def imports(self, number: int, source: Task, source_number: int) -> None:
        """A child's reference gets a number here."""
        self.send(
            "reference.imported",
            reference_id=number,
            source_task_id=source.id,
            source_reference_id=source_number,
        )

    def completed(self) -> None:
        """It has its answer."""
        self.send("completed")

    def failed(self, code: str, message: str, **fields: Json) -> None:
        """It ends with an error."""
        self.send("failed", error={"code": code, "message": message, **fields})


class Item:
    """An item between `added` and `done`; `lists` is what its parts add up to."""

    def __init__(self, task: Task, head: Dict, empty: Dict, private: Dict | None = None) -> None:
        self.task = task
        self.head = head
        self.lists: dict[str, list[Dict]] = {"summary": [], "reasoning_text": [], "block_list": []}
        self.index = task.add({**head, **empty}, private)

    def send(self, kind: str, private: Dict | None = None, **fields: Json) -> None:
        """An event about this item."""
        self.task.send(kind, private, item_id=self.head["id"], output_index=self.index, **fields)

    def done(self, *, brief: bool = False, private: Dict | None = None, **fields: Json) -> None:
        """Final. `brief` leaves out the lists that the events before it made."""
        item = dict(self.head)
        if not brief:
            if item["type"] == "reasoning":
                item["summary"] = self.lists["summary"]
                if self.lists["reasoning_text"]:
                    item["reasoning_text"] = self.lists["reasoning_text"]
            else:
                item["block_list"] = self.lists["block_list"]
        elif item["type"] == "tool_result":
            item["status"] = "completed"
        item.update(fields)
        self.task.send("output_item.done", private, output_index=self.index, item=ordered(item))

    # --- parts of a reasoning ---

    def summary(self) -> Part:
        """A part of the summary begins."""
        return Part(self, "reasoning_summary_item", "summary", "summary_index", {"text": ""})

    def thought(self) -> Part:
        """A part of the raw thinking begins."""
        return Part(self, "reasoning_text", "reasoning_text", "text_index", {"text": ""})

    # --- blocks that stream ---

    def open_text(self, **fields: Json) -> Part:
        """A text begins."""
        return Part(self, "text", "block_list", "block_index", {"text": "", **fields})

    def open_refusal(self) -> Part:
        """A refusal begins."""
        return Part(self, "refusal", "block_list", "block_index", {"refusal": ""})

    def open_image(self, **fields: Json) -> Part:
        """An image begins, still without a picture."""
        image = {"image_url": {"url": ""}, **fields}
        return Part(self, "image", "block_list", "block_index", image)

    # --- blocks that come whole ---

    def block(self, kind: str, **fields: Json) -> None:
        """A block as its `done` alone."""
        block = {"type": kind, **fields}
        index = len(self.lists["block_list"])
        self.lists["block_list"].append(block)
        self.send(f"{kind}.done", block_index=index, item=block)

    def text(self, text: str, **fields: Json) -> None:
        """A whole text. Annotations are the story's own."""
        self.block("text", text=text, **fields)


class Call(Item):
    """A tool call: its arguments are its one part."""

    def __init__(self, task: Task, head: Dict, empty: Dict) -> None:
        super().__init__(task, head, empty)
        self.arguments = ""

    def delta(self, *pieces: str) -> None:
        """More of the arguments."""
        for piece in pieces:
            self.arguments += piece
            self.send("tool_call_arguments.delta", delta=piece)

    def arguments_done(self) -> None:
        """The arguments are whole."""
        self.send("tool_call_arguments.done", arguments=self.arguments)

    def done(self, *, brief: bool = False, private: Dict | None = None, **fields: Json) -> None:
        """Final."""
        item = {**self.head, **({} if brief else {"arguments": self.arguments}), **fields}
        self.task.send("output_item.done", private, output_index=self.index, item=ordered(item))

    def started(self) -> None:
        """Its tool is about to run."""
        self.send("tool_call.started")


class Part:
    """A part between its `added` and its `done`."""

    def __init__(self, item: Item, kind: str, name: str, index_field: str, empty: Dict) -> None:
        self.item = item
        self.kind = kind
        self.block: Dict = {"type": "text" if "text" in empty else kind, **empty}
        self.place: Dict = {index_field: len(item.lists[name])}
        self.partial_images = 0
        self.item.lists[name].append(self.block)
        self.send("added", item=self.block)

    def send(self, what: str, **fields: Json) -> None:
        """An event about this part."""
        kind = self.kind
        if what == "delta" and kind == "reasoning_summary_item":
            kind = "reasoning_summary_text"  # the only name that differs
        self.item.send(f"{kind}.{what}", **self.place, **fields)

    def delta(self, *pieces: str) -> Self:
        """More characters."""
        field = "refusal" if self.kind == "refusal" else "text"
        for piece in pieces:
            self.block[field] += piece
            self.send("delta", delta=piece)
        return self

    def cite(self, number: int, *pieces: str) -> Self:
        """The marker, in one piece or in those given, and the annotation right behind it."""
        marker = f"[^{number}]"
        start = len(self.block["text"])
        assert "".join(pieces) in ("", marker)
        self.delta(*(pieces or (marker,)))
        return self.annotate(
            type="reference_to_block",
            reference_id=number,
            start_index=start,
            end_index=start + len(marker),
        )

    def annotate(self, **annotation: Json) -> Self:
        """An annotation of what is there already."""
        annotations = self.block.setdefault("annotations", [])
        self.send("annotation.added", annotation_index=len(annotations), annotation=annotation)
        annotations.append(annotation)
        return self

    def image(self, url: str) -> Self:
        """A better picture, whole."""
        self.block["image_url"] = {"url": url}
        self.send("delta", partial_image_index=self.partial_images, item=self.block)
        self.partial_images += 1
        return self

    def done(self, **fields: Json) -> None:
        """Final, and whole."""
        self.block.update(fields)
        self.send("done", item=self.block)
