"""Reads chat completions: a stream or a whole completion."""
