"""What the chunks of a UI message stream say, value by value: outcomes, usage, sources, blocks."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.core.citations import from_utf16
from tailrace.core.codec import MAX_INTEGER
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
from tailrace.ingest.base import Outcome

API = "vercel-ui"

Json = dict[str, Any]

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


def text_of(value: Any) -> str:
    """The value if it is a text, else nothing."""
    return value if isinstance(value, str) else ""


def dict_of(value: Any) -> Json:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def about_us(chunk: Json) -> Json:
    """What a chunk of our own says beyond the AI SDK's fields."""
    return dict_of(dict_of(chunk.get("providerMetadata")).get("tailrace"))


# --- the message ---------------------------------------------------------------------------------


def outcome_of(finish_reason: Any, metadata: Json) -> Outcome:
    """How a message ended; ours say it in their metadata, where a reason has its own name."""
    if metadata.get("status") == "incomplete":
        return Outcome(status="incomplete", reason=text_of(metadata.get("reason")) or "incomplete")
    if finish_reason is not None and not isinstance(finish_reason, str):
        finish_reason = "other"
    known = _FINISHED.get(finish_reason)
    return known or Outcome(status="incomplete", reason=finish_reason or "other")


def model_of(metadata: Json) -> str | None:
    """The model, by the names that backends give it."""
    for name in ("model", "modelId"):
        if text_of(metadata.get(name)):
            return str(metadata[name])
    return None


def usage_of(metadata: Json) -> Usage | None:
    """What a message used: ours, or the AI SDK's `LanguageModelUsage` in the metadata."""
    for holder in ("usage", "totalUsage"):
        raw = metadata.get(holder)
        if isinstance(raw, dict):
            fields = _usage_fields(raw)
            if fields:
                model = text_of(raw.get("model")) or model_of(metadata)
                tier = text_of(raw.get("service_tier")) or None
                return Usage(model=model, service_tier=tier, **fields)
    return None


def without(total: Usage, parts: list[Usage]) -> Usage:
    """What is left of a sum; the sum itself if it is less than its parts, so none of them."""
    left: Json = {}
    for name in (*_COUNTS, "cost", "latency_ms"):
        taken = sum(getattr(part, name) or 0 for part in parts)
        if taken:
            left[name] = round((getattr(total, name) or 0) - taken, 9)
    return (
        total
        if any(value < 0 for value in left.values())
        else msgspec.structs.replace(total, **left)
    )


def _usage_fields(raw: Json) -> Json:
    fields: Json = {}
    for ours, theirs in _COUNTS.items():
        holder, name = _DETAILS.get(ours, ("", ""))
        for value in (raw.get(ours), raw.get(theirs), dict_of(raw.get(holder)).get(name)):
            if _is_amount(value) and isinstance(value, int):
                fields[ours] = value
                break
    for name in _AMOUNTS:
        if _is_amount(raw.get(name)):
            fields[name] = raw[name]
    return fields


def _is_amount(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value <= MAX_INTEGER


def error_of(value: Any, code: str, otherwise: str) -> ErrorInfo:
    """An error in the words of the stream, or in ours where it has none."""
    return ErrorInfo(code=code, message=text_of(value) or otherwise)


# --- sources -------------------------------------------------------------------------------------


class Cited(msgspec.Struct, frozen=True):
    """A citation of a text: as we know it, and what it cites."""

    annotation: Annotation
    source_id: str
    about: Json


def citations_of(chunk: Json, text: str) -> list[Cited]:
    """The citations of a text that has ended, by code points."""
    raws = [one for one in list_of(chunk.get("citations")) if isinstance(one, dict)]
    offsets = [_offset(one.get(name)) for one in raws for name in ("startIndex", "endIndex")]
    points = from_utf16(text, [offset or 0 for offset in offsets])
    found = []
    for at, raw in enumerate(raws):
        source = dict_of(raw.get("source"))
        has_range = None not in offsets[2 * at : 2 * at + 2]
        start, end = points[2 * at : 2 * at + 2] if has_range else (None, None)
        note = annotation_of(source, raw, start, end, len(text))
        found.append(Cited(note, text_of(source.get("id")), about_us(source)))
    return found


def _offset(value: Any) -> int | None:
    is_offset = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_INTEGER
    return value if is_offset else None


def annotation_of(
    source: Json, raw: Json, start: int | None, end: int | None, length: int
) -> Annotation:
    """What cites a source. A URL without a place is cited by the whole text."""
    about = about_us(source)
    number = _offset(about.get("reference_id"))
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
    """A foreign document has its name in its title; ours, if it had one, has a filename."""
    return "" if about else text_of(source.get("title"))


# --- blocks --------------------------------------------------------------------------------------


def file_of(chunk: Json) -> Block | None:
    """A picture or a file of the message."""
    url, media = text_of(chunk.get("url")), text_of(chunk.get("mediaType"))
    if not url:
        return None
    about = about_us(chunk)
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


def output_blocks(output: Any, *, is_ours: bool) -> tuple[list[Block], list[str]]:
    """What a call gave as blocks, and the sub-agents that worked on it, if it is ours.

    Of anybody else a text is a text, and any other value the text of its JSON.
    """
    if is_ours and isinstance(output, list):
        blocks: list[Block] = []
        tasks: list[str] = []
        for raw in output:
            if isinstance(raw, dict) and raw.get("type") == "task":
                tasks.append(text_of(raw.get("task_id")))
            elif (block := block_of(raw)) is not None:
                blocks.append(block)
            else:
                break
        else:
            return blocks, tasks
    if output is None or output == "":
        return [], []
    text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
    return [Text(text=text)], []


def block_of(raw: Any) -> Block | None:
    """One of our own blocks. Its citations are made anew: numbers are the pool's to know."""
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
