"""The command line: `tailrace demo`, `serve`, `worker`, `proxy` and `convert`."""

from __future__ import annotations

import asyncio
import importlib
import math
import os
import re
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import typer.core

from tailrace import __version__
from tailrace.core.errors import StreamCut, TailraceError

cli = typer.Typer(
    help="Tailrace: the stateful streaming runtime for AI agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
Host = Annotated[str, typer.Option(help="Address to listen on; loopback only, for now.")]
KeepEvents = Annotated[
    str | None,
    typer.Option(help="How long ended runs keep their events, e.g. 30d; then their final state."),
]
Grace = Annotated[
    float | None,
    typer.Option(min=0, help="Seconds that runs may take to finish at a stop; default 30."),
]
KeepRuns = Annotated[
    str | None,
    typer.Option(help="After how long ended runs are deleted, e.g. 52w (s, m, h, d, w)."),
]
Database = Annotated[Path, typer.Option("--db", help="SQLite file; made if it is missing.")]


def _finite(seconds: float) -> float:
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is not a number of seconds.")
    return seconds


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tailrace {__version__}")
        raise typer.Exit


@cli.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    pass


@cli.command()
def demo(
    port: Port = 8000,
    pace: Annotated[
        float,
        typer.Option(min=0, callback=_finite, help="Seconds per word of the scripted agent."),
    ] = 0.03,
    db: Annotated[
        Path | None, typer.Option("--db", help="SQLite file; default: a temporary one.")
    ] = None,
    once: Annotated[bool, typer.Option(help="Stop after the run instead of serving on.")] = False,
) -> None:
    """Run a scripted agent on SQLite and show it live: no key, no service."""
    from tailrace import demo as script
    from tailrace.app import Tailrace

    with tempfile.TemporaryDirectory(prefix="tailrace-demo-") as folder:
        app = Tailrace(
            {"assistant": script.assistant(pace)},
            db or Path(folder) / "demo.db",
            grace=timedelta(0),
        )
        _run(app, "127.0.0.1", port, lambda url: _show_run(app, url, script.QUESTION, once=once))


@cli.command()
def serve(
    application: Annotated[str, typer.Argument(help="Your app as module:name, e.g. main:app.")],
    host: Host = "127.0.0.1",
    port: Port = 8000,
    worker: Annotated[
        bool, typer.Option(help="Also work on runs; without, leave them to `tailrace worker`.")
    ] = True,
    keep_events: KeepEvents = None,
    keep_runs: KeepRuns = None,
    grace: Grace = None,
) -> None:
    """Serve your application until Ctrl-C or SIGTERM.

    Then it accepts no new runs, and those that are running may finish. A second
    Ctrl-C ends the wait.
    """
    app = _load(application)
    _set_grace(app, grace)
    _keep(app, keep_events, keep_runs)
    app.worker = app.worker and worker
    _run(app, host, port, _announce)


@cli.command()
def worker(
    application: Annotated[str, typer.Argument(help="Your app as module:name, e.g. main:app.")],
    keep_events: KeepEvents = None,
    keep_runs: KeepRuns = None,
    grace: Grace = None,
) -> None:
    """Work on the runs that wait in your application's database, until Ctrl-C or SIGTERM.

    Then the runs that it has may finish. A second Ctrl-C ends the wait.
    """
    app = _load(application)
    _set_grace(app, grace)
    _keep(app, keep_events, keep_runs)
    app.worker = True
    try:
        _run_loop(_work(app))
    except TailraceError as error:
        _fail(str(error))


@cli.command()
def proxy(
    upstream: Annotated[
        str, typer.Option(help="Your backend, e.g. http://localhost:8090; a path is put in front.")
    ],
    host: Host = "127.0.0.1",
    port: Port = 8000,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1,
            callback=_finite,
            help="Seconds that the backend may be silent before it is given up.",
        ),
    ] = 600.0,
) -> None:
    """Repair the Responses streams of a backend that you cannot change.

    It runs until Ctrl-C. Point your client at the printed address instead of at
    the backend. Reasoning that arrives as response.reasoning_text.* reaches
    clients that read summaries, such as the Vercel AI SDK; missing ids, indexes,
    announcements, sequence numbers and ends are put in. All else passes byte for
    byte.
    """
    from tailrace.server.proxy import Proxy

    async def announce(url: str) -> bool:
        _say(f"Tailrace repairs {app.upstream} at {url}  (Ctrl-C stops it)")
        return True

    try:
        app = Proxy(upstream, silence_seconds=timeout)
    except TailraceError as error:
        _fail(str(error))
    # The backend's own `server` and `date` pass; uvicorn would add a second of each.
    _run(app, host, port, announce, server_header=False, date_header=False)


