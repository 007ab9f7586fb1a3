"""The front ends of clients/ts/examples in Chromium, on another port than the server."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from examples.front_end import planner, weather
from tailrace.testing import run_agent
from tests.browser import Pages, playwright_browser
from tests.node import CLIENT_TS, ROOT, TESTS_JS, run_node
from tests.serving import Served

EXAMPLES = CLIENT_TS / "examples"
ESBUILD = TESTS_JS / "node_modules" / "esbuild" / "bin" / "esbuild"
TIMEOUT = 20_000
DONE = re.compile(r"^It is sunny in Paris\.\S* Take a light jacket\.$")


def bundle(file: Path, *options: str) -> str:
    """A file with all that it imports, for a browser."""
    common = ["--bundle", "--format=esm", "--platform=browser", "--log-level=error"]
    environment = {"NODE_PATH": str(TESTS_JS / "node_modules")}
    return run_node([ESBUILD, file, *common, *options], env=environment)


@pytest.fixture(scope="module")
def pages() -> Iterator[Pages]:
    """Both front ends, on one port."""
    made = Pages()
    files = {}
    client = f"--alias:@tailrace/client={CLIENT_TS / 'src' / 'index.ts'}"
    for name in ("use-chat", "use-run"):
        files[f"/{name}/page.js"] = bundle(EXAMPLES / name / "page.tsx", "--jsx=automatic", client)
        files[f"/{name}/"] = (EXAMPLES / name / "index.html").read_text(encoding="utf-8")
    made.files = files
    yield made
    made.close()


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the questions whose answers may end."""
    return tmp_path_factory.mktemp("gate")


@pytest.fixture(scope="module")
def server(pages: Pages, gate: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAILRACE_TEST_ORIGINS", f"http://localhost:{pages.port}")
        patch.setenv("TAILRACE_TEST_GATE", str(gate))
        database = tmp_path_factory.mktemp("front") / "log.db"
        served = Served(database, "tests.clients.front_end_app:app")
    yield served
    served.kill()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with playwright_browser() as started:
        yield started


async def opened(browser: Browser, pages: Pages, server: Served, name: str) -> Page:
    page = await browser.new_page()
    await page.goto(f"http://localhost:{pages.port}/{name}/?server={server.url}")
    return page


async def test_use_chat_on_another_port_has_its_conversation_after_a_reload(
    browser: Browser, pages: Pages, server: Served, gate: Path
) -> None:
    page = await opened(browser, pages, server, "use-chat")
    await page.get_by_label("Question").fill("chat")
    await page.get_by_role("button", name="Ask").click()
    answer = page.locator(".assistant")
    await expect(answer.locator("pre")).to_contain_text('get_weather {"city":"Paris"}')
    await expect(answer.locator("p").last).to_contain_text("It is sunny in Paris")
    await page.reload()
    await expect(answer.locator("p").last).to_contain_text("It is sunny in Paris")
    (gate / "chat").touch()
    await expect(answer.locator("p").last).to_have_text(DONE)
    await expect(page.get_by_role("status")).to_have_text("ready")
    shown = page.locator("section")
    await expect(shown.first).to_have_text("chat")  # the question is there after the reload, too
    await page.get_by_label("Question").fill("chat")
    await page.get_by_role("button", name="Ask").click()
    await expect(shown).to_have_count(4)
    await expect(shown.last.locator("p").last).to_have_text(DONE)
    await expect(page.get_by_role("status")).to_have_text("ready")
    conversation = await shown.all_text_contents()
    await page.reload()
    await expect(shown).to_have_text(conversation)


async def test_use_run_survives_a_cut_and_a_reload_and_answers_an_approval(
    browser: Browser, pages: Pages, server: Served, gate: Path
) -> None:
    page = await opened(browser, pages, server, "use-run")
    await page.get_by_label("Question").fill("run")
    await page.get_by_role("button", name="Ask").click()
    message = page.locator(".message")
    await expect(page.locator(".call")).to_have_text('get_weather {"city":"Paris"}')
    await expect(message).to_contain_text("It is sunny in Paris")
    await page.get_by_role("button", name="Cut").click()
    await expect(page.get_by_role("status")).to_contain_text("cut")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("status")).to_contain_text("live")
    await page.reload()
    await expect(message).to_contain_text("It is sunny in Paris")
    (gate / "run").touch()
    await expect(message).to_have_text(DONE)
    await expect(page.get_by_role("status")).to_contain_text("completed · ended")
    await page.get_by_label("Agent").select_option("planner")
    await page.get_by_role("button", name="Ask").click()
    await page.get_by_role("group", name="Run book_table?").get_by_text("Approve").click()
    await expect(message).to_have_text("See you there.")


async def test_the_agents_of_the_example_answer() -> None:
    assert (await run_agent(weather, "?")).assert_cited("15C").reference_id == 1
    assert (await run_agent(planner, "?", answer=True)).result.text == "See you there."


def test_the_front_ends_are_of_the_right_types(tmp_path: Path) -> None:
    """With the packages in tests/js, as if `npm install` had been run in the folder."""
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("node_modules"))
    for name in ("src", "tsconfig.json"):
        (tmp_path / name).symlink_to(CLIENT_TS / name)
    (tmp_path / "node_modules").symlink_to(TESTS_JS / "node_modules")
    compiler = CLIENT_TS / "node_modules" / "typescript" / "bin" / "tsc"
    run_node([compiler, "--project", tmp_path / "examples"])


def test_the_front_ends_use_the_versions_that_are_tested() -> None:
    tested = json.loads((TESTS_JS / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    example = json.loads((EXAMPLES / "package.json").read_text(encoding="utf-8"))
    for name, version in {**example["dependencies"], **example["devDependencies"]}.items():
        assert tested[name] == version, name


def test_the_readme_states_the_size_of_the_client() -> None:
    packed = gzip.compress(bundle(CLIENT_TS / "src" / "index.ts", "--minify").encode(), mtime=0)
    text = (CLIENT_TS / "README.md").read_text(encoding="utf-8")
    stated = float(re.findall(r"([\d.]+) kB minified and gzipped", text)[0])
    assert stated - 0.1 < len(packed) / 1000 <= stated, f"the client is {len(packed)} bytes gzipped"
    assert ROOT.joinpath("clients/ts/package.json").read_text().count('"dependencies"') == 0
