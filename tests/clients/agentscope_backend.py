"""An agent on the real agentscope-runtime, run by the Python of `.venv-agentscope`.

It says one thought and one answer, word by word: each message is all so far, as it has to be. It is
served twice, as it is and with our middleware added. The arguments are the folders that have our
package and what it needs; they come last, so that agentscope-runtime has its own versions.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from agentscope.message import Msg  # type: ignore[import-not-found]
from agentscope_runtime.engine.app import AgentApp  # type: ignore[import-not-found]

sys.path += sys.argv[1:]
from tailrace import ResponsesCompat

THOUGHT = ("Sun ", "or ", "rain? ", "Sun.")
ANSWER = ("It ", "is ", "sunny.")


async def query(_self: Any, **_: Any) -> AsyncIterator[tuple[Any, bool]]:
    words: list[str] = []
    first = message("", "")
    for word in (*THOUGHT, *ANSWER):
        words.append(word)
        whole = message("".join(words[: len(THOUGHT)]), "".join(words[len(THOUGHT) :]))
        whole.id = first.id
        yield whole, False
    yield whole, True


def message(thought: str, answer: str) -> Any:
    blocks = [{"type": "thinking", "thinking": thought}]
    if answer:
        blocks.append({"type": "text", "text": answer})
    return Msg("thinker", blocks, "assistant")


def agent_app() -> Any:
    app = AgentApp(app_name="thinker", app_description="It thinks, then it answers.")
    app.query(framework="agentscope")(query)
    return app


async def serve() -> None:
    bare, wrapped = agent_app(), agent_app()
    wrapped.add_middleware(ResponsesCompat)
    servers = []
    for name, app in (("bare", bare), ("middleware", wrapped)):
        listener = socket.create_server(("127.0.0.1", 0))
        print(f"{name} http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
        servers.append(server.serve(sockets=[listener]))
    await asyncio.gather(*servers)


if __name__ == "__main__":
    asyncio.run(serve())
