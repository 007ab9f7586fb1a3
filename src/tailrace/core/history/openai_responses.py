"""A conversation as `input` of OpenAI's Responses API.

Its rules, learned the hard way:

* a reasoning item goes back with what followed it, or not at all; without `encrypted_content` it
  is found only where the provider stores it, and only within the turn;
* the provider remembers which reasoning a message or call came from, and refuses the id of one
  without the other. The same item under another id is welcome.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tailrace.core.history.entries import (
    Called,
    Conversation,
    Entry,
    Kept,
    Said,
    Thought,
)
from tailrace.core.history.pieces import Json, Load, Native, Piece, inline, joined, plain
from tailrace.core.history.rules import NO_MESSAGE, Rules, call_ids, tool_name
from tailrace.core.items import FilePart, ImageUrlPart, Refusal, TextPart

API = "openai_responses"

_ID = re.compile(r"(rs|msg|fc|ctc)_[A-Za-z0-9_-]{1,128}")
_ROLES = ("user", "assistant", "system", "developer")


def render(talk: Conversation, rules: Rules, start: int = 0) -> list[Json]:
    """The input items, from entry `start` on."""
    return _Input(talk, rules).render(start) or [_message("user", [_text(NO_MESSAGE)])]


def results(talk: Conversation, rules: Rules, step: int) -> list[Json]:
    """What the calls of one step gave, under the provider's own ids of them."""
    return [
        _output(entry, str(entry.origin.get("call_id", entry.call_id)), rules.load)
        for entry in talk.entries
        if isinstance(entry, Called) and entry.step == step and not entry.by_provider
    ]


class _Input:
    def __init__(self, talk: Conversation, rules: Rules) -> None:
        self.talk = talk
        self.rules = rules
        self.turn = talk.turn
        self.calls = call_ids(talk.entries, rules)
        # An id that comes twice is refused: the first item that has it keeps it.
        self.owners: dict[str, Entry] = {}
        for entry in talk.entries:
            if (ident := self._own_id(entry)) is not None:
                self.owners.setdefault(ident, entry)
        self.kept: set[Thought] = set()
        for index in range(len(talk.entries) - 1, -1, -1):
            entry = talk.entries[index]
            if isinstance(entry, Thought) and self._may_keep(entry, current=index >= self.turn):
                self.kept.add(entry)
        self.used: set[str] = set()

    def _own_id(self, entry: Entry) -> str | None:
        """The provider's id of an item, if it made it and takes it back."""
        if not entry.whole or not self.rules.owns(entry):
            return None
        if isinstance(entry, Kept) or (isinstance(entry, Called) and entry.by_provider):
            raws = _raws(entry)
            ident = raws[-1].get("id") if raws else None
            return ident if isinstance(ident, str) else None
        ident = entry.origin.get("id")
        fits = isinstance(ident, str) and _ID.fullmatch(ident) and ident.startswith(_prefix(entry))
        return ident if fits else None

    def _owns_id(self, entry: Entry) -> bool:
        ident = self._own_id(entry)
        return ident is not None and self.owners[ident] is entry

    def _may_keep(self, thought: Thought, *, current: bool) -> bool:
        follower = thought.follower
        if follower is None or not self._owns_id(thought) or not self._owns_id(follower):
            return False
        if isinstance(follower, Thought) and follower not in self.kept:
            return False
        sealed = thought.encrypted is not None and self.rules.may_seal(thought)
        if self.rules.mode == "encrypted":
            return sealed or (current and self.rules.store)
        return current and (sealed or self.rules.store)

    def _is_intact(self, entry: Entry) -> bool:
        """Whether an item can go back as it came, seen from its reasoning."""
        return self._owns_id(entry) and (entry.behind is None or entry.behind in self.kept)

    def _id_of(self, index: int, entry: Entry) -> Json:
        """The id of a message or call: the provider's where that is safe, else our own."""
        as_it_was = self.rules.mode == "encrypted" or index >= self.turn
        if as_it_was and self._is_intact(entry):
            return {"id": entry.origin["id"]}
        ours = entry.item_id
        fits = _ID.fullmatch(ours) and len(ours) <= 64 and ours.startswith(_prefix(entry))
        if not fits or ours in self.used or ours in self.owners:
            return {}
        self.used.add(ours)
        return {"id": ours}

    def render(self, start: int) -> list[Json]:
        items: list[Json] = []
        outputs: list[Json] = []
        step = 0
        for index, entry in enumerate(self.talk.entries):
            if entry.step != step:
                items += outputs
                outputs, step = [], entry.step
            if index < start:
                continue
            items += self._items(index, entry)
            if isinstance(entry, Called) and not entry.by_provider:
                outputs.append(_output(entry, self.calls[entry], self.rules.load))
        return items + outputs

    def _items(self, index: int, entry: Entry) -> Iterator[Json]:
        if isinstance(entry, Thought):
            if entry in self.kept:
                yield _reasoning(entry)
        elif isinstance(entry, Said):
            yield self._said(index, entry)
        elif isinstance(entry, Called) and not entry.by_provider:
            yield {**self._id_of(index, entry), **_call(entry, self.calls[entry])}
        elif self._is_intact(entry):
            yield from _raws(entry)

    def _said(self, index: int, entry: Said) -> Json:
        role = entry.role if entry.role in _ROLES else "assistant"
        if role != "assistant":
            return _message(role, [content_part(p, self.rules.load) for p in entry.pieces])
        said = _message(role, [_spoken(piece) for piece in entry.pieces])
        said |= self._id_of(index, entry)
        if entry.phase in ("commentary", "final_answer"):
            said["phase"] = entry.phase
        return said


