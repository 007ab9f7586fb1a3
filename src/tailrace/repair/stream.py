"""Repairs the Responses stream of another backend.

Clients are stricter than many backends. The Vercel AI SDK shows reasoning only from
`reasoning_summary_*` events, and text only after its `output_item.added`. openai-python needs
`response.created` first, `response.completed` last, a constant id for each item, and a part before
its text. Missing events are inserted and old forms are translated. Everything else passes
unchanged, each frame as soon as it is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from operator import itemgetter
from typing import ClassVar

from tailrace.core import sse
from tailrace.core.items import ErrorInfo
from tailrace.core.openai_response import error_json, incomplete_details
from tailrace.core.values import Json
from tailrace.repair.frames import FrameSplitter, encoded, fields, is_ended, parsed, rewritten
from tailrace.repair.items import (
    MAX_RECORDS,
    SeenItem,
    SeenItems,
    fill_id,
    fill_item,
    named,
)
from tailrace.repair.object import (
    LIFECYCLE,
    TERMINAL,
    fill_response,
    fill_summary,
    listed,
    unwrapped,
    use_typed_parts,
)
from tailrace.repair.reasoning import ReasoningRepair

MAX_KEPT_BYTES = 64 * 1024 * 1024
"""How much of a response is kept. Nothing is filled in for a larger response."""


class ResponsesRepair:
    """Takes the bytes of a stream, and returns bytes that a strict client can read.

    Ids that the backend left out contain `ident`, which must be unique to the response. `now` is
    the `created_at` of a response that has none. Frames up to the `sequence_number` `after` are
    left out: so a client resumes, because inserted frames change the numbers.
    """

    def __init__(
        self,
        ident: str,
        now: int = 0,
        *,
        after: int | None = None,
        max_frame: int = sse.MAX_PARSED_BYTES,
        max_kept: int = MAX_KEPT_BYTES,
        max_records: int = MAX_RECORDS,
    ) -> None:
        self._frames = FrameSplitter(max_frame)
        self._out: list[bytes] = []
        self._number = -1
        self._after = -1 if after is None else after
        self._max_kept = max_kept
        self._max_records = max_records
        self._known: Json = {"id": f"resp_{ident}", "created_at": now, "model": "unknown"}
        self._has_data = False  # any data has come
        self._open()

    def _open(self) -> None:
        """Prepare for a response; a stream may contain several, one after another."""
        self._items = SeenItems(self._max_records)
        self._texts = ReasoningRepair(self._items, self, self._max_kept)
        self._response: Json = {}
        self._begun = False
        self._over = False

    # --- the stream ----------------------------------------------------------------------------

    def feed(self, chunk: bytes) -> bytes:
        """The bytes that can be sent after this chunk."""
        for raw, whole in self._frames.feed(chunk):
            if whole:
                self._frame(raw)
            else:
                self._has_data = True
                self._out.append(raw)
        return self._taken()

    def end(self) -> bytes:
        """Handle the end of the backend's stream: send the rest, and a missing end."""
        raw, whole = self._frames.rest()
        data = fields(raw)[0] if whole else None
        if not whole:
            self._out.append(raw + b"\n\n")
            self._finish()
        elif data is None or self._over or data.strip() == sse.DONE:
            self._finish(meant=data is not None)
            self._out.append(raw)
        elif parsed(data) is not None:
            self._frame(raw if is_ended(raw) else raw + b"\n\n")
            self._finish()
        elif self._begun:
            return self.cut("The backend's stream ended inside an event.")
        else:
            self._out.append(raw)
        return self._taken()

    def cut(self, message: str, code: str = "upstream_cut") -> bytes:
        """Handle a broken connection: drop the last partial frame and send `response.failed`."""
        raw, whole = self._frames.rest()
        if not whole:
            self._out.append(raw + b"\n\n")
        self._texts.release()
        if not self._over:
            self._end("response.failed", ErrorInfo(code=code, message=message))
        return self._taken()

    def _taken(self) -> bytes:
        taken = b"".join(self._out)
        self._out.clear()
        return taken

    def _frame(self, raw: bytes) -> None:
        data, name = fields(raw)
        if data is None:
            self._out.append(raw)
            return
        if data.strip() == sse.DONE:
            self._finish(meant=True)
            self._out.append(raw)
            return
        self._has_data = True
        event = parsed(data)
        if event is None:
            self._out.append(raw)
            return
        kind, changed = event.get("type"), False
        is_named = name.startswith("response.") or (name == "error" and not event.get("error"))
        if not isinstance(kind, str) and is_named:
            kind, changed = name, True
            event["type"] = name
        if isinstance(kind, str) and (kind.startswith("response.") or kind == "error"):
            self._texts.release(event)
            self._event(raw, event, kind, changed=changed)
        else:
            # Not an event of this API. The SDKs raise an `error`, which ends the stream.
            self._over = self._over or bool(event.get("error"))
            self.put(raw, event, changed=False, number=kind == "keepalive")

    def put(
        self,
        raw: bytes,
        event: Json,
        *,
        changed: bool,
        name: str | None = None,
        number: bool = True,
    ) -> None:
        """Pass on a frame, rewritten if its content or its number changed."""
        given = event.get("sequence_number")
        if given is not None or number:
            if isinstance(given, int) and not isinstance(given, bool) and given > self._number:
                self._number = given
            else:
                self._number += 1
                event["sequence_number"] = self._number
                changed = True
            if self._number <= self._after:
                return
        try:
            self._out.append(rewritten(raw, event, name) if changed else raw)
        except RecursionError:
            # The event is nested too deep to be encoded again.
            self._out.append(raw)

    def insert(self, kind: str, event: Json) -> None:
        """Send an event that the backend left out."""
        self._number += 1
        if self._number > self._after:
            whole = {"type": kind, **event, "sequence_number": self._number}
            with suppress(RecursionError):
                self._out.append(sse.frame(encoded(whole), event=kind))

    # --- events --------------------------------------------------------------------------------

    def _event(self, raw: bytes, event: Json, kind: str, *, changed: bool) -> None:
        if self._over and kind == "response.created":
            self._open()
        if self._over:
            self.put(raw, event, changed=changed)
        elif kind == "error":
            self._over = True
            self.put(raw, event, changed=changed)
        elif kind in LIFECYCLE:
            self._lifecycle(raw, event, kind, changed=changed)
        else:
            self._begin({}, kind)
            handle = self._HANDLERS.get(kind)
            if self._items.full:
                self.put(raw, event, changed=changed)
            elif handle is not None:
                handle(self, raw, event, changed)
            elif not self._texts.event(raw, event, kind, changed=changed):
                self._other(raw, event, changed=changed)

    def _other(self, raw: bytes, event: Json, *, changed: bool) -> None:
        """Pass on an event of a tool, with the item id that the client has seen."""
        if "item_id" in event:
            item = self._items.find(event["item_id"], event.get("output_index"), None)
            if item is not None:
                changed = self._texts.point(event, item) or changed
        self.put(raw, event, changed=changed)

    def _begin(self, response: Json, kind: str) -> None:
        """Insert `response.created` if it is missing: openai-python needs it first."""
        if self._begun:
            return
        self._begun = True
        for name, kinds in (("id", str), ("created_at", (int, float)), ("model", str)):
            value = response.get(name)
            if isinstance(value, kinds) and value:
                self._known[name] = value
        self._items.base = str(self._known["id"]).removeprefix("resp_")
        if kind != "response.created":
            created = {**response, "status": "in_progress", "output": []}
            for name in ("error", "incomplete_details", "usage"):
                if name in created:
                    created[name] = None
            fill_response(created, "response.created", self._known)
            self._response = created
            self.insert("response.created", {"response": created})

    def _lifecycle(self, raw: bytes, event: Json, kind: str, *, changed: bool) -> None:
        changed = unwrapped(event, kind) or changed
        response = event["response"]
        self._begin(response, kind)
        changed = fill_response(response, kind, self._known) or changed
        self._response = {**response, "output": []}
        if kind in TERMINAL:
            if not self._items.full:
                if kind != "response.failed":
                    self._close_items(response, kind)
                changed = self._fill_output(response, kind) or changed
            self._over = True
        self.put(raw, event, changed=changed)

    def _added(self, raw: bytes, event: Json, changed: bool) -> None:
        value = event.get("item")
        if not isinstance(value, dict):
            self.put(raw, event, changed=changed)
            return
        type_, id_, index = named(value, event)
        item = self._items.find(id_, index, type_)
        if item is None or (item.offered and (item.id != id_ or item.is_elsewhere(index))):
            item = self._items.add(id_, index, type_ or "")
        item.offered = True
        self._items.alias(id_, item)
        if not item.announced:
            changed = self._texts.point(event, item, named=False) or changed
            changed = fill_item(value, item) or changed
            item.announced = True
            self.put(raw, event, changed=changed)
            self._texts.name_call(item, value)
        # Otherwise the item was announced with its first delta.

    def _done(self, raw: bytes, event: Json, changed: bool) -> None:
        value = event.get("item")
        if not isinstance(value, dict):
            self.put(raw, event, changed=changed)
            return
        type_, id_, index = named(value, event)
        item = self._items.find(id_, index, type_) or self._items.add(id_, index, type_ or "")
        if item.done is not None:
            return  # It has ended already; a second end would make clients run the call twice.
        self._items.alias(id_, item)
        changed = use_typed_parts(value) or changed
        if not item.announced:
            self._announce(item, value)
        changed = self._texts.point(event, item, named=False) or changed
        changed = fill_id(value, item) or changed
        changed = self._texts.complete(item, value) or changed
        item.end(self._texts.kept(value, len(raw)))
        self.put(raw, event, changed=changed)

    def _announce(self, item: SeenItem, value: Json) -> None:
        begun = {**value, "id": item.id}
        if "status" in begun:
            begun["status"] = "in_progress"
        for name, empty in (("content", []), ("summary", []), ("arguments", "")):
            if name in begun and item.type in ("message", "reasoning", "function_call"):
                begun[name] = empty
        fill_item(begun, item)
        item.announced = True
        self.insert("response.output_item.added", {"output_index": item.index, "item": begun})
        self._texts.name_call(item, begun)

    _HANDLERS: ClassVar[dict[str, Callable[[ResponsesRepair, bytes, Json, bool], None]]] = {
        "response.output_item.added": _added,
        "response.output_item.done": _done,
    }

    # --- the end -------------------------------------------------------------------------------

    def _fill_output(self, response: Json, kind: str) -> bool:
        """Fill in the items of the final response, their ids and their summaries."""
        output = _dicts(response)
        changed = False
        known = self._items.by_output(output)
        for value, item in zip(output, known, strict=True):
            changed = use_typed_parts(value) or changed
            if item is not None:
                changed = fill_id(value, item) or changed
                summary = item.done.get("summary") if item.done is not None else None
                if item.type == "reasoning" and summary and value.get("summary") != summary:
                    value["summary"] = summary
                    changed = True
            changed = fill_summary(value) or changed
        if kind == "response.failed":
            return changed
        ids = {item.id for item in known if item is not None}
        missing = [item for item in self._done_items() if item.id not in ids]
        if missing:
            places = [-1 if item is None else item.index for item in known]
            whole = [*zip(places, output, strict=True)]
            whole += [(item.index, item.done) for item in missing if item.done]
            response["output"] = [value for _, value in sorted(whole, key=itemgetter(0))]
        return changed or bool(missing)

    def _done_items(self) -> list[SeenItem]:
        if self._texts.overflowed or self._items.full:
            return []
        items = sorted(self._items.all, key=lambda item: item.index)
        return [item for item in items if item.done]

    def _close_items(self, response: Json, kind: str) -> None:
        """End the open items, with the content that the final response has.

        Items that only the final response has are sent before it, because clients show streamed
        items.
        """
        output = _dicts(response)
        for place, item in enumerate(self._items.by_output(output)):
            value = output[place]
            if item is None:
                item = self._items.add(value.get("id"), place, str(value.get("type")))
            if item.done is None:
                self._close_item(item, value)
        status = "completed" if kind == "response.completed" else "incomplete"
        for item in self._items.all:
            ending = self._texts.assembled(item, status) if item.done is None else None
            if ending is not None:
                self._close_item(item, ending)

    def _close_item(self, item: SeenItem, value: Json) -> None:
        whole = {**value, "id": item.id}
        use_typed_parts(whole)
        if not item.announced:
            self._announce(item, whole)
        self._texts.complete(item, whole)
        item.end(self._texts.kept(whole, len(encoded(whole))))
        self.insert("response.output_item.done", {"output_index": item.index, "item": whole})

    def _finish(self, *, meant: bool = False) -> None:
        """End a stream that closed cleanly, by its items and by whether it sent `[DONE]`.

        A stream of another API is left alone; an empty stream gets an error.
        """
        self._texts.release()
        if self._over or (self._has_data and not self._begun):
            return
        items = self._items.all
        if not items:
            message = "The backend ended its stream without an answer."
            self._end("response.failed", ErrorInfo(code="empty_stream", message=message))
        elif self._items.full:
            self._end("response.completed" if meant else "response.incomplete", None)
        elif all(
            item.done is not None
            or self._texts.is_sent(item)
            or (meant and item.type in ("message", "reasoning"))
            for item in items
        ):
            self._end("response.completed", None)
        elif any(item.done is None and item.type == "function_call" for item in items):
            message = "The backend ended its stream inside a function call."
            error = ErrorInfo(code="incomplete_function_call", message=message)
            self._end("response.failed", error)
        else:
            self._end("response.incomplete", None)

    def _end(self, kind: str, error: ErrorInfo | None) -> None:
        self._begin({}, kind)
        if kind != "response.failed" and not self._items.full:
            self._close_items({}, kind)
        response = {**self._response, "status": kind.removeprefix("response.")}
        response["output"] = [item.done for item in self._done_items()]
        response["error"] = error_json(error) if error is not None else None
        cut = kind == "response.incomplete"
        response["incomplete_details"] = incomplete_details(None) if cut else None
        self._over = True
        self.insert(kind, {"response": response})


def _dicts(response: Json) -> list[Json]:
    return [value for value in listed(response, "output") if isinstance(value, dict)]
