"""The openai package from PyPI, unchanged, and pydantic-ai on top of it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI, omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response

from tailrace.core import events as ev
from tailrace.wire.openai_responses import response_object
from tests.clients.openai_serving import Serving, plain
from tests.effort import CUTS, sample
from tests.serving import Served
from tests.wire import openai_scripts as scripts
from tests.wire.openai_scripts import ANSWER, Script


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    server = Serving()
    yield server
    server.close()


@pytest.fixture
def client(serving: Serving) -> Iterator[OpenAI]:
    with OpenAI(base_url=serving.base_url, api_key="test", max_retries=0) as client:
        yield client


def dumped(response: Any) -> Any:
    # `parsed` is what the helper adds; the types do not list an error's code.
    with warnings.catch_warnings(action="ignore"):
        value = response.to_dict(mode="json", warnings=False)
    for item in value["output"]:
        item.pop("parsed_arguments", None)
        for part in item.get("content") or ():
            part.pop("parsed", None)
    return value


def expected(script: Script) -> Any:
    return plain(response_object(script.state))


def test_the_stream_helper_ends_with_the_whole_response(serving: Serving, client: OpenAI) -> None:
    script = scripts.everything()
    with client.responses.stream(model=serving.add(script), input="Is it sunny?") as stream:
        seen = [event.type for event in stream]
        final = stream.get_final_response()
    assert dumped(final) == expected(script)
    assert final.output_text == ANSWER
    assert [item.type for item in final.output] == [
        "reasoning",
        "mcp_call",
        "image_generation_call",
        "mcp_call",
        "reasoning",
        "message",
    ]
    assert final.usage is not None
    assert final.usage.total_tokens == 1515
    assert "response.reasoning_summary_text.delta" in seen
    assert seen.count("response.output_text.annotation.added") == 3


def test_a_client_cut_after_every_frame_ends_with_the_same_object(
    serving: Serving, client: OpenAI
) -> None:
    script = scripts.everything()
    model = serving.add(script)
    with client.responses.create(model=model, input="x", stream=True) as stream:
        whole = list(stream)
    final = finished(whole)
    for count in sample(range(1, len(whole)), CUTS):
        got = cut(client, model, count)
        with client.responses.retrieve(
            "resp_run_7", stream=True, starting_after=got[-1].sequence_number
        ) as rest:
            got += list(rest)
        assert got == whole
        assert finished(got) == final == expected(script)


def finished(events: list[Any]) -> Any:
    """What the SDK's own accumulator makes of events, wherever they came from."""
    state: Any = ResponseStreamState(input_tools=omit, text_format=omit)
    for event in events:
        state.handle_event(event)
    return dumped(state._completed_response)


def test_the_helper_that_resumes_by_a_whole_replay_works_at_every_frame(
    serving: Serving, client: OpenAI
) -> None:
    script = scripts.client_call().add(ev.TaskCompleted)
    with client.responses.create(model=serving.add(script), input="x", stream=True) as stream:
        numbers = [event.sequence_number for event in stream]
    for place, number in enumerate(numbers):
        with client.responses.stream(response_id="resp_run_7", starting_after=number) as rest:
            got = [event.sequence_number for event in rest]
            assert got == numbers[place + 1 :]
            assert dumped(rest.get_final_response()) == expected(script)


def test_a_response_can_be_retrieved_without_a_stream(serving: Serving, client: OpenAI) -> None:
    script = scripts.everything()
    model = serving.add(script)
    assert dumped(client.responses.retrieve("resp_run_7")) == expected(script)
    assert dumped(client.responses.create(model=model, input="x")) == expected(script)


@pytest.mark.parametrize(
    ("script", "event", "status"),
    [
        (scripts.failed(), "response.failed", "failed"),
        (scripts.cancelled(), "response.incomplete", "cancelled"),
        (
            scripts.client_call("incomplete").add(ev.TaskIncomplete, reason="max_output_tokens"),
            "response.failed",
            "failed",
        ),
    ],
    ids=["failed", "cancelled", "a client's call that was cut"],
)
def test_every_other_ending_is_an_event_that_the_helper_takes(
    serving: Serving, client: OpenAI, script: Script, event: str, status: str
) -> None:
    with client.responses.stream(model=serving.add(script), input="x") as stream:
        *_, last = list(stream)
    assert last.type == event
    assert isinstance(last.response, Response)  # type: ignore[union-attr]
    assert last.response.status == status  # type: ignore[union-attr]
    assert dumped(last.response) == expected(script)  # type: ignore[union-attr]


def test_a_stream_that_showed_a_superseded_item_fails_and_a_later_look_has_the_answer(
    serving: Serving, client: OpenAI
) -> None:
    script = scripts.superseded()
    with client.responses.stream(model=serving.add(script), input="x") as stream:
        *_, last = list(stream)
        assert last.type == "response.failed"
        assert last.response.error is not None
        assert last.response.error.type == "stream_cut"
        with pytest.raises(RuntimeError, match=r"response\.completed"):
            stream.get_final_response()
    assert client.responses.retrieve("resp_run_7").output_text == "A whole answer."


