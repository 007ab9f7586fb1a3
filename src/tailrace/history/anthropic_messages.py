"""A conversation as `messages` of Anthropic's Messages API.

Its rules: user and assistant alternate, and the user begins and ends. The next message begins with
the results of all calls. No text is empty. Thinking goes back unchanged with its signature, all of
it or none; it begins its message and never ends it. An answer may stop for our tools while the
provider's tools run, such as code that calls ours. Their calls then wait for the next answers, and
the request names their container.
"""

from __future__ import annotations

from tailrace.core.data_url import read_data_url
from tailrace.core.items import FilePart
from tailrace.core.values import Json, dict_of, text_or_none
from tailrace.history.content import PDF, HistoryPart, Load, is_blank, plain, shown, written
from tailrace.history.entries import (
    CallEntry,
    Conversation,
    Entry,
    MessageEntry,
    ProviderItemEntry,
    ReasoningEntry,
)
from tailrace.history.options import (
    CONTINUE,
    FOREIGN,
    NO_MESSAGE,
    NOT_WHOLE,
    Notes,
    Rules,
    call_ids,
    call_object,
    own_name,
    pictures,
    tool_name,
)

_THINKING = ("thinking", "redacted_thinking")


class Rendered:
    """The messages, and other fields of the request."""

    def __init__(
        self, messages: list[Json], system: list[str], container: str | None = None
    ) -> None:
        self.messages = messages
        self.system = system
        self.container = container

    @property
    def can_think(self) -> bool:
        """Whether thinking may be on: the open calls must have been made with it."""
        answering = any(block["type"] == "tool_result" for block in self.messages[-1]["content"])
        return not answering or self.messages[-2]["content"][0]["type"] in _THINKING


def render(conversation: Conversation, rules: Rules, notes: Notes) -> Rendered:
    """The messages of a conversation."""
    return _Messages(conversation, rules, notes).render()


