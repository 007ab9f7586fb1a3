"""Chains of random runs, dressed as if real providers had answered in them.

`legal_runs` draws runs without a provider. Here each gets one: the items of its tasks get the
provider's ids, sealed reasoning and raw items in their private parts, as an ingest would write
them, and an account (`Issued`) remembers what that provider sent out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from tailrace.core import closing_events
from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.items import (
    ErrorInfo,
    ImageUrl,
    ImageUrlPart,
    InputRequest,
    Message,
    RawItem,
    Reasoning,
    TextPart,
    ToolCall,
    ToolResult,
    Usage,
)
from tailrace.core.references import wrap
from tailrace.core.state import ItemNode, TaskNode, TextNode
from tailrace.core.writers import ArgumentsWriter, MessageWriter, ReasoningWriter, ResultWriter
from tailrace.history import Api
from tailrace.ingest.base import Notebook, Outcome
from tailrace.testing.provider_rules import Issued
from tailrace.testing.strategies import legal_runs
from tailrace.testing.strategies.open_items import WrittenRun

HOST = "one.example"
HOSTS = (HOST, HOST, None, "two.example")
"""Who answers: the asked host, a host that an older log does not name, or another host."""

APIS: tuple[Api, Api, Api] = ("openai_responses", "anthropic_messages", "openai_chat")

Json = dict[str, Any]


@dataclass
class Chain:
    """Runs, oldest first, and the accounts of the three providers."""

    states: list[State] = field(default_factory=list)
    issued: dict[Api, Issued] = field(default_factory=lambda: {api: Issued() for api in APIS})
    """The accounts at `HOST`; what any other host sends out is known to none of them."""


class _Provider:
    """What one provider puts beside the items of one run."""

    def __init__(self, api: Api, name: str, *, sends_response: bool, sealed: bool) -> None:
        self.api = api
        self.name = name
        self.sends_response = sends_response
        self.sealed = sealed
        self.responses: dict[tuple[str, int], list[int]] = {}
        self.place: dict[tuple[str, int], int] = {}
        self.current: dict[str, int] = {}
        self.after_cut: set[str] = set()

    def response_id(self, task_id: str) -> str:
        return f"resp_{self.name}_{list(self.current).index(task_id)}_{self.current[task_id]}"

    def begin(self, task_id: str, index: int, *, anew: bool) -> None:
        number = self.current.get(task_id, 0)
        if anew or task_id not in self.current:
            number += 1
        self.current[task_id] = number
        self.responses.setdefault((task_id, number), []).append(index)
        self.place[task_id, index] = number

    def ident(self, task_id: str, index: int, prefix: str) -> str:
        return f"{prefix}_{self.name}{list(self.current).index(task_id)}_{index}"

    def private(self, task_id: str, index: int, item: Any, status: str) -> ev.Private:
        provider: Json = {"api": self.api}
        key = "message_id" if self.api == "anthropic_messages" else "response_id"
        if self.sends_response:
            number = self.place[task_id, index]
            provider[key] = f"resp_{self.name}_{list(self.current).index(task_id)}_{number}"
        more: Json = {}
        if isinstance(item, Reasoning):
            provider["id"] = self.ident(task_id, index, "rs")
            if self.sealed and status == "completed":
                seal = f"sealed {provider['id']}"
                kind = "encrypted_content" if self.api == "openai_responses" else "signature"
                more[kind] = seal
        elif isinstance(item, Message):
            provider["id"] = self.ident(task_id, index, "msg")
        elif isinstance(item, ToolCall):
            provider["id"] = self.ident(task_id, index, "fc")
            provider["call_id"] = self.ident(task_id, index, "call")
            if item.executor == "provider":
                more["raw"] = self.builtin(provider["id"])
        elif isinstance(item, RawItem):
            more["raw"] = {"type": "hologram", "id": self.ident(task_id, index, "holo")}
        return ev.Private(provider=provider, **more)

    def builtin(self, ident: str) -> Json:
        if self.api == "anthropic_messages":
            return {"type": "server_tool_use", "id": ident, "name": "web_search"}
        return {"type": "web_search_call", "id": ident, "status": "completed"}


def dressed(
    run: WrittenRun, provider: _Provider, cuts: Callable[[], bool], created: Json
) -> WrittenRun:
    """The run with the provider's private parts."""
    calls: dict[tuple[str, str], int] = {}
    by_provider: set[tuple[str, str]] = set()
    fresh: set[str] = set()
    open_items: dict[str, set[int]] = {}
    found: WrittenRun = []
    for event, private in run:
        if private is not None:
            private = ev.Private(content=private.content, options=private.options)
        if isinstance(event, ev.TaskCreated) and event.parent_task_id is None:
            event = msgspec.structs.replace(event, **created)
        elif isinstance(event, ev.OutputItemAdded):
            item, task_id, index = event.item, event.task_id, event.output_index
            open_items.setdefault(task_id, set()).add(index)
            if isinstance(item, ToolResult):
                # What the provider's own tools give stands in the midst of its answer.
                if (task_id, item.call_id) not in by_provider:
                    fresh.add(task_id)
            else:
                cut = provider.sends_response and cuts()
                provider.begin(task_id, index, anew=task_id in fresh or cut)
                fresh.discard(task_id)
                if isinstance(item, ToolCall):
                    calls[task_id, item.call_id] = index
                    if item.executor == "provider":
                        by_provider.add((task_id, item.call_id))
        elif isinstance(event, ev.OutputItemDone):
            item, task_id, index = event.item, event.task_id, event.output_index
            content = private.content if private is not None else None
            open_items[task_id].discard(index)
            if isinstance(item, ToolResult):
                at = calls[task_id, item.call_id]
                if provider.api == "anthropic_messages":
                    ident = provider.ident(task_id, at, "fc")
                    raw = {"type": "web_search_tool_result", "tool_use_id": ident, "content": []}
                    private = ev.Private(content=content, raw=raw)
            else:
                made = provider.private(task_id, index, item, item.status)
                private = msgspec.structs.replace(made, content=content)
                # An answer that was cut is over when the last of its items is.
                if item.status != "completed" and not open_items[task_id]:
                    fresh.add(task_id)
        elif isinstance(event, ev.TaskUsage) and event.task_id in provider.current:
            facts = {"api": provider.api, "response_id": provider.response_id(event.task_id)}
            private = ev.Private(provider=facts)
        if (
            isinstance(event, ev.TERMINAL)
            and event.task_id == run[0][0].task_id
            and event.task_id in provider.current
        ):
            facts = {"api": provider.api, "response_id": provider.response_id(event.task_id)}
            usage = ev.TaskUsage(task_id=event.task_id, usage=msgspec.convert({}, Usage))
            found.append((usage, ev.Private(provider=facts)))
        found.append((event, private))
    return [
        (ev.recorded(event, number), private) for number, (event, private) in enumerate(found, 1)
    ]


