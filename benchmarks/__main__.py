"""Run the benchmarks: `python -m benchmarks [--quick] [name …]`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import report
from benchmarks.harness import FULL, QUICK, Figures, Table, Target, progress

SUBJECTS = {
    "fold": "events into the object",
    "ingest": "providers' streams into events",
    "encode": "events into the frames of each wire format",
    "weight": "bytes on the wire",
    "citations": "finding [^n] while the text streams",
    "partial_json": "the value so far of a call's arguments",
    "snapshot": "a state into bytes and back",
    "typescript": "the TypeScript reducer and the npm clients",
    "loop": "an agent's loop, with tools and sub-agents, beside frameworks",
    "live": "over HTTP: events a second, latency, late join, many readers",
    "stored": "bytes that the log of an ended run takes",
    "scale": "workers on PostgreSQL: the model of docs/scale.md, with 1, 2 and 4 of them",
    "memory": "a server whose readers of a large run stop reading",
    "imports": "how long an import takes, and the start of a server",
}
RESULTS = Path(__file__).parent / "RESULTS.md"


def main() -> int:
    """Measure what was asked for; a whole run also writes RESULTS.md."""
    known = "\n".join(f"  {name:<14}{about}" for name, about in SUBJECTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Tailrace, its peers and the limit in one run, and print ratios.",
        epilog=f"subjects:\n{known}\n\nOnly a run of all subjects, not quick, writes RESULTS.md.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="name", help="run only subjects with this in their name"
    )
    parser.add_argument("--quick", action="store_true", help="a minute instead of ten; coarser")
    parser.add_argument("--date", help="the date to write into the results; today if not given")
    options = parser.parse_args()
    chosen = [
        name
        for name in SUBJECTS
        if not options.names or any(wanted in name for wanted in options.names)
    ]
    if not chosen:
        parser.error(f"no subject is called like that; there are {', '.join(SUBJECTS)}")
    date = options.date or datetime.now(UTC).date().isoformat()
    load = os.getloadavg()[0]
    # All of them first: a long run measures one state of the code, whatever is edited meanwhile.
    modules = {name: importlib.import_module(f"benchmarks.{name}") for name in chosen}
    pace = QUICK if options.quick else FULL
    found: list[tuple[str, list[Table | Figures], list[Target]]] = []
    try:
        for name, module in modules.items():
            start = time.perf_counter()
            found.append((name, *module.run(pace)))
            progress("")
            print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    finally:  # also after an error or Ctrl-C: what was measured is worth showing
        text = report.markdown(found, SUBJECTS, date, (load, os.getloadavg()[0]))
        print(text)
    if not options.quick and chosen == list(SUBJECTS):
        RESULTS.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
