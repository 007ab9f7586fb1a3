"""Where the writers of a task write: its emitter, its ids and its reference numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from tailrace.core import events as ev
from tailrace.core.errors import TailraceError
from tailrace.core.event_sink import StateSink
from tailrace.core.references import ReferencePool
from tailrace.runtime.event_log.emitter import Emitter


class TaskSink(StateSink):
    """The private half of a task: its state, its reference numbers, and where its writers write.

    Its `emit` is the emitter's: the way of an event has no step more.
    """

    def __init__(self, emitter: Emitter, task_id: str, pool: ReferencePool | None = None) -> None:
        super().__init__(emitter.state, emitter.run_id, task_id)
        self.emitter = emitter
        self.emit = emitter.emit
        self.pool = pool or ReferencePool(self.node.reference_start)

    def free_call_id(self, _wanted: str) -> str:
        """An id that no other call of the thread has.

        A provider repeats its ids from answer to answer (`call_0`), so none of them is kept. The
        ingest remembers the provider's id in the private part.
        """
        return self.new_id("call")

    def own_call_id(self, chosen: str) -> str:
        """The id of a call whose id the agent chooses: no other run of the thread has it."""
        return f"{chosen}_{self.run_id.removeprefix('run_')}"

    def knows(self, number: int) -> bool:
        """Whether the task's pool issued this reference number."""
        return self.pool.knows(number)

    def write(self, events: Iterable[ev.Event]) -> None:
        """Emit events in order."""
        for event in events:
            self.emit(event)

    def after(self, error: BaseException, close: Callable[[], None]) -> None:
        """Close what `error` leaves open, unless the run is not ours any more.

        Items that an abandoned coroutine, or a worker that gives the run up, leaves open are closed
        by the worker that continues the run. An event that is refused here must not hide `error`.
        """
        if not isinstance(error, GeneratorExit) and self.emitter.is_ours:
            with suppress(TailraceError), self.emitter.closing():
                close()
