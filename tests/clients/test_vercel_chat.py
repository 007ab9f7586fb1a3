"""The AI SDK's `Chat`, which `useChat` drives: it talks, loses its connection, and resumes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec
import pytest
import uvicorn

from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, Message
from tailrace.testing.wire_kit import as_recorded, encoded
from tailrace.wire.vercel_ui import FORMAT
from tests.effort import CUTS, sample
from tests.node import run_node
from tests.serving import Served
from tests.wire.vercel_checker import UiReader, responses_of
from tests.wire.vercel_story import RUN, Story, full_story

Json = dict[str, Any]


# --- a server of one story -----------------------------------------------------------------------


class Scripted:
    """`POST /api/chat` tells the story; `GET /api/chat/{id}/stream` joins it.

    The number in a chat's id says after how many events one joins; `none` says that there is
    nothing to resume.
    """

    def __init__(self, *stories: Story) -> None:
        self.stories = [list(story.events) for story in stories]
        self.posts: list[Json] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        if scope["method"] == "POST":
            body = b""
            while True:
                message = await receive()
                body += message.get("body", b"")
                if not message.get("more_body"):
                    break
            self.posts.append(json.loads(body))
            await respond(send, 200, self.next_response())
        elif scope["path"].endswith("/none/stream"):
            await respond(send, 204, b"")
        else:
            place = int(scope["path"].split("/")[-2].split("-")[-1])
            await respond(send, 200, b"".join(joined(self.stories[0], place)))

    def next_response(self) -> bytes:
        """The stories in order, the last story repeated; a pause ends a response."""
        responses = [
            one
            for events in self.stories
            for one in responses_of([frame for one in encoded(FORMAT, events) for frame in one])
        ]
        return responses[min(len(self.posts), len(responses)) - 1].encode()


async def respond(send: Any, status: int, body: bytes) -> None:
    headers = {"content-type": "text/event-stream", **FORMAT.headers}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


def joined(events: list[ev.Event], place: int) -> list[bytes]:
    """What a client gets that joins after so many events."""
    state = State()
    for event in events[:place]:
        state.absorb(event)
    encoder, frames = FORMAT.open(state)
    for one in as_recorded(events[place:]):
        frames += encoder.encode(one)
    return frames


@contextmanager
def served(app: Any) -> Iterator[str]:
    """An ASGI application on a free port."""
    config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    started = threading.Event()
    startup = server.startup

    async def say_so(*args: Any, **kwargs: Any) -> None:
        await startup(*args, **kwargs)
        started.set()

    server.startup = say_so  # type: ignore[method-assign]
    thread.start()
    try:
        assert started.wait(10)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/api/chat"
    finally:
        server.should_exit = True
        thread.join()


def talk(api: str, chats: list[Json], **plan: Any) -> list[Json]:
    """Let `Chat` have some conversations, one after another unless `parallel`."""
    plan |= {"api": api, "chats": chats}
    answers: list[Json] = json.loads(
        run_node(["vercel_chat.mjs"], stdin=json.dumps(plan), timeout=300)
    )
    return answers


# --- the story -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def story() -> Story:
    return full_story()


def frames_by_event(story: Story) -> list[int]:
    """For every frame, how many events it takes to say it."""
    return [place for place, frames in enumerate(encoded(FORMAT, story.events), 1) for _ in frames]


def test_chat_holds_the_whole_answer(story: Story) -> None:
    with served(Scripted(story)) as api:
        (answer,) = talk(api, [{"id": "chat_1"}])
    assert (answer["status"], answer["errors"]) == ("ready", [])
    assert answer["finishReason"] == "stop"
    user, message = answer["messages"]
    assert user["role"] == "user"
    expected = UiReader().read(frame for one in encoded(FORMAT, story.events) for frame in one)
    assert message == expected.message
    assert {part["type"] for part in message["parts"]} >= {
        "reasoning",
        "dynamic-tool",
        "data-task",
        "data-task-item",
        "text",
        "source-document",
        "source-url",
        "file",
    }
    text = next(part for part in message["parts"] if part["type"] == "text")
    units = text["text"].encode("utf-16-le")
    quoted = [
        units[2 * one["startIndex"] : 2 * one["endIndex"]].decode("utf-16-le")
        for one in text["citations"]
    ]
    assert quoted == ["[^1]", "[^2]", "More"]
    assert [resolve(message, one["source"]) for one in text["citations"][:2]] == [
        "15 °C, sunny 🌤️",
        "At noon.",
    ]


def resolve(message: Json, source: Json) -> str:
    """What a page does to show a citation: look the block up in the call's output or the task."""
    about = source["providerMetadata"]["tailrace"]
    for part in message["parts"]:
        if part.get("toolCallId") == about["call_id"]:
            return str(part["output"][about["block_index"]]["text"])
        if part.get("id") == f"{about['task_id']}/{about['output_index']}":
            return str(part["data"]["block_list"][about["block_index"]]["text"])
    raise AssertionError(f"{source} leads nowhere")


