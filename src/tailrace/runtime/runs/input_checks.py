"""Checks the input of a run before it is stored. After a refused answer its request stays open.

The arguments of an approval are checked by the tool itself, as this process declares it. The call
may be a sub-agent's, at any depth, and another agent may speak by now. A tool that is known only at
run time (of an MCP server, for example) checks them when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tailrace.core.codec import check_value, decode_event
from tailrace.core.errors import CallerError, NotFound
from tailrace.core.events import TaskInputReceived, TaskInputRequired
from tailrace.core.items import InputRequest, ToolCall
from tailrace.core.state import TaskNode
from tailrace.core.values import dict_of
from tailrace.ports import Store, Trimmed
from tailrace.runtime.agents.agent import Agent
from tailrace.runtime.agents.handoff import handed_to
from tailrace.runtime.agents.sub_agents import AgentTool
from tailrace.runtime.followers.follow import Reader
from tailrace.runtime.runs.quota import LimitReached
from tailrace.runtime.tools.json_schema import Checker
from tailrace.runtime.tools.parameters import InvalidArguments
from tailrace.runtime.tools.tool import Tool

UNREAD_BYTES = 16 * 1024 * 1024
"""How much input of a run may be unread before more is refused."""

LETTER_BYTES = 16 * 1024
"""What an input counts at least, so that small inputs are bounded, too."""

_ASKED = msgspec.json.encode("task.input_required")


async def check_input(reader: Reader, agents: Mapping[str, Any], run_id: str, value: Any) -> None:
    """Refuse an answer that fits no request of the run. Other values are for the agent to judge."""
    check_value(value)
    if isinstance(value, dict) and "request_id" in value:
        try:
            msgspec.convert({**value, "task_id": run_id}, TaskInputReceived)
        except msgspec.ValidationError as error:
            raise CallerError(f"The answer has a wrong field: {error}. Correct it.") from error
        await _check_asked(reader, agents, run_id, value)
    elif isinstance(value, dict) and "approved" in value:
        await _check_addressed(reader, run_id)


async def check_unread(store: Store, run_id: str, value: Any) -> None:
    """Refuse input that its agent does not read: its worker holds it in memory.

    Answers have twice the room: other values must not keep a run from its answer.
    """
    unread = await store.unread(run_id)
    room = UNREAD_BYTES * (2 if isinstance(value, dict) and "request_id" in value else 1)
    if unread.bytes + unread.letters * LETTER_BYTES <= room:
        return
    info = await store.info(run_id)
    if info is not None and info.ended_at is None:
        raise LimitReached(
            f"Run {run_id} has {unread.letters} inputs that its agent has not read. "
            "Wait, or cancel the run."
        )


async def was_answered(reader: Reader, run_id: str, value: Any) -> bool:
    """Whether this answers a request of an ended run again; `NotFound` if the run is gone."""
    look = await reader.look(run_id)
    request_id = dict_of(value).get("request_id")
    return any(request_id in task.answers for task in look.state.tasks.values())


async def _check_addressed(reader: Reader, run_id: str) -> None:
    """Raise `CallerError` for an approval without its request, while requests are open."""
    pending = [request.id for _, request in (await reader.look(run_id)).state.requests()]
    if pending:
        raise CallerError(
            "The answer names no request. Send the `request_id` that it answers: "
            f"{', '.join(pending[:10])}.",
            param="request_id",
        )


async def _check_asked(
    reader: Reader, agents: Mapping[str, Any], run_id: str, answer: dict[str, Any]
) -> None:
    """Raise `NotFound` for a request that the run never made, `CallerError` for a wrong value.

    An answer to a request that was answered before is accepted: a client may send it again.
    """
    request_id = answer["request_id"]
    look = await reader.look(run_id)
    pending = {request.id: (task, request) for task, request in look.state.requests()}
    if request_id in pending:
        _check_answer(agents.get(look.info.agent), *pending[request_id], answer)
        return
    name, seen = msgspec.json.encode(request_id), 0
    try:
        while found := await reader.read_lines(run_id, seen):
            seen = found[-1].last_seq
            # Most lines need no decoding: a request of this id has both texts.
            shortlist = [lines for lines in found if name in lines.raw and _ASKED in lines.raw]
            if any(_asks(public, request_id) for lines in shortlist for public in lines.publics()):
                return
    except Trimmed:  # the run has ended, and no log says what it asked
        return
    shown = ", ".join(list(pending)[:10]) or "none"
    raise NotFound(
        f"Run {run_id} has no request {request_id[:80]!r}. Its open requests: {shown}.",
        param="request_id",
    )


def _asks(public: bytes, request_id: str) -> bool:
    """Whether an event, as its public JSON, is a question with this id."""
    if _ASKED not in public:
        return False
    event = decode_event(public)
    return isinstance(event, TaskInputRequired) and any(
        request.id == request_id for request in event.requests
    )


def _check_answer(root: Any, task: TaskNode, request: InputRequest, answer: dict[str, Any]) -> None:
    """Raise `CallerError` for an answer that does not fit its request.

    `root` is the agent of the run, and `task` the task that asks.
    """
    approved, value = answer.get("approved"), answer.get("value")
    is_of_call = request.kind == "approval" and request.call_id is not None
    if is_of_call and approved is None:
        raise CallerError(
            f"Request {request.id} is an approval: send `approved`, true or false.",
            param="approved",
        )
    if is_of_call and not isinstance(value, dict | None):
        raise CallerError(
            f"The `value` of an approval replaces the arguments of {request.name or 'the call'}: "
            "send them all as a JSON object, or leave `value` out.",
            param="value",
        )
    if approved is False or (value is None and request.kind == "approval"):
        return
    if request.kind == "input" and request.call_id is not None and "value" not in answer:
        raise CallerError(
            f"Request {request.id} asks for the result of {request.name or 'a call'}: send "
            "`value`, which may be null, or `approved` = false.",
            param="value",
        )
    if is_of_call and isinstance(value, dict):
        _check_arguments(root, task, request, value)
    if request.schema is None:
        return
    try:
        checker = Checker(request.schema)
    except CallerError:  # the run that asks decides
        return
    problem = checker.problem(value, "the value")
    if problem is not None:
        raise CallerError(
            f"The answer to request {request.id} does not fit its schema: "
            f"{problem.removesuffix('.')}. Send another value.",
            param="value",
        )


def _check_arguments(
    root: Any, task: TaskNode, request: InputRequest, arguments: dict[str, Any]
) -> None:
    """Raise `CallerError` for arguments that the tool of the call does not take."""
    agent = _speaker(root, task)
    tool = _tool(agent, task, request.call_id)
    if tool is None:
        return
    try:
        converted = tool.validate(arguments)
        if isinstance(tool, AgentTool):
            tool.chosen(converted, agent)
    except InvalidArguments as error:
        raise CallerError(str(error), param="value") from None
    except Exception:  # noqa: BLE001 - a type of the tool's own may raise anything
        return  # the run decides


def _speaker(root: Any, task: TaskNode) -> Any:
    """The agent that speaks in a task; None if it is not declared here."""
    found = root
    if task.parent is not None:
        tool = _tool(_speaker(root, task.parent), task.parent, task.call_id)
        agents = tool.agents if isinstance(tool, AgentTool) else []
        name = task.facts.get("agent")
        found = next((agent for agent in agents if agent.name == name), None)
    if not isinstance(found, Agent):
        return None
    return handed_to(found, task.speaker) if task.switches else found


def _tool(agent: Any, task: TaskNode, call_id: str | None) -> Tool | None:
    """The tool that answers a call of this agent, as far as it is declared."""
    call = task.calls.get(call_id or "")
    if call is None or agent is None:
        return None
    assert isinstance(call.item, ToolCall)
    name, kind = call.item.name, call.item.kind
    named = (tool for tool in agent.tools if isinstance(tool, Tool) and tool.name == name)
    found: Tool | None = next(named, None)
    return found or agent.handlers.get(name) or agent.handlers.get(kind)
