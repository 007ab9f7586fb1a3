"""Conversations, and the next request to each API: see `tests/cases.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace.core.codec import decode_event
from tailrace.core.events import Private, TaskCreated
from tailrace.core.fold import State
from tailrace.history import Api, History, Mode, history
from tests.cases import cases, check

ROOT = Path(__file__).parent / "cases"
REQUESTS: list[tuple[Api, Mode, bool]] = [
    ("openai_responses", "drop", True),
    ("openai_responses", "drop", False),
    ("openai_responses", "encrypted", True),
    ("openai_responses", "encrypted", False),
    ("openai_responses", "stored", True),
    ("anthropic_messages", "drop", True),
    ("anthropic_messages", "encrypted", True),
    ("openai_chat", "drop", True),
    ("openai_chat", "encrypted", True),
]


@pytest.mark.parametrize(
    "case", cases(ROOT, given="conversation.jsonl"), ids=lambda path: str(path.name)
)
def test_a_conversation_becomes_the_expected_requests(case: Path) -> None:
    chain = runs_of(case / "conversation.jsonl")
    found: dict[str, Any] = {}
    names: dict[str, str] = {}
    for api, mode, store in REQUESTS:
        value = shown(history(chain, api, mode, store=store), mode)
        name = f"{api} {mode}" + ("" if store else " without store")
        found[name] = names.setdefault(json.dumps([api, value]), name)
        if found[name] == name:
            found[name] = value
        else:
            found[name] = f"as {found[name]}"
    check(case, found, depth=3)


def runs_of(path: Path) -> list[State]:
    """The runs of a conversation: each begins with the creation of a task without a parent."""
    chain: list[State] = []
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        value = json.loads(line)
        event = decode_event(json.dumps(value["event"]).encode())
        if isinstance(event, TaskCreated) and event.parent_task_id is None:
            chain.append(State())
        private = value.get("private")
        chain[-1].apply(event, private and msgspec.convert(private, Private))
    return chain


def shown(made: History, mode: Mode) -> dict[str, Any]:
    """The request, and what is unusual about it."""
    value: dict[str, Any] = {"notes": made.notes} if made.notes else {}
    if made.mode != mode:
        value["mode"] = made.mode
    if not made.can_think:
        value["can_think"] = False
    return {**value, **made.request()}
