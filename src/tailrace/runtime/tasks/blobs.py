"""Large outputs of tools: stored once by their hash, with a URL in the log.

Clients load the URL from the server. The model gets the bytes: `blob_loader` reads them for the
request. Texts for the model stay in the private part of the event.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from tailrace.core.data_url import data_url, is_data_url, read_data_url
from tailrace.core.errors import InvalidToolOutput
from tailrace.core.fold import State
from tailrace.core.items import (
    Block,
    ContentPart,
    Data,
    File,
    FilePart,
    Image,
    ImageUrl,
    ImageUrlPart,
    Text,
    TextPart,
)
from tailrace.core.state import TaskNode
from tailrace.core.tool_output import ToolOutput, plain_json, tool_output
from tailrace.history import Load, reachable
from tailrace.history.content import HistoryPart
from tailrace.history.inputs import ClientOutput, read_input
from tailrace.ports import Blobs
from tailrace.runtime.event_log.store_retry import patiently

MAX_OUTPUT_BYTES = 16 * 1024 * 1024
"""What a tool may return; a larger output is an error of the tool."""

INLINE_BYTES = 32 * 1024
"""An image or file of more bytes is stored as a blob."""

INLINE_TEXT_BYTES = 256 * 1024
"""A text or data block of more bytes is stored as a blob; the client also gets its beginning."""

EXCERPT_CHARACTERS = 500

BLOB_PATH = "/blobs/"
"""A blob's URL is this and its SHA-256 in hex."""

AnyPart = TypeVar("AnyPart", Block, ContentPart)


class OutputTooLarge(InvalidToolOutput):
    """A tool returned more than may be stored; the model reads the message."""

    code = "tool_output_too_large"


async def tool_result(value: Any, blobs: Blobs | None, run_id: str) -> ToolOutput:
    """What a tool returned, with its large parts stored as blobs that the run uses.

    Raises `InvalidToolOutput` for a value that has no place in the protocol, and `OutputTooLarge`.
    Without `blobs` everything stays inline.
    """
    output = tool_output(value)
    for pieces in (output.message_content, output.block_list):
        size = sum(map(_size, pieces))
        if size > MAX_OUTPUT_BYTES:
            limit = MAX_OUTPUT_BYTES // 1024**2
            raise OutputTooLarge(
                f"The tool returned {size / 1024**2:.1f} MiB; the limit is {limit} MiB. "
                "Return less, or a URL."
            )
    if blobs is None:
        return output
    put = _Put(blobs, run_id)
    content = [await put.piece(part) for part in output.message_content]
    shown: list[Block] = []
    for block in output.block_list:
        shown += await put.blocks(block)
    return ToolOutput(content, shown)


async def shown_blocks(block: Block, blobs: Blobs | None, run_id: str) -> list[Block]:
    """A block that a streaming tool shows before its output, for the client only.

    It has no `id`: the model does not read it, so nothing can cite it.
    """
    plain = plain_json(block)
    plain.pop("id", None)
    output = {"message_content": [], "block_list": [plain]}
    return (await tool_result(output, blobs, run_id)).block_list


def _size(piece: Block | ContentPart) -> int:
    match piece:
        case Text() | TextPart():
            return _bytes(piece.text)
        case Image() | ImageUrlPart():
            return _url_size(piece.image_url.url)
        case File() | FilePart():
            return _url_size(piece.url)
        case Data():
            return len(msgspec.json.encode(piece.data))
    return _bytes(piece.refusal)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _url_size(url: str) -> int:
    return len(url) * 3 // 4 if is_data_url(url) else len(url)


class _Put:
    """Stores the blobs of one output: bytes that are in both lists are stored once."""

    def __init__(self, blobs: Blobs, run_id: str) -> None:
        self._blobs = blobs
        self._run_id = run_id
        self._stored: dict[str, File] = {}

    async def piece(self, piece: AnyPart) -> AnyPart:
        """An image or file whose bytes are out of line if they are many."""
        if isinstance(piece, Image | ImageUrlPart):
            stored = await self._inline(piece.image_url.url)
            if stored is not None:
                return msgspec.structs.replace(piece, image_url=ImageUrl(url=stored.url))
        if isinstance(piece, FilePart | File):
            stored = await self._inline(piece.url)
            if stored is not None:
                if isinstance(piece, FilePart):
                    return msgspec.structs.replace(piece, url=stored.url)
                return msgspec.structs.replace(
                    piece, url=stored.url, size=stored.size, sha256=stored.sha256
                )
        return piece

    async def blocks(self, block: Block) -> list[Block]:
        """The same for a block; a large text or data becomes its beginning and a file."""
        if isinstance(block, Text | Data) and _size(block) > INLINE_TEXT_BYTES:
            if isinstance(block, Data):
                stored = await self._put(msgspec.json.encode(block.data), "application/json")
                name = f"{block.name or 'data'}.json"
                return [msgspec.structs.replace(stored, id=block.id, name=name)]
            stored = await self._put(block.text.encode(), "text/plain")
            beginning = block.text[: EXCERPT_CHARACTERS - 1] + "…"
            whole = msgspec.structs.replace(stored, id=block.id, name="text.txt")
            return [Text(text=beginning, id=block.id), whole]
        return [await self.piece(block)]

    async def _inline(self, url: str) -> File | None:
        """The blob of a `data:` URL that is large."""
        if _url_size(url) <= INLINE_BYTES or (found := read_data_url(url)) is None:
            return None
        if url not in self._stored:
            try:
                data = b64decode(found[1])
            except ValueError:
                return None
            self._stored[url] = await self._put(data, found[0])
        return self._stored[url]

    async def _put(self, data: bytes, mime_type: str) -> File:
        sha256 = await patiently(lambda: self._blobs.put_blob(data, mime_type, self._run_id))
        return File(url=BLOB_PATH + sha256, mime_type=mime_type, size=len(data), sha256=sha256)


async def blob_loader(
    blobs: Blobs | None, owner: str, chain: Sequence[State], task_id: str | None = None
) -> Load:
    """How a history finds the bytes of blobs: read before, because a history does not wait.

    Only blobs that results of tools name are read, and only the owner's. A client may carry out a
    tool, or send a result again after an edit, and name the blob of another client.
    """
    loaded: dict[str, str] = {}
    tasks = [state.root for state in chain] if task_id is None else [chain[-1].tasks[task_id]]
    for url in dict.fromkeys(url for task in tasks if task for url in _urls(task)):
        if blobs is not None:
            sha256 = url.removeprefix(BLOB_PATH)
            found = await patiently(partial(blobs.blob, sha256, owner=owner))
            if found is not None:
                loaded[url] = data_url(*found)
    return lambda url: loaded.get(url) or reachable(url)


def _urls(task: TaskNode) -> Iterator[str]:
    """The blobs in the results of a task, and in results that its client has sent again."""
    for node in task.output():
        yield from _blobs(node.private.get("content") or ())
    for given in read_input(task.facts.get("input")):
        if isinstance(given, ClientOutput):
            yield from _blobs(given.pieces)


def _blobs(content: Iterable[HistoryPart]) -> Iterator[str]:
    for part in content:
        url = part.image_url.url if isinstance(part, ImageUrlPart) else getattr(part, "url", "")
        if url.startswith(BLOB_PATH):
            yield url
