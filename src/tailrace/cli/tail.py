"""`tailrace tail`: follow a run of a server."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import msgspec
import typer

from tailrace.cli.options import LOCAL, KeyOption, RunName, Url
from tailrace.cli.screen import EXIT_INTERRUPTED, AsJson, open_screen
from tailrace.cli.server_client import ServerAway, ServerClient, address
from tailrace.core.fold import State
from tailrace.core.values import json_text


def tail(
    run: RunName,
    url: Url = LOCAL,
    key: KeyOption = None,
    as_json: AsJson = False,
) -> None:
    """Follow a run on any server until its end.

    It resumes after the last event when the connection is cut or the server is
    restarted. Ctrl-C stops following; the run goes on.

    Example: tailrace tail run_5f0c9a1d3b7e2468 --url http://127.0.0.1:8000
    """
    url, run_id = address(run, url)
    server = ServerClient(url, key)
    server.check_run(run_id)
    raise typer.Exit(follow(server, run_id, as_json=as_json))


def follow(server: ServerClient, run_id: str, *, as_json: bool) -> int:
    """Show a run until its end; returns the exit code."""
    noted: set[str] = set()
    with open_screen(as_json=as_json) as screen:
        try:
            for events in server.follow(run_id, note=screen.note):
                screen.show(events)
                new = _open_requests(screen.state) - noted
                noted |= new
                if new:
                    _say_how_to_answer(server, run_id, new, screen.note)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        return screen.code


def _open_requests(state: State) -> set[str]:
    return {request.id for task in state.tasks.values() for request in task.requests}


def _say_how_to_answer(
    server: ServerClient, run_id: str, requests: set[str], note: Callable[[str], None]
) -> None:
    from tailrace.terminal import asked, printable

    try:
        status, raw = server.request(f"/runs/{run_id}")
    except ServerAway:
        return  # `follow` waits for the server
    view = msgspec.json.decode(raw) if status == 200 else {}
    # Only what is still open: the answers of a run that is over may be on their way.
    for request in asked(view):
        if request["id"] not in requests:
            continue
        answer: dict[str, Any] = {"request_id": request["id"]}
        answer |= {"approved": True} if request["kind"] == "approval" else {"value": "…"}
        key = ' -H "Authorization: Bearer $TAILRACE_KEY"' if server.has_key else ""
        note(
            printable(
                f"The run waits for an answer. Give it at {server.url}/#{view['thread_id']}, or:\n"
                f"  curl {server.url}/runs/{run_id}/input{key} -H 'content-type: application/json' "
                f"-d {shlex.quote(json_text(answer))}"
            )
        )
