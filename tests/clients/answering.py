"""A server that has one answer: bytes for a client to read as its own API's stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Answers(ThreadingHTTPServer):
    """Answers every request with the same stream."""

    stream = b""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: Answers

    def do_POST(self) -> None:  # the name that the standard library calls
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(self.server.stream)

    def log_message(self, *_arguments: Any) -> None:
        pass


@contextmanager
def answering() -> Iterator[Answers]:
    """Such a server, while it is needed."""
    with Answers() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
