"""The table of parts agrees with the events and with the fold."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.core import events as ev
from tailrace.core.items import Item, Message, Reasoning, Refusal, Text, ToolCall
from tailrace.core.parts import DELTA_OF, DELTAS, PARTS
from tailrace.core.state import ItemNode, TaskNode, part_of, text_node
from tailrace.core.transitions import part_of_delta


def test_every_event_that_names_an_item_and_has_content_for_it_is_in_the_table() -> None:
    of_items = {kind for kind in ev.KNOWN if "item_id" in kind.__struct_fields__}
    assert set(PARTS) == of_items - {ev.ToolCallStarted, ev.TaskUsage}


def test_the_index_is_the_field_that_the_event_has_for_it() -> None:
    for kind, place in PARTS.items():
        names = [name for name in kind.__struct_fields__ if name.endswith("_index")]
        own = [name for name in names if name not in ("output_index", "partial_image_index")]
        values: dict[str, Any] = dict.fromkeys(kind.__struct_fields__, "")
        event = kind(**values | {"output_index": 3} | dict.fromkeys(own, 7))
        assert place.index_of(event) == (7 if own else 0)


ITEMS: dict[str, Item] = {
    "summary": Reasoning(id="i"),
    "reasoning_text": Reasoning(id="i"),
    "arguments": ToolCall(id="i", call_id="c", name="n"),
    "text": Message(id="i", role="assistant"),
    "refusal": Message(id="i", role="assistant"),
}


@pytest.mark.parametrize("kind", DELTA_OF)
def test_the_fold_finds_the_part_of_a_delta_where_the_table_says(kind: str) -> None:
    delta = DELTA_OF[kind]
    place = PARTS[delta]
    assert (place.kind, DELTAS[delta]) == (kind, place.index_of)
    assert isinstance(ITEMS[kind], place.holders)
    node = ItemNode(ITEMS[kind], 0, 1)
    part: Any = text_node(kind, "i", 1, Text(text="x"), is_open=True)
    if kind == "refusal":
        part = part_of("i", Refusal(refusal="x"), 1, is_open=True)
    if place.store == "arguments":
        node.arguments = part
    else:
        getattr(node, place.store)[2] = part
    task = TaskNode("t", 0, 1, None, {})
    task.add_item(node)
    index = {name: 2 for name in delta.__struct_fields__ if name.endswith("_index")}
    event = delta(**index | {"output_index": 0, "task_id": "t", "item_id": "i", "delta": "y"})
    assert part_of_delta(task, event) is part