def test_on_the_real_server_a_run_cut_while_it_goes_on_ends_as_it_is_retrieved(
    served: Served,
) -> None:
    with OpenAI(base_url=f"{served.url}/v1", api_key="test", max_retries=0) as client:
        length = len(cut(client, "assistant", -1))
        for count in sample(range(1, length + 1), CUTS):
            got = cut(client, "assistant", count)
            ident = got[0].response.id
            with client.responses.retrieve(
                ident, stream=True, starting_after=got[-1].sequence_number
            ) as rest:
                got += list(rest)
            with client.responses.retrieve(ident, stream=True) as replay:
                assert got == list(replay)
            assert finished(got) == dumped(client.responses.retrieve(ident))
    assert {"reasoning", "mcp_call", "image_generation_call", "message"} == {
        item["type"] for item in finished(got)["output"]
    }


def test_a_cursor_is_good_on_another_process_after_a_kill(served: Served) -> None:
    with OpenAI(base_url=f"{served.url}/v1", api_key="test", max_retries=0) as client:
        whole = cut(client, "assistant", -1)
    served.restart()
    with OpenAI(base_url=f"{served.url}/v1", api_key="test", max_retries=0) as client:
        for place in range(0, len(whole), 7):
            after = whole[place].sequence_number
            ident = whole[0].response.id
            with client.responses.retrieve(ident, stream=True, starting_after=after) as rest:
                assert list(rest) == whole[place + 1 :]


def test_after_a_lost_worker_each_number_continues_the_stream_that_had_it(tmp_path: Path) -> None:
    served = Served(tmp_path / "log.db", environment={"TAILRACE_TEST_LEASE": "1"})
    with OpenAI(base_url=f"{served.url}/v1", api_key="test", max_retries=0) as client:
        shown = cut(client, "begins_again", 5)
    assert shown[-1].type == "response.output_text.delta"
    ident = shown[0].response.id
    served.restart()
    with OpenAI(base_url=f"{served.url}/v1", api_key="test", max_retries=0) as client:

        def after(number: int) -> list[Any]:
            with client.responses.retrieve(ident, stream=True, starting_after=number) as rest:
                return list(rest)

        shown += after(shown[-1].sequence_number)
        assert shown[-1].type == "response.failed"
        while client.responses.retrieve(ident).status != "completed":
            pass  # the run goes on
        with client.responses.retrieve(ident, stream=True) as stream:
            replay = list(stream)
        assert finished(replay) == dumped(client.responses.retrieve(ident))
        for events in (shown, replay):
            for place, event in enumerate(events):
                assert after(event.sequence_number) == events[place + 1 :]
    served.kill()


def test_a_response_is_cancelled_with_its_metadata_and_without_a_reason(
    served: Served,
) -> None:
    with OpenAI(base_url=f"{served.url}/v1", api_key="test", max_retries=0) as client:
        begun = client.responses.create(
            model="endless", input="?", background=True, metadata={"order": "17"}
        )
        for _ in range(2):
            ended = client.responses.cancel(begun.id)
            assert (ended.status, ended.metadata) == ("cancelled", {"order": "17"})
            assert ended.incomplete_details is None
        assert client.responses.retrieve(begun.id).incomplete_details is None
        with client.responses.retrieve(begun.id, stream=True) as stream:
            last: Any = list(stream)[-1]
        assert (last.type, last.response) == ("response.incomplete", ended)


def cut(client: OpenAI, model: str, count: int) -> list[Any]:
    """The first `count` events of a new response, whose connection then breaks."""
    got: list[Any] = []
    with client.responses.create(model=model, input="Is it sunny?", stream=True) as stream:
        for event in stream:
            got.append(event)
            if len(got) == count:
                break
    return got


async def test_pydantic_ai_reads_thinking_tools_images_and_the_answer(serving: Serving) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.messages import FilePart, NativeToolReturnPart, ThinkingPart
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=serving.base_url, api_key="test")
    agent = Agent(OpenAIResponsesModel(serving.add(scripts.everything()), provider=provider))
    async with agent.run_stream("Is it sunny?") as result:
        assert await result.get_output() == ANSWER
        parts = [part for message in result.all_messages() for part in message.parts]
    await provider.client.close()
    thoughts = [part.content for part in parts if isinstance(part, ThinkingPart)]
    assert thoughts == ["Thinking about Paris.", "Let me look it up.", "Raw thinking."]
    returns: list[Any] = [part.content for part in parts if isinstance(part, NativeToolReturnPart)]
    assert [each["output"] for each in returns if "output" in each] == [
        "15 °C, sunny\n[report.pdf](https://files.example/report.pdf)",
        "It is sunny, says the expert.",
    ]
    (image,) = [part for part in parts if isinstance(part, FilePart)]
    assert image.content.media_type == "image/png"
