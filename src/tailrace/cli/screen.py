"""Shows a run while it runs: live in a terminal, as lines in a pipe, or as JSON for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Annotated, Any, Self

import typer

from tailrace.cli.durations import Durations, seconds
from tailrace.core.codec import encode_event
from tailrace.core.events import (
    TERMINAL,
    AgentSwitched,
    AnyEvent,
    Notice,
    OutputItemDone,
    Progress,
    StructuredOutputDone,
    TaskAttempt,
    TaskCreated,
    TaskInputReceived,
    TaskInputRequired,
)
from tailrace.core.fold import State
from tailrace.core.items import Message, Reasoning, ToolCall, ToolResult
from tailrace.core.run_object import client_view
from tailrace.core.values import json_text

AsJson = Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")]

EXIT_FAILED = 1
"""The exit code of a run that ended without an answer."""

EXIT_INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells count it."""

EXIT_WAITING = 3
"""The exit code of a run that waits for an answer of a person."""


class Screen(AbstractContextManager["Screen"]):
    """A run so far. Subclasses show it."""

    def __init__(self) -> None:
        self.state = State()
        self._durations = Durations()

    def show(self, events: Iterable[AnyEvent]) -> None:
        """Show these events."""
        for event in events:
            self.state.absorb(event)
            self._durations.read(event)
            self._event(event)
        self._drawn()

    def show_open(self) -> None:
        """Show what has not ended, if it is not shown yet."""

    def note(self, line: str) -> None:
        """Show a line that is not part of the run."""
        typer.echo(line, err=True)

    def prompt(self, line: str) -> None:
        """Show what the reader can press now; an empty line takes it away."""
        if line:
            self.note(line)

    @property
    def _took(self) -> dict[str, str]:
        return {key: seconds(time) for key, time in self._durations.took.items()}

    @property
    def code(self) -> int:
        """The exit code of the command: 0 if the run completed."""
        root = self.state.root
        return 0 if root is not None and root.status == "completed" else EXIT_FAILED

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the screen as it is."""

    def _event(self, event: AnyEvent) -> None:
        """Show one event."""

    def _drawn(self) -> None:
        """Show the state after some events."""


def open_screen(*, as_json: bool = False) -> Screen:
    """The screen that fits the output."""
    if as_json:
        return JsonScreen()
    return LiveScreen() if sys.stdout.isatty() else LineScreen()


class JsonScreen(Screen):
    """A line of JSON for each event."""

    def _event(self, event: AnyEvent) -> None:
        sys.stdout.buffer.write(encode_event(event) + b"\n")

    def _drawn(self) -> None:
        sys.stdout.flush()


class LineScreen(Screen):
    """A line for each finished item, for pipes and logs."""

    _last_text = ""

    def _event(self, event: AnyEvent) -> None:
        self._print(getattr(event, "task_id", ""), self._line(event))

    def _print(self, task_id: str, text: str) -> None:
        from tailrace.terminal import printable

        indent = "  " * self._depth(task_id)
        for line in printable(text).splitlines():
            typer.echo(indent + line)

    def _drawn(self) -> None:
        sys.stdout.flush()

    def _depth(self, task_id: str) -> int:
        node = self.state.tasks.get(task_id)
        depth = 0
        while node is not None and node.parent is not None:
            node, depth = node.parent, depth + 1
        return depth

    def _line(self, event: AnyEvent) -> str:
        match event:
            case TaskCreated():
                return f"> {event.agent or 'run'}: {_text(event.input)}"
            case Notice():
                return f"! {event.message}"
            case AgentSwitched():
                return _switched(event)
            case TaskAttempt():
                return _attempt(event)
            case Progress():
                share = (
                    f" {event.current / event.total:.0%}" if event.current and event.total else ""
                )
                return f"… {event.message or ''}{share}"
            case TaskInputRequired():
                return "\n".join(
                    f"? {request.message or ''} ({request.id})" for request in event.requests
                )
            case TaskInputReceived():
                return _changed(event)
            case StructuredOutputDone() if _text(event.value) != self._last_text:
                return f"= {_text(event.value)}"
            case OutputItemDone():
                return self._item(event.task_id, event.item)
        root = self.state.root
        if isinstance(event, TERMINAL) and root is not None and event.task_id == root.task_id:
            return self._ending()
        return ""

    def show_open(self) -> None:
        """Print the items that have not ended, and the state of the run."""
        for task in self.state.tasks.values():
            for node in task.output():
                if node.is_open:
                    self._print(task.task_id, self._item(task.task_id, node.item))
        root = self.state.root
        if root is not None and not root.ended:
            self._print(root.task_id, self._ending())
        self._drawn()

    def _ending(self) -> str:
        from tailrace.terminal import draw_end

        view = client_view(self.state)
        end = str(draw_end(view, self._took.get(view["task_id"])))
        return f"✗ {view['error']['message']}\n{end}" if "error" in view else end

    def _item(self, task_id: str, item: Any) -> str:
        task = self.state.tasks.get(task_id)
        shown: dict[str, Any] = {}
        if task is not None:
            from tailrace.core.run_object import show_own

            found = [node for node in task.output() if node.item.id == item.id]
            shown = show_own(found[0]) if found else {}
        match item:
            case Reasoning():
                thoughts = shown.get("summary") or shown.get("reasoning_text") or []
                return "~ " + " ".join(part["text"] for part in thoughts) if thoughts else ""
            case ToolCall():
                return f"→ {item.name} {shown.get('arguments', '')}"
            case ToolResult():
                if item.error is not None:
                    return f"✗ {item.error.message}"
                blocks = map(_block, shown.get("block_list", ()))
                return "\n".join(f"← {line}" for line in blocks)
            case Message():
                self._last_text = "\n".join(map(_block, shown.get("block_list", ())))
                return self._last_text
        return ""


class LiveScreen(Screen):
    """Finished parts are printed once; open parts are drawn again below them."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__()
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._printed: set[str] = set()
        self._rest_until = 0.0
        self._is_stale = False
        self._prompt = ""

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave what was drawn on the screen."""
        if self._is_stale:
            self._draw()
        self._live.stop()

    def _event(self, event: AnyEvent) -> None:
        from tailrace.terminal import printable

        if isinstance(event, Notice):
            self.note(printable(f"! {event.message}"))
        elif isinstance(event, AgentSwitched):
            self.note(printable(_switched(event)))
        elif isinstance(event, TaskAttempt):
            self.note(printable(_attempt(event)))
        elif isinstance(event, TaskInputReceived) and (line := _changed(event)):
            self.note(printable(line))

    def note(self, line: str) -> None:
        """Print a line above the open parts."""
        from rich.text import Text

        self._console.print(Text(line, style="yellow"))

    def prompt(self, line: str) -> None:
        """Draw the line below the open parts."""
        if line != self._prompt:
            self._prompt = line
            self._draw()

    def _drawn(self) -> None:
        """Draw, but at most a third of the time: a long run takes long to draw."""
        self._is_stale = True
        waits = any(task.requests for task in self.state.tasks.values())
        began = time.perf_counter()
        if self.state.root is not None and (waits or began >= self._rest_until):
            self._draw()
            ended = time.perf_counter()
            self._rest_until = ended + 2 * (ended - began)

    def _draw(self) -> None:
        from rich.text import Text

        from tailrace.terminal import parts

        self._is_stale = False
        left: list[Any] = []
        ready: list[Any] = []
        for part in parts(client_view(self.state), self._took):
            if part.key in self._printed:
                continue
            if left or not part.final:
                left.append(part.what)
                continue
            ready.append(part.what)
            self._printed.add(part.key)
        if self._prompt:
            left.append(Text(self._prompt, style="bold yellow"))
        self._live.update(_Bottom(left))
        for what in ready:
            self._console.print(what)
        self._live.refresh()


class _Bottom:
    """The last lines that fit on the screen."""

    def __init__(self, what: list[Any]) -> None:
        self._what = what

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from rich.console import Group
        from rich.segment import Segment, Segments

        lines = console.render_lines(Group(*self._what), options.update(height=None), pad=False)
        for line in lines[-max(console.height - 2, 1) :]:
            yield Segments([*line, Segment.line()])


def _switched(event: AgentSwitched) -> str:
    return f"» {event.agent}" + (f": {event.reason}" if event.reason else "")


def _changed(event: TaskInputReceived) -> str:
    """The arguments that a person wrote before approving a call."""
    is_changed = event.approved and isinstance(event.value, dict)
    return f"! approved with other arguments: {_text(event.value)}" if is_changed else ""


def _attempt(event: TaskAttempt) -> str:
    again = "; unfinished items are made again" if event.superseded else ""
    return f"! attempt {event.attempt} ({event.reason}){again}"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value

    return "" if value is None else json_text(value)


def _block(block: dict[str, Any]) -> str:
    if block["type"] == "text":
        number = f"[{block['id']}] " if "id" in block else ""
        return number + str(block["text"])
    if block["type"] == "refusal":
        return str(block["refusal"])
    if block["type"] == "file":
        return f"file {block.get('name') or block['url'][:80]}"
    return f"({block['type']})"
