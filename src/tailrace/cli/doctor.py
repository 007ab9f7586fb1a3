"""`tailrace doctor`: checks the installation, an application and a server."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import typer

from tailrace import __version__
from tailrace.cli.load_app import find_app
from tailrace.cli.options import Config, KeyOption, use_config
from tailrace.cli.output import coloured
from tailrace.cli.server_client import ServerAway, ServerClient
from tailrace.core.errors import TailraceError
from tailrace.settings import Settings, read_settings, unknown_variables

Verdict = Literal["ok", "note", "bad"]
_MARKS: dict[Verdict, tuple[str, str]] = {
    "bad": ("✗", "red"),
    "note": ("·", "yellow"),
    "ok": ("✓", "green"),
}
"""The mark and the color of each verdict, the worst first."""

_EXTRAS = {
    "openai": "openai",
    "anthropic": "anthropic",
    "redis": "redis",
    "asyncpg": "postgres",
    "mcp": "mcp",
}
_KEYS = {"OPENAI_API_KEY": "openai", "ANTHROPIC_API_KEY": "anthropic"}
SQLITE = (3, 51, 3)
"""Older versions may lose the write-ahead log on a reset."""

FIRST_BYTES_SECONDS = 3.0
"""A stream that is not buffered has its first bytes by then."""


class Finding(NamedTuple):
    """Something that was checked; `fix` says what to do."""

    verdict: Verdict
    what: str
    fix: str = ""


def doctor(
    application: Annotated[
        str | None, typer.Argument(help="Your app as module:name: its store and bus are checked.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="Address of a server, as its clients see it: proxies are checked."),
    ] = None,
    key: KeyOption = None,
    config: Config = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Also show the settings that have their defaults.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each finding as a line of JSON.")
    ] = False,
) -> None:
    """Check versions, settings, keys, store, bus and proxies, and say how to fix what is wrong.

    What has to be fixed comes first. A setting is shown with the place that it
    comes from if it differs from its default; --all and --json show all settings.

    The exit code is 1 if something has to be fixed.

    Example: tailrace doctor main:app --url https://ai.example.com
    """
    use_config(config)
    findings = [*_installation(), *_provider_keys(os.environ), *_variables(os.environ)]
    findings += _configuration(application, show_all or as_json)
    if url is not None:
        server = ServerClient(url, key)
        try:
            findings += [*_server(server)]
        except ServerAway as away:
            fix = "start it, correct --url, or look at the proxy in front of it"
            findings.append(Finding("bad", f"{server.url} does not answer ({away})", fix))
    _print_findings(findings, as_json=as_json)
    to_fix = sum(finding.verdict == "bad" for finding in findings)
    if not as_json:
        typer.echo(f"{to_fix} to fix." if to_fix else "Nothing to fix.")
    if to_fix:
        raise typer.Exit(1)


def _print_findings(findings: list[Finding], *, as_json: bool) -> None:
    """What has to be fixed comes first."""
    for finding in sorted(findings, key=lambda each: list(_MARKS).index(each.verdict)):
        if as_json:
            typer.echo(msgspec.json.encode(finding._asdict()))
            continue
        mark, colour = _MARKS[finding.verdict]
        typer.echo(f"{coloured(mark, colour)} {finding.what}")
        if finding.fix:
            typer.echo(f"  → {finding.fix}")


def _installation() -> Iterator[Finding]:
    python = platform.python_version()
    yield Finding("ok", f"tailrace {__version__}, Python {python}, {sys.platform}")
    import apsw

    found = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    what = f"SQLite {apsw.sqlite_lib_version()}"
    if found >= SQLITE:
        yield Finding("ok", what)
    else:
        yield Finding("bad", what, "pip install --upgrade apsw")
    installed, missing = [], []
    for package, extra in _EXTRAS.items():
        try:
            installed.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(extra)
    if installed:
        yield Finding("ok", f"optional packages: {', '.join(installed)}")
    if missing:
        install = f"if you need them: pip install 'tailrace[{','.join(missing)}]'"
        yield Finding("note", f"not installed: {', '.join(missing)}", install)


def _provider_keys(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Whether there are keys. Their values are never shown."""
    for name, provider in _KEYS.items():
        value = environment.get(name)
        if not value:
            yield Finding("note", f"{name} is not set", f"{provider}:… models need it")
        elif value != value.strip():
            yield Finding("bad", f"{name} has spaces around it", f"export {name} again")
        else:
            yield Finding("ok", f"{name} is set")


def _configuration(application: str | None, everything: bool) -> list[Finding]:
    """The settings, the API keys, and the store and bus of the application."""
    try:
        settings = read_settings({})
    except TailraceError as error:
        return [Finding("bad", str(error), "correct the variable or the file")]
    if application is None:
        return [*_settings(settings, everything), *_api_keys(settings["keys"])]
    try:
        app = find_app(application)
    except TailraceError as error:
        return [Finding("bad", str(error)), *_settings(settings, everything)]
    keys = getattr(app._auth, "path", None)  # of `ApiKeys`
    findings = [*_settings(app._settings, everything), *_api_keys(keys)]
    return findings + asyncio.run(_application(app))


