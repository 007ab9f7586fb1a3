"""What the SDKs do with a response and with models beside asking, on the real server."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from anthropic import Anthropic
from openai import BadRequestError, NotFoundError, OpenAI

from tests.serving import Served


@pytest.fixture
def client(served: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{served.url}/v1", api_key="test", max_retries=0) as client:
        yield client


def test_a_deleted_response_is_unknown(served: Served, client: OpenAI) -> None:
    found = client.responses.create(model="assistant", input="Is it sunny?")
    answer = httpx.delete(f"{served.url}/v1/responses/{found.id}")
    deleted = answer.json()
    assert "nor the responses before it" in deleted.pop("message")
    assert deleted == {"id": found.id, "object": "response", "deleted": True}
    with pytest.raises(NotFoundError):
        client.responses.retrieve(found.id)
    with pytest.raises(NotFoundError):
        client.responses.delete(found.id)


def test_a_response_in_progress_is_cancelled_and_deleted(client: OpenAI) -> None:
    found = client.responses.create(model="endless", input="?", background=True)
    client.responses.delete(found.id)
    with pytest.raises(NotFoundError):
        client.responses.retrieve(found.id)


def test_a_response_completes_at_the_time_that_its_log_has(served: Served, client: OpenAI) -> None:
    asked: Any = {"model": "assistant", "input": "Is it sunny?", "stream": True}
    answer = httpx.post(f"{served.url}/v1/responses", json=asked, timeout=30).text
    shown = json.loads(answer.split("data: ")[-2])["response"]
    run_id = shown["id"].removeprefix("resp_")
    log = httpx.get(f"{served.url}/runs/{run_id}/events", timeout=30).text
    last = json.loads(log.split("data: ")[-1])
    assert shown["completed_at"] == int(last["at"]) >= shown["created_at"]
    assert httpx.get(f"{served.url}/v1/responses/{run_id}").json() == shown
    replay = httpx.get(f"{served.url}/v1/responses/{run_id}?stream=true", timeout=30).text
    assert json.loads(replay.split("data: ")[-2])["response"] == shown
    ended = client.responses.create(model="broken", input="?")
    assert (ended.status, ended.completed_at) == ("failed", None)


def test_the_input_is_listed_page_by_page(client: OpenAI) -> None:
    inputs = [f"Number {n}." for n in range(5)]
    found = client.responses.create(
        model="assistant", input=[{"role": "user", "content": text} for text in inputs]
    )

    def texts(**query: object) -> list[str]:
        listing: Any = client.responses.input_items.list
        return [item.content[0].text for item in listing(found.id, **query)]

    assert texts() == inputs[::-1]
    assert texts(order="asc", limit=2) == inputs
    assert len(client.responses.input_items.list(found.id, limit=2).data) == 2
    with pytest.raises(NotFoundError, match="The input has no item msg_0"):
        texts(after="msg_0")
    for limit in (101, 0):
        with pytest.raises(BadRequestError):
            texts(limit=limit)


def test_the_agents_are_models_of_both_apis(served: Served, client: OpenAI) -> None:
    names = httpx.get(f"{served.url}/agents").json()["agents"]
    assert [model.id for model in client.models.list()] == names
    assert client.models.retrieve("assistant").object == "model"
    with pytest.raises(NotFoundError, match="Unknown agent 'gpt-9'"):
        client.models.retrieve("gpt-9")
    with Anthropic(base_url=served.url, api_key="test") as theirs:
        assert [model.id for model in theirs.models.list()] == names
        assert theirs.models.retrieve("assistant").display_name == "assistant"


def test_a_stream_ends_with_done(served: Served) -> None:
    asked = {"model": "assistant", "input": "?", "stream": True}
    answer = httpx.post(f"{served.url}/v1/responses", json=asked, timeout=30)
    assert answer.text.endswith("data: [DONE]\n\n")
    assert answer.text.count("[DONE]") == 1


def test_large_images_are_inline_in_a_response_up_to_a_limit(reading: Served) -> None:
    with OpenAI(base_url=f"{reading.url}/v1", api_key="test", max_retries=0) as client:
        response = client.responses.create(model="painter", input="Paint.")
        with client.responses.stream(model="painter", input="Paint.") as stream:
            streamed = stream.get_final_response()
        stored = client.responses.retrieve(streamed.id)
    for shown in (response, stored):
        pictures: Any = [item for item in shown.output if item.type == "image_generation_call"]
        assert [one.status for one in pictures] == ["completed"] * 3
        assert [len(one.result) > 4_000_000 for one in pictures] == [True, True, False]
        assert b64decode(pictures[0].result).startswith(b"\x89PNG")
    # A stream has their URLs. So has a response, for those behind the limit.
    links: Any = [item for item in streamed.output if item.type == "image_generation_call"]
    assert [(one.status, one.result) for one in links] == [("completed", "")] * 3
    assert links[2].url == pictures[2].url
    assert len(httpx.get(f"{reading.url}{links[2].url}").content) > 3_000_000


def test_the_tokens_of_an_input_are_estimated(reading: Served) -> None:
    with OpenAI(base_url=f"{reading.url}/v1", api_key="test", max_retries=0) as client:
        count = client.responses.input_tokens.count
        short, long = (count(model="reader", input=text) for text in ("Hi", "Hi" * 400))
        assert short.object == "response.input_tokens"
        assert 0 < short.input_tokens < 20 < 200 <= long.input_tokens < 220
        with pytest.raises(NotFoundError):
            count(model="nobody", input="Hi")
