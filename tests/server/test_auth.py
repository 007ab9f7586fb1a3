"""Who may call the server, and which runs a caller sees."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from tailrace import ApiKeys, Principal, ServerLimits, Tailrace, Task
from tailrace.core.errors import CallerError
from tailrace.runtime.runs import quota
from tailrace.server.access import limits, tickets
from tailrace.server.access.admission import PUBLIC
from tailrace.server.access.auth import create_key, read_keys, revoke_key
from tailrace.server.access.tickets import Tickets
from tailrace.server.server import Server
from tailrace.server.transport import connections
from tailrace.testing.follow_kit.setup import until
from tailrace.wire.formats import FORMATS

SECRET = "tr_0badc0de_a-secret-that-is-in-no-log"


async def assistant(task: Task) -> None:
    task.say("Sunny.")


async def asking(task: Task) -> str:
    return str(await task.ask("Which city?"))


def by_name(request: Request) -> Principal | None:
    """The test's own `authenticate`: the key is the name."""
    name = request.headers.get("authorization", "").removeprefix("Bearer ")
    return Principal(name) if name in ("ann", "bob") else None


@asynccontextmanager
async def serving(auth: Any = by_name, **options: Any) -> AsyncIterator[tuple[Tailrace, Any]]:
    app = Tailrace({"assistant": assistant, "asking": asking}, ":memory:", auth=auth, **options)

    def client(key: str | None = None) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://localhost",
            headers={} if key is None else {"authorization": f"Bearer {key}"},
        )

    async with app.running():
        yield app, client


def routes(app: Tailrace) -> list[tuple[str, str]]:
    """Every route of the server that needs a key, with its methods."""
    server: Server | None = app._server
    assert server is not None
    return [
        (method, route.path)
        for route in server.routes
        if route.path not in PUBLIC
        for method in sorted((route.methods or set()) - {"HEAD"})
    ]


# --- the key -------------------------------------------------------------------------------------


async def test_every_route_but_the_page_and_the_probes_needs_a_key() -> None:
    async with serving() as (app, client), client() as stranger, client("eve") as wrong:
        for method, path in [*routes(app), ("GET", "/nothing"), ("PUT", "/runs")]:
            for caller in (stranger, wrong):
                answer = await caller.request(method, path, json={} if method == "POST" else None)
                assert answer.status_code == 401, (method, path)
                assert answer.headers["www-authenticate"].startswith("Bearer")
        for path in ("/", "/health", "/ready", "/inspector/main.js"):
            assert (await stranger.get(path)).status_code == 200
            assert (await stranger.put(path)).status_code == 405


async def test_the_refusal_has_the_shape_that_the_clients_of_the_path_read() -> None:
    async with serving() as (_, client), client() as stranger:
        for path in ("/runs", "/v1/responses"):
            error = (await stranger.post(path, json={})).json()["error"]
            assert (error["code"], error["type"]) == ("unauthorized", "unauthorized")
        answer = await stranger.post("/v1/messages", json={})
        assert answer.json()["type"] == "error"
        assert answer.json()["error"]["type"] == "authentication_error"
        answer = await stranger.post("/api/chat", json={})
        assert answer.headers["content-type"].startswith("text/plain")
        assert answer.text.startswith("The `auth` function of this application does not admit")


async def test_authenticate_may_be_async() -> None:
    async def later(request: Request) -> Principal | None:
        return by_name(request)

    async with serving(later) as (_, client), client("ann") as ann, client("eve") as eve:
        assert (await ann.get("/agents")).status_code == 200
        assert (await eve.get("/agents")).status_code == 401


async def test_a_failing_authenticate_refuses_every_request_and_logs_no_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(request: Request) -> Principal:
        raise ValueError(request.headers["authorization"])

    async def leaving(request: Request) -> Principal:
        raise SystemExit(request.headers["authorization"])

    for auth in (broken, leaving, lambda _request: "ann", lambda _request: Principal("a/b")):
        async with serving(auth) as (_, client), client(SECRET) as caller:
            answer = await caller.get("/agents")
            assert answer.status_code == 500
            assert SECRET not in answer.text
    assert "ValueError" in caplog.text
    assert SECRET not in caplog.text


# --- API keys ------------------------------------------------------------------------------------


