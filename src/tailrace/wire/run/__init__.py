"""The run envelope: `{type, threadId, runId, data}` under named events, for `addEventListener`.

    run.started  run.finished  run.error            exactly one of the last two, at the end
    step.start   step.finish                        nested
    text.start   text.delta    text.end             a message of the root task
    tool.start   tool.args     tool.end  tool.result
    agent.switched                                  another agent speaks from here on
    run.gap                                         the log no longer has the events before it

The frames show the root task. A sub-agent's text is not in `text.*`: its last message is the
summary of the `tool.result` of its call. `text.end` has the structured output and the usage, which
arrive after the message. So it waits until the task moves on (`TaskNode.settling`): to the next
item, a step, a pause or the end.

Frames are never taken back: a message of a lost attempt ends as `failed`, and the next message
follows. `tailrace.wire.frame_cursors` has the cursors.
"""

from __future__ import annotations

from tailrace.core.fold import State
from tailrace.core.state_copy import copy_state
from tailrace.wire.frame_cursors import FrameCursorFormat
from tailrace.wire.run.encoder import RunEncoder


class RunFormat(FrameCursorFormat[RunEncoder]):
    """`run`: named events in an envelope."""

    name = "run"

    def at(self, state: State) -> RunEncoder:
        """An encoder for a client that has seen everything so far."""
        return RunEncoder(copy_state(state), self._ids)


FORMAT = RunFormat()
