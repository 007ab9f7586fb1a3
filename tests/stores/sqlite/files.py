"""A file of the store, looked at past the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

DEADLINE = 120.0


def execute(path: Path, statement: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()
