"""What the three renderers share: the choices of the caller, and names that providers accept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal, get_args

import msgspec

from tailrace.core.history.entries import Called, Entry, Thought
from tailrace.core.history.pieces import Load, Piece, reachable, shown

Api = Literal["openai_responses", "anthropic_messages", "openai_chat"]
"""An API of model providers, as private parts name it too."""

Mode = Literal["drop", "encrypted", "stored"]
"""What becomes of reasoning.

`drop`: that of earlier user turns is left out, and the ids that depend on it are replaced.
`encrypted`: sealed reasoning goes back, with every id as it was. `stored`: the provider remembers,
and only what is new is sent.
"""


def check_api(api: str) -> None:
    """Whoever names another API would get the rules of none."""
    if api not in get_args(Api):
        raise ValueError(f"no such API: {api!r}; there are {', '.join(get_args(Api))}")


class Rules(msgspec.Struct, frozen=True):
    """How a history is wanted."""

    api: Api
    mode: Mode
    model: str | None = None
    store: bool = True
    load: Load = reachable
    host: str | None = None

    def owns(self, entry: Entry) -> bool:
        """Whether the entry came from whoever is asked now.

        Several hosts speak one API, and none can read what another one sealed or named. A log that
        tells no host is believed: it was written when there was one.
        """
        api, host = entry.origin.get("api"), entry.origin.get("host")
        return api == self.api and (self.host is None or host is None or host == self.host)

    def may_seal(self, thought: Thought) -> bool:
        """Whether sealed reasoning can be read by the model that is asked now."""
        return self.model is None or thought.model is None or thought.model == self.model

    @property
    def takes_turns(self) -> bool:
        """Whether the model is one of Mistral's, which demand more of chat messages than others.

        Between the results of calls and what the user says next somebody has to answer, and the
        user or a tool has the last word.
        """
        return _MISTRAL.search(f"{self.model} {self.host}".lower()) is not None


FOREIGN = "another provider or model made it, and only that one can read it"
"""Why something does not go back to somebody else."""


NOT_WHOLE = "it is not whole"


def own_name(entry: Entry) -> str:
    """What a provider calls an item of its own."""
    kind = entry.raw.get("type") if isinstance(entry.raw, dict) else None
    return str(kind or getattr(entry, "kind", "an item"))


class Notes:
    """What a history does not say, and why: each thing once, without numbers.

    So the same gap has the same words in the next call, and need not be told again.
    """

    def __init__(self) -> None:
        self._said: dict[str, None] = {}

    def add(self, note: str) -> None:
        """Say something, once."""
        self._said.setdefault(note)

    def left_out(self, what: str, why: str) -> None:
        """Say that something is not there."""
        self.add(f"Left out of what the model reads: {what}, because {why}.")

    def all(self) -> list[str]:
        """Everything that was said."""
        return list(self._said)

    def watch(self, load: Load) -> Load:
        """The same loader; what it cannot load is said."""

        def loading(url: str) -> str | None:
            found = load(url)
            if found is None:
                self.left_out("an image or file", "its provider could not load it from here")
            return found

        return loading


CONTINUE = "Continue."
"""What the user says where nothing else follows the model's last words."""

NO_MESSAGE = "(no message)"
"""Stands where a provider demands that somebody says something, and nobody did."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_MISTRAL = re.compile(r"(mi|mini|magi|code|dev)stral|(mi|pi|vo)xtral")
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}")


def tool_name(name: str) -> str:
    """A tool's name in the letters that every provider accepts."""
    return _NOT_IN_NAMES.sub("_", name)[:64] or "tool"


def call_ids(entries: Iterable[Entry], rules: Rules) -> dict[Called, str]:
    """The id under which each call goes out: unique, and the provider's own where it made one.

    They depend on what came before only, so a longer history begins with the same ones.
    """
    found: dict[Called, str] = {}
    used: set[str] = set()
    for entry in entries:
        if isinstance(entry, Called) and not entry.by_provider:
            wanted: list[Any] = []
            if rules.owns(entry):
                wanted.append(entry.origin.get("call_id", entry.call_id))
            if rules.api != "openai_chat" and _CALL_ID.fullmatch(entry.call_id):
                wanted.append(entry.call_id)
            if rules.api == "openai_chat" and rules.takes_turns:  # a router has all models' ids
                wanted = [one for one in wanted if _MISTRAL_ID.fullmatch(str(one))]
            free = next((one for one in wanted if isinstance(one, str) and one not in used), None)
            number = len(found)
            while free is None:
                number += 1
                made = f"call{number:05}"  # nine letters: Mistral takes no other id
                free = made if made not in used else None
            used.add(free)
            found[entry] = free
    return found


def pictures(entry: Entry, load: Load) -> tuple[str, list[Piece]]:
    """The images that a tool of the provider's made, and a word of where they are from.

    For where its call cannot go back: a person may still speak of the picture.
    """
    if not isinstance(entry, Called) or entry.result is None:
        return "", []
    seen = [piece for piece in entry.result.pieces if shown(piece, load)]
    return f"Returned by {tool_name(entry.name)}:", seen


def arguments_object(call: Called) -> dict[str, Any]:
    """A call's arguments as an object, for APIs that know no other."""
    if call.kind == "custom":
        return {"input": call.arguments}
    try:
        value = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {"arguments": call.arguments}
    return value if isinstance(value, dict) else {"arguments": value}
