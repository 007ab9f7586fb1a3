"""A run of another process: on a server, in a database, or in an exported file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer

from tailrace.cli.messages import fail
from tailrace.core.codec import decode_event
from tailrace.core.errors import MalformedEvent, TailraceError
from tailrace.core.events import TERMINAL, AnyEvent
from tailrace.core.sse import SseParser
from tailrace.core.state import ENDED

RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="Id of the run, or its address http://…/runs/ID.")
]
Url = Annotated[
    str, typer.Option(envvar="TAILRACE_URL", help="Address of the server, with its prefix.")
]
KeyOption = Annotated[
    str | None,
    typer.Option(envvar="TAILRACE_KEY", help="API key, if the server wants one."),
]
Db = Annotated[
    str | None,
    typer.Option("--db", help="Read this database instead: a SQLite file or postgresql://…"),
]
LOCAL = "http://127.0.0.1:8000"

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
    """A Tailrace server, over HTTP."""

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


def stored_events(run: str, url: str, key: str | None, db: str | None) -> list[AnyEvent]:
    """The events of a run so far, from a file, a database or a server."""
    if "://" not in run and (Path(run).is_file() or run.endswith(".jsonl")):
        return _of_file(Path(run))
    if db is not None:
        return [decode_event(line) for line in read_database(run, db)[0]]
    url, run_id = address(run, url)
    return ServerClient(url, key).so_far(run_id)


def _of_file(path: Path) -> list[AnyEvent]:
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
        if not lines:
            fail(f"File {path} has no events; write it again with `tailrace export`.")
        return [decode_event(line) for line in lines]
    except OSError as error:
        fail(f"File {path} cannot be read ({error.strerror}).")
    except TailraceError as error:
        fail(f"File {path} is not an exported run: {error}")


def read_database(run_id: str, db: str) -> tuple[list[bytes], dict[int, bytes]]:
    """The events of a run as JSON, and its private parts by number."""
    import asyncio

    async def read() -> tuple[list[bytes], dict[int, bytes]]:
        from tailrace.stores import open_store

        store = await open_store(db)
        try:
            if await store.info(run_id) is None:
                fail(f"There is no run {run_id} in {db}.")
            lines: list[bytes] = []
            while found := await store.read_lines(run_id, len(lines)):
                lines += [line for part in found for line in part.publics()]
            return lines, await store.read_private(run_id)
        finally:
            await store.close()

    if "://" not in db and not Path(db).is_file():
        fail(f"There is no database {db}; check --db.")
    try:
        return asyncio.run(read())
    except TailraceError as error:
        fail(str(error))
