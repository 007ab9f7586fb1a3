"""The schema of a tool comes from its signature and docstring; arguments are read by it."""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema
import msgspec
import pydantic
import pytest
import typing_extensions

from tailrace import Context, Tool, tool
from tailrace.ingest.base import Notebook
from tailrace.models import open_model
from tailrace.models.scripted import say
from tailrace.ports import Request
from tailrace.runtime.model_calls.call import call_model
from tailrace.runtime.tools.parameters import InvalidArguments, InvalidTool
from tailrace.testing.simulator import Simulator


class Unit(enum.Enum):
    CELSIUS = "C"
    FAHRENHEIT = "F"


class Place(msgspec.Struct):
    """Somewhere on Earth."""

    city: str
    country: str = "FR"


@dataclass
class Span:
    first: int
    last: int


class Filter(TypedDict):
    name: str
    limit: NotRequired[int]


class Other(TypedDict):
    number: int


class Car(typing_extensions.TypedDict):
    doors: int


class Bike(typing_extensions.TypedDict):
    gears: int


class Inner(pydantic.BaseModel):
    ratio: float = pydantic.Field(gt=0)


class Order(pydantic.BaseModel):
    sku: str
    inner: Inner


class Folder(msgspec.Struct):
    name: str
    folders: list[Folder] = []


def test_the_schema_is_an_object_with_a_property_per_parameter() -> None:
    @tool
    async def get_weather(city: str, days: int = 3) -> dict[str, str]:
        """Current weather in a city."""
        return {}

    assert get_weather.name == "get_weather"
    assert get_weather.description == "Current weather in a city."
    assert get_weather.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "default": 3},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    spec = get_weather.spec()
    assert (spec.name, spec.description) == ("get_weather", "Current weather in a city.")
    assert spec.parameters == get_weather.parameters


@tool
def everything(
    place: Place,
    span: Span,
    filter: Filter,
    order: Order,
    unit: Unit = Unit.CELSIUS,
    mode: Literal["fast", "slow"] = "fast",
    number: int | str = 1,
    maybe: Annotated[int, msgspec.Meta(ge=1)] | None = None,
    orders: list[Order] = [],  # noqa: B006
    anything: Any = None,
) -> str:
    return ""


ALL = {
    "place": {"city": "Paris"},
    "span": {"first": 1, "last": 2},
    "filter": {"name": "x"},
    "order": {"sku": "a", "inner": {"ratio": 0.5}},
    "unit": "F",
    "mode": "slow",
    "number": "3",
    "maybe": None,
    "orders": [{"sku": "b", "inner": {"ratio": 1}}],
    "anything": [1, {"a": None}],
}


def test_every_kind_of_annotation_is_described_and_converted() -> None:
    jsonschema.Draft202012Validator.check_schema(everything.parameters)
    jsonschema.validate(ALL, everything.parameters)
    assert everything.validate(ALL) == {
        "place": Place("Paris"),
        "span": Span(1, 2),
        "filter": {"name": "x"},
        "order": Order(sku="a", inner=Inner(ratio=0.5)),
        "unit": Unit.FAHRENHEIT,
        "mode": "slow",
        "number": "3",
        "maybe": None,
        "orders": [Order(sku="b", inner=Inner(ratio=1))],
        "anything": [1, {"a": None}],
    }


def test_pydantic_reads_what_msgspec_cannot() -> None:
    @tool
    def find(
        what: Annotated[Inner | Order, "What to find."], near: list[Span | Inner], at: Path
    ) -> str:
        return ""

    order = {"sku": "a", "inner": {"ratio": 0.5}}
    value = {"what": order, "near": [{"first": 1, "last": 2}, {"ratio": 1}], "at": "a/b"}
    jsonschema.validate(value, find.parameters)
    assert find.parameters["properties"]["what"]["description"] == "What to find."
    assert find.validate(value) == {
        "what": Order(sku="a", inner=Inner(ratio=0.5)),
        "near": [Span(1, 2), Inner(ratio=1)],
        "at": Path("a/b"),
    }
    with pytest.raises(InvalidArguments, match=r"ratio: Input should be greater than 0"):
        find.validate({**value, "what": {"ratio": 0}})


def test_a_described_type_is_read_by_pydantic_too() -> None:
    @tool
    def find(at: Path, what: object = None) -> str:
        """Finds.

        Args:
            at: Where to look.
            what: Anything.
        """
        return ""

    assert find.parameters["properties"]["at"] == {
        "type": "string",
        "format": "path",
        "description": "Where to look.",
    }
    assert find.validate({"at": "a/b", "what": [1]}) == {"at": Path("a/b"), "what": [1]}


