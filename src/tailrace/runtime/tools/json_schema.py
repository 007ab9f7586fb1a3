"""Checks JSON values against a JSON Schema (draft 2020-12), and refuses schemas it cannot check.

`format` and annotations such as `title` say nothing about validity. Keywords that providers do not
take either (`$dynamicRef`, `unevaluatedProperties`, a `$ref` to another document) are refused.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sized
from typing import Any

from tailrace.core.errors import CallerError

Problems = Iterator[str]
"""What is wrong with a value, in words for the model."""

Check = Callable[["Checker", Any, Any, dict[str, Any], str], Problems]
"""Checks a value by one keyword: its operand, the schema that it stands in, the value's place."""


class Checker:
    """Checks values against one schema; `CallerError` for a schema that it cannot check.

    A keyword that JSON Schema does not have is taken for a spelling mistake. With `foreign` it is
    ignored, as JSON Schema says: a client cannot know what we check.
    """

    def __init__(self, schema: Any, *, foreign: bool = False) -> None:
        self._root = schema
        self._foreign = foreign
        self._seen: set[int] = set()
        self._check_schema(schema, "#")

    def problem(self, value: Any, place: str = "the answer") -> str | None:
        """The first thing that is wrong with a value; None if it is valid."""
        return next(self.problems(value, self._root, place), None)

    def problems(self, value: Any, schema: Any, place: str) -> Problems:
        """All that is wrong with a value, by a schema inside this schema."""
        if schema is False:
            yield f"{place} is not allowed."
        elif schema is not True:
            for name, operand in schema.items():
                check = CHECKS.get(name)
                if check is not None:
                    yield from check(self, value, operand, schema, place)

    def fits(self, value: Any, schema: Any) -> bool:
        """Whether a value is valid by a schema inside this schema."""
        return next(self.problems(value, schema, ""), None) is None

    def named(self, ref: Any, at: str = "#") -> Any:
        """The part of the schema that a `$ref` names."""
        found: Any = self._root
        try:
            if not ref.startswith("#"):
                raise KeyError(ref)
            for part in ref[1:].split("/")[1:]:
                key = part.replace("~1", "/").replace("~0", "~")
                found = found[int(key)] if isinstance(found, list) else found[key]
        except (KeyError, IndexError, ValueError, TypeError, AttributeError):
            raise CallerError(
                f"The JSON Schema has $ref {ref!r} at {at}, which names no part of it. Put the "
                "definition into `$defs`."
            ) from None
        return found

    def _check_schema(self, schema: Any, at: str) -> None:
        if isinstance(schema, bool) or id(schema) in self._seen:
            return
        if not isinstance(schema, dict):
            raise CallerError(f"The JSON Schema has {schema!r} at {at}; write an object or a bool.")
        self._seen.add(id(schema))
        unknown = schema.keys() - CHECKS.keys() - _UNCHECKED
        if self._foreign:
            unknown &= _LIMITING
        if unknown:
            name = min(unknown)
            raise CallerError(
                f"The JSON Schema has {name!r} at {at}, which cannot be checked; remove it."
            )
        _check_operands(schema, at)
        if "$ref" in schema:
            self._check_ref(schema, at)
        for name in _ONE & schema.keys():
            self._check_schema(schema[name], f"{at}/{name}")
        for name in _LISTS & schema.keys():
            for index, inner in enumerate(schema[name]):
                self._check_schema(inner, f"{at}/{name}/{index}")
        for name in _MAPS & schema.keys():
            for key, inner in schema[name].items():
                self._check_schema(inner, f"{at}/{name}/{key}")

    def _check_ref(self, schema: dict[str, Any], at: str) -> None:
        """Follow references that lead to references: they must not go round in a circle."""
        passed = [schema]
        found: Any = schema
        while isinstance(found, dict) and "$ref" in found:
            found = self.named(found["$ref"], at)
            if any(found is earlier for earlier in passed):
                raise CallerError(
                    f"The JSON Schema has a $ref at {at} that leads to itself; remove it."
                )
            passed.append(found)
        self._check_schema(found, at)


def _check_operands(schema: dict[str, Any], at: str) -> None:
    """Refuse operands with which a check would raise."""
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in _KINDS:
            known = ", ".join(_KINDS)
            raise CallerError(f"The JSON Schema has type {kind!r} at {at}; write one of {known}.")
    for name, operand in schema.items():
        kind = next((kind for kind, names in _OPERANDS.items() if name in names), object)
        if not isinstance(operand, kind) or (isinstance(operand, bool) and kind is _NUMBER):
            raise CallerError(
                f"The JSON Schema has {name} = {operand!r} at {at}, of a wrong type; correct it."
            )
    patterns = [schema["pattern"]] if "pattern" in schema else []
    for pattern in (*patterns, *schema.get("patternProperties", ())):
        try:
            re.compile(pattern)
        except re.error as error:
            raise CallerError(
                f"The JSON Schema has the pattern {pattern!r} at {at}, which Python refuses: "
                f"{error}. Correct it."
            ) from None


