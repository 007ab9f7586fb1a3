"""How long an import takes, each in a fresh process."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.harness import Pace, Table, Target, Times, at_most, progress

IMPORTS = {
    "starlette + uvicorn": "import starlette.applications, starlette.routing, uvicorn",
    "tailrace": "import tailrace",
    "tailrace.app": "import tailrace.app",
    "openai": "import openai",
    "anthropic": "import anthropic",
    "pydantic_ai": "import pydantic_ai",
}
_CODE = "import time; t = time.process_time(); {}; print(time.process_time() - t)"


def run(pace: Pace) -> tuple[list[Table], list[Target]]:
    """CPU time of the import statement alone: Python's own start is not in it."""
    rounds = min(pace.rounds, 12)
    seconds: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for turn in range(rounds):
        names = list(IMPORTS)
        for name in names if turn % 2 == 0 else reversed(names):
            progress(f"imports: round {turn + 1}, {name}")
            code = _CODE.format(IMPORTS[name])
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            )
            seconds[name].append(float(done.stdout))
    times: Times = {1: seconds}
    table = Table(
        "imports",
        times,
        ours="tailrace.app",
        limit="starlette + uvicorn",
        unit="import",
        scale=1e3,
        column=lambda _: "ms",
        remark=(
            "`tailrace` alone loads no web framework; `tailrace.app` is all that a server needs, "
            "starlette included. Bytecode is compiled, files are cached."
        ),
    )
    return [table], [at_most("import tailrace", 150, table.best("tailrace", 1) or 0.0, "ms")]
