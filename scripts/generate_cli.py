"""Writes the reference of the commands into docs/cli.md, below its mark."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import typer.main

from tailrace.cli.commands import cli

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
MARK = "<!-- from here on written by scripts/generate_cli.py -->\n"


def render() -> str:
    """The page as it should be."""
    written = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    root: Any = typer.main.get_command(cli)
    return written + MARK + "".join(_commands(root, "tailrace"))


def _commands(group: Any, path: str) -> list[str]:
    shown: list[str] = []
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            shown += _commands(command, f"{path} {name}")
        else:
            shown.append(_command(command, f"{path} {name}"))
    return shown


def _command(command: Any, path: str) -> str:
    text, _, example = inspect.cleandoc(command.help or "").partition("Example: ")
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    words = [path, *map(_argument, arguments), *(["[OPTIONS]"] if options else [])]
    usage = " ".join(words)
    lines = [f"\n## `{path}`\n", f"\n```\n{usage}\n```\n", f"\n{text.strip()}\n"]
    if example:
        lines.append(f"\n```\n$ {example.strip()}\n```\n")
    if arguments or options:
        lines.append("\n| | |\n| --- | --- |\n")
        lines += [f"| `{_argument(one)}` | {_cell(one.help)} |\n" for one in arguments]
        lines += [f"| {_option(one)} | {_facts(one)} |\n" for one in options]
    return "".join(lines)


def _argument(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name).upper()
    return name if parameter.required else f"[{name}]"


def _option(parameter: Any) -> str:
    return ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _facts(parameter: Any) -> str:
    facts = [_cell(parameter.help)]
    default = parameter.default
    if default not in (None, False, True) and not callable(default):
        facts.append(f"Default: `{default}`.")
    if parameter.envvar:
        facts.append(f"Environment: `{parameter.envvar}`.")
    return " ".join(facts)


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
