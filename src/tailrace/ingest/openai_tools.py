"""OpenAI's calls: functions, custom tools, and the tools that the provider runs itself.

A call is whole when its arguments were said to be: by their own `done`, by the item's, or by a
response that is complete. That they happen to be JSON is no reason; but one for us whose arguments
break off is never made, and ends an otherwise complete response as `truncated_tool_call`. Where the last word is not
what was streamed, the streamed call ends incomplete and another one takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tailrace.core import events as ev
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
from tailrace.core.texts import Growing
from tailrace.core.writers import ArgumentsWriter, ImageWriter, ResultWriter, Sink
from tailrace.ingest.base import ExecutorOf
from tailrace.ingest.openai_items import Slot
from tailrace.ingest.openai_parts import Json
from tailrace.ingest.openai_values import (
    as_arguments,
    as_dict,
    as_json,
    as_text,
    as_word,
    dicts,
    error_of,
    has_more,
    image_url,
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
_HOSTED = "container_reference"
"""Where a shell is the provider's."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """How one of OpenAI's call items reads."""

    kind: str
    name: str | None = None
    """Its name, if the item has none."""
    arguments: str = ""
    """The field whose text streams as arguments."""
    asked: Callable[[Json], Any] | None = None
    """What was asked for, where nothing streams."""
    is_json: bool = True
    results: Callable[[Json], Iterable[Block]] | None = None
    """What the provider's run of it gave; None: the provider does not run it."""


def _web_query(item: Json) -> Any:
    action = {name: one for name, one in as_dict(item.get("action")).items() if name != "sources"}
    text = as_text(item.get("arguments"))  # xAI's way
    if action or not text:
        return action
    return msgspec.Raw(text.encode()) if is_json(text) else {"arguments": text}


def _web_sources(item: Json) -> Iterable[Block]:
    sources = as_dict(item.get("action")).get("sources")
    results = item.get("results")
    for name, found in (("sources", sources), ("results", results)):
        if found:
            yield Data(name=name, data=found)


def _queries(item: Json) -> Any:
    return {"queries": item.get("queries") or []}


def _found_in_files(item: Json) -> Iterable[Block]:
    for result in dicts(item.get("results")):
        yield Data(name="file_search_result", data=result)


def _code_outputs(item: Json) -> Iterable[Block]:
    for output in dicts(item.get("outputs")):
        logs, url = as_text(output.get("logs")), as_text(output.get("url"))
        if output.get("type") == "logs" and logs is not None:
            yield Text(text=logs)
        elif output.get("type") == "image" and url:
            yield Image(image_url=ImageUrl(url=url))
        else:
            yield Data(name="code_interpreter_output", data=output)


def _prompt(item: Json) -> Any:
    prompt = as_text(item.get("revised_prompt")) or as_text(item.get("prompt"))
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
    return as_dict(item.get("action"))


def _operation(item: Json) -> Any:
    return as_dict(item.get("operation"))


def _actions(item: Json) -> Any:
    """One action, or several at once."""
    several = item.get("actions")
    return {"actions": several} if isinstance(several, list) else _action(item)


def _mcp_tools(item: Json) -> Iterable[Block]:
    if item.get("tools"):
        yield Data(name="tools", data=item["tools"])


TOOLS: dict[str, Tool] = {
    "function_call": Tool(kind="function", arguments="arguments"),
    "custom_tool_call": Tool(kind="custom", arguments="input", is_json=False),
    "mcp_call": Tool(kind="mcp", arguments="arguments", results=_mcp_output),
    "mcp_approval_request": Tool(kind="mcp_approval_request", arguments="arguments"),
    "mcp_list_tools": Tool(
        kind="mcp_list_tools", name="list_tools", asked=lambda _: {}, results=_mcp_tools
    ),
    "web_search_call": Tool(
        kind="web_search", name="web_search", asked=_web_query, results=_web_sources
    ),
    "file_search_call": Tool(
        kind="file_search", name="file_search", asked=_queries, results=_found_in_files
    ),
    "code_interpreter_call": Tool(
        kind="code_interpreter",
        name="code_interpreter",
        arguments="code",
        is_json=False,
        results=_code_outputs,
    ),
    "image_generation_call": Tool(
        kind="image_generation", name="image_generation", asked=_prompt, results=_image
    ),
    "shell_call": Tool(kind="shell", name="shell", asked=_action),
    "local_shell_call": Tool(kind="local_shell", name="local_shell", asked=_action),
    "apply_patch_call": Tool(kind="apply_patch", name="apply_patch", asked=_operation),
    "computer_call": Tool(kind="computer", name="computer", asked=_actions),
}
"""The items that are calls; all others of OpenAI's are kept raw. Those of a shell, a patch or a
computer are for us to carry out: history gives what came of them back in a form of their own."""


def is_call(item_type: str, item: Json) -> bool:
    """Whether an item is a call; one that the provider's own shell runs is kept as it is."""
    place = as_dict(item.get("environment")).get("type")
    return item_type in TOOLS and not (item_type == "shell_call" and place == _HOSTED)


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
