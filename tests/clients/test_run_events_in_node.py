"""The run envelope in a real EventSource: names, a thread that waits, a server that is killed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx

from tailrace.core.sse import SseParser
from tests.effort import CUTS, sample
from tests.node import TESTS_JS, node_env, node_path
from tests.serving import Served

DEADLINE = 120.0


def listen(url: str, runs: int) -> list[subprocess.Popen[str]]:
    """Pages that listen to a thread, from when they are open: Node's own and npm's EventSource."""
    pages = [
        subprocess.Popen(
            [node_path(), "--experimental-eventsource", "run_events.mjs", url, str(runs), *npm],
            cwd=TESTS_JS,
            env=node_env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for npm in ([], ["npm"])
    ]
    for page in pages:
        assert page.stderr is not None
        assert page.stderr.readline() == "open\n"
    return pages


def heard(pages: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """What both pages heard, which is the same."""
    found = [page.communicate(timeout=DEADLINE) for page in pages]
    assert [page.returncode for page in pages] == [0, 0], found
    one, other = (output for output, _ in found)
    assert one == other
    return [json.loads(line) for line in one.splitlines()]


def start(served: Served, thread_id: str, agent: str = "assistant") -> str:
    body = {"agent": agent, "input": "?", "thread_id": thread_id}
    return str(httpx.post(f"{served.url}/runs", json=body).json()["run_id"])


def finish(served: Served, run_id: str) -> list[dict[str, Any]]:
    """Wait for a run's end; its envelopes, as a stream of the run by itself has them."""
    url = f"{served.url}/runs/{run_id}/events"
    answer = httpx.get(url, params={"format": "run"}, timeout=DEADLINE)
    return [json.loads(frame.data) for frame in SseParser().feed(answer.content)]


def test_a_page_that_listens_to_a_thread_hears_its_runs_by_their_names(tmp_path: Path) -> None:
    served = Served(tmp_path / "log.db")
    pages = listen(f"{served.url}/runs/conversation/events", 3)
    agents = ("assistant", "broken", "assistant")
    runs = [start(served, "conversation", agent) for agent in agents]
    expected = [(n, one) for n, run_id in enumerate(runs, 1) for one in finish(served, run_id)]
    found = heard(pages)
    ids = [one.pop("id") for one in found]
    assert found == [one for _, one in expected]
    assert [int(ident.partition(":")[0]) for ident in ids] == [n for n, _ in expected]
    assert {one["threadId"] for one in found} == {"conversation"}
    last = [one["type"] for one in found if one["type"] in ("run.finished", "run.error")]
    assert last == ["run.finished", "run.error", "run.finished"]
    served.kill()


def test_a_page_misses_nothing_when_the_server_is_killed_under_it(tmp_path: Path) -> None:
    """The page comes back, with its cursor, to the server that listens on that port."""
    served = Served(tmp_path / "log.db")
    port = served.url.rpartition(":")[2]
    pages = listen(f"{served.url}/threads/t/events", 2)
    first = start(served, "t")
    expected = finish(served, first)
    served.kill()
    served.start(port)
    expected += finish(served, start(served, "t"))
    found = heard(pages)
    assert [{k: v for k, v in one.items() if k != "id"} for one in found] == expected
    served.kill()


def test_a_run_by_itself_is_cut_between_any_two_frames(tmp_path: Path) -> None:
    served = Served(tmp_path / "log.db")
    run_id = start(served, "t")
    finish(served, run_id)
    url = f"{served.url}/runs/{run_id}/events"
    whole = SseParser().feed(httpx.get(url, params={"format": "run"}).content)
    for cut in sample(range(1, len(whole)), CUTS):
        before = {"Last-Event-ID": whole[cut - 1].id}
        rest = httpx.get(url, params={"format": "run"}, headers=before)
        assert SseParser().feed(rest.content) == whole[cut:]
    done = httpx.get(url, params={"format": "run", "after": whole[-1].id})
    assert done.status_code == 204
    # A cursor beyond the end gets a gap and the state.
    after = whole[-1].id.partition("-")[0] + "-999"
    beyond = SseParser().feed(httpx.get(url, params={"format": "run", "after": after}).content)
    assert [frame.event for frame in beyond[:2]] == ["run.gap", "run.started"]
    assert (beyond[-1].event, beyond[-1].id) == ("run.finished", whole[-1].id)
    served.kill()