class _Messages:
    def __init__(self, conversation: Conversation, rules: Rules, notes: Notes) -> None:
        self.conversation = conversation
        self.rules = rules
        self.notes = notes
        self.turn = conversation.turn
        self.calls = call_ids(conversation.entries, rules)
        self.messages: list[Json] = []
        self.system: list[str] = []
        # The provider's calls that were sent, by its ids, and those of them that still run.
        self.sent: set[str] = set()
        self.running: list[CallEntry] = []
        provider = (
            {} if conversation.last_task is None else conversation.last_task.private.get("provider")
        )
        self.container = text_or_none(dict_of(provider).get("container"))
        # If a part of an answer's thinking cannot go back, none of it does.
        self.unsealed = {
            entry.step
            for index, entry in enumerate(conversation.entries)
            if isinstance(entry, ReasoningEntry) and not self._may_keep(index, entry)
        }

    def _may_keep(self, index: int, entry: ReasoningEntry) -> bool:
        if entry.follower is None or not self.rules.owns(entry) or _thinking(entry) is None:
            return False
        current = index >= self.turn
        return (current or self.rules.mode == "encrypted") and self.rules.may_seal(entry)

    def _add(self, role: str, blocks: list[Json]) -> None:
        if not blocks:
            return
        if self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"] += blocks
        else:
            self.messages.append({"role": role, "content": blocks})

    def render(self) -> Rendered:
        entries = self.conversation.entries
        results: list[Json] = []
        seen: list[Json] = []
        step = 0
        unfinished = self._unfinished()
        for index, entry in enumerate(entries):
            self._add_results(step, index)
            if entry.step != step:
                self._add("user", results + seen)
                results, seen, step = [], [], entry.step
                self._add_results(step, index)
            if isinstance(entry, CallEntry) and not entry.by_provider:
                results.append(self._result(entry))
            may_run = entry.step in unfinished and index >= self.turn and self._can_go_on(entry)
            is_sent = self._enter(entry, may_run=may_run)
            if not is_sent and index < self.turn:
                seen += self._seen(entry)
        self._add_results(step, len(entries))
        self._add("user", results + seen)
        self._add_results(step + 1, len(entries))
        for message in self.messages:
            if message["role"] == "assistant":
                message["content"] = settled(message["content"])
        return Rendered(self._taking_turns(), self.system, self.container if self.running else None)

    def _unfinished(self) -> set[int]:
        """The answers in which the provider's tools may still run: those that wait for ours."""
        last = self.conversation.entries[-1] if self.conversation.entries else None
        if not isinstance(last, CallEntry):
            return set()
        ours = (
            e for e in self.conversation.entries if isinstance(e, CallEntry) and not e.by_provider
        )
        return {last.step, *(entry.step for entry in ours)}

    def _add_results(self, step: int, place: int) -> None:
        """Add the results of the provider's tools that came before this place of the answer."""
        for call in list(self.running):
            result = call.result
            if result is not None and result.step <= step and result.place <= place:
                self.running.remove(call)
                self._add("assistant", [result.raw])

    def _can_go_on(self, entry: Entry) -> bool:
        """Code waits in a container. An answer that was cut off did not say in which."""
        return dict_of(entry.raw).get("name") != "code_execution" or self.container is not None

    def _seen(self, entry: Entry) -> list[Json]:
        """The images of a call that cannot go back."""
        word, seen = pictures(entry, self.rules.load)
        blocks = [block for piece in seen for block in content_blocks(piece, self.rules.load)]
        return [_text(word), *blocks] if blocks else []

    def _enter(self, entry: Entry, *, may_run: bool) -> bool:
        """Add an entry; False if only its provider can read it."""
        if isinstance(entry, MessageEntry):
            self._say(entry)
        elif isinstance(entry, ReasoningEntry):
            block = None if entry.step in self.unsealed else _thinking(entry)
            self._add("assistant", [] if block is None else [block])
            if block is None and self.rules.mode == "encrypted":
                mine = self.rules.owns(entry) and self.rules.may_seal(entry)
                why = "it came without a signature, or what followed it is lost"
                self.notes.left_out("reasoning", why if mine else FOREIGN)
        elif isinstance(entry, CallEntry) and not entry.by_provider:
            self._add("assistant", [self._use(entry)])
        else:
            mine = self.rules.owns(entry)
            blocks = _raws(entry, may_run=may_run) if mine and self._has_caller(entry) else []
            if blocks and isinstance(entry, CallEntry):
                self.sent.add(str(blocks[0].get("id")))
                self.running.append(entry)
                blocks = blocks[:1]
            self._add("assistant", blocks)
            if not blocks:
                self.notes.left_out(own_name(entry), NOT_WHOLE if mine else FOREIGN)
                return False
        return True

    def _has_caller(self, entry: Entry) -> bool:
        """Whether the code that made this call was sent; calls of the model need none."""
        caller = dict_of(dict_of(entry.raw).get("caller")).get("tool_id")
        return caller is None or caller in self.sent

    def _say(self, entry: MessageEntry) -> None:
        if entry.role in ("system", "developer"):
            self.system.append("\n".join(map(plain, entry.pieces)))
        elif entry.role == "user":
            self._add("user", [b for p in entry.pieces for b in content_blocks(p, self.rules.load)])
        elif self.rules.owns(entry) and entry.whole and isinstance(entry.raw, list):
            # The provider's blocks, with their citations.
            self._add("assistant", [block for block in entry.raw if not is_empty(block)])
        else:
            self._add("assistant", [_text(plain(p)) for p in entry.pieces if not is_blank(p)])

    def _use(self, entry: CallEntry) -> Json:
        raw = dict_of(entry.raw) if self.rules.owns(entry) else {}
        if not self._has_caller(entry):
            raw = {name: value for name, value in raw.items() if name != "caller"}
        return {
            **raw,
            "type": "tool_use",
            "id": self.calls[entry],
            "name": tool_name(entry.name),
            "input": call_object(entry),
        }

    def _result(self, entry: CallEntry) -> Json:
        outcome = entry.outcome()
        # With `is_error` only text is accepted.
        load = _nothing if outcome.failed else self.rules.load
        content = [b for piece in outcome.pieces for b in content_blocks(piece, load)]
        block: Json = {"type": "tool_result", "tool_use_id": self.calls[entry]}
        if content:
            block["content"] = content
        if outcome.failed:
            block["is_error"] = True
        return block

    def _taking_turns(self) -> list[Json]:
        """The messages; the user begins and ends."""
        merged: list[Json] = []
        for message in self.messages:
            if not message["content"]:
                continue
            if merged and merged[-1]["role"] == message["role"]:
                merged[-1]["content"] += message["content"]
            else:
                merged.append(message)
        if not merged or merged[0]["role"] == "assistant":
            merged.insert(0, {"role": "user", "content": [_text(NO_MESSAGE)]})
        if merged[-1]["role"] == "assistant" and not is_paused(merged[-1]["content"][-1]):
            merged.append({"role": "user", "content": [_text(CONTINUE)]})
        return merged


