"""What a single agent puts out: texts, thinking, pictures, data, files, a structured answer."""

from __future__ import annotations

from conformance.authoring import Json, Trace, story

TINY = "data:image/gif;base64,R0lGODlhAQABAAAAACw="


@story()
def hello(trace: Trace) -> None:
    """The smallest whole run: one message of one short text."""
    run = trace.task("run_1").created(
        agent="assistant", thread_id="thread_1", created_at=1790000000, input="Say hello."
    )
    run.begin()
    run.says("msg_1", "Hello!")
    run.completed()

    shown = {
        "task_id": "run_1",
        "status": "completed",
        "agent": "assistant",
        "thread_id": "thread_1",
        "created_at": 1790000000,
        "input": "Say hello.",
    }
    message = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "block_list": [{"type": "text", "text": "Hello!"}],
    }
    assert trace.view(after=1) == {**shown, "status": "queued", "output": []}
    assert trace.view(after=2) == {**shown, "status": "in_progress", "output": []}
    assert trace.view(after=3)["output"] == [{**message, "block_list": [], "status": "in_progress"}]
    assert trace.view() == {**shown, "output": [message]}
    content = [{"type": "text", "text": "Hello!"}]
    assert trace.whole() == {**shown, "output": [{**message, "content": content}]}


@story()
def streamed_text(trace: Trace) -> None:
    """Two blocks that stream at the same time, and a `done` that leaves the list out."""
    run = trace.task("run_1").created().begin()
    message = run.message("msg_1", phase="commentary")
    first = message.open_text()
    first.delta("Once ", "upon", "")
    second = message.open_text()
    second.delta("line 1\n")
    first.delta(" a time.")
    second.delta('line 2\r\n\ttab, "quotes", back\\slash, \u2028 and \u007f')
    second.done()
    first.done()
    message.text("Whole.")
    message.done(brief=True)
    run.completed()

    texts = [
        "Once upon a time.",
        'line 1\nline 2\r\n\ttab, "quotes", back\\slash, \u2028 and \u007f',
        "Whole.",
    ]
    message_shown = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "phase": "commentary",
        "block_list": [{"type": "text", "text": text} for text in texts],
    }
    assert trace.view() == {
        "task_id": "run_1",
        "status": "completed",
        "output": [message_shown],
    }
    halfway = trace.view(after=9)["output"][0]["block_list"]
    assert halfway == [
        {"type": "text", "text": "Once upon"},
        {"type": "text", "text": "line 1\n"},
    ]


@story()
def empty_texts(trace: Trace) -> None:
    """Empty is not absent: empty texts, arguments, values and lists are shown, nothing is lost."""
    run = trace.task("run_1").created(
        agent="", thread_id="", created_at=0, input="", options={}, metadata=[]
    )
    run.begin()
    reasoning = run.reasoning("rs_1")
    reasoning.summary().done()
    reasoning.done()
    bare = run.reasoning("rs_2")
    bare.done()
    call = run.call("fc_3", "call_1", "now")
    call.delta("")
    call.arguments_done()
    call.done()
    run.result("fco_4", "call_1").done(private={"content": []})
    message = run.message("msg_5")
    message.open_text().delta("", "").done()
    message.open_refusal().done()
    message.done()
    run.message("msg_6").done()
    run.send("notice", message="")
    run.send("progress", message="", current=0, total=0)
    run.completed()

    assert trace.view() == {
        "task_id": "run_1",
        "status": "completed",
        "agent": "",
        "thread_id": "",
        "created_at": 0,
        "input": "",
        "options": {},
        "metadata": [],
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "text", "text": ""}]},
            {"type": "reasoning", "id": "rs_2", "summary": []},
            {
                "type": "tool_call",
                "id": "fc_3",
                "call_id": "call_1",
                "name": "now",
                "arguments": "",
            },
            {"type": "tool_result", "id": "fco_4", "call_id": "call_1", "block_list": []},
            {
                "type": "message",
                "id": "msg_5",
                "role": "assistant",
                "block_list": [
                    {"type": "text", "text": ""},
                    {"type": "refusal", "refusal": ""},
                ],
            },
            {"type": "message", "id": "msg_6", "role": "assistant", "block_list": []},
        ],
        "notices": [{"message": ""}],
        "progress": {"message": "", "current": 0, "total": 0},
    }
    whole = trace.whole()["output"]
    assert whole[3]["content"] == []  # the private part gave it, empty
    assert whole[4]["content"] == [{"type": "text", "text": ""}]
    assert whole[5]["content"] == []


@story()
def refusal(trace: Trace) -> None:
    """The model declines, in a block of its own kind."""
    run = trace.task("run_1").created().begin()
    message = run.message("msg_1")
    block = message.open_refusal()
    block.delta("I can't ", "help with ", "that.")
    block.done()
    message.done()
    run.completed()

    words = [{"type": "refusal", "refusal": "I can't help with that."}]
    assert trace.view() == {
        "task_id": "run_1",
        "status": "completed",
        "output": [{"type": "message", "id": "msg_1", "role": "assistant", "block_list": words}],
    }
    assert trace.whole()["output"][0]["content"] == []  # a refusal is no text


