"""The mirror: runs for programs that read them directly from Redis, one event per entry.

    tailrace:thread:<threadId>    entries with exactly `type`, `threadId`, `runId`, `data` (JSON)

Entries have the `run` format (PROTOCOL.md, section 9.1). The process that writes a run also writes
its mirror. If the process dies between append and mirror, Redis misses those events; the log has
them. A client that needs every event follows over HTTP.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from tailrace.buses.redis.connections import Command
from tailrace.core.events import TERMINAL, Recorded
from tailrace.core.fold import State
from tailrace.runtime.diagnostics.log_fields import about_run
from tailrace.wire import run
from tailrace.wire.run.encoder import RunEncoder, RunEvent

MIRROR_ENTRIES = 10_000
MIRROR_SECONDS = 24 * 60 * 60
"""Entries in a mirror stream, about, and how long it stays after its last event."""

MAX_RUNS = 1024
"""Most runs with an encoder. Runs that another worker took never end here, so drop the oldest."""

logger = logging.getLogger("tailrace")


class RedisMirror:
    """A `Mirror` that adds to the streams of the threads."""

    def __init__(self, put: Callable[[Command], None], prefix: str) -> None:
        """`put` queues a command and never waits."""
        self._put = put
        self._prefix = prefix
        self._encoders: dict[str, tuple[RunEncoder, Mapping[str, Any]]] = {}
        """The encoder of each run, and the `extra` of a log line about it."""
        self._complained = False

    def begin(self, run_id: str, state: State) -> None:
        """Continue a run after this state; mirror the first event of a new run."""
        facts = state.root.facts if state.root is not None else {}
        names = (str(facts.get(name) or "") for name in ("agent", "thread_id"))
        extra = about_run(run_id, *names)
        with self._harmless(run_id, extra):
            self._encoders.pop(run_id, None)
            encoder = run.FORMAT.at(state)
            self._encoders[run_id] = (encoder, extra)
            while len(self._encoders) > MAX_RUNS:
                del self._encoders[next(iter(self._encoders))]
            if state.sequence_number == 1:
                self._add(encoder, encoder.replayed())

    def show(self, run_id: str, events: list[Recorded]) -> None:
        """Add entries for these events."""
        found = self._encoders.get(run_id)
        if found is None:
            return
        encoder, extra = found
        with self._harmless(run_id, extra):
            self._add(encoder, [sent for event in events for sent in encoder.changes(event)])
        last = events[-1].event
        if isinstance(last, TERMINAL) and last.task_id == run_id:
            del self._encoders[run_id]

    @contextmanager
    def _harmless(self, run_id: str, extra: Mapping[str, Any]) -> Iterator[None]:
        """Log the first error of the mirror; the run goes on."""
        try:
            yield
        except Exception:
            if not self._complained:
                self._complained = True
                logger.exception(
                    "mirroring run %s to Redis failed; the log has its events",
                    run_id,
                    extra=extra,
                )

    def _add(self, encoder: RunEncoder, sent: list[RunEvent]) -> None:
        thread_id, run_id = encoder.names()
        key = f"{self._prefix}:thread:{thread_id}"
        for entry in sent:
            fields: Command = (
                *("type", entry.type, "threadId", thread_id, "runId", run_id),
                *("data", msgspec.json.encode(entry.data)),
            )
            self._put(("XADD", key, "MAXLEN", "~", MIRROR_ENTRIES, "*", *fields))
        if sent:
            self._put(("EXPIRE", key, MIRROR_SECONDS))
