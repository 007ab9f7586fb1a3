"""A run continues the run that its caller named, and its history is that chain."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tailrace import Agent, tool
from tailrace.app import Tailrace
from tailrace.core.errors import NotFound
from tailrace.core.events import OutputItemDone, Private
from tailrace.core.fold import State
from tailrace.core.items import ReferenceToBlock, TextPart, ToolResult
from tailrace.core.snapshot import save
from tailrace.core.state import TaskNode, TextNode
from tailrace.core.writers import ResultWriter
from tailrace.history import history
from tailrace.ingest.openai_chat.reader import OpenAIChat
from tailrace.models import Scripted, call, open_model, say, think
from tailrace.ports import Request, Store
from tailrace.runtime.event_log import whole_state as whole_state_module
from tailrace.runtime.event_log.whole_state import whole_state
from tailrace.runtime.model_calls.call import call_model
from tailrace.runtime.runs.all_runs import Runs
from tailrace.runtime.tasks import chain as chain_module
from tailrace.runtime.tasks.chain import EndedRuns
from tailrace.runtime.tasks.task import Task
from tailrace.testing.simulator import RecordedAnswer, Simulator
from tests.serving import client_of

Json = dict[str, Any]
PIXEL = {"url": "data:image/gif;base64,R0lGODlhAQABAAAAACw="}


@tool
async def get_weather(city: str) -> dict[str, str]:
    """Current weather."""
    return {"city": city, "sky": "clear"}


async def remembers(task: Task) -> None:
    """Say what the conversation asked, question by question."""
    asked = [state.root.facts["input"] for state in await task.chain() if state.root is not None]
    with task.message() as message:
        message.text(json.dumps(asked))


@asynccontextmanager
async def serving(agent: Any = remembers) -> AsyncIterator[tuple[Runs, httpx.AsyncClient]]:
    app = Tailrace({"agent": agent}, ":memory:")
    async with app.running(), client_of(app) as client:
        yield app._runs, client


async def ended(runs: Runs, run_id: str) -> TaskNode:
    """The root of a run, once it is completed."""
    assert await runs.reader.ended(run_id, 120)
    root = (await runs.state(run_id)).root
    assert root is not None
    assert root.status == "completed", root.error
    return root


async def finished(runs: Runs, run_id: str) -> Json:
    """A run's facts and the words of its answer, once it is completed."""
    root = await ended(runs, run_id)
    replies = [part.text for node in root.output() for part in node.parts.values()]  # type: ignore[union-attr]
    return {**root.facts, "replies": json.loads(replies[-1])}


async def respond(client: httpx.AsyncClient, text: Any, previous: Json | None = None) -> Json:
    body = {"model": "agent", "input": text}
    if previous is not None:
        body["previous_response_id"] = previous["id"]
    answer = await client.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    made: Json = answer.json()
    return made


async def test_a_response_continues_the_response_that_the_client_named() -> None:
    async with serving() as (_, client):
        first = await respond(client, "one")
        await respond(client, "two", first)
        third = await respond(client, "three", first)
        fourth = await respond(client, "four", third)
    assert third["previous_response_id"] == first["id"]
    texts = [made["output"][0]["content"][0]["text"] for made in (third, fourth)]
    assert list(map(json.loads, texts)) == [["one", "three"], ["one", "three", "four"]]


async def test_a_run_continues_the_named_run_else_the_newest_of_its_thread() -> None:
    async with serving() as (runs, client):
        made: list[str] = []
        for text, named in (
            ("one", {}),
            ("two", {}),
            ("three", {"previous_run_id": 0}),
            ("four", {}),
            ("five", {"previous_run_id": None}),
        ):
            body: Json = {"agent": "agent", "input": text, "thread_id": "t", **named}
            if isinstance(body.get("previous_run_id"), int):
                body["previous_run_id"] = made[body["previous_run_id"]]
            answer = await client.post("/runs", json=body)
            assert answer.status_code == 201, answer.text
            made.append(answer.json()["run_id"])
            await finished(runs, made[-1])
        replies = [(await finished(runs, run_id))["replies"] for run_id in made]
        assert replies == [
            ["one"],
            ["one", "two"],
            ["one", "three"],
            ["one", "three", "four"],
            ["five"],
        ]
        # Without a thread of its own, a run is in the thread of the run that it continues.
        body = {"agent": "agent", "input": "six", "previous_run_id": made[1]}
        answer = await client.post("/runs", json=body)
        last = await finished(runs, answer.json()["run_id"])
        assert (last["thread_id"], last["replies"]) == ("t", ["one", "two", "six"])


