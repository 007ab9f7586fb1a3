"""How a run lives and ends: steps, notices, usage; stopped, cut, failed, lost and found again."""

from __future__ import annotations

from conformance.authoring import Trace, story


@story()
def steps_nested(trace: Trace) -> None:
    """Named stages inside each other; a child has stages of its own."""
    run = trace.task("run_1").created(agent="pipeline").begin()
    router = run.step("router")
    run.says("msg_1", "This is for the worker.")
    run.finish(router)
    worker = run.step("worker")
    plan = run.step("plan")
    run.finish(plan)
    act = run.step("act")
    again = run.step("act")
    run.whole_call("fc_2", "call_1", "ask_for_help", "{}")
    result = run.result("fco_3", "call_1")
    child = run.child("call_1")
    inner = child.step("worker")
    child.finish(inner)
    child.completed()
    result.done(brief=True)
    deep = len(trace.events)
    run.finish(again)
    run.finish(act)
    run.finish(worker)
    run.completed()

    def step(name: str, depth: int, status: str = "completed") -> dict[str, object]:
        return {"name": name, "depth": depth, "status": status}

    assert trace.view()["steps"] == [
        step("router", 0),
        step("worker", 0),
        step("plan", 1),
        step("act", 1),
        step("act", 2),
    ]
    assert trace.view(after=deep)["steps"] == [
        step("router", 0),
        step("worker", 0, "in_progress"),
        step("plan", 1),
        step("act", 1, "in_progress"),
        step("act", 2, "in_progress"),
    ]
    assert trace.view()["tasks"][0]["steps"] == [step("worker", 0)]


@story()
def step_incomplete(trace: Trace) -> None:
    """An error leaves a stage and the stage inside it; the agent catches it and goes on."""
    run = trace.task("run_1").created(agent="pipeline").begin()
    outer = run.step("search")
    inner = run.step("fetch")
    run.finish(inner, status="incomplete")
    run.finish(outer, status="incomplete")
    again = run.step("search")
    run.says("msg_1", "Found.")
    run.finish(again)
    run.completed()
    states = [(step["name"], step["status"]) for step in trace.view()["steps"]]
    assert states == [
        ("search", "incomplete"),
        ("fetch", "incomplete"),
        ("search", "completed"),
    ]


@story()
def notices_and_progress(trace: Trace) -> None:
    """News for the person who watches: all notices are kept, of progress the last."""
    run = trace.task("run_1").created().begin()
    run.send("notice", message="Using the cached forecast.")
    run.send("progress", message="starting", current=0, total=3)
    run.whole_call("fc_1", "call_1", "crawl", "{}")
    run.send("notice", message="Slow page.", level="warning", call_id="call_1")
    run.send("progress", call_id="call_1", message="page 3", current=3, total=12)
    run.send("progress", call_id="call_1", current=4.5)
    run.send("progress", call_id="call_7", message="of nobody's call")
    run.send("notice", message="Found", level="debug", data={"pages": [1, 2], "last": None})
    run.send("notice", message="Plain again.", data=False)
    result = run.result("fco_2", "call_1")
    result.done()
    run.send("progress", message="almost done", current=2)
    run.send("raw", source="openai_responses", event_type="response.hologram.delta",
             private={"raw": {"type": "response.hologram.delta", "delta": "∴"}})  # fmt: skip
    run.says("msg_3", "Done.")
    run.completed()

    view = trace.view()
    assert view["notices"] == [
        {"message": "Using the cached forecast."},
        {"message": "Slow page.", "level": "warning", "call_id": "call_1"},
        {"message": "Found", "level": "debug", "data": {"pages": [1, 2], "last": None}},
        {"message": "Plain again.", "data": False},
    ]
    assert view["progress"] == {"message": "almost done", "current": 2}
    assert view["output"][0]["progress"] == {"current": 4.5}
    assert "unknown" not in view  # a raw event has a name: task.raw
    raw = {"type": "response.hologram.delta", "delta": "∴"}
    assert trace.whole()["private"] == {"raw": raw}


