"""Frames are cut behind blank lines and nowhere else, byte for byte."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.repair import frames
from tailrace.repair.frames import FrameSplitter, RawFrame

bits = st.lists(st.sampled_from((b"\r", b"\n", b"a", b"data: x", b":"))).map(b"".join)


def cut(body: bytes, sizes: list[int]) -> list[bytes]:
    chunks, at = [], 0
    for size in sizes:
        chunks.append(body[at : at + size])
        at += size
    return [*chunks, body[at:]]


@given(bits, st.lists(st.integers(0, 5)), st.integers(1, 20))
@example(b"a\n\r\nb\n\n", [3], 20)
@example(b"a\r\n\r\nb", [4], 20)
def test_however_the_bytes_come_the_frames_are_the_same(
    body: bytes, sizes: list[int], limit: int
) -> None:
    whole = FrameSplitter(limit)
    once = whole.feed(body)
    again = FrameSplitter(limit)
    parts = [piece for chunk in cut(body, sizes) for piece in again.feed(chunk)]
    assert b"".join(p.raw for p in parts) + again.rest().raw == body
    assert b"".join(p.raw for p in once) + whole.rest().raw == body
    assert [p.raw for p in once if p.whole] == [p.raw for p in parts if p.whole]


def test_every_way_to_end_a_line_ends_a_frame() -> None:
    for end in (b"\n", b"\r\n", b"\r"):
        reader = FrameSplitter()
        body = b"data: 1" + end + end + b"data: 2" + end + end + b"data"
        assert [p.raw for p in reader.feed(body)] == [
            b"data: 1" + end + end,
            b"data: 2" + end + end,
        ]
        assert reader.rest() == RawFrame(b"data", whole=True)


def test_a_frame_that_is_too_large_passes_in_pieces_that_are_not_parsed() -> None:
    reader = FrameSplitter(limit=10)
    assert reader.feed(b"data: 0123456789") == [RawFrame(b"data: 012345678", whole=False)]
    assert reader.feed(b"abc") == [RawFrame(b"9ab", whole=False)]
    assert reader.feed(b"\n\ndata: 1\n\n") == [
        RawFrame(b"c\n\n", whole=False),
        RawFrame(b"data: 1\n\n", whole=True),
    ]
    reader.feed(b"data: 0123456789")
    assert reader.rest() == RawFrame(b"9", whole=False)


def test_a_frame_is_read_as_the_specification_says() -> None:
    assert frames.fields(b"event: a\ndata: 1\ndata:2\n\n") == ("1\n2", "a")
    assert frames.fields(b"\xef\xbb\xbfdata: 1\n\n") == ("1", "")
    assert frames.fields(b": ping\nid: 4\n\n") == (None, "")
    assert frames.fields(b"data: \xff\n\n") == ("\ufffd", "")


def test_only_objects_are_for_us() -> None:
    assert frames.parsed('{"a":1}') == {"a": 1}
    for data in ("[1]", "[DONE]", '{"a":', "[" * 100_000):
        assert frames.parsed(data) is None


def test_a_rewritten_frame_keeps_its_other_lines() -> None:
    raw = b": why\r\nid: 7\r\nevent: old\r\ndata: {\r\ndata: }\r\nretry: 5\r\n\r\n"
    assert frames.rewritten(raw, {"a": "é"}) == (
        b': why\nid: 7\nevent: old\ndata: {"a":"\xc3\xa9"}\nretry: 5\n\n'
    )
    assert b"event: new\n" in frames.rewritten(raw, {}, "new")


def test_half_a_surrogate_pair_survives() -> None:
    value = frames.parsed(r'{"a":"\ud83d"}')
    assert frames.encoded(value) == rb'{"a":"\ud83d"}'


def test_a_blank_line_closes_a_frame() -> None:
    assert frames.is_ended(b"data: 1\r\r")
    assert frames.is_ended(b"data: 1\n\n")
    assert not frames.is_ended(b"data: 1\r\n")
