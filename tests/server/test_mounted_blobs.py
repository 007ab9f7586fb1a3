"""Blobs of a mounted application: their paths carry the prefix of the mount, in every format."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from tailrace import Agent, Tailrace, tool
from tailrace.models import Scripted, call, say
from tailrace.server.mount import prefixed
from tailrace.wire.formats import FORMATS
from tests.serving import client_of

SHA = "0123456789abcdef" * 4
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40_000)


@tool
async def draw() -> dict[str, Any]:
    """Draws."""
    url = f"data:image/png;base64,{b64encode(PNG).decode()}"
    image = {"type": "image", "image_url": {"url": url}}
    page = {"type": "file", "url": url, "mime_type": "image/png", "name": "page.png"}
    return {"message_content": [], "block_list": [image, page]}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    agent = Agent("painter", model=Scripted([call("draw")], [say("Done.")]), tools=[draw])
    app = Tailrace([agent], tmp_path / "log.db")
    host = Starlette()
    host.mount("/ai", app)
    async with app.running(), client_of(host) as made:
        yield made


async def test_every_format_names_a_blob_that_can_be_fetched(client: httpx.AsyncClient) -> None:
    body = {"agent": "painter", "input": "A cat."}
    started = (await client.post("/ai/threads/t/runs", json=body)).json()
    paths = [f"/ai/runs/{started['run_id']}", "/ai/threads/t?format=vercel-ui"]
    paths += [f"{started['events']}?format={name}" for name in FORMATS]
    named = 0
    for path in paths:
        text = (await client.get(path)).text
        assert not re.search(r"(?<!/ai)/blobs/", text), path
        for found in set(re.findall(r"/ai/blobs/[0-9a-f]{64}", text)):
            assert (await client.get(found)).content == PNG
            named += 1
    assert named > 4


@pytest.mark.parametrize("size", [1, 2, 7, 75, 1000])
async def test_a_path_is_found_however_the_body_is_cut(size: int) -> None:
    texts = [f"[a](/blobs/{SHA})", f"see /blobs/{SHA}", f'"/blobs/{SHA}"', "/blobs/", "(", '"']
    value = {"url": f"/blobs/{SHA}", "texts": texts, "more": f"/blobs/{SHA}f", "last": "/blob"}
    body = json.dumps(value).encode()
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    sent = await answered(pieces, [(b"content-type", b"application/json")])
    made = json.loads(b"".join(sent))
    assert made["url"] == f"/ai/blobs/{SHA}"
    assert made["texts"] == [f"[a](/ai/blobs/{SHA})", *texts[1:]]
    assert (made["more"], made["last"]) == (value["more"], value["last"])


async def answered(pieces: list[bytes], headers: list[tuple[bytes, bytes]]) -> list[bytes]:
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    wrapped = prefixed("/ai", send)
    await wrapped({"type": "http.response.start", "status": 200, "headers": headers})
    for place, piece in enumerate(pieces, 1):
        more = place < len(pieces)
        await wrapped({"type": "http.response.body", "body": piece, "more_body": more})
    assert messages[0]["type"] == "http.response.start"
    measured = dict(messages[0]["headers"]).get(b"content-length")
    bodies = [message["body"] for message in messages[1:]]
    assert measured is None or int(measured) == len(b"".join(bodies))
    return bodies


async def test_the_length_of_an_answer_fits_and_other_types_stay_as_they_are() -> None:
    body = json.dumps({"url": f"/blobs/{SHA}"}).encode()
    for kind in (b"application/json", b"image/png"):
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        [sent] = await answered([body], headers)
        assert (b"/ai/" in sent) is (kind == b"application/json")
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    assert b"".join(await answered([body[:9], body[9:]], headers)).count(b"/ai/") == 1


async def test_a_frame_is_not_held_back() -> None:
    frame = b'data: {"type":"task.text.delta","delta":"a"}\n\n'
    assert await answered([frame, frame], [(b"content-type", b"text/event-stream")]) == [frame] * 2
