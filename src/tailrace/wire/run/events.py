"""The events of the `run` format. PROTOCOL.md, section 9.1.

The encoder writes them as dicts, since most are deltas. A test reads its frames with these types.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType


class RunFrame(msgspec.Struct, kw_only=True, tag_field="type", rename="camel"):
    """Base of the events of the `run` format."""

    thread_id: str
    run_id: str


class NoData(msgspec.Struct):
    """An empty object."""


class Failure(msgspec.Struct):
    """What went wrong."""

    code: str
    message: str


class WorkerAgentOutput(msgspec.Struct):
    """A message as an answer, with the fields of the structured output that has them."""

    status: Literal["success", "partial_success", "failed"]
    answer: str
    key_points: list[str]
    result_type: Literal["execution_report", "clarification", "error_report", "unknown"]
    suggested_actions: list[str]
    error: Failure | None
    ui_hints: dict[str, Any] | UnsetType = UNSET


class Attachment(msgspec.Struct):
    """A file of a result that is stored in a bucket."""

    bucket: str
    path: str
    mime_type: str
    url: str


class ToolAgentOutput(msgspec.Struct):
    """The result of a tool."""

    tool_name: str
    tool_call_id: str
    tool_call_args: dict[str, Any] | None
    status: Literal["success", "failed"]
    result_summary: str
    ui_hints: dict[str, Any] | None
    attachments: list[Attachment] | None


class RunUsage(msgspec.Struct, kw_only=True, rename="camel"):
    """The usage so far; null where no model reported it."""

    model: str | UnsetType | None = UNSET
    input_tokens: int | UnsetType | None = UNSET
    output_tokens: int | UnsetType | None = UNSET
    cost: float | UnsetType | None = UNSET
    latency_ms: float | UnsetType | None = UNSET


class EndData(RunUsage, kw_only=True):
    """The end of a run: an incomplete run has a `status` and a `reason`."""

    status: Literal["incomplete"] | UnsetType = UNSET
    reason: str | UnsetType | None = UNSET


class ErrorData(RunUsage, kw_only=True):
    """The end of a run that failed or was cancelled."""

    message: str


class StepData(msgspec.Struct, kw_only=True, rename="camel"):
    """A step; `status` is that of a step which was cut."""

    step_name: str
    status: Literal["incomplete"] | UnsetType = UNSET


class SwitchData(msgspec.Struct):
    """The agent that speaks now."""

    agent: str
    reason: str | None


class MessageData(msgspec.Struct, kw_only=True, rename="camel"):
    """A message begins."""

    message_id: str
    role: str
    stage: str


class DeltaData(msgspec.Struct, kw_only=True, rename="camel"):
    """A piece of a message's text."""

    message_id: str
    delta: str
    stage: str


class MessageEndData(RunUsage, kw_only=True, rename="camel"):
    """A message has ended."""

    message_id: str
    role: str
    stage: str
    worker_agent_output: WorkerAgentOutput


class CallData(msgspec.Struct, kw_only=True, rename="camel"):
    """A call of a tool."""

    message_id: str
    tool_call_id: str
    tool_name: str
    stage: str


class ArgumentsData(CallData, kw_only=True):
    """The arguments of a call; null if they are cut or not an object."""

    args: dict[str, Any] | None


class ResultData(CallData, kw_only=True, rename="camel"):
    """The result of a call."""

    tool_agent_output: ToolAgentOutput


class GapData(msgspec.Struct):
    """Why the events before are missing."""

    reason: str


class RunStarted(RunFrame, kw_only=True, tag="run.started"):
    """The run begins."""

    data: NoData


class RunFinished(RunFrame, kw_only=True, tag="run.finished"):
    """The run has ended with an answer, whole or incomplete."""

    data: EndData


class RunError(RunFrame, kw_only=True, tag="run.error"):
    """The run has failed, or was cancelled."""

    data: ErrorData


class RunStepStart(RunFrame, kw_only=True, tag="step.start"):
    """A step begins."""

    data: StepData


class RunStepFinish(RunFrame, kw_only=True, tag="step.finish"):
    """A step has ended."""

    data: StepData


class RunAgentSwitched(RunFrame, kw_only=True, tag="agent.switched"):
    """Another agent speaks from here on."""

    data: SwitchData


class RunTextStart(RunFrame, kw_only=True, tag="text.start"):
    """A message begins."""

    data: MessageData


class RunTextDelta(RunFrame, kw_only=True, tag="text.delta"):
    """A piece of a message."""

    data: DeltaData


class RunTextEnd(RunFrame, kw_only=True, tag="text.end"):
    """A message has ended."""

    data: MessageEndData


class RunToolStart(RunFrame, kw_only=True, tag="tool.start"):
    """A call begins."""

    data: CallData


class RunToolArgs(RunFrame, kw_only=True, tag="tool.args"):
    """The arguments of a call."""

    data: ArgumentsData


class RunToolEnd(RunFrame, kw_only=True, tag="tool.end"):
    """The arguments of a call have ended."""

    data: CallData


class RunToolResult(RunFrame, kw_only=True, tag="tool.result"):
    """The result of a call is complete."""

    data: ResultData


class RunGap(RunFrame, kw_only=True, tag="run.gap"):
    """The log no longer has the events before this place. The state follows in few events."""

    data: GapData


RunFormatEvent: TypeAlias = (
    RunStarted
    | RunFinished
    | RunError
    | RunStepStart
    | RunStepFinish
    | RunAgentSwitched
    | RunTextStart
    | RunTextDelta
    | RunTextEnd
    | RunToolStart
    | RunToolArgs
    | RunToolEnd
    | RunToolResult
    | RunGap
)
"""Any event of the format."""
