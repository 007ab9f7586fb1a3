"""The inspector in a real browser, on a real server."""

from __future__ import annotations

import asyncio
import base64
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from playwright.async_api import Browser, Locator, Page, Route, async_playwright, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from tailrace import Agent, Principal, Tailrace, Task, demo, image, tool
from tailrace.errors import CallerError
from tailrace.models import Scripted, say
from tailrace.models import call as calls
from tests.browser import BROWSERS
from tests.node import CLIENT_TS, TESTS_JS, run_node
from tests.server.test_openapi import serving
from tests.serving import Served

TIMEOUT = 60_000
DONE = re.compile(r"^completed · seq \d+ · 0 missed")
WORDS = " ".join(f"w{number}" for number in range(200))


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


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("page") / "page.db", "tests.inspector.page_app:app")
    yield server
    server.kill()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for all pages, as they share a browser."""
    return "asyncio"


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert program, "There is no browser: run scripts/services, or install chromium."
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        await started.close()


@pytest.fixture
async def page(browser: Browser, served: Served) -> AsyncIterator[Page]:
    opened = await browser.new_page()
    opened.set_default_timeout(TIMEOUT)
    expect.set_options(timeout=TIMEOUT)
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    await opened.goto(served.url)
    await expect(opened.locator("#agent option")).to_have_count(6)
    yield opened
    await opened.close()
    assert errors == []


class Go:
    """A file that the agent "slow" waits for in the middle of its answer."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "go"

    def on(self) -> None:
        self.path.touch()


@pytest.fixture
def go(tmp_path_factory: pytest.TempPathFactory) -> Go:
    return Go(tmp_path_factory.mktemp("w"))


async def ask(page: Page, agent: str, words: str = "Hello?") -> None:
    await page.get_by_role("button", name="New thread").click()
    await page.select_option("#agent", agent)
    await page.fill("#message", words)
    await page.press("#message", "Enter")


def call(page: Page, name: str) -> Locator:
    """The calls of a tool, without the calls around them."""
    return page.locator(f"details.call:has(> summary > .name:text-is('{name}'))")


async def without_times(route: Route) -> None:
    """Answers with the log as an old worker wrote it."""
    response = await route.fetch()
    body = re.sub(r'"at":[0-9.]+,?', "", await response.text())
    await route.fulfill(response=response, body=body.replace(",}", "}"))


