"""The type of an agent's answer: its JSON Schema, and how an answer is read.

A msgspec struct, a dataclass, a TypedDict, a pydantic model, or a JSON Schema as a dict.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tailrace.core.codec import check_value
from tailrace.core.errors import CallerError, InvalidValue
from tailrace.ports import OutputSchema
from tailrace.runtime.tools.json_schema import Checker


class InvalidOutput(Exception):
    """An answer that is not of the type; the message is for the model."""


class OutputType:
    """Reads answers of one type."""

    def __init__(self, type_: Any, *, foreign: bool = False) -> None:
        """`foreign`: a client declares it, as a JSON Schema."""
        self.type = type_
        self._is_pydantic = hasattr(type_, "model_json_schema") and hasattr(type_, "model_validate")
        try:
            schema = self._made()
        except (TypeError, NotImplementedError) as error:
            raise CallerError(
                f"`output` is {type_!r}, which has no JSON Schema ({error}). Write a msgspec "
                "Struct, a dataclass, a pydantic model or a JSON Schema."
            ) from error
        self._checker = Checker(type_, foreign=foreign) if isinstance(type_, dict) else None
        title = type_.get("title") if isinstance(type_, dict) else getattr(type_, "__name__", None)
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", str(title or "answer"))[:64] or "answer"
        self.schema = OutputSchema(schema=schema, name=name, strict=False)

    def _made(self) -> dict[str, Any]:
        if isinstance(self.type, dict):
            return self.type
        if self._is_pydantic:
            made: dict[str, Any] = self.type.model_json_schema()
            return made
        (schema,), parts = msgspec.json.schema_components(
            [self.type], ref_template="#/$defs/{name}"
        )
        # Providers want an object at the root, not a reference to it.
        name = schema.get("$ref", "").rpartition("/")[2]
        if name in parts:
            schema = parts[name]
        return (
            {**schema, "$defs": parts} if "$ref" in str(parts) or "$ref" in str(schema) else schema
        )

    def read(self, text: str) -> Any:
        """The answer as JSON, or `InvalidOutput`; `typed` makes the type's value of it."""
        try:
            value = msgspec.json.decode(_without_fence(text))
            check_value(value)
        except (msgspec.DecodeError, InvalidValue) as error:
            raise InvalidOutput(f"it is not JSON ({error}).") from error
        self.typed(value)
        return value

    def typed(self, value: Any) -> Any:
        """A value of the type, or `InvalidOutput`."""
        if self._checker is not None:
            problem = self._checker.problem(value)
            if problem is not None:
                raise InvalidOutput(problem)
            return value
        try:
            if self._is_pydantic:
                return self.type.model_validate(value)
            return msgspec.convert(value, self.type)
        except ValueError as error:  # msgspec's and pydantic's errors are both
            raise InvalidOutput(f"{error}.") from error


def declared_output(type_: Any) -> OutputType:
    """The type of an agent's answer; providers take only objects."""
    made = OutputType(type_)
    if made.schema.schema.get("type") != "object":
        raise CallerError(
            f"`output` is {type_!r}, which is no JSON object. Providers take only objects: make it "
            "a field of a msgspec Struct, a dataclass or a pydantic model."
        )
    return made


def _without_fence(text: str) -> str:
    """JSON without the Markdown fence that some models put around it."""
    found = re.fullmatch(r"\s*```(?:json)?\s*\n(.*?)\n?```\s*", text, re.DOTALL)
    return found.group(1) if found else text
