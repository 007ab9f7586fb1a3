"""Repairs the `response` object of a request that did not stream.

The Vercel AI SDK refuses a response if an item has no id or a text has no annotations. It shows
reasoning only from `summary`. Everything else stays unchanged.
"""

from __future__ import annotations

from tailrace.core.values import Json
from tailrace.repair.frames import encoded, parsed
from tailrace.repair.items import TEXT, SeenItems, fill_item
from tailrace.repair.object import LIFECYCLE, fill_summary, listed


def repaired_body(body: bytes, ident: str) -> bytes:
    """The body as a strict client can read it; unchanged if nothing is missing.

    The ids of items contain `ident` if the response has no id.
    """
    value = parsed(body.decode("utf-8", "replace"))
    if value is None:
        return body
    changed = False
    inner = value.get("response")
    if str(value.get("type", "")) in LIFECYCLE and isinstance(inner, dict):
        # agentscope-runtime sends the last event, with the response inside.
        value, changed = inner, True
    items = SeenItems()
    items.base = str(value.get("id") or ident).removeprefix("resp_")
    for place, item in enumerate(listed(value, "output")):
        if isinstance(item, dict):
            known = items.add(item.get("id"), place, str(item.get("type")))
            changed = fill_item(item, known) or changed
            changed = fill_summary(item) or changed
            changed = _fill_annotations(item) or changed
    return encoded(value) if changed else body


def _fill_annotations(item: Json) -> bool:
    bare = [
        part
        for part in listed(item, TEXT.place)
        if isinstance(part, dict) and part.get("type") == TEXT.type and not part.get("annotations")
    ]
    changed = any(part.get("annotations") != [] for part in bare)
    for part in bare:
        part["annotations"] = []
    return changed
