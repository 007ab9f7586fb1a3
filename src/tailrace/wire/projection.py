"""What several wire formats decide in the same way about a folded state.

Each rule is here once: which reasoning is shown, who executes a call, when it is complete, where a
citation links, the usage. A format only chooses its own JSON.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import Any, NamedTuple
from urllib.parse import quote

from tailrace.core import events as ev
from tailrace.core.closing_events import TOOL_INTERRUPTED
from tailrace.core.data_url import read_data_url
from tailrace.core.errors import StreamCut
from tailrace.core.fold import State
from tailrace.core.items import (
    Annotation,
    Data,
    ErrorInfo,
    File,
    Image,
    InputRequest,
    Item,
    Message,
    ReferenceToBlock,
    ToolCall,
    ToolResult,
    UrlCitation,
)
from tailrace.core.parts import DELTAS, PARTS, PartPlace
from tailrace.core.state import ItemNode, Part, TaskNode, TextNode, WholeNode, part_number
from tailrace.core.values import Json, json_text

PART_EVENTS: Mapping[type[Any], PartPlace] = {
    kind: place
    for kind, place in PARTS.items()
    if kind not in DELTAS and kind not in (ev.ArgumentsDone, ev.AnnotationAdded)
}
"""The events that add, replace or end a part of a reasoning, a message or a result."""


# --- the run --------------------------------------------------------------------------------------


def model_name(root: TaskNode) -> str:
    """The `model` of an answer: the agent that began it, or the model where none is named."""
    return root.facts.get("agent") or root.facts.get("model") or ""


def taken_over_by(root: TaskNode, output_index: int) -> str | None:
    """The agent that an item belongs to, if another agent began the run."""
    found = [one["agent"] for one in root.switches if one["output_index"] <= output_index]
    return found[-1] if found else None


class Handoffs:
    """Who takes over before which item, for a replay. Live, each switch is an event."""

    __slots__ = ("_left",)

    def __init__(self, switches: Iterable[Json]) -> None:
        """Begin before the first item."""
        self._left = deque(switches)

    def before(self, output_index: float) -> list[str]:
        """The agents that took over before this item, since the last call."""
        found: list[str] = []
        while self._left and self._left[0]["output_index"] <= output_index:
            found.append(self._left.popleft()["agent"])
        return found

    def rest(self) -> list[str]:
        """The agents that have no item yet."""
        return self.before(inf)


def limit_of(reason: str | None) -> str | None:
    """`length` or `content_filter`, where a limit of the model ended the run; else None."""
    return _LIMITS.get(reason or "")


_LIMITS = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "length": "length",
    "content_filter": "content_filter",
}


def usage_of_run(state: State) -> Json | None:
    """The usage of the run, sub-agents included, or None if no model reported any."""
    if state.root is None or state.root.usage is None:
        return None
    return dict(state.root.usage.fields)


class TokenCounts(NamedTuple):
    """The tokens of a run, each 0 unless a model reported it."""

    input_tokens: int
    output_tokens: int
    cached_input_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int


def token_counts(state: State) -> TokenCounts:
    """The tokens of the root and its sub-agents: other APIs show the run as one answer."""
    used = usage_of_run(state) or {}
    return TokenCounts(*(used.get(name, 0) for name in TokenCounts._fields))


def newly_superseded(state: State, event: Any) -> list[ItemNode]:
    """The items that a `task.attempt` takes back; ask before the event is folded."""
    task = state.tasks.get(event.task_id) if isinstance(event, ev.TaskAttempt) else None
    if task is None or task.ended:
        return []
    named = (task.item_ids.get(item_id) for item_id in event.superseded)
    return [node for node in named if node is not None and not node.superseded]


WITHHELD = ErrorInfo(code="output_guardrail", message="A guardrail refused the answer.")
"""The error of a stream that showed an answer which a guardrail then refused."""


def taken_back(event: Any, advice: str) -> ErrorInfo:
    """The error of a stream that showed what `event` supersedes, while the run goes on.

    `advice` is how a client of the format gets the whole answer.
    """
    if isinstance(event, ev.TaskAttempt) and event.reason == WITHHELD.code:
        return WITHHELD
    message = f"The answer was begun again after a fault; {advice}."
    return ErrorInfo(code=StreamCut.code, message=message)


INCOMPLETE_CALL = ErrorInfo(
    code="incomplete_function_call", message="The response ended inside a function call."
)
"""The error of OpenAI's formats for an answer that ended with a cut call."""


# --- calls ----------------------------------------------------------------------------------------


def is_client(item: Item) -> bool:
    """Whether the client executes this call."""
    return isinstance(item, ToolCall) and item.executor == "client"


def is_complete(node: ItemNode) -> bool:
    """Whether an item ended as `completed`."""
    return not node.is_open and node.item.status == "completed"


