"""Spans and metrics of a run, on a tracer that keeps them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from tailrace import Agent, Tailrace, Task, tool
from tailrace.models import Request, Scripted, call, call_model, say
from tailrace.runtime.diagnostics import telemetry

OPEN: ContextVar[str | None] = ContextVar("OPEN", default=None)


class Kept:
    """A tracer, its spans and both histograms."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.recorded: list[tuple[float, dict[str, Any]]] = []

    @contextmanager
    def start_as_current_span(
        self, name: str, *, attributes: dict[str, Any], kind: str = "INTERNAL", **options: bool
    ) -> Iterator[Kept]:
        assert options == {"record_exception": False, "set_status_on_exception": False}
        self.spans.append({"name": name, "parent": OPEN.get(), "kind": kind, **attributes})
        mine, token = self.spans[-1], OPEN.set(name)
        span = Kept()
        span.spans = [mine]
        try:
            yield span
        finally:
            OPEN.reset(token)

    def start_span(self, name: str, *, attributes: dict[str, Any]) -> Kept:
        self.spans.append({"name": name, "parent": OPEN.get(), "ended": 0, **attributes})
        span = Kept()
        span.spans = [self.spans[-1]]
        return span

    def end(self) -> None:
        self.spans[0]["ended"] += 1

    def set_attribute(self, name: str, value: Any) -> None:
        self.spans[0][name] = value

    def set_status(self, status: Any) -> None:
        self.spans[0]["status"] = status

    def record(self, value: float, attributes: dict[str, Any]) -> None:
        self.recorded.append((value, dict(attributes)))


@tool
async def look(place: str) -> str:
    """Looks."""
    raise RuntimeError(f"the password at {place} is hunter2")


def app_of(path: Path) -> Tailrace:
    helper = Agent(
        "helper", model=Scripted([call("look", place="home")], [say("No.")]), tools=[look]
    )
    model = Scripted([call("helper", prompt="Look.")], [say("It is not there.")])
    return Tailrace([Agent("boss", model=model, tools=[helper.as_tool()])], path / "log.db")


async def test_a_run_its_turns_tools_and_sub_agents_are_spans_without_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept()
    made = telemetry._Instruments(kept, kept, kept, "ERROR", "CLIENT")
    monkeypatch.setattr(telemetry, "_instruments", lambda: made)
    app = app_of(tmp_path)
    async with app.running(), asyncio.timeout(120):
        run = await app.start("boss", "Where is it?", thread="t")
        assert (await run.result()).status == "completed"
    found = [(span["name"].split()[0], span["parent"]) for span in kept.spans]
    inner = "invoke_agent helper"
    assert [found[0], found[2], found[3]] == [
        ("invoke_agent", None),
        ("execute_tool", "invoke_agent boss"),
        ("invoke_agent", "execute_tool helper"),
    ]
    assert [name for name, parent in found if parent == inner] == ["chat", "execute_tool", "chat"]
    assert kept.spans[0]["gen_ai.conversation.id"] == "t"
    asked = [span for span in kept.spans if span["kind"] == "CLIENT"]
    assert {span["name"] for span in asked} == {"chat scripted"}
    assert len(asked) == 4
    counted = asked + [one for _, one in kept.recorded if "gen_ai.request.model" in one]
    assert {one["gen_ai.provider.name"] for one in counted} == {"openai"}
    (failed,) = (span for span in kept.spans if "error.type" in span)
    assert (failed["name"], failed["status"]) == ("execute_tool look", "ERROR")
    assert "hunter2" not in repr(kept.spans) + repr(kept.recorded)
    assert "Where is it" not in repr(kept.spans)
    kinds = [one["gen_ai.token.type"] for _, one in kept.recorded if "gen_ai.token.type" in one]
    assert kinds == ["input", "output"] * 4
    durations = [one for _, one in kept.recorded if "gen_ai.token.type" not in one]
    assert len(durations) == len(kept.spans)


