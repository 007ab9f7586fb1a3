"""Runs written out by hand, each event legal, for the tests of the Responses format."""

from __future__ import annotations

from typing import Any

from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.items import (
    ErrorInfo,
    File,
    Image,
    ImageUrl,
    InputRequest,
    Message,
    Reasoning,
    ReferenceToBlock,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)

RUN = "run_7"
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)


def picture(payload: str = PNG, number: int | None = None) -> Image:
    return Image(image_url=ImageUrl(url=f"data:image/png;base64,{payload}"), id=number)


class Script:
    """Writes one run; every event is checked by the writer's own rules."""

    def __init__(self, **created: Any) -> None:
        self.events: list[ev.AnyEvent] = []
        self.state = State()
        facts: dict[str, Any] = {"agent": "assistant", "created_at": 1790000000.5, **created}
        self.add(ev.TaskCreated, **facts)

    def add(self, cls: type[ev.Event], task_id: str = RUN, **fields: Any) -> Script:
        event = cls(task_id=task_id, sequence_number=len(self.events) + 1, **fields)
        self.state.apply(event)
        self.events.append(event)
        return self

    def begin(self, task_id: str = RUN) -> Script:
        return self.add(ev.TaskInProgress, task_id)

    def item(self, item: Any, index: int, task_id: str = RUN) -> Script:
        return self.add(ev.OutputItemAdded, task_id, output_index=index, item=item)

    def done(self, item: Any, index: int, task_id: str = RUN) -> Script:
        return self.add(ev.OutputItemDone, task_id, output_index=index, item=item)

    def reasoning(self, index: int, *parts: str, raw: bool = False, task_id: str = RUN) -> Script:
        item = Reasoning(id=f"rs_7_{index}")
        self.item(item, index, task_id)
        for place, text in enumerate(parts):
            self.thought(index, place, text, raw=raw, task_id=task_id)
        return self.done(item, index, task_id)

    def thought(
        self, index: int, place: int, text: str, *, raw: bool = False, task_id: str = RUN
    ) -> Script:
        name = "text_index" if raw else "summary_index"
        classes: Any = (
            (ev.ReasoningTextAdded, ev.ReasoningTextDelta, ev.ReasoningTextDone)
            if raw
            else (ev.SummaryItemAdded, ev.SummaryTextDelta, ev.SummaryItemDone)
        )
        where: Any = {"item_id": f"rs_7_{index}", "output_index": index, name: place}
        self.add(classes[0], task_id, **where, item=Text(text=""))
        for word in pieces(text):
            self.add(classes[1], task_id, **where, delta=word)
        return self.add(classes[2], task_id, **where, item=Text(text=text))

    def call(
        self, index: int, name: str, arguments: str, status: Any = "completed", **fields: Any
    ) -> Script:
        item = ToolCall(id=f"fc_7_{index}", call_id=f"call_{index}", name=name, **fields)
        where: Any = {"item_id": item.id, "output_index": index}
        self.item(item, index)
        for piece in pieces(arguments):
            self.add(ev.ArgumentsDelta, **where, delta=piece)
        if status == "completed":
            self.add(ev.ArgumentsDone, **where, arguments=arguments)
        return self.done(
            ToolCall(id=item.id, call_id=item.call_id, name=name, status=status, **fields),
            index,
        )

    def result(self, index: int, call: int, *blocks: Any, **fields: Any) -> Script:
        item = ToolResult(id=f"fco_7_{index}", call_id=f"call_{call}")
        self.item(item, index)
        for place, block in enumerate(blocks):
            self.block(item.id, index, place, block)
        return self.done(ToolResult(id=item.id, call_id=item.call_id, **fields), index)

    def block(self, item_id: str, index: int, place: int, block: Any) -> Script:
        kinds: dict[str, Any] = {
            "Text": ev.TextDone,
            "Image": ev.ImageDone,
            "Refusal": ev.RefusalDone,
        }
        kinds |= {"Data": ev.DataDone, "File": ev.FileDone}
        where: Any = {"item_id": item_id, "output_index": index, "block_index": place}
        return self.add(kinds[type(block).__name__], **where, item=block)

    def message(
        self, index: int, *blocks: Any, status: Any = "completed", task_id: str = RUN
    ) -> Script:
        """A message whose texts stream and whose other blocks come whole."""
        item = Message(id=f"msg_7_{index}", role="assistant")
        self.item(item, index, task_id)
        for place, block in enumerate(blocks):
            if isinstance(block, Text):
                self.stream(index, place, block, task_id)
            else:
                self.block(item.id, index, place, block)
        return self.done(Message(id=item.id, role="assistant", status=status), index, task_id)

    def stream(self, index: int, place: int, block: Text, task_id: str = RUN) -> Script:
        """A text, word by word, each annotation right after the word that ends it."""
        where: Any = {
            "item_id": f"msg_7_{index}",
            "output_index": index,
            "block_index": place,
        }
        self.add(ev.TextAdded, task_id, **where, item=Text(text=""))
        waiting = list(enumerate(block.annotations))
        length = 0
        for word in pieces(block.text):
            length += len(word)
            self.add(ev.TextDelta, task_id, **where, delta=word)
            while waiting and (getattr(waiting[0][1], "end_index", None) or 0) <= length:
                number, annotation = waiting.pop(0)
                self.add(
                    ev.AnnotationAdded,
                    task_id,
                    **where,
                    annotation_index=number,
                    annotation=annotation,
                )
        return self.add(ev.TextDone, task_id, **where, item=block)

    def asks(self, *calls: int) -> Script:
        """Ask for the approvals of these calls."""
        requests = [
            InputRequest(id=f"apr_{call}", kind="approval", call_id=f"call_{call}")
            for call in calls
        ]
        return self.add(ev.TaskInputRequired, requests=requests)

    def answered(self, call: int, **answer: Any) -> Script:
        return self.add(ev.TaskInputReceived, request_id=f"apr_{call}", **answer)

    def used(self, tokens: int) -> Script:
        return self.add(ev.TaskUsage, usage=Usage(input_tokens=tokens, output_tokens=1))