async def test_the_demo_is_shown_from_the_question_to_the_cited_answer(
    page: Page, browser: Browser
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
    await arguments.fill('{"restaurant": "Chez Janou", "guests": 5, "time": "19:30"}')
    await card.get_by_role("button", name="Approve").click()
    await expect(page.locator("#stream-text")).to_have_text(DONE)
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
    other = await browser.new_page()
    await other.goto(page.url)
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
    await other.route("**/events*", without_times)
    await other.reload()
    await expect(other.locator(".axis-note")).to_contain_text("has no times")
    await expect(other.locator(".lane .who")).to_have_text(lanes)
    await expect(other.locator(".lane .time").first).to_have_text(re.compile(r"^\d+ ev$"))
    await expect(other.locator("#stream-text")).to_have_text(DONE)  # its last request is answered
    await other.close()
    await page.locator(".lane", has_text="search").click()
    await expect(call(page, "search").locator("> summary.flash")).to_be_visible()


async def test_a_call_that_took_no_time_has_a_duration_like_its_neighbours(page: Page) -> None:
    async def at_once(route: Route) -> None:
        response = await route.fetch()
        body = re.sub(r'"at":[0-9.]+', '"at":1000000000.5', await response.text())
        await route.fulfill(response=response, body=body)

    await page.route(re.compile("/events"), at_once)
    await ask(page, "hostile")
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await expect(page.locator("details.call .side")).to_have_text("<1 ms")


async def test_the_events_can_be_filtered_and_shown_in_any_format(page: Page) -> None:
    await ask(page, "hostile")
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await page.get_by_role("tab", name="Events").click()
    rows = page.locator(".rows:visible .event")
    await expect(rows.first).to_contain_text(re.compile("created *hostile Hello"))
    await expect(rows.locator(".d").nth(2)).to_have_text(re.compile(r"^tool_call <img "))
    everything = await rows.count()
    await page.get_by_label("Type of event").select_option("task.file.done")
    await expect(rows).to_have_count(1)
    await page.get_by_label("Type of event").select_option("")
    await page.get_by_label("Task", exact=True).select_option(label="hostile")
    await expect(rows).to_have_count(everything)
    await page.get_by_label("Filter events").fill("</script><script>")
    await expect(rows.first).to_contain_text("</script><script>")
    assert await rows.count() < everything
    await rows.first.click()
    await expect(page.get_by_role("region", name="Event")).to_contain_text('"delta": "</script>')
    await expect(page.locator(".run .usage")).to_contain_text("after event")
    await page.get_by_role("button", name="Now", exact=True).click()
    await page.get_by_label("Filter events").fill("response.completed")
    await page.get_by_label("Wire format").select_option("openai-responses")
    await expect(rows).to_have_text([re.compile("event: response.completed"), re.compile("data: ")])
    await page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    await page.get_by_role("button", name="Copy as curl").click()
    curl = await page.evaluate("copied")
    url = re.fullmatch(r"curl -N '(\S+/runs/run_\w+/events\?format=openai-responses)'", curl)
    assert url, curl
    async with httpx.AsyncClient() as client:
        body = (await client.get(url[1])).content
    await page.get_by_label("Filter events").fill("")
    await expect(page.locator(".counts")).to_contain_text(f"{len(body):,} bytes")


async def test_a_cut_stream_says_what_waits_and_resumes_without_a_gap(page: Page, go: Go) -> None:
    await ask(page, "slow", str(go.path))
    await expect(page.locator(".message")).to_contain_text("w20 ")
    await page.get_by_role("button", name="Cut").click()
    go.on()
    waiting = re.compile(r"^cut · [1-9]\d* events waiting · seq \d+ · 0 missed$")
    await expect(page.locator("#stream-text")).to_have_text(waiting)
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await expect(page.locator("#stream-text")).to_have_text(
        re.compile(r"resumed after [1-9]\d* events$")
    )
    assert (await page.locator(".message").inner_text()).strip() == WORDS


async def test_a_reload_and_a_second_tab_go_on_in_the_middle(
    page: Page, browser: Browser, go: Go
) -> None:
    await ask(page, "slow", str(go.path))
    await expect(page.locator(".message")).to_contain_text("w20 ")
    await page.reload()
    second = await browser.new_page()
    await second.goto(page.url)
    for each in (page, second):
        await expect(each.locator(".message")).to_contain_text("w40 ")
    go.on()
    for each in (page, second):
        await expect(each.locator("#agent")).to_have_value("slow")  # the agent of the thread
        await expect(each.locator("#stream-text")).to_have_text(DONE)
        assert (await each.locator(".message").inner_text()).strip() == WORDS
    # The second tab has not seen the beginning: its times are in the log.
    await expect(second.locator(".axis-note")).not_to_contain_text("no times")
    await expect(second.locator(".lane .time")).to_have_text(re.compile(r"^[\d.]+ m?s$"))
    await second.close()


async def test_a_page_that_goes_offline_comes_back_and_says_so(page: Page, go: Go) -> None:
    await ask(page, "slow", str(go.path))
    await expect(page.locator(".message")).to_contain_text("w20 ")
    await page.context.set_offline(True)
    go.on()
    await expect(page.locator("#stream-text")).to_contain_text("offline: reconnecting")
    await page.fill("#message", "Hello?")
    await page.press("#message", "Enter")
    await expect(page.locator("#alert")).to_have_text("This browser is offline.")
    await page.context.set_offline(False)
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await expect(page.locator("#alert")).to_be_hidden()
    await expect(page.locator("#stream-text")).to_contain_text("resumed")


async def test_a_killed_server_is_waited_for_and_its_run_shows_two_attempts(
    browser: Browser, tmp_path: Path
) -> None:
    server = Served(tmp_path / "killed.db", "tests.inspector.page_app:app")
    page = await browser.new_page()
    try:
        await page.goto(server.url)
        await ask(page, "assistant")
        await page.evaluate(
            """() => new Promise(function look(found) {
                const shown = document.querySelector('.progress:not([hidden])')?.innerText ?? '';
                shown.includes('shelf') ? found() : requestAnimationFrame(() => look(found));
            })"""
        )  # in the middle of a tool
        server.kill()
        await expect(page.locator("#stream-text")).to_contain_text(
            re.compile(r"reconnecting in \d+ s")
        )
        await page.fill("#message", "Are you there?")
        await page.press("#message", "Enter")
        alert = page.locator("#alert")
        await expect(alert).to_have_text("The server does not answer. Is it running?")
        server.start(server.url.rpartition(":")[2])
        await expect(alert).to_be_hidden()
        await expect(page.locator("#message")).to_have_value("Are you there?")
        await page.get_by_role("button", name="Deny").click()
        await expect(page.locator("#stream-text")).to_have_text(DONE)
        await expect(page.locator("#stream-text")).to_contain_text("resumed")
        await expect(page.locator(".attempt").first).to_contain_text("Attempt 2")
        await expect(page.locator(".band")).to_have_text(["attempt 2"])
        await expect(page.locator(".facts")).to_contain_text("2 attempts")
        denied = call(page, "book_table")
        await expect(denied.locator("> summary .side")).to_contain_text("denied")
        await expect(denied.locator(".failure")).to_have_count(0)
        await expect(page.locator(".lane[data-status=failed]")).to_have_count(0)
    finally:
        await page.close()
        server.kill()


@pytest.mark.parametrize("way", ["silence", "503"])
async def test_a_page_that_opens_before_its_server_answers_needs_no_reload(
    page: Page, way: str
) -> None:
    await ask(page, "hostile", f"first, {way}")
    await expect(page.locator("#stream-text")).to_have_text(DONE)

    async def away(route: Route) -> None:
        if way == "silence":
            await route.abort()
        else:
            error = {"error": {"code": "store_unavailable", "message": "The store is away."}}
            await route.fulfill(status=503, json=error)

    words = (
        "The server does not answer. Is it running?" if way == "silence" else "The store is away."
    )
    alert = page.locator("#alert")
    for what in ("**/agents", "**/threads/*"):
        await page.route(what, away)
        await page.reload()
        await expect(alert).to_have_text(words)
        await page.unroute(what)
        await expect(alert).to_be_hidden()
        await expect(page.locator(".asked")).to_have_text(f"first, {way}")
        await expect(page.locator("#agent option")).to_have_count(6)


async def test_a_request_that_is_answered_after_a_silence_is_noticed_once(page: Page) -> None:
    """So that a stream does not sit out its wait: it is tried again at once."""
    noticed = await page.evaluate(
        """async () => {
            const { noticing } = await import('./inspector/problems.js');
            let noticed = 0;
            const answers = async (url) => { if (url === 'no') throw new TypeError(url); };
            const request = noticing(answers, () => (noticed += 1));
            const counts = [];
            const cut = { signal: AbortSignal.abort() };
            const asked = [['yes'], ['no', cut], ['yes'], ['no'], ['yes'], ['yes']];
            for (const [url, options] of asked) {
                await request(url, options).catch(() => undefined);
                counts.push(noticed);
            }
            return counts;
        }"""
    )
    assert noticed == [0, 0, 0, 0, 1, 1]


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


async def test_a_run_that_was_taken_over_between_two_steps_shows_its_attempts(page: Page) -> None:
    async def taken_over(route: Route) -> None:
        response = await route.fetch()
        found = await response.json()
        await route.fulfill(
            json={**found, "runs": [{**run, "attempts": 2} for run in found["runs"]]}
        )

    await ask(page, "careful")
    card = page.get_by_role("region", name="Which way?")
    await expect(card).to_be_visible()
    await page.route(re.compile("/threads/[^/]+$"), taken_over)
    await card.get_by_label("Answer").fill("air")
    await card.get_by_role("button", name="Answer").click()
    await expect(page.get_by_role("region", name="Send the mail?")).to_be_visible()
    await expect(page.locator(".facts")).to_contain_text("2 attempts", timeout=5000)


async def test_stop_ends_the_run_and_keeps_what_it_had(page: Page, go: Go) -> None:
    await ask(page, "slow", str(go.path))
    await expect(page.locator(".message")).to_contain_text("w20 ")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator("#stream-text")).to_contain_text("cancelled")
    await expect(page.locator(".message")).to_contain_text("w20 ")


