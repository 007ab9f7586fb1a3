"""`tailrace schema`."""

from __future__ import annotations

import typer


def schema() -> None:
    """Print the JSON Schema of the events.

    Example: tailrace schema > events.schema.json
    """
    from tailrace.core.event_schema import schema_text

    typer.echo(schema_text(), nl=False)
