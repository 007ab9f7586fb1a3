"""Followers: they read a run from a cursor, first from the log, then live."""
