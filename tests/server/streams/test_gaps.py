"""The answers to cursors that the log cannot serve."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.app import Tailrace
from tailrace.core.errors import StorageError
from tailrace.core.events import TaskInputRequired
from tailrace.core.run_object import client_view
from tailrace.core.snapshot import restore, save
from tailrace.core.sse import SseEvent, SseParser
from tailrace.runtime.followers import tail
from tailrace.runtime.runs.new_run import first_epoch
from tailrace.runtime.tasks.task import Task
from tailrace.runtime.workers import recovery
from tailrace.server.streams.resume_point import read_thread_cursor
from tailrace.server.streams.run_stream import RunStream
from tailrace.server.streams.thread_stream import ThreadStream
from tailrace.wire.base import Cursor, ThreadFormat, in_run
from tailrace.wire.formats import FORMATS
from tailrace.wire.openai_responses.cursors import NARROW, WHOLE, offset, place_of, split, spread

DEADLINE = 120


async def agent(task: Task) -> None:
    with task.message() as message:
        message.text("It is sunny.")


async def asks(task: Task) -> None:
    await task.ask("Which city?")


async def talks_and_asks(task: Task) -> None:
    for _ in range(5):
        task.say("It is rainy.")
    await task.ask("Which city?")


async def careful(task: Task) -> None:
    await task.ask("May I?", kind="approval")
    task.say("Done.")


async def hesitant(task: Task) -> None:
    """Its provider's stream broke off, so it began again, under the same claim."""
    task.message().__enter__().text("It is rai")  # it never leaves the block
    recovery.begin_again(task)
    await agent(task)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Tailrace]:
    agents = {"a": agent, "hesitant": hesitant, "asks": asks, "careful": careful}
    agents["talks and asks"] = talks_and_asks
    made = Tailrace(agents, tmp_path / "log.db")
    async with made.running():
        yield made


async def finished(app: Tailrace, agent: str = "a") -> str:
    run_id = await app._runs.start(agent, "?")
    assert await app._runs.reader.ended(run_id, DEADLINE)
    return run_id


async def frames(client: httpx.AsyncClient, run_id: str, **query: Any) -> list[SseEvent]:
    answer = await client.get(f"/runs/{run_id}/events", params=query)
    assert answer.status_code == 200, answer.text
    return SseParser().feed(answer.content)


async def trim(app: Tailrace, run_id: str) -> dict[str, Any]:
    state = await app._runs.state(run_id)
    await app._runs.store.trim(run_id, save(state, private=True))
    return client_view(state)


@pytest.mark.parametrize("cursor", [None, "0", "1-1", "2-3"])
async def test_a_cursor_into_what_retention_took_is_a_gap_and_the_final_state(
    app: Tailrace, client: httpx.AsyncClient, cursor: str | None
) -> None:
    run_id = await finished(app)
    view = await trim(app, run_id)
    query = {} if cursor is None else {"after": cursor}
    gap, snapshot = (json.loads(frame.data) for frame in await frames(client, run_id, **query))
    assert (gap["type"], gap["reason"]) == ("task.gap", "trimmed")
    assert snapshot["type"] == "task.snapshot"
    assert client_view(restore(json.dumps(snapshot["state"]).encode())) == view


async def test_the_last_cursor_of_a_trimmed_run_is_answered_204(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    run_id = await finished(app)
    last = (await frames(client, run_id))[-1].id
    await trim(app, run_id)
    answer = await client.get(f"/runs/{run_id}/events", params={"after": last})
    assert answer.status_code == 204


async def test_another_runs_cursor_at_the_end_of_a_trimmed_run_is_a_gap(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    run_id = await finished(app)
    epoch, seq = map(int, (await frames(client, run_id))[-1].id.split("-"))
    await trim(app, run_id)
    gap, snapshot = await frames(client, run_id, after=f"{epoch - 1}-{seq}")
    assert (json.loads(gap.data)["reason"], snapshot.id) == ("epoch", f"{epoch}-{seq}")


MESSAGES = [{"role": "user", "content": "?"}]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "?"}),
        ("/v1/chat/completions", {"messages": MESSAGES}),
        ("/v1/messages", {"messages": MESSAGES, "max_tokens": 9}),
    ],
)
async def test_a_request_sent_again_is_answered_with_its_trimmed_run(
    app: Tailrace, client: httpx.AsyncClient, path: str, body: Any
) -> None:
    given: Any = {"json": {"model": "a", **body}, "headers": {"idempotency-key": "k"}}
    first = await client.post(path, **given)
    assert first.status_code == 200
    [found] = (await client.get("/threads")).json()["threads"]
    [run] = (await client.get(f"/threads/{found['thread_id']}")).json()["runs"]
    await trim(app, run["run_id"])
    again = await client.post(path, **given)
    assert (again.status_code, again.json()) == (200, first.json())


