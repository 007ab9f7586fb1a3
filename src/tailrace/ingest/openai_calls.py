"""OpenAI's calls: how one grows, when it is whole, and what the provider's run of it gave.

A call is whole when its arguments were said to be: by their own `done`, by the item's, or by a
response that is complete. That they happen to be JSON is no reason; but one for us whose arguments
break off is never made, and ends an otherwise complete response as `truncated_tool_call`. Where the
last word is not what was streamed, the streamed call ends incomplete and another one takes its
place.
"""

from __future__ import annotations

from typing import Any

from tailrace.core import events as ev
from tailrace.core.items import ErrorInfo, Executor, Image, InputRequest
from tailrace.core.texts import Growing
from tailrace.core.writers import ArgumentsWriter, ImageWriter, ResultWriter, Sink
from tailrace.ingest.base import ExecutorOf
from tailrace.ingest.openai_items import Slot
from tailrace.ingest.openai_parts import Json
from tailrace.ingest.openai_tools import TOOLS
from tailrace.ingest.openai_values import (
    as_arguments,
    as_dict,
    as_json,
    as_text,
    as_word,
    dicts,
    error_of,
    has_more,
    is_beginning,
    is_json,
    same_json,
)

_INTERRUPTED = ErrorInfo(code="interrupted", message="The tool was interrupted.")
_KNOWN = (
    *("type", "id", "call_id", "name", "status", "server_label"),
    *("item_id", "output_index"),  # where the item stands: Bedrock repeats it inside
)
_DONE = ("completed", "failed")


class _Waiting(Growing):
    """Arguments of a call that has no name yet."""

    def add(self, piece: str) -> None:
        """More of them."""
        self._grow(piece)


