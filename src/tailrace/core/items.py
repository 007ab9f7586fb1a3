"""The values of the protocol: items, their blocks and parts, annotations, usage, errors.

All are frozen and have no behaviour. Two rules:

* A field with its default value is left out of the JSON. So an item without `status` is completed,
  and a block without `id` is not in the reference pool.
* No field is secret. What only the model may see is in the event's `Private` part
  (`tailrace.core.events`).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, Self

import msgspec


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every value of the protocol: immutable, and JSON leaves defaults out."""

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @property
    def type(self) -> str:
        """The type on the wire, such as `task.text.delta` or `tool_result`; "" for no type."""
        return str(self.__struct_config__.tag or "")


@cache
def _words(cls: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """The fields of a class whose default is a string."""
    with_default = cls.__struct_fields__[-len(cls.__struct_defaults__) :]
    pairs = zip(with_default, cls.__struct_defaults__, strict=True)
    return tuple((name, default) for name, default in pairs if isinstance(default, str))


class FactWithDefaults(Fact, frozen=True, kw_only=True):
    """A value with strings as defaults, such as `status`.

    msgspec leaves out a default only if it is the same object. A string that was decoded from JSON
    is another object, so it is replaced by the default's object.
    """

    def __post_init__(self) -> None:
        for name, default in _words(type(self)):
            if getattr(self, name) == default:
                msgspec.structs.force_setattr(self, name, default)


# --- annotations -------------------------------------------------------------------------------


class ReferenceToBlock(Fact, frozen=True, kw_only=True, tag="reference_to_block", tag_field="type"):
    """A citation: `[^reference_id]` stands at [start_index, end_index) of the text.

    Offsets count Unicode code points of the block's final text, half-open, marker included. The
    number belongs to the pool of the task whose item holds the annotation.
    """

    reference_id: int
    start_index: int
    end_index: int


class UrlCitation(
    FactWithDefaults, frozen=True, kw_only=True, tag="url_citation", tag_field="type"
):
    """A citation by the provider (web search), with the same kind of offsets."""

    url: str
    start_index: int
    end_index: int
    title: str = ""


class FileCitation(
    FactWithDefaults, frozen=True, kw_only=True, tag="file_citation", tag_field="type"
):
    """A citation of a file at the provider (file search, containers)."""

    file_id: str
    filename: str = ""
    index: int | None = None
    container_id: str | None = None
    start_index: int | None = None
    end_index: int | None = None


class RawAnnotation(Fact, frozen=True, kw_only=True, tag="raw", tag_field="type"):
    """An annotation of an unknown kind, unchanged."""

    raw: Any


Annotation = ReferenceToBlock | UrlCitation | FileCitation | RawAnnotation


# --- blocks: what the client sees of a tool result or a message --------------------------------


class ImageUrl(Fact, frozen=True, kw_only=True):
    """The URL of an image: a `data:` URL, or any URL that an `<img>` can load."""

    url: str


class Text(Fact, frozen=True, kw_only=True, tag="text", tag_field="type"):
    """A text; also a part of a reasoning summary."""

    text: str
    id: int | None = None
    annotations: list[Annotation] = []


class Image(Fact, frozen=True, kw_only=True, tag="image", tag_field="type"):
    """A whole image."""

    image_url: ImageUrl
    id: int | None = None


class Refusal(Fact, frozen=True, kw_only=True, tag="refusal", tag_field="type"):
    """The model's explanation why it does not answer."""

    refusal: str


class Data(Fact, frozen=True, kw_only=True, tag="data", tag_field="type"):
    """Any JSON value, for a front end that knows what `name` means."""

    data: Any
    name: str | None = None
    id: int | None = None


class File(FactWithDefaults, frozen=True, kw_only=True, tag="file", tag_field="type"):
    """A file that the client may fetch.

    With `bucket` and `path` it is an attachment: a file in the application's own storage.
    """

    url: str
    mime_type: str = "application/octet-stream"
    name: str | None = None
    size: int | None = None
    sha256: str | None = None
    bucket: str | None = None
    path: str | None = None
    id: int | None = None


Block = Text | Image | Refusal | Data | File


# --- content: what the model sees of a tool result (private) -----------------------------------


class TextPart(Fact, frozen=True, kw_only=True, tag="text", tag_field="type"):
    """Text for the model; `tags` marks text that the tool did not return."""

    text: str
    id: int | str | None = None
    tags: list[str] = []


class ImageUrlPart(Fact, frozen=True, kw_only=True, tag="image_url", tag_field="type"):
    """An image for the model."""

    image_url: ImageUrl
    id: int | str | None = None
    tags: list[str] = []


class FilePart(FactWithDefaults, frozen=True, kw_only=True, tag="file", tag_field="type"):
    """A file for the model."""

    url: str
    mime_type: str = "application/octet-stream"
    name: str | None = None
    id: int | str | None = None
    tags: list[str] = []


ContentPart = TextPart | ImageUrlPart | FilePart


# --- items -------------------------------------------------------------------------------------

Status = Literal["completed", "in_progress", "incomplete", "failed"]
"""The status of an item. Absent means `completed`; `failed` is for tool results."""

StepEnd = Literal["completed", "incomplete"]
"""How a step ended. Absent means `completed`."""

Executor = Literal["server", "client", "provider"]
"""Who runs a call: the server's tool, the client that declared it, or the model's provider."""


class ErrorInfo(Fact, frozen=True, kw_only=True):
    """An error that clients may see."""

    code: str
    message: str
    param: str | None = None
    retry_after: float | None = None


class Reasoning(FactWithDefaults, frozen=True, kw_only=True, tag="reasoning", tag_field="type"):
    """The model's thinking: a summary in parts, and the raw text if the provider sends it."""

    id: str
    summary: list[Text] | None = None
    reasoning_text: list[Text] | None = None
    status: Status = "completed"


class ToolCall(FactWithDefaults, frozen=True, kw_only=True, tag="tool_call", tag_field="type"):
    """The model calls a tool. `kind` is `function`, or the name of a provider's built-in tool.

    With `needs_approval` people may be asked before the tool starts.
    """

    id: str
    call_id: str
    name: str
    arguments: str | None = None
    kind: str = "function"
    executor: Executor = "server"
    server_label: str | None = None
    needs_approval: bool = False
    status: Status = "completed"


class ToolResult(FactWithDefaults, frozen=True, kw_only=True, tag="tool_result", tag_field="type"):
    """The result of a call, as blocks for the client. A sub-agent's items are among them."""

    id: str
    call_id: str
    block_list: list[Block] | None = None
    status: Status = "completed"
    error: ErrorInfo | None = None


class Message(FactWithDefaults, frozen=True, kw_only=True, tag="message", tag_field="type"):
    """A message of the agent."""

    id: str
    role: str
    block_list: list[Block] | None = None
    status: Status = "completed"
    phase: str | None = None


class RawItem(FactWithDefaults, frozen=True, kw_only=True, tag="raw", tag_field="type"):
    """An item of an unknown kind, unchanged."""

    id: str
    raw: Any
    source: str | None = None
    status: Status = "completed"


Item = Reasoning | ToolCall | ToolResult | Message | RawItem


# --- the rest ----------------------------------------------------------------------------------


class Usage(Fact, frozen=True, kw_only=True):
    """The usage of a model call. The fold adds it to its task and to every task above.

    `input_tokens` includes cached tokens, as OpenAI counts; `output_tokens` includes reasoning.
    """

    model: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None
    latency_ms: float | None = None
    time_to_first_token_ms: float | None = None
    service_tier: str | None = None


class InputRequest(Fact, frozen=True, kw_only=True):
    """A request of a paused task: the approval of a call, or a value.

    `name` and `arguments` are those of the call, so that a client can show what it approves or
    carry the call out. `arguments` is a JSON value, as the `value` of an answer is.
    """

    id: str
    kind: Literal["approval", "input"]
    call_id: str | None = None
    name: str | None = None
    arguments: Any = None
    message: str | None = None
    schema: Any = None
