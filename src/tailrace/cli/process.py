"""Runs an application in this process: the event loop, the port, the stop signals."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import Any

from tailrace.cli import STOP_SIGNALS
from tailrace.cli.output import fail, say_aside, say_at_end
from tailrace.core.errors import TailraceError

_DENIED = "ASGI callable returned without completing handshake."

UNREAD_SECONDS = 5
"""How long clients that do not read keep a server that stops, once its runs and streams have
ended. Then they are cut."""

STOPPED = "Stopped."
"""What a command says at last that a signal has stopped."""

END_SECONDS = 2.0
"""How long a task may take to end after its cancel, when the process ends."""

OBJECTS_TO_COLLECT = 10_000
"""After so many new objects the garbage collector looks for cycles. Python's own number is 700. A
server makes many objects for each event, and hardly any cycles."""


def run_server(
    app: Any,
    host: str,
    port: int,
    then: Any,
    *,
    insecure: bool = False,
    any_port: bool = False,
    **options: bool,
) -> None:
    """Serve until Ctrl-C; `then` runs beside it, and when it returns False the server stops.

    Beyond loopback it needs an application with `auth`, or `insecure`. With `any_port` it takes a
    free port if the port is taken.
    """
    if not _is_loopback(host) and not insecure and getattr(app, "_auth", None) is None:
        fail(
            f"Without API keys, listening on {host} would give everyone access. Make a key with "
            "`tailrace keys create NAME` and set TAILRACE_KEYS=keys.json (docs/auth.md), or use "
            "127.0.0.1 behind a proxy that checks its clients."
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            listener.bind((host, port))
        except OSError as error:
            if not any_port or error.errno != errno.EADDRINUSE:
                raise
            listener.bind((host, 0))
            say_aside(f"Port {port} is taken by another program; here is a free port instead.")
        listener.listen(2048)  # connections are queued from here on
    except OSError as error:
        fail(f"Port {port} of {host} cannot be used ({error.strerror}); try --port 0.")
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listener.getsockname()[1]}"
    try:
        run_loop(_serve(app, listener, url, then, options))
    except KeyboardInterrupt:
        pass
    except TailraceError as error:
        fail(str(error))
    finally:
        listener.close()


async def _serve(
    app: Any, listener: socket.socket, url: str, then: Any, options: dict[str, bool]
) -> None:
    import uvicorn

    from tailrace.server.transport.http_protocol import BoundedHttp

    class SignalFreeServer(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # uvicorn would raise the signal again, which ends the process at once

    config = uvicorn.Config(
        app,
        http=BoundedHttp,
        log_config=None,  # its lines go to the log of the process
        log_level="warning",
        lifespan="off",
        timeout_graceful_shutdown=UNREAD_SECONDS,
        access_log=False,
        ws_per_message_deflate=False,  # its buffers cost more than small messages gain
        **options,  # type: ignore[arg-type]
    )
    server = SignalFreeServer(config)
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    stop = stop_event(app)
    # Not by lifespan events: so a database that cannot be opened is a clear error.
    async with app.running():
        relax_collector()
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        beside = asyncio.create_task(then(url))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([serving, beside, stopping], return_when=asyncio.FIRST_COMPLETED)
        is_over = beside.done() and beside.result() is False
        if is_over:
            stop.set()
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        say_wait(app)
        await app.drain()
        server.should_exit = True
        await serving
        for task in (beside, stopping):
            task.cancel()
    if not is_over:
        say_at_end(STOPPED)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether uvicorn logs more than a refused WebSocket, or a client that is cut at the end."""
    is_cut = record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError)
    return record.msg != _DENIED and not is_cut


def relax_collector() -> None:
    """Collect garbage less often, and never what exists now: modules, agents, the application."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_TO_COLLECT)


def _is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address: all of 127.0.0.0/8, not 127.0.0.1 alone."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def stop_event(app: Any) -> asyncio.Event:
    """Set at the first SIGINT or SIGTERM; the second ends the wait for running runs."""
    stop = asyncio.Event()

    def heard() -> None:
        if stop.is_set() and hasattr(app, "_hurry"):
            if count := _unfinished(app):
                say_at_end(_left(count))
            app._hurry()
        stop.set()

    for number in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, heard)
    return stop


def say_wait(app: Any) -> None:
    """Say how long a stopping process waits for its runs, if there are any."""
    count = _unfinished(app)
    if not count:
        return
    if seconds := app._settings["grace"].total_seconds():
        runs = f"{count} run{'s' * (count > 1)} to end"
        say_at_end(f"Waiting up to {seconds:g} s for {runs}. Ctrl-C again ends the wait.")
    else:
        say_at_end(_left(count))


def _unfinished(app: Any) -> int:
    """How many runs the worker of this process works on."""
    runs = getattr(app, "_opened", None)  # the proxy has no runs
    return 0 if runs is None or runs.worker is None else len(runs.worker.runs)


def _left(count: int) -> str:
    what = f"{count} runs are" if count > 1 else "1 run is"
    return f"{what} interrupted. Another worker continues restartable runs; others end as failed."


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop, which is installed wherever it works. `main` handles Ctrl-C."""
    from tailrace.runtime.workers.exits import run_to_end

    make: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):  # Windows, PyPy
        import uvloop

        make = uvloop.new_event_loop
    # Not `asyncio.Runner`: it waits for ever for a task that goes on after its cancel.
    loop = make()
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        run_to_end(loop, loop.create_task(main))
    finally:
        try:
            run_to_end(loop, loop.create_task(_end_tasks()))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)  # the loop leaves the default handlers behind


async def _end_tasks() -> None:
    """Cancel the tasks that are left, and wait a moment for them."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=END_SECONDS)
