"""The random values that random runs are made of: texts, JSON, ids, private parts.

The values include what readers in several languages read differently: code points beyond the basic
plane, joined and combining characters, keys of JavaScript objects. They leave out what only
formatting changes: NaN, negative zero, integers that a double cannot hold, floats with an exponent.
"""

from __future__ import annotations

import json
from typing import Any, Final

from hypothesis import strategies as st

from tailrace.core.events import Private
from tailrace.core.items import (
    ContentPart,
    ErrorInfo,
    FilePart,
    ImageUrl,
    ImageUrlPart,
    TextPart,
    Usage,
)

# PROTOCOL.md: no lone surrogate and no U+0000 in any string.
_CHARACTERS: Final = st.characters(exclude_categories=["Cs"], exclude_characters="\0")

_SAMPLES: Final = (
    "Hello",
    " world.",
    "",
    "15 °C",
    "天気は晴れ",
    "🌤️",
    "👩‍👩‍👧‍👦",  # one family, seven code points
    "e\u0301",  # a letter and its combining accent
    "🇫🇷",
    "\U00020bb7野家",
    "\r\n",
    "\u2028",
    '"\\',
    "[^1]",
    "[^",
    "1]",
    "</referencable-item>",
    "data: {}\n\n",
)

TEXT: Final = st.one_of(st.sampled_from(_SAMPLES), st.text(_CHARACTERS, max_size=6))
"""A piece of text, short: what matters is where pieces meet."""

WORD: Final = st.sampled_from(("router", "worker", "get_weather", "search", "write", "plan"))
"""A name that a person chose."""

ODD_IDS: Final = ("__proto__", "constructor", "toString", "0", "a b", "é")
"""Ids that are as good as any, and break readers that keep them as keys of plain objects."""

NUMBER: Final = st.integers(0, 2_000_000).map(lambda thousandths: thousandths / 1000)
"""A float whose text is the same in Python and JavaScript."""

_INTEGER: Final = st.integers(-(2**53) + 1, 2**53 - 1)
_KEY: Final = st.one_of(st.sampled_from(("a", "b", "type", "id", *ODD_IDS)), TEXT)

JSON: Final[st.SearchStrategy[Any]] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), _INTEGER, NUMBER, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEY, inner, max_size=3)),
    max_leaves=4,
)
"""Any JSON value."""

ARGUMENTS: Final = st.dictionaries(_KEY, st.one_of(TEXT, st.integers(-9, 9)), max_size=2).map(
    lambda value: json.dumps(value, separators=(",", ":"))
)
"""A call's arguments. Escapes for everything that is not ASCII, so that deltas cut through them."""

IMAGE_URL: Final = st.sampled_from(
    ("data:image/png;base64,iVBORw0KGgo=", "data:image/gif;base64,R0lGODlh", "/blobs/7d86")
).map(lambda url: ImageUrl(url=url))

ERROR: Final = st.builds(
    ErrorInfo,
    code=st.sampled_from(("tool_timeout", "provider_overloaded", "internal_error")),
    message=TEXT,
    param=st.none() | WORD,
    retry_after=st.none() | NUMBER,
)

USAGE: Final = st.builds(
    Usage,
    model=st.none() | WORD,
    input_tokens=st.integers(0, 5000),
    output_tokens=st.integers(0, 5000),
    cached_input_tokens=st.integers(0, 9),
    cache_write_tokens=st.integers(0, 9),
    reasoning_tokens=st.integers(0, 9),
    cost=st.none() | NUMBER,
    latency_ms=st.none() | NUMBER,
    time_to_first_token_ms=st.none() | NUMBER,
    service_tier=st.none() | WORD,
)

PROVIDER: Final = st.builds(
    Private,
    provider=st.none() | st.just({"id": "resp_1"}) | st.just({"item_id": "item_2"}),
    encrypted_content=st.none() | st.just("gAAAAABo"),
    signature=st.none() | st.just("EqMB"),
    raw=st.none() | st.just({"type": "response.hologram.delta"}),
)
"""What a provider wants back and no client may see."""

SECRETS: Final = st.builds(Private, options=JSON)
"""Private values a run was started with; no client may read them."""


def content(number: st.SearchStrategy[int]) -> st.SearchStrategy[list[ContentPart]]:
    """What the model reads of a tool's result, with ids out of `number`."""
    some_id = st.none() | number | st.just("tool-local")
    tags: st.SearchStrategy[list[str]] = st.sampled_from(([], ["added_by_reference_manager"]))
    part = st.one_of(
        st.builds(TextPart, text=TEXT, id=some_id, tags=tags),
        st.builds(ImageUrlPart, image_url=IMAGE_URL, id=some_id),
        st.builds(FilePart, url=st.just("/blobs/9a"), id=some_id),
    )
    return st.lists(part, max_size=3)
