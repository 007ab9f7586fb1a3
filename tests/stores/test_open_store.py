"""A store is chosen by its URL; the error for a wrong URL is one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tailrace.core.errors import CallerError, StorageError
from tailrace.stores import open_store
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.store_kit.setup import created


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("log.db", "log.db"),
        ("sqlite:///log.db", "log.db"),
        ("sqlite:///a%20b.db?synchronous=full", "a b.db"),
        ("sqlite:///HERE/whole.db", "whole.db"),
        ("HERE/whole.db", "whole.db"),
    ],
)
async def test_a_file_is_named_by_a_path_or_an_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    url = url.replace("HERE", str(tmp_path))
    for named in (url, Path(url)) if ":" not in url else (url,):
        store = await open_store(named)
        await created(store, f"{type(named)}")
        await store.close()
    assert name in {one.name for one in list_folder(tmp_path)}


def list_folder(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.mark.parametrize("url", [":memory:", "sqlite://:memory:", "sqlite:///:memory:"])
async def test_a_store_in_memory_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    store = await open_store(url)
    assert isinstance(store, SqliteStore)
    await created(store, "r")
    await store.close()
    assert list_folder(tmp_path) == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "Write sqlite:///file.db"),
        ("mysql://host/name", "No store for mysql://"),
        ("redis://host", "No store for redis://"),
        ("sqlite://file.db", "Write sqlite:///file.db"),
        ("sqlite:file.db", "Write sqlite:///file.db"),
        ("sqlite:///file.db?sync=full", "synchronous=full"),
        ("sqlite3:///file.db", "No store for sqlite3://"),
    ],
)
async def test_a_bad_url_says_what_a_good_one_is(url: str, says: str) -> None:
    with pytest.raises(CallerError, match=says):
        await open_store(url)


async def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(StorageError, match=r"asyncpg: pip install 'tailrace\[postgres\]'"):
        await open_store("postgresql://host/name")


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
async def test_the_error_of_an_unreachable_server_has_no_password(scheme: str) -> None:
    with pytest.raises(StorageError, match=r"127\.0\.0\.1:1.*[Ss]tart") as caught:
        await open_store(f"{scheme}://me:secret@127.0.0.1:1/name")
    assert "secret" not in str(caught.value)
