"""What an agent writes is legal, whatever it does and however it stops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.core.codec import MAX_EVENT_BYTES
from tailrace.core.errors import CallerError, IllegalEvent, InvalidValue, NotFound, StreamTooLarge
from tailrace.core.items import Data, ErrorInfo, File, Refusal, Text, Usage
from tailrace.core.run_object import client_view, whole_object
from tailrace.ingest.openai_chat.reader import OpenAIChat
from tailrace.runtime.tasks.task import Task, pending_call
from tests.runtime.tasks.begun import begun_in

RUN = "run_1"


@pytest.fixture
async def task(tmp_path: Path) -> AsyncIterator[Task]:
    created = {"agent": "a", "thread_id": "t", "input": "?", "options": {"temperature": 0}}
    async with begun_in(tmp_path, RUN, **created) as begun:
        yield begun.task


def output(task: Task) -> list[dict[str, Any]]:
    return list(client_view(task._sink.emitter.state)["output"])


async def test_a_plain_value_can_be_cited(task: Task) -> None:
    with task.call("look") as call:
        call.arguments("{}")
    call.result({"sky": "blue"})
    with task.message() as message:
        for piece in ("It is blue.[", "^1", "] Or [^2]?"):
            message.text(piece)
    text = output(task)[2]["block_list"][0]
    assert text["text"] == "It is blue.[^1] Or [^2]?"
    assert [
        (note["reference_id"], note["start_index"], note["end_index"])
        for note in text["annotations"]
    ] == [(1, 11, 15)]


async def test_the_model_reads_wrapped_content_and_the_client_never_sees_it(
    task: Task,
) -> None:
    with task.call("look") as call:
        call.arguments("{}")
    call.result("blue")
    result = whole_object(task._sink.emitter.state)["output"][1]
    assert [part["text"] for part in result["content"]] == [
        "<referencable-item>\nID: 1",
        "blue",
        "</referencable-item>",
    ]
    assert "content" not in output(task)[1]


async def test_a_sub_agent_hands_over_its_message_and_what_it_cited(task: Task) -> None:
    with task.call("own") as own:
        own.arguments("{}")
    own.result("the parent's own fact")
    with task.call("ask_for_help") as call:
        call.arguments('{"name":"child"}')
    with call.delegate("child", "go") as child:
        with child.reasoning() as thinking:
            thinking.summary("inside")
        for name in ("uncited", "cited"):
            with child.call(name) as inner:
                inner.arguments("{}")
            inner.result(f"fact {name}")
        with child.message() as message:
            message.text("See [^2].")
    content = whole_object(task._sink.emitter.state)["output"][3]["content"]
    assert [part["text"] for part in content] == [
        "<referencable-item>\nID: 2",
        "fact cited",
        "</referencable-item>",
        "See [^2].",
    ]
    view = client_view(task._sink.emitter.state)
    assert view["imports"] == [
        {"reference_id": 2, "source_task_id": call.call_id, "source_reference_id": 2}
    ]
    assert [block["type"] for block in view["output"][3]["block_list"]] == [
        "reasoning",
        "tool_call",
        "tool_result",
        "tool_call",
        "tool_result",
        "message",
    ]


async def test_a_child_that_failed_makes_its_call_fail(task: Task) -> None:
    with task.call("ask") as call:
        call.arguments("{}")
    with call.delegate("child") as child:
        child.fail(ErrorInfo(code="nope", message="It did not work."))
    assert output(task)[1]["error"]["code"] == "nope"
    task.complete()


async def test_a_tool_that_failed_says_so(task: Task) -> None:
    with task.call("look") as call:
        call.arguments("{}")
    call.start()
    call.progress("1 of 2", 1, 2)
    call.fail(ErrorInfo(code="tool_timeout", message="Too slow."))
    assert output(task)[1]["status"] == "failed"


async def test_every_kind_of_block_can_be_returned(task: Task) -> None:
    with task.call("look") as call:
        call.arguments("{}")
    blocks = [
        Text(text="t"),
        Data(data={"a": 1}, name="table"),
        File(url="https://files.example/a.pdf"),
        Refusal(refusal="no"),
    ]
    call.result({"block_list": blocks})
    kinds = [block["type"] for block in output(task)[1]["block_list"]]
    assert kinds == ["text", "data", "file", "refusal"]


async def test_a_message_holds_several_texts_and_pictures(task: Task) -> None:
    with task.message() as message:
        message.text("first")
        message.image("data:image/png;base64,AA==", ["data:image/png;base64,A==="])
        message.text("second[")
    kinds = [block["type"] for block in output(task)[0]["block_list"]]
    assert kinds == ["text", "image", "text"]
    assert output(task)[0]["block_list"][2]["text"] == "second["


async def test_whatever_is_open_is_closed_when_the_task_is_stopped(task: Task) -> None:
    outer = task.step("work")
    outer.__enter__()
    with task.call("ask") as call:
        call.arguments("{}")
    delegated = call.delegate("child")
    child = delegated.__enter__()
    thinking = child.reasoning().__enter__()
    thinking.summary("half a thou")
    inner = child.call("look").__enter__()
    inner.arguments('{"half')
    message = task.message().__enter__()
    message.text("half an ans")
    task.cancel("enough")
    task.cancel("a second time changes nothing")
    task.complete()
    view = client_view(task._sink.emitter.state)
    assert view["status"] == "cancelled"
    assert view["tasks"][0]["status"] == "cancelled"
    assert view["output"][1]["error"]["code"] == "interrupted"
    assert view["output"][2]["block_list"][0]["text"] == "half an ans"
    assert view["output"][2]["status"] == "incomplete"
    assert view["output"][1]["block_list"][1]["arguments"] == '{"half'


async def test_notices_usage_and_steps_are_kept(task: Task) -> None:
    with task.step("work"):
        task.notice("careful", {"why": "hot"})
        task.usage(Usage(model="m", input_tokens=1, output_tokens=2))
    with task.reasoning() as thinking:
        thinking.next_part()
        thinking.summary("a")
    task.complete()
    view = client_view(task._sink.emitter.state)
    assert view["notices"] == [{"message": "careful", "data": {"why": "hot"}}]
    assert view["usage"]["output_tokens"] == 2
    assert task.input == "?"


# --- blocks that an exception leaves -------------------------------------------------------------


class Oops(Exception):
    """What an agent raises, and may catch itself."""


def view(task: Task) -> dict[str, Any]:
    return client_view(task._sink.emitter.state)


async def test_a_block_that_an_exception_leaves_closes_its_item_and_the_run_goes_on(
    task: Task,
) -> None:
    with pytest.raises(Oops), task.step("outer"), task.reasoning() as thinking:  # noqa: PT012
        thinking.summary("Half a thou")
        raise Oops
    with pytest.raises(Oops), task.message() as message:  # noqa: PT012
        message.text("Half an ans")
        raise Oops
    with pytest.raises(Oops), task.call("look") as call:  # noqa: PT012
        call.arguments('{"ci')
        raise Oops
    with task.message() as message:
        message.text("Whole.")
    task.complete()
    shown = view(task)
    assert shown["status"] == "completed"
    assert [item.get("status") for item in shown["output"]] == [*["incomplete"] * 3, None]
    assert shown["output"][1]["block_list"][0]["text"] == "Half an ans"
    assert shown["steps"][0]["status"] == "incomplete"


@pytest.mark.parametrize("raised", [Oops, asyncio.CancelledError, KeyboardInterrupt])
async def test_a_step_that_an_exception_leaves_is_incomplete_and_so_are_those_inside_it(
    task: Task, raised: type[BaseException]
) -> None:
    with task.step("whole"):
        task.say("Hello.")
    beside = task.step("beside")
    with task.step("around"), pytest.raises(raised), task.step("left"):  # noqa: PT012
        beside.__enter__()  # as a coroutine that runs at the same time does
        raise raised
    beside.__exit__(None, None, None)
    task.complete()
    assert view(task)["status"] == "completed"
    assert [(step["name"], step["status"]) for step in view(task)["steps"]] == [
        ("whole", "completed"),
        ("around", "completed"),
        ("left", "incomplete"),
        ("beside", "incomplete"),
    ]


async def test_a_block_closes_its_item_after_a_refused_event_too(task: Task) -> None:
    with pytest.raises(InvalidValue), task.message() as message:  # noqa: PT012
        message.text("Half")
        message.text("\x00")
    task.complete()
    [item] = output(task)
    assert (item["status"], item["block_list"][0]["text"]) == ("incomplete", "Half")


@pytest.mark.parametrize("fails", [False, True], ids=["result", "fail"])
async def test_a_result_that_is_refused_is_closed_as_failed_so_that_the_run_can_end(
    task: Task, fails: bool
) -> None:
    with task.call("read") as call:
        call.arguments("{}")
    large = "x" * MAX_EVENT_BYTES
    with pytest.raises(StreamTooLarge):
        call.fail("too_long", large) if fails else call.result(large)
    task.complete()
    [_, result] = output(task)
    assert (result["status"], result["error"]["code"]) == ("failed", "invalid_result")


async def test_after_a_task_has_failed_inside_its_blocks_they_end_silently(
    task: Task,
) -> None:
    with task.step("outer"), task.message() as message:
        message.text("Half")
        task.fail(ErrorInfo(code="no_luck", message="No luck."))
    assert view(task)["error"]["code"] == "no_luck"
    assert view(task)["steps"][0]["status"] == "incomplete"


@pytest.mark.parametrize(
    ("raised", "status", "code"),
    [(Oops, "failed", "agent_error"), (asyncio.CancelledError, "cancelled", "cancelled")],
)
async def test_a_sub_agent_that_raises_is_ended_and_so_is_the_result_that_holds_it(
    task: Task, raised: type[BaseException], status: str, code: str
) -> None:
    with task.call("helper") as call:
        call.arguments("{}")
    with pytest.raises(raised), call.delegate("helper") as child, child.message() as message:  # noqa: PT012
        message.text("Half")
        raise raised
    task.complete()
    assert view(task)["tasks"][0]["status"] == status
    result = output(task)[1]
    assert (result["status"], result["error"]["code"]) == ("failed", code)


async def test_a_sub_agent_whose_parent_fails_inside_the_block_ends_silently(
    task: Task,
) -> None:
    with task.call("helper") as call:
        call.arguments("{}")
    with call.delegate("helper") as child, child.message() as message:
        message.text("Half")
        task.fail(ErrorInfo(code="no_luck", message="No luck."))
    assert view(task)["error"]["code"] == "no_luck"


@pytest.mark.parametrize("status", ["cancelled", "incomplete"])
async def test_a_sub_agent_without_an_answer_gives_its_parent_no_completed_result(
    task: Task, status: str
) -> None:
    with task.call("helper") as call:
        call.arguments("{}")
    with call.delegate("helper") as child:
        with child.message() as message:
            message.text("Half")
        if status == "cancelled":
            child.cancel("Enough.")
        else:
            child.incomplete("max_turns")
    task.complete()
    [_, result] = whole_object(task._sink.emitter.state)["output"]
    assert (result["status"], result["error"]["code"]) == ("failed", status)
    assert result["content"][-1]["text"] == "Half"


async def test_a_task_that_a_worker_leaves_to_another_worker_stays_open(task: Task) -> None:
    with pytest.raises(asyncio.CancelledError), task.message() as message:  # noqa: PT012
        message.text("Half")
        task._sink.emitter.is_left = True
        raise asyncio.CancelledError
    block = task.message()
    block.__enter__().text("Never left")
    del block  # as Python does with a coroutine that is never awaited
    assert [item["status"] for item in output(task)] == ["in_progress", "in_progress"]
    task.cancel("Enough.")


# --- what an agent reads -------------------------------------------------------------------------


async def test_a_task_knows_its_run_and_shows_what_its_clients_see(task: Task) -> None:
    assert (task.run_id, task.task_id, task.thread_id, task.agent) == (RUN, RUN, "t", "a")
    assert task.options == {"temperature": 0}
    task.say("Hello.")
    assert task.state["output"][0]["block_list"] == [{"type": "text", "text": "Hello."}]
    with task.call("help") as call:
        call.arguments("{}")
    with call.delegate("child", {"role": "user", "content": "Look."}) as child:
        assert (child.run_id, child.thread_id, child.agent) == (RUN, "t", "child")
        assert child.text == "Look."
        assert child.state["input"] == child.input


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, ""),
        ("Hi.", "Hi."),
        ({"city": "Paris"}, '{"city":"Paris"}'),
        ({"role": "user", "parts": [{"type": "text", "text": "A"}]}, "A"),
        (
            [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "input_text", "text": "A"}]},
                {"type": "function_call_output", "call_id": "c", "output": "no"},
                {"role": "user", "content": "B"},
            ],
            "A\nB",
        ),
        ([{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}, "C"], "C"),
    ],
)
async def test_the_text_of_an_input_is_what_the_user_wrote_last(
    task: Task, given: Any, text: str
) -> None:
    task._sink.node.facts["input"] = given
    assert task.text == text


async def test_a_history_has_the_input_and_what_was_written(task: Task) -> None:
    task.say("Hello.")
    sent = await task.history()
    assert [item.get("role") for item in sent.items] == ["user", "assistant"]
    assert (await task.history("anthropic_messages")).request()["messages"][0]["role"] == "user"


async def test_a_sub_agent_has_its_own_history(task: Task) -> None:
    with task.call("help") as call:
        call.arguments("{}")
    with call.delegate("child", "Look.") as child:
        child.say("Seen.")
        sent = await child.history("openai_chat")
    assert [item["content"] for item in sent.items] == ["Look.", "Seen."]


# --- what an agent writes ------------------------------------------------------------------------


async def test_a_call_is_found_by_the_id_that_the_agent_chose(task: Task) -> None:
    with task.call("look", call_id="call_mine") as call:
        call.arguments("{}")
    assert output(task)[0]["call_id"] == call.call_id == "call_mine_1"
    for named in ("call_mine", call):
        assert pending_call(task, named).call_id == call.call_id
    task.answer("call_mine", "Seen.")
    assert output(task)[1]["call_id"] == call.call_id
    with pytest.raises(IllegalEvent, match="call-id-new"), task.call("look", call_id="call_mine"):
        pass
    with pytest.raises(CallerError, match="call_id"), task.call("look", call_id="no id\n"):
        pass


async def test_calls_that_a_model_made_are_found_and_answered(task: Task) -> None:
    ingest = OpenAIChat(task._sink)
    for number, name in enumerate(("look", "feel")):
        function = {"name": name, "arguments": f'{{"n":{number}}}'}
        delta = {"tool_calls": [{"index": number, "id": f"c{number}", "function": function}]}
        ingest.feed(json.dumps({"choices": [{"delta": delta}]}))
    ingest.feed(json.dumps({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}))
    ingest.end()
    first, second = task.calls()
    assert [(call.name, call.arguments) for call in (first, second)] == [
        ("look", '{"n":0}'),
        ("feel", '{"n":1}'),
    ]
    first.start()
    first.progress("half", 1, 2)
    task.answer(first.item, {"sky": "blue"})
    pending_call(task, second.call_id).fail("tool_timeout", "Too slow.")
    assert task.calls() == []
    shown = output(task)
    assert shown[0]["started"]
    assert shown[2]["block_list"][0]["text"] == '{"sky":"blue"}'
    assert shown[3]["error"] == {"code": "tool_timeout", "message": "Too slow."}
    with pytest.raises(NotFound, match="has no call 'nope'"):
        task.answer("nope", "")


async def test_progress_and_structured_output_are_shown(task: Task) -> None:
    task.progress("reading", 1, 3)
    task.output(Usage(input_tokens=3))
    assert view(task)["progress"] == {"message": "reading", "current": 1, "total": 3}
    assert view(task)["structured_output"] == {"value": {"input_tokens": 3}, "name": "Usage"}


async def test_a_structured_output_that_is_not_json_is_refused(task: Task) -> None:
    with pytest.raises(InvalidValue, match="object is no JSON"):
        task.output(object())
    task.output([1], name="numbers")
    assert view(task)["structured_output"] == {"value": [1], "name": "numbers"}


async def test_usage_is_counted_by_its_fields(task: Task) -> None:
    task.usage(input_tokens=12, model="m")
    task.usage(Usage(input_tokens=1), output_tokens=2)
    assert view(task)["usage"] == {
        "calls": 2,
        "model": "m",
        "input_tokens": 13,
        "output_tokens": 2,
    }
    for wrong in ({"tokens": 1}, {"input_tokens": "many"}):
        with pytest.raises(CallerError, match="fields of `Usage`"):
            task.usage(**wrong)


async def test_a_task_fails_with_a_code_and_a_message(task: Task) -> None:
    task.fail("no_luck", "No luck.")
    assert view(task)["error"] == {"code": "no_luck", "message": "No luck."}


async def test_an_incomplete_task_keeps_what_it_has(task: Task) -> None:
    with task.message() as message:
        message.text("Half")
        task.incomplete("max_output_tokens")
    shown = view(task)
    assert (shown["status"], shown["reason"]) == ("incomplete", "max_output_tokens")
    assert shown["output"][0]["block_list"][0]["text"] == "Half"


async def test_a_task_without_a_worker_cannot_ask(task: Task) -> None:
    with pytest.raises(CallerError, match="no worker"):
        await task.ask("Which city?")
    task.cancel("Enough.")
