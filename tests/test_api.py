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
from functools import cache
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
    "BodyTooLarge": "an answer to an HTTP request",
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

GIVES: dict[type, dict[str, type]] = {
    Tailrace: {"start": Run, "run": Run},
    Run: {"result": Result},
    Context: {"task": Task},
    Task: {"message": MessageWriter, "reasoning": ReasoningWriter, "call": CallWriter},
    CallWriter: {"delegate": Task},
    PendingCall: {"delegate": Task},
}
"""The methods and fields whose value is of such a class."""


class Uses(ast.NodeVisitor):
    """Finds what a program uses that is private. The classes of variables are guessed."""

    def __init__(self, source: str, place: str) -> None:
        self.found: list[str] = []
        self.classes: dict[str, type] = {}
        self.foreign: set[str] = set()
        """What other packages name like ours, as the `Agent` of pydantic-ai."""
        flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self.visit(compile(source, place, "exec", flags))

    def check(self, allowed: bool, what: str) -> None:
        if not allowed:
            self.found.append(what)

    def class_of(self, node: ast.expr | None) -> type | None:
        """The class of a value: of a variable, or of what another value gives."""
        if isinstance(node, ast.Name):
            return self.classes.get(node.id)
        if isinstance(node, ast.Await):
            return self.class_of(node.value)
        if isinstance(node, ast.Call):
            return self.named(node.func) or self.class_of(node.func)
        if isinstance(node, ast.Attribute):
            return GIVES.get(self.class_of(node.value) or object, {}).get(node.attr)
        return None

    def name(self, target: ast.expr | None, cls: type | None) -> None:
        if isinstance(target, ast.Name):
            self.classes.pop(target.id, None)
            if cls is not None:
                self.classes[target.id] = cls

    def named(self, node: ast.expr | None) -> type | None:
        """The class that an expression or an annotation names."""
        name = "" if node is None else ast.unparse(node).strip("'\"").removeprefix("tailrace.")
        found = next((cls for cls in TABLES if cls.__name__ == name), None)
        return None if name in self.foreign else found

    def visit_arg(self, node: ast.arg) -> None:
        self.name(ast.Name(node.arg), self.named(node.annotation))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.name(node.target, self.named(node.annotation))
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        self.name(node.targets[0], self.class_of(node.value))

    def visit_withitem(self, node: ast.withitem) -> None:
        self.generic_visit(node)
        self.name(node.optional_vars, self.class_of(node.context_expr))

    def visit_For(self, node: ast.For) -> None:
        called = node.iter.func if isinstance(node.iter, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr == "calls":
            self.name(node.target, PendingCall if self.class_of(called.value) is Task else None)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.check(not alias.name.startswith("tailrace.") or alias.name in PUBLIC, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if module.partition(".")[0] == "tailrace":
            self.check(module in PUBLIC, module)
            listed = importlib.import_module(module).__all__ if module in PUBLIC else ()
            for alias in node.names:
                self.check(alias.name in listed, f"{module}.{alias.name}")
        else:
            self.foreign |= {alias.asname or alias.name for alias in node.names}

    def visit_Call(self, node: ast.Call) -> None:
        if ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__"):
            named = getattr(node.args[0], "value", None) if node.args else None
            if isinstance(named, str) and named.partition(".")[0] == "tailrace":
                self.check(named in PUBLIC, named)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        value = node.value.id if isinstance(node.value, ast.Name) else ""
        if value == "tailrace":
            named = f"tailrace.{node.attr}"
            self.check(node.attr in tailrace.__all__ or named in PUBLIC, named)
        private = node.attr.startswith("_") and not node.attr.endswith("__")
        self.check(not private or value == "self", f".{node.attr}")
        cls = self.class_of(node.value)
        if cls is not None and not private and not node.attr.startswith("__"):
            self.check(node.attr in documented(cls), f"{cls.__name__}.{node.attr}")


@pytest.mark.parametrize("place", SOURCES)
def test_docs_and_examples_use_public_names_only(place: str) -> None:
    assert Uses(SOURCES[place], place).found == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import tailrace.core.fold", "tailrace.core.fold"),
        ("from tailrace.core import fold", "tailrace.core"),
        ("from tailrace import Emitter", "tailrace.Emitter"),
        ("import tailrace\ntailrace.core", "tailrace.core"),
        ("import importlib\nimportlib.import_module('tailrace.core')", "tailrace.core"),
        ("__import__('tailrace.runtime')", "tailrace.runtime"),
        ("async def agent(task: Task) -> None:\n    task.emitter.state", "Task.emitter"),
        ("async def agent(task: 'Task') -> None:\n    task.node.facts", "Task.node"),
        ("async def agent(task: Task) -> None:\n    task._sink", "._sink"),
        ("def tool(ctx: Context) -> None:\n    ctx.task.emitter", "Task.emitter"),
        ("def show(run: Run) -> None:\n    run.store", "Run.store"),
        ("app = Tailrace([])\nrun = await app.start('a')\nrun.state", "Run.state"),
        ("app = Tailrace([])\n(await (await app.start('a')).result()).state", "Result.state"),
        (
            "def f(task: Task):\n    with task.message() as m:\n        m.place",
            "MessageWriter.place",
        ),
        ("def f(task: Task):\n    for c in task.calls():\n        c.place", "PendingCall.place"),
        ("agent: Agent\nagent.family()", "Agent.family"),
    ],
)
def test_private_names_in_a_program_are_found(source: str, found: str) -> None:
    assert found in Uses(source, "planted").found


def test_public_names_in_a_program_pass() -> None:
    source = """
import importlib
from tailrace import Task
importlib.import_module("tailrace.errors")
async def agent(task: Task) -> None:
    with task.call("x") as call, call.delegate("y") as below:
        below.say(task.text)
task = other()
task.anything
from pydantic_ai import Agent
Agent("x").run_stream
"""
    assert Uses(source, "planted").found == []


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


@cache
def documented(cls: type) -> list[str]:
    """The names of a class that its table has."""
    page, variable = TABLES[cls]
    return named_in_table(page, f"`{variable}`")


@pytest.mark.parametrize("cls", TABLES, ids=lambda cls: cls.__name__)
def test_a_table_of_the_docs_explains_every_name_of_a_class(cls: type) -> None:
    assert sorted(documented(cls)) == sorted(public_names(cls))


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
