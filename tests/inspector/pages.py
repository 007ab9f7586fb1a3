"""What the tests of the page do with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Protocol

from playwright.async_api import Locator, Page, Route, expect

DONE = re.compile(r"^completed · seq \d+ · 0 missed")
CUT = re.compile(r"^cut · [1-9]\d* events waiting · seq \d+ · 0 missed$")
WORDS = " ".join(f"w{number}" for number in range(200))
"""What the agent "slow" says."""


class Go:
    """A file that the agent "slow" waits for in the middle of its answer."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "go"

    def on(self) -> None:
        self.path.touch()


class OpenPage(Protocol):
    """Opens a page that is closed after the test; without a URL it is empty."""

    async def __call__(self, url: str = "", **options: Any) -> Page: ...


async def ask(page: Page, agent: str, words: str = "Hello?") -> None:
    """Send a message in a new thread."""
    await page.get_by_role("button", name="New thread").click()
    await page.select_option("#agent", agent)
    await send(page, words)


async def send(page: Page, words: str) -> None:
    """Send a message in the thread that is open."""
    await page.fill("#message", words)
    await page.press("#message", "Enter")


async def completed(page: Page) -> None:
    """Wait until the page shows that the run has ended well."""
    await expect(page.locator("#stream-text")).to_have_text(DONE)


def call(page: Page, name: str) -> Locator:
    """The calls of a tool, without the calls around them."""
    return page.locator(f"details.call:has(> summary > .name:text-is('{name}'))")


async def rewrite_events(page: Page, *changes: tuple[str, str]) -> None:
    """Let the page read another log: each pattern in its events is replaced."""

    async def changed(route: Route) -> None:
        response = await route.fetch()
        body = await response.text()
        for pattern, words in changes:
            body = re.sub(pattern, words, body)
        await route.fulfill(response=response, body=body)

    await page.route(re.compile("/events"), changed)


async def copied_curl(page: Page) -> str:
    """What the button "Copy as curl" copies."""
    await page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    await page.get_by_role("button", name="Copy as curl").click()
    return str(await page.evaluate("copied"))