async def test_a_call_that_was_stopped_has_not_failed(browser: Browser, tmp_path: Path) -> None:
    @tool
    async def wait() -> str:
        """Waits for ever."""
        await asyncio.Event().wait()
        return "never"

    waiter = Agent("waiter", model=Scripted([calls("wait")]), tools=[wait])
    with serving(Tailrace([waiter], tmp_path / "log.db")) as url:
        page = await browser.new_page()
        await page.goto(url)
        await ask(page, "waiter")
        await expect(page.locator("details.call .busy")).to_be_visible()
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator("#stream-text")).to_contain_text("cancelled")
        await expect(page.locator("details.call .side")).to_have_text(re.compile("stopped$"))
        lane = page.locator(".lane", has_text="wait")
        await expect(lane).to_have_attribute("data-status", "completed")
        assert await page.locator(".failure").count() == 0
        await page.close()


async def test_the_labels_of_the_axis_do_not_touch(page: Page) -> None:
    async def two_milliseconds(route: Route) -> None:
        response = await route.fetch()
        body = re.sub(r'"at":[0-9.]+', '"at":1000000000.0024', await response.text())
        body = re.sub(r'"created_at":[0-9.]+', '"created_at":1000000000.0', body)
        await route.fulfill(response=response, body=body)

    await ask(page, "hostile")
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await page.route(re.compile("/events"), two_milliseconds)
    await page.reload()
    await expect(page.locator(".axis span").last).to_have_text("2 ms")
    boxes = [await each.bounding_box() for each in await page.locator(".axis span").all()]
    edges = [(box["x"], box["x"] + box["width"]) for box in boxes if box is not None]
    assert all(end + 4 < start for (_, end), (start, _) in pairwise(edges)), edges


