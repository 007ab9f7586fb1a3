"""A conversation as `input` of OpenAI's Responses API.

Its rules:

* A reasoning item is sent back with the item that followed it, or not at all. Without
  `encrypted_content` it is sent only if the provider stores it, and only within the turn.
* The provider knows which reasoning a message or call came from, and refuses the id of either
  without the other. It accepts the same item under another id.
* A call of its shell, patch or computer tool needs an output of its own type, and is sent back
  unchanged with it. If that is not possible, it becomes a function call.
* A request for an approval is sent back with its answer. Unanswered requests are denied.
* An item of unknown type is sent back unchanged within the turn, and in mode `encrypted`. Half of
  a pair is never sent back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tailrace.core.data_url import read_data_url
from tailrace.core.items import FilePart, Refusal, TextPart
from tailrace.core.values import Json, text_or_none
from tailrace.history.content import (
    HistoryPart,
    Load,
    ProviderPart,
    detail_of,
    is_image,
    joined,
    plain,
    shown,
)
from tailrace.history.entries import (
    CallEntry,
    Conversation,
    Entry,
    MessageEntry,
    ProviderItemEntry,
    ReasoningEntry,
)
from tailrace.history.openai_responses.calls import (
    APPROVAL,
    CALLS,
    OUTPUTS,
    approval_of,
    caller_of,
    output_of,
    pairs,
)
from tailrace.history.options import (
    FOREIGN,
    NO_MESSAGE,
    NOT_WHOLE,
    Notes,
    Rules,
    call_ids,
    own_name,
    pictures,
    tool_name,
)

API = "openai_responses"

_ID = re.compile(r"(?=.{1,64}$)(rs|msg|fc|ctc)_[A-Za-z0-9_-]+")
_ROLES = ("user", "assistant", "system", "developer")
_KNOWN = ({*OUTPUTS, *OUTPUTS.values(), "compaction"}) - {"program", "program_output"}
"""The raw items that may go back after any number of turns."""


def render(conversation: Conversation, rules: Rules, notes: Notes, start: int = 0) -> list[Json]:
    """The input items, from entry `start` on."""
    return _Input(conversation, rules, notes).render(start) or [
        _message("user", [_text(NO_MESSAGE)])
    ]


def results(conversation: Conversation, rules: Rules, response: str) -> list[Json] | None:
    """The outputs that a response waits for, under the provider's ids, or None."""
    items: list[Json | None] = []
    for entry in conversation.entries:
        # Two hosts may use the same ids.
        if not isinstance(entry, CallEntry) or entry.response != response or not rules.owns(entry):
            continue
        call_id = str(entry.origin.get("call_id", entry.call_id))
        if entry.kind == APPROVAL:
            items.append(approval_of(entry, str(entry.origin.get("id", call_id))))
        elif entry.kind in CALLS and not entry.by_provider:
            items.append(output_of(entry, call_id, rules.load))
        elif not entry.by_provider:
            items.append(_output(entry, call_id, rules.load))
    given = [item for item in items if item is not None]
    return (
        given if len(given) == len(items) and not _is_torn(conversation, rules, response) else None
    )


def _is_torn(conversation: Conversation, rules: Rules, response: str) -> bool:
    """Whether a response has raw calls without an output."""
    return any(half.response == response and rules.owns(half) for half in pairs(conversation)[1])