def is_cut(node: ItemNode) -> bool:
    """Whether a client's call ended before its arguments were complete.

    Formats never report such a call as done: some SDKs execute any arguments that parse.
    """
    return is_client(node.item) and not node.is_open and node.item.status != "completed"


def arguments_of(task: TaskNode, call: ItemNode) -> str:
    """The arguments of a call: those that a person approved instead of the model's, if any did."""
    assert call.arguments is not None
    item = call.item
    if isinstance(item, ToolCall) and item.needs_approval and item.executor == "server":
        for answer in task.answers.values():
            is_changed = answer.get("approved") and isinstance(answer.get("value"), dict)
            if is_changed and answer.get("call_id") == item.call_id:
                return json_text(answer["value"])
    return call.arguments.text


def result_of(task: TaskNode, call: ItemNode) -> ItemNode | None:
    """The result of a call, unless it was superseded."""
    result = task.call_results.get(call.item.call_id)  # type: ignore[union-attr]  # a ToolCall
    return None if result is None or result.superseded else result


def structured_text(root: TaskNode, items: Iterable[ItemNode]) -> str | None:
    """The structured output of a completed task as text, if no message among these items has any.

    Clients of these formats read the answer as a text only.
    """
    if root.status != "completed" or root.structured_output is None:
        return None
    messages = [node for node in items if isinstance(node.item, Message)]
    parts = [part for node in messages for part in node.parts.values()]
    if any(part.kind != "data" and getattr(part, "text", "x") for part in parts):
        return None
    return json_text(root.structured_output["value"])


def asked_of(state: State) -> set[str]:
    """The ids of the requests that a paused run waits for."""
    return {request.id for _, request in state.requests()}


def is_paused(state: State) -> bool:
    """Whether the run waits for people, and nothing else of it runs."""
    above: set[tuple[str, str | None]] | None = None
    for task in state.tasks.values():
        if task.status == "input_required" and not all(is_void(task, r) for r in task.requests):
            above = set() if above is None else above
            while task.parent is not None:
                above.add((task.parent.task_id, task.call_id))
                task = task.parent
    if above is None:
        return False
    return not any(
        (node.started or _is_answered(task, call_id, node.item))
        and _has_no_result(task, call_id)
        and (task.task_id, call_id) not in above
        and not _may_ask(task, call_id)
        for task in state.tasks.values()
        if not task.ended
        for call_id, node in task.calls.items()
        if not node.superseded
    )


def is_void(task: TaskNode, request: InputRequest) -> bool:
    """Whether no answer counts any more: its call was stopped, because its task is about to end."""
    result = task.call_results.get(request.call_id or "")
    error = None if result is None else result.item.error  # type: ignore[union-attr]  # a ToolResult
    return error is not None and error.code in _STOPPED


_STOPPED = ("cancelled", TOOL_INTERRUPTED.code)
"""The errors of the calls that a task leaves without a result when it is cancelled or fails."""


def _is_answered(task: TaskNode, call_id: str, item: Item) -> bool:
    """Whether the client has sent the output of its call to an `Agent`, which writes it next.

    An `Agent` names its request after the call.
    """
    return is_client(item) and f"req_{call_id}" in task.answers


def _may_ask(task: TaskNode, call_id: str) -> bool:
    """Whether the tool of a call may be what waits: a question of a tool need not name its call."""
    if any(child.call_id == call_id for child in task.children):
        return False  # a sub-agent answers the call, and asks in its own task
    return any(request.call_id in (None, call_id) for request in task.requests)


def _has_no_result(task: TaskNode, call_id: str) -> bool:
    result = task.call_results.get(call_id)
    return result is None or result.is_open


def awaits_client(root: TaskNode, unsent: Collection[ItemNode] = ()) -> bool:
    """Whether the client has complete calls to execute. It has not seen those in `unsent`."""
    return any(
        is_client(node.item)
        and node not in unsent
        and is_complete(node)
        and result_of(root, node) is None
        for node in root.output()
    )


def server_name(call: ToolCall) -> str:
    """The server that executes a call, for APIs that require a name."""
    return call.server_label or ("tailrace" if call.kind == "function" else call.kind)


# --- texts and files ------------------------------------------------------------------------------


def is_raw_first(node: ItemNode) -> bool:
    """Whether a reasoning began with raw text rather than a summary.

    Clients show a single kind of reasoning, so the first kind counts.
    """
    if not node.texts or not node.parts:
        return bool(node.texts)
    return next(iter(node.texts.values())).at < next(iter(node.parts.values())).at


def shown_store(node: ItemNode) -> str:
    """The attribute of a node whose parts are shown: `texts` if raw reasoning came first.

    Never both: a backend that sends both sends the same thoughts twice.
    """
    return "texts" if is_raw_first(node) else "parts"


def shown_parts(node: ItemNode) -> dict[int, Any]:
    """The parts of an item that are shown."""
    return node.texts if is_raw_first(node) else node.parts


