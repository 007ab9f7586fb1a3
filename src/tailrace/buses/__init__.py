"""Buses: how readers learn of new events, in the process or over Redis; chosen by URL."""

from __future__ import annotations

from tailrace.core.errors import CallerError
from tailrace.ports import Bus, Mirror

REDIS = ("redis", "rediss", "unix")


def check_bus_url(url: str | None) -> str:
    """The scheme of a bus's URL, or `CallerError`. Without a URL it is `local`."""
    scheme = (url or "local:").partition(":")[0]
    if scheme not in ("local", *REDIS):
        # The message does not repeat the URL, which may hold a password.
        raise CallerError(
            "Unknown bus URL in `bus`. Use local:, redis://host:port, rediss://host:port or "
            "unix://path."
        )
    return scheme


async def open_bus(url: str | None = None) -> Bus:
    """Open the bus that a URL names; without a URL, the bus inside this process.

    Redis is imported only if the URL asks for it.
    """
    if check_bus_url(url) == "local":
        from tailrace.buses.local import LocalBus

        return LocalBus()
    from tailrace.buses.redis.bus import RedisBus

    return await RedisBus.open(url or "")


def mirror_of(bus: Bus) -> Mirror | None:
    """The bus's mirror, if its URL asked for it (`?mirror=true`)."""
    mirror: Mirror | None = getattr(bus, "mirror", None)
    return mirror
