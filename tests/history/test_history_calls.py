"""Calls of OpenAI's that are answered in forms of their own, approvals, programs, hosts, notes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.core import events as ev
from tailrace.core.items import ErrorInfo, ImageUrl, ImageUrlPart, InputRequest, TextPart, Usage
from tailrace.core.snapshot import restore, save
from tailrace.core.writers import MessageWriter, ResultWriter
from tailrace.history import history
from tailrace.testing.provider_rules import Issued, check_openai_responses
from tests.history.conversations import APIS, PICTURE
from tests.history.runs import ANTHROPIC, CHAT, OPENAI, Run, kept, kinds, sent

SCREEN = ImageUrlPart(image_url=ImageUrl(url=PICTURE))
CALLS: dict[str, dict[str, Any]] = {
    "shell": {"type": "shell_call", "action": {"commands": ["ls"]}},
    "local_shell": {"type": "local_shell_call", "action": {"command": ["ls"]}},
    "apply_patch": {"type": "apply_patch_call", "operation": {"type": "delete_file"}},
    "computer": {"type": "computer_call", "action": {"type": "click"}},
}


def typed(run: Run, kind: str, **more: Any) -> tuple[str, dict[str, Any]]:
    """A call of that kind, as the ingest writes it, and the provider's item."""
    raw = {"id": f"{kind}_1", "call_id": f"call_{kind}_1", **CALLS[kind], **more}
    return run.call(f"{kind}_1", '{"do":1}', kind=kind, tool=kind, raw=raw), raw


def sent_besides(run: Run, **more: Any) -> list[Any]:
    """What is sent besides the question, in the turn that asks for it."""
    return sent([run], **more)[1:]


@pytest.mark.parametrize(
    ("kind", "given", "output"),
    [
        (
            "shell",
            TextPart(text="a.txt"),
            {
                "output": [
                    {
                        "stdout": "a.txt",
                        "stderr": "",
                        "outcome": {"type": "exit", "exit_code": 0},
                    }
                ]
            },
        ),
        ("local_shell", TextPart(text="a.txt"), {"id": "call_local_shell_1", "output": "a.txt"}),
        ("apply_patch", TextPart(text="ok"), {"status": "completed", "output": "ok"}),
        (
            "computer",
            SCREEN,
            {"output": {"type": "computer_screenshot", "image_url": PICTURE}},
        ),
    ],
)
def test_a_result_goes_back_in_the_form_of_its_call(kind: str, given: Any, output: Any) -> None:
    run = Run()
    run.think("rs_1", encrypted_content="gAAA")
    call, raw = typed(run, kind)
    run.result(call, given)
    name = f"{raw['type']}_output"
    expected = {"type": name, "call_id": call, **output}
    assert sent_besides(run)[1:] == [raw, expected]
    run.emit(ev.TaskUsage(task_id="run_1", usage=Usage()), run.private())
    made = history([run.state], OPENAI, "stored")
    assert (made.previous_response_id, made.items) == ("resp_1_1", [expected])
    # Without its reasoning, and for other providers, it is an ordinary function.
    later = sent([run, Run("And?", 2)])
    assert kinds(later)[1:3] == ["function_call", "function_call_output"]
    assert later[1]["name"] == kind
    assert later[1]["id"].startswith("fc_")
    assert sent([run, Run("And?", 2)], mode="encrypted")[2:4] == [raw, expected]
    alone = Run()
    call, raw = typed(alone, kind)
    alone.result(call, given)
    assert sent([alone, Run("And?", 2)])[1:3] == [raw, expected]
    assert sent([run], ANTHROPIC)[1]["content"][0]["name"] == kind
    assert sent([run], CHAT)[1]["tool_calls"][0]["function"]["name"] == kind


