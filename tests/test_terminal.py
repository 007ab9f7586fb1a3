"""A run in the terminal, for every golden trace."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from tailrace.core.fold import State
from tailrace.core.tool_output import data_url
from tailrace.core.view import client_view
from tailrace.demo import _sun
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
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown(trace.view)).splitlines()
    names = [task["agent"] for task in trace.view["tasks"]]
    depths = [
        next(line.index(name) for line in lines if line.endswith(f"── {name}")) for name in names
    ]
    assert depths == sorted(set(depths))  # three agents inside each other


def test_reasoning_is_dim_and_citations_stand_out() -> None:
    trace = next(trace for trace in TRACES if trace.name == "s0_weather")
    text = shown(trace.view)
    assert "\x1b[2;3mThinking about the weather in Paris." in text
    assert "\x1b[1;32m[^1]" in text
    assert "\x1b[1;36mget_weather" in text


def test_text_of_a_run_cannot_steer_the_terminal() -> None:
    text = shown({"input": "a\x1b]0;owned\x07b\x9b2J", "status": "completed"})
    assert "a\ufffd]0;owned\ufffdb\ufffd2J" in text


def test_a_small_png_is_drawn_and_any_other_image_is_named() -> None:
    def of(url: str) -> str:
        block = {"type": "image", "image_url": {"url": url}}
        item = {"type": "message", "id": "m", "block_list": [block]}
        return shown({"output": [item], "status": "completed"})

    assert of(data_url(_sun(18), "image/png")).count("▀") == 32 * 9  # 16:9, two points high
    for other in ("", "https://example.com/a.png", "data:image/png;base64,aGk=", "data:x,y"):
        assert "▣" in of(other)