async def test_a_late_answer_does_not_bring_back_an_older_list(page: Page) -> None:
    held: list[Route] = []

    async def hold_the_first(route: Route) -> None:
        if held:
            await route.continue_()
        else:
            held.append(route)

    await page.route(re.compile("/threads$"), hold_the_first)
    await ask(page, "hostile", "Late?")
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    newest = page.locator("#threads > li").first
    await expect(newest.locator("[data-status=completed]")).to_be_visible()
    old = {"threads": [thread(1)], "next": None}
    await page.route(re.compile("/threads$"), lambda route: route.abort())  # no newer answer
    async with page.expect_response(re.compile("/threads$")):
        await held[0].fulfill(json=old)
    await page.wait_for_timeout(200)  # the page has read it
    assert "Late?" in await newest.inner_text()


async def test_the_next_message_continues_and_an_edit_replaces_it(page: Page) -> None:
    await ask(page, "hostile", "first")
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await page.fill("#message", "second")
    await page.press("#message", "Enter")
    await expect(page.locator(".asked")).to_have_text(["first", "second"])
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await page.get_by_role("button", name="Edit").last.click()
    await expect(page.locator("#replaces")).to_contain_text("replaces this turn")
    await page.fill("#message", "edited")
    await page.press("#message", "Enter")
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


async def test_the_scrubber_moves_all_panes_to_any_event(page: Page) -> None:
    await ask(page, "assistant")
    await page.get_by_role("button", name="Deny").click()
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await page.locator("#seq").fill("10")
    await expect(page.locator("#seq-text")).to_have_text("seq 10")
    await expect(page.locator("details.call")).to_have_count(0)
    await expect(page.locator(".thought")).to_have_count(1)
    await expect(page.locator(".under .head")).to_be_visible()
    await expect(page.locator(".lane.later").first).to_be_visible()
    await page.get_by_role("tab", name="State").click()
    await expect(page.locator(".json")).to_contain_text('status: "in_progress"')
    await page.keyboard.press("]")
    await expect(page.locator("#seq-text")).to_have_text("seq 11")
    await expect(page.locator(".json .changed")).to_have_count(1)
    await expect(page.locator(".json .changed")).to_contain_text("text: ")
    await page.get_by_role("tab", name="Events").click()
    await expect(page.locator(".rows [aria-selected=true] .n")).to_have_text("11")
    await page.keyboard.press("Escape")
    await expect(page.locator("details.call").first).to_be_visible()
    asked = await page.evaluate(
        """async () => {
            const { threads: [newest] } = await (await fetch('threads')).json();
            const log = await (await fetch(`runs/${newest.last_run_id}/events`)).text();
            return log.split('\\n\\n').findIndex((frame) => frame.includes('"agent":"guide"')) + 1;
        }"""
    )
    await page.locator("#seq").fill(str(asked + 8))
    # How long it would run was not known then.
    await expect(call(page, "guide").locator("> summary .side")).to_have_text("")


async def test_a_fork_in_the_middle_continues_the_run_as_it_was_there(page: Page) -> None:
    await ask(page, "hostile", "Is it sunny?")
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await page.fill("#message", "And tomorrow?")
    await page.press("#message", "Enter")
    await expect(page.locator(".asked")).to_have_count(2)
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await page.locator("#seq").fill("4")
    motion = "(node) => getComputedStyle(node).animationName"
    # The call had not ended there, but nothing goes on in the past.
    assert await page.locator(".run").last.locator(".busy").first.evaluate(motion) == "none"
    await page.get_by_role("button", name="Fork here").last.click()
    await expect(page.locator("#stream-text")).to_have_text("fork · seq 4 · 0 missed")
    forked = page.locator(".run").nth(1)
    await expect(forked.locator(".message")).to_have_count(0)
    await page.select_option("#agent", "failing")
    await page.fill("#message", "Another way")
    await page.press("#message", "Enter")
    await expect(page.locator("#stream-text")).to_contain_text("failed")
    asked = ["Is it sunny?", "And tomorrow?", "Another way"]
    for _ in range(2):
        await expect(page.locator(".asked")).to_have_text(asked)  # also from the other thread
        await expect(forked).to_contain_text("after event 4")
        await expect(forked.locator(".message")).to_have_count(0)
        await page.reload()
    await page.locator(".asked").nth(1).click()  # the right shows the run that was clicked
    await expect(page.locator("#stream-text")).to_have_text("fork · seq 4 · 0 missed")