def test_what_failed_or_was_interrupted_is_sent_in_the_form_of_its_call() -> None:
    run = Run()
    for kind in CALLS:
        call, _ = typed(run, kind)
        if kind != "shell":
            ResultWriter(run, call).fail(ErrorInfo(code="x", message="No."))
    outputs = {one["type"]: one for one in sent_besides(run) if one["type"].endswith("_output")}
    [shell] = outputs["shell_call_output"]["output"]
    assert shell["stderr"] == "The call was interrupted: it has no result."
    assert shell["outcome"] == {"type": "exit", "exit_code": 1}
    assert outputs["local_shell_call_output"]["output"] == "Error: No."
    assert outputs["apply_patch_call_output"]["status"] == "failed"
    # There is no picture, so there is no form for it.
    assert outputs["function_call_output"]["output"] == "Error: No."
    run.emit(ev.TaskUsage(task_id="run_1", usage=Usage()), run.private())
    made = history([run.state], OPENAI, "stored")
    assert made.previous_response_id is None
    assert "cannot be answered" in made.notes[0]


def test_a_tool_or_a_client_may_answer_in_the_providers_own_form() -> None:
    ended = {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}}
    check = {"id": "sc_1", "code": "malicious_instructions"}
    screen = {"type": "computer_screenshot", "file_id": "file_1"}
    forms: dict[str, dict[str, Any]] = {
        "shell": {"output": [ended]},
        "local_shell": {"output": "ok", "status": "completed"},
        "apply_patch": {"status": "failed"},
        "computer": {"output": screen, "acknowledged_safety_checks": [check]},
    }
    for kind, form in forms.items():
        more = {"pending_safety_checks": [check]} if kind == "computer" else {}
        output = {"type": f"{CALLS[kind]['type']}_output", **form}
        run = Run()
        call, raw = typed(run, kind, **more)
        run.result(call, raw=output)
        named = {"call_id": call} | ({"id": call} if kind == "local_shell" else {})
        assert sent_besides(run) == [raw, {**output, **named}]
        asked = Run()
        typed(asked, kind, **more)
        ids = {"id": call} if kind == "local_shell" else {"call_id": call}
        answered = Run([{**output, **ids}], 2)
        assert sent([asked, answered])[1:] == [raw, {**output, **named}]


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("shell", {"output": "text"}),
        ("shell", {"output": [{"stdout": ""}]}),
        ("local_shell", {"output": 7}),
        ("apply_patch", {"status": "done"}),
        ("computer", {"output": "screen"}),
        ("computer", {"output": {"type": "input_image"}}),
        ("computer", {"output": {"type": "computer_screenshot", "file_id": "f"}}),
        ("shell", {"type": "apply_patch_call_output", "status": "completed"}),
    ],
)
def test_an_invalid_form_is_ignored(kind: str, form: Any) -> None:
    run = Run()
    call, _ = typed(run, kind, pending_safety_checks=[{"id": "sc_1"}, 7])
    output = {"type": f"{CALLS[kind]['type']}_output", **form}
    run.result(call, TextPart(text="in words"), raw=output)
    assert "in words" in json.dumps(sent_besides(run))
    assert output not in [
        {k: v for k, v in one.items() if k != "call_id"} for one in sent_besides(run)
    ]


def test_no_safety_check_is_acknowledged() -> None:
    run = Run()
    call, _ = typed(run, "computer", pending_safety_checks=[{"id": "sc_1"}])
    run.result(call, SCREEN)
    assert kinds(sent_besides(run)) == ["function_call", "function_call_output"]


def test_a_call_without_its_item_or_behind_dropped_reasoning_is_sent_as_a_functions() -> None:
    bare = Run()
    bare.result(bare.call("sh_1", kind="shell", tool="shell"), TextPart(text="x"))
    other = Run()
    call, _ = typed(other, "shell", call_id="call_other")
    other.result(call, TextPart(text="x"))
    behind = Run()
    behind.think("rs_1")
    call, _ = typed(behind, "shell")
    behind.result(call, TextPart(text="x"))
    for run in (bare, other, behind):
        items = sent_besides(run, mode="encrypted", store=False)
        assert kinds(items) == ["function_call", "function_call_output"]
    hosted = Run()
    typed(hosted, "shell")
    host = sent([hosted], host="else.example")
    assert kinds(host)[1:] == ["shell_call", "shell_call_output"]  # an old log names no host


# --- approvals -----------------------------------------------------------------------------------

ASKS = {"name": "buy", "arguments": "{}", "server_label": "shop"}


