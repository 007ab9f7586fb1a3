"""Fixtures for pytest: `ask_agent`, `simulator` and `recorded_model`.

Installed with Tailrace. Nothing is imported until a test asks for a fixture; `-p no:tailrace`
switches it off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tailrace.ports import Model
    from tailrace.testing.agent_runs import AgentRun
    from tailrace.testing.simulator import Simulator

RECORD = "--record-models"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--record-models`."""
    group = parser.getgroup("tailrace")
    group.addoption(
        RECORD, action="store_true", help="Ask real models, and record their answers for replay."
    )


@pytest.fixture
def ask_agent() -> Callable[..., AgentRun]:
    """`run_agent` for tests that are not async: `ask_agent(agent, "Is it sunny?")`."""
    import asyncio

    from tailrace.testing.agent_runs import run_agent

    def ask(agent: Any, input: Any = None, **options: Any) -> AgentRun:
        return asyncio.run(run_agent(agent, input, **options))

    return ask


@pytest.fixture
def simulator() -> Iterator[Callable[..., Simulator]]:
    """Starts a strict provider: `provider = simulator([say("Hello")])`.

    It runs until the test ends, in a thread, so any client can use it.
    """
    from tailrace.testing.simulator.background import BackgroundSimulators

    with BackgroundSimulators() as thread:
        yield thread.start


@pytest.fixture
def recorded_model(request: pytest.FixtureRequest) -> Callable[..., Model]:
    """A model that replays its recorded answers: `recorded_model("openai:gpt-5-mini")`.

    `pytest --record-models` asks the real model and writes `recordings/<file>.<test>.jsonl` beside
    the test.
    """
    from tailrace.models import NoRecording, open_model, record, replay

    name = re.sub(r"[^\w.-]+", "-", f"{request.path.stem}.{request.node.name}").strip("-")
    path = request.path.parent / "recordings" / f"{name}.jsonl"

    def open_recorded(model: str | Model, **options: Any) -> Model:
        if request.config.getoption(RECORD):
            path.unlink(missing_ok=True)
            return record(open_model(model, **options) if isinstance(model, str) else model, path)
        if not path.exists():
            raise NoRecording(f"There is no recording {path}. Run pytest {RECORD} once.")
        return replay(path, prices=options.get("prices"))

    return open_recorded
