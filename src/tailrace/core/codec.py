"""Encode events as JSON, decode them, and refuse what PROTOCOL.md forbids.

An event is encoded once, by its writer; the log, the bus and the native stream carry these bytes.
Decoding is strict about JSON and known events, and keeps unknown events: see PROTOCOL.md, sections
4 (rule 9) and 11.
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
    Recorded,
    StructuredOutputDone,
    TaskCreated,
    TaskFailed,
    TaskInputReceived,
    TaskInputRequired,
    TaskUsage,
    TextDone,
    Unknown,
)
from tailrace.core.items import Item, RawItem, ToolResult
from tailrace.core.log_lines import LogLines
from tailrace.core.parts import DELTAS

PROTOCOL = 1
"""The version of PROTOCOL.md that is read and written here."""

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Most bytes of an event's public JSON. Store larger content as a blob."""

MAX_OPEN_BYTES = MAX_EVENT_BYTES - 512 * 1024
"""Most bytes of an open item or part: the event that closes it repeats it and adds names.

The bound is enforced where content is added, so that everything open can be closed."""

MAX_ID_LENGTH = 16 * 1024
"""Most code points of an id: every event of a task or an item repeats its id."""

MAX_DEPTH = 100
"""Deepest nesting of JSON: far below the limit of any parser, so that all languages agree."""

MAX_INTEGER = 2**53 - 1
"""The largest integer that every JSON parser reads exactly."""

_encode: Callable[[object], bytes] = msgspec.json.Encoder().encode
decode_known: Callable[[bytes], Event] = msgspec.json.Decoder(reduce(or_, KNOWN)).decode
_private_decoder = msgspec.json.Decoder(Private)
_ITEM_EVENTS: dict[str, type[OutputItemAdded | OutputItemDone]] = {
    "task.output_item.added": OutputItemAdded,
    "task.output_item.done": OutputItemDone,
}
# As an integer: a search for a byte is ten times as fast as a search for the escape.
BACKSLASH = ord("\\")
_STATUSES = ("completed", "in_progress", "incomplete", "failed")
# Events with a field of any JSON or a float: only these can hold NaN, huge integers or deep
# nesting.
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
# Events of these that mostly hold text, and the names of their fields with any JSON.
_MOSTLY_TEXT = frozenset((OutputItemAdded, OutputItemDone, TextDone))
_LOOSE_FIELDS = (b'"raw"', b'"data"', b'"size"', b'"retry_after"', b'"index"')
# Events whose content is repeated by the event that closes the item or part.
_OPENING = (OutputItemAdded, ImageAdded, ImageDelta)
# How many levels deeper a value is in `output_item.done` than in these events.
_DEEPER: dict[type[Any], int] = {AnnotationAdded: 4, TextDone: 2, DataDone: 2}


def _needs_a_look(kind: type[Any], raw: bytes) -> bool:
    """Whether an event may hold a value that `check_value` refuses.

    It must be cheap, because it is called for every event.
    """
    if kind in _LOOSE and (kind not in _MOSTLY_TEXT or any(name in raw for name in _LOOSE_FIELDS)):
        return True
    return b"\\u0000" in raw


def encode_event(event: AnyEvent) -> bytes:
    """The public JSON of an event."""
    kind = event.__class__
    if kind is Unknown:
        return event.raw  # type: ignore[union-attr]  # keep the bytes of an unknown event
    try:
        raw = _encode(event)
    except UnicodeEncodeError as error:
        raise InvalidValue(
            "The event has a string with a lone surrogate, which is not Unicode. Replace it."
        ) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(
            f"The event has a value that JSON cannot hold: {error}. Convert it."
        ) from error
    # Deltas are the most frequent events: checking `delta` replaces the check of all fields.
    is_delta = kind in DELTAS and event.delta.__class__ is str  # type: ignore[union-attr]
    if is_delta and BACKSLASH not in raw and len(raw) <= MAX_OPEN_BYTES:
        return raw
    if kind is OutputItemDone and _needs_status(event.item):  # type: ignore[union-attr]
        raw = raw.removesuffix(b"}}") + b',"status":"completed"}}'
    if len(raw) > MAX_OPEN_BYTES:
        limit = MAX_OPEN_BYTES if kind in _OPENING else MAX_EVENT_BYTES
        if len(raw) > limit:
            raise StreamTooLarge(
                f"The event {event.__struct_config__.tag} has {len(raw)} bytes of JSON; the limit "
                f"is {limit}. Store the content as a blob and send its URL."
            )
    if (kind in _LOOSE or BACKSLASH in raw) and _needs_a_look(kind, raw):
        check_value(msgspec.to_builtins(event), _DEEPER.get(kind, 0))
    if not is_delta:
        _check_types(event, raw)
    return raw


