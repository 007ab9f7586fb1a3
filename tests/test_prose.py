"""The names and words of the project: plain, and each class name once."""

import ast
import inspect
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LONGEST_FUNCTION = 55
"""Lines of code; a longer function has parts that want a name."""

WORDS = re.compile(
    r"\b(told|said|nobody|somebody|anybody|everybody|whoever|no one)\b", re.IGNORECASE
)
LONGEST_SENTENCE = 25
"""Words. Code between backquotes is one word."""

PAGES = (
    *("README.md", "CONTRIBUTING.md", "PROTOCOL.md", "docs/**/*.md", "benchmarks/*.md"),
    *("conformance/README.md", "clients/ts/*.md"),
)
TEXTS = sorted(
    path
    for pattern in (
        *PAGES,
        *("src/**/*.py", "src/tailrace/inspector/*.js", "src/tailrace/inspector/*.html"),
        *("examples/*.py", "scripts/*", "clients/ts/src/*.ts", "clients/ts/test/*.ts"),
        *("tests/js/*.mjs", "benchmarks/js/*.mjs", "benchmarks/**/*.py"),
        "Makefile",
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


CELL = r"(?:`[^`\n]*`|\\\||[^|\n])+"
"""A cell of a table. A bar in code, or behind a backslash, does not end it."""


def is_odd(text: str) -> bool:
    return WORDS.search(text.replace("_", " ")) is not None


def names_and_comments(path: Path) -> Iterator[str]:
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type in (tokenize.NAME, tokenize.COMMENT):
                yield token.string
    yield from docstrings(path)


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


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a module, of its classes and functions, and of their fields."""
    for node in ast.walk(tree(path)):
        body = getattr(node, "body", None)
        for line in body if isinstance(body, list) else []:
            match line:
                case ast.Expr(ast.Constant(str(text))):
                    yield inspect.cleandoc(text)


def comments(path: Path) -> Iterator[str]:
    """The comments of a file. Lines of the same column that follow each other are one comment."""
    last = (0, 0)
    lines: list[str] = []
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type != tokenize.COMMENT:
                continue
            row, column = token.start
            if (row - 1, column) != last and lines:
                yield " ".join(lines)
                lines = []
            last = (row, column)
            lines.append(token.string.lstrip("#").strip())
    yield " ".join(lines)


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs, list items and table cells of Markdown, without code and headings."""
    text = re.sub(r"^ *```.*?^ *```$|<!--.*?-->", "", text, flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        is_aligned = block.startswith("    ") or re.search(r"\S  +\S", block)
        if block.lstrip().startswith("|"):
            yield from (cell.strip() for cell in re.findall(CELL, block))
        elif not (is_aligned or block.lstrip().startswith(("#", "<", "==="))):
            yield " ".join(block.split())


def long_sentences(text: str) -> Iterator[str]:
    for paragraph in paragraphs(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", paragraph))
        for sentence in re.split(r"(?<=[.!?])[\"')*]*\s+", plain):
            if len(re.findall(r"\w[\w'./-]*", sentence)) > LONGEST_SENTENCE:
                yield sentence


@pytest.mark.parametrize(
    "path",
    sorted({path for pattern in PAGES for path in ROOT.glob(pattern)}),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_a_page_has_short_sentences(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if path.name == "RESULTS.md":
        text = text.partition("## Targets")[2]  # before it: the versions of all packages
    assert list(long_sentences(text)) == []


def test_a_docstring_has_short_sentences() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {sentence}"
        for path in sorted((ROOT / "src").glob("**/*.py"))
        for text in docstrings(path)
        for sentence in long_sentences(text)
    ]
    assert found == []


def test_a_comment_has_short_sentences() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {sentence}"
        for path in sorted((ROOT / "src").glob("**/*.py"))
        for text in comments(path)
        for sentence in long_sentences(text)
    ]
    assert found == []


def test_the_limit_finds_a_long_sentence_and_skips_code(tmp_path: Path) -> None:
    long = "a word " * 13
    short = "```\n" + long + "\n```\n\n    " + long + "\n\n`" + long + "`"
    assert list(long_sentences(short)) == []
    assert list(long_sentences(f"Short.\n- {long}.\n")) == [f"- {long.strip()} ."]
    table = f"| a | b |\n| --- | --- |\n| word \\| {long}| {long} |\n| `{long}|{long}` | c |\n"
    assert list(long_sentences(table)) == [f"word \\| {long.strip()}", long.strip()]
    half = "a word " * 7
    (tmp_path / "a.py").write_text(f"a = 1  # {half}\n# {half}\n# {half}\n", encoding="utf-8")
    assert list(comments(tmp_path / "a.py")) == [half.strip(), f"{half}{half.strip()}"]


def public_types(path: Path) -> Iterator[str]:
    """The classes and type aliases of a module, without type variables of one letter."""
    for node in tree(path).body:
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
    assert {"State", "Json", "Block", "SqliteStore"} <= set(names)
    assert [name for name, count in names.items() if count > 1] == []


def public_functions(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
            yield node.name


def test_no_other_package_has_a_function_with_the_name_of_a_function_of_core_or_ports() -> None:
    """All packages import these. Elsewhere, the packages of APIs share names by design."""
    places: dict[str, set[Path]] = {}
    for path in (ROOT / "src" / "tailrace").glob("**/*.py"):
        for name in public_functions(path):
            places.setdefault(name, set()).add(path)
    shared = {
        name: sorted(str(path.relative_to(ROOT)) for path in paths)
        for name, paths in places.items()
        if len(paths) > 1 and {"core", "ports"} & {path.parent.name for path in paths}
    }
    assert {"text_of", "host_of"} <= set(places)
    assert shared == {}


def test_a_function_fits_on_a_page() -> None:
    """Without its signature and docstring, which may be long for a command or a public class."""
    found = []
    for path in (ROOT / "src").glob("**/*.py"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[1 if ast.get_docstring(node) and len(node.body) > 1 else 0]
                lines = (node.end_lineno or 0) - first.lineno + 1
                if lines > LONGEST_FUNCTION:
                    found.append(f"{path.name}: {node.name} has {lines} lines")
    assert found == []