async def test_a_key_works_in_both_headers_until_it_is_revoked(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    first, row = create_key(path, "ann")
    async with serving(ApiKeys(path)) as (_, client), client() as caller:

        async def status(**headers: str) -> int:
            answer: httpx.Response = await caller.get("/agents", headers=headers)
            return answer.status_code

        assert await status(authorization=f"Bearer {first}") == 200
        assert await status(authorization=f"bearer  {first}") == 200
        assert await status(**{"x-api-key": first}) == 200
        assert await status(**{"x-api-key": first[:-1]}) == 401
        assert await status(authorization=f"Basic {first}") == 401
        assert await status(authorization=f"Bearer tr_{row.id}_") == 401
        second, _ = create_key(path, "ann")
        assert await status(**{"x-api-key": second}) == 200
        refused = (await caller.get("/agents")).json()["error"]["message"]
        assert refused.startswith("The API key is missing or invalid.")
        revoke_key(path, row.id)
        assert await status(**{"x-api-key": first}) == 401
        assert await status(**{"x-api-key": second}) == 200
        path.unlink()
        assert await status(**{"x-api-key": second}) == 401


def test_a_key_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.json"
    key, _ = create_key(path, "ann", seconds=60)
    keys = ApiKeys(path)
    assert keys.find(key) is not None
    now = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: now)
    assert keys.find(key) is None


def test_the_file_holds_no_key_and_is_readable_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    key, row = create_key(path, "ann")
    text = path.read_text(encoding="utf-8")
    assert key.rpartition("_")[2] not in text
    assert json.loads(text)["keys"][0]["principal"] == "ann"
    assert read_keys(path) == [row]
    assert path.stat().st_mode & 0o077 == 0


def test_a_damaged_file_leaves_the_keys_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.json"
    key, _ = create_key(path, "ann")
    keys = ApiKeys(path)
    assert keys.find(key) is not None
    path.write_text("{", encoding="utf-8")
    assert keys.find(key) is not None
    assert keys.find(key) is not None
    assert len(caplog.records) == 1
    with pytest.raises(CallerError, match="not a file of API keys"):
        revoke_key(path, "x")


async def test_the_variable_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.json"
    key, _ = create_key(path, "ann")
    monkeypatch.setenv("TAILRACE_KEYS", str(path))
    async with serving(None) as (_, client), client() as stranger, client(key) as ann:
        assert (await stranger.get("/agents")).status_code == 401
        assert (await ann.get("/agents")).status_code == 200
    monkeypatch.delenv("TAILRACE_KEYS")
    with pytest.raises(CallerError, match="TAILRACE_KEYS"):
        ApiKeys()


# --- owners --------------------------------------------------------------------------------------


async def begun(caller: httpx.AsyncClient, agent: str = "assistant", **more: Any) -> str:
    answer = await caller.post("/runs", json={"agent": agent, "input": "?", **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["run_id"])


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
        assert await app.runs.reader.ended(hers, 120)
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
        assert await app.runs.reader.ended(his, 120)
        for caller, run_id in ((ann, hers), (bob, his)):
            (listed,) = (await caller.get("/threads")).json()["threads"]
            assert (listed["thread_id"], listed["last_run_id"], listed["runs"]) == ("t", run_id, 1)
            (run,) = (await caller.get("/threads/t")).json()["runs"]
            assert (run["run_id"], run["previous_run_id"]) == (run_id, None)


async def test_the_stream_of_a_thread_has_the_runs_of_its_owner_alone() -> None:
    async with serving() as (app, client), client("ann") as ann, client("bob") as bob:
        hers = await begun(ann, thread_id="t")
        his = await begun(bob, thread_id="t")
        assert await app.runs.reader.ended(hers, 120)
        assert await app.runs.reader.ended(his, 120)
        for owner, run_id in (("ann", hers), ("bob", his)):
            runs = app.runs.of(owner)
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
        assert await app.runs.reader.ended(hers, 120)
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
            latest = await app.runs.of("bob").latest(thread)
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
        sha256 = await app.runs.store.put_blob(b"x", "text/plain", hers)
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


# --- secrets -------------------------------------------------------------------------------------


async def test_a_key_is_in_no_log_and_in_no_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "keys.json"
    right, _ = create_key(path, "ann")
    wrong = right[:-3] + "abc"
    async with serving(ApiKeys(path)) as (_, client):
        for key in (right, wrong):
            async with client(key) as caller:
                run = await caller.post("/runs", json={"agent": "assistant"})
                answers = [run, await caller.get("/runs/run_0"), await caller.post("/runs")]
                answers.append(await caller.get("/agents", headers={"x-api-key": key}))
                assert not any(key in answer.text for answer in answers)
                assert not any(key in str(answer.headers) for answer in answers)
        where = "/threads/t/events"
        async with client(right) as ann, client() as page:
            ticket = (await ann.post("/tickets", json={"path": where})).json()["ticket"]
            for given in (ticket, ticket[:-1]):
                await page.get(f"{where}?format=none&ticket={given}")
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name != "httpx")
    assert "authorization" not in caplog.text.lower()
    for secret in (right, wrong, ticket):
        assert secret not in ours


