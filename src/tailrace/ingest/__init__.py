"""Readers of provider streams: each package writes the stream of a provider as events of a task."""
