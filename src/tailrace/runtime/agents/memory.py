"""Compacts the history of a conversation that has grown too long.

    Agent("assistant", model=…, memory=Memory(max_tokens=50_000, keep_runs=6))

Before its first model call, a run measures the conversation that it continues. If that is above
`max_tokens`, the agent's model summarizes all runs but the last `keep_runs`. The event
`task.history.compacted` has the summary. This run and the runs that continue it send the summary
and the kept runs. Nothing leaves the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tailrace.core import events as ev
from tailrace.core.errors import InvalidValue
from tailrace.core.items import ErrorInfo
from tailrace.history.compaction import compaction, transcript
from tailrace.ports import Request
from tailrace.runtime.agents.sub_agents import UnloggedEmitter, pass_usage_on
from tailrace.runtime.model_calls.call import call_model
from tailrace.runtime.tasks.sub_agent_answer import message_texts
from tailrace.runtime.tasks.task import Task

if TYPE_CHECKING:
    from tailrace.runtime.agents.loop import Loop

SUMMARIZE = (
    "Summarize the conversation below for an assistant that continues it. Keep names, numbers, "
    "decisions, open questions, and what tools returned as far as it matters. Write the summary "
    "only."
)
"""The instructions of the model call that makes a summary."""

CHARACTERS_PER_TOKEN = 4
LONGEST = 8_000
"""Characters of a message or a result that the summary is made from."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a conversation an agent's model reads."""

    max_tokens: int = 100_000
    """Above it, older runs are compacted. Tokens are estimated: four characters each."""
    keep_runs: int = 4
    """The last runs of the thread, which are never compacted."""
    instructions: str = SUMMARIZE
    """The instructions of the model call that makes the summary."""

    def __post_init__(self) -> None:
        """Refuse negative numbers."""
        for name in ("max_tokens", "keep_runs"):
            if getattr(self, name) < 0:
                value = getattr(self, name)
                raise InvalidValue(f"Memory({name}={value!r}): write a number from 0 up.")


COMPACT = "compact"
"""The option of a run that compacts its conversation, its own input included, and ends."""


NO_SUMMARY = ErrorInfo(
    code="no_summary",
    message="The model did not answer with a complete text, so there is no summary. Compact again, "
    "or with another agent.",
)
"""Why nothing was compacted, if the model called a tool, or wrote nothing or not all."""


async def compact_all(loop: Loop) -> None:
    """Compact the whole conversation with the input of this run; the run ends without an answer."""
    task, memory = loop.task, loop.agent.memory or Memory()
    if task._sink.node.compacted is not None:  # a worker was lost behind it
        return
    asked = task.options.get("instructions")
    if isinstance(asked, str):
        memory = msgspec.structs.replace(memory, instructions=f"{memory.instructions}\n\n{asked}")
    made = await _summary(loop, memory, transcript(await loop.chain(), longest=LONGEST))
    if isinstance(made, str):
        task.emit(ev.HistoryCompacted(task_id=task.task_id, summary=made, run_id=task.run_id))
    else:
        task.fail(made)


async def compact(loop: Loop, memory: Memory) -> None:
    """Compact the older runs of the conversation, if it is too long."""
    task = loop.task
    chain = await loop.chain()
    end = len(chain) - 1 - memory.keep_runs
    found = compaction([state.root for state in chain])
    if end <= (found.first if found is not None else 0):
        return
    if len(transcript(chain)) <= memory.max_tokens * CHARACTERS_PER_TOKEN:
        return
    last = chain[end - 1].root
    made = await _summary(loop, memory, transcript(chain, end, longest=LONGEST))
    if not isinstance(made, str):
        message = f"The history could not be compacted: {made.message}"
        task.notice(message, {"code": "not_compacted"})
    elif last is not None:
        task.emit(ev.HistoryCompacted(task_id=task.task_id, summary=made, run_id=last.task_id))


async def _summary(loop: Loop, memory: Memory, text: str) -> str | ErrorInfo:
    """What the model makes of a conversation, or why it makes nothing."""
    task, agent = loop.task, loop.agent
    emitter = UnloggedEmitter(task._sink.emitter, f"{task.run_id}_summary", agent.name, text)
    child = Task(emitter, emitter.run_id)
    with task.at_work():
        outcome = await call_model(
            agent.model,
            Request(
                chain=[emitter.state],
                instructions=memory.instructions,
                tool_choice="none",
                store=loop.store,
            ),
            child,
            patience=agent.patience,
            drain=child.drain,
        )
    pass_usage_on(emitter, task)
    made = "".join(message_texts(child._sink.node)).strip()
    if outcome.status == "completed" and made:
        return made
    return outcome.error or NO_SUMMARY
