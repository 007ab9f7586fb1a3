"""`make docs` builds a static site without a broken link."""

from __future__ import annotations

import runpy
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]


class Links(HTMLParser):
    """The links and ids of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.current = 0
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src", "srcset") and value:
                self.links.append(value)
            elif name == "id" and value:
                self.ids.add(value)
            self.current += name == "aria-current"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    runpy.run_path(str(ROOT / "scripts" / "build_site.py"))["build"](folder)
    return folder


def test_every_link_of_the_site_leads_to_a_file_and_its_heading(site: Path) -> None:
    pages = {page: Links(page) for page in site.rglob("*.html")}
    assert len(pages) > 40
    broken = []
    for page, found in pages.items():
        for link in found.links:
            if link.startswith(("http:", "https:", "mailto:")):
                continue
            target, _, anchor = unquote(link).partition("#")
            file = (page.parent / target).resolve() if target else page
            if not file.is_file():
                broken.append(f"{page.relative_to(site)}: {link}")
            elif anchor and file in pages and anchor not in pages[file].ids:
                broken.append(f"{page.relative_to(site)}: no heading {link}")
    assert broken == []


def test_every_page_of_the_docs_is_in_the_site_and_shows_where_it_is(site: Path) -> None:
    for source in (ROOT / "docs").rglob("*.md"):
        page = site / "docs" / source.relative_to(ROOT / "docs").with_suffix(".html")
        assert page.is_file(), page
        assert Links(page).current or source.name == "README.md", page
    index = (site / "index.html").read_text(encoding="utf-8")
    assert "<h1" in index
    assert "http://" not in (site / "site.css").read_text(encoding="utf-8")
