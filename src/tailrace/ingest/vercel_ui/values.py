"""Values of UI message chunks in our types: outcomes, usage, sources, blocks."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.core.citations import from_utf16
from tailrace.core.items import (
    Annotation,
    Block,
    ErrorInfo,
    File,
    FileCitation,
    Image,
    ImageUrl,
    RawAnnotation,
    ReferenceToBlock,
    Text,
    UrlCitation,
    Usage,
)
from tailrace.core.values import (
    Json,
    count_of,
    dict_of,
    index_of,
    json_text,
    list_of,
    number_of,
    text_of,
)
from tailrace.ingest.base import Outcome

API = "vercel-ui"

_FINISHED: dict[str | None, Outcome] = {
    None: Outcome(status="completed"),
    "stop": Outcome(status="completed"),
    "tool-calls": Outcome(status="completed"),
    "length": Outcome(status="incomplete", reason="max_output_tokens"),
    "content-filter": Outcome(status="incomplete", reason="content_filter"),
    "error": Outcome(status="failed", error=ErrorInfo(code="error", message="The model failed.")),
}
_COUNTS = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cached_input_tokens": "cachedInputTokens",
    "cache_write_tokens": "cacheWriteTokens",
    "reasoning_tokens": "reasoningTokens",
}
_DETAILS = {
    "cached_input_tokens": ("inputTokenDetails", "cacheReadTokens"),
    "cache_write_tokens": ("inputTokenDetails", "cacheWriteTokens"),
    "reasoning_tokens": ("outputTokenDetails", "reasoningTokens"),
}
_AMOUNTS = ("cost", "latency_ms", "time_to_first_token_ms")


def our_fields(chunk: Json) -> Json:
    """Our own fields of a chunk, beyond those of the AI SDK."""
    return dict_of(dict_of(chunk.get("providerMetadata")).get("tailrace"))


# --- the message ---------------------------------------------------------------------------------


def outcome_of(finish_reason: Any, metadata: Json) -> Outcome:
    """The outcome of a message; our streams have the exact reason in the metadata."""
    if metadata.get("status") == "incomplete":
        return Outcome(status="incomplete", reason=text_of(metadata.get("reason")) or "incomplete")
    if finish_reason is not None and not isinstance(finish_reason, str):
        finish_reason = "other"
    known = _FINISHED.get(finish_reason)
    return known or Outcome(status="incomplete", reason=finish_reason or "other")


def model_of(metadata: Json) -> str | None:
    """The model, under any of its usual names."""
    for name in ("model", "modelId"):
        if text_of(metadata.get(name)):
            return str(metadata[name])
    return None


def usage_of(metadata: Json) -> Usage | None:
    """The usage of a message: ours, or the AI SDK's `LanguageModelUsage`."""
    for holder in ("usage", "totalUsage"):
        raw = metadata.get(holder)
        if isinstance(raw, dict):
            fields = _usage_fields(raw)
            if fields:
                model = text_of(raw.get("model")) or model_of(metadata)
                tier = text_of(raw.get("service_tier")) or None
                return Usage(model=model, service_tier=tier, **fields)
    return None


def _usage_fields(raw: Json) -> Json:
    fields: Json = {}
    for ours, theirs in _COUNTS.items():
        holder, name = _DETAILS.get(ours, ("", ""))
        for value in (raw.get(ours), raw.get(theirs), dict_of(raw.get(holder)).get(name)):
            if (count := count_of(value)) is not None:
                fields[ours] = count
                break
    for name in _AMOUNTS:
        if number_of(raw.get(name)) is not None:
            fields[name] = raw[name]
    return fields


def error_of(value: Any, code: str, otherwise: str) -> ErrorInfo:
    """An error with the stream's message, or with a message of ours."""
    return ErrorInfo(code=code, message=text_of(value) or otherwise)


# --- sources -------------------------------------------------------------------------------------


class Cited(msgspec.Struct, frozen=True):
    """A citation of a text and the id of its source."""

    annotation: Annotation
    source_id: str