@pytest.mark.parametrize("clean", [False, True], ids=["torn", "closed"])
def test_cut_after_every_frame_chat_resumes_to_the_same_answer(story: Story, clean: bool) -> None:
    places = frames_by_event(story)
    chats: list[Json] = [{"id": "whole"}]
    chats += [
        {"id": f"cut{cut}-{place}", "cut": cut, "clean": clean}
        for cut, place in enumerate(places, 1)
    ]
    # The run may be over when the client comes back, or just have begun when it left.
    end = len(story.events)
    chats += [{"id": f"late{cut}-{end}", "cut": cut, "clean": clean} for cut in (1, 2, 30)]
    with served(Scripted(story)) as api:
        whole, *resumed = talk(api, chats)
    assert len(resumed) == len(places) + 3
    frames = [frame for one in encoded(FORMAT, story.events) for frame in one]
    for chat, answer in zip(chats[1:], resumed, strict=True):
        held = UiReader().read(frames[: chat["cut"]]).parts
        if clean and len(held) > 1:  # an error may overtake; a step's start alone is not shown
            message = answer["messagesAfterSend"][1]
            assert list(map(settled, message["parts"])) == list(map(settled, held)), chat
    for chat, answer in zip(chats[1:], resumed, strict=True):
        assert answer["requests"] == ["POST", "GET"], chat
        assert answer["afterSend"] == ("ready" if clean else "error"), chat
        assert answer["status"] == "ready", (chat, answer["errors"])
        assert answer["messages"][1:] == whole["messages"][1:], chat


def settled(part: Json) -> Json:
    """A part without the guess that the SDK makes at the input of an unfinished call."""
    if part.get("state") != "input-streaming":
        return part
    return {name: value for name, value in part.items() if name != "input"}


def test_chat_stays_ready_where_there_is_nothing_to_resume(story: Story) -> None:
    with served(Scripted(story)) as api:
        (answer,) = talk(api, [{"id": "none", "cut": 10_000}])
    assert (answer["status"], answer["requests"]) == ("ready", ["POST", "GET"])


# --- tools of the page ---------------------------------------------------------------------------


def test_chat_carries_out_its_tool_once_and_sends_the_output() -> None:
    first = Story()
    first.say("Let me see.")
    first.call('{"a":', "1}", call_id="call_1", name="add", executor="client")
    first.complete()
    second = Story(input={"role": "assistant", "id": RUN})
    second.say("It is 42.", ident="msg_1")
    second.complete()
    app = Scripted(first, second)
    with served(app) as api:
        (answer,) = talk(api, [{"id": "chat_1"}])
    assert [one["input"] for one in answer["called"]] == [{"a": 1}]
    assert len(app.posts) == 2
    sent = app.posts[1]["messages"][-1]["parts"][-1]
    assert (sent["toolCallId"], sent["state"], sent["output"]) == ("call_1", "output-available", 42)
    _, message = answer["messages"]
    texts = [part["text"] for part in message["parts"] if part["type"] == "text"]
    assert texts == ["Let me see.", "It is 42."]


