"""The rules of OpenAI's Responses API."""

from __future__ import annotations

from tailrace.testing.provider_rules.openai_responses.rules import errors

__all__ = ["errors"]