class CallSlot(Slot):
    """A call. It is shown as soon as its name is known; until then its arguments wait."""

    def __init__(
        self,
        sink: Sink,
        item_id: str | None,
        index: int | None,
        item_type: str,
        executor_of: ExecutorOf,
    ) -> None:
        super().__init__(sink, item_id, index)
        self.item_type = item_type
        self.seen = {"type": item_type}
        self.tool = TOOLS[item_type]
        self.request: InputRequest | None = None
        self.is_truncated = False
        """Whether it ended, but cannot be made."""
        self._executor_of = executor_of
        self._name: str | None = None
        self._label: str | None = None
        self._waiting = _Waiting()
        self._given: str | None = None
        self._writer: ArgumentsWriter | None = None
        self._result: ResultWriter | None = None
        self._picture: ImageWriter | None = None

    # --- while it streams ----------------------------------------------------------------------

    def added(self, item: Json) -> None:
        """Its ids and its name."""
        super().added(item)
        self.named(item.get("name"))
        self._label = self._label or as_word(item.get("server_label"))
        if self._name or self.tool.name:
            self._open()

    def named(self, name: Any) -> None:
        """Its name, if that was not known yet."""
        self._name = self._name or as_word(name)

    @property
    def _executor(self) -> Executor:
        if self.tool.results is not None or self.item_type == "mcp_approval_request":
            return "provider"
        return self._executor_of(self._name or "")

    def _open(self) -> ArgumentsWriter:
        if self._writer is None:
            self._writer = self._new_writer()
            self._writer.arguments(self._waiting.text)
        return self._writer

    def _new_writer(self) -> ArgumentsWriter:
        return ArgumentsWriter(
            self.sink,
            self._name or self.tool.name or "",
            call_id=self.call_id or self.item_id,
            kind=self.tool.kind,
            executor=self._executor,
            server_label=self._label,
        )

    def add(self, piece: str) -> bool:
        """More of its arguments; False if they are whole already."""
        if self._given is not None or self._result is not None:
            return False
        if self._writer is None:
            self._waiting.add(piece)
        else:
            self._writer.arguments(piece)
        return True

    def arguments_done(self, text: str, name: Any) -> None:
        """The arguments are whole."""
        self.named(name)
        self._given = text
        if self._writer is not None or self._name:
            self._open().arguments_done(text)

    def progress(self, phase: str) -> bool:
        """How far the provider's run of it has come; False if nobody knows of what."""
        if not (self._name or self.tool.name):
            return False
        call_id = self._open().call_id
        self.sink.emit(ev.Progress(task_id=self.sink.task_id, call_id=call_id, message=phase))
        return True

    def partial_image(self, url: str) -> None:
        """An image that sharpens: shown as the call's result while the provider still draws."""
        if self._picture is None:
            writer = self._open()
            writer.arguments_done("{}")
            writer.finish(private=self.private())
            self._result = ResultWriter(self.sink, writer.call_id)
            self._picture = self._result.image_block()
        self._picture.partial(url)

    # --- its end -------------------------------------------------------------------------------

    def done(self, item: Json) -> None:
        """The call as the provider has it; it stays open where nothing says that it is whole."""
        self.added(item)
        status = item.get("status")
        if status == "incomplete":
            self._keep_what_agrees(item)
            self._cut(self._private_of(item))
            return
        whole = self._whole(item)
        is_ours = self._executor != "provider"
        # Whatever calls them whole: of arguments that break off nobody knows the rest.
        is_part = whole is not None and self.tool.is_json and is_ours and is_beginning(whole)
        if whole is not None and not is_part and (self._name or self.tool.name):
            self._complete(whole, item)
        elif is_part or status in _DONE:
            self.is_truncated = is_ours
            if is_part:
                self._keep_what_agrees(item)
            self._cut(self._private_of(item))

    def _whole(self, item: Json) -> str | None:
        """The arguments, if anything says that these are all."""
        if self.tool.asked is not None:
            return as_json(self.tool.asked(item))
        text, streamed = as_arguments(item.get(self.tool.arguments)), self._streamed
        status = item.get("status")
        if status != "in_progress" and (text or (text == "" and not streamed)):
            return text
        if self._given is not None or status not in _DONE:
            return self._given
        return streamed if streamed and (not self.tool.is_json or is_json(streamed)) else None

    @property
    def _streamed(self) -> str:
        return self._writer.text if self._writer is not None else self._waiting.text

    def _keep_what_agrees(self, item: Json) -> None:
        text = as_arguments(item.get(self.tool.arguments))
        if text and text.startswith(self._streamed) and self._given is None:
            self.add(text[len(self._streamed) :])

    def _complete(self, whole: str, item: Json) -> None:
        if self._result is None:
            writer = self._open()
            renamed = as_word(item.get("name")) not in (None, self._name)
            same = writer.arguments_done(whole) or self._is_same(whole)
            if renamed or not same:
                # Nobody may carry out what was streamed: it is not what the model said.
                writer.finish("incomplete", self.private())
                self._name = as_word(item.get("name")) or self._name
                self._writer = writer = self._new_writer()
                writer.arguments_done(whole)
            writer.finish("completed", self._private_of(item))
        self.is_open = False
        assert self._writer is not None
        if self.item_type == "mcp_approval_request":
            self._ask(self._writer.call_id)
        elif self._executor == "provider":
            self._give_result(item)

    def _is_same(self, whole: str) -> bool:
        return self.tool.is_json and same_json(whole, self._streamed)

    def _ask(self, call_id: str) -> None:
        message = f"May {self._label or 'the server'} run {self._name}?"
        self.request = InputRequest(
            id=self.item_id or call_id, kind="approval", call_id=call_id, message=message
        )

    def _give_result(self, item: Json) -> None:
        assert self._writer is not None
        private = None
        if self._result is None:
            self._result = ResultWriter(self.sink, self._writer.call_id)
        else:
            private = self._private_of(item)
        for block in self.tool.results(item) if self.tool.results is not None else ():
            if self._picture is not None and isinstance(block, Image):
                self._picture.done(block.image_url.url)
            else:
                self._result.whole(block)
        error = item.get("error")
        if error or item.get("status") == "failed":
            self._result.fail(_failure(error), private)
        else:
            self._result.finish(private)

    def settle(self) -> None:
        """Whole as it is, if its arguments are."""
        if self.tool.asked is not None and self.tool.results is None:
            self.cut()  # nothing told what is to be done, all of it
            return
        item = {**self.seen, "status": "completed"}
        if self.tool.asked is None:
            begun_with = as_arguments(item.pop(self.tool.arguments, None)) or ""
            if self._given is None and not self._streamed:
                self.add(begun_with)
            whole = self._whole(item)
            if whole is not None:
                item[self.tool.arguments] = whole
        self.done(item)

    def cut(self) -> None:
        """Nobody may carry it out."""
        self._keep_what_agrees(self.seen)
        # An image that was shown is complete as a call, and would go back as its item is.
        says_more = self._result is None and self._says_more(self.seen)
        self._cut(self.private(self.seen if says_more else None))

    def _cut(self, private: ev.Private) -> None:
        self.is_open = False
        if self._result is not None:
            self._result.fail(_INTERRUPTED, private)
        elif self._writer is not None or self._waiting.length or self._given:
            if self._given is not None:
                self._open().arguments_done(self._given)
            self._open().finish("incomplete", private)

    def _private_of(self, item: Json) -> ev.Private:
        """What history needs of the call: all of it, where ours says less."""
        is_ours = self._executor != "provider" and self.tool.asked is None
        return self.private(None if is_ours and not self._says_more(item) else item)

    def _says_more(self, item: Json) -> bool:
        return has_more(item, (*_KNOWN, self.tool.arguments))

    def private(self, raw: Json | None = None, **more: Any) -> ev.Private:
        """What history needs of the call, the provider's `call_id` where ours is another."""
        private = super().private(raw, **more)
        if self._writer is not None and self.call_id not in (None, self._writer.call_id):
            assert private.provider is not None
            private.provider["call_id"] = self.call_id
        return private


def _failure(error: Any) -> ErrorInfo:
    """Why a provider's tool failed; an MCP server puts its words into `content`."""
    default = "The provider's tool failed."
    words = [as_text(part.get("text")) for part in dicts(as_dict(error).get("content"))]
    said = "\n".join(word for word in words if word)
    return error_of(error, said or default)
