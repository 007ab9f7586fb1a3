"""What the project writes when something is wrong: errors and log lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tailrace.core import errors

SOURCE = Path(__file__).parents[1] / "src" / "tailrace"

CALLERS = {
    *("CallerError", "InvalidTool", "UnknownModel", "LimitReached", "StorageError", "StorageBusy"),
    *(
        name
        for name, found in vars(errors).items()
        if isinstance(found, type) and issubclass(found, errors.CallerError)
    ),
}
"""Errors that the caller can do something about. The others are faults of a provider or of ours."""

_VERBS = (
    "add annotate answer ask await cancel change check choose close compact connect convert copy"
    " correct create declare decorate encode flatten give import install leave list make name open"
    " pass pip put record remove rename replace restore return run see send set start store try"
    " upgrade use wait write"
)
NEXT = re.compile(
    rf"(?:^|[.;:,] (?:and |or |then )?)(?:{'|'.join(_VERBS.split())})\b"
    r"|\bmust\b|did you mean|(?:[.;:]|is not) …\.?$",
    re.IGNORECASE,
)
"""How a message says what to do: `…; use asc or desc`, `… must be a list`, or in a variable."""


def raised(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the message of each such error, with `…` for a value."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
            continue
        message = node.args[0]
        if node.func.id in CALLERS and isinstance(message, ast.Constant):
            yield node.lineno, str(message.value)
        elif node.func.id in CALLERS and isinstance(message, ast.JoinedStr):
            parts = message.values
            yield (
                node.lineno,
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts
                ),
            )


def modules() -> list[Path]:
    return [
        path
        for path in sorted(SOURCE.glob("**/*.py"))
        if not {"testing", "ingest"} & set(path.parts)  # `ingest` has faults of providers
    ]


def test_an_error_of_the_caller_says_what_to_do_next() -> None:
    found = [
        (path.relative_to(SOURCE).as_posix(), line, words)
        for path in modules()
        for line, words in raised(path)
    ]
    assert len(found) > 150
    assert [each for each in found if not NEXT.search(each[2])] == []
