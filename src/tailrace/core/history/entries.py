"""A conversation as the model took part in it, before any provider's rules.

The runs of a chain are read into one flat list: what people said, what the model thought, said and
called, and what its calls gave. Only the task's own items are looked at, so nothing from inside of
a sub-agent can get here. Items that were cut are left out, except for the words of an answer that
somebody stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tailrace.core.history.inputs import Approval, Output, Use, read_input
from tailrace.core.history.pieces import Piece, block_pieces, is_blank
from tailrace.core.items import (
    ContentPart,
    Message,
    RawItem,
    Reasoning,
    Refusal,
    TextPart,
    ToolCall,
    ToolResult,
)
from tailrace.core.references import wrap
from tailrace.core.state import ItemNode, TaskNode, TextNode

INTERRUPTED = "The call was interrupted: it has no result."
"""What the model reads of a call that nobody answered."""


@dataclass(slots=True, eq=False)
class Entry:
    """One thing of the conversation.

    `step` counts the model's answers: entries of one step came from one answer, as far as the log
    tells. `whole` is False for what was cut. `origin` holds the provider's own ids.
    """

    step: int
    whole: bool = True
    item_id: str = ""
    origin: dict[str, Any] = field(default_factory=dict)
    raw: Any = None
    behind: Thought | None = None
    """The thought that this came from: the provider may demand it beside the item's id."""

    @property
    def response(self) -> str | None:
        """The provider's name for the answer that this is part of."""
        found: str | None = self.origin.get("response_id") or self.origin.get("message_id")
        return found


@dataclass(slots=True, eq=False)
class Said(Entry):
    """Words, pictures and files of a person or the model."""

    role: str = "user"
    pieces: list[Piece] = field(default_factory=list)
    phase: str | None = None


@dataclass(slots=True, eq=False)
class Thought(Entry):
    """Reasoning. `follower` is what the model put out right after it, if that is still whole."""

    summary: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    encrypted: str | None = None
    signature: str | None = None
    model: str | None = None
    follower: Entry | None = None


@dataclass(slots=True, eq=False)
class Result:
    """What a call gave, for the model to read."""

    pieces: list[Piece]
    failed: bool = False
    raw: Any = None


@dataclass(slots=True, eq=False)
class Called(Entry):
    """A call, with its result once there is one."""

    call_id: str = ""
    name: str = ""
    arguments: str = ""
    kind: str = "function"
    by_provider: bool = False
    result: Result | None = None
    answer: tuple[bool, str | None] | None = None
    """What somebody said to a request of the provider's: whether it may, and why."""

    def outcome(self) -> Result:
        """The result, or word that there is none: no call may stay without."""
        return self.result or Result([TextPart(text=INTERRUPTED)], failed=True)


@dataclass(slots=True, eq=False)
class Kept(Entry):
    """An item that only its own provider can read."""


