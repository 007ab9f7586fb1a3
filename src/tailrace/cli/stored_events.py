"""The events of a run so far: from a server, a database, or an exported file."""

from __future__ import annotations

from pathlib import Path

from tailrace.cli.output import fail
from tailrace.cli.server_client import ServerClient, address
from tailrace.core.codec import decode_event
from tailrace.core.errors import TailraceError
from tailrace.core.events import AnyEvent


def stored_events(run: str, url: str, key: str | None, db: str | None) -> list[AnyEvent]:
    """The events of a run so far, from a file, a database or a server."""
    if "://" not in run and (Path(run).is_file() or run.endswith(".jsonl")):
        return _of_file(Path(run))
    if db is not None:
        return [decode_event(line) for line in read_database(run, db)[0]]
    url, run_id = address(run, url)
    return ServerClient(url, key).so_far(run_id)


def _of_file(path: Path) -> list[AnyEvent]:
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
        if not lines:
            fail(f"File {path} has no events; write it again with `tailrace export`.")
        return [decode_event(line) for line in lines]
    except OSError as error:
        fail(f"File {path} cannot be read ({error.strerror}).")
    except TailraceError as error:
        fail(f"File {path} is not an exported run: {error}")


def read_database(run_id: str, db: str) -> tuple[list[bytes], dict[int, bytes]]:
    """The events of a run as JSON, and its private parts by number."""
    import asyncio

    async def read() -> tuple[list[bytes], dict[int, bytes]]:
        from tailrace.stores import open_store

        store = await open_store(db)
        try:
            if await store.info(run_id) is None:
                fail(f"There is no run {run_id} in {db}.")
            lines: list[bytes] = []
            while found := await store.read_lines(run_id, len(lines)):
                lines += [line for part in found for line in part.publics()]
            return lines, await store.read_private(run_id)
        finally:
            await store.close()

    if "://" not in db and not Path(db).is_file():
        fail(f"There is no database {db}; check --db.")
    try:
        return asyncio.run(read())
    except TailraceError as error:
        fail(str(error))
