"""Events to JSON bytes and back, and what may not pass.

The bytes of an event are made once, by its writer; the log, the bus and the native stream carry
them as they are. Reading is strict about JSON and about known events, and keeps what it does not
know: see PROTOCOL.md, sections 4 (rule 9) and 11.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from tailrace.core.errors import (
    InvalidValue,
    MalformedEvent,
    StreamTooLarge,
    UnsupportedProtocol,
)
from tailrace.core.events import (
    KNOWN,
    AnnotationAdded,
    AnyEvent,
    ArgumentsDelta,
    DataDone,
    Event,
    FileDone,
    ImageAdded,
    ImageDelta,
    Notice,
    OutputItemAdded,
    OutputItemDone,
    Private,
    Progress,
    ReasoningTextDelta,
    Recorded,
    RefusalDelta,
    StructuredOutputDone,
    SummaryTextDelta,
    TaskCreated,
    TaskFailed,
    TaskInputReceived,
    TaskInputRequired,
    TaskUsage,
    TextDelta,
    TextDone,
    Unknown,
)
from tailrace.core.items import Item, RawItem, ToolResult
from tailrace.core.lines import Lines

PROTOCOL = 1
"""The version of PROTOCOL.md that is read and written here."""

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""What one event's public JSON may weigh. Larger things go out of line, as blobs."""

MAX_OPEN_BYTES = MAX_EVENT_BYTES - 512 * 1024
"""What an open item or part may weigh: the event that closes it repeats it, with names beside it.

So whatever is open can be closed. The bound is enforced where content is added."""

MAX_ID_LENGTH = 16 * 1024
"""Code points of an id: every event of a task or an item repeats its id."""

MAX_DEPTH = 100
"""How deep JSON may nest: far below any parser's own limit, so that all languages agree."""

MAX_INTEGER = 2**53 - 1
"""The largest integer that every JSON reader keeps exact."""

_encode: Callable[[object], bytes] = msgspec.json.Encoder().encode
decode_known: Callable[[bytes], Event] = msgspec.json.Decoder(reduce(or_, KNOWN)).decode
_private_decoder = msgspec.json.Decoder(Private)
_ITEM_EVENTS: dict[str, type[OutputItemAdded | OutputItemDone]] = {
    "task.output_item.added": OutputItemAdded,
    "task.output_item.done": OutputItemDone,
}
# As an integer: looking for one byte is ten times as fast as looking for the escape.
BACKSLASH = ord("\\")
_STATUSES = ("completed", "in_progress", "incomplete", "failed")
# Events with a field of any JSON or a float: only they can hold NaN, huge integers or deep nesting.
_LOOSE = frozenset(
    (
        TaskCreated,
        TaskInputRequired,
        TaskInputReceived,
        TaskUsage,
        TaskFailed,
        StructuredOutputDone,
        Notice,
        Progress,
        OutputItemAdded,
        OutputItemDone,
        AnnotationAdded,
        TextDone,
        DataDone,
        FileDone,
    )
)
# Those of them that mostly hold texts, and the names of the fields where they hold more.
_MOSTLY_TEXT = frozenset((OutputItemAdded, OutputItemDone, TextDone))
_LOOSE_FIELDS = (b'"raw"', b'"data"', b'"size"', b'"retry_after"', b'"index"')
# The most frequent events: a look at `delta` replaces the check of all their types.
_DELTAS = frozenset((SummaryTextDelta, ReasoningTextDelta, ArgumentsDelta, TextDelta, RefusalDelta))
# Events whose content is repeated by the event that closes the item or part.
_OPENING = (OutputItemAdded, ImageAdded, ImageDelta)
# How many levels deeper `output_item.done` holds a value than these events do.
_DEEPER: dict[type[Any], int] = {AnnotationAdded: 4, TextDone: 2, DataDone: 2}