def is_empty(block: Json) -> bool:
    """Whether a block is a blank text, which is refused."""
    return block.get("type") == "text" and not str(block.get("text", "")).strip()


def settled(blocks: list[Json]) -> list[Json]:
    """The blocks of an answer, without thinking in a place where it is refused."""
    first, last = blocks[0]["type"], blocks[-1]["type"]
    if first in _THINKING and last not in _THINKING:
        return blocks
    return [block for block in blocks if block["type"] not in _THINKING]


def is_paused(block: Json) -> bool:
    """Whether the provider's tools still run: such an answer is continued."""
    kind: str = block["type"]
    return kind in ("server_tool_use", "mcp_tool_use") or kind.endswith("_tool_result")


def _thinking(entry: ReasoningEntry) -> Json | None:
    if isinstance(entry.raw, dict) and entry.raw.get("type") in _THINKING:
        return entry.raw
    if entry.signature is not None:
        thinking = "".join(entry.texts or entry.summary)
        return {"type": "thinking", "thinking": thinking, "signature": entry.signature}
    if entry.encrypted is not None:
        return {"type": "redacted_thinking", "data": entry.encrypted}
    return None


def _raws(entry: Entry, *, may_run: bool) -> list[Json]:
    """The provider's blocks: a call of its tools with its result, or an unknown block.

    A call without a result is sent if its tool may still run.
    """
    raws = [entry.raw]
    if isinstance(entry, CallEntry):
        if entry.result is not None:
            raws.append(entry.result.raw)
        elif not may_run:
            return []
        if isinstance(entry.raw, dict):
            raws[0] = {"input": call_object(entry), **entry.raw}
    whole = all(isinstance(raw, dict) and isinstance(raw.get("type"), str) for raw in raws)
    if (
        whole
        and isinstance(entry, ProviderItemEntry)
        and raws[0]["type"].endswith(("tool_use", "tool_result"))
    ):
        return []  # a call that nothing could read, or a result that no call waits for: refused
    return raws if whole else []


def _nothing(_url: str) -> None:
    """A loader that loads nothing, where images are refused."""


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def content_blocks(piece: HistoryPart, load: Load) -> list[Json]:
    """A part as blocks; no block for a blank text."""
    if url := shown(piece, load):
        found = read_data_url(url)
        if url.startswith("https://"):
            return [{"type": "image", "source": {"type": "url", "url": url}}]
        if found is not None:
            source = {"type": "base64", "media_type": found[0], "data": found[1]}
            return [{"type": "image", "source": source}]
    if isinstance(piece, FilePart) and (url := load(piece.url)):
        document = _document(piece, url)
        if document is not None:
            return [document]
    return [] if is_blank(piece) else [_text(plain(piece))]


def _document(piece: FilePart, url: str) -> Json | None:
    found = read_data_url(url)
    source: Json | None = None
    if PDF in (piece.mime_type, found[0] if found else None):
        if found is not None:
            source = {"type": "base64", "media_type": PDF, "data": found[1]}
        elif url.startswith("https://"):
            source = {"type": "url", "url": url}
    elif words := (written(url) or "").strip():
        source = {"type": "text", "media_type": "text/plain", "data": words}
    title = {"title": piece.name} if piece.name else {}
    return None if source is None else {"type": "document", "source": source, **title}
