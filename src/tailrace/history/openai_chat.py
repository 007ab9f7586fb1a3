"""A conversation as `messages` of the chat completions API.

Its rules: a message with calls is followed by a `tool` message for each call. Tool messages hold
text only, so images come in a user message after them. Reasoning goes back in its own field or
part: its server needs it while calls are answered. Servers with `reasoning_content` (DeepSeek,
Moonshot) require that field in every message of a turn with calls, in later turns, too. Any text
will do if it is not empty.
"""

from __future__ import annotations

from typing import Any

from tailrace.core.data_url import read_data_url
from tailrace.core.items import FilePart, TextPart
from tailrace.core.values import Json, json_text
from tailrace.history.content import (
    PDF,
    HistoryPart,
    Load,
    detail_of,
    is_blank,
    joined,
    plain,
    shown,
    written,
)
from tailrace.history.entries import CallEntry, Conversation, Entry, MessageEntry, ReasoningEntry
from tailrace.history.options import (
    CONTINUE,
    NO_MESSAGE,
    Notes,
    Rules,
    call_ids,
    call_object,
    own_name,
    pictures,
    tool_name,
)

REASONING = "reasoning_content"
_FIELDS = (REASONING, "reasoning", "reasoning_text", "thinking")
_SEALED = ("reasoning_details", "thinking_blocks", "reasoning_opaque")
"""Sealed reasoning of some routers."""
LEFT_OUT = " "
"""A text for reasoning that is left out, where the field is required."""


def render(conversation: Conversation, rules: Rules, notes: Notes) -> list[Json]:
    """The messages of a conversation."""
    return _Messages(conversation, rules, notes).render() or [
        {"role": "user", "content": NO_MESSAGE}
    ]


