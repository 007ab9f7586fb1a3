"""A client that costs as little as a client can: sockets, bytes, and the time they came."""

from __future__ import annotations

import http.client
import json
import os
import re
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]
PATIENCE = 120.0


@contextmanager
def server(name: str, folder: str, *options: str) -> Iterator[Server]:
    """A contender in a process of its own, until the block ends."""
    arguments = ["-m", "benchmarks.servers", name, "--folder", folder, *options]
    with started(arguments, ROOT) as found:
        yield found


@contextmanager
def started(arguments: Sequence[str], folder: Path) -> Iterator[Server]:
    """Python in a process of its own, from its first line, which has its address if it serves."""
    with _process([sys.executable, *arguments], folder, None) as found:
        yield found


@contextmanager
def node_server(script: Path) -> Iterator[Server]:
    """A contender in JavaScript, until the block ends."""
    from tests.node import node_env, node_path

    environment = node_env({"NODE_ENV": "production"})
    with _process([str(node_path()), str(script)], ROOT, environment) as found:
        yield found


@contextmanager
def _process(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None
) -> Iterator[Server]:
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"`{' '.join(command)}` did not start")
        address = re.search(r"http://\S+", line)
        yield Server(address[0] if address else "", process.pid)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


class Server:
    """A running contender."""

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self.pid = pid
        self.helpers: list[Server] = []
        """Other processes that work for it; their CPU counts."""
        where = urlsplit(url)
        self.address = (where.hostname or "", where.port or 0)

    def memory(self) -> int:
        """The bytes of memory that its process has."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def settle(self) -> None:
        """Wait until it has nothing to do: it joins the rows of runs a while after their end."""
        known = -100.0
        while (now := self.cpu()) - known > 0.02:
            known = now
            time.sleep(0.5)

    def cpu(self) -> float:
        """The seconds of CPU that its processes have used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return own + sum(helper.cpu() for helper in self.helpers)

    def post(self, path: str, body: Any) -> Any:
        """Send JSON, get JSON."""
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE)
        try:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status >= 400:
                raise RuntimeError(f"{path}: {text!r}")
            return json.loads(text)
        finally:
            connection.close()

    def start(self, **asked: Any) -> str:
        """Start a run of the talker; its id."""
        return str(self.post("/runs", {"agent": "talker", "input": asked})["run_id"])

    def open(self, path: str) -> socket.socket:
        """Ask for a stream; the answer has still to be read."""
        connection = socket.create_connection(self.address, timeout=PATIENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(
            f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode()
        )
        return connection

    def read(self, path: str) -> bytes:
        """A whole answer, headers and all."""
        received: list[bytes] = []
        with self.open(path) as connection:
            while data := connection.recv(1 << 18):
                received.append(data)
        return b"".join(received)

    def read_until(self, path: str, mark: bytes) -> None:
        """A stream that does not end, up to some bytes that it holds once."""
        tail = b""
        with self.open(path) as connection:
            while mark not in tail:
                data = connection.recv(1 << 18)
                if not data:
                    raise RuntimeError(f"{path} ended before {mark!r}")
                tail = tail[-len(mark) :] + data


def read_all(connections: Sequence[socket.socket]) -> tuple[list[int], float]:
    """Read many streams to their ends: the bytes of each, and when the last one ended."""
    sizes = [0] * len(connections)
    with selectors.DefaultSelector() as waiting:
        for index, connection in enumerate(connections):
            connection.setblocking(False)
            waiting.register(connection, selectors.EVENT_READ, index)
        left = len(connections)
        while left:
            ready = waiting.select(PATIENCE)
            if not ready:
                raise RuntimeError("a stream stopped")
            for key, _ in ready:
                data = key.fileobj.recv(1 << 18)  # type: ignore[union-attr]
                if data:
                    sizes[key.data] += len(data)
                else:
                    waiting.unregister(key.fileobj)
                    left -= 1
    return sizes, time.perf_counter()


_DELTA = re.compile(rb'"delta": ?"(\d{6,})"')


def latencies(connections: Sequence[socket.socket]) -> list[tuple[float, float]]:
    """Read many streams to their ends: when each delta was made, and how long it took; seconds."""
    found: list[tuple[float, float]] = []
    tails = [b""] * len(connections)
    with selectors.DefaultSelector() as waiting:
        for index, connection in enumerate(connections):
            connection.setblocking(False)
            waiting.register(connection, selectors.EVENT_READ, index)
        left = len(connections)
        while left:
            ready = waiting.select(PATIENCE)
            if not ready:
                raise RuntimeError("a stream stopped")
            for key, _ in ready:
                data = key.fileobj.recv(1 << 18)  # type: ignore[union-attr]
                now = time.monotonic_ns()
                if not data:
                    waiting.unregister(key.fileobj)
                    left -= 1
                    continue
                data = tails[key.data] + data
                end = data.rfind(b"\n\n") + 2 if b"\n\n" in data else 0
                tails[key.data] = data[end:]
                made = [int(text) for text in _DELTA.findall(data, 0, end)]
                found += [(one / 1e9, (now - one) / 1e9) for one in made]
    return found
