"""Commands about runs: run, tail, replay, fork, export, and the lists."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.cli.server_client import _message
from tests.cli.commands import ROOT, running, tailrace, terminal
from tests.forked import Forked

APP = """
import asyncio
from datetime import timedelta
from pathlib import Path

from tailrace import Agent, Tailrace, tool
from tailrace.models import Scripted, call, say, think


@tool(idempotent=True)
async def wait_for_the_end() -> str:
    while not Path("end").exists():
        await asyncio.sleep(0.02)
    return "It may end."


story = Agent(
    "story",
    model=Scripted(
        [think("A tale."), say("word " * 60), call("wait_for_the_end")], [say("The end.")]
    ),
    tools=[wait_for_the_end],
)


@tool(needs_approval=True)
async def pay(euros: int) -> str:
    return f"{euros} euros were paid."


cashier = Agent(
    "cashier", model=Scripted([call("pay", euros=5)], [say("Done.")]), tools=[pay]
)
broken = Agent("broken", model=Scripted([call("nothing")]))
both = Tailrace([story, cashier, broken], "both.db", lease=timedelta(seconds=1))
app = Tailrace([story], "runs.db", lease=timedelta(seconds=1))
pays = Tailrace([cashier], "pays.db")
fails = Tailrace([broken], "fails.db")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(APP)
    (tmp_path / "weather.py").write_text((ROOT / "examples" / "weather.py").read_text())
    return tmp_path


@contextmanager
def served(folder: Path, app: str, port: int = 0) -> Iterator[tuple[Forked, str]]:
    with running("serve", app, "--port", str(port), cwd=folder) as serving:
        assert serving.stdout is not None
        found = re.search(r"http://\S+", serving.stdout.readline())
        assert found
        yield serving, found[0]


