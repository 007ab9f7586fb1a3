"""Events into the frames of each wire format.

Like is compared with like: the limit of a format encodes with msgspec a struct of exactly that
format's fields, and frames it, and its bytes must be the bytes that we send. Whether building the
struct is timed is named in each table.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from anthropic.types import RawContentBlockDeltaEvent
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseTextDeltaEvent
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.ui.vercel_ai import VercelAIEventStream
from pydantic_ai.ui.vercel_ai.request_types import SubmitMessage
from pydantic_ai.ui.vercel_ai.response_types import TextDeltaChunk
from sse_starlette.event import JSONServerSentEvent, ServerSentEvent

from benchmarks import traffic
from benchmarks.harness import Contender, Pace, Table, Target, at_most, measure
from tailrace.core import events as ev
from tailrace.core.codec import encode_event
from tailrace.core.fold import State
from tailrace.wire import anthropic_messages, openai_chat, openai_responses, task, vercel_ui
from tailrace.wire.base import Format
from tailrace.wire.openai_responses.cursors import offset

SIZES = (1_000, 10_000, 100_000)
HEAD = 4
"""The events of `text_run` before its first delta."""
ITEM = traffic.text_run(1)[HEAD].item_id  # type: ignore[attr-defined]  # a TextDelta

_encode = msgspec.json.Encoder().encode


def deltas(count: int) -> list[Any]:
    """The deltas of a run, numbered as in the log."""
    return list(traffic.text_run(count)[HEAD : HEAD + count])


def logged(count: int) -> list[ev.Recorded]:
    """The deltas as the log gives them back, with their bytes."""
    return [ev.Recorded(event, encode_event(event)) for event in deltas(count)]


# --- the native format ---------------------------------------------------------------------------


def _native_limit(events: list[Any]) -> list[bytes]:
    out: list[bytes] = []
    for event in events:
        public = _encode(event)
        out.append(b"id: 1-%d\ndata: %b\n\n" % (event.sequence_number, public))
    return out


def _native(events: list[Any]) -> list[bytes]:
    encoder = task.FORMAT.at(State())
    out: list[bytes] = []
    for event in events:
        out += encoder.encode(ev.Recorded(event, encode_event(event)))
    return out


def _native_again(recorded: list[ev.Recorded]) -> list[bytes]:
    encoder = task.FORMAT.at(State())
    out: list[bytes] = []
    for one in recorded:
        out += encoder.encode(one)
    return out


def _sse_starlette(values: list[Any]) -> None:
    for value in values:
        JSONServerSentEvent(value, id=f"1-{value['sequence_number']}").encode()


def _sse_starlette_framing(lines: list[str]) -> None:
    for number, line in enumerate(lines, HEAD + 1):
        ServerSentEvent(line, id=f"1-{number}").encode()


def _native_table(pace: Pace) -> Table:
    return measure(
        "encode: task, the event is there",
        [
            Contender("limit", deltas, _native_limit),
            Contender("tailrace", deltas, _native),
            Contender("tailrace, each further reader", logged, _native_again),
            Contender(
                "sse-starlette, from a dict",
                lambda n: [msgspec.to_builtins(event) for event in deltas(n)],
                _sse_starlette,
            ),
            Contender(
                "sse-starlette, framing only",
                lambda n: [encode_event(event).decode() for event in deltas(n)],
                _sse_starlette_framing,
            ),
        ],
        SIZES,
        pace,
        remark=(
            "From an event object to the bytes of its frame. The limit is one call of msgspec's "
            "encoder and one `%`; building the event is not timed. We also check the "
            "event's size and strings and make the log's record of it. The bytes are made once: "
            "for each further reader they are only framed."
        ),
    )


def _place() -> dict[str, Any]:
    return {"task_id": traffic.RUN, "item_id": ITEM, "output_index": 0, "block_index": 0}


def _built_limit(texts: list[str]) -> list[bytes]:
    out: list[bytes] = []
    place = _place()
    for number, text in enumerate(texts, HEAD + 1):
        event = ev.TextDelta(**place, delta=text, sequence_number=number)
        out.append(b"id: 1-%d\ndata: %b\n\n" % (number, _encode(event)))
    return out


def _built(texts: list[str]) -> list[bytes]:
    encoder = task.FORMAT.at(State())
    out: list[bytes] = []
    place = _place()
    for number, text in enumerate(texts, HEAD + 1):
        event = ev.recorded(ev.TextDelta(**place, delta=text), number)
        out += encoder.encode(ev.Recorded(event, encode_event(event)))
    return out


def _built_table(pace: Pace) -> Table:
    return measure(
        "encode: task, building the event included",
        [
            Contender("limit", traffic.pieces, _built_limit),
            Contender("tailrace", traffic.pieces, _built),
        ],
        SIZES,
        pace,
        remark=(
            "From a piece of text to its frame. The limit builds the struct once, with its number; "
            "we build it as a writer does, and number it when it is recorded."
        ),
    )


# --- OpenAI's Responses --------------------------------------------------------------------------


class ResponsesDelta(msgspec.Struct, tag="response.output_text.delta", tag_field="type"):
    """OpenAI's event with the fields that we send, in our order."""

    item_id: str
    output_index: int
    content_index: int
    logprobs: list[Any]
    delta: str
    sequence_number: int


