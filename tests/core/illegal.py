"""For each rule of PROTOCOL.md section 3: beginnings of a run, and a next event that breaks it.

Each example breaks that one rule and no other (`test_illegal.py` holds them to it), so a writer who
refuses it must name the rule. `ILLEGAL` are examples that a person can read; `mutations` spoils any
legal run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import strategies as st

from tailrace.core import events as ev
from tailrace.core.events import Event, Private, recorded
from tailrace.core.items import (
    Data,
    ErrorInfo,
    Image,
    ImageUrl,
    InputRequest,
    Item,
    Message,
    RawItem,
    Reasoning,
    ReferenceToBlock,
    Refusal,
    Text,
    TextPart,
    ToolCall,
    ToolResult,
    UrlCitation,
)
from tailrace.testing.strategies import WrittenRun
from tests.core.naive_rules import NaiveRules

# --- pieces that the examples are put together from ----------------------------------------------

R = "run_1"
C = "call_1"


def added(index: int, item: Item, task: str = R) -> Event:
    return ev.OutputItemAdded(task_id=task, output_index=index, item=item)


def done(index: int, item: Item, task: str = R) -> Event:
    return ev.OutputItemDone(task_id=task, output_index=index, item=item)


def of(index: int, item_id: str, task: str = R) -> dict[str, Any]:
    return {"task_id": task, "item_id": item_id, "output_index": index}


def message(item_id: str, **fields: Any) -> Message:
    return Message(id=item_id, role="assistant", **fields)


def cite(number: int, start: int, end: int) -> ReferenceToBlock:
    return ReferenceToBlock(reference_id=number, start_index=start, end_index=end)


CREATED = ev.TaskCreated(task_id=R)
BEGUN = [CREATED, ev.TaskInProgress(task_id=R)]
IN_MESSAGE = [*BEGUN, added(0, message("msg_0"))]
M0 = of(0, "msg_0")
IN_TEXT = [
    *IN_MESSAGE,
    ev.TextAdded(**M0, block_index=0, item=Text(text="")),
    ev.TextDelta(**M0, block_index=0, delta="Hi 👋 there"),
]
IN_REASONING = [*BEGUN, added(0, Reasoning(id="rs_0"))]
R0 = of(0, "rs_0")

CALL = ToolCall(id="fc_0", call_id=C, name="search")
F0 = of(0, "fc_0")
IN_CALL = [*BEGUN, added(0, CALL), ev.ArgumentsDelta(**F0, delta='{"q":')]
CALLED = [
    *IN_CALL,
    ev.ArgumentsDelta(**F0, delta="1}"),
    ev.ArgumentsDone(**F0, arguments='{"q":1}'),
    done(0, CALL),
]
RESULT = ToolResult(id="fco_1", call_id=C)
O1 = of(1, "fco_1")
IN_RESULT = [*CALLED, added(1, RESULT)]
ANSWERED = [
    *IN_RESULT,
    ev.TextDone(**O1, block_index=0, item=Text(text="found", id=1)),
    done(1, RESULT),
]
CHILD = ev.TaskCreated(task_id=C, parent_task_id=R, call_id=C)
IN_CHILD = [*IN_RESULT, CHILD, ev.TaskInProgress(task_id=C)]
CHILD_WITH_REFERENCE = [
    *IN_RESULT,
    ev.TaskCreated(task_id=C, parent_task_id=R, call_id=C, reference_start=3),
    ev.TaskInProgress(task_id=C),
    ev.TaskCompleted(task_id=C),
]
ASKED = [
    *BEGUN,
    ev.TaskInputRequired(task_id=R, requests=[InputRequest(id="req_1", kind="approval")]),
]
IN_STEPS = [
    *BEGUN,
    ev.StepStarted(task_id=R, step_index=0, name="router"),
    ev.StepStarted(task_id=R, step_index=1, name="worker"),
]
CUT = [*IN_MESSAGE, done(0, message("msg_0", status="incomplete"))]
COMPLETED = ev.TaskCompleted(task_id=R)
ERROR = ErrorInfo(code="internal_error", message="Something broke.")
NOTICE = ev.Notice(task_id=R, message="hi")
PIXEL = ImageUrl(url="data:image/png;base64,iVBORw0KGgo=")
IN_IMAGE = [
    *IN_RESULT,
    ev.ImageAdded(**O1, block_index=0, item=Image(image_url=ImageUrl(url=""), id=1)),
]


def imported(number: int, source: str, source_number: int, task: str = R) -> Event:
    return ev.ReferenceImported(
        task_id=task,
        reference_id=number,
        source_task_id=source,
        source_reference_id=source_number,
    )


_EXAMPLES: dict[str, list[tuple[list[Event], Event]]] = {
    "seq-next": [
        (BEGUN, recorded(NOTICE, 4)),
        (BEGUN, recorded(NOTICE, 2)),
        (BEGUN, recorded(NOTICE, -1)),
        ([], recorded(CREATED, 2)),
    ],
    "root-first": [
        ([], ev.TaskInProgress(task_id=R)),
        ([], CHILD),
        (BEGUN, ev.TaskCreated(task_id="run_2")),
    ],
    "task-new": [
        (IN_CHILD, CHILD),
        (IN_RESULT, ev.TaskCreated(task_id=R, parent_task_id=R, call_id=C)),
    ],
    "task-known": [
        (BEGUN, ev.TaskInProgress(task_id="run_2")),
        (IN_RESULT, ev.TaskInProgress(task_id=C)),
    ],
    "task-live": [
        ([*BEGUN, COMPLETED], NOTICE),
        ([*BEGUN, COMPLETED], COMPLETED),
        ([CREATED, ev.TaskCancelled(task_id=R)], ev.TaskInProgress(task_id=R)),
        ([*IN_CHILD, ev.TaskCompleted(task_id=C)], added(0, message("msg_0"), C)),
    ],
    "task-begun": [
        ([CREATED], NOTICE),
        ([CREATED], COMPLETED),
        ([CREATED], added(0, message("msg_0"))),
        ([CREATED], ev.TaskAttempt(task_id=R, attempt=2, reason="worker_lost")),
        (BEGUN, ev.TaskInProgress(task_id=R)),
        (ASKED, ev.TaskInProgress(task_id=R)),
    ],
    "task-paused": [
        (ASKED, COMPLETED),
        (ASKED, ev.TaskIncomplete(task_id=R, reason="max_turns")),
    ],
    "child-of-open-result": [
        (CALLED, CHILD),
        (ANSWERED, CHILD),
        (IN_RESULT, ev.TaskCreated(task_id=C, parent_task_id="run_2", call_id=C)),
        (IN_RESULT, ev.TaskCreated(task_id="call_2", parent_task_id=R, call_id="call_2")),
        (IN_RESULT, ev.TaskCreated(task_id=C, parent_task_id=R)),
        (
            [*ANSWERED, ev.TaskCompleted(task_id=R)],
            ev.TaskCreated(task_id=C, parent_task_id=R, call_id=C),
        ),
    ],
    "child-id": [
        (IN_RESULT, ev.TaskCreated(task_id="helper", parent_task_id=R, call_id=C)),
    ],
    "children-first": [
        (IN_CHILD, done(1, RESULT)),
        ([*IN_RESULT, CHILD], done(1, RESULT)),
    ],
    "items-closed": [
        (IN_MESSAGE, COMPLETED),
        (IN_MESSAGE, ev.TaskFailed(task_id=R, error=ERROR)),
        (IN_MESSAGE, ev.TaskCancelled(task_id=R)),
    ],
    "steps-closed": [
        (IN_STEPS, COMPLETED),
        (IN_STEPS, ev.TaskCancelled(task_id=R)),
    ],
    "index-next": [
        (BEGUN, added(1, message("msg_0"))),
        (IN_MESSAGE, added(0, message("msg_1"))),
        (IN_MESSAGE, added(2, message("msg_1"))),
        (IN_MESSAGE, ev.TextAdded(**M0, block_index=1, item=Text(text=""))),
        (IN_MESSAGE, ev.TextDone(**M0, block_index=1, item=Text(text="x"))),
        (IN_TEXT, ev.TextAdded(**M0, block_index=0, item=Text(text=""))),
        (IN_REASONING, ev.SummaryItemAdded(**R0, summary_index=1, item=Text(text=""))),
        (IN_REASONING, ev.ReasoningTextAdded(**R0, text_index=1, item=Text(text=""))),
        (BEGUN, ev.StepStarted(task_id=R, step_index=1, name="router")),
        (IN_STEPS, ev.StepStarted(task_id=R, step_index=1, name="router")),
        (
            IN_TEXT,
            ev.AnnotationAdded(
                **M0,
                block_index=0,
                annotation_index=1,
                annotation=UrlCitation(url="/", start_index=0, end_index=2),
            ),
        ),
        (
            IN_IMAGE,
            ev.ImageDelta(
                **O1, block_index=0, partial_image_index=1, item=Image(image_url=PIXEL, id=1)
            ),
        ),
    ],
    "item-id-new": [
        (IN_MESSAGE, added(1, message("msg_0"))),
        (IN_MESSAGE, added(1, Reasoning(id="msg_0"))),
        (CUT, added(1, message("msg_0"))),
    ],
    "item-empty": [
        (BEGUN, added(0, message("msg_0", block_list=[Text(text="x")]))),
        (BEGUN, added(0, Reasoning(id="rs_0", summary=[Text(text="x")]))),
        (BEGUN, added(0, Reasoning(id="rs_0", reasoning_text=[Text(text="x")]))),
        (BEGUN, added(0, ToolCall(id="fc_0", call_id=C, name="search", arguments="{}"))),
        (BEGUN, added(0, message("msg_0", status="in_progress"))),
        (IN_MESSAGE, ev.TextAdded(**M0, block_index=0, item=Text(text="x"))),
        (IN_MESSAGE, ev.RefusalAdded(**M0, block_index=0, item=Refusal(refusal="x"))),
        (IN_REASONING, ev.SummaryItemAdded(**R0, summary_index=0, item=Text(text="x"))),
        (IN_REASONING, ev.ReasoningTextAdded(**R0, text_index=0, item=Text(text="x"))),
    ],
    "item-open": [
        (BEGUN, done(0, message("msg_0"))),
        (CUT, done(0, message("msg_0"))),
        (IN_MESSAGE, ev.TextDone(**of(0, "msg_1"), block_index=0, item=Text(text="x"))),
        (IN_MESSAGE, ev.TextDone(**of(1, "msg_0"), block_index=0, item=Text(text="x"))),
        (CUT, ev.TextDone(**M0, block_index=0, item=Text(text="x"))),
        (CALLED, ev.ArgumentsDelta(**F0, delta=" ")),
    ],
    "item-kind": [
        (IN_MESSAGE, ev.ArgumentsDelta(**M0, delta="{")),
        (IN_MESSAGE, ev.ArgumentsDone(**M0, arguments="{}")),
        (IN_MESSAGE, ev.SummaryItemAdded(**M0, summary_index=0, item=Text(text=""))),
        (IN_MESSAGE, ev.ReasoningTextAdded(**M0, text_index=0, item=Text(text=""))),
        (IN_REASONING, ev.TextAdded(**R0, block_index=0, item=Text(text=""))),
        (IN_REASONING, ev.DataDone(**R0, block_index=0, item=Data(data=1))),
        (IN_CALL, ev.TextDone(**F0, block_index=0, item=Text(text="x"))),
        (
            [*BEGUN, added(0, RawItem(id="raw_0", raw={}))],
            ev.TextDone(**of(0, "raw_0"), block_index=0, item=Text(text="x")),
        ),
    ],
    "item-same": [
        (IN_CALL[:3], done(0, ToolCall(id="fc_0", call_id=C, name="find", status="incomplete"))),
        (
            IN_CALL[:3],
            done(0, ToolCall(id="fc_0", call_id="call_2", name="search", status="incomplete")),
        ),
        (
            IN_CALL,
            done(
                0,
                ToolCall(id="fc_0", call_id=C, name="search", arguments="{}", status="incomplete"),
            ),
        ),
        (IN_MESSAGE, done(0, Reasoning(id="msg_0"))),
        (IN_MESSAGE, done(0, Message(id="msg_0", role="developer"))),
        *(
            (IN_CALL, done(0, msgspec.structs.replace(CALL, status="incomplete", **changed)))
            for changed in (
                {"kind": "mcp"},
                {"executor": "client"},
                {"server_label": "maps"},
                {"needs_approval": True},
            )
        ),
        (IN_MESSAGE, done(0, message("msg_0", block_list=[Text(text="never streamed")]))),
        (
            [*IN_MESSAGE, ev.TextDone(**M0, block_index=0, item=Text(text="x"))],
            done(0, message("msg_0", block_list=[])),
        ),
        (IN_REASONING, done(0, Reasoning(id="rs_0", summary=[Text(text="never streamed")]))),
        (IN_RESULT, done(1, ToolResult(id="fco_1", call_id="call_2"))),
    ],
    "item-status": [
        (IN_MESSAGE, done(0, message("msg_0", status="in_progress"))),
        (IN_MESSAGE, done(0, message("msg_0", status="failed"))),
        (IN_REASONING, done(0, Reasoning(id="rs_0", status="failed"))),
        (IN_RESULT, done(1, ToolResult(id="fco_1", call_id=C, status="in_progress"))),
        (IN_RESULT, done(1, ToolResult(id="fco_1", call_id=C, error=ERROR))),
    ],
    "call-id-new": [
        (IN_CALL, added(1, ToolCall(id="fc_1", call_id=C, name="search"))),
        (ANSWERED, added(2, ToolCall(id="fc_2", call_id=C, name="search"))),
        (IN_CHILD, added(0, ToolCall(id="fc_0", call_id=C, name="search"), C)),
    ],
    "result-of-call": [
        (BEGUN, added(0, ToolResult(id="fco_0", call_id=C))),
        (IN_CALL, added(1, RESULT)),
        ([*IN_CALL, done(0, msgspec.structs.replace(CALL, status="incomplete"))], added(1, RESULT)),
        (IN_RESULT, added(2, ToolResult(id="fco_2", call_id=C))),
        (ANSWERED, added(2, ToolResult(id="fco_2", call_id=C))),
        (IN_CHILD, added(0, ToolResult(id="fco_0", call_id=C), C)),
    ],
    "part-open": [
        (IN_MESSAGE, ev.TextDelta(**M0, block_index=0, delta="x")),
        (IN_TEXT, ev.TextDelta(**M0, block_index=1, delta="x")),
        (IN_TEXT, ev.RefusalDelta(**M0, block_index=0, delta="x")),
        (
            [*IN_MESSAGE, ev.TextDone(**M0, block_index=0, item=Text(text="x"))],
            ev.TextDelta(**M0, block_index=0, delta="y"),
        ),
        (
            [*IN_MESSAGE, ev.TextDone(**M0, block_index=0, item=Text(text="x"))],
            ev.TextDone(**M0, block_index=0, item=Text(text="x")),
        ),
        (
            [*IN_MESSAGE, ev.TextDone(**M0, block_index=0, item=Text(text="x"))],
            ev.AnnotationAdded(
                **M0,
                block_index=0,
                annotation_index=0,
                annotation=UrlCitation(url="/", start_index=0, end_index=1),
            ),
        ),
        (IN_REASONING, ev.SummaryTextDelta(**R0, summary_index=0, delta="x")),
        (IN_REASONING, ev.ReasoningTextDelta(**R0, text_index=0, delta="x")),
        (
            IN_MESSAGE,
            ev.ImageDelta(**M0, block_index=0, partial_image_index=0, item=Image(image_url=PIXEL)),
        ),
        (CALLED[:-1], ev.ArgumentsDelta(**F0, delta=" ")),
        (CALLED[:-1], ev.ArgumentsDone(**F0, arguments='{"q":1}')),
    ],
    "part-same": [
        (IN_TEXT, ev.TextDone(**M0, block_index=0, item=Text(text="Hi"))),
        (
            IN_TEXT,
            ev.TextDone(
                **M0,
                block_index=0,
                item=Text(
                    text="Hi 👋 there",
                    annotations=[UrlCitation(url="/", start_index=0, end_index=2)],
                ),
            ),
        ),
        (IN_IMAGE, ev.ImageDone(**O1, block_index=0, item=Image(image_url=PIXEL))),
        (IN_IMAGE, ev.ImageDone(**O1, block_index=0, item=Image(image_url=PIXEL, id=2))),
        (
            [*IN_REASONING, ev.SummaryItemAdded(**R0, summary_index=0, item=Text(text=""))],
            ev.SummaryItemDone(**R0, summary_index=0, item=Text(text="never streamed")),
        ),
        (
            [*IN_REASONING, ev.ReasoningTextAdded(**R0, text_index=0, item=Text(text=""))],
            ev.ReasoningTextDone(**R0, text_index=0, item=Text(text="never streamed")),
        ),
        (
            [*IN_MESSAGE, ev.RefusalAdded(**M0, block_index=0, item=Refusal(refusal=""))],
            ev.RefusalDone(**M0, block_index=0, item=Refusal(refusal="never streamed")),
        ),
        (
            [*IN_CALL, ev.ArgumentsDelta(**F0, delta="{")],
            ev.ArgumentsDone(**F0, arguments="{}"),
        ),
    ],
    "parts-closed": [
        (IN_TEXT, done(0, message("msg_0"))),
        (
            [
                *IN_MESSAGE,
                ev.ImageAdded(**M0, block_index=0, item=Image(image_url=ImageUrl(url=""))),
            ],
            done(0, message("msg_0", status="incomplete")),
        ),
        (IN_CALL, done(0, CALL)),
    ],
    "call-ready": [
        (IN_CALL, ev.ToolCallStarted(**F0)),
        (CALLED[:-1], ev.ToolCallStarted(**F0)),
        ([*CALLED, ev.ToolCallStarted(**F0)], ev.ToolCallStarted(**F0)),
        (ANSWERED, ev.ToolCallStarted(**F0)),
        (
            [*IN_CALL, done(0, msgspec.structs.replace(CALL, status="incomplete"))],
            ev.ToolCallStarted(**F0),
        ),
    ],
    "annotation-range": [
        (IN_TEXT, ev.AnnotationAdded(**M0, block_index=0, annotation_index=0, annotation=note))
        for note in (
            UrlCitation(url="/", start_index=3, end_index=3),
            UrlCitation(url="/", start_index=4, end_index=3),
            UrlCitation(url="/", start_index=-1, end_index=3),
            # ten code points, eleven UTF-16 units, thirteen bytes
            UrlCitation(url="/", start_index=0, end_index=11),
        )
    ]
    + [
        (
            ANSWERED,
            ev.TextDone(
                **of(2, "msg_2"),
                block_index=0,
                item=Text(text="x[^1]", annotations=[cite(1, 1, 6)]),
            ),
        )
    ],
    "reference-known": [
        (
            IN_TEXT,
            ev.AnnotationAdded(**M0, block_index=0, annotation_index=0, annotation=cite(1, 0, 2)),
        ),
        (
            IN_MESSAGE,
            ev.TextDone(**M0, block_index=0, item=Text(text="x[^1]", annotations=[cite(1, 1, 5)])),
        ),
        (
            # a child's number is not its parent's
            [*CHILD_WITH_REFERENCE, done(1, RESULT), added(2, message("msg_2"))],
            ev.TextDone(
                **of(2, "msg_2"),
                block_index=0,
                item=Text(text="x[^1]", annotations=[cite(1, 1, 5)]),
            ),
        ),
    ],
    "import-source": [
        (BEGUN, imported(1, "call_9", 1)),
        (BEGUN, imported(1, R, 1)),
        (IN_CHILD, imported(1, C, 1)),
        ([*CHILD_WITH_REFERENCE, imported(1, C, 2)], imported(1, C, 1)),
        (CHILD_WITH_REFERENCE, imported(1, C, 3)),
    ],
    "id-in-results": [
        (IN_MESSAGE, ev.TextDone(**M0, block_index=0, item=Text(text="x", id=1))),
        (IN_MESSAGE, ev.TextAdded(**M0, block_index=0, item=Text(text="", id=1))),
        (IN_MESSAGE, ev.ImageDone(**M0, block_index=0, item=Image(image_url=PIXEL, id=1))),
        (IN_MESSAGE, ev.DataDone(**M0, block_index=0, item=Data(data=1, id=1))),
        (IN_RESULT, ev.TextDone(**O1, block_index=0, item=Text(text="x", id=0))),
        (IN_RESULT, ev.TextDone(**O1, block_index=0, item=Text(text="x", id=-1))),
        (IN_REASONING, ev.SummaryItemAdded(**R0, summary_index=0, item=Text(text="", id=1))),
    ],
    "step-innermost": [
        (BEGUN, ev.StepFinished(task_id=R, step_index=0)),
        (IN_STEPS, ev.StepFinished(task_id=R, step_index=0)),
        (
            [*IN_STEPS, ev.StepFinished(task_id=R, step_index=1)],
            ev.StepFinished(task_id=R, step_index=1),
        ),
    ],
    "request-known": [
        (BEGUN, ev.TaskInputReceived(task_id=R, request_id="req_1")),
        (ASKED, ev.TaskInputReceived(task_id=R, request_id="req_2")),
        (ASKED, ASKED[-1]),
        (
            [*ASKED, ev.TaskInputReceived(task_id=R, request_id="req_1")],
            ev.TaskInputReceived(task_id=R, request_id="req_1"),
        ),
        (
            BEGUN,
            ev.TaskInputRequired(
                task_id=R,
                requests=[
                    InputRequest(id="req_1", kind="approval"),
                    InputRequest(id="req_1", kind="input"),
                ],
            ),
        ),
    ],
    "output-once": [
        (
            [*BEGUN, ev.StructuredOutputDone(task_id=R, value=None)],
            ev.StructuredOutputDone(task_id=R, value=None),
        ),
    ],
    "agent-other": [
        ([*BEGUN, ev.AgentSwitched(task_id=R, agent="b")], ev.AgentSwitched(task_id=R, agent="b")),
    ],
    "attempt-next": [
        (BEGUN, ev.TaskAttempt(task_id=R, attempt=1, reason="worker_lost")),
        (BEGUN, ev.TaskAttempt(task_id=R, attempt=3, reason="worker_lost")),
        (
            [*BEGUN, ev.TaskAttempt(task_id=R, attempt=2, reason="worker_lost")],
            ev.TaskAttempt(task_id=R, attempt=2, reason="worker_lost"),
        ),
        (BEGUN, ev.TaskAttempt(task_id=R, attempt=2, reason="x", superseded=["msg_0"])),
        (IN_MESSAGE, ev.TaskAttempt(task_id=R, attempt=2, reason="x", superseded=["msg_0"])),
        (ANSWERED, ev.TaskAttempt(task_id=R, attempt=2, reason="x", superseded=["fc_0"])),
        (IN_RESULT, ev.TaskAttempt(task_id=R, attempt=2, reason="x", superseded=["fc_0"])),
        (
            [*CUT, ev.TaskAttempt(task_id=R, attempt=2, reason="x", superseded=["msg_0"])],
            ev.TaskAttempt(task_id=R, attempt=3, reason="x", superseded=["msg_0"]),
        ),
    ],
}

# An example in which the message has to be open first.
_EXAMPLES["annotation-range"][-1] = (
    [*ANSWERED, added(2, message("msg_2"))],
    _EXAMPLES["annotation-range"][-1][1],
)

# A second child of one call must not be called like the call; that name is taken by then, unless
# the first child had another child, which `child-id` forbids too. So the rule has one example.


def numbered(events: list[Event]) -> WrittenRun:
    """The events of an example, recorded."""
    return [(recorded(event, at), None) for at, event in enumerate(events, start=1)]


ILLEGAL: dict[str, list[tuple[WrittenRun, Event]]] = {
    rule: [
        (
            numbered(prefix),
            event if event.sequence_number else recorded(event, len(prefix) + 1),
        )
        for prefix, event in examples
    ]
    for rule, examples in _EXAMPLES.items()
}
"""Rule → legal beginnings, each with a next event that breaks this rule and no other."""

# Legal, though each looks like a broken rule: what a checker must not refuse.
LEGAL: list[WrittenRun] = [
    numbered(events)
    for events in (
        [CREATED, ev.TaskFailed(task_id=R, error=ERROR)],
        [CREATED, ev.TaskCancelled(task_id=R)],
        [*ASKED, ev.TaskCancelled(task_id=R)],
        [*ASKED, ev.TaskFailed(task_id=R, error=ERROR)],
        [*IN_CALL, done(0, msgspec.structs.replace(CALL, status="incomplete"))],
        [*IN_TEXT, done(0, message("msg_0", status="incomplete"))],
        [*IN_RESULT, ev.ToolCallStarted(**F0)],
        [*IN_CHILD, added(0, message("fc_0"), C)],
        [*CUT, ev.TaskAttempt(task_id=R, attempt=2, reason="x", superseded=["msg_0"])],
        [*CALLED, ev.TaskAttempt(task_id=R, attempt=2, reason="x", superseded=["fc_0"])],
        [*ANSWERED, ev.TaskAttempt(task_id=R, attempt=2, reason="x", superseded=["fc_0", "fco_1"])],
        [*CHILD_WITH_REFERENCE, imported(1, C, 1), imported(2, C, 1)],
        [
            *IN_CHILD,
            ev.TaskCompleted(task_id=C),
            ev.TaskCreated(task_id="call_1/2", parent_task_id=R, call_id=C),
        ],
        [
            *BEGUN,
            ev.TaskInputRequired(task_id=R, requests=[InputRequest(id="a", kind="input")]),
            ev.TaskInputRequired(task_id=R, requests=[InputRequest(id="b", kind="input")]),
            ev.TaskInputReceived(task_id=R, request_id="b"),
            NOTICE,
            ev.TaskInputReceived(task_id=R, request_id="a"),
            COMPLETED,
        ],
    )
]

CONTENT_MAKES_KNOWN: tuple[WrittenRun, Event] = (
    [
        *numbered([*IN_RESULT]),
        (
            recorded(done(1, RESULT), len(IN_RESULT) + 1),
            Private(content=[TextPart(text="only the model saw it", id=1)]),
        ),
        (recorded(added(2, message("msg_2")), len(IN_RESULT) + 2), None),
    ],
    ev.TextDone(
        **of(2, "msg_2"),
        sequence_number=len(IN_RESULT) + 3,
        block_index=0,
        item=Text(text="x[^1]", annotations=[cite(1, 1, 5)]),
    ),
)
"""A beginning and a legal next event: a number that stands only on private content is known."""


# --- any legal run, spoilt ------------------------------------------------------------------------


def mutations(run: WrittenRun) -> st.SearchStrategy[tuple[WrittenRun, Event, str]]:
    """A beginning of `run`, an event that must not follow it, and the rule that it breaks."""
    return st.sampled_from(list(mutants(run)))


def mutants(run: WrittenRun) -> Iterator[tuple[WrittenRun, Event, str]]:
    """Every mutant of a run that breaks just one rule."""
    rules = NaiveRules()
    for at, (event, private) in enumerate(run):
        for wrong in (*_instead_of(event), *_before(event, run[:at])):
            broken = rules.broken(_json(wrong))
            if len(broken) == 1:
                yield run[:at], wrong, broken.pop()
        rules.record(_json(event), _json(private))


def _json(value: Any) -> Any:
    return None if value is None else json.loads(msgspec.json.encode(value))


def _instead_of(event: Event) -> Iterator[Event]:
    """The event with one thing about it changed."""
    fields = {name for name in event.__struct_fields__ if name != "sequence_number"}
    for name in fields:
        value = getattr(event, name)
        if name.endswith("_index") or name in ("attempt", "reference_id", "source_reference_id"):
            yield msgspec.structs.replace(event, **{name: value + 1})
            if value:
                yield msgspec.structs.replace(event, **{name: value - 1})
        elif name in ("task_id", "item_id", "request_id", "source_task_id", "call_id"):
            yield msgspec.structs.replace(event, **{name: f"not {value}"})
        elif name in ("item", "annotation"):
            for changed in _spoilt(value):
                yield msgspec.structs.replace(event, **{name: changed})
    yield recorded(event, event.sequence_number + 1)
    yield recorded(event, event.sequence_number - 1)


def _spoilt(value: Any) -> Iterator[Any]:
    """An item or a block with one thing about it changed."""
    names = value.__struct_fields__
    for name in ("reference_id", "end_index"):
        if isinstance(getattr(value, name, None), int):
            yield msgspec.structs.replace(value, **{name: getattr(value, name) + 1000})
    for name in ("text", "refusal", "name", "call_id"):
        if name in names and isinstance(getattr(value, name), str):
            yield msgspec.structs.replace(value, **{name: getattr(value, name) + "!"})
    if "status" in names:
        yield msgspec.structs.replace(value, status="in_progress")
    if isinstance(value, (Text, Image)):
        yield msgspec.structs.replace(value, id=(value.id or 0) + 1)


def _before(event: Event, run: WrittenRun) -> Iterator[Event]:
    """Events that may well be wrong here: an early end, a repetition, a wrong kind."""
    for one, _private in run:
        if isinstance(one, ev.OutputItemAdded):
            of_task = [
                other
                for other, _ in run
                if isinstance(other, ev.OutputItemAdded) and other.task_id == one.task_id
            ]
            renamed = msgspec.structs.replace(one.item, id=f"{one.item.id} again")
            about: list[Event] = [
                done(one.output_index, one.item, one.task_id),
                added(len(of_task), one.item, one.task_id),
                added(len(of_task), renamed, one.task_id),
                ev.ArgumentsDelta(**of(one.output_index, one.item.id, one.task_id), delta=""),
            ]
            for wrong in about:
                yield recorded(wrong, event.sequence_number)
    for task_id in {one.task_id for one, _private in run}:
        ends: list[Event] = [
            ev.TaskCompleted(task_id=task_id),
            ev.TaskCancelled(task_id=task_id),
        ]
        for end in ends:
            yield recorded(end, event.sequence_number)
    for one, _private in run[-3:]:
        yield recorded(one, event.sequence_number)
