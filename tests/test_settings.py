"""The settings: one table, four places, a clear order."""

from __future__ import annotations

import inspect
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from tailrace import ServerLimits, Tailrace
from tailrace.app_arguments import DEFAULT_DATABASE
from tailrace.cli.commands import cli
from tailrace.core.errors import CallerError
from tailrace.ports import MAX_ATTEMPTS
from tailrace.runtime.agents.busy_thread import BusyThread
from tailrace.runtime.workers.worker import LEASE_SECONDS, MAX_RUNS
from tailrace.server.access.auth import ApiKeys
from tailrace.server.access.guard import LOOPBACK
from tailrace.server.streams.abandoned import ABANDONED_SECONDS
from tailrace.settings import SETTINGS, read_settings, unknown_variables


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # which the commands change
    for name in ("diagnosed", "misconfigured"):
        monkeypatch.setitem(sys.modules, name, None)  # and what they import is removed again
        monkeypatch.delitem(sys.modules, name)


def write(text: str) -> None:
    Path("tailrace.toml").write_text(text, encoding="utf-8")


def test_the_defaults_are_those_of_the_parts() -> None:
    limits = ServerLimits()
    for name, default in {
        "database": DEFAULT_DATABASE,
        "lease": timedelta(seconds=LEASE_SECONDS),
        "max_attempts": MAX_ATTEMPTS,
        "max_runs": MAX_RUNS,
        "cancel_abandoned": timedelta(seconds=ABANDONED_SECONDS),
        "hosts": sorted(LOOPBACK),
        **{f"limits.{name}": getattr(limits, name) for name in ServerLimits.__struct_fields__},
    }.items():
        assert SETTINGS[name].default == default, name
    for choice in get_args(BusyThread):
        assert SETTINGS["busy_thread"].read(choice, "") == choice


def test_the_application_takes_each_setting_under_its_name() -> None:
    parameters = set(inspect.signature(Tailrace).parameters)
    settings = {name.partition(".")[0] for name in SETTINGS}
    assert settings - parameters == {
        *("log_format", "log_level", "access_log", "metrics", "host", "port", "insecure"),
    }
    assert parameters - settings == {"agents", "store", "formats", "auth"}


@pytest.mark.parametrize("name", ["lease", "grace", "keep_events"])
def test_a_duration_in_code_is_a_timedelta(name: str) -> None:
    with pytest.raises(CallerError, match=rf"Tailrace\({name}=…\): 4 is not a timedelta"):
        Tailrace([], **{name: 4})  # type: ignore[arg-type]
    if name != "keep_events":
        with pytest.raises(CallerError, match="None is not a timedelta"):
            Tailrace([], **{name: None})  # type: ignore[arg-type]


def test_the_first_place_with_a_value_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen() -> tuple[object, str]:
        settings = Tailrace({})._settings
        return settings["grace"].total_seconds(), settings.origin("grace")

    assert seen() == (30, "default")
    write('grace = "2m"\n')
    assert seen() == (120, "file")
    monkeypatch.setenv("TAILRACE_GRACE", "3m")
    assert seen() == (180, "variable")
    app = Tailrace({}, grace=timedelta(seconds=4))
    assert (app._settings["grace"].total_seconds(), app._settings.origin("grace")) == (4, "code")
    app._configure(app._settings.with_flags({"grace": "5", "lease": None}))
    assert (app._settings["grace"].total_seconds(), app._settings.origin("grace")) == (5, "flag")
    assert app._settings.origin("lease") == "default"
    monkeypatch.setenv("TAILRACE_GRACE", "")
    assert seen() == (120, "file")


def test_a_text_as_auth_is_refused_without_showing_it() -> None:
    wrong: Any = {"auth": "tr_secret"}
    with pytest.raises(CallerError, match=r"`auth` is of type str; pass ApiKeys") as refused:
        Tailrace({}, **wrong)
    assert "tr_secret" not in str(refused.value)


