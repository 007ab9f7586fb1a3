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

ABOUT = (
    f"With the header `Idempotency-Key` (1 to {MAX_KEY} characters), a request that is sent again "
    "is answered with the run of the first request."
)
"""What `openapi.json` says about the header.

It is no parameter there: a key that is valid now is 422 after another body, so no schema fits.
"""


class KeyReused(CallerError):
    """The key was used with another body."""

    code = "idempotency_key_reused"


def keyed_name(owner: str | None, key: str) -> str:
    """The end of the ids of the run and the thread that belong to a key."""
    if not key or len(key) > MAX_KEY:
        raise CallerError(
            f"`Idempotency-Key` has {len(key)} characters; it must have 1 to {MAX_KEY}.",
            param="Idempotency-Key",
        )
    return hashlib.sha256(f"{owner or ''}\0{key}".encode()).hexdigest()[:32]


def check_same(state: State, asked: dict[str, Any]) -> None:
    """Raise `KeyReused` unless the run was started with these fields."""
    facts = state.root.facts if state.root is not None else {}
    if _plain({name: facts.get(name) for name in asked}) != _plain(asked):
        raise KeyReused(
            "`Idempotency-Key` was used with another body; send a new key.",
            param="Idempotency-Key",
        )


def check_same_answers(state: State, answers: list[dict[str, Any]]) -> None:
    """Raise `KeyReused` if a request of the run has another answer already."""
    given: dict[str, dict[str, Any]] = {}
    for task in state.tasks.values():
        given |= task.answers
    for answer in answers:
        counts = given.get(answer["request_id"])
        if counts is not None and any(
            _plain(answer.get(name)) != _plain(counts.get(name)) for name in _ANSWER
        ):
            raise KeyReused(
                "The request was answered otherwise before; to read what the run did then, send "
                "the answers without `Idempotency-Key`.",
                param="Idempotency-Key",
            )


_ANSWER = ("approved", "reason", "value")


def _plain(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")
