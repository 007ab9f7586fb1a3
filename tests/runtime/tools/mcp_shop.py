"""A real MCP server for tests: over stdio, or over HTTP if a port is given."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

server = MCPServer("shop", log_level="CRITICAL")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool(name="who.am-i")
def who_am_i() -> str:
    return f"{os.getpid()} {os.environ.get('SHOP_WORD')}"


@server.tool()
async def slow(seen: str, ctx: Context) -> str:
    await ctx.report_progress(1, 4, "begun")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.to_thread(Path(seen).write_text, "cancelled")
        raise
    return "done"


@server.tool()
async def buy(customer: str, book: str, ctx: Context) -> str:
    await ctx.report_progress(1, 2, "paid")
    with await asyncio.to_thread(Path(book).open, "a") as file:
        file.write(f"{customer}\n")
    return f"{customer} bought it"


@server.tool()
def die() -> str:
    os._exit(3)


@server.tool()
def fail() -> CallToolResult:
    return CallToolResult(content=[TextContent(text="The shop is closed.")], is_error=True)


@server.tool()
def fail_silently() -> CallToolResult:
    return CallToolResult(content=[], is_error=True)


@server.tool()
def paint() -> Image:
    return Image(data=b"\x89PNG\r\n\x1a\n", format="png")


@server.tool()
def everything() -> CallToolResult:
    return CallToolResult(
        content=[
            TextContent(text="some text"),
            AudioContent(data="AAAA", mime_type="audio/wav"),
            ResourceLink(name="a.csv", uri="https://shop.test/a.csv", mime_type="text/csv", size=3),
            EmbeddedResource(
                resource=TextResourceContents(uri="file:///a.md", text="# A", mime_type="text/x-md")
            ),
            EmbeddedResource(resource=BlobResourceContents(uri="file:///a.bin", blob="AAAA")),
        ]
    )


@server.tool()
def only_data() -> CallToolResult:
    return CallToolResult(content=[], structured_content={"n": 1})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
