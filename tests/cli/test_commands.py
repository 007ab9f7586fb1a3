"""The command line, run as a user runs it."""

from __future__ import annotations

import re
import signal
import socket
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from tailrace import Agent
from tailrace.app import Tailrace
from tailrace.cli.commands import cli
from tailrace.cli.output import coloured
from tailrace.core.errors import CallerError
from tests.cli.commands import ROOT, running, tailrace


def test_a_server_whose_log_is_full_serves_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text((ROOT / "examples" / "weather.py").read_text())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    arguments = ("serve", "mine:app", "--port", str(port))
    with (
        Path("/dev/full").open("wb") as full,
        running(*arguments, cwd=tmp_path, stdout=full) as serving,
    ):
        request = {"model": "weather", "input": "?", "stream": False}
        transport = httpx.HTTPTransport(retries=8)  # while it starts
        with httpx.Client(transport=transport, timeout=20) as client:
            answer = client.post(f"http://127.0.0.1:{port}/v1/responses", json=request)
        assert answer.json()["status"] == "completed"
        assert serving.poll() is None


def test_help_says_what_there_is() -> None:
    shown = tailrace("--help").stdout
    assert "demo" in shown
    assert "serve" in shown
    assert "SQLite" in tailrace("demo", "--help").stdout
    assert "module:name" in tailrace("serve", "--help").stdout
    assert "module:name" in tailrace("worker", "--help").stdout
    assert "reasoning_text" in tailrace("proxy", "--help").stdout


def test_help_shows_a_type_only_where_a_value_follows() -> None:
    shown = tailrace("run", "--help").stdout
    assert "<bool>" not in shown + tailrace("--help").stdout
    assert re.search(r"--approve +Approve every call", shown)
    assert re.search(r"--agent +<str>", shown)
    assert "APPLICATION" in shown


def test_help_fills_the_lines_of_a_narrow_terminal() -> None:
    shown = tailrace("demo", "--help", env={"COLUMNS": "60"}).stdout
    text = shown.partition("A scripted agent")[2].partition("Example")[0]
    assert all(len(line.rstrip()) > 40 for line in text.strip().splitlines()[1:-1])


def test_the_version_is_printed() -> None:
    assert tailrace("--version").stdout.startswith("tailrace 0.")