def test_dicts_of_typing_extensions_may_be_in_a_union() -> None:
    @tool
    def find(what: Car | Bike) -> str:
        return ""

    assert find.validate({"what": {"gears": 3}}) == {"what": {"gears": 3}}
    assert find.validate({"what": {"doors": 5}}) == {"what": {"doors": 5}}


def test_a_schema_has_no_references() -> None:
    assert b"$ref" not in msgspec.json.encode(everything.parameters)
    assert b"$defs" not in msgspec.json.encode(everything.parameters)
    place = everything.parameters["properties"]["place"]
    assert place["description"] == "Somewhere on Earth."


def test_a_type_that_contains_itself_keeps_its_definition() -> None:
    @tool
    def tree(root: Folder, place: Place) -> str:
        return ""

    value = {"root": {"name": "a", "folders": [{"name": "b"}]}, "place": {"city": "x"}}
    jsonschema.validate(value, tree.parameters)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**value, "root": {"name": "a", "folders": [1]}}, tree.parameters)
    assert set(tree.parameters["$defs"]) == {"Folder"}
    assert tree.validate(value)["root"].folders[0].name == "b"


def test_a_parameter_may_be_called_as_a_keyword_of_json_schema() -> None:
    Odd = TypedDict("Odd", {"$ref": Place})

    @tool
    def odd(given: Odd) -> str:
        return ""

    schema = odd.parameters["properties"]["given"]
    assert schema["properties"]["$ref"]["properties"]["city"] == {"type": "string"}


def test_an_enum_names_its_type() -> None:
    shown = everything.parameters["properties"]
    assert shown["unit"] == {"title": "Unit", "type": "string", "enum": ["C", "F"], "default": "C"}
    assert shown["mode"] == {"type": "string", "enum": ["fast", "slow"], "default": "fast"}

    @tool
    def mixed(value: Literal[1, "a"]) -> str:
        return ""

    assert mixed.parameters["properties"]["value"] == {"enum": [1, "a"]}


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str


def test_a_union_of_tagged_structs_has_no_reference_either() -> None:
    @tool
    def feed(pet: Cat | Dog) -> str:
        return ""

    assert b"$defs" not in msgspec.json.encode(feed.parameters)
    assert feed.validate({"pet": {"type": "Dog", "name": "Rex"}}) == {"pet": Dog("Rex")}


def test_absent_arguments_are_left_to_the_function() -> None:
    @tool
    def listed(names: list[str] = ["a"], word: str = None) -> str:  # type: ignore[assignment]  # noqa: B006, RUF013
        return ""

    assert listed.validate("{}") == {}
    assert listed.validate("") == {}
    assert listed.validate("null") == {}
    assert listed.validate({"word": None}) == {"word": None}
    assert "required" not in listed.parameters
    assert listed.parameters["properties"]["names"]["default"] == ["a"]


def test_a_default_that_is_not_json_is_not_shown() -> None:
    class Odd(pydantic.BaseModel):
        n: int = 1

    nothing: Any = object()

    @tool
    def odd(a: Any = nothing, b: Odd = Odd()) -> str:  # noqa: B008
        return ""

    assert "default" not in odd.parameters["properties"]["a"]
    assert odd.parameters["properties"]["b"]["default"] == {"n": 1}


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({"count": "3"}, 3),
        ({"count": 3}, 3),
        ({"count": 3.0}, 3),
    ],
)
def test_a_number_that_the_model_wrote_as_a_string_is_read(sent: dict[str, Any], read: int) -> None:
    @tool
    def counted(count: int) -> str:
        return ""

    assert counted.validate(sent) == {"count": read}


def test_a_numeric_string_stays_a_string_in_a_union_of_int_and_str() -> None:
    @tool
    def either(value: int | str, flag: bool) -> str:
        return ""

    assert either.validate({"value": "3", "flag": False}) == {"value": "3", "flag": False}


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ('{"city":', "not JSON"),
        ("[1]", "JSON object, not list"),
        ({}, "missing required field `city`"),
        ({"city": 3}, "Expected `str`, got `int` - at `$.city`"),
        ({"city": "x", "town": "y"}, "unknown field `town`"),
        ({"city": "x", "order": {"sku": "a", "inner": {"ratio": -1}}}, "greater than 0"),
    ],
)
def test_invalid_arguments_say_what_is_wrong(sent: Any, words: str) -> None:
    @tool
    def get_weather(city: str, order: Order | None = None) -> str:
        return ""

    with pytest.raises(InvalidArguments) as caught:
        get_weather.validate(sent)
    assert "The arguments of get_weather are invalid" in str(caught.value)
    assert words in str(caught.value)
    assert "https://" not in str(caught.value)


