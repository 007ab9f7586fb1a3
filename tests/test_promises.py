"""Every test that tests/PROMISES.md names exists, and the README says what it quotes."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hypothesis import settings

TESTS = Path(__file__).parent
KITS = TESTS.parent / "src" / "tailrace" / "testing"


def test_every_promise_has_a_test_that_exists() -> None:
    rows = re.findall(
        r"^\| (?!---)(.+?) \| (.+) \|$", (TESTS / "PROMISES.md").read_text(), re.MULTILINE
    )
    files = [one for folder in (TESTS, KITS) for one in folder.rglob("*.py")]
    known = {
        name
        for file in files
        if "node_modules" not in file.parts
        for name in re.findall(r"def (test_\w+)\(", file.read_text(encoding="utf-8"))
    }
    assert len(rows) > 40
    for row, tests in rows:
        named = re.findall(r"`(test_\w+)`", tests)
        assert named or row in ("try", "fault", "claim"), row
        assert set(named) <= known, f"{row}: {sorted(set(named) - known)}"


def test_every_claim_is_in_the_words_of_the_readme() -> None:
    claims = (TESTS / "PROMISES.md").read_text(encoding="utf-8").partition("## README\n")[2]
    readme = " ".join((TESTS.parent / "README.md").read_text(encoding="utf-8").split())
    rows = re.findall(r"^\| (?!---|claim)(.+?) \| `test_", claims, re.MULTILINE)
    assert len(rows) > 20
    for row in rows:
        assert row in readme, row


def test_hypothesis_tries_the_same_examples_on_every_run() -> None:
    """A red build is about the change. Random examples are asked for, and print how to repeat."""
    is_random = os.environ.get("HYPOTHESIS_PROFILE", "fixed") == "random"
    assert settings().derandomize is not is_random
    assert settings().print_blob
