"""How much an agent may use before it is stopped.

    Agent("assistant", model=…, limits=Limits(turns=10, tokens=50_000, cost=0.50, seconds=120))

An agent that reaches a limit ends `incomplete`, with a reason that names the limit and its value:
`max_turns=10`. Tokens and cost count the agent and all sub-agents below it. A sub-agent has limits
of its own, and stops at those of the agents above it too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from tailrace.core.errors import InvalidValue
from tailrace.core.state import TaskNode


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent may use; None means no limit."""

    turns: int | None = 50
    """Model calls of the agent itself."""
    tokens: int | None = None
    """Input and output tokens of the agent and its sub-agents."""
    cost: float | None = None
    """US dollars that the agent and its sub-agents spend."""
    seconds: float | None = None
    """Time at work, over all workers of the run. Waiting for people does not count."""
    depth: int | None = 8
    """Levels of sub-agents below the agent. A deeper call gets an error that its model reads."""
    fan_out: int | None = 32
    """Calls of one model turn. Those beyond it get an error that the model reads."""
    mistakes: int | None = 3
    """Turns in a row in which each call is unknown or invalid, or the output has another form."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            may_be_0 = name in ("depth", "cost", "tokens", "mistakes")
            is_whole = name not in ("cost", "seconds")
            if value is None:
                continue
            kinds = (int,) if is_whole else (int, float)
            if type(value) not in kinds or not (0 < value < math.inf or (may_be_0 and value == 0)):
                number = "a whole number" if is_whole else "a number"
                bound = "from 0 up" if may_be_0 else "above 0"
                raise InvalidValue(f"Limits({name}={value!r}): write {number} {bound}, or None.")

    def spent(self, nodes: Sequence[TaskNode]) -> str | None:
        """The limit on tokens or cost that the tasks and their sub-agents have reached."""
        if self.tokens is not None and _sum(nodes, "input_tokens", "output_tokens") >= self.tokens:
            return named("tokens", self.tokens)
        if self.cost is not None and _billionths(_sum(nodes, "cost")) >= _billionths(self.cost):
            return named("cost", self.cost)
        return None


def _billionths(dollars: float) -> int:
    """Whole billionths: a sum of floats may miss the limit (eight times 0.1 is less than 0.8)."""
    return round(dollars * 1_000_000_000)


def named(limit: str, value: float) -> str:
    """How a limit is named in a reason or an error."""
    whole = int(value) if value == int(value) else value
    return f"max_{limit}={whole}"


def _sum(nodes: Sequence[TaskNode], *names: str) -> float:
    """What the tasks and their sub-agents have used, as far as it is known."""
    used = [node.usage.fields for node in nodes if node.usage is not None]
    return float(sum(fields.get(name, 0) for fields in used for name in names))
