"""Write the TypeScript client's types and readers from the protocol's JSON Schema.

    python scripts/generate_ts_types.py [--check] [--schema FILE]

Makes `items.ts` and `events.ts` (types) and `shapes.ts` (what a reader accepts at run time) in
`clients/ts/src`. With `--check` it writes nothing, and exits with 1 when one of them is stale.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "conformance" / "schema.json"
TARGET = ROOT / "clients" / "ts" / "src"

HEADER = "// Generated from conformance/schema.json by scripts/generate_ts_types.py: do not edit.\n"
WIDTH = 110

UNIONS = {
    "Item": "Message",
    "Block": "Refusal",
    "Annotation": "UrlCitation",
    "ContentPart": "FilePart",
}
"""Unions that get a name, and the member by which one is recognised."""

WORD = re.compile(r"\w+")
READERS = {"boolean", "integer", "json", "list", "number", "oneOf", "string", "struct", "tagged"}
READERS |= {"defaulted", "event", "optional", "required"}

SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}

Schema = dict[str, Any]


def target_of(schema: Schema) -> str | None:
    """The definition that a schema refers to."""
    ref = schema.get("$ref")
    return None if ref is None else str(ref).rpartition("/")[2]


def tag_of(schema: Schema) -> str | None:
    """The one value of a struct's `type`, if it has one."""
    values = schema.get("properties", {}).get("type", {}).get("enum", [])
    return str(values[0]) if len(values) == 1 else None


def is_event(schema: Schema) -> bool:
    """Whether a definition is an event's."""
    return (tag_of(schema) or "").startswith("task.") and "sequence_number" in schema["properties"]


def without_null(schema: Schema) -> tuple[list[Schema], bool]:
    """The alternatives of a schema beside null, and whether null is one of them."""
    choices = schema.get("anyOf", [schema])
    kept = [choice for choice in choices if choice.get("type") != "null"]
    return kept, len(kept) < len(choices)


def union_name(choices: Iterable[Schema]) -> str | None:
    """The name of the union that these alternatives are, if it has one."""
    members = {target_of(choice) for choice in choices}
    if len(members) < 2:
        return None
    return next((name for name, mark in UNIONS.items() if mark in members), None)


def quoted(values: Iterable[Any]) -> list[str]:
    """Values as TypeScript writes them."""
    return [json.dumps(value, ensure_ascii=False) for value in values]


# --- types -------------------------------------------------------------------------------------


def ts_type(schema: Schema) -> str:
    """The TypeScript type of a schema. Null is left out where a field may be absent instead."""
    choices, nullable = without_null(schema)
    if nullable and "default" not in schema:
        return f"{ts_choices(choices)} | null"
    return ts_choices(choices)


def ts_choices(choices: list[Schema]) -> str:
    """The type of one of several alternatives."""
    named = union_name(choices)
    if named is not None:
        return named
    return " | ".join(dict.fromkeys(ts_single(choice) for choice in choices))


def ts_single(schema: Schema) -> str:
    """The type of a schema without alternatives."""
    target = target_of(schema)
    if target is not None:
        return target
    if "const" in schema:
        return quoted([schema["const"]])[0]
    if "enum" in schema:
        return " | ".join(quoted(schema["enum"]))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(ts_single({**schema, "type": name}) for name in kind)
    if kind == "null":
        return "null"
    if kind == "array":
        element = ts_type(schema.get("items", {}))
        return f"readonly ({element})[]" if " " in element else f"readonly {element}[]"
    if kind == "object":
        values = schema.get("additionalProperties")
        inside = ts_type(values) if isinstance(values, dict) else "unknown"
        return f"{{ readonly [key: string]: {inside} }}"
    return SCALARS.get(str(kind), "unknown")


def comment(text: str | None) -> list[str]:
    """A description as a comment, in lines."""
    if not text:
        return []
    lines = inspect.cleandoc(text).splitlines()
    if len(lines) == 1:
        return [f"/** {lines[0]} */"]
    return ["/**", *(f" * {line}".rstrip() for line in lines), " */"]


