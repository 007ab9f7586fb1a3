"""Opens a page in a real browser and waits for what its script reports."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from playwright.async_api import Browser, async_playwright, expect

TIMEOUT = 60_000
"""Milliseconds that a page may take until it is as expected."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--disable-extensions", "--mute-audio"),
)


class Pages:
    """A web server of pages, on a port of its own; a page reports with `POST /report`."""

    def __init__(self) -> None:
        self.files: Mapping[str, str] = {}
        self._reports: queue.Queue[Any] = queue.Queue()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def report(self, seconds: float) -> Any:
        """The next report of a page."""
        return self._reports.get(timeout=seconds)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        pages = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                body = pages.files.get(path, "").encode()
                kind = "text/javascript" if path.endswith(".js") else "text/html"
                self._answer(200 if body else 404, kind, body)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                pages._reports.put(json.loads(body))
                self._answer(204, "text/plain", b"")

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", f"{kind}; charset=utf-8")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


def program() -> str:
    """The path of a browser."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, "There is no browser: run scripts/services, or install chromium."
    return found


@asynccontextmanager
async def playwright_browser() -> AsyncIterator[Browser]:
    """A browser that a test drives. It waits for a minute until the page is as expected."""
    expect.set_options(timeout=TIMEOUT)
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        yield started
        await started.close()


@contextmanager
def browser(url: str) -> Iterator[None]:
    """A browser with this page open, until the block ends."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [program(), *FLAGS, f"--user-data-dir={profile}", url],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            process.kill()
            process.wait(10)
