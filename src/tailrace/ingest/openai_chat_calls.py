"""Which call a fragment of a chat completion belongs to.

The API says: by its `index`, with the id and the name in the first fragment only. Servers that call
themselves compatible leave out the index, the id or both, give every call the index 0, make a new
id for every fragment, repeat the name, or send the whole call again at the end. What decides then
is whether the call so far has all its arguments, which `PartialJson` knows.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import msgspec

from tailrace.core import events as ev
from tailrace.core.errors import MalformedJson
from tailrace.core.items import Status
from tailrace.core.partial_json import PartialJson
from tailrace.core.writers import ArgumentsWriter, Sink
from tailrace.ingest.base import ExecutorOf

API = "openai_chat"
"""What private parts call this API."""

_LONGEST_INDEX = 6
_LONGEST_NAME = 256  # a name that comes in pieces grows no further, so that it costs no more
_FRAGMENT: dict[str, type] = {
    **dict.fromkeys(("function", "custom"), dict),
    **dict.fromkeys(("id", "type"), str),
    "index": int,
}
_FUNCTION: dict[str, type] = {"name": str, "arguments": object, "input": object}
_TYPES_OF = _FRAGMENT | _FUNCTION
_TYPES = ("", "function", "custom")


class _Call:
    """One call while its fragments come; it is opened when its name is known to be whole."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.kind = "function"
        self.is_legacy = False
        self.extra: dict[str, Any] = {}
        self.strange: dict[str, Any] = {}
        self.writer: ArgumentsWriter | None = None
        self._pieces: list[str] = []
        self._length = 0
        self._checked = 0  # how many of the pieces `_json` has read
        self._json = PartialJson()
        self._is_broken = False

    @property
    def text(self) -> str:
        """The arguments so far."""
        return "".join(self._pieces)

    @property
    def has_begun(self) -> bool:
        """Whether any of the arguments came."""
        return self._length > 0

    def arguments(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)
            self._length += len(piece)
            if self.writer is not None:
                self.writer.arguments(piece)

    def is_repeated_by(self, ident: str, name: str, arguments: str) -> bool:
        """Whether a fragment is the whole call once more, or all its arguments."""
        same = ident in ("", self.id) and name in ("", self.name)
        is_all = same and self._length == len(arguments) and arguments == self.text
        return is_all and self.state() == "whole"

    def state(self) -> Literal["empty", "unfinished", "whole", "broken"]:
        """How far the arguments are. Each of them is read once, however often this is asked."""
        if not self.has_begun:
            return "empty"
        if self.kind == "custom":
            return "unfinished"  # nobody can tell: its input is plain text
        rest = "".join(self._pieces[self._checked :])
        self._checked = len(self._pieces)
        try:
            self._json.feed(rest)
        except MalformedJson:
            self._is_broken = True
        if self._is_broken:
            return "broken"
        return "whole" if self._json.complete else "unfinished"

    def is_truncated(self) -> bool:
        """Whether the arguments are the beginning of JSON. Those that are none are the model's."""
        if self.kind == "custom" or self.state() != "unfinished":
            return False
        try:
            self._json.finish()
        except MalformedJson:
            return True
        return False

    def snapshot(self) -> str | None:
        """The arguments, if every piece was all of them so far.

        Asked at the end only: until then such pieces may be a value within its like.
        """
        if self.kind == "custom" or self.state() == "whole":
            return None
        pieces = self._pieces
        if len(pieces) < 2 or not all(two.startswith(one) for one, two in pairwise(pieces)):
            return None
        try:
            msgspec.json.decode(pieces[-1], type=dict)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        return pieces[-1]

    def goes_on(self, ident: str, name: str, arguments: str) -> bool:
        """Whether a fragment with this call's index or id is more of it."""
        if not name:
            return True
        if ident and self.id and ident != self.id:
            # Servers that make a new id for every fragment repeat the name at most.
            return name == self.name and self.state() == "unfinished"
        if not self.has_begun or not self.name:
            return True  # a late name, its next piece, or the name again
        return name == self.name and not (arguments.strip() and self.state() == "whole")

    def may_go_on(self, name: str, *, is_object: bool) -> bool:
        """Whether a fragment that names no call we know is more of this one, the last."""
        if is_object:
            return not self.has_begun and not (name and self.name)
        if name and self.name:
            return name == self.name and self.state() == "unfinished"
        return True

    def open(self, sink: Sink, executor_of: ExecutorOf) -> None:
        """Show the call, with the arguments that waited for its name."""
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
        """Begin anew with these arguments: nobody may carry out what was shown."""
        assert self.writer is not None
        self.writer.finish("incomplete", self.private(self.writer.call_id))
        self.writer = self._new_writer(sink, executor_of)
        self.writer.arguments(arguments)

    def keep(self, extra: dict[str, Any]) -> None:
        """What a fragment has beside what every call has."""
        inner = extra.pop("function", None)
        self.extra.update(extra)
        if inner:
            self.extra.setdefault("function", {}).update(inner)

    def private(self, call_id: str) -> ev.Private:
        """What the next request needs beside the call itself."""
        provider: dict[str, Any] = {"api": API}
        if self.id and self.id != call_id:
            provider["call_id"] = self.id
        if self.is_legacy:
            provider["function_call"] = True
        if self.extra:
            provider["fields"] = self.extra
        if self.strange:
            provider["strange"] = self.strange
        return ev.Private(provider=provider)

    def raw(self) -> dict[str, Any]:
        """A call that nobody named, as far as it came."""
        return {"id": self.id, "arguments": self.text, **self.extra, **self.strange}


