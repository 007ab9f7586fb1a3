"""Record the raw stream of any model, and replay it offline.

    model = record(open_model("openai:gpt-5"), "answers.jsonl")
    model = replay("answers.jsonl")             # without pauses
    model = replay("answers.jsonl", pace=1)     # with the original pauses

A replay answers call by call in the recorded order, and does not look at the request.

The file has JSON lines. A call begins with `{"call": name, "api": …, "model": …}` and its `host`,
if it has one. A chunk of its answer is `{"call": name, "at": seconds, "events": […]}`, an error is
`{"call": name, "at": …, "error": …}`. Each line names its call and is written as it arrives. So
calls at the same time may share a file, and a crash loses only what had not arrived. The file holds
the answers, and no requests: no prompt and no key.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path

import msgspec

from tailrace.core import errors
from tailrace.core.errors import CallerError, ProviderError
from tailrace.core.items import Usage
from tailrace.history import Api
from tailrace.models.prices import Prices
from tailrace.ports import Model, Request, host_of

__all__ = ["NoRecording", "record", "replay"]

_ERRORS: dict[str, type[ProviderError]] = {
    error.code: error
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, ProviderError)
}


class NoRecording(CallerError):
    """The file is not a recording, or lacks the call."""

    code = "no_recording"


class RecordedStart(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The first line of a call: the API, the model and the host."""

    call: str
    api: Api
    model: str
    host: str = ""


class RecordedChunk(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Events or an error that arrived `at` seconds after the call was made."""

    call: str
    at: float
    events: list[str] = []
    error: str | None = None
    message: str = ""
    retry_after: float | None = None


class RecordedCall(msgspec.Struct):
    """A complete call."""

    begun: RecordedStart
    chunks: list[RecordedChunk]


def record(model: Model, path: str | Path, *, now: Callable[[], float] = time.monotonic) -> Model:
    """The same model. Its answers are appended to the file, chunk by chunk."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return _Recording(model, path, now)


class _Recording:
    def __init__(self, model: Model, path: Path, now: Callable[[], float]) -> None:
        self._model = model
        self._path = path
        self._now = now

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def api(self) -> Api:
        return self._model.api

    @property
    def host(self) -> str:
        return host_of(self._model) or ""

    async def stream(self, request: Request) -> AsyncIterator[list[str]]:
        began = self._now()
        call = secrets.token_hex(4)  # random: other processes may append to the file
        stream = self._model.stream(request)
        # Unbuffered, one write per line: no chunk is lost, and lines do not mix.
        with self._path.open("ab", buffering=0) as file:

            def keep(line: RecordedStart | RecordedChunk) -> None:
                file.write(msgspec.json.encode(line) + b"\n")

            keep(RecordedStart(call, self.api, self.name, self.host))
            try:
                async for events in stream:
                    keep(RecordedChunk(call, self._now() - began, events))
                    yield events
            except ProviderError as error:
                at = self._now() - began
                keep(RecordedChunk(call, at, [], error.code, str(error), error.retry_after))
                raise
            finally:
                if isinstance(stream, AsyncGenerator):
                    await (
                        stream.aclose()
                    )  # otherwise its connection stays open until garbage collection

    def cost(self, usage: Usage) -> float | None:
        return self._model.cost(usage)

    async def close(self) -> None:
        await self._model.close()


def read_calls(path: str | Path) -> list[RecordedCall]:
    """Read the calls of a recording, in the order in which they were made.

    The last line may be incomplete, if its writer was killed. `NoRecording` names a wrong line.
    """
    path = Path(path)
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise NoRecording(
            f"Recording {path} cannot be read: {error.strerror}. Check the path."
        ) from None
    calls: dict[str, RecordedCall] = {}
    whole = lines[:-1]  # the last line has no line feed: it is empty or incomplete
    for number, line in enumerate(whole, 1):
        try:
            value = msgspec.json.decode(line)
            if isinstance(value, dict) and "api" in value:
                begun = msgspec.convert(value, RecordedStart)
                calls[begun.call] = RecordedCall(begun, [])
            else:
                chunk = msgspec.convert(value, RecordedChunk)
                calls[chunk.call].chunks.append(chunk)
        except (ValueError, KeyError) as error:
            why = "its call is not in the file" if isinstance(error, KeyError) else str(error)
            raise NoRecording(
                f"Recording {path.name}, line {number}: {why}. Record it again."
            ) from None
    if not calls:
        raise NoRecording(f"Recording {path.name} is empty; record a call first.")
    return list(calls.values())


def replay(path: str | Path, *, pace: float = 0, prices: Prices | None = None) -> Model:
    """A model that replays the answers in a file, in their order.

    `pace` 1 keeps the original pauses, 2 halves them, 0 leaves them out.
    """
    calls = read_calls(path)
    apis = sorted({call.begun.api for call in calls})
    if len(apis) > 1:
        raise NoRecording(
            f"{Path(path).name} has answers of several APIs ({', '.join(apis)}). Record each model"
            " in a file of its own."
        )
    return _Replayed(Path(path).name, calls, pace, prices)


class _Replayed:
    def __init__(
        self, file: str, calls: list[RecordedCall], pace: float, prices: Prices | None
    ) -> None:
        self._file = file
        self._calls = calls
        self._pace = pace
        self._prices = prices
        self._next = 0

    @property
    def name(self) -> str:
        return self._calls[0].begun.model

    @property
    def api(self) -> Api:
        return self._calls[0].begun.api

    @property
    def host(self) -> str:
        return self._calls[0].begun.host

    async def stream(self, request: Request) -> AsyncIterator[list[str]]:  # noqa: ARG002
        if self._next >= len(self._calls):
            count = len(self._calls)
            held = "1 answer" if count == 1 else f"{count} answers"
            raise NoRecording(f"{self._file} has only {held}. Record this call too.")
        call = self._calls[self._next]
        self._next += 1
        began = 0.0
        for chunk in call.chunks:
            if self._pace:
                await asyncio.sleep((chunk.at - began) / self._pace)
                began = chunk.at
            if chunk.error is not None:
                known = _ERRORS.get(chunk.error, ProviderError)
                raise known(chunk.message, retry_after=chunk.retry_after)
            yield chunk.events

    def cost(self, usage: Usage) -> float | None:
        return None if self._prices is None else self._prices(self.name, usage)

    async def close(self) -> None:
        pass
