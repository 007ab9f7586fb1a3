"""The Vercel AI SDK on its OpenAI provider, and the openai package from npm, unchanged."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.core import events as ev
from tailrace.core.items import Text
from tailrace.testing.waiting import until
from tailrace.testing.wire_kit import encoded
from tailrace.wire.openai_responses import FORMAT, response_object
from tests.clients.openai_serving import Serving, plain
from tests.node import run_node
from tests.serving import Served
from tests.wire import openai_scripts as scripts
from tests.wire.openai_scripts import ANSWER, Script


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    server = Serving()
    yield server
    server.close()


def ran(serving: Serving, name: str, script: Script, **options: Any) -> Any:
    where = {"baseURL": serving.base_url, "model": serving.add(script), "responseId": "resp_run_7"}
    return json.loads(run_node([name, json.dumps({**where, **options})], timeout=120))


def ai_sdk(serving: Serving, script: Script, **options: Any) -> Any:
    return ran(serving, "openai_ai_sdk.mjs", script, **options)


def of_type(answer: Any, *types: str) -> list[Any]:
    return [part for part in answer["parts"] if part["type"] in types]


def check_everything(answer: Any) -> None:
    assert answer["errors"] == []
    assert answer["text"] == ANSWER
    assert answer["reasoning"] == ["Thinking about Paris.", "Let me look it up.", "Raw thinking."]
    assert [source["url"] for source in answer["sources"]] == [
        "tailrace:run_7/run_7/1",
        "https://files.example/report.pdf",
        "tailrace:run_7/call_3/1",
    ]
    assert [source["title"] for source in answer["sources"]] == [
        "get_weather",
        "report.pdf",
        "lookup",
    ]
    assert answer["finish"] == "stop"
    assert answer["usage"]["totalTokens"] == 1515
    assert answer["response"] == "resp_run_7"
    results = of_type(answer, "tool-result")
    outputs = [part["output"].get("output") for part in results if "output" in part["output"]]
    assert outputs == [
        "15 °C, sunny\n[report.pdf](https://files.example/report.pdf)",
        "It is sunny, says the expert.",
    ]
    images = [part["output"]["result"] for part in results if "result" in part["output"]]
    assert images[-1] == scripts.PNG


def test_stream_text_cut_after_every_frame_ends_with_the_same_answer(serving: Serving) -> None:
    script = scripts.everything()
    count = sum(len(frames) for frames in encoded(FORMAT, script.events))
    answer = ai_sdk(serving, script, declare=True, frames=count)
    check_everything(answer)
    assert not [part for part in answer["parts"] if part.get("invalid")]


def test_an_image_shows_even_where_the_image_tool_is_not_declared(serving: Serving) -> None:
    check_everything(ai_sdk(serving, scripts.everything()))


def test_generate_text_takes_the_whole_response(serving: Serving) -> None:
    answer = ai_sdk(serving, scripts.everything(), generate=True, declare=True)
    assert answer["text"] == ANSWER
    assert answer["reasoning"] == "Thinking about Paris.Let me look it up.Raw thinking."
    assert len(answer["sources"]) == 3
    assert answer["finish"] == "stop"


def test_the_client_executes_its_own_tool_and_no_other(serving: Serving) -> None:
    script = scripts.client_call().add(ev.TaskCompleted)
    answer = ai_sdk(serving, script, tool="pick_color")
    assert answer["executed"] == [{"n": 3}]
    assert answer["finish"] == "tool-calls"
    assert ai_sdk(serving, scripts.everything(), tool="get_weather")["executed"] == []


@pytest.mark.parametrize(
    ("arguments", "ending"),
    [
        ("", ev.TaskIncomplete),
        ("{}", ev.TaskCancelled),
        ('{"n":3}', ev.TaskCompleted),
        ('{"n":', ev.TaskIncomplete),
    ],
)
def test_a_call_that_was_cut_is_never_executed(
    serving: Serving, arguments: str, ending: type[ev.Event]
) -> None:
    script = Script().begin().message(0, Text(text="Let me ask you."))
    script.call(1, "pick_color", arguments, "incomplete", executor="client")
    script.add(ending, **({"reason": "max_output_tokens"} if ending is ev.TaskIncomplete else {}))
    answer = ai_sdk(serving, script, tool="pick_color")
    assert answer["executed"] == []
    assert of_type(answer, "tool-call", "tool-result") == []
    assert "inside a function call" in str(answer["errors"])


def test_a_failure_after_output_is_an_error_part(serving: Serving) -> None:
    answer = ai_sdk(serving, scripts.failed())
    assert "overloaded" in str(answer["errors"])
    assert "".join(part["text"] for part in of_type(answer, "text-delta")) == "Half an ans"


def test_a_cancelled_run_keeps_its_text_is_not_an_error_and_is_not_asked_again(
    serving: Serving,
) -> None:
    answer = ai_sdk(serving, scripts.cancelled())
    assert answer["errors"] == []
    assert answer["text"] == "I will look"
    assert answer["finish"] == "stop"  # the SDK reads `incomplete_details` alone
    before = len(serving.requests)
    answer = ai_sdk(serving, Script().add(ev.TaskCancelled), retries=1)
    assert answer["finish"] == "stop"
    assert len(serving.requests) == before + 1


@pytest.mark.parametrize("chat", [False, True], ids=["responses", "chat"])
def test_a_run_that_fails_before_any_output_is_started_once(served: Served, chat: bool) -> None:
    """The SDK sends a request again if its stream fails before an item, or before a text."""
    asked = {"baseURL": f"{served.url}/v1", "model": "refused", "retries": 2, "chat": chat}
    before = httpx.get(f"{served.url}/threads").json()["threads"]
    answer = json.loads(run_node(["openai_ai_sdk.mjs", json.dumps(asked)]))
    after = httpx.get(f"{served.url}/threads").json()["threads"]
    assert len(after) == len(before) + 1
    assert "The agent failed." in str(answer["errors"])


@pytest.mark.parametrize("chat", [False, True], ids=["responses", "chat"])
async def test_a_run_whose_server_stops_before_any_output_is_started_once(
    tmp_path: Path, chat: bool
) -> None:
    """The run goes on elsewhere: a request that is sent again would be another run."""
    server = Served(tmp_path / "log.db", environment={"TAILRACE_TEST_WORKER": "no"})
    asked = {"baseURL": f"{server.url}/v1", "model": "refused", "retries": 2, "chat": chat}
    node = asyncio.to_thread(run_node, ["openai_ai_sdk.mjs", json.dumps(asked)])
    async with httpx.AsyncClient(base_url=server.url) as http, asyncio.TaskGroup() as tasks:
        answer = tasks.create_task(node)

        async def has_begun() -> bool:
            assert not answer.done(), answer.result()
            return bool((await http.get("/threads")).json()["threads"])

        await until(has_begun)
        assert await asyncio.to_thread(server.kill, signal.SIGTERM) == 0
    found = json.loads(answer.result())
    assert "The server is stopping" in str(found["errors"])
    assert "AI_RetryError" not in json.dumps(found)


def test_a_stream_that_showed_a_superseded_item_ends_in_an_error(serving: Serving) -> None:
    answer = ai_sdk(serving, scripts.superseded())
    assert "begun again" in str(answer["errors"])
    assert "A whole answer." not in json.dumps(answer)


def test_the_npm_package_cut_after_every_frame_ends_with_the_same_response(
    serving: Serving,
) -> None:
    script = scripts.everything()
    answer = ran(serving, "openai_sdk.mjs", script, cuts=True)
    final = answer["final"]
    assert final.pop("output_text") == ANSWER
    for item in final["output"]:
        for part in item.get("content", ()):
            part.pop("parsed", None)
    final.pop("output_parsed", None)
    assert final == plain(response_object(script.state))


@pytest.mark.parametrize(
    ("script", "event", "status"),
    [
        (scripts.failed(), "response.failed", "failed"),
        (scripts.cancelled(), "response.incomplete", "cancelled"),
        (scripts.superseded(), "response.failed", "failed"),
        (scripts.client_call().add(ev.TaskCompleted), "response.completed", "completed"),
    ],
    ids=["failed", "cancelled", "superseded", "a client's call"],
)
def test_the_npm_package_takes_every_ending(
    serving: Serving, script: Script, event: str, status: str
) -> None:
    answer = ran(serving, "openai_sdk.mjs", script)
    assert answer["seen"][-1] == event
    assert answer["final"]["status"] == status


def test_the_next_turn_keeps_the_words_that_the_sdk_names_by_id(served: Served) -> None:
    """By default it sends `item_reference`s, and no `previous_response_id`."""
    options = {"baseURL": f"{served.url}/v1", "model": "recalls", "turns": ["one", "pick"]}
    talk = json.loads(run_node(["openai_ai_sdk.mjs", json.dumps(options)]))
    sent = [[item.get("type", item.get("role")) for item in items] for items in talk["sent"]]
    named = ["user", *["item_reference"] * 3, "user"]
    called = ["item_reference", "function_call", "function_call_output"]
    assert sent == [["user"], named, [*named, *called]]
    found = "<referencable-item>\nID: 1\n15 C\n</referencable-item>"
    read = f"look_up() | pick() | one | None | {found} | one | pick | None | blue"
    assert talk["answers"] == ["one", read]
