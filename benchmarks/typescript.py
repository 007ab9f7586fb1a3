"""The TypeScript reducer next to the npm clients, all in one Node process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from benchmarks.harness import Pace, Table, Target, Times, progress
from tests.node import ROOT, node_env, node_path

SIZES = (1_000, 10_000, 100_000)
SCRIPT = Path(__file__).parent / "js" / "bench.mjs"


def _measured(pace: Pace) -> Times:
    command = [str(node_path()), "--expose-gc", str(SCRIPT), str(pace.rounds), str(pace.seconds)]
    command += map(str, pace.sizes(SIZES))
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=node_env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as node:
        assert node.stdout is not None
        assert node.stderr is not None
        errors: list[str] = []
        for line in node.stderr:
            errors.append(line)
            progress(line.rstrip())
        output = node.stdout.read()
    if node.returncode != 0:
        raise RuntimeError("".join(errors[-20:]))
    times: dict[str, dict[str, list[float]]] = json.loads(output)
    return {int(size): by_name for size, by_name in times.items()}


def run(pace: Pace) -> tuple[list[Table], list[Target]]:
    """One table; the clients get events that are parsed already."""
    table = Table(
        "typescript: text, events already parsed",
        _measured(pace),
        ours="tailrace",
        limit="limit",
        scale=1e9,
        remark=(
            "Wall-clock time, so other processes disturb this table most. The limit pushes each "
            "delta to an array and joins once. The AI SDK and the AG-UI client make a new message "
            "after each event. We show the object when asked: once at the end or, in the third "
            "row, after each event. A contender that takes longer than a few seconds is run once."
        ),
    )
    return [table], []
