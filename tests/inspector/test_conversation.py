"""A run as the page shows it: answers, tools, citations, cards, edits and forks."""

from __future__ import annotations

import asyncio
import base64
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, expect

from tailrace import Agent, Tailrace, demo, tool
from tailrace.models import Scripted
from tailrace.models import call as calls
from tests.inspector.pages import DONE, Go, OpenPage, ask, call, completed, rewrite_events, send
from tests.serving import Served, serving

WATCH = """() => {
    const all = (query) => [...document.querySelectorAll(query)];
    window.seen = {images: new Set(), progress: new Set(), fields: new Set()};
    new MutationObserver(() => {
        for (const node of all('.call img')) seen.images.add(node.src.length);
        for (const node of all('.call .progress:not([hidden])')) seen.progress.add(node.innerText);
        for (const node of all('.fields dt')) seen.fields.add(all('.fields dt').length);
    }).observe(document.body, {childList: true, subtree: true, attributes: true});
}"""
"""Remembers what is only to be seen while a run streams."""


async def test_the_demo_is_shown_from_the_question_to_the_cited_answer(
    page: Page, open_page: OpenPage
) -> None:
    await page.evaluate(WATCH)
    await ask(page, "assistant", "Plan a Saturday.")
    card = page.get_by_role("region", name="Run book_table?")
    await expect(card).to_be_visible()
    await expect(page.locator("#stream-text")).to_have_text(
        re.compile(r"^waiting for you · seq \d+ · 0 missed$")
    )
    await expect(page.locator("#threads [data-status=input_required]").first).to_be_visible()
    arguments = card.get_by_label("Arguments")
    await arguments.fill("{no JSON")
    await card.get_by_role("button", name="Approve").click()
    await expect(card.get_by_role("alert")).to_contain_text("This is not JSON")
    await arguments.fill('{"restaurant": "Chez Janou", "guests": "many", "time": "19:30"}')
    await card.get_by_role("button", name="Approve").click()
    await expect(card.get_by_role("alert")).to_contain_text("guests")
    await expect(page.locator("#alert")).to_be_hidden()
    await expect(arguments).to_be_enabled()
    await arguments.fill('{"restaurant": "Chez Janou", "guests": 5, "time": "19:30"}')
    await card.get_by_role("button", name="Approve").click()
    await completed(page)
    await expect(call(page, "book_table")).to_contain_text("A table for 5 at Chez Janou")
    images, progress, fields = await page.evaluate("Object.values(seen).map((each) => [...each])")
    # A busy browser draws less often: how much of the growth is seen depends on it.
    assert len(images) > 1  # the image sharpens
    assert {each[:8] for each in progress} == {"painting", "reading "}
    assert len(fields) > 1  # the structured answer grows
    assert fields == sorted(fields)
    # The tree.
    await expect(page.locator(".asked")).to_have_text("Plan a Saturday.")
    thought = page.locator(".thought").first
    # A busy browser may get a thought at once, but not every thought.
    timed = page.locator(".thought").filter(has_text=re.compile(r"Thought for [\d.]+ m?s"))
    await expect(timed.first).to_be_visible()
    await expect(thought.locator(".body")).to_be_hidden()
    await thought.locator("summary").click()
    await expect(thought.locator(".body")).to_contain_text("A picture helps.")
    await expect(
        call(page, "get_weather").locator("summary [aria-label=completed]")
    ).to_be_visible()
    await expect(
        call(page, "guide").locator(call(page, "archivist")).locator(call(page, "search"))
    ).to_be_visible()
    await expect(page.get_by_role("log").get_by_role("list")).to_have_count(1)  # what to bring
    # Citations, also in the structured answer.
    fields = page.locator(".fields")
    await expect(fields.locator("dd").last).to_contain_text("sunglasses")
    await fields.get_by_role("button", name="Source 3").hover()
    await expect(page.get_by_role("tooltip")).to_contain_text("Marie de Medici")
    await fields.get_by_role("button", name="Source 1").click()
    await expect(call(page, "get_weather").locator(".block.flash")).to_contain_text("15C")
    # The timeline, also in a browser that opens the run after its end.
    lanes = [
        "model turn 1",
        "get_weather",
        "paint",
        "model turn 2",
        "guide",
        "model turn 1",
        "archivist",
        "model turn 1",
        "search",
        "model turn 2",
        "model turn 2",
        "model turn 3",
        "book_table",
        "model turn 4",
    ]
    facts = ["First token", "Speed", "Tokens", "Cost", "Took", "Events"]
    other = await open_page(page.url)
    shown = []
    for each in (page, other):
        booked = call(each, "book_table")  # with the arguments that a person wrote
        await expect(booked.locator("> summary .short")).to_contain_text('"guests":5')
        await expect(booked.locator(".note")).to_contain_text('The model wrote {"restaurant"')
        await expect(call(each, "get_weather").locator(".note")).to_be_hidden()
        await expect(each.locator(".lane .who")).to_have_text(lanes)
        await expect(each.locator(".facts dt")).to_have_text(facts)
        await expect(each.locator(".lane", has_text="search").locator(".time")).to_have_text(
            re.compile(r"^[\d.]+ m?s$")
        )
        await expect(each.locator(".axis-note")).not_to_contain_text("no times")
        shown.append(
            [
                *await each.locator(".lane .time").all_text_contents(),
                *await each.locator(".thought summary > span:first-of-type").all_text_contents(),
                *await each.locator(".call .side").all_text_contents(),
            ]
        )
    assert shown[0] == shown[1]
    await rewrite_events(other, (r'"at":[0-9.]+,?', ""), (",}", "}"))  # by an old worker
    await other.reload()
    await expect(other.locator(".axis-note")).to_contain_text("has no times")
    await expect(other.locator(".lane .who")).to_have_text(lanes)
    await expect(other.locator(".lane .time").first).to_have_text(re.compile(r"^\d+ ev$"))
    await completed(other)  # its last request is answered
    await page.locator(".lane", has_text="search").click()
    await expect(call(page, "search").locator("> summary.flash")).to_be_visible()