@story()
def usage_summed(trace: Trace) -> None:
    """What several model calls used, added up; a child's calls are also its parent's."""
    run = trace.task("run_1").created().begin()
    run.send(
        "usage",
        usage={
            "model": "gpt-5",
            "input_tokens": 1000,
            "output_tokens": 20,
            "cached_input_tokens": 800,
            "cost": 0.1,
            "latency_ms": 1500.5,
            "service_tier": "default",
        },
        private={"provider": {"response_id": "resp_1"}},
    )
    run.whole_call("fc_1", "call_1", "ask_for_help", "{}")
    result = run.result("fco_2", "call_1")
    child = run.child("call_1")
    child.send("usage", usage={"output_tokens": 7})
    child.completed()
    result.done(brief=True)
    run.send("usage", usage={})
    run.send(
        "usage",
        usage={
            "model": "gpt-5-mini",
            "input_tokens": 500,
            "output_tokens": 30,
            "reasoning_tokens": 12,
            "cost": 0.2,
            "latency_ms": 900,
            "time_to_first_token_ms": 210,
        },
        item_id="msg_3",
    )
    run.send("usage", usage={"input_tokens": 1, "cost": 0, "time_to_first_token_ms": 5})
    run.says("msg_3", "Done.")
    run.completed()

    view = trace.view()
    assert view["usage"] == {
        "calls": 5,
        "input_tokens": 1501,
        "output_tokens": 57,
        "cached_input_tokens": 800,
        "reasoning_tokens": 12,
        "cost": 0.30000000000000004,  # 0.1 + 0.2 as doubles
        "latency_ms": 2400.5,
        "time_to_first_token_ms": 210,
        "model": "gpt-5-mini",
        "service_tier": "default",
    }
    assert view["tasks"][0]["usage"] == {"calls": 1, "input_tokens": 0, "output_tokens": 7}
    assert trace.whole()["private"] == {"provider": {"response_id": "resp_1"}}


@story()
def usage_of_sub_agents(trace: Trace) -> None:
    """A call counts for its task and for every task above; the model is the task's own, if any."""
    run = trace.task("run_1").created().begin()
    run.whole_call("fc_1", "call_1", "ask", "{}")
    result = run.result("fco_1", "call_1")
    child = run.child("call_1")
    child.whole_call("fc_2", "call_2", "ask", "{}")
    inner = child.result("fco_2", "call_2")
    grandchild = child.child("call_2")
    fast = {"model": "fast", "input_tokens": 1, "output_tokens": 2, "cost": 0.1}
    fast |= {"time_to_first_token_ms": 9, "service_tier": "flex"}
    grandchild.send("usage", usage=fast)
    grandchild.send("usage", usage={"model": "faster", "input_tokens": 10, "reasoning_tokens": 3})
    grandchild.completed()
    inner.done(brief=True)
    child.send("usage", usage={"model": "wise", "input_tokens": 100, "cost": 0.2})
    child.completed()
    result.done(brief=True)
    summed = {
        "calls": 3,
        "input_tokens": 111,
        "output_tokens": 2,
        "reasoning_tokens": 3,
        "cost": 0.30000000000000004,
        "time_to_first_token_ms": 9,
        "service_tier": "flex",
    }
    assert trace.view()["usage"] == summed | {"model": "fast"}  # the first that is below it
    assert trace.view()["tasks"][0]["usage"] == summed | {"model": "wise"}
    run.send("usage", usage={"model": "gpt-5", "input_tokens": 1000})
    run.says("msg_3", "Done.")
    run.completed()

    view = trace.view()
    assert view["usage"] == summed | {"calls": 4, "input_tokens": 1111, "model": "gpt-5"}
    assert view["tasks"][1]["usage"] == {
        "calls": 2,
        "input_tokens": 11,
        "output_tokens": 2,
        "reasoning_tokens": 3,
        "cost": 0.1,
        "time_to_first_token_ms": 9,
        "model": "faster",
        "service_tier": "flex",
    }


