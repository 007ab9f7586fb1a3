"""From a function's signature and docstring to a JSON Schema, and from a model's JSON to arguments.

A parameter's annotation decides both. msgspec reads builtin types, structs, dataclasses,
`TypedDict`, enums, `Literal` and unions; a class with `model_json_schema` and `model_validate`
(pydantic) describes and reads itself. pydantic also reads what msgspec cannot: unions of two models
or dataclasses, and types such as `Path`. Constraints come from
`Annotated[int, msgspec.Meta(ge=1)]`, or from `pydantic.Field` and `annotated_types` in the same
place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import FunctionType, MethodType, UnionType
from typing import Annotated, Any, NoReturn, Union, get_args, get_origin, get_type_hints

import msgspec

from tailrace.core.errors import CallerError
from tailrace.runtime.tools.docstrings import read_docstring

_DEFS = "#/$defs/"
_JSON_TYPES = {str: "string", int: "integer"}
_CONSTRAINTS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")


class InvalidTool(CallerError):
    """A tool's declaration that cannot become a schema; raised where the tool is declared."""

    code = "invalid_tool"


class InvalidArguments(CallerError):
    """Arguments of a model's call that the tool does not take; the model reads the message."""

    code = "invalid_arguments"


class _Absent:
    """Stands for a parameter that the model left out: the function's own default applies."""


_ABSENT = _Absent()