async def test_a_previous_run_that_is_unknown_or_of_another_owner_is_not_found() -> None:
    async with serving() as (runs, client):
        hers = await runs.start("agent", "hers", thread_id="t", owner="her")
        await finished(runs, hers)
        with pytest.raises(NotFound):
            await runs.start("agent", "mine", previous_run_id=hers, owner="me")
        for previous in (hers, "run_0"):
            body: Json = {"agent": "agent", "input": "mine", "previous_run_id": previous}
            assert (await client.post("/runs", json=body)).status_code == 404
            body = {"model": "agent", "input": "mine", "previous_response_id": f"resp_{previous}"}
            assert (await client.post("/v1/responses", json=body)).status_code == 404
        answer = await client.post("/runs", json={"agent": "agent", "previous_run_id": 7})
        assert answer.status_code == 400
        assert await runs.of("me").latest("t") is None


async def test_no_run_continues_a_run_that_is_deleted_soon() -> None:
    async with serving() as (runs, client):
        first = await runs.start("agent", "one", thread_id="t")
        await finished(runs, first)
        body: Json = {"agent": "agent", "input": "two", "thread_id": "t", "store": False}
        second = (await client.post("/runs", json=body)).json()["run_id"]
        assert (await finished(runs, second))["replies"] == ["one", "two"]
        third = await finished(runs, await runs.start("agent", "three", thread_id="t"))
        assert (third["previous_run_id"], third["replies"]) == (first, ["one", "three"])
        for more in ({}, {"previous_seq": 1}):
            body = {"agent": "agent", "input": "four", "previous_run_id": second, **more}
            refused = await client.post("/runs", json=body)
            assert refused.status_code == 404
            assert refused.json()["error"]["param"] == "previous_run_id"
        body = {"model": "agent", "input": "four", "previous_response_id": f"resp_{second}"}
        assert (await client.post("/v1/responses", json=body)).status_code == 404
        question = {"role": "user", "id": "q", "parts": [{"type": "text", "text": "four"}]}
        # A page that shows it sends it, so the model reads it.
        answer = {"role": "assistant", "id": second, "parts": [{"type": "text", "text": "2"}]}
        for sent in ({"message": question}, {"messages": [answer, question]}):
            assert (await client.post("/api/chat", json={"id": "t", **sent})).status_code == 200
            newest = await runs.latest("t")
            assert newest is not None
            given = (await finished(runs, newest.run_id))["replies"]
            is_whole = "messages" in sent
            assert given[-1] == ([answer, question] if is_whole else question)
            assert len(given) == (1 if is_whole else 3)


async def test_a_chain_ends_at_a_run_that_was_deleted() -> None:
    async with serving() as (runs, _):
        made = [await runs.start("agent", "one", thread_id="t")]
        for text in ("two", "three"):
            await finished(runs, made[-1])
            made.append(await runs.start("agent", text, thread_id="t"))
        await finished(runs, made[-1])
        await runs.store.delete(made[0])
        last = await finished(runs, await runs.start("agent", "four", thread_id="t"))
        assert last["replies"] == ["two", "three", "four"]


