"""Imports the product once, then forks what it is asked to: see `tests/forked.py`.

It reads orders from a socket, one JSON value per message, and answers each with one:

    {"run": […], "cwd": …, "env": {…}, "terminal": …}    with three files: the new process's id
    {"wait": pid}                                        its exit status, when it has ended

Ids are not reused before their ends were asked for, so that no signal reaches a stranger. When the
socket is closed, everything that was started is killed.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import random
import runpy
import signal
import socket
import sys
import threading
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

PRELOADED = """
asyncpg httpcore2 opentelemetry.trace pydantic.plugin._loader redis.asyncio uvloop
rich._emoji_codes rich.live rich.markdown rich.table
typer._adapters typer._click.decorators typer.rich_utils
uvicorn.lifespan.off uvicorn.protocols.http.httptools_impl uvicorn.protocols.websockets.auto
tailrace.app tailrace.cli tailrace.convert.pipe tailrace.demo tailrace.models tailrace.terminal
tailrace.server.access.auth tailrace.server.transport.http_protocol tailrace.server.proxy
tailrace.buses.redis.bus tailrace.stores.postgres.store tailrace.stores.sqlite.store
"""


def main() -> None:
    for name in PRELOADED.split():
        importlib.import_module(name)
    del sys.path[0]  # the folder that this process was started in
    gc.collect()
    gc.freeze()  # else the collector of each process would copy all of these objects
    orders = socket.socket(fileno=int(sys.argv[1]))
    alive: set[int] = set()
    while True:
        message, files, _, _ = socket.recv_fds(orders, 2**20, 3)
        if not message:
            break
        order = json.loads(message)
        if "wait" in order:
            alive.remove(order["wait"])
            answer = os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                orders.close()
                _become(order, files)
            alive.add(answer)
        for file in files:
            os.close(file)
        orders.send(json.dumps(answer).encode())
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


def _become(order: dict[str, Any], files: list[int]) -> NoReturn:
    """Do what `python *order["run"]` does, to its end."""
    status = 1
    try:
        if order["terminal"]:
            os.login_tty(files[0])
        else:
            for number, file in enumerate(files):
                os.dup2(file, number)
        for file in files:
            with suppress(OSError):
                os.close(file)
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update(order["env"])
        sys.stdin = os.fdopen(0, closefd=False)
        sys.stdout = os.fdopen(1, "w", 1, closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        random.seed()
        # It reads the environment.
        importlib.reload(sys.modules["tailrace.runtime.diagnostics.crash_points"])
        _run(order["run"])
        status = 0
    except SystemExit as ending:
        status = 0 if ending.code is None else 1
        if isinstance(ending.code, int):
            status = ending.code
        elif ending.code is not None:
            print(ending.code, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001  # nothing may return into the parent's loop
        traceback.print_exc()
        if isinstance(error, KeyboardInterrupt):
            status = 128 + signal.SIGINT
    finally:
        with suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(status)


def _run(arguments: list[str]) -> None:
    while arguments[0] == "-W":
        assert arguments[1] == "error", arguments
        warnings.simplefilter("error")
        arguments = arguments[2:]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [str(Path.cwd()), *filter(None, paths)]
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main()
