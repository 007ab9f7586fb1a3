"""A conversation as a flat list of entries, before any provider's rules.

It holds the messages, the reasoning, the calls and the results of a chain of runs. It reads only
the items of the task itself, never those of sub-agents. Items that were cut are left out, except
the text of an answer that was stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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
from tailrace.core.values import dict_of
from tailrace.history.content import HistoryPart, block_pieces, is_blank
from tailrace.history.inputs import (
    ApprovalAnswer,
    ClientOutput,
    InputCall,
    ItemReference,
    read_input,
)

NO_RESULT = "The call was interrupted: it has no result."
"""The result that the model reads for a call without a result."""

REFUSED_INPUT = "input_guardrail"
"""The error code of a run whose input no model may read."""


@dataclass(slots=True, eq=False)
class Entry:
    """An entry of the conversation.

    `step` counts the answers of the model: entries with the same step are of the same answer.
    `whole` is False for an item that was cut. `origin` holds the provider's ids.
    """

    step: int
    whole: bool = True
    item_id: str = ""
    origin: dict[str, Any] = field(default_factory=dict)
    raw: Any = None
    behind: ReasoningEntry | None = None
    """The reasoning before this entry: the provider may require it together with the id."""

    @property
    def response(self) -> str | None:
        """The provider's id of the answer."""
        return _response(self.origin)


@dataclass(slots=True, eq=False)
class MessageEntry(Entry):
    """A message of the user, the system or the model."""

    role: str = "user"
    pieces: list[HistoryPart] = field(default_factory=list)
    phase: str | None = None


@dataclass(slots=True, eq=False)
class ReasoningEntry(Entry):
    """Reasoning. `follower` is the next item of the model, if it is complete."""

    summary: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    encrypted: str | None = None
    signature: str | None = None
    model: str | None = None
    follower: Entry | None = None


@dataclass(slots=True, eq=False)
class CallResult:
    """The result of a call, for the model."""

    pieces: list[HistoryPart]
    failed: bool = False
    raw: Any = None
    step: int = 0
    place: int = 0
    """Of a tool that the provider ran: the answer that it came with, and the entries before it."""
    by_client: bool = False
    """Whether a client sent it: then its text may not say that it failed."""

    def in_words(self) -> list[HistoryPart]:
        """The result for an API without a field for failed results."""
        if not self.failed or not self.by_client:
            return self.pieces
        if not self.pieces or not isinstance(first := self.pieces[0], TextPart):
            return [TextPart(text="Error:"), *self.pieces]
        if first.text.startswith("Error"):
            return self.pieces
        return [TextPart(text=f"Error: {first.text}"), *self.pieces[1:]]


@dataclass(slots=True, eq=False)
class CallEntry(Entry):
    """A call with its result, if any."""

    call_id: str = ""
    name: str = ""
    arguments: str = ""
    kind: str = "function"
    by_provider: bool = False
    result: CallResult | None = None
    answer: tuple[bool, str | None] | None = None
    """The answer to a request of the provider: approved or not, and the reason."""

    def outcome(self) -> CallResult:
        """The result, or a text in its place: every call needs a result."""
        return self.result or CallResult([TextPart(text=NO_RESULT)], failed=True)


@dataclass(slots=True, eq=False)
class ProviderItemEntry(Entry):
    """An item that only its provider can read."""


