"""PROTOCOL.md and the code say the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tailrace.core import event_schema as schema
from tailrace.core import rules
from tailrace.core.codec import decode_event
from tailrace.core.events import KNOWN, TIMED, Unknown
from tailrace.core.parts import DELTAS
from tailrace.server.server import APIS
from tailrace.server.transport.connections import Connections
from tailrace.wire.formats import FORMATS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "PROTOCOL.md").read_text(encoding="utf-8")
EXAMPLES = [
    line
    for block in re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
]


@pytest.mark.parametrize("example", EXAMPLES, ids=[str(n) for n in range(len(EXAMPLES))])
def test_every_example_is_a_known_event(example: str) -> None:
    event = decode_event(example.encode())
    assert not isinstance(event, Unknown)


def test_every_event_has_an_example_and_a_row() -> None:
    tags = {str(cls.__struct_config__.tag) for cls in KNOWN}
    assert {json.loads(line)["type"] for line in EXAMPLES} == tags
    tables = "\n".join(line for line in TEXT.splitlines() if line.startswith("|"))
    for tag in tags:
        short = f"`.{tag.rpartition('.')[2]}`"
        assert f"`{tag}`" in tables or (tag.rpartition(".")[0] in tables and short in tables), tag


def test_every_field_of_every_event_is_named() -> None:
    for cls in KNOWN:
        for field in cls.__struct_fields__:
            assert f"`{field}" in TEXT, f"{cls.__name__}.{field}"


def test_the_events_without_a_time_are_named() -> None:
    named = TEXT.split("These are all events\nbut ")[1].split("The clocks")[0]
    others = {str(cls.__struct_config__.tag) for cls in KNOWN if cls not in TIMED}
    assert {tag for tag in others if not tag.endswith(".delta")} == set(
        re.findall(r"`(task\.[a-z._]+)`", named)
    )
    assert {cls.__struct_config__.tag for cls in DELTAS} <= others


def test_the_rules_in_the_code_are_those_of_the_table() -> None:
    table = set(
        re.findall(
            r"^\| `([a-z-]+)` \|", TEXT.split("\n## 3.")[1].split("\n## 4.")[0], re.MULTILINE
        )
    )
    source = Path(rules.__file__).read_text(encoding="utf-8")
    assert table == set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', source))


def test_the_formats_without_a_cursor_are_named() -> None:
    named = TEXT.split(" have no cursor")[0].rpartition("\n")[2]
    without = {name for name, wire in FORMATS.items() if not wire.resumable}
    assert set(re.findall(r"`([a-z-]+)`", named)) == without


def test_every_route_of_the_server_is_described() -> None:
    found = [
        (route.path, method)
        for api in APIS
        for route in api({}, Connections()).routes()
        for method in sorted((route.methods or set()) - {"HEAD"})
    ]
    section = TEXT.split("\n## 13.")[1]
    assert len(found) > 10
    assert [
        f"{method} {path}" for path, method in found if f"`{method} {path}`" not in section
    ] == []


def test_the_schema_is_not_stale(capsys: pytest.CaptureFixture[str]) -> None:
    assert schema.write_schema(["--check"]) == 0, capsys.readouterr().err


def test_a_stale_schema_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(schema, "schema_text", lambda: "{}")
    assert schema.write_schema(["--check"]) == 1
    assert "make docs" in capsys.readouterr().err


def test_writing_the_schema_changes_nothing() -> None:
    path = ROOT / "conformance" / "schema.json"
    before = path.read_bytes()
    assert schema.write_schema([]) == 0
    assert path.read_bytes() == before
