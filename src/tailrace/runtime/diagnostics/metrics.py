"""Counts what a process does: plain numbers, once for each flush, claim or request.

`GET /metrics` shows them (`tailrace.server.metrics`). No number has the name of a run, a thread or
a principal.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

FLUSH_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""The upper bounds of the histogram of flushes."""


class Metrics:
    """The numbers of one process since its start."""

    def __init__(self) -> None:
        self.runs_started = 0
        self.runs_ended: Counter[str] = Counter()
        """Runs that were ended here, by status."""
        self.events = 0
        self.flushes = [0] * (len(FLUSH_SECONDS) + 1)
        """Flushes by how long the store took, by `FLUSH_SECONDS`; the last is beyond all."""
        self.flush_seconds = 0.0
        self.claims = 0
        self.takeovers = 0
        """Claims of runs that a worker has lost before."""
        self.lost_runs = 0
        """Runs that another worker has taken from this worker."""
        self.requests: Counter[tuple[str, str, int]] = Counter()
        """Answered requests by method, path of the route and status."""

    def flushed(self, seconds: float) -> None:
        """Count a flush."""
        self.flush_seconds += seconds
        self.flushes[bisect_left(FLUSH_SECONDS, seconds)] += 1