class Conversation:
    """The entries of a chain of tasks, oldest first."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.last_task: TaskNode | None = None
        """The task of the last item of the model."""
        self.names_items = False
        """Whether an input has references to items that it does not contain."""
        self._step = 0
        self._calls: dict[str, CallEntry] = {}
        self._asked: dict[str, CallEntry] = {}  # by the provider's own ids
        self._ids: set[str] = set()
        """Our ids of the items so far: a client may send an item of the chain again."""

    def add(self, task: TaskNode) -> None:
        """Read a task: its input, then its items. An input that was refused is left out."""
        if task.error is not None and task.error.code == REFUSED_INPUT:
            return
        self._add_input(task.facts.get("input"))
        self._add_items(task)

    def add_summary(self, text: str) -> None:
        """Add a text that stands for older tasks."""
        self._step += 1
        self._keep(MessageEntry(self._step, role="user", pieces=[TextPart(text=text)]))

    def leave_out(self, task: TaskNode) -> None:
        """Note a task that a summary stands for: items of it that a client sends are known."""
        self._ids.update(task.item_ids, task.calls)

    @property
    def turn(self) -> int:
        """The index of the first entry of the last user turn."""
        for index in range(len(self.entries) - 1, -1, -1):
            entry = self.entries[index]
            if isinstance(entry, MessageEntry) and entry.role == "user":
                return index
        return 0

    def _add_input(self, value: Any) -> None:
        self._step += 1
        answered = False  # whether the next items of the model follow results
        for given in read_input(value):
            if isinstance(given, ClientOutput):
                answered = True
                call = self._calls.get(given.call_id)
                if call is not None and call.result is None and not call.by_provider:
                    call.result = CallResult(given.pieces, given.failed, given.raw, by_client=True)
            elif isinstance(given, ItemReference):
                self.names_items = True
            elif isinstance(given, ApprovalAnswer):
                call = self._calls.get(given.request_id) or self._asked.get(given.request_id)
                if call is not None and call.answer is None:
                    call.answer = (given.approved, given.reason)
            elif isinstance(given, InputCall):
                if given.call_id not in self._calls and given.call_id not in self._ids:
                    self._step += answered
                    answered = False
                    self._keep(
                        CallEntry(
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
                self._keep(MessageEntry(self._step, role=given.role, pieces=given.pieces))

    def _keep(self, entry: Entry) -> None:
        self.entries.append(entry)
        if entry.item_id:
            self._ids.add(entry.item_id)
        if isinstance(entry, CallEntry):
            self._calls[entry.call_id] = entry
            self._asked[str(entry.origin.get("id"))] = entry

    def _add_items(self, task: TaskNode) -> None:
        self._step += 1
        last: Entry | None = None
        thought: ReasoningEntry | None = None
        answered = False  # whether a result is between the last entry and this entry
        for _, node in sorted(task.items.items()):
            if isinstance(node.item, ToolResult):
                # The results of the provider's tools come inside of an answer.
                came_with = _response(dict_of(node.private.get("provider")))
                known = last is not None and last.response and came_with
                is_later = came_with != last.response if last is not None and known else answered
                answered = self._take_result(node, self._step + is_later) or answered
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
                # Two reasoning items in a row may be of the same answer, or of two answers around
                # a lost connection. If that is unknown, the first has no follower.
                twice = (
                    isinstance(last, ReasoningEntry)
                    and isinstance(entry, ReasoningEntry)
                    and not known
                )
                if isinstance(last, ReasoningEntry) and entry.whole and not split and not twice:
                    last.follower = entry
            if isinstance(entry, ReasoningEntry):
                thought = entry
            else:
                entry.behind = thought
            last, answered = entry, False
            if entry.whole or (isinstance(entry, MessageEntry) and not node.superseded):
                if not isinstance(entry, MessageEntry) or entry.pieces:
                    self._keep(entry)
                    self.last_task = task
                else:
                    entry.whole = False

        self._take_answers(task)

    def _take_answers(self, task: TaskNode) -> None:
        """Take the answers to requests of the provider that came while the task ran."""
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
            "origin": dict_of(provider),
            "raw": private.get("raw"),
        }
        if isinstance(item, Reasoning):
            return ReasoningEntry(
                **facts,
                summary=_texts(node.parts),
                texts=_texts(node.texts),
                encrypted=private.get("encrypted_content"),
                signature=private.get("signature"),
                model=facts["origin"].get("model") or task.facts.get("model"),
            )
        if isinstance(item, ToolCall):
            return CallEntry(
                **facts,
                call_id=item.call_id,
                name=item.name,
                arguments=node.arguments_text,
                kind=item.kind,
                by_provider=item.executor == "provider",
            )
        if isinstance(item, Message):
            pieces = _content(node)
            return MessageEntry(**facts, role=item.role, pieces=pieces, phase=item.phase)
        assert isinstance(item, RawItem)
        facts["raw"] = item.raw if facts["raw"] is None else facts["raw"]
        facts["origin"] = {"api": item.source, **facts["origin"]}
        return ProviderItemEntry(**facts)

    def _take_result(self, node: ItemNode, step: int) -> bool:
        """Give a call its result; return whether the provider waits for it."""
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
            # No text for the model. Partial output of a failed tool is not a result.
            content = [] if failed else _shown(node)
        pieces: list[HistoryPart] = list(content)
        if failed:
            message = item.error.message if item.error is not None else ""
            pieces.append(TextPart(text=f"Error: {message or 'the tool failed.'}"))
        raw = node.private.get("raw")
        call.result = CallResult(pieces, failed, raw, step, len(self.entries))
        return not call.by_provider


def _response(origin: dict[str, Any]) -> str | None:
    found: str | None = origin.get("response_id") or origin.get("message_id")
    return found


def _asks(entry: Entry) -> bool:
    """Whether the answer of the provider waits for a result here."""
    return isinstance(entry, CallEntry) and entry.kind == "mcp_approval_request"


def _texts(parts: dict[int, Any]) -> list[str]:
    return [part.text for _, part in sorted(parts.items()) if isinstance(part, TextNode)]


def _content(node: ItemNode) -> list[HistoryPart]:
    content = node.private.get("content")
    pieces = list(content) if content is not None else block_pieces(node.parts)
    return [] if all(map(is_blank, pieces)) else pieces


def _shown(node: ItemNode) -> list[ContentPart]:
    pieces = block_pieces(node.parts)
    return wrap(TextPart(text=p.refusal) if isinstance(p, Refusal) else p for p in pieces)
