"""What the next model call may see: from a chain of runs to the request that a provider accepts.

    sent = history([first, second, current], "openai_responses", "encrypted")
    client.responses.create(model=…, **sent.request())

Pure, and linear in what was said. A task's history is the fold of its own items: what a sub-agent
did inside never enters its parent's. `sanitize` mends a list that somebody else kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec

from tailrace.core.fold import State
from tailrace.core.history import anthropic_messages, openai_chat, openai_responses
from tailrace.core.history.entries import Conversation, Entry
from tailrace.core.history.mending import sanitize
from tailrace.core.history.pieces import Json, Load, reachable
from tailrace.core.history.rules import Api, Mode, Notes, Rules, check_api
from tailrace.core.items import ToolResult
from tailrace.core.state import TaskNode

__all__ = ["Api", "History", "Load", "Mode", "history", "reachable", "sanitize"]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What to send. `items` is the request's `input` or its `messages`."""

    api: Api
    mode: Mode
    """The mode that was used, which may not be the one that was asked for: see `notes`."""
    items: list[Json]
    previous_response_id: str | None = None
    system: list[str] = []
    """Messages of the input that Anthropic wants in `system`, behind the instructions."""
    can_think: bool = True
    """False where Anthropic refuses `thinking`: the calls that are answered began without it."""
    notes: list[str] = []
    """What was left out, or asked for and could not be had, and why: for people to read."""

    def request(self) -> Json:
        """The fields of the request that a history decides."""
        if self.api != "openai_responses":
            system = [{"type": "text", "text": text} for text in self.system]
            return {"messages": self.items, **({"system": system} if system else {})}
        previous = self.previous_response_id
        return {"input": self.items, **({"previous_response_id": previous} if previous else {})}


def history(
    chain: Sequence[State],
    api: Api,
    mode: Mode = "drop",
    *,
    task_id: str | None = None,
    model: str | None = None,
    host: str | None = None,
    store: bool = True,
    load: Load = reachable,
) -> History:
    """The conversation so far, for the next model call.

    `chain` are the runs from the first to the current one, whose input is part of it. With
    `task_id` it is the history of that sub-agent, in the last run. `model` is the one that is asked
    now and `host` where: what others sealed, these could not read. `store` says whether the
    provider keeps responses; where it doesn't, reasoning goes back sealed or not at all. `load`
    turns the URLs of our own blobs into ones that the provider can load.
    """
    check_api(api)
    if mode not in get_args(Mode):
        raise ValueError(f"no such mode: {mode!r}; there are {', '.join(get_args(Mode))}")
    tasks = [state.root for state in chain] if task_id is None else [chain[-1].tasks[task_id]]
    talk = Conversation()
    for task in tasks:
        if task is not None:
            talk.add(task)
    notes = Notes()
    load = notes.watch(load)
    if mode == "stored":
        rules = Rules(api, mode, model, store, load, host)
        found = _continued(talk, rules, notes)
        if isinstance(found, History):
            return found
        if found:
            notes.add(found)
        mode = "drop"
    rules = Rules(api, mode, model, store, load, host)
    if api == "openai_responses":
        items = openai_responses.render(talk, rules, notes)
        return History(api=api, mode=mode, items=items, notes=notes.all())
    if api == "openai_chat":
        items = openai_chat.render(talk, rules, notes)
        return History(api=api, mode=mode, items=items, notes=notes.all())
    made = anthropic_messages.render(talk, rules, notes)
    return History(
        api=api,
        mode=mode,
        items=made.messages,
        system=made.system,
        can_think=made.can_think,
        notes=notes.all(),
    )


def _continued(talk: Conversation, rules: Rules, notes: Notes) -> History | str:
    """Only what the provider does not know yet; or why it has to be told everything."""
    if rules.api != "openai_responses":
        return f"{rules.api} keeps no state: the whole conversation is sent."
    if not rules.store:
        return "Nothing is stored without `store`: the whole conversation is sent."
    index = _last_answer(talk)
    if index is None:
        return ""  # nothing could be remembered yet
    if not rules.owns(talk.entries[index]):
        return "The last answer is not the provider's: the whole conversation is sent."
    last = talk.entries[index]
    response = _finished_response(talk.last_task, last)
    if response is None:
        return "The last answer was cut short: the whole conversation is sent."
    items = openai_responses.results(talk, rules, response)
    if items is None:
        return "The last answer has calls that nobody can answer: the whole conversation is sent."
    if index + 1 < len(talk.entries) or not items:
        items += openai_responses.render(talk, rules, notes, index + 1)
    return History(
        api=rules.api,
        mode=rules.mode,
        items=items,
        previous_response_id=response,
        notes=notes.all(),
    )


def _last_answer(talk: Conversation) -> int | None:
    for index in range(len(talk.entries) - 1, -1, -1):
        if talk.entries[index].item_id:
            return index
    return None


def _finished_response(task: TaskNode | None, last: Entry) -> str | None:
    """The provider's response that a task ends with, if it has all of it and we have too.

    Only what an item itself says tells whether it is part of that response: an answer before may
    have ended with calls that nobody answered, and to name one of those would be an error.
    """
    assert task is not None  # the last entry's
    # Usage comes last, so a response that reported it was whole.
    response = _response_of(task.private)
    if response is None or not last.whole or last.response != response:
        return None
    made = (
        node
        for node in task.items.values()
        if not isinstance(node.item, ToolResult) and _response_of(node.private) == response
    )
    cut = any(node.is_open or node.superseded or node.item.status != "completed" for node in made)
    return None if cut else response


def _response_of(private: Json) -> str | None:
    provider = private.get("provider")
    response = provider.get("response_id") if isinstance(provider, dict) else None
    return response if isinstance(response, str) else None
