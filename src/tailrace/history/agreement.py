"""How far the messages that a client sends are those of a chain of runs.

A client of `/api/chat` or `/ag-ui` sends its whole conversation. It may have removed or changed
messages, and no model may read again what it removed. So the new run continues the last run up to
which both agree, and the client's other messages are its input.

Messages agree if a model would read the same: texts, files, calls and results. Ids, metadata,
reasoning and data are not compared. A message that the client has at another place agrees, if it
has the id that the server gave it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from tailrace.core.items import TextPart
from tailrace.core.values import Json, text_or_none
from tailrace.history.content import HistoryPart, is_blank
from tailrace.history.inputs import ClientOutput, InputCall, InputItem, InputMessage

Read = Callable[[Json], Iterable[InputItem]]
"""What a model would read of a message."""

_Part = tuple[str, HistoryPart] | InputCall
"""A part of a message with its role, or a call."""


class Agreement(NamedTuple):
    """How many runs of a chain the client has as they are, and its messages after them."""

    runs: int
    new: list[Json]


def agreement(
    messages: list[Json],
    runs: int,
    shown: Callable[[int], list[Json]],
    read: Read,
    cut: Collection[int] = (),
) -> Agreement:
    """Compare the messages of a client with `shown(n)`, those of the first n of `runs` runs.

    `cut` has the indices of answers that the client did not receive to their end. They may lack
    what follows. Those that are new count as a whole: their run may have carried out a call since.
    """
    sent = _Messages(messages, read)
    low, high, middle = 0, runs, runs
    new = messages
    while low < high:
        rest = sent.after(_Messages(shown(middle), read), cut)
        if rest is None:
            high = middle - 1
        else:
            low, new = middle, rest
        middle = (low + high + 1) // 2
    left = [messages[index] for index in cut]
    if any(message in left for message in new):
        whole = {ident: message for message in shown(runs) if (ident := _ident(message))}
        new = [_whole(one, whole, read) if one in left else one for one in new]
    return Agreement(low, new)


def _whole(message: Json, shown: Mapping[str, Json], read: Read) -> Json:
    """An answer as the server has it, if the message is the beginning of it."""
    found = shown.get(_ident(message) or "")
    if found is None or _Messages([message], read).after(_Messages([found], read), [0]) is None:
        return message
    return found


class _Messages:
    """A list of messages as a model would read it."""

    def __init__(self, messages: list[Json], read: Read) -> None:
        self.messages = messages
        self.parts: list[tuple[_Part, int]] = []
        self.results: dict[str, tuple[ClientOutput, int]] = {}
        """By call. A client may add a result at the end of its list, or behind the call."""
        self._starts: list[int] = []
        for index, message in enumerate(messages):
            self._starts.append(len(self.parts))
            for one in read(message):
                if isinstance(one, InputMessage):
                    pieces = (piece for piece in one.pieces if not is_blank(piece))
                    self.parts += (((one.role, piece), index) for piece in pieces)
                elif isinstance(one, InputCall):
                    self.parts.append((one, index))
                elif isinstance(one, ClientOutput):
                    self.results.setdefault(one.call_id, (one, index))
        self._starts.append(len(self.parts))

    def after(self, shown: _Messages, cut: Collection[int]) -> list[Json] | None:
        """The messages that are not in `shown`; None unless these messages begin with `shown`."""
        places = {
            place: index
            for index in cut
            for place in range(self._starts[index], self._starts[index + 1] + 1)
        }
        taken: set[int] = set()
        calls: dict[str, int] = {}
        place = 0
        parts = list(self.parts)
        for part, of in shown.parts:
            self._bring(parts, place, part, shown.messages[of].get("id"))
            mine, index = parts[place] if place < len(parts) else (None, -1)
            if mine != part and (place not in places or not _is_answer(part)):
                return None
            if mine == part or _begins(mine, part):
                place += 1
                if isinstance(part, InputCall):
                    calls[part.call_id] = index
            else:  # the client lacks this part
                index = places[place]
            taken.add(index)
        for call_id, (result, _) in shown.results.items():
            own, index = self.results.get(call_id, (None, -1))
            if own is not None:
                taken.add(index)
            if own != result and (own is not None or calls.get(call_id, -1) not in (-1, *cut)):
                return None
        more = {index for _, index in parts[place:]}
        return None if self._takes_part(shown, taken, more) else self._rest(shown, taken)

    def _bring(
        self, parts: list[tuple[_Part, int]], place: int, part: _Part, ident: str | None
    ) -> None:
        """Move a part to this place, if a later message with this id has it.

        A stream need not have the order of the run. AG-UI announces a client's call when the run
        asks for it. A client that resumes a run may have added its next message before.
        """
        if place < len(parts) and parts[place][0] != part and ident and _is_answer(part):
            for later in range(place + 1, len(parts)):
                other, index = parts[later]
                if other == part and self.messages[index].get("id") == ident:
                    parts.insert(place, parts.pop(later))
                    return

    def _takes_part(self, shown: _Messages, taken: set[int], more: set[int]) -> bool:
        """Whether a message was taken that has more than `shown`: those in `more`, or a result.

        The last message may have more results: it is sent again with them.
        """
        last = len(self.messages) - 1
        added = self.results.keys() - shown.results.keys()
        more.update(index for call_id in added if (index := self.results[call_id][1]) != last)
        return bool(more & taken)

    def _rest(self, shown: _Messages, taken: set[int]) -> list[Json]:
        end = max(taken, default=-1)
        known = {_ident(message) for message in shown.messages}
        read = {index for _, index in (*self.parts, *self.results.values())}
        return [
            message
            for index, message in enumerate(self.messages)
            if index not in taken
            and (index in read or (index > end and _ident(message) not in known))
        ]


def _ident(message: Json) -> str | None:
    """The id of a message. A client may send any JSON for it."""
    return text_or_none(message.get("id"))


def _is_answer(part: _Part) -> bool:
    return isinstance(part, InputCall) or part[0] == "assistant"


def _begins(mine: _Part | None, part: _Part) -> bool:
    """Whether a text is the beginning of another."""
    if mine is None or isinstance(mine, InputCall) or isinstance(part, InputCall):
        return False
    (role, text), (other, whole) = mine, part
    if role != other or not isinstance(text, TextPart) or not isinstance(whole, TextPart):
        return False
    return whole.text.startswith(text.text)