async def test_a_run_gets_the_messages_of_a_chat_that_the_log_does_not_have() -> None:
    one, two = ({"role": "user", "id": t, "parts": [{"type": "text", "text": t}]} for t in "ab")
    async with serving() as (runs, client):
        # Two questions, because the first run failed before it had written anything.
        body = {"id": "t", "messages": [one, two]}
        assert (await client.post("/api/chat", json=body)).status_code == 200
        first = await runs.latest("t")
        assert first is not None
        assert (await finished(runs, first.run_id))["replies"] == [[one, two]]
        foreign: Json = {"role": "assistant", "id": "elsewhere", "parts": []}
        # The page has left before it read the answer.
        known = {**foreign, "id": first.run_id, "metadata": {"task_id": first.run_id}}
        body["messages"] = [one, two, known, two, foreign, one]
        assert (await client.post("/api/chat", json=body)).status_code == 200
        second = await runs.latest("t")
        assert second is not None
        assert second.previous_run_id == first.run_id
        assert (await finished(runs, second.run_id))["replies"][-1] == [two, foreign, one]


# --- ended runs that are kept --------------------------------------------------------------------


async def conversation(runs: Runs, *texts: str, thread: str = "t") -> list[str]:
    made: list[str] = []
    for text in texts:
        made.append(await runs.start("agent", text, thread_id=thread))
        await ended(runs, made[-1])
    return made


async def test_each_ended_run_of_a_chat_is_folded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    folded: list[str] = []

    async def read_whole(store: Store, run_id: str, at: int | None = None) -> State:
        folded.append(run_id)
        return await whole_state_module.read_whole(store, run_id, at)

    monkeypatch.setattr(chain_module, "read_whole", read_whole)
    async with serving() as (runs, client):
        for number in range(6):
            messages = []
            if number:
                messages = (await client.get("/threads/t", params={"format": "vercel-ui"})).json()
            part = {"type": "text", "text": f"question {number}"}
            messages.append({"id": f"u{number}", "role": "user", "parts": [part]})
            answer = await client.post("/api/chat", json={"id": "t", "messages": messages})
            assert answer.status_code == 200, answer.text
        made = await runs.of_thread("t")
        assert len((await finished(runs, made[-1].run_id))["replies"]) == 6
        # The newest is no part of a chain yet.
        assert sorted(folded) == sorted(run.run_id for run in made[:-1])


async def test_runs_that_were_not_used_for_the_longest_time_are_read_again() -> None:
    async with serving() as (runs, _):
        infos = [
            await runs.info(run_id)
            for text in ("one", "two", "six", "long" * 10_000)
            for run_id in await conversation(runs, text, thread=text[:4])
        ]
        sizes = [(await EndedRuns(runs.store).read(info)).size for info in infos]
        kept = EndedRuns(runs.store, sum(sizes[:2]) + 100)
        first, second = [await kept.read(info) for info in infos[:2]]
        assert await kept.read(infos[0]) is first
        await kept.read(infos[2])
        assert await kept.read(infos[0]) is first
        assert await kept.read(infos[1]) is not second
        await kept.read(infos[3])  # larger than all that is kept
        assert await kept.read(infos[0]) is first


async def test_a_run_with_the_id_of_a_deleted_run_is_another_run() -> None:
    async with serving() as (runs, _):
        for text in ("one", "two"):
            await ended(runs, await runs.start("agent", text, run_id="same"))
            after = await finished(runs, await runs.start("agent", "?", previous_run_id="same"))
            assert after["replies"] == [text, "?"]
            await runs.store.delete("same")


async def test_a_run_that_goes_on_is_read_again_for_each_run_that_continues_it() -> None:
    goes_on = asyncio.Event()

    async def agent(task: Task) -> None:
        if task.input == "first":
            await goes_on.wait()
        statuses = [state.root.status for state in await task.chain() if state.root is not None]
        with task.message() as message:
            message.text(json.dumps(statuses))

    async with serving(agent) as (runs, _):
        first = await runs.start("agent", "first", thread_id="t")
        second = await runs.start("agent", "second", previous_run_id=first)
        assert (await finished(runs, second))["replies"][0] != "completed"
        goes_on.set()
        await ended(runs, first)
        third = await runs.start("agent", "third", previous_run_id=first)
        assert (await finished(runs, third))["replies"][0] == "completed"


