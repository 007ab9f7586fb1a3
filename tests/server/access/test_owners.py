"""Runs, threads and blobs belong to a principal; others find nothing."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

from tailrace.wire.formats import FORMATS
from tests.server.principals import begun, routes, serving

BODIES: dict[str, Any] = {"/runs/{run_id}/input": {"city": "Rome"}}


KNOWN_PLACES = {"run_id", "response_id", "thread_id", "thread", "sha256", "agent"}
"""What the paths of routes name. Runs are tried below; threads and blobs have their own tests."""


async def test_a_foreign_run_is_an_unknown_run_at_every_route_and_in_every_format() -> None:
    async with serving() as (app, client), client("ann") as ann, client("bob") as bob:
        hers = await begun(ann, "asking", thread_id="t")
        names = {name for _, path in routes(app) for name in re.findall(r"{(\w+)}", path)}
        assert names <= KNOWN_PLACES, "a new kind of id: test it with two principals"
        tried = 0
        for method, path in routes(app):
            for place, unknown in (("run_id", "run_0"), ("response_id", "resp_run_0")):
                if f"{{{place}}}" not in path:
                    continue
                mine = f"resp_{hers}" if place == "response_id" else hers
                for query in ("", *(f"?format={name}" for name in FORMATS), "?stream=true"):
                    for more in ("", "&snapshot=true", "&after=1"):
                        where = path + (query or "?") + more
                        body = BODIES.get(path, {}) if method == "POST" else None
                        answers = [
                            await bob.request(
                                method, where.replace(f"{{{place}}}", ident), json=body
                            )
                            for ident in (mine, unknown)
                        ]
                        assert [one.status_code for one in answers] == [404, 404], where
                        texts = [
                            one.text.replace(ident, "").replace(ident.removeprefix("resp_"), "")
                            for one, ident in zip(answers, (mine, unknown), strict=True)
                        ]
                        assert texts[0] == texts[1]
                        tried += 1
        assert tried > 100
        # She still has it, and it goes on.
        assert (await ann.get(f"/runs/{hers}")).json()["status"] == "input_required"
        assert (await ann.get(f"/v1/responses/resp_{hers}")).status_code == 200
        answer = await ann.post(f"/runs/{hers}/cancel")
        assert answer.json()["status"] == "cancelled"


async def test_a_thread_is_its_owners_alone() -> None:
    async with serving() as (app, client), client("ann") as ann, client("bob") as bob:
        hers = await begun(ann, thread_id="t")
        assert await app._runs.reader.ended(hers, 120)
        assert (await bob.get("/threads")).json() == {"threads": [], "next": None}
        assert (await bob.get("/threads", params={"before": hers})).status_code == 404
        foreign, unknown = await bob.get("/threads/t"), await bob.get("/threads/u")
        assert (foreign.status_code, unknown.status_code) == (404, 404)
        assert foreign.text.replace("Thread t", "") == unknown.text.replace("Thread u", "")
        assert (await bob.get("/runs/run_t/events")).status_code == 404
        assert (await bob.get("/api/chat/t/stream")).status_code == 204
        assert (await bob.get("/ag-ui/assistant?threadId=t")).status_code == 204
        resumed = {"interruptId": "x", "status": "resolved", "payload": {"approved": True}}
        resume = {"runId": "r", "messages": [], "resume": [resumed]}
        for thread in ("t", "u"):
            answer = await bob.post("/ag-ui/assistant", json={**resume, "threadId": thread})
            assert answer.json()["error"]["message"] == (
                f"Thread {thread} has no run to resume. Send `messages` without `resume`."
            )
        # The same name is another thread for him, and continues nothing of hers.
        his = await begun(bob, thread_id="t")
        assert await app._runs.reader.ended(his, 120)
        for caller, run_id in ((ann, hers), (bob, his)):
            (listed,) = (await caller.get("/threads")).json()["threads"]
            assert (listed["thread_id"], listed["last_run_id"], listed["runs"]) == ("t", run_id, 1)
            (run,) = (await caller.get("/threads/t")).json()["runs"]
            assert (run["run_id"], run["previous_run_id"]) == (run_id, None)


async def test_the_stream_of_a_thread_has_the_runs_of_its_owner_alone() -> None:
    async with serving() as (app, client), client("ann") as ann, client("bob") as bob:
        hers = await begun(ann, thread_id="t")
        his = await begun(bob, thread_id="t")
        assert await app._runs.reader.ended(hers, 120)
        assert await app._runs.reader.ended(his, 120)
        for owner, run_id in (("ann", hers), ("bob", his)):
            runs = app._runs.of(owner)
            found = [run async for run in _first(runs.thread_runs("t"))]
            assert [run.run_id for run in found] == [run_id]


async def _first(runs: Any) -> AsyncIterator[Any]:
    """The runs of a thread until it waits for the next."""
    async for run in runs:
        if run is None:
            break
        yield run
    await runs.aclose()


async def test_no_run_continues_or_quotes_the_run_of_another() -> None:
    async with serving() as (app, client), client("ann") as ann, client("bob") as bob:
        hers = await begun(ann, thread_id="t")
        assert await app._runs.reader.ended(hers, 120)
        item = (await ann.get(f"/v1/responses/resp_{hers}")).json()["output"][0]["id"]
        body: Any = {"agent": "assistant", "input": "?", "previous_run_id": hers}
        assert (await bob.post("/runs", json=body)).status_code == 404
        body = {"model": "assistant", "input": "?", "previous_response_id": f"resp_{hers}"}
        assert (await bob.post("/v1/responses", json=body)).status_code == 404
        body = {"model": "assistant", "input": [{"type": "item_reference", "id": item}]}
        assert (await ann.post("/v1/responses", json=body)).status_code == 200
        assert (await bob.post("/v1/responses", json=body)).status_code == 404
        # `useChat` sends the whole conversation: the run that it names is no run of his.
        chat = [
            {"id": hers, "role": "assistant", "parts": [{"type": "text", "text": "Sunny."}]},
            {"id": "m", "role": "user", "parts": [{"type": "text", "text": "And now?"}]},
        ]
        answer = await bob.post("/api/chat", json={"id": "c", "messages": chat})
        assert answer.status_code == 200
        conversation = [
            {"id": item, "role": "assistant", "content": "Sunny."},
            {"id": "m", "role": "user", "content": "And now?"},
        ]
        body = {"threadId": "d", "runId": "his", "messages": conversation}
        assert (await bob.post("/ag-ui/assistant", json=body)).status_code == 200
        for thread in ("c", "d"):
            latest = await app._runs.of("bob").latest(thread)
            assert latest is not None
            assert latest.previous_run_id is None


async def test_two_principals_may_choose_the_same_run_id_and_neither_notices() -> None:
    async with serving() as (_, client), client("ann") as ann, client("bob") as bob:
        native = await begun(ann)
        for run_id in ("r1", native):
            asked = {"threadId": "t", "runId": run_id}
            started = []
            for caller, text in ((ann, "Hers"), (bob, "His"), (ann, "Hers")):
                messages = [{"id": "u1", "role": "user", "content": text}]
                body = {**asked, "messages": messages}
                answer = await caller.post("/ag-ui/assistant", json=body)
                assert answer.status_code == 200
                started.append(json.loads(answer.text.split("\n")[0].removeprefix("data: ")))
            first, foreign, again = (one["runId"] for one in started)
            assert first == again
            assert first != foreign
            assert (await bob.get(f"/runs/{first}")).status_code == 404
            assert (await bob.get(f"/runs/{foreign}")).json()["input"][0]["content"] == "His"


async def test_a_blob_is_found_by_those_whose_runs_use_it() -> None:
    async with serving() as (app, client), client("ann") as ann, client("bob") as bob:
        hers = await begun(ann)
        sha256 = await app._runs.store.put_blob(b"x", "text/plain", hers)
        assert (await ann.get(f"/blobs/{sha256}")).content == b"x"
        foreign, unknown = await bob.get(f"/blobs/{sha256}"), await bob.get(f"/blobs/{'0' * 64}")
        assert (foreign.status_code, unknown.status_code) == (404, 404)
        assert foreign.text.replace(sha256, "") == unknown.text.replace("0" * 64, "")


async def test_a_run_that_the_application_starts_belongs_to_the_owner_that_it_names() -> None:
    async with serving() as (app, client), client("ann") as ann, client("bob") as bob:
        run = await app.start("assistant", "?", owner="ann")
        await run.result()
        assert (await ann.get(f"/runs/{run.id}")).status_code == 200
        assert (await bob.get(f"/runs/{run.id}")).status_code == 404