def folded(run: WrittenRun) -> State:
    state = State()
    for event, private in run:
        state.apply(event, private)
    return state


def register(state: State, provider: _Provider, issued: Issued) -> None:
    """Let the account remember what the provider sent, whole, however it arrived."""
    for (task_id, number), indexes in provider.responses.items():
        task = state.tasks[task_id]
        nodes = [task.items[index] for index in indexes]
        response_id = f"resp_{provider.name}_{list(provider.current).index(task_id)}_{number}"
        if provider.api == "openai_responses":
            output = [_openai_item(provider, task, node) for node in nodes]
            issued.openai_response(response_id, output)
        elif provider.api == "anthropic_messages":
            issued.anthropic_message([_anthropic_block(node) for node in nodes])
        else:
            issued.chat_message(_chat_message(provider, task, nodes))


def _openai_item(provider: _Provider, task: TaskNode, node: ItemNode) -> Json:
    item, private = (
        node.item,
        provider.private(task.task_id, node.output_index, node.item, "completed"),
    )
    if private.raw is not None:
        return dict(private.raw)
    assert private.provider is not None
    ident = private.provider["id"]
    if isinstance(item, Reasoning):
        return {
            "type": "reasoning",
            "id": ident,
            "summary": [],
            "encrypted_content": private.encrypted_content,
        }
    if isinstance(item, ToolCall):
        call_id = private.provider["call_id"]
        return {"type": "function_call", "id": ident, "call_id": call_id, "name": item.name}
    return {"type": "message", "id": ident, "role": "assistant"}