@pytest.mark.parametrize(("button", "words"), [("Approve", "Sent by air."), ("Deny", "Not sent.")])
async def test_a_question_and_an_approval_are_cards(page: Page, button: str, words: str) -> None:
    await ask(page, "careful")
    question = page.get_by_role("region", name="Which way?")
    await expect(call(page, "send_mail").locator(".short")).to_have_text('{"to": ')  # it grows
    await question.get_by_label("Answer").fill("air")
    await question.get_by_label("Answer").press("Enter")
    card = page.get_by_role("region", name="Send the mail?")
    await expect(card.get_by_label("Arguments")).to_have_value(re.compile("ada@example.com"))
    await card.get_by_role("button", name=button).click()
    await expect(page.locator(".run > div > .message")).to_have_text(words)
    await expect(card).to_have_count(0)


async def test_the_images_of_a_question_are_shown(page: Page, served: Served) -> None:
    data = base64.b64encode(demo._sun(40)).decode()
    url = f"data:image/png;base64,{data}"
    parts: list[dict[str, Any]] = [
        {"type": "input_image", "image_url": url},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
        {"type": "file", "mediaType": "image/png", "url": url},
        {"type": "input_image", "image_url": "http://evil.example/pixel.png"},
    ]
    words = {"type": "input_text", "text": "What is this?"}
    given = [{"role": "user", "content": [words, *parts]}]
    body = {"agent": "hostile", "input": given, "thread_id": "pictures"}
    async with httpx.AsyncClient(base_url=served.url) as client:
        (await client.post("/runs", json=body)).raise_for_status()
    await page.goto(f"{served.url}/#pictures")
    await page.reload()
    await completed(page)
    images = page.get_by_role("img", name="Image of the question")
    await expect(images).to_have_count(4)
    for each in await images.all():
        assert await each.evaluate("(node) => node.decode().then(() => node.naturalHeight)") == 40
    await expect(page.locator(".asked")).to_have_text("What is this?")
    await expect(page.locator(".asked-pictures a")).to_have_text("http://evil.example/pixel.png")


async def test_a_failure_is_a_sentence_and_markdown_is_shown_as_it_streams(page: Page) -> None:
    await ask(page, "failing")
    await expect(page.locator("#stream-text")).to_contain_text("failed")
    failure = page.locator(".failure")
    await expect(failure).to_contain_text(re.compile(r"agent_error\s*run_\w+"))
    await expect(failure).not_to_contain_text("secret")
    message = page.locator(".message")
    await expect(message.locator("h2")).to_have_text("Title")
    await expect(message.locator("ul > li > ul > li strong")).to_have_text("bold")
    await expect(message.locator("ol > li")).to_have_text(["first", "second"])
    await expect(message.locator("td.right")).to_have_text("1")
    code = ["make demo\n  indented", 'print("[^1]")']  # the first is indented, as part of a list
    assert await message.locator("pre").all_text_contents() == code
    tasks = message.locator("li").filter(has_text=re.compile("^[☑☐]"))
    await expect(tasks).to_have_text(["☑ done", "☐ open"])
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await message.get_by_role("button", name="Copy the code").first.click()
    await expect(message.get_by_text("Copied")).to_be_visible()
    assert await page.evaluate("navigator.clipboard.readText()") == code[0]
    await expect(message.locator("p br")).to_have_count(1)
    await expect(message.locator("a")).to_have_text("https://example.com/a")  # without the dot
    heights = "(cells) => cells.map((cell) => cell.clientHeight)"
    # A wide table scrolls: a number is not broken into two lines.
    assert max(await message.locator("table").last.locator("td").evaluate_all(heights)) < 40
    await expect(page.locator(".legend span:visible")).to_have_text(["model"])