class _Fragment:
    """A piece of one call; what it says of which call that is may be nothing."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.kind = "custom" if isinstance(raw.get("custom"), dict) else "function"
        function = raw.get(self.kind)
        function = function if isinstance(function, dict) else {}
        self.index = _index(raw.get("index"))
        self.id = _text(raw.get("id"))
        self.name = _text(function.get("name"))
        self.given = function.get("input" if self.kind == "custom" else "arguments")
        self.arguments, self.is_object = _arguments(self.given)
        self.extra = {key: raw[key] for key in raw.keys() - _FRAGMENT.keys()}
        if _text(raw.get("type")) not in _TYPES:
            self.extra["type"] = raw["type"]  # Moonshot's `builtin_function` goes back as one
        inner = {key: function[key] for key in function.keys() - _FUNCTION.keys()}
        if inner:
            self.extra["function"] = inner  # such as Gemini's thought signature
        self.strange = _strange(raw) | _strange(function)
        if self.kind == "custom" and raw.get("function"):
            self.strange["function"] = raw["function"]

    @property
    def is_addressed(self) -> bool:
        """Whether it says more than a piece of arguments."""
        return self.index is not None or bool(self.id or self.name)


class Calls:
    """The calls of one answer; `before_new` is told before another one begins."""

    def __init__(self, sink: Sink, executor_of: ExecutorOf, before_new: Callable[[], None]) -> None:
        self._sink = sink
        self._executor_of = executor_of
        self._before_new = before_new
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._legacy: _Call | None = None

    def fragments(self, raws: list[dict[str, Any]]) -> None:
        """More of some calls, or other ones.

        A fragment that does not say of which call it is, is mostly of the last; but several of
        them, as many as there are calls, are of one call each.
        """
        fragments = [_Fragment(raw) for raw in raws]
        if 1 < len(raws) == len(self._calls) and not any(one.is_addressed for one in fragments):
            for call, fragment in zip(self._calls, fragments, strict=True):
                self._take(call, fragment)
            return
        for fragment in fragments:
            known = self._call_of(fragment)
            if known is not None:
                self._take(known, fragment)

    def _call_of(self, fragment: _Fragment) -> _Call | None:
        """The call that a fragment is of, begun if need be; None if it only repeats one."""
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
        call.strange |= fragment.strange
        arguments = fragment.arguments
        if fragment.is_object and call.has_begun:
            call.extra["arguments"] = fragment.given
            arguments = ""
        self._write(call, fragment.name, arguments)

    def legacy(self, raw: dict[str, Any]) -> None:
        """More of the one `function_call` that this API had before it had tools."""
        if self._legacy is None:
            self._legacy = self._new("function")
            self._legacy.is_legacy = True
        self._take(self._legacy, _Fragment({"function": raw}))

    @property
    def are_whole(self) -> bool:
        """Whether each call has a name, and arguments that nothing can follow."""
        return all(call.name and call.state() == "whole" for call in self._calls)

    def finish(self, *, is_whole: bool) -> tuple[bool, list[dict[str, Any]]]:
        """Close them all; whether one was cut short, and the ones that have no name.

        A call is completed only if the answer is whole *and* its arguments are no mere beginning.
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
            # A call whose arguments have not begun yet is shown before its successor.
            self._calls[-1].open(self._sink, self._executor_of)
        call = _Call()
        call.kind = kind
        self._calls.append(call)
        return call

    def _find(self, index: int | None, ident: str, name: str) -> tuple[_Call | None, bool]:
        """The call that a fragment may belong to, and whether the fragment says so."""
        call = None if index is None else self._by_index.get(index)
        if call is not None and (not ident or call.id in ("", ident)):
            return call, True
        call = self._by_id.get(ident, call)  # of the two, the id is the one to trust
        if call is not None:
            return call, True
        last = self._calls[-1] if self._calls else None
        if last is None or (ident and last.id):
            return None, False
        if index is not None and (ident or name or last.state() in ("whole", "broken")):
            return None, False  # a new index; bare arguments under one may still be the last call's
        return last, False

    def _write(self, call: _Call, name: str, arguments: str) -> None:
        if name and name != call.name and call.writer is None and len(call.name) < _LONGEST_NAME:
            call.name += name
        call.arguments(arguments)
        if call.has_begun:
            call.open(self._sink, self._executor_of)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _arguments(value: Any) -> tuple[str, bool]:
    """The arguments' text, and whether they came as a value: whole then."""
    if value is None or isinstance(value, str):
        return value or "", False
    return msgspec.json.encode(value).decode(), True


def _index(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < _LONGEST_INDEX:
        return int(value)
    return value if type(value) is int else None


def _strange(raw: dict[str, Any]) -> dict[str, Any]:
    """What stands in the fields of a call that is nothing like what belongs there."""
    return {
        name: value
        for name, value in raw.items()
        if value is not None and not isinstance(value, _TYPES_OF.get(name, object))
    }
