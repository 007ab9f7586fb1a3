"""Framing and parsing of server-sent events, against the WHATWG rules and against forgers."""

import time
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.core.errors import InvalidFrame, StreamTooLarge
from tailrace.core.sse import SseEvent, SseParser, comment, frame, retry


def parse(stream: bytes) -> list[SseEvent]:
    return SseParser().feed(stream)


def parse_bytewise(stream: bytes) -> list[SseEvent]:
    parser = SseParser()
    return [event for at in range(len(stream)) for event in parser.feed(stream[at : at + 1])]


def reference(stream: bytes) -> list[SseEvent]:
    """The specification word by word: decode everything, split into lines, interpret."""
    text = stream.decode("utf-8", "replace")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    data, name, ident = "", "", ""
    events = []
    for line in text.split("\n")[:-1]:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                events.append(SseEvent(data.removesuffix("\n"), name or "message", ident))
            data = name = ""
        elif field == "data":
            data += value + "\n"
        elif field == "event":
            name = value
        elif field == "id" and "\0" not in value:
            ident = value
    return events


# --- frames ------------------------------------------------------------------------------------


def test_a_frame_is_its_fields_and_one_data_line() -> None:
    assert frame(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert frame(b"x", id="3-17") == b"id: 3-17\ndata: x\n\n"
    assert frame(b"x", event="ping") == b"event: ping\ndata: x\n\n"
    assert frame(b"x", event="ping", id="1") == b"event: ping\nid: 1\ndata: x\n\n"


@pytest.mark.parametrize("sign", ["\r", "\n", "\r\n", "\0"])
@pytest.mark.parametrize("where", ["event", "id"])
def test_a_line_break_or_nul_in_a_name_or_id_is_refused_because_it_would_forge_a_frame(
    sign: str, where: str
) -> None:
    forged = f"a{sign}data: forged"
    with pytest.raises(InvalidFrame):
        frame(b"x", event=forged if where == "event" else "e", id=forged if where == "id" else "1")
    with pytest.raises(InvalidFrame):
        frame(b"x", event=forged) if where == "event" else frame(b"x", id=forged)


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\t"])
def test_other_separators_are_ordinary_characters_everywhere(sign: str) -> None:
    made = frame(f"a{sign}b".encode(), event=f"c{sign}d", id=f"e{sign}f")
    assert parse(made) == [SseEvent(f"a{sign}b", f"c{sign}d", f"e{sign}f")]


def test_a_lone_surrogate_is_refused_with_a_typed_error() -> None:
    with pytest.raises(InvalidFrame):
        frame(b"x", id="\ud800")
    with pytest.raises(InvalidFrame):
        comment("\ud800")


def test_data_with_line_breaks_becomes_several_data_lines() -> None:
    assert frame(b"a\nb\r\nc\rd") == b"data: a\ndata: b\ndata: c\ndata: d\n\n"
    assert frame(b"\r") == b"data: \ndata: \n\n"


@given(st.binary())
@example(b"x\n\ndata: forged\n\n")
@example(b"\r\n\r\n")
@example(b"\xe2\x82")
@example(b"a\nid: 9")
def test_whatever_the_data_holds_it_stays_one_event(data: bytes) -> None:
    expected = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    assert parse(frame(data, event="e", id="7")) == [SseEvent(expected, "e", "7")]


@given(
    st.binary(),
    st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), min_size=1),
    st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0")),
)
def test_what_is_framed_is_parsed_again(data: bytes, event: str | None, ident: str | None) -> None:
    [parsed] = parse(frame(data, event=event, id=ident))
    assert (parsed.event, parsed.id) == (event or "message", ident or "")


@given(st.text(st.characters(codec="utf-8")))
@example("a\n\ndata: forged\n\n")
@example("a\rdata: forged\r\r")
def test_a_comment_never_becomes_an_event(text: str) -> None:
    assert parse(comment(text) + frame(b"x")) == [SseEvent("x")]


def test_comments_and_retry_end_with_a_blank_line_for_parsers_that_split_there() -> None:
    assert comment("ping") == b": ping\n\n"
    assert comment("a\nb\r\nc") == b": a\n: b\n: c\n\n"
    assert comment() == b": \n\n"
    assert retry(0) == b"retry: 0\n\n"
    assert retry(2500) == b"retry: 2500\n\n"


