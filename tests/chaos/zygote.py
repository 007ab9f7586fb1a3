"""Starts real processes quickly: imports the product once, then forks what it is told to.

It reads orders, one JSON value per line, and answers each with one line:

    {"start": {"argv": […], "env": {…}, "log": path}}    the new process's id
    {"signal": [pid, number]}                            null; after SIGKILL the process is gone
    {"ended": []}                                        [[pid, status], …] of those that ended

Ids are not reused before this process has seen the end of their owners, so that no signal reaches
a stranger. When its input ends, everything that it started is killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import traceback
from contextlib import suppress
from typing import Any, NoReturn


def main() -> None:
    import asyncpg  # type: ignore[import-untyped]  # noqa: F401
    import redis.asyncio  # noqa: F401
    import uvicorn.protocols.http.httptools_impl  # noqa: F401

    import tailrace.app
    import tailrace.buses.redis.bus
    import tailrace.cli
    import tailrace.stores.postgres.store
    import tailrace.stores.sqlite.store  # noqa: F401

    alive: set[int] = set()
    try:
        for line in sys.stdin:
            print(json.dumps(_obey(json.loads(line), alive)), flush=True)
    except KeyboardInterrupt:
        pass
    finally:
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
        for pid in alive:
            os.waitpid(pid, 0)


def _obey(order: dict[str, Any], alive: set[int]) -> Any:
    if "start" in order:
        pid = os.fork()
        if pid == 0:
            _become(**order["start"])
        alive.add(pid)
        return pid
    if "signal" in order:
        pid, number = order["signal"]
        if pid in alive:
            os.kill(pid, number)
            if number == signal.SIGKILL:
                os.waitpid(pid, 0)
                alive.remove(pid)
        return None
    ended = []
    for pid in list(alive):
        gone, status = os.waitpid(pid, os.WNOHANG)
        if gone:
            alive.remove(pid)
            ended.append([pid, os.waitstatus_to_exitcode(status)])
    return ended


def _become(argv: list[str], env: dict[str, str], log: str) -> NoReturn:
    status = 70
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number, there in ((0, nothing), (1, output), (2, output)):
            os.dup2(there, number)
        os.environ.update(env)
        random.seed()
        sys.argv = argv
        from tailrace.cli import main as cli

        cli()
        status = 0
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else 1
    except BaseException:  # noqa: BLE001  # nothing may return into the parent's loop
        with suppress(Exception):
            traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
