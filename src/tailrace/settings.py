"""The settings of an application and of its server: one table.

A setting has one name everywhere: `keep_runs` of `Tailrace(…)` is `--keep-runs`, the variable
`TAILRACE_KEEP_RUNS`, and `keep_runs` in `tailrace.toml`. `limits.runs` is `runs` in the table
`[limits]` of the file, and `TAILRACE_LIMITS_RUNS`. The first of these that has a value counts:
the flag, the argument in the code, the variable, the file, the default.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from tailrace.core.errors import CallerError

PREFIX = "TAILRACE_"
CONFIG_FILE = "tailrace.toml"
CONFIG_VARIABLE = "TAILRACE_CONFIG"
"""The variable with the path of the file of settings, instead of `tailrace.toml`."""

OTHER_VARIABLES = frozenset((CONFIG_VARIABLE, "TAILRACE_URL", "TAILRACE_KEY", "TAILRACE_CRASH_AT"))
"""Our variables that are not settings of a server."""

SIMILAR = 0.8
"""How similar (0 to 1) an unknown variable is to a setting's to be taken for a misspelling."""

Origin = Literal["flag", "code", "variable", "file", "default"]


class Kind(NamedTuple):
    """How values are written: `read` takes a text or a TOML value and raises `ValueError`."""

    read: Callable[[Any], Any]
    means: str
    metavar: str


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _number(least: int, most: float) -> Kind:
    def read(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch("[0-9]{1,15}", value):
            value = int(value)
        if type(value) is not int or not least <= value <= most:
            raise ValueError
        return value

    bounds = f"from {least} to {most:.0f}" if math.isfinite(most) else f"from {least} up"
    return Kind(read, f"a whole number {bounds}", "NUMBER")


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "": 1}


def _seconds(value: Any) -> timedelta:
    if type(value) in (int, float):
        value = str(value)
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhdw]?)", _text(value))
    if found is None:
        raise ValueError
    return timedelta(seconds=float(found[1]) * _UNITS[found[2]])


def _seconds_or_none(value: Any) -> timedelta | None:
    return None if value == "none" else _seconds(value)


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "on": True, "1": True}
    words |= {"false": False, "no": False, "off": False, "0": False}
    try:
        return words[_text(value).lower()]
    except KeyError:
        raise ValueError from None


def _names(value: Any) -> list[str]:
    if isinstance(value, str):
        value = [member.strip() for member in value.split(",") if member.strip()]
    if not isinstance(value, list):
        raise ValueError
    return [_text(member) for member in value]


def _choice(*words: str) -> Kind:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    return Kind(read, f"one of {', '.join(words)}", "WORD")


def _address(value: Any) -> tuple[str, int]:
    host, _, port = _text(value).rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError
    return host.strip("[]"), int(port)


