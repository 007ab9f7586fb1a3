"""What a user adds to an application: a store and wire formats of their own, checked at once.

A wrong argument is refused with a sentence when the application is made, not when it is used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from tailrace.core.errors import CallerError
from tailrace.ports import Store
from tailrace.stores import open_store
from tailrace.wire.base import Format
from tailrace.wire.formats import FORMATS

DEFAULT_DATABASE = "tailrace.db"

Opener = Callable[[], Awaitable[Store]]


def store_opener(database: object, store: object) -> Opener:
    """How the store is opened that the application was given.

    A store is an object, or an async function that returns it: many drivers need a running loop.
    """
    if store is None:
        where = DEFAULT_DATABASE if database is None else database
        if not isinstance(where, str | Path):
            raise CallerError(
                f"`database` must be a path or a URL, not {type(where).__name__}; pass an object "
                "that is a store as `store=`."
            )
        return lambda: open_store(where)
    if database is not None:
        raise CallerError("Pass `database` or `store`, not both.")
    lacks = _lacks(Store, store)
    if lacks and (isinstance(store, type) or not callable(store)):
        raise CallerError(
            f"`store` must be a `tailrace.ports.Store`; {type(store).__name__} {lacks}. A path or "
            "a URL is `database=`."
        )
    return lambda: _opened(store, is_store=not lacks)


async def _opened(given: Any, *, is_store: bool) -> Store:
    store = given if is_store else await given()
    if lacks := _lacks(Store, store):
        raise CallerError(f"`store` returned no store: {type(store).__name__} {lacks}.")
    return cast(Store, store)


def with_formats(added: Iterable[Format]) -> Mapping[str, Format]:
    """Our formats and the added ones, by their names."""
    formats = dict(FORMATS)
    for wire in added:
        if lacks := _lacks(Format, wire):
            raise CallerError(
                f"`formats` takes objects like `tailrace.wire.base.Format`; "
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