# --- open streams --------------------------------------------------------------------------------


class OpenStream:
    """A stream that a client reads until it leaves or the server ends it."""

    def __init__(self, app: Tailrace, path: str, key: str) -> None:
        self.status = asyncio.get_running_loop().create_future()
        self.body = b""
        self._leave = asyncio.Event()
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "root_path": "",
            "scheme": "http",
            "server": ("localhost", 80),
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())],
        }
        self.ended = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        await self._leave.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status.set_result(message["status"])
        self.body += message.get("body", b"")

    async def leave(self) -> None:
        self._leave.set()
        async with asyncio.timeout(120):
            await self.ended


async def test_a_stream_ends_soon_after_its_key_is_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.5)
    monkeypatch.setattr(connections, "RECHECK_SECONDS", 0.0)
    path = tmp_path / "keys.json"
    key, row = create_key(path, "ann")
    other, _ = create_key(path, "ann")
    async with serving(ApiKeys(path)) as (app, client), client(key) as ann:
        run_id = await begun(ann, "asking")
        streams = [OpenStream(app, f"/runs/{run_id}/events", one) for one in (key, other)]
        async with asyncio.timeout(120):
            assert [await one.status for one in streams] == [200, 200]
            revoke_key(path, row.id)
            await streams[0].ended
        assert not streams[1].ended.done()
        await streams[1].leave()


async def test_a_stream_ends_soon_after_the_function_refuses_its_sender(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.5)
    monkeypatch.setattr(connections, "RECHECK_SECONDS", 0.0)
    allowed, asked = {"ann"}, asyncio.Event()

    async def members(request: Request) -> Principal | None:
        found = by_name(request)
        if not allowed:
            allowed.add("ann")  # a check that fails says nothing of the key
            asked.set()
            raise OSError("the list of members is away")
        return found if found is not None and found.id in allowed else None

    async with serving(members) as (app, client), client("ann") as ann:
        run_id = await begun(ann, "asking")
        stream = OpenStream(app, f"/runs/{run_id}/events", "ann")
        async with asyncio.timeout(120):
            assert await stream.status == 200
            allowed.clear()
            await asked.wait()
            assert not stream.ended.done()
            allowed.add("bob")
            allowed.remove("ann")
            await stream.ended


async def test_a_request_that_waits_for_its_run_is_refused_soon_after_its_key_is_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.5)
    monkeypatch.setattr(connections, "RECHECK_SECONDS", 0.0)
    path = tmp_path / "keys.json"
    key, row = create_key(path, "ann")
    message = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 9}
    bodies: dict[str, Any] = {
        "/v1/responses": {"input": "?"},
        "/v1/chat/completions": message,
        "/v1/messages": message,
    }
    async with serving(ApiKeys(path)) as (app, client), client(key) as ann:
        waiting = [
            asyncio.ensure_future(ann.post(where, json={"model": "asking", **body}))
            for where, body in bodies.items()
        ]
        async with asyncio.timeout(120):
            assert app._server is not None
            open_now = app._server.connections
            await until(lambda: len(open_now) == len(bodies))
            revoke_key(path, row.id)
            answers = await asyncio.gather(*waiting)
        assert [answer.status_code for answer in answers] == [401, 401, 401]
        assert all("The API key is no longer valid." in answer.text for answer in answers)
        found = await app.runs.of("ann").newest(9)
        assert [run.ended_at for run in found] == [None] * len(bodies)


async def test_a_request_that_waits_for_its_run_counts_as_a_stream() -> None:
    async with serving(limits=ServerLimits(streams=1)) as (app, client), client("ann") as ann:
        body = {"model": "asking", "input": "?"}
        first = asyncio.ensure_future(ann.post("/v1/responses", json=body))
        async with asyncio.timeout(120):
            assert app._server is not None
            open_now = app._server.connections
            await until(lambda: len(open_now) == 1)
            [run] = await app.runs.of("ann").newest(9)
            path = f"/runs/{run.run_id}"
            assert (await ann.head(f"{path}/events")).status_code == 429
            assert (await ann.post("/v1/responses", json=body)).status_code == 429
            await ann.post(f"{path}/cancel")
            assert (await first).status_code == 200
        assert (await ann.head(f"{path}/events")).status_code == 200