@pytest.mark.parametrize(
    "end",
    [
        ev.TaskCancelled(task_id=RUN),
        ev.TaskIncomplete(task_id=RUN, reason="max_output_tokens"),
    ],
)
@pytest.mark.parametrize("cut", [False, True])
def test_chat_neither_calls_nor_answers_for_a_run_that_did_not_complete(
    end: ev.Event, cut: bool
) -> None:
    story = Story()
    (story.cut_call if cut else story.call)('{"a":1}', call_id="call_1", executor="client")
    story.add(end)
    app = Scripted(story)
    with served(app) as api:
        (answer,) = talk(api, [{"id": "chat_1"}])
    assert (answer["called"], len(app.posts)) == ([], 1)
    assert answer["messages"][1]["parts"][-1]["state"] == "output-error"


# --- the real server -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = Served(tmp_path_factory.mktemp("vercel") / "runs.db")
    yield f"{server.url}/api/chat"
    server.kill()


def comparable(answer: Json) -> Json:
    """An answer without what differs between two runs of one agent: its id, and when it began."""
    assert answer["status"] == "ready", answer["errors"]
    user, message = answer["messages"]
    assert user["role"] == "user"
    number = message["id"].removeprefix("run_")
    message["metadata"].pop("created_at", None)
    message["metadata"].pop("thread_id", None)
    same: Json = json.loads(json.dumps(message).replace(number, "ID"))
    return same


def test_cut_after_every_frame_of_the_real_server_chat_resumes_to_the_same_answer(
    real: str,
) -> None:
    body = {"agent": "assistant"}
    (whole,) = talk(real, [{"id": "count"}], body=body)
    parts = {part["type"] for part in whole["messages"][1]["parts"]}
    assert parts >= {"reasoning", "dynamic-tool", "data-task-item", "text", "source-document"}
    frames = count_frames(real, body)
    cuts = sample(range(1, frames + 1), CUTS)
    chats: list[Json] = [{"id": f"cut-{cut}", "cut": cut} for cut in cuts]
    answers = talk(real, chats, body=body)
    expected = comparable(whole)
    for chat, answer in zip(chats, answers, strict=True):
        assert answer["requests"] == ["POST", "GET"]
        assert comparable(answer) == expected, chat


def count_frames(api: str, body: Json) -> int:
    posted = {**body, "id": "counted", "messages": [{"role": "user", "parts": []}]}
    return httpx.post(api, json=posted).text.count("\n\n")


def test_chat_resumes_a_run_of_the_real_server_that_still_works(real: str) -> None:
    chats: list[Json] = [{"id": "slow"}]
    chats += [{"id": f"slow-{cut}", "cut": cut} for cut in range(1, 60, 7)]
    whole, *resumed = talk(real, chats, body={"agent": "slow"}, parallel=True)
    expected = comparable(whole)
    for chat, answer in zip(chats[1:], resumed, strict=True):
        assert comparable(answer) == expected, chat


@pytest.mark.parametrize("approved", [True, False])
def test_chat_answers_an_approval_and_goes_on_with_its_message(real: str, approved: bool) -> None:
    chat = {"id": f"mail-{approved}", "approve": approved}
    (answer,) = talk(real, [chat], body={"agent": "mailer"})
    assert answer["messagesAfterSend"][1]["parts"][-1]["state"] == "approval-requested"
    assert (answer["status"], answer["errors"]) == ("ready", [])
    assert answer["requests"] == ["POST", "POST"]
    _, message = answer["messages"]
    shown = [(part["type"], part.get("text") or part.get("state")) for part in message["parts"]]
    assert shown == [
        ("step-start", None),
        ("dynamic-tool", "output-available" if approved else "output-error"),
        ("text", "Done."),
    ]
    again = httpx.post(real, json={"id": chat["id"], "messages": answer["sent"]}).text
    assert again.count('"reset-step"') == 1, "answers that are sent again change nothing"
    assert "Done." in again


def test_chat_sends_an_approval_after_the_tool_that_ran_beside_it(real: str) -> None:
    chat = {"id": "secretary", "approve": True}
    (answer,) = talk(real, [chat], body={"agent": "secretary"})
    asked = [part["state"] for part in answer["messagesAfterSend"][1]["parts"][1:]]
    assert asked == ["approval-requested", "output-available"]
    assert (answer["status"], answer["requests"]) == ("ready", ["POST", "POST"])
    assert answer["messages"][1]["parts"][-1]["text"] == "Both are done."


