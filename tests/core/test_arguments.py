"""Whether the arguments of a call are complete, and values of foreign JSON."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.core import values
from tailrace.core.errors import MalformedJson
from tailrace.core.tool_arguments import (
    NOT_JSON,
    ArgumentsSoFar,
    are_same,
    arguments_value,
    decoded,
    ends_itself,
    is_beginning,
    is_json,
    read_arguments,
    same_json,
)


@pytest.mark.parametrize("text", ['{"a":', '{"a": 1', "[1,", '"a', " ", "tru", "-"])
def test_the_beginning_of_json_is_not_complete(text: str) -> None:
    assert is_beginning(text)
    assert not is_json(text)
    assert not ends_itself(text)


@pytest.mark.parametrize("text", ["{}", '{"a": 1}', "[]", '"a"', "12", "null", " {} "])
def test_complete_json_is_not_a_beginning(text: str) -> None:
    assert is_json(text)
    assert not is_beginning(text)


@pytest.mark.parametrize("text", ["", "{'a': 1}", "hello", "{} {}", "[" * 5000])
def test_text_that_is_not_json_is_neither(text: str) -> None:
    assert decoded(text, NOT_JSON) is NOT_JSON
    assert decoded(text) is None
    assert not is_beginning(text)


def test_arguments_in_pieces_are_empty_then_unfinished_then_whole_or_broken() -> None:
    so_far = ArgumentsSoFar()
    assert so_far.state() == "empty"
    states = []
    for piece in ('{"a"', ": 1", "}", "}", "{}"):
        so_far.add(piece)
        states.append(so_far.state())
    assert states == ["unfinished", "unfinished", "whole", "broken", "broken"]
    assert so_far.text == '{"a": 1}}{}'
    assert so_far.length == len(so_far.text)


@pytest.mark.parametrize("text", ["", " \n", "{}"])
def test_no_text_is_an_empty_object_of_arguments(text: str) -> None:
    assert read_arguments(text) == arguments_value(text, "default") == {}


def test_arguments_that_are_not_json_are_an_error_with_the_place() -> None:
    with pytest.raises(MalformedJson, match="byte 1"):
        read_arguments("{'a': 1}")
    assert arguments_value('{"a":', "default") == "default"
    assert arguments_value('{"a": 1}') == {"a": 1}
    assert arguments_value("[1]") == [1]


def test_a_number_may_go_on_and_an_object_may_not() -> None:
    assert all(map(ends_itself, ("{}", "[1]", '"a"')))
    assert not any(map(ends_itself, ("12", "null", "true")))


def test_the_same_json_may_be_written_in_two_ways() -> None:
    assert same_json('{"a": 1, "b": 2}', '{"b":2,"a":1}')
    assert not same_json("1", "2")
    assert not same_json("x", "x")
    assert are_same('{"a": 1.0}', '{"a":1}')
    assert are_same("x", "x")
    assert not are_same("x", "y")
    assert not are_same("1", None)


@pytest.mark.parametrize("value", [None, True, -1, 2**53, "", "x" * 1001, "a\x00", [], {}, 1.5])
def test_a_value_of_another_type_is_empty_or_none(value: Any) -> None:
    assert values.word_of(value) is None
    assert values.index_of(value) is None
    assert values.text_of(value) == (value if isinstance(value, str) else "")
    assert values.text_or_none(value) == (value if isinstance(value, str) else None)
    assert values.dict_of(value) == {}
    assert values.list_of(value) == []
    assert values.dicts_of(value) == []
    assert values.number_of(value) == (1.5 if value == 1.5 else None)
    assert values.count_of(value) is None


def test_a_value_of_the_wanted_type_is_itself() -> None:
    assert values.word_of("name") == "name"
    assert values.index_of(3) == 3
    assert values.number_of(3) == 3
    assert values.count_of(3) == values.count_of(3.0) == 3
    assert values.dicts_of([{"a": 1}, 2]) == [{"a": 1}]
    assert values.json_text({"a": [1]}) == '{"a":[1]}'
