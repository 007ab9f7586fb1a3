"""Writes the reference pages from the code, or checks them.

    python scripts/generate_docs.py            write docs/reference/*.md
    python scripts/generate_docs.py --check    write nothing; exit with 1 if a page is stale

Events come from the schema, settings from signatures and docstrings, routes from the server's
OpenAPI document, codes from the error classes. A thing without a description is an error here.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import json
import pkgutil
import re
import sys
from pathlib import Path
from typing import Any

import tailrace
from tailrace.app import Tailrace
from tailrace.core.errors import TailraceError
from tailrace.core.event_schema import events_schema
from tailrace.core.events import KNOWN
from tailrace.errors import __all__ as public_errors
from tailrace.runtime.agents.agent import Agent
from tailrace.runtime.agents.limits import Limits
from tailrace.runtime.agents.memory import Memory
from tailrace.runtime.model_calls.call import Patience
from tailrace.server.access.guard import status_of
from tailrace.server.openapi.document import ERRORS, document
from tailrace.server.server import APIS
from tailrace.server.transport.connections import Connections
from tailrace.settings import SETTINGS, as_text
from tailrace.wire.formats import FORMATS

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
HEAD = "<!-- Written by `make docs`: change the code, then run it again. -->\n\n"

OTHER_CODES = {
    "agent_error": "An agent raised an exception. The message has an id, as in the server's log.",
    "agent_unknown": "The run was handed to an agent that this version of the agent does not know.",
    "bad_host": "The `Host` header is missing or invalid.",
    "cancelled": "A tool was stopped because its run was cancelled.",
    "client_cannot": "A sub-agent called a tool of the client over an API that cannot ask for it.",
    "cut": "The provider's stream broke off, and the retries are used up.",
    "denied": "A person denied the call.",
    "no_summary": "The model was asked to compact a conversation and wrote no text.",
    "head_too_large": "Path, query and headers are too large together.",
    "input_required": "A chat completion's stream ended while the run waits for people.",
    "input_guardrail": "A guardrail refused the input.",
    "internal": "A bug in the server; its log has the id that the message names.",
    "interrupted": "The worker was lost, and the agent or the tool cannot continue.",
    "invalid_calls": "The model made only invalid calls, `Limits(mistakes=…)` turns in a row.",
    "invalid_output": "The answer does not fit `output`, after `Limits(mistakes=…)` tries.",
    "invalid_result": "The result of a call was refused: too large, or an invalid value.",
    "malformed_event": "The provider sent an event that is not JSON, and the retries are used up.",
    "method_not_allowed": "The path exists, with other methods; `Allow` lists them.",
    "no_websocket": "The proxy passes no WebSocket.",
    "not_json": "The body's `Content-Type` is not `application/json`.",
    "output_guardrail": "A guardrail refused the answer.",
    "path_outside_upstream": "The path leaves the path of `--upstream`.",
    "stopping": "The process is stopping.",
    "too_many_attempts": "`max_attempts` workers have lost the run.",
    "tool_error": "A tool raised an exception. The model reads its type and an id.",
    "upstream_cut": "The backend's answer broke off.",
    "upstream_invalid": "The backend's answer is not HTTP that can be passed on.",
    "upstream_timeout": "The backend did not answer in time.",
    "upstream_unreachable": "The backend cannot be reached.",
    "wrong_host": "The server does not answer for this name: list it in `hosts`.",
    "wrong_origin": "This web page may not call the server: list it in `origins`.",
}
"""Codes without an error class of their own: of HTTP answers, failed runs and failed calls."""


def events() -> str:
    """Every event with its fields."""
    lines = [
        "# Events\n",
        "Every event has `type`, `task_id` and `sequence_number`.",
        "Its time is `at`, in Unix seconds; only `sequence_number` orders events.",
        "[PROTOCOL.md](../../PROTOCOL.md) has their order and rules.",
        "`conformance/schema.json` is the JSON Schema.\n",
    ]
    parts = events_schema()["$defs"]
    for event in KNOWN:
        shape = parts[event.__name__]
        lines += [f"## `{event.__struct_config__.tag}`\n", _described(event), ""]
        common = ("type", "task_id", "sequence_number")
        fields = {name: of for name, of in shape["properties"].items() if name not in common}
        if fields:
            lines += ["| field | type | |", "| --- | --- | --- |"]
            required = shape.get("required", [])
            for name, of in fields.items():
                note = "required" if name in required else f"default `{_json(of.get('default'))}`"
                lines.append(f"| `{name}` | {_type(of)} | {note} |")
            lines.append("")
    lines += ["# Items and values\n"]
    known = {event.__name__ for event in KNOWN}
    for name, shape in parts.items():
        if name in known or "properties" not in shape:
            continue
        lines += [f"## {name}\n", inspect.cleandoc(shape.get("description", "")), ""]
        lines += ["| field | type | |", "| --- | --- | --- |"]
        for field, of in shape["properties"].items():
            optional = field not in shape.get("required", [])
            note = f"default `{_json(of.get('default'))}`" if optional else "required"
            lines.append(f"| `{field}` | {_type(of)} | {note} |")
        lines.append("")
    return "\n".join(lines)


SETTINGS_TEXT = """# Settings