def test_a_negative_retry_is_refused() -> None:
    with pytest.raises(InvalidFrame):
        retry(-1)


# --- parsing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        # The examples of the specification, section 9.2.6.
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [SseEvent("YHOO\n+2\n10")]),
        (
            b": test stream\n\ndata: first\nid: 1\n\ndata:second event\nid\n\ndata:  third\n\n",
            [SseEvent("first", id="1"), SseEvent("second event"), SseEvent(" third")],
        ),
        (b"data\n\ndata\ndata\n\ndata:", [SseEvent(""), SseEvent("\n")]),
        (b"data:test\n\ndata: test\n\n", [SseEvent("test"), SseEvent("test")]),
        # Line ends.
        (b"data: a\rdata: b\r\r", [SseEvent("a\nb")]),
        (b"data: a\r\ndata: b\r\n\r\n", [SseEvent("a\nb")]),
        (b"data: a\n\rdata: b\n\n", [SseEvent("a"), SseEvent("b")]),
        (b"data: a\r\n\ndata: b\r\n\n", [SseEvent("a"), SseEvent("b")]),
        # Names.
        (b"event: x\ndata: a\n\ndata: b\n\n", [SseEvent("a", "x"), SseEvent("b")]),
        (b"event: x\n\ndata: b\n\n", [SseEvent("b")]),
        (b"event: x\nevent: y\ndata: a\n\n", [SseEvent("a", "y")]),
        (b"event: x\nevent\ndata: a\n\n", [SseEvent("a")]),
        # Ids stay until another comes; one with a NUL is none.
        (b"id: 1\ndata: a\n\ndata: b\n\n", [SseEvent("a", id="1"), SseEvent("b", id="1")]),
        (b"id: 1\nid: 2\0\ndata: a\n\n", [SseEvent("a", id="1")]),
        # Fields that are none.
        (b"Data: a\ndata : b\n data: c\nfoo: d\nfoo\n: e\n:\ndata: f\n\n", [SseEvent("f")]),
        (b"data: a: b\n\n", [SseEvent("a: b")]),
        (b"data:\tx\n\n", [SseEvent("\tx")]),
        (b"data: a\0b\n\n", [SseEvent("a\0b")]),
        # No data, no event; no blank line, no event.
        (b"id: 1\nevent: x\n\n", []),
        (b"data: a\n", []),
        (b"data: a", []),
        (b"\n\n\n", []),
        (b"", []),
        # One byte order mark at the very start.
        (b"\xef\xbb\xbfdata: a\n\n", [SseEvent("a")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
        (b"\n\xef\xbb\xbfdata: a\n\n", []),
        (b"\xef\xbb\xbf\ndata: a\n\n", [SseEvent("a")]),
        (b"data: \xef\xbb\xbfa\n\n", [SseEvent("\ufeffa")]),
        # Bad bytes are replaced, and never swallow a line end.
        (b"data: \xff\xe2\x82\ndata: \xf0\x9f\n\n", [SseEvent("\ufffd\ufffd\n\ufffd")]),
    ],
)
def test_a_stream_is_read_as_the_specification_says_wherever_it_is_cut(
    stream: bytes, events: list[SseEvent]
) -> None:
    assert reference(stream) == events
    assert parse(stream) == events
    assert parse_bytewise(stream) == events
    for cut in range(len(stream) + 1):
        parser = SseParser()
        assert parser.feed(stream[:cut]) + parser.feed(b"") + parser.feed(stream[cut:]) == events


FRAGMENTS = st.sampled_from(
    [
        *(b"data", b"event", b"id", b"retry", b":", b" ", b"\r", b"\n", b"\r\n", b"\n\n", b"\0"),
        *(b"\xef\xbb\xbf", b"\xe2\x82\xac", b"\xf0\x9f\x98\x80", b"\xff", b"\x0b", b"\xc2\x85"),
        b"7",
    ]
)


@given(st.lists(FRAGMENTS | st.binary(max_size=3)).map(b"".join))
def test_any_bytes_are_read_as_the_specification_says(stream: bytes) -> None:
    assert parse(stream) == reference(stream)