class _Input:
    def __init__(self, conversation: Conversation, rules: Rules, notes: Notes) -> None:
        self.conversation = conversation
        self.rules = rules
        self.notes = notes
        self.turn = conversation.turn
        self.calls = call_ids(conversation.entries, rules)
        self.typed = self._typed()
        both, halves = pairs(conversation)
        self.out = dict.fromkeys(halves, "it is a call without its output, or the other way round")
        for index, entry in enumerate(conversation.entries):
            if (
                isinstance(entry, ProviderItemEntry)
                and not self._is_near(index)
                and own_name(entry) not in _KNOWN
            ):
                self.out[entry] = "it is of an earlier turn, and its rules are unknown"
        self._settle()
        # Items that depend on removed reasoning are removed, too, and their reasoning with them.
        while torn := {
            half
            for pair in both
            if len({self._is_intact(half) for half in pair}) > 1
            for half in pair
            if half not in self.out
        }:
            self.out |= dict.fromkeys(torn, "its other half cannot go back")
            self._settle()
        self.used: set[str] = set()
        # The approvals and programs in the input, for the items that refer to them.
        self.sent: set[Any] = set()

    def _typed(self) -> dict[CallEntry, Json]:
        """The calls that can go back in the provider's own form, with their outputs."""
        found: dict[CallEntry, Json] = {}
        for entry in self.conversation.entries:
            raw = entry.raw
            if not isinstance(entry, CallEntry) or entry.kind not in CALLS or entry.by_provider:
                continue
            if isinstance(raw, dict) and raw.get("type") == CALLS[entry.kind]:
                call_id = self.calls[entry]
                output = output_of(entry, call_id, self.rules.load)
                if raw.get("call_id") == call_id and output is not None:
                    found[entry] = output
        return found

    def _settle(self) -> None:
        """Decide which item has which id, and so which reasoning stays."""
        # A repeated id is refused: the first item keeps it.
        self.owners: dict[str, Entry] = {}
        for entry in self.conversation.entries:
            if (ident := self._own_id(entry)) is not None:
                self.owners.setdefault(ident, entry)
        self.kept: set[ReasoningEntry] = set()
        for index in range(len(self.conversation.entries) - 1, -1, -1):
            entry = self.conversation.entries[index]
            if isinstance(entry, ReasoningEntry) and self._may_keep(
                entry, current=index >= self.turn
            ):
                self.kept.add(entry)

    def _own_id(self, entry: Entry) -> str | None:
        """The provider's id of an item, if the provider made it and accepts it."""
        if not entry.whole or not self.rules.owns(entry) or entry in self.out:
            return None
        if isinstance(entry, MessageEntry) and _role(entry) != "assistant":
            return None  # it goes back under another role
        if self._goes_raw(entry):
            raws = _raws(entry)
            ident = raws[-1].get("id") if raws else None
            return text_or_none(ident)
        ident = entry.origin.get("id")
        fits = isinstance(ident, str) and _ID.fullmatch(ident) and ident.startswith(_prefix(entry))
        return ident if fits else None

    def _goes_raw(self, entry: Entry) -> bool:
        if isinstance(entry, CallEntry):
            return entry.by_provider or entry in self.typed
        return isinstance(entry, ProviderItemEntry)

    def _owns_id(self, entry: Entry) -> bool:
        ident = self._own_id(entry)
        return ident is not None and self.owners[ident] is entry

    def _may_keep(self, thought: ReasoningEntry, *, current: bool) -> bool:
        follower = thought.follower
        if follower is None or not self._owns_id(thought) or not self._owns_id(follower):
            return False
        if isinstance(follower, ReasoningEntry) and follower not in self.kept:
            return False
        if not self.rules.may_seal(thought):
            return False  # a model that does not reason accepts no reasoning
        sealed = thought.encrypted is not None
        if self.rules.mode == "encrypted":
            return sealed or (current and self.rules.store)
        return current and (sealed or self.rules.store)

    def _is_intact(self, entry: Entry) -> bool:
        """Whether the reasoning of an item allows it to go back unchanged."""
        return self._owns_id(entry) and (entry.behind is None or entry.behind in self.kept)

    def _is_near(self, index: int) -> bool:
        """Whether an entry goes back unchanged: of the current turn, or in mode `encrypted`."""
        return self.rules.mode == "encrypted" or index >= self.turn

    def _id_of(self, index: int, entry: Entry) -> Json:
        """The id of a message or call: the provider's if that is safe, else ours."""
        if self._is_near(index) and self._is_intact(entry) and not self._goes_raw(entry):
            return {"id": entry.origin["id"]}
        ours = entry.item_id
        fits = _ID.fullmatch(ours) and ours.startswith(_prefix(entry))
        if not fits or ours in self.used or ours in self.owners:
            return {}
        self.used.add(ours)
        return {"id": ours}

    def render(self, start: int) -> list[Json]:
        items: list[Json] = []
        outputs: list[Json] = []
        step = 0
        for index, entry in enumerate(self.conversation.entries):
            if entry.step != step:
                items += outputs
                outputs, step = [], entry.step
            if index < start:
                continue
            items += self._items(index, entry)
            if isinstance(entry, CallEntry):
                outputs += self._answers(entry)
        return items + outputs

    def _items(self, index: int, entry: Entry) -> Iterator[Json]:
        if isinstance(entry, ReasoningEntry):
            if entry in self.kept:
                yield _reasoning(entry)
            elif self.rules.mode == "encrypted":
                self.notes.left_out("reasoning", self._why_dropped(entry))
        elif isinstance(entry, MessageEntry):
            yield self._message_item(index, entry)
        elif isinstance(entry, CallEntry) and not entry.by_provider:
            if self._is_typed(entry):
                yield entry.raw
            else:
                call = _call(entry, self.calls[entry])
                yield {**self._id_of(index, entry), **call, **self._caller(entry)}
        elif self._is_intact(entry):
            yield from map(self._noted, _raws(entry))
        else:
            self.notes.left_out(own_name(entry), self._why(entry))
            if index < self.turn:  # in the current turn, it would end the turn
                yield from self._seen(entry)

    def _seen(self, entry: Entry) -> Iterator[Json]:
        """The images of a call that cannot go back."""
        word, seen = pictures(entry, self.rules.load)
        if seen:
            images = [content_part(piece, self.rules.load) for piece in seen]
            yield _message("user", [_text(word), *images])

    def _answers(self, entry: CallEntry) -> Iterator[Json]:
        """The output of a call, after all items of its answer."""
        if entry.kind == APPROVAL and entry.by_provider:
            if self._is_intact(entry):
                yield approval_of(entry, entry.raw["id"])
        elif self._is_typed(entry):
            yield self.typed[entry]
        elif not entry.by_provider:
            output = _output(entry, self.calls[entry], self.rules.load)
            yield {**output, **self._caller(entry)}

    def _is_typed(self, entry: CallEntry) -> bool:
        """Whether a call goes back in the provider's own form, or else as a function call."""
        return entry in self.typed and self._is_intact(entry)

    def _caller(self, entry: CallEntry) -> Json:
        program = caller_of(entry)
        return {"caller": entry.raw["caller"]} if program in self.sent else {}

    def _noted(self, raw: Json) -> Json:
        """The provider's item, without references to a missing request."""
        if raw["type"] == "program":
            self.sent.add(raw.get("call_id"))
        elif raw["type"] == APPROVAL:
            self.sent.add(raw.get("id"))
        elif "approval_request_id" in raw and raw["approval_request_id"] not in self.sent:
            return {name: value for name, value in raw.items() if name != "approval_request_id"}
        return raw

    def _why(self, entry: Entry) -> str:
        """Why an item of the provider does not go back."""
        if not self.rules.owns(entry):
            return FOREIGN
        if not _raws(entry):
            return NOT_WHOLE
        return self.out.get(entry, "the reasoning that it came from cannot go back with it")

    def _why_dropped(self, thought: ReasoningEntry) -> str:
        if not self.rules.owns(thought) or not self.rules.may_seal(thought):
            return FOREIGN
        if thought.encrypted is None:
            return "it did not come sealed"
        return "what followed it cannot go back with it"

    def _message_item(self, index: int, entry: MessageEntry) -> Json:
        role = _role(entry)
        if role != "assistant":
            return _message(role, [content_part(p, self.rules.load) for p in entry.pieces])
        message = _message(role, [_spoken(piece) for piece in entry.pieces])
        message |= self._id_of(index, entry)
        if entry.phase in ("commentary", "final_answer"):
            message["phase"] = entry.phase
        return message


