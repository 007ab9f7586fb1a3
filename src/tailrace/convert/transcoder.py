"""A source and a target, put together: `Transcoder` is pure, `transcode` goes through a stream."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping
from functools import partial

from tailrace.convert.pieces import STOP, Piece, Pieces
from tailrace.convert.sources import MessageSource, ProviderSource, Source, TaskSource, Told
from tailrace.convert.targets import LinesTarget, ObjectTarget, Target, WireTarget
from tailrace.core.errors import StreamError, StreamTooLarge, UnknownFormat
from tailrace.core.fold import State
from tailrace.ingest.anthropic_messages import AnthropicMessages
from tailrace.ingest.openai_chat import OpenAIChat
from tailrace.ingest.openai_responses import OpenAIResponses
from tailrace.ingest.run_events import RunEvents, run_facts
from tailrace.ingest.vercel_ui import VercelUi, message_facts
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
    """What can be read."""
    return list(_SOURCES)


def target_names() -> list[str]:
    """What can be written."""
    return [*FORMATS, *_FOR_PEOPLE]


class Transcoder:
    """Bytes of one format in, bytes of another out: no clock, no I/O, no waiting.

        transcoder = Transcoder("openai-chat", "vercel-ui", run_id="run_7")
        for chunk in chunks:
            send(transcoder.feed(chunk))
        send(transcoder.end())

    `run_id` names the run that a stream without a name becomes, such as a provider's. `jsonl` says
    that the source is JSON lines also where its first byte does not.

    A source that is cut or broken is no exception: the target ends as its readers expect, saying
    so, and `error` tells. What is held is the answer as folded so far, never the stream.
    """

    def __init__(self, from_: str, to: str, *, run_id: str = "run_1", jsonl: bool = False) -> None:
        """`UnknownFormat` when there is nothing to read or write of that name."""
        if from_ not in _SOURCES:
            raise UnknownFormat(_unreadable(from_))
        if to not in FORMATS and to not in _FOR_PEOPLE:
            raise UnknownFormat(f"{to!r} cannot be written; there is {_listed(target_names())}.")
        self._source = _SOURCES[from_](run_id)
        self._target = _FOR_PEOPLE[to]() if to in _FOR_PEOPLE else WireTarget(FORMATS[to])
        self._pieces = Pieces(jsonl=jsonl)
        self._state = State()  # the run as the target has heard of it
        self.is_over = False
        """Whether the target is at its end: what else the source may say is not read."""
        self.error: StreamError | None = None
        """Why the source was not read to a proper end, once that is so."""
        self.events = 0
        """How many events of the source were read; `error`, if any, is about the last of them."""

    def feed(self, chunk: bytes) -> bytes:
        """What this chunk of the source brings, at once."""
        return self._take(lambda: self._pieces.feed(chunk))

    def end(self) -> bytes:
        """The source is over: what ends the target, unless it has ended."""
        return self._take(self._pieces.rest, is_last=True)

    def _take(self, cut: Callable[[], list[Piece]], *, is_last: bool = False) -> bytes:
        out: list[bytes] = []
        if self.is_over:
            return b""
        try:
            for piece in cut():
                text = piece.data.strip()
                if text == STOP:
                    self._source.stop()
                    is_last = True
                    break
                if text:
                    self.events += 1
                    for one in self._source.feed(piece):
                        self._tell(one, out)
            if is_last:
                self._finish(None, out)
        except StreamError as error:
            self._finish(error, out)
        return b"".join(out)

    def _tell(self, one: Told, out: list[bytes]) -> None:
        out.append(self._target.tell(one))
        self._state = self._source.state

    def _finish(self, error: StreamError | None, out: list[bytes]) -> None:
        self.is_over = True
        for one in self._source.end(error):
            try:
                self._tell(one, out)
            except StreamTooLarge as large:
                # Readers do without it: whatever it closes is closed by the events after it.
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
    """A stream in another format, piece by piece as it comes.

    A source that is cut or broken ends the target as its readers expect; use a `Transcoder` to
    learn of it. If `stream` itself raises, the target is ended first and the exception goes on.
    Whoever opened the stream closes it.
    """
    # Ids differ from call to call: pages tell messages apart by them.
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
    known = f"there is {_listed(source_names())}"
    if name in target_names():
        return f"{name!r} is only written: it does not say enough to be read back; {known}."
    return f"{name!r} cannot be read; {known}."


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
