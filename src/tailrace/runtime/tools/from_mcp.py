"""The tools of MCP servers, over stdio or HTTP. Needs the SDK: `pip install 'tailrace[mcp]'`.

    files = mcp_server(command=["uvx", "mcp-server-git"])
    agent = Agent("helper", model=…, tools=[files])

A server is connected when its tools are first needed, and once for all runs of the process. If it
dies, calls that are under way fail as tool errors, and the next call connects again.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tailrace.core.data_url import base64_url
from tailrace.core.items import Block, File, Image, ImageUrl, Text
from tailrace.core.tool_output import OCTETS, file
from tailrace.runtime.diagnostics.failures import ToolError
from tailrace.runtime.tools.parameters import InvalidTool
from tailrace.runtime.tools.tool import Context, NeedsApprovalRule, Tool

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, ContentBlock
    from mcp.types import Tool as ListedTool

logger = logging.getLogger("tailrace")

CONNECT_SECONDS = 30.0
"""How long a server may take to start and to list its tools."""

READ_SECONDS = 300.0
"""How long an HTTP server may send nothing during a call."""

CANCEL_SECONDS = 1.0
"""How long a cancel of a call may take to reach the server."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


class McpUnavailable(ToolError):
    """An MCP server that could not be reached, or died during a call."""

    code = "mcp_unavailable"


def mcp_server(
    *,
    command: Sequence[str] | None = None,
    url: str | None = None,
    name: str | None = None,
    prefix: str = "",
    only: Collection[str] | None = None,
    env: dict[str, str] | None = None,
    cwd: str | Path | None = None,
    headers: dict[str, str] | None = None,
    needs_approval: NeedsApprovalRule | Collection[str] = False,
    timeout: float | None = None,
) -> McpServer:
    """The tools of an MCP server, for an agent's `tools`.

    `command` starts a server and speaks over its standard input and output; it gets few variables
    of our environment, and those of `env`. `url` names a server that runs already, which gets
    `headers`. `prefix` is put before the names of its tools, `only` names those to take.
    `needs_approval` may be a set of tools. `timeout` is that of each call, in seconds.
    """
    if (command is None) == (url is None):
        raise InvalidTool("An MCP server has a `command` or a `url`: give one of them.")
    if command is not None and (isinstance(command, str) or not command):
        raise InvalidTool(
            "The `command` of an MCP server is a string or empty; "
            'write a list, as ["uvx", "mcp-server-git"].'
        )
    return McpServer(
        command=command,
        url=url,
        # Not the whole URL: it may have a key in it, and the name stands in messages.
        name=name or (Path(command[0]).name if command else str(urlsplit(url).hostname)),
        prefix=prefix,
        only=only,
        env=env,
        cwd=cwd,
        headers=headers,
        needs_approval=needs_approval,
        timeout=timeout,
    )


