"""The Vercel AI SDK's UI message stream, which `useChat` reads.

The root task becomes a message. Its texts, reasoning, files and calls are the SDK's own parts.
Sub-agents are `data-task` and `data-task-item` parts beside them, never mixed into its text.

    persistent   start, text-*, reasoning-*, tool-*, file, source-*, data-<name>, data-output,
                 data-request, data-task (id: task_id), data-task-item (id: task_id/output_index)
    transient    data-delta, data-block (id: task_index/output_index/part): the content of a result
                 or a sub-agent's item while it is made; data-task-item of a result, data-step,
                 data-notice, data-progress, data-agent (who speaks now), data-history (the
                 summary of older runs)

Deltas are most of a stream, so they name their task by a number. 0 is the root (`task_id` of the
message's metadata). Any other number is the `task_index` of a `data-task` part. If several runs
added to a message, a number may occur twice: the last part counts.

Three decisions keep the stream correct:

* A run is a step of the message. `reset-step` removes a step's parts. After a lost worker
  (`task.attempt`) or a pause, the parts are sent again from the state.
* A client's call is announced only when the run completes or asks for its result. Then it cannot
  be superseded any more, so no tool runs twice or in vain.
* A run that waits for people ends its response. The SDK sends an approval only when no response is
  open and all other calls have an output. The answer begins the next response, with the same
  message id. A sub-agent's approval is asked at the call that the sub-agent answers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tailrace.core.fold import State
from tailrace.core.state_copy import copy_state
from tailrace.wire.base import Frame, ReplayFormat
from tailrace.wire.vercel_ui.answers import (
    answers_of,
    is_cut,
    read,
    results_of,
    run_of,
    without_outputs,
)
from tailrace.wire.vercel_ui.encoder import UiEncoder
from tailrace.wire.vercel_ui.messages import ui_messages
from tailrace.wire.vercel_ui.object import RESET_STEP

__all__ = ["FORMAT", "answers_of", "is_cut", "read", "results_of", "run_of", "without_outputs"]


class UiFormat(ReplayFormat):
    """`vercel-ui`: for the AI SDK's `useChat`, `Chat` and `readUIMessageStream`."""

    name = "vercel-ui"
    headers: dict[str, str] = {"x-vercel-ai-ui-message-stream": "v1"}

    def at(self, state: State) -> UiEncoder:
        """An encoder for a client that has seen everything up to this state."""
        return UiEncoder(copy_state(state))

    def open(self, state: State) -> tuple[UiEncoder, list[Frame]]:
        """A replay in few chunks, with its end if the run has ended."""
        encoder = self.at(state)
        return encoder, encoder.opening()

    def reopen(self, state: State, answered: Collection[str] = ()) -> tuple[UiEncoder, list[Frame]]:
        """A replay for a client that answers requests: it continues the message it has.

        While the run waits for these answers, there is nothing to replay.
        """
        encoder = UiEncoder(copy_state(state), answered)
        return encoder, [] if encoder.waits else encoder.opening(RESET_STEP)

    def messages(self, chain: Sequence[State]) -> list[dict[str, Any]]:
        """The conversation as the `UIMessage[]` that `useChat` starts from."""
        return ui_messages(chain)


FORMAT = UiFormat()
