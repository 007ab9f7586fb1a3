"""The commands, settings and front ends in the docs run as they are printed.

`test_docs.py` runs the Python. A comment `<!-- not run: reason -->` above a block says why a block
is only read.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tailrace.server.access.auth import create_key
from tailrace.settings import read_settings
from tests.cli.commands import running, tailrace
from tests.node import CLIENT_TS, ROOT, TESTS_JS, run_node
from tests.serving import Served

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?:<!-- (file|not run): .+? -->\n)?```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
GENERATED = "<!-- from here on written by scripts/generate_cli.py -->"
TYPED = ("ts", "tsx", "js")
COMMANDS = {
    "README.md": ('"type":"task.completed"', '"events":"/runs/run_'),
    "docs/auth.md": ("ann  valid", "is revoked."),
    "docs/cli.md": ("✓ assistant completed", "Now a table", "A sunny Saturday"),
    "docs/clients.md": ('"type":"task.snapshot"', "response.completed", "event: run.finished"),
    "docs/convert.md": ('"delta":"Hello!"',),
    "docs/how-to/approvals.md": ('"status":"accepted"',),
}
"""The pages whose commands run here, and some of what they print. The tutorial runs as a whole."""

STARTS = ("make demo", "tailrace demo", "tailrace serve")
"""Commands that do not end: the fixture `demo` is one of them, and tests/cli has the others."""

SHELL = """
set -eo pipefail
curl() { command curl -sS --fail-with-body --max-time 2 "$@" || [ $? = 28 ]; }  # 28: it goes on
"""


class Block(NamedTuple):
    """A block of code of a page."""

    mark: str
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8").partition(GENERATED)[0]
    return [Block(*found) for found in BLOCK.findall(text)]


def commands(page: Path) -> list[str]:
    return [
        line[2:]
        for block in blocks(page)
        if block.mark != "not run" and block.language == ""
        for line in block.text.splitlines()
        if line.startswith("$ ")
    ]


def test_every_block_of_a_page_runs_or_says_why_not() -> None:
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        for mark, language, text in blocks(page):
            assert (
                mark == "not run"
                or language in ("python", "toml", "json", *TYPED)
                or (language == "" and name in COMMANDS and text.startswith("$ "))
                or (language == "console" and name == "docs/tutorial.md")
            ), f"{name}: {text[:80]}"


QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""")
REFUSED_BY_ZSH = re.compile(r"[?*\[]|(?:^|\s)#|[^&\s]&|&[^&\s]")
"""A pattern that matches no file, a comment, or an `&` in the middle of a word."""


def test_every_command_means_the_same_in_zsh() -> None:
    """zsh refuses an address with an unquoted `?`, and takes comments for arguments."""
    found = [
        (page.name, line)
        for page in [*PAGES, CLIENT_TS / "README.md", ROOT / "CONTRIBUTING.md"]
        for _, language, text in BLOCK.findall(page.read_text(encoding="utf-8"))
        for line in text.splitlines()
        if line.startswith("$ ") or language == "sh"
    ]
    assert len(found) > 60
    for name, line in found:
        assert not REFUSED_BY_ZSH.search(QUOTED.sub("", line)), f"{name}: {line}"


@pytest.mark.parametrize(
    "line", ["curl localhost/?a=1", "curl localhost/x&b=2", "ls # all", "ls *.db", 'x "a"?']
)
def test_what_zsh_refuses_is_found(line: str) -> None:
    assert REFUSED_BY_ZSH.search(QUOTED.sub("", line))


# --- commands ------------------------------------------------------------------------------------


class Demo(NamedTuple):
    """The server of the demo, after its run."""

    url: str
    run_id: str


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    with running("demo", "--port", "0", "--pace", "0") as process:
        assert process.stdout is not None
        shown = "".join(iter(process.stdout.readline, "Ctrl-C stops the server.\n"))
        found = re.search(r"(http://\S+)/runs/(run_\w+)/events", shown)
        assert found, shown
        yield Demo(found[1].replace("127.0.0.1", "localhost"), found[2])


