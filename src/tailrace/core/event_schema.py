"""Writes the JSON Schema of the events: `python -m tailrace.core.event_schema [--check]`.

It writes `conformance/schema.json`, from which the TypeScript types are generated.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from tailrace.core.events import KNOWN


def events_schema() -> dict[str, Any]:
    """The schema of an event, with every class under `$defs`."""
    refs, components = msgspec.json.schema_components(KNOWN, ref_template="#/$defs/{name}")
    tags = {
        str(cls.__struct_config__.tag): ref["$ref"] for cls, ref in zip(KNOWN, refs, strict=True)
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://tailrace.dev/protocol/1/schema.json",
        "title": "Tailrace event",
        "anyOf": list(refs),
        "discriminator": {"propertyName": "type", "mapping": tags},
        "$defs": dict(sorted(components.items())),
    }


def schema_text() -> str:
    """The content of the file."""
    return msgspec.json.format(msgspec.json.encode(events_schema()), indent=2).decode() + "\n"


def write_schema(arguments: list[str]) -> int:
    """Write the file, or with `--check` report whether it is stale."""
    path = Path(__file__).resolve().parents[3] / "conformance" / "schema.json"
    if "--check" in arguments:
        if path.exists() and path.read_text(encoding="utf-8") == schema_text():
            return 0
        sys.stderr.write("conformance/schema.json is stale: run `make docs`.\n")
        return 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(schema_text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(write_schema(sys.argv[1:]))
