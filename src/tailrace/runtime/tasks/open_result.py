"""A result that a lost worker left open: the next worker goes on with it.

A tool that runs again shows its blocks again. The log has those that the lost worker wrote, so they
are not written twice. From the first block that differs on, all blocks are added.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tailrace.core.items import Block, Image, Text
from tailrace.core.state import ImageNode, ItemNode, TextNode
from tailrace.core.writers import BlocksWriter, ImageWriter, ResultWriter, WholeBlock

if TYPE_CHECKING:
    from tailrace.runtime.tasks.task import Task


class OpenResult(ResultWriter):
    """Writes on in the result of a call."""

    @classmethod
    def of(cls, task: Task, call_id: str) -> OpenResult | None:
        """The result of a call that a lost worker has begun."""
        node = task._sink.node.call_results.get(call_id)
        return None if node is None else cls(task, call_id, node)

    def __init__(self, task: Task, call_id: str, node: ItemNode) -> None:
        BlocksWriter.__init__(self, task._sink, node.id, node.output_index)
        self.call_id = call_id
        for _, part in sorted(node.parts.items()):
            if isinstance(part, ImageNode):
                self._blocks.append(_ShownImage(self, self._place, part))
            elif isinstance(part, TextNode):
                self._blocks.append(WholeBlock(Text(text=part.text, id=part.id)))
            else:
                self._blocks.append(WholeBlock(part.block))
        self._shown = self._blocks.copy()
        """The blocks of the lost worker that the tool has not shown again."""

    def whole(self, block: Block, partial_images: Iterable[str] = ()) -> None:
        """Write a whole block, unless the log has it."""
        if not isinstance(block, Image):  # `image_block` compares images
            if self._shown and self._shown[0].block == block:
                self._shown.pop(0)
                return
            self._shown.clear()
        super().whole(block, partial_images)

    def image_block(self, ident: int | None = None) -> ImageWriter:
        """Open an image block, or go on with the image that the log has."""
        if self._shown and isinstance(self._shown[0], _ShownImage):
            found: ImageWriter = self._shown.pop(0)
            return found
        return self.other_image(ident)

    def other_image(self, ident: int | None = None) -> ImageWriter:
        """Open an image block that the log does not have."""
        self._shown.clear()
        return super().image_block(ident)


class _ShownImage(ImageWriter):
    """An image that a lost worker has begun, or shown."""

    def __init__(self, result: OpenResult, place: dict[str, Any], node: ImageNode) -> None:
        self._sink = result._sink
        self._result = result
        self._place = place
        self._id = node.image.id
        last = node.partial_image_index
        self._count = 0 if last is None else last + 1
        self.block = node.image
        self.is_open = node.is_open

    def partial(self, url: str) -> None:
        """Replace the image, unless the log has the final image."""
        if self.is_open:
            super().partial(url)

    def done(self, url: str | None = None) -> None:
        """Close with the final image. If the log has another, the image is added."""
        if self.is_open:
            super().done(url)
        elif url != self.block.image_url.url:
            self._result.other_image().done(url)
