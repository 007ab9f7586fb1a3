"""The page without a mouse, without colours, and as axe reads it."""

from __future__ import annotations

from typing import Literal

from playwright.async_api import Browser, Page, expect

from tests.inspector.pages import ask, completed
from tests.node import TESTS_JS
from tests.serving import Served


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
    await completed(page)
    await check("ended")
    await ask(page, "failing")
    await expect(page.locator(".failure")).to_be_visible()
    await check("tables and a failure")
    await context.close()
