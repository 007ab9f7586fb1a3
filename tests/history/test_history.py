"""The next model call's input, case by case."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from tailrace.core import closing
from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.items import (
    Data,
    ErrorInfo,
    File,
    FilePart,
    Image,
    ImageUrl,
    ImageUrlPart,
    Message,
    RawItem,
    Refusal,
    Text,
    TextPart,
    ToolResult,
    Usage,
)
from tailrace.core.references import ReferencePool, tool_output
from tailrace.core.writers import ArgumentsWriter, MessageWriter, ReasoningWriter, ResultWriter
from tailrace.history import history
from tailrace.ingest.base import Notebook, Outcome
from tailrace.testing.provider_rules import Issued, check_openai_chat, check_openai_responses
from tests.history.conversations import APIS, PICTURE, Chain, chains

OPENAI, ANTHROPIC, CHAT = APIS


class Run(Notebook):
    """A run that is easily written."""

    def __init__(self, asked: Any = "Hi", number: int = 1, api: str = OPENAI, **facts: Any) -> None:
        super().__init__(f"run_{number}", input=asked, **facts)
        self.number = number
        self.api = api
        self.answer = 1

    def private(self, name: str | None = None, **more: Any) -> ev.Private:
        facts: dict[str, Any] = {
            "api": self.api,
            "response_id": f"resp_{self.number}_{self.answer}",
        }
        if name is not None:
            facts["id"] = name
        return ev.Private(provider=facts | more.pop("provider", {}), **more)

    def think(self, name: str, text: str = "Hmm.", **sealed: Any) -> None:
        writer = ReasoningWriter(self)
        writer.summary(text)
        writer.finish(private=self.private(name, **sealed))

    def say(self, name: str, text: str, status: Any = "completed", **more: Any) -> str:
        writer = MessageWriter(self, **more)
        writer.text(text)
        writer.finish(status, self.private(name))
        return writer.id

    def call(self, name: str, arguments: str = '{"city":"Paris"}', **more: Any) -> str:
        raw = more.pop("raw", None)
        tool = more.pop("tool", "get_weather")
        writer = ArgumentsWriter(self, tool, call_id=f"call_{name}", **more)
        writer.arguments(arguments)
        writer.finish(private=self.private(name, raw=raw))
        return writer.call_id

    def result(self, call_id: str, *content: Any, raw: Any = None) -> None:
        ResultWriter(self, call_id).finish(ev.Private(content=list(content) or None, raw=raw))

    def end(self, status: Any = "completed") -> Run:
        facts = {"api": self.api, "response_id": f"resp_{self.number}_{self.answer}"}
        usage = ev.TaskUsage(task_id=self.task_id, usage=Usage())
        self.emit(usage, ev.Private(provider=facts))
        self.conclude(Outcome(status=status))
        return self


def sent(runs: list[Run], api: Any = OPENAI, mode: Any = "drop", **more: Any) -> list[Any]:
    return history([run.state for run in runs], api, mode, **more).items


def weather(number: int = 1, api: str = OPENAI, **sealed: Any) -> Run:
    """A turn with reasoning, a call, and an answer."""
    run = Run("Is it sunny?", number, api)
    run.think(f"rs_{number}a", "Look.", **{k: f"{v}{number}a" for k, v in sealed.items()})
    call = run.call(f"fc_{number}")
    run.result(call, TextPart(text="15C"))
    run.answer = 2
    run.think(f"rs_{number}b", "Say.", **{k: f"{v}{number}b" for k, v in sealed.items()})
    run.say(f"msg_{number}", "Yes.")
    return run.end()


def kinds(items: list[Any]) -> list[str]:
    return [item.get("type") or item["role"] for item in items]


# --- OpenAI Responses ---------------------------------------------------------------------------


def test_drop_leaves_out_earlier_reasoning_and_replaces_the_ids_behind_it() -> None:
    items = sent([weather(), Run("And tomorrow?", 2)])
    assert kinds(items) == [
        "message",
        "function_call",
        "function_call_output",
        "message",
        "message",
    ]
    ids = [item.get("id") for item in items]
    assert not {"rs_1a", "fc_1", "rs_1b", "msg_1"} & set(ids)
    assert ids[1].startswith("fc_1_")  # our own
    assert ids[3].startswith("msg_1_")
    assert items[1]["call_id"] == items[2]["call_id"] == "call_fc_1"


def test_reasoning_stays_within_the_tool_loop_of_the_current_turn() -> None:
    run = Run("Is it sunny?", 2)
    run.think("rs_2a")
    call = run.call("fc_2")
    run.result(call, TextPart(text="15C"))
    items = sent([weather(), run])
    assert [item.get("id") for item in items if item["type"] == "reasoning"] == ["rs_2a"]
    assert items[-2]["id"] == "fc_2"
    assert kinds(items)[-3:] == ["reasoning", "function_call", "function_call_output"]


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


def test_reasoning_before_reasoning_that_goes_has_to_go_as_well() -> None:
    run = Run()
    run.think("rs_1", encrypted_content="sealed")
    run.think("rs_2")
    run.result(run.call("fc_1"), TextPart(text="15C"))
    assert "reasoning" not in kinds(sent([run], store=False))


def test_reasoning_before_a_developer_message_is_dropped() -> None:
    run = Run()
    run.think("rs_1")
    index = run.add(Message(id="m", role="developer"))
    place: Any = {"task_id": run.task_id, "output_index": index}
    words = Text(text="Be brief.")
    run.emit(ev.TextDone(item_id="m", block_index=0, item=words, **place))
    told = Message(id="m", role="developer", block_list=[words])
    run.done(index, told, run.private("msg_1"))
    items = sent([run])
    assert kinds(items) == ["message", "message"]
    assert items[1]["role"] == "developer"
    assert "id" not in items[1]


def test_without_a_store_unsealed_reasoning_goes_even_from_the_tool_loop() -> None:
    run = Run("Is it sunny?")
    run.think("rs_1")
    run.result(run.call("fc_1"), TextPart(text="15C"))
    items = sent([run], store=False)
    assert kinds(items) == ["message", "function_call", "function_call_output"]
    assert items[1]["id"] != "fc_1"


def test_encrypted_keeps_sealed_reasoning_and_every_id() -> None:
    items = sent([weather(encrypted_content="gAAA"), Run("And tomorrow?", 2)], mode="encrypted")
    assert [item.get("id") for item in items] == [
        None,
        "rs_1a",
        "fc_1",
        None,
        "rs_1b",
        "msg_1",
        None,
    ]
    assert items[1] == {
        "type": "reasoning",
        "id": "rs_1a",
        "summary": [{"type": "summary_text", "text": "Look."}],
        "encrypted_content": "gAAA1a",
    }


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


def test_a_history_notes_an_item_that_its_input_only_names() -> None:
    run = Run([{"type": "item_reference", "id": "msg_9"}, {"role": "user", "content": "Hi"}])
    made = history([run.state], OPENAI)
    assert [item["role"] for item in made.items] == ["user"]
    [note] = made.notes
    assert "item_reference" in note


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


def test_stored_sends_the_results_of_the_last_response_under_its_own_call_ids() -> None:
    run = Run("Is it sunny?")
    writer = ArgumentsWriter(run, "get_weather", call_id="ours")
    writer.finish(private=run.private("fc_1", provider={"call_id": "call_theirs"}))
    run.result(writer.call_id, TextPart(text="15C"))
    facts = {"api": OPENAI, "response_id": "resp_1_1"}
    run.emit(ev.TaskUsage(task_id="run_1", usage=Usage()), ev.Private(provider=facts))
    made = history([run.state], OPENAI, "stored")
    assert made.previous_response_id == "resp_1_1"
    expected = {"type": "function_call_output", "call_id": "call_theirs", "output": "15C"}
    assert made.items == [expected]


def test_stored_without_news_says_that_there_is_no_message() -> None:
    run = Run()
    run.say("msg_1", "Hello.")
    made = history([run.end().state], OPENAI, "stored")
    assert made.previous_response_id == "resp_1_1"
    assert made.items[0]["content"][0]["text"] == "(no message)"


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
    nobody = history([Run().state], OPENAI, "stored")
    assert nobody.previous_response_id is None
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


def test_stored_answers_no_call_of_an_earlier_response() -> None:
    run = Run()
    run.call("fc_1")  # and then its tool was lost, without a word
    run.answer = 2
    run.say("msg_1", "Let me look again.")
    call = run.call("fc_2")
    run.result(call, TextPart(text="15C"))
    facts = run.private()
    run.emit(ev.TaskUsage(task_id="run_1", usage=Usage()), facts)
    made = history([run.state], OPENAI, "stored")
    assert made.previous_response_id == "resp_1_2"
    assert [item["call_id"] for item in made.items] == ["call_fc_2"]


def test_the_words_of_a_stopped_answer_are_kept_without_its_id_and_reasoning() -> None:
    run = Run()
    run.think("rs_1")
    run.say("msg_1", "It is sun", "incomplete")
    items = sent([run.end("incomplete"), Run("Go on.", 2)])
    assert kinds(items) == ["message"] * 3
    assert items[1]["content"][0]["text"] == "It is sun"
    assert items[1].get("id") != "msg_1"


def test_a_cut_call_is_never_sent_and_superseded_words_are_gone() -> None:
    run = Run()
    call = ArgumentsWriter(run, "get_weather")
    call.arguments('{"ci')
    call.finish("incomplete", run.private("fc_1"))
    lost = run.say("msg_1", "It is sun", "incomplete")
    attempt = ev.TaskAttempt(
        task_id="run_1", attempt=2, reason="worker_lost", superseded=[lost, call.id]
    )
    run.emit(attempt)
    run.answer = 2
    run.say("msg_2", "Sunny.")
    for api in APIS:
        text = json.dumps(sent([run], api))
        assert "It is sun" not in text
        assert "get_weather" not in text
        assert "Sunny." in text


def test_an_interrupted_call_is_closed_with_an_error() -> None:
    run = Run()
    run.call("fc_1")
    open_call = run.call("fc_2")
    ResultWriter(run, open_call)
    said = "The call was interrupted: it has no result."
    assert [i["output"] for i in sent([run]) if i["type"] == "function_call_output"] == [said] * 2
    blocks = sent([run], ANTHROPIC)[2]["content"]
    assert [block["is_error"] for block in blocks] == [True, True]
    assert blocks[0]["content"] == [{"type": "text", "text": said}]
    assert [m["content"] for m in sent([run], CHAT) if m["role"] == "tool"] == [said] * 2


def test_the_model_gets_the_error_of_a_failed_tool() -> None:
    run = Run()
    ResultWriter(run, run.call("fc_1")).fail(ErrorInfo(code="tool_timeout", message="Too slow."))
    ResultWriter(run, run.call("fc_2")).fail(ErrorInfo(code="x", message=""))
    outputs = [item["output"] for item in sent([run]) if item["type"] == "function_call_output"]
    assert outputs == ["Error: Too slow.", "Error: the tool failed."]


def test_a_result_without_content_is_read_from_its_blocks_with_their_numbers() -> None:
    run = Run()
    writer = ResultWriter(run, run.call("fc_1"))
    writer.whole(Text(text="15C", id=1))
    writer.whole(Refusal(refusal="No."))
    writer.whole(Data(data={"rows": 1}))
    writer.whole(File(url="/blobs/9", name="a.csv"))
    writer.whole(Image(image_url=ImageUrl(url=PICTURE)))
    writer.finish()
    output = sent([run])[-1]["output"]
    assert [part.get("text", part["type"]) for part in output] == [
        "<referencable-item>\nID: 1",
        "15C",
        "</referencable-item>",
        "No.",
        '{"rows":1}',
        "[file a.csv: /blobs/9]",
        "input_image",
    ]


def test_references_keep_their_numbers_and_marks_along_the_conversation() -> None:
    pool = ReferencePool()
    first = Run()
    admitted = pool.admit(tool_output("15C"))
    first.result(first.call("fc_1"), *admitted.content)
    first.say("msg_1", "Mild.[^1]")
    again = Run("And now?", 2, reference_start=pool.next)
    again.result(again.call("fc_2"), *pool.admit(tool_output("20C")).content)
    for api in APIS:
        text = json.dumps(sent([first.end(), again], api))
        assert text.count("ID: 1") == 1
        assert text.count("ID: 2") == 1
        assert "[^1]" in text
        first = Run()
        first.result(first.call("fc_1"), *admitted.content)
        first.say("msg_1", "Mild.[^1]")


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


def test_a_parent_reads_of_its_sub_agent_only_the_content_of_the_result() -> None:
    run = nested()
    for api in APIS:
        text = json.dumps(sent([run], api))
        assert "SECRET" not in text
        assert "The answer." in text


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


def test_a_run_that_has_not_begun_has_no_say() -> None:
    assert sent([]) == history([State()], OPENAI).items


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


@pytest.mark.parametrize("mode", ["drop", "encrypted", "stored"])
@pytest.mark.parametrize("api", APIS)
def test_of_a_cut_answer_only_text_is_sent(api: Any, mode: Any) -> None:
    """Whatever API it came from: no half of a thought, of a call or of its result."""
    run = Run("Hi", 1, api)
    seal = {"signature": "S"} if api == ANTHROPIC else {"encrypted_content": "E"}
    thought = ReasoningWriter(run)
    thought.summary("Half a thought")
    thought.finish("incomplete", run.private("rs_1", **seal))
    run.say("msg_1", "Half a sentence", "incomplete")
    call = ArgumentsWriter(run, "look", call_id="call_1")
    call.arguments('{"half":')
    call.finish("incomplete", run.private("fc_1"))
    whole = run.call("fc_2")
    ResultWriter(run, whole)  # and nothing came of it
    raw = RawItem(id=run.new_id("raw"), raw={}, source=api)
    place = run.add(raw)
    raw = RawItem(id=raw.id, raw={}, source=api, status="incomplete")
    run.done(place, raw, run.private("holo_1", raw={"type": "hologram", "id": "holo_1"}))
    told = json.dumps(sent([run, Run("And?", 2, api)], api, mode))
    assert "Half a sentence" in told
    assert "interrupted" in told
    for half in ("Half a thought", "half", "hologram", '"S"', '"E"', '"rs_1"', '"fc_1"'):
        assert half not in told


def test_what_a_tool_had_shown_before_it_failed_or_was_stopped_is_no_answer() -> None:
    run = Run()
    failed = ResultWriter(run, run.call("fc_1"))
    failed.whole(Text(text="Half of it"))
    failed.fail(ErrorInfo(code="tool_failed", message="No."))
    lost = ToolResult(id=run.new_id("fco"), call_id=run.call("fc_2"))
    place = run.add(lost)
    lost = ToolResult(id=lost.id, call_id=lost.call_id, status="incomplete")
    run.done(place, lost, ev.Private(content=[TextPart(text="Half of it")]))
    stopped = ResultWriter(run, run.call("fc_3"))
    stopped.whole(Text(text="Half of it"))
    for event in closing.ending(run.node, ev.TaskCancelled(task_id=run.task_id)):
        run.emit(event)
    said = [one["output"] for one in sent([run]) if one["type"] == "function_call_output"]
    assert said == [
        "Error: No.",
        "The call was interrupted: it has no result.",
        "Error: The tool was interrupted.",
    ]


def test_a_response_of_which_something_is_missing_is_not_gone_on_with() -> None:
    run = Run()
    call = ArgumentsWriter(run, "look", call_id="call_1")
    call.finish("incomplete", run.private("fc_1"))
    run.say("msg_1", "Yes.")
    made = history([run.end().state, Run("And?", 2).state], OPENAI, "stored")
    assert made.previous_response_id is None
    assert made.mode == "drop"
    assert kinds(made.items) == ["message"] * 3


def test_reasoning_of_another_provider_is_not_sent_to_a_chat_server() -> None:
    run = Run("Hi", 1, OPENAI)
    run.think("rs_1", "Secretly.")
    run.call("fc_1")
    for mode in ("drop", "encrypted"):
        assert "Secretly." not in str(sent([run], CHAT, mode))


def test_thinking_goes_back_letter_by_letter() -> None:
    run = Run("Hi", 1, ANTHROPIC)
    run.think("x", " Look\n\nthere. \n", signature="S")
    run.call("1")
    [block, _] = sent([run], ANTHROPIC)[1]["content"]
    assert block == {"type": "thinking", "thinking": " Look\n\nthere. \n", "signature": "S"}


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


def test_a_repeated_call_id_goes_out_once() -> None:
    runs = []
    for number in (1, 2):
        run = Run("Hi", number, CHAT)
        call = ArgumentsWriter(run, "look", call_id=f"ours_{number}")
        call.finish(private=run.private(provider={"call_id": "call_0"}))
        run.result(call.call_id, TextPart(text="ok"))
        runs.append(run)
    calls = [m["tool_calls"][0]["id"] for m in sent(runs, CHAT) if "tool_calls" in m]
    assert calls == ["call_0", "call00002"]


def test_ids_and_names_that_no_provider_takes_are_replaced() -> None:
    run = Run("Hi", 1, "elsewhere")
    for _ in range(2):
        call = ArgumentsWriter(run, "maps.search é", call_id="a b")
        call.finish(private=run.private())
    taken = ArgumentsWriter(run, "", call_id="call_1")
    taken.finish()
    items = [item for item in sent([run]) if item["type"] == "function_call"]
    assert len({item["call_id"] for item in items}) == 3
    assert items[0]["name"] == "maps_search__"
    assert items[2]["name"] == "tool"


def test_built_in_tools_go_back_raw_to_their_own_provider_only() -> None:
    found = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    run = Run()
    run.result(run.call("ws_1", executor="provider", kind="web_search", raw=found))
    image = {"type": "image_generation_call", "id": "ig_1", "result": "AAAA"}
    run.result(run.call("ig_1", executor="provider", kind="image_generation"), raw=image)
    run.call("ws_2", executor="provider", kind="web_search", raw={**found, "id": "ws_2"})
    run.say("msg_1", "Found.")
    items = sent([run])
    assert found in items
    assert image in items
    assert "ws_2" not in json.dumps(items)
    for api in (ANTHROPIC, CHAT):
        assert "web_search" not in json.dumps(sent([run], api))


@pytest.mark.parametrize("executor", ["provider", "server"])
def test_only_results_that_the_provider_waits_for_part_reasoning_from_what_follows(
    executor: Any,
) -> None:
    """Its own tools give theirs in the midst of an answer, even where no item names that one."""
    run = Run()
    raw = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    search = ArgumentsWriter(run, "web_search", executor=executor)
    search.finish(private=ev.Private(provider={"api": OPENAI, "id": "ws_1"}, raw=raw))
    thought = ReasoningWriter(run)
    thought.finish(private=ev.Private(provider={"api": OPENAI, "id": "rs_1"}))
    ResultWriter(run, search.call_id).finish()
    answer = MessageWriter(run)
    answer.text("Found.")
    answer.finish(private=ev.Private(provider={"api": OPENAI, "id": "msg_1"}))
    items = sent([run])
    together = [one.get("id") for one in items][-2:] == ["rs_1", "msg_1"]
    assert together == (executor == "provider")
    assert together == ("rs_1" in json.dumps(items))


def test_a_built_in_tool_behind_dropped_reasoning_is_left_out() -> None:
    found = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    run = Run()
    run.think("rs_1")
    run.result(run.call("ws_1", executor="provider", kind="web_search", raw=found))
    run.say("msg_1", "Found.")
    assert found not in sent([run.end(), Run("And?", 2)])


def test_raw_items_go_back_to_where_they_came_from() -> None:
    run = Run()
    compaction = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"}
    index = run.add(RawItem(id="raw_1", raw={"type": "compaction"}, source=OPENAI))
    done = RawItem(id="raw_1", raw={"type": "compaction"}, source=OPENAI)
    run.done(index, done, run.private(raw=compaction))
    plain = run.add(RawItem(id="raw_2", raw={"type": "program", "id": "p_1"}, source=OPENAI))
    run.done(plain, RawItem(id="raw_2", raw={"type": "program", "id": "p_1"}, source=OPENAI))
    odd = run.add(RawItem(id="raw_3", raw=[1], source=OPENAI))
    run.done(odd, RawItem(id="raw_3", raw=[1], source=OPENAI))
    items = sent([run])
    assert items[1:] == [compaction, {"type": "program", "id": "p_1"}]
    assert kinds(sent([run], CHAT)) == ["user"]


def kept(run: Run, raw: Any) -> None:
    """An item that has no name here."""
    item = RawItem(id=raw["id"], raw={"type": raw["type"]}, source=run.api)
    run.done(run.add(item), item, run.private(raw=raw))


def test_a_call_of_the_providers_shell_goes_back_with_its_output_or_not_at_all() -> None:
    shell = {"type": "shell_call", "id": "sh_1", "call_id": "call_1", "action": {}}
    output = {"type": "shell_call_output", "id": "sho_1", "call_id": "call_1", "output": []}
    hosted = {"type": "tool_search_call", "id": "tsc_1", "call_id": None}
    xai = {"type": "x_search_call", "id": "xs_1", "call_id": ""}
    run = Run()
    for raw in (hosted, xai, shell, output, {**output, "id": "sho_2"}, {**shell, "id": "sh_2"}):
        kept(run, raw)
    kept(run, {**output, "id": "sho_3", "type": "hologram_output"})
    assert sent([run])[1:] == [hosted, xai, shell, output]


def test_a_call_and_its_output_behind_different_reasoning_are_not_torn_apart() -> None:
    run = Run()
    run.think("rs_1", encrypted_content="gAAA")
    kept(run, {"type": "shell_call", "id": "sh_1", "call_id": "call_1", "action": {}})
    run.think("rs_2")  # not sealed: it cannot go back
    kept(run, {"type": "shell_call_output", "id": "sho_1", "call_id": "call_1", "output": []})
    run.say("msg_1", "Done.")
    assert kinds(sent([run], mode="encrypted", store=False)) == ["message", "message"]


def test_reasoning_before_a_call_that_cannot_be_answered_is_dropped_with_it() -> None:
    shell = {"type": "shell_call", "id": "sh_1", "call_id": "call_1", "action": {}}
    run = Run()
    run.think("rs_1")
    kept(run, shell)
    run.say("msg_1", "I have a look.")
    items = sent([run])
    assert [item["role"] for item in items] == ["user", "assistant"]
    assert items[1]["id"] != "msg_1"
    made = history([run.end().state], OPENAI, "stored")
    assert made.previous_response_id is None
    assert "cannot be answered" in made.notes[0]


# --- Anthropic ----------------------------------------------------------------------------------


def test_thinking_goes_back_with_its_signature_while_its_calls_are_answered() -> None:
    run = Run("Is it sunny?", 2, ANTHROPIC)
    run.think("x", "Look.", signature="EqMB")
    run.think("x", "", encrypted_content="REDACTED")
    run.result(
        run.call("toolu_1"), TextPart(text="15C"), ImageUrlPart(image_url=ImageUrl(url=PICTURE))
    )
    made = history([weather(1, ANTHROPIC, signature="old").state, run.state], ANTHROPIC)
    assert made.can_think
    assert made.items[-2]["content"] == [
        {"type": "thinking", "thinking": "Look.", "signature": "EqMB"},
        {"type": "redacted_thinking", "data": "REDACTED"},
        {
            "type": "tool_use",
            "id": "call_toolu_1",
            "name": "get_weather",
            "input": {"city": "Paris"},
        },
    ]
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    assert made.items[-1]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "call_toolu_1",
            "content": [{"type": "text", "text": "15C"}, {"type": "image", "source": source}],
        }
    ]
    assert "old" not in json.dumps(made.items)
    kept = sent([weather(1, ANTHROPIC, signature="old"), run], ANTHROPIC, "encrypted")
    assert "old1a" in json.dumps(kept)


def test_thinking_that_led_to_nothing_is_not_sent() -> None:
    run = Run(api=ANTHROPIC)
    run.think("x", signature="EqMB")
    run.say("x", "Half", "incomplete")
    assert "EqMB" not in json.dumps(sent([run], ANTHROPIC))


def test_thinking_without_a_signature_is_not_sent() -> None:
    run = Run(api=ANTHROPIC)
    run.think("x", "unsigned")
    run.result(run.call("toolu_1"), TextPart(text="15C"))
    made = history([run.state], ANTHROPIC)
    assert "unsigned" not in json.dumps(made.items)
    assert not made.can_think


def test_where_the_calls_began_without_thinking_it_has_to_stay_off() -> None:
    run = Run()
    run.think("rs_1")
    run.result(run.call("fc_1"), TextPart(text="15C"))
    assert not history([run.state], ANTHROPIC).can_think
    assert history([run.state], CHAT).can_think


def test_results_come_first_in_the_very_next_message_and_roles_alternate() -> None:
    run = Run()
    one, two = run.call("fc_1"), run.call("fc_2")
    run.result(two, TextPart(text="second"))
    run.result(one, TextPart(text="first"))
    items = sent([run, Run("Thanks", 2)], ANTHROPIC)
    assert [item["role"] for item in items] == ["user", "assistant", "user"]
    assert [block["type"] for block in items[2]["content"]] == ["tool_result"] * 2 + ["text"]
    assert [b["tool_use_id"] for b in items[2]["content"][:2]] == ["call_fc_1", "call_fc_2"]


def test_the_user_begins_and_ends() -> None:
    run = Run(None)
    run.say("msg_1", "Hello. ")
    run.say("msg_2", " ")
    assert [(m["role"], m["content"][0]["text"]) for m in sent([run], ANTHROPIC)] == [
        ("user", "(no message)"),
        ("assistant", "Hello. "),
        ("user", "Continue."),
    ]
    assert sent([Run(None)], ANTHROPIC) == [
        {"role": "user", "content": [{"type": "text", "text": "(no message)"}]}
    ]


def test_a_paused_answer_goes_back_as_it_is() -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_0", "content": []}
    run = Run(api=ANTHROPIC)
    done = run.call("srvtoolu_0", executor="provider", raw={**use, "id": "srvtoolu_0"})
    run.result(done, raw=found)
    run.call("srvtoolu_1", executor="provider", raw=use)
    items = sent([run], ANTHROPIC)
    city = {"city": "Paris"}
    assert items[-1]["content"] == [
        {**use, "id": "srvtoolu_0", "input": city},
        found,
        {**use, "input": city},
    ]
    assert items[-1]["role"] == "assistant"
    items = sent([run, Run("And?", 2)], ANTHROPIC)
    assert "srvtoolu_1" not in json.dumps(items)


def test_texts_with_citations_go_back_as_anthropic_wrote_them() -> None:
    run = Run(api=ANTHROPIC)
    writer = MessageWriter(run)
    writer.text("Sunny.")
    raw = [{"type": "text", "text": "Sunny.", "citations": [{"type": "x"}]}, {"type": "text"}]
    writer.finish(private=run.private(raw=raw))
    assert sent([run], ANTHROPIC)[1]["content"] == raw[:1]
    thought = Run(api=ANTHROPIC)
    raw_thought = {"type": "thinking", "thinking": "Hm", "signature": "S", "new": 1}
    thought.think("x", raw=raw_thought)
    thought.say("x", "Yes.")
    assert sent([thought], ANTHROPIC)[1]["content"][0] == raw_thought


def test_thinking_before_nothing_but_empty_texts_goes_with_them() -> None:
    run = Run(api=ANTHROPIC)
    run.think("x", signature="S")
    writer = MessageWriter(run)
    writer.text("Shown.")
    writer.finish(private=run.private(raw=[{"type": "text", "text": ""}]))
    items = sent([run, Run("And?", 2)], ANTHROPIC, "encrypted")
    assert [item["role"] for item in items] == ["user"]
    assert len(items[0]["content"]) == 2


def test_what_the_provider_kept_without_a_raw_block_is_left_out() -> None:
    run = Run(api=ANTHROPIC)
    run.result(run.call("srvtoolu_1", executor="provider"))
    index = run.add(RawItem(id="raw_1", raw={"type": "compaction"}, source=ANTHROPIC))
    run.done(index, RawItem(id="raw_1", raw={"type": "compaction"}, source=ANTHROPIC))
    assert sent([run], ANTHROPIC)[1]["content"] == [{"type": "compaction"}]


def test_halves_of_calls_are_not_sent_to_anthropic() -> None:
    run = Run(api=ANTHROPIC)
    run.say("msg_1", "Hello.")
    kept(run, {"type": "server_tool_use", "id": "srvtoolu_1"})
    kept(run, {"type": "web_fetch_tool_result", "id": "x_1", "tool_use_id": "srvtoolu_2"})
    kept(run, compaction := {"type": "compaction", "id": "x_2", "content": "So far."})
    content = sent([run], ANTHROPIC)[1]["content"]
    assert content == [{"type": "text", "text": "Hello."}, compaction]


def test_raw_reasoning_goes_back_to_openai_as_content() -> None:
    run = Run()
    writer = ReasoningWriter(run)
    writer.text_part().add("Look.")
    writer.finish(private=run.private("rs_1"))
    run.say("msg_1", "Yes.")
    assert sent([run])[1]["content"] == [{"type": "reasoning_text", "text": "Look."}]


def test_a_result_of_no_call_changes_nothing() -> None:
    state = State()
    item = ToolResult(id="fco_1", call_id="nobody")
    state.absorb(ev.TaskCreated(task_id="run_1", input="Hi"))
    state.absorb(ev.OutputItemDone(task_id="run_1", output_index=0, item=item))
    assert len(history([state], OPENAI).items) == 1


def test_a_call_with_more_than_we_know_keeps_it_for_anthropic() -> None:
    run = Run(api=ANTHROPIC)
    raw = {"type": "tool_use", "id": "toolu_1", "caller": {"type": "direct"}}
    run.call("toolu_1", raw=raw)
    assert sent([run], ANTHROPIC)[1]["content"][0]["caller"] == {"type": "direct"}


def test_system_messages_of_the_input_go_to_system() -> None:
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    request = history([Run(asked).state], ANTHROPIC).request()
    assert request["system"] == [{"type": "text", "text": "Be brief."}]
    assert [message["role"] for message in request["messages"]] == ["user"]
    assert [message["role"] for message in sent([Run(asked)], CHAT)] == ["system", "user"]
    assert [message["role"] for message in sent([Run(asked)])] == ["system", "user"]


@pytest.mark.parametrize(
    ("arguments", "kind", "expected"),
    [
        ("", "function", {}),
        ("[1]", "function", {"arguments": [1]}),
        ("{oops", "function", {"arguments": "{oops"}),
        ("free text", "custom", {"input": "free text"}),
    ],
)
def test_arguments_are_always_an_object(arguments: str, kind: str, expected: Any) -> None:
    run = Run()
    run.call("ctc_1", arguments, kind=kind)
    assert sent([run], ANTHROPIC)[1]["content"][0]["input"] == expected
    function = sent([run], CHAT)[1]["tool_calls"][0]["function"]
    assert function["arguments"] == (
        json.dumps(expected).replace(": ", ":") if kind == "custom" else arguments or "{}"
    )


# --- chat completions ---------------------------------------------------------------------------

_SAID = {"type": "text", "text": "So."}
_THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "Look."}]}


def test_reasoning_content_goes_back_while_its_calls_are_answered() -> None:
    run = Run("Is it sunny?", 2, CHAT)
    writer = ReasoningWriter(run)
    writer.text_part().add("Look.")
    writer.finish(private=run.private())
    run.say("x", "One moment.")
    run.say("x", "Really.")
    run.result(run.call("call_1"), TextPart(text="15C"))
    items = sent([weather(1, CHAT), run], CHAT)
    assert items[-2] == {
        "role": "assistant",
        "content": "One moment.\n\nReally.",
        "reasoning_content": "Look.",
        "tool_calls": [
            {
                "id": "call_call_1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'},
            }
        ],
    }
    assert items[-1] == {"role": "tool", "tool_call_id": "call_call_1", "content": "15C"}
    before = [item for item in items[:-2] if item["role"] == "assistant"]
    # What was thought then is not told again, but a server that has the field wants it there.
    assert [item["reasoning_content"] for item in before] == [" ", " "]
    told = sent([weather(1, CHAT), run], CHAT, "encrypted")
    assert [one.get("reasoning_content") for one in told if one["role"] == "assistant"] == [
        *("Look.", "Say.", "Look.")
    ]


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
    assert "reasoning_content" in str(elsewhere)  # nobody told the host
    second = Run("And?", 3, CHAT)
    writer = ReasoningWriter(second)
    writer.summary("Hm.")
    writer.finish(private=second.private(provider={"field": "reasoning"}))
    second.call("2")
    assert "reasoning_content" not in str(sent([second, Run("So?", 4)], CHAT))


def test_what_a_server_sealed_beside_its_reasoning_and_calls_goes_back_to_it() -> None:
    run = Run(api=CHAT)
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    writer = ReasoningWriter(run)
    writer.summary("Look.")
    more = {"field": "reasoning", "reasoning_details": details}
    writer.finish(private=run.private(provider=more))
    call = ArgumentsWriter(run, "f", call_id="c")
    fields = {"extra_content": 1, "type": "builtin_function", "id": "x", "function": {"signed": 2}}
    call.finish(private=run.private(provider={"fields": fields}))
    answer = sent([run], CHAT)[1]
    assert answer["reasoning"] == "Look."
    assert answer["reasoning_details"] == details
    function = {"name": "f", "arguments": "{}", "signed": 2}
    assert answer["tool_calls"] == [{**fields, "id": "c", "function": function}]
    assert "extra_content" not in json.dumps(sent([run], ANTHROPIC))
    run.result("c", TextPart(text="15C"))
    run.answer = 2
    writer = ReasoningWriter(run)
    writer.summary("So.")
    writer.finish(private=run.private(provider=more))
    run.say("x", "Yes.")
    chain = [run.end(), Run("And?", 2, CHAT)]
    assert "details" not in str(sent(chain, CHAT))
    answers = [one for one in sent(chain, CHAT, "encrypted") if one["role"] == "assistant"]
    assert [one["reasoning_details"] for one in answers] == [details, details]


@pytest.mark.parametrize(
    ("origin", "signature", "answer"),
    [
        ({"field": "reasoning"}, None, {"reasoning": "Look."}),
        ({"field": "thought"}, None, {}),
        (
            {"field": "reasoning_details", "reasoning_details": [{"text": "Look."}]},
            *(None, {"reasoning_details": [{"text": "Look."}]}),
        ),
        (
            {"field": "reasoning_content", "thinking_blocks": [{"signature": "s"}]},
            *("s", {"reasoning_content": "Look.", "thinking_blocks": [{"signature": "s"}]}),
        ),
        (
            {"field": "reasoning_text", "reasoning_opaque": "x"},
            *(None, {"reasoning_text": "Look.", "reasoning_opaque": "x"}),
        ),
        (
            {"field": "content", "part": "thinking"},
            *("s", {"content": [{**_THINKING, "signature": "s"}, _SAID]}),
        ),
        ({"field": "content", "part": "thinking"}, None, {"content": [_THINKING, _SAID]}),
        (
            {"field": "content", "part": "reasoning"},
            "s",
            {
                "content": [
                    {
                        "type": "reasoning",
                        "summary": [{"type": "summary_text", "text": "Look.", "signature": "s"}],
                    },
                    _SAID,
                ]
            },
        ),
    ],
)
def test_reasoning_goes_back_to_chat_servers_in_the_place_that_it_came_in(
    origin: dict[str, Any], signature: str | None, answer: dict[str, Any]
) -> None:
    run = Run(api=CHAT)
    writer = ReasoningWriter(run)
    writer.summary("Look.")
    private = run.private(provider=origin)
    writer.finish(private=msgspec.structs.replace(private, signature=signature))
    run.say("x", "So.")
    ArgumentsWriter(run, "f", call_id="c").finish(private=run.private())
    found = sent([run], CHAT)[1]
    assert found.pop("role") == "assistant"
    assert found.pop("tool_calls")
    assert found == {"content": "So.", **answer}


def test_thinking_that_was_all_of_the_content_is_all_of_it_again() -> None:
    run = Run(api=CHAT)
    writer = ReasoningWriter(run)
    writer.summary("Look.")
    writer.finish(private=run.private(provider={"field": "content", "part": "thinking"}))
    ArgumentsWriter(run, "f", call_id="c").finish(private=run.private())
    assert sent([run], CHAT)[1]["content"] == [_THINKING]


def test_pictures_of_a_tool_follow_in_a_user_message() -> None:
    run = Run()
    picture = ImageUrlPart(image_url=ImageUrl(url=PICTURE))
    run.result(run.call("fc_1"), TextPart(text="Look:"), picture)
    run.result(run.call("fc_2"), picture)
    items = sent([run, Run("Nice", 2)], CHAT)
    assert kinds(items) == ["user", "assistant", "tool", "tool", "user"]
    assert items[2]["content"] == "Look:\n[image]"
    shown = {"type": "image_url", "image_url": {"url": PICTURE}}
    told = {"type": "text", "text": "Returned by get_weather:"}
    assert items[-1]["content"] == [told, shown, told, shown, {"type": "text", "text": "Nice"}]


def test_neighbours_of_one_role_are_one_message() -> None:
    first = Run("One")
    first.say("msg_1", "A")
    second = Run(None, 2)
    second.say("msg_2", "B")
    assert sent([Run("Zero", 3), first, second], CHAT) == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Zero"}, {"type": "text", "text": "One"}],
        },
        {"role": "assistant", "content": "A\n\nB"},
    ]
    assert sent([Run(None)], CHAT) == [{"role": "user", "content": "(no message)"}]


# --- what a message is made of -------------------------------------------------------------------


def test_a_custom_call_stays_one_at_openai() -> None:
    run = Run()
    run.result(run.call("ctc_1", "free text", kind="custom"), TextPart(text="ok"))
    assert sent([run])[1:] == [
        {
            "id": "ctc_1",
            "type": "custom_tool_call",
            "call_id": "call_ctc_1",
            "name": "get_weather",
            "input": "free text",
        },
        {"type": "custom_tool_call_output", "call_id": "call_ctc_1", "output": "ok"},
    ]


def test_refusals_and_phases_of_the_model_go_back() -> None:
    run = Run()
    writer = MessageWriter(run, phase="commentary")
    writer.refusal_block().add("I can't.")
    writer.finish(private=run.private("msg_1"))
    assert sent([run])[1] == {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "refusal", "refusal": "I can't."}],
        "id": "msg_1",
        "phase": "commentary",
    }
    assert sent([run], ANTHROPIC)[1]["content"] == [{"type": "text", "text": "I can't."}]
    assert sent([run], CHAT)[1]["content"] == "I can't."


def test_the_model_s_messages_hold_text_only() -> None:
    run = Run()
    writer = MessageWriter(run)
    writer.whole(Image(image_url=ImageUrl(url="https://example.org/a.png")))
    writer.whole(Data(data=[1]))
    writer.finish()
    parts = [part["text"] for part in sent([run])[1]["content"]]
    assert parts == ["[image: https://example.org/a.png]", "[1]"]


def test_a_message_of_an_unknown_role_is_the_models() -> None:
    run = Run()
    index = run.add(Message(id="msg_1", role="critic"))
    place: dict[str, Any] = {"task_id": "run_1", "item_id": "msg_1", "output_index": index}
    run.emit(ev.TextDone(**place, block_index=0, item=Text(text="Hm.")))
    run.done(index, Message(id="msg_1", role="critic"))
    for api in APIS:
        assert sent([run], api)[1]["role"] == "assistant"


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
    told = json.dumps(items)
    assert "ig_1" not in told
    assert "Returned by draw:" in told
    assert "iVBORw0KGgo=" in told
    assert told.index("Draw a cat.") < told.index("iVBORw0KGgo=") < told.index("Make it blue.")
    assert "Returned" not in json.dumps(sent([run], api))  # while it is the current turn
    if api == OPENAI:
        assert raw in sent([run], api)
        assert raw in sent([run], api, "encrypted")


def test_unknown_names_are_errors() -> None:
    wrong: Any
    for wrong in (("gemini", "drop"), ("openai_chat", "keep")):
        with pytest.raises(ValueError, match=r"no such (API: 'gemini'|mode: 'keep')"):
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
