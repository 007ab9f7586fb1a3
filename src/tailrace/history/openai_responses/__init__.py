"""The conversation as the `input` of OpenAI's Responses API."""

from __future__ import annotations

from tailrace.history.openai_responses.items import content_part, render, results

__all__ = ["content_part", "render", "results"]
