"""Models of providers: I/O around the ingests, chosen by name.

    model = open_model("openai:gpt-5")
    model = open_model("openai-chat:qwen3", base_url="http://localhost:11434/v1")

=====================  ==========================================================================
`openai:<model>`       OpenAI's Responses API; key in `OPENAI_API_KEY`
`openai-chat:<model>`  chat completions; the same key
`anthropic:<model>`    Anthropic's Messages API; key in `ANTHROPIC_API_KEY`
`replay:<file>`        a recording (`tailrace.models.recording`)
=====================  ==========================================================================

A script (`tailrace.models.scripted`) is a model too, and needs no provider.
"""

from __future__ import annotations

from typing import Any

from tailrace.core.errors import CallerError
from tailrace.ports import Model


class UnknownModel(CallerError):
    """A name that says nothing about whose model it is."""

    code = "unknown_model"


def open_model(name: str, **options: Any) -> Model:
    """The model of this name; `base_url`, `api_key`, `prices` and `connect` go to its provider."""
    provider, _, model = name.partition(":")
    if not model:
        raise UnknownModel(f"{name!r} names no provider: write openai:{name} or the like.")
    if provider == "openai":
        from tailrace.models.openai import OpenAIModel

        return OpenAIModel(model, **options)
    if provider == "openai-chat":
        from tailrace.models.chat import ChatModel

        return ChatModel(model, **options)
    if provider == "anthropic":
        from tailrace.models.anthropic import AnthropicModel

        return AnthropicModel(model, **options)
    if provider == "replay":
        from tailrace.models.recording import replay

        return replay(model, **options)
    known = "openai, openai-chat, anthropic or replay"
    raise UnknownModel(f"{provider!r} is no provider of models here: write {known}.")
