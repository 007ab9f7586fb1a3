"""Tailrace: the stateful streaming runtime for AI agents.

An agent run is an append-only log of typed events. The live stream, the final object, the
history that the model sees and every client's wire format are folds or projections of that log.

    from tailrace import Tailrace

This module stays light: the web framework and the database are loaded when `Tailrace` is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.app import Tailrace
    from tailrace.convert import transcode
    from tailrace.runtime.agents import restartable
    from tailrace.runtime.inbox import receive
    from tailrace.runtime.task import TaskWriter
    from tailrace.server.compat import ResponsesCompat

__version__ = "0.1.0.dev0"
__all__ = [
    "ResponsesCompat",
    "Tailrace",
    "TaskWriter",
    "__version__",
    "receive",
    "restartable",
    "transcode",
]

_HOMES = {
    "ResponsesCompat": "tailrace.server.compat",
    "Tailrace": "tailrace.app",
    "TaskWriter": "tailrace.runtime.task",
    "receive": "tailrace.runtime.inbox",
    "restartable": "tailrace.runtime.agents",
    "transcode": "tailrace.convert",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tailrace' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