def test_nested_too_deep_is_invalid() -> None:
    @tool
    def deep(value: Any) -> str:
        return ""

    with pytest.raises(InvalidArguments):
        deep.validate('{"value":' + "[" * 100_000 + "]" * 100_000 + "}")


GOOGLE = """Finds a train.

    It asks the timetable.

    Args:
        start: Where the journey
            begins.
        goal (str): Where it ends.
        *unused: Nothing.

    Returns:
        A train.
    """
NUMPY = """Finds a train.

    It asks the timetable.

    Parameters
    ----------
    start : str
        Where the journey
        begins.
    goal
        Where it ends.

    Returns
    -------
    str
        A train.
    """
SPHINX = """Finds a train.

    It asks the timetable.

    :param start: Where the journey
        begins.
    :param str goal: Where it ends.
    :returns: A train.
    """


@pytest.mark.parametrize("doc", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_parameters_are_described_by_the_docstring(doc: str) -> None:
    def find(start: str, goal: str) -> str:
        return ""

    find.__doc__ = doc
    made = tool(find)
    assert made.description == "Finds a train.\n\nIt asks the timetable."
    described = {n: p.get("description") for n, p in made.parameters["properties"].items()}
    assert described == {"start": "Where the journey begins.", "goal": "Where it ends."}


def test_an_annotation_describes_a_parameter_before_the_docstring_does() -> None:
    @tool
    def find(
        one: Annotated[str, "From the annotation."],
        two: Annotated[int, msgspec.Meta(description="From Meta.", ge=1)],
        three: Annotated[int, pydantic.Field(description="From Field.", ge=1, le=9)],
        four: str,
    ) -> str:
        """Finds.

        Args:
            one: From the docstring.
            two: From the docstring.
            three: From the docstring.
            four: From the docstring.
        """
        return ""

    shown = find.parameters["properties"]
    assert shown["one"]["description"] == "From the annotation."
    assert shown["two"] == {"type": "integer", "description": "From Meta.", "minimum": 1}
    assert shown["three"] == {
        "type": "integer",
        "description": "From Field.",
        "minimum": 1,
        "maximum": 9,
    }
    assert shown["four"]["description"] == "From the docstring."
    with pytest.raises(InvalidArguments):
        find.validate({"one": "", "two": 1, "three": 10, "four": ""})


def test_an_optional_parameter_keeps_its_description() -> None:
    @tool
    def find(
        one: Annotated[str, "The first."] = None,  # type: ignore[assignment]  # noqa: RUF013
        two: Annotated[int, pydantic.Field(ge=1, description="The second.")] | None = None,
    ) -> str:
        return ""

    described = [shown["description"] for shown in find.parameters["properties"].values()]
    assert described == ["The first.", "The second."]
    assert find.validate({"two": None, "one": None}) == {"one": None, "two": None}
    with pytest.raises(InvalidArguments):
        find.validate({"two": 0})


def test_a_text_without_sections_is_the_description() -> None:
    @tool
    def find() -> str:
        """Finds a train.

        Note that it is slow. Parameters are few.
        """
        return ""

    assert "Parameters are few." in find.description
    assert find.parameters["properties"] == {}


def test_the_context_is_not_part_of_the_schema() -> None:
    @tool
    def one(ctx: Context, city: str) -> str:
        return ""

    @tool
    def two(city: str, ctx: Context | None = None) -> str:
        return ""

    for made in (one, two):
        assert list(made.parameters["properties"]) == ["city"]


def test_types_may_be_defined_where_the_tool_is() -> None:
    class Local(msgspec.Struct):
        n: int

    @tool
    def plain(value: Local) -> str:
        return ""

    @tool(name="other")
    def named(value: Local) -> str:
        return ""

    assert plain.validate({"value": {"n": 1}})["value"] == Local(1)
    assert named.validate({"value": {"n": 1}})["value"] == Local(1)


def _unannotated() -> Any:
    def f(city):  # type: ignore[no-untyped-def]
        return city

    return f


def _star() -> Any:
    def f(*cities: str) -> None: ...

    return f


def _stars() -> Any:
    def f(**cities: str) -> None: ...

    return f


def _positional() -> Any:
    def f(city: str, /) -> None: ...

    return f


def _type() -> Any:
    def f(city: Exception) -> None: ...

    return f


def _described_type() -> Any:
    def f(city: Exception) -> None:
        """Args:
        city: Its name.
        """

    return f


def _union() -> Any:
    def f(city: Place | Folder) -> None: ...

    return f


def _mixed() -> Any:
    def f(city: Place | Order) -> None: ...

    return f


def _dicts() -> Any:
    def f(city: list[Filter | Other]) -> None: ...

    return f


def _unknown() -> Any:
    def f(city: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037

    return f


def _field() -> Any:
    def f(city: str = pydantic.Field(description="x")) -> None: ...

    return f


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_unannotated, "no annotation; write `city: str`"),
        (_star, "`*cities`"),
        (_stars, "`**cities`"),
        (_positional, "remove the `/`"),
        (_type, "no JSON Schema"),
        (_described_type, "no JSON Schema"),
        (_union, "with a tag, as `class Car(msgspec.Struct, tag=True)`"),
        (_mixed, "only dataclasses and pydantic models, or only structs with tags"),
        pytest.param(
            _dicts,
            "import `TypedDict` from `typing_extensions`",
            marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic reads them"),
        ),
        (_unknown, "'Nowhere', which is not defined at run time"),
        (_field, "Annotated[type, Field(…)]"),
    ],
)
def test_a_wrong_parameter_is_refused_where_the_tool_is_declared(make: Any, words: str) -> None:
    with pytest.raises(InvalidTool) as caught:
        tool(make())
    assert "Tool 'f'" in str(caught.value)
    assert words in str(caught.value)


