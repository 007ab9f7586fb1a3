"""`sanitize` repairs lists for chat completions."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tailrace.history import sanitize
from tailrace.testing.provider_rules import (
    Issued,
    check_openai_chat,
)
from tests.history.sanitize_lists import (
    NO_RESULT,
    PICTURE,
    answer,
    assistant,
    chat,
    user,
)


def test_chat_messages_are_paired() -> None:
    valid = [user(), assistant("1", "2"), answer("2"), answer("1"), assistant(content="Yes")]
    assert chat(valid) == valid
    closed = {"role": "tool", "tool_call_id": "1", "content": f"Error: {NO_RESULT}"}
    assert chat([user(), assistant("1"), user()]) == [user(), assistant("1"), closed, user()]
    assert chat([user(), answer("9")]) == [user()]
    moved = chat([user(), assistant("1"), user(), answer("1"), answer("1")])
    assert moved == [user(), assistant("1"), answer("1"), user()]
    twice = chat([user(), assistant("1"), answer("1"), assistant("1", content="x")])
    assert twice == [user(), assistant("1"), answer("1"), assistant(content="x")]
    empty = {"role": "assistant", "content": "x", "tool_calls": []}
    assert chat([empty, 7, assistant(), {"role": "user", "content": None}]) == [
        assistant(content="x")
    ]
    odd = {
        "role": "assistant",
        "content": "x",
        "tool_calls": [7, {"id": ""}, *assistant("1")["tool_calls"]],
    }
    assert chat([odd, answer("1")]) == [assistant("1", content="x"), answer("1")]
    refused = {"role": "assistant", "content": None, "refusal": "No."}
    assert chat([refused]) == [refused]
    assert chat([]) == [{"role": "user", "content": "(no message)"}]


def test_chat_messages_say_what_their_role_may_say() -> None:
    picture = {"type": "image_url", "image_url": {"url": PICTURE}}
    foreign = {"type": "input_image", "image_url": PICTURE}
    words = {"type": "text", "text": "Hi"}
    pdf = {"type": "file", "file": {"file_id": "f"}}
    mixed_content = [
        "Hi",
        {"type": "input_text", "text": "Hi"},
        picture,
        foreign,
        pdf,
        7,
        {"type": "x"},
    ]
    mixed_content.append({"type": "image_url"})
    assert chat([{"role": "user", "content": mixed_content}])[0]["content"] == [
        *(words, words, picture, picture, pdf)
    ]
    video = {"type": "video_url", "video_url": {"url": "https://example.org/a.mp4"}}
    paper = {"type": "document_url", "document_url": "https://example.org/a.pdf"}
    valid = {"role": "user", "content": [video, paper]}
    block = {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}}
    assert chat([{**valid, "content": [video, block, paper]}]) == [valid]
    no = {"type": "refusal", "refusal": "No"}
    spoken = {"role": "assistant", "content": [no, picture, {"type": "refusal"}]}
    assert chat([spoken])[0]["content"] == [no]
    assert chat([{"role": "user", "content": {"a": 1}}]) == [user('{"a":1}')]
    assert chat([{**user(), "tool_calls": assistant("1")["tool_calls"]}]) == [user()]
    long = "c" * 41
    odd = assistant(long)
    odd["tool_calls"][0]["function"] = {"name": "a.b", "arguments": {"x": 1}}
    mended = chat([user(), odd, {**answer(long), "content": [picture, words]}])
    [call] = mended[1]["tool_calls"]
    assert call["function"] == {"name": "a_b", "arguments": '{"x":1}'}
    assert call["id"] == mended[2]["tool_call_id"] != long
    assert mended[2]["content"] == [words]
    bare = assistant("1", "2")
    bare["tool_calls"][0]["function"] = {}
    bare["tool_calls"][1]["function"] = {"name": "f"}
    assert chat([bare, answer("2")]) == [assistant("2"), answer("2")]
    del bare["content"]
    assert chat([bare, answer("2"), {"role": "tool", "content": "x"}])[1:] == [answer("2")]
    custom = assistant("1")
    custom["tool_calls"] = [{"id": "1", "type": "custom", "custom": {"name": "f", "input": "x"}}]
    assert chat([custom, answer("1")]) == [custom, answer("1")]
    thought = {**assistant(content="Yes"), "reasoning_content": "Hm"}
    assert chat([thought]) == [thought]
    assert sanitize([thought], "openai_chat", reasoning="drop") == [assistant(content="Yes")]
    hm = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
    assert chat([assistant(content=[hm, words])]) == [assistant(content=[hm, words])]
    mended = sanitize([assistant(content=[hm, words])], "openai_chat", reasoning="drop")
    assert mended == [assistant(content=[words])]


CHAT = st.sampled_from(
    (user(), assistant("1"), assistant("1", "2"), assistant(content="x"), answer("1"), answer("2"))
)


@given(st.lists(CHAT, max_size=8))
def test_whatever_the_messages_a_chat_server_accepts_them_mended(messages: list[Any]) -> None:
    mended = chat(messages)
    assert check_openai_chat({"messages": mended}, Issued()) is None
    assert chat(mended) == mended