# --- tickets -------------------------------------------------------------------------------------


async def test_a_ticket_opens_one_stream_for_a_minute_and_its_cookie_opens_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys.json"
    key, row = create_key(file, "ann")
    async with serving(ApiKeys(file)) as (app, client), client(key) as ann, client() as page:
        run_id = await begun(ann)
        other = await begun(ann)
        assert await app.runs.reader.ended(run_id, 120)
        path = f"/runs/{run_id}/events"
        made = await ann.post("/tickets", json={"path": f"{path}?format=run"})
        assert made.status_code == 201
        assert made.json()["expires_in"] == 60
        ticket = made.json()["ticket"]

        async def status(where: str, cookie: str = "", given: str = ticket) -> int:
            page.cookies.clear()
            headers = {"cookie": f"tailrace_stream={cookie}"} if cookie else {}
            answer: httpx.Response = await page.get(
                where, params={"ticket": given} if given else {}, headers=headers
            )
            return answer.status_code

        opened = await page.get(path, params={"ticket": ticket})
        assert (opened.status_code, "task.completed" in opened.text) == (200, True)
        fields = opened.headers["set-cookie"].split("; ")
        cookie = fields[0].removeprefix("tailrace_stream=")
        assert fields[1:] == [f"Path={path}", "Max-Age=3600", "HttpOnly", "SameSite=Lax"]
        assert await status(path, cookie, given="") == 200
        # For no other stream, no other route and not as the other kind.
        assert await status(f"/runs/{other}/events", cookie) == 401
        assert await status(f"/runs/{run_id}", cookie) == 401
        assert await status(path, given=cookie) == 401
        assert await status(path, cookie=ticket, given="") == 401
        assert await status(path, given=ticket[:-2]) == 401
        assert await status(path, given="x.y") == 401
        assert await status(path, given="") == 401
        assert (await page.post(f"/runs/{run_id}/cancel?ticket={ticket}")).status_code == 401
        assert await status(path) == 401  # a ticket is for one request
        assert await status(path, cookie) == 200  # as `EventSource` connects again

        async def fresh() -> str:
            made = await ann.post("/tickets", json={"path": path})
            return str(made.json()["ticket"])

        for seconds, expected in ((61, [401, 200]), (3601, [401, 401]), (0, [200, 200])):
            given, later = await fresh(), time.time() + seconds
            monkeypatch.setattr(tickets, "time", SimpleNamespace(time=lambda now=later: now))
            seen = [await status(path, given=given), await status(path, cookie, "")]
            assert seen == expected
            monkeypatch.setattr(tickets, "time", time)
        revoke_key(file, row.id)
        assert [await status(path), await status(path, cookie, "")] == [401, 401]


async def test_a_ticket_is_not_used_by_a_request_that_opens_no_stream() -> None:
    asked = ServerLimits(streams=1, requests_per_minute=60)
    async with serving(limits=asked) as (app, client), client("ann") as ann, client() as page:
        run_id = await begun(ann)
        held = OpenStream(app, f"/runs/{await begun(ann, 'asking')}/events", "ann")
        path = f"/runs/{run_id}/events"
        ticket = (await ann.post("/tickets", json={"path": path})).json()["ticket"]
        where = f"{path}?ticket={ticket}"
        async with asyncio.timeout(120):
            assert await held.status == 200
            refused = await page.get(where)
            assert (refused.status_code, "open streams" in refused.text) == (429, True)
            await held.leave()
            while (refused := await ann.get("/agents")).status_code == 200:
                pass
            assert (await page.get(where)).status_code == 429
            await asyncio.sleep(float(refused.headers["retry-after"]) + 1)
        head = await page.head(where)
        assert (head.status_code, "set-cookie" in head.headers) == (200, False)
        assert (await page.get(where)).status_code == 200
        page.cookies.clear()
        assert (await page.head(where)).status_code == 401


async def test_a_ticket_names_a_stream_and_needs_a_server_with_keys() -> None:
    async with serving() as (_, client), client("ann") as ann:
        for path in ("/runs", "/agents", "/runs/a/b/events", 7):
            answer = await ann.post("/tickets", json={"path": path})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "path")
        for path in ("/runs/a/events", "/threads/%C3%A9/events"):
            assert (await ann.post("/tickets", json={"path": path})).status_code == 201
    async with serving(None) as (_, client), client() as anyone:
        answer = await anyone.post("/tickets", json={"path": "/runs/a/events"})
        assert answer.status_code == 404


