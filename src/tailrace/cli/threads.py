"""`tailrace threads` lists the threads of a server, `tailrace runs` the runs of a thread."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
import typer

from tailrace.cli.options import LOCAL, KeyOption, ListJson, Url
from tailrace.cli.output import say_aside
from tailrace.cli.server_client import ServerClient


def threads(
    search: Annotated[
        str,
        typer.Option(
            help="Only threads with this text in a question, agent, status or id; of any age."
        ),
    ] = "",
    every: Annotated[bool, typer.Option("--all", help="Also older threads.")] = False,
    url: Url = LOCAL,
    key: KeyOption = None,
    as_json: ListJson = False,
) -> None:
    """List the newest threads; --all lists older threads too.

    Example: tailrace threads --search "sunny"
    """
    server = ServerClient(url, key)
    found: dict[str, dict[str, Any]] = {}
    query = {"search": search} if search else {}
    while True:
        page = server.ask(f"/threads?{urlencode(query)}" if query else "/threads")
        for one in page["threads"]:
            found.setdefault(one["thread_id"], one)
        if not (search or every) or page.get("next") is None:
            break
        query["before"] = page["next"]
    fields = ("thread_id", "status", "runs", "created_at", "title")
    _list(list(found.values()), fields, as_json=as_json)


def runs(
    thread: Annotated[str, typer.Argument(help="Id of the thread.")],
    url: Url = LOCAL,
    key: KeyOption = None,
    as_json: ListJson = False,
) -> None:
    """List the runs of a thread, oldest first.

    Example: tailrace runs thread_8c1f
    """
    found = ServerClient(url, key).ask(f"/threads/{thread}")["runs"]
    _list(found, ("run_id", "status", "agent", "last_seq", "created_at"), as_json=as_json)


def _list(rows: list[dict[str, Any]], fields: tuple[str, ...], *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            typer.echo(msgspec.json.encode(row))
        return
    from tailrace.terminal import printable

    lines = [[_cell(field, row.get(field)) for field in fields] for row in rows]
    if not sys.stdout.isatty() or not rows:
        for line in lines:
            typer.echo("\t".join(printable(line)))
        if not rows:
            say_aside("Nothing yet.")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*fields, box=None, header_style="dim")
    for line in lines:
        table.add_row(*map(Text, printable(line)))
    Console(highlight=False).print(table)


def _cell(field: str, value: Any) -> str:
    if field == "created_at" and isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return "" if value is None else str(value)