def _responses_structs(count: int) -> list[ResponsesDelta]:
    first = offset(traffic.RUN)
    return [
        ResponsesDelta(ITEM, 0, 0, [], event.delta, first + event.sequence_number << 12)
        for event in deltas(count)
    ]


def _responses_limit(structs: list[ResponsesDelta]) -> list[bytes]:
    out: list[bytes] = []
    for struct in structs:
        data = _encode(struct)
        out.append(b"event: response.output_text.delta\ndata: %b\n\n" % data)
    return out


def _openai_models(count: int) -> list[ResponseTextDeltaEvent]:
    return [
        ResponseTextDeltaEvent(type="response.output_text.delta", **msgspec.structs.asdict(struct))
        for struct in _responses_structs(count)
    ]


def _model_dump_json(models: list[ResponseTextDeltaEvent]) -> None:
    for model in models:
        f"event: {model.type}\ndata: {model.model_dump_json()}\n\n".encode()


def _to_json(models: list[ResponseTextDeltaEvent]) -> None:
    for model in models:
        f"event: {model.type}\ndata: {model.to_json(indent=None)}\n\n".encode()


# --- chat completions ----------------------------------------------------------------------------


class ChatDelta(msgspec.Struct):
    """The part of a chunk that has the text."""

    content: str


class ChatChoice(msgspec.Struct):
    """The one choice of a chunk."""

    index: int
    delta: ChatDelta
    finish_reason: str | None


class ChatChunk(msgspec.Struct):
    """OpenAI's chunk with the fields that we send, in our order."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice]


def _chat_structs(count: int) -> list[ChatChunk]:
    about = (f"chatcmpl-{traffic.RUN}", "chat.completion.chunk", *_chat_facts())
    return [
        ChatChunk(*about, [ChatChoice(0, ChatDelta(piece), None)])
        for piece in traffic.pieces(count)
    ]


def _chat_facts() -> tuple[int, str]:
    created: Any = traffic.text_run(1)[0]
    return int(created.created_at or 0), created.agent or created.model or ""


def _chat_limit(structs: list[ChatChunk]) -> list[bytes]:
    out: list[bytes] = []
    for struct in structs:
        data = _encode(struct)
        out.append(b"data: %b\n\n" % data)
    return out


def _chat_models(count: int) -> list[ChatCompletionChunk]:
    return [
        ChatCompletionChunk.model_validate(msgspec.to_builtins(struct))
        for struct in _chat_structs(count)
    ]


def _chat_dump_json(models: list[ChatCompletionChunk]) -> None:
    for model in models:
        f"data: {model.model_dump_json(exclude_unset=True)}\n\n".encode()


# --- the Vercel AI SDK's UI stream ---------------------------------------------------------------


class UiDelta(msgspec.Struct, tag="text-delta", tag_field="type"):
    """The AI SDK's chunk."""

    id: str
    delta: str


def _ui_structs(count: int) -> list[UiDelta]:
    return [UiDelta(f"{ITEM}/0", piece) for piece in traffic.pieces(count)]


def _ui_limit(structs: list[UiDelta]) -> list[bytes]:
    out: list[bytes] = []
    for struct in structs:
        data = _encode(struct)
        out.append(b"data: %b\n\n" % data)
    return out


def _ui_stream() -> VercelAIEventStream[Any, Any]:
    return VercelAIEventStream(SubmitMessage(id="chat_1", messages=[]))


def _ui_chunks(count: int) -> list[TextDeltaChunk]:
    return [TextDeltaChunk(id=f"{ITEM}/0", delta=piece) for piece in traffic.pieces(count)]


def _ui_chunk_encode(chunks: list[TextDeltaChunk]) -> None:
    encode = _ui_stream().encode_event
    for chunk in chunks:
        encode(chunk).encode()