def citations_of(chunk: Json, text: str) -> list[Cited]:
    """The citations of a text that has ended, by code points."""
    raws = [citation for citation in list_of(chunk.get("citations")) if isinstance(citation, dict)]
    offsets = [index_of(raw.get(name)) for raw in raws for name in ("startIndex", "endIndex")]
    points = from_utf16(text, [offset or 0 for offset in offsets])
    found = []
    for at, raw in enumerate(raws):
        source = dict_of(raw.get("source"))
        has_range = None not in offsets[2 * at : 2 * at + 2]
        start, end = points[2 * at : 2 * at + 2] if has_range else (None, None)
        note = annotation_of(source, raw, start, end, len(text))
        found.append(Cited(note, text_of(source.get("id"))))
    return found


def annotation_of(
    source: Json, raw: Json, start: int | None, end: int | None, length: int
) -> Annotation:
    """The citation of a source. A URL without a range covers the whole text."""
    about = our_fields(source)
    number = index_of(about.get("reference_id"))
    if number is not None and start is not None and end is not None:
        return ReferenceToBlock(reference_id=number, start_index=start, end_index=end)
    url = text_of(source.get("url"))
    if url and number is None:
        if start is None or end is None:
            start, end = 0, length
        title = text_of(source.get("title"))
        return UrlCitation(url=url, title=title, start_index=start, end_index=end)
    ident = text_of(about.get("file_id")) or text_of(source.get("id"))
    if ident and number is None:
        return FileCitation(
            file_id=ident,
            filename=text_of(source.get("filename")) or _title(source, about),
            container_id=text_of(about.get("container_id")) or None,
            start_index=start,
            end_index=end,
        )
    return RawAnnotation(raw=raw)


def _title(source: Json, about: Json) -> str:
    """The title of a foreign document is its name; ours has a filename instead."""
    return "" if about else text_of(source.get("title"))


# --- blocks --------------------------------------------------------------------------------------


def file_of(chunk: Json) -> Block | None:
    """A picture or a file of the message."""
    url, media = text_of(chunk.get("url")), text_of(chunk.get("mediaType"))
    if not url:
        return None
    about = our_fields(chunk)
    if media.startswith("image/") and not about:
        return Image(image_url=ImageUrl(url=url))
    return _converted({"type": "file", **about, "url": url, "mime_type": media}, File) or File(
        url=url, mime_type=media
    )


def _converted(raw: Json, kind: Any) -> Any:
    try:
        return msgspec.convert(raw, kind)
    except (msgspec.ValidationError, ValueError):
        return None


def output_blocks(output: Any, *, is_ours: bool) -> list[Block]:
    """The output of a call as blocks, without the sub-agents that our streams name.

    In a foreign stream a text is a text, and any other value is the text of its JSON.
    """
    if is_ours and isinstance(output, list):
        own = [raw for raw in output if dict_of(raw).get("type") != "task"]
        blocks = [block for raw in own if (block := block_of(raw)) is not None]
        if len(blocks) == len(own):
            return blocks
    if output is None or output == "":
        return []
    return [Text(text=output if isinstance(output, str) else json_text(output))]


def block_of(raw: Any) -> Block | None:
    """A block of ours. Its citations are written anew, because the pool owns the numbers."""
    block: Block | None = _converted(raw, Block)
    number = getattr(block, "id", None)
    if block is None or (number is not None and number < 1):
        return None
    if isinstance(block, Text) and block.annotations:
        return Text(text=block.text, id=block.id, annotations=in_points(block))
    return block


def in_points(block: Text) -> list[Annotation]:
    """A text's annotations by code points, without those that do not fit or that cite blocks."""
    kept: list[Annotation] = []
    for note in block.annotations:
        start = getattr(note, "start_index", None)
        end = getattr(note, "end_index", None)
        if start is not None and end is not None:
            start, end = from_utf16(block.text, [start, end])
            if isinstance(note, ReferenceToBlock) or not 0 <= start < end <= len(block.text):
                continue
            note = msgspec.structs.replace(note, start_index=start, end_index=end)
        kept.append(note)
    return kept
