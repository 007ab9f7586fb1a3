"""Named points at which a test can end the process, as a power cut or the kernel would.

`TAILRACE_CRASH_AT=append.after:3` ends it when that point is reached for the third time: no
`finally`, no flush. Every edge between two durable steps has a name here, so that a test can visit
all of them. Without the setting a point costs one empty call.
"""

from __future__ import annotations

import os
from collections.abc import Callable

POINTS = (
    "create.before",
    "create.after",  # the run waits; no hint was sent
    "claim.after",  # claimed; nothing written in the new epoch
    "recover.after",  # what was open is closed; the agent was not called again
    "append.before",  # emitted, not durable
    "append.after",  # durable, not published
    "publish.after",
    "post.before",
    "post.after",  # the letter is stored; no hint was sent
    "acknowledge.before",  # acted upon, and the letter is still there
    "acknowledge.after",
    "take_over.after",  # the canceller owns the run; nothing closed yet
    "release.before",
    "park.after",  # the run waits for a letter; its worker does not know yet
)
"""Every name that `TAILRACE_CRASH_AT` may have."""

STATUS = 137
"""The exit status, that of a process that was killed."""


def armed(setting: str) -> Callable[[str], None]:
    """The function that a point calls, for the setting `name:n`; `n` is 1 by default."""
    if not setting:
        return _go_on
    name, _, number = setting.partition(":")
    if name not in POINTS:
        raise ValueError(f"TAILRACE_CRASH_AT: unknown crash point {name!r}; see {__name__}.")
    left = int(number or 1)

    def end(reached: str) -> None:
        nonlocal left
        if reached == name:
            left -= 1
            if left == 0:
                os._exit(STATUS)

    return end


def _go_on(_reached: str) -> None:
    pass


_setting = os.environ.get("TAILRACE_CRASH_AT", "")

is_armed = bool(_setting)
"""Whether a point may end the process, for points that are reached for every event."""

point = armed(_setting)
"""Report that a point is reached."""
