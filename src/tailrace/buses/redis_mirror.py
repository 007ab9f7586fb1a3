"""The mirror: runs for readers who take them straight from Redis, one event in one entry.

    tailrace:thread:<threadId>    entries with exactly `type`, `threadId`, `runId`, `data` (JSON)

What the entries say is the `run` format (PROTOCOL.md, section 9.1). It is as good as the bus and no
better: the process that writes a run mirrors what it has written, so what a process leaves behind
that is killed between the two is only in the log. Who has to have everything follows over HTTP.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from tailrace.buses.redis_lines import Command
from tailrace.core.events import TERMINAL, Recorded
from tailrace.core.fold import State
from tailrace.wire import run
from tailrace.wire.run import RunEncoder, Told

MIRROR_ENTRIES = 10_000
MIRROR_SECONDS = 24 * 60 * 60
"""What a mirror stream keeps, about, and how long it stays after its last event."""

MAX_RUNS = 1024
"""More than any process writes at once; of those that were taken from it nobody tells the end."""

logger = logging.getLogger("tailrace")


class RedisMirror:
    """A `Mirror` that adds to the streams of the threads."""

    def __init__(self, put: Callable[[Command], None], prefix: str) -> None:
        """`put` queues a command, and never waits."""
        self._put = put
        self._prefix = prefix
        self._encoders: dict[str, RunEncoder] = {}
        self._complained = False

    def begin(self, run_id: str, state: State) -> None:
        """Take a run up after this state; of a new one, whose first event is all there is, all."""
        with self._harmless(run_id):
            self._encoders.pop(run_id, None)
            encoder = self._encoders[run_id] = run.FORMAT.at(state)
            while len(self._encoders) > MAX_RUNS:
                del self._encoders[next(iter(self._encoders))]
            if state.sequence_number == 1:
                self._add(encoder, encoder.retell())

    def show(self, run_id: str, events: list[Recorded]) -> None:
        """Add what these events say."""
        encoder = self._encoders.get(run_id)
        if encoder is None:
            return
        with self._harmless(run_id):
            self._add(encoder, [told for one in events for told in encoder.tell(one)])
        last = events[-1].event
        if isinstance(last, TERMINAL) and last.task_id == run_id:
            del self._encoders[run_id]

    @contextmanager
    def _harmless(self, run_id: str) -> Iterator[None]:
        """Whatever is wrong with the mirror, the run goes on; it is said once."""
        try:
            yield
        except Exception:
            if not self._complained:
                self._complained = True
                logger.exception("Mirroring run %s failed; the log has it.", run_id)

    def _add(self, encoder: RunEncoder, told: list[Told]) -> None:
        thread_id, run_id = encoder.names()
        key = f"{self._prefix}:thread:{thread_id}"
        for one in told:
            fields: Command = (
                *("type", one.type, "threadId", thread_id, "runId", run_id),
                *("data", msgspec.json.encode(one.data)),
            )
            self._put(("XADD", key, "MAXLEN", "~", MIRROR_ENTRIES, "*", *fields))
        if told:
            self._put(("EXPIRE", key, MIRROR_SECONDS))
