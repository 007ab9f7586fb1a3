"""The nodes of a state: tasks, their items, the items' parts.

Only `tailrace.core.fold` changes them. Texts are lists of pieces that are joined when they are
read, so a million deltas cost a million appends. A node's `at` is its arrival, the position of the
event that made it. It orders a sub-agent's items among a result's blocks, and lets a wire format
rebuild itself from a state.
"""

from __future__ import annotations

from typing import Any, Literal

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
from tailrace.core.text_limits import PartBound, json_bytes

ENDED = frozenset(("completed", "incomplete", "failed", "cancelled"))
"""The terminal statuses of a task."""


class TextNode:
    """A text that may grow: a block, a refusal, a part of a reasoning, a call's arguments."""

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
        self.room: PartBound | None = None

    @property
    def text(self) -> str:
        """The text so far. Joining shortens the list, so a second read is cheap."""
        if len(self.pieces) > 1:
            self.measured = (0, 0)
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

    def length(self) -> int:
        """Code points so far. Each piece is counted once."""
        seen, total = self.measured
        for piece in self.pieces[seen:]:
            total += len(piece)
        self.measured = (len(self.pieces), total)
        return total

    def beside(self) -> int:
        """Bytes of the annotations so far. Each is encoded once."""
        seen, total = self.cited
        for annotation in self.annotations[seen:]:
            total += json_bytes(annotation)
        self.cited = (len(self.annotations), total)
        return total

    def check_room(self, piece: str, annotation: Annotation | None = None) -> None:
        """Raise `StreamTooLarge` if the part's `done` would be too large with these."""
        if self.room is None:
            self.room = PartBound()
        beside = self.beside() + (json_bytes(annotation) if annotation is not None else 0)
        self.room.check(self.length() + len(piece), beside, lambda: self.text + piece)

    def replace(self, text: str, ident: int | None, annotations: list[Annotation]) -> None:
        """Set the final value."""
        self.pieces = [text] if text else []
        self.measured = (0, 0)
        self.id = ident
        self.annotations = list(annotations)


class ImageNode:
    """An image block; while it is open, each delta replaces the image."""

    __slots__ = ("at", "image", "is_open", "item_id", "partial_image_index")
    kind = "image"

    def __init__(self, item_id: str, at: int, image: Image, *, is_open: bool) -> None:
        """The image so far, whose URL may be empty."""
        self.item_id = item_id
        self.at = at
        self.is_open = is_open
        self.image = image
        self.partial_image_index: int | None = None