def _prefix(entry: Entry) -> str:
    if isinstance(entry, Thought):
        return "rs_"
    if isinstance(entry, Called):
        return "ctc_" if entry.kind == "custom" else "fc_"
    return "msg_"


def _raws(entry: Entry) -> list[Json]:
    """The provider's own items of an entry; a later one with the same id is the fuller one."""
    raws = [entry.raw]
    if isinstance(entry, Called):
        if entry.result is None:
            return []
        raws.append(entry.result.raw)
    found: dict[object, Json] = {}
    for raw in raws:
        if isinstance(raw, dict) and isinstance(raw.get("type"), str):
            found[raw.get("id")] = raw
    return list(found.values())


def _message(role: str, content: list[Json]) -> Json:
    return {"type": "message", "role": role, "content": content}


def _text(text: str) -> Json:
    return {"type": "input_text", "text": text}


def _reasoning(entry: Thought) -> Json:
    summary = [{"type": "summary_text", "text": text} for text in entry.summary]
    item: Json = {"type": "reasoning", "id": entry.origin["id"], "summary": summary}
    if entry.texts:
        item["content"] = [{"type": "reasoning_text", "text": text} for text in entry.texts]
    if entry.encrypted is not None:
        item["encrypted_content"] = entry.encrypted
    return item


def _call(entry: Called, call_id: str) -> Json:
    name = tool_name(entry.name)
    if entry.kind == "custom":
        input_ = entry.arguments
        return {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": input_}
    arguments = entry.arguments or "{}"
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def _output(entry: Called, call_id: str, load: Load) -> Json:
    pieces = entry.outcome().pieces
    kind = "custom_tool_call_output" if entry.kind == "custom" else "function_call_output"
    output: str | list[Json] = joined(pieces)
    if not all(isinstance(piece, TextPart) for piece in pieces):
        output = [content_part(piece, load) for piece in pieces]
    return {"type": kind, "call_id": call_id, "output": output}


def _spoken(piece: Piece) -> Json:
    """A part of what the model said; it can say words only."""
    if isinstance(piece, Refusal):
        return {"type": "refusal", "refusal": piece.refusal}
    return {"type": "output_text", "text": plain(piece), "annotations": []}


def content_part(piece: Piece, load: Load) -> Json:
    """A part of what the model is told."""
    if isinstance(piece, Native) and piece.api == API:
        return piece.part
    if isinstance(piece, ImageUrlPart) and (url := load(piece.image_url.url)):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if isinstance(piece, FilePart) and (url := load(piece.url)):
        if inline(url) is None:
            return {"type": "input_file", "file_url": url}
        return {"type": "input_file", "filename": piece.name or "file", "file_data": url}
    return _text(plain(piece))
