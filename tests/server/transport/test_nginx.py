"""Streams through nginx with the configuration that `compose.yaml` mounts."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from tests.serving import ROOT, Served

PATHS = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin"
NGINX = shutil.which("nginx", path=PATHS) or "nginx"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Served]]:
    started = [Served(tmp_path / "log.db") for _ in range(2)]
    yield started
    for server in started:
        server.kill()


@pytest.fixture
def proxied(servers: list[Served], tmp_path: Path) -> Iterator[str]:
    """The address of an nginx in front of two servers of one database."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    site = (ROOT / "deploy" / "nginx.conf").read_text(encoding="utf-8")
    for number, server in enumerate(servers, 1):
        site = site.replace(f"server-{number}:8000", server.url.removeprefix("http://"))
    site = site.replace("listen 80;", f"listen 127.0.0.1:{port};")
    site = site.replace("/dev/stdout", str(tmp_path / "access.log"))
    config = tmp_path / "nginx.conf"
    temporary = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log;\n"
        f"events {{}}\nhttp {{ {temporary}\n{site} }}\n",
        encoding="utf-8",
    )
    command = [NGINX, "-p", str(tmp_path), "-c", str(config)]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    nginx = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    with httpx.Client(transport=httpx.HTTPTransport(retries=8)) as client:
        assert client.get(f"{url}/health").status_code == 200
    yield url
    nginx.terminate()
    nginx.wait(20)


def ids(url: str, run_id: str, count: int, after: str | None = None) -> list[str]:
    """The cursors of the first events of a stream that stays open."""
    headers = {} if after is None else {"last-event-id": after}
    address = f"{url}/runs/{run_id}/events"
    with httpx.stream("GET", address, headers=headers, timeout=30) as stream:
        assert stream.status_code == 200
        found = (line[3:].strip() for line in stream.iter_lines() if line.startswith("id:"))
        return list(islice((one for one in found if one != after), count))


def test_a_websocket_through_nginx_answers_each_message(proxied: str) -> None:
    address = f"{proxied.replace('http', 'ws', 1)}/v1/responses"
    asked = {"type": "response.create", "model": "assistant", "input": "Is it sunny?"}
    with connect(address) as socket:
        for _ in range(2):
            socket.send(json.dumps(asked))
            types = [json.loads(socket.recv(60))["type"]]
            while types[-1] not in ("response.completed", "error"):
                types.append(json.loads(socket.recv(60))["type"])
            assert (types[0], types[-1]) == ("response.created", "response.completed")


def test_a_page_of_nginx_is_the_servers_own_and_a_page_of_another_port_is_not(proxied: str) -> None:
    for origin, status in ((proxied, 200), ("http://127.0.0.1:9", 403)):
        answer = httpx.get(f"{proxied}/agents", headers={"Origin": origin})
        assert answer.status_code == status, origin
    secure = proxied.replace("http", "https", 1)  # as if a proxy in front of nginx ended TLS
    assert httpx.get(f"{proxied}/agents", headers={"Origin": secure}).status_code == 200


def test_a_stream_through_nginx_arrives_at_once_and_goes_on_at_another_server(
    servers: list[Served], proxied: str, tmp_path: Path
) -> None:
    started = httpx.post(f"{proxied}/runs", json={"agent": "endless", "input": "?"})
    run_id = started.json()["run_id"]
    # The run has no end: these events would not arrive if nginx gathered them.
    first = ids(proxied, run_id, 6)
    then = ids(proxied, run_id, 6, after=first[-1])
    numbers = [int(re.findall(r"\d+", one)[-1]) for one in first + then]
    assert numbers == list(range(numbers[0], numbers[0] + 12))
    servers[0].kill()
    assert ids(proxied, run_id, 9, after=first[2]) == [*first[3:], *then]
    servers[0].start()
    httpx.get(f"{proxied}/runs/{run_id}/events?ticket=hunter2&format=nothing")
    assert "hunter2" not in (tmp_path / "access.log").read_text(encoding="utf-8")