def test_chat_carries_out_a_tool_of_the_agent_and_goes_on_with_its_message(real: str) -> None:
    (answer,) = talk(real, [{"id": "guide"}], body={"agent": "guide"})
    assert (answer["status"], answer["errors"]) == ("ready", [])
    assert [call["toolName"] for call in answer["called"]] == ["locate"]
    assert answer["requests"] == ["POST", "POST"]
    _, message = answer["messages"]
    shown = [(part["type"], part.get("text") or part.get("output")) for part in message["parts"]]
    assert shown == [
        ("step-start", None),
        ("tool-locate", [{"type": "text", "text": "42", "id": 1}]),
        ("text", "You are there."),
    ]
    again = httpx.post(real, json={"id": "guide", "messages": answer["sent"]}).text
    assert again.count('"reset-step"') == 1, "results that are sent again change nothing"
    assert "You are there." in again


def test_chat_sends_an_approval_after_the_output_of_its_own_tool(real: str) -> None:
    (answer,) = talk(real, [{"id": "scout", "approve": True}], body={"agent": "scout"})
    assert (answer["status"], answer["errors"]) == ("ready", [])
    assert answer["requests"] == ["POST", "POST", "POST"]
    _, message = answer["messages"]
    shown = [(part["type"], part.get("text") or part.get("state")) for part in message["parts"]]
    assert shown == [
        ("step-start", None),
        ("dynamic-tool", "output-available"),
        ("tool-locate", "output-available"),
        ("text", "Both are done."),
    ]


@pytest.mark.parametrize(
    ("agent", "approved", "results"),
    [
        ("mailer", True, ["sent to ada"]),
        ("mailer", False, [None]),
        ("scout", True, ["sent to ada", "42"]),
    ],
)
def test_chat_sends_an_answer_with_the_next_message_and_both_count(
    real: str, agent: str, approved: bool, results: list[str | None]
) -> None:
    steps = [{"approve": approved, "send": "Thanks."}, {"send": "Bye."}]
    thread = f"with-{agent}-{approved}"
    chats: list[Json] = [{"id": thread, "manual": True, "steps": steps}]
    (answer,) = talk(real, chats, body={"agent": agent})
    assert (answer["status"], answer["errors"]) == ("ready", [])
    runs = httpx.get(real.replace("/api/chat", f"/threads/{thread}")).json()["runs"]
    assert [run["status"] for run in runs][:2] == ["completed", "completed"]
    ids = [run["run_id"] for run in runs]
    assert [run["previous_run_id"] for run in runs] == [None, *ids[:-1]]
    reloaded = httpx.get(real.replace("/api/chat", f"/threads/{thread}?format=vercel-ui")).json()
    parts = [part for part in reloaded[1]["parts"] if "toolCallId" in part]
    texts = [part["output"][0]["text"] if "output" in part else None for part in parts]
    assert texts == results


def test_chat_regenerates_and_edits_from_the_message_that_it_names(real: str) -> None:
    steps: list[Json] = [
        {"send": "two"},
        {"send": "three"},
        {"regenerate": -1},
        {"edit": 2, "send": "TWO"},
        {"send": "four"},
        {"regenerate": 1},
        {"edit": 0, "send": "ONE"},
        {"send": "add"},
        {"send": "five"},
        {"regenerate": 3},
    ]
    (answer,) = talk(real, [{"id": "branches", "steps": steps}], body={"agent": "remembers"})
    assert (answer["status"], answer["errors"]) == ("ready", [])
    first = "Is it sunny in Paris?"
    assert answer["answers"] == [
        f"{first} two",
        f"{first} two three",
        f"{first} two three",
        f"{first} TWO",
        f"{first} TWO four",
        first,
        "ONE",
        "ONE add =",
        "ONE add = five",
        "ONE add =",
    ]


