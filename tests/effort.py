"""How much the repeated tests repeat: a fixed slice in `make test`, all of it in `make soak`.

`make soak` passes the variables on that are read here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

Case = TypeVar("Case")

SOAK = bool(os.environ.get("SOAK"))
"""Whether this is `make soak`."""

EXAMPLES = int(os.environ.get("EXAMPLES") or (500 if SOAK else 10))
"""Examples of each random test."""

KILLS = int(os.environ.get("KILLS") or (1000 if SOAK else 24))
"""Processes that a storm kills."""

SEED = int(os.environ.get("SEED") or 1)
"""What decides the order of a storm's blows."""

CUTS = 12
"""Places at which `make test` cuts a long stream."""


def sample(cases: Sequence[Case], count: int) -> Sequence[Case]:
    """Evenly spread cases, the first and the last among them; every case in `make soak`."""
    if SOAK or len(cases) <= count:
        return cases
    last = len(cases) - 1
    return [cases[place * last // (count - 1)] for place in range(count)]
