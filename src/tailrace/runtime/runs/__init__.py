"""Runs as their callers see them: `Runs` is all of them, `Run` is one."""