class WholeNode:
    """A block that never streams: data or a file."""

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
    """An item of a task with its parts so far.

    `parts` are the summary of a reasoning, or the blocks of a result or message. They are keyed by
    index, because a foreign stream may leave holes.
    """

    __slots__ = (
        "arguments",
        "at",
        "begun_at",
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
        # A call with `needs_approval` begins with its answer, its start or its result.
        waits = isinstance(item, ToolCall) and item.needs_approval
        self.begun_at: int | None = None if waits else at
        self.is_open = True
        self.parts: dict[int, Part] = {}
        self.texts: dict[int, TextNode] = {}
        self.arguments: TextNode | None = None
        self.started = False
        self.superseded = False
        self.progress: dict[str, Any] | None = None
        self.private: dict[str, Any] = {}

    @property
    def arguments_text(self) -> str:
        """The arguments of a call so far."""
        return "" if self.arguments is None else self.arguments.text

    def open_parts(self) -> list[TextNode | ImageNode]:
        """The open parts."""
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

    __slots__ = ("depth", "name", "status")

    def __init__(self, name: str, depth: int) -> None:
        """An open step inside `depth` other steps."""
        self.name = name
        self.depth = depth
        self.status: Literal["in_progress", "completed", "incomplete"] = "in_progress"

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.status == "in_progress"


class UsageSum:
    """The sum of the usage of the model calls of a task and of all tasks below it."""

    __slots__ = ("fields",)

    def __init__(self, fields: dict[str, Any] | None = None) -> None:
        """A sum with the fields of the object (PROTOCOL.md, section 5), or of no calls."""
        self.fields = fields or {"calls": 0, "input_tokens": 0, "output_tokens": 0}

    def add(self, usage: Usage, calls: int = 1, *, below: bool = False) -> None:
        """Add the usage of a call, or of `calls` calls; with `below`, of a task below.

        `model` and `service_tier` are of the task's own last call, if it has any.
        """
        sums = self.fields
        sums["calls"] += calls
        for name in TOKEN_COUNTS:
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
            if getattr(usage, name) is not None and not (below and name in sums):
                sums[name] = getattr(usage, name)


TOKEN_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
"""The fields of a usage that count tokens."""


class TaskNode:
    """A task: the root of the run, or a sub-agent for a call of its parent."""

    __slots__ = (
        "answers",
        "at",
        "attempt",
        "call_results",
        "calls",
        "children",
        "compacted",
        "end_time",
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
        "switches",
        "task_id",
        "task_index",
        "usage",
    )

    def __init__(
        self, task_id: str, task_index: int, at: int, parent: TaskNode | None, facts: dict[str, Any]
    ) -> None:
        """A task as `task.created` describes it (`facts`), or as a foreign stream implies it.

        `task_index` is the number of the run's earlier tasks; 0 for the root.
        """
        self.task_id = task_id
        self.task_index = task_index
        self.at = at
        self.parent = parent
        self.facts = facts
        self.status: str | None = None
        self.ended = False
        # The `at` of the event that ended it, for a format that shows it. No view does.
        self.end_time: float | None = None
        self.attempt: int | None = None
        self.items: dict[int, ItemNode] = {}
        self.item_ids: dict[str, ItemNode] = {}
        self.calls: dict[str, ItemNode] = {}
        self.call_results: dict[str, ItemNode] = {}
        self.children: list[TaskNode] = []
        self.numbers: set[int] = set()
        self.structured_output: dict[str, Any] | None = None
        self.switches: list[dict[str, Any]] = []
        self.compacted: dict[str, str] | None = None
        self.usage: UsageSum | None = None
        self.error: ErrorInfo | None = None
        self.reason: str | None = None
        self.requests: list[InputRequest] = []
        # The answers of people, by request, for the history. No view shows them.
        self.answers: dict[str, dict[str, Any]] = {}
        # The last item that was done, until the next item, step, pause or end of the task. Events
        # about that item, such as its usage, may come until then.
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
    def speaker(self) -> str | None:
        """The agent that speaks now. `facts["agent"]` is the agent that began the task."""
        agent: str | None = self.switches[-1]["agent"] if self.switches else self.facts.get("agent")
        return agent

    @property
    def next_attempt(self) -> int:
        """The number of the next `task.attempt`. The first try has the number 1, and no event."""
        return (self.attempt or 1) + 1

    @property
    def reference_start(self) -> int:
        """The first number of this task's pool; earlier runs issued the numbers below."""
        return int(self.facts.get("reference_start", 1))

    @property
    def next_reference(self) -> int:
        """The number after all numbers of this task and earlier runs."""
        return max(self.reference_start, max(self.numbers, default=0) + 1)

    def knows(self, number: int) -> bool:
        """Whether the task's pool issued this number (PROTOCOL.md, section 7)."""
        return 0 < number < self.reference_start or number in self.numbers

    def output(self) -> list[ItemNode]:
        """The items in order, without superseded items."""
        return [item for _, item in sorted(self.items.items()) if not item.superseded]

    def waiting_call(self, provider_id: str) -> str | None:
        """The last finished call of the provider's own tools, by its id there, without a result."""
        for call_id, node in reversed(self.calls.items()):
            item, provider = node.item, node.private.get("provider")
            if (
                isinstance(item, ToolCall)
                and item.executor == "provider"
                and item.status == "completed"
                and not node.superseded
                and call_id not in self.call_results
                and isinstance(provider, dict)
                and provider.get("id") == provider_id
            ):
                return call_id
        return None

    def own_count(self, name: str) -> int:
        """A count in the usage of this task without the tasks below it: `calls`, or tokens."""
        whole, *below = (
            0 if task.usage is None else int(task.usage.fields.get(name, 0))
            for task in (self, *self.children)
        )
        return whole - sum(below)

    def add_usage(self, usage: Usage) -> None:
        """Add the usage of a call to this task and to every task above it."""
        task: TaskNode | None = self
        while task is not None:
            if task.usage is None:
                task.usage = UsageSum()
            task.usage.add(usage, below=task is not self)
            task = task.parent

    def add_item(self, node: ItemNode) -> None:
        """Add an item, and index it by its call if it is a call or a result."""
        self.items[node.output_index] = node
        self.item_ids.setdefault(node.item.id, node)
        if isinstance(node.item, ToolCall):
            self.calls.setdefault(node.item.call_id, node)
        elif isinstance(node.item, ToolResult):
            self.call_results.setdefault(node.item.call_id, node)


def text_node(kind: str, item_id: str, at: int, text: Text, *, is_open: bool) -> TextNode:
    """The node of a text with its id and annotations."""
    node = TextNode(kind, item_id, at, text.text, is_open=is_open)
    node.id = text.id
    node.annotations = list(text.annotations)
    return node


def part_of(
    item_id: str, block: Text | Image | Refusal | Data | File, at: int, *, is_open: bool
) -> Part:
    """The node of a block."""
    if isinstance(block, Text):
        return text_node("text", item_id, at, block, is_open=is_open)
    if isinstance(block, Refusal):
        return TextNode("refusal", item_id, at, block.refusal, is_open=is_open)
    if isinstance(block, Image):
        return ImageNode(item_id, at, block, is_open=is_open)
    return WholeNode(item_id, at, block)


def holds_blocks(item: Item) -> bool:
    """Whether an item has blocks."""
    return isinstance(item, ToolResult | Message)


def part_number(part: Part) -> int | None:
    """The reference number of a block."""
    if isinstance(part, TextNode):
        return part.id
    return part.image.id if isinstance(part, ImageNode) else part.block.id


def note_numbers(task: TaskNode, content: list[Any] | None) -> None:
    """Add the reference numbers in a private content to the task's numbers."""
    for part in content or ():
        if isinstance(part.id, int):
            task.numbers.add(part.id)
