"""`tailrace export`: write the events of a run as JSON lines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tailrace.cli.options import LOCAL, Db, KeyOption, RunName, Url
from tailrace.cli.output import fail
from tailrace.cli.stored_events import read_database, stored_events
from tailrace.core.codec import encode_event


def export(
    run: RunName,
    url: Url = LOCAL,
    key: KeyOption = None,
    db: Db = None,
    private: Annotated[
        Path | None,
        typer.Option(help="Also write what only the model sees to this file; needs --db."),
    ] = None,
) -> None:
    """Write the events of a run as JSON lines: a fixture for tests.

    A server never sends private parts (what only the model may see), so they need
    the database.

    Example: tailrace export run_5f0c9a1d3b7e2468 > trace.jsonl
    """
    if private is not None and db is None:
        fail("A server does not send private parts; name the database with --db.")
    if db is None:
        lines = [encode_event(event) for event in stored_events(run, url, key, None)]
    else:
        lines, secrets = read_database(run, db)
        if private is not None:
            _write_private(private, secrets)
    sys.stdout.buffer.write(b"".join(line + b"\n" for line in lines))
    sys.stdout.flush()


def _write_private(path: Path, secrets: dict[int, bytes]) -> None:
    rows = [
        msgspec.json.encode({"sequence_number": number, **msgspec.json.decode(raw)})
        for number, raw in sorted(secrets.items())
    ]
    try:
        path.write_bytes(b"".join(row + b"\n" for row in rows))
    except OSError as error:
        fail(f"File {path} cannot be written ({error.strerror}).")
