"""Texts, reasoning, files and data of a UI message, as items.

The id of a part (`item/index`, in our streams) or its metadata names its item. Other parts that
follow each other share an item. An item is closed when it has no open part and something else
begins: until then `reset-step` may supersede it.
"""

from __future__ import annotations

import hashlib
from collections import Counter

import msgspec

from tailrace.core import events as ev
from tailrace.core.event_sink import Sink
from tailrace.core.items import Block, Data, RawAnnotation, ReferenceToBlock, Status
from tailrace.core.text_writers import PartWriter, TextWriter
from tailrace.core.values import Json, dict_of, text_of
from tailrace.core.writers import MessageWriter, ReasoningWriter
from tailrace.ingest.vercel_ui.values import API, annotation_of, citations_of, our_fields

TEXT, REASONING = "text", "reasoning"

_PartKey = tuple[str, str]
"""A kind and the stream's own id."""


class _Item:
    """A message or reasoning item that is open."""

    def __init__(self, writer: MessageWriter | ReasoningWriter, key: _PartKey) -> None:
        self.writer = writer
        self.key = key
        self.open_parts = 0
        self.is_bare = True  # it has no text yet, so its item is not known
        self.wholes: list[bytes] = []
        self.metadata: Json = {}

    def finish(self, status: Status = "completed") -> None:
        """Close it, with the provider's metadata as private part."""
        provider = {"api": API, "metadata": self.metadata} if self.metadata else None
        self.writer.finish(status, ev.Private(provider=provider) if provider else None)


class _Part:
    """A text that streams, with the sources that came meanwhile."""

    def __init__(self, item: _Item, writer: TextWriter | PartWriter) -> None:
        self.item = item
        self.writer = writer
        self.sources: list[Json] = []

    def done(self) -> None:
        """Close the text with its citations."""
        if isinstance(self.writer, TextWriter) and self.writer.is_open:
            for source in self.sources:
                note = annotation_of(source, source, None, None, self.writer.length)
                self.writer.annotate(note)
        self.writer.done()


class _Echo:
    """A part that is sent again after `reset-step`, as long as its text is the same."""

    def __init__(self, part: _Part) -> None:
        self.part = part
        self.at = 0

    def takes(self, piece: str) -> bool:
        if not self.part.writer.text.startswith(piece, self.at):
            return False
        self.at += len(piece)
        return True

    @property
    def repeated(self) -> str:
        return self.part.writer.text[: self.at]

    @property
    def is_whole(self) -> bool:
        return self.at == self.part.writer.length