def test_a_strict_schema_closes_every_object() -> None:
    @tool(strict=True)
    def strict(span: Span, spans: list[Span], unit: Unit | None) -> str:
        return ""

    assert strict.spec().strict
    for span in (
        strict.parameters["properties"]["span"],
        strict.parameters["properties"]["spans"]["items"],
    ):
        assert span["additionalProperties"] is False
        assert span["required"] == ["first", "last"]

    @tool(strict=True)
    def nothing() -> str:
        return ""

    assert nothing.parameters["additionalProperties"] is False


def test_a_strict_tool_refuses_what_may_be_absent_or_unknown() -> None:
    def default(days: int = 1) -> None: ...

    def nested(place: Place) -> None: ...

    def any_fields(values: dict[str, int]) -> None: ...

    def no_fields(values: dict[str, Any]) -> None: ...

    def anything(value: Any) -> None: ...

    for function, words in (
        (default, "days may be left out"),
        (nested, "country may be left out"),
        (any_fields, "a dict has any"),
        (no_fields, "a dict has any"),
        (anything, "value may be anything"),
    ):
        with pytest.raises(InvalidTool, match=words):
            tool(strict=True)(function)


@pytest.mark.parametrize("name", ["openai:m", "openai-chat:m", "anthropic:m"])
async def test_every_provider_takes_the_schemas(name: str) -> None:
    @tool
    def tree(root: Folder, pet: Cat | Dog) -> str:
        return ""

    @tool(strict=True)
    def strict(span: Span, unit: Unit | None) -> str:
        return ""

    async with Simulator([say("Fine.")]) as provider:
        url = provider.url if name.startswith("anthropic") else provider.openai_url
        model = open_model(name, base_url=url, api_key="any")
        tools = [made.spec() for made in (everything, tree, strict)]
        task = Notebook(input="Hello.")
        outcome = await call_model(model, Request(chain=[task.state], tools=tools), task)
        await model.close()
    assert provider.refusals == []
    assert outcome.status == "completed"


def test_what_has_no_parameters_or_schema_that_can_be_known_is_refused_where_it_is_declared() -> (
    None
):
    def anything(value: object) -> None: ...

    with pytest.raises(InvalidTool, match="parameter `value`: its type has no JSON Schema"):
        tool(anything)
    for builtin in (dict, max):
        with pytest.raises(InvalidTool, match=f"'{builtin.__name__}': its parameters are not"):
            tool(builtin)


def test_a_method_is_declared_bound() -> None:
    class Desk:
        def lend(self, title: str) -> str:
            return title

        def __call__(self, title: str) -> str:
            """Asks the desk."""
            return title

        @tool
        @staticmethod
        async def close(hour: int) -> None:
            """Closes it."""

    with pytest.raises(InvalidTool, match=r"tool\(instance.method\)"):
        tool(Desk.lend)
    assert list(tool(Desk().lend).parameters["properties"]) == ["title"]
    with pytest.raises(InvalidTool, match="no name"):
        tool(Desk())
    assert Desk.close.validate({"hour": 9}) == {"hour": 9}
    asked = tool(name="ask")(Desk())
    assert (asked.name, asked.description) == ("ask", "Asks the desk.")
    assert asked.validate({"title": "x"}) == {"title": "x"}


def test_a_tool_by_hand_checks_the_required_names() -> None:
    made = Tool(
        "find",
        executor="client",
        parameters={"type": "object", "properties": {}, "required": ["city"]},
    )
    assert made.validate('{"city":1}') == {"city": 1}
    with pytest.raises(InvalidArguments, match="missing: city"):
        made.validate({})
