"""Every test that tests/PROMISES.md names exists."""

from __future__ import annotations

import re
from pathlib import Path

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
        assert named or row in ("try", "fault"), row
        assert set(named) <= known, f"{row}: {sorted(set(named) - known)}"