@story()
def reasoning_raw_and_summary(trace: Trace) -> None:
    """A summary and the raw thinking stream side by side; sealed reasoning stays private."""
    run = trace.task("run_1").created(model="o9").begin()
    reasoning = run.reasoning("rs_1")
    thought = reasoning.thought()
    thought.delta("Hmm, ", "Paris. ")
    summary = reasoning.summary()
    summary.delta("Locating ")
    thought.delta("Capital of France.")
    summary.delta("Paris.")
    thought.done()
    summary.done()
    reasoning.thought().delta("Second thought.").done()
    reasoning.done(
        private={
            "provider": {"id": "rs_0fdd74348bc3"},
            "encrypted_content": "gAAAAABo9zfk",
            "signature": "EqMBCkYIBRgC",
        }
    )
    brief = run.reasoning("rs_2")
    part = brief.summary()
    part.delta("Nothing more to look up.")
    part.done()
    brief.done(brief=True, private={"encrypted_content": "gAAAAABo9zfl"})
    sealed = run.reasoning("rs_3")  # a provider that shows nothing at all
    sealed.done(private={"encrypted_content": "gAAAAABo9zfm"})
    run.says("msg_4", "Paris is in France.")
    run.completed()

    view = trace.view()
    assert view["output"][:3] == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "text", "text": "Locating Paris."}],
            "reasoning_text": [
                {"type": "text", "text": "Hmm, Paris. Capital of France."},
                {"type": "text", "text": "Second thought."},
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_2",
            "summary": [{"type": "text", "text": "Nothing more to look up."}],
        },
        {"type": "reasoning", "id": "rs_3", "summary": []},
    ]
    assert "gAAAAABo" not in str(view)
    assert "EqMB" not in str(view)
    whole = trace.whole()["output"]
    assert whole[0]["private"] == {
        "provider": {"id": "rs_0fdd74348bc3"},
        "encrypted_content": "gAAAAABo9zfk",
        "signature": "EqMBCkYIBRgC",
    }
    assert whole[2] == {
        "type": "reasoning",
        "id": "rs_3",
        "summary": [],
        "private": {"encrypted_content": "gAAAAABo9zfm"},
    }


@story()
def whole_parts(trace: Trace) -> None:
    """Parts of every kind that come as their `done` alone."""
    run = trace.task("run_1").created().begin()
    reasoning = run.reasoning("rs_1")
    for index, text in enumerate(("First.", "Second.")):
        part = {"type": "text", "text": text}
        reasoning.lists["summary"].append(part)
        reasoning.send("reasoning_summary_item.done", summary_index=index, item=part)
    thought = {"type": "text", "text": "Raw."}
    reasoning.lists["reasoning_text"].append(thought)
    reasoning.send("reasoning_text.done", text_index=0, item=thought)
    reasoning.done(brief=True)
    message = run.message("msg_2")
    message.text("Text.")
    message.block("image", image_url={"url": TINY})
    message.block("refusal", refusal="No.")
    message.block("data", data=[1, 2], name="pair")
    message.block("file", url="/blobs/9a")
    message.done(brief=True)
    run.completed()

    assert trace.view()["output"] == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "text", "text": "First."}, {"type": "text", "text": "Second."}],
            "reasoning_text": [{"type": "text", "text": "Raw."}],
        },
        {
            "type": "message",
            "id": "msg_2",
            "role": "assistant",
            "block_list": [
                {"type": "text", "text": "Text."},
                {"type": "image", "image_url": {"url": TINY}},
                {"type": "refusal", "refusal": "No."},
                {"type": "data", "data": [1, 2], "name": "pair"},
                {"type": "file", "url": "/blobs/9a"},
            ],
        },
    ]


@story()
def partial_images(trace: Trace) -> None:
    """An image that gets better: each delta is whole and replaces the delta before."""
    run = trace.task("run_1").created().begin()
    arguments = '{"prompt":"a cat"}'
    run.whole_call(
        "fc_1", "call_1", "image_generation", arguments, kind="image_generation",
        executor="provider",
    )  # fmt: skip
    result = run.result("fco_2", "call_1")
    picture = result.open_image(id=1)
    picture.image("data:image/png;base64,YmxhY2s=")
    picture.image("data:image/png;base64,Z3JleQ==")
    sketch = result.open_image(id=2)
    picture.image("data:image/png;base64,Y2F0")
    sketch.done(image_url={"url": "/blobs/sketch"})
    picture.done()
    result.done()
    message = run.message("msg_3")
    message.text("Here is ")
    message.block("image", image_url={"url": "/blobs/7d865e959b24"})
    message.done()
    run.completed()

    def urls(after: int | None) -> list[str]:
        blocks = trace.view(after=after)["output"][1]["block_list"]
        return [block["image_url"]["url"] for block in blocks]

    assert [urls(after) for after in range(8, 14)] == [
        [""],
        ["data:image/png;base64,YmxhY2s="],
        ["data:image/png;base64,Z3JleQ=="],
        ["data:image/png;base64,Z3JleQ==", ""],
        ["data:image/png;base64,Y2F0", ""],
        ["data:image/png;base64,Y2F0", "/blobs/sketch"],
    ]
    assert trace.view()["output"][1]["block_list"] == [
        {"type": "image", "image_url": {"url": "data:image/png;base64,Y2F0"}, "id": 1},
        {"type": "image", "image_url": {"url": "/blobs/sketch"}, "id": 2},
    ]


