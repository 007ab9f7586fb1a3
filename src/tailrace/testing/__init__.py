"""Test kits for stores, buses, wire formats and agents of your own.

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
    from tailrace.testing.bus_kit import BusKit, ServerBusKit
    from tailrace.testing.follow_kit import FollowKit, OpenBus, OpenStore
    from tailrace.testing.log_model import ModelSetup, check_log
    from tailrace.testing.provider_rules import (
        Issued,
        check_anthropic_messages,
        check_openai_chat,
        check_openai_responses,
    )
    from tailrace.testing.simulator import RecordedAnswer, Simulator, recorded_calls
    from tailrace.testing.store_kit import EventLogKit
    from tailrace.testing.strategies import legal_runs
    from tailrace.testing.wire_kit import check_wire

__all__ = [
    "BusKit",
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
    "check_wire",
    "legal_runs",
    "recorded_calls",
]

_HOMES = {
    "BusKit": "tailrace.testing.bus_kit",
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
    "check_wire": "tailrace.testing.wire_kit",
    "legal_runs": "tailrace.testing.strategies",
    "recorded_calls": "tailrace.testing.simulator",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tailrace.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