def started(url: str, agent: str, words: str = "Go on.") -> str:
    answer = httpx.post(f"{url}/runs", json={"agent": agent, "input": words})
    return str(answer.json()["run_id"])


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_an_agent_of_a_module_is_asked_without_a_server(folder: Path) -> None:
    done = tailrace("run", "weather:app", "Is it sunny?", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    *lines, end = done.stdout.splitlines()
    assert lines == [
        "> weather: Is it sunny?",
        '→ get_weather {"city":"Paris"}',
        '← [1] {"city":"Paris","temperature":"15C","condition":"Sunny"}',
        "Yes, it is sunny at 15C.[^1]",
    ]
    assert re.fullmatch(r"✓ weather completed · 27 tokens · [0-9.]+ m?s", end)
    assert (folder / "weather.db").exists()


def test_a_run_that_fails_has_the_exit_code_1(folder: Path) -> None:
    done = tailrace("run", "mine:fails", "?", "--json", cwd=folder)
    assert done.returncode == 1
    assert lines(done.stdout)[-1]["type"] == "task.failed"


def test_the_log_of_a_run_is_as_the_settings_say(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from tailrace import Tailrace\n\n"
        "async def broken(task):\n    raise ValueError('the text')\n\n"
        "app = Tailrace([broken], ':memory:')\n"
    )
    quiet = tailrace("run", "mine:app", "?", cwd=tmp_path)
    assert "ValueError" in quiet.stderr
    assert "; --log-level debug shows the text" in quiet.stderr
    assert re.search("The agent failed. The log says why, under err_", quiet.stdout)
    assert "ValueError: the text" not in quiet.stderr
    telling = tailrace("run", "mine:app", "?", cwd=tmp_path, env={"TAILRACE_LOG_LEVEL": "debug"})
    assert "ValueError: the text" in telling.stderr
    flagged = tailrace("run", "mine:app", "?", "--log-level", "debug", cwd=tmp_path)
    assert "ValueError: the text" in flagged.stderr
    wrong = tailrace("run", "mine:app", "?", "--log-level", "loud", cwd=tmp_path)
    assert (wrong.returncode, "--log-level: 'loud' is not one of" in wrong.stderr) == (2, True)


def test_without_a_terminal_an_approval_needs_a_flag(folder: Path) -> None:
    waiting = tailrace("run", "mine:pays", "Pay.", cwd=folder)
    assert waiting.returncode == 3
    assert "waits for an answer" in waiting.stderr
    assert "--approve" in waiting.stderr
    paid = tailrace("run", "mine:pays", "Pay.", "--approve", cwd=folder)
    assert paid.returncode == 0
    assert "5 euros were paid." in paid.stdout


def test_a_followed_run_that_waits_says_how_to_answer_it(folder: Path) -> None:
    with served(folder, "mine:pays") as (_server, url):
        run_id = started(url, "cashier")
        for name in ("tail", "fork"):
            more = ("Again.", "--at", "1") if name == "fork" else ()
            key = ("--key", "any") if name == "fork" else ()
            with running(name, run_id, *more, "--url", url, *key, cwd=folder) as following:
                assert following.stderr is not None
                assert following.stdout is not None
                printed = [following.stderr.readline() for _ in range(3 if name == "fork" else 2)]
                assert f"The run waits for an answer. Give it at {url}/#thread_" in printed[-2]
                command = printed[-1].replace("true", "false")
                assert ("$TAILRACE_KEY" in command) == (name == "fork")
                subprocess.run(["bash", "-c", command], check=True, capture_output=True)
                assert following.wait() == 0
                assert "denied" in following.stdout.read()
        again = tailrace("tail", run_id, "--url", url, cwd=folder)
        assert (again.returncode, again.stderr) == (0, "")


def test_in_a_terminal_an_approval_is_asked_for(folder: Path) -> None:
    with terminal("run", "mine:pays", "Pay.", cwd=folder) as asking:
        asking.until("Press y to approve")
        asking.press("y")
        assert asking.end() == 0
        assert "5 euros were paid." in asking.text


def test_ctrl_c_cancels_the_run(folder: Path) -> None:
    with terminal("run", "mine:app", "Go on.", cwd=folder) as telling:
        telling.until("word word")
        telling.press("\x03")
        assert telling.end() == 130
        assert "cancelled" in telling.text
        assert "Traceback" not in telling.text


def test_a_signal_ends_the_command_while_the_terminal_does_not_read(folder: Path) -> None:
    with (folder / "mine.py").open("a") as file:
        file.write("import tailrace.cli.run\ntailrace.cli.run.CANCEL_SECONDS = 1.0\n")
    with terminal("run", "mine:app", "Tell me a story.", cwd=folder) as story:
        story.until("in progress")
        story.press("\x13")  # Ctrl-S, and no Ctrl-Q before the end
        story.signal(signal.SIGTERM)
        assert story.end() == 130


def test_a_run_is_followed_over_the_death_of_its_server(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with served(folder, "mine:app", port) as (first, url):
        run_id = started(url, "story")
        with running("tail", f"{url}/runs/{run_id}", "--json", cwd=folder) as tailing:
            assert tailing.stdout is not None
            assert tailing.stderr is not None
            seen = []
            for line in tailing.stdout:
                seen.append(line)
                if "text.delta" in line:
                    break
            first.kill()
            assert "The server is away" in tailing.stderr.readline()
            (folder / "end").touch()
            with served(folder, "mine:app", port):
                seen += list(tailing.stdout)
                assert tailing.wait() == 0
                assert tailing.stderr.readline() == "The server is back.\n"
    events = [json.loads(line) for line in seen]
    assert [event["sequence_number"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "task.completed"
    assert any(event["type"] == "task.attempt" for event in events)


def test_ctrl_c_stops_following_and_the_run_goes_on(folder: Path) -> None:
    with served(folder, "mine:app") as (_, url):
        run_id = started(url, "story")
        with terminal("tail", run_id, "--url", url, cwd=folder) as tailing:
            tailing.until("word word")
            tailing.press("\x03")
            assert tailing.end() == 130
            assert "Traceback" not in tailing.text
        (folder / "end").touch()
        assert tailrace("tail", run_id, "--url", url, cwd=folder).returncode == 0


def test_a_run_is_replayed_exported_and_forked(folder: Path) -> None:
    with served(folder, "weather:app") as (_, url):
        run_id = started(url, "weather", "Is it sunny?")
        tailed = tailrace("tail", run_id, "--url", url, cwd=folder)
        assert tailed.returncode == 0, tailed.stderr
        assert "Yes, it is sunny at 15C.[^1]" in tailed.stdout

        assert tailrace("replay", run_id, "--url", url, cwd=folder).stdout == tailed.stdout
        state = tailrace("replay", run_id, "--url", url, "--at", "3", "--json", cwd=folder)
        assert json.loads(state.stdout)["status"] == "in_progress"
        open_items = tailrace("replay", run_id, "--url", url, "--at", "18", cwd=folder)
        assert open_items.stdout.splitlines()[-2:] == [
            "Yes, it is sunny at ",
            "… weather in progress · 11 tokens",
        ]
        behind = tailrace("replay", run_id, "--url", url, "--at", "9999", cwd=folder)
        assert (behind.returncode, "is behind the last" in behind.stderr) == (2, True)

        exported = tailrace("export", run_id, "--url", url, cwd=folder)
        (folder / "trace.jsonl").write_text(exported.stdout)
        events = lines(exported.stdout)
        assert events[0]["type"] == "task.created"
        assert events[-1]["type"] == "task.completed"
        assert tailrace("replay", "trace.jsonl", cwd=folder).stdout == tailed.stdout

        forked = tailrace("fork", run_id, "And now?", "--url", url, "--json", cwd=folder)
        assert forked.returncode == 0, forked.stderr
        assert lines(forked.stdout)[0]["previous_run_id"] == run_id
        middle = tailrace("fork", run_id, "Other?", "--at", "3", "--url", url, cwd=folder)
        assert middle.returncode == 0, middle.stderr
        assert f"continues {run_id} after event 3." in middle.stderr
        behind = tailrace("fork", run_id, "Other?", "--at", "9999", "--url", url, cwd=folder)
        assert (behind.returncode, "has the events 1 to" in behind.stderr) == (2, True)

        listed = tailrace("threads", "--url", url, "--json", cwd=folder)
        [thread] = lines(listed.stdout)
        assert thread["runs"] == 3
        for option in ("--all", "--search=AND now"):
            found = tailrace("threads", option, "--url", url, "--json", cwd=folder)
            assert [each["thread_id"] for each in lines(found.stdout)] == [thread["thread_id"]]
        unknown = tailrace("threads", "--search", "no such words", "--url", url, cwd=folder)
        assert unknown.stdout == ""
        of_thread = tailrace("runs", thread["thread_id"], "--url", url, cwd=folder)
        assert next(line.split("\t")[0] for line in of_thread.stdout.splitlines()) == run_id

    from_file = tailrace(
        *("export", run_id, "--db", "weather.db", "--private", "private.jsonl"), cwd=folder
    )
    assert from_file.stdout == exported.stdout
    assert "Sunny" in (folder / "private.jsonl").read_text()
    assert tailrace("replay", run_id, "--db", "weather.db", cwd=folder).stdout == tailed.stdout


def test_a_replay_in_a_terminal_ends_like_the_run(folder: Path) -> None:
    assert tailrace("run", "weather:app", "?", "--json", cwd=folder).returncode == 0
    first = json.loads(
        tailrace("run", "weather:app", "?", "--json", cwd=folder).stdout.splitlines()[0]
    )
    arguments = ("replay", first["task_id"], "--db", "weather.db", "--speed", "2000")
    with terminal(*arguments, cwd=folder) as replaying:
        assert replaying.end() == 0
        assert "✓ weather completed" in replaying.text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "mine:both", "?"], "several agents; use --agent broken, --agent cashier"),
        (["run", "mine:both", "?", "--agent", "no"], "Unknown agent 'no'"),
        (["tail", "run_1", "--url", "http://127.0.0.1:1"], "does not answer"),
        (["tail", "http://127.0.0.1:1/run_1"], "is not the address of a run"),
        (["tail", "run_1", "--url", "nowhere"], "is not the address of a server"),
        (["fork", "run_1", "?", "--url", "http://127.0.0.1:1"], "does not answer"),
        (["replay", "run_1", "--db", "no.db"], "There is no database no.db; check --db."),
        (["replay", "no.jsonl"], "File no.jsonl cannot be read"),
        (["run", "mine:story", "?"], "not a Tailrace application; write mine:both or mine:app"),
        (["run", "mine:app"], "Missing argument 'QUESTION'. See `tailrace run --help`."),
        (["nothing"], "No such command 'nothing'. See `tailrace --help`."),
        (["export", "run_1", "--private", "p.jsonl"], "--db"),
    ],
)
def test_mistakes_are_one_sentence(folder: Path, arguments: list[str], words: str) -> None:
    done = tailrace(*arguments, cwd=folder)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_server_of_another_kind_is_not_a_tailrace_server() -> None:
    fastapi = b'{"detail": "Not Found"}'
    assert "check --url" in _message(404, fastapi, "http://localhost:8000")


