"""The list of threads: their runs, branches, search, and older threads."""

from __future__ import annotations

import re
from typing import Any

import httpx
from playwright.async_api import Page, Route, expect

from tests.inspector.pages import Go, OpenPage, ask, completed, send
from tests.serving import Served


def thread(number: int) -> dict[str, Any]:
    names = {"thread_id": f"t{number}", "title": f"Q{number}", "last_run_id": f"run_{number}"}
    return {**names, "agent": "a", "status": "completed", "runs": 1, "updated_at": number}


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


async def test_a_thread_lists_its_branches_and_can_be_found_and_deleted(page: Page) -> None:
    await ask(page, "hostile", "Delete me")
    await completed(page)
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
    await send(page, str(go.path))
    await completed(page)
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


async def test_the_palette_finds_threads_that_are_not_loaded(
    open_page: OpenPage, served: Served
) -> None:
    async def pages(route: Route) -> None:
        found = {"": [thread(4)], "Q": [thread(4), thread(1)]}
        words = re.search("search=(.*)", route.request.url)
        await route.fulfill(json={"threads": found.get(words[1] if words else "", [])})

    page = await open_page()
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


async def test_older_threads_are_a_button_away(open_page: OpenPage, served: Served) -> None:
    async def pages(route: Route) -> None:
        older = "before=run_3" in route.request.url
        found = [thread(2), thread(1)] if older else [thread(4), thread(3)]
        await route.fulfill(json={"threads": found, "next": None if older else "run_3"})

    page = await open_page()
    await page.route(re.compile("/threads([?]|$)"), pages)
    await page.goto(served.url)
    await expect(page.locator("#threads .title")).to_have_text(["Q4", "Q3"])
    await page.get_by_role("button", name="Older threads").click()
    await expect(page.locator("#threads .title")).to_have_text(["Q4", "Q3", "Q2", "Q1"])
    await expect(page.get_by_role("button", name="Older threads")).to_have_count(0)


async def test_a_late_answer_does_not_bring_back_an_older_list(page: Page) -> None:
    held: list[Route] = []

    async def hold_the_first(route: Route) -> None:
        if held:
            await route.continue_()
        else:
            held.append(route)

    await page.route(re.compile("/threads$"), hold_the_first)
    await ask(page, "hostile", "Late?")
    await completed(page)
    newest = page.locator("#threads > li").first
    await expect(newest.locator("[data-status=completed]")).to_be_visible()
    old = {"threads": [thread(1)], "next": None}
    await page.route(re.compile("/threads$"), lambda route: route.abort())  # no newer answer
    async with page.expect_response(re.compile("/threads$")):
        await held[0].fulfill(json=old)
    await page.wait_for_timeout(200)  # the page has read it
    assert "Late?" in await newest.inner_text()
