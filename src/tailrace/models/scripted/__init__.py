"""A model with scripted answers, for demos and tests, without a key or network.

    model = Scripted(
        [think("Which city?"), call("get_weather", city="Paris")],
        tries([say("It is"), cut()], [say("It is sunny.", pace=20)]),
    )

Each answer is a list of steps: the first answer of a conversation, the second, and so on. The last
answer is repeated. The history says which answer is next, so a worker that takes over a run
continues it. If a request forbids tools (`tool_choice` "none", as for a summary), the next answer
without calls is taken. `Scripted(function)` calls a function with the turn instead.
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
from tailrace.core.items import Usage
from tailrace.history import history
from tailrace.models.scripted.openai_responses import PlayedResponses
from tailrace.models.scripted.script import (
    Call,
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
from tailrace.ports import Request

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
    """The scripts of one call, by try."""

    scripts: tuple[Script, ...]


ScriptedAnswer: TypeAlias = Script | Tries


def tries(*scripts: Script) -> Tries:
    """An answer with another script for each try of the call; the last is repeated."""
    return Tries(scripts)


class Scripted:
    """A model with scripted answers."""

    api: Final = "openai_responses"

    def __init__(
        self, *answers: ScriptedAnswer | Callable[[int], ScriptedAnswer], name: str = "scripted"
    ) -> None:
        if not answers:
            raise InvalidScript("Scripted() needs an answer. Write Scripted([say('Hello')]).")
        for number, answer in enumerate(answers, 1):
            if not callable(answer):
                _checked(answer, f"Answer {number}")
        self._answers = answers
        self._name = name

    @property
    def name(self) -> str:
        """The name given to the constructor."""
        return self._name

    async def stream(self, request: Request) -> AsyncIterator[list[str]]:
        """The events of the next answer, with its pauses."""
        turn = turns_before(request)
        script = self._script(turn, request.attempt)
        if request.tool_choice == "none":
            script = self._without_calls(turn, request.attempt) or script
        failure = opening_failure(script)
        if failure is not None:
            raise _error(failure)
        known = request.chain[-1].root if request.chain else None
        name = f"{known.task_id if known else 'script'}_{turn}_{request.attempt}"
        for frame in PlayedResponses(name, script, model=self._name, sealed=True).frames():
            if frame.after is None:
                await asyncio.get_running_loop().create_future()
            elif frame.after:
                await asyncio.sleep(frame.after)
            if frame.cut is not None:
                raise ProviderCut("The script cuts the stream here.")
            yield [frame.data] if frame.data else []

    def _script(self, turn: int, attempt: int) -> Script:
        found = self._answers[min(turn, len(self._answers) - 1)]
        answer = found(turn) if callable(found) else found
        if callable(found):
            _checked(answer, f"The function's answer in turn {turn}")
        if isinstance(answer, Tries):
            return answer.scripts[min(attempt, len(answer.scripts)) - 1]
        return answer

    def _without_calls(self, turn: int, attempt: int) -> Script | None:
        """The next answer that calls no tool, for a request that allows none."""
        for later in range(turn, max(turn + 1, len(self._answers))):
            script = self._script(later, attempt)
            if not any(isinstance(step, Call) for step in script):
                return script
        return None

    def cost(self, usage: Usage) -> float | None:  # noqa: ARG002
        """0: a script costs nothing."""
        return 0.0

    async def close(self) -> None:
        """Do nothing: there are no connections."""


def _checked(answer: Any, where: str) -> None:
    if not isinstance(answer, Tries):
        checked(answer, where)
        return
    if not answer.scripts:
        raise InvalidScript(f"{where} has no tries. Write tries([cut()], [say('Hello')]).")
    for number, script in enumerate(answer.scripts, 1):
        checked(script, f"{where}, try {number}")


def conversation(request: Request) -> list[dict[str, Any]]:
    """The messages of a request."""
    if request.input is not None:
        return request.input
    return history(request.chain, "openai_chat", task_id=request.task_id).items


def turns_before(request: Request) -> int:
    """How many answers of the model the conversation has."""
    return sum(message.get("role") == "assistant" for message in conversation(request))


def _error(step: Fail) -> ProviderError:
    after = None if step.retry_after is None else float(step.retry_after)
    return _ERRORS.get(step.code, RequestRefused)(step.message, retry_after=after)
