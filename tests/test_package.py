"""The package as a newcomer meets it: light to import, and its README runs."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tailrace

ROOT = Path(__file__).parents[1]
HEAVY = (
    "anthropic",
    "apsw",
    "asyncpg",
    "httpcore2",
    "openai",
    "redis",
    "rich",
    "starlette",
    "typer",
    "uvicorn",
)


@pytest.mark.parametrize("module", ["tailrace", "tailrace.errors"])
def test_importing_it_loads_no_framework_database_or_provider(module: str) -> None:
    code = f"import {module}, sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & set(HEAVY)


def test_the_application_is_found_when_it_is_asked_for() -> None:
    from tailrace.app import Tailrace
    from tailrace.runtime.tasks.task import Task
    from tailrace.server.repair_middleware import ResponsesCompat

    assert tailrace.ResponsesCompat is ResponsesCompat
    assert tailrace.Tailrace is Tailrace
    assert tailrace.Task is Task
    with pytest.raises(AttributeError, match="nothing"):
        tailrace.nothing  # noqa: B018


def test_the_readme_shows_the_example_as_it_is() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    example = (ROOT / "examples" / "weather.py").read_text()
    assert blocks[0] in example


def test_the_docs_install_it_and_its_extras_from_a_checkout() -> None:
    """It is not on PyPI, so `pip install tailrace[…]` would find nothing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.py")]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    for page, text in texts.items():
        for path, extras in re.findall(r"pip install '?([^ `']*tailrace)\b\[?([\w,]*)", text):
            assert path == "path/to/tailrace", page
            assert set(filter(None, extras.split(","))) <= set(project["optional-dependencies"])
    [listed] = re.findall(r"They are (`openai`.*?);", texts[ROOT / "README.md"])
    assert set(re.findall(r"\w+", listed)) - {"and"} == set(project["optional-dependencies"]) - {
        "all"
    }


def map_of(name: str) -> tuple[list[str], str]:
    """The files and packages of a folder, and the table in its docstring."""
    folder = ROOT / "src" / "tailrace" / name.replace(".", "/")
    files = [path.stem for path in folder.iterdir() if not path.stem.startswith("__")]
    doc = importlib.import_module(f"tailrace.{name}").__doc__ or ""
    return sorted(files), doc.split("\n\n")[1]


@pytest.mark.parametrize("name", ["core", "server", "runtime.agents"])
def test_the_map_of_a_large_folder_names_each_of_its_files_once(name: str) -> None:
    files, rows = map_of(name)
    named = re.findall(r"\w+", re.sub(r"^\S.*?  ", "", rows, flags=re.MULTILINE))
    assert sorted(named) == files


def test_the_map_of_the_runtime_names_its_packages_in_the_order_of_their_imports() -> None:
    files, rows = map_of("runtime")
    named = re.findall(r"^\w+", rows, flags=re.MULTILINE)
    assert sorted(named) == files
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (floors,) = (
        contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract.get("containers") == ["tailrace.runtime"]
    )
    assert named == [name for floor in floors for name in floor.split(" | ")]


def test_every_file_that_the_readme_names_is_there() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "PROTOCOL.md"):
        text = (ROOT / name).read_text()
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            if not link.startswith("http"):
                assert (ROOT / link).exists(), f"{name} names {link}"


def test_every_make_target_is_documented() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert targets
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    for target in targets[1].split():
        assert f"make {target}" in contributing or target in ("help", "clean"), target


@pytest.mark.parametrize("target", ["test", "soak", "bench"])
def test_a_target_that_starts_real_services_and_clients_installs_them_first(target: str) -> None:
    steps = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "scripts/node-env tests/js" in steps
    assert "scripts/services" in steps