class McpServer:
    """An MCP server as a source of tools. See `mcp_server`."""

    def __init__(
        self,
        *,
        command: Sequence[str] | None,
        url: str | None,
        name: str,
        prefix: str,
        only: Collection[str] | None,
        env: dict[str, str] | None,
        cwd: str | Path | None,
        headers: dict[str, str] | None,
        needs_approval: NeedsApprovalRule | Collection[str],
        timeout: float | None,
    ) -> None:
        if find_spec("mcp") is None:
            raise InvalidTool("MCP servers need the MCP SDK: pip install 'tailrace[mcp]'.")
        self.name = name
        self._command = command
        self._url = url
        self._prefix = prefix
        self._only = only
        self._env = env
        self._cwd = cwd
        self._headers = headers
        self._needs_approval = needs_approval
        self._timeout = timeout
        self._connection: _Connection | None = None

    def __repr__(self) -> str:
        return f"<McpServer {self.name}>"

    async def tools(self) -> list[Tool]:
        """The tools that the server lists now; raises `McpUnavailable` if it cannot be reached."""
        try:
            listed = await self._list()
        except McpUnavailable:
            listed = await self._list()  # it may have died since the last run
        return [
            self._tool(found) for found in listed if self._only is None or found.name in self._only
        ]

    async def _list(self) -> list[ListedTool]:
        connection = await self._connected()
        found: list[ListedTool] = []
        cursor: str | None = None
        while True:
            listing = partial(connection.client.list_tools, cursor=cursor)
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    page = await self._ask(connection, listing)
            except TimeoutError:
                await self._leave(connection)
                raise self._unavailable("listed no tools in time") from None
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return found

    def _tool(self, found: ListedTool) -> Tool:
        hints = found.annotations
        approval = self._needs_approval
        if not isinstance(approval, bool) and not callable(approval):
            approval = found.name in approval
        return Tool(
            _NOT_IN_NAMES.sub("_", self._prefix + found.name)[:64],
            function=partial(self._call, found.name),
            description=found.description or found.title or "",
            parameters={"type": "object", **found.input_schema},
            needs_approval=approval,
            idempotent=bool(hints and (hints.idempotent_hint or hints.read_only_hint)),
            timeout=self._timeout,
        )

    async def _call(self, name: str, arguments: dict[str, Any], context: Context) -> Any:
        async def shown(progress: float, total: float | None, message: str | None) -> None:
            context.progress(message or name, progress / total if total else None)

        connection = await self._connected()
        call = partial(connection.client.call_tool, name, arguments, progress_callback=shown)
        return _value(await self._ask(connection, call))

    async def _ask(self, connection: _Connection, request: Any) -> Any:
        """Send a request. Cancelling it tells the server; a connection that breaks ends it."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        asking = asyncio.ensure_future(request())
        try:
            await asyncio.wait({asking, connection.keeper}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.wait({asking}, timeout=CANCEL_SECONDS)
        error = asking.exception() if asking.done() and not asking.cancelled() else None
        if asking.done() and not asking.cancelled() and error is None:
            return asking.result()
        if isinstance(error, MCPError) and error.code != CONNECTION_CLOSED:
            raise ToolError(f"The MCP server {self.name} refused: {error.message}")
        await self._leave(connection)
        if error is None or isinstance(error, MCPError):
            raise self._unavailable("closed the connection")
        logger.warning("MCP server %s: %s", self.name, type(error).__name__)
        raise self._unavailable(f"failed ({type(error).__name__})")

    async def _connected(self) -> _Connection:
        """The connection, opened at the first use and after it broke."""
        loop = asyncio.get_running_loop()
        found = self._connection
        if found is None or found.loop is not loop or found.keeper.done():
            found = self._connection = _Connection(loop, self._client())
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.shield(found.opened)
        except TimeoutError:
            await self._leave(found)
            raise self._unavailable(f"did not answer within {CONNECT_SECONDS:g} s") from None
        except Exception as error:  # noqa: BLE001 - whatever the SDK raises, the server is away
            await self._leave(found)
            logger.warning("MCP server %s: %s", self.name, type(error).__name__)
            raise self._unavailable("cannot be reached") from None
        return found

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        await asyncio.to_thread(import_module, "mcp")  # it takes a second, and others go on
        from mcp import Client, StdioServerParameters

        if self._command is not None:
            program, *arguments = self._command
            server = StdioServerParameters(
                command=program, args=arguments, env=self._env, cwd=self._cwd
            )
            async with Client(server) as client:
                yield client
            return
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        assert self._url is not None
        patience = httpx2.Timeout(CONNECT_SECONDS, read=READ_SECONDS)
        async with (
            httpx2.AsyncClient(headers=self._headers, timeout=patience) as http,
            Client(streamable_http_client(self._url, http_client=http)) as client,
        ):
            yield client

    def _unavailable(self, why: str) -> McpUnavailable:
        return McpUnavailable(f"The MCP server {self.name} {why}.")

    async def _leave(self, connection: _Connection) -> None:
        if self._connection is connection:
            self._connection = None
        await connection.close()

    async def close(self) -> None:
        """Close the connection; a server that was started here ends."""
        if self._connection is not None:
            await self._leave(self._connection)


class _Connection:
    """A connection to a server, opened and closed by a task of its own, as the SDK demands."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, client: AbstractAsyncContextManager[Client]
    ) -> None:
        self.loop = loop
        self.opened: asyncio.Future[Client] = loop.create_future()
        self._closing = asyncio.Event()
        self.keeper = loop.create_task(self._keep(client), name="MCP connection")

    @property
    def client(self) -> Client:
        """The SDK's client, once the connection is open."""
        return self.opened.result()

    async def _keep(self, client: AbstractAsyncContextManager[Client]) -> None:
        try:
            async with client as opened:
                self.opened.set_result(opened)
                await self._closing.wait()
        except BaseException as error:
            if not self.opened.done():
                self.opened.set_exception(
                    error if isinstance(error, Exception) else ConnectionError("cancelled")
                )
                self.opened.exception()  # read, so that asyncio does not warn
            if not isinstance(error, Exception):
                raise

    async def close(self) -> None:
        """End the connection, whatever state it is in. With its event loop it has ended already."""
        if self.loop is not asyncio.get_running_loop():
            return
        self._closing.set()
        if not self.opened.done():
            self.keeper.cancel()
        await asyncio.wait({self.keeper}, timeout=CONNECT_SECONDS)


# --- results -----------------------------------------------------------------------------------


def _value(result: CallToolResult) -> Any:
    """What a call gave: text, blocks, or JSON. An error of the tool is raised."""
    if result.is_error:
        texts = [text for part in result.content if (text := getattr(part, "text", None))]
        raise ToolError("\n".join(texts) or "The tool failed and gave no reason.")
    if not result.content:
        return result.structured_content
    blocks = [_block(part) for part in result.content]
    if len(blocks) == 1 and isinstance(blocks[0], Text):
        return blocks[0].text
    return blocks


def _block(part: ContentBlock) -> Block:
    from mcp.types import BlobResourceContents

    match part.type:
        case "text":
            return Text(text=part.text)
        case "image":
            return Image(image_url=ImageUrl(url=base64_url(part.data, part.mime_type)))
        case "audio":
            return File(url=base64_url(part.data, part.mime_type), mime_type=part.mime_type)
        case "resource_link":
            kind = part.mime_type or OCTETS
            return File(url=str(part.uri), mime_type=kind, name=part.name, size=part.size)
    found = part.resource
    name = str(found.uri)
    kind = found.mime_type or OCTETS
    if isinstance(found, BlobResourceContents):
        return File(url=base64_url(found.blob, kind), mime_type=kind, name=name)
    return file(found.text, name, found.mime_type)
