"""`tailrace tail`, `replay`, `fork` and `export`: a run of another process."""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tailrace.cli.messages import fail, say_aside
from tailrace.cli.remote import (
    LOCAL,
    Db,
    KeyOption,
    RunName,
    ServerAway,
    ServerClient,
    Url,
    address,
    read_database,
    stored_events,
)
from tailrace.cli.screen import INTERRUPTED, AsJson, open_screen
from tailrace.core.codec import encode_event
from tailrace.core.fold import State
from tailrace.core.state import ENDED
from tailrace.core.view import client_view

EVENTS_PER_SECOND = 60.0

AtEvent = Annotated[int | None, typer.Option(min=1, help="Number of an event (sequence_number).")]


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
    raise typer.Exit(_follow(server, run_id, as_json=as_json))


def _follow(server: ServerClient, run_id: str, *, as_json: bool) -> int:
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
            return INTERRUPTED
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
                f"-d {shlex.quote(msgspec.json.encode(answer).decode())}"
            )
        )


def replay(
    run: RunName,
    at: AtEvent = None,
    url: Url = LOCAL,
    key: KeyOption = None,
    db: Db = None,
    speed: Annotated[
        float, typer.Option(min=0.0, help="Events per second; 0 shows all at once.")
    ] = EVENTS_PER_SECOND,
    as_json: AsJson = False,
) -> None:
    """Show a run again, or its state at an event.

    The run is on a server, in a database (--db), or in a file that `tailrace export`
    wrote. With --at and --json the state is printed as one object.

    Example: tailrace replay run_5f0c9a1d3b7e2468 --at 40
    """
    events = stored_events(run, url, key, db)
    if at is not None and at > len(events):
        fail(f"The run has {len(events)} events; --at {at} is behind the last.")
    if at is not None and as_json:
        state = State()
        for event in events[:at]:
            state.absorb(event)
        typer.echo(msgspec.json.format(msgspec.json.encode(client_view(state)), indent=2).decode())
        return
    paced = at is None and speed > 0 and math.isfinite(speed) and sys.stdout.isatty()
    with open_screen(as_json=as_json) as screen:
        if at is not None or not paced:
            screen.show(events[:at])
            screen.show_open()
            return
        for event in events:
            screen.show([event])
            time.sleep(1 / speed)


def fork(
    run: RunName,
    question: Annotated[str, typer.Argument(help="The new input.")],
    at: AtEvent = None,
    url: Url = LOCAL,
    key: KeyOption = None,
    agent: Annotated[str | None, typer.Option(help="Another agent than the run's.")] = None,
    as_json: AsJson = False,
) -> None:
    """Continue a run as a new run with another input; the run itself stays.

    The new run remembers the run and what came before it. With --at it remembers
    the run as it was after that event, as if it had been cancelled there.

    Example: tailrace fork run_5f0c9a1d3b7e2468 "And on Sunday?" --at 40
    """
    url, run_id = address(run, url)
    server = ServerClient(url, key)
    view = server.ask(f"/runs/{run_id}")
    if at is None and view.get("status") not in ENDED:
        fail(f"Run {run_id} has not ended; wait for its end, or fork it after an event with --at.")
    body = {"agent": agent or view["agent"], "input": question, "previous_run_id": run_id}
    if at is not None:
        body["previous_seq"] = at
    started = server.ask("/runs", body)
    place = "" if at is None else f" after event {at}"
    say_aside(f"Run {started['run_id']} continues {run_id}{place}.")
    raise typer.Exit(_follow(server, started["run_id"], as_json=as_json))


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