Each setting has one name, in four places:

| place | `keep_runs` | `limits.runs` |
| --- | --- | --- |
| flag of `tailrace serve` and `tailrace worker` | `--keep-runs 52w` | `--limits-runs 50` |
| argument | `Tailrace(keep_runs=timedelta(weeks=52))` | `Tailrace(limits=ServerLimits(runs=50))` |
| variable | `TAILRACE_KEEP_RUNS=52w` | `TAILRACE_LIMITS_RUNS=50` |
| file | `keep_runs = "52w"` | `runs = 50` in the table `[limits]` |

The first place in this order that has a value counts, then the default. So leave a setting out of
the code if operators should choose it. The file is `tailrace.toml` in the current folder, or the
file that `--config` or `TAILRACE_CONFIG` names. An empty variable is not set.

- A name in the file that is not a setting is refused with the nearest right name. So is a variable
  that is nearly the name of a setting. Other variables are ignored, and a command logs their names
  when it starts: Kubernetes makes `TAILRACE_SERVICE_HOST` and more for a Service named `tailrace`.
  Set `enableServiceLinks: false` there, because `TAILRACE_PORT` is among them.
- Durations are `90s`, `15m`, `12h`, `30d`, `52w`, or seconds. Lists have commas between the names,
  or are lists in the file. Switches are `true` or `false`; as a flag `--no-…` turns one off.
- `secret` is not a flag, because other users of the machine could read it.
- `tailrace doctor main:app --all` shows each value and its place, without passwords and secrets.

```toml
database = "postgresql://tailrace@db/tailrace"
bus = "redis://cache"
hosts = ["ai.example.com", "localhost"]
keep_events = "30d"

[limits]
runs = 50
```

## All settings