def _anthropic_block(node: ItemNode) -> Json:
    signature = node.private.get("signature")
    if isinstance(node.item, Reasoning) and signature is not None:
        parts = node.texts or node.parts
        texts = [part.text for _, part in sorted(parts.items()) if isinstance(part, TextNode)]
        return {"type": "thinking", "thinking": "".join(texts), "signature": signature}
    return {"type": "text", "text": "…"}


def _chat_message(provider: _Provider, task: TaskNode, nodes: list[ItemNode]) -> Json:
    thoughts = [
        part.text
        for node in nodes
        if isinstance(node.item, Reasoning) and node.item.status == "completed" and not node.is_open
        for _, part in sorted((node.texts or node.parts).items())
        if isinstance(part, TextNode)
    ]
    calls = [
        {"id": provider.ident(task.task_id, node.output_index, "call")}
        for node in nodes
        if isinstance(node.item, ToolCall)
    ]
    return {"role": "assistant", "reasoning_content": "".join(thoughts), "tool_calls": calls}


TEXTS = st.sampled_from(("Hello", "", " ", "What is it?", "天気", "[^1]", "trailing "))
PICTURE = "data:image/png;base64,iVBORw0KGgo="
PARTS: Any = st.one_of(
    TEXTS.map(lambda text: {"type": "text", "text": text}),
    TEXTS.map(lambda text: {"type": "input_text", "text": text}),
    st.just({"type": "image_url", "image_url": {"url": PICTURE}}),
    st.just({"type": "input_image", "image_url": "https://example.org/a.png"}),
    st.just({"type": "image", "source": {"type": "url", "url": "http://example.org/a.png"}}),
    st.just({"type": "file", "url": "data:application/pdf;base64,JVBERi0=", "name": "a.pdf"}),
    st.just({"type": "file", "url": PICTURE, "mediaType": "image/png"}),
    st.just({"type": "file", "url": "data:text/plain,a%20b", "name": "a.txt"}),
    st.just({"type": "file", "url": "data:application/zip;base64,UEs=", "name": "a.zip"}),
    st.just({"type": "image_url", "image_url": {"url": "data:image/svg+xml,<svg/>"}}),
    st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}),
    st.just({"type": "input_file", "file_id": "file_1"}),
    st.just({"type": "image", "image_url": {"url": "/blobs/1"}}),
    st.just({"type": "weird", "value": 1}),
)
CALL_IDS = st.sampled_from(("call_1", "call_2", "call_3", "given_1"))
MESSAGES: Any = st.one_of(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(("user", "assistant", "system", "developer", "critic")),
        TEXTS | st.lists(PARTS, max_size=2) | st.none(),
    ),
    st.builds(
        lambda call, output: {"type": "function_call_output", "call_id": call, "output": output},
        CALL_IDS,
        TEXTS | st.lists(PARTS, max_size=2),
    ),
    CALL_IDS.map(
        lambda call: {"type": "function_call", "call_id": call, "name": "look", "arguments": "{}"}
    ),
    CALL_IDS.map(lambda call: {"role": "tool", "tool_call_id": call, "content": "tool"}),
    st.just({"type": "reasoning", "id": "rs_foreign", "summary": []}),
    st.just({"type": "item_reference", "id": "msg_foreign"}),
)
INPUTS: Any = st.one_of(
    st.none(), TEXTS, st.lists(PARTS, max_size=3), MESSAGES, st.lists(MESSAGES, max_size=4)
)


@st.composite
def chains(draw: Any, max_runs: int = 4, max_events: int = 40) -> Chain:
    """A conversation of some runs; the last run may be unfinished."""
    chain = Chain()
    count = draw(st.integers(1, max_runs))
    for number in range(count):
        run = draw(legal_runs(max_events, complete=number < count - 1 or draw(st.booleans())))
        provider = _Provider(
            draw(st.sampled_from(APIS)),
            f"r{number}",
            sends_response=draw(st.booleans()),
            sealed=draw(st.booleans()),
        )
        created = {"input": draw(INPUTS), "model": draw(st.sampled_from((None, "a", "b")))}
        cuts = lambda: draw(st.sampled_from((False, False, False, True)))  # noqa: E731
        run = dressed(run, provider, cuts, created)
        state = folded(run)
        register(state, provider, chain.issued[provider.api])
        chain.states.append(state)
    return chain


# --- conversations as they really go ------------------------------------------------------------

