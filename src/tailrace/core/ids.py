"""The rule for ids that callers choose: of threads, runs, responses and chats.

An id is a part of a URL, a key in every store, and repeated in every event of a thread's stream.
"""

from __future__ import annotations

import re

from tailrace.core.errors import CallerError
from tailrace.core.values import quoted

MAX_ID_BYTES = 256

_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f/\ud800-\udfff]")


def is_id(value: str) -> bool:
    """Whether the id is valid (PROTOCOL.md, section 1)."""
    allowed = 0 < len(value) <= MAX_ID_BYTES and not _FORBIDDEN.search(value)
    # Clients and proxies remove these two from a URL's path.
    return allowed and value not in (".", "..") and len(value.encode()) <= MAX_ID_BYTES


def check_id(value: str, param: str) -> str:
    """The same id, or `CallerError` that names the field."""
    if not is_id(value):
        raise CallerError(
            f"`{param}` is {quoted(value)}; it must have 1 to {MAX_ID_BYTES} bytes of UTF-8, "
            "without `/` and control characters, and must not be `.` or `..`.",
            param=param,
        )
    return value
