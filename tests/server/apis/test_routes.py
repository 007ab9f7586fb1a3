"""The HTTP face, asked over real sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tailrace.core.codec import decode_event
from tailrace.core.fold import State
from tailrace.core.run_object import client_view
from tailrace.core.snapshot import restore
from tailrace.core.sse import SseEvent, SseParser
from tests.serving import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("server") / "log.db")
    yield made
    made.kill()


@pytest.fixture(scope="module")
def run_id(served: Served) -> str:
    return served.run()


def read(url: str, headers: dict[str, str] | None = None, **query: Any) -> list[SseEvent]:
    parser = SseParser()
    found: list[SseEvent] = []
    with httpx.stream("GET", url, headers=headers, params=query, timeout=20) as stream:
        assert stream.status_code == 200, stream.read()
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-cache, no-store"
        assert stream.headers["x-accel-buffering"] == "no"
        for chunk in stream.iter_bytes():
            found += parser.feed(chunk)
    return found


def test_the_stream_is_the_log_and_folds_to_the_object(served: Served, run_id: str) -> None:
    frames = read(f"{served.url}/runs/{run_id}/events")
    state, first = State(), int((frames[0].id or "").partition("-")[0])
    for frame in frames:
        event = decode_event(frame.data.encode())
        # The server that gets the request writes the first event, the worker writes the others.
        epoch = first if event.sequence_number == 1 else first + 1
        assert frame.id == f"{epoch}-{event.sequence_number}"
        state.apply(event)
    assert client_view(state) == httpx.get(f"{served.url}/runs/{run_id}").json()


def test_a_started_run_names_its_thread_and_shows_its_options(served: Served) -> None:
    asked = {"agent": "assistant", "input": "?", "options": {"temperature": 0}}
    started = httpx.post(f"{served.url}/runs", json=asked)
    assert started.status_code == 201
    shown = httpx.get(f"{served.url}{started.headers['location']}").json()
    assert started.json() == {
        "run_id": shown["task_id"],
        "thread_id": shown["thread_id"],
        "events": f"/runs/{shown['task_id']}/events",
    }
    assert shown["options"] == {"temperature": 0}
    refused = httpx.post(f"{served.url}/runs", json={**asked, "options": "none"})
    assert refused.json()["error"]["param"] == "options"


def test_every_cursor_continues_right_after_its_event(served: Served, run_id: str) -> None:
    url = f"{served.url}/runs/{run_id}/events"
    whole = read(url)
    for n, frame in enumerate(whole[:-1], 1):
        assert read(url, {"Last-Event-ID": frame.id}) == whole[n:]
    assert read(url, after=whole[0].id) == whole[1:]
    assert read(url, after="0") == whole


def test_after_the_last_event_there_is_nothing_and_an_eventsource_stops(
    served: Served, run_id: str
) -> None:
    url = f"{served.url}/runs/{run_id}/events"
    last = read(url)[-1]
    answer = httpx.get(url, headers={"Last-Event-ID": last.id})
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize(
    "cursor",
    [
        "-1",
        "+1",
        "1_0",
        "1-",
        "-",
        "1-+1",
        "1-01",
        "١-٢",
        "1-1-1",
        "2^53",
        "../1",
        "x" * 10_000,
        f"1-{2**53}",
        f"1-{2**63}",
        f"{2**63}-1",
        "1- 1",
        "0x1-1",
    ],
)
def test_an_invalid_cursor_is_refused_and_never_a_replay(
    served: Served, run_id: str, cursor: str
) -> None:
    for name in ("task", "run"):
        asked = {"after": cursor, "format": name}
        answer = httpx.get(f"{served.url}/runs/{run_id}/events", params=asked)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "invalid_cursor"
        assert answer.json()["error"]["message"].startswith(f"{cursor[:40]!r} is not a cursor;")


@pytest.mark.parametrize("cursor", ["4096", "1-1.2", "1:1-1", "0:0"])
def test_a_cursor_of_another_format_is_not_found(served: Served, run_id: str, cursor: str) -> None:
    for name in ("task", "vercel-ui", "ag-ui", "openai-chat", "anthropic-messages"):
        asked = {"after": cursor, "format": name}
        answer = httpx.get(f"{served.url}/runs/{run_id}/events", params=asked)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (
            404,
            "unknown_cursor",
            "after",
        )


@pytest.mark.parametrize(("cursor", "reason"), [(f"1-{2**53 - 1}", "beyond_end"), ("9-3", "epoch")])
def test_a_cursor_that_cannot_be_served_is_a_gap_with_a_snapshot(
    served: Served, run_id: str, cursor: str, reason: str
) -> None:
    frames = read(f"{served.url}/runs/{run_id}/events", after=cursor)
    gap, snapshot = (json.loads(frame.data) for frame in frames)
    assert (gap["type"], gap["reason"]) == ("task.gap", reason)
    assert snapshot["type"] == "task.snapshot"
    state = restore(json.dumps(snapshot["state"]).encode())
    assert client_view(state) == httpx.get(f"{served.url}/runs/{run_id}").json()


def test_a_snapshot_comes_first_when_asked_for(served: Served, run_id: str) -> None:
    (frame,) = read(f"{served.url}/runs/{run_id}/events", snapshot="true")
    state = restore(json.dumps(json.loads(frame.data)["state"]).encode())
    assert client_view(state) == httpx.get(f"{served.url}/runs/{run_id}").json()
    assert len(read(f"{served.url}/runs/{run_id}/events", snapshot="false")) > 50


def test_joining_a_live_run_by_snapshot_misses_nothing(served: Served) -> None:
    answer = httpx.post(f"{served.url}/runs", json={"agent": "slow", "input": "?"})
    assert answer.status_code == 201
    url = served.url + answer.json()["events"]
    state = State()
    for number, frame in enumerate(read(url, snapshot="true")):
        value = json.loads(frame.data)
        if number == 0:
            state = restore(json.dumps(value["state"]).encode())
        else:
            state.apply(decode_event(frame.data.encode()))
    run_id = answer.json()["run_id"]
    assert client_view(state) == httpx.get(f"{served.url}/runs/{run_id}").json()
    assert client_view(state)["status"] == "completed"


def test_unknown_things_are_clear_errors(served: Served, run_id: str) -> None:
    for path in (
        "/runs/nobody",
        "/runs/run_nobody/events",
        "/v1/responses/resp_nobody",
        "/nowhere",
    ):
        answer = httpx.get(served.url + path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    answer = httpx.get(f"{served.url}/runs/{run_id}/events?format=morse")
    assert answer.json()["error"]["code"] == "unknown_format"
    assert "vercel-ui" in answer.json()["error"]["message"]
    assert httpx.get(f"{served.url}/runs").status_code == 405
    answer = httpx.post(f"{served.url}/runs", json={"agent": "nobody"})
    assert answer.status_code == 404
    assert "assistant" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"NaN",
        b'{"agent":5}',
        b"[" * 100_000,
        b'"\xff"',
        b'{"agent":"assistant","thread_id":5}',
        b'{"agent":"assistant","input":"\\ud800"}',
        b'{"agent":"assistant","input":"\\u0000"}',
        b'{"agent":"assistant","input":%b}' % (b"9" * 5000),
        b'{"agent":"assistant","input":%b}' % (b"[" * 150 + b"]" * 150),
    ],
)
def test_bad_bodies_are_the_callers_fault(served: Served, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = httpx.post(f"{served.url}/runs", content=body, headers=headers)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"]


def test_a_body_that_is_too_large_is_refused(served: Served) -> None:
    headers = {"content-type": "application/json"}
    body = b'{"agent":"assistant","input":"' + b"x" * 17_000_000 + b'"}'
    answer = httpx.post(f"{served.url}/runs", content=body, headers=headers)
    assert answer.status_code == 413


def test_pages_of_other_sites_are_refused(served: Served, run_id: str) -> None:
    url = f"{served.url}/runs/{run_id}"
    assert httpx.get(url, headers={"Host": "evil.example"}).status_code == 421
    assert httpx.get(url, headers={"Origin": "https://evil.example"}).status_code == 403
    assert httpx.get(url, headers={"Origin": "null"}).status_code == 403
    assert httpx.get(url, headers={"Origin": "http://localhost:3000"}).status_code == 403
    assert httpx.get(url, headers={"Origin": served.url}).status_code == 200
    assert httpx.get(url, headers={"Host": "[::1]:80"}).status_code == 200
    plain = httpx.post(
        f"{served.url}/runs",
        content=b'{"agent":"assistant"}',
        headers={"content-type": "text/plain"},
    )
    assert plain.status_code == 415


def test_an_agent_that_raises_fails_its_run_and_clients_do_not_see_why(served: Served) -> None:
    run = served.run("broken")
    view = httpx.get(f"{served.url}/runs/{run}").json()
    assert view["status"] == "failed"
    assert view["error"]["code"] == "agent_error"
    assert view["output"][0]["status"] == "incomplete"
    assert "hunter2" not in json.dumps(view)


def test_a_cancelled_run_keeps_its_partial_answer(served: Served) -> None:
    run = httpx.post(f"{served.url}/runs", json={"agent": "endless"}).json()["run_id"]
    url = f"{served.url}/runs/{run}"
    while not httpx.get(url).json()["output"]:
        pass
    view = httpx.post(f"{url}/cancel", json={}).json()
    assert view["status"] == "cancelled"
    assert view["output"][0]["block_list"][0]["text"].startswith("tick")
    assert httpx.post(f"{url}/cancel", json={}).json() == view


def test_the_front_page_health_and_agents_answer(served: Served) -> None:
    assert "Tailrace is running" in httpx.get(served.url).text
    assert httpx.get(f"{served.url}/health").json() == {"status": "ok"}
    assert "assistant" in httpx.get(f"{served.url}/agents").json()["agents"]


async def test_leaving_stops_nothing(served: Served) -> None:
    async with httpx.AsyncClient() as client:
        run = (await client.post(f"{served.url}/runs", json={"agent": "slow"})).json()["run_id"]
        async with client.stream("GET", f"{served.url}/runs/{run}/events") as stream:
            async for _ in stream.aiter_bytes():
                break
        # The stream of the same run ends when the run does, even if other clients left before.
        await client.get(f"{served.url}/runs/{run}/events", timeout=20)
        view = (await client.get(f"{served.url}/runs/{run}")).json()
        assert view["status"] == "completed"


def test_an_openai_cursor_may_stand_inside_an_event(served: Served, run_id: str) -> None:
    url = f"{served.url}/v1/responses/resp_{run_id}"
    whole = read(url, stream="true")
    assert whole[-1].data == "[DONE]"
    assert json.loads(whole[-2].data)["type"] == "response.completed"
    for n, frame in enumerate(whole[:-1], 1):
        number = json.loads(frame.data)["sequence_number"]
        assert read(url, stream="true", starting_after=str(number)) == whole[n:]
    assert read(url, stream="true", starting_after="0") == whole
    assert httpx.get(url, params={"stream": "false"}).json()["status"] == "completed"
    for wrong, status in (("-1", 400), ("x", 400), (str(2**53), 400), (str(2**52), 404)):
        for asked in ({"stream": "true"}, {}):
            answer = httpx.get(url, params={**asked, "starting_after": wrong})
            assert answer.status_code == (status if asked or status == 400 else 200)


def test_a_request_is_echoed_and_a_background_run_answers_at_once(served: Served) -> None:
    request = {"model": "endless", "input": "?", "background": True, "temperature": 0.5}
    answer = httpx.post(f"{served.url}/v1/responses", json=request).json()
    assert (answer["background"], answer["temperature"]) == (True, 0.5)
    assert answer["status"] in ("queued", "in_progress")
    run = answer["id"].removeprefix("resp_")
    assert httpx.post(f"{served.url}/runs/{run}/cancel", json={}).json()["status"] == "cancelled"


def test_one_response_follows_another(served: Served) -> None:
    url = f"{served.url}/v1/responses"
    first = httpx.post(url, json={"model": "assistant", "input": "?"}).json()
    request = {"model": "assistant", "input": "?", "previous_response_id": first["id"]}
    assert httpx.post(url, json=request).json()["previous_response_id"] == first["id"]
    missing = httpx.post(url, json={**request, "previous_response_id": "resp_nobody"})
    assert missing.status_code == 404
    assert httpx.post(url, json={"input": "?"}).status_code == 400


def test_a_chat_that_is_over_has_nothing_to_resume(served: Served) -> None:
    assert httpx.get(f"{served.url}/api/chat/nobody/stream").status_code == 204
    for body in ({}, {"id": "c"}, {"id": "c", "messages": []}, {"id": 5, "messages": [{}]}):
        assert httpx.post(f"{served.url}/api/chat", json=body).status_code == 400
    wrong = {"id": "c", "messages": [{}], "agent": 5}
    assert httpx.post(f"{served.url}/api/chat", json=wrong).status_code == 400


def test_what_a_lost_worker_had_shown_is_not_shown_to_a_newcomer(served: Served) -> None:
    run = served.run("recovered")
    frames = read(f"{served.url}/v1/responses/resp_{run}", stream="true")
    assert json.loads(frames[-2].data)["type"] == "response.completed"
    assert "Half an ans" not in str(frames)
    assert "A whole answer." in str(frames)
    for name in ("vercel-ui", "openai-chat"):
        chat = read(f"{served.url}/runs/{run}/events", format=name)
        assert "Half an ans" not in str(chat)
        assert "A whole answer." in str(chat)
        assert chat[-1].data == "[DONE]"
    native = read(f"{served.url}/runs/{run}/events")
    assert "Half an ans" in str(native)