async def test_stop_ends_the_run_and_keeps_what_it_had(page: Page, go: Go) -> None:
    await ask(page, "slow", str(go.path))
    await expect(page.locator(".message")).to_contain_text("w20 ")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator("#stream-text")).to_contain_text("cancelled")
    await expect(page.locator(".message")).to_contain_text("w20 ")


async def test_a_call_that_was_stopped_has_not_failed(open_page: OpenPage, tmp_path: Path) -> None:
    @tool
    async def wait() -> str:
        """Waits for ever."""
        await asyncio.Event().wait()
        return "never"

    waiter = Agent("waiter", model=Scripted([calls("wait")]), tools=[wait])
    with serving(Tailrace([waiter], tmp_path / "log.db")) as url:
        page = await open_page(url)
        await ask(page, "waiter")
        await expect(page.locator("details.call .busy")).to_be_visible()
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator("#stream-text")).to_contain_text("cancelled")
        await expect(page.locator("details.call .side")).to_have_text(re.compile("stopped$"))
        lane = page.locator(".lane", has_text="wait")
        await expect(lane).to_have_attribute("data-status", "completed")
        assert await page.locator(".failure").count() == 0


async def test_the_next_message_continues_and_an_edit_replaces_it(page: Page) -> None:
    await ask(page, "hostile", "first")
    await completed(page)
    await send(page, "second")
    await expect(page.locator(".asked")).to_have_text(["first", "second"])
    await completed(page)
    await page.get_by_role("button", name="Edit").last.click()
    await expect(page.locator("#replaces")).to_contain_text("replaces this turn")
    await send(page, "edited")
    await expect(page.locator(".asked")).to_have_text(["first", "edited"])
    await expect(page.locator("#replaces")).to_be_hidden()


async def test_an_edit_keeps_the_image_of_the_question(page: Page, served: Served) -> None:
    picture = {"type": "input_image", "image_url": "data:image/gif;base64,R0lGODlhAQABAAAAACw="}
    asked = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, picture]},
    ]
    body = {"agent": "hostile", "thread_id": "t_image", "input": asked}
    answer = await page.request.post(f"{served.url}/runs", data=body)
    assert answer.status == 201
    await page.goto(f"{served.url}/#t_image")
    await page.reload()
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await page.get_by_role("button", name="Edit", exact=True).click()
    await expect(page.locator("#message")).to_have_value("What is it?")
    await expect(page.locator("#replaces")).to_contain_text("Its images stay.")
    await page.fill("#message", "Where is it?")
    async with page.expect_request(lambda request: request.method == "POST") as sent:
        await page.press("#message", "Enter")
    posted: Any = (await sent.value).post_data_json
    assert posted["input"] == [
        asked[0],
        {"role": "user", "content": [{"type": "input_text", "text": "Where is it?"}, picture]},
    ]


async def test_a_fork_in_the_middle_continues_the_run_as_it_was_there(page: Page) -> None:
    await ask(page, "hostile", "Is it sunny?")
    await completed(page)
    await send(page, "And tomorrow?")
    await expect(page.locator(".asked")).to_have_count(2)
    await completed(page)
    await page.locator("#seq").fill("4")
    motion = "(node) => getComputedStyle(node).animationName"
    # The call had not ended there, but nothing goes on in the past.
    assert await page.locator(".run").last.locator(".busy").first.evaluate(motion) == "none"
    await page.get_by_role("button", name="Fork here").last.click()
    await expect(page.locator("#stream-text")).to_have_text("fork · seq 4 · 0 missed")
    forked = page.locator(".run").nth(1)
    await expect(forked.locator(".message")).to_have_count(0)
    await page.select_option("#agent", "failing")
    await send(page, "Another way")
    await expect(page.locator("#stream-text")).to_contain_text("failed")
    asked = ["Is it sunny?", "And tomorrow?", "Another way"]
    for _ in range(2):
        await expect(page.locator(".asked")).to_have_text(asked)  # also from the other thread
        await expect(forked).to_contain_text("after event 4")
        await expect(forked.locator(".message")).to_have_count(0)
        await page.reload()
    await page.locator(".asked").nth(1).click()  # the right shows the run that was clicked
    await expect(page.locator("#stream-text")).to_have_text("fork · seq 4 · 0 missed")
