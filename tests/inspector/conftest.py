"""A server, a browser and a page, for all tests of the page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser import TIMEOUT, playwright_browser
from tests.inspector.pages import Go, OpenPage
from tests.serving import Served


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("page") / "page.db", "tests.inspector.page_app:app")
    yield server
    server.kill()


@pytest.fixture(scope="package")
def anyio_backend() -> str:
    """One event loop for all pages, as they share a browser."""
    return "asyncio"


@pytest.fixture(scope="package")
async def browser() -> AsyncIterator[Browser]:
    async with playwright_browser() as started:
        yield started


@pytest.fixture
async def open_page(browser: Browser) -> AsyncIterator[OpenPage]:
    """In none of the pages a script may fail."""
    pages: list[Page] = []
    errors: list[str] = []

    async def open_page(url: str = "", **options: Any) -> Page:
        page = await browser.new_page(**options)
        pages.append(page)
        page.set_default_timeout(TIMEOUT)
        page.on("pageerror", lambda error: errors.append(str(error)))
        if url:
            await page.goto(url)
        return page

    yield open_page
    for page in pages:
        await page.close()
    assert errors == []


@pytest.fixture
async def page(open_page: OpenPage, served: Served) -> Page:
    page = await open_page(served.url)
    await expect(page.locator("#agent option")).to_have_count(6)
    return page


@pytest.fixture
def go(tmp_path_factory: pytest.TempPathFactory) -> Go:
    return Go(tmp_path_factory.mktemp("w"))
