"""Where a citation stands: code points of the final text, half-open, marker included."""

from __future__ import annotations

from conformance.authoring import Dict, Task, Trace, story


def with_references(trace: Trace, *texts: str) -> Task:
    """A run with one tool result whose blocks are references 1, 2, 3 …"""
    run = trace.task("run_1").created().begin()
    run.whole_call("fc_1", "call_1", "search", "{}")
    result = run.result("fco_2", "call_1")
    for number, words in enumerate(texts, start=1):
        result.text(words, id=number)
    result.done()
    return run


def cited(block: Dict) -> list[tuple[int, int, int]]:
    """(number, start, end) of each citation, after a look at what stands there."""
    found = []
    for note in block["annotations"]:
        place = note["reference_id"], note["start_index"], note["end_index"]
        assert block["text"][place[1] : place[2]] == f"[^{place[0]}]", block
        found.append(place)
    return found


def utf16_length(text: str) -> int:
    """What JavaScript calls the length of a string."""
    return len(text.encode("utf-16-le")) // 2


@story()
def citations_emoji(trace: Trace) -> None:
    """Offsets behind characters that take two UTF-16 units and four bytes."""
    run = with_references(trace, "🌞 32 °C", "🌧️")
    message = run.message("msg_3")
    text = message.open_text()
    text.delta("😀", "🎉 Sunny ☀️").cite(1, "[^", "1]").delta(" 🏳️‍🌈").cite(2).delta("👍🏽")
    text.done()
    message.done()
    run.completed()

    block = trace.view()["output"][2]["block_list"][0]
    assert block["text"] == "😀🎉 Sunny ☀️[^1] 🏳️‍🌈[^2]👍🏽"
    assert cited(block) == [(1, 11, 15), (2, 20, 24)]
    assert len(block["text"]) == 26
    assert utf16_length(block["text"]) == 32


@story()
def citations_cjk(trace: Trace) -> None:
    """Offsets in Chinese, Japanese and Korean text, beyond the basic plane too."""
    run = with_references(trace, "東京 22度", "서울 19도")
    message = run.message("msg_3")
    message.text(
        "東京は晴れ[^1]。",
        annotations=[
            {"type": "reference_to_block", "reference_id": 1, "start_index": 5, "end_index": 9}
        ],
    )
    text = message.open_text()
    text.delta("𠮷野家は", "서울에도 있다").cite(2).delta("。").cite(1)
    text.done()
    message.done()
    run.completed()

    whole, streamed = trace.view()["output"][2]["block_list"]
    assert cited(whole) == [(1, 5, 9)]
    assert streamed["text"] == "𠮷野家は서울에도 있다[^2]。[^1]"
    assert cited(streamed) == [(2, 11, 15), (1, 16, 20)]


@story()
def citations_zwj(trace: Trace) -> None:
    """Joined and combining characters: one to the eye, many to count; deltas cut between them."""
    run = with_references(trace, "👨‍👩‍👧‍👦")
    message = run.message("msg_3")
    text = message.open_text()
    # The family arrives in pieces, and so does an e with its accent.
    text.delta("👨", "\u200d👩", "\u200d", "👧\u200d👦", " cafe", "\u0301").cite(1)
    text.delta(" नि", "🇫", "🇷").cite(1, "[", "^", "1", "]").delta("\u0323")
    text.done()
    message.done()
    run.completed()

    block = trace.view()["output"][2]["block_list"][0]
    assert block["text"] == "👨‍👩‍👧‍👦 cafe\u0301[^1] नि🇫🇷[^1]\u0323"
    assert cited(block) == [(1, 13, 17), (1, 22, 26)]
    assert len("👨‍👩‍👧‍👦") == 7


@story()
def marker_split(trace: Trace) -> None:
    """`[^12]` cut at every place, in several blocks and messages; what is no marker stays text."""
    run = with_references(trace, *(f"source {number}" for number in range(1, 13)))
    marker = "[^12]"
    first = run.message("msg_3")
    for cut in range(1, len(marker)):
        text = first.open_text()
        text.delta(f"cut {cut}: ").cite(12, marker[:cut], marker[cut:])
        text.done()
    first.done()
    second = run.message("msg_4")
    text = second.open_text()
    text.delta("single: ").cite(12, *marker)
    # Joined to its neighbours: the delta that completes a marker may hold more text.
    text.delta(" and [^1")
    text.delta("2]. ")
    text.annotate(type="reference_to_block", reference_id=12, start_index=18, end_index=23)
    text.done()
    third = second.open_text()
    third.delta("[^13] [^0] [^012] [^ 1] [^1", "a] [^१] [^", "] [^12")
    third.done()
    fourth = second.open_text()  # a marker does not span blocks
    fourth.delta("]")
    fourth.done()
    second.done()
    run.completed()

    output = trace.view()["output"]
    for block in output[2]["block_list"]:
        assert cited(block) == [(12, 7, 12)]
    joined, plain, rest = output[3]["block_list"]
    assert joined["text"] == "single: [^12] and [^12]. "
    assert cited(joined) == [(12, 8, 13), (12, 18, 23)]
    assert plain == {"type": "text", "text": "[^13] [^0] [^012] [^ 1] [^1a] [^१] [^] [^12"}
    assert rest == {"type": "text", "text": "]"}


@story()
def later_turn(trace: Trace) -> None:
    """A second turn: numbers go on behind those of the turn before, which can still be cited."""
    run = trace.task("run_2").created(
        agent="assistant",
        thread_id="thread_1",
        previous_run_id="run_1",
        input=[{"role": "user", "content": "And tomorrow?"}],
        reference_start=3,
    )
    run.begin()
    run.whole_call("fc_1", "call_9", "forecast", "{}")
    result = run.result("fco_2", "call_9")
    result.text("Tomorrow: rain", id=3)
    result.text("Today: sunny", id=2)  # equal content keeps the number of the earlier turn
    result.done()
    message = run.message("msg_3")
    text = message.open_text()
    text.delta("Today sun").cite(2).delta(", tomorrow rain").cite(3).delta("; as I said").cite(1)
    text.done()
    message.done()
    run.completed()

    view = trace.view()
    assert view["reference_start"] == 3
    assert view["previous_run_id"] == "run_1"
    assert cited(view["output"][2]["block_list"][0]) == [(2, 9, 13), (3, 28, 32), (1, 43, 47)]
