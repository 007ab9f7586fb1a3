"""Events into the object: from wire bytes, from a whole SSE stream, and without any decoding."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import reduce
from operator import or_
from typing import Any

import httpx2
import msgspec
import openai
from anthropic._models import construct_type as anthropic_construct
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from openai._models import construct_type as openai_construct
from openai.lib.streaming.responses._responses import ResponseStream, ResponseStreamState
from openai.types.responses import ResponseStreamEvent
from pydantic_ai._parts_manager import ModelResponsePartsManager
from pydantic_ai.models import ModelRequestParameters

from benchmarks import traffic
from benchmarks.harness import Contender, Pace, Table, Target, at_least, at_most, flat, measure
from tailrace.core import events as ev
from tailrace.core import sse
from tailrace.core.codec import decode_event
from tailrace.core.fold import State
from tailrace.core.run_object import client_view

SIZES = (1_000, 10_000, 100_000, 1_000_000)
_decode: Callable[[bytes], Any] = msgspec.json.Decoder(reduce(or_, ev.KNOWN)).decode
_QUADRATIC = "its cost per event grows with the text, so larger sizes would take minutes"
_SLOW = "linear, but a million events would take minutes"

Read = Callable[[Any], str]


# --- ours and the limit --------------------------------------------------------------------------


def limit(deltas: list[bytes]) -> str:
    """The least that the work can cost: decode each delta, remember its piece, join once."""
    found: list[str] = []
    for raw in deltas:
        found.append(_decode(raw).delta)  # noqa: PERF401  # a stream comes one by one
    return "".join(found)


def limit_of_run(cls: Any) -> Callable[[list[bytes]], str]:
    """The same for the bytes of a whole run, in which the deltas are found among the rest."""

    def joined(raws: list[bytes]) -> str:
        found: list[str] = []
        for raw in raws:
            event = _decode(raw)
            if event.__class__ is cls:
                found.append(event.delta)
        return "".join(found)

    return joined


def folded(raws: list[bytes]) -> State:
    """What a reader of ours does with the bytes of a run."""
    state = State()
    state.absorb_lines(raws)
    return state


def text_of(state: State) -> str:
    """The message of the run's object."""
    return str(client_view(state)["output"][0]["block_list"][0]["text"])


def arguments_of(state: State) -> str:
    """The arguments of the object's call."""
    return str(client_view(state)["output"][0]["arguments"])


def child_text_of(state: State) -> str:
    """The texts of the sub-agent, inside the result of the call."""
    return str(client_view(state)["output"][1]["block_list"][0]["block_list"][0]["text"])


def _limits_and_ours(
    run: Callable[[int], list[ev.Event]], delta: type[ev.Event], read: Callable[[State], str]
) -> list[Contender]:
    def whole(count: int) -> list[bytes]:
        return traffic.as_bytes(run(count))

    return [
        Contender("limit", lambda count: traffic.deltas_only(run(count), delta), limit),
        Contender("tailrace", whole, lambda raws: read(folded(raws))),
        Contender("limit, of the whole run", whole, limit_of_run(delta)),
    ]


# --- peers ---------------------------------------------------------------------------------------


def openai_event(raw: bytes) -> Any:
    """What `openai.Stream` does with the data of one server-sent event."""
    return openai_construct(type_=ResponseStreamEvent, value=json.loads(raw))


def openai_folded(events: Iterator[Any] | list[Any]) -> Any:
    """What `client.responses.stream` does with the events: the final item."""
    state: ResponseStreamState[Any] = ResponseStreamState(
        input_tools=openai.omit, text_format=openai.omit
    )
    last: Any = None
    for event in events:
        for fired in state.handle_event(event):
            last = fired
    return last.response.output[0]


def anthropic_event(raw: bytes) -> Any:
    """What `anthropic.Stream` does with the data of one server-sent event."""
    return anthropic_construct(type_=RawMessageStreamEvent, value=json.loads(raw))


def anthropic_folded(events: Iterator[Any] | list[Any]) -> Any:
    """What `client.messages.stream` does with the events: the content block."""
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in events:
        snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)
    return snapshot.content[0]


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _openai_peer(prepare: Callable[[int], list[bytes]], read: Read, most: int) -> Contender:
    return Contender(
        "openai SDK",
        prepare,
        lambda raws: read(openai_folded(map(openai_event, raws))),
        most=most,
        why=_SLOW,
    )


def _anthropic_peer(prepare: Callable[[int], list[bytes]], read: Read, most: int) -> Contender:
    return Contender(
        "anthropic SDK",
        prepare,
        lambda raws: read(anthropic_folded(map(anthropic_event, raws))),
        most=most,
        why=_QUADRATIC,
    )


# --- from the wire -------------------------------------------------------------------------------


def _from_the_wire(pace: Pace) -> list[Table]:
    remark = (
        "Each contender reads the JSON of its own events, one `bytes` each, and gives the final "
        "text. The limit decodes the deltas, and nothing else, into our tagged union with msgspec, "
        "appends, and joins once. We read the whole run, check it, fold it and show the object. "
        "The limit of the whole run takes the same bytes and picks the deltas out."
    )
    text = measure(
        "fold: text, from the wire",
        [
            *_limits_and_ours(traffic.text_run, ev.TextDelta, text_of),
            _openai_peer(traffic.openai_text, lambda item: str(item.content[0].text), 100_000),
            _anthropic_peer(traffic.anthropic_text, lambda block: str(block.text), 100_000),
        ],
        SIZES,
        pace,
        remark=remark,
    )
    tool = measure(
        "fold: tool arguments, from the wire",
        [
            *_limits_and_ours(traffic.tool_run, ev.ArgumentsDelta, arguments_of),
            _openai_peer(traffic.openai_tool, lambda item: str(item.arguments), 100_000),
            _anthropic_peer(traffic.anthropic_tool, lambda block: _json(block.input), 100_000),
        ],
        SIZES,
        pace,
        remark="The anthropic SDK parses the JSON so far after each delta.",
    )
    nested = measure(
        "fold: a sub-agent's text, from the wire",
        _limits_and_ours(traffic.nested_run, ev.TextDelta, child_text_of),
        SIZES,
        pace,
        remark="No peer here has sub-agents in its stream.",
    )
    return [text, tool, nested]


