"""The arguments of `Tailrace(...)`: your own store, bus, wire formats and `auth`, checked.

A wrong argument is refused with a sentence when the application is made, not when it is used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tailrace.buses import check_bus_url, open_bus
from tailrace.core.errors import CallerError
from tailrace.ports.bus import Bus, OpenBus
from tailrace.ports.store import OpenStore, Store
from tailrace.stores import open_store
from tailrace.wire.base import Format
from tailrace.wire.formats import FORMATS

DEFAULT_DATABASE = "tailrace.db"


def check_auth(auth: Any) -> None:
    """Refuse what cannot find the sender of a request. It may be a key, so it is not shown."""
    if auth is not None and not callable(auth):
        what = f"`auth` is of type {type(auth).__name__}"
        raise CallerError(f'{what}; pass ApiKeys("keys.json"), or a function of the request.')


def store_opener(database: object, store: object, **options: Any) -> OpenStore:
    """A function that opens the store of an application.

    `store` is a store, or an async function that returns one: many drivers need a running loop.
    `options` are for `open_store`.
    """
    if store is None:
        where = DEFAULT_DATABASE if database is None else database
        if not isinstance(where, str | Path):
            raise CallerError(
                f"`database` must be a path or a URL, not {type(where).__name__}; pass an object "
                "that is a store as `store=`."
            )
        return lambda: open_store(where, **options)
    if database is not None:
        raise CallerError("Pass `database` or `store`, not both.")
    return _opener(Store, "store", store, " A path or a URL is `database=`.")


def bus_opener(bus: object) -> OpenBus:
    """A function that opens the bus of an application: by its URL, or a bus of the user's."""
    if bus is None or isinstance(bus, str):
        check_bus_url(bus)
        return lambda: open_bus(bus)
    return _opener(Bus, "bus", bus, " A bus of ours is a URL.")


def _opener(port: Any, name: str, given: Any, advice: str) -> Callable[[], Awaitable[Any]]:
    lacks = _lacks(port, given)
    if lacks and (isinstance(given, type) or not callable(given)):
        raise CallerError(
            f"`{name}` must be a `tailrace.ports.{port.__name__}`; {type(given).__name__} {lacks}."
            f"{advice}"
        )

    async def opened() -> Any:
        if not lacks:
            return given
        found = await given()
        if why := _lacks(port, found):
            raise CallerError(
                f"`{name}` returned no {name}: {type(found).__name__} {why}. Return a "
                f"`tailrace.ports.{port.__name__}`."
            )
        return found

    return opened


def with_formats(added: Iterable[Format]) -> Mapping[str, Format]:
    """Our formats and the added formats, by their names."""
    formats = dict(FORMATS)
    for wire in added:
        if lacks := _lacks(Format, wire):
            raise CallerError(
                f"`formats` must have objects like `tailrace.ports.Format`; "
                f"{type(wire).__name__} {lacks}."
            )
        if wire.name in formats:
            raise CallerError(f"There are two formats named {wire.name!r}; rename yours.")
        formats[wire.name] = wire
    return formats


def _lacks(protocol: Any, found: object) -> str:
    """Why an object does not follow a protocol; empty if it does."""
    if isinstance(found, type):
        return "is a class"
    methods = [name for name in dir(protocol) if not name.startswith("_")]
    missing = [name for name in (*protocol.__annotations__, *methods) if not hasattr(found, name)]
    return f"has no {', '.join(missing[:5])}" if missing else ""