@pytest.mark.parametrize("words", [(), ("keys",)])
def test_without_a_command_the_help_is_shown_once(words: tuple[str, ...]) -> None:
    done = tailrace(*words)
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.count("Usage: tailrace") == 1


def test_the_doctor_says_that_a_server_does_not_answer() -> None:
    done = tailrace("doctor", "--url", "http://127.0.0.1:1")
    assert (done.returncode, done.stderr) == (1, "")
    assert "✗ http://127.0.0.1:1 does not answer" in done.stdout
    assert "→ start it, correct --url" in done.stdout


def test_an_unknown_run_is_named(folder: Path) -> None:
    with served(folder, "weather:app") as (_, url):
        assert "Nothing yet." in tailrace("threads", "--url", url, cwd=folder).stderr
        for command in (
            ["tail", "run_x"],
            ["tail", "trip"],
            ["export", "run_x"],
            ["fork", "run_x", "?"],
        ):
            done = tailrace(*command, "--url", url, cwd=folder)
            assert done.returncode == 2
            assert done.stderr.startswith(f"tailrace: There is no run {command[1]}")
            assert "/events" not in done.stderr


def test_tail_of_a_thread_says_where_its_runs_are(folder: Path) -> None:
    with served(folder, "weather:app") as (_, url):
        body = {"agent": "weather", "input": "?", "thread_id": "trip"}
        httpx.post(f"{url}/runs", json=body).raise_for_status()
        done = tailrace("tail", "trip", "--url", url, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "tailrace: trip is a thread. `tailrace runs trip` lists its runs.\n"


def test_the_schema_equals_the_schema_of_the_conformance_suite() -> None:
    done = tailrace("schema")
    assert done.stdout == (ROOT / "conformance" / "schema.json").read_text()


def test_the_doctor_checks_the_api_keys(folder: Path) -> None:
    def diagnosed(*words: str) -> tuple[int, str]:
        done = tailrace("doctor", *words, cwd=folder, env={"TAILRACE_KEYS": "keys.json"})
        return done.returncode, done.stdout

    for words in ((), ("mine:app",)):
        (folder / "keys.json").unlink(missing_ok=True)
        code, missing = diagnosed(*words)
        assert (code, "✗ there is no file of API keys at keys.json" in missing) == (1, True)
        assert "→ make a key: tailrace keys create NAME --file keys.json" in missing
        (folder / "keys.json").write_text("{")
        code, broken = diagnosed(*words)
        assert (code, "✗ keys.json is not a file of API keys" in broken) == (1, True)
        (folder / "keys.json").write_text('{"keys": []}')
        assert "✗ 0 valid API keys in keys.json" in diagnosed(*words)[1]
        tailrace("keys", "create", "ada", cwd=folder)
        code, right = diagnosed(*words)
        assert (code, "✓ 1 valid API key in keys.json" in right) == (0, True), right


def test_an_application_that_cannot_be_loaded_is_a_finding_among_others(folder: Path) -> None:
    module = 'from tailrace import Agent, Tailrace\napp = Tailrace([Agent("a", model="openai:x")])'
    (folder / "keyless.py").write_text(module)
    for name, words in (("keyless", "✗ No API key: set"), ("nothing", "✗ Module 'nothing' was")):
        done = tailrace("doctor", f"{name}:app", "--url", "http://127.0.0.1:1", cwd=folder)
        assert (done.returncode, done.stderr) == (1, "")
        for each in (words, "✗ http://127.0.0.1:1 does not answer", "✓ SQLite", "2 to fix."):
            assert each in done.stdout, done.stdout


def test_the_doctor_checks_an_application_and_a_server(folder: Path) -> None:
    with served(folder, "weather:app") as (_, url):
        done = tailrace(
            *("doctor", "mine:app", "--url", url),
            cwd=folder,
            env={"OPENAI_API_KEY": "sk-very-secret"},
        )
        assert done.returncode == 0, done.stdout
        for words in (
            "SQLite",
            "OPENAI_API_KEY is set",
            "store answers",
            "bus answers",
            "not buffered",
        ):
            assert words in done.stdout
        assert "very-secret" not in done.stdout


def test_the_doctor_names_tools_that_have_no_description(folder: Path) -> None:
    done = tailrace("doctor", "mine:both", cwd=folder)
    assert done.returncode == 0
    for name in ("wait_for_the_end of agent story", "pay of agent cashier"):
        assert f"· tool {name} has no description\n  → write a docstring" in done.stdout
    assert "no description" not in tailrace("doctor", "weather:app", cwd=folder).stdout


def test_a_server_with_keys_wants_a_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tailrace("keys", "create", "ada", cwd=folder).stdout.strip()
    monkeypatch.setenv("TAILRACE_KEYS", "keys.json")
    with served(folder, "weather:app") as (_, url):
        refused = tailrace("threads", "--url", url, cwd=folder)
        assert (refused.returncode, "TAILRACE_KEY" in refused.stderr) == (2, True)
        given = {"TAILRACE_KEY": key}
        assert tailrace("threads", "--url", url, cwd=folder, env=given).returncode == 0
        found = tailrace("doctor", "--url", url, cwd=folder)
        assert (found.returncode, "wants an API key" in found.stdout) == (1, True)
        assert tailrace("doctor", "--url", url, "--key", key, cwd=folder).returncode == 0


def test_the_doctor_finds_a_proxy_that_buffers_and_says_how_to_fix_it(folder: Path) -> None:
    """The proxy passes the answer on when it is complete, which a stream never is."""
    with (
        served(folder, "weather:app") as (_, url),
        socket.create_server(("127.0.0.1", 0)) as buffering,
    ):
        port = buffering.getsockname()[1]
        with running("doctor", "--url", f"http://127.0.0.1:{port}", "--json") as asking:
            client, _ = buffering.accept()
            with client:
                for path in ("/ready", "/agents"):
                    assert path.encode() in client.recv(65536)
                    body = httpx.get(url + path).content
                    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n"
                    client.sendall(head.encode() + body)
                assert b"/events" in client.recv(65536)
                assert asking.wait() == 1
            assert asking.stdout is not None
            [bad] = [one for one in lines(asking.stdout.read()) if one["verdict"] == "bad"]
    assert "holds streams back" in bad["what"]
    assert "proxy_buffering off" in bad["fix"]


def test_a_changed_file_starts_the_server_again_at_the_same_address(folder: Path) -> None:
    with running("serve", "mine:app", "--port", "0", "--reload", cwd=folder) as serving:
        assert serving.stdout is not None
        assert serving.stderr is not None
        first = serving.stdout.readline()
        found = re.search(r"http://\S+", first)
        assert found
        assert httpx.get(f"{found[0]}/agents").json()["agents"] == ["story"]
        (folder / "mine.py").write_text(
            APP.replace("Tailrace([story],", "Tailrace([story, broken],")
        )
        assert serving.stderr.readline() == "Stopped.\n"
        assert serving.stderr.readline() == "mine.py changed; the server starts again.\n"
        assert serving.stdout.readline() == first
        assert httpx.get(f"{found[0]}/agents").json()["agents"] == ["broken", "story"]
        serving.send_signal(signal.SIGINT)
        assert serving.wait() == 0


@pytest.mark.parametrize("signals", [1, 2])
def test_a_stop_says_how_long_it_waits_for_runs_and_how_to_end_the_wait(
    folder: Path, signals: int
) -> None:
    with served(folder, "mine:app") as (serving, url):
        run = started(url, "story")
        with httpx.stream("GET", f"{url}/runs/{run}/events") as events:
            assert any("task.tool_call.started" in line for line in events.iter_lines())
        serving.send_signal(signal.SIGINT)
        assert serving.stderr is not None
        assert serving.stderr.readline() == (
            "Waiting up to 30 s for 1 run to end. Ctrl-C again ends the wait.\n"
        )
        if signals == 2:
            serving.send_signal(signal.SIGINT)
        else:
            (folder / "end").touch()
        assert serving.wait() == 0
        left = "1 run is interrupted. Another worker continues restartable runs; others end as"
        first = f"{left} failed.\n" if signals == 2 else ""
        assert serving.stderr.read() == f"{first}Stopped.\n"
