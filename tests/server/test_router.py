"""The router: which handler answers, and how its response is sent."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tailrace.core.errors import StorageError
from tailrace.server.router import Router
from tests.serving import client_of


async def show(request: Request) -> Response:
    return PlainTextResponse(request.path_params["name"])


async def create(_request: Request) -> Response:
    return PlainTextResponse("created", 201)


async def damaged(_request: Request) -> Response:
    raise StorageError("The database is damaged.")


async def wrong(_request: Request) -> Response:
    raise ZeroDivisionError


class Depth:
    """A response that counts the Python frames under it."""

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        frame, names = sys._getframe(), []
        while frame.f_back is not None:
            frame = frame.f_back
            names.append(frame.f_code.co_name)
        await PlainTextResponse(" ".join(names))({"type": "http"}, receive, send)


async def depth(_request: Request) -> Depth:
    return Depth()


ROUTER = Router(
    [
        Route("/things/{name}", show, methods=["GET"]),
        Route("/things/{name}", create, methods=["POST"]),
        Route("/damaged", damaged),
        Route("/wrong", wrong),
        Route("/depth", depth),
    ]
)


async def ask(method: str, path: str) -> httpx.Response:
    async with client_of(ROUTER) as client:
        return await client.request(method, path)


async def test_path_and_method_choose_the_handler() -> None:
    assert (await ask("GET", "/things/a")).text == "a"
    assert (await ask("POST", "/things/a")).status_code == 201


async def test_a_path_with_a_slash_at_its_end_is_the_same_path() -> None:
    assert (await ask("GET", "/things/a/")).text == "a"


async def test_a_request_is_compared_only_with_routes_of_the_same_first_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[str] = []
    matches = Route.matches

    def noted(self: Route, scope: Scope) -> Any:
        compared.append(self.path)
        return matches(self, scope)

    monkeypatch.setattr(Route, "matches", noted)
    assert (await ask("POST", "/things/a")).status_code == 201
    assert (await ask("GET", "/depth")).status_code == 200
    assert (await ask("GET", "/")).status_code == 404
    assert compared == ["/things/{name}", "/things/{name}", "/depth"]


async def test_an_unknown_path_is_404_and_another_method_405_with_all_that_are_allowed() -> None:
    assert (await ask("GET", "/nothing")).json()["error"]["code"] == "not_found"
    answer = await ask("DELETE", "/things/a")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")


async def test_an_id_with_a_control_character_is_refused_with_its_name() -> None:
    answer = await ask("GET", "/things/%00")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "name")


async def test_each_error_of_the_store_says_when_to_ask_again() -> None:
    """Also of a read-only or damaged database: an operator may mend it."""
    answer = await ask("GET", "/damaged")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


async def test_our_own_bug_is_a_500_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "tailrace"):
        answer = await ask("GET", "/wrong")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert "GET /wrong failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_a_response_is_sent_after_its_handler_has_returned() -> None:
    """An open stream keeps the frames under it in memory."""
    names = (await ask("GET", "/depth")).text.split()
    assert names[0] == "__call__"
    assert "_response" not in names
    assert "_call" not in names


async def test_requests_that_never_wait_leave_other_tasks_a_turn() -> None:
    turns = 0

    async def work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(work())
    async with client_of(ROUTER) as client:
        for _ in range(20):
            await client.get("/things/a")
    working.cancel()
    assert turns >= 20