def test_each_setting_works_in_the_file_and_as_a_variable() -> None:
    texts = {
        "database": "log.db",
        "database_replica": "postgresql://two/name",
        "database_connections": "4",
        "bus": "redis://cache",
        "worker": "no",
        "keep_events": "1d",
        "keep_runs": "52w",
        "lease": "1.5s",
        "max_attempts": "3",
        "max_runs": "9",
        "grace": "0",
        "hosts": "a.example, b.example",
        "origins": "http://localhost:3000",
        "inspector": "off",
        "inspector_images": "https://images.example.com",
        "cancel_abandoned": "none",
        "keys": "keys.json",
        "secret": "s",
        "busy_thread": "reject",
        "limits.requests_per_minute": "60",
        "limits.runs": "5",
        "limits.streams": "6",
        "log_format": "json",
        "log_level": "info",
        "access_log": "yes",
        "metrics": "[::1]:9464",
        "host": "::1",
        "port": "0",
        "insecure": "true",
    }
    assert set(texts) == set(SETTINGS)
    variables = {SETTINGS[name].variable: text for name, text in texts.items()}
    by_variable = read_settings({}, variables)
    Path("other.toml").write_text(
        "".join(f'{name} = "{text}"\n' for name, text in texts.items()), encoding="utf-8"
    )
    by_file = read_settings({}, {"TAILRACE_CONFIG": "other.toml"})
    for name in SETTINGS:
        assert by_variable[name] == by_file[name] != SETTINGS[name].default, name
        assert (by_variable.origin(name), by_file.origin(name)) == ("variable", "file")
    assert by_file["hosts"] == ["a.example", "b.example"]
    assert by_file["lease"] == timedelta(seconds=1.5)
    write('lease = 2.5\nhosts = ["a"]\nworker = false\nport = 1\n[limits]\nruns = 7\n')
    typed = read_settings({}, {})
    assert [typed[name] for name in ("lease", "hosts", "worker", "port", "limits.runs")] == [
        *(timedelta(seconds=2.5), ["a"], False, 1, 7)
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("databse = 'x'", "unknown setting 'databse'; did you mean 'database'?"),
        ("[limits]\nrun = 1", "unknown setting 'limits.run'; did you mean 'limits.runs'?"),
        ("zzz = 1", "unknown setting 'zzz'; use database, bus"),
        ("worker = 1", "tailrace.toml: worker: 1 is not true or false"),
        ("worker = 'perhaps'", "'perhaps' is not true or false"),
        ("grace = true", "True is not a duration; write 90s"),
        ("grace = '-1d'", "'-1d' is not a duration"),
        ("port = 70000", "70000 is not a whole number from 0 to 65535"),
        ("[limits]\nruns = true", "True is not a whole number from 1 up"),
        ("hosts = 5", "5 is not a list"),
        ("hosts = ['']", "is not a list"),
        ("busy_thread = 'wait'", "'wait' is not one of run, reject, queue, interrupt"),
        ("secret = 5", "secret: The value is not a text"),
        ("lease = '1ms'", "'1ms' is not a duration"),
        ("grace =", "tailrace.toml is not a TOML file"),
    ],
)
def test_a_mistake_in_the_file_is_named(text: str, words: str) -> None:
    write(text)
    with pytest.raises(CallerError) as caught:
        read_settings({}, {})
    assert words in str(caught.value)


def test_a_file_that_is_named_must_be_there() -> None:
    with pytest.raises(CallerError, match=r"no file of settings at gone\.toml"):
        read_settings({}, {"TAILRACE_CONFIG": "gone.toml"})
    Path("folder").mkdir()
    with pytest.raises(CallerError, match="cannot be read"):
        read_settings({}, {"TAILRACE_CONFIG": "folder"})


def test_a_misspelt_variable_is_refused_and_a_foreign_one_is_not() -> None:
    with pytest.raises(CallerError, match="TAILRACE_DATABSE; did you mean TAILRACE_DATABASE"):
        read_settings({}, {"TAILRACE_DATABSE": "x"})
    foreign = {"TAILRACE_SERVICE_HOST": "10.0.0.1", "TAILRACE_KEY": "k", "OTHER": "x"}
    read_settings({}, foreign)
    assert unknown_variables(foreign) == ["TAILRACE_SERVICE_HOST"]


