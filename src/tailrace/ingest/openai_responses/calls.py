"""OpenAI's calls: functions, custom tools and built-in tools, with the results of the provider.

A call is complete when its arguments, its item or the response has ended. Valid JSON alone does not
complete it. A call for us with partial arguments is never made; it ends a complete response as
`truncated_tool_call`. If the final arguments differ from the streamed text, the streamed call ends
incomplete and another call takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tailrace.core import events as ev
from tailrace.core.closing_events import TOOL_INTERRUPTED
from tailrace.core.event_sink import Sink
from tailrace.core.items import (
    Block,
    Data,
    ErrorInfo,
    Executor,
    Image,
    ImageUrl,
    InputRequest,
    Text,
)
from tailrace.core.text_writers import GrowingText
from tailrace.core.tool_arguments import is_beginning, is_json, same_json
from tailrace.core.values import Json, dict_of, dicts_of, json_text, text_or_none, word_of
from tailrace.core.writers import ArgumentsWriter, ImageWriter, ResultWriter
from tailrace.ingest.base import ExecutorOf
from tailrace.ingest.openai_responses.items import Slot
from tailrace.ingest.openai_responses.values import as_arguments, error_of, image_url
from tailrace.ingest.unknown import has_unknown

_HOSTED = "container_reference"
"""The environment of a shell that the provider runs."""


class ToolShape(msgspec.Struct, frozen=True, kw_only=True):
    """How to read a type of call item."""

    kind: str
    name: str | None = None
    """The name of the tool, if the item has no name."""
    arguments: str = ""
    """The field whose text streams as arguments."""
    asked: Callable[[Json], Any] | None = None
    """The arguments, where nothing streams."""
    is_json: bool = True
    results: Callable[[Json], Iterable[Block]] | None = None
    """The results of the provider; None if the provider does not run the tool."""


def _web_query(item: Json) -> Any:
    action = {
        name: value for name, value in dict_of(item.get("action")).items() if name != "sources"
    }
    text = text_or_none(item.get("arguments"))  # xAI's way
    if action or not text:
        return action
    return msgspec.Raw(text.encode()) if is_json(text) else {"arguments": text}


def _web_sources(item: Json) -> Iterable[Block]:
    sources = dict_of(item.get("action")).get("sources")
    results = item.get("results")
    for name, found in (("sources", sources), ("results", results)):
        if found:
            yield Data(name=name, data=found)


def _queries(item: Json) -> Any:
    return {"queries": item.get("queries") or []}


def _found_in_files(item: Json) -> Iterable[Block]:
    for result in dicts_of(item.get("results")):
        yield Data(name="file_search_result", data=result)


def _code_outputs(item: Json) -> Iterable[Block]:
    for output in dicts_of(item.get("outputs")):
        logs, url = text_or_none(output.get("logs")), text_or_none(output.get("url"))
        if output.get("type") == "logs" and logs is not None:
            yield Text(text=logs)
        elif output.get("type") == "image" and url:
            yield Image(image_url=ImageUrl(url=url))
        else:
            yield Data(name="code_interpreter_output", data=output)


def _prompt(item: Json) -> Any:
    prompt = text_or_none(item.get("revised_prompt")) or text_or_none(item.get("prompt"))
    return {"prompt": prompt} if prompt else {}


def _image(item: Json) -> Iterable[Block]:
    url = image_url(item.get("result"), item.get("output_format"))
    if url is not None:
        yield Image(image_url=ImageUrl(url=url))


def _mcp_output(item: Json) -> Iterable[Block]:
    output = item.get("output")
    if isinstance(output, str):
        yield Text(text=output)
    elif output is not None:
        yield Data(name="output", data=output)


def _action(item: Json) -> Any:
    return dict_of(item.get("action"))


def _operation(item: Json) -> Any:
    return dict_of(item.get("operation"))


def _actions(item: Json) -> Any:
    """An action, or several at once."""
    several = item.get("actions")
    return {"actions": several} if isinstance(several, list) else _action(item)


def _mcp_tools(item: Json) -> Iterable[Block]:
    if item.get("tools"):
        yield Data(name="tools", data=item["tools"])


TOOLS: dict[str, ToolShape] = {
    "function_call": ToolShape(kind="function", arguments="arguments"),
    "custom_tool_call": ToolShape(kind="custom", arguments="input", is_json=False),
    "mcp_call": ToolShape(kind="mcp", arguments="arguments", results=_mcp_output),
    "mcp_approval_request": ToolShape(kind="mcp_approval_request", arguments="arguments"),
    "mcp_list_tools": ToolShape(
        kind="mcp_list_tools", name="list_tools", asked=lambda _: {}, results=_mcp_tools
    ),
    "web_search_call": ToolShape(
        kind="web_search", name="web_search", asked=_web_query, results=_web_sources
    ),
    "file_search_call": ToolShape(
        kind="file_search", name="file_search", asked=_queries, results=_found_in_files
    ),
    "code_interpreter_call": ToolShape(
        kind="code_interpreter",
        name="code_interpreter",
        arguments="code",
        is_json=False,
        results=_code_outputs,
    ),
    "image_generation_call": ToolShape(
        kind="image_generation", name="image_generation", asked=_prompt, results=_image
    ),
    "shell_call": ToolShape(kind="shell", name="shell", asked=_action),
    "local_shell_call": ToolShape(kind="local_shell", name="local_shell", asked=_action),
    "apply_patch_call": ToolShape(kind="apply_patch", name="apply_patch", asked=_operation),
    "computer_call": ToolShape(kind="computer", name="computer", asked=_actions),
}
"""The items that are calls; other items are kept raw. We run the calls of a shell, a patch or a
computer: history sends their outputs back in a form of their own."""


def is_call(item_type: str, item: Json) -> bool:
    """Whether an item is a call; a call of the provider's own shell is kept raw."""
    place = dict_of(item.get("environment")).get("type")
    return item_type in TOOLS and not (item_type == "shell_call" and place == _HOSTED)


