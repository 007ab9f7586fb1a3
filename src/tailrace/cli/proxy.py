"""`tailrace proxy`: repairs the streams of another server."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace.cli.options import Host, Port, finite
from tailrace.cli.output import fail, say
from tailrace.cli.process import run_server
from tailrace.core.errors import TailraceError
from tailrace.settings import NAMES


def proxy(
    upstream: Annotated[
        str, typer.Option(help="Your backend, e.g. http://localhost:8090; a path becomes a prefix.")
    ],
    host: Host = "127.0.0.1",
    port: Port = 8000,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1,
            callback=finite,
            help="Seconds that the backend may send nothing before the request fails.",
        ),
    ] = 600.0,
    origins: Annotated[
        str,
        typer.Option(
            metavar=NAMES.metavar,
            help="Web pages that may call the proxy from another origin, such as "
            "http://localhost:3000.",
        ),
    ] = "",
) -> None:
    """Repair the Responses streams of a backend that you cannot change.

    It runs until Ctrl-C. Point your client at the printed address instead of the
    backend. Reasoning in response.reasoning_text.* is also sent as summaries, for
    clients such as the Vercel AI SDK. Missing ids, indexes, added events, sequence
    numbers and ends are inserted. Everything else passes byte for byte.

    Example: tailrace proxy --upstream http://localhost:8090
    """
    from tailrace.server.proxy import Proxy

    async def announce(url: str) -> bool:
        say(f"Tailrace repairs {app.upstream} at {url}  (Ctrl-C stops it)")
        return True

    try:
        app = Proxy(upstream, silence_seconds=timeout, origins=NAMES.read(origins))
    except TailraceError as error:
        fail(str(error))
    # The backend's own `server` and `date` pass; uvicorn would add a second of each.
    run_server(app, host, port, announce, server_header=False, date_header=False)
