"""Requests that are sent again, earlier states, and deleted threads, over real sockets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving import Served

ASKED = {"agent": "assistant", "input": {"n": 1}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("server") / "log.db")
    yield made
    made.kill()


def post(served: Served, body: Any, key: str | None, path: str = "/runs") -> httpx.Response:
    headers = {"idempotency-key": key} if key is not None else {}
    return httpx.post(f"{served.url}{path}", json=body, headers=headers, timeout=30)


def test_the_same_key_and_body_are_the_same_run(served: Served) -> None:
    first, second = post(served, ASKED, "k1"), post(served, ASKED, "k1")
    assert (first.status_code, first.json()) == (201, second.json())
    assert post(served, ASKED, "k2").json()["run_id"] != first.json()["run_id"]
    assert post(served, ASKED, None).json()["run_id"] != first.json()["run_id"]


@pytest.mark.parametrize("path", ["/runs", "/threads/streamed/runs"])
def test_a_start_streams_its_run_if_it_is_asked_to(served: Served, path: str) -> None:
    body, key = {**ASKED, "stream": True}, f"k {path}"
    answer = post(served, body, key, path)
    assert answer.headers["content-type"].startswith("text/event-stream")
    run = answer.headers["location"]
    assert answer.text.partition("\n\n")[2] in httpx.get(f"{served.url}{run}/events").text
    again = post(served, ASKED, key, path)
    assert again.json()["events"] == f"{run}/events"
    named = post(served, body, key, f"{path}?format=run")
    assert named.text.count("event: run.finished") == 1
    refused = post(served, body, f"{key}?", f"{path}?format=none")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "format")
    wrong = post(served, {**ASKED, "stream": "yes"}, None, path)
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "stream")


def test_racing_requests_with_a_key_make_one_run(served: Served) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(served, ASKED, "race"), range(16)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["run_id"] for answer in answers}) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"input": {"n": True}},
        {"agent": "slow"},
        {"options": {"a": 1}},
        {"metadata": {"a": "b"}},
        {"thread_id": "another"},
    ],
)
def test_another_body_with_the_same_key_is_refused(served: Served, other: Any) -> None:
    post(served, ASKED, "k3")
    refused = post(served, {**ASKED, **other}, "k3")
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "idempotency_key_reused"


USER = [{"role": "user", "content": "Hello"}]
PARTS = [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}]
OTHERS: list[tuple[str, Any, Any]] = [
    ("/v1/responses", {"model": "assistant", "input": "Hello"}, {"input": "Bye"}),
    ("/v1/chat/completions", {"model": "assistant", "messages": USER}, {"messages": USER * 2}),
    ("/v1/messages", {"model": "assistant", "messages": USER, "max_tokens": 9}, {"max_tokens": 8}),
    ("/api/chat", {"id": "keyed", "agent": "assistant", "messages": PARTS}, {"agent": "slow"}),
]


@pytest.mark.parametrize(("path", "body", "other"), OTHERS, ids=[one[0] for one in OTHERS])
def test_the_other_apis_take_a_key_too(served: Served, path: str, body: Any, other: Any) -> None:
    def run_of(answer: httpx.Response) -> str:
        assert answer.status_code == 200
        [ident, *_] = re.findall(r"run_[0-9a-f]{16,}", answer.text)
        return str(ident)

    first = run_of(post(served, body, f"k {path}", path))
    assert run_of(post(served, body, f"k {path}", path)) == first
    assert run_of(post(served, body, None, path)) != first
    refused = post(served, {**body, **other}, f"k {path}", path)
    assert refused.status_code == 422


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "log.db", "tests.responses_app:app")
    yield made
    made.kill()


def test_other_answers_with_a_key_are_refused_and_the_same_answers_are_not(
    reading: Served,
) -> None:
    def answered(key: str | None, **answer: Any) -> httpx.Response:
        given = {"type": "mcp_approval_response", "approval_request_id": asked["id"], **answer}
        return post(reading, {"model": "payer", "input": [given]}, key, "/v1/responses")

    started = post(reading, {"model": "payer", "input": "pay"}, "k start", "/v1/responses").json()
    asked = started["output"][-1]
    used = answered("k start", approve=True)
    assert (used.status_code, used.json()["error"]["param"]) == (422, "Idempotency-Key")
    first = answered("k answer", approve=True, reason="It is fine.")
    assert answered("k answer", approve=True, reason="It is fine.").json() == first.json()
    for other in ({"approve": False}, {"approve": True}, {"approve": True, "reason": "Hm."}):
        refused = answered("k answer", **other)
        assert refused.status_code == 422
        assert refused.json()["error"]["code"] == "idempotency_key_reused"
        assert answered(None, **other).json() == first.json()


def test_other_answers_of_a_chat_with_a_key_are_refused(served: Served) -> None:
    message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "Write to Ada"}]}
    body = {"id": "keyed chat", "agent": "mailer", "messages": [message]}
    assert post(served, body, None, "/api/chat").status_code == 200
    [_, shown] = httpx.get(f"{served.url}/threads/keyed chat?format=vercel-ui").json()

    def answered(key: str | None, *, approved: bool) -> int:
        part = {**shown["parts"][-1], "state": "approval-responded"}
        part["approval"] = {"id": part["approval"]["id"], "approved": approved}
        changed = {**shown, "parts": [*shown["parts"][:-1], part]}
        sent = {**body, "messages": [message, changed]}
        return post(served, sent, key, "/api/chat").status_code

    assert [answered("k", approved=True), answered("k", approved=True)] == [200, 200]
    assert answered("k", approved=False) == 422
    assert answered(None, approved=False) == 200


def test_options_that_the_agent_leaves_out_are_the_same_body(reading: Served) -> None:
    body = {"agent": "fixed", "input": "?", "options": {"temperature": 2, "service_tier": "flex"}}
    first, second = post(reading, body, "k"), post(reading, body, "k")
    assert (first.status_code, first.json()) == (201, second.json())
    compact = {"model": "reader", "input": "A long conversation."}
    answers = [post(reading, compact, "c", "/v1/responses/compact").json() for _ in range(2)]
    assert answers[0]["id"] == answers[1]["id"]


def test_a_key_has_a_length(served: Served) -> None:
    assert post(served, ASKED, "x" * 256).status_code == 400


def test_a_wrong_body_is_refused_with_a_key_too(served: Served) -> None:
    assert post(served, {"agent": "nobody"}, "k4").status_code == 404


def test_a_run_continues_another_once(served: Served) -> None:
    earlier = served.run()
    body = {**ASKED, "previous_run_id": earlier}
    first, second = post(served, body, "k5"), post(served, body, "k5")
    assert first.json() == second.json()
    assert post(served, {**ASKED, "previous_run_id": served.run()}, "k5").status_code == 422


def test_a_thread_starts_runs_and_is_deleted(served: Served) -> None:
    path = "/threads/t1/runs"
    first = post(served, ASKED, None, path).json()
    assert first["thread_id"] == "t1"
    assert post(served, {"agent": "endless"}, None, path).status_code == 201
    assert post(served, {**ASKED, "thread_id": "t2"}, None, path).status_code == 400
    answer = httpx.delete(f"{served.url}/threads/t1", timeout=30)
    assert answer.json() == {"thread_id": "t1", "deleted": True}
    assert httpx.get(f"{served.url}/runs/{first['run_id']}").status_code == 404
    assert httpx.delete(f"{served.url}/threads/t1").status_code == 404


def test_a_run_is_shown_after_any_earlier_event(served: Served) -> None:
    run_id = served.run()
    url = f"{served.url}/runs/{run_id}"
    whole = httpx.get(url).json()
    assert httpx.get(url, params={"at": 1}).json()["output"] == []
    sizes = [len(httpx.get(url, params={"at": at}).text) for at in (1, 5, 30)]
    assert sizes == sorted(sizes)
    [row] = httpx.get(f"{served.url}/threads/{whole['thread_id']}").json()["runs"]
    assert httpx.get(url, params={"at": row["last_seq"]}).json() == whole
    beyond = str(row["last_seq"] + 1)
    for wrong, status in (("0", 400), ("-1", 400), ("x", 400), (beyond, 404)):
        refused = httpx.get(url, params={"at": wrong})
        assert (refused.status_code, refused.json()["error"]["param"]) == (status, "at")


def test_a_key_that_was_used_does_not_hide_an_unknown_agent(served: Served) -> None:
    body = {"id": "unknown", "messages": PARTS}
    url, key = f"{served.url}/api/chat", {"idempotency-key": "unknown-agent"}
    assert httpx.post(url, json=body, headers=key).status_code == 200
    for agent in ("nobody", ""):
        refused = httpx.post(url, json={**body, "agent": agent}, headers=key)
        assert refused.status_code == 404
        assert refused.text.startswith(f"Unknown agent {agent!r}")


def test_a_chat_is_stopped(served: Served) -> None:
    started = post(served, {"agent": "endless"}, None, "/threads/c1/runs").json()
    url = f"{served.url}/api/chat/c1/stream"
    assert httpx.delete(url, timeout=30).status_code == 204
    assert httpx.get(f"{served.url}/runs/{started['run_id']}").json()["status"] == "cancelled"
    assert httpx.delete(url).status_code == 204
    assert httpx.delete(f"{served.url}/api/chat/nothing/stream").status_code == 204
