"""What a tool yields while it runs, and what it returns."""

from __future__ import annotations

from typing import Any, TypeAlias, get_args

import msgspec

from tailrace.core import events as ev
from tailrace.core.items import Block, Image
from tailrace.core.tool_output import image


class Notify(msgspec.Struct, frozen=True):
    """A sign of progress from a running tool: for the client, never for the model."""

    message: str
    progress: float | None = None
    """How much is done, from 0 to 1."""
    data: Any = None


class PartialImage(msgspec.Struct, frozen=True):
    """An image that a better image replaces: for the client, never for the model."""

    image: Image


class Output(msgspec.Struct, frozen=True):
    """What a tool returned: the last thing that `invoke` yields."""

    value: Any


Streamed: TypeAlias = Notify | PartialImage | Block | ev.Event
"""What a streaming tool may yield before its output.

A block is shown to the client at once. An event belongs to a sub-agent of the call.
"""

SHOWN = (Notify, PartialImage, ev.Event, *get_args(Block))


def notify(message: str, *, progress: float | None = None, data: Any = None) -> Notify:
    """What a streaming tool yields to show how far it has come; `progress` is from 0 to 1."""
    return Notify(message, progress, data)


def partial_image(data: bytes, media_type: str | None = None) -> PartialImage:
    """What a streaming tool yields while an image sharpens.

    The next image that it yields, partial or whole, takes the place of this image.
    """
    return PartialImage(image(data, media_type))
