"""What an agent reads of its sub-agent: the answer or the error, and the cited references."""

from __future__ import annotations

from tailrace.core import events as ev
from tailrace.core.event_sink import Sink
from tailrace.core.items import ErrorInfo, Message
from tailrace.core.references import Imported, ReferencePool, import_citations
from tailrace.core.state import TaskNode, TextNode


def message_texts(task: TaskNode) -> list[str]:
    """The texts of a task's messages, in order."""
    return [
        part.text
        for node in task.output()
        if isinstance(node.item, Message)
        for _, part in sorted(node.parts.items())
        if isinstance(part, TextNode)
    ]


def imported_answer(child: TaskNode, pool: ReferencePool) -> Imported:
    """A sub-agent's answer, with the references that it cites under numbers of its caller."""
    contents = (node.private.get("content") for node in child.output())
    returned = [content for content in contents if content is not None]
    return import_citations(message_texts(child), returned, pool)


def no_answer(child: TaskNode) -> ErrorInfo:
    """What the parent's model reads of a sub-agent that ended without an answer."""
    why = f": {child.reason}" if child.reason else "."
    return ErrorInfo(
        code=child.status or "incomplete", message=f"The sub-agent ended without an answer{why}"
    )


def announce_imports(parent: Sink, child_id: str, imported: Imported) -> None:
    """Say which references of a sub-agent have a number in its caller's task."""
    for number, source in imported.imports:
        parent.emit(
            ev.ReferenceImported(
                task_id=parent.task_id,
                reference_id=number,
                source_task_id=child_id,
                source_reference_id=source,
            )
        )
