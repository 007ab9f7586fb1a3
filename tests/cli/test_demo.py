"""`tailrace demo`: the first minutes of a newcomer."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
import pytest

from tailrace.cli.keyboard import pressed_keys
from tailrace.cli.process import run_loop
from tests.cli.commands import ROOT, running, tailrace, terminal

PARTS = (
    "A plan for Saturday",  # thinking
    "get_weather",  # parallel tools
    "painting the sun over Paris",  # progress
    "archivist",  # a sub-agent inside a sub-agent
    "Jardin du Luxembourg",
    "[^3]",  # a citation of what the sub-agent found
    "book_table",  # approved
    "A table for 2 at Chez Janou is booked",
    "A sunny Saturday in Paris",  # the structured answer
    "completed",
)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the demo's database: a demo that is killed leaves it behind."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_in_a_pipe_the_demo_prints_lines_and_approves_by_itself() -> None:
    done = tailrace("demo", "--once", "--port", "0", "--pace", "0")
    assert done.returncode == 0, done.stderr
    for part in PARTS:
        assert part in done.stdout
    assert "\x1b" not in done.stdout
    assert re.search(r"^  http://127.0.0.1:\d+/#thread_\w+$", done.stdout, re.MULTILINE)
    assert done.stderr == "The call waits for an approval. It is approved after a second.\n"


def test_as_json_the_demo_prints_events_with_every_part_of_a_run() -> None:
    done = tailrace("demo", "--once", "--port", "0", "--pace", "0", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["sequence_number"] for event in events] == list(range(1, len(events) + 1))
    types = {event["type"].removeprefix("task.") for event in events}
    assert types >= {
        "reasoning_summary_text.delta",
        "tool_call_arguments.done",
        "progress",
        "image.delta",
        "image.done",
        "text.annotation.added",
        "reference.imported",
        "input_required",
        "input_received",
        "structured_output.done",
        "usage",
        "completed",
    }
    assert [event["agent"] for event in events if event["type"] == "task.created"] == [
        "assistant",
        "guide",
        "archivist",
    ]
    names = [
        event["item"]["name"]
        for event in events
        if event["type"] == "task.output_item.done" and event["item"]["type"] == "tool_call"
    ]
    assert names[:2] == ["get_weather", "paint"]  # both before the first result


def test_in_a_terminal_the_demo_asks_and_ctrl_c_ends_it() -> None:
    with terminal("demo", "--port", "0", "--pace", "0") as demo:
        demo.until("Press y to approve")
        assert "Chez Janou is booked" not in demo.text
        demo.press("xy")
        shown = demo.until("Ctrl-C stops the server.")
        command = re.search(r"^ +(\S+) replay run_", shown, re.MULTILINE)
        assert command
        assert shutil.which(command[1]), "the printed command can be typed as it is"
        for part in PARTS:
            # Progress is gone when it is over: a slow machine may never draw it.
            assert part in shown or part.startswith("painting")
        assert "\x1b[2;3m" in demo.raw  # thinking is dim
        assert "▀" in shown  # the image
        demo.press("\x03")
        assert demo.end() == 0
        assert "Traceback" not in demo.text


def test_a_taken_port_is_left_to_its_program() -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # taken already, by another program
            taken.bind(("127.0.0.1", 8000))
            taken.listen()
        done = tailrace("demo", "--once", "--pace", "0")
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith("Port 8000 is taken by another program")
        assert ":8000/" not in done.stdout
        given = tailrace("demo", "--once", "--port", "8000")
        assert given.returncode == 2
        assert given.stderr.startswith("tailrace: Port 8000 of 127.0.0.1 cannot be used")


def test_a_denied_call_is_not_carried_out() -> None:
    with terminal("demo", "--port", "0", "--pace", "0") as demo:
        demo.until("Press y to approve")
        demo.press("n")
        shown = demo.until("Ctrl-C stops the server.")
        assert "A person denied the call" in shown
        assert "is booked" not in shown


def test_a_key_that_was_pressed_before_the_question_does_not_answer_it() -> None:
    with terminal("demo", "--port", "0", "--pace", "0.005") as demo:
        demo.until("get_weather")
        demo.press("y")
        demo.until("Press y to approve")
        demo.press("n")
        shown = demo.until("Ctrl-C stops the server.")
        assert "A person denied the call" in shown
        assert "is booked" not in shown


def test_the_browser_may_answer_before_the_terminal() -> None:
    with terminal("demo", "--port", "0", "--pace", "0") as demo:
        found = re.search(r"curl -N (http\S+)/events", demo.until("Press y to approve"))
        assert found
        [request] = httpx.get(found[1]).json()["requests"]
        answer = {"request_id": request["id"], "approved": True}
        assert httpx.post(f"{found[1]}/input", json=answer).status_code == 202
        assert "is booked" in demo.until("Ctrl-C stops the server.")


def test_the_server_answers_while_the_terminal_does_not_read() -> None:
    with terminal("demo", "--port", "0", "--pace", "0.005") as demo:
        found = re.search(r"curl -N (http\S+)/events", demo.until("in progress"))
        assert found
        demo.press("\x13")  # Ctrl-S: nothing is read from here on
        until = time.monotonic() + 60
        while httpx.get(found[1], timeout=60).json()["status"] != "input_required":
            assert time.monotonic() < until
        demo.press("\x11")
        demo.until("Press y to approve")
        demo.press("y")
        assert "is booked" in demo.until("Ctrl-C stops the server.")


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_demo_while_the_terminal_does_not_read(stop: signal.Signals) -> None:
    with terminal("demo", "--port", "0", "--pace", "0.005") as demo:
        found = re.search(r"curl -N (http\S+)/events", demo.until("in progress"))
        assert found
        demo.press("\x13")  # Ctrl-S, and no Ctrl-Q before the end
        until = time.monotonic() + 60
        while httpx.get(found[1], timeout=60).json()["status"] != "input_required":
            assert time.monotonic() < until
        demo.signal(stop)
        assert demo.end() == 0


def test_reading_keys_does_not_break_long_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal is one file: if its input does not block, a long line cannot be written."""
    keyboard, screen = pty.openpty()

    async def ask() -> str:
        with pressed_keys(True) as keys:
            assert os.get_blocking(screen)
            os.write(keyboard, b"y")
            return await asyncio.wait_for(keys.get(), 10)

    with os.fdopen(keyboard), os.fdopen(screen) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        answers: list[str] = []

        async def main() -> None:
            answers.append(await ask())

        run_loop(main())
        assert answers == ["y"]


