"""Large outputs of tools: stored once, a URL for clients, the bytes for the model."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from tailrace import (
    Agent,
    Answer,
    Principal,
    Tailrace,
    file,
    image,
    partial_image,
    streaming_tool,
    tool,
)
from tailrace.core.data_url import data_url
from tailrace.core.events import ImageDelta, TaskInputRequired
from tailrace.core.items import (
    Data,
    File,
    FilePart,
    Image,
    ImageUrl,
    ImageUrlPart,
    Refusal,
    Text,
    TextPart,
)
from tailrace.models import open_model
from tailrace.models.scripted import Scripted, call, say
from tailrace.ports import Request
from tailrace.runtime.diagnostics.failures import tool_failure
from tailrace.runtime.event_log.whole_state import read_whole
from tailrace.runtime.model_calls.call import call_model
from tailrace.runtime.tasks.blobs import (
    EXCERPT_CHARACTERS,
    INLINE_BYTES,
    INLINE_TEXT_BYTES,
    MAX_OUTPUT_BYTES,
    OutputTooLarge,
    blob_loader,
    tool_result,
)
from tailrace.testing.simulator import Simulator

PNG = b"\x89PNG\r\n\x1a\n"
LARGE = PNG + bytes(INLINE_BYTES)
BYTES = base64.b64encode(LARGE).decode()
HASH = hashlib.sha256(LARGE).hexdigest()


class Kept:
    """A store of blobs that counts."""

    def __init__(self) -> None:
        self.puts: list[tuple[bytes, str, str | None]] = []

    async def put_blob(self, data: bytes, mime_type: str, run_id: str | None = None) -> str:
        self.puts.append((data, mime_type, run_id))
        return hashlib.sha256(data).hexdigest()

    async def blob(self, sha256: str, *, owner: str | None = None) -> tuple[bytes, str] | None:
        raise NotImplementedError

    async def collect_blobs(self, unused_for: float, limit: int = 100) -> int:
        raise NotImplementedError


async def test_a_large_image_is_stored_once_and_named_on_both_sides() -> None:
    kept = Kept()
    made = await tool_result(image(LARGE), kept, "run_1")
    assert kept.puts == [(LARGE, "image/png", "run_1")]
    (part,), (block,) = made.message_content, made.block_list
    assert isinstance(part, ImageUrlPart)
    assert isinstance(block, Image)
    assert part.image_url.url == block.image_url.url == f"/blobs/{HASH}"
    assert part.id == block.id == 1


async def test_a_small_image_stays_inline() -> None:
    kept = Kept()
    made = await tool_result(image(PNG), kept, "run_1")
    assert not kept.puts
    (block,) = made.block_list
    assert isinstance(block, Image)
    assert block.image_url.url == data_url(PNG, "image/png")


async def test_a_large_file_keeps_its_name_and_gets_its_hash() -> None:
    data = b"%PDF-" + bytes(INLINE_BYTES)
    made = await tool_result(file(data, "a.pdf"), Kept(), "run_1")
    sha256 = hashlib.sha256(data).hexdigest()
    url, kind = f"/blobs/{sha256}", "application/pdf"
    assert made.block_list == [
        File(url=url, mime_type=kind, name="a.pdf", size=len(data), sha256=sha256, id=1)
    ]
    assert made.message_content == [FilePart(url=url, mime_type=kind, name="a.pdf", id=1)]


async def test_a_large_text_is_whole_for_the_model_and_a_file_for_the_client() -> None:
    text = "ä" * INLINE_TEXT_BYTES
    kept = Kept()
    made = await tool_result(text, kept, "run_1")
    assert made.message_content == [TextPart(text=text, id=1)]
    beginning, whole = made.block_list
    assert beginning == Text(text="ä" * (EXCERPT_CHARACTERS - 1) + "…", id=1)
    assert isinstance(whole, File)
    assert (whole.mime_type, whole.name, whole.id) == ("text/plain", "text.txt", 1)
    assert kept.puts == [(text.encode(), "text/plain", "run_1")]


async def test_large_data_becomes_a_file_of_json() -> None:
    kept = Kept()
    blocks = [Data(data=["x" * INLINE_TEXT_BYTES], name="rows"), Refusal(refusal="no")]
    made = await tool_result({"message_content": [], "block_list": blocks}, kept, "run_1")
    stored, refusal = made.block_list
    assert isinstance(stored, File)
    assert (stored.name, stored.mime_type) == ("rows.json", "application/json")
    assert kept.puts[0][0] == msgspec.json.encode(["x" * INLINE_TEXT_BYTES])
    assert refusal == Refusal(refusal="no")


async def test_a_url_that_is_not_base64_stays_as_it_is() -> None:
    url = "data:image/png;base64," + "é" * INLINE_BYTES * 2
    value = {"block_list": [{"type": "image", "image_url": {"url": url}}]}
    made = await tool_result(value, Kept(), "run_1")
    (block,) = made.block_list
    assert isinstance(block, Image)
    assert block.image_url.url == url


@pytest.mark.parametrize("value", ["x" * (MAX_OUTPUT_BYTES + 1), PNG + bytes(MAX_OUTPUT_BYTES)])
async def test_an_output_above_the_limit_is_an_error_of_the_tool(value: Any) -> None:
    with pytest.raises(OutputTooLarge) as caught:
        await tool_result(value, None, "run_1")
    error = tool_failure("run_1", "read", caught.value)
    assert error.code == "tool_output_too_large"
    assert error.message == (
        "The tool returned 16.0 MiB; the limit is 16 MiB. Return less, or a URL."
    )


async def test_without_a_store_everything_stays_inline() -> None:
    made = await tool_result(image(LARGE), None, "run_1")
    (block,) = made.block_list
    assert isinstance(block, Image)
    assert block.image_url.url == data_url(LARGE, "image/png")


# --- in a run ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["openai:m", "openai-chat:m", "anthropic:m"])
async def test_the_model_gets_the_bytes_also_in_the_next_turn(name: str) -> None:
    async with Simulator([say("Nice.")]) as provider:
        url = provider.url if name.startswith("anthropic") else provider.openai_url
        model = open_model(name, base_url=url, api_key="any")

        async def painter(task: Any) -> None:
            if task.input == "paint":
                with task.call("paint") as call:
                    call.arguments("{}")
                call.result(await tool_result(image(LARGE), task._sink.emitter.blobs, task.task_id))
            await call_model(model, Request(chain=await task.chain()), task)
            assert BYTES in str((await task.history(model.api)).items)

        app = Tailrace({"painter": painter}, ":memory:")
        async with app.running():
            for words in ("paint", "and?"):
                run_id = await app._runs.start("painter", words, thread_id="t")
                assert await app._runs.reader.ended(run_id, 120)
                root = (await app._runs.state(run_id)).root
                assert root is not None
                assert root.status == "completed"
                assert root.notices == []
        await model.close()
    assert len(provider.requests) == 2
    for request in provider.requests:
        sent = msgspec.json.encode(request).decode()
        assert sent.count(BYTES) == 1


async def test_a_client_loads_a_blob_as_the_type_that_it_has_and_runs_nothing_in_it() -> None:
    page = "<script>alert(1)</script>" * 3000

    async def agent(task: Any) -> None:
        blobs = task._sink.emitter.blobs
        for value in (image(LARGE), file(page, "page.html", "text/html"), page * 9):
            with task.call("read") as call:
                call.arguments("{}")
            call.result(await tool_result(value, blobs, task.task_id))

    app = Tailrace({"agent": agent}, ":memory:")
    transport = httpx.ASGITransport(app)
    async with (
        app.running(),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as c,
    ):
        run_id = await app._runs.start("agent", None)
        assert await app._runs.reader.ended(run_id, 120)
        shown = (await c.get(f"/runs/{run_id}")).json()["output"]
        first, second, third = [one["block_list"] for one in shown if "block_list" in one]
        picture = await c.get(first[0]["image_url"]["url"])
        download = await c.get(second[0]["url"])
        text = await c.get(third[1]["url"])
        tags = (f'"{HASH}"', f'"x", W/"{HASH}"', "*", '"x"', "")
        again = [await c.get(f"/blobs/{HASH}", headers={"if-none-match": tag}) for tag in tags]
        unknown = [await c.get(f"/blobs/{name}") for name in ("0" * 64, HASH.upper(), "x")]
    assert (picture.content, picture.headers["content-type"]) == (LARGE, "image/png")
    assert picture.headers["content-disposition"] == "inline"
    assert picture.headers["etag"] == f'"{HASH}"'
    assert [one.status_code for one in again] == [304, 304, 304, 200, 200]
    assert [one.content for one in again] == [b""] * 3 + [LARGE] * 2
    assert again[0].headers["cache-control"] == picture.headers["cache-control"]
    assert (download.text, text.text) == (page, page * 9)
    assert download.headers["content-type"] == "text/html; charset=utf-8"
    for answer in (picture, download, text):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]
    for answer in (download, text):
        assert answer.headers["content-disposition"] == "attachment"
    assert {answer.status_code for answer in unknown} == {404}


async def test_an_agents_tools_store_what_they_show_and_what_they_return() -> None:
    @streaming_tool
    async def paint() -> AsyncIterator[Any]:
        yield image(LARGE)
        yield [image(PNG + b"2" + bytes(INLINE_BYTES))]

    agent = Agent("painter", model=Scripted([call("paint")], [say("Done.")]), tools=[paint])
    app = Tailrace([agent], ":memory:")
    async with app.running():
        run = await app.start("painter", "Paint.")
        result = await run.result()
    (shown,) = [item for item in result.items if item["type"] == "tool_result"]
    urls = [block["image_url"]["url"] for block in shown["block_list"]]
    assert urls[0] == f"/blobs/{HASH}"
    assert urls[1].startswith("/blobs/")
    assert [block.get("id") for block in shown["block_list"]] == [None, 1]


@pytest.mark.parametrize("fails", [False, True])
async def test_an_image_of_a_streaming_tool_sharpens_in_its_place(fails: bool) -> None:
    @streaming_tool
    async def paint() -> AsyncIterator[Any]:
        yield partial_image(PNG + b"1")
        yield Text(text="beside")
        yield partial_image(PNG + b"2")
        if fails:
            raise RuntimeError("no more paint")
        yield image(PNG + b"3")
        yield image(PNG + b"4")

    agent = Agent("painter", model=Scripted([call("paint")], [say("Done.")]), tools=[paint])
    app = Tailrace([agent], ":memory:")
    async with app.running():
        run = await app.start("painter", "Paint.")
        events = [event async for event in run.events()]
        result = await run.result()
    deltas = [event.item.image_url.url for event in events if isinstance(event, ImageDelta)]
    assert deltas == [data_url(PNG + number, "image/png") for number in (b"1", b"2")]
    (shown,) = [item for item in result.items if item["type"] == "tool_result"]
    images = [block["image_url"]["url"] for block in shown["block_list"] if "image_url" in block]
    finals = [b"2"] if fails else [b"3", b"4"]
    assert images == [data_url(PNG + number, "image/png") for number in finals]
    assert result.text == "Done."


async def test_of_a_tool_that_only_shows_blocks_the_model_reads_the_blocks() -> None:
    @streaming_tool
    async def look() -> AsyncIterator[Any]:
        yield Text(text="one", id=7)
        yield image(PNG)

    agent = Agent("looker", model=Scripted([call("look")], [say("Seen.")]), tools=[look])
    app = Tailrace([agent], ":memory:")
    async with app.running():
        run = await app.start("looker", "Look.")
        await run.result()
        root = (await read_whole(app._runs.store, run.id)).root
    assert root is not None
    (node,) = root.call_results.values()
    url = ImageUrl(url=data_url(PNG, "image/png"))
    assert node.private["content"] == [TextPart(text="one"), ImageUrlPart(image_url=url)]
    assert len(node.parts) == 2


async def test_a_tool_that_returns_too_much_fails_and_the_run_goes_on() -> None:
    @tool
    def dump() -> str:
        return "x" * (MAX_OUTPUT_BYTES + 1)

    agent = Agent("dumper", model=Scripted([call("dump")], [say("Too much.")]), tools=[dump])
    app = Tailrace([agent], ":memory:")
    async with app.running():
        result = await (await app.start("dumper", "Dump.")).result()
    assert result.text == "Too much."
    (shown,) = [item for item in result.items if item["type"] == "tool_result"]
    assert shown["error"]["code"] == "tool_output_too_large"


async def test_an_invalid_media_type_is_sent_as_bytes() -> None:
    async def agent(_task: Any) -> None:
        pass

    app = Tailrace({"agent": agent}, ":memory:")
    transport = httpx.ASGITransport(app)
    async with (
        app.running(),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as c,
    ):
        run = await app.start("agent")
        sha256 = await app._runs.store.put_blob(b"x", "text/html\r\nset-cookie: a=b", run.id)
        answer = await c.get(f"/blobs/{sha256}")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "set-cookie" not in answer.headers


async def test_a_url_that_a_client_sent_is_not_looked_up() -> None:
    seen: list[Any] = []

    async def agent(task: Any) -> None:
        load = await blob_loader(task._sink.emitter.blobs, task.owner, await task.chain())
        seen.append(load(task.input[0]["content"][0]["image_url"]))

    app = Tailrace({"agent": agent}, ":memory:")
    async with app.running():
        sha256 = await app._runs.store.put_blob(LARGE, "image/png")
        part = {"type": "input_image", "image_url": f"/blobs/{sha256}"}
        run_id = await app._runs.start("agent", [{"role": "user", "content": [part]}])
        assert await app._runs.reader.ended(run_id, 120)
    assert seen == [None]


@pytest.mark.parametrize(("owner", "reads"), [("ann", True), ("bob", False), ("", False)])
async def test_a_clients_result_may_name_only_blobs_of_its_own_principal(
    owner: str, reads: bool
) -> None:
    @tool(executor="client")
    def shoot() -> Any:
        """Takes a picture."""

    @tool
    def scan() -> Any:
        """Scans a page."""
        return image(LARGE)

    async with Simulator([call("shoot")], [say("Nice.")]) as provider:
        model = open_model("openai:m", base_url=provider.openai_url, api_key="any")
        camera = Agent("camera", model=model, tools=[shoot])
        scanner = Agent("scanner", model=Scripted([call("scan")], [say("Done.")]), tools=[scan])
        app = Tailrace([camera, scanner], ":memory:")
        async with app.running():
            await (await app.start("scanner", "Scan it.", owner="ann")).result()
            run = await app.start("camera", "Shoot.", owner=owner)
            asked = (event async for event in run.events() if isinstance(event, TaskInputRequired))
            [request] = (await anext(asked)).requests
            url = {"type": "image_url", "image_url": {"url": f"/blobs/{HASH}"}}
            await run.send(Answer(request_id=request.id, value={"message_content": [url]}))
            result = await run.result()
        await model.close()
    assert result.text == "Nice."
    assert len(provider.requests) == 2
    assert (BYTES in str(provider.requests)) == reads
    assert (BYTES in str(result.to_input_list())) == reads


@pytest.mark.parametrize(("owner", "reads"), [("ann", True), ("bob", False)])
async def test_a_result_that_a_page_sends_again_after_an_edit_has_its_bytes(
    owner: str, reads: bool
) -> None:
    @tool
    def scan() -> Any:
        """Scans a page."""
        return image(LARGE)

    def auth(request: Any) -> Principal:
        return Principal(request.headers["x-api-key"])

    async with Simulator([call("scan")], [say("A page.")], [say("Well.")]) as provider:
        model = open_model("openai:m", base_url=provider.openai_url, api_key="any")
        app = Tailrace([Agent("scanner", model=model, tools=[scan])], ":memory:", auth=auth)
        transport = httpx.ASGITransport(app)
        async with (
            app.running(),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            asked = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Scan it."}]}
            ann = {"x-api-key": "ann"}
            await client.post("/api/chat", json={"id": "c", "messages": [asked]}, headers=ann)
            shown = (await client.get("/threads/c?format=vercel-ui", headers=ann)).json()
            before = len(provider.requests)
            shown[1]["parts"][-1]["text"] = "No page."
            messages = [*shown, {**asked, "id": "u2"}]
            body = {"id": "c", "messages": messages}
            await client.post("/api/chat", json=body, headers={"x-api-key": owner})
        await model.close()
    assert "No page." in str(provider.requests[before])
    assert (BYTES in str(provider.requests[before])) == reads


async def test_the_input_list_of_a_result_has_the_bytes_of_large_images() -> None:
    @tool
    def scan() -> Any:
        """Scans a page."""
        return image(LARGE)

    agent = Agent("scanner", model=Scripted([call("scan")], [say("A page.")]), tools=[scan])
    app = Tailrace([agent], database="sqlite://:memory:")
    async with app.running():
        result = await (await app.start("scanner", "Scan it.")).result()
    [output] = [one for one in result.to_input_list() if one["type"] == "function_call_output"]
    [picture] = [part for part in output["output"] if part["type"] == "input_image"]
    assert picture["image_url"] == data_url(LARGE, "image/png")
    assert f"/blobs/{HASH}" in str(result.items)  # clients load it
