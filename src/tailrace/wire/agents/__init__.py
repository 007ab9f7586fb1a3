"""The events of an agent and its streaming tools, for clients that listen with `onmessage`.

| here | there |
| --- | --- |
| a task begins, another agent speaks | `agent_updated_stream_event` |
| any event of a response | `raw_response_event`: each task is a response of its own |
| an item is done | `run_item_stream_event` |
| `task.attempt` takes items back | `run_items_superseded_event`; the response begins again |
| these four in a sub-agent | `streaming_tool_context_event`, wrapped by the innermost tool |
| a tool starts, its result is done | `tool_stream_start_event`, `tool_stream_end_event` |
| notice, progress, input required | `notify_stream_event` |

The last two rows are never wrapped. Steps, structured output and a result's blocks are not sent.
Frames have no `event:` line. `tailrace.wire.frame_cursors` has the cursors.
"""

from __future__ import annotations

from tailrace.core.fold import State
from tailrace.core.state_copy import copy_state
from tailrace.wire.agents.encoder import AgentsEncoder
from tailrace.wire.frame_cursors import FrameCursorFormat


class AgentsFormat(FrameCursorFormat[AgentsEncoder]):
    """`agents`: for clients of streaming tools."""

    name = "agents"

    def at(self, state: State) -> AgentsEncoder:
        """An encoder for a client that has seen everything so far."""
        return AgentsEncoder(copy_state(state), self._ids)


FORMAT = AgentsFormat()
