"""Reads docstrings: what a function does, and what its parameters mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Params|Returns?|Yields?|Raises|Notes?|Examples?|Attributes|"
    r"Warns|Warnings?|See Also|References|Todo|Other Parameters|Keyword Args|"
    r"Keyword Arguments):?\s*$"
)
_OF_PARAMETERS = ("Args", "Arguments", "Parameters", "Params", "Other Parameters", "Keyword")
_GOOGLE = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY = re.compile(r"\*{0,2}(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$")
_SPHINX = re.compile(
    r":(param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+):\s*(.*)"
)
_SPHINX_FIELD = re.compile(r":\w[^:]*:")


def read_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """The description of a function and of its parameters.

    Reads Google's `Args:`, NumPy's underlined `Parameters`, and Sphinx's `:param name:`.
    """
    lines = doc.expandtabs().splitlines()
    described: dict[str, list[str]] = {}
    text: list[str] = []
    index = 0
    while index < len(lines):
        line = lines[index]
        if line[:1] != " " and (section := _SECTION.match(line)):
            underlined = index + 1 < len(lines) and re.fullmatch(r"-{3,}\s*", lines[index + 1])
            if underlined or line.rstrip().endswith(":"):
                body = list(_body(lines, index + (2 if underlined else 1), bool(underlined)))
                index += (2 if underlined else 1) + len(body)
                if section[1].startswith(_OF_PARAMETERS):
                    _read_section(body, _NUMPY if underlined else _GOOGLE, described)
                continue
        if _SPHINX_FIELD.match(line):
            index += _read_field(lines, index, described)
            continue
        text.append(line)
        index += 1
    joined = {name: " ".join(" ".join(words).split()) for name, words in described.items()}
    return "\n".join(text).strip(), {name: words for name, words in joined.items() if words}


def _body(lines: list[str], start: int, underlined: bool) -> Iterator[str]:
    """The lines of a section: up to the next heading, or the next text that is not indented."""
    for index in range(start, len(lines)):
        line = lines[index]
        if line[:1] not in ("", " "):
            following = lines[index + 1] if index + 1 < len(lines) else ""
            if not underlined or re.fullmatch(r"-{3,}\s*", following):
                return
        yield line


def _read_section(
    body: Iterable[str], entry: re.Pattern[str], described: dict[str, list[str]]
) -> None:
    depth: int | None = None
    words: list[str] = []
    for line in body:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        depth = indent if depth is None else depth
        if indent <= depth and (found := entry.match(line.strip())):
            words = [found[2]] if entry is _GOOGLE else []
            for name in found[1].split(","):
                described[name.strip()] = words
        else:
            words.append(line)


def _read_field(lines: list[str], start: int, described: dict[str, list[str]]) -> int:
    """Read a Sphinx field and its indented lines; how many lines it has."""
    index = start + 1
    while index < len(lines) and lines[index][:1] == " ":
        index += 1
    if found := _SPHINX.match(lines[start]):
        described[found[2]] = [found[3], *lines[start + 1 : index]]
    return index - start