def test_no_secret_is_shown() -> None:
    variables = {
        "TAILRACE_DATABASE": "postgresql://ann:hunter2@db/name?sslpassword=hunter2&x=1",
        "TAILRACE_BUS": "redis://:hunter2@cache",
        "TAILRACE_SECRET": "hunter2",
    }
    shown = {name: value for name, value, _ in read_settings({}, variables).shown()}
    assert shown["database"] == "postgresql://ann:…@db/name?sslpassword=…&x=1"
    assert shown["bus"] == "redis://:…@cache"
    assert shown["secret"] == "set"
    assert "hunter2" not in str(shown)
    with pytest.raises(CallerError) as caught:
        read_settings({}, {"TAILRACE_PORT": "http://ann:hunter2@host"})
    assert "hunter2" not in str(caught.value)


def test_a_store_of_the_code_is_used_whatever_the_variable_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def opened() -> None: ...

    monkeypatch.setenv("TAILRACE_DATABASE", "other.db")
    app = Tailrace({}, store=opened)  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="not both"):
        app._configure(app._settings.with_flags({"database": "flag.db"}))


def test_keys_make_the_auth_unless_the_code_has_its_own() -> None:
    def own(request: object) -> None: ...

    keyed = Tailrace({}, keys="keys.json")
    assert isinstance(keyed._auth, ApiKeys)
    assert keyed._auth.path == Path("keys.json")
    app = Tailrace({}, auth=own, keys="keys.json")
    assert app._auth is own
    app._configure(app._settings.with_flags({"keys": "more.json"}))
    assert isinstance(app._auth, ApiKeys)


def test_the_limits_of_the_code_are_settings_too() -> None:
    app = Tailrace({}, limits=ServerLimits(runs=5))
    assert app._limits.runs == 5
    app._configure(app._settings.with_flags({"limits.runs": "6"}))
    assert (app._limits.runs, app._limits.streams) == (6, 1000)


def test_doctor_says_where_each_value_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    write('lease = "20s"\n')
    Path("diagnosed.py").write_text(
        "from tailrace import Tailrace\napp = Tailrace({}, 'mine.db', limits=None)\n"
    )
    monkeypatch.setenv("TAILRACE_SECRET", "hunter2")
    monkeypatch.setenv("TAILRACE_SERVICE_HOST", "10.0.0.1")
    done = CliRunner().invoke(cli, ["doctor", "diagnosed:app"])
    assert done.exit_code == 0, done.output
    for line in (
        "database = mine.db  (Tailrace(database=…))",
        "lease = 20s  (tailrace.toml)",
        "secret = set  (TAILRACE_SECRET)",
        "unknown variables: TAILRACE_SERVICE_HOST",
        "settings have their defaults (--all lists them)",
    ):
        assert line in done.output
    assert "hunter2" not in done.output
    assert "(default)" not in done.output
    for flag in ("--all", "--json"):
        whole = CliRunner().invoke(cli, ["doctor", "diagnosed:app", flag])
        assert "grace = 30s  (default)" in whole.output
    monkeypatch.setenv("TAILRACE_LAESE", "1s")
    wrong = CliRunner().invoke(cli, ["doctor"])
    assert (wrong.exit_code, "TAILRACE_LEASE?" in wrong.output) == (1, True)


def test_doctor_shows_what_has_to_be_fixed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    assert CliRunner().invoke(cli, ["doctor"]).output.endswith("\nNothing to fix.\n")
    monkeypatch.setenv("ANTHROPIC_API_KEY", " key")
    first, *_, last = CliRunner().invoke(cli, ["doctor"]).output.splitlines()
    assert (first, last) == ("✗ ANTHROPIC_API_KEY has spaces around it", "1 to fix.")


def test_the_commands_take_a_file_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("misconfigured.py").write_text("from tailrace import Tailrace\napp = Tailrace({})\n")
    Path("wrong.toml").write_text("prot = 1\n", encoding="utf-8")
    monkeypatch.setenv("TAILRACE_CONFIG", "")  # which the command sets
    for command in ("serve", "worker"):
        done = CliRunner().invoke(cli, [command, "misconfigured:app", "--config", "wrong.toml"])
        assert (done.exit_code, "did you mean 'port'?" in done.stderr) == (2, True), done
