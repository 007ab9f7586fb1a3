"""Every benchmark still works: each is run once, at its smallest size. No figure is looked at."""

from __future__ import annotations

from importlib import import_module

import pytest

from benchmarks.__main__ import SUBJECTS
from benchmarks.harness import ONCE, Figures
from benchmarks.report import markdown


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_benchmark_runs_and_has_figures(name: str) -> None:
    tables, _ = import_module(f"benchmarks.{name}").run(ONCE)
    assert tables  # its section of the results would be empty
    for table in tables:
        if isinstance(table, Figures):
            assert all(len(row) == len(table.head) for row in table.rows)
            assert all(cell in table.markdown() for row in table.rows for cell in row)
            continue
        assert f"| **{table.ours}** |" in table.markdown()
        assert all(table.best(table.ours, size) is not None for size in table.sizes)


def test_the_report_has_the_tables_and_the_targets() -> None:
    tables, targets = import_module("benchmarks.weight").run(ONCE)
    text = markdown([("weight", tables, targets)], SUBJECTS, "2026-01-01", (0.0, 0.0))
    assert all(table.title in text for table in tables)
    assert all(target.what in text for target in targets)