async def own_loop(task: Task) -> None:
    """A model call, a tool, a sub-agent, a tool that fails."""
    model = Scripted([call("look", place="home")], [say("Done.")])
    await call_model(model, Request(chain=await task.chain()), task)
    [asked] = task.calls()
    asked.start()
    await task.drain()
    task.answer(asked.call_id, "nothing")  # another object of the same call
    with task.call("helper") as writer:
        writer.arguments("{}")
    writer.start()
    with writer.delegate("helper", "Look.") as child:
        child.say("No.")
    with task.call("broken") as writer:
        writer.arguments("{}")
    writer.start()
    writer.fail("too_late", "The password is hunter2.")
    await call_model(model, Request(chain=await task.chain()), task)


async def test_a_loop_of_your_own_has_the_same_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept()
    made = telemetry._Instruments(kept, kept, kept, "ERROR", "CLIENT")
    monkeypatch.setattr(telemetry, "_instruments", lambda: made)
    app = Tailrace({"mine": own_loop}, tmp_path / "log.db")
    async with app.running(), asyncio.timeout(120):
        run = await app.start("mine", "Where is it?", thread="t")
        assert (await run.result()).status == "completed"
    mine = "invoke_agent mine"
    assert [(span["name"], span["parent"]) for span in kept.spans] == [
        (mine, None),
        ("chat scripted", mine),
        ("execute_tool look", mine),
        ("execute_tool helper", mine),
        ("invoke_agent helper", mine),
        ("execute_tool broken", mine),
        ("chat scripted", mine),
    ]
    (failed,) = (span for span in kept.spans if "error.type" in span)
    assert (failed["name"], failed["error.type"]) == ("execute_tool broken", "too_late")
    assert "hunter2" not in repr(kept.spans) + repr(kept.recorded)
    assert [span["ended"] for span in kept.spans if span["name"].startswith("execute")] == [1] * 3
    durations = [one for _, one in kept.recorded if "gen_ai.token.type" not in one]
    assert len(durations) == len(kept.spans)


def test_an_exception_marks_its_span_with_its_type_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    made = telemetry._Instruments(kept, kept, kept, "ERROR", "CLIENT")
    monkeypatch.setattr(telemetry, "_instruments", lambda: made)
    for error, name in (
        (ValueError("hunter2"), "ValueError"),
        (asyncio.CancelledError(), "cancelled"),
    ):
        with pytest.raises(type(error)), telemetry.operation("chat", "m"):
            raise error
        assert kept.spans[-1]["error.type"] == name
        assert kept.recorded[-1][1]["error.type"] == name


def test_a_call_without_usage_counts_no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    made = telemetry._Instruments(kept, kept, kept, "ERROR", "CLIENT")
    monkeypatch.setattr(telemetry, "_instruments", lambda: made)
    with telemetry.operation("chat", "m") as span:
        span.used(0, 0)
    assert not any("gen_ai.token.type" in one for _, one in kept.recorded)


def test_the_histograms_have_the_boundaries_of_the_conventions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: dict[str, Any] = {}

    class Meter:
        def create_histogram(self, name: str, unit: str, **advice: Any) -> None:
            made[name] = (unit, *advice.values())

    monkeypatch.setattr("opentelemetry.metrics.get_meter", lambda _name: Meter())
    telemetry._instruments.cache_clear()
    telemetry._instruments()
    telemetry._instruments.cache_clear()
    unit, seconds = made["gen_ai.client.operation.duration"]
    assert (unit, seconds[0], seconds[-1], len(seconds)) == ("s", 0.01, 81.92, 14)
    unit, tokens = made["gen_ai.client.token.usage"]
    assert (unit, tokens[0], tokens[-1], len(tokens)) == ("{token}", 1, 67108864, 14)


def test_without_opentelemetry_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    telemetry._instruments.cache_clear()
    with telemetry.operation("chat", "m", request__model="m") as span:
        span.used(1, 2)
        span.fail(None)
    telemetry.begin("execute_tool", "t").end()
    assert telemetry._instruments() is None
    telemetry._instruments.cache_clear()


def test_the_api_alone_takes_every_call() -> None:
    telemetry._instruments.cache_clear()
    with telemetry.operation("chat", "m", request__model="m") as span:
        span.used(1, 2)
        span.fail("overloaded")
    telemetry.begin("execute_tool", "t", tool__name="t").end()
    assert telemetry._instruments() is not None
