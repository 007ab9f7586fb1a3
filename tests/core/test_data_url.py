"""`data:` URLs, written and read."""

from __future__ import annotations

import pytest

from tailrace.core.data_url import base64_url, data_type, data_url, read_data_url, text_url


def test_what_is_written_is_read() -> None:
    assert data_url(b"Hi!", "text/css") == "data:text/css;base64,SGkh"
    assert read_data_url(data_url(b"Hi!", "text/css")) == ("text/css", "SGkh")
    assert read_data_url(base64_url("SGkh", "image/png")) == ("image/png", "SGkh")
    assert text_url("100 %", "text/plain") == "data:text/plain,100%20%25"
    assert read_data_url(text_url("Hi!", "text/plain")) == ("text/plain", "SGkh")


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("data:,Hi!", ("text/plain", "SGkh")),
        ("data:;base64,SGkh", ("text/plain", "SGkh")),
        ("data:text/csv;charset=utf-8;base64,SGkh", ("text/csv", "SGkh")),
        ("data:text/csv;base64;charset=utf-8,SGkh", ("text/csv", "SGkh")),
        ("data:image", None),
        ("https://example.com/a,b", None),
        ("", None),
    ],
)
def test_a_url_is_read_with_and_without_parameters(url: str, found: tuple[str, str] | None) -> None:
    assert read_data_url(url) == found


def test_the_media_type_is_read_without_the_bytes() -> None:
    assert data_type("data:image/png;base64,SGkh") == "image/png"
    assert data_type("data:,Hi!") == ""
    assert data_type("https://example.com") is None
