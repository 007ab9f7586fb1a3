"""The providers' rules for requests, as strict as they get, with the errors that they answer.

    issued = Issued()
    issued.openai_response("resp_1", output)     # what the provider sent out
    error = check_openai_responses(request, issued)
    assert error is None, error.message

A request is checked as the provider would: the shape of each item, ids, sealed reasoning, and
whether each call has its result. `Issued` is one account's memory: which ids, signatures and
encrypted contents are the provider's own, and which reasoning they depend on. Nothing here knows
how Tailrace makes a history. The messages are the providers' own, as far as they are documented
or were reported in public. Where only the rule is known, the message is ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tailrace.core.values import Json
from tailrace.testing.provider_rules import anthropic_messages, openai_chat, openai_responses
from tailrace.testing.provider_rules.openai_errors import RequestError


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider answers to a request that it refuses."""

    status: int = 400
    body: Json

    @property
    def message(self) -> str:
        """The error in words."""
        return str(self.body["error"]["message"])


@dataclass(frozen=True, slots=True)
class IssuedItem:
    """An item of OpenAI's, and what the provider remembers of it."""

    kind: str
    reasoning: str | None
    """The id of the reasoning that it came from."""
    stored: bool


class Issued:
    """What one account of a provider has sent out so far."""

    def __init__(self) -> None:
        self.items: dict[str, IssuedItem] = {}
        self.raw_items: list[Json] = []
        self.sealed: dict[str, str | None] = {}
        """From encrypted content to the id of its reasoning item."""
        self.responses: dict[str, Sequence[Json]] = {}
        self.thinking: dict[str, tuple[str | None, int]] = {}
        """From a signature, or redacted data, to its text and the message that it was part of."""
        self.message_thinking: list[list[str]] = []
        """The signatures of each message, in order."""
        self.reasoning_of_calls: dict[str, str] = {}
        """From a call of chat completions to the `reasoning_content` that it came with."""
        self.chat_parts: set[str] = set()
        """The types of content parts that a server of chat completions has sent itself."""

    def openai_response(
        self, response_id: str, output: Sequence[Json], *, store: bool = True
    ) -> None:
        """Remember a response of the Responses API; with `store`, also for its id's sake."""
        reasoning: str | None = None
        for item in output:
            ident = item.get("id")
            self.raw_items.append(item)
            if isinstance(ident, str):
                self.items[ident] = IssuedItem(item["type"], reasoning, store)
            if item["type"] == "reasoning":
                reasoning = ident
                if item.get("encrypted_content") is not None:
                    self.sealed[item["encrypted_content"]] = ident
        if store:
            self.responses[response_id] = output

    def anthropic_message(self, content: Sequence[Json]) -> None:
        """Remember a message of the Messages API."""
        signatures = [seal for block in content if (seal := seal_of(block)) is not None]
        for block in content:
            seal = seal_of(block)
            if seal is not None:
                self.thinking[seal] = (block.get("thinking"), len(self.message_thinking))
        self.message_thinking.append(signatures)

    def chat_message(self, message: Json) -> None:
        """Remember a message of chat completions."""
        reasoning = message.get("reasoning_content")
        for call in message.get("tool_calls") or ():
            if reasoning:
                self.reasoning_of_calls[call["id"]] = reasoning
        content = message.get("content")
        if isinstance(content, list):
            self.chat_parts.update(part["type"] for part in content)


def seal_of(block: Json) -> str | None:
    """What proves a block of thinking to Anthropic."""
    if block.get("type") == "thinking":
        return str(block.get("signature"))
    return str(block.get("data")) if block.get("type") == "redacted_thinking" else None


def check_openai_responses(request: Mapping[str, Any], issued: Issued) -> ErrorBody | None:
    """What OpenAI answers to this body of `POST /v1/responses`; None if it accepts it."""
    return _openai(openai_responses.errors(request, issued))


def check_openai_chat(request: Mapping[str, Any], issued: Issued) -> ErrorBody | None:
    """What OpenAI answers to this body of `POST /v1/chat/completions`; None if it accepts it."""
    return _openai(openai_chat.errors(request, issued))


def check_anthropic_messages(request: Mapping[str, Any], issued: Issued) -> ErrorBody | None:
    """What Anthropic answers to this body of `POST /v1/messages`; None if it accepts it."""
    for message in anthropic_messages.errors(request, issued):
        error = {"type": "invalid_request_error", "message": message}
        return ErrorBody(body={"type": "error", "error": error})
    return None


def _openai(errors: Iterator[RequestError]) -> ErrorBody | None:
    for found in errors:
        error = {
            "message": found.message,
            "type": "invalid_request_error",
            "param": found.param,
            "code": found.code,
        }
        return ErrorBody(status=found.status, body={"error": error})
    return None
