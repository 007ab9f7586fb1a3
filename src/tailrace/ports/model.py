"""What the runtime needs from a model, and the request that it sends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from tailrace.core.fold import State
from tailrace.core.items import Usage
from tailrace.history import Api, Load, Mode, reachable

TOOL_CHOICES = ("auto", "none", "required")
"""The values of `tool_choice` that name no tool."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call; `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    strict: bool = False
    """Whether the provider must enforce the schema."""
    allowed_callers: tuple[str, ...] = ()
    """For Anthropic: `direct`, and the code execution tools whose code may call it; () for none."""


class OutputSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON Schema that the model's answer must follow."""

    schema: dict[str, Any]
    name: str = "answer"
    strict: bool = True


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model should think. Few models know all values."""

Summary = Literal["auto", "concise", "detailed"]
"""How OpenAI summarizes reasoning. For Anthropic each value asks for visible thinking."""


def _ignore(_note: str) -> None:
    """Drop a note."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A model call, independent of the provider.

    The conversation is a `chain` of runs, oldest first, or an `input` in the format of the model's
    API. With `task_id` it is the conversation of that sub-agent of the last run.
    """

    chain: Sequence[State] = ()
    task_id: str | None = None
    input: list[dict[str, Any]] | None = None
    instructions: str | None = None
    tools: Sequence[ToolSpec | dict[str, Any]] = ()
    """Functions, or a provider's own tools as JSON."""
    tool_choice: str | None = None
    """`auto`, `none`, `required` (any tool), or the name of the tool to call."""
    parallel_calls: bool | None = None
    output: OutputSchema | None = None
    effort: Effort | None = None
    """How much to think; None leaves it to the provider."""
    summary: Summary | None = None
    """How reasoning is summarized; None leaves it to the provider."""
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    history: Mode = "drop"
    store: bool | None = None
    """Whether the provider stores the response; None: unless `history` is `encrypted`."""
    load: Load = reachable
    options: dict[str, Any] = {}
    """The provider's own request fields; None removes a field."""
    attempt: int = 1
    """The number of this try of the call, from 1."""
    note: Callable[[str], None] = _ignore
    """Called with each thing that the history left out, and why."""


class Model(Protocol):
    """Turns a request into the raw events of a provider's API.

    It makes one try. Timeouts between events and retries are the caller's (`runtime.model_calls`).
    A model may have a `host` (`host_of`): ids and sealed reasoning are valid at that host only.
    """

    @property
    def name(self) -> str:
        """The model's name at its provider."""
        ...

    @property
    def api(self) -> Api:
        """The API whose events it returns."""
        ...

    def stream(self, request: Request) -> AsyncIterator[list[str]]:
        """The answer's events as they arrive, not decoded; an empty list is a heartbeat.

        Raises `ProviderError` with a message that holds no secret.
        """
        ...

    def cost(self, usage: Usage) -> float | None:
        """The cost of a call in US dollars; None if the price is unknown."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


def host_of(model: Model) -> str | None:
    """The host that a model calls, such as `api.openai.com`; None if unknown."""
    host = getattr(model, "host", None)
    return host if isinstance(host, str) and host else None
