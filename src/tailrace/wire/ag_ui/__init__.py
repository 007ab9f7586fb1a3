"""AG-UI 1.0: the run as the events that CopilotKit and `@ag-ui/client` read.

| here | there |
| --- | --- |
| message | `TEXT_MESSAGE_*`; its texts and refusals are separated by a blank line |
| reasoning | `REASONING_*`: the summary or the raw text, whichever came first |
| tool_call | `TOOL_CALL_START`, `TOOL_CALL_ARGS`, `TOOL_CALL_END` |
| tool_result | `TOOL_CALL_RESULT`, when it is closed |
| tool_call, executor `client` | announced when the run completes without a result for it |
| sub-agent | `SUBAGENT_*`; its events carry `subagentRunId` |
| step of the root | `STEP_STARTED`, `STEP_FINISHED`; `metadata.status` of an incomplete step |
| progress | `ACTIVITY_SNAPSHOT` of type `progress` |
| data block named `state` | `STATE_SNAPSHOT` |
| structured output, notice, citation, other data, file, image | `CUSTOM` |
| another agent, compacted history | `CUSTOM`: `agent_switched`, `history_compacted` |
| input required | `RUN_FINISHED` with the outcome `interrupt`, when nothing else runs |

The client rejects a stream that leaves anything open, so every end closes what is open first. A
superseded item that was sent ends the stream with `RUN_ERROR`: AG-UI cannot take it back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tailrace.core.fold import State
from tailrace.core.state_copy import copy_state
from tailrace.wire.ag_ui.encoder import AgUiEncoder
from tailrace.wire.ag_ui.items import is_sent
from tailrace.wire.ag_ui.messages import messages_of
from tailrace.wire.base import Frame, ReplayFormat


class AgUiFormat(ReplayFormat):
    """`ag-ui`: for `@ag-ui/client`, `ag-ui-protocol` and CopilotKit."""

    name = "ag-ui"

    def lost(self, state: State) -> bool:
        """Whether a client that read all events received items that were superseded."""
        return any(
            node.superseded and is_sent(node)
            for task in state.tasks.values()
            for node in task.items.values()
        )

    def at(self, state: State) -> AgUiEncoder:
        """An encoder for a client that has received everything up to this state."""
        return AgUiEncoder(copy_state(state), lost=self.lost(state))

    def answered(self, state: State, requests: Collection[str]) -> AgUiEncoder:
        """An encoder for a client that has answered these requests."""
        return AgUiEncoder(copy_state(state), lost=self.lost(state), answered=requests)

    def open(self, state: State) -> tuple[AgUiEncoder, list[Frame]]:
        """A replay in few events; superseded items are left out."""
        encoder = AgUiEncoder(copy_state(state), lost=False)
        return encoder, encoder.opening()

    def messages(self, chain: Sequence[State]) -> list[dict[str, Any]]:
        """The conversation as the messages of `MESSAGES_SNAPSHOT`."""
        return messages_of(chain, lambda state: self.open(state)[1])


FORMAT = AgUiFormat()
