"""Providers' streams into tasks, next to their own SDKs' parsing of the same events."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from openai._models import construct_type as openai_construct
from openai.types.chat import ChatCompletionChunk

from benchmarks import traffic
from benchmarks.fold import anthropic_event, openai_event, openai_folded
from benchmarks.harness import Contender, Pace, Table, Target, at_least, flat, measure
from tailrace.core.run_object import client_view
from tailrace.ingest.anthropic_messages.reader import AnthropicMessages
from tailrace.ingest.base import Ingest, Notebook
from tailrace.ingest.openai_chat.reader import OpenAIChat
from tailrace.ingest.openai_responses.reader import OpenAIResponses
from tests.ingest import streams

SIZES = (1_000, 10_000, 100_000)


class _Delta(msgspec.Struct):
    type: str
    delta: Any = None


_decode_delta = msgspec.json.Decoder(_Delta).decode


@dataclass(frozen=True)
class Api:
    """A provider's API: how we read it, and how its SDK does."""

    name: str
    folder: str
    """Where its recordings are, `openai-responses` and so on."""
    ingest: Callable[[Notebook], Ingest]
    sdk: str
    parse: Callable[[bytes], Any]
    """What the SDK does with the data of one server-sent event, without adding it up."""


def _chat_event(raw: bytes) -> Any:
    """What `openai.Stream` does with the data of one chunk of a chat completion."""
    return openai_construct(type_=ChatCompletionChunk, value=json.loads(raw))


APIS = (
    Api("OpenAI Responses", "openai-responses", OpenAIResponses, "openai SDK", openai_event),
    Api(
        "Anthropic Messages",
        "anthropic-messages",
        AnthropicMessages,
        "anthropic SDK",
        anthropic_event,
    ),
    Api("chat completions", "chat-completions", OpenAIChat, "openai SDK", _chat_event),
)


# --- long texts ----------------------------------------------------------------------------------


def _limit(raws: list[bytes]) -> str:
    """The least that the work can cost: decode each event's type and piece, join once."""
    found: list[str] = []
    for raw in raws:
        event = _decode_delta(raw)
        if event.type == "response.output_text.delta":
            found.append(event.delta)
    return "".join(found)


def _ingested(raws: list[bytes]) -> str:
    book = Notebook()
    ingest = OpenAIResponses(book)
    for raw in raws:
        ingest.feed(raw)
    ingest.end()
    return str(client_view(book.state)["output"][0]["block_list"][0]["text"])


def _long_text(pace: Pace) -> Table:
    return measure(
        "ingest: a long text of OpenAI's",
        [
            Contender("limit", traffic.openai_text, _limit),
            Contender("tailrace", traffic.openai_text, _ingested),
            Contender(
                "openai SDK",
                traffic.openai_text,
                lambda raws: str(openai_folded(map(openai_event, raws)).content[0].text),
                most=10_000,
                why="linear, but more would take minutes",
            ),
        ],
        SIZES,
        pace,
        remark=(
            "The JSON of each event in, the text out. We write events of our own on the way, each "
            "checked by the strict fold and kept. The limit picks the pieces out and joins them; "
            "the openai SDK parses and adds up as `client.responses.stream` does."
        ),
    )


# --- recordings ----------------------------------------------------------------------------------


def _recorded(api: Api) -> list[list[bytes]]:
    paths = streams.recordings(api.folder)
    return [[line.encode() for line in streams.lines(path)] for path in paths]


def _decoded(recorded: list[list[bytes]]) -> None:
    for raws in recorded:
        for raw in raws:
            msgspec.json.decode(raw)


def _read_by(api: Api) -> Callable[[list[list[bytes]]], None]:
    def read(recorded: list[list[bytes]]) -> None:
        for raws in recorded:
            book = Notebook()
            ingest = api.ingest(book)
            for raw in raws:
                ingest.feed(raw)
            book.conclude(ingest.end())

    return read


def _parsed_by(api: Api) -> Callable[[list[list[bytes]]], None]:
    def parse(recorded: list[list[bytes]]) -> None:
        for raws in recorded:
            for raw in raws:
                api.parse(raw)

    return parse


def _recordings(api: Api, pace: Pace) -> Table:
    recorded = _recorded(api)
    count = sum(map(len, recorded))
    return measure(
        f"ingest: {len(recorded)} streams of {api.name}",
        [
            Contender("limit", lambda _: recorded, _decoded),
            Contender("tailrace", lambda _: recorded, _read_by(api)),
            Contender(api.sdk, lambda _: recorded, _parsed_by(api)),
        ],
        [1],
        pace,
        per=lambda _: float(count),
        column=lambda _: f"{count} events",
        remark=(
            "Recorded streams of real providers, where they are present, and our fixtures. They "
            "are short, so start and end costs matter. The limit decodes the JSON into "
            f"dicts; we write, check and end the task; the {api.sdk} only parses each event into "
            "its own types."
        ),
    )


def run(pace: Pace) -> tuple[list[Table], list[Target]]:
    """A long text, then each API's recordings."""
    text = _long_text(pace)
    recordings = [_recordings(api, pace) for api in APIS]
    targets = [
        flat(text.title, text),
        at_least(
            f"{text.title}, the openai SDK's time to ours", 10, text.least("openai SDK", "tailrace")
        ),
    ]
    targets += [
        at_least(
            f"{table.title}, its SDK's parsing to all we do", 1, table.least(api.sdk, "tailrace")
        )
        for api, table in zip(APIS, recordings, strict=True)
    ]
    return [text, *recordings], targets
