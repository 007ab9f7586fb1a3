"""What a run looks like while it is being folded: tasks, their items, the items' parts.

Plain mutable nodes, changed by `tailrace.core.fold` and by nobody else. Texts are lists of pieces,
joined when somebody looks, so a run of a million deltas costs a million appends. A node remembers
its *arrival*, the position of the event that made it: that is what puts a sub-agent's items and a
result's own blocks into one order, and what lets a wire format rebuild itself from a state.
"""

from __future__ import annotations

from typing import Any

from tailrace.core.items import (
    Annotation,
    Data,
    ErrorInfo,
    File,
    Image,
    InputRequest,
    Item,
    Message,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from tailrace.core.room import Room, json_bytes

ENDED = frozenset(("completed", "incomplete", "failed", "cancelled"))
"""The statuses of a task after which nothing of it follows."""


class TextNode:
    """A text that may still grow: a block, a refusal, a part of a summary, a call's arguments."""

    __slots__ = (
        "annotations",
        "at",
        "cited",
        "id",
        "is_open",
        "item_id",
        "kind",
        "measured",
        "pieces",
        "room",
    )

    def __init__(self, kind: str, item_id: str, at: int, text: str, *, is_open: bool) -> None:
        """A part of `kind` (`text`, `refusal`, `summary`, `reasoning_text`, `arguments`)."""
        self.kind = kind
        self.item_id = item_id
        self.at = at
        self.is_open = is_open
        self.pieces = [text] if text else []
        self.id: int | None = None
        self.annotations: list[Annotation] = []
        self.measured = (0, 0)
        self.cited = (0, 0)
        self.room: Room | None = None

    @property
    def text(self) -> str:
        """The text so far; joining shortens the list, so looking twice costs once."""
        if len(self.pieces) > 1:
            self.measured = (0, 0)
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

    def length(self) -> int:
        """Code points so far, counting each piece once however often it is asked."""
        seen, total = self.measured
        for piece in self.pieces[seen:]:
            total += len(piece)
        self.measured = (len(self.pieces), total)
        return total

    def beside(self) -> int:
        """Bytes of the annotations so far, weighing each of them once."""
        seen, total = self.cited
        for annotation in self.annotations[seen:]:
            total += json_bytes(annotation)
        self.cited = (len(self.annotations), total)
        return total

    def check_room(self, piece: str, annotation: Annotation | None = None) -> None:
        """Raise `StreamTooLarge` if with these the part's `done` would outgrow one event."""
        if self.room is None:
            self.room = Room()
        beside = self.beside() + (json_bytes(annotation) if annotation is not None else 0)
        self.room.check(self.length() + len(piece), beside, lambda: self.text + piece)

    def replace(self, text: str, ident: int | None, annotations: list[Annotation]) -> None:
        """Take the final value."""
        self.pieces = [text] if text else []
        self.measured = (0, 0)
        self.id = ident
        self.annotations = list(annotations)


class ImageNode:
    """An image block; while it is open, each delta replaces the picture."""

    __slots__ = ("at", "image", "is_open", "item_id", "partial_image_index")
    kind = "image"

    def __init__(self, item_id: str, at: int, image: Image, *, is_open: bool) -> None:
        """The picture so far, which may have an empty URL."""
        self.item_id = item_id
        self.at = at
        self.is_open = is_open
        self.image = image
        self.partial_image_index: int | None = None


class WholeNode:
    """A block that always comes whole: data or a file."""

    __slots__ = ("at", "block", "item_id", "kind")
    is_open = False

    def __init__(self, item_id: str, at: int, block: Data | File) -> None:
        """A closed block."""
        self.item_id = item_id
        self.at = at
        self.block = block
        self.kind = "data" if isinstance(block, Data) else "file"


Part = TextNode | ImageNode | WholeNode


class ItemNode:
    """One item of a task with the parts it has so far.

    `parts` is the list that the item's kind has: the summary of a reasoning, the blocks of a result
    or message. They are keyed by index, so a foreign stream may leave holes.
    """

    __slots__ = (
        "arguments",
        "at",
        "is_open",
        "item",
        "output_index",
        "parts",
        "private",
        "progress",
        "started",
        "superseded",
        "texts",
    )

    def __init__(self, item: Item, output_index: int, at: int) -> None:
        """An open item without parts; `item` holds the fields that never stream."""
        self.item = item
        self.output_index = output_index
        self.at = at
        self.is_open = True
        self.parts: dict[int, Part] = {}
        self.texts: dict[int, TextNode] = {}
        self.arguments: TextNode | None = None
        self.started = False
        self.superseded = False
        self.progress: dict[str, Any] | None = None
        self.private: dict[str, Any] = {}

    def open_parts(self) -> list[TextNode | ImageNode]:
        """The parts that still stream."""
        found = [part for part in self.parts.values() if part.is_open]
        found += [part for part in self.texts.values() if part.is_open]
        if self.arguments is not None and self.arguments.is_open:
            found.append(self.arguments)
        return found  # type: ignore[return-value]  # whole nodes are never open

    @property
    def id(self) -> str:
        """The item's own id."""
        return self.item.id


class Step:
    """A named stage of an agent."""

    __slots__ = ("depth", "is_open", "name")

    def __init__(self, name: str, depth: int) -> None:
        """An open step below `depth` others."""
        self.name = name
        self.depth = depth
        self.is_open = True


class UsageSum:
    """The usage of all model calls of a task, added up in order."""

    __slots__ = ("calls", "fields")

    def __init__(self) -> None:
        """Nothing used so far."""
        self.calls = 0
        self.fields: dict[str, Any] = {"input_tokens": 0, "output_tokens": 0}

    def add(self, usage: Usage) -> None:
        """Count one more call."""
        self.calls += 1
        sums = self.fields
        for name in _COUNTS:
            count = getattr(usage, name)
            if count or name in sums:
                sums[name] = sums.get(name, 0) + count
        for name in ("cost", "latency_ms"):
            amount = getattr(usage, name)
            if amount is not None:
                sums[name] = sums.get(name, 0) + amount
        if usage.time_to_first_token_ms is not None:
            sums.setdefault("time_to_first_token_ms", usage.time_to_first_token_ms)
        for name in ("model", "service_tier"):
            if getattr(usage, name) is not None:
                sums[name] = getattr(usage, name)


_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


class TaskNode:
    """One agent at work: the root of the run, or a sub-agent below a call of its parent."""

    __slots__ = (
        "answers",
        "at",
        "attempt",
        "call_results",
        "calls",
        "children",
        "ended",
        "error",
        "facts",
        "imports",
        "item_ids",
        "items",
        "notices",
        "numbers",
        "open_steps",
        "parent",
        "private",
        "progress",
        "reason",
        "requests",
        "settling",
        "status",
        "steps",
        "structured_output",
        "task_id",
        "task_index",
        "usage",
    )

    def __init__(
        self, task_id: str, task_index: int, at: int, parent: TaskNode | None, facts: dict[str, Any]
    ) -> None:
        """A task as `task.created` describes it (`facts`), or as a foreign stream implies it.

        `task_index` is how many tasks of the run came before: 0 is the root.
        """
        self.task_id = task_id
        self.task_index = task_index
        self.at = at
        self.parent = parent
        self.facts = facts
        self.status: str | None = None
        self.ended = False
        self.attempt: int | None = None
        self.items: dict[int, ItemNode] = {}
        self.item_ids: dict[str, ItemNode] = {}
        self.calls: dict[str, ItemNode] = {}
        self.call_results: dict[str, ItemNode] = {}
        self.children: list[TaskNode] = []
        self.numbers: set[int] = set()
        self.structured_output: dict[str, Any] | None = None
        self.usage: UsageSum | None = None
        self.error: ErrorInfo | None = None
        self.reason: str | None = None
        self.requests: list[InputRequest] = []
        # What people answered, by request: history tells a provider that asked. In no view.
        self.answers: dict[str, dict[str, Any]] = {}
        # The item that was done last, until the task moves on to another item, a step, a pause or
        # its end. What is learnt of an item only afterwards, as its usage, is learnt until then.
        self.settling: int | None = None
        self.steps: dict[int, Step] = {}
        self.open_steps: list[int] = []
        self.notices: list[dict[str, Any]] = []
        self.progress: dict[str, Any] | None = None
        self.imports: dict[int, tuple[str, int]] = {}
        self.private: dict[str, Any] = {}

    @property
    def call_id(self) -> str | None:
        """The call of the parent that this task answers."""
        return self.facts.get("call_id")

    @property
    def reference_start(self) -> int:
        """The first number of this task's pool; earlier turns own the ones below."""
        return int(self.facts.get("reference_start", 1))

    @property
    def next_reference(self) -> int:
        """The number after all that this task and the turns before it issued."""
        return max(self.reference_start, max(self.numbers, default=0) + 1)

    def knows(self, number: int) -> bool:
        """Whether the task's pool issued this number (PROTOCOL.md, section 7)."""
        return 0 < number < self.reference_start or number in self.numbers

    def output(self) -> list[ItemNode]:
        """The items that count, in order: superseded attempts are not among them."""
        return [item for _, item in sorted(self.items.items()) if not item.superseded]

    def add_item(self, node: ItemNode) -> None:
        """Put an item in its place, and remember which call it is, or answers."""
        self.items[node.output_index] = node
        self.item_ids.setdefault(node.item.id, node)
        if isinstance(node.item, ToolCall):
            self.calls.setdefault(node.item.call_id, node)
        elif isinstance(node.item, ToolResult):
            self.call_results.setdefault(node.item.call_id, node)


def text_node(kind: str, item_id: str, at: int, text: Text, *, is_open: bool) -> TextNode:
    """The node of a text with whatever came with it."""
    node = TextNode(kind, item_id, at, text.text, is_open=is_open)
    node.id = text.id
    node.annotations = list(text.annotations)
    return node


def part_of(
    item_id: str, block: Text | Image | Refusal | Data | File, at: int, *, is_open: bool
) -> Part:
    """The node of one block."""
    if isinstance(block, Text):
        return text_node("text", item_id, at, block, is_open=is_open)
    if isinstance(block, Refusal):
        return TextNode("refusal", item_id, at, block.refusal, is_open=is_open)
    if isinstance(block, Image):
        return ImageNode(item_id, at, block, is_open=is_open)
    return WholeNode(item_id, at, block)


def holds_blocks(item: Item) -> bool:
    """Whether an item is a container of blocks."""
    return isinstance(item, ToolResult | Message)


def part_number(part: Part) -> int | None:
    """The reference that a block is, or is part of."""
    if isinstance(part, TextNode):
        return part.id
    return part.image.id if isinstance(part, ImageNode) else part.block.id


def note_numbers(task: TaskNode, content: list[Any] | None) -> None:
    """Remember the numbers that a private part shows to have been issued."""
    for part in content or ():
        if isinstance(part.id, int):
            task.numbers.add(part.id)
