"""The limits over HTTP: the least that a server can do, written for nothing but the benchmark.

    GET /stream?count=N&rate=R    a model's deltas, one chunk each, kept nowhere
    GET /durable?count=N&rate=R   the same, each shown only after SQLite has committed it; with
                                  &rest=S a fast run rests so many seconds between two commits
    GET /shared?count=N&rate=R    the same with PostgreSQL and Redis: `limits_shared.py`
    GET /joined?bytes=N           so many bytes of frames that lie ready in memory
    GET /crowd?count=N&people=P   one run for P readers: it begins when all are there
    GET /idle                     a stream on which nothing happens

`rate` is events a second; 0 is as fast as the loop turns. Each delta carries the time at which the
model made it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl

import apsw
import msgspec

from benchmarks.servers.limits_shared import SharedLog
from tailrace.core.events import TextDelta, recorded

encode = msgspec.json.Encoder().encode
TICK = 0.005
HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]


async def model(count: int, rate: float) -> AsyncIterator[str]:
    """A model that answers in deltas, and yields to the loop after each as a network does."""
    start = time.monotonic()
    for number in range(count):
        if rate:
            await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
        else:
            await asyncio.sleep(0)
        yield str(time.monotonic_ns())


def frame(number: int, delta: str) -> bytes:
    """A delta as the native format shows it."""
    event = TextDelta(task_id="run_1", item_id="msg_1", output_index=0, block_index=0, delta=delta)
    return b"id: 1-%d\ndata: %b\n\n" % (number, encode(recorded(event, number)))


async def bare(send: Any, count: int, rate: float) -> None:
    """One chunk for each event: no log, no wait."""
    number = 0
    async for delta in model(count, rate):
        number += 1
        await send({"type": "http.response.body", "body": frame(number, delta), "more_body": True})


class HandWritten:
    """A group commit: what gathers while one transaction is written goes into the next."""

    def __init__(self, path: str, rest: float) -> None:
        self._rest = rest
        self._jobs: queue.SimpleQueue[list[bytes]] = queue.SimpleQueue()
        self._path = path
        self.shown: list[bytes] = []
        self.moved = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._gathered: list[bytes] = []
        self._writing = False
        threading.Thread(target=self._work, daemon=True).start()

    def add(self, line: bytes) -> None:
        """Take an event; it is shown when it is durable."""
        self._gathered.append(line)
        if not self._writing:
            self._writing = True
            self._next()

    def _next(self) -> None:
        if self._gathered:
            self._jobs.put(self._gathered)
            self._gathered = []
        else:
            self._writing = False

    def _written(self, lines: list[bytes]) -> None:
        self.shown += lines
        self.moved.set()
        if self._rest and len(lines) >= 4:  # a fast run: let more of it gather
            self._loop.call_later(self._rest, self._next)
        else:
            self._next()

    def _work(self) -> None:
        db = apsw.Connection(self._path)
        db.pragma("journal_mode", "wal")
        db.pragma("synchronous", "normal")
        db.execute("create table if not exists log (number integer primary key, lines blob)")
        while True:
            lines = self._jobs.get()
            with db:
                db.execute("insert into log (lines) values (?)", (b"".join(lines),))
            self._loop.call_soon_threadsafe(self._written, lines)


async def durable(send: Any, count: int, rate: float, rest: float, path: str) -> None:
    """Only what SQLite has committed is shown; whatever has gathered goes out as one chunk."""
    log = HandWritten(path, rest)

    async def write() -> None:
        number = 0
        async for delta in model(count, rate):
            number += 1
            log.add(frame(number, delta))

    writing = asyncio.create_task(write())
    sent = 0
    while sent < count:
        await log.moved.wait()
        log.moved.clear()
        chunk = b"".join(log.shown[sent:])
        sent = len(log.shown)
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await writing


async def shared(send: Any, count: int, rate: float, log: SharedLog) -> None:
    """Only what PostgreSQL has committed and Redis has passed on is shown."""
    run, passed_on = log.begin()

    async def write() -> None:
        number = 0
        async for delta in model(count, rate):
            number += 1
            log.add(run, frame(number, delta))

    writing = asyncio.create_task(write())
    for _ in range(count):
        body = await passed_on.get()
        await send({"type": "http.response.body", "body": body, "more_body": True})
    await writing
    log.end(run)


class Crowd:
    """One run for many: a shared list of frames, a place for each reader, one tick for all."""

    def __init__(self) -> None:
        self.people = 0
        self.frames: list[bytes] = []
        self.moved = asyncio.Event()
        self.ended = self.over = False
        self.shown = 0
        self._joined: tuple[int, int, bytes] = (0, 0, b"")

    async def write(self, count: int) -> None:
        """The run."""
        number = 0
        async for delta in model(count, 0.0):
            number += 1
            self.frames.append(frame(number, delta))
        self.ended = True

    async def tick(self) -> None:
        """Wake all readers together, every few milliseconds."""
        while not (self.ended and self.shown == len(self.frames)):
            if len(self.frames) != self.shown:
                self.shown = len(self.frames)
                self.moved.set()
                self.moved = asyncio.Event()
                await asyncio.sleep(0)  # the tick is counted from when all have been sent
            await asyncio.sleep(TICK)
        self.over = True
        self.moved.set()

    async def read(self, send: Any) -> None:
        """One reader."""
        seen = 0
        while True:
            if self.shown > seen:
                joined, seen = self.chunk(seen), self.shown
                await send({"type": "http.response.body", "body": joined, "more_body": True})
            elif self.over:
                return
            else:
                await self.moved.wait()

    def chunk(self, seen: int) -> bytes:
        """What follows a place: the same bytes for all who stand there."""
        if self._joined[:2] != (seen, self.shown):
            self._joined = (seen, self.shown, b"".join(self.frames[seen : self.shown]))
        return self._joined[2]


class Limits:
    """The ASGI application."""

    def __init__(self, folder: str, database: str | None, bus: str | None) -> None:
        self._folder = folder
        self._places = (database, bus)
        self._shared: SharedLog | None = None
        self._crowd: Crowd | None = None
        self._count = 0
        self._joined = b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await receive()
            database, bus = self._places
            if database is not None and bus is not None:
                self._shared = await SharedLog.open(database, bus)
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        asked = dict(parse_qsl(scope["query_string"].decode()))
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        path = scope["path"]
        if path == "/stream":
            await bare(send, int(asked["count"]), float(asked["rate"]))
        elif path == "/durable":
            self._count += 1
            file = f"{self._folder}/durable{self._count}.db"
            rest = float(asked.get("rest", 0))
            await durable(send, int(asked["count"]), float(asked["rate"]), rest, file)
        elif path == "/shared" and self._shared is not None:
            await shared(send, int(asked["count"]), float(asked["rate"]), self._shared)
        elif path == "/joined":
            size = int(asked["bytes"])
            if len(self._joined) != size:
                self._joined = b"x" * size
            await send({"type": "http.response.body", "body": self._joined, "more_body": True})
        elif path == "/crowd":
            await self._one_of_a_crowd(send, int(asked["count"]), int(asked["people"]))
        else:
            await send({"type": "http.response.body", "body": b": hello\n\n", "more_body": True})
            while (await receive())["type"] != "http.disconnect":
                pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _one_of_a_crowd(self, send: Any, count: int, people: int) -> None:
        if self._crowd is None:
            self._crowd = Crowd()
        crowd = self._crowd
        crowd.people += 1
        if crowd.people == people:
            self._crowd = None
            both = [asyncio.create_task(crowd.write(count)), asyncio.create_task(crowd.tick())]
            await crowd.read(send)
            await asyncio.gather(*both)
        else:
            await crowd.read(send)
