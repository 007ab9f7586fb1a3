"""Runs that are easily written, and the requests that continue them."""

from __future__ import annotations

from typing import Any

from tailrace.core import events as ev
from tailrace.core.items import RawItem, TextPart, Usage
from tailrace.core.writers import ArgumentsWriter, MessageWriter, ReasoningWriter, ResultWriter
from tailrace.history import history
from tailrace.ingest.base import Notebook, Outcome
from tests.history.conversations import APIS

OPENAI, ANTHROPIC, CHAT = APIS


class Run(Notebook):
    """A run that is easily written."""

    def __init__(self, asked: Any = "Hi", number: int = 1, api: str = OPENAI, **facts: Any) -> None:
        super().__init__(f"run_{number}", input=asked, **facts)
        self.number = number
        self.api = api
        self.answer = 1

    def private(self, name: str | None = None, **more: Any) -> ev.Private:
        facts: dict[str, Any] = {
            "api": self.api,
            "response_id": f"resp_{self.number}_{self.answer}",
        }
        if name is not None:
            facts["id"] = name
        return ev.Private(provider=facts | more.pop("provider", {}), **more)

    def think(self, name: str, text: str = "Hmm.", **sealed: Any) -> None:
        writer = ReasoningWriter(self)
        writer.summary(text)
        writer.finish(private=self.private(name, **sealed))

    def say(self, name: str, text: str, status: Any = "completed", **more: Any) -> str:
        writer = MessageWriter(self, **more)
        writer.text(text)
        writer.finish(status, self.private(name))
        return writer.id

    def call(self, name: str, arguments: str = '{"city":"Paris"}', **more: Any) -> str:
        raw = more.pop("raw", None)
        tool = more.pop("tool", "get_weather")
        writer = ArgumentsWriter(self, tool, call_id=f"call_{name}", **more)
        writer.arguments(arguments)
        writer.finish(private=self.private(name, raw=raw))
        return writer.call_id

    def result(self, call_id: str, *content: Any, raw: Any = None) -> None:
        ResultWriter(self, call_id).finish(ev.Private(content=list(content) or None, raw=raw))

    def end(self, status: Any = "completed") -> Run:
        facts = {"api": self.api, "response_id": f"resp_{self.number}_{self.answer}"}
        usage = ev.TaskUsage(task_id=self.task_id, usage=Usage())
        self.emit(usage, ev.Private(provider=facts))
        self.conclude(Outcome(status=status))
        return self


def weather(number: int = 1, api: str = OPENAI, **sealed: Any) -> Run:
    """A turn with reasoning, a call, and an answer."""
    run = Run("Is it sunny?", number, api)
    run.think(f"rs_{number}a", "Look.", **{k: f"{v}{number}a" for k, v in sealed.items()})
    call = run.call(f"fc_{number}")
    run.result(call, TextPart(text="15C"))
    run.answer = 2
    run.think(f"rs_{number}b", "Say.", **{k: f"{v}{number}b" for k, v in sealed.items()})
    run.say(f"msg_{number}", "Yes.")
    return run.end()


def kept(run: Run, raw: Any) -> None:
    """Add an item of an unknown kind."""
    item = RawItem(id=raw["id"], raw={"type": raw["type"]}, source=run.api)
    run.done(run.add(item), item, run.private(raw=raw))


def sent(runs: list[Run], api: Any = OPENAI, mode: Any = "drop", **more: Any) -> list[Any]:
    return history([run.state for run in runs], api, mode, **more).items


def kinds(items: list[Any]) -> list[str]:
    return [item.get("type") or item["role"] for item in items]
