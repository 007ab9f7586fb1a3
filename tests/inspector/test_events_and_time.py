"""The right pane: timeline, events, state and the scrubber."""

from __future__ import annotations

import re
from itertools import pairwise

import httpx
from playwright.async_api import Page, Route, expect

from tests.inspector.pages import ask, call, completed, copied_curl, rewrite_events


async def test_a_call_that_took_no_time_has_a_duration_like_its_neighbours(page: Page) -> None:
    await rewrite_events(page, (r'"at":[0-9.]+', '"at":1000000000.5'))
    await ask(page, "hostile")
    await completed(page)
    await expect(page.locator("details.call .side")).to_have_text("<1 ms")


async def test_the_labels_of_the_axis_do_not_touch(page: Page) -> None:
    await ask(page, "hostile")
    await completed(page)
    await rewrite_events(
        page,
        (r'"at":[0-9.]+', '"at":1000000000.0024'),
        (r'"created_at":[0-9.]+', '"created_at":1000000000.0'),
    )  # 2.4 ms
    await page.reload()
    await expect(page.locator(".axis span").last).to_have_text("2 ms")
    boxes = [await each.bounding_box() for each in await page.locator(".axis span").all()]
    edges = [(box["x"], box["x"] + box["width"]) for box in boxes if box is not None]
    assert all(end + 4 < start for (_, end), (start, _) in pairwise(edges)), edges


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


async def test_the_events_can_be_filtered_and_shown_in_any_format(page: Page) -> None:
    await ask(page, "hostile")
    await completed(page)
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
    curl = await copied_curl(page)
    url = re.fullmatch(r"curl -N '(\S+/runs/run_\w+/events\?format=openai-responses)'", curl)
    assert url, curl
    async with httpx.AsyncClient() as client:
        body = (await client.get(url[1])).content
    await page.get_by_label("Filter events").fill("")
    await expect(page.locator(".counts")).to_contain_text(f"{len(body):,} bytes")


async def test_the_scrubber_moves_all_panes_to_any_event(page: Page) -> None:
    await ask(page, "assistant")
    await page.get_by_role("button", name="Deny").click()
    await completed(page)
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
    await completed(page)
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
