"""The bytes behind a client's answer, read strictly: clients swallow what they do not expect."""

from __future__ import annotations

import re

import httpx

from tests.server.format_clients import Held, frames_of, held
from tests.serving import Served


def stream_of(served: Served, ident: str, name: str) -> Held:
    """The stream of a run in a format, whole and legal; `ident` is any API's id of the run."""
    found = re.search(r"run_\w+", ident)
    assert found, ident
    answer = httpx.get(f"{served.url}/runs/{found[0]}/events", params={"format": name}, timeout=30)
    return held(name, frames_of(answer.content))