async def test_a_thread_lists_its_branches_and_can_be_found_and_deleted(page: Page) -> None:
    await ask(page, "hostile", "Delete me")
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await page.get_by_role("button", name="Regenerate").click()
    await expect(page.locator(".runs li")).to_have_text(
        ["1. other branch: Delete me", "2. Delete me"]
    )
    await page.locator(".runs button").first.click()
    await expect(page.locator(".runs button").first).to_have_attribute("aria-current", "true")
    oldest = str(await page.locator(".runs button").first.get_attribute("data-id"))
    await page.get_by_role("button", name="New thread").click()
    await page.get_by_label("Search threads").first.fill(oldest)
    await page.locator("#threads > li > button").first.click()  # found by an older run: shown
    await expect(page.locator(".runs button").first).to_have_attribute("aria-current", "true")
    await page.get_by_label("Search threads").first.fill("nothing like this")
    await expect(page.locator("#no-threads")).to_have_text("No thread has these words.")
    await page.get_by_label("Search threads").first.fill("delete ME")
    await expect(page.locator("#threads > li")).to_have_count(1)
    page.on("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="Delete Delete me").click()
    await expect(page.locator("#threads")).not_to_contain_text("Delete me")
    await expect(page.locator(".run")).to_have_count(0)


async def test_the_list_marks_the_run_that_the_right_pane_shows(page: Page, go: Go) -> None:
    go.on()
    await ask(page, "careful", "The first?")
    await expect(page.get_by_role("region", name="Which way?")).to_be_visible()
    await page.select_option("#agent", "slow")
    await page.fill("#message", str(go.path))
    await page.press("#message", "Enter")
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    first, second = (page.locator(".runs button").nth(number) for number in range(2))
    await expect(second).to_have_attribute("aria-current", "true")
    await expect(first.get_by_role("img", name="waits for you")).to_be_visible()
    for show in (page.locator(".asked").first, first):
        await show.click()
        await expect(first).to_have_attribute("aria-current", "true")
        await expect(page.locator("#stream-text")).to_contain_text("waiting for you")
        await second.click()
        await expect(second).to_have_attribute("aria-current", "true")
        await expect(page.locator(".asked")).to_have_text(["The first?", str(go.path)])


async def test_the_keyboard_is_enough(page: Page) -> None:
    """The palette, the shortcuts and the theme, which stays."""
    await expect(page.locator("#find kbd")).to_have_text("Ctrl K")  # ⌘K is for Apple's keyboards
    paper = "() => getComputedStyle(document.body).backgroundColor"
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox", name="Search threads, agents").fill("dark th")
    await expect(page.locator("#palette").get_by_role("option")).to_have_text(["Dark themeT"])
    await page.keyboard.press("Enter")
    dark = await page.evaluate(paper)
    await page.reload()
    assert await page.evaluate(paper) == dark == "rgb(18, 19, 23)"
    await expect(page.locator("#agent option")).to_have_count(6)
    await page.keyboard.press("t")
    assert await page.evaluate(paper) == "rgb(255, 255, 255)"
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox", name="Search threads, agents")).to_be_focused()
    await page.keyboard.type("words")
    await page.keyboard.press("Escape")
    await expect(page.locator("#palette")).to_be_hidden()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard")).to_contain_text("Cut or resume")
    await page.keyboard.press("Escape")
    await page.keyboard.press("n")
    await expect(page.locator("#welcome")).to_contain_text("Asks which way")
    await page.keyboard.type("no shortcut 123")  # a text field has the focus
    await expect(page.locator("#message")).to_have_value("no shortcut 123")


async def test_hostile_content_is_inert_and_no_request_leaves_the_page(
    page: Page, served: Served
) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    await ask(page, "hostile")
    await expect(page.locator("#stream-text")).to_have_text(DONE)
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


async def test_an_event_costs_a_hundredth_of_a_frame_also_among_20_000(page: Page) -> None:
    """Measured: a 500th. No frame takes long, or on a slow machine a large part of the run."""
    browser = await page.context.new_cdp_session(page)
    # The time of the page's thread: other programs do not count.
    await browser.send("Performance.enable", {"timeDomain": "threadTicks"})

    async def busy() -> float:
        found = (await browser.send("Performance.getMetrics"))["metrics"]
        return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))

    before = await busy()
    await ask(page, "flood")
    longest, whole = await page.evaluate(
        """() => new Promise((done) => {
            const begun = performance.now();
            let last = begun, longest = 0;
            const tick = (now) => {
                longest = Math.max(longest, now - last);
                last = now;
                const text = document.getElementById('stream-text').textContent;
                if (text.startsWith('completed · seq 20')) done([longest, now - begun]);
                else requestAnimationFrame(tick);
            };
            requestAnimationFrame(tick);
        })"""
    )
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    ratio = (await busy() - before) / 20_000 / (1 / 60)
    assert ratio < 1 / 100, f"an event costs 1/{1 / ratio:.0f} of a frame"
    assert longest < max(500, whole / 3), f"a frame took {longest:.0f} of {whole:.0f} ms"
    await expect(page.locator("#conversation")).to_contain_text("word19999")
    await page.get_by_role("tab", name="Events").click()
    assert await page.locator(".rows:visible .event").count() < 100
    await page.get_by_label("Filter events").fill("word19999")
    await expect(page.locator(".rows:visible .event")).to_have_count(2)  # the delta and the text
    await page.locator("#seq").fill("10000")
    await expect(page.locator("#conversation")).not_to_contain_text("word19999")


