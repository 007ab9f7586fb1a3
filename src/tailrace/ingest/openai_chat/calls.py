"""The calls of a chat completion, and the call of each fragment.

By the API, `index` names the call, and the first fragment has the id and the name. Compatible
servers leave out the index, the id or both, or use the index 0 for every call. They make a new id
for every fragment, repeat the name, or repeat the whole call at the end. Then it counts whether the
arguments of the last call are complete, by `ArgumentsSoFar`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

from tailrace.core import events as ev
from tailrace.core.event_sink import Sink
from tailrace.core.items import Status
from tailrace.core.tool_arguments import ArgumentsSoFar, decoded, is_beginning
from tailrace.core.values import dict_of, json_text, text_of
from tailrace.core.writers import ArgumentsWriter
from tailrace.ingest.base import ExecutorOf

API = "openai_chat"
"""The name of this API in private parts."""

_LONGEST_INDEX = 6
_LONGEST_NAME = 256  # a limit for names that come in pieces
_FRAGMENT: dict[str, type] = {
    **dict.fromkeys(("function", "custom"), dict),
    **dict.fromkeys(("id", "type"), str),
    "index": int,
}
_FUNCTION: dict[str, type] = {"name": str, "arguments": object, "input": object}
_TYPES_OF = _FRAGMENT | _FUNCTION
_TYPES = ("", "function", "custom")


class _Call:
    """A call while its fragments come; it is opened when its name is complete."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.kind = "function"
        self.is_legacy = False
        self.extra: dict[str, Any] = {}
        self.wrong_type: dict[str, Any] = {}
        self.writer: ArgumentsWriter | None = None
        self._arguments = ArgumentsSoFar()

    @property
    def text(self) -> str:
        """The arguments so far."""
        return self._arguments.text

    @property
    def has_begun(self) -> bool:
        """Whether any of the arguments came."""
        return self._arguments.length > 0

    def arguments(self, piece: str) -> None:
        if piece:
            self._arguments.add(piece)
            if self.writer is not None:
                self.writer.arguments(piece)

    def is_repeated_by(self, ident: str, name: str, arguments: str) -> bool:
        """Whether a fragment repeats the whole call, or all its arguments."""
        same = ident in ("", self.id) and name in ("", self.name)
        is_all = same and self._arguments.length == len(arguments) and arguments == self.text
        return is_all and self.state() == "whole"

    def state(self) -> Literal["empty", "unfinished", "whole", "broken"]:
        """How far the arguments are."""
        if self.kind == "custom" and self.has_begun:
            return "unfinished"  # unknown: its input is plain text
        return self._arguments.state()

    def is_truncated(self) -> bool:
        """Whether the arguments are partial JSON. Text that is not JSON counts as complete."""
        return self.kind != "custom" and is_beginning(self.text)

    def snapshot(self) -> str | None:
        """The arguments, if every piece repeated all of them so far.

        Only the end shows that: until then the pieces may be nested values.
        """
        if self.kind == "custom" or self.state() == "whole":
            return None
        pieces = self._arguments.pieces
        if len(pieces) < 2 or not all(
            second.startswith(first) for first, second in pairwise(pieces)
        ):
            return None
        return pieces[-1] if isinstance(decoded(pieces[-1]), dict) else None

    def goes_on(self, ident: str, name: str, arguments: str) -> bool:
        """Whether a fragment with the index or id of this call continues it."""
        if not name:
            return True
        if ident and self.id and ident != self.id:
            # Servers that make a new id for every fragment repeat the name at most.
            return name == self.name and self.state() == "unfinished"
        if not self.has_begun or not self.name:
            return True  # a late name, its next piece, or a repeated name
        return name == self.name and not (arguments.strip() and self.state() == "whole")

    def may_go_on(self, name: str, *, is_object: bool) -> bool:
        """Whether a fragment of no known call continues this call, the last."""
        if is_object:
            return not self.has_begun and not (name and self.name)
        if name and self.name:
            return name == self.name and self.state() == "unfinished"
        return True

    def open(self, sink: Sink, executor_of: ExecutorOf) -> None:
        """Open the call, with the arguments so far."""
        if self.writer is None and self.name:
            self.writer = self._new_writer(sink, executor_of)
            self.writer.arguments(self.text)

    def _new_writer(self, sink: Sink, executor_of: ExecutorOf) -> ArgumentsWriter:
        return ArgumentsWriter(
            sink,
            self.name,
            call_id=self.id or None,
            kind=self.kind,
            executor=executor_of(self.name),
        )

    def replace(self, sink: Sink, executor_of: ExecutorOf, arguments: str) -> None:
        """Begin anew with these arguments: the call so far must not run."""
        assert self.writer is not None
        self.writer.finish("incomplete", self.private(self.writer.call_id))
        self.writer = self._new_writer(sink, executor_of)
        self.writer.arguments(arguments)

    def keep(self, extra: dict[str, Any]) -> None:
        """Keep the unknown fields of a fragment."""
        inner = extra.pop("function", None)
        self.extra.update(extra)
        if inner:
            self.extra.setdefault("function", {}).update(inner)

    def private(self, call_id: str) -> ev.Private:
        """The private part of the call."""
        provider: dict[str, Any] = {"api": API}
        if self.id and self.id != call_id:
            provider["call_id"] = self.id
        if self.is_legacy:
            provider["function_call"] = True
        if self.extra:
            provider["fields"] = self.extra
        if self.wrong_type:
            provider["strange"] = self.wrong_type
        return ev.Private(provider=provider)

    def raw(self) -> dict[str, Any]:
        """The facts of a call without a name."""
        return {"id": self.id, "arguments": self.text, **self.extra, **self.wrong_type}


