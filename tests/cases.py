"""Cases kept as files: `<case>/stream.jsonl` goes in, `<case>/expected.json` comes out.

A case of a wire format has `events.jsonl` instead, a case of a history `conversation.jsonl`.

The name of the folder is the promise. `make cases` writes each `expected.json` anew; read its diff.
An optional `about` in `expected.json` says who sends such a stream; it is kept.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_WRITE = os.environ.get("TAILRACE_WRITE_CASES") == "1"


def cases(*roots: Path, given: str = "stream.jsonl") -> list[Path]:
    """The folders of all cases below these folders."""
    return sorted(path.parent for root in roots for path in root.rglob(given))


def check(case: Path, found: dict[str, Any], width: int = 100, depth: int = 99) -> None:
    """Compare with what the case expects, or write that. The order of names does not matter.

    Values at this depth are written on one line each, however long.
    """
    path = case / "expected.json"
    wanted = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if "about" in wanted:
        found = {"about": wanted["about"], **found}
    if not _WRITE:
        assert _ordered(found, width) == _ordered(wanted, width)
    elif _ordered(found, width) != _ordered(wanted, width):
        path.write_text(_pretty(found, width, depth) + "\n", encoding="utf-8")


def _ordered(value: Any, width: int) -> str:
    return _pretty(json.loads(json.dumps(value, sort_keys=True)), width)


def _pretty(value: Any, width: int, depth: int = 99, indent: str = "") -> str:
    """JSON in which a value stands on one line if that is not too long, or at this depth."""
    line = json.dumps(value, ensure_ascii=False)
    short = not depth or len(indent) + len(line) < width
    if short or not isinstance(value, dict | list) or not value:
        return line
    inner = indent + "  "
    if isinstance(value, list):
        parts = [_pretty(part, width, depth - 1, inner) for part in value]
    else:
        parts = [
            f"{json.dumps(name)}: {_pretty(part, width, depth - 1, inner)}"
            for name, part in value.items()
        ]
    opened, closed = "[]" if isinstance(value, list) else "{}"
    return f"{opened}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{closed}"
