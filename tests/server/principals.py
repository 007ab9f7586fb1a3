"""A server with two callers, Ann and Bob, and what they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from starlette.requests import Request

from tailrace import Principal, Tailrace, Task
from tailrace.server.access.admission import PUBLIC
from tailrace.server.server import Server


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


async def begun(caller: httpx.AsyncClient, agent: str = "assistant", **more: Any) -> str:
    answer = await caller.post("/runs", json={"agent": agent, "input": "?", **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["run_id"])


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