def _api_keys(path: str | Path | None) -> Iterator[Finding]:
    """Whether the file has a key that the server accepts."""
    from tailrace.server.access.auth import read_keys

    if not path:
        return
    make = f"make a key: tailrace keys create NAME --file {path}"
    try:
        valid = sum(key.is_valid(time.time()) for key in read_keys(Path(path)))
    except FileNotFoundError:
        yield Finding("bad", f"there is no file of API keys at {path}", make)
    except (OSError, TailraceError) as error:
        yield Finding("bad", str(error), f"restore the file, or remove it and {make}")
    else:
        what = f"{valid} valid API key{'' if valid == 1 else 's'} in {path}"
        yield Finding("ok", what) if valid else Finding("bad", what, make)


def _settings(settings: Settings, everything: bool) -> Iterator[Finding]:
    """Settings with the place that they come from. Secrets are not shown."""
    defaults = 0
    for name, value, source in settings.shown():
        if everything or settings.origin(name) != "default":
            yield Finding("ok", f"{name} = {value}  ({source})")
        else:
            defaults += 1
    if defaults:
        yield Finding("ok", f"{defaults} settings have their defaults (--all lists them)")


def _variables(environment: Mapping[str, str]) -> Iterator[Finding]:
    if unknown := unknown_variables(environment):
        fix = "tailrace ignores them; docs/reference/settings.md lists the settings"
        yield Finding("note", f"unknown variables: {', '.join(unknown)}", fix)


async def _application(app: Any) -> list[Finding]:
    agents = ", ".join(sorted(app.agents)) or "none"
    findings = [Finding("ok", f"agents: {agents}"), *_tools(app.agents)]
    app._worker = False
    began = time.perf_counter()
    try:
        async with app.running():
            taken = 1000 * (time.perf_counter() - began)
            findings.append(Finding("ok", f"store and bus open ({taken:.0f} ms)"))
            for name, part in (("store", app._runs.store), ("bus", app._runs.bus)):
                findings.append(await _checked(name, part))
    except TailraceError as error:
        fix = "check the database and bus URLs, and that the services run"
        findings.append(Finding("bad", str(error), fix))
    return findings


def _tools(agents: Mapping[str, Any]) -> Iterator[Finding]:
    """Tools of which a model knows only the name."""
    for name, agent in sorted(agents.items()):
        for tool in getattr(agent, "tools", ()):
            if getattr(tool, "description", None) == "":
                what = f"tool {tool.name} of agent {name} has no description"
                yield Finding("note", what, "write a docstring: the model chooses tools by it")


async def _checked(name: str, part: Any) -> Finding:
    began = time.perf_counter()
    try:
        async with asyncio.timeout(10):
            await part.check()
    except (TailraceError, TimeoutError, OSError) as error:
        fix = "check that it runs, has space, and may be written"
        return Finding("bad", f"the {name} does not answer: {error}", fix)
    return Finding("ok", f"the {name} answers ({1000 * (time.perf_counter() - began):.1f} ms)")


def _server(server: ServerClient) -> Iterator[Finding]:
    status, raw = server.request("/ready", wait=10.0)
    if status == 404:
        yield Finding("bad", f"{server.url} is no Tailrace server", "add its prefix to --url")
        return
    state = _state(raw)
    verdict: Verdict = "ok" if status == 200 else "bad"
    fix = "" if status == 200 else "look at the server's log"
    yield Finding(verdict, f"{server.url} answers: {state}", fix)
    if server.request("/agents", wait=10.0)[0] in (401, 403):
        yield Finding("bad", f"{server.url} wants an API key", "pass --key, or set TAILRACE_KEY")
    else:
        yield _buffering(server)


def _state(raw: bytes) -> str:
    try:
        return ", ".join(f"{name} {value}" for name, value in msgspec.json.decode(raw).items())
    except (msgspec.DecodeError, AttributeError):
        return "not in JSON"


def _buffering(server: ServerClient) -> Finding:
    """A stream without events sends its first bytes at once, unless a proxy holds them back."""
    path = f"/threads/doctor_{secrets.token_hex(8)}/events"
    fix = "turn buffering off for it (nginx: proxy_buffering off; gzip off for text/event-stream)"
    began = time.monotonic()
    try:
        for piece in server.pieces(path, silence=FIRST_BYTES_SECONDS):
            if piece:
                taken = 1000 * (time.monotonic() - began)
                return Finding("ok", f"streams are not buffered (first bytes: {taken:.0f} ms)")
    except ServerAway as away:
        return Finding("bad", f"a proxy holds streams back ({away})", fix)
    return Finding("bad", "a proxy ends streams at once", fix)
