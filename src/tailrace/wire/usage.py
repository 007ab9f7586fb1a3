"""What a run used: one sum of all its tasks, which every format tells in its own words."""

from __future__ import annotations

from typing import Any

from tailrace.core.fold import State

_LAST = ("model", "service_tier")
_FIRST = "time_to_first_token_ms"


def usage_of_run(state: State) -> dict[str, Any] | None:
    """The usage of the root and its sub-agents, as the object shows that of a task; or None.

    `model`, `service_tier` and the time to the first token are the root's where it has them.
    """
    used = [task.usage for task in state.tasks.values() if task.usage is not None]
    if not used:
        return None
    total: dict[str, Any] = {"calls": 0}
    for usage in used:
        total["calls"] += usage.calls
        for name, value in usage.fields.items():
            if name in _LAST or name == _FIRST:
                total.setdefault(name, value)
            else:
                total[name] = total.get(name, 0) + value
    return total