def asking(run: Run, name: str = "mcpr_1") -> dict[str, Any]:
    raw = {"type": "mcp_approval_request", "id": name, **ASKS}
    run.call(name, "{}", kind="mcp_approval_request", tool="buy", executor="provider", raw=raw)
    return raw


def answer(run: Run, request_id: str, call_id: str | None, **reply: Any) -> None:
    request = InputRequest(id=request_id, kind="approval", call_id=call_id)
    run.emit(ev.TaskInputRequired(task_id=run.task_id, requests=[request]))
    run.emit(ev.TaskInputReceived(task_id=run.task_id, request_id=request_id, **reply))


def response(approve: bool, reason: str | None = None, name: str = "mcpr_1") -> dict[str, Any]:
    reply = {"type": "mcp_approval_response", "approval_request_id": name, "approve": approve}
    return {**reply, "reason": reason} if reason else reply


@pytest.mark.parametrize(
    ("request_id", "call_id"),
    [("mcpr_1", "call_mcpr_1"), ("ours", "call_mcpr_1"), ("mcpr_1", None)],
)
@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ({"approved": True}, response(True)),
        ({"approved": False, "reason": "Not today."}, response(False, "Not today.")),
        ({"value": "yes"}, response(False)),
    ],
)
def test_an_answer_goes_back_with_the_request(
    request_id: str, call_id: str | None, reply: Any, expected: Any
) -> None:
    run = Run()
    raw = asking(run)
    answer(run, request_id, call_id, **reply)
    for state in (run.state, restore(save(run.state, private=True))):
        assert history([state], OPENAI).items[1:] == [raw, expected]
    run.answer = 2
    ran = {"type": "mcp_call", "id": "mcp_1", **ASKS, "approval_request_id": "mcpr_1"}
    run.result(run.call("mcp_1", "{}", kind="mcp", executor="provider", raw=ran))
    assert sent_besides(run) == [raw, expected, ran]


def test_a_request_without_an_answer_is_denied() -> None:
    run = Run()
    raw = asking(run)
    denied = response(False, "The request was not answered.")
    assert sent([run, Run("Never mind.", 2)])[1:3] == [raw, denied]
    made = history([run.end().state, Run("Never mind.", 2).state], OPENAI, "stored")
    assert made.previous_response_id == "resp_1_1"
    assert kinds(made.items) == ["mcp_approval_response", "message"]
    assert made.items[0] == denied


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (response(True), response(True)),
        ({**response(False), "reason": 7}, response(False)),
        (
            {
                "role": "assistant",
                "parts": [
                    {
                        "type": "tool-buy",
                        "toolCallId": "call_mcpr_1",
                        "state": "approval-responded",
                        "approval": {"id": "mcpr_1", "approved": True, "reason": "Yes."},
                    }
                ],
            },
            response(True, "Yes."),
        ),
    ],
)
def test_an_answer_may_come_with_the_next_question(asked: Any, expected: Any) -> None:
    run = Run()
    raw = asking(run)
    late = Run([asked, {"type": "mcp_approval_response"}, response(True, name="other")], 2)
    assert sent([run, late])[1:] == [raw, expected]
    # Who answered first stays.
    assert sent([run, late, Run([response(False, "Late.")], 3)])[1:] == [raw, expected]


def test_an_approval_request_without_its_reasoning_is_left_out_and_not_referenced() -> None:
    run = Run()
    run.think("rs_1")
    asking(run)
    answer(run, "mcpr_1", None, approved=True)
    run.answer = 2
    ran = {"type": "mcp_call", "id": "mcp_1", **ASKS, "approval_request_id": "mcpr_1"}
    run.result(run.call("mcp_1", "{}", kind="mcp", executor="provider", raw=ran))
    made = history([run.state, Run("And?", 2).state], OPENAI)
    del ran["approval_request_id"]
    assert made.items[1:-1] == [ran]
    assert any("mcp_approval_request" in note and "reasoning" in note for note in made.notes)


