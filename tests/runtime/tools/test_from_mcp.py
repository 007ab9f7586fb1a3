"""The tools of real MCP servers, each in a process of its own, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, cast

import pytest

from tailrace import Agent, Context, Tailrace, Tool, ToolError, mcp_server
from tailrace.core.items import File, Image, Text
from tailrace.models.scripted import Scripted, call, say
from tailrace.runtime.tools import from_mcp
from tailrace.runtime.tools.from_mcp import McpServer, McpUnavailable
from tailrace.runtime.tools.outputs import Notify, Output
from tailrace.runtime.tools.parameters import InvalidTool
from tailrace.runtime.tools.tool_list import open_tools
from tailrace.testing.waiting import until

SHOP = [sys.executable, str(Path(__file__).with_name("mcp_shop.py"))]


class HttpShop:
    """The server over HTTP, on a port that it keeps when it is started again."""

    def __init__(self) -> None:
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self.stop()
        self.process = subprocess.Popen([*SHOP, str(self.port)], stderr=subprocess.DEVNULL)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert self.process.poll() is None, "the server ended"
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)


@pytest.fixture(scope="module")
def http_shop() -> Iterator[HttpShop]:
    made = HttpShop()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for all tests, as they share the servers."""
    return "asyncio"


@pytest.fixture(scope="module", params=["stdio", "http"])
async def shop(request: pytest.FixtureRequest) -> AsyncIterator[McpServer]:
    if request.param == "stdio":
        server = mcp_server(command=SHOP, env={"SHOP_WORD": "hello"})
    else:
        http: HttpShop = request.getfixturevalue("http_shop")
        if http.process is None or http.process.poll() is not None:
            http.start()
        server = mcp_server(url=http.url, headers={"authorization": "Bearer x"})
    yield server
    await server.close()


async def events_of(made: Tool, **arguments: Any) -> list[Any]:
    context = Context(cast(Any, None), "call_1")
    return [event async for event in made.invoke(arguments, context)]


async def value_of(server: McpServer, name: str, **arguments: Any) -> Any:
    made = (await open_tools([server]))[name]
    *_, last = await events_of(made, **arguments)
    assert isinstance(last, Output)
    return last.value


async def test_the_tools_of_a_server_are_listed_and_called(shop: McpServer) -> None:
    listed = await open_tools([shop])
    made = listed["add"]
    assert made.description == "Adds two numbers."
    assert made.parameters["properties"]["a"]["type"] == "integer"
    assert made.parameters["required"] == ["a", "b"]
    assert made.idempotent
    assert not listed["slow"].idempotent
    assert await events_of(made, a=1, b=2) == [Output("3")]


async def test_every_kind_of_content_has_its_block(shop: McpServer) -> None:
    text, audio, link, note, blob = await value_of(shop, "everything")
    assert text == Text(text="some text")
    assert audio == File(url="data:audio/wav;base64,AAAA", mime_type="audio/wav")
    assert link == File(url="https://shop.test/a.csv", mime_type="text/csv", name="a.csv", size=3)
    encoded = b64encode(b"# A").decode()
    assert note == File(
        url=f"data:text/x-md;base64,{encoded}", mime_type="text/x-md", name="file:///a.md", size=3
    )
    assert blob == File(
        url="data:application/octet-stream;base64,AAAA",
        mime_type="application/octet-stream",
        name="file:///a.bin",
    )
    (image,) = await value_of(shop, "paint")
    assert isinstance(image, Image)
    assert image.image_url.url.startswith("data:image/png;base64,")
    assert await value_of(shop, "only_data") == {"n": 1}


async def test_an_error_of_the_server_is_a_tool_error(shop: McpServer) -> None:
    with pytest.raises(ToolError, match=r"^The shop is closed\.$"):
        await value_of(shop, "fail")
    with pytest.raises(ToolError, match="gave no reason"):
        await value_of(shop, "fail_silently")
    assert await value_of(shop, "add", a=1, b=2) == "3"


