"""How readers learn of new events: one file, one bus."""

from __future__ import annotations

from tailrace.core.errors import CallerError
from tailrace.ports import Bus, Mirror

REDIS = ("redis", "rediss", "unix")


async def open_bus(url: str | None = None) -> Bus:
    """The bus that a URL names; without one, the bus inside this process.

    Redis is only imported when it is asked for.
    """
    # The URL is not repeated in the message: it may hold a password.
    scheme = (url or "local:").partition(":")[0]
    if scheme == "local":
        from tailrace.buses.local import LocalBus

        return LocalBus()
    if scheme in REDIS:
        from tailrace.buses.redis import RedisBus

        return await RedisBus.open(url or "")
    raise CallerError(
        "This URL names no bus: use local:, redis://host:port, rediss://host:port or unix://path."
    )


def mirror_of(bus: Bus) -> Mirror | None:
    """What shows this process's runs to outsiders, if the bus's URL asked for it."""
    mirror: Mirror | None = getattr(bus, "mirror", None)
    return mirror
