"""Tasks: what an agent gets for its work on a run, and how it writes the events."""
