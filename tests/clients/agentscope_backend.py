"""An agent on the real agentscope-runtime, run by the Python of `.venv-agentscope`.

It says one thought and one answer, word by word: each message is all so far, as it has to be.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from agentscope.message import Msg  # type: ignore[import-not-found]
from agentscope_runtime.engine.app import AgentApp  # type: ignore[import-not-found]

THOUGHT = ("Sun ", "or ", "rain? ", "Sun.")
ANSWER = ("It ", "is ", "sunny.")

app = AgentApp(app_name="thinker", app_description="It thinks, then it answers.")


@app.query(framework="agentscope")  # type: ignore[untyped-decorator]
async def query(_self: Any, **_: Any) -> AsyncIterator[tuple[Any, bool]]:
    said: list[str] = []
    first = message("", "")
    for word in (*THOUGHT, *ANSWER):
        said.append(word)
        whole = message("".join(said[: len(THOUGHT)]), "".join(said[len(THOUGHT) :]))
        whole.id = first.id
        yield whole, False
    yield whole, True


def message(thought: str, answer: str) -> Any:
    blocks = [{"type": "thinking", "thinking": thought}]
    if answer:
        blocks.append({"type": "text", "text": answer})
    return Msg("thinker", blocks, "assistant")


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listener])
