"""Partial JSON: the value so far, wherever the text is cut, in linear time."""

import copy
import json
import time
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.core.codec import MAX_DEPTH
from tailrace.core.errors import MalformedJson
from tailrace.core.partial_json import PartialJson


def read(*pieces: str) -> PartialJson:
    partial = PartialJson()
    for piece in pieces:
        partial.feed(piece)
    return partial


def feed_all(partial: PartialJson, pieces: list[str]) -> None:
    for piece in pieces:
        partial.feed(piece)


def so_far(text: str) -> Any:
    """The value after this much, which must not depend on how it was cut nor on earlier looks."""
    whole = read(text).value
    looked = PartialJson()
    for character in text:
        looked.feed(character)
        assert looked.value is looked.value
    assert looked.value == whole
    assert read(*text).value == whole
    return whole


def begins(part: Any, whole: Any) -> bool:
    """Whether `part` may grow into `whole`: only what comes last may be unfinished."""
    if isinstance(part, dict) and isinstance(whole, dict):
        keys = list(part)
        return (
            keys == list(whole)[: len(keys)]
            and all(same(part[key], whole[key]) for key in keys[:-1])
            and all(begins(part[key], whole[key]) for key in keys[-1:])
        )
    if isinstance(part, list) and isinstance(whole, list):
        return (
            len(part) <= len(whole)
            and same(part[:-1], whole[: max(len(part) - 1, 0)])
            and all(begins(one, whole[len(part) - 1]) for one in part[-1:])
        )
    if isinstance(part, str) and isinstance(whole, str):
        return whole.startswith(part)
    return same(part, whole)


def same(one: Any, two: Any) -> bool:
    """Equal as JSON: `True` is not 1, nor is 1.0."""
    return json.dumps(one) == json.dumps(two)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    ['"', "\\", "\\u", "😀", "\ud7ff", "\ue000", "\U0010ffff", "\x00", "\x1f", "/", "\n", "}", "],"]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
SPACES = st.text(" \t\n\r", max_size=2)


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    """JSON in any spelling: white space between all tokens, escapes or none."""
    value = draw(VALUES)
    text = json.dumps(
        value,
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 0, "\t", " "])),
        separators=(draw(SPACES) + "," + draw(SPACES), draw(SPACES) + ":" + draw(SPACES)),
    )
    return draw(SPACES) + text + draw(SPACES)


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    return [text[one:two] for one, two in pairwise([0, *sorted(cuts), len(text)])]


# --- the value ---------------------------------------------------------------------------------


@given(json_texts(), st.data())
@example('"\\ud83d\\ude00"', None)
@example("-0", None)
@example("12345678901234567890123456789", None)
@example('{"a":1,"a":{"b":[]},"a":"x"}', None)
def test_cut_anywhere_the_value_is_that_of_the_whole_text(
    text: str, data: st.DataObject | None
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(text)))) if data is not None else [1, 3, 7]
    expected = json.loads(text)
    for pieces in ([text], list(text), pieces_of(text, cuts)):
        partial = read(*pieces, " ")
        assert partial.complete
        assert same(partial.value, expected)


@given(json_texts())
def test_what_is_shown_only_ever_grows_into_the_whole_value(text: str) -> None:
    partial, before = PartialJson(), None
    final = json.loads(text)
    begun = False
    for character in text:
        partial.feed(character)
        shown = partial.value
        begun = begun or shown is not None
        if begun:
            assert before is None or begins(before, shown)
            assert begins(shown, final)
        before = copy.deepcopy(shown)
        if partial.complete:
            assert same(shown, final)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", None),
        (" \n", None),
        ("{", {}),
        ('{"ci', {}),
        ('{"city"', {}),
        ('{"city": ', {}),
        ('{"city": "', {"city": ""}),
        ('{"city": "Pa', {"city": "Pa"}),
        ('{"city": "Pa\\', {"city": "Pa"}),
        ('{"city": "Pa\\n\\"', {"city": 'Pa\n"'}),
        ('{"city": "Pa\\u00', {"city": "Pa"}),
        ('{"city": "Pa\\u00e9', {"city": "Paé"}),
        ('{"city": "\\ud83d', {"city": ""}),
        ('{"city": "\\ud83d\\ude0', {"city": ""}),
        ('{"city": "\\ud83d\\ude00', {"city": "😀"}),
        ('{"city": "Paris", "da', {"city": "Paris"}),
        ('{"days": 1', {}),
        ('{"days": 12,', {"days": 12}),
        ('{"days": 1.5}', {"days": 1.5}),
        ('{"ok": tru', {}),
        ('{"ok": true', {"ok": True}),
        ('{"ok": null', {"ok": None}),
        ("[", []),
        ("[1, 2", [1]),
        ("[1, [2], {", [1, [2], {}]),
        ('["a", "b', ["a", "b"]),
        ('"a', "a"),
        ("12", None),
        ("12 ", 12),
        ('{"a": "first", "a": "', {"a": ""}),
    ],
)
def test_what_is_certain_so_far(text: str, shown: Any) -> None:
    assert same(so_far(text), shown)