@story()
def cancelled(trace: Trace) -> None:
    """Stopped in the middle: half a message is kept, incomplete; a dangling call has a result."""
    run = trace.task("run_1").created().begin()
    run.whole_call("fc_1", "call_1", "search", "{}")
    dangling = run.result("fco_2", "call_1")
    message = run.message("msg_3")
    text = message.open_text()
    text.delta("The first thing to ")
    text.done()
    message.done(status="incomplete")
    dangling.done(status="incomplete")
    run.send("cancelled", reason="stopped by the user")

    view = trace.view()
    assert view == {
        "task_id": "run_1",
        "status": "cancelled",
        "reason": "stopped by the user",
        "output": [
            {
                "type": "tool_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": "search",
                "arguments": "{}",
                "started": True,
            },
            {
                "type": "tool_result",
                "id": "fco_2",
                "call_id": "call_1",
                "block_list": [],
                "status": "incomplete",
            },
            {
                "type": "message",
                "id": "msg_3",
                "role": "assistant",
                "block_list": [{"type": "text", "text": "The first thing to "}],
                "status": "incomplete",
            },
        ],
    }


@story()
def cancelled_with_children(trace: Trace) -> None:
    """Stopped with two levels of agents at work: the innermost end first."""
    run = trace.task("run_1").created().begin()
    step = run.step("research")
    run.whole_call("fc_1", "call_1", "ask_for_help", "{}")
    held_by_run = run.result("fco_2", "call_1")
    child = run.child("call_1", agent="editor")
    child.whole_call("fc_1", "call_2", "ask_for_help", "{}")
    held_by_child = child.result("fco_2", "call_2")
    grandchild = child.child("call_2", agent="reporter")
    message = grandchild.message("msg_1")
    text = message.open_text()
    text.delta("It all began wh")
    queued = trace.task("call_1/2").created(parent_task_id="run_1", call_id="call_1")
    child.send("input_required", requests=[{"id": "apr_1", "kind": "approval"}])
    text.done()
    message.done(status="incomplete")
    grandchild.send("cancelled")
    queued.send("cancelled")  # it never began
    held_by_child.done(brief=True, status="incomplete")
    child.send("cancelled", reason="stopped by the user")
    held_by_run.done(brief=True, status="incomplete")
    run.finish(step)
    run.send("cancelled", reason="stopped by the user")

    view = trace.view()
    assert view["status"] == "cancelled"
    assert [(task["task_id"], task["status"]) for task in view["tasks"]] == [
        ("call_1", "cancelled"),
        ("call_2", "cancelled"),
        ("call_1/2", "cancelled"),
    ]
    assert ["reason" in task for task in view["tasks"]] == [True, False, False]
    assert "requests" not in view["tasks"][0]
    innermost = view["output"][1]["block_list"][1]["block_list"]
    assert innermost == [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "block_list": [{"type": "text", "text": "It all began wh"}],
            "status": "incomplete",
            "task_id": "call_2",
        }
    ]


@story()
def failed(trace: Trace) -> None:
    """The provider gives up: an error for people and programs, and what was there is kept."""
    run = trace.task("run_1").created().begin()
    message = run.message("msg_1")
    text = message.open_text()
    text.delta("Let me th")
    text.done()
    message.done(status="incomplete")
    run.failed(
        "provider_overloaded", "The model's provider is overloaded.", param="model", retry_after=30
    )

    view = trace.view()
    assert view["status"] == "failed"
    assert view["error"] == {
        "code": "provider_overloaded",
        "message": "The model's provider is overloaded.",
        "param": "model",
        "retry_after": 30,
    }
    assert view["output"][0]["status"] == "incomplete"