def interface(name: str, schema: Schema) -> list[str]:
    """A struct as an interface."""
    required = set(schema.get("required", []))
    lines = [*comment(schema.get("description")), f"export interface {name} {{"]
    for field, kind in schema.get("properties", {}).items():
        mark = "" if field in required else "?"
        lines.append(f"  readonly {field}{mark}: {ts_type(kind)};")
    return [*lines, "}", ""]


def definition(name: str, schema: Schema) -> list[str]:
    """A definition of the schema as an exported type."""
    if "properties" in schema:
        return interface(name, schema)
    return [*comment(schema.get("description")), f"export type {name} = {ts_type(schema)};", ""]


def unions(schema: Any) -> dict[str, list[str]]:
    """The named unions that occur anywhere in a schema, with their members."""
    found: dict[str, list[str]] = {}
    if isinstance(schema, dict):
        choices = schema.get("anyOf", [])
        name = union_name(choices)
        if name is not None:
            found[name] = [member for choice in choices if (member := target_of(choice))]
        for value in schema.values():
            found.update(unions(value))
    elif isinstance(schema, list):
        for value in schema:
            found.update(unions(value))
    return found


# --- readers -----------------------------------------------------------------------------------


def reader(schema: Schema) -> str:
    """The expression that reads a value of this schema, from the words of `read.ts`."""
    choices, _ = without_null(schema)
    named = union_name(choices)
    if named is not None:
        return named
    if len(choices) != 1:
        raise ValueError(f"no reader for {schema}")
    choice = choices[0]
    target = target_of(choice)
    if target is not None:
        return target
    if "enum" in choice:
        return f"oneOf({', '.join(quoted(choice['enum']))})"
    kind = choice.get("type")
    if kind == "array":
        return f"list({reader(choice.get('items', {}))})"
    return kind if kind in SCALARS else "json"


def field_reader(schema: Schema, required: bool) -> str:
    """The expression that reads a struct's field."""
    if required:
        return f"required({reader(schema)})"
    default = schema.get("default")
    if default is None:
        return f"optional({reader(schema)})"
    return f"defaulted({reader(schema)}, {json.dumps(default)})"


def shape(name: str, schema: Schema) -> list[str]:
    """The reader of a struct."""
    required = set(schema.get("required", []))
    tag = tag_of(schema)
    word, implied = "struct", {"type"} if tag else set()
    if is_event(schema):
        word, implied = "event", {"type", "task_id", "sequence_number"}
    fields = [
        f"{field}: {field_reader(kind, field in required)}"
        for field, kind in schema.get("properties", {}).items()
        if field not in implied
    ]
    head = f"const {name} = {word}({json.dumps(tag)}, {{"
    flat = f"{head} {', '.join(fields)} }});".replace("{  }", "{}")
    if len(flat) <= WIDTH:
        return [flat]
    return [head, *(f"  {field}," for field in fields), "});"]


def references(schema: Any) -> list[str]:
    """The definitions that a schema names, anywhere."""
    if isinstance(schema, dict):
        own = [target] if (target := target_of(schema)) else []
        return own + [name for value in schema.values() for name in references(value)]
    if isinstance(schema, list):
        return [name for value in schema for name in references(value)]
    return []


def in_order(names: Iterable[str], definitions: Schema, done: list[str]) -> list[str]:
    """The definitions that these need, each after those that it needs itself."""
    for name in names:
        if name not in done:
            in_order(references(definitions[name].get("properties", {})), definitions, done)
            done.append(name)
    return done


# --- files -------------------------------------------------------------------------------------


