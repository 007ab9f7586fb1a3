"""Unmodified clients on repaired streams of the real agentscope-runtime, and on damaged streams."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvicorn
from hypothesis import given
from openai import OpenAI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

import tailrace
from tailrace import ResponsesCompat
from tailrace.server.proxy import Proxy
from tests.node import ROOT, run_node
from tests.repair import odd_backends
from tests.repair.odd_backends import BACKENDS
from tests.repair.streams import HERE, Json, stream, sunny
from tests.repair.test_stream_properties import bare, unnamed, unnumbered

AGENTSCOPE = ROOT / ".venv-agentscope" / "bin" / "python"
THOUGHT, ANSWER = "Sun or rain? Sun.", "It is sunny."
PATH = "/compatible-mode/v1"


class Served:
    """An application behind a real server in a thread of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", ws="none"))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            self._thread.join(0.01)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()


class Backend:
    """Says whatever a test puts in, under agentscope-runtime's path."""

    def __init__(self) -> None:
        self.stream = (HERE / "agentscope-runtime-1.1.6.sse").read_bytes()
        self.body = json.loads((HERE / "agentscope-runtime-1.1.6.json").read_bytes())
        self.by_model = dict(BACKENDS)
        routes = [Route(f"{PATH}/responses", self._answer, methods=["POST"])]
        self.app = Starlette(routes=routes)
        self.wrapped = Starlette(routes=routes)
        self.wrapped.add_middleware(ResponsesCompat)

    async def _answer(self, request: Request) -> Response:
        asked = await request.json()
        if not asked.get("stream"):
            return JSONResponse(self.body)
        odd = self.by_model.get(asked["model"], b"")

        async def frames() -> Any:
            if odd:
                for at in range(0, len(odd), 100):
                    yield odd[at : at + 100]
                return
            for frame in self.stream.split(b"\n\n")[:-1]:
                yield frame + b"\n\n"
                await asyncio.sleep(0)

        return StreamingResponse(frames(), media_type="text/event-stream")


@pytest.fixture(scope="module")
def recorded() -> Backend:
    return Backend()


@pytest.fixture(scope="module")
def recorded_urls(recorded: Backend) -> Iterator[dict[str, str]]:
    """The backend that says a recorded stream: bare, behind the middleware, behind the proxy."""
    plain, wrapped = Served(recorded.app), Served(recorded.wrapped)
    proxy = Served(Proxy(plain.url))
    yield {"bare": plain.url, "middleware": wrapped.url, "proxy": proxy.url}
    for server in (proxy, wrapped, plain):
        server.close()


