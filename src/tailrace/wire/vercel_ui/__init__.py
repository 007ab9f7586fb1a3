"""The Vercel AI SDK's UI message stream, which `useChat` reads."""

from tailrace.wire.vercel_ui.encoder import FORMAT, answers_of, results_of, run_of

__all__ = ["FORMAT", "answers_of", "results_of", "run_of"]
