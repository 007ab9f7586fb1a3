"""The package as a newcomer meets it: light to import, and its README runs."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
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


def test_importing_it_loads_no_framework_database_or_provider() -> None:
    code = "import tailrace, sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & set(HEAVY)


def test_the_application_is_found_when_it_is_asked_for() -> None:
    from tailrace.app import Tailrace
    from tailrace.runtime.task import Task
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


@pytest.mark.parametrize("name", ["core", "runtime", "server"])
def test_the_map_of_a_large_folder_names_each_of_its_files_once(name: str) -> None:
    folder = ROOT / "src" / "tailrace" / name
    files = {path.stem for path in folder.iterdir() if not path.stem.startswith("__")}
    _, _, rows = (importlib.import_module(f"tailrace.{name}").__doc__ or "").partition("\n\n")
    named = re.findall(r"\w+", re.sub(r"^\S.*?  ", "", rows, flags=re.MULTILINE))
    assert sorted(named) == sorted(files)


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