async def test_approvals_answered_again_get_the_response_of_a_trimmed_run(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    asked = (await client.post("/v1/responses", json={"model": "careful", "input": "?"})).json()
    ident = asked["output"][0]["id"]
    answer = {"type": "mcp_approval_response", "approval_request_id": ident, "approve": True}
    given = {"model": "careful", "input": [answer], "previous_response_id": asked["id"]}
    first = (await client.post("/v1/responses", json=given)).json()
    await trim(app, asked["id"].removeprefix("resp_"))
    again = await client.post("/v1/responses", json=given)
    assert (again.status_code, again.json()) == (200, first)


async def test_other_formats_replay_the_final_state_and_refuse_the_cursor(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    run_id = await finished(app)
    await trim(app, run_id)
    found = await frames(client, run_id, format="openai-responses")
    assert found[-2].event == "response.completed"
    assert "It is sunny." in found[-2].data
    query = {"format": "openai-responses", "after": str(2 << 12)}
    answer = await client.get(f"/runs/{run_id}/events", params=query)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_cursor")


async def test_what_an_attempt_took_back_is_not_replayed_by_a_format_that_cannot_take_it_back(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    run_id = await finished(app, "hesitant")
    assert (await app._runs.info(run_id)).attempts == 1
    found = await frames(client, run_id, format="openai-responses")
    assert found[-2].event == "response.completed"
    assert "It is sunny." in found[-2].data
    assert not any("It is rai" in frame.data for frame in found)


async def test_a_snapshots_id_is_a_cursor(app: Tailrace, client: httpx.AsyncClient) -> None:
    run_id = await finished(app)
    (frame,) = await frames(client, run_id, snapshot="true")
    answer = await client.get(f"/runs/{run_id}/events", params={"after": frame.id})
    assert answer.status_code == 204


async def test_a_cursor_of_an_event_that_was_written_again_is_a_gap(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    """A power cut may take what one epoch had shown; the next one writes something else there."""
    run_id = await finished(app)
    gap, _ = (json.loads(frame.data) for frame in await frames(client, run_id, after="1-3"))
    assert (gap["type"], gap["reason"]) == ("task.gap", "epoch")


async def read_after(
    client: httpx.AsyncClient, run_id: str, wire: str, cursor: str
) -> list[dict[str, Any]]:
    found = await frames(client, run_id, format=wire, after=cursor)
    return [json.loads(frame.data) for frame in found]


@pytest.mark.parametrize(
    ("cursor", "reason"),
    [
        ("99999999-{last}", "epoch"),
        ("{first}-{last}", "epoch"),
        ("{epoch}-1", "epoch"),
        ("99999999-0", "unknown"),
        ("{epoch}-0", "unknown"),
        ("0-0", "unknown"),
        ("{epoch}-9007199254740991", "beyond_end"),
    ],
)
async def test_a_cursor_that_the_log_never_gave_is_a_gap_and_the_state(
    app: Tailrace, client: httpx.AsyncClient, cursor: str, reason: str
) -> None:
    """It is neither the end of the stream nor its start, although the run has ended."""
    run_id = await finished(app)
    info = await app._runs.info(run_id)
    text = cursor.format(first=info.epoch - 1, epoch=info.epoch, last=info.last_seq)
    gap, snapshot = await read_after(client, run_id, "task", text)
    assert (gap["type"], gap["reason"]) == ("task.gap", reason)
    assert snapshot["type"] == "task.snapshot"


@pytest.mark.parametrize("cursor", ["4.99", "4.1", "4.o99", "999"])
async def test_a_place_that_a_run_never_had_is_a_gap_in_the_run_format(
    app: Tailrace, client: httpx.AsyncClient, cursor: str
) -> None:
    run_id = await finished(app)
    place = f"{(await app._runs.info(run_id)).epoch}-{cursor}"
    gap, first, *_ = await read_after(client, run_id, "run", place)
    assert gap["type"] == "run.gap"
    assert gap["data"]["reason"] == ("beyond_end" if cursor == "999" else "unknown")
    assert first["type"] == "run.started"


@pytest.mark.parametrize("number", [1, 4095, (1 << 12) + 900, (1 << 12) + (2 << 10) + 900, 1 << 40])
async def test_a_sequence_number_that_was_never_sent_is_refused(
    app: Tailrace, client: httpx.AsyncClient, number: int
) -> None:
    run_id = await finished(app)
    number += offset(run_id) << 12
    for path, query in (
        (f"/runs/{run_id}/events", {"format": "openai-responses", "after": str(number)}),
        (f"/v1/responses/resp_{run_id}", {"stream": "true", "starting_after": str(number)}),
    ):
        answer = await client.get(path, params=query)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_cursor")
        assert "start again without a cursor" in answer.json()["error"]["message"]


async def test_the_start_is_a_place_in_every_format_with_cursors(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    run_id = await finished(app)
    for wire in ("task", "run", "openai-responses"):
        whole = await frames(client, run_id, format=wire)
        assert await frames(client, run_id, format=wire, after="0") == whole


@pytest.mark.parametrize(
    ("wire", "gap_type"),
    [("task", "task.gap"), ("run", "run.gap"), ("agents", "stream_gap_event")],
)
async def test_the_cursor_of_another_run_is_a_gap(
    app: Tailrace, client: httpx.AsyncClient, wire: str, gap_type: str
) -> None:
    first, second = await finished(app), await finished(app)
    for frame in await frames(client, first, format=wire):
        gap, *state = await read_after(client, second, wire, frame.id)
        assert gap["type"] == gap_type
        assert state, "the state follows the gap"


@pytest.mark.parametrize("wire", ["task", "run", "agents"])
async def test_the_cursor_of_another_thread_is_a_gap(app: Tailrace, wire: str) -> None:
    for thread_id in ("one", "two"):
        assert await app._runs.reader.ended(
            await app._runs.start("a", "?", thread_id=thread_id), DEADLINE
        )
    format_ = FORMATS[wire]
    assert isinstance(format_, ThreadFormat)
    cursors: set[str] = set()
    async with aclosing(
        aiter(ThreadStream(app._runs, format_, "one", newest=await app._runs.latest("one")))
    ) as pieces:
        async for piece in pieces:
            cursors |= {frame.id for frame in SseParser().feed(piece) if frame.id}
            if b"complete" in piece or b"finished" in piece:
                break
    assert cursors
    for cursor in cursors:
        point = read_thread_cursor(format_, cursor)
        async with aclosing(
            aiter(
                ThreadStream(app._runs, format_, "two", point, newest=await app._runs.latest("two"))
            )
        ) as pieces:
            found = [await anext(pieces), await anext(pieces)]
        assert b'"reason":"epoch"' in b"".join(found)


async def test_the_number_of_another_run_or_epoch_is_refused(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    runs = [f"run_{number}" for number in range(8)]
    for run_id in runs:
        assert await app._runs.reader.ended(
            await app._runs.start("a", "?", run_id=run_id), DEADLINE
        )
    for run_id, other in pairwise([*runs, runs[0]]):
        query = {"snapshot": "true"} if run_id == runs[0] else {}
        sent = await frames(client, run_id, format="openai-responses", **query)
        for frame in sent[:-1]:
            number = json.loads(frame.data)["sequence_number"]
            later = number + spread(2)  # as the next writer would number it
            for asked, after, status in (
                (run_id, number, 200),
                (other, number, 404),
                (run_id, later, 404),
            ):
                places = {"format": "openai-responses", "after": after}
                answer = await client.get(f"/runs/{asked}/events", params=places)
                assert answer.status_code == status, (asked, after, answer.text)


def test_cursors_of_two_runs_seldom_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strings hardly ever; numbers, which have fewer digits, in one of 100,000 pairs of runs."""
    chance = random.Random(7)
    monkeypatch.setattr(secrets, "randbits", chance.getrandbits)
    epochs = {f"run_{chance.getrandbits(128):032x}": first_epoch() for _ in range(600)}
    runs, met = list(epochs), 0
    assert len(set(epochs.values())) == len(runs)
    for run_id, other in product(runs[:300], runs[300:]):
        number = NARROW.first(WHOLE, epochs[run_id] + 1, offset(run_id) + 100)
        cursor = in_run(FORMATS["openai-responses"], Cursor(*split(number)), other)
        place = place_of(cursor.sub or 0, epochs[other] + 1)
        met += 0 < cursor.seq <= 200 and 0 <= place.k < 3  # 200 events of up to three frames
    assert met <= 3, f"{met} of 90,000 pairs"


@pytest.mark.parametrize("wire", ["task", "run"])
async def test_clients_that_lose_their_server_at_once_come_back_one_after_another(
    app: Tailrace, client: httpx.AsyncClient, wire: str
) -> None:
    run_id = await finished(app)
    waits = set()
    for query in [{}, {"snapshot": "true"}, {"after": "9-9"}] * 4:
        if wire == "run":
            query = {**query, "after": "1-999"} if "after" in query else query
        answer = await client.get(f"/runs/{run_id}/events", params={"format": wire, **query})
        first = answer.content.partition(b"\n\n")[0]
        waits.add(int(first.removeprefix(b"retry: ")))
    assert len(waits) > 6
    assert all(1000 <= wait <= 3000 for wait in waits)


async def test_an_answer_can_be_sent_and_is_refused_after_the_end(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    run_id = await finished(app)
    answer = await client.post(f"/runs/{run_id}/input", json={"value": 1})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "run_ended")
    assert (await client.post("/runs/nobody/input", json={})).status_code == 404


async def test_an_answer_to_nothing_is_not_found_also_after_the_end(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    run_id = await app._runs.start("asks", "?")
    async for batch in app._runs.follow(run_id):
        if any(recorded.event.type == "task.input_required" for recorded in batch):
            break
    [(_, asked)] = (await app._runs.state(run_id)).requests()
    known, unknown = ({"request_id": one, "approved": True} for one in (asked.id, "nope"))
    path = f"/runs/{run_id}/input"
    assert (await client.post(path, json=unknown)).status_code == 404
    # The log has these texts, but they are no request.
    for word in ("", "id", run_id, "task.input_required"):
        refused = await client.post(path, json={"request_id": word, "approved": True})
        assert (refused.status_code, refused.json()["error"]["param"]) == (404, "request_id")
    await app._runs.cancel(run_id)
    refused = await client.post(path, json=unknown)
    assert (refused.status_code, refused.json()["error"]["param"]) == (404, "request_id")
    assert (await client.post(path, json=known)).status_code == 409
    await trim(app, run_id)  # what it asked is no longer known
    assert (await client.post(path, json=unknown)).status_code == 409


@pytest.mark.parametrize("wire", ["task", "run"])
async def test_a_cursor_of_a_deleted_run_is_not_one_of_the_next_run_with_its_id(
    app: Tailrace, client: httpx.AsyncClient, wire: str
) -> None:
    cursors = []
    for _ in range(2):
        await app._runs.start("a", "?", run_id="run_again")
        assert await app._runs.reader.ended("run_again", DEADLINE)
        cursors.append((await frames(client, "run_again", format=wire))[2].id)
        await app._runs.delete("run_again")
    await app._runs.start("a", "?", run_id="run_again")
    assert await app._runs.reader.ended("run_again", DEADLINE)
    for cursor in cursors:
        found = await frames(client, "run_again", format=wire, after=cursor)
        gap = json.loads(found[0].data)
        assert gap.get("reason", gap.get("data", {}).get("reason")) == "epoch"


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_deleted_run_that_is_still_followed_is_not_mixed_into_the_next_run_with_its_id(
    app: Tailrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, snapshot: bool
) -> None:
    monkeypatch.setattr(tail, "POLL_SECONDS", 60.0)  # this process does not hear of the deletion
    wire = FORMATS["task"]
    other = Tailrace({}, tmp_path / "log.db", worker=False)

    async def waiting(agent: str) -> None:
        await app._runs.start(agent, "?", run_id="run_again")
        async for events in app._runs.follow("run_again"):
            if any(isinstance(one.event, TaskInputRequired) for one in events):
                return

    async with other.running():
        await waiting("talks and asks")
        earlier = RunStream(other._runs, wire, "run_again")
        assert b"rainy" in (await earlier.next() or b"")
        follows = asyncio.create_task(earlier.next())
        await asyncio.sleep(0.1)
        await app._runs.delete("run_again")
        await waiting("asks")
        info = await other._runs.info("run_again")
        later = RunStream(other._runs, wire, "run_again", snapshot=snapshot, info=info)
        shown = await later.next() or b""
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                shown += await later.next() or b""
        assert b"rainy" not in shown
        epochs = {int(frame.id.split("-")[0]) for frame in SseParser().feed(shown)}
        assert epochs <= {info.epoch - 1, info.epoch}
        with pytest.raises(StorageError, match="another run has its id; connect again"):
            await follows
        await earlier.close()
        await later.close()
