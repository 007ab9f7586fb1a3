"""What may pass as an event, and one clear error for each thing that may not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.core import codec
from tailrace.core import events as ev
from tailrace.core import items as it
from tailrace.core.codec import (
    check_value,
    decode_event,
    decode_lines,
    decode_private,
    encode_event,
    encode_private,
)
from tailrace.core.errors import (
    InvalidValue,
    MalformedEvent,
    ProviderError,
    StreamTooLarge,
    UnsupportedProtocol,
)
from tailrace.core.fold import State
from tailrace.core.log_lines import LogLines


def notice(data: Any) -> ev.Notice:
    return ev.Notice(task_id="run_1", message="m", data=data)


def raw_notice(data: str) -> bytes:
    return b'{"type":"task.notice","task_id":"run_1","message":"m","data":' + data.encode() + b"}"


def test_an_event_comes_back_as_it_went() -> None:
    event = notice({"rows": [1, 2.5, None, True, "é🧥"]})
    assert decode_event(encode_event(event)) == event
    assert event.type == "task.notice"


def test_items_and_blocks_have_their_type_as_events_have() -> None:
    text = it.Text(text="Hi")
    done = ev.TextDone(task_id="run_1", item_id="i", output_index=0, block_index=0, item=text)
    assert (done.type, done.item.type) == ("task.text.done", "text")
    assert it.ToolResult(id="r", call_id="c").type == "tool_result"
    assert it.Usage().type == ""


def test_defaults_stay_off_the_wire() -> None:
    event = ev.TextDone(
        task_id="t", item_id="i", output_index=0, block_index=0, item=it.Text(text="")
    )
    assert json.loads(encode_event(event)) == {
        "type": "task.text.done",
        "task_id": "t",
        "item_id": "i",
        "output_index": 0,
        "block_index": 0,
        "item": {"type": "text", "text": ""},
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_cannot_hold_are_refused(value: float) -> None:
    with pytest.raises(InvalidValue, match="NaN"):
        encode_event(notice([value]))


def test_a_cost_that_is_not_a_number_is_refused() -> None:
    usage = ev.TaskUsage(task_id="t", usage=it.Usage(cost=float("nan")))
    with pytest.raises(InvalidValue, match="NaN"):
        encode_event(usage)


def test_an_integer_that_javascript_cannot_hold_is_refused_both_ways() -> None:
    assert encode_event(notice(2**53 - 1))
    with pytest.raises(InvalidValue, match="as a string"):
        encode_event(notice(2**53))
    with pytest.raises(MalformedEvent, match="as a string"):
        decode_event(raw_notice(str(-(2**53))))


def test_five_thousand_digits_are_refused_both_ways() -> None:
    with pytest.raises(InvalidValue):
        encode_event(notice(10**5000))
    with pytest.raises(MalformedEvent):
        decode_event(raw_notice("9" * 5000))


def test_deep_nesting_is_refused_both_ways() -> None:
    deep: Any = "x"
    for _ in range(150):
        deep = [deep]
    with pytest.raises(InvalidValue, match="100 levels deep"):
        encode_event(notice(deep))
    with pytest.raises(MalformedEvent, match="100 levels deep"):
        decode_event(raw_notice("[" * 150 + "]" * 150))
    with pytest.raises(MalformedEvent, match="100 levels deep"):
        decode_event(raw_notice("[" * 100_000 + "]" * 100_000))
    objects: Any = 1
    for _ in range(5000):
        objects = {"a": objects}
    with pytest.raises(InvalidValue):
        encode_event(notice(objects))


def test_nesting_up_to_the_limit_passes() -> None:
    deep: Any = "x"
    for _ in range(codec.MAX_DEPTH - 1):
        deep = [deep]
    event = notice(deep)
    assert decode_event(encode_event(event)) == event


def test_nul_is_refused_in_every_string_and_key() -> None:
    delta = ev.TextDelta(task_id="t", item_id="i", output_index=0, block_index=0, delta="a\x00b")
    with pytest.raises(InvalidValue, match="U\\+0000"):
        encode_event(delta)
    with pytest.raises(InvalidValue, match="U\\+0000"):
        encode_event(notice({"a\x00": 1}))
    with pytest.raises(MalformedEvent, match="U\\+0000"):
        decode_event(raw_notice('"\\u0000"'))


def test_an_escaped_backslash_before_u0000_is_not_a_nul() -> None:
    event = notice("\\u0000")
    assert decode_event(encode_event(event)) == event


def test_lone_surrogates_are_refused_both_ways() -> None:
    with pytest.raises(InvalidValue, match="surrogate"):
        encode_event(notice("\ud800"))
    with pytest.raises(MalformedEvent):
        decode_event(raw_notice('"\\ud800"'))
    with pytest.raises(MalformedEvent, match="UTF-8"):
        decode_event(b'{"type":"task.in_progress","task_id":"\xed\xa0\x80"}')


def test_a_value_that_is_not_json_is_refused() -> None:
    with pytest.raises(InvalidValue, match="JSON cannot"):
        encode_event(notice(object()))


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (
            ev.ArgumentsDelta(
                task_id="t",
                item_id="i",
                output_index=0,
                delta={"city": "Paris"},  # type: ignore[arg-type]
            ),
            "delta",
        ),
        (ev.Notice(task_id="t", message=15), "message"),  # type: ignore[arg-type]
        (
            ev.OutputItemAdded(
                task_id="t",
                output_index=0,
                item=it.ToolCall(id="i", call_id="c", name=15, arguments=""),  # type: ignore[arg-type]
            ),
            r"item\.name",
        ),
    ],
)
def test_an_event_that_no_reader_could_decode_is_refused(event: ev.Event, field: str) -> None:
    with pytest.raises(InvalidValue, match=rf"^task\..*Expected `str`.*\$\.{field}"):
        encode_event(event)


@pytest.mark.parametrize("at", [float("nan"), float("inf"), -0.001, "now", True])
def test_an_invalid_time_is_refused(at: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^task\.completed .*`at`|\$\.at"):
        encode_event(ev.TaskCompleted(task_id="t", at=at))


def test_an_event_gets_its_time_once() -> None:
    event = ev.timed(ev.TaskCompleted(task_id="t"), 1700000000.12345)
    assert encode_event(event) == b'{"type":"task.completed","task_id":"t","at":1700000000.123}'
    assert ev.timed(event, 5.0) == event
    assert ev.timed(notice(None), 5.0) == notice(None)


def test_fifty_megabytes_in_one_event_are_refused_both_ways() -> None:
    delta = ev.TextDelta(
        task_id="t", item_id="i", output_index=0, block_index=0, delta="x" * 50_000_000
    )
    with pytest.raises(StreamTooLarge, match="blob"):
        encode_event(delta)
    with pytest.raises(StreamTooLarge):
        decode_event(raw_notice('"' + "x" * 50_000_000 + '"'))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b'"task.created"',
        b"{",
        b"NaN",
        b'{"type":"task.text.delta"}',
        b'{"type":"task.text.delta","task_id":5}',
        b'{"task_id":"t"}',
        b'{"type":"task.hologram"}',
        b'{"type":"task.hologram","task_id":5}',
        b'{"type":"task.hologram","task_id":"t","sequence_number":-1}',
        b'{"type":"task.hologram","task_id":"t","sequence_number":"1"}',
        b'{"type":"task.hologram","task_id":"t","sequence_number":true}',
        b'{"type":"task.completed","task_id":"t","at":"now"}',
        b'{"type":"task.completed","task_id":"t","at":1e999}',
        b'{"type":5,"task_id":"t"}',
        b'{"type":"task.output_item.added","task_id":"t","output_index":"0","item":{"type":"x"}}',
        b'{"type":"task.output_item.added","task_id":"t","item":{"type":"x"}}',
        b"\xff\xfe",
    ],
)
def test_bytes_that_are_not_an_event_are_one_typed_error(raw: bytes) -> None:
    with pytest.raises(MalformedEvent):
        decode_event(raw)


def test_an_unknown_event_is_kept_with_its_bytes() -> None:
    raw = b'{"type":"task.hologram","task_id":"t","sequence_number":7,"z":[1,2]}'
    event = decode_event(raw)
    assert event == ev.Unknown(task_id="t", sequence_number=7, type="task.hologram", raw=raw)
    assert encode_event(event) == raw


def test_an_unknown_event_is_held_to_the_limits_of_json() -> None:
    with pytest.raises(MalformedEvent, match="100 levels deep"):
        decode_event(b'{"type":"x","task_id":"t","z":' + b"[" * 150 + b"]" * 150 + b"}")


def test_an_item_of_an_unknown_type_becomes_a_raw_item() -> None:
    event = decode_event(
        b'{"type":"task.output_item.done","task_id":"t","sequence_number":3,"output_index":0,'
        b'"item":{"type":"hologram","id":"h_1","status":"incomplete","beam":true}}'
    )
    raw = {"type": "hologram", "id": "h_1", "status": "incomplete", "beam": True}
    assert event == ev.OutputItemDone(
        task_id="t",
        sequence_number=3,
        output_index=0,
        item=it.RawItem(id="h_1", raw=raw, status="incomplete"),
    )


def test_a_raw_item_needs_neither_an_id_nor_a_known_status() -> None:
    event = decode_event(
        b'{"type":"task.output_item.added","task_id":"t","output_index":0,'
        b'"item":{"type":"hologram","id":5,"status":"hovering"}}'
    )
    assert isinstance(event, ev.OutputItemAdded)
    assert event.item.id == ""
    assert event.item.status == "completed"


def test_a_block_of_an_unknown_type_makes_the_event_unknown() -> None:
    event = decode_event(
        b'{"type":"task.output_item.done","task_id":"t","output_index":0,"item":'
        b'{"type":"message","id":"m","role":"assistant","block_list":[{"type":"hologram"}]}}'
    )
    assert isinstance(event, ev.Unknown)


def test_a_private_part_comes_back_as_it_went() -> None:
    private = ev.Private(
        content=[it.TextPart(text="x", id=1, tags=["a"])], provider={"id": "resp_1"}, signature="s"
    )
    assert decode_private(encode_private(private)) == private


@pytest.mark.parametrize("value", [object(), "\ud800", float("nan"), "\x00"])
def test_a_private_part_has_the_same_limits(value: Any) -> None:
    with pytest.raises(InvalidValue):
        encode_private(ev.Private(raw=value))


def test_bytes_that_are_not_a_private_part_are_one_typed_error() -> None:
    with pytest.raises(MalformedEvent, match="private part"):
        decode_private(b'{"content":5}')


def test_plain_values_pass_the_check() -> None:
    check_value({"a": [1, 2.5, "x", None, True, {"b": ()}]})


def test_lines_of_a_log_are_its_events_with_their_writers_epoch() -> None:
    first, second = b'{"type":"task.completed","task_id":"r"}', b'{"type":"x.y","task_id":"r"}'
    found = decode_lines([LogLines(1, 1, 1, first), LogLines(2, 2, 4, second)])
    assert found == [
        ev.Recorded(decode_event(first), first, 1),
        ev.Recorded(decode_event(second), second, 4),
    ]


def test_an_error_of_a_provider_says_when_to_come_back() -> None:
    assert ProviderError("busy", retry_after=2.5).retry_after == 2.5
    assert ProviderError("busy").code == "provider_error"


def test_only_the_end_of_the_root_ends_a_run() -> None:
    for task_id, event in (
        ("run_1", ev.TaskCompleted(task_id="run_1")),
        ("call_1", ev.TaskFailed(task_id="call_1", error=it.ErrorInfo(code="x", message="y"))),
        ("run_1", ev.TaskInProgress(task_id="run_1")),
    ):
        ends = task_id == "run_1" and isinstance(event, ev.TaskCompleted)
        assert ev.is_end(ev.Recorded(event, b""), "run_1") is ends


# --- newer versions ------------------------------------------------------------------------------

NEWER = [
    (
        b'{"type":"task.output_item.added","task_id":"r","sequence_number":1,"output_index":0,'
        b'"item":{"type":"tool_call","id":"a","call_id":"c","name":"n","executor":"edge"}}'
    ),
    (
        b'{"type":"task.output_item.done","task_id":"r","sequence_number":1,"output_index":0,'
        b'"item":{"type":"message","id":"a","role":"assistant","status":"paused"}}'
    ),
    (
        b'{"type":"task.input_required","task_id":"r","sequence_number":1,'
        b'"requests":[{"id":"a","kind":"vote"}]}'
    ),
]


@pytest.mark.parametrize("raw", NEWER)
def test_an_event_with_a_new_value_of_an_enumeration_is_kept_whole(raw: bytes) -> None:
    event = decode_event(raw)
    assert isinstance(event, ev.Unknown)
    assert (event.raw, event.task_id, event.sequence_number) == (raw, "r", 1)


REFUSED = sorted((Path(__file__).parents[2] / "conformance" / "refused").glob("*.jsonl"))


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path.stem)
def test_a_run_of_a_newer_version_of_the_protocol_is_refused(path: Path) -> None:
    lines = path.read_bytes().splitlines()
    state = State()
    with pytest.raises(UnsupportedProtocol, match="Upgrade"):
        state.absorb_lines(lines)
    with pytest.raises(UnsupportedProtocol):
        decode_event(lines[0])
    assert state.root is None
    older = lines[0].replace(b'"protocol":2', b'"protocol":1')
    assert isinstance(decode_event(older), ev.TaskCreated)
