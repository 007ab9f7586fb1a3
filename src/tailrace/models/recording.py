"""Keep the raw stream of any model, and play it again offline.

    model = record(open_model("openai:gpt-5"), "answers.jsonl")
    model = replay("answers.jsonl")             # as fast as it goes
    model = replay("answers.jsonl", pace=1)     # in the time that it took

A recording is a file of JSON lines. A call begins with `{"call": …, "api": …, "model": …}` and its
`host`, if it has one; each chunk of its answer is `{"at": seconds, "events": […]}`, an error
`{"at": …, "error": …}`. Requests are not kept, so no prompt and no key is in it; what the model
said is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from tailrace.core import errors
from tailrace.core.errors import CallerError, ProviderError
from tailrace.core.history import Api
from tailrace.core.items import Usage
from tailrace.models.prices import Prices
from tailrace.ports import Model, Request, host_of

_ERRORS: dict[str, type[ProviderError]] = {
    one.code: one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, ProviderError)
}


class NoRecording(CallerError):
    """A file without the call that is asked for."""

    code = "no_recording"


class _Begun(msgspec.Struct, omit_defaults=True):
    call: int
    api: Api
    model: str
    host: str = ""


class _Chunk(msgspec.Struct, omit_defaults=True):
    at: float
    events: list[str] = []
    error: str | None = None
    message: str = ""
    retry_after: float | None = None


def record(model: Model, path: str | Path, *, now: Callable[[], float] = time.monotonic) -> Model:
    """The same model; what it answers is added to the file, call by call."""
    return _Recording(model, Path(path), now)


class _Recording:
    def __init__(self, model: Model, path: Path, now: Callable[[], float]) -> None:
        self._model = model
        self._path = path
        self._now = now
        self._calls = 0

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
        kept: list[_Begun | _Chunk] = [_Begun(self._calls, self.api, self.name, self.host)]
        self._calls += 1
        try:
            async for events in self._model.stream(request):
                kept.append(_Chunk(self._now() - began, events))
                yield events
        except ProviderError as error:
            at = self._now() - began
            kept.append(_Chunk(at, [], error.code, str(error), error.retry_after))
            raise
        finally:
            # Whole calls only, in one write: several calls at once do not mix.
            lines = msgspec.json.Encoder().encode_lines(kept)
            with self._path.open("ab") as file:
                file.write(lines)

    def cost(self, usage: Usage) -> float | None:
        return self._model.cost(usage)

    async def close(self) -> None:
        await self._model.close()


def replay(path: str | Path, *, pace: float = 0, prices: Prices | None = None) -> Model:
    """A model that answers what is in the file, call by call, in its order.

    `pace` 1 takes the time that it took, 2 half of it, 0 none.
    """
    calls: list[tuple[_Begun, list[_Chunk]]] = []
    for line in Path(path).read_bytes().splitlines():
        value: Any = msgspec.json.decode(line)
        if "call" in value:
            calls.append((msgspec.convert(value, _Begun), []))
        else:
            calls[-1][1].append(msgspec.convert(value, _Chunk))
    if not calls:
        raise NoRecording(f"{Path(path).name} holds no answer.")
    return _Replayed(Path(path).name, calls, pace, prices)


class _Replayed:
    def __init__(
        self,
        file: str,
        calls: list[tuple[_Begun, list[_Chunk]]],
        pace: float,
        prices: Prices | None,
    ) -> None:
        self._file = file
        self._calls = calls
        self._pace = pace
        self._prices = prices
        self._next = 0

    @property
    def name(self) -> str:
        return self._calls[0][0].model

    @property
    def api(self) -> Api:
        return self._calls[0][0].api

    @property
    def host(self) -> str:
        return self._calls[0][0].host

    async def stream(self, request: Request) -> AsyncIterator[list[str]]:  # noqa: ARG002
        if self._next >= len(self._calls):
            raise NoRecording(f"{self._file} holds {len(self._calls)} answers, and no more.")
        _, chunks = self._calls[self._next]
        self._next += 1
        began = 0.0
        for chunk in chunks:
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