TEXT = Kind(_text, "a text", "TEXT")
ADDRESS = Kind(_address, "an address; write 127.0.0.1:9464", "HOST:PORT")
DURATION = Kind(_seconds, "a duration; write 90s, 15m, 12h, 30d or 52w", "DURATION")
MAYBE = Kind(
    _seconds_or_none, "a duration; write 90s, 15m, 12h, 30d or 52w, or none", "DURATION|none"
)
SWITCH = Kind(_switch, "true or false", "")
NAMES = Kind(_names, "a list; write names with commas between them", "NAME,NAME")
COUNT = _number(1, math.inf)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting. `default` is also what `Tailrace(…)` uses without the argument."""

    name: str
    kind: Kind
    default: Any = None
    help: str
    commands: tuple[str, ...] = ("serve", "worker")
    """The commands that have it as a flag; none for secrets, which other users could list."""
    secret: bool = False
    """Whether the value is never shown."""

    @property
    def variable(self) -> str:
        """The environment variable."""
        return PREFIX + self.name.upper().replace(".", "_")

    @property
    def flag(self) -> str:
        """The option of a command."""
        return "--" + re.sub("[._]", "-", self.name)

    def read(self, value: Any, source: str) -> Any:
        """The value of a text, or of a value in a file; `CallerError` names its source."""
        try:
            return self.kind.read(value)
        except ValueError:
            shown = "The value" if self.secret else repr(_without_password(value))
            raise CallerError(f"{source}: {shown} is not {self.kind.means}.") from None


_SERVE = ("serve",)

SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(
            name="database",
            kind=TEXT,
            default="tailrace.db",
            help="Where runs are stored: the path of a SQLite file, or a URL: sqlite:///file.db, "
            "sqlite://:memory:, postgresql://user@host/name.",
        ),
        Setting(
            name="bus",
            kind=TEXT,
            help="How processes that share a database hear of new events: redis://host. "
            "?mirror=true also stores the runs in Redis, in the run format. ?cluster=true is for "
            "a Redis Cluster. Without a bus, processes read the database several times a second.",
        ),
        Setting(
            name="database_replica",
            kind=TEXT,
            help="The URL of a PostgreSQL replica, from which ended runs are read.",
        ),
        Setting(
            name="database_connections",
            kind=COUNT,
            default=10,
            help="Most connections of a process to a PostgreSQL database, and to its replica.",
        ),
        Setting(
            name="worker",
            kind=SWITCH,
            default=True,
            help="Also work on runs; otherwise `tailrace worker` does.",
            commands=_SERVE,
        ),
        Setting(
            name="keep_events",
            kind=MAYBE,
            help=(
                "How long ended runs keep their events. After that they keep only their final "
                "state. `none`: forever."
            ),
        ),
        Setting(
            name="keep_runs",
            kind=MAYBE,
            help="After how long ended runs are deleted. `none`: never.",
        ),
        Setting(
            name="lease",
            kind=DURATION,
            default=timedelta(seconds=10),
            help="How long a run stays with a worker that does not answer; at least 1s.",
        ),
        Setting(
            name="max_attempts",
            kind=COUNT,
            default=5,
            help="How many workers may lose a run before it is ended as failed.",
        ),
        Setting(
            name="max_runs",
            kind=COUNT,
            default=512,
            help="How many runs a worker works on at a time. A principal gets a slot only while it "
            "has fewer runs there than slots are free: at most half of them. Runs that wait for "
            "people do not count.",
        ),
        Setting(
            name="grace",
            kind=DURATION,
            default=timedelta(seconds=30),
            help="How long runs may take to finish when the process stops.",
        ),
        Setting(
            name="hosts",
            kind=NAMES,
            default=["127.0.0.1", "[::1]", "localhost"],
            help="Host names that the server answers for; requests for other names get 421.",
            commands=_SERVE,
        ),
        Setting(
            name="origins",
            kind=NAMES,
            default=[],
            help="Web pages that may call the server from another origin, such as "
            "http://localhost:3000.",
            commands=_SERVE,
        ),
        Setting(
            name="inspector",
            kind=SWITCH,
            default=True,
            help="Serve the inspector at /.",
            commands=_SERVE,
        ),
        Setting(
            name="inspector_images",
            kind=NAMES,
            default=[],
            help="Origins whose images the inspector loads, such as https://images.example.com. "
            "Images of other origins are links.",
            commands=_SERVE,
        ),
        Setting(
            name="cancel_abandoned",
            kind=MAYBE,
            default=timedelta(seconds=60),
            help="How long a run of chat completions or Anthropic's messages continues after its "
            "client has left: these clients cannot find it again. `none`: never cancel.",
            commands=_SERVE,
        ),
        Setting(
            name="keys",
            kind=TEXT,
            help="The file of API keys that `tailrace keys` makes. `auth` in the code replaces it.",
            commands=_SERVE,
        ),
        Setting(
            name="secret",
            kind=TEXT,
            help="Signs the tickets of `POST /tickets`: the same random text in all servers.",
            commands=(),
            secret=True,
        ),
        Setting(
            name="busy_thread",
            kind=_choice("run", "reject", "queue", "interrupt"),
            default="run",
            help="What happens to a new run while another run of its thread is unfinished. `run` "
            "starts it, `reject` refuses it, `queue` lets it wait, `interrupt` cancels the other. "
            "`Agent(busy_thread=…)` overrides it.",
            commands=_SERVE,
        ),
        Setting(
            name="limits.requests_per_minute",
            kind=COUNT,
            default=6000,
            help="Requests of a principal; a tenth of them may come at once.",
            commands=_SERVE,
        ),
        Setting(
            name="limits.runs",
            kind=COUNT,
            default=1000,
            help="Unfinished runs of a principal.",
            commands=_SERVE,
        ),
        Setting(
            name="limits.streams",
            kind=COUNT,
            default=1000,
            help="Open streams of a principal, and its requests that wait for the end of a run.",
            commands=_SERVE,
        ),
        Setting(
            name="log_format",
            kind=_choice("text", "json"),
            default="text",
            help="Lines for people, or a line of JSON for each: time, level, run, agent, thread. "
            "Also for what the command prints itself.",
        ),
        Setting(
            name="log_level",
            kind=_choice("debug", "info", "warning", "error"),
            default="warning",
            help="The least important lines that are logged. debug may show what agents work on.",
            commands=("serve", "worker", "run"),
        ),
        Setting(
            name="access_log",
            kind=SWITCH,
            default=False,
            help="Log each request at its end: method, path, status, ms, principal, bytes.",
            commands=_SERVE,
        ),
        Setting(
            name="metrics",
            kind=ADDRESS,
            help="Where a worker shows its numbers to Prometheus, without a key: 127.0.0.1:9464. A "
            "server has them at `GET /metrics`.",
            commands=("worker",),
        ),
        Setting(
            name="host",
            kind=TEXT,
            default="127.0.0.1",
            help="Address to listen on; beyond loopback it needs API keys.",
            commands=_SERVE,
        ),
        Setting(
            name="port",
            kind=_number(0, 65535),
            default=8000,
            help="Port to listen on; 0 picks a free port.",
            commands=_SERVE,
        ),
        Setting(
            name="insecure",
            kind=SWITCH,
            default=False,
            help="Listen beyond loopback without API keys.",
            commands=_SERVE,
        ),
    )
}
"""Every setting by its name."""


class Value(NamedTuple):
    """A value, and where it comes from."""

    value: Any
    origin: Origin
    source: str


class Settings:
    """The values of all settings."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        """The value of a setting."""
        return self._values[name].value

    def origin(self, name: str) -> Origin:
        """Which way the value was set."""
        return self._values[name].origin

    def with_flags(self, flags: Mapping[str, Any]) -> Settings:
        """These settings under the flags of a command, by setting; None is a flag not given."""
        found = {
            name: Value(SETTINGS[name].read(value, SETTINGS[name].flag), "flag", place)
            for name, value in flags.items()
            if value is not None and (place := SETTINGS[name].flag)
        }
        return Settings({**self._values, **found})

    def shown(self) -> Iterator[tuple[str, str, str]]:
        """Name, value and source of each setting, without secrets."""
        for name, (value, _, source) in self._values.items():
            yield name, as_text(SETTINGS[name], value), source


def read_settings(
    given: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> Settings:
    """The settings of a process. `given` are arguments of `Tailrace(…)`."""
    check_variables(environment)
    path = environment.get(CONFIG_VARIABLE)
    file = Path(path or CONFIG_FILE)
    in_file = _file(file, required=bool(path))
    values: dict[str, Value] = {}
    for name, setting in SETTINGS.items():
        variable = environment.get(setting.variable)
        if name in given:
            top, _, rest = name.partition(".")
            place = f"Tailrace({top}=…)" if not rest else f"Tailrace({top}=…{rest}=…)"
            values[name] = Value(_checked(setting, given[name], place), "code", place)
        elif variable:  # an empty variable is not set
            read = setting.read(variable, setting.variable)
            values[name] = Value(read, "variable", setting.variable)
        elif name in in_file:
            read = setting.read(in_file[name], f"{file}: {name}")
            values[name] = Value(read, "file", str(file))
        else:
            values[name] = Value(setting.default, "default", "default")
    return Settings(values)


def _checked(setting: Setting, value: Any, place: str) -> Any:
    """A value from code; a duration must be a `timedelta`, and only some may be None."""
    is_none = value is None and setting.kind is MAYBE
    if setting.kind in (DURATION, MAYBE) and not (is_none or isinstance(value, timedelta)):
        raise CallerError(f"{place}: {value!r} is not a timedelta; pass timedelta(seconds=…).")
    return value


def check_variables(environment: Mapping[str, str]) -> None:
    """Refuse a variable that is nearly the name of a setting."""
    known = [setting.variable.removeprefix(PREFIX) for setting in SETTINGS.values()]
    for name in unknown_variables(environment):
        if near := _nearest(name.removeprefix(PREFIX), known, SIMILAR):
            raise CallerError(f"Unknown variable {name}; did you mean {PREFIX}{near}?")


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Variables with our prefix that are not ours. Kubernetes makes some for a Service."""
    known = {setting.variable for setting in SETTINGS.values()} | OTHER_VARIABLES
    return sorted(name for name in environment if name.startswith(PREFIX) and name not in known)


