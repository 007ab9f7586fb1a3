"""Tickets for `EventSource`, which cannot send a key."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from tailrace import ApiKeys, Principal, ServerLimits
from tailrace.server.access import limits, tickets
from tailrace.server.access.auth import create_key, revoke_key
from tailrace.server.access.tickets import Tickets
from tests.server.principals import OpenStream, begun, by_name, serving


async def test_a_ticket_opens_one_stream_for_a_minute_and_its_cookie_opens_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys.json"
    key, row = create_key(file, "ann")
    async with serving(ApiKeys(file)) as (app, client), client(key) as ann, client() as page:
        run_id = await begun(ann)
        other = await begun(ann)
        assert await app._runs.reader.ended(run_id, 120)
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


async def test_a_ticket_is_not_used_by_a_request_that_opens_no_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
            while (await ann.get("/agents")).status_code == 200:
                pass
            assert (await page.get(where)).status_code == 429
        later = SimpleNamespace(monotonic=lambda: time.monotonic() + 60)
        monkeypatch.setattr(limits, "time", later)
        head = await page.head(where)
        assert (head.status_code, "set-cookie" in head.headers) == (200, False)
        assert (await page.get(where)).status_code == 200
        page.cookies.clear()
        assert (await page.head(where)).status_code == 401


async def test_a_ticket_names_a_stream_and_needs_a_server_with_keys() -> None:
    async with serving() as (_, client), client("ann") as ann:
        odd = ("/threads/a\nb/events", "/threads/../events", f"/runs/{'a' * 257}/events")
        for path in ("/runs", "/agents", "/runs/a/b/events", *odd, 7):
            answer = await ann.post("/tickets", json={"path": path})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "path")
        for path in ("/runs/a/events", "/threads/%C3%A9/events"):
            assert (await ann.post("/tickets", json={"path": path})).status_code == 201
    async with serving(None) as (_, client), client() as anyone:
        answer = await anyone.post("/tickets", json={"path": "/runs/a/events"})
        assert answer.status_code == 404


@pytest.mark.parametrize("has_keys", [True, False])
async def test_a_refused_ticket_says_whether_another_process_signed_it(
    tmp_path: Path, has_keys: bool
) -> None:
    file = tmp_path / "keys.json"
    key, row = create_key(file, "ann")
    auth = ApiKeys(file) if has_keys else by_name
    key = key if has_keys else "ann"
    async with serving(auth) as (app, client), client(key) as ann, client() as page:
        run_id = await begun(ann)
        assert await app._runs.reader.ended(run_id, 120)
        path = f"/runs/{run_id}/events"

        async def refusal(ticket: str = "", cookie: str = "") -> str:
            page.cookies.clear()
            headers = {"cookie": f"tailrace_stream={cookie}"} if cookie else {}
            query = {"ticket": ticket} if ticket else {}
            answer = await page.get(path, params=query, headers=headers)
            assert answer.status_code == 401
            return str(answer.json()["error"]["message"])

        foreign = Tickets().issue(Principal("ann"), path)
        for text in (foreign, "forged", "x.y"):
            assert "did not sign the ticket" in await refusal(text)
            assert "TAILRACE_SECRET" in await refusal(cookie=text)
        ticket = (await ann.post("/tickets", json={"path": path})).json()["ticket"]
        other = (await ann.post("/tickets", json={"path": f"{path[:-8]}x/events"})).json()["ticket"]
        assert (await page.get(path, params={"ticket": ticket})).status_code == 200
        assert "was used before" in await refusal(ticket)
        assert "is for another stream" in await refusal(other)
        assert "ticket" not in await refusal()
        if has_keys:
            fresh = (await ann.post("/tickets", json={"path": path})).json()["ticket"]
            revoke_key(file, row.id)
            assert "The API key is missing or invalid" in await refusal(fresh)


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