def file_link(part: WholeNode) -> str:
    """A file as a Markdown link."""
    assert isinstance(part.block, File)
    return f"[{part.block.name or part.block.path or 'file'}]({part.block.url})"


def inline_image(image: Image) -> str | None:
    """The picture in base64, if its URL is a `data:` URL."""
    found = read_data_url(image.image_url.url)
    return None if found is None else found[1]


def image_link(image: Image, *, inline: str = "") -> str:
    """An image as Markdown; `inline` instead if its URL holds its bytes."""
    url = image.image_url.url
    if read_data_url(url) is not None:
        return inline
    return f"![image]({url})" if url else ""


def block_text(part: Part) -> str:
    """A block as text: links for files and images, JSON for data."""
    if isinstance(part, TextNode):
        return part.text
    if isinstance(part, WholeNode):
        if isinstance(part.block, Data):
            return json_text(part.block.data)
        return file_link(part)
    return image_link(part.image)


def output_text(task: TaskNode, result: ItemNode) -> str:
    """A result as one text, with the last message of each sub-agent that worked on the call."""
    entries = [(part.at, block_text(part)) for part in result.parts.values()]
    call_id = result.item.call_id  # type: ignore[union-attr]  # a ToolResult
    for child in task.children:
        if child.call_id == call_id:
            messages = [node for node in child.output() if isinstance(node.item, Message)]
            entries += [
                (node.at, block_text(part))
                for node in messages[-1:]
                for part in node.parts.values()
            ]
    entries.sort(key=lambda entry: entry[0])
    return "\n".join(text for _, text in entries if text)


# --- citations ------------------------------------------------------------------------------------


class CitedBlock(NamedTuple):
    """A block of a result that has a reference number."""

    task: TaskNode
    node: ItemNode
    block_index: int
    part: Part


class Sources:
    """Finds the block behind a reference number: PROTOCOL.md, section 7.

    The first block of a task with a number counts. With `superseded=False`, blocks of superseded
    results do not count.
    """

    def __init__(self, state: State, *, superseded: bool = True) -> None:
        """Read the references that a state has so far."""
        self._state = state
        self._superseded = superseded
        self._blocks: dict[tuple[str, int], list[tuple[ItemNode, int]]] = {}
        found = [
            (part.at, task.task_id, node, index, number)
            for task in state.tasks.values()
            for node in task.items.values()
            if isinstance(node.item, ToolResult)
            for index, part in node.parts.items()
            if (number := part_number(part)) is not None
        ]
        for _, task_id, node, index, number in sorted(found, key=lambda entry: entry[0]):
            self._blocks.setdefault((task_id, number), []).append((node, index))

    def note(self, event: Any) -> None:
        """Take note of a folded event, which may have added a block with a number."""
        number = getattr(getattr(event, "item", None), "id", None)
        if isinstance(number, int):
            node = self._state.tasks[event.task_id].items[event.output_index]
            self._blocks.setdefault((event.task_id, number), []).append((node, event.block_index))

    def find(self, task_id: str, number: int, at: int) -> tuple[str, int, CitedBlock | None]:
        """The block that a text of this task cites, with the task and number it has there.

        A text that arrived at `at` cites only what arrived before it. So a citation looks the same
        when it is added and when its text ends.
        """
        tasks = self._state.tasks
        for _ in tasks:  # an import cannot take more steps
            block = self._block(task_id, number, at)
            imported = tasks[task_id].imports.get(number) if task_id in tasks else None
            if block is not None or imported is None:
                return task_id, number, block
            task_id, number = imported
        return task_id, number, None

    def _block(self, task_id: str, number: int, at: int) -> CitedBlock | None:
        for node, index in self._blocks.get((task_id, number), ()):
            if self._superseded or not node.superseded:
                part = node.parts[index]
                task = self._state.tasks[task_id]
                return CitedBlock(task, node, index, part) if part.at < at else None
        return None

    def link(self, task: TaskNode, annotation: Annotation, at: int) -> tuple[str, str] | None:
        """The URL and title of a citation; None if the annotation is not a link."""
        if isinstance(annotation, UrlCitation):
            return annotation.url, annotation.title
        if not isinstance(annotation, ReferenceToBlock):
            return None
        task_id, number, block = self.find(task.task_id, annotation.reference_id, at)
        run_id = next(iter(self._state.tasks))
        url = f"tailrace:{quote(run_id, safe='')}/{quote(task_id, safe='')}/{number}"
        title = f"[{number}]"
        if block is None:
            return url, title
        call = block.task.calls.get(block.node.item.call_id)  # type: ignore[union-attr]
        if call is not None:
            title = call.item.name  # type: ignore[union-attr]  # a ToolCall
        if isinstance(block.part, WholeNode):
            title = block.part.block.name or title
            if isinstance(block.part.block, File):
                url = block.part.block.url
        return url, title
