"""Which callers the server takes: keys, a function of the application, open streams."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from tailrace import ApiKeys, Principal
from tailrace.core.errors import CallerError
from tailrace.server.access.auth import create_key, read_keys, revoke_key
from tailrace.server.transport import connections
from tailrace.testing.waiting import until
from tests.server.principals import OpenStream, begun, by_name, routes, serving

SECRET = "tr_0badc0de_a-secret-that-is-in-no-log"


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


@pytest.fixture
def checks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server asks again and again whether the sender of an open request may stay."""
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.5)
    monkeypatch.setattr(connections, "RECHECK_SECONDS", 0.0)


@pytest.mark.usefixtures("checks_often")
async def test_a_stream_ends_soon_after_its_key_is_revoked(
    tmp_path: Path,
) -> None:
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


@pytest.mark.usefixtures("checks_often")
async def test_a_stream_ends_soon_after_the_function_refuses_its_sender() -> None:
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


@pytest.mark.usefixtures("checks_often")
async def test_a_request_that_waits_for_its_run_is_refused_soon_after_its_key_is_revoked(
    tmp_path: Path,
) -> None:
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
        found = await app._runs.of("ann").newest(9)
        assert [run.ended_at for run in found] == [None] * len(bodies)
