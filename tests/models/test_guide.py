"""The guide to models says what is so: its programs are run, its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tailrace.ports import Request
from tailrace.runtime.model_calls.call import Patience
from tests.forked import run

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
PRINTED = [
    "completed It is sunny in Paris.",
    "['reasoning', 'tool_call']\n['message']",
    "completed\ncompleted\ncompleted",
    "Hello!",
]


def test_every_program_of_the_guide_is_run() -> None:
    assert len(PROGRAMS) == len(PRINTED)


@pytest.mark.parametrize("number", range(len(PRINTED)))
def test_a_program_of_the_guide_runs_as_it_stands(number: int, tmp_path: Path) -> None:
    done = run("-W", "error", "-c", PROGRAMS[number], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert PRINTED[number] in done.stdout


def test_every_field_of_a_request_and_of_patience_is_in_the_guide() -> None:
    inner = {"attempt", "note"}  # set by `call_model`
    for struct in (Request, Patience):
        for field in msgspec.structs.fields(struct):
            assert field.name in inner or re.search(rf"\b{field.name}\b", GUIDE), field.name