# --- from the stream -----------------------------------------------------------------------------

_CHUNK = 16 * 1024


def _native_stream(count: int) -> bytes:
    return b"".join(
        b"id: 1-%d\ndata: %b\n\n" % (number, raw)
        for number, raw in enumerate(traffic.as_bytes(traffic.text_run(count)), 1)
    )


def _openai_stream(count: int) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (json.loads(raw)["type"].encode(), raw)
        for raw in traffic.openai_text(count)
    )


def _limit_of_stream(stream: bytes) -> str:
    found: list[str] = []
    for frame in stream.split(b"\n\n"):
        if frame:
            event = _decode(frame[frame.index(b"data: ") + 6 :])
            if event.__class__ is ev.TextDelta:
                found.append(event.delta)
    return "".join(found)


def _read_stream(stream: bytes) -> str:
    parser, state = sse.SseParser(), State()
    for at in range(0, len(stream), _CHUNK):
        for event in parser.feed(stream[at : at + _CHUNK]):
            state.absorb(decode_event(event.data.encode()))
    return text_of(state)


def _openai_read_stream(stream: bytes) -> str:
    chunks = [stream[at : at + _CHUNK] for at in range(0, len(stream), _CHUNK)]
    response = httpx2.Response(
        200, content=iter(chunks), request=httpx2.Request("POST", "http://localhost/responses")
    )
    raw_stream: Any = openai.Stream(
        cast_to=ResponseStreamEvent,  # type: ignore[arg-type]  # a union is what the SDK hands in
        response=response,
        client=openai.OpenAI(api_key="none"),
    )
    whole: ResponseStream[Any] = ResponseStream(
        raw_stream=raw_stream,
        text_format=openai.omit,
        input_tools=openai.omit,
        starting_after=None,
    )
    return str(whole.get_final_response().output_text)


def _from_the_stream(pace: Pace) -> Table:
    return measure(
        "fold: text, from the SSE stream",
        [
            Contender("limit", _native_stream, _limit_of_stream),
            Contender("tailrace", _native_stream, _read_stream),
            Contender("openai SDK", _openai_stream, _openai_read_stream, most=100_000, why=_SLOW),
        ],
        SIZES[:3],
        pace,
        remark=(
            "The same with each contender's own parser of server-sent events, fed 16 KiB at a time "
            "without a network. The limit splits at blank lines, which is no parser."
        ),
    )


# --- state only ----------------------------------------------------------------------------------


def _absorbed(events: list[ev.Event]) -> str:
    state = State()
    for event in events:
        state.absorb(event)
    return text_of(state)


def _joined(deltas: list[str]) -> str:
    found: list[str] = []
    for delta in deltas:
        found.append(delta)  # noqa: PERF402  # a stream comes one by one
    return "".join(found)


class _Naive:
    text = ""


def _naive(deltas: list[str]) -> str:
    message = _Naive()
    for delta in deltas:
        message.text += delta
    return message.text


def _parts_manager(deltas: list[str]) -> str:
    manager = ModelResponsePartsManager(model_request_parameters=ModelRequestParameters())
    for delta in deltas:
        for _ in manager.handle_text_delta(vendor_part_id="msg_1", content=delta):
            pass
    part: Any = manager.get_parts()[0]
    return str(part.content)


def _state_only(pace: Pace) -> Table:
    return measure(
        "fold: text, events already decoded",
        [
            Contender("limit", traffic.pieces, _joined),
            Contender("tailrace", traffic.text_run, _absorbed),
            Contender(
                "openai SDK",
                lambda n: [openai_event(raw) for raw in traffic.openai_text(n)],
                lambda events: str(openai_folded(events).content[0].text),
                most=100_000,
                why=_SLOW,
            ),
            Contender(
                "anthropic SDK",
                lambda n: [anthropic_event(raw) for raw in traffic.anthropic_text(n)],
                lambda events: str(anthropic_folded(events).text),
                most=100_000,
                why=_QUADRATIC,
            ),
            Contender("pydantic-ai", traffic.pieces, _parts_manager),
            Contender(
                "naive: obj.text += delta", traffic.pieces, _naive, most=100_000, why=_QUADRATIC
            ),
        ],
        SIZES,
        pace,
        remark=(
            "The state machines alone. We and the SDKs take event objects. The limit (append to a "
            "list, join once), pydantic-ai's part manager and the naive class take the bare text. "
            "They look nothing up and check nothing."
        ),
    )


def run(pace: Pace) -> tuple[list[Table], list[Target]]:
    """All tables, and the targets they speak of."""
    text, tool, nested = _from_the_wire(pace)
    stream = _from_the_stream(pace)
    state = _state_only(pace)
    targets = [
        at_most(f"{table.title}, to the limit", 2.5, table.worst("tailrace", "limit"))
        for table in (text, tool, nested)
    ]
    targets += [flat(table.title, table) for table in (text, tool, nested)]
    targets += [
        at_least(
            f"{table.title}, the openai SDK's time to ours",
            100,
            table.least("openai SDK", "tailrace"),
        )
        for table in (text,)  # the target speaks of events; a stream's parsing is shown beside it
    ]
    return [text, tool, nested, stream, state], targets
