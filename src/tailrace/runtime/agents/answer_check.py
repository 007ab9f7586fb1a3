"""Reads how a model call ended, and checks the answer: guardrails, then the type of the output.

An answer that is refused is superseded, and the model is asked again with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.core.items import Message, ToolCall, ToolResult
from tailrace.core.state import ItemNode, TextNode
from tailrace.ingest.base import Outcome
from tailrace.runtime.agents import takeover
from tailrace.runtime.agents.guardrails import refusal
from tailrace.runtime.agents.limits import named
from tailrace.runtime.agents.output_types import InvalidOutput
from tailrace.runtime.tasks.task import CALL_CANCELLED, Task, supersede

if TYPE_CHECKING:
    from tailrace.runtime.agents.loop import Loop

BROKEN_CALL = ("truncated_tool_call", "incomplete_call")
"""How readers name an answer that the provider ended, with a call whose arguments broke off."""


def read_outcome(loop: Loop, outcome: Outcome, made: list[ItemNode]) -> bool:
    """What follows from a model call; whether the answer is there."""
    task = loop.task
    if outcome.status == "completed":
        return True
    whole = [node.item for node in made if node.item.status == "completed"]
    partial = [node.id for node in made if node.item.status == "incomplete"]
    has_calls = any(isinstance(item, ToolCall) and item.executor != "provider" for item in whole)
    if outcome.reason in BROKEN_CALL and not has_calls:
        if made:
            supersede(task, [node.id for node in made], "invalid_calls")
        loop.count_turn(mistakes=True)
        loop.correction = "Your last call broke off. Make it again, with all its arguments."
        return False
    if outcome.status == "incomplete" and outcome.reason not in BROKEN_CALL:
        if outcome.reason != "pause_turn":
            loop.stop(outcome.reason or "incomplete")
        return False
    if outcome.status == "cancelled":
        task.cancel(outcome.reason or CALL_CANCELLED.message)
        return False
    error = outcome.error
    code = error.code if error is not None else "cut"
    if has_calls:
        if partial:
            supersede(task, partial, code)
        return True
    if outcome.status == "cut" and any(isinstance(item, Message) for item in whole):
        if not partial:
            return True
        loop.stop("cut")
    elif error is not None:
        task.fail(error)
    else:
        task.fail("cut", "The provider's stream broke off.")
    return False


async def accepts_answer(loop: Loop) -> bool:
    """Check the answer; False when the model has to answer again."""
    task, agent = loop.task, loop.agent
    text = _last_text(task)
    refused = await refusal("output_guardrail", agent.output_guardrails, text, loop.context)
    if refused is not None:
        supersede(task, _last_turn(task), refused.code)
        task.fail(refused)
        return True
    output = loop.output
    if output is None or text is None or task._sink.node.structured_output is not None:
        return True
    try:
        value = output.read(text)
    except InvalidOutput as error:
        return _refuse_output(loop, str(error))
    task.output(value, output.schema.name)
    return True


def _refuse_output(loop: Loop, why: str) -> bool:
    loop.mistakes += 1
    most = loop.limits.mistakes
    if most is not None and loop.mistakes > most:
        loop.task.fail(
            "invalid_output",
            f"The model's answer never had the form of the output ({named('mistakes', most)}):"
            f" {why}",
        )
        return True
    supersede(loop.task, _last_turn(loop.task), "invalid_output")
    loop.correction = (
        f"Your last answer was refused: {why} Answer again, with JSON of the given schema only."
    )
    return False


def _last_turn(task: Task) -> list[str]:
    """The items behind the last result of a tool: what the model put out last."""
    found: list[str] = []
    root = task._sink.node
    for node in reversed(root.output()):
        if isinstance(node.item, ToolResult) and not takeover.is_providers(root, node.item):
            break
        found.append(node.id)
    return found[::-1]


def _last_text(task: Task) -> str | None:
    """The text of the last message, if the model put one out; None for a refusal."""
    for node in reversed(task._sink.node.output()):
        if isinstance(node.item, Message):
            parts = [part for _, part in sorted(node.parts.items()) if isinstance(part, TextNode)]
            if any(part.kind == "refusal" for part in parts):
                return None
            return "".join(part.text for part in parts)
    return None