async def test_servers_with_the_same_secret_take_each_others_tickets() -> None:
    ann = Principal("ann")
    path = "/threads/é;/events"
    one, two, three = Tickets("shared"), Tickets("shared"), Tickets()
    ticket = one.issue(ann, path)
    assert two.read(ticket, "ticket", path) == ann
    assert three.read(ticket, "ticket", path) is None
    cookie = one.cookie(ann, path, "/ai", secure=True)
    assert "; Path=/ai/threads/%C3%A9%3B/events; " in cookie
    assert cookie.endswith("; Secure")


# --- limits --------------------------------------------------------------------------------------


async def test_too_many_requests_are_refused_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: now))
    asked = ServerLimits(requests_per_minute=20)
    async with serving(limits=asked) as (_, client), client("ann") as ann, client("bob") as bob:
        assert [(await ann.get("/agents")).status_code for _ in range(3)] == [200, 200, 429]
        refused = await ann.get("/agents")
        assert refused.headers["retry-after"] == "3"
        assert refused.json()["error"]["code"] == "limit_reached"
        assert (await ann.get("/health")).status_code == 200
        assert (await bob.get("/agents")).status_code == 200
        now = 3.0
        assert [(await ann.get("/agents")).status_code for _ in range(2)] == [200, 429]


async def test_too_many_unfinished_runs_are_refused_in_every_api(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quota, "LOOK_SECONDS", 0.0)
    asked = ServerLimits(runs=2)
    async with serving(limits=asked) as (_, client), client("ann") as ann, client("bob") as bob:
        runs = [await begun(ann, "asking") for _ in range(2)]
        message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "?"}]}
        for path, body in (
            ("/runs", {"agent": "assistant", "input": "?"}),
            ("/v1/responses", {"model": "assistant", "input": "?"}),
            ("/api/chat", {"id": "c", "messages": [message]}),
        ):
            refused = await ann.post(path, json=body)
            assert refused.status_code == 429, path
            assert refused.headers["retry-after"] == "1"
            assert "2 unfinished runs" in refused.text
        await begun(bob)
        assert (await ann.post(f"/runs/{runs[0]}/cancel")).status_code == 200
        await begun(ann)


async def test_too_many_streams_are_refused_until_one_is_closed() -> None:
    asked = ServerLimits(streams=1)
    async with serving(limits=asked) as (app, client), client("ann") as ann:
        run_id = await begun(ann, "asking")
        stream = OpenStream(app, f"/runs/{run_id}/events", "ann")
        async with asyncio.timeout(120):
            assert await stream.status == 200
        refused = await ann.get(f"/runs/{run_id}/events")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        # No run starts whose stream would be refused: the client would start it again.
        body = {"model": "assistant", "input": "?", "stream": True}
        assert (await ann.post("/v1/responses", json=body)).status_code == 429
        assert [run.run_id for run in await app.runs.of("ann").newest(9)] == [run_id]
        # Requests without a stream are answered, as far as the limit of runs goes.
        for where, quiet, status in (
            ("/runs", {"agent": "assistant", "input": "?"}, 201),
            ("/threads/t/runs", {"agent": "assistant", "input": "?"}, 201),
            ("/runs", {"agent": "assistant", "input": "?", "stream": True}, 429),
            ("/v1/responses", {**body, "stream": False, "background": True}, 200),
            ("/v1/responses", {**body, "background": True}, 429),
            ("/tickets", {"path": f"/runs/{run_id}/events"}, 201),
        ):
            assert (await ann.post(where, json=quiet)).status_code == status, (where, quiet)
        await stream.leave()
        assert (await ann.post("/v1/responses", json=body)).status_code == 200
        again = OpenStream(app, f"/runs/{run_id}/events", "ann")
        async with asyncio.timeout(120):
            assert await again.status == 200
        await again.leave()


def test_principals_without_requests_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(limits, "KEPT", 2)
    log: Any = None
    known = limits.Allowances(lambda owner: limits.Allowance(ServerLimits(), log, owner))
    first, second = known.of("ann"), known.of("bob")
    second.streams = 1
    assert known.of("ann") is first
    now = 61.0
    known.of("eve")
    assert known.of("bob") is second
    assert known.of("ann") is not first


def test_a_limit_is_at_least_one() -> None:
    with pytest.raises(CallerError, match="`streams`"):
        ServerLimits(streams=0)