_KNOWN = (
    *("type", "id", "call_id", "name", "status", "server_label"),
    *("item_id", "output_index"),  # Bedrock repeats the place inside of the item
)
_DONE = ("completed", "failed")


class _Waiting(GrowingText):
    """The arguments of a call without a name."""

    def add(self, piece: str) -> None:
        """Append to the arguments."""
        self._take(self._checked(piece))


class CallSlot(Slot):
    """A call. It is written as soon as its name is known; until then its arguments wait."""

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
        """Whether it ended without a name or with partial arguments."""
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
        """Take its ids and its name."""
        super().added(item)
        self.named(item.get("name"))
        self._label = self._label or word_of(item.get("server_label"))
        if self._name or self.tool.name:
            self._open()

    def named(self, name: Any) -> None:
        """Take its name, if it was not known."""
        self._name = self._name or word_of(name)

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
        """Append to its arguments; False if they are complete."""
        if self._given is not None or self._result is not None:
            return False
        if self._writer is None:
            self._waiting.add(piece)
        else:
            self._writer.arguments(piece)
        return True

    def arguments_done(self, text: str, name: Any) -> None:
        """Take the complete arguments."""
        self.named(name)
        self._given = text
        if self._writer is not None or self._name:
            self._open().arguments_done(text)

    def progress(self, phase: str) -> bool:
        """Report the provider's progress; False if the tool has no name yet."""
        if not (self._name or self.tool.name):
            return False
        call_id = self._open().call_id
        self.sink.emit(ev.Progress(task_id=self.sink.task_id, call_id=call_id, message=phase))
        return True

    def partial_image(self, url: str) -> None:
        """Show a partial image as the result of the call."""
        if self._picture is None:
            writer = self._open()
            writer.arguments_done("{}")
            writer.finish(private=self.private())
            self._result = ResultWriter(self.sink, writer.call_id)
            self._picture = self._result.image_block()
        self._picture.partial(url)

    # --- its end -------------------------------------------------------------------------------

    def done(self, item: Json) -> None:
        """End the call; it stays open if nothing completes its arguments."""
        self.added(item)
        status = item.get("status")
        if status == "incomplete":
            self._keep_what_agrees(item)
            self._cut(self._private_of(item))
            return
        whole = self._whole(item)
        is_ours = self._executor != "provider"
        # Partial arguments stay partial, even if the item is completed.
        is_part = whole is not None and self.tool.is_json and is_ours and is_beginning(whole)
        if whole is not None and not is_part and (self._name or self.tool.name):
            self._complete(whole, item)
        elif is_part or status in _DONE:
            self.is_truncated = is_ours
            if is_part:
                self._keep_what_agrees(item)
            self._cut(self._private_of(item))

    def _whole(self, item: Json) -> str | None:
        """The arguments, if they are complete."""
        if self.tool.asked is not None:
            return json_text(self.tool.asked(item))
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
            renamed = word_of(item.get("name")) not in (None, self._name)
            same = writer.arguments_done(whole) or self._is_same(whole)
            if renamed or not same:
                # The streamed call must not run: its arguments are not final.
                writer.finish("incomplete", self.private())
                self._name = word_of(item.get("name")) or self._name
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
        """Complete the call if its arguments are complete."""
        if self.tool.asked is not None and self.tool.results is None:
            self.cut()  # its action never came whole
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
        """End the call as incomplete: it must not run."""
        self._keep_what_agrees(self.seen)
        # A call with an image is completed already.
        is_kept = self._result is None and self._has_unknown(self.seen)
        self._cut(self.private(self.seen if is_kept else None))

    def _cut(self, private: ev.Private) -> None:
        self.is_open = False
        if self._result is not None:
            self._result.fail(TOOL_INTERRUPTED, private)
        elif self._writer is not None or self._waiting.length or self._given:
            if self._given is not None:
                self._open().arguments_done(self._given)
            self._open().finish("incomplete", private)

    def _private_of(self, item: Json) -> ev.Private:
        """The private part; with the whole item where ours has less."""
        is_ours = self._executor != "provider" and self.tool.asked is None
        return self.private(None if is_ours and not self._has_unknown(item) else item)

    def _has_unknown(self, item: Json) -> bool:
        return has_unknown(item, (*_KNOWN, self.tool.arguments))

    def private(self, raw: Json | None = None, **more: Any) -> ev.Private:
        """The private part, with the provider's `call_id` where ours differs."""
        private = super().private(raw, **more)
        if self._writer is not None and self.call_id not in (None, self._writer.call_id):
            assert private.provider is not None
            private.provider["call_id"] = self.call_id
        return private


def _failure(error: Any) -> ErrorInfo:
    """The error of a provider's tool; an MCP server has the message in `content`."""
    default = "The provider's tool failed."
    words = [text_or_none(part.get("text")) for part in dicts_of(dict_of(error).get("content"))]
    message = "\n".join(word for word in words if word)
    return error_of(error, message or default)
