"""The programs in the docs run as they are printed.

A page runs from top to bottom, as a notebook: its blocks share their names, and may await. A
comment above a block says otherwise: `<!-- file: agent.py -->` also saves it for the commands of
the page, and `<!-- not run: reason -->` only compiles it.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette

from tests import forked
from tests.serving import Served

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(?:<!-- (file|not run): ([^\n]+?) -->\n)?```python\n(.*?)```", re.DOTALL)


def programs(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def run(folder: Path, *arguments: str) -> str:
    done = forked.run(*arguments, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs_as_it_is_printed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    # FastAPI is Starlette with more: the pages use what both have.
    monkeypatch.setitem(sys.modules, "fastapi", SimpleNamespace(FastAPI=Starlette))
    monkeypatch.setenv("OPENAI_API_KEY", "unused")  # models are opened, and not called
    names: dict[str, Any] = {"__name__": "page"}
    loaded = set(sys.modules)
    with asyncio.Runner() as runner:
        for mark, value, block in BLOCK.findall(page.read_text(encoding="utf-8")):
            code = compile(block, page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if mark == "file":
                (tmp_path / value).write_text(block, encoding="utf-8")
            if mark != "not run":
                made = eval(code, names)
                if made is not None:
                    runner.run(asyncio.wait_for(made, 60))
    for name in set(sys.modules) - loaded:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_with_lines_that_no_file_can_have_says_where_to_put_them(page: Path) -> None:
    """Outside of a function, `await` is a syntax error."""
    text = page.read_text(encoding="utf-8")
    for _, _, block in BLOCK.findall(text):
        try:
            compile(block, page.name, "exec")
        except SyntaxError:
            assert "into an `async def main()`, and call `asyncio.run(main())`" in text
            return


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        name = str(page.relative_to(ROOT / "docs"))
        assert name == "README.md" or f"]({name})" in index, name


def test_every_link_of_a_page_leads_to_a_file_and_its_heading() -> None:
    for page in PAGES:
        for link, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", page.read_text("utf-8")):
            if link.startswith("http"):
                continue
            target = (page.parent / link) if link else page
            assert target.exists(), f"{page.relative_to(ROOT)} links to {link}"
            if anchor:
                lines = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE)
                anchors = [re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in lines]
                assert anchor in anchors, f"{page.relative_to(ROOT)} links to {link}#{anchor}"


# --- the reference -------------------------------------------------------------------------------

REFERENCE = ROOT / "docs" / "reference"


def test_the_reference_is_what_the_code_says() -> None:
    script = ROOT / "scripts" / "generate_docs.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


# --- programs and commands -----------------------------------------------------------------------


def test_the_commands_of_the_tutorial_run_as_they_are_printed(tmp_path: Path) -> None:
    page = ROOT / "docs" / "tutorial.md"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    text = page.read_text(encoding="utf-8").replace("8000", port)
    assert "pace=1)" in text
    text = text.replace("pace=1)", "pace=2)")  # the same in half of the time
    for mark, name, block in BLOCK.findall(text):
        assert mark == "file"
        (tmp_path / name).write_text(block, encoding="utf-8")
    commands = re.findall(r"^\$ (.+)$", text, re.MULTILINE)
    script = "\n".join(["set -m", "trap 'kill -9 $(jobs -p)' EXIT", *commands])
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["timeout", "80", "bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": tools, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    shown = done.stdout + done.stderr
    assert "nothing is missing, nothing is twice" in done.stdout, shown
    assert '"reason":"worker_lost"' in done.stdout, shown
    assert done.stdout.count('"type":"task.completed"') == 2, shown
    assert "\n1\n" in done.stdout, shown


def test_the_conversation_of_the_docs_has_two_turns(tmp_path: Path) -> None:
    [program] = [one for one in programs("docs/clients.md") if "asyncio.run" in one]
    assert program in (ROOT / "examples" / "turns.py").read_text(encoding="utf-8")
    assert run(tmp_path, "-W", "error", "-c", program) == (
        "Question 1 was 'Is it sunny?'.\nQuestion 2 was 'And tomorrow?'.\n"
    )


def test_the_docs_show_the_custom_loop_of_the_example() -> None:
    [program] = [one for one in programs("docs/how-to/own-loop.md") if "task.reasoning()" in one]
    assert program in (ROOT / "examples" / "own_loop.py").read_text(encoding="utf-8")


EXTEND = programs("docs/extend.md")


@pytest.mark.parametrize(
    ("number", "last"),
    [(0, "data: task.completed"), (2, "7 events were appended"), (4, "Hello.")],
    ids=["format", "store", "bus"],
)
def test_a_custom_part_works_in_an_application(tmp_path: Path, number: int, last: str) -> None:
    printed = run(tmp_path, "-W", "error", "-c", EXTEND[number])
    assert printed.strip().splitlines()[-1] == last


def test_custom_parts_pass_their_kits(tmp_path: Path) -> None:
    files = {"format": 0, "store": 2, "bus": 4}
    for name, number in files.items():
        program = f"{EXTEND[number]}\n\n{EXTEND[number + 1]}"
        (tmp_path / f"test_{name}.py").write_text(program, encoding="utf-8")
    chosen = "types or append or refused or order or closes or bounded"
    options = ("-p", "no:cacheprovider", "-o", "anyio_mode=auto", "-k", chosen)
    shown = run(tmp_path, "-m", "pytest", *options)
    for name in files:
        assert re.search(rf"^test_{name}\.py \.+ ", shown, re.MULTILINE), shown


def test_the_client_of_the_docs_follows_a_run(tmp_path: Path) -> None:
    served = Served(tmp_path / "log.db")
    try:
        printed = run(tmp_path, "-c", EXTEND[6], served.url, "assistant", "Is it sunny?")
    finally:
        served.kill()
    assert printed.startswith("completed ")


def test_every_program_of_the_guide_to_extensions_is_run() -> None:
    assert len(EXTEND) == 7
