"""What the page runs, loads and sends: hostile content, foreign images, keys, its policy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from tailrace import Agent, Principal, Tailrace, Task, demo, image, tool
from tailrace.errors import CallerError
from tailrace.models import Scripted, say
from tailrace.models import call as calls
from tests.inspector.pages import OpenPage, ask, completed, copied_curl
from tests.serving import Served, serving


async def test_hostile_content_is_inert_and_no_request_leaves_the_page(
    page: Page, served: Served
) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    await ask(page, "hostile")
    await completed(page)
    for details in await page.locator("details").all():
        await details.evaluate("node => { node.open = true }")
    messages = page.locator(".run > div > .message")
    await expect(messages.first).to_contain_text("<img src=x onerror=")
    await expect(messages.last.locator("dt")).to_have_text("<b>key</b>")
    assert await page.title() == "Tailrace"
    assert await page.locator(".conversation script, .conversation iframe").count() == 0
    hrefs = [await each.get_attribute("href") for each in await page.locator("a").all()]
    assert all(str(href).startswith(("http://", "https://")) for href in hrefs), hrefs
    assert await page.locator(".cite").count() == 0  # [^9] was never annotated
    outside = [url for url in requests if not url.startswith((served.url, "data:image/"))]
    assert outside == []


@pytest.mark.parametrize("shown", [True, False])
async def test_images_of_another_origin_are_links_unless_a_setting_lists_it(
    open_page: OpenPage, tmp_path: Path, shown: bool
) -> None:
    asked: list[str] = []

    async def picture(request: Request) -> Response:
        asked.append(str(request.url))
        return Response(demo._sun(90), media_type="image/png")

    async def painter(task: Task) -> None:
        with task.call("paint") as call:
            call.arguments("{}")
        call.start()
        block = {"type": "image", "image_url": {"url": f"{pictures}/tool.png"}}
        call.result({"message_content": [{"type": "text", "text": "x"}], "block_list": [block]})
        with task.message() as message:
            message.text(f"Look: ![the sun]({pictures}/answer.png) ")
            await task.drain()
            message.text("and ![other](http://127.0.0.1:9/elsewhere.png).")

    with serving(Starlette(routes=[HttpRoute("/{name}", picture)])) as pictures:
        listed = [pictures.upper()] if shown else ["https://images.example.com"]
        app = Tailrace([painter], tmp_path / "log.db", inspector_images=listed)
        with serving(app) as url:
            page = await open_page()
            violations: list[str] = []
            page.on("console", lambda line: violations.append(line.text))
            await page.goto(url)
            await ask(page, "painter")
            await completed(page)
            images = page.locator(".run img")
            await expect(images).to_have_count(2 if shown else 0)
            for image in await images.all():
                await expect(image).to_be_visible()
                assert await image.evaluate("(node) => node.naturalHeight") == 90
            links = page.locator(".message a")
            await expect(links).to_have_text(["other"] if shown else ["the sun", "other"])
            # A thread that has no run yet is a 404, which is in the console, too.
            assert [text for text in violations if "Content Security Policy" in text] == []
    assert {each.rpartition("/")[2] for each in asked} == (
        {"tool.png", "answer.png"} if shown else set()
    )


def test_the_policy_has_the_listed_origins_and_no_other_words(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="`inspector_images` has"):
        Tailrace({}, tmp_path / "log.db", inspector_images=["https://x.example; script-src *"])
    tags = set()
    for listed in ([], ["https://b.example", "https://a.example"]):
        with serving(Tailrace({}, tmp_path / "log.db", inspector_images=listed)) as url:
            page = httpx.get(url, headers={"accept": "text/html"})
        policy = page.headers["content-security-policy"]
        names = "".join(f" {origin}" for origin in sorted(listed))
        assert policy.endswith(f"; img-src 'self' data: blob:{names}")
        tags.add(page.headers["etag"])
    assert len(tags) == 2  # a browser that has the page reads a new list


async def test_the_page_asks_for_no_address_that_a_run_names(
    open_page: OpenPage, tmp_path: Path
) -> None:
    asked: list[str] = []

    async def leave(request: Request) -> Response:
        asked.append(request.url.path)
        return Response()

    async def painter(task: Task) -> None:
        with task.message() as message:
            message.text("Look.")
            message.image("/logout/a")
            message.image(f"/logout/blobs/{'a' * 64}")
            message.image("../logout/b")

    app = Tailrace([painter], tmp_path / "log.db")
    host = Starlette(lifespan=lambda _host: app.running())
    host.add_route("/logout/{rest:path}", leave)
    host.mount("/ai", app)
    with serving(host) as url:
        page = await open_page(f"{url}/ai/")
        await ask(page, "painter")
        await completed(page)
        await expect(page.locator(".run")).to_contain_text("Image: not shown")
        assert await page.locator(".run img").count() == 0
    assert asked == []


async def test_under_a_prefix_the_page_asks_for_the_key(
    open_page: OpenPage, tmp_path: Path
) -> None:
    @tool
    async def paint() -> Any:
        """Paints a picture that is stored as a blob."""
        return image(demo._sun(90) + bytes(40_000))

    model = Scripted([calls("paint")], [say("Painted.")])
    app = Tailrace(
        [Agent("painter", model=model, tools=[paint])],
        tmp_path / "keys.db",
        auth=lambda request: (
            Principal("ann") if request.headers.get("authorization") == "Bearer right" else None
        ),
    )
    host = Starlette(lifespan=lambda _host: app.running())
    host.mount("/ai", app)
    with serving(host) as url:
        page = await open_page(f"{url}/ai/")
        for key in ("wrong", "right"):
            await page.get_by_role("textbox", name="API key").fill(key)
            await page.keyboard.press("Enter")
            if key == "wrong":
                await expect(page.get_by_role("dialog")).to_contain_text("refused this key")
        await ask(page, "painter")
        await completed(page)
        picture = page.locator(".call img")
        await expect(picture).to_have_attribute("src", re.compile("^blob:"))
        assert (
            await picture.evaluate("(node) => node.decode().then(() => node.naturalHeight)") == 90
        )
        await page.get_by_role("tab", name="Events").click()
        key = '-H "Authorization: Bearer $TAILRACE_KEY"'
        assert (await copied_curl(page)).startswith(f"curl -N {key} '{url}/ai/runs/run_")
