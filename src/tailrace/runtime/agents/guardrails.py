"""Guardrails: functions that may stop a run because of its input or its answer.

A guardrail that raises has approved nothing. So its run ends as if the guardrail had refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from tailrace.core.items import ErrorInfo
from tailrace.runtime.diagnostics.failures import failure
from tailrace.runtime.tools.tool import Context


async def refusal(
    code: str, guardrails: Iterable[Callable[..., Any]], text: str | None, context: Context
) -> ErrorInfo | None:
    """The error of the first guardrail that refuses the text, or raises; None if all accept it."""
    for guardrail in guardrails:
        try:
            reason = await _called(guardrail, text or "", context)
        except Exception as error:
            if context.task._sink.emitter.failure is not None:
                raise  # the run has lost its store, or its worker
            logged = failure(f"run {context.run_id} (agent {context.agent})", error, "guardrail")
            return ErrorInfo(code=code, message=logged.message)
        if reason:
            message = reason if isinstance(reason, str) else "A guardrail stopped the run."
            return ErrorInfo(code=code, message=message)
    return None


async def _called(guardrail: Callable[..., Any], text: str, context: Context) -> Any:
    """What a guardrail returns; it takes the text, or the text and the context."""
    takes = len(inspect.signature(guardrail).parameters)
    found = guardrail(text, context) if takes > 1 else guardrail(text)
    return await found if inspect.isawaitable(found) else found
