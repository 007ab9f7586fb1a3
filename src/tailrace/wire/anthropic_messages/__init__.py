"""Anthropic's Messages stream: the root task as a message."""

from tailrace.wire.anthropic_messages.encoder import FORMAT
from tailrace.wire.anthropic_messages.message import message_object

__all__ = ["FORMAT", "message_object"]