# --- values ------------------------------------------------------------------------------------

_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _KINDS[kind])


def _same(value: Any, other: Any) -> bool:
    """Equal in JSON, where 1 is 1.0 and not true."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_same, value, other))
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_same(value[key], other[key]) for key in value)
    return bool(value == other)


def _is_multiple(value: float, of: float) -> bool:
    if isinstance(value, int) and isinstance(of, int):
        return value % of == 0
    return float(value / of).is_integer()


# --- a check for each keyword ------------------------------------------------------------------


def _ref(on: Checker, value: Any, ref: Any, _in: Any, place: str) -> Problems:
    yield from on.problems(value, on.named(ref), place)


def _type(_on: Checker, value: Any, kinds: Any, _in: Any, place: str) -> Problems:
    names = kinds if isinstance(kinds, list) else [kinds]
    if not any(_is_of(value, name) for name in names):
        yield f"{place} must be of type {' or '.join(names)}."


def _enum(_on: Checker, value: Any, allowed: Any, _in: Any, place: str) -> Problems:
    if not any(_same(value, other) for other in allowed):
        yield f"{place} must be one of {allowed}."


def _const(_on: Checker, value: Any, wanted: Any, _in: Any, place: str) -> Problems:
    if not _same(value, wanted):
        yield f"{place} must be {wanted!r}."


def _bound(holds: Callable[[Any, Any], Any], words: str) -> Check:
    def check(_on: Checker, value: Any, bound: Any, _in: Any, place: str) -> Problems:
        if _is_of(value, "number") and not holds(value, bound):
            yield f"{place} must be {words} {bound}."

    return check


def _size(kind: type[Sized], holds: Callable[[Any, Any], Any], words: str) -> Check:
    def check(_on: Checker, value: Any, size: Any, _in: Any, place: str) -> Problems:
        if isinstance(value, kind) and not holds(len(value), size):
            yield f"{place} must have {words.format(size)}."

    return check


def _pattern(_on: Checker, value: Any, pattern: Any, _in: Any, place: str) -> Problems:
    if isinstance(value, str) and not re.search(pattern, value):
        yield f"{place} must match the pattern {pattern}."


def _required(_on: Checker, value: Any, names: Any, _in: Any, place: str) -> Problems:
    for name in names if isinstance(value, dict) else ():
        if name not in value:
            yield f"{place} lacks the field `{name}`."


def _dependent_required(on: Checker, value: Any, needs: Any, _in: Any, place: str) -> Problems:
    for name, names in needs.items() if isinstance(value, dict) else ():
        if name in value:
            yield from _required(on, value, names, _in, place)


def _dependent_schemas(on: Checker, value: Any, schemas: Any, _in: Any, place: str) -> Problems:
    for name, schema in schemas.items() if isinstance(value, dict) else ():
        if name in value:
            yield from on.problems(value, schema, place)


def _properties(on: Checker, value: Any, schemas: Any, _in: Any, _place: str) -> Problems:
    for name, schema in schemas.items() if isinstance(value, dict) else ():
        if name in value:
            yield from on.problems(value[name], schema, f"`{name}`")


def _pattern_properties(on: Checker, value: Any, schemas: Any, _in: Any, _place: str) -> Problems:
    for pattern, schema in schemas.items() if isinstance(value, dict) else ():
        for name in value:
            if re.search(pattern, name):
                yield from on.problems(value[name], schema, f"`{name}`")


def _additional(on: Checker, value: Any, schema: Any, beside: Any, place: str) -> Problems:
    known, patterns = beside.get("properties", ()), beside.get("patternProperties", ())
    for name in value if isinstance(value, dict) else ():
        if name in known or any(re.search(pattern, name) for pattern in patterns):
            continue
        if schema is False:
            yield f"{place} has the unknown field `{name}`."
        else:
            yield from on.problems(value[name], schema, f"`{name}`")


def _property_names(on: Checker, value: Any, schema: Any, _in: Any, place: str) -> Problems:
    for name in value if isinstance(value, dict) else ():
        yield from on.problems(name, schema, f"the name `{name}` in {place}")


def _prefix_items(on: Checker, value: Any, schemas: Any, _in: Any, place: str) -> Problems:
    pairs = zip(value, schemas, strict=False) if isinstance(value, list) else ()
    for index, (member, schema) in enumerate(pairs):
        yield from on.problems(member, schema, f"{place}[{index}]")


def _items(on: Checker, value: Any, schema: Any, beside: Any, place: str) -> Problems:
    first = len(beside.get("prefixItems", ()))
    for index, member in enumerate(value) if isinstance(value, list) else ():
        if index >= first:
            yield from on.problems(member, schema, f"{place}[{index}]")


def _contains(on: Checker, value: Any, schema: Any, beside: Any, place: str) -> Problems:
    if isinstance(value, list):
        count = sum(on.fits(member, schema) for member in value)
        least, most = beside.get("minContains", 1), beside.get("maxContains", len(value))
        if not least <= count <= most:
            yield f"{place} has {count} items of the kind that it must contain."


def _unique(_on: Checker, value: Any, wanted: Any, _in: Any, place: str) -> Problems:
    for index, member in enumerate(value) if wanted and isinstance(value, list) else ():
        if any(_same(member, other) for other in value[:index]):
            yield f"{place} has the same item twice: {member!r}."


def _any_of(on: Checker, value: Any, schemas: Any, _in: Any, place: str) -> Problems:
    found = [next(on.problems(value, schema, place), None) for schema in schemas]
    if None not in found:
        yield f"{place} has none of the allowed forms. {' Or: '.join(filter(None, found))}"


def _one_of(on: Checker, value: Any, schemas: Any, beside: Any, place: str) -> Problems:
    if sum(on.fits(value, schema) for schema in schemas) > 1:
        yield f"{place} has several of the allowed forms; it may have only one of them."
    yield from _any_of(on, value, schemas, beside, place)


def _all_of(on: Checker, value: Any, schemas: Any, _in: Any, place: str) -> Problems:
    for schema in schemas:
        yield from on.problems(value, schema, place)


def _not(on: Checker, value: Any, schema: Any, _in: Any, place: str) -> Problems:
    if on.fits(value, schema):
        yield f"{place} has a form that is not allowed."


def _if(on: Checker, value: Any, schema: Any, beside: Any, place: str) -> Problems:
    branch = "then" if on.fits(value, schema) else "else"
    yield from on.problems(value, beside.get(branch, True), place)


CHECKS: dict[str, Check] = {
    "$ref": _ref,
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _bound(operator.ge, "at least"),
    "maximum": _bound(operator.le, "at most"),
    "exclusiveMinimum": _bound(operator.gt, "above"),
    "exclusiveMaximum": _bound(operator.lt, "below"),
    "multipleOf": _bound(_is_multiple, "a multiple of"),
    "minLength": _size(str, operator.ge, "at least {} characters"),
    "maxLength": _size(str, operator.le, "at most {} characters"),
    "minItems": _size(list, operator.ge, "at least {} items"),
    "maxItems": _size(list, operator.le, "at most {} items"),
    "minProperties": _size(dict, operator.ge, "at least {} fields"),
    "maxProperties": _size(dict, operator.le, "at most {} fields"),
    "pattern": _pattern,
    "required": _required,
    "dependentRequired": _dependent_required,
    "dependentSchemas": _dependent_schemas,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "propertyNames": _property_names,
    "prefixItems": _prefix_items,
    "items": _items,
    "contains": _contains,
    "uniqueItems": _unique,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "allOf": _all_of,
    "not": _not,
    "if": _if,
}

_ONE = frozenset(("additionalProperties", "propertyNames", "items", "contains", "not", "if"))
_ONE |= {"then", "else"}
_LISTS = frozenset(("prefixItems", "anyOf", "oneOf", "allOf"))
_MAPS = frozenset(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"))
_NUMBER = (int, float)
_OPERANDS: dict[Any, frozenset[str]] = {
    _NUMBER: frozenset(name for name in CHECKS if name.startswith(("min", "max", "excl", "mult"))),
    str: frozenset(("$ref", "pattern")),
    list: _LISTS | {"enum", "required"},
    dict: _MAPS | {"dependentRequired"},
}
_UNCHECKED = frozenset(
    (
        *("then", "else", "minContains", "maxContains", "$defs", "definitions", "$schema", "$id"),
        *("$comment", "title", "description", "default", "examples", "deprecated", "readOnly"),
        *("writeOnly", "format", "contentEncoding", "contentMediaType", "discriminator"),
    )
)
"""Keywords that stand beside others, or that only describe."""

_LIMITING = frozenset(
    (
        *("unevaluatedItems", "unevaluatedProperties", "dependencies", "additionalItems"),
        *("$dynamicRef", "$recursiveRef"),
    )
)
"""Keywords of JSON Schema that forbid values, and that are not checked."""
