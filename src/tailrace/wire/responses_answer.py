"""OpenAI's `response` object as the answer to a request that did not stream.

The Vercel AI SDK refuses the whole of it where an item lacks its id or a text its annotations, and
shows reasoning only from `summary`. Whatever else a backend says stays.
"""

from __future__ import annotations

from tailrace.wire.responses_body import LIFECYCLE, fill_summary, listed
from tailrace.wire.responses_books import TEXT, Books, fill_item
from tailrace.wire.responses_frames import Json, encoded, parsed


def repaired_body(body: bytes, ident: str) -> bytes:
    """The answer as a strict client can read it; one that needs nothing stays as it is.

    `ident` is for the ids of items in a response that has none itself.
    """
    value = parsed(body.decode("utf-8", "replace"))
    if value is None:
        return body
    changed = False
    inner = value.get("response")
    if str(value.get("type", "")) in LIFECYCLE and isinstance(inner, dict):
        # agentscope-runtime answers with the last event instead of the response in it.
        value, changed = inner, True
    books = Books()
    books.base = str(value.get("id") or ident).removeprefix("resp_")
    for place, item in enumerate(listed(value, "output")):
        if isinstance(item, dict):
            known = books.add(item.get("id"), place, str(item.get("type")))
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
