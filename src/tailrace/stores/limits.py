"""How many runs one call of a store takes, in every store."""

from __future__ import annotations

EXPIRED_AT_ONCE = 1000
"""Most runs that one call of `expired` returns."""

LOST_AT_ONCE = 1000
"""Most lost runs that a claim chooses from."""
