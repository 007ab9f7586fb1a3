"""The JSON Schema checker, held to the reference implementation."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import Agent
from tailrace.errors import CallerError
from tailrace.models import Scripted, say
from tailrace.runtime.tools.json_schema import CHECKS, Checker

TREE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "below": {"$ref": "#/$defs/trees"}},
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"trees": {"type": "array", "items": {"$ref": "#"}}},
}
SCHEMAS: list[Any] = [
    True,
    False,
    {},
    {"type": "integer", "title": "Count", "format": "int32"},
    {"type": ["string", "null"], "description": "A name."},
    {"enum": [1, "a", None, [1, {"b": True}]]},
    {"enum": [True, 0]},
    {"const": {"a": [1, False]}},
    {"const": 1},
    {"minimum": 1, "maximum": 3},
    {"minimum": 1, "exclusiveMaximum": 1.5},
    {"exclusiveMinimum": 1, "multipleOf": 2},
    {"multipleOf": 0.5},
    {"minLength": 2, "maxLength": 3},
    {"pattern": "^a+$"},
    {"minItems": 1, "maxItems": 2},
    {"minProperties": 1, "maxProperties": 1},
    {"items": {"type": "integer"}, "uniqueItems": True},
    {"uniqueItems": False},
    {"prefixItems": [{"type": "integer"}, {"const": "a"}], "items": False},
    {"items": {"prefixItems": [True, False]}},
    {"contains": {"type": "integer"}, "maxContains": 1},
    {"contains": {"type": "integer"}, "minContains": 0},
    {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"properties": {"a": True}, "additionalProperties": {"type": "null"}},
    {"patternProperties": {"^b": {"type": "boolean"}}, "additionalProperties": False},
    {"propertyNames": {"maxLength": 1}},
    {"dependentRequired": {"a": ["b"]}},
    {"dependentSchemas": {"a": {"required": ["b"]}}},
    {"anyOf": [{"type": "string"}, {"minimum": 2, "type": "number"}]},
    {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
    {"allOf": [{"type": "integer"}, {"minimum": 2}]},
    {"not": {"type": "object"}},
    {"if": {"type": "integer"}, "then": {"minimum": 1}, "else": {"type": "string"}},
    {"if": {"type": "integer"}, "then": False},
    {"$ref": "#/definitions/a~1b", "definitions": {"a/b": {"type": "string"}}},
    {"items": {"$ref": "#/prefixItems/0"}, "prefixItems": [{"type": "null"}]},
    TREE,
]

VALUES: list[Any] = [
    *(None, True, False, 0, 1, 2, 3, 4, 1.0, 1.5, 2.5, -1, "", "a", "aa", "aaa", "aaaa", "b"),
    *([], [1], [1, 1], [1, 1.0], [True, 1], [1, "a"], [1, "a", 2], ["a"], [None], [[1, 2]]),
    *([[], []], [{"a": 1}, {"a": 1}], [1, {"b": True}], [1, {"b": 1}], [[1], [1, 2]]),
    *({}, {"a": 1}, {"a": "1"}, {"a": 1, "b": True}, {"b": 1}, {"bc": True}, {"a": [1, False]}),
    *({"a": [1, 0]}, {"a": [1.0, False]}, {"a": None, "b": None}),
    {"name": "a", "below": [{"name": "b", "below": []}]},
    {"name": "a", "below": [{"name": "b", "more": 1}]},
    {"name": "a", "below": [{"below": []}]},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_a_value_is_valid_where_the_reference_says_so(schema: Any) -> None:
    checker, reference = Checker(schema), jsonschema.Draft202012Validator(schema)
    for value in VALUES:
        problem = checker.problem(value)
        assert (problem is None) == reference.is_valid(value), (value, problem)


def test_every_keyword_is_tried() -> None:
    tried = {name for schema in SCHEMAS if isinstance(schema, dict) for name in schema}
    assert tried >= CHECKS.keys()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, "", "a", "aa"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "bc"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(schema=st.sampled_from(SCHEMAS), value=json_values)
def test_any_value_is_judged_as_the_reference_does(schema: Any, value: Any) -> None:
    reference = jsonschema.Draft202012Validator(schema)
    assert (Checker(schema).problem(value) is None) == reference.is_valid(value)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"unevaluatedProperties": False}, "unevaluatedProperties.*cannot be checked"),
        ({"properties": {"a": {"typ": "string"}}}, "'typ' at #/properties/a"),
        ({"type": "text"}, "type 'text' at #; write one of object"),
        ({"items": {"pattern": "("}}, "pattern '\\(' at #/items"),
        ({"anyOf": [{"minimum": "1"}]}, "minimum = '1' at #/anyOf/0"),
        ({"required": "a"}, "required = 'a'"),
        ({"items": [{"type": "string"}]}, "at #/items; write an object"),
        ({"$ref": "#/$defs/a"}, "names no part"),
        ({"$ref": "https://example.com/a.json"}, "names no part"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#"}}}, "leads to itself"),
    ],
)
def test_a_schema_that_cannot_be_checked_is_refused_where_it_is_declared(
    schema: dict[str, Any], words: str
) -> None:
    with pytest.raises(CallerError, match=words):
        Agent("a", model=Scripted([say("{}")]), output=schema)


def test_a_problem_names_the_place() -> None:
    found = Checker(TREE).problem({"name": "a", "below": [{"name": 1}]})
    assert found == "`name` must be of type string."
    assert Checker({"items": {"minimum": 2}}).problem([3, 1]) == "the answer[1] must be at least 2."
    assert Checker(TREE).problem({"name": "a", "age": 1}) == (
        "the answer has the unknown field `age`."
    )
