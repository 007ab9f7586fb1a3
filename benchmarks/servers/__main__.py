"""One contender in a process of its own: `python -m benchmarks.servers NAME …`.

It prints its address, then serves until it is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
from functools import partial
from typing import Any

import uvicorn

from tailrace.cli.process import relax_collector

PEERS = ("langgraph", "openai-agents", "pydantic-ai")


def main() -> None:
    """Serve one application on a free port."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.servers")
    parser.add_argument("name", choices=("limits", "tailrace", "worker", *PEERS))
    parser.add_argument("--folder", required=True)
    parser.add_argument("--database")
    parser.add_argument("--bus")
    parser.add_argument("--no-worker", action="store_true")
    options = parser.parse_args()
    app: Any
    http: Any = "httptools"
    if options.name == "limits":
        from benchmarks.servers.limits import Limits

        app = Limits(options.folder, options.database, options.bus)
    elif options.name in PEERS:
        from benchmarks.servers import peers

        app = peers.application(options.name)
    else:
        from benchmarks.servers.product import application
        from tailrace.server.transport.http_protocol import BoundedHttp

        http = BoundedHttp  # as `tailrace serve` has it
        app = application(options.database, options.bus, worker=not options.no_worker)
    if options.name == "worker":
        import uvloop

        uvloop.run(_work(app))
        return
    listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        app, log_level="warning", loop="uvloop", http=http, lifespan="on", access_log=False
    )
    server = uvicorn.Server(config)
    if options.name == "tailrace":
        server.startup = partial(_start, server.startup)  # type: ignore[method-assign]
    server.run(sockets=[listening])


async def _start(start: Any, sockets: Any) -> None:
    """As `tailrace serve` starts."""
    await start(sockets)
    relax_collector()


async def _work(app: Any) -> None:
    async with app.running():
        relax_collector()
        print("working", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()
