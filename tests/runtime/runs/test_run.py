"""A run in the caller's hands: start it, follow it, answer it, stop it, read what it came to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from tailrace import Answer, InputRequest, Result, Run, Tailrace, Task, restartable
from tailrace.core.errors import CallerError, NotFound, UnknownFormat
from tailrace.events import (
    AgentUpdatedStreamEvent,
    RawResponsesStreamEvent,
    RunItemStreamEvent,
    TaskCompleted,
    TaskCreated,
    TaskInputReceived,
    TaskInputRequired,
    TextDelta,
)


async def greet(task: Task) -> str:
    return f"Hello, {task.text}!"


async def recall(task: Task) -> None:
    sent = await task.history()
    questions = [item["content"] for item in sent.items if item.get("role") == "user"]
    task.say(f"I heard {len(questions)} questions.")
    task.usage(model="m", input_tokens=3)
    task.output({"count": len(questions)}, name="Count")


async def ask(task: Task) -> str:
    city = await task.ask("Which city?", schema={"type": "string"})
    sure = await task.ask("Sure?", kind="approval", call="call_1")
    return f"{city.value} {sure.approved} {sure.reason}"


async def ask_two(task: Task) -> str:
    """The same question twice at the same time, beside a named request."""
    named = task.ask(InputRequest(id="apr_1", kind="approval"))
    answers = await asyncio.gather(task.ask("Same?"), task.ask("Same?"), named)
    again = await task.ask(InputRequest(id="apr_1", kind="approval"))
    return f"{[answer.value for answer in answers]} {again.approved}"


async def hang(task: Task) -> None:
    task.say("Half.")
    await asyncio.Event().wait()


async def odd(_task: Task) -> dict[str, str]:
    return {"dropped": "value"}


async def fail(task: Task) -> str:
    task.fail("no_luck", "No luck.")
    return "not written"


async def impatient(task: Task) -> str:
    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            await task.ask("Any wishes?")
    return "None."


@restartable
async def patient(task: Task) -> str:
    answer = await task.ask("Which city?")
    return f"{answer.value}, attempt {task.state['attempt']}"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Tailrace]:
    agents = [greet, recall, ask, ask_two, hang, odd, fail, impatient]
    app = Tailrace(agents, tmp_path / "log.db")
    async with app.running(), asyncio.timeout(120):
        yield app


async def pending(run: Run, count: int) -> list[InputRequest]:
    """The run's requests, once so many are pending."""
    found: list[InputRequest] = []
    async for event in run.events():
        if isinstance(event, TaskInputRequired) and len(found := await run.requests()) >= count:
            return found
    raise AssertionError("The run has ended.")


async def test_text_that_an_agent_returns_is_its_answer(app: Tailrace) -> None:
    run = await app.start("greet", "Ada")
    result = await run.result()
    assert (result.status, result.text, result.error) == ("completed", "Hello, Ada!", None)
    assert result.to_input_list()[0]["content"] == [{"type": "input_text", "text": "Ada"}]
    assert repr(result) == "Result(status='completed', text='Hello, Ada!')"
    assert run.id in repr(run)


async def test_a_second_turn_sees_the_first_turn(app: Tailrace) -> None:
    first = await app.start("recall", "One?")
    await first.result()
    for turn in (
        await app.start("recall", "Two?", thread=first.thread_id),
        await app.start("recall", "Two?", previous_run=first.id),
    ):
        result = await turn.result()
        assert result.text == "I heard 2 questions."
        assert result.output == {"count": 2}
        assert result.usage.input_tokens == 3
        assert [item["type"] for item in result.items] == ["message"]
        assert turn.thread_id == first.thread_id
    alone = await app.start("recall", "New?", thread=first.thread_id, previous_run=None)
    assert (await alone.result()).output == {"count": 1}


async def test_a_run_is_followed_as_typed_events_from_any_place(app: Tailrace) -> None:
    run = await app.start("greet", "Ada", run_id="run_mine", metadata={"a": 1})
    events = [event async for event in run.events()]
    assert isinstance(events[0], TaskCreated)
    assert isinstance(events[-1], TaskCompleted)
    rest = [event async for event in (await app.run("run_mine")).events(after=2)]
    assert rest == events[2:]
    assert any(isinstance(event, TextDelta) and "Ada" in event.delta for event in rest)
    with pytest.raises(CallerError, match="sequence number"):
        run.events(after="2")  # type: ignore[call-overload]