class _ConvertCommand(typer.core.TyperCommand):
    """Its help lists what the tables hold, which are loaded only then."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Name the formats, and show the help."""
        from tailrace.convert import source_names, target_names

        self.epilog = (
            f"Formats to convert from: {', '.join(source_names())}.\n\n"
            f"Formats to convert to: {', '.join(target_names())}; jsonl is one event a line, "
            "json the final object.\n\n"
            "What is not among the first is only written."
        )
        super().format_help(ctx, formatter)


@cli.command(cls=_ConvertCommand)
def convert(
    from_: Annotated[str, typer.Option("--from", help="What comes in, e.g. openai-chat.")],
    to: Annotated[str, typer.Option(help="What goes out, e.g. vercel-ui.")],
    file: Annotated[str, typer.Argument(help="The stream; - is the standard input.")] = "-",
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="It is JSON lines; otherwise its first byte tells.")
    ] = False,
    run_id: Annotated[
        str, typer.Option(help="The name of the run that a provider's stream becomes.")
    ] = "run_1",
) -> None:
    """Write a stream in another format, as it comes.

    A stream that is cut or broken is brought to a proper end; a sentence says
    so and where, and the exit code is 1.
    """
    from tailrace.convert import Transcoder
    from tailrace.convert.pipe import pump

    try:
        transcoder = Transcoder(from_, to, run_id=run_id, jsonl=jsonl)
        source = sys.stdin.fileno() if file == "-" else os.open(file, os.O_RDONLY)
        code = pump(transcoder, source, sys.stdout.fileno())
    except TailraceError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{file} cannot be read ({error.strerror}).")
    if transcoder.error is not None and not code:
        where = "after" if isinstance(transcoder.error, StreamCut) else "in"
        place = f"{where} event {transcoder.events} of the stream"
        if not transcoder.events:
            place = "nothing in the stream is an event"
        _fail(f"{transcoder.error} ({place})", 1)
    raise typer.Exit(code)


async def _work(app: Any) -> None:
    stop = _on_stop_signal(app)
    async with app.running():
        _say("Tailrace works on what waits  (Ctrl-C stops it)")
        await stop.wait()


def _on_stop_signal(app: Any) -> asyncio.Event:
    """Set at the first SIGINT or SIGTERM; the second ends the wait for running runs."""
    stop = asyncio.Event()

    def heard() -> None:
        if stop.is_set() and hasattr(app, "hurry"):
            app.hurry()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, heard)
    return stop


def _set_grace(app: Any, grace: float | None) -> None:
    if grace is not None:
        app.grace = timedelta(seconds=grace)


def _run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop, which is installed wherever it works."""
    make: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):  # Windows, PyPy
        import uvloop

        make = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(main)


def _load(name: str) -> Any:
    from tailrace.app import Tailrace

    module, _, attribute = name.partition(":")
    if module.endswith(".py"):
        dotted = module.removesuffix(".py").removeprefix("./").replace("/", ".")
        _fail(f"{name!r} names a file; write {dotted}:{attribute or 'app'}.")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        _fail(f"{name!r} names no application; say module:name, for example main:app.")
    sys.path.insert(0, str(Path.cwd()))
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        _fail(_failed_import(module, error))
    except SyntaxError as error:
        place = f"{error.filename}, line {error.lineno}"
        _fail(f"{module} cannot be read: {error.msg} ({place}).")
    except TailraceError as error:
        _fail(f"{error}{_place(error)}")
    found = getattr(loaded, attribute, None)
    if found is None:
        _fail(f"{module} has no {attribute!r}.")
    if not isinstance(found, Tailrace):
        _fail(f"{name} is a {type(found).__name__}, not a Tailrace application.")
    return found


def _failed_import(module: str, error: ImportError) -> str:
    """Say whether `module` itself is missing, or something that it imports."""
    asked = [module.rsplit(".", cut)[0] for cut in range(module.count(".") + 1)]
    if isinstance(error, ModuleNotFoundError) and error.name in asked:
        path = module.replace(".", "/")
        return f"There is no module {error.name!r} here; run this in the folder of {path}.py."
    place = _place(error)
    if isinstance(error, ModuleNotFoundError):
        return f"{module} imports {error.name!r}, which is not installed{place}."
    return f"{module} could not be imported: {error}{place}."


def _place(error: Exception) -> str:
    """The last line of the user's own code that `error` passed."""
    ours = str(Path(__file__).parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.line and not frame.filename.startswith(ours):
            return f" ({frame.filename}, line {frame.lineno})"
    return ""


def _keep(app: Any, events: str | None, runs: str | None) -> None:
    """Let the command line's retention override the application's."""
    try:
        app.keep(
            app.keep_events if events is None else _duration(events),
            app.keep_runs if runs is None else _duration(runs),
        )
    except TailraceError as error:
        _fail(str(error))


def _duration(text: str) -> timedelta:
    """`90s`, `15m`, `12h`, `30d`, `52w`."""
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text)
    if found is None:
        _fail(f"{text!r} is no duration; write 90s, 15m, 12h, 30d or 52w.")
    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    return timedelta(**{units[found[2]]: int(found[1])})


