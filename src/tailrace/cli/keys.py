"""`tailrace keys`: makes, lists and revokes the API keys of a file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.options import ListJson, duration
from tailrace.cli.output import fail, say
from tailrace.core.errors import TailraceError
from tailrace.core.values import json_text

keys = typer.Typer(
    help="Make, list and revoke API keys (docs/auth.md).",
    no_args_is_help=True,
)

KeysFile = Annotated[
    Path,
    typer.Option(envvar="TAILRACE_KEYS", help="The file of the keys; created if missing."),
]


@keys.command()
def create(
    principal: Annotated[str, typer.Argument(help="The user or service that gets the key.")],
    file: KeysFile = Path("keys.json"),
    expires: Annotated[
        str | None, typer.Option(help="How long the key is valid, e.g. 90d (s, m, h, d, w).")
    ] = None,
) -> None:
    """Make a key and print it. It is shown once: the file holds only its hash.

    Example: tailrace keys create ada --expires 90d
    """
    from tailrace.server.access.auth import create_key

    seconds = None if expires is None else duration(expires).total_seconds()
    with _mistakes(file):
        key, _ = create_key(file, principal, seconds=seconds)
    say(key)


@keys.command(name="list")
def list_(file: KeysFile = Path("keys.json"), as_json: ListJson = False) -> None:
    """List the keys: id, principal, state and times.

    Example: tailrace keys list
    """
    from tailrace.server.access.auth import read_keys

    with _mistakes(file):
        found = read_keys(file)
    now = time.time()
    for key in found:
        state = "revoked" if key.revoked else "valid" if key.is_valid(now) else "expired"
        if as_json:
            fields = ("id", "principal", "created", "expires")
            line = {"state": state, **{name: getattr(key, name) for name in fields}}
            say(json_text(line))
            continue
        until = f", until {_day(key.expires)}" if key.expires else ""
        say(f"{key.id}  {key.principal}  {state}  since {_day(key.created)}{until}")


@keys.command()
def revoke(
    ident: Annotated[str, typer.Argument(metavar="ID", help="The key's id, from `keys list`.")],
    file: KeysFile = Path("keys.json"),
) -> None:
    """Revoke a key. Running servers refuse it from the next request on.

    Example: tailrace keys revoke 3f9a
    """
    from tailrace.server.access.auth import revoke_key

    with _mistakes(file):
        key = revoke_key(file, ident)
    say(f"Key {key.id} of {key.principal} is revoked.")


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


@contextmanager
def _mistakes(file: Path) -> Iterator[None]:
    """Say what is wrong with the file, or with the call."""
    try:
        yield
    except TailraceError as error:
        fail(str(error))
    except OSError as error:
        why = f"The file of keys {file} cannot be used ({error.strerror})"
        fail(f"{why}; check --file. `tailrace keys create NAME` makes a key and the file.")
