"""Options that several commands have, and the flags of the settings."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from tailrace.cli.output import fail
from tailrace.settings import CONFIG_VARIABLE, DURATION, SETTINGS, SWITCH, Setting, as_text

Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free port.")
]
Host = Annotated[str, typer.Option(help="Address to listen on; beyond loopback it needs API keys.")]
Config = Annotated[
    Path | None,
    typer.Option(
        envvar=CONFIG_VARIABLE, help="The file of settings; default: tailrace.toml, if any."
    ),
]
RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="Id of the run, or its address http://…/runs/ID.")
]
Url = Annotated[
    str, typer.Option(envvar="TAILRACE_URL", help="Address of the server, with its prefix.")
]
KeyOption = Annotated[
    str | None,
    typer.Option(envvar="TAILRACE_KEY", help="API key, if the server wants one."),
]
Db = Annotated[
    str | None,
    typer.Option("--db", help="Read this database instead: a SQLite file or postgresql://…"),
]
AtEvent = Annotated[int | None, typer.Option(min=1, help="Number of an event (sequence_number).")]
ListJson = Annotated[bool, typer.Option("--json", help="Print a line of JSON for each.")]

LOCAL = "http://127.0.0.1:8000"
"""The server that is asked without --url."""


def use_config(path: Path | None) -> None:
    """Let the application, and a server that is started again, read this file of settings."""
    if path is not None:
        os.environ[CONFIG_VARIABLE] = str(path)


def with_settings(command: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a flag for each of its settings; they come as `flags`, by setting."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        flags = {
            setting.name.replace(".", "_"): setting
            for setting in SETTINGS.values()
            if command in setting.commands
        }
        own = [
            parameter
            for parameter in inspect.signature(function, eval_str=True).parameters.values()
            if parameter.name != "flags"
        ]

        def called(**given: Any) -> None:
            named = {flags[name].name: given.pop(name) for name in flags}
            function(**given, flags=named)

        called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [*own, *(_parameter(name, setting) for name, setting in flags.items())]
        )
        called.__name__, called.__doc__ = function.__name__, function.__doc__
        called.__annotations__ = {}
        return called

    return decorate


def _parameter(name: str, setting: Setting) -> inspect.Parameter:
    default = as_text(setting, setting.default)
    text = setting.help + (f" Default: {default}." if default not in ("none", "empty") else "")
    kind: Any = str | None
    declared = [setting.flag]
    if setting.kind is SWITCH:
        kind = bool | None
        if setting.default is True:
            declared = [f"{setting.flag}/--no-{setting.flag[2:]}"]
        text = setting.help
    option = typer.Option(*declared, metavar=setting.kind.metavar or None, help=text)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=None, annotation=Annotated[kind, option])


def finite(seconds: float) -> float:
    """Refuse `nan` and `inf` as a number of seconds."""
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is not a number of seconds.")
    return seconds


def duration(text: str) -> timedelta:
    """`90s`, `15m`, `12h`, `30d`, `52w`."""
    try:
        return cast("timedelta", DURATION.read(text))
    except ValueError:
        fail(f"{text!r} is not {DURATION.means}.")
