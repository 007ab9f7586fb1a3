"""Rules of the Responses ingest over many streams, its errors and its limits.

Single streams and their objects are in `cases/openai-responses`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.core.errors import MalformedEvent, StreamTooLarge
from tailrace.ingest.base import Notebook, Outcome
from tailrace.ingest.openai_responses.reader import OpenAIResponses
from tests.ingest import streams
from tests.ingest.streams import kept_raw

Json = dict[str, Any]


def event(kind: str, **fields: Any) -> Json:
    return {"type": f"response.{kind}", **fields}


def text(piece: str, item_id: str | None = "msg_1", index: int | None = 0, **more: Any) -> Json:
    return event("output_text.delta", item_id=item_id, output_index=index, delta=piece, **more)


def arguments(piece: str, item_id: str | None = "fc_1", index: int | None = 0) -> Json:
    place = {"item_id": item_id, "output_index": index}
    return event("function_call_arguments.delta", **place, delta=piece)


def added(index: Any, item: Json) -> Json:
    return event("output_item.added", output_index=index, item=item)


def done(index: Any, item: Json) -> Json:
    return event("output_item.done", output_index=index, item=item)


def message(*texts: str, item_id: str = "msg_1", **more: Any) -> Json:
    content = [{"type": "output_text", "text": one, "annotations": []} for one in texts]
    return {"type": "message", "id": item_id, "role": "assistant", "content": content, **more}


def call(given: str | None = None, item_id: str = "fc_1", **more: Any) -> Json:
    item = {"type": "function_call", "id": item_id, "call_id": "call_1", "name": "weather", **more}
    return item if given is None else {**item, "arguments": given}


def completed(*output: Json, **response: Any) -> Json:
    return event("completed", response={"id": "resp_1", "output": list(output), **response})


def read(*events: Json, **options: Any) -> tuple[Notebook, Outcome]:
    lines = [json.dumps(one) for one in events]
    book, outcome = streams.ingested(lambda sink: OpenAIResponses(sink, **options), lines)
    kept = list(book._written)
    streams.check_readable(book)
    book._written = kept
    return book, outcome


def output(*events: Json, **options: Any) -> list[Json]:
    book, _ = read(*events, **options)
    found: list[Json] = streams.shown(book)["output"]
    return found


def texts(item: Json) -> list[str]:
    return [block.get("text", block.get("refusal")) for block in item["block_list"]]


# --- the document --------------------------------------------------------------------------------

DOCUMENT: list[Json] = json.loads((streams.FIXTURES / "openai-document.json").read_text())


@pytest.mark.parametrize("example", DOCUMENT)
def test_every_example_of_the_document_is_ingested(example: Json) -> None:
    is_event = example["type"].startswith(("response.", "error"))
    book, _ = read(example if is_event else done(0, example))
    assert is_event or [item["type"] for item in streams.shown(book)["output"]]


def test_the_examples_of_the_document_form_a_stream() -> None:
    events = [one for one in DOCUMENT if one["type"].startswith("response.")]
    events = [one for one in events if one["type"] != "response.incomplete"]
    events.sort(key=lambda one: one["type"] == "response.completed")
    items = [one for one in DOCUMENT if not one["type"].startswith(("response.", "error"))]
    events[-1:-1] = [done(place, item) for place, item in enumerate(items, 5)]
    book, outcome = read(*events)
    assert outcome.status == "completed"
    shown = streams.shown(book)
    assert shown["usage"]["reasoning_tokens"] == 150
    assert shown["usage"]["service_tier"] == "default"
    kinds = [item.get("kind", item["type"]) for item in shown["output"]]
    assert {"web_search", "file_search", "code_interpreter", "image_generation"} <= set(kinds)
    [image] = [one for one in shown["output"] if "generated-image" in json.dumps(one)][-1:]
    assert image["block_list"][0]["image_url"]["url"] == "https://example.com/generated-image.png"


# --- citations -----------------------------------------------------------------------------------


def test_more_citations_than_a_text_can_carry_are_kept_raw() -> None:
    long = {"type": "url_citation", "url": "x" * 300_000}
    cited = event("output_text.annotation.added", annotation=long)
    last = message("Hello")
    last["content"][0]["annotations"] = [long, long, long]
    book, _ = read(text("Hello"), cited, cited, done(0, last))
    [item] = streams.shown(book)["output"]
    assert len(item["block_list"][0]["annotations"]) == 1
    assert item["private"]["raw"] == last
    assert len(kept_raw(book)) == 1


# --- calls ---------------------------------------------------------------------------------------


def test_arguments_that_happen_to_be_json_make_no_call() -> None:
    for events in (
        [added(0, call("")), arguments('{"a":1}')],
        [added(0, call("")), arguments('{"a":1}'), done(0, call())],
        [added(0, call("")), arguments('{"a":1}'), done(0, call(status="in_progress"))],
        [added(0, call("")), done(0, call('{"a":1}', status="in_progress"))],
        [added(0, call("")), arguments('{"a":1}'), event("failed", response={})],
        [added(0, call("")), arguments('{"a":1}'), event("incomplete", response={})],
        [added(0, call("")), done(0, call('{"a":1}', status="incomplete"))],
        [added(0, call("")), arguments("{"), completed()],
        [added(0, call("")), arguments("{"), done(0, call(status="completed"))],
        [event("function_call_arguments.done", item_id="fc_1", arguments="{}", name="weather")],
    ):
        [item] = output(*events)
        assert item["status"] == "incomplete"


def test_arguments_that_were_marked_complete_make_a_call() -> None:
    whole = event("function_call_arguments.done", item_id="fc_1", output_index=0, arguments="{}")
    for events in (
        [added(0, call("")), whole, done(0, call(status="in_progress"))],
        [added(0, call("")), arguments("{}"), done(0, call(status="completed"))],
        [added(0, call("")), done(0, call("{}"))],
        [added(0, call("")), arguments("{}"), completed()],
        [added(0, call("")), completed(call("{}", status="in_progress"))],
        [added(0, call("")), arguments("{}"), whole, whole, completed()],
        [done(0, call("{}")), whole],
    ):
        [item] = output(*events)
        assert "status" not in item
        assert item["arguments"] == "{}"


@pytest.mark.parametrize("part", ['{"a":', "[1,", "-", '{"a":"'])
def test_arguments_that_break_off_make_no_call_whatever_says_that_they_are_whole(
    part: str,
) -> None:
    whole = event("function_call_arguments.done", item_id="fc_1", output_index=0, arguments=part)
    for events in (
        [done(0, call(part, status="completed")), completed()],
        [added(0, call("")), arguments(part[:1]), done(0, call(part)), completed()],
        [added(0, call("")), whole, completed()],
        [added(0, call("")), completed(call(part, status="in_progress"))],
    ):
        book, outcome = read(*events)
        [item] = streams.items(book)
        assert (item["status"], item["arguments"]) == ("incomplete", part)
        assert outcome == Outcome(status="incomplete", reason="truncated_tool_call")


@pytest.mark.parametrize("place", [0, 1, None])
def test_a_call_that_ends_without_its_id_is_found_by_its_place_or_call(place: int | None) -> None:
    last = {**call("{}"), "id": None, "item_id": "fc_1", "output_index": place}
    again = {**call("{}"), "id": "fc_2"}
    streamed = [added(0, call("")), arguments("{}"), done(place, last)]
    [item] = output(*streamed, completed(message("Hi"), again), done(place, last))[:1]
    assert item["arguments"] == "{}"
    assert item["private"] == {"provider": {"api": "openai_responses", "id": "fc_1"}}
    items = output(*streamed, completed(message("Hi"), again))
    assert [one["type"] for one in items] == ["tool_call", "message"]


def test_the_executor_of_a_call_is_asked_by_name() -> None:
    custom = {"type": "custom_tool_call", "id": "c", "name": "x_search", "input": "from:me"}
    items = output(
        done(0, call("{}")),
        done(1, {**custom, "call_id": "c"}),
        executor_of=lambda name: "provider" if name == "x_search" else "client",
    )
    assert [item.get("executor") for item in items] == ["client", "provider", None]
    assert items[1]["kind"] == "custom"
    assert items[2]["block_list"] == []


# --- tools that the provider runs ----------------------------------------------------------------


def test_progress_of_unknown_tools_is_kept_raw() -> None:
    long = event("web_search_call." + "x" * 2000, output_index=0)
    book, _ = read(event("mcp_call.in_progress", output_index=0), event("hologram_call.done"), long)
    assert len(kept_raw(book)) == 3


@pytest.mark.parametrize(
    ("item", "url"),
    [
        ({"result": "iVBORw0K"}, "data:image/png;base64,iVBORw0K"),
        ({"result": "/9j/4AAQ"}, "data:image/jpeg;base64,/9j/4AAQ"),
        ({"result": "AAAA"}, "data:image/png;base64,AAAA"),
        ({"result": "AAAA", "output_format": "jpg"}, "data:image/jpeg;base64,AAAA"),
        ({"result": "https://a.example/x.png"}, "https://a.example/x.png"),
    ],
)
def test_images_come_as_base64_or_urls(item: Json, url: str) -> None:
    given = {"type": "image_generation_call", "id": "ig_1", "prompt": "A cat.", **item}
    drawn, result = output(done(0, given))
    assert json.loads(drawn["arguments"]) == {"prompt": "A cat."}
    assert [block["image_url"]["url"] for block in result["block_list"]] == [url]


@pytest.mark.parametrize(
    ("item", "kind", "arguments"),
    [
        ({"type": "shell_call", "action": {"commands": ["ls"]}}, "shell", {"commands": ["ls"]}),
        (
            {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"]}},
            "local_shell",
            {"type": "exec", "command": ["ls"]},
        ),
        (
            {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}},
            "apply_patch",
            {"type": "delete_file", "path": "a"},
        ),
        ({"type": "computer_call", "action": {"type": "click"}}, "computer", {"type": "click"}),
        (
            {"type": "computer_call", "actions": [{"type": "wait"}]},
            "computer",
            {"actions": [{"type": "wait"}]},
        ),
        ({"type": "computer_call", "action": None}, "computer", {}),
    ],
)
def test_a_shell_a_patch_and_a_computer_are_calls_for_us_to_carry_out(
    item: Json, kind: str, arguments: Any
) -> None:
    whole = {**item, "id": "x_1", "call_id": "c", "status": "completed"}
    begun = {"type": item["type"], "id": "x_1", "call_id": "c", "status": "in_progress"}
    for stream in ((added(0, begun), done(0, whole)), (added(0, begun), completed(whole))):
        [call] = output(*stream)
        assert (call["kind"], call["name"], call["call_id"]) == (kind, kind, "c")
        assert call.get("executor", "server") == "server"
        assert json.loads(call["arguments"]) == arguments
        assert call["private"]["raw"] == whole
    # A call that began and never ended is not run.
    for last in ([], [completed()]):
        [call] = output(added(0, begun), *last)
        assert call["status"] == "incomplete"


# --- the response --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "status", "wanted"),
    [
        ("completed", "incomplete", "incomplete"),
        ("completed", "failed", "failed"),
        ("done", None, "completed"),
        ("cancelled", "cancelled", "incomplete"),
        ("incomplete", ["junk"], "incomplete"),
    ],
)
def test_the_status_of_the_response_decides(kind: str, status: Any, wanted: str) -> None:
    _, outcome = read(event(kind, response={"status": status}))
    assert outcome.status == wanted
    assert outcome.status != "failed" or outcome.error is not None
    assert kind != "cancelled" or outcome.reason == "cancelled"


# --- foreign data --------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["[DONE]", b"[DONE]"], ids=["text", "bytes"])
def test_the_end_of_a_chat_stream_is_ignored(stop: str | bytes) -> None:
    book = Notebook()
    ingest = OpenAIResponses(book)
    ingest.feed(json.dumps(completed()))
    ingest.feed(stop)
    assert ingest.end().status == "completed"
    assert kept_raw(book) == []


@pytest.mark.parametrize(
    "strange",
    [
        {"type": "response.hologram.delta", "delta": "x"},
        {"type": 7},
        {},
        {"type": "response.output_text.delta", "delta": None, "output_index": 0},
        {"type": "response.output_item.added", "item": []},
        {"type": "response.output_item.done", "item": {"type": 7}},
        {"type": "response.output_text.done", "text": 7},
        {"type": "response.content_part.done", "part": "x"},
        {"type": "response.content_part.added", "part": {"type": ["x"]}},
    ],
)
def test_events_without_a_known_name_or_with_wrong_types_are_kept_raw(strange: Json) -> None:
    book, _ = read(strange)
    [(_, raw)] = kept_raw(book)
    assert raw == strange


def test_data_that_is_not_json_is_refused_and_changes_nothing() -> None:
    book = Notebook()
    ingest = OpenAIResponses(book)
    ingest.feed(json.dumps(text("Hel")))
    for junk in ("", "{", "[]", "7", b"\xff", '{"type":"response.output_text.delta","delta":"x"'):
        with pytest.raises(MalformedEvent):
            ingest.feed(junk)
    ingest.feed(json.dumps(text("lo")))
    book.conclude(ingest.end())
    assert texts(streams.shown(book)["output"][0]) == ["Hello"]


def test_events_and_texts_that_are_too_large_are_refused_and_the_rest_stands() -> None:
    book = Notebook()
    ingest = OpenAIResponses(book)
    piece = "x" * (8 * 1024 * 1024)
    ingest.feed(json.dumps(text(piece)))
    for heavy in (text(piece), text(piece * 2), added(1, {"type": "hologram", "x": piece * 2})):
        with pytest.raises(StreamTooLarge):
            ingest.feed(json.dumps(heavy))
    with pytest.raises(StreamTooLarge):
        ingest.feed(piece * 2)
    book.conclude(ingest.end())
    assert texts(streams.shown(book)["output"][0]) == [piece]


def test_a_final_response_may_repeat_more_than_an_event_can_hold() -> None:
    picture = "A" * (8 * 1024 * 1024)
    items = [
        {"type": "image_generation_call", "id": f"ig_{n}", "result": picture, "status": "completed"}
        for n in range(2)
    ]
    shown = output(*(done(n, item) for n, item in enumerate(items)), completed(*items))
    assert [item["type"] for item in shown] == ["tool_call", "tool_result"] * 2
    huge = {"type": "image_generation_call", "id": "ig_9", "result": picture * 2}
    [item] = output(completed(huge))
    assert item["status"] == "incomplete"
