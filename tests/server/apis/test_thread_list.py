"""The list of threads: its pages, and what a search finds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace import Tailrace, Task
from tailrace.server import threads as server_threads
from tailrace.server.threads import ThreadList
from tests.serving import client_of


async def echo(task: Task) -> None:
    """Answers in a word."""
    with task.message() as message:
        message.text("Yes.")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = Tailrace([echo], tmp_path / "list.db")
    async with app.running(), client_of(app) as opened:
        yield opened


async def started(client: httpx.AsyncClient, thread: str, words: str) -> str:
    body = {"agent": "echo", "input": words, "thread_id": thread}
    answer = await client.post("/runs", json=body)
    return str(answer.json()["run_id"])


async def listed(client: httpx.AsyncClient, **query: str) -> dict[str, Any]:
    answer = await client.get("/threads", params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_every_thread_is_on_exactly_one_page(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_threads, "PAGE_RUNS", 3)
    for number in range(4):
        await started(client, f"t{number}", f"Question {number}?")
    for number in range(4):  # a busy thread must not hide the others
        await started(client, "t1", f"Again {number}?")
    page = await listed(client)
    pages = [[each["thread_id"] for each in page["threads"]]]
    while page["next"] is not None:
        page = await listed(client, before=page["next"])
        pages.append([each["thread_id"] for each in page["threads"]])
    assert [each for found in pages for each in found] == ["t1", "t3", "t2", "t0"]


async def test_a_page_has_at_most_so_many_threads_as_its_client_asks_for(
    client: httpx.AsyncClient,
) -> None:
    for name in ("t0", "t1", "t2", "t1"):
        await started(client, name, f"Question of {name}?")
    page, pages = await listed(client, limit="1"), list[list[str]]()
    while page["next"] is not None:
        pages.append([each["thread_id"] for each in page["threads"]])
        page = await listed(client, limit="1", before=page["next"])
    pages.append([each["thread_id"] for each in page["threads"]])
    assert [name for page in pages for name in page] == ["t1", "t2", "t0"]
    assert max(map(len, pages)) == 1
    whole = await listed(client, limit="200")
    assert (len(whole["threads"]), whole["next"]) == (3, None)
    for wrong in ("0", "201", "x", "-1"):
        answer = await client.get("/threads", params={"limit": wrong})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "limit")


async def test_a_search_finds_an_older_run_of_a_thread(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_threads, "PAGE_RUNS", 3)
    first = await started(client, "trip", "A walk in Lisbon?")
    await started(client, "other", "Nothing of that.")
    for words in ("And on Sunday?", "And by train?"):
        last = await started(client, "trip", words)
    (sunday,) = (await listed(client, search="on SUNDAY"))["threads"]
    assert sunday["found_run_id"] not in (first, last)
    assert sunday["last_run_id"] == last
    assert sunday["updated_at"] > sunday["created_at"]
    runs = (await client.get("/threads/trip")).json()["runs"]
    titles = ["A walk in Lisbon?", "And on Sunday?", "And by train?"]
    assert [run["title"] for run in runs] == titles
    assert (await listed(client, search="lisbon"))["threads"] == []  # on an older page
    older = (await listed(client, search="lisbon"))["next"]
    for words in ("lisbon", first):
        (found,) = (await listed(client, search=words, before=older))["threads"]
        assert (found["thread_id"], found["found_run_id"]) == ("trip", first)
        assert (found["last_run_id"], found["runs"]) == (last, 3)


async def test_a_search_reads_the_whole_question_and_a_title_its_beginning(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_threads, "SEARCHED_CHARACTERS", 200)
    words = "walk " * 30 + "past the\n gardens " + "and so on " * 30 + "until Sunday"
    run_id = await started(client, "long", words)
    (found,) = (await listed(client, search="the GARDENS"))["threads"]
    assert found["found_run_id"] == run_id
    assert found["title"] == ("walk " * 16)[:79].rstrip() + "…"
    assert (await listed(client, search="Sunday"))["threads"] == []
    await started(client, "exact", "x" * 80)
    assert (await listed(client))["threads"][0]["title"] == "x" * 80


async def test_a_run_that_ends_while_it_is_listed_is_listed_as_ended(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def slow(task: Task) -> None:
        await go_on.wait()

    app = Tailrace([slow], tmp_path / "list.db")
    async with app.running():
        run = await app.start("slow", "Go.")
        async for batch in app._runs.follow(run.id):
            if batch[-1].event.type == "task.in_progress":
                break
        before = await app._runs.find(run.id)
        assert before is not None
        go_on.set()
        await run.result()
        lists = ThreadList()
        assert (await lists._look(app._runs, before)).status == "in_progress"
        for _ in range(2):
            (thread,) = (await lists.threads(app._runs))["threads"]
            assert thread["status"] == "completed"
            # A slower request that began before the end.
            assert (await lists._look(app._runs, before)).status == "completed"


async def test_a_page_after_an_unknown_run_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.get("/threads", params={"before": "run_unknown"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "before")