@pytest.mark.parametrize(("example", "agent"), [("weather", "weather"), ("ask", "assistant")])
def test_an_application_is_served(example: str, agent: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text((ROOT / "examples" / f"{example}.py").read_text())
    with running("serve", "mine:app", "--port", "0", cwd=tmp_path) as serving:
        assert serving.stdout is not None
        found = re.search(r"http://\S+", serving.stdout.readline())
        assert found
        request = {"model": agent, "input": "?", "stream": False}
        answer = httpx.post(f"{found[0]}/v1/responses", json=request).json()
        assert answer["status"] == "completed"
        assert "sunny" in str(answer["output"])
        assert (tmp_path / f"{agent}.db").exists()


def test_a_server_without_a_worker_leaves_the_work_to_another_process(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text((ROOT / "examples" / "weather.py").read_text())
    with (
        running("serve", "mine:app", "--port", "0", "--no-worker", cwd=tmp_path) as serving,
        running("worker", "mine:app", "--metrics", "127.0.0.1:0", cwd=tmp_path) as working,
    ):
        assert serving.stdout is not None
        assert working.stdout is not None
        found = re.search(r"http://\S+", serving.stdout.readline())
        assert found
        numbers = re.search(r"works .* at (http://\S+)", working.stdout.readline())
        assert numbers
        request = {"model": "weather", "input": "?"}
        answer = httpx.post(f"{found[0]}/v1/responses", json=request, timeout=30).json()
        assert answer["status"] == "completed"
        page = httpx.get(numbers[1]).text
        assert 'tailrace_runs_ended_total{status="completed"} 1.0' in page
        working.send_signal(signal.SIGTERM)
        assert working.wait() == 0


def test_a_server_collects_garbage_less_often(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import gc\n"
        "from tailrace import Tailrace\n"
        "async def collector(task):\n"
        "    return f'{gc.get_threshold()[0]} {gc.get_freeze_count() > 10_000}'\n"
        "app = Tailrace([collector])\n"
    )
    with running("serve", "mine:app", "--port", "0", cwd=tmp_path) as serving:
        assert serving.stdout is not None
        found = re.search(r"http://\S+", serving.stdout.readline())
        assert found
        request = {"model": "collector", "input": "?", "stream": False}
        answer = httpx.post(f"{found[0]}/v1/responses", json=request, timeout=30).json()
        assert "10000 True" in str(answer["output"])


def test_a_callback_that_exits_ends_neither_the_server_nor_its_stop_signal(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import asyncio, sys\n"
        "from tailrace import Tailrace\n"
        "async def leaves(task):\n"
        "    asyncio.get_running_loop().call_soon(sys.exit, 3)\n"
        "    await asyncio.sleep(0)\n"
        "    with task.message() as message:\n"
        "        message.text('Still here.')\n"
        "app = Tailrace([leaves])\n"
    )
    with running("serve", "mine:app", "--port", "0", cwd=tmp_path) as serving:
        assert serving.stdout is not None
        found = re.search(r"http://\S+", serving.stdout.readline())
        assert found
        request = {"model": "leaves", "input": "?", "stream": False}
        answer = httpx.post(f"{found[0]}/v1/responses", json=request, timeout=30).json()
        assert "Still here." in str(answer["output"])
        serving.send_signal(signal.SIGTERM)
        assert serving.wait() == 0
        assert serving.stderr is not None
        assert "a callback raised SystemExit; the process goes on" in serving.stderr.read()


def test_the_proxy_serves_and_ends_cleanly_at_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text((ROOT / "examples" / "weather.py").read_text())
    with running("serve", "mine:app", "--port", "0", cwd=tmp_path) as serving:
        assert serving.stdout is not None
        backend = re.search(r"http://\S+", serving.stdout.readline())
        assert backend
        pages = "http://localhost:3000, http://localhost:3001"
        command = ("proxy", "--upstream", backend[0], "--port", "0", "--origins", pages)
        with running(*command) as proxy:
            assert proxy.stdout is not None
            line = proxy.stdout.readline()
            assert f"repairs {backend[0]} at http://127.0.0.1:" in line
            url = line.split(" at ")[1].split()[0]
            request = {"model": "weather", "input": "?", "stream": True}
            direct = httpx.post(f"{backend[0]}/v1/responses", json=request)
            answer = httpx.post(f"{url}/v1/responses", json=request)
            assert answer.text.count("\n\n") == direct.text.count("\n\n")
            assert {*answer.headers} == {*direct.headers}
            for port in (3001, 3002):  # the backend refuses the page that the proxy lets through
                headers = {"origin": f"http://localhost:{port}"}
                assert httpx.get(f"{url}/agents", headers=headers).status_code == 403
            proxy.send_signal(signal.SIGINT)
            assert proxy.wait() == 0
            assert proxy.stderr is not None
            line, last = proxy.stderr.read().splitlines()
            assert last == "Stopped."
            assert "a page of 'http://localhost:3002' was refused" in line


def test_mistakes_are_one_clear_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # which the command changes
    (tmp_path / "mine.py").write_text("app = 5\n")
    (tmp_path / "needy.py").write_text("import json\nimport nowhere_to_be_found\n")
    (tmp_path / "wrong.py").write_text("from json import nothing\n")
    (tmp_path / "torn.py").write_text("import json\n\napp = print(\n")
    imports = "from tailrace import Tailrace\n"
    (tmp_path / "blocking.py").write_text(f"{imports}app = Tailrace({{'a': print}})\n")
    for arguments, words in (
        (["serve", "mine"], "module:name"),
        (
            ["serve", "nobody:app"],
            "Module 'nobody' was not found; run this in the folder that has n",
        ),
        (["serve", "no.where:app"], "not found; run this in the folder that has the folder no in"),
        (["serve", "json.where:app"], "Module 'json.where' was not found: json has no where.py."),
        (["serve", "mine.py:app"], "write mine:app"),
        (["serve", "./sub/mine.py"], "write sub.mine:app"),
        (["serve", f"{tmp_path}/mine.py:other"], "names a file; write mine:other"),
        (["serve", "/srv/agents/mine.py:app"], "; in the folder /srv/agents, write mine:app."),
        (["serve", "../mine.py:app"], f"; in the folder {tmp_path.parent}, write mine:app."),
        (["serve", "my-agents/mine.py"], f"in the folder {tmp_path}/my-agents, write mine:app."),
        (["serve", "my-agent.py:app"], "name it main.py, and write main:app."),
        (["serve", "blocking:app"], "tailrace: Agent 'a' is not an async function"),
        (["serve", "blocking:app"], f"({tmp_path / 'blocking.py'}, line 2)"),
        (["serve", "mine:other"], "has no 'other'"),
        (["serve", "mine:app"], "not a Tailrace application; make one there: app = Tailrace("),
        (["serve", "tests.serving_app:app", "--host", "0.0.0.0"], "API keys"),
        (["serve", "tests.serving_app:app", "--keep-events", "soon"], "'soon' is not a duration"),
        (["worker", "tests.serving_app:app", "--keep-runs", "-1d"], "'-1d' is not a duration"),
        (["proxy", "--upstream", "nowhere"], "http://host:port"),
        (["proxy", "--upstream", "http://localhost:1", "--host", "0.0.0.0"], "0.0.0.0"),
        (["proxy", "--upstream", "http://me:secret@localhost:1"], "Authorization"),
        (["proxy", "--upstream", "http://localhost:1", "--port", "65536"], "65535"),
        (["proxy", "--upstream", "http://localhost:1", "--timeout", "0"], "0.1"),
        (["proxy", "--upstream", "http://localhost:1", "--origins", "*"], "`origins` has '*'"),
        (["demo", "--port", "-1"], "--port"),
        (["demo", "--once", "--port", "0", "--pace", "-1"], "--pace"),
        (["demo", "--once", "--port", "0", "--pace", "nan"], "--pace"),
        (
            ["worker", "tests.serving_app:app", "--keep-events", "2d", "--keep-runs", "1d"],
            "shorter",
        ),
        (["serve", ":app"], "module:name"),
        (["serve", "mine:"], "module:name"),
        (["serve", "needy:app"], "needy imports 'nowhere_to_be_found'"),
        (["serve", "needy:app"], f"{tmp_path / 'needy.py'}, line 2"),
        (["serve", "wrong:app"], "cannot import name 'nothing' from 'json'"),
        (["serve", "torn:app"], f"'(' was never closed. Correct {tmp_path / 'torn.py'}, line 3."),
    ):
        monkeypatch.chdir(ROOT if "tests" in arguments[1] else tmp_path)
        done = CliRunner().invoke(cli, arguments)
        shown = " ".join(re.sub("[│╭╮╰╯─]", "", done.stderr).split())
        assert done.exit_code == 2, (arguments, done)
        assert words in shown
        assert "secret" not in shown


def test_no_color_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert coloured("x", "red") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured("x", "red") == "x"


def test_an_export_that_failed_is_not_replayed_as_an_empty_run(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").touch()  # what `tailrace export RUN > trace.jsonl` leaves
    done = tailrace("replay", "trace.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "tailrace: File trace.jsonl has no events; write it again with `tailrace export`.\n"
    )


def test_the_command_line_says_how_long_runs_are_kept() -> None:
    app = Tailrace({}, keep_runs=timedelta(days=1))
    app._configure(app._settings.with_flags({"keep_events": "90s", "keep_runs": None}))
    kept = [app._settings[name] for name in ("keep_events", "keep_runs")]
    assert kept == [timedelta(seconds=90), timedelta(days=1)]
    app._configure(app._settings.with_flags({"keep_events": "15m", "keep_runs": "52w"}))
    kept = [app._settings[name] for name in ("keep_events", "keep_runs")]
    assert kept == [timedelta(minutes=15), timedelta(weeks=52)]


def test_retention_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(CallerError, match="at least as long"):
        Tailrace({}, keep_events=timedelta(days=2), keep_runs=timedelta(days=1))
    with pytest.raises(CallerError, match="`grace`"):
        Tailrace({}, "sqlite://:memory:", grace=timedelta(seconds=-1))
    with pytest.raises(CallerError, match="negative"):
        Tailrace({}, keep_runs=timedelta(days=-1))


def test_an_error_inside_the_module_is_not_taken_for_a_missing_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import json\n\njson.loads('{')\napp = 5\n")
    done = tailrace("serve", "mine:app", cwd=tmp_path)
    assert done.stderr.startswith("tailrace: mine could not be imported: json.decoder.JSONDecode")
    assert done.stderr.count("\n") == 1
    path.write_text("from tailrace import Agent\n\napp = Agent('a', modle='x')\n")
    done = tailrace("serve", "mine:app", cwd=tmp_path)
    assert done.stderr == (
        "tailrace: mine could not be imported: TypeError: Agent has no argument `modle`; "
        f"did you mean `model`? ({path}, line 3).\n"
    )


def test_an_unknown_argument_is_named_with_the_nearest_known() -> None:
    wrong: Any = {"databse": "x"}
    with pytest.raises(TypeError, match="Tailrace has no argument `databse`; did you mean `datab"):
        Tailrace({}, **wrong)
    wrong = {"qqqq": 1}
    with pytest.raises(TypeError, match="Agent has no argument `qqqq`; use name, model, instr"):
        Agent("a", model="test", **wrong)


def test_the_error_names_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = tailrace("demo", "--once", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert "--port 0" in done.stderr


def test_the_error_names_a_database_that_cannot_be_opened(tmp_path: Path) -> None:
    done = tailrace("demo", "--once", "--port", "0", "--db", str(tmp_path / "no" / "folder.db"))
    assert done.returncode == 2
    assert "could not be opened" in done.stderr
    assert "Traceback" not in done.stderr
    for named in (tmp_path, f"sqlite:///{tmp_path}"):
        done = tailrace("serve", "tests.serving_app:app", "--database", str(named), cwd=ROOT)
        wrong = f"The database {tmp_path} is a directory. Name a file in it: {tmp_path}/tailrace.db"
        assert (done.returncode, wrong in done.stderr) == (2, True)


STUBBORN = """
import asyncio
from tailrace import Tailrace

async def stubborn(task):
    print("begun", flush=True)
    while True:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            pass

app = Tailrace([stubborn])
"""


def test_a_server_ends_although_an_agent_ignores_its_cancel(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(STUBBORN)
    with running("serve", "mine:app", "--port", "0", "--grace", "1s", cwd=tmp_path) as serving:
        assert serving.stdout is not None
        found = re.search(r"http://\S+", serving.stdout.readline())
        assert found
        httpx.post(f"{found[0]}/runs", json={"agent": "stubborn", "input": "?"}).raise_for_status()
        assert serving.stdout.readline() == "begun\n"
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(30) == 0


def test_the_error_of_a_setting_outside_of_the_code_names_no_line_of_the_code(
    tmp_path: Path,
) -> None:
    imports = "from datetime import timedelta\nfrom tailrace import Tailrace\n\n"
    (tmp_path / "mine.py").write_text(f"{imports}app = Tailrace({{}})\n")
    (tmp_path / "torn.py").write_text(f"{imports}app = Tailrace({{}}, lease=3)\n")
    file = tmp_path / "tailrace.toml"
    file.write_text("prot = 1\n")
    done = tailrace("serve", "mine:app", cwd=tmp_path)
    wrong = "tailrace: tailrace.toml: unknown setting 'prot'; did you mean 'port'?\n"
    assert (done.returncode, done.stderr) == (2, wrong)
    file.unlink()
    done = tailrace("serve", "mine:app", cwd=tmp_path, env={"TAILRACE_LEASE": "soon"})
    assert done.stderr.startswith("tailrace: TAILRACE_LEASE: 'soon' is not a duration")
    assert "mine.py" not in done.stderr
    done = tailrace("serve", "torn:app", cwd=tmp_path)
    assert f"({tmp_path / 'torn.py'}, line 4)" in done.stderr


def test_a_variable_that_is_no_setting_is_named_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from tailrace import Tailrace\n\n"
        "async def a(task):\n    return 'Hi.'\n\n"
        "app = Tailrace([a], ':memory:')\n"
    )
    env = {"TAILRACE_PROT": "1", "TAILRACE_SERVICE_HOST": "10.0.0.1"}
    done = tailrace("run", "mine:app", "?", cwd=tmp_path, env=env)
    assert done.returncode == 0
    named = "WARNING unknown variables are ignored: TAILRACE_PROT, TAILRACE_SERVICE_HOST\n"
    assert done.stderr.endswith(named)