def test_where_no_item_names_its_response_an_answer_still_follows_its_request() -> None:
    run = Run()
    raws = []
    for number in (1, 2):
        raw = {"type": "mcp_approval_request", "id": f"mcpr_{number}", **ASKS}
        raws.append(raw)
        index = run.call(
            f"mcpr_{number}", "{}", kind="mcp_approval_request", executor="provider", raw=raw
        )
        run.node.calls[index].private["provider"].pop("response_id")
    writer = MessageWriter(run)
    writer.text("Bought.")
    writer.finish(private=ev.Private(provider={"api": OPENAI, "id": "msg_1"}))
    items = sent_besides(run)
    assert items[:2] == raws
    assert kinds(items[2:]) == ["mcp_approval_response"] * 2 + ["message"]


# --- programs and other raw items ----------------------------------------------------------------


def program_run() -> tuple[Run, list[dict[str, Any]]]:
    """A program that calls a function, as in OpenAI's programmatic tool calling."""
    program = {"type": "program", "id": "cm_1", "call_id": "call_p", "code": "x"}
    run = Run()
    run.think("rs_1", encrypted_content="gAAA")
    kept(run, program)
    caller = {"type": "program", "caller_id": "call_p"}
    raw = {"type": "function_call", "id": "fc_1", "call_id": "call_fc_1", "caller": caller}
    run.result(run.call("fc_1", "{}", raw=raw), TextPart(text="42"))
    return run, [program, caller]


def test_a_program_goes_back_while_its_calls_are_answered_and_with_its_output() -> None:
    run, [program, caller] = program_run()
    items = sent_besides(run)
    assert kinds(items) == ["reasoning", "program", "function_call", "function_call_output"]
    assert items[1] == program
    assert items[2]["caller"] == items[3]["caller"] == caller
    run.answer = 2
    output = {"type": "program_output", "id": "cmo_1", "call_id": "call_p", "result": "42"}
    kept(run, output)
    run.say("msg_1", "42.")
    assert [one.get("id") for one in sent_besides(run)] == [
        "rs_1",
        "cm_1",
        "fc_1",
        None,
        "cmo_1",
        "msg_1",
    ]
    later = sent([run, Run("And?", 2)])
    assert kinds(later)[1:4] == ["function_call", "function_call_output", "message"]
    assert "caller" not in json.dumps(later)
    assert output in sent([run, Run("And?", 2)], mode="encrypted")


CODE: Any = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {}}


def code_run(**provider: Any) -> Run:
    """Code of Anthropic that calls a tool, in an answer that names its container or not."""
    run = Run(api=ANTHROPIC)
    run.call("srvtoolu_1", "{}", executor="provider", tool="code_execution", raw=CODE)
    caller = {"type": "code_execution_20250825", "tool_id": CODE["id"]}
    call = run.call("toolu_1", raw={"type": "tool_use", "id": "toolu_1", "caller": caller})
    private = ev.Private(provider={"api": ANTHROPIC, **provider})
    run.emit(ev.TaskUsage(task_id=run.task_id, usage=Usage()), private)
    run.result(call, TextPart(text="15C"))
    return run


def test_code_that_waits_for_a_tool_goes_back_with_its_container() -> None:
    request = history([code_run(container="container_1").state], ANTHROPIC).request()
    assert request["container"] == "container_1"
    assert kinds(request["messages"][1]["content"]) == ["server_tool_use", "tool_use"]
    assert "caller" in request["messages"][1]["content"][1]


def test_code_whose_container_is_not_known_is_left_out() -> None:
    request = history([code_run().state], ANTHROPIC).request()
    assert "container" not in request
    [call] = request["messages"][1]["content"]
    assert (call["type"], "caller" in call) == ("tool_use", False)


def test_a_program_that_was_left_alone_is_left_out() -> None:
    run, _ = program_run()
    for mode in ("drop", "encrypted"):
        items = sent([run, Run("Stop.", 2)], mode=mode)
        assert kinds(items)[1:3] == ["function_call", "function_call_output"]
        assert "program" not in json.dumps(items)
    direct = Run()
    raw = {"type": "function_call", "id": "fc_1", "caller": {"type": "direct"}}
    direct.call("fc_1", raw=raw)
    odd = {"type": "function_call", "caller": {"type": "program", "caller_id": 7}}
    direct.call("fc_2", raw=odd)
    assert "caller" not in json.dumps(sent([direct]))