async def test_no_run_changes_the_earlier_runs_that_it_shares() -> None:
    model = Scripted([think("Hm."), call("get_weather", city="Paris")], [say("Clear.[^1]")])
    weather = Agent("weather", model=model, tools=[get_weather])
    async with serving(weather) as (runs, client):
        [first] = await conversation(runs, "Is it sunny?")
        shared = (await runs.ended.read(await runs.info(first))).state
        before = save(shared, private=True)
        await conversation(runs, "And now?", "And then?")
        for form in ("vercel-ui", "ag-ui"):
            answer = await client.get("/threads/t", params={"format": form})
            assert answer.status_code == 200, answer.text
        assert (await runs.ended.read(await runs.info(first))).state is shared
        assert save(shared, private=True) == before


async def test_a_chain_is_found_in_pages_and_in_other_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chain_module, "PAGE_RUNS", 2)
    async with serving() as (runs, _):
        made = await conversation(runs, *"abcde")
        await conversation(runs, "x", "y", "z", thread="t2")
        other = await runs.start("agent", "f", thread_id="t2", previous_run_id=made[-1])
        assert (await finished(runs, other))["replies"] == [*"abcdef"]
        last = await runs.start("agent", "g", thread_id="t2", previous_run_id=other)
        assert (await finished(runs, last))["replies"] == [*"abcdefg"]


# --- items by their ids --------------------------------------------------------------------------


def named(ident: Any) -> Json:
    return {"type": "item_reference", "id": ident}


async def reads(task: Task) -> None:
    """Say what a model would read."""
    items = history(await task.chain(), "openai_responses").items
    with task.message() as message:
        message.text(json.dumps([item["content"][0]["text"] for item in items]))


async def test_an_item_that_the_input_names_is_stored_with_the_run() -> None:
    async with serving(reads) as (runs, client):
        first = await respond(client, "one")
        item = first["output"][0]
        reply = item["content"][0]["text"]
        given = [{"role": "user", "content": "other"}, named(item["id"])]
        given.append({"role": "user", "content": "two"})
        second = await respond(client, given)
        root = (await runs.state(second["id"].removeprefix("resp_"))).root
        assert root is not None
        assert root.facts["input"] == [given[0], item, given[2]]
        assert json.loads(second["output"][0]["content"][0]["text"]) == ["other", reply, "two"]
        # In a response that continues the other, the item is there already.
        third = await respond(client, given[1:], first)
        assert json.loads(third["output"][0]["content"][0]["text"]) == ["one", reply, "two"]


async def looks_at(task: Task) -> None:
    """Look at a picture, cite it, and keep what a model would read."""
    read = history(await task.chain(), "openai_responses")
    task.output([{name: one[name] for name in one if name != "id"} for one in read.items])
    with task.reasoning() as thinking:
        thinking.summary("Hm.")
    with task.call("look") as call:
        call.arguments("{}")
    picture = {"type": "image", "image_url": PIXEL}
    call.result({"block_list": [{"type": "text", "text": task.text, "id": 1}, picture]})
    with task.message() as message:
        message.text("Seen.[^1]")
    if task.text == "ask":
        with task.call("pick", executor="client") as call:
            call.arguments('{"of":2}')


async def talk(client: httpx.AsyncClient, *, by_items: bool) -> list[Json]:
    """Three responses, each of which continues the last by its id or by its items.

    The AI SDK sends calls of its functions whole.
    """
    made: list[Json] = []
    sent: list[Json] = []
    for text in ("one", "ask", "three"):
        new: list[Json] = [{"role": "user", "content": [{"type": "input_text", "text": text}]}]
        for item in made[-1]["output"] if made else ():
            if item["type"] == "function_call":
                output = {"call_id": item["call_id"], "output": "blue"}
                new.insert(0, {"type": "function_call_output", **output})
        sent += new
        previous = made[-1] if made and not by_items else None
        made.append(await respond(client, sent if by_items else new, previous))
        sent += map(sent_back, made[-1]["output"])
    return made


def sent_back(item: Json) -> Json:
    return item if item["type"] == "function_call" else named(item["id"])


