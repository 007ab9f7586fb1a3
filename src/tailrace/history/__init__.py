"""The input of the next model call: from a chain of runs to a request that a provider accepts.

    sent = history([first, second, current], "openai_responses", "encrypted")
    client.responses.create(model=…, **sent.request())

It is pure and takes linear time. The history of a task has its own items only, never those of a
sub-agent. `sanitize` repairs a list from another source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec

from tailrace.core.errors import CallerError
from tailrace.core.fold import State
from tailrace.core.items import ToolResult
from tailrace.core.state import TaskNode
from tailrace.core.values import Json, dict_of, text_or_none
from tailrace.history import anthropic_messages, openai_chat, openai_responses
from tailrace.history.compaction import compaction, read_chain
from tailrace.history.content import Load, reachable
from tailrace.history.entries import Conversation, Entry
from tailrace.history.options import Api, Mode, Notes, Rules, check_api
from tailrace.history.sanitize_items import sanitize

__all__ = ["Api", "History", "Load", "Mode", "history", "reachable", "sanitize"]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The request. `items` is its `input` or its `messages`."""

    api: Api
    mode: Mode
    """The mode that was used; `notes` has the reason if it is not the wanted mode."""
    items: list[Json]
    previous_response_id: str | None = None
    system: list[str] = []
    """Messages of the input that belong into Anthropic's `system`, after the instructions."""
    can_think: bool = True
    """False where Anthropic refuses `thinking`: the open calls were made without it."""
    container: str | None = None
    """Where Anthropic's tools run that wait for the results of our tools."""
    notes: list[str] = []
    """What was left out or is not possible, and why, as sentences."""

    def request(self) -> Json:
        """The fields of the request that depend on the history."""
        if self.api != "openai_responses":
            system = [{"type": "text", "text": text} for text in self.system]
            fields = {"messages": self.items, "system": system, "container": self.container}
            return {name: value for name, value in fields.items() if value or name == "messages"}
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

    `chain` holds the runs from the first to the current run, with its input. With `task_id` it is
    the history of that sub-agent of the last run. `model` and `host` are those of the next call:
    they cannot read what others sealed. `store`: the provider keeps responses; if not, reasoning
    goes back sealed or not at all. `load` turns the URL of a blob into a URL for the provider.
    """
    check_api(api)
    if mode not in get_args(Mode):
        raise CallerError(f"Unknown mode {mode!r}; use {', '.join(get_args(Mode))}.")
    tasks = [state.root for state in chain] if task_id is None else [chain[-1].tasks[task_id]]
    found = compaction(tasks) if task_id is None else None
    conversation = read_chain(tasks, found)
    notes = Notes()
    if conversation.names_items:
        notes.left_out("an `item_reference`", "the input must hold the item itself")
    load = notes.watch(load)
    if mode == "stored":
        rules = Rules(api, mode, model, store, load, host)
        # A response from before the summary remembers what the summary stands for.
        is_older = found is not None and conversation.last_task in tasks[: found.at]
        continued = "" if is_older else _continued(conversation, rules, notes)
        if isinstance(continued, History):
            return continued
        if continued:
            notes.add(continued)
        mode = "drop"
    rules = Rules(api, mode, model, store, load, host)
    if api == "openai_responses":
        items = openai_responses.render(conversation, rules, notes)
        return History(api=api, mode=mode, items=items, notes=notes.all())
    if api == "openai_chat":
        items = openai_chat.render(conversation, rules, notes)
        return History(api=api, mode=mode, items=items, notes=notes.all())
    made = anthropic_messages.render(conversation, rules, notes)
    return History(
        api=api,
        mode=mode,
        items=made.messages,
        system=made.system,
        can_think=made.can_think,
        container=made.container,
        notes=notes.all(),
    )


def _continued(conversation: Conversation, rules: Rules, notes: Notes) -> History | str:
    """The items that the provider does not store yet, or why all have to be sent."""
    if rules.api != "openai_responses":
        return f"{rules.api} keeps no state: the whole conversation is sent."
    if not rules.store:
        return "Nothing is stored without `store`: the whole conversation is sent."
    index = _last_answer(conversation)
    if index is None:
        return ""  # the provider has stored nothing yet
    if not rules.owns(conversation.entries[index]):
        return "The last answer is not the provider's: the whole conversation is sent."
    last = conversation.entries[index]
    response = _finished_response(conversation.last_task, last)
    if response is None:
        return "The last answer was cut short: the whole conversation is sent."
    items = openai_responses.results(conversation, rules, response)
    if items is None:
        return "The last answer has calls that cannot be answered: the whole conversation is sent."
    if index + 1 < len(conversation.entries) or not items:
        items += openai_responses.render(conversation, rules, notes, index + 1)
    return History(
        api=rules.api,
        mode=rules.mode,
        items=items,
        previous_response_id=response,
        notes=notes.all(),
    )


def _last_answer(conversation: Conversation) -> int | None:
    for index in range(len(conversation.entries) - 1, -1, -1):
        if conversation.entries[index].item_id:
            return index
    return None


def _finished_response(task: TaskNode | None, last: Entry) -> str | None:
    """The provider's response that a task ends with, if it is complete on both sides.

    Each item names its response. An earlier response may have calls without an answer; the
    provider refuses a request that continues it.
    """
    assert task is not None  # the last entry's
    # Usage comes last, so a response with usage is complete.
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
    return text_or_none(dict_of(private.get("provider")).get("response_id"))
