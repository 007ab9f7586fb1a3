"""A store on a schema of its own, a second process, and a connection past both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

from tailrace.stores.postgres.pool import split_url
from tailrace.stores.postgres.store import PostgresStore


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    opened = await PostgresStore.open(postgres_url)
    yield opened
    await opened.close()


@pytest.fixture
async def other(store: PostgresStore, postgres_url: str) -> AsyncIterator[PostgresStore]:
    """A second process, as far as the server can tell."""
    opened = await PostgresStore.open(postgres_url)
    yield opened
    await opened.close()


@pytest.fixture
async def outsider(store: PostgresStore, postgres_url: str) -> AsyncIterator[Any]:
    """A connection of our own into the store's tables."""
    url, schema = split_url(postgres_url)
    connection = await asyncpg.connect(url, server_settings={"search_path": schema})
    yield connection
    await connection.close()