def pieces(text: str) -> list[str]:
    """A text in pieces of four characters: through words, escapes and markers."""
    return [text[start : start + 4] for start in range(0, len(text), 4)]


def cite(text: str, number: int) -> ReferenceToBlock:
    marker = f"[^{number}]"
    start = text.index(marker)
    return ReferenceToBlock(reference_id=number, start_index=start, end_index=start + len(marker))


ANSWER = "Sunny 🌤️ in Paris.[^1] The report says so too.[^3] And so does the expert.[^4]"


def everything() -> Script:
    """Reasoning, a server's tool with an image, a sub-agent, raw thinking, cited text, usage."""
    run = Script(thread_id="t1", input="Is it sunny?", options={"temperature": 0.5}).begin()
    run.reasoning(0, "Thinking about Paris.", "Let me look it up.")
    run.call(1, "get_weather", '{"city":"Paris \\u2600"}')
    weather = ToolResult(id="fco_7_2", call_id="call_1")
    where: Any = {"item_id": "fco_7_2", "output_index": 2}
    run.item(weather, 2)
    run.add(ev.TextDone, **where, block_index=0, item=Text(text="15 °C, sunny", id=1))
    blank = Image(image_url=ImageUrl(url=""), id=2)
    run.add(ev.ImageAdded, **where, block_index=1, item=blank)
    for number in range(2):
        run.add(
            ev.ImageDelta,
            **where,
            block_index=1,
            partial_image_index=number,
            item=picture(PNG[: 8 * (number + 1)], 2),
        )
    run.add(ev.ImageDone, **where, block_index=1, item=picture(PNG, 2))
    report = File(url="https://files.example/report.pdf", name="report.pdf", id=3)
    run.add(ev.FileDone, **where, block_index=2, item=report)
    run.done(weather, 2)
    run.call(3, "ask_expert", "{}")
    expert = ToolResult(id="fco_7_4", call_id="call_3")
    run.item(expert, 4)
    run.add(ev.TaskCreated, "call_3", parent_task_id=RUN, call_id="call_3", agent="expert")
    run.begin("call_3")
    run.reasoning(0, "The child's own thoughts.", task_id="call_3")
    child = ToolCall(id="fc_7_c1", call_id="call_c1", name="lookup")
    inside: Any = {"item_id": "fc_7_c1", "output_index": 1}
    run.item(child, 1, "call_3")
    run.add(ev.ArgumentsDone, "call_3", **inside, arguments="")
    run.done(child, 1, "call_3")
    found = ToolResult(id="fco_7_c2", call_id="call_c1")
    run.item(found, 2, "call_3")
    inside = {"item_id": "fco_7_c2", "output_index": 2, "block_index": 0}
    run.add(ev.TextDone, "call_3", **inside, item=Text(text="the almanac", id=1))
    run.done(found, 2, "call_3")
    run.message(3, Text(text="It is sunny, says the expert."), task_id="call_3")
    run.add(ev.TaskUsage, "call_3", usage=Usage(input_tokens=10, output_tokens=5))
    run.add(ev.TaskCompleted, "call_3")
    run.add(ev.ReferenceImported, reference_id=4, source_task_id="call_3", source_reference_id=1)
    run.done(expert, 4)
    run.reasoning(5, "Raw thinking.", raw=True)
    run.message(6, Text(text=ANSWER, annotations=[cite(ANSWER, number) for number in (1, 3, 4)]))
    usage = Usage(
        input_tokens=1000,
        output_tokens=500,
        cached_input_tokens=200,
        cache_write_tokens=30,
        reasoning_tokens=40,
    )
    run.add(ev.TaskUsage, usage=usage)
    return run.add(ev.TaskCompleted)