async def test_progress_is_shown_and_a_cancel_reaches_the_server(
    shop: McpServer, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    made = (await open_tools([shop]))["slow"]
    begun = asyncio.Event()
    notes: list[Any] = []

    async def run() -> None:
        async for event in made.invoke({"seen": str(seen)}, Context(cast(Any, None), "call_1")):
            notes.append(event)
            begun.set()

    task = asyncio.create_task(run())
    async with asyncio.timeout(120):
        await begun.wait()
        task.cancel()
        await asyncio.wait({task})
        await until(seen.exists)  # another process writes it
    assert notes == [Notify("begun", 0.25)]
    assert await value_of(shop, "add", a=1, b=2) == "3"


async def test_a_dead_server_is_a_tool_error_and_is_connected_again(
    shop: McpServer, request: pytest.FixtureRequest
) -> None:
    listed = await open_tools([shop])
    with pytest.raises(McpUnavailable, match="The MCP server"):
        await events_of(listed["die"])
    if "http" in request.node.name:
        with pytest.raises(McpUnavailable):
            await events_of(listed["add"], a=1, b=2)
        request.getfixturevalue("http_shop").start()
    assert await events_of(listed["add"], a=1, b=2) == [Output("3")]


async def test_a_server_that_died_between_two_runs_is_started_again() -> None:
    server = mcp_server(command=SHOP)
    pid = int((await value_of(server, "who_am-i")).split()[0])
    os.kill(pid, signal.SIGKILL)
    assert int((await value_of(server, "who_am-i")).split()[0]) != pid
    await server.close()


async def test_one_connection_serves_all_calls_and_gets_the_environment(shop: McpServer) -> None:
    found = await asyncio.gather(*(value_of(shop, "who_am-i") for _ in range(5)))
    assert len(set(found)) == 1
    assert found[0].endswith("hello" if shop._command else "None")


async def test_a_server_ends_when_it_is_closed() -> None:
    server = mcp_server(command=SHOP)
    pid = int((await value_of(server, "who_am-i")).split()[0])
    await server.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    await server.close()


def test_a_server_serves_one_event_loop_after_another() -> None:
    server = mcp_server(command=SHOP)
    first = asyncio.run(value_of(server, "who_am-i")).split()[0]
    with pytest.raises(ProcessLookupError):
        os.kill(int(first), 0)  # it ended with its loop
    assert asyncio.run(value_of(server, "who_am-i")).split()[0] != first
    asyncio.run(server.close())


@pytest.mark.parametrize(
    "server",
    [
        mcp_server(command=["/no/such/program"], name="gone"),
        mcp_server(command=[sys.executable, "-c", "pass"], name="gone"),
        mcp_server(url="http://127.0.0.1:9/mcp?key=sk-secret"),
    ],
    ids=["no program", "ends at once", "no server"],
)
async def test_a_server_that_is_not_there_is_a_tool_error_without_secrets(
    server: McpServer,
) -> None:
    with pytest.raises(McpUnavailable) as caught:
        await server.tools()
    assert str(caught.value).startswith(f"The MCP server {server.name} ")
    assert "secret" not in str(caught.value)
    assert server.name in ("gone", "127.0.0.1")


async def test_a_server_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_mcp, "CONNECT_SECONDS", 0.5)
    waits = "import sys; sys.stdin.read()"
    server = mcp_server(command=[sys.executable, "-c", waits], name="silent")
    with pytest.raises(McpUnavailable, match=r"did not answer within 0.5 s"):
        await server.tools()


async def test_names_are_chosen_prefixed_and_made_fit_for_providers() -> None:
    server = mcp_server(
        command=SHOP,
        prefix="shop_",
        only={"add", "who.am-i"},
        needs_approval={"add"},
        timeout=5,
    )
    listed = await open_tools([server])
    assert list(listed) == ["shop_add", "shop_who_am-i"]
    assert listed["shop_add"].asks_approval({})
    assert not listed["shop_who_am-i"].asks_approval({})
    assert listed["shop_add"].timeout == 5
    assert repr(server).startswith("<McpServer python")
    await server.close()


@pytest.mark.parametrize(
    "given", [{}, {"command": ["a"], "url": "b"}, {"command": "a b"}, {"command": []}]
)
def test_a_server_has_a_command_or_a_url(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidTool, match="command"):
        mcp_server(**given)


def test_without_the_sdk_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_mcp, "find_spec", lambda _name: None)
    with pytest.raises(InvalidTool, match=r"pip install 'tailrace\[mcp\]'"):
        mcp_server(command=SHOP)


@asynccontextmanager
async def running(agent: Agent) -> AsyncIterator[Tailrace]:
    app = Tailrace([agent], ":memory:")
    async with app.running():
        yield app


async def test_an_agent_calls_the_tools_of_a_server_which_ends_with_the_application() -> None:
    server = mcp_server(command=SHOP)
    model = Scripted([call("add", a=20, b=22)], [call("who_am-i")], [say("Forty-two.")])
    async with running(Agent("clerk", model=model, tools=[server])) as app:
        result = await (await app.start("clerk", "Add.")).result()
    assert result.text == "Forty-two."
    texts = [item["block_list"][0]["text"] for item in result.items if "block_list" in item]
    assert texts[0] == "42"
    with pytest.raises(ProcessLookupError):
        os.kill(int(texts[1].split()[0]), 0)


async def test_the_example_answers_with_a_server_of_its_own() -> None:
    path = Path(__file__).parents[3] / "examples" / "mcp_tools.py"
    example = runpy.run_path(str(path), run_name="mcp_tools")
    async with running(example["librarian"]) as app:
        result = await (await app.start("librarian", "Who wrote Dune?")).result()
    assert result.text == "Frank Herbert wrote it.[^1]"
    (found,) = [item for item in result.items if "call_id" in item and "block_list" in item]
    assert found["block_list"][0]["text"] == "Frank Herbert"


async def test_without_its_server_an_agent_works_on_and_says_so() -> None:
    server = mcp_server(command=["/no/such/program"], name="gone")
    agent = Agent("clerk", model=Scripted([say("Sorry.")]), tools=[server])
    async with running(agent) as app:
        run = await app.start("clerk", "Add.")
        result = await run.result()
        root = (await app._runs.state(run.id)).root
    assert result.text == "Sorry."
    assert root is not None
    assert [note["message"] for note in root.notices] == ["The MCP server gone cannot be reached."]