async def test_who_names_all_items_of_a_response_continues_it_as_by_its_id() -> None:
    async with serving(looks_at) as (runs, client):
        talks = [await talk(client, by_items=by_items) for by_items in (False, True)]
        read: list[str] = []
        for made in talks:
            ids = [response["id"].removeprefix("resp_run_") for response in made]
            roots = [(await runs.state(f"run_{ident}")).root for ident in ids]
            found = [root and (root.reference_start, root.structured_output) for root in roots]
            text = json.dumps(found)
            for number, ident in enumerate(ids):
                text = text.replace(ident, str(number))
            read.append(text)
        path = f"/v1/responses/{talks[1][-1]['id']}/input_items"
        listed = (await client.get(path, params={"order": "asc"})).json()["data"]
    assert read[0] == read[1]
    assert "input_image" in read[0]
    assert "referencable-item" in read[0]
    first, second, third = talks[1]
    assert first["previous_response_id"] == third["previous_response_id"] is None
    output = [item["id"] for item in (*first["output"], *second["output"])]
    assert [item["id"] for item in listed if item["id"] in output] == output
    assert len(listed) == 4 + len(output)


@pytest.mark.parametrize("change", ["question", "fewer", "changed call", "nothing new"])
async def test_who_names_less_or_other_items_starts_a_conversation(change: str) -> None:
    async with serving(looks_at) as (runs, client):
        first = await respond(client, "ask")
        given: list[Json] = [{"role": "user", "content": "ask"}]
        given += map(sent_back, first["output"])
        output = {"call_id": given[-1]["call_id"], "output": "blue"}
        given.append({"type": "function_call_output", **output})
        if change == "question":
            given[0]["content"] = "What?"
        elif change == "fewer":
            del given[-3]  # the message; reasoning may be left out
        elif change == "changed call":
            given[-2] = {**given[-2], "arguments": '{"of":3}'}
        else:
            del given[-1]
        second = await respond(client, given)
        info = await runs.info(second["id"].removeprefix("resp_"))
        assert info.previous_run_id is None


async def test_an_item_of_the_input_of_a_response_can_be_named() -> None:
    async with serving(reads) as (_, client):
        given = ["one", [{"role": "user", "content": "two"}, {"role": "user", "content": "three"}]]
        found = [named("msg_1")]
        for one in given:
            response = await respond(client, one)
            listed = await client.get(f"/v1/responses/{response['id']}/input_items?order=asc")
            found += [named(item["id"]) for item in listed.json()["data"]]
        last = await respond(client, found[1:])
        assert json.loads(last["output"][0]["content"][0]["text"]) == ["one", "two", "three"]
        refused = await client.post("/v1/responses", json={"model": "agent", "input": found[::-1]})
        assert refused.json()["error"]["param"] == "input[3]"


async def test_an_item_that_is_not_stored_or_of_another_owner_is_not_found() -> None:
    async with serving(reads) as (runs, client):
        hers = await runs.start("agent", "hers", owner="her")
        root = await ended(runs, hers)
        number = hers.removeprefix("run_")
        ids = [root.items[0].id, f"msg_{number}_99", "msg_0_1", "x", "", "ig_x"]
        assert ids[0].startswith(f"msg_{number}_")
        for ident in ids:
            body = {"model": "agent", "input": [named(ident)]}
            assert (await client.post("/v1/responses", json=body)).status_code == 404, ident


# --- reference numbers ---------------------------------------------------------------------------


async def looks_up(task: Task) -> None:
    """Return each word of the question as a tool's result, then cite the numbers 1 to 4."""
    for word in task.input.split():
        with task.call("look_up") as call:
            call.arguments("{}")
        call.result(word)
    with task.message() as message:
        message.text("[^1][^2][^3][^4]")


def references(root: TaskNode) -> Json:
    """The number of each word that tools returned, and the numbers that the answer cites."""
    parts = [part for node in root.output() for part in node.parts.values()]
    texts = [part for part in parts if isinstance(part, TextNode)]
    cited = [one.reference_id for one in texts[-1].annotations if isinstance(one, ReferenceToBlock)]
    numbers = {part.text: part.id for part in texts if part.id is not None}
    return {"start": root.reference_start, "numbers": numbers, "cited": cited}


