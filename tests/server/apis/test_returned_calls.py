"""A client's calls that come back in chat completions and Responses: their run is continued."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tailrace import Agent, Tailrace, image, tool
from tailrace.history import history
from tailrace.models import Scripted, call, say, think
from tailrace.ports import Request
from tests.server.principals import by_name

PICTURE = b"\x89PNG\r\n\x1a\n"
PICK = {"name": "pick", "parameters": {"type": "object", "properties": {}}}


class Painter(Scripted):
    """Paints, lets its client pick, then says what it has read, with its reasoning."""

    def __init__(self) -> None:
        super().__init__([say("-")], name="painter")

    def stream(self, request: Request) -> AsyncIterator[list[str]]:
        read = history(request.chain, "openai_responses", model=self.name).items
        read = read[max(place for place, one in enumerate(read) if one.get("role") == "user") :]
        made = [one["name"] for one in read if one["type"] == "function_call"]
        answer: list[Any] = [say(json.dumps([_word(one) for one in read]))]
        if not made:
            answer = [think("Red or blue?"), say("A moment."), call("paint")]
        elif made == ["paint"]:
            answer = [think("Let them choose."), call("pick")]
        return Scripted(answer, name=self.name).stream(request)


def _word(item: dict[str, Any]) -> str:
    if item["type"] != "function_call_output":
        return str(item.get("name", item["type"]))
    output = item["output"]
    is_picture = any(part["type"] == "input_image" for part in output if isinstance(part, dict))
    return "picture" if is_picture else str(output)


painted: list[str] = []


@tool
async def paint() -> list[Any]:
    """Paints."""
    painted.append("paint")
    return ["a picture", image(PICTURE)]


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """Clients of two principals."""
    painted.clear()
    app = Tailrace([Agent("painter", model=Painter(), tools=[paint])], ":memory:", auth=by_name)

    def client(key: str) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {key}"}
        transport = httpx.ASGITransport(app)
        return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)

    async with app.running(), client("ann") as ann, client("bob") as bob:
        yield ann, bob


PAINTED = ["message", "reasoning", "message", "paint", "picture"]
WHOLE = [*PAINTED, "reasoning", "pick", "blue"]
"""What the model reads after the client's call, if the run with the call is continued."""


async def completion(client: httpx.AsyncClient, messages: list[Any], **more: Any) -> Any:
    tools = [{"type": "function", "function": PICK}]
    body = {"model": "painter", "messages": messages, "tools": tools, **more}
    answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]


def picked(message: Any) -> list[Any]:
    return [
        {"role": "tool", "tool_call_id": one["id"], "content": "blue"}
        for one in message["tool_calls"]
    ]


async def test_a_chat_completion_continues_the_run_whose_calls_come_back() -> None:
    async with serving() as (ann, _):
        asked: list[Any] = [{"role": "system", "content": "Be brief."}]
        asked.append({"role": "user", "content": [{"type": "text", "text": "Paint."}]})
        first = await completion(ann, asked)
        messages = [*asked, first, *picked(first)]
        second = await completion(ann, messages)
        assert json.loads(second["content"]) == WHOLE
        assert painted == ["paint"]
        # A later turn still has the result of the server's tool, and its calls come back, too.
        messages += [second, {"role": "user", "content": "Again."}]
        third = await completion(ann, messages)
        fourth = await completion(ann, [*messages, third, *picked(third)])
        assert json.loads(fourth["content"]) == WHOLE
        threads = (await ann.get("/threads")).json()["threads"]
        assert [one["runs"] for one in threads] == [4]


async def test_a_client_may_write_the_json_of_a_call_anew() -> None:
    """The AI SDK and pydantic-ai parse arguments, and write them with other spaces."""
    async with serving() as (ann, _):
        asked = [{"role": "user", "content": "Paint."}]
        first = await completion(ann, asked)
        first["tool_calls"][0]["function"]["arguments"] = " { } "
        second = await completion(ann, [*asked, first, *picked(first)])
        assert json.loads(second["content"]) == WHOLE
        output = (await response(ann, asked))["output"]
        for item in output:
            if "arguments" in item:
                item["arguments"] = " { } "
        call_id = output[-1]["call_id"]
        result = {"type": "function_call_output", "call_id": call_id, "output": "blue"}
        assert spoken(await response(ann, [*asked, *output, result])) == WHOLE
        output[-1]["arguments"] = '{"a": 1}'
        answer = await response(ann, [*asked, *output, result])
        assert spoken(answer) != WHOLE


async def test_a_chat_completion_that_changes_the_answer_knows_its_messages_only() -> None:
    async with serving() as (ann, bob):
        asked = [{"role": "user", "content": "Paint."}]
        first = await completion(ann, asked)
        changed = {**first, "content": "Wait."}
        for client, messages in (
            (ann, [*asked, changed, *picked(first)]),
            (ann, [{"role": "user", "content": "Draw."}, first, *picked(first)]),
            (bob, [*asked, first, *picked(first)]),
        ):
            # The model does not know that it has painted.
            answer = await completion(client, messages)
            assert json.loads(answer["content"]) == ["message", "message", "pick", "blue"]
        unstored = await completion(ann, asked, store=False)
        given = [*asked, unstored, *picked(unstored)]
        assert "paint" not in (await completion(ann, given))["content"]


async def response(client: httpx.AsyncClient, given: Any, **more: Any) -> Any:
    tools = [{"type": "function", **PICK}]
    body = {"model": "painter", "input": given, "tools": tools, **more}
    answer = await client.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def spoken(answer: Any) -> Any:
    return json.loads(answer["output"][-1]["content"][0]["text"])


def chosen(answer: Any) -> Any:
    call_id = answer["output"][-1]["call_id"]
    return {"type": "function_call_output", "call_id": call_id, "output": "blue"}


async def test_a_response_whose_items_are_sent_back_whole_is_continued() -> None:
    async with serving() as (ann, bob):
        asked = [{"role": "user", "content": "Paint."}]
        first = await response(ann, "Paint.", include=["reasoning.encrypted_content"])
        made = first["output"]
        kinds = [item["type"] for item in made]
        assert kinds == [
            *("reasoning", "message", "mcp_call", "image_generation_call"),
            *("reasoning", "function_call"),
        ]
        plain = [{name: one[name] for name in one if name != "id"} for one in made]
        # As pydantic-ai sends them: without the server's part.
        thoughts = [f"<think>\n{text}\n</think>" for text in ("Red or blue?", "Let them choose.")]
        words = [{"role": "assistant", "content": text} for text in (*thoughts[:1], "A moment.")]
        theirs = [*words, {"role": "assistant", "content": thoughts[1]}, plain[-1]]
        for items in (made, plain, theirs, [*made[:-1], plain[-1]]):
            second = await response(ann, [*asked, *items, chosen(first)])
            assert spoken(second) == WHOLE
            assert second["previous_response_id"] is None
        then = [*asked, *made, chosen(first), *second["output"], {"role": "user", "content": "?"}]
        await response(ann, then)
        threads = (await ann.get("/threads")).json()["threads"]
        assert [one["runs"] for one in threads] == [6]
        # What a client has changed counts, and what another principal has is unknown.
        read = ["message", "message", "paint", "a picture", "pick", "blue"]
        changed = {**made[1], "content": [{"type": "output_text", "text": "Wait."}]}
        for items in ([made[0], changed, *made[2:]], [*made[1:]]):
            answer = await response(ann, [*asked, *items, chosen(first)])
            assert spoken(answer) == read
        assert spoken(await response(bob, [*asked, *made, chosen(first)])) == read