def client_call(status: Any = "completed") -> Script:
    """A run that ends in a call of the client's own tool, whole or cut."""
    run = Script().begin()
    run.message(0, Text(text="Let me ask you."))
    return run.call(1, "pick_color", '{"n":3}', status, executor="client")


def failed() -> Script:
    """A run whose model's provider failed in the middle of the answer."""
    run = Script().begin().message(0, Text(text="Half an ans"), status="incomplete")
    error = ErrorInfo(code="provider_overloaded", message="The provider is overloaded.")
    return run.add(ev.TaskFailed, error=error)


def superseded() -> Script:
    """A run that was begun again after half an answer, and completed."""
    run = Script().begin().message(0, Text(text="Half an ans"), status="incomplete")
    run.add(ev.TaskAttempt, attempt=2, reason="worker_lost", superseded=["msg_7_0"])
    run.message(1, Text(text="A whole answer."))
    return run.add(ev.TaskCompleted)


def cancelled() -> Script:
    """A run that was stopped while a tool was running."""
    run = Script().begin().message(0, Text(text="I will look"))
    run.call(1, "get_weather", '{"city":"Paris"}')
    return run.add(ev.TaskCancelled, reason="stopped by the user")


ASKED: Any = {"needs_approval": True}


def approved_twice() -> Script:
    """A run with two pauses: a message and a call, two calls at once, then the answer."""
    run = Script().begin().message(0, Text(text="One moment.")).used(100)
    run.call(1, "send_mail", '{"to":"bob"}', **ASKED).asks(1)
    run.answered(1, approved=True).result(2, 1, Text(text="sent"))
    run.call(3, "pay", "{}", **ASKED).call(4, "book", "{}", **ASKED).asks(3, 4).used(20)
    run.answered(4, approved=True).answered(3, approved=False, reason="Too much.")
    run.result(5, 3, Text(text="denied"), status="failed").result(6, 4, Text(text="booked"))
    return run.message(7, Text(text="Done.")).used(3).add(ev.TaskCompleted)


def recovered() -> list[ev.AnyEvent]:
    """A lost attempt after 350 messages: clients that come later are sent thousands of frames."""
    script = Script().begin()
    for index in range(350):
        script.message(index, Text(text="x"))
    script.item(Message(id="msg_7_350", role="assistant"), 350)
    script.done(Message(id="msg_7_350", role="assistant", status="incomplete"), 350)
    script.add(ev.TaskAttempt, attempt=2, reason="worker_lost", superseded=["msg_7_350"])
    return script.message(351, Text(text="x")).add(ev.TaskCompleted).events
