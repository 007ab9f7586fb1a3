"""The public API: which names there are, and that docs and examples need no others."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tailrace
from tailrace import (
    Agent,
    CallWriter,
    Context,
    MessageWriter,
    PendingCall,
    ReasoningWriter,
    Result,
    Run,
    Tailrace,
    Task,
    Tool,
)
from tailrace.core import errors, events, items
from tailrace.wire.formats import FORMATS

ROOT = Path(__file__).parents[1]
PUBLIC = (
    "tailrace",
    "tailrace.errors",
    "tailrace.events",
    "tailrace.history",
    "tailrace.models",
    "tailrace.ports",
    "tailrace.testing",
)


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_exists(module: str) -> None:
    found = importlib.import_module(module)
    assert found.__doc__
    assert len(found.__all__) == len(set(found.__all__))
    for name in found.__all__:
        assert getattr(found, name) is not None, name


@pytest.mark.parametrize("module", ["tailrace", "tailrace.testing"])
def test_a_name_that_is_loaded_late_is_listed_once_and_unknown_names_are_refused(
    module: str,
) -> None:
    found = importlib.import_module(module)
    assert set(found._HOMES) == set(found.__all__) - {"__version__"}
    with pytest.raises(AttributeError, match="nothing"):
        found.nothing  # noqa: B018


def test_every_event_item_and_error_is_public() -> None:
    public = set(importlib.import_module("tailrace.events").__all__)
    assert {event.__name__ for event in events.KNOWN} <= public
    for name, value in vars(items).items():
        if inspect.isclass(value) and value.__module__ == items.__name__:
            base = name in ("Fact", "FactWithDefaults")
            assert not issubclass(value, msgspec.Struct) or base or name in public, name
    public = set(importlib.import_module("tailrace.errors").__all__)
    for name, value in vars(errors).items():
        if inspect.isclass(value) and value.__module__ == errors.__name__:
            assert name in public, name


NOT_PUBLIC = {
    "AuthFailed": "an answer to an HTTP request",
    "BodyTimeout": "an answer to an HTTP request",
    "ConnectionExpired": "a message of a WebSocket",
    "KeyReused": "an answer to an HTTP request",
    "PreviousResponseNotFound": "an answer of `/v1/responses`",
    "ThreadNotFound": "an answer of `/v1/messages`",
    "TooManyBodies": "an answer to an HTTP request",
    "Unauthorized": "an answer to an HTTP request",
    "_TooDeep": "the model reads it as the result of a call",
}
"""Errors that no call of the library raises, and where they appear instead."""


def below(cls: type[Any]) -> Iterator[type[Any]]:
    for each in cls.__subclasses__():
        yield each
        yield from below(each)


def test_every_error_that_a_call_can_raise_is_public() -> None:
    for module in pkgutil.walk_packages(tailrace.__path__, "tailrace."):
        if "__main__" not in module.name:
            importlib.import_module(module.name)
    public = importlib.import_module("tailrace.errors")
    found = {each for each in below(errors.TailraceError) if each.__module__[:8] == "tailrace"}
    assert {each.__name__ for each in found} - set(public.__all__) == set(NOT_PUBLIC)
    for each in found:  # and not another error of the same name
        assert each.__name__ in NOT_PUBLIC or getattr(public, each.__name__) is each


def test_the_tree_of_errors_has_every_class_below_its_base() -> None:
    tree: dict[str, str] = {}
    above = {-1: "Exception"}  # by depth
    for line in str(errors.__doc__).splitlines():
        if found := re.match(r"    ([│├└─ ]*)([A-Z]\w+(?:, [A-Z]\w+)*)(?:  |$)", line):
            depth = len(found[1])
            above = {at: name for at, name in above.items() if at < depth}
            names = found[2].split(", ")
            tree |= dict.fromkeys(names, above[max(above)])
            above[depth] = names[-1]
    classes = [each for each in vars(errors).values() if inspect.isclass(each)]
    assert tree == {each.__name__: each.__bases__[0].__name__ for each in classes}


def test_a_star_import_gives_the_public_names() -> None:
    code = "from tailrace import *; Task, Tailrace, Run"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
    assert "Task" in tailrace.__all__


# --- docs and examples ---------------------------------------------------------------------------


def sources() -> dict[str, str]:
    """The Python code of README, docs and examples, by place."""
    found = {}
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in [*pages, ROOT / "CONTRIBUTING.md", ROOT / "conformance" / "README.md"]:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        for number, block in enumerate(blocks):
            found[f"{page.relative_to(ROOT)}:{number}"] = block
    for file in sorted((ROOT / "examples").glob("*.py")):
        found[file.name] = file.read_text(encoding="utf-8")
    return found


SOURCES = sources()


@pytest.mark.parametrize("place", SOURCES)
def test_docs_and_examples_import_public_names_only(place: str) -> None:
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(SOURCES[place], place, "exec", flags)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                assert not alias.name.startswith("tailrace.") or alias.name in PUBLIC, alias.name
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tailrace"):
            assert node.module in PUBLIC, node.module
            listed = importlib.import_module(str(node.module)).__all__
            for alias in node.names:
                assert alias.name in listed, f"{node.module}.{alias.name}"
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "tailrace":
                named = f"tailrace.{node.attr}"
                assert node.attr in tailrace.__all__ or named in PUBLIC, named
            private = node.attr.startswith("_") and not node.attr.endswith("__")
            own = isinstance(node.value, ast.Name) and node.value.id == "self"
            assert own or not private, f"`.{node.attr}` is private"


def test_docs_name_no_private_module() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        for module in re.findall(
            r"`tailrace\.(?!(?:db|toml)`)([a-z_]+)(?:\.[A-Za-z_]+)?[`.(]", text
        ):
            assert f"tailrace.{module}" in PUBLIC, f"{page.name} names tailrace.{module}"


def test_every_public_name_is_explained_in_the_docs() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    sections = dict(
        re.findall(r"^## `([a-z.]+)`\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    )
    assert list(sections) == list(PUBLIC)
    for module, section in sections.items():
        table = section.partition("| name | |")[2].partition("\n\n")[0]
        rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE))
        assert list(rows) == sorted(importlib.import_module(module).__all__), module
        for name, meaning in rows.items():
            assert re.fullmatch(r"[^a-z].*\.", meaning), name


def public_names(cls: type) -> set[str]:
    """The methods, properties and fields of a class that do not begin with `_`."""
    own = [base for base in cls.__mro__ if base.__module__.startswith("tailrace.")]
    code = "".join(map(inspect.getsource, own))
    fields = re.findall(r"\bself\.(\w+)(?:: [^=\n]+)? = ", code)
    return {name for name in (*dir(cls), *fields) if not name.startswith("_")}


def named_in_table(page: str, first_cell: str) -> list[str]:
    """The names in the first column of a table, such as `await ask(question)`."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    [rows] = re.findall(rf"^\| {first_cell} \|.*\n\|.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    cells = "".join(re.findall(r"^\| ([^|]+) \|", rows, re.MULTILINE))
    return re.findall(r"`(?:a?wait |async with )?(\w+)", cells)


