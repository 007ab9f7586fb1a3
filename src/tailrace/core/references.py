"""What tools return, and the numbers under which it can be cited.

A tool's output has two sides: parts for the model, blocks for the client. The pool joins them: it
gives every reference a number that is stable along the conversation, wraps the parts for the model
between marks that only we can make, and writes the number on the blocks. PROTOCOL.md, section 7.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

import msgspec

from tailrace.core.citations import cited, defuse, renumber, restore
from tailrace.core.items import (
    Block,
    ContentPart,
    FilePart,
    Refusal,
    TextPart,
)
from tailrace.core.tool_output import ToolOutput, tool_output

ADDED = "added_by_reference_manager"
"""The tag of the openers and closers: parts that no tool returned."""

_encode = msgspec.json.Encoder().encode
_replace = msgspec.structs.replace


class Admitted(msgspec.Struct, frozen=True):
    """A tool's output in the pool: what the model reads, what the client gets, their numbers."""

    content: list[ContentPart]
    block_list: list[Block]
    numbers: list[int]


class Imported(msgspec.Struct, frozen=True):
    """A child's answer in its parent's words.

    `content` is what the parent's model reads. `imports` are the (parent's, child's) numbers that
    `task.reference.imported` has to announce; `mapping` has all cited ones, child's to parent's.
    """

    content: list[ContentPart]
    imports: list[tuple[int, int]]
    mapping: dict[int, int]


class Pool:
    """Gives out a task's reference numbers: the same content keeps its number for ever.

    `start` is the task's `reference_start`: the numbers below it belong to earlier turns. `known`
    are the contents (private parts) of this task's tool results so far, and `learn` takes those of
    earlier turns: with them, content that comes again gets the number that it had.
    """

    def __init__(self, start: int = 1, known: Iterable[Sequence[ContentPart]] = ()) -> None:
        self._start = start
        self._next = start
        self._issued: set[int] = set()
        self._numbers: dict[bytes, int] = {}
        for content in known:
            self.extend_from(content)

    @property
    def next(self) -> int:
        """The number that new content would get: the `reference_start` of the turn after."""
        return self._next

    def knows(self, number: int) -> bool:
        """Whether `number` can be cited here; what a `CitationScanner` asks."""
        return 0 < number < self._start or number in self._issued

    def reserve(self, number: int) -> None:
        """Never issue `number`: the log has it already, on a block or an import.

        For recovery: a worker may die after it showed a number and before the content behind it was
        logged.
        """
        self._issued.add(number)
        self._next = max(self._next, number + 1)

    def extend_from(self, content: Sequence[ContentPart]) -> None:
        """Learn the numbers of a content list that a pool of this conversation made."""
        for number, parts in _members(unwrap(content)).items():
            if isinstance(number, int):  # a string is some tool's own id: never through a pool
                self.reserve(number)
                self._numbers.setdefault(_digest(parts), number)

    def learn(self, content: Sequence[ContentPart], below: int) -> None:
        """Learn the numbers of an earlier turn's content, as far as they are below `below`.

        The turn issued the others after the conversation went on without it. Nobody can cite them
        here, and none of them is issued again: a model that reads both would take one for another.
        """
        for number, parts in _members(unwrap(content)).items():
            if isinstance(number, int):
                if number < below:
                    self._numbers.setdefault(_digest(parts), number)
                else:
                    self._next = max(self._next, number + 1)

    def number(self, parts: Sequence[ContentPart]) -> int:
        """The number of the reference that consists of these parts; a new one for new content."""
        digest = _digest(parts)
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers[digest] = self._next
            self.reserve(number)
        return number

    def admit(self, output: ToolOutput) -> Admitted:
        """Give a tool's output its numbers.

        Parts without a local id stay outside: the model reads them and can't cite them. So do
        blocks whose id no part has, since nobody who reads the parts could mean them.
        """
        # Here, not later: a tool's word for what we added would be taken for ours.
        parts = [
            _replace(part, tags=[tag for tag in part.tags if tag != ADDED])
            for part in output.message_content
        ]
        numbers = {local: self.number(members) for local, members in _members(parts).items()}
        content = wrap(
            [_replace(part, id=None if part.id is None else numbers[part.id]) for part in parts]
        )
        blocks: list[Block] = [
            block
            if isinstance(block, Refusal) or block.id is None
            else _replace(block, id=numbers.get(block.id))
            for block in output.block_list
        ]
        return Admitted(content, blocks, list(dict.fromkeys(numbers.values())))


