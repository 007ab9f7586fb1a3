"""What a stream of chat completions says, by plain concatenation; it knows nothing of the ingest.

`expected_of` reads the chunks and `made` the object that came of them, in the same form. Only
streams that keep to the API's rules can be read so: a call is its `index`, and no more.
"""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]

_REASONING = ("reasoning_content", "reasoning", "reasoning_text")
_SEALED = ("signature", "data", "thought_signature", "reasoning_opaque")

UNRULY = frozenset(
    (
        *("missing-indexes", "missing-ids-and-indexes", "ollama-objects-for-arguments"),
        *("gemini-index-zero-for-all", "call-repeated-at-the-end", "call-without-a-name"),
        *("openai-custom-tool", "openai-legacy-function-call", "message-beside-empty-deltas"),
        *("gemini-thoughts", "gemini-whole-thought", "gateway-signs-the-whole-thought"),
        *("arguments-repeated-at-the-end", "tgi-one-call-at-a-time"),
        *("minimax-message-at-the-end", "minimax-error"),
    )
)
"""Where plain concatenation is no oracle, because the provider does not keep to the API's rules:
`test_each_shape_gives_the_whole_answer` has what they mean."""


def expected_of(events: list[str]) -> Json:
    """All of a stream that a reader may see, or that its provider gets back."""
    chunks = [json.loads(event) for event in events]
    choices = [choice for chunk in chunks for choice in chunk.get("choices") or ()]
    speaking = [one for one in choices if any(v for n, v in _delta_of(one).items() if n != "role")]
    first = speaking[0].get("index", 0) if speaking else 0
    mine = [choice for choice in choices if choice.get("index", 0) == first]
    found: Json = {"items": [], "cited": [], "images": [], "calls": {}, "logprobs": []}
    for choice in mine:
        _add_delta(found, _delta_of(choice))
        logprobs = choice.get("logprobs") or {}
        found["logprobs"] += (logprobs.get("content") or []) + (logprobs.get("refusal") or [])
    found["calls"] = list(found["calls"].values())
    found["sealed"] = [seal for choice in mine for seal in sealed(_delta_of(choice))]
    found["audio"] = "".join((_delta_of(one).get("audio") or {}).get("data") or "" for one in mine)
    found["usage"] = None
    for chunk in chunks:
        for holder in (chunk.get("x_groq") or {}, chunk, *(chunk.get("choices") or ())):
            found["usage"] = holder.get("usage") or found["usage"]
    sources: Json = {}
    for chunk in chunks:
        sources |= {name: chunk[name] for name in ("citations", "search_results") if name in chunk}
    found["cited"] += [{"type": name, name: listed} for name, listed in sources.items()]
    found["cited"] = _once(found["cited"])
    found["notes"] = [note for raw in found["cited"] for note in _note(raw)]
    return found


def _note(raw: Json) -> list[Any]:
    """A page that is cited in a place of the text."""
    facts = raw.get("url_citation") or raw
    if raw.get("type") != "url_citation" or not facts["start_index"] < facts["end_index"]:
        return []
    return [(facts["url"], facts.get("title"), facts["start_index"], facts["end_index"])]


_KNOWN = {
    "chunk": {
        *("id", "object", "created", "model", "choices", "usage", "obfuscation", "error"),
        *("system_fingerprint", "service_tier", "provider", "citations", "search_results"),
    },
    "choice": {"index", "delta", "message", "finish_reason", "logprobs", "usage", "error"},
    "delta": {
        *("role", "content", "refusal", "tool_calls", "function_call", "audio", "annotations"),
        *("images", "thinking_blocks", "reasoning_details", "reasoning_opaque", *_REASONING),
    },
}


def unknown(events: list[str]) -> list[tuple[str, str]]:
    """The names of the fields that the API does not have, with their level."""
    return _once([found for event in events for found in _unknown_of(json.loads(event))])


def _unknown_of(chunk: Json) -> list[tuple[str, str]]:
    levels = [("chunk", chunk)]
    for choice in chunk.get("choices") or ():
        levels += [("choice", choice), ("delta", choice.get("delta") or {})]
    return [
        (level, name)
        for level, fields in levels
        for name in fields.keys() - _KNOWN[level]
        if fields[name] not in (None, [], {})
    ]


def is_kept(chunks: list[Json], found: tuple[str, str]) -> bool:
    """Whether a chunk with such a field was kept."""
    return any(found in _unknown_of(chunk) for chunk in chunks)


def _delta_of(choice: Json) -> Json:
    found_delta: Json = choice.get("delta") or choice.get("message") or {}
    return found_delta


def _once(values: list[Any]) -> list[Any]:
    return [one for at, one in enumerate(values) if one not in values[:at]]


