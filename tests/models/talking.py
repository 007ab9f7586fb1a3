"""Conversations with models, as an agent's loop would lead them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.items import TextPart, ToolCall, ToolResult
from tailrace.core.run_object import whole_object
from tailrace.core.writers import ResultWriter
from tailrace.ingest.base import Notebook, Outcome
from tailrace.models import open_model
from tailrace.models.scripted.script import Script, call, say, think
from tailrace.ports import Model, Request, ToolSpec
from tailrace.runtime.model_calls.call import Patience, call_model
from tailrace.testing.simulator import Simulator

APIS = ("openai", "anthropic", "openai-chat")

WEATHER = ToolSpec(
    name="get_weather",
    description="The weather of a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}},
)
HASTY = Patience(first_event=5, idle=5, retries=2, first_wait=0.001, longest_wait=0.01)
"""Tests do not wait."""


def weather_talk(number: int) -> Script:
    """Every second answer thinks and calls tools, the others think and say what came of it."""
    if number % 2 == 0:
        city = f"City {number}"
        more = [call("get_weather", city="Paris")] if number % 4 == 0 else []
        return [think("Which city? "), call("get_weather", city=city), *more]
    return [think("So it is. "), say(f"It is sunny, answer {number}.")]


@dataclass
class Talk:
    """A conversation with one model: each question is a run."""

    model: Model
    request: Request
    chain: list[State] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    async def ask(self, question: Any) -> str:
        """Ask, let the tools be called, and return what the model says."""
        book = Notebook(f"run_{len(self.chain)}", input=question, model=self.model.name)
        self.chain.append(book.state)
        while True:
            request = self.built(self.request)
            outcome = await call_model(self.model, request, book, patience=HASTY)
            self.outcomes.append(outcome)
            if outcome.status != "completed" or not answer_calls(book):
                break
        book.conclude(outcome)
        return "".join(texts(book))

    def built(self, request: Request) -> Request:
        """The request with the conversation so far."""
        fields = {name: getattr(request, name) for name in request.__struct_fields__}
        return Request(**{**fields, "chain": self.chain})


def answer_calls(book: Notebook) -> bool:
    """Give each open call its result; whether there was one."""
    nodes = list(book.node.items.values())
    answered = {node.item.call_id for node in nodes if isinstance(node.item, ToolResult)}
    waiting = [
        node.item.call_id
        for node in nodes
        if isinstance(node.item, ToolCall)
        and node.item.status == "completed"
        and node.item.call_id not in answered
    ]
    for call_id in waiting:
        result = ResultWriter(book, call_id)
        result.finish(ev.Private(content=[TextPart(text="15C, sunny")]))
    return bool(waiting)


def texts(book: Notebook) -> list[str]:
    """What the task says."""
    return [
        block["text"]
        for item in whole_object(book.state)["output"]
        if item["type"] == "message"
        for block in item["block_list"]
    ]


def model_at(provider: Simulator, api: str, api_key: str = "sk-anything", **options: Any) -> Model:
    """A model that asks the simulator."""
    base_url = provider.url if api == "anthropic" else provider.openai_url
    return open_model(f"{api}:test-model", base_url=base_url, api_key=api_key, **options)
