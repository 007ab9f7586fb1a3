"""How long an import takes, and the start of a server, each in a fresh process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.client import started
from benchmarks.harness import Pace, Table, Target, Times, at_most, progress

IMPORTS = {
    "starlette + uvicorn": "import starlette.applications, starlette.routing, uvicorn",
    "tailrace": "import tailrace",
    "tailrace.app": "import tailrace.app",
    "openai": "import openai",
    "anthropic": "import anthropic",
    "pydantic_ai": "import pydantic_ai",
}
_CODE = "import time; t = time.process_time(); {}; print(time.process_time() - t)"

SERVERS = {
    "starlette + uvicorn": (
        ["main.py"],
        """
import socket
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route


async def health(request):
    return JSONResponse({"status": "ok"})


listening = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
app = Starlette(routes=[Route("/health", health)])
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
""",
    ),
    "tailrace serve": (
        ["-m", "tailrace", "serve", "main:app", "--port", "0"],
        """
from tailrace.app import Tailrace


async def greeter(task):
    with task.message() as message:
        message.text("Hello.")


app = Tailrace({"greeter": greeter}, "runs.db")
""",
    ),
}
"""The arguments of Python, and the `main.py` of the folder in which it starts."""


def run(pace: Pace) -> tuple[list[Table], list[Target]]:
    """The tables of imports and of starts."""
    rounds = min(pace.rounds, 12)
    names = list(IMPORTS)[: pace.amount(full=None, quick=None, once=3)]
    imports, starts = _imports(rounds, names), _starts(rounds)
    return [imports, starts], [
        at_most("import tailrace", 150, imports.best("tailrace", 1) or 0.0, "ms"),
        at_most("start of tailrace serve", 1_000, starts.best("tailrace serve", 1) or 0.0, "ms"),
    ]


def _imports(rounds: int, names: list[str]) -> Table:
    """CPU time of the import statement alone: Python's own start is not in it."""
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            progress(f"imports: round {turn + 1}, {name}")
            code = _CODE.format(IMPORTS[name])
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            )
            seconds[name].append(float(done.stdout))
    times: Times = {1: seconds}
    return Table(
        "imports",
        times,
        ours="tailrace.app",
        limit="starlette + uvicorn",
        unit="import",
        scale=1e3,
        column=lambda _: "ms",
        remark=(
            "`tailrace` alone loads no web framework; `tailrace.app` is all that a server needs, "
            "starlette included. Bytecode is compiled, files are cached."
        ),
    )


def _starts(rounds: int) -> Table:
    """The clock on the wall, from the command to the first answer."""
    seconds: dict[str, list[float]] = {name: [] for name in SERVERS}
    for turn in range(rounds):
        names = list(SERVERS)
        for name in names if turn % 2 == 0 else reversed(names):
            progress(f"start: round {turn + 1}, {name}")
            seconds[name].append(_start(*SERVERS[name]))
    return Table(
        "imports: start of a server",
        {1: seconds},
        ours="tailrace serve",
        limit="starlette + uvicorn",
        unit="start",
        scale=1e3,
        column=lambda _: "ms",
        remark=(
            "On the wall, from starting Python until the address that it printed answers "
            "`GET /health`. `tailrace serve` has an agent, a worker and a database, which each "
            "start makes anew; the other is one route."
        ),
    )


def _start(arguments: list[str], main: str) -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "main.py").write_text(main, encoding="utf-8")
        begun = time.perf_counter()
        with started(arguments, folder) as server:
            answer = server.read("/health")
            taken = time.perf_counter() - begun
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise AssertionError(f"{answer!r} of `python {' '.join(arguments)}`")
    return taken
