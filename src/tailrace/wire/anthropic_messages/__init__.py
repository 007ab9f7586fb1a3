"""Anthropic's Messages stream: the root task as a message."""

from tailrace.wire.anthropic_messages.encoder import FORMAT, IN_DELTAS
from tailrace.wire.anthropic_messages.object import message_object

__all__ = ["FORMAT", "IN_DELTAS", "message_object"]
