"""What every test shares."""

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

pytest_plugins = ["tests.services"]

# No deadline: a busy machine is slow, and slowness is no failure here. The examples are the same on
# every run, so a red build is about the change and not about luck. HYPOTHESIS_PROFILE=random looks
# for new ones: a failure prints how to repeat it, and the next run tries it first.
settings.register_profile("fixed", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, as the runtime does."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_collector_while_growth_is_measured(request: pytest.FixtureRequest) -> Iterator[None]:
    """What earlier tests left in memory must not be counted as the cost of more events."""
    measured = ("grow", "cost_of", "takes_time", "linear")
    if not any(word in request.node.name for word in measured):
        yield
        return
    gc.collect()
    gc.disable()
    yield
    gc.enable()