def test_a_model_reads_the_messages_that_the_page_shows_and_no_others(real: str) -> None:
    steps: list[Json] = [
        {"send": "two"},
        {"send": "three"},
        {"remove": [2, 3], "send": "four"},
        {"change": 1, "to": "No.", "send": "five"},
        {"send": "six"},
    ]
    (answer,) = talk(real, [{"id": "changed", "steps": steps}], body={"agent": "echoes"})
    first = "Is it sunny in Paris?"
    assert answer["answers"] == [
        f"3 read: {first} | 1 | two",
        f"5 read: {first} | 1 | two | 3 | three",
        f"5 read: {first} | 1 | three | 5 | four",
        f"7 read: {first} | No. | three | 5 | four | 5 | five",
        f"9 read: {first} | No. | three | 5 | four | 5 | five | 7 | six",
    ]
    reloaded = httpx.get(real.replace("/api/chat", "/threads/changed?format=vercel-ui")).json()
    assert reloaded == answer["messages"]
    runs = httpx.get(real.replace("/api/chat", "/threads/changed")).json()["runs"]
    continued = [run["previous_run_id"] is not None for run in runs]
    assert continued == [False, True, True, True, False, True]


def test_chat_that_sends_its_last_message_alone_continues_its_thread(real: str) -> None:
    steps = [{"send": "two"}, {"send": "add"}, {"send": "three"}]
    chats: list[Json] = [{"id": "alone", "last": True, "steps": steps}]
    (answer,) = talk(real, chats, body={"agent": "remembers"})
    assert (answer["status"], answer["errors"]) == ("ready", [])
    texts = "Is it sunny in Paris? two"
    assert answer["answers"] == [texts, f"{texts} add =", f"{texts} add = three"]
    chats = [{"id": "alone-mail", "last": True, "approve": True}]
    (answer,) = talk(real, chats, body={"agent": "mailer"})
    assert answer["messages"][1]["parts"][-1]["text"] == "Done."


def test_the_body_of_a_chat_reaches_its_agent(real: str) -> None:
    sent = {"options": {"temperature": 0.2}, "metadata": {"user": "u1"}, "page": {"title": "Home"}}
    (answer,) = talk(real, [{"id": "options"}], body={"agent": "options", **sent})
    assert json.loads(answer["messages"][1]["parts"][-1]["text"]) == {
        "options": {"temperature": 0.2, "forwarded_props": {"page": {"title": "Home"}}},
        "metadata": {"user": "u1"},
    }
    wrong = {"id": "wrong", "messages": answer["messages"][:1], "agent": "options", "options": "x"}
    assert httpx.post(real, json=wrong).status_code == 400


# --- what goes wrong -----------------------------------------------------------------------------


def test_chat_shows_why_a_run_failed_and_keeps_its_text() -> None:
    story = Story()
    story.say("Half.")
    error = ErrorInfo(code="provider_overloaded", message="The provider is overloaded.")
    story.add(ev.TaskFailed(task_id=RUN, error=error))
    with served(Scripted(story)) as api:
        (answer,) = talk(api, [{"id": "chat_1"}])
    assert (answer["status"], answer["errors"]) == ("error", ["The provider is overloaded."])
    assert answer["messages"][1]["parts"][-1]["text"] == "Half."


def test_chat_drops_the_text_of_a_lost_worker() -> None:
    story = Story()
    story.think("Hmm.")
    item = Message(id="msg_0", role="assistant")
    at = story.begin(item)
    story.stream_text(at, "The answer is 4")
    story.done(msgspec.structs.replace(item, status="incomplete"), at)
    story.add(ev.TaskAttempt(task_id=RUN, attempt=2, reason="lost", superseded=["msg_0"]))
    story.say("The answer is 42.", ident="msg_1")
    story.complete()
    with served(Scripted(story)) as api:
        (answer,) = talk(api, [{"id": "chat_1"}])
    assert (answer["status"], answer["errors"]) == ("ready", [])
    shown = [(part["type"], part.get("text")) for part in answer["messages"][1]["parts"]]
    assert shown == [
        ("step-start", None),
        ("reasoning", "Hmm."),
        ("text", "The answer is 42."),
    ]
