"""The names and words of the project: plain, and each class name once."""

import ast
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LONGEST_FUNCTION = 55
"""Lines of code; a longer function has parts that want a name."""

WORDS = re.compile(r"\b(told|said|nobody|somebody|whoever)\b", re.IGNORECASE)
TEXTS = sorted(
    path
    for pattern in (
        *("src/**/*.py", "src/tailrace/inspector/*.js", "src/tailrace/inspector/*.html"),
        *("docs/**/*.md", "examples/*.py", "scripts/*", "clients/ts/src/*.ts", "clients/ts/*.md"),
        *("README.md", "PROTOCOL.md", "CONTRIBUTING.md", "Makefile"),
    )
    for path in ROOT.glob(pattern)
    if path.is_file()
)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_text_uses_plain_words(path: Path) -> None:
    found = [
        f"line {number}: {line.strip()}"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if WORDS.search(line)
    ]
    assert found == []


def is_odd(text: str) -> bool:
    return WORDS.search(text.replace("_", " ")) is not None


def names_and_comments(path: Path) -> Iterator[str]:
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type in (tokenize.NAME, tokenize.COMMENT):
                yield token.string
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("folder", ["tests", "benchmarks", "conformance"])
def test_names_and_comments_of_tests_and_benchmarks_use_plain_words(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in sorted((ROOT / folder).glob("**/*.py"))
        if is_odd(path.read_text(encoding="utf-8"))  # most are not, and reading tokens takes long
        for text in names_and_comments(path)
        if is_odd(text)
    ]
    assert found == []


def public_types(path: Path) -> Iterator[str]:
    """The classes and type aliases of a module, without type variables of one letter."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            named = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (each.id for each in named if isinstance(each, ast.Name))


def test_the_name_of_a_public_class_or_type_alias_exists_once() -> None:
    names = Counter(
        name
        for path in (ROOT / "src").glob("**/*.py")
        for name in public_types(path)
        if re.match("[A-Z][A-Za-z]*[a-z]", name)
    )
    assert {"State", "Json", "Block", "SqliteLog"} <= set(names)
    assert [name for name, count in names.items() if count > 1] == []


def test_a_function_fits_on_a_page() -> None:
    """Without its signature and docstring, which may be long for a command or a public class."""
    found = []
    for path in (ROOT / "src").glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[1 if ast.get_docstring(node) and len(node.body) > 1 else 0]
                lines = (node.end_lineno or 0) - first.lineno + 1
                if lines > LONGEST_FUNCTION:
                    found.append(f"{path.name}: {node.name} has {lines} lines")
    assert found == []