class UiTexts:
    """Writes the texts, reasoning, files and data of a message."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._items: dict[_PartKey, _Item] = {}
        self._idle: dict[_Item, None] = {}  # items without an open part
        self._message: _Item | None = None  # the last message
        self._open: dict[_PartKey, _Part] = {}
        self._citing: dict[_PartKey, _Part] = {}  # open parts that can have citations
        self._ended: dict[_PartKey, _Part] = {}
        self._again: dict[_PartKey, _Part] = {}
        self._echoes: dict[_PartKey, _Echo] = {}
        self._shown: Counter[bytes] = Counter()
        self._shown_again: Counter[bytes] = Counter()
        self._last: _Part | None = None  # it has ended, but sources may follow
        self._sources: list[Json] = []
        self._cited: set[str] = set()
        self._held: dict[_PartKey, Block] = {}

    # --- texts that stream -----------------------------------------------------------------------

    def start(self, kind: str, chunk: Json) -> bool:
        """Begin a text; a repeated start is ignored."""
        ident = chunk.get("id")
        if not isinstance(ident, str):
            return False
        key = (kind, ident)
        if key not in self._open and key not in self._echoes:
            if key in self._again:
                self._echoes[key] = _Echo(self._again.pop(key))
            else:
                self._begin(key, chunk)
        return True

    def delta(self, kind: str, chunk: Json) -> bool:
        """Append to a text, which may have had no start."""
        ident, piece = chunk.get("id"), chunk.get("delta")
        if not isinstance(ident, str) or not isinstance(piece, str):
            return False
        key = (kind, ident)
        echo = self._echoes.get(key)
        if echo is not None:
            if echo.takes(piece):
                return True
            self._diverge(key, echo)
        part = self._open.get(key) or self._begin(key, chunk)
        self._note_metadata(part.item, chunk)
        part.writer.add(piece)
        return True

    def end(self, kind: str, chunk: Json) -> bool:
        """End a text; an end without a start is ignored."""
        ident = chunk.get("id")
        if not isinstance(ident, str):
            return False
        key = (kind, ident)
        echo = self._echoes.get(key)
        if echo is not None:
            if echo.is_whole:
                self._ended[key] = self._echoes.pop(key).part
                self._cited |= {citation.source_id for citation in citations_of(chunk, "")}
                return True
            self._diverge(key, echo)
        part = self._open.pop(key, None)
        self._citing.pop(key, None)
        if part is None:
            return True
        self._note_metadata(part.item, chunk)
        if isinstance(part.writer, TextWriter):
            self._cite(part.writer, chunk)
        self._ended[key] = part
        self._rest(part.item)
        self._last = part
        return True

    def _begin(self, key: _PartKey, chunk: Json) -> _Part:
        kind, ident = key
        item = self._item(kind, _group(ident, chunk), chunk)
        writer: TextWriter | PartWriter
        if isinstance(item.writer, ReasoningWriter):
            writer = item.writer.summary_part()
        elif our_fields(chunk).get("refusal"):
            writer = item.writer.refusal_block()
        else:
            writer = item.writer.text_block()
        item.open_parts += 1
        item.is_bare = False
        self._idle.pop(item, None)
        self._note_metadata(item, chunk)
        part = self._open[key] = _Part(item, writer)
        if isinstance(writer, TextWriter):
            self._citing[key] = part
            part.sources, self._sources = self._sources, []
        return part

    def _diverge(self, key: _PartKey, echo: _Echo) -> None:
        """The text differs from the earlier part: begin another part."""
        del self._echoes[key]
        self._begin(key, {}).writer.add(echo.repeated)

    def _note_metadata(self, item: _Item, chunk: Json) -> None:
        for name, value in dict_of(chunk.get("providerMetadata")).items():
            if name != "tailrace":
                item.metadata[name] = {**dict_of(item.metadata.get(name)), **dict_of(value)}

    # --- items -----------------------------------------------------------------------------------

    def _item(self, kind: str, group: str, chunk: Json) -> _Item:
        """The item of a part; idle items are closed."""
        key = (kind, group)
        item = self._items.get(key)
        if item is None and kind == TEXT and self._message is not None and self._message.is_bare:
            # A file has no id of its message: it belongs to the message of the next text.
            item = self._message
            del self._items[item.key]
            item.key = key
            self._items[key] = item
        self.settle(item)
        if item is None:
            writer: MessageWriter | ReasoningWriter
            if kind == TEXT:
                phase = text_of(our_fields(chunk).get("phase")) or None
                writer = MessageWriter(self._sink, phase)
            else:
                writer = ReasoningWriter(self._sink)
            item = self._items[key] = _Item(writer, key)
        if kind == TEXT:
            self._message = item
        return item

    def _rest(self, item: _Item) -> None:
        item.open_parts -= 1
        if not item.open_parts:
            self._idle[item] = None

    def settle(self, but: _Item | None = None) -> None:
        """Close the items without an open part: something else begins."""
        self.settle_text()
        kept = but is not None and but in self._idle
        for item in self._idle:
            if item is not but:
                self._close(item, "completed")
        self._idle.clear()
        if kept and but is not None:
            self._idle[but] = None

    def settle_text(self) -> None:
        """No more sources follow the text that ended last."""
        if self._last is not None:
            self._last.done()
            self._last = None

    def _close(self, item: _Item, status: Status) -> None:
        item.finish(status)
        del self._items[item.key]
        self._shown.update(item.wholes)
        if self._message is item:
            self._message = None

    # --- citations -------------------------------------------------------------------------------

    def source(self, chunk: Json) -> bool:
        """A source of the message: of the text that is open or has just ended, else of the next."""
        ident = chunk.get("sourceId")
        if not isinstance(ident, str):
            return False
        if ident in self._cited:
            return True
        source = {**chunk, "id": ident}
        part = next(reversed(self._citing.values()), None)
        if part is None and self._last is not None and isinstance(self._last.writer, TextWriter):
            part = self._last
        (self._sources if part is None else part.sources).append(source)
        return True

    def _cite(self, writer: TextWriter, chunk: Json) -> None:
        found = citations_of(chunk, writer.text) if chunk.get("citations") else []
        made = set(writer.block.annotations) if found else set()
        for cited in found:
            note = cited.annotation
            self._cited.add(cited.source_id)
            if isinstance(note, ReferenceToBlock):
                if note in made:
                    continue  # the marker in the text made it
                if not self._sink.knows(note.reference_id):
                    note = RawAnnotation(raw=msgspec.to_builtins(note))
            writer.annotate(note)

    # --- whole parts -----------------------------------------------------------------------------

    def whole(self, block: Block, ident: str = "") -> None:
        """Add a file, an image or a block of data."""
        digest = hashlib.sha256(msgspec.json.encode(block)).digest()
        if self._shown_again[digest]:
            self._shown_again[digest] -= 1
            self._shown[digest] += 1
            return
        group = _group(ident, {})
        if not group and self._message is not None:
            group = self._message.key[1]
        item = self._item(TEXT, group, {})
        assert isinstance(item.writer, MessageWriter)
        item.writer.whole(block)
        item.wholes.append(digest)
        if not item.open_parts:
            self._idle[item] = None

    def data(self, name: str, chunk: Json) -> None:
        """Add a block of data. Data with an id may be replaced until its step ends."""
        block = Data(name=name, data=chunk.get("data"))
        ident = text_of(chunk.get("id"))
        if ident and not _group(ident, {}):
            self._held[name, ident] = block
        else:
            self.whole(block, ident)

    # --- steps and the end -----------------------------------------------------------------------

    def end_step(self) -> None:
        """End a step: data that could be replaced is final."""
        held, self._held = self._held, {}
        for block in held.values():
            self.whole(block)

    def left_out(self) -> list[str]:
        """Return the closed items that a reset took back and that were not sent again."""
        repeated = {part.item for part in self._ended.values()}
        gone = {
            part.item.writer.id: None for part in self._again.values() if part.item not in repeated
        }
        self._again.clear()
        return list(gone)

    def begin_step(self) -> None:
        """Begin a step: earlier parts can no longer be superseded."""
        self.end_step()
        self.settle()
        for memory in (self._ended, self._again, self._shown, self._shown_again):
            memory.clear()

    def reset(self) -> list[str]:
        """Supersede the open items of the step; return their ids."""
        self.settle_text()
        gone = list(self._items.values())
        for item in gone:
            item.wholes.clear()
            self._close(item, "incomplete")
        self._idle.clear()
        self._open.clear()
        self._citing.clear()
        self._echoes.clear()
        self._held.clear()
        self._cited.clear()
        self._sources.clear()
        lost = set(gone)
        self._again |= {key: part for key, part in self._ended.items() if part.item not in lost}
        self._ended.clear()
        self._shown_again.update(self._shown)
        self._shown.clear()
        return [item.writer.id for item in gone]

    def close(self, status: Status) -> list[Json]:
        """End the message; return the sources that no text cites."""
        self.end_step()
        self.settle_text()
        for part in self._open.values():
            part.done()
        for item in list(self._items.values()):
            self._close(item, status)
        left, self._sources = self._sources, []
        return left


def _group(ident: str, chunk: Json) -> str:
    """The item of a part: named by its metadata, or by the beginning of its id."""
    for value in dict_of(chunk.get("providerMetadata")).values():
        item_id = dict_of(value).get("itemId")
        if isinstance(item_id, str):
            return item_id
    before, slash, index = ident.rpartition("/")
    return before if slash and index.isdigit() else ""
