"""Every block that Anthropic's SDK has a type for, in all its shapes: read as the SDK reads it."""

from __future__ import annotations

import itertools
import json
from types import ModuleType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from anthropic.lib.streaming import _beta_messages, _messages
from anthropic.types import raw_content_block_start_event as stable
from anthropic.types.beta import beta_raw_content_block_start_event as beta
from pydantic import BaseModel

from tailrace.core.run_object import client_view
from tailrace.ingest.anthropic_messages.reader import AnthropicMessages
from tests.ingest.anthropic_oracle import leaves, sealed, sent_back
from tests.ingest.streams import ingested, shown
from tests.ingest.test_anthropic_messages import ended, more
from tests.ingest.test_anthropic_recordings import plain, same_but_for_silence

Json = dict[str, Any]
START: Json = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 1},
    },
}
_number = itertools.count()


def samples(kind: Any) -> list[Any]:
    """Values of a type, so many that each member of each union comes once."""
    origin, members = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return samples(members[0])
    if origin in (Union, UnionType):
        return [one for member in members if member is not type(None) for one in samples(member)]
    if origin is Literal:
        return list(members)
    if origin is list:
        return [samples(members[0]), []]
    if origin is dict:
        return [{f"key {next(_number)}": {"deep": [1, 2.5, None, True]}}]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = {
            field.alias or name: samples(field.annotation)
            for name, field in kind.model_fields.items()
        }
        count = max(len(values) for values in fields.values())
        return [
            {name: values[at % len(values)] for name, values in fields.items()}
            for at in range(count)
        ]
    if kind is bool:
        return [True, False]
    return [next(_number) if kind is int else f"word {next(_number)}"]


def piecewise(block: Json) -> tuple[Json, list[Json]]:
    """A block as it streams: what it starts with, and its deltas."""
    kind = block["type"]
    if kind == "text":
        half = len(block["text"]) // 2
        pieces: list[Json] = [
            *({"type": "citations_delta", "citation": one} for one in block["citations"]),
            {"type": "text_delta", "text": block["text"][:half]},
            {"type": "text_delta", "text": block["text"][half:]},
        ]
        return {**block, "text": "", "citations": []}, pieces
    if kind == "thinking":
        pieces = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
        return {**block, "thinking": "", "signature": ""}, pieces
    if kind.endswith("tool_use"):
        text = json.dumps(block["input"])
        parts = ("", text[:5], text[5:])
        pieces = [{"type": "input_json_delta", "partial_json": part} for part in parts]
        return {**block, "input": {}}, pieces
    if kind == "compaction":
        sealed_part = block["encrypted_content"]
        delta = {"content": block["content"], "encrypted_content": sealed_part}
        start = {**block, "content": None, "encrypted_content": None}
        return start, [{"type": "compaction_delta", **delta}]
    return block, []


def streamed(*content: Json, in_pieces: bool) -> list[Json]:
    events: list[Json] = [START]
    for index, block in enumerate(content):
        start, pieces = piecewise(block) if in_pieces else (block, [])
        place = {"index": index}
        events += [
            {"type": "content_block_start", **place, "content_block": start},
            {"type": "ping"},
            *(more(index, piece.pop("type"), **piece) for piece in pieces),
            {"type": "content_block_stop", **place},
        ]
    return [*events, *ended("end_turn")]


def accumulated(sdk: ModuleType, events: list[Json]) -> list[Json]:
    """The content as Anthropic's SDK adds it up."""
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    more_facts: Json = {"request_headers": {}} if sdk is _beta_messages else {}
    for event in events:
        if event["type"] != "ping":
            snapshot = sdk.accumulate_event(
                event=event, current_snapshot=snapshot, json_bufs=buffers, **more_facts
            )
    return [plain(block) for block in snapshot.content]


@pytest.mark.long(always=True)
@pytest.mark.parametrize("in_pieces", [False, True], ids=["at-once", "in-pieces"])
@pytest.mark.parametrize(
    ("sdk", "union"),
    [(_messages, stable.ContentBlock), (_beta_messages, beta.ContentBlock)],
    ids=["stable", "beta"],
)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_each_block_of_the_sdk_is_read_as_the_sdk_reads_it(
    sdk: ModuleType, union: Any, in_pieces: bool
) -> None:
    every_block = samples(union)
    assert len({block["type"] for block in every_block}) >= 12
    for block in every_block:
        content = [block]
        if block["type"].endswith("tool_result"):
            ident = block["tool_use_id"]
            call = {"type": "server_tool_use", "id": ident, "name": "x", "input": {"q": 1}}
            content.insert(0, call)
        events = streamed(*content, in_pieces=in_pieces)
        book, outcome = ingested(AnthropicMessages, [json.dumps(event) for event in events])
        assert outcome.status == "completed"
        assert not any(hasattr(event, "event_type") for event, _ in book.take())
        mine = same_but_for_silence(sent_back(shown(book)))
        assert mine == same_but_for_silence(accumulated(sdk, events))
        # People see all of it but for what is sealed, or says how it goes back.
        public = leaves(client_view(book.state)["output"])
        backstage = ("id", "signature", "data", "caller", "toolset_name", "tool_use_id")
        for leaf in leaves({name: one for name, one in block.items() if name not in backstage}):
            assert any(leaf in one for one in public), (leaf, block)
        assert not set(sealed(block)) & set(public)
