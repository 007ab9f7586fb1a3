"""Builds the documentation as a static site: `site/`, or the folder that is named.

It begins with README.md and follows every link to a file of the repository. Markdown becomes a
page, a folder becomes a list of its files, and any other file is copied. The navigation is
docs/README.md. The site needs no server and no network.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import sys
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[1]
START = "README.md"
INDEX = "docs/README.md"
HIDDEN = ("node_modules", "__pycache__", "dist")

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Tailrace</title>
<link rel="stylesheet" href="{up}site.css">
</head>
<body>
<a class="to-pages" href="#pages">Tailrace: all pages</a>
<nav id="pages" aria-label="Pages"><h1><a href="{up}index.html">Tailrace</a></h1>{nav}</nav>
<main>{body}</main>
</body>
</html>
"""

markdown = MarkdownIt("commonmark", {"html": True}).enable("table")


def anchor(heading: str) -> str:
    """The id of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def built(path: str) -> str:
    """Where the site has a file or folder of the repository."""
    if path == START:
        return "index.html"
    if (ROOT / path).is_dir():
        return f"{path}/index.html"
    return str(PurePosixPath(path).with_suffix(".html")) if path.endswith(".md") else path


class Site:
    """The pages that are reached from the first, written as they are found."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._left = [START, INDEX]
        self._seen = set(self._left)

    def write(self) -> int:
        """Write every page, and return how many there are."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        shutil.copyfile(Path(__file__).with_name("site.css"), self._folder / "site.css")
        while self._left:
            path = self._left.pop()
            target = self._folder / built(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / path).is_dir():
                target.write_text(self._page(path, self._listing(path), path), encoding="utf-8")
            elif path.endswith(".md"):
                body, title = self._rendered(path, path)
                target.write_text(self._page(path, body, title), encoding="utf-8")
            else:
                shutil.copyfile(ROOT / path, target)
        return len(self._seen)

    def _page(self, path: str, body: str, title: str) -> str:
        nav = re.sub(r"<h1.*?</h1>", "", self._rendered(INDEX, path)[0], count=1)
        here = built(path).rpartition("/")[2]
        nav = re.sub(rf'href="({re.escape(here)})"', r'href="\1" aria-current="page"', nav)
        nav = re.sub(r'<h2 id="[^"]*">', "<h2>", nav)
        up = "../" * built(path).count("/")
        return PAGE.format(title=html.escape(title), up=up, nav=nav, body=body)

    def _rendered(self, path: str, shown_at: str) -> tuple[str, str]:
        """A Markdown file as HTML, with links that work on the page `shown_at`; and its title."""
        tokens = markdown.parse((ROOT / path).read_text(encoding="utf-8"))
        title = ""
        for place, token in enumerate(tokens):
            if token.type == "heading_open":
                words = tokens[place + 1].content
                token.attrSet("id", anchor(words))
                title = title or words.replace("`", "")
        for token in self._all(tokens):
            for name in ("href", "src"):
                if name in token.attrs:
                    token.attrSet(name, self._link(str(token.attrs[name]), path, shown_at))
            if token.type in ("html_block", "html_inline"):
                token.content = re.sub(
                    r'(srcset|src|href)="([^"]+)"',
                    lambda found: f'{found[1]}="{self._link(found[2], path, shown_at)}"',
                    token.content,
                )
        return str(markdown.renderer.render(tokens, markdown.options, {})), title or path

    def _all(self, tokens: list[Token]) -> list[Token]:
        return [one for token in tokens for one in (token, *self._all(token.children or []))]

    def _link(self, link: str, path: str, shown_at: str) -> str:
        """A link of a file as a link of a page; the file that it names gets a page, too."""
        target, mark, place = link.partition("#")
        if re.match(r"[a-z]+:", link) or not target:
            return link
        named = os.path.normpath(PurePosixPath(path).parent / unquote(target))
        if not (ROOT / named).exists():
            raise SystemExit(f"{path} links to {link}, and there is no file {named}.")
        if named not in self._seen:
            self._seen.add(named)
            self._left.append(named)
        here = os.path.relpath(built(named), PurePosixPath(built(shown_at)).parent)
        return here + mark + place

    def _listing(self, path: str) -> str:
        rows = []
        for file in sorted((ROOT / path).iterdir()):
            if file.name in HIDDEN or file.name.startswith("."):
                continue
            name = f"{file.name}/" if file.is_dir() else file.name
            if file.is_dir() or file.suffix == ".html":  # a page of its own would need its files
                rows.append(f"<li>{html.escape(name)}</li>")
            else:
                link = self._link(file.name, f"{path}/x", path)
                rows.append(f'<li><a href="{html.escape(link)}">{html.escape(name)}</a></li>')
        return f"<h1>{html.escape(path)}</h1>\n<ul>{''.join(rows)}</ul>"


def build(folder: Path) -> int:
    """Build the site, and return the number of its pages and files."""
    return Site(folder).write()


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site"
    count = build(chosen)
    print(f"{chosen.name}/index.html: the documentation, {count} pages and files")  # noqa: T201