async def test_on_a_phone_the_panes_are_tabs(browser: Browser, served: Served) -> None:
    phone = await browser.new_page(viewport={"width": 390, "height": 844}, has_touch=True)
    await phone.goto(served.url)
    await expect(phone.locator("#message")).to_be_visible()
    await expect(phone.locator("#threads")).to_be_hidden()
    await phone.get_by_role("button", name="Threads", exact=True).click()
    await phone.get_by_role("button", name="New thread").click()
    await phone.select_option("#agent", "hostile")
    await phone.fill("#message", "Hello?")
    await phone.get_by_role("button", name="Send", exact=True).click()
    await expect(phone.locator("#stream-text")).to_have_text(DONE)
    await phone.get_by_role("button", name="Threads", exact=True).click()
    room = "(title) => parseFloat(getComputedStyle(title).paddingRight)"
    assert await phone.locator("#threads .title").first.evaluate(room) >= 28  # beside Delete
    await phone.get_by_role("button", name="Inspect", exact=True).click()
    await expect(phone.locator("#message")).to_be_hidden()
    await phone.locator(".lane").last.click()  # leads to the answer
    await expect(phone.locator(".message").first).to_be_in_viewport()
    assert await phone.evaluate("document.documentElement.scrollWidth") == 390
    await phone.close()


IS_CUT_OFF = "(node) => node.scrollWidth > node.clientWidth || node.scrollHeight > 32"

ALONE = """() => [...document.querySelectorAll('.cite')].filter((cite) => {
    const before = document.createRange();
    const words = cite.previousSibling;
    before.setStart(words, words.length - 1);
    before.setEnd(words, words.length);
    return cite.getBoundingClientRect().left < before.getBoundingClientRect().right - 2;
}).length"""
"""How many citations begin a line, without the word before them."""


async def test_on_a_small_screen_the_stream_and_the_citations_are_whole(
    browser: Browser, served: Served
) -> None:
    page = await browser.new_page(viewport={"width": 1280, "height": 900})
    await page.goto(served.url)
    await ask(page, "assistant", "Plan a Saturday.")
    await expect(call(page, "get_weather")).to_have_count(1)
    await page.get_by_role("button", name="Cut").click()
    waiting = re.compile(r"^cut · [1-9]\d* events waiting · seq \d+ · 0 missed$")
    await expect(page.locator("#stream-text")).to_have_text(waiting)
    for width in (320, 390, 820, 1280):
        await page.set_viewport_size({"width": width, "height": 900})
        assert not await page.locator("#stream-text").evaluate(IS_CUT_OFF), width
    await page.get_by_role("button", name="Resume").click()
    await page.get_by_role("button", name="Approve").click()
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    assert await page.locator(".cite").count() > 3
    for width in range(320, 480, 4):
        await page.set_viewport_size({"width": width, "height": 900})
        assert await page.evaluate(ALONE) == 0, width
    await page.close()


async def test_on_a_phone_neither_another_pane_nor_the_keyboard_loses_the_end(
    browser: Browser, served: Served, go: Go
) -> None:
    phone = await browser.new_page(viewport={"width": 390, "height": 480}, has_touch=True)
    await phone.goto(served.url)
    await phone.get_by_role("button", name="Threads", exact=True).click()
    await phone.get_by_role("button", name="New thread").click()
    await phone.select_option("#agent", "slow")
    await phone.fill("#message", str(go.path))
    await phone.get_by_role("button", name="Send", exact=True).click()
    await expect(phone.locator(".message")).to_contain_text("w20 ")
    await phone.get_by_role("button", name="Inspect", exact=True).click()
    go.on()
    await expect(phone.locator("#stream-text")).to_have_text(DONE)
    await phone.get_by_role("button", name="Chat", exact=True).click()
    end = phone.get_by_role("button", name="Regenerate")
    await expect(end).to_be_in_viewport()
    await phone.set_viewport_size({"width": 390, "height": 320})  # as a keyboard does
    await expect(end).to_be_in_viewport()
    await phone.locator("#scroll").evaluate("(box) => { box.scrollTop = 0; }")
    await expect(end).not_to_be_in_viewport()
    await phone.set_viewport_size({"width": 390, "height": 300})
    await phone.get_by_role("button", name="Inspect", exact=True).click()
    await phone.get_by_role("button", name="Chat", exact=True).click()
    await expect(phone.locator(".asked")).to_be_in_viewport()  # who has scrolled up stays there
    await phone.close()


async def test_an_image_that_loads_does_not_lose_the_end(browser: Browser, served: Served) -> None:
    page = await browser.new_page(viewport={"width": 1200, "height": 480})
    await page.goto(served.url)
    await ask(page, "assistant", "Plan a Saturday.")
    card = page.get_by_role("region", name="Run book_table?")
    await expect(card.get_by_role("button", name="Approve")).to_be_in_viewport()
    await expect(page.get_by_role("button", name="New events below")).to_be_hidden()
    await expect(call(page, "paint").locator("img")).to_have_js_property("complete", True)
    await page.close()


