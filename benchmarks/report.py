"""RESULTS.md: the machine, the targets, the tables."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from benchmarks.harness import Figures, Table, Target
from tests.node import TESTS_JS, run_node

PACKAGES = (
    "tailrace",
    "msgspec",
    "anthropic",
    "jiter",
    "langgraph",
    "openai",
    "openai-agents",
    "pydantic-core",
    "pydantic-ai-slim",
    "sse-starlette",
    "starlette",
    "uvicorn",
)
_INTRODUCTION = (
    "Written by `make bench`; [README.md](README.md) says how to read it. Only ratios within one "
    "table mean anything: the figures themselves swing by a factor of two from hour to hour."
)
NPM = ("ai", "@ag-ui/client")


def markdown(
    found: Sequence[tuple[str, Sequence[Table | Figures], list[Target]]],
    subjects: Mapping[str, str],
    date: str,
    load: tuple[float, float],
) -> str:
    """The whole page."""
    lines = [
        "# Results",
        "",
        _INTRODUCTION,
        "",
        *_machine(date, load),
        "",
        "## Targets",
        "",
        "Of a ratio that was measured at several sizes, the worst ratio counts.",
        "",
        "| measure | target | measured | |",
        "| --- | --- | ---: | --- |",
    ]
    for _, _, targets in found:
        for target in targets:
            met = "met" if target.met else "**missed**"
            lines.append(f"| {target.what} | {target.wanted} | {target.measured} | {met} |")
    for name, tables, _ in found:
        lines += ["", f"## {name}: {subjects[name]}", ""]
        lines.append("\n".join(table.markdown() for table in tables).rstrip())
    return "\n".join(lines) + "\n"


def _machine(date: str, load: tuple[float, float]) -> list[str]:
    python = f"{platform.python_implementation()} {platform.python_version()}"
    packages = [f"{name} {_version(name)}" for name in PACKAGES]
    npm = [f"{name} {_npm_version(name)}" for name in NPM]
    busy = f"load {load[0]:.1f} at the start and {load[1]:.1f} at the end"
    return [
        f"- {date}; {os.cpu_count()} cores ({platform.machine()}), {busy}",
        f"- {python}: {', '.join(packages)}",
        f"- Node {run_node(['--version']).strip().removeprefix('v')}: {', '.join(npm)}",
    ]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"


def _npm_version(name: str) -> str:
    path = TESTS_JS / "node_modules" / name / "package.json"
    if not path.exists():
        return "(not installed)"
    return str(json.loads(path.read_text(encoding="utf-8"))["version"])
