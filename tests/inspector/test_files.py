"""The files of the page, and an application without them."""

from __future__ import annotations

from pathlib import Path

import httpx

from tailrace import Tailrace
from tests.node import CLIENT_TS, run_node
from tests.serving import Served, serving


def test_scripts_get_the_list_of_routes_and_the_files_are_bounded(served: Served) -> None:
    with httpx.Client(base_url=served.url) as client:
        assert client.get("/").text.startswith("Tailrace is running")
        page = client.get("/", headers={"accept": "text/html"})
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        script = client.get("/inspector/main.js")
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        again = client.get("/inspector/main.js", headers={"if-none-match": script.headers["etag"]})
        assert again.status_code == 304
        for path in ("/inspector/__init__.py", "/inspector/nothing.js", "/inspector/client/x.js"):
            assert client.get(path).status_code == 404


def test_an_app_may_have_no_inspector(tmp_path: Path) -> None:
    with serving(Tailrace({}, tmp_path / "log.db", inspector=False)) as url:
        page = httpx.get(url, headers={"accept": "text/html"})
        assert page.headers["content-type"].startswith("text/plain")
        assert httpx.get(f"{url}/inspector/main.js").status_code == 404


def test_the_client_of_the_page_is_the_typescript_client(tmp_path: Path) -> None:
    compiler = CLIENT_TS / "node_modules/typescript/bin/tsc"
    project = CLIENT_TS / "tsconfig.inspector.json"
    run_node([compiler, "--project", project, "--outDir", tmp_path])
    committed = CLIENT_TS.parents[1] / "src/tailrace/inspector/client"
    assert {each.name for each in committed.iterdir()} == {each.name for each in tmp_path.iterdir()}
    for each in tmp_path.iterdir():
        assert (committed / each.name).read_text() == each.read_text(), "run `make docs`"
