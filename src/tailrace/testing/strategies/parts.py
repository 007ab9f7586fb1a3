"""Moves inside of an open item: parts that begin, grow, are cited in, and end."""

from __future__ import annotations

from typing import Literal

import msgspec
from hypothesis import strategies as st

from tailrace.core import events as ev
from tailrace.core.items import (
    Annotation,
    Block,
    Data,
    File,
    FileCitation,
    Image,
    ImageUrl,
    RawAnnotation,
    ReferenceToBlock,
    Refusal,
    Text,
    ToolResult,
    UrlCitation,
)
from tailrace.testing.strategies import values
from tailrace.testing.strategies.open_items import ItemRecord, OpenItems, PartRecord, TaskRecord


class PartMoves(OpenItems):
    """What a writer may do with the parts of an item."""

    def add_reasoning_part(
        self, task: TaskRecord, item: ItemRecord, name: Literal["summary", "reasoning_text"]
    ) -> None:
        parts = item.summary if name == "summary" else item.reasoning_text
        whole = self.pick((False, False, True))
        text = Text(text=self.text() if whole else "")
        part = PartRecord(text, len(parts), open=not whole)
        parts.append(part)
        where = self.place(task, item)
        if whole:
            self.emit_done(task, item, part)
        elif name == "summary":
            self.emit(ev.SummaryItemAdded(**where, summary_index=part.index, item=text))
        else:
            self.emit(ev.ReasoningTextAdded(**where, text_index=part.index, item=text))

    def arguments_delta(self, task: TaskRecord, item: ItemRecord) -> None:
        cut = self.draw(st.integers(0, len(item.to_come)))
        delta, item.to_come = item.to_come[:cut], item.to_come[cut:]
        item.arguments += delta
        self.emit(ev.ArgumentsDelta(**self.place(task, item), delta=delta))

    def arguments_done(self, task: TaskRecord, item: ItemRecord) -> None:
        if not item.arguments and self.draw(st.booleans()):
            item.arguments, item.to_come = item.to_come, ""  # whole, without a delta
        elif item.to_come:
            item.arguments += item.to_come
            self.emit(ev.ArgumentsDelta(**self.place(task, item), delta=item.to_come))
            item.to_come = ""
        item.arguments_done = True
        self.emit(ev.ArgumentsDone(**self.place(task, item), arguments=item.arguments))

    def a_number(self, task: TaskRecord) -> int:
        """A number for a reference: the next number, or the number of equal content."""
        return self.pick([max(task.known, default=0) + 1, *sorted(task.known)[-2:]])

    def block_id(self, task: TaskRecord, item: ItemRecord) -> int | None:
        """Only blocks of a result are references."""
        if not isinstance(item.value, ToolResult) or not self.flag():
            return None
        number = self.a_number(task)
        task.known.add(number)
        return number

    def add_block(self, task: TaskRecord, item: ItemRecord) -> None:
        """A block that streams."""
        kind = self.pick(("text", "text", "image", "refusal"))
        place = {**self.place(task, item), "block_index": len(item.blocks)}
        block: Block
        if kind == "text":
            block = Text(text="", id=self.block_id(task, item))
            self.emit(ev.TextAdded(**place, item=block))
        elif kind == "image":
            url = self.draw(st.just(ImageUrl(url="")) | values.IMAGE_URL)
            block = Image(image_url=url, id=self.block_id(task, item))
            self.emit(ev.ImageAdded(**place, item=block))
        else:
            block = Refusal(refusal="")
            self.emit(ev.RefusalAdded(**place, item=block))
        item.blocks.append(PartRecord(block, len(item.blocks), open=True))

    def whole_block(self, task: TaskRecord, item: ItemRecord) -> None:
        """A block that comes as its `done` alone."""
        kind = self.pick(("text", "image", "refusal", "data", "file"))
        citable = sorted(task.known)[-3:]  # not its own number: no client has seen it yet
        number = None if kind == "refusal" else self.block_id(task, item)
        block: Block
        if kind == "text":
            block = Text(text=self.text(), id=number)
            if citable and self.flag():
                block, _deltas = self.with_citation(block, self.pick(citable))
        elif kind == "image":
            block = Image(image_url=self.draw(values.IMAGE_URL), id=number)
        elif kind == "refusal":
            block = Refusal(refusal=self.text())
        elif kind == "data":
            name = self.maybe(values.WORD)
            block = Data(data=self.draw(values.JSON), name=name, id=number)
        else:
            block = File(
                url="/blobs/9a",
                mime_type=self.pick(("application/octet-stream", "application/pdf")),
                name=self.maybe(values.TEXT),
                size=self.maybe(st.integers(0, 2**53 - 1)),
                sha256=self.maybe(st.just("9a" * 32)),
                bucket=self.maybe(values.WORD),
                path=self.maybe(values.TEXT),
                id=number,
            )
        part = PartRecord(block, len(item.blocks), open=False)
        item.blocks.append(part)
        self.emit_done(task, item, part)

    def emit_done(self, task: TaskRecord, item: ItemRecord, part: PartRecord) -> None:
        """The part's `done`, whole; which event that is follows from the part's list and type."""
        place = self.place(task, item)
        value = part.value
        if part in item.summary:
            assert isinstance(value, Text)
            self.emit(ev.SummaryItemDone(**place, summary_index=part.index, item=value))
        elif part in item.reasoning_text:
            assert isinstance(value, Text)
            self.emit(ev.ReasoningTextDone(**place, text_index=part.index, item=value))
        elif isinstance(value, Text):
            self.emit(ev.TextDone(**place, block_index=part.index, item=value))
        elif isinstance(value, Image):
            self.emit(ev.ImageDone(**place, block_index=part.index, item=value))
        elif isinstance(value, Refusal):
            self.emit(ev.RefusalDone(**place, block_index=part.index, item=value))
        elif isinstance(value, Data):
            self.emit(ev.DataDone(**place, block_index=part.index, item=value))
        else:
            self.emit(ev.FileDone(**place, block_index=part.index, item=value))

    def close_part(self, task: TaskRecord, item: ItemRecord, parts: list[PartRecord]) -> None:
        part = self.pick(parts)
        part.open = False
        if isinstance(part.value, Image) and self.flag():
            url = self.draw(values.IMAGE_URL)
            part.value = msgspec.structs.replace(part.value, image_url=url)
        self.emit_done(task, item, part)

    def stream(self, task: TaskRecord, item: ItemRecord, parts: list[PartRecord]) -> None:
        """One more piece of an open part."""
        part = self.pick(parts)
        if isinstance(part.value, Image):
            url = self.draw(values.IMAGE_URL)
            part.value = msgspec.structs.replace(part.value, image_url=url)
            self.emit(
                ev.ImageDelta(
                    **self.place(task, item),
                    block_index=part.index,
                    partial_image_index=part.partial_images,
                    item=part.value,
                )
            )
            part.partial_images += 1
        else:
            self.append(task, item, part, self.text())

    def append(self, task: TaskRecord, item: ItemRecord, part: PartRecord, delta: str) -> None:
        place = self.place(task, item)
        if isinstance(part.value, Refusal):
            refusal = part.value.refusal + delta
            part.value = msgspec.structs.replace(part.value, refusal=refusal)
            self.emit(ev.RefusalDelta(**place, block_index=part.index, delta=delta))
            return
        assert isinstance(part.value, Text)
        part.value = msgspec.structs.replace(part.value, text=part.value.text + delta)
        if part in item.summary:
            self.emit(ev.SummaryTextDelta(**place, summary_index=part.index, delta=delta))
        elif part in item.reasoning_text:
            self.emit(ev.ReasoningTextDelta(**place, text_index=part.index, delta=delta))
        else:
            self.emit(ev.TextDelta(**place, block_index=part.index, delta=delta))

    # --- citations ------------------------------------------------------------------------------

    def with_citation(self, text: Text, number: int) -> tuple[Text, list[str]]:
        """The text with a marker at its end and the annotation on it; the marker, cut in deltas."""
        marker = f"[^{number}]"
        start = len(text.text)  # Python counts code points, and so does the protocol
        annotation = ReferenceToBlock(
            reference_id=number, start_index=start, end_index=start + len(marker)
        )
        cut = self.draw(st.integers(0, len(marker) - 1))
        cited = msgspec.structs.replace(
            text, text=text.text + marker, annotations=[*text.annotations, annotation]
        )
        return cited, [piece for piece in (marker[:cut], marker[cut:]) if piece]

    def annotate(self, task: TaskRecord, item: ItemRecord, parts: list[PartRecord]) -> None:
        """A citation while the text streams: of a reference, or a citation by the provider."""
        part = self.pick(parts)
        text = part.value
        assert isinstance(text, Text)
        to_cite = bool(task.known) and self.pick((True, True, False))
        if to_cite:
            number = self.pick(sorted(task.known)[-3:])
            cited, deltas = self.with_citation(text, number)
            for delta in deltas:
                self.append(task, item, part, delta)
            annotation: Annotation = cited.annotations[-1]
        elif text.text:
            annotation = self.foreign_annotation(len(text.text))
        else:
            annotation = RawAnnotation(raw=self.draw(values.JSON))
        self.emit(
            ev.AnnotationAdded(
                **self.place(task, item),
                block_index=part.index,
                annotation_index=len(text.annotations),
                annotation=annotation,
            )
        )
        assert isinstance(part.value, Text)
        annotations = [*text.annotations, annotation]
        part.value = msgspec.structs.replace(part.value, annotations=annotations)

    def foreign_annotation(self, length: int) -> Annotation:
        start = self.draw(st.integers(0, length - 1))
        end = self.draw(st.integers(start + 1, length))
        if self.flag():
            title = self.text()
            return UrlCitation(
                url="https://example.org/", start_index=start, end_index=end, title=title
            )
        ranged = self.flag()
        return FileCitation(
            file_id="file_1",
            filename=self.pick(("", "notes.md")),
            index=self.maybe(st.integers(0, 9)),
            container_id=self.pick((None, "cntr_1")),
            start_index=start if ranged else None,
            end_index=end if ranged else None,
        )