class _Messages:
    def __init__(self, conversation: Conversation, rules: Rules, notes: Notes) -> None:
        self.conversation = conversation
        self.rules = rules
        self.notes = notes
        self.turn = conversation.turn
        self.calls = call_ids(conversation.entries, rules)
        self.messages: list[Json] = []
        self.answer: Json = {}
        self.texts: list[str] = []
        self.answer_texts: dict[int, list[str]] = {}  # the texts of each message without calls
        self.thoughts: list[Json] = []
        self.called: list[CallEntry] = []
        self.seen: list[Entry] = []
        self.wants_reasoning = any(
            isinstance(entry, ReasoningEntry) and rules.owns(entry) and _field(entry) == REASONING
            for entry in conversation.entries
        )
        self.has_calls = False
        self.keeps_reasoning = False

    def _with_calls(self) -> list[bool]:
        """Whether there are calls in the user turn of each entry."""
        turns: list[int] = []
        calling: set[int] = set()
        turn = 0
        for entry in self.conversation.entries:
            turn += isinstance(entry, MessageEntry) and entry.role == "user"
            turns.append(turn)
            if isinstance(entry, CallEntry) and not entry.by_provider:
                calling.add(turn)
        return [turn in calling for turn in turns]

    def render(self) -> list[Json]:
        step = 0
        with_calls = self._with_calls()
        for index, entry in enumerate(self.conversation.entries):
            if entry.step != step:
                self._end_answer()
                step = entry.step
            self.has_calls = with_calls[index]
            self.keeps_reasoning = index >= self.turn or self.rules.mode == "encrypted"
            if isinstance(entry, MessageEntry) and entry.role in ("user", "system", "developer"):
                self._end_answer()
                self._add_input(entry)
            elif isinstance(entry, MessageEntry):
                self._add_text(entry)
            elif isinstance(entry, ReasoningEntry):
                if self.keeps_reasoning and self.rules.owns(entry):
                    self._add_reasoning(entry)
            elif isinstance(entry, CallEntry) and not entry.by_provider:
                self.called.append(entry)
            else:
                self.notes.left_out(own_name(entry), "chat completions have no place for it")
                if index < self.turn:
                    self.seen.append(entry)
        self._end_answer()
        if self.rules.takes_turns and self.messages and self.messages[-1]["role"] == "assistant":
            self._add_user([_text(CONTINUE)])
        for index, texts in self.answer_texts.items():
            self.messages[index]["content"] = _joined(texts)
        return self.messages

    def _add_input(self, entry: MessageEntry) -> None:
        if entry.role != "user":
            self.messages.append({"role": "system", "content": joined(entry.pieces)})
            return
        parts = [content_part(piece, self.rules.load) for piece in entry.pieces]
        self._add_user(parts)

    def _add_user(self, parts: list[Json]) -> None:
        if self.rules.takes_turns and self.messages and self.messages[-1]["role"] == "tool":
            self.messages.append({"role": "assistant", "content": NO_MESSAGE})
        # Some servers refuse two user messages in a row.
        if self.messages and self.messages[-1]["role"] == "user":
            before = self.messages[-1]["content"]
            if isinstance(before, list):
                before += parts
                return
            parts = [_text(before), *parts]
            self.messages.pop()
        only = parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
        self.messages.append({"role": "user", "content": only})

    def _add_text(self, entry: MessageEntry) -> None:
        self.texts.append("".join(plain(piece) for piece in entry.pieces if not is_blank(piece)))

    def _add_reasoning(self, entry: ReasoningEntry) -> None:
        name = _field(entry)
        text = "".join(entry.texts or entry.summary)
        is_readable = self.rules.may_seal(entry)
        if name == "content":
            self.thoughts.append(_thinking(entry, text, entry.signature if is_readable else None))
        elif name in _FIELDS and text:
            self.answer[name] = self.answer.get(name, "") + text
        # Without it servers refuse the calls, or reason again.
        for name in _SEALED if is_readable else ():
            value = entry.origin.get(name)
            if isinstance(value, list):
                self.answer[name] = [*self.answer.get(name, ()), *value]
            elif value is not None:
                self.answer[name] = value

    def _end_answer(self) -> None:
        called, answer, thoughts = self.called, self.answer, self.thoughts
        texts, seen = self.texts, self.seen
        self.called, self.answer, self.thoughts, self.texts, self.seen = [], {}, [], [], []
        if self.wants_reasoning and self.has_calls:
            answer[REASONING] = answer.get(REASONING) or LEFT_OUT
        if called:
            content: Any = _joined(texts) if texts else None
            if thoughts:
                content = [*thoughts, _text(content)] if content else thoughts
            answer["tool_calls"] = [self._call(entry) for entry in called]
            self.messages.append({"role": "assistant", "content": content, **answer})
        elif texts:
            self._add_texts(texts, answer)
        for entry in called:
            text = joined(entry.outcome().in_words())
            self.messages.append(
                {"role": "tool", "tool_call_id": self.calls[entry], "content": text}
            )
        images: list[Json] = []
        for pictured in (*called, *seen):
            word, found = pictures(pictured, self.rules.load)
            if found:
                images += [_text(word), *(content_part(piece, self.rules.load) for piece in found)]
        if images:
            self._add_user(images)

    def _add_texts(self, texts: list[str], answer: Json) -> None:
        if not self.has_calls:
            # Reasoning that led to no call is left out; sealed reasoning stays.
            answer = {name: answer[name] for name in _SEALED if name in answer}
        before = self.messages[-1] if self.messages else {}
        if before.get("role") != "assistant":
            self.messages.append({"role": "assistant", "content": ""})
        # An assistant message before has no calls: tool messages would have to follow them.
        self.messages[-1] |= answer
        self.answer_texts.setdefault(len(self.messages) - 1, []).extend(texts)

    def _call(self, entry: CallEntry) -> Json:
        arguments = entry.arguments or "{}"
        if entry.kind == "custom":
            arguments = json_text(call_object(entry))
        fields = entry.origin.get("fields")  # other fields of the server, such as a signature
        if not self.rules.owns(entry) or not isinstance(fields, dict):
            fields = {}
        inner = fields.get("function")
        function = {**inner} if isinstance(inner, dict) else {}
        function |= {"name": tool_name(entry.name), "arguments": arguments}
        return {"type": "function", **fields, "id": self.calls[entry], "function": function}


def _field(thought: ReasoningEntry) -> str:
    """The field with the reasoning of a server."""
    return str(thought.origin.get("field", REASONING))


def _thinking(entry: ReasoningEntry, text: str, signature: str | None) -> Json:
    """Reasoning as a part of the content."""
    seal = {} if signature is None else {"signature": signature}
    if entry.origin.get("part") == "reasoning":
        return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text, **seal}]}
    return {"type": "thinking", "thinking": [_text(text)], **seal}


def _joined(texts: list[str]) -> str:
    return "\n\n".join(texts)


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def content_part(piece: HistoryPart, load: Load) -> Json:
    """A part of a user message."""
    if isinstance(piece, TextPart):
        return _text(piece.text)
    if url := shown(piece, load):
        detail = detail_of(piece).replace("original", "high")
        given = {} if detail == "auto" else {"detail": detail}
        return {"type": "image_url", "image_url": {"url": url, **given}}
    if isinstance(piece, FilePart) and (url := load(piece.url)):
        found = read_data_url(url)
        if found is not None and found[0] == PDF:
            return {"type": "file", "file": {"filename": piece.name or "file", "file_data": url}}
        if (content := written(url)) is not None:
            return _text(f"{plain(piece)}\n{content}")
    return _text(plain(piece))
