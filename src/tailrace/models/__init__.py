"""Models: the clients of OpenAI, Anthropic and chat completions, scripts and recordings.

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
from tailrace.ingest.base import Outcome
from tailrace.models.recording import NoRecording, record, replay
from tailrace.models.scripted import (
    InvalidScript,
    Scripted,
    call,
    cut,
    fail,
    garbage,
    say,
    silence,
    think,
    tries,
    wait,
)
from tailrace.ports import Model, OutputSchema, Request, ToolSpec
from tailrace.runtime.model_calls.call import Patience, call_model
from tailrace.runtime.model_calls.request_check import InvalidRequest

__all__ = [
    "InvalidRequest",
    "InvalidScript",
    "Model",
    "NoRecording",
    "Outcome",
    "OutputSchema",
    "Patience",
    "Request",
    "Scripted",
    "ToolSpec",
    "UnknownModel",
    "call",
    "call_model",
    "cut",
    "fail",
    "garbage",
    "open_model",
    "record",
    "replay",
    "say",
    "silence",
    "think",
    "tries",
    "wait",
]


class UnknownModel(CallerError):
    """A model name without a known provider."""

    code = "unknown_model"


def open_model(name: str, **options: Any) -> Model:
    """The model of this name. Options: `base_url`, `api_key`, `prices`, `connect`."""
    provider, colon, model = name.partition(":")
    if not colon:
        raise UnknownModel(
            f"The model name {name!r} has no provider. Write for example openai:{name}."
        )
    if not model:
        raise UnknownModel(f"The model name {name!r} has no model. Write it after the colon.")
    if provider == "openai":
        from tailrace.models.openai_responses import OpenAIModel

        return OpenAIModel(model, **options)
    if provider == "openai-chat":
        from tailrace.models.openai_chat import ChatModel

        return ChatModel(model, **options)
    if provider == "anthropic":
        from tailrace.models.anthropic_messages import AnthropicModel

        return AnthropicModel(model, **options)
    if provider == "replay":
        return replay(model, **options)
    if provider == "scripted":
        if options:
            raise UnknownModel(f"A scripted model takes no options. Remove {', '.join(options)}.")
        return _written(model)
    known = "openai, openai-chat, anthropic, replay or scripted"
    raise UnknownModel(f"Unknown model provider {provider!r}. Use {known}.")


def _written(place: str) -> Model:
    """A model object in a module of the user."""
    module, _, name = place.partition(":")
    try:
        found: Any = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownModel(
            f"No script at {place!r} ({error}). Write scripted:<module>:<name>."
        ) from error
    if not hasattr(found, "stream"):
        raise UnknownModel(
            f"The object at {place!r} is not a model. Write {name} = Scripted([say('Hello')])."
        )
    model: Model = found
    return model
