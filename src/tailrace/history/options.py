"""What the three renderers share: options, ids and names that providers accept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal, get_args

import msgspec

from tailrace.core.errors import CallerError
from tailrace.core.tool_arguments import NOT_JSON, arguments_value
from tailrace.core.values import dict_of
from tailrace.history.content import HistoryPart, Load, reachable, shown
from tailrace.history.entries import CallEntry, Entry, ReasoningEntry

Api = Literal["openai_responses", "anthropic_messages", "openai_chat"]
"""An API of model providers, as private parts name it."""

Mode = Literal["drop", "encrypted", "stored"]
"""How reasoning goes back.

`drop`: reasoning of earlier user turns is left out, and ids that depend on it are replaced.
`encrypted`: sealed reasoning goes back, with all ids. `stored`: the provider stores the
conversation, and only new items are sent.
"""


def check_api(api: str) -> None:
    """Refuse an unknown API."""
    if api not in get_args(Api):
        raise CallerError(f"Unknown API {api!r}; use {', '.join(get_args(Api))}.")


class Rules(msgspec.Struct, frozen=True):
    """The options of a history."""

    api: Api
    mode: Mode
    model: str | None = None
    store: bool = True
    load: Load = reachable
    host: str | None = None

    def owns(self, entry: Entry) -> bool:
        """Whether the entry came from the API and host of the next call.

        Hosts of the same API cannot read each other's sealed content and ids. An entry without a
        host is from an old log and counts as the same host.
        """
        api, host = entry.origin.get("api"), entry.origin.get("host")
        return api == self.api and (self.host is None or host is None or host == self.host)

    def may_seal(self, thought: ReasoningEntry) -> bool:
        """Whether the model of the next call can read sealed reasoning."""
        return self.model is None or thought.model is None or thought.model == self.model

    @property
    def takes_turns(self) -> bool:
        """Whether it is a Mistral model, which has more rules for chat messages.

        The assistant has to answer between results and the next user message, and the last message
        is the user's or a tool's.
        """
        return _MISTRAL.search(f"{self.model} {self.host}".lower()) is not None


FOREIGN = "another provider or model made it, and no other can read it"
"""Why an entry does not go back to another provider."""


NOT_WHOLE = "it is not whole"


def own_name(entry: Entry) -> str:
    """The provider's id of an item."""
    kind = dict_of(entry.raw).get("type")
    return str(kind or getattr(entry, "kind", "an item"))


class Notes:
    """What a history leaves out, and why: each note once, without numbers.

    So the same gap has the same note in the next call.
    """

    def __init__(self) -> None:
        self._noted: dict[str, None] = {}

    def add(self, note: str) -> None:
        """Add a note, once."""
        self._noted.setdefault(note)

    def left_out(self, what: str, why: str) -> None:
        """Note that something is left out."""
        self.add(f"Left out of what the model reads: {what}, because {why}.")

    def all(self) -> list[str]:
        """All notes."""
        return list(self._noted)

    def watch(self, load: Load) -> Load:
        """The same loader, with a note for each URL that it cannot load."""

        def loading(url: str) -> str | None:
            found = load(url)
            if found is None:
                self.left_out("an image or file", "its provider could not load it from here")
            return found

        return loading


CONTINUE = "Continue."
"""The user message that follows the last message of the model."""

NO_MESSAGE = "(no message)"
"""A text where a provider requires a message that does not exist."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_MISTRAL = re.compile(r"(mi|mini|magi|code|dev)stral|(mi|pi|vo)xtral")
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}")


def tool_name(name: str) -> str:
    """The name of a tool in characters that every provider accepts."""
    return _NOT_IN_NAMES.sub("_", name)[:64] or "tool"


def call_ids(entries: Iterable[Entry], rules: Rules) -> dict[CallEntry, str]:
    """The id of each call in the request: unique, and the provider's own where possible.

    An id depends only on earlier entries, so a longer history begins with the same ids.
    """
    found: dict[CallEntry, str] = {}
    used: set[str] = set()
    for entry in entries:
        if isinstance(entry, CallEntry) and not entry.by_provider:
            wanted: list[Any] = []
            if rules.owns(entry):
                wanted.append(entry.origin.get("call_id", entry.call_id))
            if rules.api != "openai_chat" and _CALL_ID.fullmatch(entry.call_id):
                wanted.append(entry.call_id)
            if (
                rules.api == "openai_chat" and rules.takes_turns
            ):  # a router has the ids of all models
                wanted = [ident for ident in wanted if _MISTRAL_ID.fullmatch(str(ident))]
            free = next(
                (ident for ident in wanted if isinstance(ident, str) and ident not in used), None
            )
            number = len(found)
            while free is None:
                number += 1
                made = f"call{number:05}"  # Mistral requires nine letters
                free = made if made not in used else None
            used.add(free)
            found[entry] = free
    return found


def pictures(entry: Entry, load: Load) -> tuple[str, list[HistoryPart]]:
    """The images of a provider's tool, and a text with their origin.

    They are used where the call cannot go back: the user may refer to the image.
    """
    if not isinstance(entry, CallEntry) or entry.result is None:
        return "", []
    seen = [piece for piece in entry.result.pieces if shown(piece, load)]
    return f"Returned by {tool_name(entry.name)}:", seen


def call_object(call: CallEntry) -> dict[str, Any]:
    """The arguments of a call as an object, for APIs that require an object."""
    if call.kind == "custom":
        return {"input": call.arguments}
    value = arguments_value(call.arguments, NOT_JSON)
    if value is NOT_JSON:
        return {"arguments": call.arguments}
    return value if isinstance(value, dict) else {"arguments": value}
