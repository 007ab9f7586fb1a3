"""The Vercel AI SDK's UI message stream, which `useChat` reads."""

from tailrace.wire.vercel_ui.encoder import FORMAT, run_of

__all__ = ["FORMAT", "run_of"]