def _pydantic_ai_events(count: int) -> list[Any]:
    return [
        PartStartEvent(index=0, part=TextPart(content="")),
        *(
            PartDeltaEvent(index=0, delta=TextPartDelta(content_delta=piece))
            for piece in traffic.pieces(count)
        ),
    ]


def _pydantic_ai_pipeline(events: list[Any]) -> None:
    async def source() -> AsyncIterator[Any]:
        for event in events:
            yield event

    async def drained() -> None:
        stream = _ui_stream()
        async for text in stream.encode_stream(stream.transform_stream(source())):
            text.encode()

    asyncio.run(drained())


# --- Anthropic's Messages ------------------------------------------------------------------------


class TextPiece(msgspec.Struct, tag="text_delta", tag_field="type"):
    """The text in Anthropic's event."""

    text: str


class MessagesDelta(msgspec.Struct, tag="content_block_delta", tag_field="type"):
    """Anthropic's event."""

    index: int
    delta: TextPiece


def _messages_structs(count: int) -> list[MessagesDelta]:
    return [MessagesDelta(0, TextPiece(piece)) for piece in traffic.pieces(count)]


_BLOCK_START = (
    b"event: content_block_start\n"
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
)


def _messages_limit(structs: list[MessagesDelta]) -> list[bytes]:
    out = [_BLOCK_START]  # a block is sent from its first piece on
    for struct in structs:
        data = _encode(struct)
        out.append(b"event: content_block_delta\ndata: %b\n\n" % data)
    return out


def _anthropic_models(count: int) -> list[RawContentBlockDeltaEvent]:
    return [
        RawContentBlockDeltaEvent.model_validate(msgspec.to_builtins(struct))
        for struct in _messages_structs(count)
    ]


def _anthropic_dump(models: list[RawContentBlockDeltaEvent]) -> None:
    for model in models:
        f"event: {model.type}\ndata: {model.model_dump_json()}\n\n".encode()


# --- all of them ----------------------------------------------------------------------------------


def _other(wire: Format) -> Contender:
    def setup(recorded: list[ev.Recorded]) -> tuple[Any, list[ev.Recorded]]:
        state = State()
        for event in traffic.text_run(len(recorded))[:HEAD]:
            state.absorb(event)
        return wire.at(state), recorded

    def work(ready: tuple[Any, list[ev.Recorded]]) -> list[bytes]:
        encoder, recorded = ready
        out: list[bytes] = []
        for one in recorded:
            out += encoder.encode(one)
        return out

    return Contender("tailrace", logged, work, setup)


def _other_table(
    wire: Format,
    structs: Callable[[int], Any],
    limit: Callable[[Any], list[bytes]],
    peers: list[Contender],
    pace: Pace,
) -> Table:
    return measure(
        f"encode: {wire.name}",
        [Contender("limit", structs, limit), _other(wire), *peers],
        SIZES,
        pace,
        remark=(
            "From an event of the log to the frame of another vocabulary: we fold it, translate it "
            "and encode the result. The limit has the translated struct already, and only encodes "
            "and frames it. A peer that is given its model or chunk does not translate either."
        ),
    )


def run(pace: Pace) -> tuple[list[Table], list[Target]]:
    """All tables, and the targets they speak of."""
    native, built = _native_table(pace), _built_table(pace)
    responses = _other_table(
        openai_responses.FORMAT,
        _responses_structs,
        _responses_limit,
        [
            Contender("openai SDK, model_dump_json", _openai_models, _model_dump_json),
            Contender("openai SDK, to_json", _openai_models, _to_json),
        ],
        pace,
    )
    chat = _other_table(
        openai_chat.FORMAT,
        _chat_structs,
        _chat_limit,
        [Contender("openai SDK, model_dump_json", _chat_models, _chat_dump_json)],
        pace,
    )
    ui = _other_table(
        vercel_ui.FORMAT,
        _ui_structs,
        _ui_limit,
        [
            Contender("pydantic-ai, the chunk is there", _ui_chunks, _ui_chunk_encode),
            Contender(
                "pydantic-ai, from its own event", _pydantic_ai_events, _pydantic_ai_pipeline
            ),
        ],
        pace,
    )
    messages = _other_table(
        anthropic_messages.FORMAT,
        _messages_structs,
        _messages_limit,
        [Contender("anthropic SDK, model_dump_json", _anthropic_models, _anthropic_dump)],
        pace,
    )
    targets = [
        at_most(f"{table.title}, to the limit", bound, table.worst("tailrace", "limit"))
        for table, bound in (
            (native, 2),
            (built, 2),
            (responses, 6),
            (chat, 6),
            (messages, 6),
            (ui, 6),
        )
    ]
    return [native, built, responses, chat, messages, ui], targets