def _file(path: Path, *, required: bool) -> dict[str, Any]:
    """The settings of a file, by their names."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if required:
            raise CallerError(f"There is no file of settings at {path}; check --config.") from None
        return {}
    except OSError as error:
        raise CallerError(
            f"The settings in {path} cannot be read: {error.strerror}. Check the path."
        ) from error
    except ValueError as error:  # not TOML, not UTF-8; the message of tomllib shows no values
        raise CallerError(f"{path} is not a TOML file: {error}. Correct it.") from error
    flat: dict[str, Any] = {}
    for name, value in found.items():
        flat |= (
            {f"{name}.{k}": v for k, v in value.items()} if type(value) is dict else {name: value}
        )
    for name in flat:
        if name not in SETTINGS:
            near = _nearest(name, SETTINGS, 0.5)
            hint = f"did you mean {near!r}?" if near else f"use {', '.join(SETTINGS)}."
            raise CallerError(f"{path}: unknown setting {name!r}; {hint}")
    return flat


def _nearest(name: str, known: Iterable[str], similar: float) -> str | None:
    return next(iter(difflib.get_close_matches(name, sorted(known), 1, similar)), None)


def as_text(setting: Setting, value: Any) -> str:
    """A value as a person writes it, without secrets."""
    if value is None:
        return "none"
    if setting.secret:
        return "set"
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, bool):
        return str(value).lower()
    if setting.kind is ADDRESS:
        return "{}:{}".format(*value)
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(sorted(map(str, value))) or "empty"
    if isinstance(value, str | int | Path):
        return str(_without_password(str(value)))
    return type(value).__name__


def _without_password(value: Any) -> Any:
    """A URL without its password."""
    if not isinstance(value, str):
        return value
    value = re.sub(r"//([^/:@]*):.*@", r"//\1:…@", value)
    return re.sub(r"(\w*password=)[^&]*", r"\1…", value)