@story()
def failed_before_start(trace: Trace) -> None:
    """A run that no worker could begin."""
    run = trace.task("run_1").created(
        agent="retired", input="Hello?", private={"options": {"api_key": "sk-secret"}}
    )
    run.failed("agent_unknown", "No worker has an agent named retired.")

    assert trace.view() == {
        "task_id": "run_1",
        "status": "failed",
        "agent": "retired",
        "input": "Hello?",
        "error": {"code": "agent_unknown", "message": "No worker has an agent named retired."},
        "output": [],
    }
    assert trace.whole()["private"] == {"options": {"api_key": "sk-secret"}}


@story()
def incomplete(trace: Trace) -> None:
    """The model ran out of tokens in the middle of a word, and of a call."""
    run = trace.task("run_1").created().begin()
    reasoning = run.reasoning("rs_1")
    part = reasoning.summary()
    part.delta("Too long a tho")
    part.done()
    reasoning.done(status="incomplete")
    call = run.call("fc_2", "call_1", "write")
    call.delta('{"text":"Lorem ips')
    call.done(status="incomplete")
    run.send("incomplete", reason="max_output_tokens")

    assert trace.view() == {
        "task_id": "run_1",
        "status": "incomplete",
        "reason": "max_output_tokens",
        "output": [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "text", "text": "Too long a tho"}],
                "status": "incomplete",
            },
            {
                "type": "tool_call",
                "id": "fc_2",
                "call_id": "call_1",
                "name": "write",
                "arguments": '{"text":"Lorem ips',
                "status": "incomplete",
            },
        ],
    }


@story()
def recovered_attempt(trace: Trace) -> None:
    """A worker is lost in the middle of a message; another worker supersedes it and goes on."""
    run = trace.task("run_1").created().begin()
    run.whole_call("fc_1", "call_1", "search", "{}")
    result = run.result("fco_2", "call_1")
    result.text("found", id=1)
    result.done()
    thinking = run.reasoning("rs_3")
    part = thinking.summary()
    part.delta("I sho")
    message = run.message("msg_4")
    text = message.open_text()
    text.delta("Found").cite(1)
    # Here the worker dies. The next one closes what was open, and leaves it out of the object.
    part.done()
    thinking.done(status="incomplete")
    text.done()
    message.done(status="incomplete")
    closed = len(trace.events)
    run.send("attempt", attempt=2, reason="worker_lost", superseded=["rs_3", "msg_4"])
    again = run.message("msg_5")
    text = again.open_text()
    text.delta("It was found.").cite(1)
    text.done()
    again.done()
    run.completed()

    ids = ["fc_1", "fco_2", "rs_3", "msg_4"]
    assert [item["id"] for item in trace.view(after=closed)["output"]] == ids
    assert [item["id"] for item in trace.view(after=closed + 1)["output"]] == ids[:2]
    view = trace.view()
    assert view["attempt"] == 2
    assert [item["id"] for item in view["output"]] == ["fc_1", "fco_2", "msg_5"]
    assert view["output"][2]["block_list"][0]["text"] == "It was found.[^1]"
    added = [event for event in trace.events if event["type"] == "task.output_item.added"]
    assert added[-1]["output_index"] == 4  # a key, not a position


@story()
def recovered_child(trace: Trace) -> None:
    """A worker is lost with a sub-agent at work: both go on in the same container."""
    run = trace.task("run_1").created().begin()
    run.whole_call("fc_1", "call_1", "ask_for_help", "{}")
    result = run.result("fco_2", "call_1")
    run.whole_call("fc_3", "call_2", "send_mail", "{}")
    mail = run.result("fco_4", "call_2")
    child = run.child("call_1", agent="editor")
    child.says("msg_1", "First, the facts.")
    cut = child.message("msg_2")
    cut.text("Second, th")
    # Here the worker dies. The mail may have been sent: that call is not tried again.
    cut.done(status="incomplete")
    mail.done(status="failed", error={"code": "worker_lost", "message": "It may have been sent."})
    run.send("attempt", attempt=2, reason="worker_lost")
    child.send("attempt", attempt=2, reason="worker_lost", superseded=["msg_2"])
    child.says("msg_3", "Second, the opinions.")
    child.completed()
    result.done(brief=True)
    run.says("msg_5", "Thanks.")
    run.completed()

    view = trace.view()
    assert [item["id"] for item in view["output"]] == ["fc_1", "fco_2", "fc_3", "fco_4", "msg_5"]
    assert [item["id"] for item in view["output"][1]["block_list"]] == ["msg_1", "msg_3"]
    assert view["attempt"] == 2
    assert [task["attempt"] for task in view["tasks"]] == [2]
    assert [item["id"] for item in trace.view("call_1")["output"]] == ["msg_1", "msg_3"]