class Conversation:
    """The entries of a chain of tasks, oldest first."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.last_task: TaskNode | None = None
        """The task of the model's last item among the entries."""
        self._step = 0
        self._calls: dict[str, Called] = {}
        self._asked: dict[str, Called] = {}  # by the provider's own ids
        self._ids: set[str] = set()
        """Our ids of the items so far: a client may send an item back that the chain has."""

    def add(self, task: TaskNode) -> None:
        """Read one more task: what it was asked, then what it did."""
        self._add_input(task.facts.get("input"))
        self._add_items(task)

    @property
    def turn(self) -> int:
        """Where the last user turn begins; what stands before belongs to earlier ones."""
        for index in range(len(self.entries) - 1, -1, -1):
            entry = self.entries[index]
            if isinstance(entry, Said) and entry.role == "user":
                return index
        return 0

    def _add_input(self, value: Any) -> None:
        self._step += 1
        answered = False  # whether what the model says next was said with results at hand
        for given in read_input(value):
            if isinstance(given, Output):
                answered = True
                call = self._calls.get(given.call_id)
                if call is not None and call.result is None and not call.by_provider:
                    call.result = Result(given.pieces, given.failed, given.raw)
            elif isinstance(given, Approval):
                call = self._calls.get(given.request_id) or self._asked.get(given.request_id)
                if call is not None and call.answer is None:
                    call.answer = (given.approved, given.reason)
            elif isinstance(given, Use):
                if given.call_id not in self._calls and given.call_id not in self._ids:
                    self._step += answered
                    answered = False
                    self._keep(
                        Called(
                            self._step,
                            call_id=given.call_id,
                            name=given.name,
                            arguments=given.arguments,
                            kind=given.kind,
                        )
                    )
            elif given.item_id not in self._ids and not all(map(is_blank, given.pieces)):
                self._step += answered or given.role != "assistant"
                answered = False
                self._keep(Said(self._step, role=given.role, pieces=given.pieces))

    def _keep(self, entry: Entry) -> None:
        self.entries.append(entry)
        if entry.item_id:
            self._ids.add(entry.item_id)
        if isinstance(entry, Called):
            self._calls[entry.call_id] = entry
            self._asked[str(entry.origin.get("id"))] = entry

    def _add_items(self, task: TaskNode) -> None:
        self._step += 1
        last: Entry | None = None
        thought: Thought | None = None
        answered = False  # whether a result stands between the last entry and this one
        for _, node in sorted(task.items.items()):
            if isinstance(node.item, ToolResult):
                # The results of the provider's own tools come in the midst of an answer.
                answered = self._take_result(node) or answered
                continue
            entry = self._read(task, node)
            known = last is not None and last.response and entry.response
            if last is not None:
                apart = answered or not last.whole or (_asks(last) and not _asks(entry))
                split = last.response != entry.response if known else apart
                if split:
                    self._step += 1
                    entry.step = self._step
                    if known:
                        thought = None
                # Two thoughts in a row may be one answer's, or one from before and one from after
                # a lost connection. Where nobody says which, the first has no follower.
                twice = isinstance(last, Thought) and isinstance(entry, Thought) and not known
                if isinstance(last, Thought) and entry.whole and not split and not twice:
                    last.follower = entry
            if isinstance(entry, Thought):
                thought = entry
            else:
                entry.behind = thought
            last, answered = entry, False
            if entry.whole or (isinstance(entry, Said) and not node.superseded):
                if not isinstance(entry, Said) or entry.pieces:
                    self._keep(entry)
                    self.last_task = task
                else:
                    entry.whole = False

        self._take_answers(task)

    def _take_answers(self, task: TaskNode) -> None:
        """What people answered while the task ran, to what the provider wanted to know."""
        for request_id, answer in task.answers.items():
            call = self._calls.get(answer.get("call_id", "")) or self._asked.get(request_id)
            if call is not None:
                call.answer = (answer.get("approved") is True, answer.get("reason"))

    def _read(self, task: TaskNode, node: ItemNode) -> Entry:
        item, private = node.item, node.private
        provider = private.get("provider")
        facts: dict[str, Any] = {
            "step": self._step,
            "whole": not node.is_open and not node.superseded and item.status == "completed",
            "item_id": item.id,
            "origin": provider if isinstance(provider, dict) else {},
            "raw": private.get("raw"),
        }
        if isinstance(item, Reasoning):
            return Thought(
                **facts,
                summary=_texts(node.parts),
                texts=_texts(node.texts),
                encrypted=private.get("encrypted_content"),
                signature=private.get("signature"),
                model=facts["origin"].get("model") or task.facts.get("model"),
            )
        if isinstance(item, ToolCall):
            return Called(
                **facts,
                call_id=item.call_id,
                name=item.name,
                arguments=node.arguments.text if node.arguments is not None else "",
                kind=item.kind,
                by_provider=item.executor == "provider",
            )
        if isinstance(item, Message):
            pieces = _content(node)
            return Said(**facts, role=item.role, pieces=pieces, phase=item.phase)
        assert isinstance(item, RawItem)
        facts["raw"] = item.raw if facts["raw"] is None else facts["raw"]
        facts["origin"] = {"api": item.source, **facts["origin"]}
        return Kept(**facts)

    def _take_result(self, node: ItemNode) -> bool:
        """Give a call its result; whether it is one that the provider waits for."""
        item = node.item
        assert isinstance(item, ToolResult)
        call = self._calls.get(item.call_id)
        if call is None:
            return False
        if node.is_open or node.superseded or item.status == "incomplete":
            return not call.by_provider
        failed = item.status == "failed"
        content = node.private.get("content")
        if content is None:
            # Nobody said what the model should read. What a failed tool had shown is no answer.
            content = [] if failed else _shown(node)
        pieces: list[Piece] = list(content)
        if failed:
            said = item.error.message if item.error is not None else ""
            pieces.append(TextPart(text=f"Error: {said or 'the tool failed.'}"))
        call.result = Result(pieces, failed, node.private.get("raw"))
        return not call.by_provider


def _asks(entry: Entry) -> bool:
    """Whether the provider's answer ends here, until somebody has answered it."""
    return isinstance(entry, Called) and entry.kind == "mcp_approval_request"


def _texts(parts: dict[int, Any]) -> list[str]:
    return [part.text for _, part in sorted(parts.items()) if isinstance(part, TextNode)]


def _content(node: ItemNode) -> list[Piece]:
    content = node.private.get("content")
    pieces = list(content) if content is not None else block_pieces(node.parts)
    return [] if all(map(is_blank, pieces)) else pieces


def _shown(node: ItemNode) -> list[ContentPart]:
    pieces = block_pieces(node.parts)
    return wrap(TextPart(text=p.refusal) if isinstance(p, Refusal) else p for p in pieces)
