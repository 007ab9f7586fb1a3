"""Tests of agents, and test kits for stores, buses and wire formats of your own.

* `run_agent`: an agent's result and events, with assertions for tools, citations and cost.
* `check_resume`: cuts an agent's stream after every event.
* `read_run` and `replay_run`: runs that `tailrace export` wrote.
* `legal_runs`: random legal runs, as a Hypothesis strategy.
* `EventLogKit`: the promises of a store, as tests to inherit.
* `BusKit` and `ServerBusKit`: the promises of a bus.
* `FollowKit`: the promises of a store and a bus together.
* `check_log` compares a store, a bus and their followers with a simple model, step by random step.
* `check_wire`: the promises of a wire format.
* `check_openai_responses` and the like: requests that model providers refuse, with their messages.
* `Simulator`: strict providers over real HTTP, for any client.
* `Notebook`: a task without a store, for trying a model call.

The names are loaded when they are used: some need pytest or Hypothesis, and say so.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.ingest.base import Notebook
    from tailrace.testing.agent_runs import (
        AgentRun,
        CalledTool,
        CitedSource,
        read_run,
        replay_run,
        run_agent,
    )
    from tailrace.testing.bus_kit import BusKit, ServerBusKit
    from tailrace.testing.follow_kit import FollowKit, OpenBus, OpenStore
    from tailrace.testing.log_model import ModelSetup, check_log
    from tailrace.testing.provider_rules import (
        Issued,
        check_anthropic_messages,
        check_openai_chat,
        check_openai_responses,
    )
    from tailrace.testing.resume_kit import check_resume
    from tailrace.testing.simulator import RecordedAnswer, Simulator, recorded_calls
    from tailrace.testing.store_kit import EventLogKit
    from tailrace.testing.strategies import legal_runs
    from tailrace.testing.wire_kit import check_wire

__all__ = [
    "AgentRun",
    "BusKit",
    "CalledTool",
    "CitedSource",
    "EventLogKit",
    "FollowKit",
    "Issued",
    "ModelSetup",
    "Notebook",
    "OpenBus",
    "OpenStore",
    "RecordedAnswer",
    "ServerBusKit",
    "Simulator",
    "check_anthropic_messages",
    "check_log",
    "check_openai_chat",
    "check_openai_responses",
    "check_resume",
    "check_wire",
    "legal_runs",
    "read_run",
    "recorded_calls",
    "replay_run",
    "run_agent",
]

_HOMES = {
    "AgentRun": "tailrace.testing.agent_runs",
    "BusKit": "tailrace.testing.bus_kit",
    "CalledTool": "tailrace.testing.agent_runs",
    "CitedSource": "tailrace.testing.agent_runs",
    "EventLogKit": "tailrace.testing.store_kit",
    "FollowKit": "tailrace.testing.follow_kit",
    "Issued": "tailrace.testing.provider_rules",
    "ModelSetup": "tailrace.testing.log_model",
    "Notebook": "tailrace.ingest.base",
    "OpenBus": "tailrace.testing.follow_kit",
    "OpenStore": "tailrace.testing.follow_kit",
    "RecordedAnswer": "tailrace.testing.simulator",
    "ServerBusKit": "tailrace.testing.bus_kit",
    "Simulator": "tailrace.testing.simulator",
    "check_anthropic_messages": "tailrace.testing.provider_rules",
    "check_log": "tailrace.testing.log_model",
    "check_openai_chat": "tailrace.testing.provider_rules",
    "check_openai_responses": "tailrace.testing.provider_rules",
    "check_resume": "tailrace.testing.resume_kit",
    "check_wire": "tailrace.testing.wire_kit",
    "legal_runs": "tailrace.testing.strategies",
    "read_run": "tailrace.testing.agent_runs",
    "recorded_calls": "tailrace.testing.simulator",
    "replay_run": "tailrace.testing.agent_runs",
    "run_agent": "tailrace.testing.agent_runs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tailrace.testing' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as missing:
        if missing.name not in ("pytest", "hypothesis"):
            raise
        raise ModuleNotFoundError(
            f"`{name}` of tailrace.testing needs {missing.name}, which Tailrace does not install. "
            f"Run: pip install {missing.name}",
            name=missing.name,
        ) from missing
