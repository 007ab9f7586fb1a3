"""The golden traces are as their stories tell them, and the files are what README.md says."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.authoring import STORIES, canonical, digest, number_text
from conformance.stories import ALL
from tailrace.core.codec import decode_event, encode_event
from tailrace.core.events import KNOWN, Private
from tests.core.naive import NaiveState
from tests.node import run_node

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "conformance" / "traces"
NAMES = sorted(path.name for path in TRACES.iterdir())
LEGAL = [name for name in NAMES if STORIES[name].legal]


def objects(path: Path) -> list[dict[str, Any]]:
    # Not `splitlines`: U+2028 and its like stand inside of strings.
    *lines, end = path.read_bytes().decode().split("\n")
    assert end == ""
    return [json.loads(line) for line in lines]


def privates(name: str) -> dict[int, dict[str, Any]]:
    """The private part of each line that has one."""
    path = TRACES / name / "private.jsonl"
    if not path.exists():
        return {}
    lines = {
        event.get("sequence_number"): line
        for line, event in enumerate(objects(TRACES / name / "events.jsonl"), start=1)
    }
    found = {}
    for private in objects(path):
        number, line = private.pop("sequence_number", None), private.pop("line", None)
        found[line or lines[number]] = private
    return found


def test_every_story_has_its_folder() -> None:
    assert len(ALL) > 1
    assert sorted(STORIES) == NAMES


def test_what_is_generated_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "conformance" / "generate.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.long(always=True)
@pytest.mark.parametrize("name", NAMES)
def test_the_files_of_a_trace_tell_the_same_story(name: str) -> None:
    folder = TRACES / name
    state = NaiveState()
    digests = []
    for line, event in enumerate(objects(folder / "events.jsonl"), start=1):
        state.apply(event, privates(name).get(line))
        digests.append(digest(state.view()))
    assert digests == (folder / "digests.txt").read_text().splitlines()
    assert json.loads((folder / "view.json").read_text()) == state.view()
    assert json.loads((folder / "whole.json").read_text()) == state.whole()


@pytest.mark.parametrize("name", sorted({*LEGAL} - {"defaults_spelt_out"}))
def test_events_are_written_as_the_native_stream_writes_them(name: str) -> None:
    """Field by field in the same order, with the defaults that PROTOCOL.md wants and no others."""
    for event in objects(TRACES / name / "events.jsonl"):
        again = encode_event(decode_event(json.dumps(event).encode()))
        # As text, because the order of fields counts; with floats, because 1 and 1.0 are the same.
        assert json.dumps(json.loads(again, parse_int=float)) == json.dumps(
            json.loads(json.dumps(event), parse_int=float)
        )


@pytest.mark.parametrize("name", NAMES)
def test_private_parts_have_no_unknown_fields(name: str) -> None:
    for private in privates(name).values():
        assert json.loads(msgspec.json.encode(msgspec.convert(private, Private))) == private


@pytest.mark.parametrize("name", NAMES)
def test_nothing_private_is_in_a_view(name: str) -> None:
    view = (TRACES / name / "view.json").read_text()
    assert '"content"' not in view.replace('"content": "And tomorrow?"', "")
    assert '"private"' not in view
    assert "added_by_reference_manager" not in view


def test_every_event_of_the_protocol_is_in_some_trace() -> None:
    seen = {event["type"] for name in NAMES for event in objects(TRACES / name / "events.jsonl")}
    tags = {known.__struct_config__.tag for known in KNOWN}
    assert tags - seen == set()


def test_digests_are_of_canonical_json() -> None:
    readme = (ROOT / "conformance" / "README.md").read_text()
    example = readme.split("```\n{", 1)[1].split("```", 1)[0]
    text, expected = ("{" + example).strip().splitlines()
    assert canonical(json.loads(text)) == text
    assert hashlib.sha256(text.encode()).hexdigest() == expected
    assert (TRACES / "hello" / "digests.txt").read_text().startswith(expected)


def test_canonical_json_is_what_javascript_makes_of_it() -> None:
    readme = (ROOT / "conformance" / "README.md").read_text()
    script = readme.split("```js\n", 1)[1].split("```", 1)[0]
    odd = [0.1, 1e21, 1e-7, 123456789012345680000, 5e-324, -0.0, 2**53 - 1, 100, 12.5, 1e-6]
    values = [json.loads((TRACES / name / "whole.json").read_text()) for name in NAMES]
    values += [odd, {"\ufb33": 1, "\U0001f600": 2, "\r": "\u007f\u2028\b\u001f", "1": True}]
    script += (
        "const values = JSON.parse(require('node:fs').readFileSync(0, 'utf8'));\n"
        "console.log(JSON.stringify(values.map(canonical)));\n"
    )
    written = json.loads(run_node(["-e", script], stdin=json.dumps(values)))
    assert written == [canonical(one) for one in values]
    assert [number_text(number) for number in odd[:3]] == ["0.1", "1e+21", "1e-7"]