def test_the_value_is_live_and_a_string_that_was_kept_stays_as_it_was() -> None:
    partial = read('{"a": "x')
    value = partial.value
    kept = value["a"]
    partial.feed('y", "b": 1}')
    assert partial.value is value
    assert value == {"a": "xy", "b": 1}
    assert kept == "x"


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        *(("{}", True), ("{", False), ("[] ", True), ('"a"', True), ('"a', False), ("", False)),
        *(("null", True), ("nul", False), ("1", False), ("1\n", True), ("[1]", True)),
        ("[[]", False),
    ],
)
def test_complete_means_that_only_white_space_may_follow(text: str, complete: bool) -> None:
    partial = read(text)
    assert partial.complete is complete
    if complete:
        partial.feed(" \n")
        assert partial.complete
        with pytest.raises(MalformedJson):
            partial.feed("1")
        assert not partial.complete


# --- what is no JSON ---------------------------------------------------------------------------

_NO_JSON = (
    *("}", "]", ",", ":", "a", "'a'", "\ufeff1", "\xa01", "NaN", "Infinity", "-Infinity", "nulL"),
    *("{a", "{'a'", "{1", '{"a" 1', '{"a":}', '{"a":1,}', '{"a":1 "b"', '{"a"}', "{,", '{"a":1]'),
    *("1 ,", "{},", '"a",', "[]]", "{}}", "null]"),
    *("[1 2", "[,", "[1,]", "[1}", "1 2", "{}{", '"a"b', "tx", "[truefalse]", "undefined"),
    *("01 ", "+1 ", "1. ", ".5 ", "1e ", "1e+ ", "- ", "--1 ", "1.2.3 ", "0x1 ", "1_0 ", "1e999 "),
    *('"\n', '"\x00', '"\\x', '"\\u12g4', '"\\u+123', '"\\u 123', '"\\u１２３４', '"\ud800'),
    *('"\\ud800x', '"\\ud800"', '"\\ud800\\n', '"\\ud800\\u0041', '"\\udc00', '"\\ud800\\ud800'),
    "9" * 5000 + " ",
    "-1e400,",
    "[" * (MAX_DEPTH + 1),
    '{"a":' * (MAX_DEPTH + 1),
)


@pytest.mark.parametrize("text", _NO_JSON)
def test_invalid_json_is_refused_wherever_it_is_cut_and_from_then_on(text: str) -> None:
    for pieces in ([text], list(text)):
        partial = PartialJson()
        with pytest.raises(MalformedJson):
            feed_all(partial, pieces)
        assert not partial.complete
        with pytest.raises(MalformedJson):
            partial.feed(" ")


def test_after_the_place_at_fault_the_value_stays_what_was_certain() -> None:
    partial = PartialJson()
    with pytest.raises(MalformedJson, match="',' where a value belongs"):
        partial.feed('{"a": [1, "x"], "b": ,')
    assert partial.value == {"a": [1, "x"]}


@pytest.mark.parametrize("text", ["", " ", "{", '{"a"', '"a', "tru", "-", "1.", "[1,", '"\\u12'])
def test_a_text_that_ends_too_early_is_not_complete(text: str) -> None:
    partial = read(text)
    assert not partial.complete
    with suppress(MalformedJson):
        partial.feed(" ")
    assert not partial.complete


def test_a_bare_number_is_complete_when_white_space_follows() -> None:
    assert not read("1").complete
    for pieces, value in ((("1", "2", " "), 12), (("-1.5e3\n",), -1500.0)):
        partial = read(*pieces)
        assert (partial.complete, partial.value) == (True, value)


def test_as_many_levels_as_the_protocol_has_are_read() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    partial = read(text)
    assert partial.complete
    assert partial.value == json.loads(text)


_TOKENS = st.sampled_from(
    [
        *'{}[],:"\\u0129.-+eE \n\t',
        "true",
        "false",
        "null",
        "NaN",
        '"a"',
        '"a":',
        "\\ud83d",
        "\\ude00",
    ]
)


@given(st.lists(_TOKENS | TEXTS | st.text(max_size=3), max_size=40))
def test_garbage_raises_nothing_but_the_typed_error(pieces: list[str]) -> None:
    text = "".join(pieces)
    partial = PartialJson()
    try:
        for piece in pieces:
            partial.feed(piece)
            json.dumps(partial.value)
        partial.feed(" ")  # ends a number
    except MalformedJson:
        _check_unreadable(text)
        return
    if partial.complete:
        assert same(partial.value, json.loads(text))
    else:
        _check_unreadable(text)


def _check_unreadable(text: str) -> None:
    """What we refuse is no JSON, or one of the things that the protocol has no place for."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return
    raise AssertionError(f"refused, but it is JSON: {text!r}")


# --- linear ------------------------------------------------------------------------------------


def _seconds(text: str) -> float:
    partial = PartialJson()
    start = time.thread_time()
    for character in text:
        partial.feed(character)
        partial.value  # noqa: B018  # looking is what is measured
    return time.thread_time() - start


@pytest.mark.growth
@pytest.mark.parametrize(
    "make",
    [
        lambda size: '{"text": "' + "x" * size + '"}',
        lambda size: '{"text": "' + "é\\n日" * (size // 4) + '"}',
        lambda size: json.dumps([{"name": "abc", "n": 1.5}] * (size // 25)),
        lambda size: "[" + "1" * size,
        lambda size: " " * size,
    ],
    ids=["one string", "escapes", "many values", "one number", "white space"],
)
def test_the_cost_of_a_character_does_not_grow_with_what_came_before(make: Any) -> None:
    small, large = make(2_000), make(80_000)
    # Forty times the text; quadratic would be 1600 times the time. The best of two, as others
    # use the machine.
    best = [min(_seconds(text) for _ in range(2)) for text in (small, large)]
    assert best[1] < best[0] * 40 * 5
