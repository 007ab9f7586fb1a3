"""Every shape in which a run may be asked."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tailrace.core.items import FilePart, ImageUrl, ImageUrlPart, Refusal, TextPart
from tailrace.core.writers import ArgumentsWriter
from tailrace.history import Api, history
from tailrace.history.content import DetailedImage, ProviderPart
from tailrace.history.inputs import (
    ClientOutput,
    InputCall,
    InputItem,
    InputMessage,
    ItemReference,
    is_aside,
    last_question,
    read_input,
    user_text,
    without_instructions,
)
from tailrace.ingest.base import Notebook
from tests.history.conversations import APIS, PICTURE


def speech(text: str, role: str = "user") -> InputMessage:
    return InputMessage(role, [TextPart(text=text)])


IMAGE = ImageUrlPart(image_url=ImageUrl(url=PICTURE))
BASE64 = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


BLOCKS = [
    {"type": "text", "text": "15 C", "id": 1},
    {"type": "data", "data": [1]},
    {"type": "task", "task_id": "t"},
]
"""An output as the format `vercel-ui` has it."""


def ui_call(kind: str, call_id: str, state: str, given: Any, **more: Any) -> dict[str, Any]:
    named = {"toolName": "g"} if kind == "dynamic-tool" else {}
    return {"type": kind, "toolCallId": call_id, "state": state, "input": given, **named, **more}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, []),
        ([], []),
        ("Hi", [speech("Hi")]),
        (7, [speech("7")]),
        ({"question": "why"}, [speech('{"question":"why"}')]),
        (["Hi", None, [1]], [speech("Hi"), InputMessage("user", []), speech("[1]")]),
        ([{"type": "text", "text": "Hi"}], [speech("Hi")]),
        ({"type": "input_text", "text": "Hi"}, [speech("Hi")]),
        ({"role": "user", "content": "Hi"}, [speech("Hi")]),
        ({"role": "critic", "content": "Hi"}, [speech("Hi")]),
        ({"role": "user", "content": None}, []),
        ({"type": "message", "role": "developer", "content": "Hi"}, [speech("Hi", "developer")]),
        (
            [{"role": "assistant", "content": [{"type": "output_text", "text": "Yes"}]}],
            [speech("Yes", "assistant")],
        ),
        (
            [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No"}]}],
            [InputMessage("assistant", [Refusal(refusal="No")])],
        ),
        ([{"type": "reasoning", "id": "rs_1", "summary": []}, "Hi"], [speech("Hi")]),
        ([{"type": "item_reference", "id": "msg_1"}, "Hi"], [ItemReference(), speech("Hi")]),
        # what tools of the client gave
        (
            [{"type": "function_call_output", "call_id": "c", "output": "15C"}],
            [ClientOutput("c", [TextPart(text="15C")])],
        ),
        ([{"type": "function_call_output", "output": "15C"}], []),
        (
            [{"type": "tool_result", "call_id": "c", "content": [{"type": "text", "text": "15C"}]}],
            [ClientOutput("c", [TextPart(text="15C")])],
        ),
        ([{"role": "tool", "tool_call_id": "c", "content": None}], [ClientOutput("c", [])]),
        (
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": "x", "is_error": True},
                    {"type": "text", "text": "Hi"},
                ],
            },
            [ClientOutput("c", [TextPart(text="x")], True), speech("Hi")],
        ),
        # calls that the client tells of
        (
            [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}],
            [InputCall("c", "f", "{}")],
        ),
        (
            [{"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}],
            [InputCall("c", "f", "x", "custom")],
        ),
        ([{"type": "function_call", "call_id": "c"}], []),
        (
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "d", "type": "custom", "custom": {"name": "g", "input": "x"}},
                    {"id": "e"},
                    "odd",
                ],
            },
            [InputCall("c", "f", "{}"), InputCall("d", "g", "x", "custom")],
        ),
        (
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm", "signature": "x"},
                    {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
                    {"type": "text", "text": "One moment."},
                ],
            },
            [speech("One moment.", "assistant"), InputCall("c", "f", '{"a":1}')],
        ),
        # what useChat sends
        (
            {
                "id": "m",
                "role": "user",
                "parts": [
                    {"type": "text", "text": "Hi"},
                    {
                        "type": "file",
                        "mediaType": "text/csv",
                        "url": "https://a.org/x",
                        "filename": "x.csv",
                    },
                ],
            },
            [
                InputMessage(
                    "user",
                    [
                        TextPart(text="Hi"),
                        FilePart(url="https://a.org/x", mime_type="text/csv", name="x.csv"),
                    ],
                )
            ],
        ),
        (
            {
                "role": "assistant",
                "parts": [
                    {"type": "text", "text": "As the log has it."},
                    {
                        "type": "tool-f",
                        "toolCallId": "c",
                        "state": "output-available",
                        "output": {"a": 1},
                    },
                    {
                        "type": "tool-f",
                        "toolCallId": "d",
                        "state": "output-error",
                        "errorText": "No",
                    },
                    {"type": "tool-f", "toolCallId": "e", "state": "input-available"},
                ],
            },
            [
                ClientOutput("c", [TextPart(text='{"a":1}')]),
                ClientOutput("d", [TextPart(text="No")], True),
            ],
        ),
        # what the server carried out, as a response shows it
        (
            [
                {"type": "mcp_call", "id": "a", "name": "f", "arguments": "{}", "output": "15 C"},
                {"type": "mcp_call", "id": "b", "name": "f", "arguments": "{}", "error": "No"},
                {"type": "mcp_call", "id": "c", "name": "f", "arguments": "{}", "output": None},
                {"type": "mcp_call", "output": "nobody's"},
            ],
            [
                InputCall("a", "f", "{}"),
                ClientOutput("a", [TextPart(text="15 C")]),
                InputCall("b", "f", "{}"),
                ClientOutput("b", [TextPart(text="No")], True),
            ],
        ),
        # the errors of OpenAI's `mcp_call`: of a tool, of the protocol or HTTP, and unknown objects
        *(
            (
                [{"type": "mcp_call", "id": "a", "name": "f", "arguments": "{}", "error": error}],
                [InputCall("a", "f", "{}"), ClientOutput("a", [TextPart(text=words)], True)],
            )
            for error, words in (
                ({"type": "tool", "content": [{"type": "text", "text": "No"}]}, "No"),
                ({"type": "http_error", "code": 500, "message": "No"}, "No"),
                ({"code": 500}, '{"code":500}'),
            )
        ),
        # the same as a message of Anthropic's API shows it, in its order
        (
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Wait."},
                    {"type": "mcp_tool_use", "id": "a", "name": "f", "input": {"n": 1}},
                    {"type": "mcp_tool_use", "id": "b", "name": "f", "input": {}},
                    {"type": "mcp_tool_use", "id": "lost", "name": "f", "input": {}},
                    {"type": "mcp_tool_result", "tool_use_id": "a", "content": "15 C"},
                    {"type": "mcp_tool_result", "tool_use_id": "b", "is_error": True},
                    {"type": "mcp_tool_result", "content": "nobody's"},
                    {"type": "server_tool_use", "id": "c", "name": "web_search", "input": {}},
                    {"type": "web_search_tool_result", "tool_use_id": "c", "content": [{"a": 1}]},
                    {"type": "text", "text": "Done."},
                ],
            },
            [
                speech("Wait.", "assistant"),
                InputCall("a", "f", '{"n":1}'),
                ClientOutput("a", [TextPart(text="15 C")]),
                InputCall("b", "f", "{}"),
                ClientOutput("b", [], True),
                speech("Done.", "assistant"),
            ],
        ),
        (
            {"role": "assistant", "id": "msg_1", "content": "Hello."},
            [InputMessage("assistant", [TextPart(text="Hello.")], "msg_1")],
        ),
        # a refusal as chat completions have it
        (
            [
                {"role": "assistant", "content": None, "refusal": "No."},
                {"role": "assistant", "refusal": "No."},
                {"role": "assistant", "content": "Hm.", "refusal": "No."},
                {"role": "assistant", "content": "Yes.", "refusal": None},
            ],
            [
                *[InputMessage("assistant", [Refusal(refusal="No.")])] * 2,
                InputMessage("assistant", [TextPart(text="Hm."), Refusal(refusal="No.")]),
                speech("Yes.", "assistant"),
            ],
        ),
        # what useChat sends of a conversation that the log does not have
        (
            [
                {"role": "user", "parts": [{"type": "text", "text": "Hi"}]},
                {
                    "role": "assistant",
                    "parts": [
                        {"type": "step-start"},
                        {"type": "reasoning", "text": "Hm"},
                        {"type": "text", "text": "Hello."},
                        7,
                    ],
                },
                {"role": "user", "parts": [{"type": "text", "text": "And now?"}]},
            ],
            [speech("Hi"), speech("Hello.", "assistant"), speech("And now?")],
        ),
        (
            [
                {
                    "role": "assistant",
                    "parts": [
                        {"type": "text", "text": "Wait."},
                        ui_call("tool-f", "a", "output-available", {"n": 1}, output={"a": 1}),
                        ui_call("dynamic-tool", "b", "output-error", "x", errorText="No"),
                        ui_call("tool-f", "c", "output-available", {}, output=BLOCKS),
                        {
                            "type": "data-task-item",
                            "data": {
                                "task_id": "t",
                                "type": "message",
                                "block_list": [{"type": "text", "text": "An agent's."}],
                            },
                        },
                        ui_call("tool-f", "d", "output-denied", {}),
                        ui_call("tool-f", "e", "input-available", {}),
                        ui_call("tool-f", "f", "input-streaming", {}),
                        {"type": "text", "text": "Done."},
                    ],
                }
            ],
            [
                speech("Wait.", "assistant"),
                InputCall("a", "f", '{"n":1}'),
                ClientOutput("a", [TextPart(text='{"a":1}')]),
                InputCall("b", "g", "x", "custom"),
                ClientOutput("b", [TextPart(text="No")], True),
                InputCall("c", "f", "{}"),
                ClientOutput("c", [TextPart(text=t) for t in ("15 C", "[1]", "An agent's.")]),
                InputCall("d", "f", "{}"),
                ClientOutput("d", [TextPart(text="A person denied the call.")], True),
                InputCall("e", "f", "{}"),
                speech("Done.", "assistant"),
            ],
        ),
    ],
)
def test_an_input_is_read_as_what_it_means(value: Any, expected: list[InputItem]) -> None:
    assert list(read_input(value)) == expected


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "image_url", "image_url": {"url": PICTURE}}, IMAGE),
        ({"type": "image_url", "image_url": PICTURE}, IMAGE),
        ({"type": "input_image", "image_url": PICTURE}, IMAGE),
        ({"type": "image", "source": BASE64}, IMAGE),
        (
            {"type": "image", "source": {"type": "url", "url": "https://a.org/a.png"}},
            ImageUrlPart(image_url=ImageUrl(url="https://a.org/a.png")),
        ),
        ({"type": "image", "source": {}}, TextPart(text='{"type":"image","source":{}}')),
        ({"type": "image"}, TextPart(text='{"type":"image"}')),
        (
            {"type": "input_image", "file_id": "file_1"},
            ProviderPart("openai_responses", {"type": "input_image", "file_id": "file_1"}),
        ),
        (
            {"type": "input_file", "file_data": "data:application/pdf;base64,AA", "filename": "a"},
            FilePart(url="data:application/pdf;base64,AA", mime_type="application/pdf", name="a"),
        ),
        (
            {"type": "file", "file": {"file_data": "data:text/plain,a", "filename": "a"}},
            FilePart(url="data:text/plain,a", mime_type="text/plain", name="a"),
        ),
        (
            {
                "type": "document",
                "title": "T",
                "source": {"type": "text", "media_type": "text/plain", "data": "a b"},
            },
            FilePart(url="data:text/plain,a%20b", mime_type="text/plain", name="T"),
        ),
        ({"type": "file", "url": "https://a.org/x"}, FilePart(url="https://a.org/x")),
        ({"type": "document"}, TextPart(text='{"type":"document"}')),
        (
            {"type": "document", "source": {"type": "url", "url": "https://a.org/x"}},
            FilePart(url="https://a.org/x", mime_type="application/pdf"),
        ),
        (
            {"type": "input_file", "file_url": "https://a.org/A.PDF?v=1"},
            FilePart(url="https://a.org/A.PDF?v=1", mime_type="application/pdf"),
        ),
        (
            {"type": "document", "source": {"type": "content", "content": "One."}},
            TextPart(text="One."),
        ),
        (
            {"type": "input_image", "image_url": PICTURE, "detail": "low"},
            DetailedImage(image_url=ImageUrl(url=PICTURE), detail="low"),
        ),
        (
            {"type": "image_url", "image_url": {"url": PICTURE, "detail": "high"}},
            DetailedImage(image_url=ImageUrl(url=PICTURE), detail="high"),
        ),
        ({"type": "input_image", "image_url": PICTURE, "detail": "auto"}, IMAGE),
    ],
)
def test_a_part_is_read_from_any_client(part: Any, expected: Any) -> None:
    assert list(read_input([part, {"type": "text", "text": "x"}])) in (
        [InputMessage("user", [expected, TextPart(text="x")])],
        [InputMessage("user", [expected]), speech("x")],
    )


def test_openais_models_read_that_a_clients_tool_failed() -> None:
    def sent(*content: Any) -> tuple[Any, Any, Any]:
        use = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
        result: Any = {"type": "tool_result", "tool_use_id": "c", "is_error": True}
        result["content"] = list(content)
        messages = [("user", "Hi"), ("assistant", [use]), ("user", [result])]
        given = [{"role": role, "content": words} for role, words in messages]
        openai, anthropic, chat = (history([Notebook(input=given).state], api) for api in APIS)
        return openai.items[-1]["output"], anthropic.items[-1]["content"], chat.items[-1]["content"]

    openai, [block], chat = sent({"type": "text", "text": "No such city."})
    assert openai == chat == "Error: No such city."
    assert block["is_error"] is True
    assert block["content"] == [{"type": "text", "text": "No such city."}]
    assert sent({"type": "text", "text": "Error: no."})[0] == "Error: no."
    assert sent()[2] == "Error:"


def test_a_search_result_is_read_as_its_texts() -> None:
    content = [{"type": "text", "text": "Found."}]
    part = {"type": "search_result", "source": "https://a.org", "title": "T", "content": content}
    [message] = read_input([{"role": "user", "content": [part]}])
    assert message == InputMessage(
        "user", [TextPart(text="T\nhttps://a.org"), TextPart(text="Found.")]
    )
    result = {"type": "tool_result", "tool_use_id": "c", "content": [{**part, "title": " "}]}
    [output] = read_input([{"role": "user", "content": [result]}])
    assert isinstance(output, ClientOutput)
    assert output.pieces == [TextPart(text="https://a.org"), TextPart(text="Found.")]


@pytest.mark.parametrize("detail", ["auto", "low", "high", "original"])
def test_openais_models_get_the_detail_of_an_image(detail: str) -> None:
    part = {"type": "input_image", "image_url": "https://a.org/a.png", "detail": detail}
    book = Notebook(input=[{"role": "user", "content": [part]}])
    openai, anthropic, chat = (history([book.state], api).items for api in APIS)
    assert openai[0]["content"] == [part]
    assert anthropic[0]["content"][0] == {
        "type": "image",
        "source": {"type": "url", "url": "https://a.org/a.png"},
    }
    known = {"low": "low", "high": "high", "original": "high"}
    url = {"url": "https://a.org/a.png"} | ({"detail": known[detail]} if detail in known else {})
    assert chat[0]["content"] == [{"type": "image_url", "image_url": url}]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "document", "source": {"type": "url", "url": "https://a.org/a.pdf"}},
        {"type": "input_file", "file_url": "https://a.org/a.pdf"},
    ],
)
def test_a_pdf_given_by_its_url_reaches_the_model(part: Any) -> None:
    book = Notebook(input=[{"role": "user", "content": [part]}])
    openai, anthropic, _ = (history([book.state], api).items for api in APIS)
    assert openai[0]["content"] == [{"type": "input_file", "file_url": "https://a.org/a.pdf"}]
    source = {"type": "url", "url": "https://a.org/a.pdf"}
    assert anthropic[0]["content"] == [{"type": "document", "source": source}]


def test_a_message_of_the_assistant_may_have_calls_and_no_content() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    [use] = read_input([{"role": "assistant", "tool_calls": [call]}])
    assert use == InputCall("c", "f", "{}", "function")


@pytest.mark.growth
@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize("api", APIS)
def test_a_history_takes_as_long_as_it_has_messages(api: Api, role: str) -> None:
    """No message copies those before it."""
    book = Notebook(input=[{"role": role, "content": "x" * 200}] * 60_000)
    begun = time.process_time()
    history([book.state], api)
    assert time.process_time() - begun < 10


def test_a_file_that_openai_holds_is_named_to_others() -> None:
    part = {"type": "input_file", "file_id": "file_1"}
    book = Notebook(input=[part])
    openai, anthropic, chat = (history([book.state], api).items for api in APIS)
    assert openai[0]["content"] == [part]
    assert anthropic[0]["content"][0]["text"] == chat[0]["content"] == "[input_file]"


def test_the_next_input_answers_the_clients_calls_and_no_others() -> None:
    first = Notebook(input="Hi")
    call = ArgumentsWriter(first, "f", call_id="c", executor="client")
    call.finish()
    answers = [
        {"type": "function_call_output", "call_id": "c", "output": "15C"},
        {"type": "function_call_output", "call_id": "c", "output": "again"},
        {"type": "function_call_output", "call_id": "unknown", "output": "x"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "d", "name": "g", "arguments": "{}"},
    ]
    second = Notebook("run_2", input=answers)
    items = history([first.state, second.state], "openai_responses").items
    assert [(item["type"], item.get("output")) for item in items[1:]] == [
        ("function_call", None),
        ("function_call_output", "15C"),
        ("function_call", None),
        ("function_call_output", "The call was interrupted: it has no result."),
    ]


def test_a_turn_that_the_clients_tool_goes_on_with_keeps_its_reasoning() -> None:
    from tailrace.core import events as ev
    from tailrace.core.writers import ReasoningWriter

    def private(name: str) -> ev.Private:
        return ev.Private(provider={"api": "openai_responses", "id": name, "response_id": "r"})

    first = Notebook(input="Hi")
    ReasoningWriter(first).finish(private=private("rs_1"))
    ArgumentsWriter(first, "f", call_id="c", executor="client").finish(private=private("fc_1"))
    given = [{"type": "function_call_output", "call_id": "c", "output": "15C"}]
    second = Notebook("run_2", input=given)
    items = history([first.state, second.state], "openai_responses").items
    assert [item.get("id") for item in items] == [None, "rs_1", "fc_1", None]


def test_messages_sent_with_results_follow_them() -> None:
    """A conversation that the client tells: two rounds of a tool, then the answer."""

    def called(number: int) -> list[dict[str, Any]]:
        call = {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": f"c{number}", "output": f"{number}C"}
        return [call, output]

    answer = {"role": "assistant", "content": "It is 2C."}
    conversation = ["Where?", *called(1), *called(2), answer, {"role": "user", "content": "And?"}]
    book = Notebook("r", input=conversation)
    items: Any = history([book.state], "openai_responses").items
    assert [one.get("call_id", one.get("role")) for one in items] == [
        *("user", "c1", "c1", "c2", "c2", "assistant", "user")
    ]
    for api in APIS[1:]:
        messages: Any = history([book.state], api).items
        roles = [message["role"] for message in messages]
        result = "tool" if api == "openai_chat" else "user"
        assert roles == ["user", *("assistant", result) * 2, "assistant", "user"]


@pytest.mark.parametrize(
    ("given", "every", "last"),
    [
        (None, "", ""),
        ("Hi.", "Hi.", "Hi."),
        (
            [
                {"role": "user", "content": "A"},
                {"role": "assistant", "content": "Answer."},
                {"role": "user", "content": "B"},
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "C"},
            ],
            "A\nB\nC",
            "B\nC",
        ),
        (
            [
                {"role": "user", "content": "A"},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "no"},
            ],
            "A",
            "A",
        ),
    ],
)
def test_the_last_question_follows_the_last_answer(given: Any, every: str, last: str) -> None:
    assert (user_text(given), last_question(given)) == (every, last)


@pytest.mark.parametrize(
    "aside",
    [
        {"id": "m", "role": "reasoning", "content": "Hm."},
        {"id": "m", "role": "activity", "content": {"a": 1}},
        {"id": "m", "role": "assistant", "content": "Inside.", "subagentRunId": "call_1"},
    ],
)
def test_messages_of_ag_ui_that_are_not_for_the_model_are_not_read(aside: Any) -> None:
    question = {"id": "q", "role": "user", "content": "?"}
    assert is_aside(aside)
    assert not is_aside(question)
    assert not is_aside("?")
    assert list(read_input([aside, question])) == list(read_input([question]))


def test_instructions_can_be_taken_out_of_an_input() -> None:
    system, user = {"role": "system", "content": "Arr."}, {"role": "user", "content": "?"}
    developer = {"type": "message", "role": "developer", "content": [{"type": "input_text"}]}
    assert without_instructions([system, "Hi", user, developer]) == ["Hi", user]
    assert without_instructions(system) is None
    assert [without_instructions(value) for value in (user, "Hi", None)] == [user, "Hi", None]


def test_calls_are_equal_if_their_arguments_are_the_same_json() -> None:
    call = InputCall("c", "f", '{"a": 1, "b": 2}')
    same = InputCall("c", "f", '{"b":2.0,"a":1}')
    assert call == same
    assert not call != same  # noqa: SIM202  # a struct compares the two in its own way
    assert {call: "found"}[same] == "found"
    for other in (
        InputCall("d", "f", call.arguments),
        InputCall("c", "g", call.arguments),
        InputCall("c", "f", '{"a": 1}'),
        InputCall("c", "f", call.arguments, kind="custom"),
    ):
        assert call != other
    assert call != "c"
    assert InputCall("c", "f", "{ }", kind="custom") != InputCall("c", "f", "{}", kind="custom")