def _needs_a_look(kind: type[Any], raw: bytes) -> bool:
    """Whether an event may hold what JSON, a database or another language cannot.

    Cheap, because it is asked for every event: a delta pays for one look at its class and one for
    a backslash.
    """
    if kind in _LOOSE and (kind not in _MOSTLY_TEXT or any(name in raw for name in _LOOSE_FIELDS)):
        return True
    return b"\\u0000" in raw


def encode_event(event: AnyEvent) -> bytes:
    """The public JSON of an event, once and for all."""
    kind = event.__class__
    if kind is Unknown:
        return event.raw  # type: ignore[union-attr]  # it is not ours to write anew
    try:
        raw = _encode(event)
    except UnicodeEncodeError as error:
        raise InvalidValue(
            "A string holds a lone surrogate, which is no Unicode text; replace it."
        ) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"The event holds a value that JSON cannot: {error}") from error
    if kind is OutputItemDone and _says_only_its_status(event.item):  # type: ignore[union-attr]
        raw = raw.removesuffix(b"}}") + b',"status":"completed"}}'
    if len(raw) > MAX_OPEN_BYTES:
        limit = MAX_OPEN_BYTES if kind in _OPENING else MAX_EVENT_BYTES
        if len(raw) > limit:
            raise StreamTooLarge(
                f"The event {event.__struct_config__.tag} is {len(raw)} bytes of JSON; "
                f"at most {limit} may pass. Store the content as a blob and send its URL."
            )
    if (kind in _LOOSE or BACKSLASH in raw) and _needs_a_look(kind, raw):
        check_value(msgspec.to_builtins(event), _DEEPER.get(kind, 0))
    if kind not in _DELTAS or event.delta.__class__ is not str:  # type: ignore[union-attr]
        _check_types(event, raw)
    return raw


def _check_types(event: AnyEvent, raw: bytes) -> None:
    """Refuse a field of the wrong type: the log would keep an event that no reader can decode."""
    try:
        decode_known(raw)
    except msgspec.ValidationError as error:
        try:
            _decode_unknown(raw, error)
        except MalformedEvent:
            tag = event.__struct_config__.tag
            raise InvalidValue(f"{tag} has a field of the wrong type: {_why(error)}.") from error


def _says_only_its_status(item: Item) -> bool:
    """Whether a result's `done` repeats no block: then `status` stands there, though a default."""
    return isinstance(item, ToolResult) and item.block_list is None and item.status == "completed"


def encode_private(private: Private) -> bytes:
    """The private part's JSON, under the same limits."""
    try:
        raw = _encode(private)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"The private part holds a value that JSON cannot: {error}") from error
    check_value(msgspec.to_builtins(private))
    return raw