def _fail(message: str, code: int = 2) -> NoReturn:
    typer.secho(f"tailrace: {message}", fg="red", err=True)
    raise typer.Exit(code)


def _run(app: Any, host: str, port: int, then: Any, **options: bool) -> None:
    """Serve until Ctrl-C; `then` runs beside it, and when it returns False the server stops."""
    if host not in ("127.0.0.1", "::1", "localhost"):
        _fail(
            f"There are no API keys yet, so listening on {host} would let everybody in. "
            "Use 127.0.0.1, behind a proxy that checks who asks."
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)  # from here on the address answers, also before the first accept
    except OSError as error:
        _fail(f"Port {port} of {host} cannot be had ({error.strerror}); try --port 0.")
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listener.getsockname()[1]}"
    try:
        _run_loop(_serve(app, listener, url, then, options))
    except KeyboardInterrupt:
        pass
    except TailraceError as error:
        _fail(str(error))
    finally:
        listener.close()


async def _serve(
    app: Any, listener: socket.socket, url: str, then: Any, options: dict[str, bool]
) -> None:
    import uvicorn

    from tailrace.server.http import BoundedHttp

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # ours: uvicorn raises the signal again, which would end the process at once

    config = uvicorn.Config(
        app,
        http=BoundedHttp,
        log_level="warning",
        lifespan="off",
        timeout_graceful_shutdown=5,
        access_log=False,
        **options,  # type: ignore[arg-type]
    )
    server = Server(config)
    stop = _on_stop_signal(app)
    # Not by lifespan events: here a database that cannot be opened is still one clear error.
    async with app.running():
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        beside = asyncio.create_task(then(url))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([serving, beside, stopping], return_when=asyncio.FIRST_COMPLETED)
        if beside.done() and beside.result() is False:
            stop.set()
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        if hasattr(app, "drain"):
            await app.drain()
        app.stop_streams()
        server.should_exit = True
        await serving
        for task in (beside, stopping):
            task.cancel()


async def _announce(url: str) -> bool:
    _say(f"Tailrace is running at {url}  (Ctrl-C stops it)")
    return True


def _say(line: str) -> None:
    """Tell whoever started us. That their log's disk is full is no reason not to serve."""
    with suppress(OSError):
        typer.echo(line)


async def _show_run(app: Any, url: str, question: str, *, once: bool) -> bool:
    from rich.console import Console
    from rich.live import Live

    from tailrace.core.fold import State
    from tailrace.core.view import client_view
    from tailrace.terminal import draw

    console = Console()
    run_id = await app.runs.start("assistant", question)
    events = f"{url}/runs/{run_id}/events"
    console.print(f"Open [bold]{url}[/bold], or follow the same run from another terminal:")
    console.print(f"  curl -N {events}", highlight=False, soft_wrap=True)
    state = State()
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        async for batch in app.runs.follow(run_id):
            for one in batch:
                state.absorb(one.event)
            if batch:
                live.update(draw(client_view(state)), refresh=True)
    console.print()
    if once:
        return False
    console.print("The run is kept; the curl line above replays it, and so does")
    console.print(f"  curl -N '{events}?format=vercel-ui'", highlight=False, soft_wrap=True)
    console.print("Ctrl-C stops the server.")
    return True


def main() -> None:
    """The entry point of the `tailrace` command."""
    cli()


if __name__ == "__main__":
    main()
