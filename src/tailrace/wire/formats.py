"""The table of wire formats, which the server and the converter read."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.core.errors import UnknownFormat
from tailrace.wire import (
    ag_ui,
    agents,
    anthropic_messages,
    openai_chat,
    openai_responses,
    run,
    task,
    vercel_ui,
)
from tailrace.wire.base import Format

FORMATS: Mapping[str, Format] = {
    wire.name: wire
    for wire in (
        task.FORMAT,
        run.FORMAT,
        agents.FORMAT,
        openai_responses.FORMAT,
        openai_chat.FORMAT,
        anthropic_messages.FORMAT,
        vercel_ui.FORMAT,
        ag_ui.FORMAT,
    )
}
"""A format that is added here is served, and `convert` can write it."""


def format_named(formats: Mapping[str, Format], name: str, *, param: str | None = None) -> Format:
    """The format of this name, or `UnknownFormat`; `param` is the field that has the name."""
    found = formats.get(name)
    if found is None:
        known = ", ".join(formats)
        raise UnknownFormat(f"Unknown format {name[:80]!r}; use {known}.", param=param)
    return found
