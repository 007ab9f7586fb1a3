"""Small screens, and the end of a conversation that stays in view."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.inspector.pages import CUT, Go, OpenPage, ask, call, completed
from tests.serving import Served


async def ask_by_touch(phone: Page, agent: str, words: str) -> None:
    """Send a message in a new thread, on a screen that shows one pane."""
    await phone.get_by_role("button", name="Threads", exact=True).click()
    await phone.get_by_role("button", name="New thread").click()
    await phone.select_option("#agent", agent)
    await phone.fill("#message", words)
    await phone.get_by_role("button", name="Send", exact=True).click()


async def test_on_a_phone_the_panes_are_tabs(open_page: OpenPage, served: Served) -> None:
    phone = await open_page(served.url, viewport={"width": 390, "height": 844}, has_touch=True)
    await expect(phone.locator("#message")).to_be_visible()
    await expect(phone.locator("#threads")).to_be_hidden()
    await ask_by_touch(phone, "hostile", "Hello?")
    await completed(phone)
    await phone.get_by_role("button", name="Threads", exact=True).click()
    room = "(title) => parseFloat(getComputedStyle(title).paddingRight)"
    assert await phone.locator("#threads .title").first.evaluate(room) >= 28  # beside Delete
    await phone.get_by_role("button", name="Inspect", exact=True).click()
    await expect(phone.locator("#message")).to_be_hidden()
    await phone.locator(".lane").last.click()  # leads to the answer
    await expect(phone.locator(".message").first).to_be_in_viewport()
    assert await phone.evaluate("document.documentElement.scrollWidth") == 390


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
    open_page: OpenPage, served: Served
) -> None:
    page = await open_page(served.url, viewport={"width": 1280, "height": 900})
    await ask(page, "assistant", "Plan a Saturday.")
    await expect(call(page, "get_weather")).to_have_count(1)
    await page.get_by_role("button", name="Cut").click()
    await expect(page.locator("#stream-text")).to_have_text(CUT)
    for width in (320, 390, 820, 1280):
        await page.set_viewport_size({"width": width, "height": 900})
        assert not await page.locator("#stream-text").evaluate(IS_CUT_OFF), width
    await page.get_by_role("button", name="Resume").click()
    await page.get_by_role("button", name="Approve").click()
    await completed(page)
    assert await page.locator(".cite").count() > 3
    for width in range(320, 480, 4):
        await page.set_viewport_size({"width": width, "height": 900})
        assert await page.evaluate(ALONE) == 0, width


async def test_on_a_phone_neither_another_pane_nor_the_keyboard_loses_the_end(
    open_page: OpenPage, served: Served, go: Go
) -> None:
    phone = await open_page(served.url, viewport={"width": 390, "height": 480}, has_touch=True)
    await ask_by_touch(phone, "slow", str(go.path))
    await expect(phone.locator(".message")).to_contain_text("w20 ")
    await phone.get_by_role("button", name="Inspect", exact=True).click()
    go.on()
    await completed(phone)
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


async def test_an_image_that_loads_does_not_lose_the_end(
    open_page: OpenPage, served: Served
) -> None:
    page = await open_page(served.url, viewport={"width": 1200, "height": 480})
    await ask(page, "assistant", "Plan a Saturday.")
    card = page.get_by_role("region", name="Run book_table?")
    await expect(card.get_by_role("button", name="Approve")).to_be_in_viewport()
    await expect(page.get_by_role("button", name="New events below")).to_be_hidden()
    await expect(call(page, "paint").locator("img")).to_have_js_property("complete", True)
