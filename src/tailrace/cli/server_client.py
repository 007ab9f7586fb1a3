"""Asks a Tailrace server over HTTP, and follows its runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec
import typer

from tailrace.cli.output import fail
from tailrace.core.codec import decode_event
from tailrace.core.errors import MalformedEvent
from tailrace.core.events import TERMINAL, AnyEvent
from tailrace.core.sse import SseParser
from tailrace.core.state import ENDED

CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 60.0
"""A server sends a sign of life more often than this."""

QUIET_SECONDS = 0.5
"""A run that is not over has been read when nothing comes for so long."""

FIRST_WAIT = 0.2
LONGEST_WAIT = 5.0


class ServerAway(Exception):
    """The server does not answer, or broke off."""


class ServerClient:
    """The client of a Tailrace server."""

    def __init__(self, url: str, key: str | None = None) -> None:
        import httpcore2

        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            fail(f"{url!r} is not the address of a server; write http://host:port.")
        self.url = url.rstrip("/")
        self._http = httpcore2.ConnectionPool(retries=0)
        self._headers = [("accept", "*/*"), ("user-agent", "tailrace")]
        self.has_key = bool(key)
        if key:
            self._headers.append(("authorization", f"Bearer {key}"))

    def ask(self, path: str, body: Any = None, *, wait: float = 30.0) -> Any:
        """The JSON of an answer; an error of the server ends the command with its message."""
        try:
            status, raw = self.request(path, body, wait=wait)
        except ServerAway as away:
            fail(_no_answer(self.url, str(away)))
        if status >= 400:
            fail(_message(status, raw, self.url))
        return msgspec.json.decode(raw)

    def request(self, path: str, body: Any = None, *, wait: float = 30.0) -> tuple[int, bytes]:
        """The status and the body of an answer. Raises `ServerAway`."""
        headers = [*self._headers]
        content = b""
        if body is not None:
            content = msgspec.json.encode(body)
            headers.append(("content-type", "application/json"))
        try:
            answer = self._http.request(
                "GET" if body is None else "POST",
                self.url + path,
                headers=headers,
                content=content,
                extensions={"timeout": _timeout(wait)},
            )
        except Exception as error:  # the library's errors have no common base
            raise ServerAway(_why(error)) from error
        return answer.status, answer.content

    def pieces(
        self, path: str, after: str = "", *, silence: float = SILENCE_SECONDS
    ) -> Iterator[bytes]:
        """The bytes of a stream as they come. Raises `ServerAway`."""
        headers = [*self._headers, *([("last-event-id", after)] if after else [])]
        try:
            with self._http.stream(
                "GET",
                self.url + path,
                headers=headers,
                extensions={"timeout": _timeout(silence)},
            ) as answer:
                if answer.status >= 500 or answer.status == 429:
                    raise ServerAway(f"status {answer.status}")
                if answer.status >= 400:
                    fail(_message(answer.status, answer.read(), self.url, path))
                yield from answer.iter_stream()
        except (typer.Exit, GeneratorExit, ServerAway, KeyboardInterrupt):
            raise
        except Exception as error:
            raise ServerAway(_why(error)) from error

    def follow(
        self, run_id: str, after: str = "", note: Callable[[str], None] = lambda _: None
    ) -> Iterator[list[AnyEvent]]:
        """The events of a run until its end. A cut stream is resumed after the last event."""
        wait = 0.0
        reached = False
        while True:
            parser = SseParser()
            try:
                for piece in self.pieces(f"/runs/{run_id}/events", after):
                    reached = True
                    if wait:
                        note("The server is back.")
                        wait = 0.0
                    events = []
                    for frame in parser.feed(piece):
                        event = decode_event(frame.data.encode())
                        if frame.id:
                            after = frame.id
                        events.append(event)
                    if events:
                        yield events
                    last = events[-1] if events else None
                    if isinstance(last, TERMINAL) and last.task_id == run_id:
                        return
                why = "the stream ended early"
            except MalformedEvent as error:
                fail(f"The stream of {run_id} has a line that cannot be read: {error}")
            except ServerAway as away:
                why = str(away)
            if not reached:
                fail(_no_answer(self.url, why))
            if not wait:
                note(f"The server is away ({why}). Trying again; Ctrl-C stops.")
            wait = min(max(wait * 2, FIRST_WAIT), LONGEST_WAIT)
            time.sleep(wait)

    def check_run(self, run_id: str) -> None:
        """Refuse the id of a thread, and an unknown id: a stream would wait for its first run."""
        if run_id.startswith("run_"):
            return
        if self.request(f"/threads/{run_id}")[0] == 200:
            fail(f"{run_id} is a thread. `tailrace runs {run_id}` lists its runs.")
        self.ask(f"/runs/{run_id}")

    def so_far(self, run_id: str) -> list[AnyEvent]:
        """The events of a run until now: all of them if it has ended."""
        status = self.ask(f"/runs/{run_id}").get("status")
        if status in ENDED:
            return [event for events in self.follow(run_id) for event in events]
        events: list[AnyEvent] = []
        parser = SseParser()
        try:
            for piece in self.pieces(f"/runs/{run_id}/events", silence=QUIET_SECONDS):
                events += [decode_event(frame.data.encode()) for frame in parser.feed(piece)]
        except ServerAway:
            pass  # the run goes on, and is quiet now
        return events


def _timeout(silence: float) -> dict[str, float]:
    return {"connect": CONNECT_SECONDS, "read": silence, "write": 30.0, "pool": 5.0}


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__


def _no_answer(url: str, why: str) -> str:
    start = "start it with `tailrace serve`, or name another with --url or TAILRACE_URL"
    return f"The server {url} does not answer ({why}); {start}."


def _message(status: int, raw: bytes, url: str, path: str = "") -> str:
    try:
        found = msgspec.json.decode(raw)
        sent = found["error"]["message"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return (
            f"{url} answered with status {status}, and not as a Tailrace server does; check --url. "
            "An application that is mounted needs its prefix there: http://host:port/prefix."
        )
    if status == 401:
        return f"{sent} Pass --key, or set TAILRACE_KEY."
    if status == 404 and path.startswith("/runs/"):
        run_id = path.split("/")[2]
        return f"There is no run {run_id}; `tailrace threads` and `tailrace runs` list the ids."
    return str(sent)


def address(run: str, url: str) -> tuple[str, str]:
    """The server and the id of a run: `http://…/runs/ID` names both."""
    if "://" not in run:
        return url, run
    base, found, rest = run.partition("/runs/")
    if not found:
        fail(f"{run!r} is not the address of a run; write http://host:port/runs/ID.")
    return base, rest.partition("/")[0].partition("?")[0]
