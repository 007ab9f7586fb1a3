"""Values of chat completions in our types: usage, errors, outcomes, citations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tailrace.core.items import Annotation, ErrorInfo, RawAnnotation, Usage
from tailrace.core.values import count_of, dict_of, json_text, text_or_none
from tailrace.ingest.base import Outcome, cost_of
from tailrace.ingest.openai_responses import values

_REASONS = {
    **dict.fromkeys(("stop", "tool_calls", "function_call"), "completed"),
    # The same reasons at compatible servers.
    **dict.fromkeys(("tool_call", "tool_use", "end_turn", "stop_sequence"), "completed"),
    **dict.fromkeys(("eos", "eos_token", "complete"), "completed"),
    **dict.fromkeys(("length", "max_tokens", "model_length"), "max_output_tokens"),
    **dict.fromkeys(("content_filter", "sensitive", "safety"), "content_filter"),
}


def is_completion(finish_reason: str) -> bool:
    """Whether the answer is complete."""
    return _REASONS.get(finish_reason.lower()) == "completed"


def outcome_of(finish_reason: str | None, error: ErrorInfo | None) -> Outcome:
    """The outcome of a model call. An unknown reason is kept and does not complete it."""
    if error is not None:
        return Outcome(status="failed", error=error)
    if finish_reason is None:
        return Outcome(status="cut")
    if finish_reason.lower() == "error":
        message = "The provider stopped with an error."
        return Outcome(status="failed", error=ErrorInfo(code="provider_error", message=message))
    if is_completion(finish_reason):
        return Outcome(status="completed")
    return Outcome(status="incomplete", reason=_REASONS.get(finish_reason.lower(), finish_reason))


def reported_error(chunk: Mapping[str, Any]) -> Any:
    """The error in a chunk, in any usual shape, or None."""
    for holder in (chunk, chunk.get("x_groq")):
        if isinstance(holder, dict) and holder.get("error"):
            return holder["error"]
    base = chunk.get("base_resp")  # MiniMax
    if isinstance(base, dict) and base.get("status_code"):
        return {"code": base["status_code"], "message": base.get("status_msg")}
    is_error = chunk.get("object") == "error" or chunk.get("code")
    return chunk if is_error and chunk.get("message") and "choices" not in chunk else None


def error_info(raw: Any) -> ErrorInfo:
    """The error as `ErrorInfo`."""
    if not isinstance(raw, dict):
        raw = {"message": raw}
    code = next((raw[name] for name in ("code", "type") if _is_code(raw.get(name))), None)
    message, param = raw.get("message"), raw.get("param")
    if not isinstance(message, str) or not message:
        message = json_text(message or raw)
    return ErrorInfo(
        code="provider_error" if code is None else str(code),
        message=message,
        param=text_or_none(param),
    )


def _is_code(value: Any) -> bool:
    return bool(value) and type(value) in (str, int)


def usage_of(raw: Mapping[str, Any], model: Any, service_tier: Any) -> Usage:
    """The usage as `Usage`."""
    into, out = (dict_of(raw.get(f"{name}_tokens_details")) for name in ("prompt", "completion"))
    read, written = _count(raw, "prompt_tokens"), _count(raw, "completion_tokens")
    reasoning = _count(out, "reasoning_tokens") or _count(raw, "reasoning_tokens")  # Perplexity
    if reasoning and _count(raw, "total_tokens") == read + written + reasoning:
        written += reasoning  # xAI bills them, but leaves them out of the completion tokens
    cached = (
        _count(into, "cached_tokens")
        or _count(raw, "prompt_cache_hit_tokens")  # DeepSeek
        or _count(raw, "cached_tokens")  # Moonshot
        or _count(raw, "num_cached_tokens")  # Mistral
    )
    stored = (
        _count(into, "cache_write_tokens")
        or _count(into, "cache_creation_input_tokens")
        or _count(raw, "cache_creation_input_tokens")  # gateways to Anthropic
    )
    return Usage(
        model=text_or_none(model),
        input_tokens=read,
        output_tokens=written,
        cached_input_tokens=cached,
        cache_write_tokens=stored,
        reasoning_tokens=reasoning,
        cost=cost_of(raw),
        service_tier=text_or_none(service_tier),
    )


def _count(raw: Mapping[str, Any], name: str) -> int:
    return count_of(raw.get(name)) or 0


def annotation_of(raw: Any) -> Annotation:
    """A citation; its facts may be in a field named like its type."""
    if not isinstance(raw, dict):
        return RawAnnotation(raw=raw)
    kind = raw.get("type")
    facts = raw.get(kind) if isinstance(kind, str) else None
    known = values.annotation_of({**facts, "type": kind} if isinstance(facts, dict) else raw)
    return RawAnnotation(raw=raw) if isinstance(known, RawAnnotation) else known


class GatheredFields:
    """Fields that come in pieces over many chunks.

    Texts of the `joined` fields are joined and lists lengthened; of the rest the last value counts.
    """

    def __init__(self, joined: Iterable[str] | None = None) -> None:
        self._joined = None if joined is None else frozenset(joined)
        self._last: dict[str, Any] = {}
        self._lists: dict[str, list[Any]] = {}
        self._texts: dict[str, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._last or self._lists or self._texts)

    def add(self, name: str, value: Any) -> None:
        """More of a field; null adds nothing."""
        grows = self._joined is None or name in self._joined
        if grows and isinstance(value, str):
            self._texts.setdefault(name, []).append(value)
        elif grows and isinstance(value, list):
            self._lists.setdefault(name, []).extend(value)
        elif value is not None:
            self._last[name] = value

    def all(self) -> dict[str, Any]:
        """The fields, whole."""
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        return {**self._last, **self._lists, **texts}