def sealed(value: Any) -> list[str]:
    """What only the provider can read."""
    if isinstance(value, list):
        return [seal for one in value for seal in sealed(one)]
    if not isinstance(value, dict):
        return []
    mine = [value[name] for name in _SEALED if name in value and "transcript" not in value]
    audio = [one for name, one in value.items() if name not in ("audio", *_SEALED)]
    return [one for one in mine if one] + sealed(audio)


def _add_delta(found: Json, delta: Json) -> None:
    content: Any = delta.get("content") or (delta.get("audio") or {}).get("transcript") or ""
    details = [*(delta.get("reasoning_details") or ()), *(delta.get("thinking_blocks") or ())]
    in_details = "".join(one.get("text") or one.get("summary") or "" for one in details)
    _grow(found, "reasoning", next((delta[n] for n in _REASONING if delta.get(n)), in_details))
    for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        if part["type"] == "thinking":
            _grow(found, "reasoning", "".join(one["text"] for one in part["thinking"]))
        elif part["type"] == "reasoning":
            _grow(found, "reasoning", "".join(one["text"] for one in part["summary"]))
        elif part["type"] == "reference":
            found["cited"].append(part)
        else:
            _grow(found, "text", part["text"])
    _grow(found, "refusal", delta.get("refusal") or "")
    found["cited"] += delta.get("annotations") or ()
    for image in delta.get("images") or ():
        found["images"].append(image["image_url"]["url"])
        _grow(found, "image", image["image_url"]["url"])
    for at, fragment in enumerate(delta.get("tool_calls") or ()):
        place = fragment.get("index", at)
        if place not in found["calls"]:
            found["calls"][place] = {"id": None, "name": "", "arguments": ""}
            found["items"].append(["call", ""])
        call = found["calls"][place]
        function = fragment["function"]
        name = function.get("name") or ""
        call["name"] += "" if name == call["name"] else name
        call["arguments"] += function.get("arguments") or ""
        call["id"] = call["id"] or fragment.get("id") or None


def _grow(found: Json, kind: str, piece: str) -> None:
    """What follows its like is more of it; what does not is another thing."""
    if piece and found["items"] and found["items"][-1][0] == kind:
        found["items"][-1][1] += piece
    elif piece:
        found["items"].append([kind, piece])


# --- the same of the object ----------------------------------------------------------------------


def made(whole: Json) -> Json:
    """The object in the same words."""
    found: Json = {"items": [], "cited": [], "images": [], "calls": [], "logprobs": []}
    found["notes"] = []
    shown = 0
    audio = ""
    for item in whole.get("output", []):
        private = item.get("private", {}).get("provider", {})
        if item["type"] == "tool_call":
            found["items"].append(["call", ""])
            wanted = private.get("call_id", item["call_id"])
            call = {"id": wanted, "name": item["name"], "arguments": item["arguments"]}
            found["calls"].append(call)
            continue
        for part in [*(item.get("summary") or []), *(item.get("block_list") or [])]:
            kind = "reasoning" if item["type"] == "reasoning" else part["type"]
            if kind == "image":
                found["images"].append(part["image_url"]["url"])
                part = {"text": part["image_url"]["url"]}
            _grow(found, kind, part.get("text", part.get("refusal")))
            for note in part.get("annotations", ()):
                shown += 1
                found["notes"] += _note(note)
                if (
                    note["type"] == "raw"
                    and "type" in note["raw"]
                    and note["raw"]["type"] in note["raw"]
                ):
                    found["cited"].append(note["raw"])
        found["cited"] += private.get("annotations", [])
        found["logprobs"] += [*_probabilities(private.get("logprobs"))]
        audio += private.get("audio", {}).get("data", "")
    kept = whole.get("private", {})
    rest = kept.get("raw", {}).get("delta", {})
    found["logprobs"] += [*_probabilities(rest.get("logprobs"))]
    found["cited"] = _once(found["cited"] + rest.get("annotations", []))
    found["shown"] = shown
    found["audio"] = audio
    found["sealed"] = sealed([item.get("private") for item in whole.get("output", [])])
    found["usage"] = kept.get("provider", {}).get("usage")
    return found


def _probabilities(value: Any) -> list[Any]:
    return [one for name in ("content", "refusal") for one in (value or {}).get(name) or ()]


def counted(usage: Json) -> Json:
    """The counts of a usage, as most providers write them."""
    read = usage.get("prompt_tokens_details") or {}
    hits = [usage.get(name) for name in ("prompt_cache_hit_tokens", "cached_tokens")]
    cached = [read.get("cached_tokens"), *hits]
    made_of = usage.get("completion_tokens_details") or {}
    return {
        "input_tokens": usage["prompt_tokens"],
        "cached_input_tokens": next((one for one in cached if one), 0),
        "cache_write_tokens": read.get("cache_write_tokens") or 0,
        "reasoning_tokens": made_of.get("reasoning_tokens") or 0,
    }