def test_a_pair_that_reasoning_tears_apart_goes_and_takes_its_reasoning_along() -> None:
    run = Run()
    run.think("rs_1", encrypted_content="gAAA")
    kept(run, {"type": "program", "id": "cm_1", "call_id": "call_p", "code": "x"})
    run.answer = 2
    run.think("rs_2")  # not sealed: without a store it cannot go back
    kept(run, {"type": "program_output", "id": "cmo_1", "call_id": "call_p", "result": "42"})
    run.say("msg_1", "42.")
    assert kinds(sent_besides(run, mode="encrypted", store=False)) == ["message"]


def test_items_without_a_name_go_back_within_the_turn_and_where_all_ids_stay() -> None:
    hologram = {"type": "hologram", "id": "holo_1"}
    run = Run()
    kept(run, hologram)
    run.say("msg_1", "There.")
    assert hologram in sent([run])
    assert hologram in sent([run, Run("And?", 2)], mode="encrypted")
    made = history([run.state, Run("And?", 2).state], OPENAI)
    assert hologram not in made.items
    assert any("hologram" in note and "earlier turn" in note for note in made.notes)
    for api in (ANTHROPIC, CHAT):
        other = history([run.state], api)
        assert "hologram" not in json.dumps(other.items)
        assert any("hologram" in note for note in other.notes)


# --- hosts ---------------------------------------------------------------------------------------


def at_host(host: str, api: str = OPENAI) -> Run:
    run = Run(api=api)
    place = {"host": host, "model": "m"}
    run.think("rs_1", encrypted_content="gAAA", signature="EqMB", provider=place)
    writer = MessageWriter(run)
    writer.text("Hello.")
    writer.finish(private=run.private("msg_1", provider=place))
    facts = {"api": api, "response_id": "resp_1_1", **place}
    run.emit(ev.TaskUsage(task_id="run_1", usage=Usage()), ev.Private(provider=facts))
    return run


@pytest.mark.parametrize(
    ("host", "is_theirs"), [("api.openai.com", True), (None, True), ("api.x.ai", False)]
)
def test_what_one_host_sealed_or_named_is_sent_to_no_other(
    host: str | None, is_theirs: bool
) -> None:
    run = at_host("api.openai.com")
    made = history([run.state, Run("And?", 2).state], OPENAI, "encrypted", host=host)
    reply = json.dumps(made.items)
    assert ("rs_1" in reply, "gAAA" in reply, 'msg_1"' in reply) == (is_theirs,) * 3
    assert "Hello." in reply
    assert bool(made.notes) != is_theirs
    stored = history([run.state, Run("And?", 2).state], OPENAI, "stored", host=host)
    assert (stored.previous_response_id == "resp_1_1") == is_theirs
    thinking = at_host("api.openai.com", ANTHROPIC)
    reply = json.dumps(sent([thinking, Run("And?", 2)], ANTHROPIC, "encrypted", host=host))
    assert ("EqMB" in reply) == is_theirs


def test_the_model_of_the_request_counts_more_than_the_model_of_the_run() -> None:
    run = at_host("api.openai.com")
    for model, count in (("m", 1), ("other", 0)):
        items = sent([run, Run("And?", 2)], mode="encrypted", model=model)
        assert kinds(items).count("reasoning") == count


# --- notes ---------------------------------------------------------------------------------------


def notes(run: Run, api: Any = OPENAI, mode: Any = "encrypted", **more: Any) -> list[str]:
    return history([run.state, Run("And?", 2).state], api, mode, **more).notes


def test_a_whole_history_has_no_notes_and_each_gap_is_a_note_once() -> None:
    run = Run()
    run.say("msg_1", "Hello.")
    for api in APIS:
        assert notes(run, api) == []
    assert history([Run().state], OPENAI, "stored").notes == []
    for number in (1, 2):
        run.think(f"rs_{number}")
        run.say(f"msg_x{number}", "And.")
    assert notes(run, store=False) == [
        "Left out of what the model reads: reasoning, because it did not come sealed."
    ]
    assert notes(run, mode="drop") == []  # that is what was asked for
    [unsigned] = notes(run, ANTHROPIC)
    assert "another provider or model made it" in unsigned


