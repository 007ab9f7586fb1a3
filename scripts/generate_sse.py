"""Writes what each wire format makes of each golden trace, or checks it.

    python scripts/generate_sse.py            write conformance/traces/*/<format>.sse
    python scripts/generate_sse.py --check    write nothing; exit with 1 if a file is stale

Only traces that our writer may write are encoded: what else a reader survives is no log.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tailrace.core.codec import decode_event
from tailrace.testing.wire_kit import encoded, is_log
from tailrace.wire.formats import FORMATS

TRACES = Path(__file__).resolve().parents[1] / "conformance" / "traces"


def files() -> dict[Path, bytes]:
    """Every generated file and what belongs in it."""
    result: dict[Path, bytes] = {}
    for folder in sorted(TRACES.iterdir()):
        raw = (folder / "events.jsonl").read_bytes().splitlines()
        events = [decode_event(line) for line in raw]
        if not is_log(events):
            continue
        for name, wire in FORMATS.items():
            frames = encoded(wire, events)
            result[folder / f"{name}.sse"] = b"".join(frame for each in frames for frame in each)
    return result


def main(arguments: list[str]) -> int:
    """Write the files, or with `--check` say which are stale."""
    wanted = files()
    there = set(TRACES.glob("*/*.sse"))
    stale = [
        path for path, body in wanted.items() if path not in there or path.read_bytes() != body
    ]
    extra = sorted(there - set(wanted))
    if "--check" in arguments:
        for path in [*stale, *extra]:
            sys.stderr.write(f"{path.parent.name}/{path.name} is stale: run `make docs`.\n")
        return 1 if stale or extra else 0
    for path in stale:
        path.write_bytes(wanted[path])
    for path in extra:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
