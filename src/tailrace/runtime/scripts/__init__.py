"""Answers of a model, written by hand: for demos, tests and the simulator of providers.

    [think("Which city?"), call("get_weather", city="Paris")]
    [say("It is sunny in Paris.", pace=20)]
    [say("It is"), cut()]
    [fail("overloaded", retry_after=1)]

A script is what the model does in one answer. What stands right before `cut` or `fail` never
comes to its end: the words stay without their last event, the call without half of its arguments.
Each provider's way of streaming it stands in a
module of its own (`responses`, `messages`, `chat`), pure: the ids come from a name that is handed
in, and pauses are numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import msgspec

from tailrace.core.errors import CallerError

STATUSES = {"overloaded": 529, "rate_limited": 429, "provider_failed": 500, "key_refused": 401}
"""The HTTP status of an error that comes before anything else."""

Where = Literal["event", "json", "character"]
"""Where a stream breaks off: between two events, inside of one's JSON, or inside of a character."""


class Say(msgspec.Struct, frozen=True):
    """The model says something, word by word; `pace` is words a second, 0 all at once."""

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
    """Nothing comes for a while; for ever if `seconds` is None."""

    seconds: float | None


class Fail(msgspec.Struct, frozen=True, kw_only=True):
    """The provider reports an error: as an HTTP status where the script begins, else in-stream."""

    code: str
    message: str
    status: int
    retry_after: str | None = None


class Cut(msgspec.Struct, frozen=True):
    """The stream breaks off."""

    where: Where = "event"


class Garbage(msgspec.Struct, frozen=True):
    """An event that is no JSON."""

    text: str


Step = Say | Think | Call | Wait | Fail | Cut | Garbage
Script = Sequence[Step]

_STEPS = "say(…), think(…), call(…), wait(…), silence(), fail(…), cut() or garbage()"


class InvalidScript(CallerError):
    """A script that cannot be played; the message says at which answer and step."""

    code = "invalid_script"


def checked(script: Any, where: str) -> Script:
    """The script, if it can be played; `where` is how the error calls it."""
    if not isinstance(script, list | tuple):
        raise InvalidScript(f"{where} is {script!r}: write a list of steps, as [say('Hello')].")
    ended = ""
    for number, step in enumerate(script, 1):
        place = f"{where}, step {number}"
        if not isinstance(step, Step):
            raise InvalidScript(f"{place}, is {step!r}: write {_STEPS}.")
        if ended:
            raise InvalidScript(f"{place}, is never played: it comes after {ended}.")
        said = _mistake(step)
        if said is not None:
            raise InvalidScript(f"{place}: {said}.")
        if isinstance(step, Fail | Cut) or step == Wait(None):
            ended = "silence()" if isinstance(step, Wait) else f"{type(step).__name__.lower()}()"
    return script


def _mistake(step: Step) -> str | None:
    text: Any = step.text if isinstance(step, Say | Think | Garbage) else ""
    pace: Any = step.pace if isinstance(step, Say | Think | Call) else 0
    if not isinstance(text, str):
        return f"its text is {text!r}, which is none"
    if type(pace) not in (int, float) or not 0 <= pace < math.inf:
        return f"its pace is {pace!r}: write words a second, or 0 for all at once"
    if isinstance(step, Wait) and step.seconds is not None:
        seconds: Any = step.seconds
        if type(seconds) not in (int, float) or not 0 <= seconds < math.inf:
            return f"it waits for {seconds!r}: write seconds, or silence() for ever"
    if isinstance(step, Cut) and step.where not in get_args(Where):
        return f"it cuts at {step.where!r}: write {', '.join(get_args(Where))}"
    if isinstance(step, Call):
        try:
            msgspec.json.encode(step.arguments)
        except TypeError as error:
            return f"its arguments are no JSON ({error})"
    return None


def say(text: str, pace: float = 0) -> Say:
    """The model says something; `pace` is words a second, 0 all at once."""
    return Say(text, pace)


def think(text: str, pace: float = 0) -> Think:
    """The model thinks."""
    return Think(text, pace)


def call(name: str, /, **arguments: Any) -> Call:
    """The model calls a tool with these arguments."""
    return Call(name, arguments)


def wait(seconds: float) -> Wait:
    """Nothing comes for so many seconds."""
    return Wait(seconds)


def silence() -> Wait:
    """Nothing comes any more, and the connection stays open."""
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


def cut(where: Where = "event") -> Cut:
    """The stream breaks off here."""
    return Cut(where)


def garbage(text: str = "<html>Bad gateway</html>") -> Garbage:
    """Something comes that is no event."""
    return Garbage(text)


class Frame(msgspec.Struct, frozen=True):
    """What a provider sends next: an event's data, after a pause.

    `cut`: only a part of it arrives, and nothing after it. `after` None: it never comes.
    """

    data: str
    event: str | None = None
    after: float | None = 0
    cut: Where | None = None


def words(text: str) -> Iterator[str]:
    """The pieces in which a text is streamed."""
    yield from re.findall(r"\S+\s*|\s+", text)


def paced(text: str, pace: float) -> Iterator[tuple[float, str]]:
    """Pieces with the pause before each; the first comes at once."""
    for number, word in enumerate(words(text)):
        yield (1 / pace if pace and number else 0), word


def with_ends(script: Script) -> Iterator[tuple[Step, bool]]:
    """Each step, and whether it comes to its end: what stands before a cut or an error does not."""
    for number, step in enumerate(script):
        after = script[number + 1] if number + 1 < len(script) else None
        yield step, not isinstance(after, Cut | Fail)


def arguments_of(step: Call, *, is_whole: bool) -> str:
    """A call's arguments as JSON; half of them if it breaks off."""
    found = msgspec.json.encode(step.arguments).decode()
    return found if is_whole else found[: len(found) // 2]


def opening_failure(script: Script) -> Fail | None:
    """The error that the script begins with, if it does: nothing is streamed then."""
    first = script[0] if script else None
    return first if isinstance(first, Fail) else None


def ending(step: Step, event: str | None = None, unfinished: str = "{}") -> Frame | None:
    """The frame of a step that is the same with every provider, but for reported errors."""
    if isinstance(step, Garbage):
        return Frame(step.text)
    if isinstance(step, Wait):
        return Frame("", after=step.seconds)
    if isinstance(step, Cut):
        return Frame(unfinished, event, cut=step.where)
    return None