async def test_under_a_prefix_the_page_asks_for_the_key(browser: Browser, tmp_path: Path) -> None:
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
        page = await browser.new_page()
        await page.goto(f"{url}/ai/")
        for key in ("wrong", "right"):
            await page.get_by_role("textbox", name="API key").fill(key)
            await page.keyboard.press("Enter")
            if key == "wrong":
                await expect(page.get_by_role("dialog")).to_contain_text("refused this key")
        await ask(page, "painter")
        await expect(page.locator("#stream-text")).to_have_text(DONE)
        picture = page.locator(".call img")
        await expect(picture).to_have_attribute("src", re.compile("^blob:"))
        assert (
            await picture.evaluate("(node) => node.decode().then(() => node.naturalHeight)") == 90
        )
        await page.get_by_role("tab", name="Events").click()
        await page.evaluate(
            "navigator.clipboard.writeText = async (text) => { window.copied = text }"
        )
        await page.get_by_role("button", name="Copy as curl").click()
        key = '-H "Authorization: Bearer $TAILRACE_KEY"'
        assert (await page.evaluate("copied")).startswith(f"curl -N {key} '{url}/ai/runs/run_")
        await page.close()


@pytest.mark.parametrize("shown", [True, False])
async def test_images_of_another_origin_are_links_unless_a_setting_lists_it(
    browser: Browser, tmp_path: Path, shown: bool
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
            page = await browser.new_page()
            violations: list[str] = []
            page.on("console", lambda line: violations.append(line.text))
            await page.goto(url)
            await ask(page, "painter")
            await expect(page.locator("#stream-text")).to_have_text(DONE)
            images = page.locator(".run img")
            await expect(images).to_have_count(2 if shown else 0)
            for image in await images.all():
                await expect(image).to_be_visible()
                assert await image.evaluate("(node) => node.naturalHeight") == 90
            links = page.locator(".message a")
            await expect(links).to_have_text(["other"] if shown else ["the sun", "other"])
            # A thread that has no run yet is a 404, which is in the console, too.
            assert [text for text in violations if "Content Security Policy" in text] == []
            await page.close()
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
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    images = page.get_by_role("img", name="Image of the question")
    await expect(images).to_have_count(4)
    for each in await images.all():
        assert await each.evaluate("(node) => node.decode().then(() => node.naturalHeight)") == 40
    await expect(page.locator(".asked")).to_have_text("What is this?")
    await expect(page.locator(".asked-pictures a")).to_have_text("http://evil.example/pixel.png")


async def test_each_status_has_a_shape_and_not_only_a_colour(page: Page) -> None:
    await page.emulate_media(reduced_motion="reduce")
    shapes = await page.evaluate(
        """() => ['queued', 'in_progress', 'input_required', 'completed', 'failed', 'cancelled',
                  'incomplete'].map((status) => {
            const mark = document.body.appendChild(document.createElement('span'));
            mark.className = 'mark';
            mark.dataset.status = status;
            const style = getComputedStyle(mark);
            const isClear = (colour) => colour === 'rgba(0, 0, 0, 0)';
            const shape = [isClear(style.backgroundColor), isClear(style.borderTopColor),
                style.backgroundImage === 'none', style.borderRadius, style.borderTopStyle,
                style.transform];
            mark.remove();
            return JSON.stringify(shape);
        })"""
    )
    assert len(set(shapes)) == len(shapes), shapes


async def test_axe_finds_nothing(browser: Browser, served: Served) -> None:
    """Contrast, names, roles and landmarks: on the first page, in each tab, in each dialog."""
    context = await browser.new_context(bypass_csp=True, reduced_motion="reduce")
    page = await context.new_page()
    await page.goto(served.url)
    await expect(page.locator("#agent option")).to_have_count(6)
    await page.add_script_tag(path=TESTS_JS / "node_modules/axe-core/axe.min.js")

    async def check(where: str) -> None:
        rules: dict[Literal["light", "dark"], str] = {
            "light": "axe.run()",
            "dark": "axe.run({runOnly: ['color-contrast']})",  # all else is the same
        }
        for scheme, run in rules.items():
            await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            found = await page.evaluate(f"() => {run}")
            assert [
                (where, scheme, each["id"], [node["html"] for node in each["nodes"]])
                for each in found["violations"]
            ] == []

    await page.get_by_role("button", name="New thread").click()
    await check("first page")
    await ask(page, "assistant")
    await expect(page.get_by_role("region", name="Run book_table?")).to_be_visible()
    await check("timeline")
    await page.get_by_role("tab", name="Events").click()
    await page.locator(".rows:visible .event").nth(5).click()
    await check("events")
    await page.get_by_role("tab", name="State").click()
    await page.get_by_role("button", name="One event back").click()
    await check("state")
    for key in ("Control+k", "?"):
        await page.keyboard.press(key)
        await expect(page.get_by_role("dialog")).to_be_visible()
        await check(key)
        await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Now", exact=True).click()
    await page.get_by_role("button", name="Deny").click()
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await check("ended")
    await ask(page, "failing")
    await expect(page.locator(".failure")).to_be_visible()
    await check("tables and a failure")
    await context.close()


def test_scripts_get_the_list_of_routes_and_the_files_are_bounded(served: Served) -> None:
    with httpx.Client(base_url=served.url) as client:
        assert client.get("/").text.startswith("Tailrace is running")
        page = client.get("/", headers={"accept": "text/html"})
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        script = client.get("/inspector/main.js")
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        again = client.get("/inspector/main.js", headers={"if-none-match": script.headers["etag"]})
        assert again.status_code == 304
        for path in ("/inspector/__init__.py", "/inspector/nothing.js", "/inspector/client/x.js"):
            assert client.get(path).status_code == 404


def test_an_app_may_have_no_inspector(tmp_path: Path) -> None:
    with serving(Tailrace({}, tmp_path / "log.db", inspector=False)) as url:
        page = httpx.get(url, headers={"accept": "text/html"})
        assert page.headers["content-type"].startswith("text/plain")
        assert httpx.get(f"{url}/inspector/main.js").status_code == 404


def thread(number: int) -> dict[str, Any]:
    names = {"thread_id": f"t{number}", "title": f"Q{number}", "last_run_id": f"run_{number}"}
    return {**names, "agent": "a", "status": "completed", "runs": 1, "updated_at": number}


async def test_the_palette_finds_threads_that_are_not_loaded(
    browser: Browser, served: Served
) -> None:
    async def pages(route: Route) -> None:
        found = {"": [thread(4)], "Q": [thread(4), thread(1)]}
        words = re.search("search=(.*)", route.request.url)
        await route.fulfill(json={"threads": found.get(words[1] if words else "", [])})

    page = await browser.new_page()
    await page.route(re.compile("/threads([?]|$)"), pages)
    await page.goto(served.url)
    await expect(page.locator("#threads .title")).to_have_text(["Q4"])
    await page.get_by_role("button", name="search and commands").click()
    text = page.get_by_role("combobox", name="Search threads, agents")
    options = page.locator("#palette").get_by_role("option")
    await text.fill("Q")
    await expect(options.filter(has_text=re.compile("^Q"))).to_contain_text(["Q4", "Q1"])
    await text.fill("Nowhere")
    await expect(options).to_have_text(["Nothing has these words."])
    await text.fill("Q")
    await options.filter(has_text=re.compile("^Q1")).click()
    await expect(page).to_have_url(re.compile("#t1$"))
    await page.close()


async def test_older_threads_are_a_button_away(browser: Browser, served: Served) -> None:
    async def pages(route: Route) -> None:
        older = "before=run_3" in route.request.url
        found = [thread(2), thread(1)] if older else [thread(4), thread(3)]
        await route.fulfill(json={"threads": found, "next": None if older else "run_3"})

    page = await browser.new_page()
    await page.route(re.compile("/threads([?]|$)"), pages)
    await page.goto(served.url)
    await expect(page.locator("#threads .title")).to_have_text(["Q4", "Q3"])
    await page.get_by_role("button", name="Older threads").click()
    await expect(page.locator("#threads .title")).to_have_text(["Q4", "Q3", "Q2", "Q1"])
    await expect(page.get_by_role("button", name="Older threads")).to_have_count(0)
    await page.close()


def test_threads_are_listed_with_their_runs(served: Served) -> None:
    with httpx.Client(base_url=served.url) as client:
        body = {"agent": "careful", "input": "List me", "thread_id": "listed"}
        run_id = client.post("/runs", json=body).json()["run_id"]
        [found] = [
            each
            for each in client.get("/threads").json()["threads"]
            if each["thread_id"] == "listed"
        ]
        assert (found["title"], found["agent"], found["runs"]) == ("List me", "careful", 1)
        [run] = client.get("/threads/listed").json()["runs"]
        assert run["run_id"] == run_id
        assert client.get("/threads/unknown").status_code == 404
        client.post(f"/runs/{run_id}/cancel")


def test_the_client_of_the_page_is_the_typescript_client(tmp_path: Path) -> None:
    compiler = CLIENT_TS / "node_modules/typescript/bin/tsc"
    project = CLIENT_TS / "tsconfig.inspector.json"
    run_node([compiler, "--project", project, "--outDir", tmp_path])
    committed = CLIENT_TS.parents[1] / "src/tailrace/inspector/client"
    assert {each.name for each in committed.iterdir()} == {each.name for each in tmp_path.iterdir()}
    for each in tmp_path.iterdir():
        assert (committed / each.name).read_text() == each.read_text(), "run `make docs`"
