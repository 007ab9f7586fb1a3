"""Pages of other origins: refused, unless the application lists them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tailrace.app import Tailrace
from tailrace.core.errors import CallerError
from tailrace.runtime.tasks.task import Task
from tailrace.server.access.origins import is_same_origin

PAGE = "http://localhost:3000"
ASKING = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "content-type, x-stainless-lang",
}


async def hello(task: Task) -> None:
    with task.message() as message:
        message.text("Hello")


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = Tailrace({"hello": hello}, tmp_path / "log.db", origins=[PAGE])
    transport = httpx.ASGITransport(app)
    async with app.running(), httpx.AsyncClient(transport=transport) as client:
        client.base_url = httpx.URL("http://localhost")
        yield client


async def test_a_listed_origin_may_ask_before_it_sends(asking: httpx.AsyncClient) -> None:
    answer = await asking.options("/v1/responses", headers=ASKING)
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert answer.headers["access-control-allow-headers"] == "content-type, x-stainless-lang"


async def test_a_listed_origin_may_read_every_answer(asking: httpx.AsyncClient) -> None:
    headers = {"Origin": PAGE}
    body = {"model": "hello", "input": "?", "stream": True}
    for answer, status in (
        (await asking.get("/agents", headers=headers), 200),
        (await asking.get("/runs/nobody", headers=headers), 404),
        (await asking.post("/runs", headers=headers, content=b"{"), 415),
        (await asking.put("/runs", headers=headers), 405),
        (await asking.post("/v1/responses", headers=headers, json=body), 200),
    ):
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == PAGE
        exposed = answer.headers["access-control-expose-headers"].split(", ")
        # Without the second, an SDK in a page repeats a run that failed.
        assert {"location", "x-should-retry"} <= set(exposed)
        assert answer.headers["vary"] == "origin"


@pytest.mark.parametrize(
    "origin", ["http://localhost:3001", "https://localhost:3000", "http://evil.example", "null"]
)
async def test_no_other_origin_is_allowed(asking: httpx.AsyncClient, origin: str) -> None:
    refused = await asking.options("/runs", headers={**ASKING, "Origin": origin})
    assert refused.status_code == 403
    assert "origins=[…]" in refused.json()["error"]["message"]
    read = await asking.get("/agents", headers={"Origin": origin})
    for answer in (refused, read):
        assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    ("scheme", "host", "origin", "own"),
    [
        ("http", "localhost:8000", "http://localhost:8000", True),
        ("http", "LOCALHOST:8000", "http://localhost:8000", True),
        ("http", "[::1]:8000", "http://[::1]:8000", True),
        ("http", "localhost", "http://localhost", True),
        ("http", "localhost:80", "http://localhost", True),
        ("ws", "localhost:8000", "http://localhost:8000", True),
        # Other ports, schemes and names of the same machine are other origins.
        ("http", "localhost:8000", "http://localhost:9999", False),
        ("http", "localhost:8000", "http://localhost", False),
        ("http", "localhost:8000", "https://localhost", False),
        ("http", "localhost", "http://localhost:8000", False),
        ("http", "localhost:8000", "http://127.0.0.1:8000", False),
        ("http", "localhost:8000", "tauri://localhost:8000", False),
        ("ws", "localhost:8000", "http://localhost:9999", False),
        # A proxy ends TLS. It may say so in X-Forwarded-Proto, which becomes the scheme.
        ("http", "ai.example.com", "https://ai.example.com", True),
        ("http", "ai.example.com:443", "https://ai.example.com", True),
        ("http", "ai.example.com:8443", "https://ai.example.com:8443", True),
        ("https", "ai.example.com", "https://ai.example.com", True),
        ("wss", "ai.example.com", "https://ai.example.com", True),
        ("https", "ai.example.com", "http://ai.example.com", False),
        ("wss", "ai.example.com", "http://ai.example.com", False),
        ("http", "ai.example.com", "https://ai.example.com:8443", False),
    ],
)
def test_a_page_has_the_origin_of_the_server_or_is_refused(
    scheme: str, host: str, origin: str, own: bool
) -> None:
    assert is_same_origin(origin, host, https=scheme in ("https", "wss")) == own


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_page_of_another_port_needs_no_preflight_to_be_refused(
    asking: httpx.AsyncClient, method: str
) -> None:
    asking.base_url = httpx.URL("http://localhost:8000")
    for origin, status in (
        ("http://localhost:8000", 404),
        ("http://localhost:9999", 403),
        ("https://localhost", 403),
    ):
        path = "/runs/nobody" if method == "GET" else "/runs/nobody/cancel"
        answer = await asking.request(method, path, headers={"Origin": origin})
        assert answer.status_code == status, origin


async def test_a_page_behind_a_proxy_that_changes_the_host_is_the_servers_own(
    asking: httpx.AsyncClient,
) -> None:
    # As the development servers of front ends do. Browsers let no page write `Sec-` headers.
    for site, status in (("same-origin", 200), ("same-site", 403), ("cross-site", 403)):
        headers = {"Origin": "http://localhost:5173", "Sec-Fetch-Site": site}
        assert (await asking.get("/agents", headers=headers)).status_code == status, site


def test_an_application_lists_no_origin_by_default() -> None:
    assert Tailrace({})._origins == frozenset()


@pytest.mark.parametrize("origin", ["*", "localhost:3000", f"{PAGE}/", f"{PAGE}/page", "null"])
def test_an_invalid_origin_is_refused_when_it_is_listed(origin: str) -> None:
    with pytest.raises(CallerError, match="scheme://host:port"):
        Tailrace({}, origins=[origin])


def test_a_single_text_is_not_a_list_of_origins() -> None:
    with pytest.raises(CallerError, match="is a list"):
        Tailrace({}, origins=PAGE)


@pytest.mark.parametrize("host", ["https://ai.example.com", "ai.example.com:8000", "*", ""])
def test_an_invalid_host_name_is_refused_when_it_is_listed(host: str) -> None:
    with pytest.raises(CallerError, match="without scheme and port"):
        Tailrace({}, hosts=[host])


def test_a_single_text_is_not_a_list_of_hosts() -> None:
    with pytest.raises(CallerError, match="is a list"):
        Tailrace({}, hosts="ai.example.com")


async def test_a_host_that_is_not_listed_learns_how_to_list_it(tmp_path: Path) -> None:
    app = Tailrace({"hello": hello}, tmp_path / "log.db", hosts=["AI.example.com"])
    transport = httpx.ASGITransport(app)
    async with app.running(), httpx.AsyncClient(transport=transport) as client:
        assert (await client.get("http://ai.example.com/health")).status_code == 200
        refused = await client.get("http://other.example.com/health")
    assert refused.status_code == 421
    assert "Tailrace(hosts=[…])" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.2", 200), ("127.8.9.10:80", 200), ("127.0.0.2.evil.com", 421), ("128.0.0.1", 421)],
)
async def test_every_loopback_address_is_a_host(
    asking: httpx.AsyncClient, host: str, status: int
) -> None:
    answer = await asking.get("/health", headers={"Host": host})
    assert answer.status_code == status


async def test_refused_origins_are_logged_once_and_not_without_end(
    asking: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        refused = await asking.options("/runs", headers=ASKING | {"Origin": PAGE + "1"})
        assert refused.status_code == 403
    (line,) = caplog.messages
    assert line == f"a page of '{PAGE}1' was refused; add it to `origins` if it is yours"
    for number in range(20):
        stranger = {"Origin": f"https://{number}.example.com" + "x" * 1000}
        assert (await asking.get("/agents", headers=stranger)).status_code == 403
    assert len(caplog.messages) == 10
    assert all(len(message) < 300 for message in caplog.messages)
