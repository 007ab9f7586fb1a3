"""Runs for the tests of the UI message stream, event by event, each held to the log's rules."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.items import (
    Annotation,
    Data,
    Image,
    ImageUrl,
    Item,
    Message,
    Reasoning,
    ReferenceToBlock,
    Text,
    ToolCall,
    ToolResult,
    UrlCitation,
    Usage,
)

RUN = "run_7"
PNG = "data:image/png;base64,iVBORw0KGgo="


class Story:
    """Events, each legal after those before."""

    def __init__(self, **facts: Any) -> None:
        self.events: list[ev.Event] = []
        self.state = State()
        self.add(ev.TaskCreated(task_id=RUN, **facts), ev.TaskInProgress(task_id=RUN))

    def add(self, *events: ev.Event) -> Story:
        for event in events:
            numbered = ev.recorded(event, len(self.events) + 1)
            self.state.apply(numbered)
            self.events.append(numbered)
        return self

    def next_index(self, task_id: str) -> int:
        return len(self.state.tasks[task_id].items)

    def begin(self, item: Item, task_id: str = RUN) -> dict[str, Any]:
        """Add an item; the fields with which its parts name it."""
        index = self.next_index(task_id)
        self.add(ev.OutputItemAdded(task_id=task_id, output_index=index, item=item))
        return {"task_id": task_id, "item_id": item.id, "output_index": index}

    def done(self, item: Item, place: dict[str, Any]) -> None:
        task_id, index = place["task_id"], place["output_index"]
        self.add(ev.OutputItemDone(task_id=task_id, output_index=index, item=item))

    def think(self, *pieces: str, ident: str = "rs_0", task_id: str = RUN) -> None:
        item = Reasoning(id=ident)
        at = self.begin(item, task_id)
        self.add(ev.SummaryItemAdded(**at, summary_index=0, item=Text(text="")))
        for piece in pieces:
            self.add(ev.SummaryTextDelta(**at, summary_index=0, delta=piece))
        self.add(ev.SummaryItemDone(**at, summary_index=0, item=Text(text="".join(pieces))))
        self.done(item, at)

    def call(
        self, *pieces: str, call_id: str, name: str = "tool", task_id: str = RUN, **facts: Any
    ) -> ToolCall:
        item = ToolCall(id=f"fc_{call_id}", call_id=call_id, name=name, **facts)
        at = self.begin(item, task_id)
        for piece in pieces:
            self.add(ev.ArgumentsDelta(**at, delta=piece))
        self.add(ev.ArgumentsDone(**at, arguments="".join(pieces)))
        self.done(item, at)
        return item

    def cut_call(self, *pieces: str, call_id: str, **facts: Any) -> None:
        item = ToolCall(id=f"fc_{call_id}", call_id=call_id, name="tool", **facts)
        at = self.begin(item)
        for piece in pieces:
            self.add(ev.ArgumentsDelta(**at, delta=piece))
        self.done(msgspec.structs.replace(item, status="incomplete"), at)

    def result(self, call_id: str, *events: ev.Event, task_id: str = RUN, **end: Any) -> None:
        """A result whose parts are in `events`; they need no place."""
        item = ToolResult(id=f"fco_{call_id}", call_id=call_id)
        at = self.begin(item, task_id)
        for event in events:
            self.add(msgspec.structs.replace(event, **at))
        self.done(msgspec.structs.replace(item, **end), at)

    def say(self, *pieces: str, ident: str = "msg_0", task_id: str = RUN) -> None:
        item = Message(id=ident, role="assistant")
        at = self.begin(item, task_id)
        self.stream_text(at, *pieces)
        self.done(item, at)

    def stream_text(
        self, at: dict[str, Any], *pieces: str | ReferenceToBlock | UrlCitation, block: int = 0
    ) -> None:
        self.add(ev.TextAdded(**at, block_index=block, item=Text(text="")))
        text = ""
        annotations: list[Annotation] = []
        for piece in pieces:
            if isinstance(piece, str):
                self.add(ev.TextDelta(**at, block_index=block, delta=piece))
                text += piece
            else:
                self.add(
                    ev.AnnotationAdded(
                        **at,
                        block_index=block,
                        annotation_index=len(annotations),
                        annotation=piece,
                    )
                )
                annotations.append(piece)
        whole = Text(text=text, annotations=annotations)
        self.add(ev.TextDone(**at, block_index=block, item=whole))

    def complete(self) -> Story:
        return self.add(ev.TaskCompleted(task_id=RUN))


def text_block(index: int, text: str, ident: int | None = None) -> ev.TextDone:
    """A whole text block, for `Story.result`."""
    item = Text(text=text, id=ident)
    return ev.TextDone(task_id="", item_id="", output_index=0, block_index=index, item=item)


def full_story() -> Story:
    """Reasoning, a server tool, a sub-agent, an image, and an answer that cites them."""
    story = Story(agent="assistant", thread_id="chat_1", created_at=1790000000)
    story.think("Thinking ", "about ", "Paris.")
    story.call('{"ci', 'ty":"Par', 'is"}', call_id="call_1", name="get_weather")
    story.result("call_1", text_block(0, "15 °C, sunny 🌤️", 1))

    helper = story.call('{"prompt":"When?"}', call_id="call_2", name="ask_for_help")
    result = ToolResult(id="fco_call_2", call_id=helper.call_id)
    at = story.begin(result)
    child = "call_2"
    story.add(
        ev.TaskCreated(task_id=child, parent_task_id=RUN, call_id=child, agent="helper"),
        ev.TaskInProgress(task_id=child),
    )
    story.think("The child ", "thinks.", ident="rs_c", task_id=child)
    story.call("{}", call_id="call_3", name="lookup", task_id=child)
    story.result("call_3", text_block(0, "At noon.", 1), task_id=child)
    message = Message(id="msg_c", role="assistant")
    place = story.begin(message, child)
    cited = ReferenceToBlock(reference_id=1, start_index=6, end_index=10)
    story.stream_text(place, "Noon.", "🌞[^1]"[:1], "[^1]", cited)
    story.done(message, place)
    story.add(ev.TaskUsage(task_id=child, usage=Usage(input_tokens=7, output_tokens=3)))
    story.add(ev.TaskCompleted(task_id=child))
    imported = ev.ReferenceImported(
        task_id=RUN, reference_id=2, source_task_id=child, source_reference_id=1
    )
    story.add(imported)
    story.done(result, at)

    answer = Message(id="msg_a", role="assistant")
    place = story.begin(answer)
    story.stream_text(
        place,
        "🌤️ It is ",
        "sunny.[^1]",
        ReferenceToBlock(reference_id=1, start_index=15, end_index=19),
        " Go at noon.",
        "[^2]",
        ReferenceToBlock(reference_id=2, start_index=31, end_index=35),
        " More.",
        UrlCitation(url="https://w.example/", start_index=36, end_index=40, title="More"),
    )
    for number, url in enumerate(("", PNG)):
        image = Image(image_url=ImageUrl(url=url))
        event: Any = ev.ImageAdded(**place, block_index=1, item=image)
        if number:
            event = ev.ImageDelta(**place, block_index=1, partial_image_index=0, item=image)
        story.add(event)
    story.add(ev.ImageDone(**place, block_index=1, item=Image(image_url=ImageUrl(url=PNG))))
    story.add(
        ev.DataDone(**place, block_index=2, item=Data(data={"rows": [1, None]}, name="table"))
    )
    story.done(answer, place)
    story.add(ev.TaskUsage(task_id=RUN, usage=Usage(model="m", input_tokens=10, output_tokens=5)))
    return story.complete()
