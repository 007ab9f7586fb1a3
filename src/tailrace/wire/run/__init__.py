"""The run envelope: `{type, threadId, runId, data}` under named events."""

from tailrace.wire.run.encoder import FORMAT

__all__ = ["FORMAT"]
