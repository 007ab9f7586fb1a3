"""Scripted answers of a model, for demos, tests and the provider simulator.

    [think("Which city?"), call("get_weather", city="Paris")]
    [say("It is sunny in Paris.", pace=20)]
    [say("It is"), cut()]
    [fail("overloaded", retry_after=1)]

A script is one answer of the model. The step before `cut` or `fail` stays incomplete: a text lacks
its last event, a call half of its arguments. The modules of this package stream a script as each
provider does. They are pure: ids come from a given name, and pauses are numbers.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import msgspec

from tailrace.core.errors import CallerError
from tailrace.core.values import json_text

STATUSES = {"overloaded": 529, "rate_limited": 429, "provider_failed": 500, "key_refused": 401}
"""The HTTP status of an error at the start of a script."""

CutPlace = Literal["event", "json", "character"]
"""Where a stream breaks off: between two events, inside an event's JSON, or inside a character."""


class Say(msgspec.Struct, frozen=True):
    """The model writes a text word by word; `pace` is words per second, 0 is all at once."""

    text: str
    pace: float = 0


class Think(msgspec.Struct, frozen=True):
    """The model thinks, word by word."""

    text: str
    pace: float = 0


class Call(msgspec.Struct, frozen=True):
    """The model calls a tool."""

    name: str
    arguments: dict[str, Any] = {}
    pace: float = 0


class Wait(msgspec.Struct, frozen=True):
    """The model sends nothing for `seconds`; forever if None."""

    seconds: float | None


class Fail(msgspec.Struct, frozen=True, kw_only=True):
    """The provider reports an error: as an HTTP status at the start, else in the stream."""

    code: str
    message: str
    status: int
    retry_after: str | None = None


class Cut(msgspec.Struct, frozen=True):
    """The stream breaks off."""

    where: CutPlace = "event"


class Garbage(msgspec.Struct, frozen=True):
    """An event that is not JSON."""

    text: str


ScriptStep = Say | Think | Call | Wait | Fail | Cut | Garbage
Script = Sequence[ScriptStep]

_STEPS = "say(…), think(…), call(…), wait(…), silence(), fail(…), cut() or garbage()"


class InvalidScript(CallerError):
    """A script that cannot be played. The message names the answer and the step."""

    code = "invalid_script"


def checked(script: Any, where: str) -> Script:
    """Check a script. `where` names it in the error."""
    if not isinstance(script, list | tuple):
        raise InvalidScript(f"{where} is {script!r}: write a list of steps, as [say('Hello')].")
    ended = ""
    for number, step in enumerate(script, 1):
        place = f"{where}, step {number}"
        if not isinstance(step, ScriptStep):
            raise InvalidScript(f"{place}, is {step!r}: write {_STEPS}.")
        if ended:
            raise InvalidScript(f"{place}, is never played: it comes after {ended}. Remove it.")
        mistake = _mistake(step)
        if mistake is not None:
            raise InvalidScript(f"{place}: {mistake}.")
        if isinstance(step, Fail | Cut) or step == Wait(None):
            ended = "silence()" if isinstance(step, Wait) else f"{type(step).__name__.lower()}()"
    return script


def _mistake(step: ScriptStep) -> str | None:
    text: Any = step.text if isinstance(step, Say | Think | Garbage) else ""
    pace: Any = step.pace if isinstance(step, Say | Think | Call) else 0
    if not isinstance(text, str):
        return f"its text is {text!r}: write a string"
    if type(pace) not in (int, float) or not 0 <= pace < math.inf:
        return f"its pace is {pace!r}: write words per second, or 0 for all at once"
    if isinstance(step, Wait) and step.seconds is not None:
        seconds: Any = step.seconds
        if type(seconds) not in (int, float) or not 0 <= seconds < math.inf:
            return f"it waits for {seconds!r}: write seconds, or silence() forever"
    if isinstance(step, Cut) and step.where not in get_args(CutPlace):
        return f"it cuts at {step.where!r}: write {', '.join(get_args(CutPlace))}"
    if isinstance(step, Call):
        try:
            msgspec.json.encode(step.arguments)
        except TypeError as error:
            return f"its arguments have no JSON ({error}): write plain values"
    return None


def say(text: str, pace: float = 0) -> Say:
    """The model writes a text; `pace` is words per second, 0 is all at once."""
    return Say(text, pace)


def think(text: str, pace: float = 0) -> Think:
    """The model thinks."""
    return Think(text, pace)


