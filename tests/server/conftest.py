"""Fixtures that several modules of this folder share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tailrace.app import Tailrace
from tests.serving import client_of


@pytest.fixture
async def client(app: Tailrace) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application `app`, which the module defines."""
    async with client_of(app) as made:
        yield made