TABLES: dict[type, tuple[str, str]] = {
    Tailrace: ("api.md", "app"),
    Run: ("api.md", "run"),
    Result: ("api.md", "result"),
    Agent: ("agents.md", "agent"),
    Context: ("tools.md", "ctx"),
    Tool: ("tools.md", "tool"),
    Task: ("how-to/own-loop.md", "task"),
    MessageWriter: ("how-to/own-loop.md", "message"),
    ReasoningWriter: ("how-to/own-loop.md", "thinking"),
    CallWriter: ("how-to/own-loop.md", "call"),
    PendingCall: ("how-to/own-loop.md", "pending"),
}
"""The page that explains each name of a class, and the first cell of its table."""


@pytest.mark.parametrize("cls", TABLES, ids=lambda cls: cls.__name__)
def test_a_table_of_the_docs_explains_every_name_of_a_class(cls: type) -> None:
    page, variable = TABLES[cls]
    assert sorted(named_in_table(page, f"`{variable}`")) == sorted(public_names(cls))


def test_the_layout_is_what_the_folder_holds() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    layout = text.partition("## Layout")[2].partition("\n## ")[0]
    first_cells = "".join(re.findall(r"^\| (`[^|]+) \|", layout, re.MULTILINE))
    package = ROOT / "src" / "tailrace"
    folders = [found.parent.name for found in package.glob("*/__init__.py")]
    there = sorted(folders + [found.name for found in package.glob("*.py")])
    assert sorted(re.findall(r"`([^`]+)`", first_cells)) == there


def test_contributing_has_the_layers_that_are_checked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["type"] == "layers")
    package = ROOT / "src" / "tailrace"
    code = {one.stem for one in package.iterdir()} - {"inspector"}  # files for browsers
    floors = [
        " | ".join(name for name in re.findall(r"\w+", floor) if name in code) for floor in layers
    ]
    text = " ".join((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
    assert f"`{' → '.join(floors)}`" in text


def test_the_readme_names_every_wire_format_where_it_lists_them() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = text.partition("## Write an agent")[0]
    second = text.partition("**Wire formats**")[2].partition("\n- **")[0]
    for name in FORMATS:
        assert name == "task" or name in first, name
        assert f"`{name}`" in second, name
