"""Every event, setting, route, error code, flag and variable is documented.

`docs/reference` is written from the code; these tests look for what its generator would overlook.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import tailrace
from tailrace.cli.commands import cli
from tailrace.core.errors import TailraceError
from tailrace.core.events import KNOWN
from tailrace.models import Patience

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tailrace"
REFERENCE = ROOT / "docs" / "reference"
OTHERS = ("testing", "wire", "repair", "ingest", "scripts")
"""Folders with the codes of other APIs."""


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def sources() -> Iterator[tuple[Path, str]]:
    for path in SOURCE.rglob("*.py"):
        yield path.relative_to(SOURCE), path.read_text(encoding="utf-8")


def below(cls: type[TailraceError]) -> set[type[TailraceError]]:
    return {cls}.union(*(below(each) for each in cls.__subclasses__()))


def test_every_event_and_its_fields_are_documented() -> None:
    reference, protocol = page("docs/reference/events.md"), page("PROTOCOL.md")
    for event in KNOWN:
        tag = str(event.__struct_config__.tag)
        stem, _, end = tag.rpartition(".")
        assert tag in protocol or re.search(rf"`{re.escape(stem)}\.[^|]*`\.{end}`", protocol), tag
        section = reference.partition(f"## `{tag}`\n")[2].partition("\n## ")[0]
        for field in event.__struct_fields__:
            common = field in ("task_id", "sequence_number")
            assert common or f"| `{field}` |" in section, f"{tag}: {field}"


def test_every_error_code_is_documented() -> None:
    for module in pkgutil.walk_packages(tailrace.__path__, "tailrace."):
        if not module.name.startswith("tailrace.testing") and "__main__" not in module.name:
            importlib.import_module(module.name)
    reference = page("docs/reference/errors.md")
    ours = [one for one in below(TailraceError) if one.__module__.startswith("tailrace.")]
    assert len(ours) > 30
    for error in ours:
        assert f"| `{error.code}` |" in reference, error
    for path, text in sources():
        if path.parts[0] not in OTHERS and "scripts" not in path.parts:
            for code in re.findall(r'ErrorInfo\(\s*code="([a-z_]+)"', text):
                assert f"`{code}`" in reference, f"{path}: {code}"


@pytest.mark.parametrize(
    "settings",
    [
        tailrace.Tailrace,
        tailrace.Agent,
        tailrace.ServerLimits,
        tailrace.Limits,
        tailrace.Memory,
        Patience,
    ],
    ids=lambda settings: settings.__name__,
)
def test_every_setting_is_documented(settings: Any) -> None:
    reference = page("docs/reference/settings.md")
    for name in inspect.signature(settings).parameters:
        assert f"`{name}`" in reference or f"`limits.{name}`" in reference, name


def test_every_variable_is_documented() -> None:
    docs = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    for path, text in sources():
        for name in re.findall(r'"(TAILRACE_[A-Z_]+[A-Z])"', text):
            # For tests of the product itself: it makes the process die at a named place.
            assert name == "TAILRACE_CRASH_AT" or name in docs, f"{path}: {name}"


async def test_every_route_and_query_parameter_is_documented() -> None:
    reference, protocol = page("docs/reference/http.md"), page("PROTOCOL.md")
    app = tailrace.Tailrace({}, "sqlite://:memory:")
    async with app.running():
        assert app._server is not None
        for route in app._server.routes:
            for method in (getattr(route, "methods", None) or {"GET"}) - {"HEAD"}:
                assert f"| `{method} {route.path}` |" in reference, route.path
    for path, text in sources():
        if path.parts[0] == "server":
            for name in re.findall(r'query_params(?:\.get\(|\[)"(\w+)"', text):
                assert re.search(rf"[?&`]{name}[=`]", protocol), f"{path}: {name}"


def test_every_command_and_flag_is_documented() -> None:
    reference = page("docs/cli.md")

    def check(group: Any, path: str) -> None:
        for name, command in group.commands.items():
            title = f"{path} {name}"
            if hasattr(command, "commands"):
                check(command, title)
                continue
            section = reference.partition(f"## `{title}`\n")[2].partition("\n## ")[0]
            assert section, title
            for parameter in command.params:
                for flag in parameter.opts if parameter.param_type_name == "option" else ():
                    assert flag == "--help" or f"`{flag}" in section, f"{title} {flag}"

    check(typer.main.get_command(cli), "tailrace")