def decode_event(raw: bytes) -> AnyEvent:
    """The event that these bytes are; `Unknown` when this version has no name for it."""
    _check_size(raw)
    try:
        event = decode_known(raw)
    except msgspec.ValidationError as error:
        return _decode_unknown(raw, error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedEvent(f"Not an event: {_why(error)}.") from error
    return _looked_at(event, raw)


def vetted(event: AnyEvent, raw: bytes) -> AnyEvent:
    """What `decode_known` or `decode_event` read from these bytes, unless it may not pass."""
    _check_size(raw)
    return _looked_at(event, raw)


def _looked_at(event: AnyEvent, raw: bytes) -> AnyEvent:
    kind = event.__class__
    if (kind in _LOOSE or BACKSLASH in raw) and _needs_a_look(kind, raw):
        if kind is TaskCreated and b'"protocol"' in raw:
            _check_protocol(raw)
        _check_foreign(msgspec.to_builtins(event))
    return event


def _check_protocol(raw: bytes) -> None:
    protocol = msgspec.json.decode(raw).get("protocol")
    if protocol not in (None, PROTOCOL):
        raise UnsupportedProtocol(
            f"The run is written in protocol {protocol}; this version reads protocol {PROTOCOL}. "
            "Upgrade Tailrace."
        )


def _check_size(raw: bytes) -> None:
    if len(raw) > MAX_EVENT_BYTES:
        raise StreamTooLarge(f"An event of {len(raw)} bytes; at most {MAX_EVENT_BYTES} are read.")


def decode_lines(stretches: Iterable[Lines]) -> list[Recorded]:
    """The events in some lines of a log."""
    return [
        Recorded(decode_event(line), line, stretch.epoch)
        for stretch in stretches
        for line in stretch.publics()
    ]


def decode_private(raw: bytes) -> Private:
    """The private part of a logged event."""
    try:
        return _private_decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedEvent(f"Not a private part: {_why(error)}.") from error


def check_value(value: Any, depth: int = 0) -> None:
    """Refuse what does not survive JSON, a database or another language: NaN, NUL, 100 levels.

    `depth` is how deep the value itself stands.
    """
    stack: list[tuple[Any, int]] = [(value, depth)]
    while stack:
        value, depth = stack.pop()
        if isinstance(value, str):
            _check_text(value)
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise InvalidValue("NaN and infinities have no JSON; send null or a string.")
        elif isinstance(value, int):
            if not -MAX_INTEGER <= value <= MAX_INTEGER:
                raise InvalidValue(
                    "An integer beyond 2^53 - 1, which JavaScript cannot hold; send it as a string."
                )
        elif isinstance(value, Mapping):
            _check_depth(depth)
            for key, item in value.items():
                _check_text(key)
                stack.append((item, depth + 1))
        elif isinstance(value, Sequence):
            _check_depth(depth)
            stack.extend((item, depth + 1) for item in value)


def _check_text(text: str) -> None:
    if "\x00" in text:
        raise InvalidValue("A string holds U+0000, which databases refuse; take it out.")


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise InvalidValue(
            f"JSON nested more than {MAX_DEPTH} deep; flatten it or send it as text."
        )


def _check_foreign(value: Any) -> None:
    try:
        check_value(value)
    except InvalidValue as error:
        raise MalformedEvent(f"Not an event: {error}") from error


def _decode_unknown(raw: bytes, error: msgspec.ValidationError) -> AnyEvent:
    """Keep an event of a newer version; refuse a broken event.

    msgspec says what did not fit. A new `type`, or a new value of an enumeration such as
    `executor`, comes from a newer version.
    """
    is_newer = str(error).endswith(".type`") or str(error).startswith("Invalid enum value")
    if not is_newer:
        raise MalformedEvent(f"Not an event: {_why(error)}.") from error
    try:
        loose = msgspec.json.decode(raw)
        number = loose.get("sequence_number", 0)
        head = (loose["type"], loose["task_id"])
    except (msgspec.DecodeError, RecursionError, KeyError, AttributeError) as failure:
        raise MalformedEvent("Not an event: no `type` or no `task_id`.") from failure
    if not all(isinstance(part, str) for part in head) or type(number) is not int or number < 0:
        raise MalformedEvent("Not an event: `type`, `task_id` or `sequence_number` is wrong.")
    _check_foreign(loose)
    tag, task_id = head
    if tag in _ITEM_EVENTS and str(error).endswith("`$.item.type`"):
        return _raw_item_event(_ITEM_EVENTS[tag], loose)
    return Unknown(task_id=task_id, sequence_number=number, type=tag, raw=raw)


def _raw_item_event(cls: type[OutputItemAdded | OutputItemDone], loose: dict[str, Any]) -> AnyEvent:
    item = loose["item"]
    ident, status = item.get("id", ""), item.get("status")
    kept = RawItem(
        id=ident if isinstance(ident, str) else "",
        raw=item,
        status=status if status in _STATUSES else "completed",
    )
    try:
        return msgspec.convert({**loose, "item": msgspec.to_builtins(kept)}, cls)
    except msgspec.ValidationError as error:
        raise MalformedEvent(f"Not an event: {_why(error)}.") from error


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"JSON nested more than {MAX_DEPTH} deep"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return str(error).rstrip(".")
