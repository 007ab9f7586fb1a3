"""One rule for ids, the same whatever store keeps them."""

from __future__ import annotations

import pytest

from tailrace.core.errors import CallerError
from tailrace.core.ids import MAX_ID_BYTES, check_id

GOOD = ["t", "thread 1", "user@example.com:7", "日本", "a.b", "...", "%2F", "x" * MAX_ID_BYTES]
BAD = [
    "",
    ".",
    "..",
    "a/b",
    "a\x00b",
    "a\nb",
    "a\x7fb",
    "a\x85b",
    "a\ud800b",
    "x" * (MAX_ID_BYTES + 1),
    "日" * (MAX_ID_BYTES // 3 + 1),
]


@pytest.mark.parametrize("value", GOOD)
def test_an_id_of_up_to_256_bytes_is_kept_as_it_is(value: str) -> None:
    assert check_id(value, "thread_id") == value


@pytest.mark.parametrize("value", BAD)
def test_an_id_that_cannot_be_addressed_or_stored_is_refused_by_its_field(value: str) -> None:
    with pytest.raises(CallerError, match=r"^`thread_id` is '.*; it must have 1 to 256") as caught:
        check_id(value, "thread_id")
    assert caught.value.param == "thread_id"
    assert len(str(caught.value)) < 250