ANSWERS = (
    ("msg",),
    ("rs", "msg"),
    ("rs", "fc"),
    ("rs", "fc", "fc"),
    ("msg", "fc"),
    ("fc", "msg"),
    ("rs", "msg", "fc"),
    ("rs", "rs", "msg"),
    ("rs", "ws", "rs", "msg"),
    ("rs", "ws", "rs", "fc"),
    ("rs", "msg", "rs", "fc"),
    ("rs", "sh"),
    ("rs", "sh", "sho", "rs", "msg"),
    ("rs", "lsh"),
    ("rs", "shc", "fc"),
    ("msg", "patch", "screen"),
    ("rs", "ask"),
    ("ask", "ask"),
    ("mcp", "msg"),
    ("rs", "prog", "pfc"),
    ("pfc",),
    ("progo", "rs", "msg"),
)
"""What models answer: reasoning, messages, calls of functions, the provider's own web search, its
hosted shell, calls of a shell, a patch and a computer for us to run, requests for an approval, and
programs that call functions."""

TYPED = {
    "lsh": ("local_shell", "local_shell_call", "action"),
    "shc": ("shell", "shell_call", "action"),
    "patch": ("apply_patch", "apply_patch_call", "operation"),
    "screen": ("computer", "computer_call", "action"),
}