class _Fragment:
    """A piece of a call, which may not name its call."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.kind = "custom" if isinstance(raw.get("custom"), dict) else "function"
        function = dict_of(raw.get(self.kind))
        self.index = _index(raw.get("index"))
        self.id = text_of(raw.get("id"))
        self.name = text_of(function.get("name"))
        self.given = function.get("input" if self.kind == "custom" else "arguments")
        self.arguments, self.is_object = _arguments(self.given)
        self.extra = {key: value for key, value in raw.items() if key not in _FRAGMENT}
        if text_of(raw.get("type")) not in _TYPES:
            self.extra["type"] = raw["type"]  # Moonshot needs `builtin_function` back
        inner = {key: value for key, value in function.items() if key not in _FUNCTION}
        if inner:
            self.extra["function"] = inner  # such as Gemini's thought signature
        self.wrong_type = _fields_of_wrong_type(raw) | _fields_of_wrong_type(function)
        if self.kind == "custom" and raw.get("function"):
            self.wrong_type["function"] = raw["function"]

    @property
    def is_addressed(self) -> bool:
        """Whether it has an index, an id or a name."""
        return self.index is not None or bool(self.id or self.name)


class ChatCalls:
    """The calls of an answer; `before_new` is called before a call begins."""

    def __init__(self, sink: Sink, executor_of: ExecutorOf, before_new: Callable[[], None]) -> None:
        self._sink = sink
        self._executor_of = executor_of
        self._before_new = before_new
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._legacy: _Call | None = None

    def fragments(self, raws: list[dict[str, Any]]) -> None:
        """Take fragments of known or new calls.

        A fragment without an address continues the last call. As many of them as there are calls
        continue each call in turn.
        """
        fragments = [_Fragment(raw) for raw in raws]
        if 1 < len(raws) == len(self._calls) and not any(
            fragment.is_addressed for fragment in fragments
        ):
            for call, fragment in zip(self._calls, fragments, strict=True):
                self._take(call, fragment)
            return
        for fragment in fragments:
            known = self._call_of(fragment)
            if known is not None:
                self._take(known, fragment)

    def _call_of(self, fragment: _Fragment) -> _Call | None:
        """The call of a fragment, begun if needed; None if it repeats a whole call."""
        ident, name, arguments = fragment.id, fragment.name, fragment.arguments
        call, is_meant = self._find(fragment.index, ident, name)
        if call is None:
            return self._new(fragment.kind)
        if (is_meant or not name) and call.is_repeated_by(ident, name, arguments):
            return None
        if is_meant:
            if call.goes_on(ident, name, arguments):
                return call
        elif call.may_go_on(name, is_object=fragment.is_object):
            return call
        return self._new(fragment.kind)

    def _take(self, call: _Call, fragment: _Fragment) -> None:
        if fragment.index is not None:
            self._by_index[fragment.index] = call
        if fragment.id:
            self._by_id[fragment.id] = call
            call.id = call.id or fragment.id
        call.keep(fragment.extra)
        call.wrong_type |= fragment.wrong_type
        arguments = fragment.arguments
        if fragment.is_object and call.has_begun:
            call.extra["arguments"] = fragment.given
            arguments = ""
        self._write(call, fragment.name, arguments)

    def legacy(self, raw: dict[str, Any]) -> None:
        """Take a fragment of `function_call`, the predecessor of tools."""
        if self._legacy is None:
            self._legacy = self._new("function")
            self._legacy.is_legacy = True
        self._take(self._legacy, _Fragment({"function": raw}))

    @property
    def are_whole(self) -> bool:
        """Whether each call has a name and complete arguments."""
        return all(call.name and call.state() == "whole" for call in self._calls)

    def finish(self, *, is_whole: bool) -> tuple[bool, list[dict[str, Any]]]:
        """Close all calls; return whether any was cut, and the calls without a name.

        A call is completed only if the answer is complete *and* its arguments are not partial.
        """
        truncated, nameless = False, []
        for call in self._calls:
            call.open(self._sink, self._executor_of)
            if call.writer is None:
                nameless.append(call.raw())
                continue
            snapshot = call.snapshot() if is_whole else None
            if snapshot is not None:
                call.replace(self._sink, self._executor_of, snapshot)
            is_cut = snapshot is None and call.is_truncated()
            truncated = truncated or is_cut
            status: Status = "completed" if is_whole and not is_cut else "incomplete"
            call.writer.finish(status, call.private(call.writer.call_id))
        return truncated, nameless

    def _new(self, kind: str) -> _Call:
        self._before_new()
        if self._calls:
            # A call without arguments is opened before the next call.
            self._calls[-1].open(self._sink, self._executor_of)
        call = _Call()
        call.kind = kind
        self._calls.append(call)
        return call

    def _find(self, index: int | None, ident: str, name: str) -> tuple[_Call | None, bool]:
        """The call that a fragment may belong to, and whether the fragment names it."""
        call = None if index is None else self._by_index.get(index)
        if call is not None and (not ident or call.id in ("", ident)):
            return call, True
        call = self._by_id.get(ident, call)  # the id is more reliable than the index
        if call is not None:
            return call, True
        last = self._calls[-1] if self._calls else None
        if last is None or (ident and last.id):
            return None, False
        if index is not None and (ident or name or last.state() in ("whole", "broken")):
            return None, False  # a new index; bare arguments may still be of the last call
        return last, False

    def _write(self, call: _Call, name: str, arguments: str) -> None:
        if name and name != call.name and call.writer is None and len(call.name) < _LONGEST_NAME:
            call.name += name
        call.arguments(arguments)
        if call.has_begun:
            call.open(self._sink, self._executor_of)


def _arguments(value: Any) -> tuple[str, bool]:
    """The text of the arguments, and whether they came as a whole value."""
    if value is None or isinstance(value, str):
        return value or "", False
    return json_text(value), True


def _index(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < _LONGEST_INDEX:
        return int(value)
    return value if type(value) is int else None


def _fields_of_wrong_type(raw: dict[str, Any]) -> dict[str, Any]:
    """The fields of a call with a value of the wrong type."""
    return {
        name: value
        for name, value in raw.items()
        if value is not None and not isinstance(value, _TYPES_OF.get(name, object))
    }