class Parameters:
    """The parameters of a function that a model fills in.

    `schema` is the JSON Schema for the provider. `contexts` are the names of the parameters that
    are annotated with the context class. The caller fills them in, and the schema does not have
    them. `defaults` are the values of the parameters that the model may leave out.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        context: type,
        local_names: Mapping[str, Any] | None = None,
    ) -> None:
        self._function = _name(function)
        self.description, described = read_docstring(
            inspect.getdoc(written_function(function)) or ""
        )
        self.contexts: list[str] = []
        self.defaults: dict[str, Any] = {}
        properties: dict[str, Any] = {}
        required: list[str] = []
        fields: list[tuple[str, Any, Any]] = []
        self._names: dict[str, str] = {}
        hints = self._hints(function, local_names)
        for name, parameter in self._signature(function).parameters.items():
            self._check(parameter, hints)
            kind = hints[name]
            if context in (kind, *get_args(kind)):
                self.contexts.append(name)
                continue
            has_default = parameter.default is not parameter.empty
            if parameter.default is None:
                kind = kind | None  # `city: str = None` means it, and models do send null
            kind, properties[name] = self._described(name, kind, described.get(name))
            if not has_default:
                required.append(name)
            else:
                self.defaults[name] = parameter.default
                _show_default(parameter.default, properties[name])
            # Own names for the fields: a parameter may be called what a struct's method is.
            field = f"p{len(fields)}"
            if has_default:
                made = msgspec.field(name=name, default_factory=lambda: _ABSENT)
            else:
                made = msgspec.field(name=name)
            fields.append((field, kind, made))
            self._names[field] = name
        self.schema: dict[str, Any] = _inlined(
            {
                "type": "object",
                "properties": properties,
                **({"required": required} if required else {}),
                "additionalProperties": False,
            }
        )
        self._struct = msgspec.defstruct(
            "Arguments",
            fields,
            kw_only=True,
            forbid_unknown_fields=True,
        )

    def convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments in the annotated types; raises `msgspec.ValidationError`.

        Where no string is allowed, a number, boolean or null in a string ("3", "true") is read as
        well. Models write that, and the meaning is clear.
        """
        read = msgspec.convert(arguments, self._struct, strict=False, dec_hook=_read_model)
        values = ((name, getattr(read, field)) for field, name in self._names.items())
        return {
            name: value.value if isinstance(value, _Read) else value
            for name, value in values
            if value is not _ABSENT
        }

    def _signature(self, function: Callable[..., Any]) -> inspect.Signature:
        try:
            return inspect.signature(function)
        except ValueError:  # a builtin, as `dict`
            raise InvalidTool(
                f"Tool {self._function!r}: its parameters are not known; wrap it in a function "
                "with annotations."
            ) from None

    def _hints(
        self, function: Callable[..., Any], local_names: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        plain = written_function(function)
        try:
            if not isinstance(plain, FunctionType | MethodType):
                return get_type_hints(plain, localns=dict(local_names or {}), include_extras=True)
            return get_type_hints(
                _Annotated({k: v for k, v in plain.__annotations__.items() if k != "return"}),
                globalns=getattr(inspect.unwrap(plain), "__globals__", {}),
                localns=dict(local_names or {}),
                include_extras=True,
            )
        except NameError as error:
            raise InvalidTool(
                f"Tool {self._function!r}: its annotations name {error.name!r}, which is not "
                "defined at run time. Import it outside `if TYPE_CHECKING:`, or define it at the "
                "top of the module."
            ) from None
        except TypeError as error:
            raise InvalidTool(
                f"Tool {self._function!r}: its annotations are wrong: {error}. Correct them."
            ) from error

    def _check(self, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> None:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            self._refuse(stars + parameter.name, "a model needs named parameters; name each one")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            self._refuse(parameter.name, "it is positional-only; remove the `/`")
        if parameter.name not in hints:
            fix = f"it has no annotation; write `{parameter.name}: str`, or the type it has"
            if parameter.name in ("self", "cls"):
                fix = "it is a method; declare it bound, as `tool(instance.method)`"
            self._refuse(parameter.name, fix)
        # A pydantic `Field()` as the default is not the value that the function would get.
        if hasattr(parameter.default, "is_required") and hasattr(parameter.default, "metadata"):
            self._refuse(
                parameter.name, "its default is a Field; write `Annotated[type, Field(…)]`"
            )

    def _described(self, name: str, kind: Any, text: str | None) -> tuple[Any, dict[str, Any]]:
        """The type that reads a parameter, and its schema."""
        made = _with_meta(kind, text)
        try:
            return made, _schema(made)
        except TypeError as error:
            why = str(error).splitlines()[-1]
        read = _read_by_pydantic(kind)
        if read is not None:
            made = _with_meta(read, _translated(kind)[1] or text)
            with suppress(TypeError):  # a type that takes everything, as `object`
                return made, _schema(made)
        return self._refuse(name, f"its type has no JSON Schema ({why}); {_remedy(why)}")

    def _refuse(self, parameter: str, fix: str) -> NoReturn:
        raise InvalidTool(f"Tool {self._function!r}, parameter `{parameter}`: {fix}.")


class _Annotated:
    """Annotations to evaluate, without unused annotations."""

    def __init__(self, annotations: dict[str, Any]) -> None:
        self.__annotations__ = annotations


def _name(function: Callable[..., Any]) -> str:
    found = function if hasattr(function, "__name__") else written_function(function)
    return str(getattr(found, "__name__", type(function).__name__))


def written_function(function: Callable[..., Any]) -> Any:
    """The `def` behind a callable: it has the annotations, and is async, a generator, or not."""
    while isinstance(function, partial | staticmethod):
        function = function.func if isinstance(function, partial) else function.__func__
    if isinstance(function, FunctionType | MethodType | type):
        return function
    return type(function).__call__


# --- types -------------------------------------------------------------------------------------


def _remedy(why: str) -> str:
    """What to do about a type that neither msgspec nor pydantic reads."""
    if "more than one TypedDict" in why:
        # pydantic reads both kinds from Python 3.12 on.
        return "import `TypedDict` from `typing_extensions`, or use dataclasses"
    if "must be tagged" in why:
        return "declare each of them with a tag, as `class Car(msgspec.Struct, tag=True)`"
    if "dict-like" in why:
        return "leave the dict out, or use dataclasses or pydantic models"
    if "unions containing a custom type" in why:  # a pydantic model beside a msgspec struct
        return "of a union, use only dataclasses and pydantic models, or only structs with tags"
    return "use a type of JSON, a dataclass or a pydantic model"


def _with_meta(kind: Any, described: str | None) -> Any:
    """The annotation with its description and constraints, as msgspec understands them."""
    kind, own = _translated(kind)
    described = own or described
    return Annotated[kind, msgspec.Meta(description=described)] if described else kind


def _translated(kind: Any) -> tuple[Any, str | None]:
    """The annotation with the constraints of other libraries as msgspec's; its description."""
    if get_origin(kind) in (Union, UnionType):
        options = [_translated(option) for option in get_args(kind)]
        described = next((text for _, text in options if text), None)
        return Union[tuple(option for option, _ in options)], described  # noqa: UP007
    if get_origin(kind) is not Annotated:
        return kind, None
    found: dict[str, Any] = {}
    text = None
    for mark in _marks(kind):
        text = mark if isinstance(mark, str) else getattr(mark, "description", None) or text
        if not isinstance(mark, str | msgspec.Meta):
            values = ((name, getattr(mark, name, None)) for name in _CONSTRAINTS)
            found |= {name: value for name, value in values if value is not None}
    return (Annotated[kind, msgspec.Meta(**found)] if found else kind), text


def _marks(kind: Any) -> Iterator[Any]:
    for mark in get_args(kind)[1:]:
        yield mark
        # pydantic's Field keeps its constraints in a list of its own.
        inner = getattr(mark, "metadata", None)
        if isinstance(inner, list):
            yield from inner


def _schema(kind: Any) -> dict[str, Any]:
    (schema,), defs = msgspec.json.schema_components(
        [kind], schema_hook=_model_schema, ref_template=_DEFS + "{name}"
    )
    return {**schema, **({"$defs": defs} if defs else {})}


class _Read:
    """Holds a value that pydantic read: msgspec takes only an instance of the class it asked."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _read_by_pydantic(kind: Any) -> Any:
    """A class that reads what msgspec cannot, such as a union of two models.

    None if pydantic cannot read it either. pydantic is there: genai-prices needs it.
    """
    from pydantic import PydanticUserError, TypeAdapter

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        adapter.json_schema()
    except PydanticUserError:
        return None

    class Read(_Read):
        model_json_schema = adapter.json_schema

        @classmethod
        def model_validate(cls, value: Any) -> _Read:
            return cls(adapter.validate_python(value))

    return Read


def _model_schema(kind: type) -> dict[str, Any]:
    describe = getattr(kind, "model_json_schema", None)
    if describe is None or not hasattr(kind, "model_validate"):
        # Not `NotImplementedError`: with a description, msgspec would take the type for any value.
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} has no JSON type")
    schema: dict[str, Any] = describe()
    return schema


def _read_model(kind: type, value: Any) -> Any:
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise NotImplementedError(f"{kind} cannot be read from JSON")
    try:
        return validate(value)
    except ValueError as error:
        raise ValueError(_problems(error)) from None


def _problems(error: ValueError) -> str:
    """What pydantic found, without the values: one line for the model."""
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return str(error)
    return "; ".join(
        f"{'.'.join(map(str, found['loc'])) or 'value'}: {found['msg']}" for found in errors()
    )


def _show_default(default: Any, schema: dict[str, Any]) -> None:
    try:
        schema["default"] = msgspec.to_builtins(default, enc_hook=_dump_model)
    except (TypeError, ValueError):
        return  # the schema has no default then; the function still uses its own


def _dump_model(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError
    return dump(mode="json")


# --- strict schemas ----------------------------------------------------------------------------


def strict_schema(schema: dict[str, Any], tool: str) -> dict[str, Any]:
    """The schema as OpenAI's strict mode takes it: every object names all its fields.

    Raises `InvalidTool` for a field that may be absent, and for a dict of any fields.
    """
    made: dict[str, Any] = _closed(schema, tool)
    return made


_TYPED = frozenset(("type", "anyOf", "allOf", "oneOf", "enum", "const", "$ref"))
"""What says which values a field takes."""


def _closed(node: Any, tool: str) -> Any:
    if isinstance(node, list):
        return [_closed(item, tool) for item in node]
    if not isinstance(node, dict):
        return node
    made = {key: _closed(value, tool) for key, value in node.items()}
    if made.get("type") == "object":
        properties = made.get("properties", {})
        absent = [name for name in properties if name not in made.get("required", ())]
        if absent:
            raise InvalidTool(
                f"Tool {tool!r}: `strict` needs every field, and {', '.join(absent)} may be left "
                "out; remove the default, write `| None` instead, or leave `strict` out."
            )
        untyped = [name for name, one in properties.items() if not one.keys() & _TYPED]
        if untyped:
            raise InvalidTool(
                f"Tool {tool!r}: `strict` needs a type for every field, and {', '.join(untyped)} "
                "may be anything; annotate it with a type of JSON, or leave `strict` out."
            )
        if made.get("additionalProperties", not properties):
            raise InvalidTool(
                f"Tool {tool!r}: `strict` needs objects whose fields are known, and a dict has "
                "any; use a dataclass, or leave `strict` out."
            )
        made["additionalProperties"] = False
    return made


# --- references in a schema --------------------------------------------------------------------


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without `$ref`, because some providers do not follow them.

    A type that contains itself cannot be written without; its definition stays in `$defs`.
    """
    defs: dict[str, Any] = {}
    plain = _without_defs(schema, defs)
    recursive = {name for name in defs if name in _reached(defs[name], defs)}
    made: dict[str, Any] = _resolved(plain, defs, recursive)
    kept = {name: _resolved(defs[name], defs, recursive) for name in sorted(recursive)}
    return {**made, "$defs": kept} if kept else made


def _without_defs(node: Any, defs: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_without_defs(item, defs) for item in node]
    if not isinstance(node, dict):
        return node
    for name, found in node.get("$defs", {}).items():
        defs[name] = _without_defs(found, defs)
    return {key: _without_defs(value, defs) for key, value in node.items() if key != "$defs"}


def _names_in(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(ref := node.get("$ref"), str):
            yield ref.removeprefix(_DEFS)
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from _names_in(item)


def _reached(node: Any, defs: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    waiting = list(_names_in(node))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _names_in(defs.get(name))
    return found


def _resolved(node: Any, defs: Mapping[str, Any], recursive: set[str]) -> Any:
    if isinstance(node, list):
        return [_resolved(item, defs, recursive) for item in node]
    if not isinstance(node, dict):
        return node
    made = {key: _resolved(value, defs, recursive) for key, value in node.items() if key != "$ref"}
    if isinstance(made.get("enum"), list) and "type" not in made:
        kinds = {_JSON_TYPES.get(type(value)) for value in made["enum"]}
        if len(kinds) == 1 and None not in kinds:
            made["type"] = kinds.pop()  # some providers refuse an enum without
    if "propertyName" in made.get("discriminator", ()):
        del made["discriminator"]  # a keyword of OpenAPI that names definitions
    ref = node.get("$ref")
    if not isinstance(ref, str):
        # A property may be called "$ref"; its value is an object.
        return made if ref is None else {**made, "$ref": _resolved(ref, defs, recursive)}
    name = ref.removeprefix(_DEFS)
    if name in recursive or name not in defs:
        return {**made, "$ref": ref}
    return {**_resolved(defs[name], defs, recursive), **made}