def asks(demo: Demo) -> tuple[str, str]:
    """A run that waits for an approval, and the id of its request."""
    run_id = httpx.post(f"{demo.url}/runs", json={"agent": "assistant", "input": "?"}).json()[
        "run_id"
    ]
    with httpx.stream("GET", f"{demo.url}/runs/{run_id}/events", timeout=60) as stream:
        for line in stream.iter_lines():
            if '"type":"task.input_required"' in line:
                return run_id, json.loads(line.removeprefix("data: "))["requests"][0]["id"]
    raise AssertionError("The run did not ask.")


@pytest.mark.parametrize("page", COMMANDS)
def test_the_commands_of_a_page_run_as_they_are_printed(
    page: str, demo: Demo, tmp_path: Path
) -> None:
    view = httpx.get(f"{demo.url}/runs/{demo.run_id}").json()
    events = httpx.get(f"{demo.url}/runs/{demo.run_id}/events").text
    waiting, request = asks(demo) if page.endswith("approvals.md") else (demo.run_id, "")
    key, entry = create_key(tmp_path / "keys.json", "ann")
    assert key
    script = "\n".join(one for one in commands(ROOT / page) if not one.startswith(STARTS))
    for written, meant in (
        ("localhost:8000", demo.url.removeprefix("http://")),
        ("run_5f0c9a1d3b7e2468", demo.run_id),
        ("1f0c2a7e", entry.id),
        ('"agent": "weather"', '"agent": "assistant"'),
        ('"request_id": "…"', f'"request_id": "{request}"'),
    ):
        script = script.replace(written, meant)
    names = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TAILRACE_URL": demo.url,
        "RUN": waiting,
        "THREAD": view["thread_id"],
        "ID": re.findall(r"^id: (\S+)$", events, re.MULTILINE)[3],
    }
    with approving(demo, view["thread_id"]):
        shown = "".join(printed(line, tmp_path, names) for line in script.splitlines())
    for words in COMMANDS[page]:
        assert words in shown, shown[-2000:]


@contextmanager
def approving(demo: Demo, thread_id: str) -> Iterator[None]:
    """Approves what the runs of a thread ask, as a person beside the commands does."""
    done = threading.Event()

    def approve() -> None:
        while not done.wait(0.1):
            for run in httpx.get(f"{demo.url}/threads/{thread_id}").json()["runs"]:
                if run["status"] == "input_required":
                    here = f"{demo.url}/runs/{run['run_id']}"
                    for request in httpx.get(here).json().get("requests", []):
                        answer = {"request_id": request["id"], "approved": True}
                        httpx.post(f"{here}/input", json=answer)

    person = threading.Thread(target=approve)
    person.start()
    try:
        yield
    finally:
        done.set()
        person.join()


def printed(line: str, folder: Path, names: dict[str, str]) -> str:
    """What a line prints. A command of ours alone needs no shell, and starts faster."""
    called, _, file = line.partition(" > ")
    if line.startswith("tailrace ") and "|" not in line:
        done = tailrace(*shlex.split(called)[1:], cwd=folder, env=names)
    else:
        called, file = line, ""
        done = subprocess.run(
            ["bash", "-c", SHELL + line],
            cwd=folder,
            env={**os.environ, **names, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}{done.stderr}"
    if file:
        (folder / file).write_text(done.stdout, encoding="utf-8")
    return done.stdout


def test_the_programs_for_the_openai_sdk_run_with_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = blocks(ROOT / "docs" / "clients.md")
    served = Served(tmp_path / "log.db")
    names: dict[str, Any] = {}
    try:
        for block in page:
            if (block.mark, block.language) == ("not run", "python"):
                program = block.text.replace("http://localhost:8000", served.url)
                exec(program.replace('model="weather"', 'model="assistant"'), names)
        names["client"].close()
    finally:
        served.kill()
    shown = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("response.completed") for line in shown) == 2


