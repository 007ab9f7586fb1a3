"""A thread as one stream, asked over real sockets: all its runs, those to come as well."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.app import Tailrace
from tailrace.core.codec import decode_event
from tailrace.core.fold import State
from tailrace.core.run_object import client_view
from tailrace.core.snapshot import restore, save
from tailrace.core.sse import SseEvent, SseParser
from tailrace.runtime.tasks.task import Task
from tailrace.server.streams import run_stream as server_stream
from tailrace.server.streams import thread_stream as server_thread
from tailrace.server.streams.resume_point import read_thread_cursor
from tailrace.server.streams.thread_stream import ThreadStream
from tailrace.wire import run, task
from tailrace.wire.base import ThreadFormat
from tests.serving import Served

DEADLINE = 120.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("threads") / "log.db")
    yield made
    made.kill()


class Listener:
    """An EventSource in a thread of its own: reads one connection until it is cut."""

    def __init__(self, url: str, cursor: str | None = None, **query: Any) -> None:
        self.frames: list[SseEvent] = []
        self.opened = threading.Event()
        self.moved = threading.Condition()
        self._arguments = (url, {"Last-Event-ID": cursor} if cursor else {}, query)
        self._stopped = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        url, headers, query = self._arguments
        parser = SseParser()
        try:
            with httpx.stream("GET", url, headers=headers, params=query, timeout=DEADLINE) as got:
                assert got.status_code == 200, got.read()
                assert got.headers["content-type"].startswith("text/event-stream")
                for chunk in got.iter_bytes():
                    self.opened.set()
                    with self.moved:
                        self.frames += parser.feed(chunk)
                        self.moved.notify_all()
                    if self._stopped:
                        return
        except httpx.HTTPError:
            pass  # the server was killed

    def wait(self, count: int) -> list[SseEvent]:
        """So many frames, and whatever came with them."""
        with self.moved:
            assert self.moved.wait_for(lambda: len(self.frames) >= count, DEADLINE), self.frames
            return list(self.frames)


@contextmanager
def listening(url: str, cursor: str | None = None, **query: Any) -> Iterator[Listener]:
    listener = Listener(url, cursor, **query)
    assert listener.opened.wait(DEADLINE)
    yield listener
    listener._stopped = True


def run_in(served: Served, thread_id: str, agent: str = "assistant") -> str:
    """A run of a thread, to its end."""
    body = {"agent": agent, "input": "?", "thread_id": thread_id}
    run_id = str(httpx.post(f"{served.url}/runs", json=body).json()["run_id"])
    with httpx.stream("GET", f"{served.url}/runs/{run_id}/events", timeout=DEADLINE) as stream:
        for _ in stream.iter_bytes():
            pass
    return run_id


def log_of(served: Served, run_id: str) -> list[str]:
    answer = httpx.get(f"{served.url}/runs/{run_id}/events", timeout=DEADLINE)
    return [frame.data for frame in SseParser().feed(answer.content)]


@pytest.fixture(scope="module")
def followed(served: Served) -> tuple[str, list[str], list[SseEvent]]:
    """A thread of three runs: its id, its runs, and all that its stream says."""
    runs = [run_in(served, "three", agent) for agent in ("assistant", "broken", "assistant")]
    logs = [log_of(served, run_id) for run_id in runs]
    with listening(f"{served.url}/threads/three/events", format="task") as listener:
        frames = listener.wait(sum(map(len, logs)))
    assert [frame.data for frame in frames] == [line for log in logs for line in log]
    return "three", runs, frames


def test_a_threads_stream_is_its_runs_one_after_another(
    served: Served, followed: tuple[str, list[str], list[SseEvent]]
) -> None:
    _, runs, frames = followed
    logs = [log_of(served, run_id) for run_id in runs]
    firsts = [epoch_of(frame) for frame in frames if (frame.id or "").endswith("-1")]
    assert [(frame.id, frame.data) for frame in frames] == [
        (f"{ordinal}:{first + (seq > 1)}-{seq}", line)
        for ordinal, (first, log) in enumerate(zip(firsts, logs, strict=True), 1)
        for seq, line in enumerate(log, 1)
    ]


def epoch_of(frame: SseEvent) -> int:
    return int((frame.id or "").partition(":")[2].partition("-")[0])


def test_cut_after_every_event_it_goes_on_right_there(
    served: Served, followed: tuple[str, list[str], list[SseEvent]]
) -> None:
    thread_id, _, frames = followed
    url = f"{served.url}/runs/{thread_id}/events"
    for n, frame in enumerate(frames[:-1], 1):
        with listening(url, frame.id, format="task") as listener:
            assert listener.wait(len(frames) - n) == frames[n:]
    with listening(url, format="task", after=frames[4].id) as listener:
        assert listener.wait(len(frames) - 5) == frames[5:]
    with listening(url, format="task", after="0") as listener:
        assert listener.wait(len(frames)) == frames


def test_it_opens_before_the_first_run_and_stays_open_between_runs(served: Served) -> None:
    with listening(f"{served.url}/threads/early/events", format="task") as listener:
        assert listener.frames == []
        lines: list[str] = []
        for _ in range(3):
            lines += log_of(served, run_in(served, "early"))
            assert [frame.data for frame in listener.wait(len(lines))] == lines
    # The end of the last run is not the end of the thread: never 204.
    for ordinal, path in ((4, "/threads/early/events"), (5, "/runs/early/events")):
        with listening(served.url + path, listener.frames[-1].id, format="task") as listener:
            run_id = run_in(served, "early")
            lines = log_of(served, run_id)
            found = listener.wait(len(lines))
            assert [frame.data for frame in found] == lines
            assert found[0].id == f"{ordinal}:{epoch_of(found[0])}-1"


def test_a_server_that_is_killed_between_runs_costs_a_client_nothing(tmp_path: Path) -> None:
    served = Served(tmp_path / "log.db")
    frames: list[SseEvent] = []
    lines: list[str] = []
    for turn in range(3):
        cursor = frames[-1].id if frames else None
        with listening(f"{served.url}/threads/t/events", cursor, format="task") as listener:
            lines += log_of(served, run_in(served, "t"))
            frames += listener.wait(len(lines) - len(frames))
            served.restart()
        assert [frame.data for frame in frames] == lines, turn
    served.kill()


@pytest.mark.parametrize(
    "cursor",
    [
        *("-1", "+1", "1", "1:", ":1", ":", "0:1", "1:+1", "1:01", "01:1", "١:٢", "1:1:1", "1-1"),
        *("../1", "x" * 10_000, f"1:1-{2**53}", f"{2**53}:1-1", f"{2**63}:1-1", "1: 1", "1:0x1"),
        *("1:1", "1_0:1-1", "1:1-", "1:-1"),
    ],
)
def test_an_invalid_cursor_of_a_thread_is_refused_and_never_a_replay(
    served: Served, followed: tuple[str, list[str], list[SseEvent]], cursor: str
) -> None:
    refused = [(400, "invalid_cursor")] * 2
    if cursor in ("1", "1-1"):  # the cursor of a run, so the id may be a run's
        refused[1] = (404, "unknown_cursor")
    paths = (f"/threads/{followed[0]}/events", f"/runs/{followed[0]}/events")
    for path, wanted in zip(paths, refused, strict=True):
        answer = httpx.get(served.url + path, params={"after": cursor, "format": "task"})
        assert (answer.status_code, answer.json()["error"]["code"]) == wanted


@pytest.mark.parametrize("cursor", ["3:1-{end}", "{end}:1-1", "4:1-1"])
def test_a_cursor_beyond_the_end_gets_a_gap_and_the_state(
    served: Served, followed: tuple[str, list[str], list[SseEvent]], cursor: str
) -> None:
    thread_id, runs, frames = followed
    url = f"{served.url}/threads/{thread_id}/events"
    with listening(url, cursor.format(end=2**53 - 1), format="task") as listener:
        found = listener.wait(2)
    gap, snapshot = (json.loads(frame.data) for frame in found)
    assert (gap["type"], gap["reason"], gap["task_id"]) == ("task.gap", "beyond_end", runs[2])
    state = restore(json.dumps(snapshot["state"]).encode())
    assert client_view(state) == httpx.get(f"{served.url}/runs/{runs[2]}").json()
    assert found[1].id == frames[-1].id


def test_a_cursor_into_a_thread_without_runs_gets_a_gap(served: Served) -> None:
    url = f"{served.url}/threads/nothing/events"
    with listening(url, "7:1-7", format="task") as listener:
        (frame,) = listener.wait(1)
    gap = json.loads(frame.data)
    assert (frame.id, gap["type"], gap["reason"]) == ("0:0", "task.gap", "beyond_end")
    with listening(url, frame.id, format="task") as listener:
        lines = log_of(served, run_in(served, "nothing"))
        assert [frame.data for frame in listener.wait(len(lines))] == lines


def test_a_snapshot_stands_for_each_run_when_asked_for(
    served: Served, followed: tuple[str, list[str], list[SseEvent]]
) -> None:
    thread_id, runs, frames = followed
    url = f"{served.url}/threads/{thread_id}/events"
    with listening(url, format="task", snapshot="true") as listener:
        found = listener.wait(3)
    for run_id, frame in zip(runs, found, strict=True):
        state = restore(json.dumps(json.loads(frame.data)["state"]).encode())
        assert client_view(state) == httpx.get(f"{served.url}/runs/{run_id}").json()
    assert found[-1].id == frames[-1].id


def test_formats_that_cannot_stream_a_thread_are_refused(served: Served) -> None:
    for name in ("vercel-ui", "openai-responses", "openai-chat", "morse"):
        answer = httpx.get(f"{served.url}/threads/t/events", params={"format": name})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unknown_format")
        assert "task" in answer.json()["error"]["message"]


# --- what retention took, and silence -------------------------------------------------------------


async def agent(task: Task) -> None:
    with task.message() as message:
        message.text("It is sunny.")


@pytest.fixture(params=["sqlite", "postgres"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tailrace]:
    database: Any = tmp_path / "log.db"
    if request.param == "postgres":
        database = request.getfixturevalue("postgres_url")
    made = Tailrace({"a": agent}, database)
    async with asyncio.timeout(DEADLINE), made.running():
        yield made


async def finished(app: Tailrace) -> str:
    run_id = await app._runs.start("a", "?", thread_id="t")
    assert await app._runs.reader.ended(run_id, 120)
    return run_id


async def frames_of(
    app: Tailrace, cursor: str | None, count: int, wire: ThreadFormat = task.FORMAT
) -> list[SseEvent]:
    """The first frames of the thread `t` after a cursor, and nothing more for the moment."""
    place = read_thread_cursor(wire, cursor) if cursor else None
    source = aiter(ThreadStream(app._runs, wire, "t", place, newest=await app._runs.latest("t")))
    found: list[SseEvent] = []
    parser = SseParser()
    async for piece in source:
        found += parser.feed(piece)
        if len(found) >= count:
            break
    await source.aclose()
    return found


async def first_epoch(app: Tailrace, run_id: str) -> int:
    """The epoch of the first event of a run that one worker has carried out."""
    return (await app._runs.info(run_id)).epoch - 1


async def test_a_trimmed_run_is_a_gap_and_the_next_run_follows(app: Tailrace) -> None:
    runs = [await finished(app) for _ in range(2)]
    state = await app._runs.state(runs[0])
    await app._runs.store.trim(runs[0], save(state, private=True))
    first_epochs = [await first_epoch(app, run_id) for run_id in runs]
    old, new = f"1:{first_epochs[0] + 1}-", f"2:{first_epochs[1]}-"
    for cursor in (None, "0", f"{old}2"):
        gap, snapshot, first, *_ = await frames_of(app, cursor, 4)
        assert json.loads(gap.data)["reason"] == "trimmed"
        assert client_view(restore(json.dumps(json.loads(snapshot.data)["state"]).encode())) == (
            client_view(state)
        )
        assert (snapshot.id, first.id) == (f"{old}{state.sequence_number}", f"{new}1")
    # A client that has the whole run misses nothing.
    first, *_ = await frames_of(app, f"{old}{state.sequence_number}", 2)
    assert first.id == f"{new}1"


async def test_named_events_can_be_cut_anywhere_and_report_what_retention_took(
    app: Tailrace,
) -> None:
    runs = [await finished(app) for _ in range(2)]
    names = ["run.started", "text.start", "text.delta", "text.end", "run.finished"]
    whole = await frames_of(app, None, 10, run.FORMAT)
    assert [frame.event for frame in whole] == names * 2
    for cut, frame in enumerate(whole[:-1], 1):
        assert await frames_of(app, frame.id, 10 - cut, run.FORMAT) == whole[cut:]
    state = await app._runs.state(runs[0])
    await app._runs.store.trim(runs[0], save(state, private=True))
    for cursor in (None, whole[1].id):
        found = await frames_of(app, cursor, 11, run.FORMAT)
        assert [frame.event for frame in found] == ["run.gap", *names, *names]
        assert found[6:] == whole[5:]
    # Cut inside the state that follows the gap: the gap comes again, and all of the state.
    epoch = await first_epoch(app, runs[0]) + 1
    assert found[2].id.startswith(f"1:{epoch}-{state.sequence_number}.o")
    assert await frames_of(app, found[2].id, 11, run.FORMAT) == found


@pytest.mark.parametrize("cursor", [None, "1:1-2", "2:0"])
async def test_a_deleted_run_is_a_gap(app: Tailrace, cursor: str | None) -> None:
    runs = [await finished(app) for _ in range(3)]
    for run_id in runs[:2]:
        await app._runs.store.delete(run_id)
    gap, first, *_ = await frames_of(app, cursor, 3)
    notice = json.loads(gap.data)
    assert (gap.id, notice["type"], notice["reason"]) == ("3:0", "task.gap", "deleted")
    assert first.id == f"3:{await first_epoch(app, runs[2])}-1"
    again, *_ = await frames_of(app, gap.id, 1)
    assert again == first
    named, *_ = await frames_of(app, cursor, 1, run.FORMAT)
    body = json.loads(named.data)
    assert (body["type"], body["threadId"], body["runId"]) == ("run.gap", "t", "")


async def test_a_client_of_a_deleted_run_gets_the_gap_with_the_next_run(app: Tailrace) -> None:
    only = await finished(app)
    await app._runs.store.delete(only)
    following = asyncio.ensure_future(frames_of(app, "1:1-9", 2))
    later = await finished(app)
    gap, first, *_ = await following
    assert (gap.id, json.loads(gap.data)["reason"]) == ("2:0", "deleted")
    assert first.id == f"2:{await first_epoch(app, later)}-1"


async def test_a_stream_of_a_thread_asks_the_store_once_for_its_newest_run(
    app: Tailrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    await finished(app)
    [frame] = (await frames_of(app, None, 1))[:1]
    monkeypatch.setattr(app._runs.store, "last_ordinal", None)  # a second question would raise
    for cursor in (None, frame.id):
        assert await frames_of(app, cursor, 1)


async def test_a_silent_thread_is_kept_alive(
    app: Tailrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_thread, "HEARTBEAT_SECONDS", 1.0)
    monkeypatch.setattr(server_stream, "HEARTBEAT_SECONDS", 1.0)
    source = aiter(ThreadStream(app._runs, task.FORMAT, "t", newest=await app._runs.latest("t")))
    pieces = [await anext(source) for _ in range(4)]
    assert pieces[0].startswith(b"retry: ")
    assert pieces[1].startswith(b": thread t has no runs")
    assert pieces[2:] == [b": ping\n\n", b": ping\n\n"]
    await source.aclose()


async def test_a_run_deleted_while_it_is_followed_is_a_gap_before_the_next_run(
    app: Tailrace,
) -> None:
    store = app._runs.store
    first, second = [await finished(app) for _ in range(2)]
    seen = await app._runs.store.read(first, 0)
    source = aiter(ThreadStream(app._runs, task.FORMAT, "t", newest=await app._runs.latest("t")))
    assert (await anext(source)).startswith(b"retry: ")
    reading = app._runs.store.read_lines

    async def read(run_id: str, after: int, limit: int = 10_000) -> Any:
        await store.delete(first)
        return await reading(run_id, after, limit)

    store.read_lines = read  # type: ignore[method-assign]
    piece = await anext(source)
    (gap,) = SseParser().feed(piece)
    assert (gap.id, json.loads(gap.data)["reason"]) == ("2:0", "deleted")
    state = State()
    for frame in SseParser().feed(await anext(source)):
        state.apply(decode_event(frame.data.encode()))
    assert client_view(state)["task_id"] == second
    assert len(seen) == state.sequence_number
    await source.aclose()
