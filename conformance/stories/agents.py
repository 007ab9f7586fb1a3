"""Agents that call agents: whose items show where, in which order, and how references travel."""

from __future__ import annotations

from conformance.authoring import Dict, Json, Task, Trace, story


def wrapped(number: int, *parts: Dict) -> list[Json]:
    """One reference as the model reads it."""
    tags = ["added_by_reference_manager"]
    opener = {"type": "text", "text": f"<referencable-item>\nID: {number}", "id": number}
    closer = {"type": "text", "text": "</referencable-item>", "id": number}
    return [
        {**opener, "tags": tags},
        *({**part, "id": number} for part in parts),
        {**closer, "tags": tags},
    ]


def text(words: str) -> Dict:
    """A part of `content`."""
    return {"type": "text", "text": words}


def look_up(task: Task, suffix: str, call_id: str, found: str) -> None:
    """A call of the task's own, with one reference in its result."""
    task.whole_call(f"fc_{suffix}", call_id, "look_up", "{}")
    result = task.result(f"fco_{suffix}", call_id)
    result.text(found, id=1)
    result.done(private={"content": wrapped(1, text(found))})


def cite(task: Task, item_id: str, words: str, number: int) -> None:
    """A message with one citation at its end."""
    message = task.message(item_id)
    block = message.open_text()
    block.delta(words).cite(number)
    block.done()
    message.done()


@story()
def nested_agents(trace: Trace) -> None:
    """Three agents inside each other, each with a source of its own, each citing what it got."""
    root = trace.task("run_1").created(agent="chief").begin()
    look_up(root, "0", "call_0", "the chief's note")
    root.whole_call("fc_1", "call_1", "ask_for_help", '{"name":"editor"}')
    held_by_root = root.result("fco_1", "call_1")

    editor = root.child("call_1", agent="editor", model="small")
    look_up(editor, "0", "call_2", "the editor's note")
    editor.whole_call("fc_1", "call_3", "ask_for_help", '{"name":"reporter"}')
    held_by_editor = editor.result("fco_1", "call_3")

    reporter = editor.child("call_3", agent="reporter")
    look_up(reporter, "0", "call_4", "the reporter's note")
    reporter.whole_call("fc_1", "call_5", "ask_for_help", '{"name":"witness"}')
    held_by_reporter = reporter.result("fco_1", "call_5")

    witness = reporter.child("call_5", agent="witness")
    look_up(witness, "0", "call_6", "what I saw")
    cite(witness, "msg_0", "It rained.", 1)
    witness.completed()

    reporter.imports(2, witness, 1)
    content = [*wrapped(2, text("what I saw")), text("It rained.[^2]")]
    held_by_reporter.done(brief=True, private={"content": content})
    cite(reporter, "msg_0", "A witness says that it rained.", 2)
    reporter.completed()

    editor.imports(2, reporter, 2)
    content = [*wrapped(2, text("what I saw")), text("A witness says that it rained.[^2]")]
    held_by_editor.done(brief=True, private={"content": content})
    cite(editor, "msg_0", "Rain is confirmed.", 2)
    editor.completed()

    root.imports(2, editor, 2)
    content = [*wrapped(2, text("what I saw")), text("Rain is confirmed.[^2]")]
    held_by_root.done(brief=True, private={"content": content})
    message = root.message("msg_0")
    block = message.open_text()
    block.delta("Take an umbrella").cite(2).delta(" and this").cite(1).delta(".")
    block.done()
    message.done()
    root.completed()

    view = trace.view()
    assert [task["task_id"] for task in view["tasks"]] == ["call_1", "call_3", "call_5"]
    assert [task["parent_task_id"] for task in view["tasks"]] == ["run_1", "call_1", "call_3"]
    # The witness' lines stand four lists deep, each item with the id of its own task.
    of_editor = view["output"][3]["block_list"]
    of_reporter = of_editor[3]["block_list"]
    of_witness = of_reporter[3]["block_list"]
    assert {item["task_id"] for item in of_editor} == {"call_1"}
    assert {item["task_id"] for item in of_reporter} == {"call_3"}
    assert {item["task_id"] for item in of_witness} == {"call_5"}
    assert [item["type"] for item in of_witness] == ["tool_call", "tool_result", "message"]
    assert of_witness[1]["block_list"] == [{"type": "text", "text": "what I saw", "id": 1}]
    # A citation of the root is resolved by following the imports down.
    assert view["imports"] == [
        {"reference_id": 2, "source_task_id": "call_1", "source_reference_id": 2}
    ]
    assert view["tasks"][0]["imports"][0]["source_task_id"] == "call_3"
    assert view["tasks"][1]["imports"] == [
        {"reference_id": 2, "source_task_id": "call_5", "source_reference_id": 1}
    ]
    whole = trace.whole()
    assert [len(task["output"]) for task in whole["tasks"]] == [5, 5, 3]
    assert whole["tasks"][1]["output"][3]["content"][-1] == text("It rained.[^2]")
    assert "content" not in str(whole["output"][3]["block_list"])


