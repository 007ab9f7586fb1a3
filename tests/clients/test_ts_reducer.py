"""The TypeScript reducer: its own tests, the protocol's traces, and its generated types."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.node import CLIENT_TS, ROOT, run_node

TRACES = ROOT / "conformance" / "traces"
GENERATOR = ROOT / "scripts" / "generate_ts_types.py"

ITEM = {"type": "message", "id": "m", "role": "assistant"}
EVENTS: list[dict[str, Any]] = [
    {"type": "task.created", "task_id": "r"},
    {"type": "task.output_item.done", "task_id": "r", "output_index": 0, "item": ITEM},
]
PRIVATE = [{"line": 2, "content": [{"type": "text", "text": "é"}]}]
MESSAGE = {**ITEM, "block_list": []}
VIEWS: list[dict[str, Any]] = [
    {"task_id": "r", "status": "queued", "output": []},
    {"task_id": "r", "status": "queued", "output": [MESSAGE]},
]
WHOLE = {**VIEWS[1], "output": [{**MESSAGE, "content": PRIVATE[0]["content"]}]}


def conformance(folder: Path) -> str:
    return run_node([CLIENT_TS / "test" / "conformance.ts", folder], timeout=300)


def write_trace(folder: Path, **changes: Any) -> None:
    trace = folder / "small"
    trace.mkdir()
    views = [json.dumps(view, sort_keys=True, separators=(",", ":")) for view in VIEWS]
    files = {
        "events.jsonl": "\n".join(map(json.dumps, EVENTS)),
        "private.jsonl": "\n".join(map(json.dumps, PRIVATE)),
        "view.json": json.dumps(VIEWS[-1]),
        "whole.json": json.dumps(WHOLE),
        "digests.txt": "\n".join(hashlib.sha256(view.encode()).hexdigest() for view in views),
    }
    for name, text in {**files, **changes}.items():
        (trace / name).write_text(text + "\n", "utf-8")


def test_its_own_tests() -> None:
    tests = sorted((CLIENT_TS / "test").glob("*.test.ts"))
    assert tests
    assert "\nℹ fail 0\n" in run_node(["--test", "--test-reporter=spec", *tests], cwd=CLIENT_TS)


def test_conformance() -> None:
    names = sorted(path.name for path in TRACES.iterdir() if path.is_dir())
    assert conformance(TRACES).splitlines() == [f"ok {name}" for name in names]


def test_the_runner_accepts_a_good_trace(tmp_path: Path) -> None:
    write_trace(tmp_path)
    assert conformance(tmp_path) == "ok small\n"


@pytest.mark.parametrize(
    "changes",
    [
        {"view.json": json.dumps(VIEWS[0])},
        {"whole.json": json.dumps(VIEWS[1])},
        {"digests.txt": f"{'0' * 64}\n{'0' * 64}"},
        {"digests.txt": ""},
        {"private.jsonl": ""},
        {"private.jsonl": json.dumps({"line": 3})},
        {"events.jsonl": json.dumps(EVENTS[0])},
    ],
)
def test_the_runner_refuses_a_bad_trace(tmp_path: Path, changes: dict[str, str]) -> None:
    write_trace(tmp_path, **changes)
    with pytest.raises(AssertionError, match="not ok small"):
        conformance(tmp_path)


def test_the_runner_refuses_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no traces"):
        conformance(tmp_path)


def test_the_fold_server() -> None:
    requests: list[dict[str, Any]] = [
        {"events": EVENTS, "private": [None, {"content": PRIVATE[0]["content"]}]},
        {"events": EVENTS, "resume": True},
        {"events": [{"type": "odd", "text": "\u2028"}]},
    ]
    lines = "".join(json.dumps(request, ensure_ascii=False) + "\n" for request in requests)
    answers = run_node([CLIENT_TS / "test" / "fold-stdin.ts"], stdin=lines).rstrip("\n").split("\n")
    first, second, third = map(json.loads, answers)
    assert first["views"] == second["views"] == VIEWS
    assert first["applied"] == [True, True]
    assert first["whole"] == WHOLE
    assert first["saved"]["tasks"][0]["items"][0]["private"] == {"content": PRIVATE[0]["content"]}
    assert third["views"] == [None]
    assert third["saved"]["unknown"] == requests[2]["events"]


def test_the_reducers_benchmark_runs() -> None:
    measured = json.loads(run_node([CLIENT_TS / "test" / "bench.ts", "1000"]))
    assert measured["events"] == 1000
    assert measured["ns_per_event"] > 0


def stale(*options: str) -> tuple[int, str]:
    command = [sys.executable, str(GENERATOR), "--check", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_the_types_are_those_of_the_schema() -> None:
    assert stale() == (0, "")


def test_a_changed_schema_makes_the_types_stale(tmp_path: Path) -> None:
    schema = json.loads((ROOT / "conformance" / "schema.json").read_text("utf-8"))
    schema["$defs"]["Notice"]["properties"]["colour"] = {"type": "string", "default": ""}
    changed = tmp_path / "schema.json"
    changed.write_text(json.dumps(schema), "utf-8")
    code, output = stale("--schema", str(changed))
    assert code == 1
    assert "events.ts is stale" in output
    assert "shapes.ts is stale" in output