def test_ctrl_c_in_the_middle_of_the_run_ends_the_demo_cleanly() -> None:
    with terminal("demo", "--port", "0", "--pace", "0.02") as demo:
        demo.until("get_weather")
        demo.press("\x03")
        assert demo.end() == 0
        assert "Traceback" not in demo.text


CTRL_C_DURING_IMPORTS = """
import sys

class CtrlC:
    def find_spec(self, name, *more):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, CtrlC())
from tailrace.cli import main
main()
"""


def test_ctrl_c_while_the_command_starts_ends_it_without_a_traceback() -> None:
    command = [sys.executable, "-c", CTRL_C_DURING_IMPORTS]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "")


def test_make_demo_ends_at_ctrl_c_without_an_error_of_make() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search(r"^demo: .*\n\t@(.*)$", makefile, re.MULTILINE)
    assert recipe
    # The shell of the recipe waits for the demo, then ends well.
    script = recipe[1].replace("$(BIN)/python -m tailrace demo", "kill -INT $$; (exit 130)")
    # A shell in the background ignores Ctrl-C, and its children could not trap it.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    assert subprocess.run(["sh", "-c", script], check=False, preexec_fn=heard).returncode == 0


def test_the_demo_serves_on_and_ends_cleanly_at_a_signal() -> None:
    with running("demo", "--port", "0", "--pace", "0") as demo:
        assert demo.stdout is not None
        url = ""
        for line in demo.stdout:
            found = re.search(r"curl -N (http\S+/events)$", line.rstrip())
            url = found[1] if found else url
            if "Ctrl-C stops" in line:
                break
        assert "task.completed" in httpx.get(url).text
        demo.send_signal(signal.SIGINT)
        assert demo.wait() == 0
        assert demo.stderr is not None
        assert "Traceback" not in demo.stderr.read()


def test_a_key_chooses_a_model_only_if_its_package_is_there() -> None:
    from tailrace.cli.demo import model_of_key

    printed: list[str] = []
    assert model_of_key({}, printed.append) == "scripted"
    assert (
        model_of_key({"OPENAI_API_KEY": "k"}, printed.append, lambda _: True) == "openai:gpt-5-mini"
    )
    assert "--model scripted" in printed[-1]
    missing = model_of_key({"ANTHROPIC_API_KEY": "k"}, printed.append, lambda _: False)
    assert missing == "scripted"
    assert "pip install 'tailrace[anthropic]'" in printed[-1]


def test_an_unknown_model_is_one_sentence() -> None:
    done = tailrace("demo", "--once", "--port", "0", "--model", "nothing:x")
    assert done.returncode == 2
    assert done.stderr.startswith("tailrace: Unknown model provider 'nothing'")
    assert len(done.stderr.splitlines()) == 1
