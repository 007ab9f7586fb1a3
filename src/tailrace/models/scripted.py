"""A model that does what is written down: for demos and tests, without a key or a network.

    model = Scripted(
        [think("Which city?"), call("get_weather", city="Paris")],
        tries([say("It is"), cut()], [say("It is sunny.", pace=20)]),
    )

Each answer is a list of steps. The first is what the model answers first in a conversation, and so
on; the last one is repeated. Which one is due is read from the history, so a worker that takes
over goes on where the lost one was. `Scripted(function)` asks a function of the turn instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeAlias

import msgspec

from tailrace.core.errors import (
    KeyRefused,
    Overloaded,
    ProviderCut,
    ProviderError,
    ProviderFailed,
    RateLimited,
    RequestRefused,
)
from tailrace.core.history import history
from tailrace.core.items import Usage
from tailrace.ports import Request
from tailrace.runtime.scripts import (
    Fail,
    InvalidScript,
    Script,
    call,
    checked,
    cut,
    fail,
    garbage,
    opening_failure,
    say,
    silence,
    think,
    wait,
)
from tailrace.runtime.scripts.responses import Responses

__all__ = [
    "InvalidScript",
    "Scripted",
    "call",
    "cut",
    "fail",
    "garbage",
    "say",
    "silence",
    "think",
    "tries",
    "wait",
]

_ERRORS: dict[str, type[ProviderError]] = {
    error.code: error for error in (KeyRefused, Overloaded, ProviderFailed, RateLimited)
}


class Tries(msgspec.Struct, frozen=True):
    """What comes of one call, try by try."""

    scripts: tuple[Script, ...]


Answer: TypeAlias = Script | Tries


def tries(*scripts: Script) -> Tries:
    """An answer that goes differently when the call is made again; the last one is repeated."""
    return Tries(scripts)


class Scripted:
    """A model with its answers written down."""

    api: Final = "openai_responses"

    def __init__(self, *answers: Answer | Callable[[int], Answer], name: str = "scripted") -> None:
        if not answers:
            raise InvalidScript("There is no answer: write Scripted([say('Hello')]).")
        for number, answer in enumerate(answers, 1):
            if not callable(answer):
                _checked(answer, f"Answer {number}")
        self._answers = answers
        self._name = name

    @property
    def name(self) -> str:
        """What it calls itself."""
        return self._name

    async def stream(self, request: Request) -> AsyncIterator[list[str]]:
        """The events of the answer that is due, each in its time."""
        turn = turns_before(request)
        script = self._script(turn, request.attempt)
        failure = opening_failure(script)
        if failure is not None:
            raise _error(failure)
        known = request.chain[-1].root if request.chain else None
        name = f"{known.task_id if known else 'script'}_{turn}_{request.attempt}"
        for frame in Responses(name, script, model=self._name, sealed=True).frames():
            if frame.after is None:
                await asyncio.get_running_loop().create_future()
            elif frame.after:
                await asyncio.sleep(frame.after)
            if frame.cut is not None:
                raise ProviderCut("The script breaks off here.")
            yield [frame.data] if frame.data else []

    def _script(self, turn: int, attempt: int) -> Script:
        found = self._answers[min(turn, len(self._answers) - 1)]
        answer = found(turn) if callable(found) else found
        if callable(found):
            _checked(answer, f"What the function answers in turn {turn}")
        if isinstance(answer, Tries):
            return answer.scripts[min(attempt, len(answer.scripts)) - 1]
        return answer

    def cost(self, usage: Usage) -> float | None:  # noqa: ARG002
        """Nothing."""
        return 0.0

    async def close(self) -> None:
        """There is nothing to close."""


def _checked(answer: Any, where: str) -> None:
    if not isinstance(answer, Tries):
        checked(answer, where)
        return
    if not answer.scripts:
        raise InvalidScript(f"{where} has no tries: write tries([cut()], [say('Hello')]).")
    for number, script in enumerate(answer.scripts, 1):
        checked(script, f"{where}, try {number}")


def turns_before(request: Request) -> int:
    """How often the model has answered in this conversation."""
    items: list[dict[str, Any]]
    if request.input is not None:
        items = request.input
    else:
        items = history(request.chain, "openai_chat", task_id=request.task_id).items
    return sum(item.get("role") == "assistant" for item in items)


def _error(step: Fail) -> ProviderError:
    after = None if step.retry_after is None else float(step.retry_after)
    return _ERRORS.get(step.code, RequestRefused)(step.message, retry_after=after)