@story()
def superseded_container(trace: Trace) -> None:
    """A superseded result takes its sub-agent's items out of the object; the task stays listed."""
    run = trace.task("run_1").created().begin()
    run.whole_call("fc_1", "call_1", "ask_for_help", "{}")
    result = run.result("fco_2", "call_1")
    result.text("Asking.", id=1)
    child = run.child("call_1", agent="editor")
    child.says("msg_1", "Half an answer.")
    child.send("cancelled", reason="worker lost")
    result.done(brief=True, status="incomplete")
    before = len(trace.events)
    run.send("attempt", attempt=2, reason="worker_lost", superseded=["fco_2"])
    run.failed("worker_lost", "The run was lost twice.")

    assert [item["id"] for item in trace.view(after=before)["output"]] == ["fc_1", "fco_2"]
    view = trace.view()
    assert [item["id"] for item in view["output"]] == ["fc_1"]
    assert view["tasks"] == [
        {
            "task_id": "call_1",
            "status": "cancelled",
            "agent": "editor",
            "parent_task_id": "run_1",
            "call_id": "call_1",
            "reason": "worker lost",
        }
    ]
    assert trace.whole()["tasks"][0]["output"][0]["id"] == "msg_1"


@story()
def provider_retry(trace: Trace) -> None:
    """A provider's stream breaks twice: its items are superseded, finished items too."""
    run = trace.task("run_1").created().begin()
    for attempt, words in ((2, "The ans"), (3, "The answer i"), (None, "The answer is 42.")):
        reasoning = run.reasoning(f"rs_{attempt or 4}")
        reasoning.summary().delta("Six times seven.").done()
        reasoning.done()
        message = run.message(f"msg_{attempt or 4}")
        message.text(words)
        if attempt is None:
            message.done()
            break
        message.done(status="incomplete")
        run.send("notice", message="The provider's stream broke; trying again.", level="warning")
        superseded = [f"rs_{attempt}", f"msg_{attempt}"]
        run.send("attempt", attempt=attempt, reason="provider_error", superseded=superseded)
    run.completed()

    view = trace.view()
    assert view["attempt"] == 3
    assert [item["id"] for item in view["output"]] == ["rs_4", "msg_4"]
    assert len(view["notices"]) == 2


@story(legal=False)
def cut_by_its_end(trace: Trace) -> None:
    """A terminal event that finds things open: items are closed as incomplete, requests are gone.

    No writer of ours ends a task so; all readers still agree on what is shown.
    """
    run = trace.task("run_1").created().begin()
    run.step("worker")
    message = run.message("msg_1")
    text = message.open_text()
    text.delta("Half a sen")
    call = run.call("fc_2", "call_1", "search")
    call.delta('{"q')
    run.send("input_required", requests=[{"id": "req_1", "kind": "input"}])
    run.failed("internal_error", "The worker crashed.")
    text.delta("tence")
    call.done()

    assert trace.view() == {
        "task_id": "run_1",
        "status": "failed",
        "error": {"code": "internal_error", "message": "The worker crashed."},
        "steps": [{"name": "worker", "depth": 0, "status": "in_progress"}],
        "output": [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "block_list": [{"type": "text", "text": "Half a sen"}],
                "status": "incomplete",
            },
            {
                "type": "tool_call",
                "id": "fc_2",
                "call_id": "call_1",
                "name": "search",
                "arguments": '{"q',
                "status": "incomplete",
            },
        ],
    }
