"""The next model call's input. Most conversations and their requests are in `cases`."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tailrace.core import events as ev
from tailrace.core.errors import CallerError
from tailrace.core.fold import State
from tailrace.core.items import (
    ErrorInfo,
    FilePart,
    Image,
    ImageUrl,
    ImageUrlPart,
    Message,
    Text,
    TextPart,
    ToolResult,
    Usage,
)
from tailrace.core.writers import ArgumentsWriter, MessageWriter, ReasoningWriter, ResultWriter
from tailrace.history import history
from tailrace.testing.provider_rules import Issued, check_openai_chat, check_openai_responses
from tests.history.conversations import APIS, PICTURE, Chain, chains
from tests.history.runs import ANTHROPIC, CHAT, OPENAI, Run, kinds, sent, weather

# --- OpenAI Responses ---------------------------------------------------------------------------


def test_a_model_that_takes_over_within_a_turn_gets_no_reasoning_of_the_other() -> None:
    """Models that do not reason refuse it, stored or sealed."""
    run = Run("Is it sunny?", model="a")
    run.think("rs_1", encrypted_content="sealed")
    run.result(run.call("fc_1"), TextPart(text="15C"))
    for mode in ("drop", "encrypted"):
        assert "reasoning" in kinds(sent([run], mode=mode, model="a"))
        items = sent([run], mode=mode, model="b")
        assert kinds(items) == ["message", "function_call", "function_call_output"]
        assert items[1]["id"] != "fc_1"


def test_what_another_model_sealed_is_not_sent_to_this_one() -> None:
    run = Run(model="gpt-5")
    run.think("rs_1", encrypted_content="gAAA")
    run.say("msg_1", "Hello.")
    for model, count in ((None, 1), ("gpt-5", 1), ("o4", 0)):
        items = sent([run.end(), Run("And?", 2)], mode="encrypted", model=model)
        assert kinds(items).count("reasoning") == count
        run = Run(model="gpt-5")
        run.think("rs_1", encrypted_content="gAAA")
        run.say("msg_1", "Hello.")


def test_stored_sends_only_what_is_new() -> None:
    made = history([weather().state, Run("And tomorrow?", 2).state], OPENAI, "stored")
    assert made.previous_response_id == "resp_1_2"
    assert made.items == [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "And tomorrow?"}],
        }
    ]
    assert made.mode == "stored"
    assert made.notes == []
    assert made.request()["previous_response_id"] == "resp_1_2"


@pytest.mark.parametrize(
    ("api", "store", "words"),
    [
        (ANTHROPIC, True, "keeps no state"),
        (CHAT, True, "keeps no state"),
        (OPENAI, False, "without `store`"),
    ],
)
def test_where_nothing_is_stored_the_whole_conversation_is_sent_and_it_says_so(
    api: Any, store: bool, words: str
) -> None:
    made = history([weather().state], api, "stored", store=store)
    assert made.mode == "drop"
    assert made.previous_response_id is None
    assert words in made.notes[0]
    assert len(made.items) > 1


def test_stored_goes_back_to_the_whole_after_another_provider_or_a_cut_answer() -> None:
    foreign = history([weather(api=ANTHROPIC).state], OPENAI, "stored")
    assert foreign.notes == [
        "The last answer is not the provider's: the whole conversation is sent."
    ]
    unknown = history([Run().state], OPENAI, "stored")
    assert unknown.previous_response_id is None
    cut = Run()
    cut.say("msg_1", "Half of")
    cut.say("msg_2", "it", "incomplete")
    for run in (cut.end("incomplete"), Run()):
        run.say("msg_3", "And", "incomplete") if not run.node.ended else None
        assert "cut short" in history([run.state], OPENAI, "stored").notes[0]


def test_stored_goes_on_only_from_a_response_that_the_answers_items_name() -> None:
    def spoken(item: Any, usage: Any) -> str | None:
        run = Run()
        writer = MessageWriter(run)
        writer.text("Hello.")
        writer.finish(private=ev.Private(provider={"api": OPENAI, "id": "msg_1", **item}))
        facts = ev.Private(provider={"api": OPENAI, **usage})
        run.emit(ev.TaskUsage(task_id="run_1", usage=Usage()), facts)
        return history([run.state], OPENAI, "stored").previous_response_id

    named = {"response_id": "resp_1"}
    assert spoken(named, named) == "resp_1"
    assert spoken({}, named) is None
    assert spoken(named, {}) is None
    assert spoken(named, {"response_id": 7}) is None
    assert spoken(named, {"response_id": "resp_0"}) is None


# --- sub-agents ---------------------------------------------------------------------------------


def nested() -> Run:
    run = Run("Ask the expert.")
    result = ResultWriter(run, run.call("fc_1", tool="expert"))
    child: dict[str, Any] = {"task_id": result.call_id}
    run.emit(
        ev.TaskCreated(
            **child, parent_task_id="run_1", call_id=result.call_id, input="SECRET question"
        )
    )
    run.emit(ev.TaskInProgress(**child))
    place: dict[str, Any] = {**child, "item_id": "msg_c", "output_index": 0}
    item = Message(id="msg_c", role="assistant")
    run.emit(ev.OutputItemAdded(**child, output_index=0, item=item))
    run.emit(ev.TextDone(**place, block_index=0, item=Text(text="SECRET work")))
    run.emit(ev.OutputItemDone(**child, output_index=0, item=item))
    run.emit(ev.TaskCompleted(**child))
    result.finish(ev.Private(content=[TextPart(text="The answer.")]))
    return run


def test_a_sub_agent_has_a_history_of_its_own() -> None:
    run = nested()
    items = sent([weather(), run], task_id="call_fc_1")
    assert [item["content"][0]["text"] for item in items] == ["SECRET question", "SECRET work"]


@settings(suppress_health_check=list(HealthCheck))
@given(chain=chains(max_runs=2))
def test_a_history_is_the_same_without_anything_that_sub_agents_did(chain: Chain) -> None:
    alone = []
    for state in chain.states:
        root = state.root
        assert root is not None
        bare = State()
        bare.root = root
        bare.tasks[root.task_id] = root
        alone.append(bare)
    for api in APIS:
        before: Any = history(chain.states, api)
        for state in alone:
            assert state.root is not None
            state.root.children.clear()
        assert history(alone, api) == before


def test_a_run_that_has_not_begun_adds_nothing() -> None:
    assert sent([]) == history([State()], OPENAI).items


def test_an_input_that_a_guardrail_refused_is_left_out() -> None:
    refused = Run("My key is sk-1.", 1)
    refused.emit(
        ev.TaskFailed(task_id="run_1", error=ErrorInfo(code="input_guardrail", message="A secret."))
    )
    for api in APIS:
        made = history([refused.state, Run("Hello.", 2).state], api)
        assert made.items == history([Run("Hello.", 2).state], api).items


# --- across providers ---------------------------------------------------------------------------


def test_nothing_that_one_provider_sealed_or_named_reaches_another() -> None:
    runs = [
        weather(1, OPENAI, encrypted_content="SEALED"),
        weather(2, ANTHROPIC, signature="SEALED"),
        weather(3, CHAT),
    ]
    for run in runs:
        for api in APIS:
            if api != run.api:
                text = json.dumps(sent([run, Run("And?", 9)], api, "encrypted"))
                assert "SEALED" not in text
                assert f"rs_{run.number}a" not in text
                assert f'"msg_{run.number}"' not in text


def test_signed_thinking_goes_to_no_other_model_and_no_other_host() -> None:
    run = Run("Hi", 1, ANTHROPIC, model="a")
    thought = ReasoningWriter(run)
    thought.summary("Hm.")
    facts = {"host": "one.example"}
    thought.finish(private=run.private(provider=facts, signature="S"))
    call = ArgumentsWriter(run, "f", call_id="1")
    call.finish(private=run.private(provider=facts))
    for model, host, kept in (
        ("a", "one.example", True),
        ("b", "one.example", False),
        ("a", "two.example", False),
    ):
        made: Any = history([run.state], ANTHROPIC, "encrypted", model=model, host=host)
        assert ("Hm." in str(made.items)) == kept == made.can_think


# --- Anthropic ----------------------------------------------------------------------------------


def test_a_result_of_no_call_changes_nothing() -> None:
    state = State()
    item = ToolResult(id="fco_1", call_id="nobody")
    state.absorb(ev.TaskCreated(task_id="run_1", input="Hi"))
    state.absorb(ev.OutputItemDone(task_id="run_1", output_index=0, item=item))
    assert len(history([state], OPENAI).items) == 1


# --- chat completions ---------------------------------------------------------------------------


def test_reasoning_content_is_there_in_each_answer_of_a_turn_with_calls_and_in_no_other() -> None:
    run = Run("Is it sunny?", 2, CHAT)
    run.say("x", "Wait.")
    run.answer = 2
    run.call("1")  # by a model that did not think
    first = Run("Hi", 1, CHAT)
    first.think("y")
    first.say("z", "Hello.")
    first.end()
    for mode in ("drop", "encrypted"):
        items = sent([first, run], CHAT, mode)
        assert items[1] == {"role": "assistant", "content": "Hello."}
        assert [one["reasoning_content"] for one in items[3:5]] == [" ", " "]
    elsewhere = sent([first, run], CHAT, host="two.example")
    assert "reasoning_content" in str(elsewhere)  # the host is unknown
    second = Run("And?", 3, CHAT)
    writer = ReasoningWriter(second)
    writer.summary("Hm.")
    writer.finish(private=second.private(provider={"field": "reasoning"}))
    second.call("2")
    assert "reasoning_content" not in str(sent([second, Run("So?", 4)], CHAT))


# --- what a message is made of -------------------------------------------------------------------


def test_blobs_are_loaded_by_the_load_function() -> None:
    asked = [
        {"type": "image", "image_url": {"url": "/blobs/1"}},
        {"type": "file", "url": "/blobs/2", "mime_type": "application/pdf", "name": "a.pdf"},
    ]

    def load(url: str) -> str:
        kind = "image/png" if url == "/blobs/1" else "application/pdf"
        return f"data:{kind};base64,QUJD"

    openai = sent([Run(asked)], load=load)[0]["content"]
    assert openai == [
        {"type": "input_image", "image_url": "data:image/png;base64,QUJD", "detail": "auto"},
        {
            "type": "input_file",
            "filename": "a.pdf",
            "file_data": "data:application/pdf;base64,QUJD",
        },
    ]
    anthropic = sent([Run(asked)], ANTHROPIC, load=load)[0]["content"]
    assert [part["source"]["data"] for part in anthropic] == ["QUJD", "QUJD"]
    assert anthropic[1]["title"] == "a.pdf"
    chat = sent([Run(asked)], CHAT, load=load)[0]["content"]
    assert [part["type"] for part in chat] == ["image_url", "file"]
    unknown = [part["text"] for part in sent([Run(asked)])[0]["content"]]
    assert unknown == ["[image: /blobs/1]", "[file a.pdf: /blobs/2]"]


@pytest.mark.parametrize(
    ("part", "openai", "anthropic", "chat"),
    [
        (
            FilePart(url="https://example.org/a.pdf", mime_type="application/pdf"),
            {"type": "input_file", "file_url": "https://example.org/a.pdf"},
            {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
            {"type": "text", "text": "[file: https://example.org/a.pdf]"},
        ),
        (
            FilePart(url="data:text/plain,a%20b", mime_type="text/plain", name="a.txt"),
            {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain,a%20b"},
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "a b"},
                "title": "a.txt",
            },
            {"type": "text", "text": "[file a.txt]\na b"},
        ),
        (
            FilePart(url="data:text/plain;base64,gICA", mime_type="text/plain"),
            {
                "type": "input_file",
                "filename": "file",
                "file_data": "data:text/plain;base64,gICA",
            },
            {"type": "text", "text": "[file]"},
            {"type": "text", "text": "[file]"},
        ),
        (
            FilePart(url=PICTURE, mime_type="image/png", name="a.png"),
            {"type": "input_image", "image_url": PICTURE, "detail": "auto"},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
            },
            {"type": "image_url", "image_url": {"url": PICTURE}},
        ),
        (
            FilePart(url="data:image/tiff;base64,TU0=", mime_type="image/tiff", name="a.tiff"),
            {"type": "input_text", "text": "[file a.tiff]"},
            {"type": "text", "text": "[file a.tiff]"},
            {"type": "text", "text": "[file a.tiff]"},
        ),
        (
            ImageUrlPart(image_url=ImageUrl(url="data:image/jpg;base64,/9j/")),
            {"type": "input_image", "image_url": "data:image/jpeg;base64,/9j/", "detail": "auto"},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/jpeg", "data": "/9j/"},
            },
            {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9j/"}},
        ),
        (
            ImageUrlPart(image_url=ImageUrl(url="data:image/png;base64,")),
            {"type": "input_text", "text": "[image]"},
            {"type": "text", "text": "[image]"},
            {"type": "text", "text": "[image]"},
        ),
        (
            ImageUrlPart(image_url=ImageUrl(url="http://example.org/a.png")),
            {"type": "input_image", "image_url": "http://example.org/a.png", "detail": "auto"},
            {"type": "text", "text": "[image: http://example.org/a.png]"},
            {"type": "image_url", "image_url": {"url": "http://example.org/a.png"}},
        ),
        (
            FilePart(url="http://example.org/a.pdf", mime_type="application/pdf"),
            {"type": "input_file", "file_url": "http://example.org/a.pdf"},
            {"type": "text", "text": "[file: http://example.org/a.pdf]"},
            {"type": "text", "text": "[file: http://example.org/a.pdf]"},
        ),
        (
            ImageUrlPart(image_url=ImageUrl(url="data:image/svg+xml,<svg/>")),
            {"type": "input_text", "text": "[image]"},
            {"type": "text", "text": "[image]"},
            {"type": "text", "text": "[image]"},
        ),
        (
            ImageUrlPart(image_url=ImageUrl(url="https://example.org/a.png")),
            {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        ),
        (
            FilePart(url="data:nothing"),
            {"type": "input_text", "text": "[file]"},
            {"type": "text", "text": "[file]"},
            {"type": "text", "text": "[file]"},
        ),
    ],
)
def test_each_provider_gets_pictures_and_files_in_its_own_shape(
    part: Any, openai: Any, anthropic: Any, chat: Any
) -> None:
    from tailrace.history import anthropic_messages, openai_chat, openai_responses, reachable

    assert openai_responses.content_part(part, reachable) == openai
    assert anthropic_messages.content_blocks(part, reachable) == [anthropic]
    assert openai_chat.content_part(part, reachable) == chat


@pytest.mark.parametrize("asked", [{"model": "devstral-small"}, {"host": "api.mistral.ai"}])
def test_mistral_gets_an_answer_behind_each_result_and_ids_that_it_takes(asked: Any) -> None:
    first = Run("Is it sunny?", 1)
    first.call("1")
    second = Run("Show me.", 2)
    picture = ImageUrlPart(image_url=ImageUrl(url=PICTURE))
    second.result(second.call("2"), picture)
    third = Run("Well?", 3)
    third.say("x", "Yes.")
    for chain in ([first, second], [first, second, third], [first.end("failed"), third]):
        messages = sent(chain, CHAT, **asked)
        request = {"model": "mistral-large-latest", "messages": messages}
        error = check_openai_chat(request, Issued())
        assert error is None, error.message
    assert kinds(sent([first, third], CHAT)) == ["user", "assistant", "tool", "user", "assistant"]


def test_mistral_behind_a_router_gets_no_id_of_another_model() -> None:
    run = Run("Hi", 1, CHAT)
    for ident in ("call_of_another_model", "aB3xK9mP2"):
        call = ArgumentsWriter(run, "look", call_id=f"ours_{ident}")
        facts = {"call_id": ident, "host": "router.example"}
        call.finish(private=run.private(provider=facts))
        run.result(call.call_id, TextPart(text="ok"))

    def asked(model: str) -> list[str]:
        made = sent([run], CHAT, model=model, host="router.example")
        return [call["id"] for m in made for call in m.get("tool_calls", ())]

    assert asked("mistralai/mistral-small") == ["call00001", "aB3xK9mP2"]
    assert asked("openai/gpt-5") == ["call_of_another_model", "aB3xK9mP2"]


@pytest.mark.parametrize("api", APIS)
def test_a_picture_that_the_provider_made_is_still_seen_when_its_call_cannot_go_back(
    api: Any,
) -> None:
    run = Run("Draw a cat.")
    run.think("rs_1")
    raw = {"type": "image_generation_call", "id": "ig_1", "status": "completed"}
    made = run.call(
        "ig_1", "{}", tool="draw", kind="image_generation", executor="provider", raw=raw
    )
    result = ResultWriter(run, made)
    result.whole(Image(image_url=ImageUrl(url=PICTURE)))
    result.finish()
    run.say("msg_1", "Here it is.")
    items = sent([run, Run("Make it blue.", 2, api)], api)
    sent_text = json.dumps(items)
    assert "ig_1" not in sent_text
    assert "Returned by draw:" in sent_text
    assert "iVBORw0KGgo=" in sent_text
    assert (
        sent_text.index("Draw a cat.")
        < sent_text.index("iVBORw0KGgo=")
        < sent_text.index("Make it blue.")
    )
    assert "Returned" not in json.dumps(sent([run], api))  # while it is the current turn
    if api == OPENAI:
        assert raw in sent([run], api)
        assert raw in sent([run], api, "encrypted")


def test_unknown_names_are_errors() -> None:
    wrong: Any
    for wrong in (("gemini", "drop"), ("openai_chat", "keep")):
        with pytest.raises(CallerError, match=r"Unknown (API 'gemini'|mode 'keep')"):
            sent([Run()], *wrong)


# --- the errors that started it -----------------------------------------------------------------


def naive(run: Run, *, with_reasoning: bool) -> list[Any]:
    """What one would send who knows no rules: everything, as it came."""
    items = sent([run], mode="encrypted")
    if not with_reasoning:
        items = [item for item in items if item["type"] != "reasoning"]
    return [
        {**item, "encrypted_content": None} if item["type"] == "reasoning" else item
        for item in items
    ]


def test_a_naive_history_is_refused_in_the_quoted_words_and_ours_is_not() -> None:
    run = Run("What tools do you have now?")
    rs = "rs_0fdd74348bc35ef30068f737e4176c8193a80e94c4ec936852"
    msg = "msg_0fdd74348bc35ef30068f737e448448193839077101c450ab6"
    run.think(rs)
    run.say(msg, "I have access to a tool called get_weather.")
    issued = Issued()
    output = [{"type": "reasoning", "id": rs}, {"type": "message", "id": msg}]
    issued.openai_response("resp_1", output)
    asks = [
        {"type": "message", "role": "user", "content": "What's the time in Shanghai right now?"}
    ]

    error = check_openai_responses({"input": naive(run, with_reasoning=True) + asks}, issued)
    assert error is not None
    assert error.message == f"Item with id '{rs}' not found."
    error = check_openai_responses({"input": naive(run, with_reasoning=False) + asks}, issued)
    assert error is not None
    assert error.message == (
        f"Item '{msg}' of type 'message' was provided without its required 'reasoning' item: "
        f"'{rs}'."
    )
    assert (
        check_openai_responses({"input": sent([run, Run("What's the time?", 2)])}, issued) is None
    )


# --- cost ---------------------------------------------------------------------------------------


@pytest.mark.growth
def test_time_grows_with_the_conversation_and_no_faster() -> None:
    def seconds(count: int, api: Any) -> float:
        run = Run()
        for number in range(count):
            run.answer = number
            run.think(f"rs_{number}", encrypted_content="x", signature="y")
            run.result(run.call(f"fc_{number}"), TextPart(text="15C"))
        start = time.thread_time()
        history([run.state], api, "encrypted")
        return time.thread_time() - start

    for api in APIS:
        small = min(seconds(100, api) for _ in range(3))
        large = min(seconds(800, api) for _ in range(3))
        assert large < 8 * small * 4


def test_an_item_that_a_client_sends_back_is_not_sent_twice() -> None:
    run = Run()
    run.call("fc_1")
    run.say("msg_1", "Sunny.")
    ids = [node.item.id for node in run.node.items.values()]
    call = {"type": "mcp_call", "id": ids[0], "name": "f", "arguments": "{}", "output": "15 C"}
    message = {"role": "assistant", "id": ids[1], "content": "Sunny."}
    asked = {"role": "user", "content": "And?"}
    assert sent([run, Run([call, message, asked], 2)]) == sent([run, Run([asked], 2)])
