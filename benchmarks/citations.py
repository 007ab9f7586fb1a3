"""Finding `[^n]` while the text streams."""

from __future__ import annotations

import re

from benchmarks import traffic
from benchmarks.harness import Contender, Pace, Table, Target, measure
from tailrace.core.citations import CitationScanner

SIZES = (1_000, 10_000, 100_000, 1_000_000)
_MARKER = re.compile(r"\[\^([1-9][0-9]{0,8})\]")
_QUADRATIC = "it looks at the whole text after each delta, so larger sizes would take minutes"
EVERY = 12
"""One marker in so many deltas: about one in ten words."""


def plain(count: int) -> list[str]:
    """Text without a marker."""
    return traffic.pieces(count)


def marked(count: int) -> list[str]:
    """Text of the same length with markers, cut anywhere."""
    text = "".join(traffic.pieces(count))
    step = 4 * EVERY
    parts = [f"{text[at : at + step - 5]}[^{at % 90 + 10}]" for at in range(0, len(text), step)]
    text = "".join(parts)[: 4 * count]
    return [text[at * 4 : at * 4 + 4] for at in range(count)]


def _append(deltas: list[str]) -> None:
    found: list[str] = []
    for delta in deltas:
        found.append(delta)  # noqa: PERF402  # a stream comes one by one


def _scan(deltas: list[str]) -> int:
    scanner = CitationScanner(lambda number: number < 100)
    found = 0
    for delta in deltas:
        scanned = scanner.feed(delta)
        found += len(scanned.annotations)
    scanner.finish()
    return found


def _search_everything(deltas: list[str]) -> int:
    text = ""
    found = 0
    for delta in deltas:
        text += delta
        found = sum(1 for _ in _MARKER.finditer(text))
    return found


def run(pace: Pace) -> tuple[list[Table], list[Target]]:
    """With and without markers."""
    tables = [
        measure(
            f"citations: {title}",
            [
                Contender("limit", prepare, _append),
                Contender("tailrace", prepare, _scan),
                Contender(
                    "naive: finditer over the text so far",
                    prepare,
                    _search_everything,
                    most=10_000,
                    why=_QUADRATIC,
                ),
            ],
            SIZES,
            pace,
            unit="delta",
            remark=remark,
        )
        for title, prepare, remark in (
            ("no markers", plain, "The limit appends each delta to a list and finds nothing."),
            ("with markers", marked, f"One marker in {EVERY} deltas of four characters."),
        )
    ]
    return tables, []