class _Player:
    """One run of a conversation, answered by one provider; `draw` decides how it goes."""

    def __init__(self, draw: Any, chain: Chain, number: int) -> None:
        self.draw = draw
        self.number = number
        self.api: Api = draw(st.sampled_from(APIS))
        self.host = draw(st.sampled_from(HOSTS))
        self.issued = Issued() if self.host == HOSTS[-1] else chain.issued[self.api]
        self.program = "call_nobody"
        self.asked: list[str] = []
        self.sealed: bool = draw(st.sampled_from((True, True, False)))
        self.sends_response: bool = draw(st.sampled_from((True, True, False)))
        model = draw(st.sampled_from((None, "a", "b")))
        self.book = Notebook(f"run_{number}", input=draw(TURNS), model=model)
        self.answers = 0

    def flag(self, *choices: bool) -> bool:
        return bool(self.draw(st.sampled_from(choices)))

    def play(self, *, is_last: bool) -> None:
        for _ in range(self.draw(st.integers(0, 3))):
            how = self.draw(st.sampled_from(("whole", "whole", "whole", "cut", "lost", "stopped")))
            if not self.answer(how):
                return
        if not is_last or self.flag(True, False):
            self.book.conclude(Outcome(status=self.draw(st.sampled_from(("completed", "failed")))))

    def answer(self, how: str) -> bool:
        """One model call with the tools that it calls; False if the run ended with it."""
        self.answers += 1
        kinds = self.draw(st.sampled_from(ANSWERS))
        names = [f"{kind}_{self.number}x{self.answers}x{at}" for at, kind in enumerate(kinds)]
        self.register(kinds, names)
        # Where it breaks off, the item may have begun, or not even that.
        end = len(kinds) if how == "whole" else self.draw(st.integers(0, len(kinds) - 1))
        calls = [self.item(kinds[at], names[at]) for at in range(end)]
        broken: list[str] = []
        if how != "whole" and (not self.sends_response or self.flag(True, False)):
            broken = [self.broken(kinds[end], names[end])]
        if how == "whole":
            facts = {"api": self.api, "response_id": f"resp_{self.number}_{self.answers}"}
            usage = ev.TaskUsage(task_id=self.book.task_id, usage=Usage())
            self.book.emit(usage, ev.Private(provider=facts))
        if how == "stopped":
            last = ev.TaskCancelled(task_id=self.book.task_id)
            for event in closing_events.ending(self.book.node, last):
                self.book.emit(event)
            return False
        for call_id in filter(None, calls):
            self.result(call_id)
        self.approve()
        if how == "lost":
            attempt = (self.book.node.attempt or 1) + 1
            self.book.emit(
                ev.TaskAttempt(
                    task_id=self.book.task_id,
                    attempt=attempt,
                    reason="worker_lost",
                    superseded=broken,
                )
            )
        if how == "cut":
            self.book.conclude(Outcome(status="incomplete", reason="max_output_tokens"))
            return False
        return True

    def private(self, name: str, **more: Any) -> ev.Private:
        facts: Json = {"api": self.api, "id": name}
        if self.host is not None:
            facts["host"] = self.host
        if self.sends_response:
            facts["response_id"] = f"resp_{self.number}_{self.answers}"
        return ev.Private(provider=facts | more.pop("provider", {}), **more)

    def thought(self, name: str) -> ReasoningWriter:
        writer = ReasoningWriter(self.book)
        writer.summary(f"Thinking {name}. ")
        return writer

    def item(self, kind: str, name: str) -> str | None:
        if kind == "rs":
            seal = {}
            if self.sealed:
                field = "encrypted_content" if self.api == "openai_responses" else "signature"
                seal = {field: f"sealed {name}"}
            self.thought(name).finish(private=self.private(name, **seal))
        elif kind == "msg":
            message = MessageWriter(self.book)
            message.text(f"Saying {name}.")
            message.finish(private=self.private(name))
        elif kind == "ws":
            call = ArgumentsWriter(self.book, "web_search", kind="web_search", executor="provider")
            call.finish(private=self.private(name, raw=self.search(name)))
            result = ResultWriter(self.book, call.call_id)
            found = {"type": "web_search_tool_result", "tool_use_id": name, "content": []}
            is_openai = self.api == "openai_responses"
            result.finish(self.private(name, raw=None if is_openai else found))
        elif kind in ("sh", "sho"):
            shell = RawItem(id=self.book.new_id("raw"), raw={}, source=self.api)
            self.book.done(
                self.book.add(shell), shell, self.private(name, raw=self.shell(kind, name))
            )
        elif kind in ("prog", "progo"):
            program = RawItem(id=self.book.new_id("raw"), raw={}, source=self.api)
            raw = self.made(kind, name)
            self.book.done(self.book.add(program), program, self.private(name, raw=raw))
        elif kind in ("ask", "mcp"):
            named = "mcp_approval_request" if kind == "ask" else "mcp"
            call = ArgumentsWriter(self.book, "buy", call_id=name, kind=named, executor="provider")
            call.arguments("{}")
            call.finish(private=self.private(name, raw=self.made(kind, name)))
            if kind == "mcp":
                ResultWriter(self.book, call.call_id).finish()
            else:
                self.asked.append(name)
        elif kind in TYPED:
            call = ArgumentsWriter(self.book, kind, call_id=f"call_{name}", kind=TYPED[kind][0])
            call.arguments("{}")
            call.finish(private=self.private(name, raw=self.made(kind, name)))
            return call.call_id
        else:
            call = ArgumentsWriter(self.book, "look", call_id=name)
            call.arguments('{"at":1}')
            mine = self.made(kind, name) if kind == "pfc" else None
            call.finish(private=self.private(name, provider={"call_id": f"call_{name}"}, raw=mine))
            return call.call_id
        return None

    def made(self, kind: str, name: str) -> Json:
        """The provider's own item."""
        if self.api == "anthropic_messages":
            use = "mcp_tool_use" if kind in ("ask", "mcp") else "hologram"
            return {"type": use, "id": name, "name": "buy"}
        if kind in TYPED:
            _, named, field = TYPED[kind]
            return {"type": named, "id": name, "call_id": f"call_{name}", field: {"do": 1}}
        if kind in ("ask", "mcp"):
            asks = {"id": name, "name": "buy", "arguments": "{}", "server_label": "shop"}
            if kind == "ask":
                return {"type": "mcp_approval_request", **asks}
            return {"type": "mcp_call", **asks, "approval_request_id": [None, *self.asked][-1]}
        if kind == "prog":
            return {"type": "program", "id": name, "call_id": self.program, "code": "x"}
        if kind == "progo":
            return {"type": "program_output", "id": name, "call_id": self.program, "result": "y"}
        caller = {"type": "program", "caller_id": self.program}
        return {"type": "function_call", "id": name, "call_id": f"call_{name}", "caller": caller}

    def approve(self) -> None:
        """Some requests are asked in the log, under their ids or ours; some of them answered."""
        known = {answer["call_id"] for answer in self.book.node.answers.values()}
        requests = [
            InputRequest(
                id=f"{name}{'_ours' * self.flag(True, False)}", kind="approval", call_id=name
            )
            for name in self.asked
            if name not in known
        ]
        if not requests or self.flag(False, False, True):
            return
        self.book.emit(ev.TaskInputRequired(task_id=self.book.task_id, requests=requests))
        for request in requests:
            answer = ev.TaskInputReceived(
                task_id=self.book.task_id,
                request_id=request.id,
                approved=self.flag(True, False),
                reason="So be it.",
            )
            self.book.emit(answer)

    def broken(self, kind: str, name: str) -> str:
        if kind == "rs":
            thought = self.thought(name)
            thought.finish("incomplete", self.private(name))
            return thought.id
        if kind == "msg":
            message = MessageWriter(self.book)
            message.text(self.draw(st.sampled_from(("Half of it ", "", " "))))
            message.finish("incomplete", self.private(name))
            return message.id
        call = ArgumentsWriter(self.book, "look", call_id=name)
        call.arguments('{"at"')
        call.finish("incomplete", self.private(name))
        return call.id

    def result(self, call_id: str) -> None:
        how = self.draw(st.sampled_from(("done", "done", "failed", "none")))
        if how == "none":
            return
        result = ResultWriter(self.book, call_id)
        if how == "failed":
            result.fail(ErrorInfo(code="tool_timeout", message="Too slow."))
            return
        parts: list[Any] = [TextPart(text="Sunny", id=1)]
        if self.flag(True, False):
            parts.append(ImageUrlPart(image_url=ImageUrl(url=PICTURE), id=1))
        result.finish(ev.Private(content=wrap(parts)))

    def search(self, name: str) -> Json:
        if self.api == "openai_responses":
            return {"type": "web_search_call", "id": name, "status": "completed"}
        return {"type": "server_tool_use", "id": name, "name": "web_search", "input": {}}

    def shell(self, kind: str, name: str) -> Json:
        if self.api != "openai_responses":
            return {"type": "hologram", "id": name}
        shell: Json = {"id": name, "call_id": f"call_sh_{self.number}x{self.answers}"}
        if kind == "sh":
            return {"type": "shell_call", **shell, "action": {"commands": ["ls"]}}
        return {"type": "shell_call_output", **shell, "output": []}

    def register(self, kinds: tuple[str, ...], names: list[str]) -> None:
        made: list[Json] = []
        for kind, name in zip(kinds, names, strict=True):
            self.program = f"call_{name}" if kind == "prog" else self.program
            if self.api == "anthropic_messages":
                text = f"Thinking {name}. "
                signature = f"sealed {name}" if self.sealed else "unknown"
                thinking = {"type": "thinking", "thinking": text, "signature": signature}
                made.append(thinking if kind == "rs" else {"type": "text", "text": name})
            elif kind == "rs":
                sealed = f"sealed {name}" if self.sealed else None
                made.append({"type": "reasoning", "id": name, "encrypted_content": sealed})
            elif kind in ("fc", "pfc"):
                call = {"type": "function_call", "id": name, "call_id": f"call_{name}"}
                made.append(self.made(kind, name) if kind == "pfc" else call)
            elif kind in ("ask", "mcp", "prog", "progo", *TYPED):
                made.append(self.made(kind, name))
            elif kind == "msg":
                made.append({"type": "message", "id": name})
            else:
                made.append(self.search(name) if kind == "ws" else self.shell(kind, name))
        if self.api == "openai_responses":
            self.issued.openai_response(f"resp_{self.number}_{self.answers}", made)
        elif self.api == "anthropic_messages":
            self.issued.anthropic_message(made)
        elif "rs" in kinds:
            ours = ("fc", "pfc", *TYPED)
            places = [at for at, kind in enumerate(kinds) if kind in ours]
            calls = [{"id": f"call_{names[at]}"} for at in places]
            reasoning = "Thinking" if places and kinds.index("rs") < places[0] else ""
            self.issued.chat_message({"reasoning_content": reasoning, "tool_calls": calls})


TURNS = st.sampled_from(("What now?", "And then?", "Go on.", None))


@st.composite
def conversations(draw: Any, max_runs: int = 5) -> Chain:
    """Some runs of which most go well; the last may be in the middle of its tool loop."""
    chain = Chain()
    count = draw(st.integers(1, max_runs))
    for number in range(count):
        player = _Player(draw, chain, number)
        player.play(is_last=number == count - 1)
        chain.states.append(player.book.state)
    return chain
