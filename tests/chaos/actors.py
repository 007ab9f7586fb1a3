"""Who takes part: processes of the product, and followers that come and go over plain sockets."""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import resource
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.checker import Reading, Shown
from tests.forked import Forked

ANSWER_SECONDS = 20.0
"""How long a server that is alive may take for anything; it is cut off then, and asked again."""

STARTING_SECONDS = 2.0
"""How long a process may take until its database is open."""

DEAD = (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError)
"""What a client sees of a server that was killed, stopped or not yet started."""


@dataclass
class Suffered:
    """A process was dead, stopped or without a disk, from then on and until then."""

    pid: int
    what: str
    since: float
    until: float = math.inf


@dataclass
class Actor:
    """A server or a worker, in a process of its own that can be killed and started again."""

    name: str
    argv: list[str]
    env: dict[str, str]
    log: Path
    process: Forked | None = None
    stopped: bool = False
    started: float = 0.0
    may_give_up: bool = False
    """Whether the disk was full while it started: without a database it has nothing to do."""
    troubles: list[Suffered] = field(default_factory=list)
    """What happened to its processes, in order."""

    @property
    def pid(self) -> int | None:
        """The id of its process, which may have ended by itself."""
        return self.process.pid if self.process is not None else None

    def start(self) -> None:
        """Begin, or begin again."""
        with self.log.open("ab") as log:
            env = {**os.environ, **self.env}
            self.process = Forked("-m", "tailrace", *self.argv, env=env, stdout=log, stderr=log)
        self.started = time.monotonic()
        self.stopped = self.may_give_up = False

    def status(self) -> int | None:
        """The exit status, if it has ended by itself."""
        status = self.process.poll() if self.process is not None else None
        if status is not None:
            self._suffer("dead")
        return status

    def _suffer(self, what: str) -> None:
        assert self.pid is not None
        self.troubles.append(Suffered(self.pid, what, time.monotonic()))

    def _recover(self, what: str) -> None:
        for trouble in self.troubles:
            if trouble.what == what:
                trouble.until = min(trouble.until, time.monotonic())

    def kill(self) -> None:
        """SIGKILL: it is gone when this returns."""
        if self.process is not None:
            self._recover("stopped")
            self._suffer("dead")
            self.process.kill()
            self.process = None

    def pause(self) -> None:
        """SIGSTOP: it only seems dead."""
        assert self.process is not None
        self._suffer("stopped")
        self.process.send_signal(signal.SIGSTOP)
        self.stopped = True

    def resume(self) -> None:
        """SIGCONT, if it was not killed meanwhile."""
        if self.process is not None and self.stopped:
            self.process.send_signal(signal.SIGCONT)
            self._recover("stopped")
        self.stopped = False

    def limit_files(self, size: int | None) -> None:
        """Let no file of it grow past this size, as on a disk that is full; None ends that."""
        if self.pid is not None:
            is_starting = time.monotonic() - self.started < STARTING_SECONDS
            self.may_give_up = self.may_give_up or (size is not None and is_starting)
            self._recover("full disk") if size is None else self._suffer("full disk")
            with suppress(ProcessLookupError):
                _, hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
                soft = hard if size is None else size
                resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (soft, hard))


@asynccontextmanager
async def _asked(
    port: int, method: str, path: str, headers: str, body: bytes = b"", *, small: bool = False
) -> Any:
    """Send a request; the status and the reader that stands before the body.

    A `small` client takes few bytes at a time, so that the server notices when it stalls.
    """
    with socket.socket() as plain:
        plain.setblocking(False)
        if small:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        async with asyncio.timeout(ANSWER_SECONDS):
            await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", port))
            reader, writer = await asyncio.open_connection(
                sock=plain.dup(), limit=8192 if small else 2**16
            )
    try:
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n"
        writer.write(f"{head}{headers}\r\n".encode() + body)
        async with asyncio.timeout(ANSWER_SECONDS):
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        yield int(lines[0].split()[1]), "transfer-encoding: chunked" in lines, reader
    finally:
        # Abruptly: a client that disconnects at random does not close properly.
        writer.transport.abort()


