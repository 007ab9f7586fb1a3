"""Values of OpenAI's Responses API that the wire format and the repairer both write."""

from __future__ import annotations

from typing import Any

from tailrace.core.items import ErrorInfo

_ERROR_CODES = frozenset(
    (
        *("server_error", "rate_limit_exceeded", "invalid_prompt", "vector_store_timeout"),
        *("invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url"),
        *("image_too_large", "image_too_small", "image_parse_error", "invalid_image_mode"),
        *("image_content_policy_violation", "image_file_too_large", "empty_image_file"),
        *("unsupported_image_media_type", "failed_to_download_image", "image_file_not_found"),
    )
)
"""`ResponseError.code` of OpenAI's API; strict clients refuse any other value."""

_CODES = {"rate_limited": "rate_limit_exceeded", "request_refused": "invalid_prompt"}
"""Codes of Tailrace that have another name in OpenAI's list."""

_INCOMPLETE_REASONS = frozenset(("max_output_tokens", "content_filter"))
"""The values of `incomplete_details.reason` that all client versions know."""


def error_json(error: ErrorInfo) -> dict[str, Any]:
    """A response's `error`: `code` is from OpenAI's list, `type` is Tailrace's code."""
    code = _CODES.get(error.code, error.code)
    known = code if code in _ERROR_CODES else "server_error"
    return {"type": error.code, "code": known, "message": error.message, "param": error.param}


def incomplete_details(reason: str | None) -> dict[str, Any]:
    """Why a response stopped early; the AI SDK reads null as a normal stop."""
    return {"reason": reason if reason in _INCOMPLETE_REASONS else "max_output_tokens"}
