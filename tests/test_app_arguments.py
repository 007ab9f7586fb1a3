"""An application with a store and a wire format of its own."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.app import Tailrace
from tailrace.buses.local import LocalBus
from tailrace.core.errors import CallerError
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.sse import SseParser
from tailrace.runtime.tasks.task import Task
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.wire_kit import check_wire
from tailrace.wire.base import Cursor, Encoder, Frame, whole_number
from tailrace.wire.task import FORMAT as TASK
from tests.traces import TRACES


async def agent(task: Task) -> None:
    with task.message() as message:
        message.text("It is sunny.")


class MyStore:
    """A store of another package: all that is known of it is that it has the port's methods."""

    def __init__(self, path: Path) -> None:
        self._log = SqliteStore(path)
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def close(self) -> None:
        self.closed = True
        await self._log.close()


class Types:
    """A wire format of another package: the type of each event, and its number as the cursor."""

    name = "types"
    headers: dict[str, str] = {"x-format": "types"}
    resumable = True
    stateful = False
    shows_attempts = True
    heartbeat: Frame = b": ping\n\n"

    def preamble(self, retry_ms: int = 0) -> bytes:
        return b""

    def encode(self, recorded: Recorded) -> list[Frame]:
        event = json.loads(recorded.public)
        return [b"id: %d\ndata: %b\n\n" % (event["sequence_number"], event["type"].encode())]

    def close(self, reason: str) -> list[Frame]:
        return []

    def at(self, state: State) -> Encoder:
        return self

    def open(self, state: State) -> tuple[Encoder, list[Frame]]:
        count = state.sequence_number
        return self, [b"id: %d\ndata: %d events\n\n" % (count, count)] if count else []

    def cursor(self, text: str) -> Cursor:
        return Cursor(whole_number(text))


async def finished(app: Tailrace) -> str:
    run_id = await app._runs.start("a", "?")
    assert await app._runs.reader.ended(run_id, 120)
    return run_id


async def test_a_custom_store_is_used_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store: Any = MyStore(tmp_path / "mine.db")
    app = Tailrace({"a": agent}, store=store)
    async with asyncio.timeout(120), app.running():
        run_id = await finished(app)
        assert (await store.info(run_id)).ended_at is not None
    assert store.closed
    assert not (tmp_path / "tailrace.db").exists()


async def test_a_store_that_needs_a_running_loop_is_opened_by_a_function(tmp_path: Path) -> None:
    app = Tailrace({"a": agent}, store=partial(SqliteStore.open, tmp_path / "mine.db"))
    for _ in range(2):
        async with asyncio.timeout(120), app.running():
            await finished(app)


class CountingBus(LocalBus):
    """A bus of another package, which counts what is published."""

    published = 0

    def publish(self, run_id: str, events: list[Recorded]) -> None:
        self.published += len(events)
        super().publish(run_id, events)


@pytest.mark.parametrize("by_function", [False, True])
async def test_a_custom_bus_is_used(tmp_path: Path, by_function: bool) -> None:
    bus = CountingBus()

    async def opened() -> CountingBus:
        return bus

    app = Tailrace({"a": agent}, tmp_path / "log.db", bus=opened if by_function else bus)
    async with asyncio.timeout(120), app.running():
        await finished(app)
    assert bus.published > 0


async def test_a_function_that_opens_no_store_is_refused() -> None:
    async def nothing() -> Any:
        return None

    with pytest.raises(CallerError, match="returned no store: NoneType has no acknowledge"):
        async with Tailrace({"a": agent}, store=nothing).running():
            pass


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"database": object()}, "`database` must be a path or a URL, not object; .*`store=`"),
        ({"database": 5}, "`database` must be a path or a URL, not int"),
        ({"database": b"log.db"}, "`database` must be a path or a URL, not bytes"),
        ({"store": "log.db"}, "str has no .*A path or a URL is `database=`"),
        ({"store": SqliteStore}, "type is a class"),
        ({"store": object()}, "object has no acknowledge, append"),
        ({"store": object(), "database": "log.db"}, "not both"),
        ({"bus": object()}, "`bus` must be a `tailrace.ports.Bus`; object has no check"),
        ({"bus": 5}, "`bus` must be a `tailrace.ports.Bus`; int has no check"),
        ({"bus": "http://x"}, "Unknown bus URL in `bus`. Use local:, redis:"),
        ({"bus": LocalBus}, "`bus` must be .* type is a class"),
        ({"formats": [object()]}, "has no name, headers"),
        ({"formats": [Types]}, "is a class"),
        ({"formats": [Types(), Types()]}, "two formats named 'types'"),
        ({"formats": [TASK]}, "two formats named 'task'"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_sentence(
    options: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CallerError, match=sentence):
        Tailrace({"a": agent}, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("trace", TRACES[:5], ids=lambda trace: trace.name)
def test_the_format_of_this_test_passes_the_kit(trace: Any) -> None:
    check_wire(Types(), [event for event, _ in trace.events])


async def test_a_format_that_was_added_is_served_and_resumed() -> None:
    app = Tailrace({"a": agent}, "sqlite://:memory:", formats=[Types()])
    transport = httpx.ASGITransport(app=app)
    async with (
        asyncio.timeout(120),
        app.running(),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        run_id = await finished(app)
        url = f"/runs/{run_id}/events?format=types"
        answer = await client.get(url)
        assert answer.headers["x-format"] == "types"
        frames = SseParser().feed(answer.content)
        assert [frame.data for frame in frames][:2] == ["task.created", "task.in_progress"]
        rest = await client.get(url, headers={"last-event-id": "2"})
        assert SseParser().feed(rest.content) == frames[2:]
        assert "types" in (await client.get("/")).text
        unknown = await client.get(f"/runs/{run_id}/events?format=nothing")
        assert "types" in unknown.json()["error"]["message"]
