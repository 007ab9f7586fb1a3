"""The page and its server apart: cut, offline, reloaded, killed, not yet there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, expect

from tests.inspector.pages import CUT, WORDS, Go, OpenPage, ask, call, completed, send
from tests.serving import Served


async def test_a_cut_stream_says_what_waits_and_resumes_without_a_gap(page: Page, go: Go) -> None:
    await ask(page, "slow", str(go.path))
    await expect(page.locator(".message")).to_contain_text("w20 ")
    await page.get_by_role("button", name="Cut").click()
    go.on()
    await expect(page.locator("#stream-text")).to_have_text(CUT)
    await page.get_by_role("button", name="Resume").click()
    await completed(page)
    await expect(page.locator("#stream-text")).to_have_text(
        re.compile(r"resumed after [1-9]\d* events$")
    )
    assert (await page.locator(".message").inner_text()).strip() == WORDS


async def test_a_reload_and_a_second_tab_go_on_in_the_middle(
    page: Page, open_page: OpenPage, go: Go
) -> None:
    await ask(page, "slow", str(go.path))
    await expect(page.locator(".message")).to_contain_text("w20 ")
    await page.reload()
    second = await open_page(page.url)
    for each in (page, second):
        await expect(each.locator(".message")).to_contain_text("w40 ")
    go.on()
    for each in (page, second):
        await expect(each.locator("#agent")).to_have_value("slow")  # the agent of the thread
        await completed(each)
        assert (await each.locator(".message").inner_text()).strip() == WORDS
    # The second tab has not seen the beginning: its times are in the log.
    await expect(second.locator(".axis-note")).not_to_contain_text("no times")
    await expect(second.locator(".lane .time")).to_have_text(re.compile(r"^[\d.]+ m?s$"))


async def test_a_page_that_goes_offline_comes_back_and_says_so(page: Page, go: Go) -> None:
    await ask(page, "slow", str(go.path))
    await expect(page.locator(".message")).to_contain_text("w20 ")
    await page.context.set_offline(True)
    go.on()
    await expect(page.locator("#stream-text")).to_contain_text("offline: reconnecting")
    await send(page, "Hello?")
    await expect(page.locator("#alert")).to_have_text("This browser is offline.")
    await page.context.set_offline(False)
    await completed(page)
    await expect(page.locator("#alert")).to_be_hidden()
    await expect(page.locator("#stream-text")).to_contain_text("resumed")


async def test_a_killed_server_is_waited_for_and_its_run_shows_two_attempts(
    open_page: OpenPage, tmp_path: Path
) -> None:
    server = Served(tmp_path / "killed.db", "tests.inspector.page_app:app")
    try:
        page = await open_page(server.url)
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
        await send(page, "Are you there?")
        alert = page.locator("#alert")
        await expect(alert).to_have_text("The server does not answer. Is it running?")
        server.start(server.url.rpartition(":")[2])
        await expect(alert).to_be_hidden()
        await expect(page.locator("#message")).to_have_value("Are you there?")
        await page.get_by_role("button", name="Deny").click()
        await completed(page)
        await expect(page.locator("#stream-text")).to_contain_text("resumed")
        await expect(page.locator(".attempt").first).to_contain_text("Attempt 2")
        await expect(page.locator(".band")).to_have_text(["attempt 2"])
        await expect(page.locator(".facts")).to_contain_text("2 attempts")
        denied = call(page, "book_table")
        await expect(denied.locator("> summary .side")).to_contain_text("denied")
        await expect(denied.locator(".failure")).to_have_count(0)
        await expect(page.locator(".lane[data-status=failed]")).to_have_count(0)
    finally:
        server.kill()


@pytest.mark.parametrize("way", ["silence", "503"])
async def test_a_page_that_opens_before_its_server_answers_needs_no_reload(
    page: Page, way: str
) -> None:
    await ask(page, "hostile", f"first, {way}")
    await completed(page)

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
