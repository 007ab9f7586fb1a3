"""`tailrace keys`, and `tailrace serve` beyond loopback."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import anthropic
import httpx
import openai
import pytest
from typer.testing import CliRunner

from tailrace.cli.commands import cli
from tests.cli.commands import ROOT, running, tailrace


def keys(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["keys", *arguments])
    assert done.exit_code == 0, done.output
    return done.output.strip()


def test_keys_are_made_listed_and_revoked(tmp_path: Path) -> None:
    file = ("--file", str(tmp_path / "keys.json"))
    first = keys("create", "ann", *file)
    second = keys("create", "ann", "--expires", "0s", *file)
    third = keys("create", "bob", "--expires", "90d", *file)
    ident = first.split("_")[1]
    assert keys("revoke", ident, *file) == f"Key {ident} of ann is revoked."
    listed = keys("list", *file)
    assert [line.split()[:3] for line in listed.splitlines()] == [
        [ident, "ann", "revoked"],
        [second.split("_")[1], "ann", "expired"],
        [third.split("_")[1], "bob", "valid"],
    ]
    assert "until" in listed.splitlines()[2]
    as_json = keys("list", "--json", *file)
    found = [json.loads(line) for line in as_json.splitlines()]
    assert [(key["id"], key["state"]) for key in found] == [
        (ident, "revoked"),
        (second.split("_")[1], "expired"),
        (third.split("_")[1], "valid"),
    ]
    assert found[2]["expires"] - found[2]["created"] == pytest.approx(90 * 86400)
    assert all("sha256" not in key for key in found)
    for key in (first, second, third):
        assert re.fullmatch(r"tr_[0-9a-f]{8}_[\w-]{43}", key)
        assert key.split("_", 2)[2] not in listed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["revoke", "nothing"], "has no key 'nothing'"),
        (["create", "a/b"], "`principal` is 'a/b'; it must have"),
        (["create", "ann", "--expires", "soon"], "'soon' is not a duration"),
        (["list", "--file", "nowhere/keys.json"], "nowhere/keys.json cannot be used"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, arguments: list[str], words: str) -> None:
    file = tmp_path / "keys.json"
    keys("create", "ann", "--file", str(file))
    where = [] if "--file" in arguments else ["--file", str(file)]
    done = CliRunner().invoke(cli, ["keys", *arguments, *where])
    assert done.exit_code == 2
    assert words in done.output
    assert len(done.output.splitlines()) == 1


def test_a_server_with_keys_listens_beyond_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text((ROOT / "examples" / "weather.py").read_text())
    file = tmp_path / "keys.json"
    key = keys("create", "ann", "--file", str(file))
    monkeypatch.setenv("TAILRACE_KEYS", str(file))
    with running("serve", "mine:app", "--host", "0.0.0.0", "--port", "0", cwd=tmp_path) as serving:
        assert serving.stdout is not None
        found = re.search(r"http://0.0.0.0:(\d+)", serving.stdout.readline())
        assert found
        url = f"http://127.0.0.1:{found[1]}/agents"
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"x-api-key": key}).status_code == 200


def test_without_keys_only_an_explicit_option_opens_the_server(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text((ROOT / "examples" / "weather.py").read_text())
    arguments = ("serve", "mine:app", "--host", "0.0.0.0", "--port", "0")
    refused = tailrace(*arguments, cwd=tmp_path)
    assert refused.returncode == 2
    assert "tailrace keys create NAME" in refused.stderr
    assert "TAILRACE_KEYS" in refused.stderr
    with running(*arguments, "--insecure", cwd=tmp_path) as serving:
        assert serving.stdout is not None
        found = re.search(r"http://0.0.0.0:(\d+)", serving.stdout.readline())
        assert found
        assert httpx.get(f"http://127.0.0.1:{found[1]}/agents").status_code == 200


@pytest.mark.skipif(sys.platform != "linux", reason="others have 127.0.0.1 alone")
def test_every_loopback_address_is_open_without_keys(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text((ROOT / "examples" / "weather.py").read_text())
    with running(
        "serve", "mine:app", "--host", "127.0.0.2", "--port", "0", cwd=tmp_path
    ) as serving:
        assert serving.stdout is not None
        found = re.search(r"http://127.0.0.2:\d+", serving.stdout.readline())
        assert found
        assert httpx.get(f"{found[0]}/agents").status_code == 200


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "there is no file of API keys at keys.json"), ("{", "not a file of API keys")],
)
def test_a_server_whose_keys_cannot_be_read_says_so_when_it_starts(
    tmp_path: Path, text: str | None, words: str
) -> None:
    (tmp_path / "mine.py").write_text((ROOT / "examples" / "weather.py").read_text())
    if text is not None:
        (tmp_path / "keys.json").write_text(text)
    serve = ("serve", "mine:app", "--port", "0", "--keys", "keys.json")
    with running(*serve, cwd=tmp_path) as serving:
        assert serving.stdout is not None
        assert "is running" in serving.stdout.readline()
        serving.send_signal(signal.SIGTERM)
        assert serving.wait() == 0
        assert serving.stderr is not None
        assert words in serving.stderr.read()


def test_the_sdks_send_the_key_and_read_the_refusal_and_the_server_prints_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text((ROOT / "examples" / "weather.py").read_text())
    file = tmp_path / "keys.json"
    key = keys("create", "ann", "--file", str(file))
    wrong = key[:-3] + "abc"
    monkeypatch.setenv("TAILRACE_KEYS", str(file))
    with running("serve", "mine:app", "--port", "0", cwd=tmp_path) as serving:
        assert serving.stdout is not None
        found = re.search(r"http://\S+", serving.stdout.readline())
        assert found
        url = found[0]

        def ask_openai(sent: str) -> str:
            with openai.OpenAI(api_key=sent, base_url=f"{url}/v1", max_retries=0) as client:
                return client.responses.create(model="weather", input="?").output_text

        def ask_anthropic(sent: str) -> str:
            with anthropic.Anthropic(api_key=sent, base_url=url, max_retries=0) as client:
                message = client.messages.create(
                    model="weather", max_tokens=99, messages=[{"role": "user", "content": "?"}]
                )
            return str(message.content)

        assert "sunny" in ask_openai(key)
        assert "sunny" in ask_anthropic(key)
        with pytest.raises(openai.AuthenticationError, match="Bearer KEY"):
            ask_openai(wrong)
        with pytest.raises(anthropic.AuthenticationError, match="authentication_error"):
            ask_anthropic(wrong)
        serving.send_signal(signal.SIGTERM)
        assert serving.wait() == 0
        assert serving.stderr is not None
        shown = serving.stdout.read() + serving.stderr.read()
    assert key not in shown
    assert wrong not in shown
