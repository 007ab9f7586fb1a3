"""The inspector in a real browser, on a real server."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.browser import BROWSERS
from tests.node import CLIENT_TS, TESTS_JS, run_node
from tests.serving import Served

TIMEOUT = 60_000
DONE = re.compile(r"^completed · seq \d+ · 0 missed")


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
    await expect(opened.locator("#agent option")).to_have_count(5)
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


async def test_the_demo_is_shown_from_the_question_to_the_cited_answer(page: Page) -> None:
    await ask(page, "assistant", "Is it sunny in Paris?")
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await expect(page.locator(".asked")).to_have_text("Is it sunny in Paris?")
    await expect(page.locator(".thought").first).to_contain_text("Thought")
    weather = page.locator("details.call", has_text="get_weather")
    await expect(weather.locator("summary").first).to_contain_text("✓")
    child = page.locator("details.call", has_text="ask_for_help").locator(".child")
    await expect(child).to_contain_text("A light jacket over a shirt.")
    await expect(page.locator(".run > div > .message")).to_contain_text("It is sunny in Paris")
    await page.get_by_role("button", name="Source 1").last.click()
    await expect(weather.locator("img")).to_be_visible()  # the source was opened
    await expect(page.locator(".lane")).to_have_count(8)
    await page.get_by_role("tab", name="Events").click()
    await expect(page.locator(".rows .event").first).to_contain_text("created")
    await page.get_by_label("Wire format").select_option("openai-responses")
    await expect(page.get_by_label("Stream")).to_contain_text("response.completed")


async def test_a_cut_stream_says_what_waits_and_resumes_without_a_gap(page: Page, go: Go) -> None:
    await ask(page, "slow", str(go.path))
    await expect(page.locator(".message")).to_contain_text("w20 ")
    await page.get_by_role("button", name="Cut").click()
    go.on()
    await expect(page.locator("#stream-text")).to_have_text(re.compile(r"^cut · [1-9]\d* waiting"))
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await expect(page.locator("#stream-text")).to_contain_text("resumed after")
    words = " ".join(f"w{number}" for number in range(300))
    assert (await page.locator(".message").inner_text()).strip() == words


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
    words = " ".join(f"w{number}" for number in range(300))
    for each in (page, second):
        await expect(each.locator("#stream-text")).to_have_text(DONE)
        assert (await each.locator(".message").inner_text()).strip() == words


async def test_a_page_that_goes_offline_comes_back_and_says_so(page: Page, go: Go) -> None:
    await ask(page, "slow", str(go.path))
    await expect(page.locator(".message")).to_contain_text("w20 ")
    await page.context.set_offline(True)
    go.on()
    await expect(page.locator("#stream-text")).to_contain_text("reconnecting")
    await page.context.set_offline(False)
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await expect(page.locator("#stream-text")).to_contain_text("resumed after")


@pytest.mark.parametrize(("button", "words"), [("Approve", "Sent."), ("Deny", "Not sent.")])
async def test_an_approval_is_a_card_with_two_buttons(page: Page, button: str, words: str) -> None:
    await ask(page, "careful")
    card = page.get_by_role("region", name="Send the mail?")
    await expect(card.get_by_label("Arguments")).to_have_value(re.compile("ada@example.com"))
    await card.get_by_role("button", name=button).click()
    await expect(page.locator(".run > div > .message")).to_have_text(words)
    await expect(card).to_have_count(0)


async def test_stop_ends_the_run_and_keeps_what_it_had(page: Page, go: Go) -> None:
    await ask(page, "slow", str(go.path))
    await expect(page.locator(".message")).to_contain_text("w20 ")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator("#stream-text")).to_contain_text("cancelled")
    await expect(page.locator(".message")).to_contain_text("w20 ")


async def test_the_next_message_continues_and_an_edit_replaces_it(page: Page) -> None:
    await ask(page, "careful", "first")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await page.select_option("#agent", "assistant")
    await page.fill("#message", "second")
    await page.press("#message", "Enter")
    await expect(page.locator(".asked")).to_have_text(["first", "second"])
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await page.get_by_role("button", name="Edit").last.click()
    await page.fill("#message", "edited")
    await page.press("#message", "Enter")
    await expect(page.locator(".asked")).to_have_text(["first", "edited"])


async def test_the_scrubber_shows_the_run_at_any_event(page: Page) -> None:
    await ask(page, "assistant")
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await page.locator("#seq").fill("10")
    await expect(page.locator("#seq-text")).to_have_text("seq 10")
    await expect(page.locator("details.call")).to_have_count(0)
    await expect(page.locator(".thought")).to_have_count(1)
    await page.get_by_role("tab", name="State").click()
    await expect(page.locator(".json")).to_contain_text('"status": "in_progress"')
    await page.locator("#seq").fill("9999")
    await expect(page.locator("details.call").first).to_be_visible()


async def test_a_fork_in_the_middle_continues_the_run_as_it_was_there(page: Page) -> None:
    await ask(page, "assistant", "Is it sunny?")
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await page.locator("#seq").fill("10")
    await page.get_by_role("button", name="Fork here").click()
    await expect(page.locator("#stream-text")).to_have_text("fork · seq 10 · 0 missed")
    await expect(page.locator("details.call")).to_have_count(0)
    await page.select_option("#agent", "careful")
    await page.fill("#message", "Another way")
    await page.press("#message", "Enter")
    await page.get_by_role("button", name="Deny").click()
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await expect(page.locator(".asked")).to_have_text(["Is it sunny?", "Another way"])
    await expect(page.locator(".run").first).to_contain_text("after event 10")
    await page.reload()
    await expect(page.locator(".run").first).to_contain_text("after event 10")
    await expect(page.locator(".run").first.locator("details.call")).to_have_count(0)


async def test_a_thread_lists_its_branches_and_can_be_deleted(page: Page) -> None:
    await ask(page, "hostile", "Delete me")
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    await page.get_by_role("button", name="Regenerate").click()
    await expect(page.locator(".runs li")).to_have_text([re.compile("other branch"), "✓Run 2"])
    await page.locator(".runs button").first.click()
    await expect(page.locator(".runs button").first).to_have_attribute("aria-current", "true")
    page.on("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="Delete Delete me").click()
    await expect(page.locator("#threads")).not_to_contain_text("Delete me")
    await expect(page.locator(".run")).to_have_count(0)


async def test_the_theme_can_be_switched_and_stays(page: Page) -> None:
    paper = "() => getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(paper)
    await page.get_by_role("button", name="Switch between light and dark").click()
    dark = await page.evaluate(paper)
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(19, 20, 23)")
    await page.reload()
    assert await page.evaluate(paper) == dark
    await page.get_by_role("button", name="Switch between light and dark").click()
    assert await page.evaluate(paper) == light


async def test_hostile_content_is_inert_and_no_request_leaves_the_page(
    page: Page, served: Served
) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    await ask(page, "hostile")
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    for details in await page.locator("details").all():
        await details.evaluate("node => { node.open = true }")
    await expect(page.locator(".run > div > .message")).to_contain_text("<img src=x onerror=")
    assert await page.title() == "Tailrace"
    assert await page.locator(".conversation script, .conversation iframe").count() == 0
    hrefs = [await each.get_attribute("href") for each in await page.locator("a").all()]
    assert all(str(href).startswith(("http://", "https://")) for href in hrefs), hrefs
    assert await page.locator(".cite").count() == 0  # [^9] was never annotated
    outside = [url for url in requests if not url.startswith((served.url, "data:image/"))]
    assert outside == []


async def test_20_000_events_keep_the_page_responsive(page: Page) -> None:
    """No frame takes long, or on a slow machine a large part of the whole time."""
    await ask(page, "flood")
    await expect(page.locator("#stream-text")).to_contain_text("live")
    measure = """() => new Promise(done => {
        const begun = performance.now();
        let last = begun, worst = 0;
        const tick = (now) => {
            worst = Math.max(worst, now - last); last = now;
            const text = document.getElementById('stream-text').textContent;
            text.startsWith('completed') ? done([worst, now - begun]) : requestAnimationFrame(tick);
        };
        requestAnimationFrame(tick);
    })"""
    longest, whole = await page.evaluate(measure)
    await expect(page.locator("#stream-text")).to_have_text(DONE)
    assert longest < max(1000, whole / 3), f"a frame took {longest:.0f} of {whole:.0f} ms"
    rows = await page.locator("#conversation").inner_text()
    assert "word19999" in rows


async def test_every_control_has_a_name_and_the_page_works_on_a_phone(
    browser: Browser, served: Served
) -> None:
    phone = await browser.new_page(viewport={"width": 390, "height": 800})
    await phone.goto(served.url)
    await expect(phone.locator("#message")).to_be_visible()
    await expect(phone.locator("#threads")).to_be_hidden()
    await phone.get_by_role("button", name="Inspect", exact=True).click()
    await expect(phone.get_by_role("tab", name="Timeline")).to_be_visible()
    await expect(phone.locator("#message")).to_be_hidden()
    unnamed = await phone.evaluate(
        """() => [...document.querySelectorAll('button, input, select, textarea')].filter(node =>
            !(node.textContent.trim() || node.getAttribute('aria-label') || node.labels?.length)
        ).map(node => node.outerHTML)"""
    )
    assert unnamed == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing(browser: Browser, served: Served, scheme: Any) -> None:
    """Contrast, names, roles and landmarks, with a conversation on the page."""
    context = await browser.new_context(bypass_csp=True, color_scheme=scheme)
    page = await context.new_page()
    await page.goto(served.url)
    await expect(page.locator("#agent option")).to_have_count(5)
    await ask(page, "careful")
    await expect(page.get_by_role("region", name="Send the mail?")).to_be_visible()
    await page.add_script_tag(path=TESTS_JS / "node_modules/axe-core/axe.min.js")
    found = await page.evaluate("() => axe.run()")
    assert [
        (each["id"], [node["html"] for node in each["nodes"]]) for each in found["violations"]
    ] == []
    await page.get_by_role("button", name="Deny").click()
    await context.close()


def test_scripts_get_the_list_of_routes_and_the_files_are_bounded(served: Served) -> None:
    with httpx.Client(base_url=served.url) as client:
        assert client.get("/").text.startswith("Tailrace is running")
        page = client.get("/", headers={"accept": "text/html"})
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        script = client.get("/inspector/main.js")
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        again = client.get("/inspector/main.js", headers={"if-none-match": script.headers["etag"]})
        assert again.status_code == 304
        for path in ("/inspector/__init__.py", "/inspector/nothing.js", "/inspector/client/x.js"):
            assert client.get(path).status_code == 404


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
