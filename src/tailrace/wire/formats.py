"""Every wire format by its name: the one table that the server and the converter look into."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.wire import (
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
        openai_responses.FORMAT,
        openai_chat.FORMAT,
        anthropic_messages.FORMAT,
        vercel_ui.FORMAT,
    )
}
"""A format that is added here is served and converted to, without further work."""