async def test_reference_numbers_continue_along_the_conversation_and_not_across_branches() -> None:
    async with serving(looks_up) as (runs, _):

        async def run(text: str, previous: str | None) -> tuple[str, Json]:
            run_id = await runs.start("agent", text, thread_id="t", previous_run_id=previous)
            return run_id, references(await ended(runs, run_id))

        first, one = await run("sun", None)
        second, two = await run("rain sun", first)
        _, branch = await run("snow rain", first)
        await runs.store.trim(second, save(await whole_state(runs.store, second), private=True))
        _, third = await run("sun wind rain", second)
    assert one == {"start": 1, "numbers": {"sun": 1}, "cited": [1]}
    assert two == {"start": 2, "numbers": {"rain": 2, "sun": 1}, "cited": [1, 2]}
    assert branch == {"start": 2, "numbers": {"snow": 2, "rain": 3}, "cited": [1, 2, 3]}
    assert third == {"start": 3, "numbers": {"sun": 1, "wind": 3, "rain": 2}, "cited": [1, 2, 3]}


# --- forks ---------------------------------------------------------------------------------------


async def looks_and_reads(task: Task) -> None:
    """Call a tool, then say what a model would read."""
    read = history(await task.chain(), "openai_chat").items
    with task.call("look_up") as call:
        call.arguments("{}")
    call.result("15 C")
    with task.message() as message:
        message.text(json.dumps([one.get("content") for one in read]))


async def forked(runs: Runs, previous: str, at: int, **options: Any) -> tuple[str, Any]:
    options = {"previous_run_id": previous, "previous_seq": at, **options}
    run_id = await runs.start("agent", "two", **options)
    return run_id, (await finished(runs, run_id))["replies"]


async def test_a_fork_remembers_a_run_as_if_it_had_been_cancelled_after_an_event() -> None:
    async with serving(looks_and_reads) as (runs, _):
        first = await runs.start("agent", "one")
        await ended(runs, first)
        events = [one.event async for batch in runs.follow(first) for one in batch]
        seqs = {event.type: event.sequence_number for event in events}
        remembered = [(await forked(runs, first, seq))[1] for seq in range(1, len(events) + 1)]
        second, _ = await forked(runs, first, 1)
        third = await runs.start("agent", "three", previous_run_id=second)
        chained = (await finished(runs, third))["replies"]
    [result] = [
        event.sequence_number
        for event in events
        if isinstance(event, OutputItemDone) and isinstance(event.item, ToolResult)
    ]
    texts = [str(one) for one in remembered]
    assert all("one" in text and "two" in text for text in texts)
    assert [("15 C" in text) for text in texts] == [n >= result for n in range(1, len(texts) + 1)]
    replies = seqs["task.text.delta"]  # the text counts from here on, if not yet complete
    assert [(text == texts[-1]) for text in texts[result - 1 :]] == [
        n >= replies for n in range(result, len(texts) + 1)
    ]
    assert "one" in str(chained), "a run that continues a fork remembers what the fork does"
    assert "15 C" not in str(chained[0])


async def test_a_fork_says_where_it_began_and_does_not_change_the_run() -> None:
    async with serving() as (runs, client):
        first = await runs.start("agent", "one")
        await ended(runs, first)
        before = save(await whole_state(runs.store, first))
        body = {"agent": "agent", "input": "two", "previous_run_id": first, "previous_seq": 2}
        made = (await client.post("/runs", json=body)).json()
        assert (await finished(runs, made["run_id"]))["previous_seq"] == 2
        assert save(await whole_state(runs.store, first)) == before
        listed = (await client.get(f"/threads/{made['thread_id']}")).json()["runs"]
        assert [run["previous_seq"] for run in listed] == [None, 2]
        for wrong, status in ((0, 404), (99, 404), (True, 400), ("2", 400)):
            answer = await client.post("/runs", json={**body, "previous_seq": wrong})
            assert (answer.status_code, answer.json()["error"]["param"]) == (status, "previous_seq")
        del body["previous_run_id"]
        answer = await client.post("/runs", json=body)
        assert "name the run in `previous_run_id`" in answer.json()["error"]["message"]


