"""Settings and fixtures that every test shares."""

import asyncio
import atexit
import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import certifi
import httpx._config
import pytest
from hypothesis import settings

from tests.effort import EXAMPLES, SOAK

pytest_plugins = ["tests.services"]

MOST_LONG = 300
"""Of more `long` tests than this, every third runs outside of `make soak`."""

# No deadline: a busy machine is slow, and slowness is no failure here. The examples are the same on
# every run, so a red build is about the change and not about luck. HYPOTHESIS_PROFILE=random looks
# for new examples: a failure prints how to repeat it, and the next run tries it first.
settings.register_profile(
    "fixed", deadline=None, print_blob=True, max_examples=EXAMPLES, derandomize=True
)
settings.register_profile("random", deadline=None, print_blob=True, max_examples=EXAMPLES)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def trust_one_certificate() -> None:
    """Let HTTP clients be made quickly: each of them reads this file, and all bundles take 50 ms.

    Tests ask servers of this machine only, over plain HTTP.
    """
    number, name = tempfile.mkstemp(prefix="tailrace-", suffix=".pem")
    first, end, _ = Path(certifi.where()).read_text(encoding="utf-8").partition("-----END CERT")
    with os.fdopen(number, "w") as file:
        file.write(f"{first}{end}IFICATE-----\n")
    os.environ["SSL_CERT_FILE"] = name
    atexit.register(Path(name).unlink)


trust_one_certificate()

# A busy machine is slow, and slowness is no failure here: by default httpx gives up after 5 s.
_patience = httpx._config.DEFAULT_TIMEOUT_CONFIG
_patience.connect = _patience.read = _patience.write = _patience.pool = 60.0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests marked `soak`, and most of many marked `long`, to `make soak`."""
    if SOAK:
        return
    left = {item for item in items if item.get_closest_marker("soak")}
    marked = ((item, item.get_closest_marker("long")) for item in items)
    long = [item for item, mark in marked if mark and not mark.kwargs.get("always")]
    if len(long) > MOST_LONG:
        left |= {item for place, item in enumerate(long) if place % 3}
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


def let_servers_end_soon() -> None:
    """Let servers of this process look for their end ten times as often.

    By default uvicorn takes 0.2 s to end, and hundreds of tests start a server.
    """
    server = sys.modules.get("uvicorn.server")
    if server is not None:
        quick = SimpleNamespace(**vars(asyncio))
        quick.sleep = lambda seconds: asyncio.sleep(seconds / 10)
        server.asyncio = quick  # type: ignore[attr-defined]


def pytest_collection_finish() -> None:
    """Shorten the ends of servers, and the work of the garbage collector.

    Hundreds of thousands of objects were imported and collected. Each full collection would look at
    all of them.
    """
    let_servers_end_soon()
    gc.collect()
    gc.freeze()


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, as the runtime does."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_collector_while_growth_is_measured(request: pytest.FixtureRequest) -> Iterator[None]:
    """Objects that earlier tests left in memory do not count as the cost of more events."""
    if request.node.get_closest_marker("growth") is None:
        yield
        return
    gc.collect()
    gc.disable()
    yield
    gc.enable()