def wrap(content: Iterable[ContentPart]) -> list[ContentPart]:
    """Content for the model: each stretch of one reference's parts between an opener and a closer.

    Texts (and file names) that imitate our marks are made harmless: `unwrap` takes that back. What
    is wrapped already must not be wrapped again.
    """
    wrapped: list[ContentPart] = []
    inside: int | str | None = None
    for part in content:
        if part.id != inside:
            if inside is not None:
                wrapped.append(_closer(inside))
            if part.id is not None:
                wrapped.append(_opener(part.id))
            inside = part.id
        wrapped.append(_escaped(part))
    if inside is not None:
        wrapped.append(_closer(inside))
    return wrapped


def unwrap(content: Iterable[ContentPart]) -> list[ContentPart]:
    """What the tool returned, from content that `wrap` made: the same parts, texts and order.

    Two things stay changed: an `id` is the pool's number, not the tool's, and the tag that only we
    may use is gone.
    """
    return [_unescaped(part) for part in content if ADDED not in part.tags]


def import_citations(
    child_messages: Iterable[str],
    child_contents: Iterable[Sequence[ContentPart]],
    parent: Pool,
) -> Imported:
    """What a parent's model gets from a child: the references that it cited, then its messages.

    `child_contents` are the contents of the child's tool results, in order; where several have a
    number, the first is taken, as everywhere. In the messages, markers carry the parent's numbers;
    a marker of nothing is defused, so that it can't cite what the parent has under that number.
    """
    messages = list(child_messages)
    references: dict[int | str, list[ContentPart]] = {}
    for content in child_contents:
        for number, parts in _members(unwrap(content)).items():
            references.setdefault(number, parts)
    mapping: dict[int, int] = {}
    imports: list[tuple[int, int]] = []
    carried: list[ContentPart] = []
    for number in dict.fromkeys(number for text in messages for number in cited(text)):
        if number not in references:
            continue
        unused = parent.next
        mapping[number] = ours = parent.number(references[number])
        if ours >= unused:
            imports.append((ours, number))
        carried += [_replace(part, id=ours) for part in references[number]]
    spoken: list[ContentPart] = [TextPart(text=renumber(text, mapping)) for text in messages]
    return Imported(wrap(carried) + spoken, imports, mapping)


def _members(parts: Iterable[ContentPart]) -> dict[int | str, list[ContentPart]]:
    members: dict[int | str, list[ContentPart]] = {}
    for part in parts:
        if part.id is not None:
            members.setdefault(part.id, []).append(part)
    return members


def _digest(parts: Iterable[ContentPart]) -> bytes:
    # A part that occurs twice counts once. Two equal references in one output have one number, so
    # in the content, from which a later turn rebuilds the pool, their parts can't be told apart.
    plain = dict.fromkeys(_encode(_replace(part, id=None, tags=[])) for part in parts)
    return hashlib.sha256(b"\n".join(plain)).digest()  # JSON holds no bare line break


def _opener(number: int | str) -> TextPart:
    return TextPart(text=f"<referencable-item>\nID: {number}", id=number, tags=[ADDED])


def _closer(number: int | str) -> TextPart:
    return TextPart(text="</referencable-item>", id=number, tags=[ADDED])


def _escaped(part: ContentPart) -> ContentPart:
    return _changed(part, defuse)


def _unescaped(part: ContentPart) -> ContentPart:
    return _changed(part, restore)


def _changed(part: ContentPart, change: Callable[[str], str]) -> ContentPart:
    """The part with what a model reads of it changed: its text, or a file's name."""
    if isinstance(part, TextPart) and (text := change(part.text)) != part.text:
        return _replace(part, text=text)
    if isinstance(part, FilePart) and part.name and (name := change(part.name)) != part.name:
        return _replace(part, name=name)
    return part


__all__ = [
    "ADDED",
    "Admitted",
    "Imported",
    "Pool",
    "ToolOutput",
    "import_citations",
    "tool_output",
    "unwrap",
    "wrap",
]
