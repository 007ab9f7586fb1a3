"""What several clients are tried with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser import Pages
from tests.serving import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The product, in a process of its own."""
    server = Served(tmp_path_factory.mktemp("served") / "runs.db")
    yield server
    server.kill()


@pytest.fixture(scope="session")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Agents that say what their model was asked: one process for all tests of the session."""
    database = tmp_path_factory.mktemp("reading") / "runs.db"
    server = Served(database, "tests.responses_app:app")
    yield server
    server.kill()


@pytest.fixture
def pages() -> Iterator[Pages]:
    """Pages on a port of their own."""
    made = Pages()
    yield made
    made.close()