@given(st.lists(FRAGMENTS).map(b"".join), st.data())
def test_a_cut_anywhere_is_invisible(stream: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream))).map(sorted))
    whole, parser = SseParser(), SseParser()
    expected = whole.feed(stream)
    edges = [0, *cuts, len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    assert [event for piece in pieces for event in parser.feed(piece)] == expected
    assert (parser.last_event_id, parser.retry) == (whole.last_event_id, whole.retry)


def test_a_trailing_cr_ends_its_line_at_once_and_takes_the_lf_that_may_follow() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r") == []
    assert parser.feed(b"\n") == []  # the other half of the CRLF, not a blank line
    assert parser.feed(b"\r") == [SseEvent("a")]  # no event waits for the byte after it
    assert parser.feed(b"\ndata: b\n\n") == [SseEvent("b")]


def test_the_id_to_reconnect_with_is_that_of_a_whole_event() -> None:
    parser = SseParser()
    assert parser.last_event_id == ""
    parser.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n")
    assert parser.last_event_id == "1"
    parser.feed(b"\n")
    assert parser.last_event_id == "2"
    parser.feed(b"id: 3\n\n")  # without data nothing is dispatched, but the id counts
    assert parser.last_event_id == "3"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"2500", 2500),
        (b"0", 0),
        (b"999999999999999", 999999999999999),
        (b"", None),
        (b"-1", None),
        (b"+1", None),
        (b"1_0", None),
        (b"1.5", None),
        (b" 1", None),
        ("١".encode(), None),
        (b"9" * 5000, None),
    ],
)
def test_retry_takes_ascii_digits_only(value: bytes, expected: int | None) -> None:
    parser = SseParser()
    parser.feed(b"retry: " + value + b"\n")
    assert parser.retry == expected


def test_digits_of_another_field_are_not_a_retry() -> None:
    parser = SseParser()
    parser.feed(b"data: 1\nevent: 2\nid: 3\nfoo: 4\n: 5\n\n")
    assert parser.retry is None


@pytest.mark.parametrize("cut", [1, 3, 1000])
def test_an_event_beyond_the_limit_is_refused_with_a_typed_error(cut: int) -> None:
    def read(stream: bytes) -> None:
        parser = SseParser(max_event_bytes=100)
        for at in range(0, len(stream), cut):
            parser.feed(stream[at : at + cut])

    read((b"data: " + b"x" * 93 + b"\n\n") * 3)
    with pytest.raises(StreamTooLarge):
        read(b"data: " + b"x" * 94 + b"\n\n")
    with pytest.raises(StreamTooLarge):
        read(b"x" * 101)  # a line without an end
    with pytest.raises(StreamTooLarge):
        read(b":" + b"x" * 100 + b"\n")  # a comment
    with pytest.raises(StreamTooLarge):
        read(b"data: " + b"x" * 40 + b"\n" + b"data: " + b"x" * 60)
    with pytest.raises(StreamTooLarge):
        read(b"data\n" * 21)  # empty lines take memory too
    read(b"data: xxxxx\n\n" * 100)  # the limit is for one event
    read(b": ping\n" * 100)  # what is not kept does not count
    read(b"event: ping\n" * 100)


def test_the_default_limit_allows_16_mib_and_refuses_more_than_32_mib() -> None:
    [event] = SseParser().feed(b"data: " + b"x" * (16 << 20) + b"\n\n")
    assert len(event.data) == 16 << 20
    with pytest.raises(StreamTooLarge):
        SseParser().feed(b"x" * (32 << 20) + b"x")


@pytest.mark.growth
def test_time_is_linear_in_one_long_line_and_in_single_bytes() -> None:
    # Quadratic reading would take minutes; the bound is loose because machines are slow at times.
    started = time.process_time()
    [event] = SseParser(1 << 30).feed(b"data: " + b"x" * 50_000_000 + b"\n\n")
    assert len(event.data) == 50_000_000
    parser = SseParser()
    parser.feed(b"data: ")
    for _ in range(500_000):
        parser.feed(b"x")
    [event] = parser.feed(b"\n\n")
    assert len(event.data) == 500_000
    [event] = parse(b"data: x\n" * 300_000 + b"\n")
    assert event.data.count("\n") == 299_999
    assert time.process_time() - started < 30
