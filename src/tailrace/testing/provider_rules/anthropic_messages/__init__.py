"""The rules of Anthropic's Messages API."""

from __future__ import annotations

from tailrace.testing.provider_rules.anthropic_messages.rules import errors

__all__ = ["errors"]
