"""OpenAI's errors for values that are missing or wrong, in all of its APIs."""

from __future__ import annotations

import re
from typing import Any, NamedTuple


class RequestError(NamedTuple):
    """The error OpenAI answers an invalid request with."""

    message: str
    param: str | None = "input"
    code: str | None = None
    status: int = 400


def missing(place: str) -> RequestError:
    """The error for a missing field."""
    reason = f"Missing required parameter: '{place}'."
    return RequestError(reason, place, "missing_required_parameter")


_DATA = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),(.*)", re.DOTALL)
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def data_of(url: str) -> tuple[str, str] | None:
    """The media type and the base64 of a `data:` URL that has some."""
    found = _DATA.fullmatch(url)
    whole = found is not None and found[2].endswith(";base64") and found[3]
    return (found[1], found[3]) if found is not None and whole else None


def image_error(param: str, url: Any) -> RequestError | None:
    """Errors in the URL of an image."""
    if isinstance(url, str) and url.startswith(("https://", "http://")):
        return None
    if not isinstance(url, str) or not url.startswith("data:"):
        reason = "Expected a valid URL, but got a value with an invalid format."
        return RequestError(f"Invalid '{param}'. {reason}", param, "invalid_value")
    found = data_of(url)
    if found is not None and found[0] in _IMAGES:
        return None
    return RequestError(
        "The image data you provided does not represent a valid image. Please check your input and "
        f"try again with one of the following image formats: {list(_IMAGES)}.",
        param,
        "invalid_value",
    )


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "a boolean"),  # before integers, which Python's are as well
    (int, "an integer"),
    (float, "a decimal"),
    (str, "a string"),
    (list, "an array"),
    (dict, "an object"),
    (type(None), "null"),
)


def kind_name(value: Any) -> str:
    """OpenAI's name for the type of a value."""
    return next(name for kind, name in _KINDS if isinstance(value, kind))


def mistaken(place: str, wanted: str, value: Any) -> RequestError:
    """The error for a value of the wrong type."""
    reason = f"Invalid type for '{place}': expected {wanted}, but got {kind_name(value)} instead."
    return RequestError(reason, place, "invalid_type")


def too_long(param: str, value: str, limit: int) -> RequestError:
    """The error for a string that is too long."""
    reason = (
        f"Invalid '{param}': string too long. Expected a string with maximum length {limit}, "
        f"but got a string with length {len(value)} instead."
    )
    return RequestError(reason, param, "string_above_max_length")
