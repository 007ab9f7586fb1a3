"""An agent that wants to exit ends its run and nothing else; Ctrl-C still ends the process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests import forked

AGENTS = """
import asyncio, json, os, signal, sys
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
            run_id = await app.runs.start(agent.__name__, "?")
            assert await app.runs.reader.ended(run_id, 120)
            root = (await app.runs.state(run_id)).root
            found[agent.__name__] = [root.status, root.error.code if root.error else None]
    print(json.dumps(found))
"""

RUNS = "asyncio.run(main(*AGENTS))"
RESTORED = "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
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


def test_ctrl_c_inside_an_agent_ends_the_process(tmp_path: Path) -> None:
    process = run(tmp_path, CTRL_C)
    assert "KeyboardInterrupt" in process.stderr
    assert process.returncode != 0
    assert process.stdout == ""