async def test_a_run_is_followed_in_a_wire_format_from_any_frame(app: Tailrace) -> None:
    run = await app.start("greet", "Ada")
    frames = b"".join([piece async for piece in run.events("openai-responses")])
    assert b"event: response.completed" in frames
    whole = b"".join([piece async for piece in run.events("task")])
    ids = [line[4:] for line in whole.decode().splitlines() if line.startswith("id: ")]
    rest = b"".join([piece async for piece in run.events("task", after=ids[-2])])
    assert rest.count(b"data: ") == 1
    with pytest.raises(UnknownFormat, match="Unknown format 'morse'; use task"):
        run.events("morse")


async def test_the_events_of_the_format_agents_are_typed(app: Tailrace) -> None:
    run = await app.start("greet", "Ada")
    found = [event async for event in run.events("agents")]
    assert isinstance(found[0], AgentUpdatedStreamEvent)
    assert found[0].new_agent.name == "greet"
    (made,) = (event for event in found if isinstance(event, RunItemStreamEvent))
    assert made.item.raw_item["content"][0]["text"] == "Hello, Ada!"
    last = found[-1]
    assert isinstance(last, RawResponsesStreamEvent)
    assert last.data["type"] == "response.completed"
    [created, *_] = await app._runs.store.read(run.id, 0)
    epoch = created.epoch
    assert [event async for event in run.events("agents", after=f"{epoch}-1.1")] == found[1:]


async def test_questions_are_answered_in_order(app: Tailrace) -> None:
    run = await app.start("ask")
    [question] = await pending(run, 1)
    assert (question.kind, question.message) == ("input", "Which city?")
    await run.send("Paris")
    async for event in run.events():
        if isinstance(event, TaskInputRequired) and event.requests[0].kind == "approval":
            break
    with pytest.raises(CallerError, match="send True or False"):
        await run.send("yes")
    [approval] = await run.requests()
    assert approval.call_id == "call_1"
    await run.send(Answer(request_id=approval.id, approved=True, reason="fine"))
    assert (await run.result()).text == "Paris True fine"


async def test_questions_asked_at_once_get_their_own_answers(app: Tailrace) -> None:
    run = await app.start("ask_two")
    asked = await pending(run, 3)
    assert len({request.id for request in asked}) == 3
    with pytest.raises(CallerError, match="request_id"):
        await run.send("which?")
    values = {}
    for number, request in enumerate(reversed(asked)):
        if request.kind == "approval":
            await run.send({"request_id": request.id, "approved": False})
        else:
            values[request.id] = number
            await run.send(Answer(request_id=request.id, value=number))
    expected = [values.get(request.id) for request in asked if request.kind == "input"]
    assert (await run.result()).text == f"{[*expected, None]} False"


async def test_a_question_that_the_agent_does_not_wait_for_is_withdrawn(app: Tailrace) -> None:
    run = await app.start("impatient")
    result = await run.result()
    assert (result.status, result.text) == ("completed", "None.")
    received = [event async for event in run.events() if isinstance(event, TaskInputReceived)]
    assert [event.reason for event in received] == ["The agent continued without an answer."]


async def test_after_a_restart_a_pending_question_is_not_asked_again(tmp_path: Path) -> None:
    async with asyncio.timeout(120):
        app = Tailrace([patient], tmp_path / "log.db", grace=timedelta(0))
        async with app.running():
            run = await app.start("patient")
            asked = await pending(run, 1)
        async with app.running():
            run = await app.run(run.id)
            assert await run.requests() == asked
            await run.send("Paris")
            assert (await run.result()).text == "Paris, attempt 2"
            events = [event async for event in run.events()]
    assert sum(isinstance(event, TaskInputRequired) for event in events) == 1


async def test_a_cancelled_run_keeps_its_output(app: Tailrace) -> None:
    run = await app.start("hang")
    async for event in run.events():
        if isinstance(event, TextDelta):
            break
    await run.cancel("Enough.")
    result: Result = await run.result()
    assert (result.status, result.reason, result.text) == ("cancelled", "Enough.", "Half.")
    await run.cancel()


async def test_a_value_that_is_not_text_is_dropped_with_a_warning(
    app: Tailrace, caplog: pytest.LogCaptureFixture
) -> None:
    result = await (await app.start("odd")).result()
    assert (result.status, result.text, result.output) == ("completed", "", None)
    assert "agent odd returned a value of type dict" in caplog.text


async def test_an_agent_that_failed_writes_nothing_that_it_returns(app: Tailrace) -> None:
    result = await (await app.start("fail")).result()
    assert result.error is not None
    assert (result.status, result.error.code, result.items) == ("failed", "no_luck", [])


async def test_a_run_that_is_not_there_is_not_found(app: Tailrace) -> None:
    with pytest.raises(NotFound, match="run_none"):
        await app.run("run_none")
