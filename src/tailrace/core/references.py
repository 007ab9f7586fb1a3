"""The reference pool: numbers under which a tool's output can be cited (PROTOCOL.md, section 7).

A tool's output has parts for the model and blocks for the client. The pool gives each reference a
number that is stable in the conversation. It wraps the parts between marks that tools cannot forge,
and puts the number on the blocks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from tailrace.core.citations import cited, renumber, unescape
from tailrace.core.items import (
    Block,
    ContentPart,
    FilePart,
    Refusal,
    TextPart,
)
from tailrace.core.tool_output import ToolOutput, tool_output

ADDED = "added_by_reference_manager"
"""The tag of openers and closers, which no tool returned."""

_encode = msgspec.json.Encoder().encode
_replace = msgspec.structs.replace


class Admitted(msgspec.Struct, frozen=True):
    """A tool's output with numbers: `content` for the model, `block_list` for the client."""

    content: list[ContentPart]
    block_list: list[Block]


class Imported(msgspec.Struct, frozen=True):
    """A child's answer with the numbers of its parent's pool.

    `content` is for the parent's model. `imports` are the (parent's, child's) numbers to announce
    by `task.reference.imported`; `mapping` has all cited numbers, child's to parent's.
    """

    content: list[ContentPart]
    imports: list[tuple[int, int]]
    mapping: dict[int, int]


class ReferencePool:
    """Issues the reference numbers of a task. The same content always has the same number.

    `start` is the task's `reference_start`: earlier runs issued the numbers below it. `known` are
    the contents (private parts) of the task's tool results so far; `learn` takes those of earlier
    runs. Repeated content then gets the number that it had.
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
        """The next number, which is the `reference_start` of the next run."""
        return self._next

    def knows(self, number: int) -> bool:
        """Whether `number` can be cited in this task."""
        return 0 < number < self._start or number in self._issued

    def reserve(self, number: int) -> None:
        """Never issue `number`: the log has it already, on a block or an import.

        For recovery: a worker may die after the number was shown and before its content was logged.
        """
        self._issued.add(number)
        self._next = max(self._next, number + 1)

    def extend_from(self, content: Sequence[ContentPart]) -> None:
        """Learn the numbers of a content list that a pool of this conversation made."""
        for number, parts in _members(unwrap(content)).items():
            if isinstance(number, int):  # a string is a tool's own id
                self.reserve(number)
                self._numbers.setdefault(_digest(parts), number)

    def learn(self, content: Sequence[ContentPart], below: int) -> None:
        """Learn the numbers of an earlier run's content, as far as they are below `below`.

        The run issued the other numbers after the conversation branched. They cannot be cited here
        and are not issued again: a model that reads both would confuse them.
        """
        for number, parts in _members(unwrap(content)).items():
            if isinstance(number, int):
                if number < below:
                    self._numbers.setdefault(_digest(parts), number)
                else:
                    self._next = max(self._next, number + 1)

    def number(self, parts: Sequence[ContentPart]) -> int:
        """The number of the reference with these parts; a new number for new content."""
        digest = _digest(parts)
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers[digest] = self._next
            self.reserve(number)
        return number

    def admit(self, output: ToolOutput, cites: Iterable[int] = ()) -> Admitted:
        """Give a tool's output its numbers.

        `cites` are the numbers that the output may cite: sub-agents of its call brought them.
        Parts without a local id get no number: the model reads them and cannot cite them. Blocks
        whose id no part has get none either.
        """
        # A tool must not use our tag for its own parts.
        parts = [
            _replace(part, tags=[tag for tag in part.tags if tag != ADDED])
            for part in output.message_content
        ]
        numbers = {local: self.number(members) for local, members in _members(parts).items()}
        content = wrap(
            [_replace(part, id=None if part.id is None else numbers[part.id]) for part in parts],
            cites,
        )
        blocks: list[Block] = [
            block
            if isinstance(block, Refusal) or block.id is None
            else _replace(block, id=numbers.get(block.id))
            for block in output.block_list
        ]
        return Admitted(content, blocks)


def wrap(content: Iterable[ContentPart], cites: Iterable[int] = ()) -> list[ContentPart]:
    """Content for the model: an opener and a closer around the parts of each reference.

    Texts and file names that imitate our marks are escaped, markers of `cites` aside; `unwrap`
    undoes that. Do not wrap content twice.
    """
    escape = partial(renumber, numbers={number: number for number in cites})
    wrapped: list[ContentPart] = []
    inside: int | str | None = None
    for part in content:
        if part.id != inside:
            if inside is not None:
                wrapped.append(_closer(inside))
            if part.id is not None:
                wrapped.append(_opener(part.id))
            inside = part.id
        wrapped.append(_changed(part, escape))
    if inside is not None:
        wrapped.append(_closer(inside))
    return wrapped


def unwrap(content: Iterable[ContentPart]) -> list[ContentPart]:
    """The tool's parts from content that `wrap` made.

    Two things stay changed: `id` is the pool's number, and our tag is removed.
    """
    return [_unescaped(part) for part in content if ADDED not in part.tags]


def import_citations(
    child_messages: Iterable[str],
    child_contents: Iterable[Sequence[ContentPart]],
    parent: ReferencePool,
) -> Imported:
    """A child's answer for its parent's model: the references that it cites, then its messages.

    `child_contents` are the contents of the child's tool results, in order; the first content with
    a number counts. Markers in the messages get the parent's numbers. A marker of an unknown number
    is escaped, because it could mean something else in the parent's pool.
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
    # A repeated part counts once. Two equal references in one output have the same number, and a
    # later run that rebuilds the pool cannot tell their parts apart.
    plain = dict.fromkeys(_encode(_replace(part, id=None, tags=[])) for part in parts)
    return hashlib.sha256(b"\n".join(plain)).digest()  # JSON holds no bare line break


def _opener(number: int | str) -> TextPart:
    return TextPart(text=f"<referencable-item>\nID: {number}", id=number, tags=[ADDED])


def _closer(number: int | str) -> TextPart:
    return TextPart(text="</referencable-item>", id=number, tags=[ADDED])


def _unescaped(part: ContentPart) -> ContentPart:
    return _changed(part, unescape)


def _changed(part: ContentPart, change: Callable[[str], str]) -> ContentPart:
    """The part with its text, or the file's name, changed."""
    if isinstance(part, TextPart) and (text := change(part.text)) != part.text:
        return _replace(part, text=text)
    if isinstance(part, FilePart) and part.name and (name := change(part.name)) != part.name:
        return _replace(part, name=name)
    return part


__all__ = [
    "ADDED",
    "Admitted",
    "Imported",
    "ReferencePool",
    "ToolOutput",
    "import_citations",
    "tool_output",
    "unwrap",
    "wrap",
]
