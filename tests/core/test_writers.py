"""The writers keep the protocol's order, whatever they are given and however often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tailrace.core import codec
from tailrace.core import events as ev
from tailrace.core.errors import InvalidValue, NotDrained, StreamTooLarge
from tailrace.core.items import (
    Data,
    ErrorInfo,
    FileCitation,
    Image,
    ImageUrl,
    RawAnnotation,
    Refusal,
    Text,
    UrlCitation,
)
from tailrace.core.run_object import client_view
from tailrace.core.writers import ArgumentsWriter, MessageWriter, ReasoningWriter, ResultWriter
from tailrace.ingest.base import Notebook, Outcome
from tests.ingest import streams


def shown(book: Notebook) -> list[dict[str, Any]]:
    book.conclude(Outcome(status="completed"))
    output: list[dict[str, Any]] = client_view(book.state)["output"]
    streams.check_readable(book)
    return output


def finished_call(book: Notebook) -> ArgumentsWriter:
    call = ArgumentsWriter(book, "look", call_id="call_1")
    call.finish()
    return call


# --- texts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [{"city": "Paris"}, 15, b"Hello", ["Hello"]])
def test_a_piece_that_is_not_a_string_is_refused_and_leaves_the_text_as_it_was(piece: Any) -> None:
    book = Notebook()
    message = MessageWriter(book)
    message.text("Hel")
    thinking = ReasoningWriter(book)
    call = ArgumentsWriter(book, "look", call_id="call_1")
    for add in (message.text, thinking.summary, call.arguments):
        with pytest.raises(InvalidValue, match=r"Pass a string.*json\.dumps"):
            add(piece)
    message.text("lo")
    for writer in (call, thinking, message):
        writer.finish()
    assert shown(book)[0]["block_list"][0]["text"] == "Hello"


class Accessor(str):
    """Like the `text` of a LangChain message."""

    __slots__ = ()

    def __str__(self) -> str:
        return "other words"


def test_a_subclass_of_a_string_is_written_as_its_characters() -> None:
    book = Notebook()
    message, thinking = MessageWriter(book), ReasoningWriter(book)
    call = ArgumentsWriter(book, "look", call_id="call_1")
    message.text(Accessor("Hello"))
    thinking.summary(Accessor("Hm."))
    call.arguments(Accessor("{}"))
    for writer in (call, thinking, message):
        writer.finish()
    item, thought, asked = shown(book)
    assert item["block_list"][0]["text"] == "Hello"
    assert thought["summary"][0]["text"] == "Hm."
    assert asked["arguments"] == "{}"


def test_a_web_page_is_cited_for_the_text_before_it_or_for_a_text_of_its_own() -> None:
    book = Notebook()
    message = MessageWriter(book)
    message.cite("https://a.example", text="Sunny")
    message.text(" today [")
    message.cite("https://b.example", "Weather")
    message.cite("https://c.example", text="in Paris.")
    message.next_block()
    with pytest.raises(InvalidValue, match=r"No text to cite 'https://d\.example' for"):
        message.cite("https://d.example")
    message.finish()
    [text] = shown(book)[0]["block_list"]
    assert text["text"] == "Sunny today [in Paris."
    assert [(note["start_index"], note["end_index"]) for note in text["annotations"]] == [
        (0, 5),
        (5, 13),
        (13, 22),
    ]
    assert text["annotations"][1]["title"] == "Weather"


def test_a_text_that_is_cited_already_is_not_cited_again() -> None:
    message = MessageWriter(Notebook())
    message.cite("https://a.example", text="Sunny.")
    with pytest.raises(InvalidValue, match="pass `text=`"):
        message.cite("https://b.example")


def test_a_whole_text_adds_what_is_missing() -> None:
    book = Notebook()
    message = MessageWriter(book)
    for block in (message.text_block(), message.refusal_block()):
        block.add("He")
        block.add("")
        assert block.fill("Hello")
        block.done("Hello there")
        block.done("Hello there, again")
        assert block.fill("Hello there")
        assert not block.fill("Hello there, again")
    message.finish()
    message.finish()
    [item] = shown(book)
    assert [one.get("text", one.get("refusal")) for one in item["block_list"]] == [
        "Hello there",
        "Hello there",
    ]


def test_a_text_that_contradicts_what_was_shown_is_dropped() -> None:
    book = Notebook()
    message = MessageWriter(book)
    block = message.text_block()
    block.add("Hello")
    assert not block.fill("Hell")
    assert not block.fill("Goodbye")
    block.done("Goodbye")
    assert block.text == "Hello"
    assert block.length == 5


def test_markers_become_citations_wherever_they_are_cut() -> None:
    book = Notebook(reference_start=2)
    message = MessageWriter(book)
    for piece in ("See ", "[^", "1] and [^9", "] and [^"):
        message.text(piece)
    message.finish()
    [item] = shown(book)
    [block] = item["block_list"]
    assert block["text"] == "See [^1] and [^9] and [^"
    assert [one["start_index"] for one in block["annotations"]] == [4]


def test_a_citation_of_the_provider_fits_or_is_kept_raw() -> None:
    book = Notebook()
    message = MessageWriter(book)
    block = message.text_block()
    block.add("See [^")  # held back, as it may become a marker
    block.annotate(UrlCitation(url="u", start_index=0, end_index=6))
    block.annotate(UrlCitation(url="u", start_index=0, end_index=7))
    block.annotate(FileCitation(file_id="f"))
    block.annotate(FileCitation(file_id="f", start_index=1))
    block.annotate(RawAnnotation(raw=7))
    message.finish()
    [item] = shown(book)
    kinds = [one["type"] for one in item["block_list"][0]["annotations"]]
    assert kinds == ["url_citation", "raw", "file_citation", "raw", "raw"]


def test_a_text_grows_no_larger_than_one_event_can_repeat() -> None:
    book = Notebook()
    message = MessageWriter(book)
    block = message.text_block()
    piece = "\x01" * (1024 * 1024)  # six bytes each in JSON
    block.add(piece)
    block.add(piece)
    with pytest.raises(StreamTooLarge):
        block.add(piece)
    assert block.length == 2 * len(piece)
    block.add("x" * (2 * 1024 * 1024))
    with pytest.raises(StreamTooLarge):
        block.add("\x01" * 300_000)
    message.finish()
    [item] = shown(book)
    assert len(item["block_list"][0]["text"]) == 4 * 1024 * 1024


def test_citations_beyond_one_event_are_refused_and_the_text_can_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(codec, "MAX_OPEN_BYTES", 5000)
    book = Notebook()
    message = MessageWriter(book)
    block = message.text_block()
    block.add("cited")
    with pytest.raises(StreamTooLarge, match="new part"):  # noqa: PT012
        for _ in range(100):
            block.annotate(FileCitation(file_id="f" * 100))
    message.finish()
    [item] = shown(book)
    assert 20 < len(item["block_list"][0]["annotations"]) < 50


def test_a_call_whose_arguments_or_id_are_long_can_be_closed() -> None:
    book = Notebook()
    call = ArgumentsWriter(book, "f", call_id="x" * 20_000)
    assert len(call.call_id) < 100
    call.arguments("1" * 100_000)
    call.finish()
    [item] = client_view(book.state)["output"]
    assert len(item["arguments"]) == 100_000
    done = [event for event, _ in book.take() if isinstance(event, ev.OutputItemDone)]
    assert done[0].item.arguments is None  # type: ignore[union-attr]


class FullSink(Notebook):
    """A sink that refuses every event while it is `full`."""

    full = False

    def emit(self, event: ev.Event, private: ev.Private | None = None) -> None:
        if self.full:
            raise NotDrained("The sink is full.")
        super().emit(event, private)


def test_a_piece_that_the_sink_refuses_leaves_the_writer_at_the_state() -> None:
    book = FullSink(reference_start=2)
    thinking, message = ReasoningWriter(book), MessageWriter(book)
    call = ArgumentsWriter(book, "look", call_id="call_1")
    refusal, image = message.refusal_block(), message.image_block()
    thinking.summary("a")
    message.text("See [^")
    text = message.text_block()
    text.add("b")
    writes: list[Callable[[], object]] = [
        lambda: thinking.summary("x"),
        lambda: message.text("1] x"),
        lambda: text.annotate(UrlCitation(url="u", start_index=0, end_index=1)),
        lambda: refusal.add("x"),
        lambda: image.partial("https://a.example/x"),
        lambda: image.done("https://a.example/x"),
        lambda: call.arguments("x"),
        call.arguments_done,
        call.finish,
        thinking.next_part,
        thinking.finish,
        message.next_block,
        message.finish,
    ]
    for write in writes:
        book.full = True
        with pytest.raises(NotDrained):
            write()
        book.full = False
    message.text("")
    call.arguments("{}")
    for writer in (call, thinking, message):
        writer.finish()
    items = shown(book)
    assert items[0]["summary"] == [{"type": "text", "text": "a"}]
    assert [one.get("text") for one in items[1]["block_list"]] == [None, None, "See [^", "b"]
    assert items[2]["arguments"] == "{}"


def test_a_marker_goes_on_after_a_piece_that_the_sink_refused() -> None:
    book = FullSink(reference_start=2)
    message = MessageWriter(book)
    message.text("See [^")
    book.full = True
    with pytest.raises(NotDrained):
        message.text("9] and ")
    book.full = False
    message.text("1].")
    message.finish()
    [item] = shown(book)
    [block] = item["block_list"]
    assert block["text"] == "See [^1]."
    assert [one["start_index"] for one in block["annotations"]] == [4]


def test_a_result_that_the_sink_refuses_to_close_is_closed_later() -> None:
    book = FullSink()
    result = ResultWriter(book, finished_call(book).call_id)
    error = ErrorInfo(code="late", message="Too late.")
    closes: list[Callable[[], None]] = [result.finish, lambda: result.fail(error)]
    for close in closes:
        book.full = True
        with pytest.raises(NotDrained):
            close()
        book.full = False
        assert result.is_open
    result.fail(error)
    assert shown(book)[1]["status"] == "failed"


# --- items ---------------------------------------------------------------------------------------


def test_reasoning_has_parts_of_a_summary_and_of_the_raw_text() -> None:
    book = Notebook()
    reasoning = ReasoningWriter(book)
    reasoning.next_part()
    for piece in ("First", "."):
        reasoning.summary(piece)
    reasoning.next_part()
    reasoning.summary("Then.")
    reasoning.text_part().add("Hm.")
    reasoning.finish(private=ev.Private(encrypted_content="sealed"))
    reasoning.finish()
    [item] = shown(book)
    assert [part["text"] for part in item["summary"]] == ["First.", "Then."]
    assert [part["text"] for part in item["reasoning_text"]] == ["Hm."]
    assert book.node.items[0].private == {"encrypted_content": "sealed"}


def test_large_content_is_not_repeated() -> None:
    book = Notebook()
    heavy = "x" * 70_000
    reasoning, message = ReasoningWriter(book), MessageWriter(book)
    reasoning.summary(heavy)
    reasoning.finish()
    message.text(heavy)
    message.finish()
    result = ResultWriter(book, finished_call(book).call_id)
    result.whole(Data(data=heavy))
    assert result.blocks == [Data(data=heavy)]
    result.finish()
    ends = [one for one, _ in book.take() if isinstance(one, ev.OutputItemDone)]
    lists = [getattr(one.item, "block_list", getattr(one.item, "summary", None)) for one in ends]
    assert lists == [None, None, None, None]
    book.conclude(Outcome(status="completed"))
    output = client_view(book.state)["output"]
    assert len(output[0]["summary"][0]["text"]) == len(output[1]["block_list"][0]["text"]) == 70_000


def test_a_message_holds_texts_images_and_whole_blocks() -> None:
    book = Notebook()
    message = MessageWriter(book, phase="commentary")
    message.text("a")
    message.text("b")
    message.next_block()
    message.text("c")
    message.image("https://a.example/2", ["https://a.example/1"])
    message.whole(Refusal(refusal="No."))
    message.text("d")
    message.finish(phase="final_answer")
    [item] = shown(book)
    kinds = [one["type"] for one in item["block_list"]]
    assert kinds == ["text", "text", "image", "refusal", "text"]
    assert item["phase"] == "final_answer"


def test_an_image_sharpens_and_ends_once() -> None:
    book = Notebook()
    message = MessageWriter(book)
    first, second = message.image_block(), message.image_block()
    first.partial("https://a.example/1")
    first.done("https://a.example/2")
    first.done("https://a.example/3")
    second.partial("https://a.example/4")
    message.finish()
    [item] = shown(book)
    urls = [one["image_url"]["url"] for one in item["block_list"]]
    assert urls == ["https://a.example/2", "https://a.example/4"]


def test_a_result_ends_once_well_or_not() -> None:
    book = Notebook()
    error = ErrorInfo(code="late", message="Too late.")
    result = ResultWriter(book, finished_call(book).call_id)
    result.whole(Image(image_url=ImageUrl(url="https://a.example"), id=1))
    result.whole(Text(text="x"))
    result.finish()
    result.fail(error)
    call = ArgumentsWriter(book, "look")
    call.finish()
    failed = ResultWriter(book, call.call_id)
    failed.fail(error)
    failed.finish()
    items = shown(book)
    assert [item.get("status") for item in items] == [None, None, None, "failed"]
    assert [one["type"] for one in items[1]["block_list"]] == ["image", "text"]


def test_a_call_is_whole_or_it_is_not() -> None:
    book = Notebook()
    whole, cut = ArgumentsWriter(book, "look"), ArgumentsWriter(book, "look", kind="custom")
    whole.arguments("{")
    whole.arguments("")
    assert not whole.arguments_done("[]")
    assert whole.arguments_done("{}")
    assert whole.arguments_done("{}")
    assert not whole.arguments_done("{}}")
    whole.finish()
    whole.finish("incomplete")
    cut.arguments("se")
    cut.finish("incomplete")
    items = shown(book)
    assert [item["arguments"] for item in items] == ["{}", "se"]
    assert [item.get("status") for item in items] == [None, "incomplete"]