# --- settings and JSON ---------------------------------------------------------------------------


def test_the_settings_of_the_docs_are_accepted(tmp_path: Path) -> None:
    found = [one.text for page in PAGES for one in blocks(page) if one.language == "toml"]
    assert found
    for text in found:
        file = tmp_path / "tailrace.toml"
        file.write_text(text, encoding="utf-8")
        read_settings({}, {"TAILRACE_CONFIG": str(file)})  # refuses what is no setting


def test_the_json_of_the_docs_is_json() -> None:
    found = [one.text for page in PAGES for one in blocks(page) if one.language == "json"]
    assert found
    for text in found:
        assert json.loads(text)


# --- front ends ----------------------------------------------------------------------------------


def test_the_front_ends_of_the_docs_are_of_the_right_types(tmp_path: Path) -> None:
    """With the packages of tests/js, whose tests run the same clients."""
    folder = tmp_path / "pages"
    folder.mkdir()
    for page in PAGES:
        for number, block in enumerate(blocks(page)):
            if block.language in ("ts", "tsx"):
                name = f"{page.stem}_{number}.{block.language}"
                (folder / name).write_text(f"{block.text}\nexport {{}};\n", encoding="utf-8")
    assert len([*folder.iterdir()]) >= 5
    for name in ("src", "tsconfig.json"):
        (tmp_path / name).symlink_to(CLIENT_TS / name)
    (tmp_path / "node_modules").symlink_to(TESTS_JS / "node_modules")
    settings = json.loads((CLIENT_TS / "examples" / "tsconfig.json").read_text(encoding="utf-8"))
    settings["compilerOptions"] |= {"noUnusedLocals": False, "noEmit": True}
    (folder / "tsconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    compiler = CLIENT_TS / "node_modules" / "typescript" / "bin" / "tsc"
    run_node([compiler, "--project", folder])


PAGE = """
const [server, key, runId] = process.argv.slice(2);
const ask = fetch;
globalThis.fetch = (path, options) => ask(new URL(path, server), options);
const Source = EventSource;
globalThis.EventSource = class extends Source {
  constructor(path) {
    super(new URL(path, server));
  }
};
%s
events.onmessage = ({ data }) => {
  console.log(data);
  process.exit();
};
events.onerror = () => process.exit(1);
"""
"""A page of the server, for Node: paths are of that server."""


@pytest.mark.parametrize("name", ["docs/auth.md", "docs/clients.md"])
def test_the_page_of_the_docs_opens_a_stream(tmp_path: Path, name: str) -> None:
    """With keys it needs a ticket, without keys it needs nothing."""
    [block] = [one.text for one in blocks(ROOT / name) if one.language == "js"]
    key, _ = create_key(tmp_path / "keys.json", "ann")
    keys = {"TAILRACE_KEYS": str(tmp_path / "keys.json")} if "ticket" in block else {}
    served = Served(tmp_path / "log.db", environment=keys)
    try:
        headers = {"authorization": f"Bearer {key}"}
        body = {"agent": "assistant", "input": "Is it sunny?"}
        started = httpx.post(f"{served.url}/runs", json=body, headers=headers).json()
        (tmp_path / "page.mjs").write_text(PAGE % block, encoding="utf-8")
        page = str(tmp_path / "page.mjs")
        arguments = [page, served.url, key, str(started["run_id"])]
        shown = run_node(["--experimental-eventsource", *arguments])
    finally:
        served.kill()
    assert json.loads(shown)["type"] == "task.created"


def test_the_javascript_of_every_page_runs_above_or_says_why_not() -> None:
    found = {
        (str(page.relative_to(ROOT)), one.mark)
        for page in PAGES
        for one in blocks(page)
        if one.language == "js"
    }
    assert found == {
        ("docs/auth.md", ""),
        ("docs/clients.md", ""),
        ("docs/how-to/ag-ui.md", "not run"),
    }