@pytest.fixture(scope="module")
def agentscope_urls() -> Iterator[dict[str, str]]:
    """The real thing: bare, with the middleware added to it, behind the proxy."""
    assert AGENTSCOPE.exists(), "agentscope-runtime is not installed: run scripts/agentscope-env"
    script = Path(__file__).parent / "agentscope_backend.py"
    folders = [Path(str(module.__file__)).parents[1] for module in (tailrace, msgspec)]
    process = subprocess.Popen(
        [AGENTSCOPE, script, *folders], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    urls: dict[str, str] = {}
    for line in process.stdout:
        name, _, url = line.strip().partition(" http")
        if name in ("bare", "middleware"):
            urls[name] = f"http{url}"
        if len(urls) == 2:
            break
    proxy = Served(Proxy(urls["bare"]))
    yield {**urls, "proxy": proxy.url}
    proxy.close()
    process.kill()
    process.communicate()


@pytest.fixture(params=["recorded_urls", pytest.param("agentscope_urls", marks=pytest.mark.soak)])
def urls(request: pytest.FixtureRequest) -> dict[str, str]:
    found: dict[str, str] = request.getfixturevalue(request.param)
    return found


def ai_sdk(url: str, **options: Any) -> Any:
    given = {"baseURL": f"{url}{PATH}", "model": "m", **options}
    return json.loads(run_node(["openai_ai_sdk.mjs", json.dumps(given)]))


def test_without_repair_the_ai_sdk_shows_no_reasoning(urls: dict[str, str]) -> None:
    answer = ai_sdk(urls["bare"])
    assert answer["text"] == ANSWER
    assert "".join(answer["reasoning"]) == ""


@pytest.mark.parametrize("by", ["middleware", "proxy"])
def test_the_ai_sdk_shows_the_reasoning(urls: dict[str, str], by: str) -> None:
    answer = ai_sdk(urls[by])
    assert answer["errors"] == []
    assert answer["reasoning"] == [THOUGHT]
    assert answer["text"] == ANSWER
    assert answer["finish"] == "stop"
    deltas = [part["text"] for part in answer["parts"] if part["type"] == "reasoning-delta"]
    assert deltas == ["Sun ", "or ", "rain? ", "Sun."]


@pytest.mark.parametrize("by", ["middleware", "proxy"])
def test_the_ai_sdk_shows_the_reasoning_of_an_answer_that_is_not_a_stream(
    urls: dict[str, str], by: str
) -> None:
    with pytest.raises(AssertionError, match="AI_APICallError"):
        ai_sdk(urls["bare"], generate=True)
    answer = ai_sdk(urls[by], generate=True)
    assert answer["reasoning"] == THOUGHT
    assert answer["text"] == ANSWER


def openai_python(url: str, model: str = "m") -> Any:
    client = OpenAI(base_url=f"{url}{PATH}", api_key="unused", max_retries=0)
    shown: dict[str, str] = {}
    with client, client.responses.stream(model=model, input="Sunny?") as events:
        for event in events:
            if event.type.endswith("_text.delta"):
                shown[event.type] = shown.get(event.type, "") + str(event.delta)  # type: ignore[union-attr]
        return shown, events.get_final_response()


def test_without_repair_openai_python_has_no_summary(urls: dict[str, str]) -> None:
    shown, final = openai_python(urls["bare"])
    assert "response.reasoning_summary_text.delta" not in shown
    assert shown["response.reasoning_text.delta"] == THOUGHT * 2, "sent twice"
    assert final.output[0].summary == []


@pytest.mark.parametrize("by", ["middleware", "proxy"])
def test_openai_python_reads_it_to_its_end(urls: dict[str, str], by: str) -> None:
    shown, final = openai_python(urls[by])
    assert shown["response.reasoning_summary_text.delta"] == THOUGHT
    assert shown["response.output_text.delta"] == ANSWER == final.output_text
    assert [part.text for part in final.output[0].summary] == [THOUGHT]


def texts(events: list[Json], type_: str) -> str:
    """All that a healthy stream says in items of one type."""
    found = ""
    for event in events:
        item = event.get("item", {})
        if event["type"] == "response.output_item.done" and item["type"] == type_:
            parts = item.get("summary") or item.get("content") or []
            found += "".join(part["text"] for part in parts)
    return found


@given(bare() | unnamed() | unnumbered())
def test_openai_python_reads_damaged_streams(
    recorded: Backend, recorded_urls: dict[str, str], case: tuple[list[Json], list[Json]]
) -> None:
    events, damaged = case
    if damaged[-1]["type"] != "response.completed":
        damaged = [*damaged, events[-1]]
    before, recorded.stream = recorded.stream, stream(*damaged)
    try:
        shown, final = openai_python(recorded_urls["proxy"])
    finally:
        recorded.stream = before
    assert shown.get("response.output_text.delta", "") == texts(events, "message")
    assert shown.get("response.reasoning_summary_text.delta", "") == texts(events, "reasoning")
    assert final.status == "completed"
    assert final.output_text == texts(events, "message")


DAMAGES: dict[str, Any] = {
    "announcements": lambda event: not event["type"].endswith(".added"),
    "ends": lambda event: not event["type"].endswith((".done", "completed")),
    "the response's beginning": lambda event: event["type"] != "response.created",
    "all but deltas": lambda event: event["type"].endswith((".delta", "item.done")),
}


@pytest.mark.parametrize("missing", DAMAGES)
def test_the_ai_sdk_reads_damaged_streams(
    recorded: Backend, recorded_urls: dict[str, str], missing: str
) -> None:
    kept = [event for event in sunny(raw=True) if DAMAGES[missing](event)]
    if missing == "ends":
        kept = [event for event in kept if "fc_1" not in json.dumps(event)]
    before, recorded.stream = recorded.stream, stream(*kept)
    try:
        answer = ai_sdk(recorded_urls["proxy"])
    finally:
        recorded.stream = before
    assert answer["errors"] == []
    assert answer["text"] == ANSWER
    assert answer["reasoning"] == ["Sun or rain?"]


def test_the_ai_sdk_reports_a_cut(recorded: Backend, recorded_urls: dict[str, str]) -> None:
    before, recorded.stream = recorded.stream, stream(*sunny()[:6]) + b"data: {\n\n" + b"data: {"
    try:
        answer = ai_sdk(recorded_urls["proxy"])
    finally:
        recorded.stream = before
    assert answer["errors"]


def test_the_ai_sdk_takes_an_answer_without_ids_that_is_not_a_stream(
    recorded: Backend, recorded_urls: dict[str, str]
) -> None:
    before = recorded.body
    recorded.body = {
        "output": [
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": THOUGHT}]},
            {"type": "message", "content": [{"type": "output_text", "text": ANSWER}]},
        ]
    }
    try:
        answer = ai_sdk(recorded_urls["proxy"], generate=True)
    finally:
        recorded.body = before
    assert answer["text"] == ANSWER
    assert answer["reasoning"] == THOUGHT


@pytest.fixture(scope="module")
def ai_sdk_on_odd_backends(recorded_urls: dict[str, str]) -> dict[str, Any]:
    """What the AI SDK shows of each of them, asked one after the other."""
    answers = ai_sdk(recorded_urls["proxy"], models=list(BACKENDS))
    return dict(zip(BACKENDS, answers, strict=True))


@pytest.mark.parametrize("name", BACKENDS)
def test_the_ai_sdk_shows_the_thought_and_the_answer_of_odd_backends(
    ai_sdk_on_odd_backends: dict[str, Any], name: str
) -> None:
    answer = ai_sdk_on_odd_backends[name]
    assert answer["errors"] == []
    assert answer["reasoning"] == [odd_backends.THOUGHT]
    assert answer["text"] == odd_backends.ANSWER
    assert answer["finish"] == "stop"


@pytest.mark.parametrize("by", ["middleware", "proxy"])
@pytest.mark.parametrize("name", BACKENDS)
def test_openai_python_reads_odd_backends(
    recorded_urls: dict[str, str], name: str, by: str
) -> None:
    shown, final = openai_python(recorded_urls[by], name)
    assert shown["response.reasoning_summary_text.delta"] == odd_backends.THOUGHT
    assert shown["response.output_text.delta"] == odd_backends.ANSWER == final.output_text
    assert [part.text for part in final.output[0].summary] == [odd_backends.THOUGHT]
