"""A run in the terminal, for every golden trace."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tailrace.core.fold import State
from tailrace.core.view import client_view
from tailrace.terminal import draw
from tests.traces import TRACES, Trace


def shown(view: dict[str, object]) -> str:
    out = io.StringIO()
    Console(width=120, file=out, force_terminal=True, color_system="standard").print(draw(view))
    return out.getvalue()


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_a_run_can_be_drawn_after_every_event(trace: Trace) -> None:
    state = State()
    for event, private in trace.events:
        state.absorb(event, private)
        if state.root is not None:
            shown(client_view(state))


def test_a_sub_agent_stands_inside_the_call_that_it_answers() -> None:
    trace = next(trace for trace in TRACES if trace.name == "nested_agents")
    text = shown(trace.view)
    assert text.count("╭") == 4  # the run, and three agents inside each other


def test_reasoning_is_dim_and_citations_stand_out() -> None:
    trace = next(trace for trace in TRACES if trace.name == "s0_weather")
    text = shown(trace.view)
    assert "\x1b[2;3mThinking about the weather in Paris." in text
    assert "\x1b[1;32m[^1]" in text
    assert "\x1b[1;36mget_weather" in text
