"""An agent with the tools of an MCP server: `tailrace serve examples.mcp_tools:app`, then ask it.

    curl -N localhost:8000/v1/responses -H 'content-type: application/json' \
         -d '{"model": "librarian", "input": "Who wrote Dune?", "stream": true}'

The server is this file, in a process of its own: `python examples/mcp_tools.py`. It needs the MCP
SDK: `pip install 'path/to/tailrace[mcp]'`.
"""

import sys

from tailrace import Agent, Tailrace, mcp_server
from tailrace.models import Scripted, call, say

library = mcp_server(command=[sys.executable, __file__], name="library")
librarian = Agent(
    "librarian",
    model=Scripted([call("find_author", title="Dune")], [say("Frank Herbert wrote it.[^1]")]),
    tools=[library],
)
app = Tailrace([librarian], database="library.db")

if __name__ == "__main__":
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("library", log_level="ERROR")

    @server.tool()
    def find_author(title: str) -> str:
        """Finds who wrote a book."""
        return {"Dune": "Frank Herbert"}.get(title, "unknown")

    server.run()
