"""Models of providers: I/O around the ingests, chosen by name.

    model = open_model("openai:gpt-5")
    model = open_model("openai-chat:qwen3", base_url="http://localhost:11434/v1")

=====================  ==========================================================================
`openai:<model>`       OpenAI's Responses API; key in `OPENAI_API_KEY`
`openai-chat:<model>`  chat completions; the same key
`anthropic:<model>`    Anthropic's Messages API; key in `ANTHROPIC_API_KEY`
`replay:<file>`        a recording (`tailrace.models.recording`)
`scripted:<m>:<name>`  the `Scripted` of that name in module `m` (`tailrace.models.scripted`)
=====================  ==========================================================================
"""

from __future__ import annotations

from importlib import import_module
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
    if provider == "scripted":
        if options:
            raise UnknownModel(f"A script takes no options ({', '.join(options)}).")
        return _written(model)
    known = "openai, openai-chat, anthropic, replay or scripted"
    raise UnknownModel(f"{provider!r} is no provider of models here: write {known}.")


def _written(place: str) -> Model:
    """A model that stands in somebody's module."""
    module, _, name = place.partition(":")
    try:
        found: Any = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        said = f"There is no script at {place!r} ({error}): write scripted:<module>:<name>."
        raise UnknownModel(said) from error
    if not hasattr(found, "stream"):
        said = f"At {place!r} there is no model: write {name} = Scripted([say('Hello')])."
        raise UnknownModel(said)
    model: Model = found
    return model