@story()
def two_children_one_call(trace: Trace) -> None:
    """One call starts two agents: their items and the result's own blocks stand as they arrived."""
    run = trace.task("run_1").created().begin()
    run.whole_call("fc_1", "call_1", "ask_twice", "{}")
    result = run.result("fco_2", "call_1")
    result.text("Asking two agents.")
    first = run.child("call_1", agent="first")
    second = run.child("call_1", "call_1/2", agent="second")
    of_second = second.message("msg_1")
    own = result.open_text()
    of_first = first.message("msg_1")
    own.delta("Both ")
    of_first.text("one")
    own.delta("are at work.")
    of_second.text("two")
    thinking = first.reasoning("rs_2")
    own.done()
    of_second.done()
    thinking.done()
    of_first.done()
    second.completed()
    result.text("One is done.")
    first.completed()
    content = [text("one"), text("two")]
    result.done(brief=True, private={"content": content})
    run.says("msg_3", "One and two.")
    run.completed()

    shown = trace.view()["output"][1]["block_list"]
    message = {"type": "message", "id": "msg_1", "role": "assistant"}
    assert shown == [
        {"type": "text", "text": "Asking two agents."},
        {**message, "block_list": [{"type": "text", "text": "two"}], "task_id": "call_1/2"},
        {"type": "text", "text": "Both are at work."},
        {**message, "block_list": [{"type": "text", "text": "one"}], "task_id": "call_1"},
        {"type": "reasoning", "id": "rs_2", "summary": [], "task_id": "call_1"},
        {"type": "text", "text": "One is done."},
    ]
    assert trace.view("call_1/2") == {
        "task_id": "call_1/2",
        "status": "completed",
        "agent": "second",
        "parent_task_id": "run_1",
        "call_id": "call_1",
        "output": [{**message, "block_list": [{"type": "text", "text": "two"}]}],
    }


@story()
def imports_renumbered(trace: Trace) -> None:
    """Two children cite a `[^1]` of their own: the parent renumbers them; equal content has one."""
    run = trace.task("run_1").created().begin()
    look_up(run, "1", "call_0", "Seine: 777 km")
    children: list[Task] = []
    results = []
    for number, river in ((1, "Loire"), (2, "Rhine")):
        run.whole_call(f"fc_{river}", f"call_{number}", "ask_for_help", f'{{"prompt":"{river}"}}')
    for number, river in ((1, "Loire"), (2, "Rhine")):
        results.append(run.result(f"fco_{river}", f"call_{number}"))
        children.append(run.child(f"call_{number}", agent=river))
    loire, rhine = children
    look_up(loire, "1", "call_3", "Loire: 1006 km")
    look_up(rhine, "1", "call_4", "Rhine: 1233 km")
    # The Rhine's agent also finds what the parent knows already, and a thing that it never cites.
    rhine.whole_call("fc_2", "call_5", "look_up", "{}")
    more = rhine.result("fco_2", "call_5")
    more.text("Seine: 777 km", id=2)
    more.text("Moselle: 544 km", id=3)
    more.done()
    cite(loire, "msg_1", "1006 km", 1)
    message = rhine.message("msg_1")
    block = message.open_text()
    block.delta("1233 km").cite(1).delta(", longer than the Seine").cite(2)
    block.done()
    message.done()
    loire.completed()
    rhine.completed()
    run.imports(2, loire, 1)
    results[0].done(
        brief=True,
        private={"content": [*wrapped(2, text("Loire: 1006 km")), text("1006 km[^2]")]},
    )
    run.imports(3, rhine, 1)
    results[1].done(
        brief=True,
        private={
            "content": [
                *wrapped(3, text("Rhine: 1233 km")),
                text("1233 km[^3], longer than the Seine[^1]"),
            ]
        },
    )
    message = run.message("msg_1")
    block = message.open_text()
    block.delta("Rhine").cite(3).delta(" > Loire").cite(2).delta(" > Seine").cite(1)
    block.done()
    message.done()
    run.completed()

    view = trace.view()
    assert view["imports"] == [
        {"reference_id": 2, "source_task_id": "call_1", "source_reference_id": 1},
        {"reference_id": 3, "source_task_id": "call_2", "source_reference_id": 1},
    ]
    notes = view["output"][-1]["block_list"][0]["annotations"]
    assert [note["reference_id"] for note in notes] == [3, 2, 1]
    # Inside the children's items the numbers are the children's own.
    in_rhine = [item for item in view["output"][5]["block_list"] if item["type"] == "message"]
    assert in_rhine[0]["block_list"][0]["text"] == "1233 km[^1], longer than the Seine[^2]"
    assert "imports" not in view["tasks"][1]


@story()
def handoff(trace: Trace) -> None:
    """An agent hands the conversation to another, which hands it to a third."""
    run = trace.task("run_1").created(agent="triage", model="m", input="My invoice is wrong.")
    run.begin()
    run.whole_call("fc_1", "call_1", "transfer_to_billing", "{}")
    result = run.result("fco_1", "call_1")
    result.text("billing speaks now.")
    result.done()
    run.send("agent.switched", agent="billing", reason="It is about an invoice.")
    run.says("msg_1", "Which invoice?")
    run.send("agent.switched", agent="refunds")
    run.says("msg_2", "You get your money back.")
    run.completed()

    view = trace.view()
    assert view["agent"] == "refunds"
    assert view["switches"] == [
        {
            "agent": "billing",
            "output_index": 2,
            "from": "triage",
            "reason": "It is about an invoice.",
        },
        {"agent": "refunds", "output_index": 3, "from": "billing"},
    ]


@story()
def compacted(trace: Trace) -> None:
    """A summary stands for the older turns of the conversation; the last summary counts."""
    run = trace.task("run_9").created(agent="assistant", previous_run_id="run_8", input="And May?")
    run.begin()
    run.send("history.compacted", summary="The user asks about Paris.", run_id="run_5")
    run.send("history.compacted", summary="The user plans a journey to Paris.", run_id="run_6")
    run.says("msg_1", "May is mild.")
    run.completed()

    summary = {"summary": "The user plans a journey to Paris.", "run_id": "run_6"}
    assert trace.view()["compacted"] == summary
