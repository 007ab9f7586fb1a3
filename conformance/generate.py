"""Writes the golden traces, or checks that they are as their stories tell them.

    python conformance/generate.py            write conformance/traces and the list in README.md
    python conformance/generate.py --check    write nothing; exit with 1 if a file is stale

The views and whole objects come from a naive fold that shares no code with Tailrace
(`tests/core/naive.py`), and each story asserts by hand what matters about them. The saved states
are Tailrace's own; the TypeScript client has to save the same.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT / "conformance" / "traces"
README = ROOT / "conformance" / "README.md"
BEGIN, END = "<!-- traces: begin -->", "<!-- traces: end -->"


def files() -> dict[Path, str]:
    """Every generated file and what belongs in it."""
    from conformance.authoring import STORIES, compact, pretty
    from conformance.stories import ALL

    names = [name for module in ALL for name in vars(module) if name in STORIES]
    assert sorted(names) == sorted(STORIES)
    result: dict[Path, str] = {}
    rows = [
        "| trace | events | a writer may send it | what it shows |",
        "| --- | --- | --- | --- |",
    ]
    for name in names:
        story = STORIES[name]
        trace = story.trace()
        folder = TRACES / name
        privates = []
        for line, (event, private) in enumerate(
            zip(trace.events, trace.privates, strict=True), start=1
        ):
            if private:
                number = event.get("sequence_number")
                place = {"sequence_number": number} if number else {"line": line}
                privates.append({**place, **private})
        result[folder / "events.jsonl"] = lines([compact(event) for event in trace.events])
        if privates:
            result[folder / "private.jsonl"] = lines([compact(private) for private in privates])
        result[folder / "view.json"] = pretty(trace.view())
        result[folder / "whole.json"] = pretty(trace.whole())
        result[folder / "saved.json"] = pretty(saved_state(result[folder / "events.jsonl"]))
        result[folder / "digests.txt"] = lines(trace.digests())
        legal = "yes" if story.legal else "no"
        rows.append(f"| `{name}` | {len(trace.events)} | {legal} | {story.about} |")
    head, _, rest = README.read_text().partition(BEGIN)
    tail = rest.partition(END)[2]
    result[README] = f"{head}{BEGIN}\n{lines(rows)}{END}{tail}"
    return result


def saved_state(events: str) -> Any:
    """The state of a snapshot frame after these events."""
    from tailrace.core.codec import decode_event
    from tailrace.core.fold import State
    from tailrace.core.snapshot import save

    state = State()
    for line in events.split("\n"):
        if line:
            state.absorb(decode_event(line.encode()))
    return json.loads(save(state))


def lines(texts: list[str]) -> str:
    """A text file."""
    return "".join(f"{text}\n" for text in texts)


def stale(wanted: dict[Path, str]) -> list[str]:
    """What differs from `wanted`, for people. Files of wire formats (`*.sse`) are not ours."""
    found = [
        f"{path.relative_to(ROOT)} is {'stale' if path.exists() else 'missing'}"
        for path, text in wanted.items()
        if not path.exists() or path.read_text() != text
    ]
    found += [
        f"{path.relative_to(ROOT)} is of no story"
        for path in sorted(TRACES.glob("*/*"))
        if path not in wanted
        and (path.suffix != ".sse" or path.parent / "events.jsonl" not in wanted)
    ]
    return found


def main(arguments: list[str]) -> int:
    """The command."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write(f"{__doc__}")
        return 2
    wanted = files()
    if arguments == ["--check"]:
        problems = stale(wanted)
        sys.stderr.write(lines(problems))
        if problems:
            sys.stderr.write("Run `python conformance/generate.py` and look at the difference.\n")
        return 1 if problems else 0
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    sys.stderr.write(lines(stale(wanted)))
    return 0


if __name__ == "__main__":
    # Stories import `conformance` and `tests` from the repository's root, wherever this is run.
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