def _check_types(event: AnyEvent, raw: bytes) -> None:
    """Refuse a field of the wrong type: no reader could decode the event. `at` must be a time."""
    try:
        decode_known(raw)
    except msgspec.ValidationError as error:
        try:
            _decode_unknown(raw, error)
        except MalformedEvent:
            tag = event.__struct_config__.tag
            raise InvalidValue(
                f"{tag} has a field of the wrong type: {_why(error)}. Correct it."
            ) from error
    at = getattr(event, "at", None)
    if at is not None and not 0 <= at < math.inf:
        tag = event.__struct_config__.tag
        raise InvalidValue(
            f"{tag} has the time {at} as `at`. Set `at` to Unix seconds: finite, and not negative."
        )


def _needs_status(item: Item) -> bool:
    """Whether a result's `done` has no blocks: then it names its status, although a default."""
    return isinstance(item, ToolResult) and item.block_list is None and item.status == "completed"


def encode_private(private: Private) -> bytes:
    """The JSON of a private part, under the same limits."""
    try:
        raw = _encode(private)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(
            f"The private part has a value that JSON cannot hold: {error}. Convert it."
        ) from error
    check_value(msgspec.to_builtins(private))
    return raw


def decode_event(raw: bytes) -> AnyEvent:
    """Decode an event; `Unknown` if this version does not know its type."""
    _check_size(raw)
    try:
        event = decode_known(raw)
    except msgspec.ValidationError as error:
        return _decode_unknown(raw, error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedEvent(f"Not an event: {_why(error)}.") from error
    return _looked_at(event, raw)


def checked_event(event: AnyEvent, raw: bytes) -> AnyEvent:
    """The event that was decoded from these bytes, after the checks of `decode_event`."""
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
            f"The run has protocol {protocol}; this version reads protocol {PROTOCOL}. "
            "Upgrade Tailrace."
        )


def _check_size(raw: bytes) -> None:
    if len(raw) > MAX_EVENT_BYTES:
        raise StreamTooLarge(
            f"The event has {len(raw)} bytes; the limit is {MAX_EVENT_BYTES}. Write smaller pieces."
        )


def decode_lines(stretches: Iterable[LogLines]) -> list[Recorded]:
    """Decode the events in lines of a log."""
    return [
        Recorded(decode_event(line), line, stretch.epoch)
        for stretch in stretches
        for line in stretch.publics()
    ]


def decode_private(raw: bytes) -> Private:
    """Decode the private part of an event."""
    try:
        return _private_decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedEvent(f"Not a private part: {_why(error)}.") from error


def check_value(value: Any, depth: int = 0) -> None:
    """Refuse values that JSON, a database or another language cannot hold: NaN, NUL, 100 levels.

    `depth` is the depth of the value itself.
    """
    stack: list[tuple[Any, int]] = [(value, depth)]
    while stack:
        value, depth = stack.pop()
        if isinstance(value, str):
            _check_text(value)
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise InvalidValue("JSON has no NaN or infinity. Send null or a string.")
        elif isinstance(value, int):
            if not -MAX_INTEGER <= value <= MAX_INTEGER:
                raise InvalidValue(
                    f"JavaScript cannot hold the integer {value}. Send it as a string."
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
        raise InvalidValue("A string has U+0000, which databases refuse. Remove it.")


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise InvalidValue(
            f"JSON is nested more than {MAX_DEPTH} levels deep. Flatten it or send it as text."
        )


def _check_foreign(value: Any) -> None:
    try:
        check_value(value)
    except InvalidValue as error:
        raise MalformedEvent(f"Not an event: {error}") from error


def _decode_unknown(raw: bytes, error: msgspec.ValidationError) -> AnyEvent:
    """Keep an event of a newer version; refuse a broken event.

    The error of msgspec names the field. A new `type`, or a new value of an enumeration such as
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
        return f"JSON is nested more than {MAX_DEPTH} levels deep"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return str(error).rstrip(".")
