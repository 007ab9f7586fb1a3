"""Golden traces sent as `vercel-ui` and as `run`, and read back: people see the same run."""

from __future__ import annotations

import json
from typing import Any

from tailrace.core.errors import StreamCut
from tailrace.core.fold import State
from tailrace.core.run_object import client_view
from tailrace.testing.wire_kit import as_recorded
from tailrace.wire import run, vercel_ui
from tests.convert import essence
from tests.convert.streams import converted, data_of, ended, frames_of
from tests.convert.test_task_source import every_log
from tests.effort import CUTS, sample
from tests.node import run_node
from tests.traces import LOGS, Trace
from tests.wire.vercel_checker import UiReader, responses_of

Json = dict[str, Any]
Says = dict[tuple[str, str], Any]

NOT_ANSWERED = "The run ended before this tool did."
LOST = "The tool was interrupted."
URL = '{"end_index": 5, "start_index": 0, "type": "url_citation", "url": "/"}'
CITED = '{"end_index": 10, "reference_id": 1, "start_index": 6, "type": "reference_to_block"}'
FILE = '{"file_id": "f", "type": "file_citation"}'

# Where the format itself differs from the view.
UI_SAYS: Says = {
    # A message names the agent that began.
    ("handoff", "agent"): "triage",
    # A call of ours without a result is sent as failed: it will get no answer.
    ("json_arguments_split_in_escape", "results"): [("open", "failed", NOT_ANSWERED)] * 2,
    # Of a reasoning that has both, the raw text, because it came first.
    ("reasoning_raw_and_summary", "thoughts"): [
        "Hmm, Paris. Capital of France.",
        "Second thought.",
        "Nothing more to look up.",
    ],
    # A marker of a known number is a citation, also where its writer has made none of it.
    ("defaults_spelt_out", "blocks"): [("text", "found [^1]", [CITED, URL, FILE], None)],
}
LIVE_SAYS: Says = {
    # A result was sent before it was superseded, and what was completed cannot be taken back.
    ("superseded_container", "results"): [("ask_for_help", "failed", LOST)],
    # What happens while the run waits is sent when it goes on.
    ("input_required", "blocks"): [],
    ("input_required", "requests"): [("input", "Which size?"), ("input", "Which colour?")],
}
REPLAY_SAYS: Says = {
    # It has no result any more, and the run is over.
    ("superseded_container", "results"): [("ask_for_help", "failed", NOT_ANSWERED)],
}
SAYS_LESS_AT_FIRST = (
    "cancelled_with_children",
    "input_required",
    "recovered_attempt",
    "superseded_container",
)
"""Joined in the middle, these send what is taken back or changed later."""


def state_of(trace: Trace, count: int | None = None) -> State:
    state = State()
    for event, _ in trace.events[:count]:
        state.absorb(event)
    return state


def last_response(frames: list[bytes]) -> bytes:
    """What a client holds in the end: after a pause the whole message is sent again."""
    responses = responses_of(frames)
    return responses[-1].encode() if responses else b"".join(frames)


def ui_stream(trace: Trace, joined_after: int = 0) -> bytes:
    """What a client gets that joins after so many events."""
    encoder, frames = vercel_ui.FORMAT.open(state_of(trace, joined_after))
    for one in as_recorded([event for event, _ in trace.events[joined_after:]]):
        frames += encoder.encode(one)
    return last_response(frames)


def compare(trace: Trace, source: bytes, says: Says, source_format: str = "vercel-ui") -> None:
    essence_of = essence.of_run if source_format == "run" else essence.of_ui
    shown = essence_of(json.loads(converted(source, source_format, "json")))
    wanted = essence_of(client_view(state_of(trace)))
    for name, value in wanted.items():
        assert shown[name] == says.get((trace.name, name), value), name


@every_log
def test_a_ui_message_read_back_is_the_run(trace: Trace) -> None:
    compare(trace, ui_stream(trace), UI_SAYS | LIVE_SAYS)


