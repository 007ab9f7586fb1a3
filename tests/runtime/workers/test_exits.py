"""An agent that wants to exit ends its run and nothing else; Ctrl-C still ends the process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests import forked

AGENTS = """
import asyncio, json, os, signal, sys, threading
from tailrace.app import Tailrace

async def interrupts(task):
    raise KeyboardInterrupt

async def exits(task):
    sys.exit(3)

async def leave():
    await asyncio.sleep(0)
    raise SystemExit("the secret password is hunter2")

async def interrupt():
    raise KeyboardInterrupt

async def sub_task(task):
    await asyncio.create_task(leave())

async def group(task):
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(interrupt())
        tasks.create_task(asyncio.sleep(60))

async def not_awaited(task):
    asyncio.create_task(leave())
    await asyncio.sleep(60)

async def catches(task):
    try:
        await asyncio.create_task(leave())
    except BaseException:
        await asyncio.sleep(60)

async def cancels(task):
    asyncio.create_task(leave()).cancel()
    with task.message() as message:
        message.text("Fine.")

async def by_callbacks(task):
    loop = asyncio.get_running_loop()
    readable, writable = os.pipe()
    os.write(writable, b"!")
    for schedule in (
        lambda: loop.call_soon(sys.exit, "the secret password is hunter2"),
        lambda: loop.call_later(0.001, sys.exit),
        lambda: loop.add_reader(readable, lambda: loop.remove_reader(readable) and sys.exit()),
        lambda: loop.create_task(asyncio.sleep(0)).add_done_callback(sys.exit),
        lambda: threading.Thread(target=loop.call_soon_threadsafe, args=(sys.exit,)).start(),
        lambda: asyncio.Task(interrupt(), loop=loop).add_done_callback(asyncio.Task.exception),
    ):
        schedule()
        later = asyncio.Event()
        loop.call_later(0.01, later.set)
        await later.wait()
    with task.message() as message:
        message.text("Fine.")

async def ctrl_c(task):
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        pass

AGENTS = [interrupts, exits, sub_task, group, not_awaited, catches, cancels]

async def main(*agents):
    app = Tailrace({agent.__name__: agent for agent in agents}, "log.db")
    found = {}
    async with app.running():
        for agent in agents:
            run_id = await app._runs.start(agent.__name__, "?")
            assert await app._runs.reader.ended(run_id, 120)
            root = (await app._runs.state(run_id)).root
            found[agent.__name__] = [root.status, root.error.code if root.error else None]
    print(json.dumps(found))
"""

RUNS = "asyncio.run(main(*AGENTS))"
RESTORED = "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
CALLBACKS = """
from tailrace.runtime.workers.exits import run_to_end
loop = {module}.new_event_loop()
run_to_end(loop, loop.create_task(main(by_callbacks)))
loop.close()
"""
CTRL_C = "asyncio.new_event_loop().run_until_complete(main(ctrl_c))"
UVLOOP = "import uvloop; uvloop.run(main(*AGENTS))"


def run(folder: Path, last: str) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(f"{AGENTS}\n{last}\n")
    return forked.run("-W", "error", script, cwd=folder)


@pytest.mark.parametrize("how", [RUNS, UVLOOP], ids=["asyncio", "uvloop"])
def test_an_exit_of_an_agent_or_of_its_tasks_ends_only_its_run(tmp_path: Path, how: str) -> None:
    process = run(tmp_path, f"{how}\n{RESTORED}")
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    assert found.pop("cancels") == ["completed", None]
    assert len(found) == 6
    assert all(end == ["failed", "agent_error"] for end in found.values()), found
    assert "never" not in process.stderr  # neither awaited nor retrieved
    assert "hunter2" not in process.stderr


# uvloop itself logs the exit of the reader.
@pytest.mark.parametrize(("module", "logged"), [("asyncio", 6), ("uvloop", 5)])
def test_an_exit_of_a_callback_is_logged_and_ends_nothing(
    tmp_path: Path, module: str, logged: int
) -> None:
    process = run(tmp_path, f"import {module}\n{CALLBACKS.format(module=module)}")
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) == {"by_callbacks": ["completed", None]}
    assert process.stderr.count("the process goes on") == logged
    assert "hunter2" not in process.stderr


def test_ctrl_c_inside_an_agent_ends_the_process(tmp_path: Path) -> None:
    process = run(tmp_path, CTRL_C)
    assert "KeyboardInterrupt" in process.stderr
    assert process.returncode != 0
    assert process.stdout == ""