def test_every_reason_has_its_words() -> None:
    lost = Run()
    lost.think("rs_1", encrypted_content="gAAA")
    lost.say("msg_1", "Half", "incomplete")
    assert "what followed it" in notes(lost)[0]
    unsigned = Run(api=ANTHROPIC)
    unsigned.think("x")
    unsigned.say("x", "Hello.")
    assert "without a signature" in notes(unsigned, ANTHROPIC)[0]
    broken = Run()
    broken.call("ws_1", executor="provider", kind="web_search")
    broken.say("msg_1", "Hello.")
    assert "web_search, because it is not whole" in notes(broken)[0]
    assert "another provider" in notes(broken, ANTHROPIC)[0]
    assert "have no place for it" in notes(broken, CHAT)[0]
    paused = Run(api=ANTHROPIC)
    paused.call("srvtoolu_1", executor="provider", raw={"type": "server_tool_use", "id": "s"})
    assert "server_tool_use, because it is not whole" in notes(paused, ANTHROPIC)[0]
    foreign = Run(api=ANTHROPIC)
    foreign.call("srvtoolu_1", executor="provider", kind="web_search", raw={"type": "x", "id": "s"})
    foreign.say("msg_1", "Hello.")
    assert "another provider" in notes(foreign)[0]
    picture = [{"type": "image", "image_url": {"url": "/blobs/1"}}]
    assert "image or file" in history([Run(picture).state], OPENAI).notes[0]
    torn = Run()
    torn.think("rs_1", encrypted_content="gAAA")
    kept(torn, {"type": "program", "id": "cm_1", "call_id": "p", "code": "x"})
    torn.think("rs_2")
    kept(torn, {"type": "program_output", "id": "cmo_1", "call_id": "p", "result": "y"})
    assert any("its other half" in note for note in notes(torn, store=False))


def test_the_validator_takes_what_a_history_answers() -> None:
    """The four forms and an approval at once, against the provider's own rules."""
    run = Run()
    output: list[dict[str, Any]] = []
    for kind in CALLS:
        call, raw = typed(run, kind)
        output.append(raw)
        run.result(call, SCREEN)
    output.append(asking(run))
    answer(run, "mcpr_1", None, approved=True)
    issued = Issued()
    issued.openai_response("resp_1_1", output)
    assert check_openai_responses({"input": sent([run])}, issued) is None
    run.emit(ev.TaskUsage(task_id="run_1", usage=Usage()), run.private())
    made = history([run.state], OPENAI, "stored")
    assert check_openai_responses(made.request(), issued) is None
    assert len(made.items) == 5


def test_stored_gives_nothing_for_what_the_provider_ran_itself() -> None:
    run = Run()
    found = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    run.result(run.call("ws_1", executor="provider", kind="web_search", raw=found))
    run.result(run.call("fc_1"), TextPart(text="15C"))
    run.emit(ev.TaskUsage(task_id="run_1", usage=Usage()), run.private())
    assert kinds(history([run.state], OPENAI, "stored").items) == ["function_call_output"]


def test_an_answer_to_something_else_changes_nothing() -> None:
    run = Run()
    run.say("msg_1", "Which city?")
    answer(run, "city", None, value="Paris")
    assert kinds(sent([run])) == ["message", "message"]
    assert sent([Run([{"type": "mcp_call", **ASKS}, {"role": "user", "content": " "}])]) == (
        sent([Run(None)])
    )


def test_a_failed_tools_pictures_are_sent_to_anthropic_in_words() -> None:
    run = Run()
    writer = ResultWriter(run, run.call("fc_1"))
    error = ErrorInfo(code="x", message="No.")
    writer.fail(error, ev.Private(content=[SCREEN, TextPart(text="Half of it.")]))
    [block] = sent([run], ANTHROPIC)[2]["content"]
    assert block["is_error"] is True
    texts = ["[image]", "Half of it.", "Error: No."]
    assert block["content"] == [{"type": "text", "text": text} for text in texts]


def test_a_result_that_says_nothing_is_a_result() -> None:
    run = Run()
    run.result(run.call("fc_1"), TextPart(text=""))
    [block] = sent([run], ANTHROPIC)[2]["content"]
    assert block == {"type": "tool_result", "tool_use_id": "call_fc_1"}
