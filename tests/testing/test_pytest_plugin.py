"""The pytest plugin: its fixtures, and that it costs nothing until a test asks for them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]
PLUGIN = "tailrace.testing.pytest_plugin"

AGENT = """
from tailrace import Agent
from tailrace.models import Scripted, call, say

weather = Agent("weather", model="openai:gpt-5-mini")
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder of tests; only our plugin is loaded."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    return pytester


def passes(folder: pytest.Pytester, code: str, *options: str, **outcomes: int) -> str:
    folder.makepyfile(test_own=AGENT + code)
    done = folder.runpytest_inprocess("-p", PLUGIN, "-p", "no:cacheprovider", *options)
    done.assert_outcomes(**(outcomes or {"passed": 1}))
    return done.stdout.str()


def test_the_entry_point_names_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"tailrace": PLUGIN}
    assert import_module(PLUGIN).__doc__


def test_the_plugin_imports_nothing_until_a_fixture_is_used() -> None:
    code = (
        f"import sys, pytest; before = set(sys.modules); import {PLUGIN}; "
        "new = {name for name in set(sys.modules) - before}; "
        "print(sorted(name for name in new if not name.startswith('tailrace')), "
        "sorted(name for name in new if name.startswith('tailrace')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"[] ['tailrace', 'tailrace.testing', '{PLUGIN}']"


def test_a_plain_test_asks_an_agent(run: pytest.Pytester) -> None:
    passes(
        run,
        """
def test_weather(ask_agent):
    run = ask_agent(weather, "?", model=Scripted([say("Sunny.")]))
    assert run.result.text == "Sunny."
    try:
        run.assert_called("get_weather")
    except AssertionError as error:
        assert "was not called" in str(error)
""",
    )


def test_a_simulator_serves_any_client_of_a_test(run: pytest.Pytester) -> None:
    passes(
        run,
        """
import json, urllib.error, urllib.request

def ask(provider, body):
    headers = {"content-type": "application/json", "authorization": "Bearer any"}
    request = urllib.request.Request(
        f"{provider.openai_url}/responses", json.dumps(body).encode(), headers
    )
    return json.load(urllib.request.urlopen(request))

def test_provider(simulator):
    one, other = simulator([say("Hello.")]), simulator([say("Hi.")])
    for provider, text in ((one, "Hello."), (other, "Hi.")):
        answer = ask(provider, {"model": "gpt-5", "input": "Hi"})
        assert answer["output"][0]["content"][0]["text"] == text
    try:
        ask(one, {"model": "gpt-5", "input": "Hi", "temperature": 9})
    except urllib.error.HTTPError as error:
        assert error.code == 400
        error.close()
    assert len(one.refusals) == 1
""",
    )


RECORDED = """
def test_it(ask_agent, recorded_model):
    model = recorded_model(Scripted([say("Sunny.")]))
    assert ask_agent(weather, "?", model=model).result.text == "Sunny."
"""


def test_a_model_is_recorded_once_and_then_replayed(run: pytest.Pytester) -> None:
    shown = passes(run, RECORDED, failed=1)
    assert "test_own.test_it.jsonl. Run pytest --record-models once." in shown
    passes(run, RECORDED, "--record-models")
    [file] = (run.path / "recordings").iterdir()
    assert "Sunny" in file.read_text(encoding="utf-8")
    passes(run, RECORDED.replace('say("Sunny.")', 'say("Not asked.")'))
    passes(run, RECORDED, "--record-models")
    assert file.read_text(encoding="utf-8").count('"api"') == 1