def _role(entry: MessageEntry) -> str:
    return entry.role if entry.role in _ROLES else "assistant"


def _prefix(entry: Entry) -> str:
    if isinstance(entry, ReasoningEntry):
        return "rs_"
    if isinstance(entry, CallEntry):
        return "ctc_" if entry.kind == "custom" else "fc_"
    return "msg_"


def _raws(entry: Entry) -> list[Json]:
    """The provider's items of an entry; a later item with the same id replaces the earlier."""
    raws = [entry.raw]
    if isinstance(entry, CallEntry) and entry.by_provider and entry.kind != APPROVAL:
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


def _reasoning(entry: ReasoningEntry) -> Json:
    summary = [{"type": "summary_text", "text": text} for text in entry.summary]
    item: Json = {"type": "reasoning", "id": entry.origin["id"], "summary": summary}
    if entry.texts:
        item["content"] = [{"type": "reasoning_text", "text": text} for text in entry.texts]
    if entry.encrypted is not None:
        item["encrypted_content"] = entry.encrypted
    return item


def _call(entry: CallEntry, call_id: str) -> Json:
    name = tool_name(entry.name)
    if entry.kind == "custom":
        input_ = entry.arguments
        return {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": input_}
    arguments = entry.arguments or "{}"
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def _output(entry: CallEntry, call_id: str, load: Load) -> Json:
    pieces = entry.outcome().in_words()
    kind = "custom_tool_call_output" if entry.kind == "custom" else "function_call_output"
    output: str | list[Json] = joined(pieces)
    if not all(isinstance(piece, TextPart) for piece in pieces):
        output = [content_part(piece, load) for piece in pieces]
    return {"type": kind, "call_id": call_id, "output": output}


def _spoken(piece: HistoryPart) -> Json:
    """A part of a message of the model, which is text only."""
    if isinstance(piece, Refusal):
        return {"type": "refusal", "refusal": piece.refusal}
    return {"type": "output_text", "text": plain(piece), "annotations": []}


def content_part(piece: HistoryPart, load: Load) -> Json:
    """A part of a user message."""
    if isinstance(piece, ProviderPart) and piece.api == API:
        return piece.part
    if url := shown(piece, load):
        return {"type": "input_image", "image_url": url, "detail": detail_of(piece)}
    if isinstance(piece, FilePart) and not is_image(piece) and (url := load(piece.url)):
        if read_data_url(url) is not None:
            return {"type": "input_file", "filename": piece.name or "file", "file_data": url}
        if url.startswith(("https://", "http://")):
            return {"type": "input_file", "file_url": url}
    return _text(plain(piece))