def generate(schema: Schema) -> dict[str, str]:
    """The files' contents by name."""
    definitions: Schema = dict(sorted(schema["$defs"].items()))
    events = [name for name in definitions if is_event(definitions[name])]
    order = [target_of(choice) for choice in schema.get("anyOf", [])]
    events.sort(key=lambda name: order.index(name) if name in order else len(order))
    return {
        "items.ts": items_file(definitions, events),
        "events.ts": events_file(definitions, events),
        "shapes.ts": shapes_file(definitions, events),
    }


def items_file(definitions: Schema, events: list[str]) -> str:
    """Everything that has a type and is no event."""
    lines = [HEADER]
    for name, schema in definitions.items():
        if name not in events:
            lines += definition(name, schema)
    for name, members in sorted(unions(definitions).items()):
        lines += [f"export type {name} = {' | '.join(members)};", ""]
    return "\n".join(lines)


def events_file(definitions: Schema, events: list[str]) -> str:
    """The events and their union."""
    used = {name for event in events for name in references(definitions[event])} - set(events)
    named = unions({event: definitions[event] for event in events})
    inside = {member for members in named.values() for member in members}
    # A union's members are only imported when some event also names one by itself.
    alone = {
        target
        for event in events
        for kind in definitions[event].get("properties", {}).values()
        if union_name(without_null(kind)[0]) is None
        for target in references(kind)
    }
    imports = sorted((used - inside) | (used & alone) | set(named))
    lines = [HEADER, f'import type {{ {", ".join(imports)} }} from "./items.ts";', ""]
    for name in events:
        lines += definition(name, definitions[name])
    lines += comment("Every event that this version has a name for.")
    lines += ["export type RunEvent =", *(f"  | {name}" for name in events)]
    return "\n".join(lines) + ";\n"


def shapes_file(definitions: Schema, events: list[str]) -> str:
    """The readers of all events, in the words of `read.ts`."""
    body: list[str] = []
    written: set[str] = set()
    for name in in_order(events, definitions, []):
        # A union follows its members, and comes before the first that uses it.
        for alias, members in unions(definitions[name]).items():
            if alias not in written:
                written.add(alias)
                body.append(f"const {alias} = tagged({', '.join(members)});")
        body += shape(name, definitions[name])
    words = sorted({word for line in body for word in WORD.findall(line)} & READERS)
    lines = [HEADER, f'import {{ {", ".join(words)} }} from "./read.ts";']
    lines += ['import type { Struct } from "./read.ts";', "", *body, ""]
    lines += comment("What each event looks like, by its `type`.")
    lines += ["export const SHAPES: ReadonlyMap<string, Struct> = new Map("]
    lines += ["  [", *filled(events, "    ")]
    lines += ['  ].map((shape) => [shape.tag ?? "", shape]),', ");", ""]
    lines += comment("The item types that have a name.")
    items = quoted(tag_of(definitions[name]) for name in unions(definitions)["Item"])
    lines += [f"export const ITEM_TYPES: ReadonlySet<string> = new Set([{', '.join(items)}]);", ""]
    return "\n".join(lines)


def filled(names: list[str], indent: str) -> list[str]:
    """A comma-separated list, as many as fit on a line."""
    text = ", ".join(names) + ","
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def main(argv: list[str] | None = None) -> int:
    """Write the files, or say which are stale."""
    parser = argparse.ArgumentParser(description="Write the TypeScript client's types.")
    parser.add_argument("--check", action="store_true", help="only tell whether they are stale")
    parser.add_argument("--schema", type=Path, default=SCHEMA)
    options = parser.parse_args(argv)
    stale = 0
    for name, text in generate(json.loads(options.schema.read_text("utf-8"))).items():
        path = TARGET / name
        if path.exists() and path.read_text("utf-8") == text:
            continue
        if options.check:
            sys.stderr.write(f"{path.relative_to(ROOT)} is stale: run {Path(__file__).name}\n")
            stale = 1
        else:
            path.write_text(text, "utf-8")
            sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
    return stale


if __name__ == "__main__":
    sys.exit(main())
