"""`Idempotency-Key`: a request that is sent again finds the run of the first request.

The run's id is made of the principal and the key. So the store itself refuses a second run, also
when two requests arrive at the same time at two servers.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from tailrace.core.errors import CallerError
from tailrace.core.fold import State

MAX_KEY = 255


class KeyReused(CallerError):
    """The key was used with another body."""

    code = "idempotency_key_reused"


def keyed_name(owner: str | None, key: str) -> str:
    """The end of the ids of the run and the thread that belong to a key."""
    if not key or len(key) > MAX_KEY:
        raise CallerError(
            f"`Idempotency-Key` must have 1 to {MAX_KEY} characters.", param="Idempotency-Key"
        )
    return hashlib.sha256(f"{owner or ''}\0{key}".encode()).hexdigest()[:32]


def check_same(state: State, body: dict[str, Any], thread_id: str | None) -> None:
    """Raise `KeyReused` unless the run was started with this body."""
    facts = state.root.facts if state.root is not None else {}
    asked = {name: body.get(name) for name in ("agent", "input", "options", "metadata")}
    if thread_id is not None:
        asked["thread_id"] = thread_id
    if body.get("previous_run_id") is not None:
        asked["previous_run_id"] = body["previous_run_id"]
    if body.get("previous_seq") is not None:
        asked["previous_seq"] = body["previous_seq"]
    if _plain({name: facts.get(name) for name in asked}) != _plain(asked):
        raise KeyReused(
            "`Idempotency-Key` was used with another body; send a new key.",
            param="Idempotency-Key",
        )


def _plain(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")