@story()
def data_blocks(trace: Trace) -> None:
    """Any JSON value as a block, null too; numbers as doubles."""
    run = trace.task("run_1").created().begin()
    run.whole_call("fc_1", "call_1", "query", "{}")
    result = run.result("fco_2", "call_1")
    values: list[Json] = [
        None,
        False,
        0,
        "",
        [],
        {},
        9007199254740991,
        -9007199254740991,
        0.1,
        1e21,
        1.5e-7,
        {"rows": [[1, "á"], [2.5, None]], "more": True, "nested": {"b": 1, "a": {"": [{}]}}},
    ]
    for number, value in enumerate(values, start=1):
        result.block("data", data=value, name="table", id=number)
    result.block("data", data="without a name")
    result.done()
    run.says("msg_3", "That is all.")
    run.completed()

    blocks = trace.view()["output"][1]["block_list"]
    assert blocks[0] == {"type": "data", "data": None, "name": "table", "id": 1}
    assert [block["data"] for block in blocks[:-1]] == values
    assert blocks[-1] == {"type": "data", "data": "without a name"}


@story()
def attachments(trace: Trace) -> None:
    """Files as blocks of a result and of a message, with the bucket and path of an attachment."""
    run = trace.task("run_1").created().begin()
    run.whole_call("fc_1", "call_1", "make_report", '{"year":2026}')
    result = run.result("fco_2", "call_1")
    report = {
        "url": "https://files.example/report.pdf",
        "mime_type": "application/pdf",
        "name": "report.pdf",
        "size": 48213,
        "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "bucket": "reports",
        "path": "2026/report.pdf",
    }
    result.block("file", **report, id=1)
    result.block("file", url="/blobs/raw", id=2)
    content = [
        {"type": "text", "text": "<referencable-item>\nID: 1", "id": 1,
         "tags": ["added_by_reference_manager"]},
        {"type": "file", "url": "https://files.example/report.pdf",
         "mime_type": "application/pdf", "name": "report.pdf", "id": 1},
        {"type": "text", "text": "</referencable-item>", "id": 1,
         "tags": ["added_by_reference_manager"]},
    ]  # fmt: skip
    result.done(private={"content": content})
    message = run.message("msg_3")
    message.text("The report is attached.")
    message.block("file", url="https://files.example/report.pdf", name="报告.pdf")
    message.done()
    run.completed()

    output = trace.view()["output"]
    assert output[1]["block_list"] == [
        {"type": "file", **report, "id": 1},
        {"type": "file", "url": "/blobs/raw", "id": 2},
    ]
    assert output[2]["block_list"][1] == {
        "type": "file",
        "url": "https://files.example/report.pdf",
        "name": "报告.pdf",
    }
    assert trace.whole()["output"][1]["content"] == content


@story()
def structured_output(trace: Trace) -> None:
    """An answer as a JSON value beside its text: a worker's rich output with hints for the UI."""
    run = trace.task("run_1").created(agent="worker", options={"ui_mode": "calendar"}).begin()
    answer = "You have 2 events on Monday."
    run.says("msg_1", answer)
    value = {
        "status": "success",
        "answer": answer,
        "key_points": ["Stand-up at 9:00", "Dentist at 16:30"],
        "result_type": "execution_report",
        "suggested_actions": ["Move the dentist"],
        "error": None,
        "ui_hints": {
            "ui_mode": "calendar",
            "ui_state": {"week": "2026-W38", "selected": ["evt_1", "evt_2"]},
            "actions": [{"id": "move", "label": "Move", "args": {"event": "evt_2"}}],
        },
    }
    run.send("structured_output.done", value=value, name="WorkerAgentOutputRich")
    run.send(
        "usage",
        usage={
            "model": "gpt-4o",
            "input_tokens": 1000,
            "output_tokens": 500,
            "cost": 0.025,
            "latency_ms": 1500,
        },
    )
    run.completed()

    view = trace.view()
    assert view["structured_output"] == {"value": value, "name": "WorkerAgentOutputRich"}
    assert view["structured_output"]["value"]["error"] is None
    assert view["usage"] == {
        "calls": 1,
        "input_tokens": 1000,
        "output_tokens": 500,
        "cost": 0.025,
        "latency_ms": 1500,
        "model": "gpt-4o",
    }


@story()
def structured_null(trace: Trace) -> None:
    """A structured answer that is null is still an answer."""
    run = trace.task("run_1").created().begin()
    trace.put(
        {
            "type": "task.structured_output.done",
            "task_id": "run_1",
            "sequence_number": 3,
            "value": None,
        }
    )
    run.completed()

    assert trace.view() == {
        "task_id": "run_1",
        "status": "completed",
        "structured_output": {"value": None},
        "output": [],
    }