@every_log
def test_a_ui_message_that_is_replayed_reads_back_as_the_run(trace: Trace) -> None:
    count = len(trace.events)
    compare(trace, ui_stream(trace, count), UI_SAYS | REPLAY_SAYS)
    places = range(1, count) if trace.name not in SAYS_LESS_AT_FIRST else ()
    for joined_after in sample(places, CUTS // 2):
        compare(trace, ui_stream(trace, joined_after), UI_SAYS | REPLAY_SAYS)


# --- the run envelope ----------------------------------------------------------------------------

RUN_SAYS: Says = {
    # Two blocks that stream at once are one text in order of arrival.
    ("streamed_text", "texts"): [
        'Once uponline 1\n a time.line 2\r\n\ttab, "quotes", back\\slash, \u2028 and \x7fWhole.'
    ],
    ("superseded_container", "results"): [("ask_for_help", False, "Asking.", [])],
}


def run_stream(trace: Trace) -> bytes:
    encoder = run.FORMAT.at(State())
    frames = [encoder.encode(one) for one in as_recorded([event for event, _ in trace.events])]
    return run.FORMAT.preamble() + b"".join(frame for one in frames for frame in one)


@every_log
def test_a_run_read_back_is_the_run(trace: Trace) -> None:
    compare(trace, run_stream(trace), RUN_SAYS, "run")


@every_log
def test_a_run_that_comes_again_after_a_gap_is_written_once(trace: Trace) -> None:
    once = json.loads(converted(run_stream(trace), "run", "json"))
    for count in sample(range(2, len(trace.events)), CUTS // 2):
        state = state_of(trace, count)
        encoder = run.FORMAT.at(State())
        frames = []
        for one in as_recorded([event for event, _ in trace.events[: count // 2]]):
            frames += encoder.encode(one)
        frames.append(run.FORMAT.gap(state, 1, "trimmed"))
        encoder, opened = run.FORMAT.open(state)
        frames += opened
        for one in as_recorded([event for event, _ in trace.events[count:]]):
            frames += encoder.encode(one)
        converted_again = data_of(converted(b"".join(frames), "run", "run"))
        starts = [
            one["data"]["messageId"] for one in converted_again if one["type"] == "text.start"
        ]
        assert len(starts) == len(set(starts))
        twice = json.loads(converted(b"".join(frames), "run", "json"))
        if trace.name not in DIFFERENT_AGAIN:
            assert texts_and_calls(twice) == texts_and_calls(once)


DIFFERENT_AGAIN = ("provider_retry", "recovered_attempt", "superseded_container", "streamed_text")
"""A replay leaves out what was superseded, and tells blocks that streamed at once one by one."""


def texts_and_calls(view: Json) -> Json:
    shown = essence.of_run(view)
    return {name: sorted(map(repr, shown[name])) for name in ("texts", "calls", "results")}


# --- there and back again ------------------------------------------------------------------------


@every_log
def test_a_ui_message_converted_to_itself_is_the_same_message(trace: Trace) -> None:
    source = ui_stream(trace)
    again = converted(source, "vercel-ui", "vercel-ui")
    before, after = UiReader(), UiReader()
    first, second = shown_parts(before, source), shown_parts(after, again)
    assert after.ending == before.ending
    if trace.name not in DIFFERENT_IN_UI:
        assert first == second
    once_more = converted(again, "vercel-ui", "vercel-ui")
    assert shown_parts(UiReader(), once_more) == shown_parts(UiReader(), again)


DIFFERENT_IN_UI = ("cancelled_with_children", "superseded_container")
"""A result that was cut is sent as failed; a result that was taken back stays (see above)."""


def shown_parts(reader: UiReader, stream: bytes) -> list[str]:
    """The parts of a message as people see them, ids left out."""
    reader.read(frames_of(as_first(stream)))
    return shown(reader.parts)


def shown(parts: list[Json]) -> list[str]:
    return sorted(json.dumps(one, sort_keys=True) for part in parts if (one := shown_part(part)))


def as_first(stream: bytes) -> bytes:
    """A response after a pause for a client that does not have the message yet."""
    return stream.replace(b'"reset-step"', b'"start-step"', b'"start-step"' not in stream)


def shown_part(part: Json) -> Json:
    """One part of the root without ids and citations: those are compared above."""
    if part["type"].startswith("source-") or part["type"] in ("data-task", "data-task-item"):
        return {}
    if isinstance(part.get("output"), list):
        own = [one for one in part["output"] if one.get("type") != "task"]
        part = {**part, "output": own}
    return {k: v for k, v in part.items() if k not in ("id", "citations")}


def test_the_ai_sdk_reads_a_converted_message_as_it_reads_the_message() -> None:
    sources = [as_first(ui_stream(trace)) for trace in LOGS]
    again = [converted(source, "vercel-ui", "vercel-ui") for source in sources]
    runs = json.dumps([[one.decode()] for one in [*sources, *again]])
    read = json.loads(run_node(["vercel_read.mjs"], stdin=runs, timeout=120))
    for trace, first, second in zip(LOGS, read[: len(LOGS)], read[len(LOGS) :], strict=True):
        assert first["errors"] == second["errors"]
        if trace.name not in DIFFERENT_IN_UI:
            assert shown(first["message"]["parts"]) == shown(second["message"]["parts"])


# --- framing and names ---------------------------------------------------------------------------

HELLO = next(trace for trace in LOGS if trace.name == "hello")


def test_a_stream_may_be_json_lines() -> None:
    for from_, source in (("vercel-ui", ui_stream(HELLO)), ("run", run_stream(HELLO))):
        converted_again = [line[6:] for line in source.split(b"\n") if line.startswith(b"data: ")]
        assert converted(b"\n".join(converted_again), from_, "jsonl") == converted(
            source, from_, "jsonl"
        )


def test_a_run_keeps_its_id_and_a_run_without_an_id_gets_the_given_id() -> None:
    for from_, source in (("vercel-ui", ui_stream(HELLO)), ("run", run_stream(HELLO))):
        named = json.loads(converted(source, from_, "json", run_id="run_9"))
        assert named["task_id"] == client_view(state_of(HELLO))["task_id"]
        nameless = json.loads(converted(b"data: {}\n\n", from_, "json", run_id="run_9"))
        assert nameless["task_id"] == "run_9"


def test_done_completes_a_message_that_says_nothing_of_its_end() -> None:
    text = b'data: {"type":"text-delta","id":"0","delta":"Hi"}\n\n'
    for last, status, is_cut in (
        (b"", "incomplete", True),
        (b"data: [DONE]\n\n", "completed", False),
    ):
        out, transcoder = ended(text + last, "vercel-ui", "json")
        assert json.loads(out)["status"] == status
        assert isinstance(transcoder.error, StreamCut) == is_cut


def test_of_a_threads_stream_one_run_is_read() -> None:
    second = run_stream(HELLO).replace(b'"runId":"', b'"runId":"other_')
    for from_, source in (
        ("run", run_stream(HELLO) + second),
        ("vercel-ui", ui_stream(HELLO).replace(b"data: [DONE]\n\n", b"") * 2),
    ):
        if from_ == "vercel-ui":
            head, _, tail = source.rpartition(b'"task_id":"')
            source = head + b'"task_id":"other_' + tail
        out, transcoder = ended(source, from_, "json")
        assert json.loads(out)["status"] == "completed"
        assert "one run at a time" in str(transcoder.error)
