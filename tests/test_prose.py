"""The names and words of the project: plain, and each class name once."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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


def test_a_public_class_name_exists_once() -> None:
    names = Counter(
        name
        for path in (ROOT / "src").glob("**/*.py")
        for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert [name for name, count in names.items() if count > 1] == []
