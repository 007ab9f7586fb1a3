"""Dense rows: the same frames, byte for byte, in a third of the space."""

from __future__ import annotations

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tailrace.core.codec import encode_event
from tailrace.core.events import Event, Notice, TextDelta, TextDone, recorded
from tailrace.core.items import Text
from tailrace.core.log_lines import LogLines, framed, lines_place
from tailrace.stores import dense_rows, rows

FIRST, EPOCH = 1020, 3


def lines_of(events: list[Event]) -> LogLines:
    publics = [encode_event(recorded(event, seq)) for seq, event in enumerate(events, FIRST)]
    return framed_lines(publics)


def framed_lines(publics: list[bytes]) -> LogLines:
    frames = framed(lines_place(EPOCH), FIRST, publics)
    return LogLines(FIRST, FIRST + len(publics) - 1, EPOCH, frames)


def packed(lines: LogLines) -> bytes | None:
    return dense_rows.pack(lines.first_seq, lines.publics())


def delta(text: str, block_index: int = 0) -> TextDelta:
    return TextDelta(task_id="r", item_id="m", output_index=0, block_index=block_index, delta=text)


pieces = st.text(alphabet='ab"}\\\n{:,é\u2028delta', max_size=12)
events = st.one_of(
    st.builds(delta, pieces),
    st.builds(delta, pieces, st.integers(0, 2)),
    st.builds(Notice, task_id=st.just("r"), message=pieces),
)


@given(st.lists(events, min_size=1, max_size=30), st.lists(pieces, min_size=120, max_size=120))
def test_the_frames_come_back_byte_for_byte(some: list[Event], texts: list[str]) -> None:
    lines = lines_of([*some, *map(delta, texts), *some])
    raw = packed(lines)
    assert raw is not None
    assert dense_rows.unpack(raw, FIRST, EPOCH) == lines.raw


def test_a_text_is_stored_once_with_the_event_that_ends_it() -> None:
    words = [f"w{n * n % 977:x} " for n in range(300)]
    end = TextDone(
        task_id="r",
        item_id="m",
        output_index=0,
        block_index=0,
        item=Text(text="".join(words)),
    )
    publics = lines_of([*map(delta, words), end]).publics()
    whole = rows.row_of("r", FIRST, EPOCH, publics, [b""] * len(publics))
    frames = rows.joined([whole], ended=True)
    short = rows.joined([whole], ended=True, make_dense=True)
    assert len(short.public) < len(frames.public) / 2
    assert short.lines() == frames.lines()
    assert short.unpacked == frames.unpacked
    short.verify()
    assert short.public.startswith(dense_rows.MARK)
    assert not rows.joined([whole], ended=False, make_dense=True).public.startswith(dense_rows.MARK)


def test_an_older_version_refuses_a_dense_row_and_does_not_misread_it() -> None:
    raw = packed(lines_of([delta("word ")] * 9))
    assert raw is not None
    with pytest.raises(zstandard.ZstdError):
        zstandard.decompress(dense_rows.MARK + zstandard.compress(raw))


@pytest.mark.parametrize(
    "publics",
    [
        [b'{"type":"x","sequence_number":1}'] * 9,
        [b"{}"] * 9,
        [b'{"n":"%d","sequence_number":%d}' % (n, n) for n in range(FIRST, FIRST + 9)],
    ],
    ids=["other numbers", "no numbers", "nothing is repeated"],
)
def test_other_events_stay_frames(publics: list[bytes]) -> None:
    assert packed(framed_lines(publics)) is None


def test_what_looks_like_a_delta_is_kept_as_it_is() -> None:
    odd = b'{"sequence_number":%d,"delta":"}'
    lines = framed_lines([odd % seq for seq in range(FIRST, FIRST + 9)])
    raw = packed(lines)
    assert raw is not None
    assert dense_rows.unpack(raw, FIRST, EPOCH) == lines.raw