async def _pieces(reader: asyncio.StreamReader, chunked: bool) -> AsyncIterator[bytes]:
    """The body, as it comes; ends only where the server ended it properly."""
    while chunked:
        size = int(await reader.readline() or b"x", 16)
        left = size
        while left:
            piece = await reader.read(left)
            if not piece:
                raise EOFError
            left -= len(piece)
            yield piece
        await reader.readexactly(2)
        if not size:
            return
    while piece := await reader.read(65536):
        yield piece


async def post(port: int, path: str, value: Any) -> tuple[int, Any]:
    """POST JSON; the status, and the JSON that came back."""
    body = json.dumps(value).encode()
    headers = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
    async with _asked(port, "POST", path, headers, body) as (status, chunked, reader):
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = b"".join([piece async for piece in _pieces(reader, chunked)])
    return status, json.loads(answer)


async def get(port: int, path: str) -> tuple[int, Any]:
    """GET JSON; the status, and the JSON that came back."""
    async with _asked(port, "GET", path, "") as (status, chunked, reader):
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = b"".join([piece async for piece in _pieces(reader, chunked)])
    return status, json.loads(answer)


@dataclass
class Follower:
    """Follows one run on any of the servers, and is cut after some bytes now and then."""

    run_id: str
    ports: list[int]
    chance: random.Random
    cursor: str = ""
    stalls: bool = False
    """Whether it stops reading now and then, and goes on later on the same connection."""
    seen: Reading = field(default_factory=Reading)
    connections: int = 0
    confused: bool = False
    """Whether it was sent what does not follow: it stops then, and the checker says why."""
    complaints: list[str] = field(default_factory=list)

    async def follow(self) -> None:
        """Read on until a server says that nothing more comes."""
        while not self.seen.finished and not self.confused:
            self.connections += 1
            leaves = self.chance.random() < (0.2 if self.stalls else 0.8)
            budget = int(self.chance.expovariate(1 / 3000)) if leaves else 10**9
            try:
                await self._connect(self.chance.choice(self.ports), budget)
            except (*DEAD, ValueError):
                await asyncio.sleep(self.chance.uniform(0.01, 0.15))

    async def _connect(self, port: int, budget: int) -> None:
        last = f"last-event-id: {self.cursor}\r\n" if self.cursor else ""
        path = f"/runs/{self.run_id}/events"
        async with _asked(port, "GET", path, last, small=self.stalls) as (status, chunked, reader):
            if status == 204:
                self.seen.finished = True
            elif status == 200:
                await self._read(reader, chunked, budget)
            elif status != 503:
                self.complaints.append(f"GET {path} after {self.cursor!r} was answered {status}")
                await asyncio.sleep(0.2)

    async def _read(self, reader: asyncio.StreamReader, chunked: bool, budget: int) -> None:
        rest = b""
        pieces = aiter(_pieces(reader, chunked))
        while True:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            *frames, rest = (rest + piece[:budget]).split(b"\n\n")
            for frame in frames:
                self._take(frame)
            budget -= len(piece)
            if budget <= 0:
                return
            if self.stalls and self.chance.random() < 0.02:
                await asyncio.sleep(self.chance.uniform(0.1, 0.8))

    def _take(self, frame: bytes) -> None:
        fields: dict[bytes, bytes] = {}
        for line in frame.split(b"\n"):
            name, _, value = line.partition(b":")
            fields[name] = value.removeprefix(b" ")
        if b"data" in fields:
            shown = Shown(fields.get(b"id", b"").decode(), fields[b"data"])
            due = self.seen.after + len(self.seen.shown) + 1
            self.seen.shown.append(shown)
            self.cursor = shown.id
            if shown.id.partition("-")[2] != str(due):
                self.confused = True
            if shown.data.startswith((b'{"type":"task.gap"', b'{"type":"task.snapshot"')):
                # Nothing is ever trimmed here, so every cursor that was shown can be served.
                self.complaints.append(f"I1: a gap: {shown.data[:200]!r}")


def environment(**values: str) -> dict[str, str]:
    """The settings of the chaos application."""
    return {f"TAILRACE_CHAOS_{name.upper()}": value for name, value in values.items()}
