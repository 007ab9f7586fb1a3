"""Anthropic's Messages stream: the root task as a message.

`anthropic_messages.blocks` lists which item becomes which block. A stream has one message, and one
open block at a time: the SDKs append a block when it starts, whatever its index. So the blocks are
sent in order of arrival, each to its end before the next begins. A block that streams meanwhile
waits, and is then sent at once. The folded state alone determines what was sent.

After a handoff, `model` in a block's start and in the last `message_delta` is the agent that
speaks. A `message_delta` of its own would come earlier, but some clients take any for the end.

The stream ends with `error` where the format cannot express what happened. That is a text or a
client's call that is superseded after it was sent, or a call or an answer that was cut.
Other ends:

    completed      `end_turn`; `tool_use` if the client has calls to execute; `refusal`
    incomplete     its reason where Anthropic has a name for it, else `max_tokens`
    cancelled      `max_tokens`: the client keeps the answer and does not ask again
    failed         `error`
    waiting        the stream stays open; `close` ends it with `tool_use` if the run waits for the
                   client's calls, else with `pause_turn`

There is no cursor: a client that was cut asks for a replay. A `ping` keeps a silent stream alive.
"""

from __future__ import annotations

from tailrace.core.fold import State
from tailrace.core.state_copy import copy_state
from tailrace.wire.anthropic_messages.encoder import MessagesEncoder
from tailrace.wire.anthropic_messages.envelope import event_frame
from tailrace.wire.anthropic_messages.object import message_object
from tailrace.wire.base import Frame, ReplayFormat

__all__ = ["FORMAT", "IN_DELTAS", "message_object"]


class MessagesFormat(ReplayFormat):
    """`anthropic-messages`: for Anthropic's SDKs.

    The input of a call that the server executes is in the start of its block. Anthropic's SDKs and
    the AI SDK read no deltas there. pydantic-ai reads only the deltas, and fails if the start has
    an input, so it gets a variant of the format.
    """

    heartbeat: Frame = event_frame("ping")

    def __init__(self, *, in_deltas: bool = False) -> None:
        """`in_deltas` is for pydantic-ai."""
        self.name = "anthropic-messages-deltas" if in_deltas else "anthropic-messages"
        self._in_deltas = in_deltas

    def at(self, state: State) -> MessagesEncoder:
        """An encoder for a client that has seen everything up to this state."""
        encoder = MessagesEncoder(copy_state(state), in_deltas=self._in_deltas)
        encoder.opening()
        return encoder

    def open(self, state: State) -> tuple[MessagesEncoder, list[Frame]]:
        """A replay in few frames, without superseded items."""
        encoder = MessagesEncoder(copy_state(state), joined=True, in_deltas=self._in_deltas)
        return encoder, encoder.opening()


FORMAT = MessagesFormat()
IN_DELTAS = MessagesFormat(in_deltas=True)