| setting | default | flag of | |
| --- | --- | --- | --- |
"""


def settings() -> str:
    """The settings, the parameters of `Tailrace` and `Agent`, and the fields of their structs."""
    lines = [SETTINGS_TEXT.rstrip()]
    for setting in SETTINGS.values():
        where = ", ".join(setting.commands) or "none"
        value = as_text(setting, setting.default)
        lines.append(f"| `{setting.name}` | `{value}` | {where} | {setting.help} |")
    lines.append("")
    for cls, guide in ((Tailrace, "../how-to/deploy.md"), (Agent, "../agents.md")):
        lines.append(f"## `{cls.__name__}(…)`\n")
        if cls is Tailrace:
            lines += ["Parameters that are not settings:\n"]
        lines += ["| parameter | default | |", "| --- | --- | --- |"]
        texts = _sentences(cls)
        for name, parameter in inspect.signature(cls).parameters.items():
            if cls is Tailrace and name in SETTINGS:
                continue
            if name not in texts:
                raise SystemExit(f"Explain `{name}` in the docstring of {cls.__name__}.")
            lines.append(f"| `{name}` | {_default(parameter.default)} | {texts[name]} |")
        lines += ["", f"[More about it]({guide}).", ""]
    lines += ["## `Limits(…)`\n", "| limit | default |", "| --- | --- |"]
    for name, parameter in inspect.signature(Limits).parameters.items():
        lines.append(f"| `{name}` | {_default(parameter.default)} |")
    lines += ["", "[What each limit counts](../agents.md#limits).", ""]
    for struct, guide in ((Memory, "../agents.md#memory"), (Patience, "../models.md#errors")):
        lines += [f"## `{struct.__name__}(…)`\n", "| field | default | |", "| --- | --- | --- |"]
        texts = _field_texts(struct)
        for name, parameter in inspect.signature(struct).parameters.items():
            long = isinstance(parameter.default, str) and len(parameter.default) > 40
            shown = "a text" if long else _default(parameter.default)
            lines.append(f"| `{name}` | {shown} | {texts[name]} |")
        lines += ["", f"[More about it]({guide}).", ""]
    return "\n".join(lines)


def _field_texts(cls: type) -> dict[str, str]:
    """The strings below the fields of a class, by field."""
    [node] = ast.parse(inspect.getsource(cls)).body
    assert isinstance(node, ast.ClassDef)
    found = {}
    for field, below in itertools.pairwise(node.body):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            assert isinstance(field.target, ast.Name)
            assert isinstance(below.value, ast.Constant)
            found[field.target.id] = " ".join(str(below.value.value).split())
    return found


def http() -> str:
    """Every route of the server, as `GET /openapi.json` has it."""
    formats = ", ".join(f"`{name}`" for name in FORMATS)
    lines = [
        "# HTTP routes\n",
        "`GET /openapi.json` has the same as OpenAPI 3.1, with the schemas of bodies, answers and",
        "events. [PROTOCOL.md](../../PROTOCOL.md#13-the-http-api) has the rules.\n",
        f"`?format=` is one of {formats}, or a format of your own.\n",
        "| route | | query, headers | answers |",
        "| --- | --- | --- | --- |",
    ]
    routes = [route for api in APIS for route in api(FORMATS, Connections()).routes()]
    made = document(routes)
    for path, methods in made["paths"].items():
        for method, about in methods.items():
            text = " ".join(filter(None, (about["summary"], about.get("description"))))
            if not text:
                raise SystemExit(f"{method} {path} has no docstring.")
            takes = ", ".join(
                f"`{one['name']}`" for one in about.get("parameters", ()) if one["in"] != "path"
            )
            gives = ", ".join(status for status in about["responses"] if status < "400")
            lines.append(f"| `{method.upper()} {path}` | {text} | {takes} | {gives} |")
    lines += ["", "| status | |", "| --- | --- |"]
    lines += [f"| {status} | {text} |" for status, text in ERRORS.items()]
    return "\n".join([*lines, ""])


def errors() -> str:
    """Every error code: of classes, HTTP answers, runs and calls."""
    lines = [
        "# Error codes\n",
        "`code` is stable and for programs. `message` is for people, and holds no secret.\n",
        "## Errors with a class\n",
        "Named classes are in `tailrace.errors`. The status is that of a request that raises it.\n",
        "| code | class | status | |",
        "| --- | --- | --- | --- |",
    ]
    for cls in sorted(error_classes(), key=lambda cls: (cls.code, cls.__name__)):
        name = f"`{cls.__name__}`" if cls.__name__ in public_errors else ""
        text = _described(cls).splitlines()[0]
        lines.append(f"| `{cls.code}` | {name} | {status_of(cls)} | {text} |")
    lines += ["", "## Other codes\n", "| code | |", "| --- | --- |"]
    missing = other_codes() - set(OTHER_CODES) - {cls.code for cls in error_classes()}
    if missing:
        raise SystemExit(f"Explain in OTHER_CODES: {', '.join(sorted(missing))}.")
    lines += [f"| `{code}` | {text} |" for code, text in sorted(OTHER_CODES.items())]
    return "\n".join([*lines, ""])


def error_classes() -> set[type[TailraceError]]:
    """All errors of the package, without those of the test kits."""
    for module in pkgutil.walk_packages(tailrace.__path__, "tailrace."):
        if ".testing" not in module.name and "__main__" not in module.name:
            importlib.import_module(module.name)
    found: set[type[TailraceError]] = set()
    waiting = [TailraceError]
    while waiting:
        cls = waiting.pop()
        found.add(cls)
        waiting += cls.__subclasses__()
    return {cls for cls in found if cls.__module__.startswith("tailrace.")}


def other_codes() -> set[str]:
    """The codes that runtime and server write as text: `ErrorInfo(code="…")` and the like."""
    found: set[str] = set()
    for folder in ("runtime", "server"):
        for file in (ROOT / "src" / "tailrace" / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call):
                    continue
                called = getattr(node.func, "id", getattr(node.func, "attr", ""))
                values: list[ast.expr] = []
                if called == "ErrorInfo":
                    values = [one.value for one in node.keywords if one.arg == "code"]
                elif called in ("fail", "error_response") and node.args:
                    values = [node.args[1 if called == "error_response" else 0]]
                found |= {
                    one.value
                    for one in values
                    if isinstance(one, ast.Constant) and isinstance(one.value, str)
                }
    return found


def _described(thing: Any) -> str:
    text = inspect.getdoc(thing)
    if not text:
        raise SystemExit(f"{thing.__qualname__} has no docstring.")
    return text


def _sentences(cls: type) -> dict[str, str]:
    """What a docstring says about each parameter: its sentences, and those that follow them."""
    names = set(inspect.signature(cls).parameters)
    found: dict[str, str] = {}
    for paragraph in _described(cls).split("\n\n"):
        about: set[str] = set()
        for sentence in re.split(r"(?<=\.) (?=[A-Z`])", " ".join(paragraph.split())):
            named = {name for name in names if re.search(rf"`{name}[`=]", sentence)}
            about = {name for name in named if name not in found} or (about if not named else set())
            for name in about:
                found[name] = f"{found.get(name, '')} {sentence}".strip()
    return found


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return "required"
    if value is None or isinstance(value, bool | int | float | str):
        return f"`{value!r}`"
    if isinstance(value, tuple | list):
        return "empty"
    return f"`{type(value).__name__}()`"


def _type(of: dict[str, Any]) -> str:
    """A JSON Schema in few words."""
    if "$ref" in of:
        name = of["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in of:
        return " or ".join(dict.fromkeys(_type(one) for one in of["anyOf"]))
    if "enum" in of:
        return " or ".join(f"`{_json(one)}`" for one in of["enum"])
    if of.get("type") == "array":
        return f"list of {_type(of.get('items') or {})}"
    return str(of.get("type", "any JSON"))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


PAGES = {"events": events, "settings": settings, "http": http, "errors": errors}


def main(arguments: list[str]) -> int:
    """Write the pages, or with `--check` say which are stale."""
    code = 0
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        path, text = FOLDER / f"{name}.md", HEAD + page().strip() + "\n"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if "--check" in arguments:
            sys.stderr.write(f"docs/reference/{name}.md is stale: run `make docs`.\n")
            code = 1
        else:
            path.write_text(text, encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
