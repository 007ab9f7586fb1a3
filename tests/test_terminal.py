"""A run in the terminal, for every golden trace."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console, Group

from tailrace.core.data_url import data_url
from tailrace.core.fold import State
from tailrace.core.run_object import client_view
from tailrace.demo import _sun
from tailrace.terminal import parts
from tests.traces import TRACES, Trace


def shown(view: dict[str, object], width: int = 120, *, no_color: bool = False) -> str:
    out = io.StringIO()
    Console(
        width=width, file=out, force_terminal=True, color_system="standard", no_color=no_color
    ).print(Group(*(part.what for part in parts(view))))
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


def test_a_source_of_a_sub_agent_has_the_number_that_its_caller_cites() -> None:
    source = {"type": "text", "id": 1, "text": "Laid out in 1612.", "annotations": []}
    inside: list[dict[str, object]] = [
        {"type": "tool_call", "id": "f2", "call_id": "c2", "name": "search", "arguments": "{}"},
        {"type": "tool_result", "id": "r2", "call_id": "c2", "block_list": [source]},
    ]
    imported = {"reference_id": 3, "source_task_id": "c1", "source_reference_id": 1}
    blocks = [{**item, "task_id": "c1"} for item in inside]
    view = {
        "task_id": "run_1",
        "status": "completed",
        "tasks": [{"task_id": "c1", "agent": "guide"}],
        "output": [
            {"type": "tool_call", "id": "f1", "call_id": "c1", "name": "guide", "arguments": "{}"},
            {"type": "tool_result", "id": "r1", "call_id": "c1", "block_list": blocks},
        ],
    }
    for imports, number in (([], "[1]"), ([imported], "[1, 3]")):
        text = re.sub(r"\x1b\[[0-9;]*m", "", shown({**view, "imports": imports}))
        assert f"{number} Laid out in 1612." in text


def test_the_end_counts_the_tokens_and_the_cost_of_sub_agents() -> None:
    used = {"input_tokens": 1000, "output_tokens": 99, "cost": 0.25}
    child = {"task_id": "c1", "usage": used}
    view: dict[str, object] = {"task_id": "run_1", "status": "completed"}
    view["usage"] = {"output_tokens": 1}
    assert "completed · 1 token\n" in re.sub(r"\x1b\[[0-9;]*m", "", shown(view))
    view["usage"] = {"input_tokens": 1000, "output_tokens": 100, "cost": 0.25}  # of both
    both = re.sub(r"\x1b\[[0-9;]*m", "", shown({**view, "tasks": [child]}))
    assert "completed · 1,100 tokens · $0.2500\n" in both


def test_reasoning_is_dim_and_citations_stand_out() -> None:
    trace = next(trace for trace in TRACES if trace.name == "s0_weather")
    text = shown(trace.view)
    assert "\x1b[2;3mThinking about the weather in Paris." in text
    assert "\x1b[1;32m[^1]" in text
    assert "\x1b[1;36mget_weather" in text


def test_a_structured_answer_is_a_table_while_it_streams_and_is_shown_once() -> None:
    whole = '{"title": "A walk", "bring": ["a jacket", "sunglasses"]}'

    def of(text: str, **more: object) -> str:
        block = {"type": "text", "text": text}
        item = {"type": "message", "id": "m", "block_list": [block]}
        plain = shown({"task_id": "run_1", "output": [item], "status": "completed", **more})
        return re.sub(r"\x1b\[[0-9;]*m", "", plain)

    assert "│ title │ A wal │" in of(whole[:16])
    assert of("{") != of(whole[:3])  # no field yet: the text
    answer = of(whole, structured_output={"value": json.loads(whole)})
    assert answer.count("A walk") == 1
    assert "│ bring │ a jacket, sunglasses │" in answer
    assert "│" not in of("{no JSON}")
    assert of("Words.", structured_output={"value": {"x": 1}}).count("│ x │ 1 │") == 1


def test_text_of_a_run_cannot_steer_the_terminal() -> None:
    text = shown({"input": "a\x1b]0;owned\x07b\x9b2J", "status": "completed"})
    assert "a\ufffd]0;owned\ufffdb\ufffd2J" in text


def test_a_small_png_is_drawn_and_any_other_image_is_named() -> None:
    def of(url: str, width: int = 120, *, no_color: bool = False) -> str:
        block = {"type": "image", "image_url": {"url": url}}
        item = {"type": "message", "id": "m", "block_list": [block]}
        return shown({"output": [item], "status": "completed"}, width, no_color=no_color)

    sun = data_url(_sun(18), "image/png")
    assert of(sun).count("▀") == 32 * 9  # 16:9, two points high
    assert of(sun, width=16).count("▀") == 16 * 4  # a narrow terminal
    plain = of(sun, no_color=True)  # blocks in one colour would show nothing
    assert "▀" not in plain
    assert "▣ image of 32 × 18 pixels" in plain
    for other in ("", "https://example.com/a.png", "data:image/png;base64,aGk=", "data:x,y"):
        assert "▣" in of(other)
