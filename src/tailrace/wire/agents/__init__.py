"""The events of an agent and its streaming tools, wrapped by tool, for `onmessage`."""

from tailrace.wire.agents.encoder import FORMAT

__all__ = ["FORMAT"]