async def test_a_fork_of_events_that_are_gone_is_refused_and_an_older_fork_forgets_the_run() -> (
    None
):
    async with serving() as (runs, client):
        first = await runs.start("agent", "one")
        await ended(runs, first)
        second, replies = await forked(runs, first, 2)
        assert replies == ["one", "two"]
        await runs.store.trim(first, save(await whole_state(runs.store, first), private=True))
        third = await runs.start("agent", "three", previous_run_id=second)
        assert (await finished(runs, third))["replies"] == ["two", "three"]
        body = {"agent": "agent", "input": "?", "previous_run_id": first, "previous_seq": 2}
        answer = await client.post("/runs", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (404, "previous_seq")


# --- calls ---------------------------------------------------------------------------------------


def chat_answer(delta: Json, finish_reason: str) -> RecordedAnswer:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return RecordedAnswer((json.dumps({"choices": [choice]}), "[DONE]"))


async def test_a_call_id_that_a_provider_repeats_is_new_in_the_thread() -> None:
    function = {"name": "look_up", "arguments": "{}"}
    asks = {"tool_calls": [{"index": 0, "id": "call_0", "type": "function", "function": function}]}
    answers = [chat_answer(asks, "tool_calls"), chat_answer({"content": "So."}, "stop")]
    async with Simulator(lambda number: answers[number % 2]) as provider:
        model = open_model("openai-chat:m", base_url=provider.openai_url, api_key="any")

        async def agent(task: Task) -> None:
            for _ in range(2):
                await call_model(model, Request(chain=await task.chain()), task)
                for call_id in set(task._sink.node.calls) - set(task._sink.node.call_results):
                    ResultWriter(task._sink, call_id).finish(
                        Private(content=[TextPart(text="15 C")])
                    )

        async with serving(agent) as (runs, _):
            named: list[Json] = [{}, {}, {"previous_run_id": None}]
            started = [{"thread_id": "t", **one} for one in named]
            roots = [await ended(runs, await runs.start("agent", "?", **one)) for one in started]
        await model.close()
    ids = [call_id for root in roots for call_id in root.calls]
    assert len(set(ids)) == 3, "also in another branch of the thread"
    assert provider.refusals == []
    # The provider reads its own id; the second use of it in one conversation gets another.
    last = provider.requests[3]["messages"]
    asked = [call["id"] for one in last for call in one.get("tool_calls", ())]
    assert asked[0] == "call_0"
    assert asked == [one["tool_call_id"] for one in last if one["role"] == "tool"]
    assert len(set(asked)) == 2


async def test_no_two_calls_of_a_thread_have_the_same_id() -> None:
    """Also of runs that work at the same time, and of calls that a provider or a child made."""
    together = asyncio.Barrier(2)

    async def calls(task: Task) -> None:
        if task.input == "at once":
            await together.wait()
        with task.call("look", call_id="call_0") as call:
            call.arguments("{}")
        with call.delegate("child") as child:
            with child.call("look", call_id="call_1") as inner:
                inner.arguments("{}")
            inner.result("Seen.")
            child.say("Seen.")
        made = {"index": 0, "id": "call_0", "function": {"name": "f", "arguments": "{}"}}
        ingest = OpenAIChat(task._sink)
        for choice in (
            {"delta": {"tool_calls": [made]}},
            {"delta": {}, "finish_reason": "tool_calls"},
        ):
            ingest.feed(json.dumps({"choices": [choice]}))
        ingest.end()
        task.say("[]")

    async with serving(calls) as (runs, _):
        first = await runs.start("agent", "?", thread_id="t")
        await finished(runs, first)
        branches = [
            await runs.start("agent", "at once", thread_id="t", previous_run_id=first)
            for _ in range(2)
        ]
        found: list[str] = []
        for run_id in (first, *branches):
            await finished(runs, run_id)
            for task in (await runs.state(run_id)).tasks.values():
                found += task.calls
        assert len(found) == 9
        assert len(set(found)) == 9
