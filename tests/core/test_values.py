"""Values of foreign JSON, as error messages quote them."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.core.values import quoted


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "missing"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (1.5, "1.5"),
        ("high", "'high'"),
        ("a\nb é", r"'a\nb \xe9'"),
        ([], "an empty list"),
        (["sk-secret"], "a list"),
        ({}, "an empty object"),
        ({"key": "sk-secret"}, "an object"),
    ],
)
def test_a_value_is_quoted_in_few_words(value: Any, shown: str) -> None:
    assert quoted(value) == shown


def test_what_is_quoted_of_a_large_value_is_short() -> None:
    assert quoted("x" * 10_000_000) == f"'{'x' * 79}…"
    assert quoted(10**5000) == "a very large number"
