"""The help and the page of the commands say what the commands do."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
import typer.main

from tailrace.cli import screen
from tailrace.cli.commands import cli
from tests.cli.commands import ROOT, environment, tailrace

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
COMMANDS = (
    *("demo", "serve", "worker", "run", "tail", "replay", "fork", "export", "threads", "runs"),
    *("convert", "proxy", "keys", "doctor", "schema"),
)


def generator() -> ModuleType:
    path = ROOT / "scripts" / "generate_cli.py"
    spec = importlib.util.spec_from_file_location("generate_cli", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def every_command(group: Any) -> list[Any]:
    found = []
    for command in group.commands.values():
        found += every_command(command) if hasattr(command, "commands") else [command]
    return found


def test_the_page_of_the_commands_is_up_to_date() -> None:
    assert generator().render() == PAGE, "run `make docs`"


def test_all_commands_are_there() -> None:
    root: Any = typer.main.get_command(cli)
    assert set(root.commands) == set(COMMANDS)


@pytest.mark.parametrize(
    "command", every_command(typer.main.get_command(cli)), ids=lambda c: c.name
)
def test_a_command_has_an_example_and_explains_each_option(command: Any) -> None:
    assert re.search(r"Example: tailrace \w+", command.help)
    for parameter in command.params:
        assert parameter.help, parameter.name


def test_the_exit_codes_are_documented() -> None:
    for code in (0, screen.EXIT_FAILED, 2, screen.EXIT_WAITING, screen.EXIT_INTERRUPTED):
        assert f"| {code} |" in PAGE


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("tailrace re", ["replay"]),
        ("tailrace convert --to ve", ["vercel-ui"]),
        ("tailrace convert --from openai-c", ["openai-chat"]),
    ],
)
def test_shells_can_complete_commands_and_formats(words: str, completed: list[str]) -> None:
    asked = {
        "_TAILRACE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    code = "import sys; sys.argv[0] = 'tailrace'; from tailrace.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment(), **asked},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == completed


def test_an_unknown_command_is_a_sentence() -> None:
    done = tailrace("dance")
    assert done.returncode == 2
    assert "No such command" in done.stderr
    assert "Traceback" not in done.stderr
