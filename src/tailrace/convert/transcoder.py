"""A source joined to a target: `Transcoder` is pure, `transcode` reads a stream."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping
from functools import partial

from tailrace.convert.framing import SourceEvent, SourceFraming
from tailrace.convert.sources import MessageSource, ProviderSource, Source, SourceOutput, TaskSource
from tailrace.convert.targets import LinesTarget, ObjectTarget, Target, WireTarget
from tailrace.core import sse
from tailrace.core.errors import StreamError, StreamTooLarge, UnknownFormat
from tailrace.core.fold import State
from tailrace.ingest.anthropic_messages.reader import AnthropicMessages
from tailrace.ingest.openai_chat.reader import OpenAIChat
from tailrace.ingest.openai_responses.reader import OpenAIResponses
from tailrace.ingest.run import RunEvents, run_facts
from tailrace.ingest.vercel_ui.reader import VercelUi, message_facts
from tailrace.wire.formats import FORMATS

_SOURCES: Mapping[str, Callable[[str], Source]] = {
    "openai-responses": partial(ProviderSource, OpenAIResponses),
    "openai-chat": partial(MessageSource, OpenAIChat),
    "anthropic-messages": partial(ProviderSource, AnthropicMessages),
    "task": TaskSource,
    "jsonl": TaskSource,
    "run": partial(ProviderSource, RunEvents, facts_of=run_facts),
    "vercel-ui": partial(MessageSource, VercelUi, facts_of=message_facts),
}
_FOR_PEOPLE: Mapping[str, Callable[[], Target]] = {"jsonl": LinesTarget, "json": ObjectTarget}


def source_names() -> list[str]:
    """The names of the formats that can be read."""
    return list(_SOURCES)


def target_names() -> list[str]:
    """The names of the formats that can be written."""
    return [*FORMATS, *_FOR_PEOPLE]


class Transcoder:
    """Converts bytes of a format to bytes of another, without a clock or I/O.

        transcoder = Transcoder("openai-chat", "vercel-ui", run_id="run_7")
        for chunk in chunks:
            send(transcoder.feed(chunk))
        send(transcoder.end())

    `run_id` is the id of the run if the stream has no id, such as a provider's. `jsonl` reads JSON
    lines whatever the first byte is.

    A source that is cut or broken raises nothing: the target ends as its readers expect, and
    `error` has the reason. Memory holds the folded answer, never the stream.
    """

    def __init__(self, from_: str, to: str, *, run_id: str = "run_1", jsonl: bool = False) -> None:
        """Raise `UnknownFormat` if a format cannot be read or written."""
        if from_ not in _SOURCES:
            raise UnknownFormat(_unreadable(from_))
        if to not in FORMATS and to not in _FOR_PEOPLE:
            raise UnknownFormat(
                f"Format {to!r} cannot be written; choose {_listed(target_names())}."
            )
        self._source = _SOURCES[from_](run_id)
        self._target = _FOR_PEOPLE[to]() if to in _FOR_PEOPLE else WireTarget(FORMATS[to])
        self._pieces = SourceFraming(jsonl=jsonl)
        self._state = State()  # the run as the target has written it
        self.is_over = False
        """Whether the target has ended; the rest of the source is not read."""
        self.error: StreamError | None = None
        """Why the source has no proper end, once it is over."""
        self.events = 0
        """How many events of the source were read; `error` is about the last of them."""

    def feed(self, chunk: bytes) -> bytes:
        """Read a chunk of the source; return the bytes of the target."""
        return self._take(lambda: self._pieces.feed(chunk))

    def end(self) -> bytes:
        """End the source; return the bytes that end the target."""
        return self._take(self._pieces.rest, is_last=True)

    def _take(self, cut: Callable[[], list[SourceEvent]], *, is_last: bool = False) -> bytes:
        out: list[bytes] = []
        if self.is_over:
            return b""
        try:
            for piece in cut():
                text = piece.data.strip()
                if text == sse.DONE:
                    self._source.stop()
                    is_last = True
                    break
                if text:
                    self.events += 1
                    for event in self._source.feed(piece):
                        self._write(event, out)
            if is_last:
                self._finish(None, out)
        except StreamError as error:
            self._finish(error, out)
        return b"".join(out)

    def _write(self, readable: SourceOutput, out: list[bytes]) -> None:
        out.append(self._target.write(readable))
        self._state = self._source.state

    def _finish(self, error: StreamError | None, out: list[bytes]) -> None:
        self.is_over = True
        for event in self._source.end(error):
            try:
                self._write(event, out)
            except StreamTooLarge as large:
                # Readers do not need it: later events close the same items.
                error = error or large
        self.error = error or self._source.error
        out.append(self._target.end(self._state, self.error))


def transcode(
    stream: AsyncIterable[bytes] | Iterable[bytes],
    from_: str,
    to: str,
    *,
    run_id: str | None = None,
    jsonl: bool = False,
) -> AsyncGenerator[bytes, None]:
    """Convert a stream to another format, chunk by chunk.

    A source that is cut or broken ends the target as its readers expect; a `Transcoder` has the
    reason in `error`. If `stream` itself raises, the target ends first and the exception follows.
    The caller closes the stream.
    """
    # Ids are unique: pages distinguish messages by them.
    run_id = run_id or f"run_{secrets.token_hex(8)}"
    return _through(Transcoder(from_, to, run_id=run_id, jsonl=jsonl), stream)


async def _through(
    transcoder: Transcoder, stream: AsyncIterable[bytes] | Iterable[bytes]
) -> AsyncGenerator[bytes, None]:
    chunks = stream if isinstance(stream, AsyncIterable) else _one_by_one(stream)
    try:
        async for chunk in chunks:
            if frames := transcoder.feed(chunk):
                yield frames
            if transcoder.is_over:
                return
    except Exception:
        if frames := transcoder.end():
            yield frames
        raise
    if frames := transcoder.end():
        yield frames


async def _one_by_one(stream: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
    for chunk in stream:
        yield chunk


def _unreadable(name: str) -> str:
    known = f"choose {_listed(source_names())}"
    if name in target_names():
        return f"Format {name!r} can only be written; {known}."
    return f"Format {name!r} cannot be read; {known}."


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