def call(name: str, /, **arguments: Any) -> Call:
    """The model calls a tool with these arguments."""
    return Call(name, arguments)


def wait(seconds: float) -> Wait:
    """The model sends nothing for so many seconds."""
    return Wait(seconds)


def silence() -> Wait:
    """The model sends nothing more, and the connection stays open."""
    return Wait(None)


def fail(
    code: str = "overloaded",
    message: str = "The model has too much to do.",
    *,
    status: int | None = None,
    retry_after: float | str | None = None,
) -> Fail:
    """The provider reports an error; `retry_after` in seconds, or as an HTTP date."""
    after = None if retry_after is None else str(retry_after)
    found = STATUSES.get(code, 400) if status is None else status
    return Fail(code=code, message=message, status=found, retry_after=after)


def cut(where: CutPlace = "event") -> Cut:
    """The stream breaks off here."""
    return Cut(where)


def garbage(text: str = "<html>Bad gateway</html>") -> Garbage:
    """The model sends bytes that are not an event."""
    return Garbage(text)


class ScriptFrame(msgspec.Struct, frozen=True):
    """An event's data, sent after a pause.

    With `cut` only a part of it arrives, and nothing after it. With `after` None it never arrives.
    """

    data: str
    event: str | None = None
    after: float | None = 0
    cut: CutPlace | None = None


def words(text: str) -> Iterator[str]:
    """The pieces in which a text is streamed."""
    yield from re.findall(r"\S+\s*|\s+", text)


def arguments_of(step: Call, *, is_whole: bool) -> str:
    """A call's arguments as JSON; half of them if the call is incomplete."""
    found = json_text(step.arguments)
    return found if is_whole else found[: len(found) // 2]


def opening_failure(script: Script) -> Fail | None:
    """The error at the start of the script, if there is one: then nothing is streamed."""
    first = script[0] if script else None
    return first if isinstance(first, Fail) else None


class PlayedScript(ABC):
    """A script as a provider streams it. A subclass has the provider's frames."""

    def __init__(
        self, name: str, script: Script, *, model: str = "scripted", input_tokens: int = 10
    ) -> None:
        self._name = name
        self._script = script
        self._model = model
        self._input_tokens = input_tokens
        self._words = 0

    def frames(self) -> Iterator[ScriptFrame]:
        """Everything that is sent, in order."""
        yield from self._begin()
        for step, is_whole in self._steps():
            if isinstance(step, Think):
                yield from self._think(step, is_whole=is_whole)
            elif isinstance(step, Say):
                yield from self._say(step, is_whole=is_whole)
            elif isinstance(step, Call):
                yield from self._call(step, is_whole=is_whole)
            elif isinstance(step, Garbage):
                yield ScriptFrame(step.text)
            elif isinstance(step, Wait):
                yield ScriptFrame("", after=step.seconds)
            elif isinstance(step, Fail):
                yield self._fail(step)
                return
            else:
                unfinished = self._unfinished()
                yield ScriptFrame(unfinished.data, unfinished.event, cut=step.where)
                return
        yield from self._end()

    def _steps(self) -> Iterator[tuple[ScriptStep, bool]]:
        """Each step, and whether it is complete: the step before a cut or an error is not."""
        for number, step in enumerate(self._script):
            after = self._script[number + 1] if number + 1 < len(self._script) else None
            yield step, not isinstance(after, Cut | Fail)

    def _paced(self, text: str, pace: float) -> Iterator[tuple[float, str]]:
        """Pieces with the pause before each; the first comes at once. Counts them for usage."""
        for number, word in enumerate(words(text)):
            self._words += 1
            yield (1 / pace if pace and number else 0), word

    @abstractmethod
    def _begin(self) -> Iterator[ScriptFrame]: ...

    @abstractmethod
    def _think(self, step: Think, *, is_whole: bool) -> Iterator[ScriptFrame]: ...

    @abstractmethod
    def _say(self, step: Say, *, is_whole: bool) -> Iterator[ScriptFrame]: ...

    @abstractmethod
    def _call(self, step: Call, *, is_whole: bool) -> Iterator[ScriptFrame]: ...

    @abstractmethod
    def _fail(self, step: Fail) -> ScriptFrame: ...

    @abstractmethod
    def _unfinished(self) -> ScriptFrame:
        """The frame of which only a part arrives."""

    @abstractmethod
    def _end(self) -> Iterator[ScriptFrame]: ...
