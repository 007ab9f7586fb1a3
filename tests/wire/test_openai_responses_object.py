"""A run as one `response`, and as one `response.compaction`."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from openai.types.responses import ResponseError
from openai.types.responses.response import IncompleteDetails

from tailrace.core import errors
from tailrace.core import events as ev
from tailrace.core.items import (
    ErrorInfo,
)
from tailrace.testing.wire_kit import encoded
from tailrace.wire.openai_responses import (
    FORMAT,
    compaction_object,
    compaction_run,
    is_compaction,
    own_id,
    response_id,
    response_object,
)
from tests.wire import openai_scripts as scripts
from tests.wire.openai_checker import Reader, check_response
from tests.wire.openai_scripts import RUN, Script
from tests.wire.responses_runs import flat


def test_what_a_request_left_out_is_filled_in() -> None:
    options = {
        "text": {"verbosity": "low"},
        "reasoning": {"effort": "low"},
        "tools": [{"type": "function", "name": "pick"}, {"type": "web_search"}, "odd"],
    }
    body = response_object(Script(options=options).state)
    assert body["text"] == {"format": {"type": "text"}, "verbosity": "low"}
    assert body["reasoning"] == {"effort": "low", "summary": None}
    function = {"type": "function", "name": "pick", "description": None, "parameters": None}
    assert body["tools"] == [{**function, "strict": False}, {"type": "web_search"}, "odd"]


def test_a_response_echoes_the_fields_of_its_request_and_nothing_else() -> None:
    options = {
        "background": True,
        "temperature": 0.5,
        "top_p": True,
        "max_output_tokens": "many",
        "secret": "canary",
    }
    body = response_object(Script(options=options, metadata={"a": "b"}).state)
    check_response(body)
    assert (body["status"], body["background"], body["temperature"]) == ("queued", True, 0.5)
    assert body["top_p"] == 1.0
    assert body["max_output_tokens"] is None
    assert "canary" not in json.dumps(body)
    assert body["metadata"] == {"a": "b"}
    assert response_object(Script(metadata={"a": 1}, options=[]).state)["metadata"] == {}


def test_ids_and_names_of_a_response_come_from_the_run() -> None:
    assert response_id("run_7") == "resp_run_7"
    assert response_id("resp_7") == "resp_7"
    body = response_object(Script(agent=None, model="gpt-6").state)
    assert (body["model"], body["created_at"]) == ("gpt-6", 1790000000)
    assert response_object(Script(agent=None).state)["model"] == ""


def test_a_response_that_continues_a_window_names_the_response() -> None:
    for previous in (None, "run_6"):
        script = Script(options={"previous_response_id": "resp_x"}, previous_run_id=previous)
        assert response_object(script.state)["previous_response_id"] == "resp_x"


def test_the_id_of_an_image_names_the_item_that_holds_it() -> None:
    state = scripts.everything().state
    shown = [item["id"] for item in response_object(state)["output"]]
    images = [ident for ident in shown if ident.startswith("ig_")]
    assert images
    assert state.root is not None
    assert {own_id(ident) for ident in shown} <= state.root.item_ids.keys()


REASONS = ("max_output_tokens", "content_filter")


OUR_REASONS = (
    "cut",
    "max_turns",
    "max_tool_calls",
    "input_required",
    "steered",
    "pause_turn",
)


@pytest.mark.parametrize("reason", [*REASONS, *OUR_REASONS])
def test_a_run_that_stopped_early_has_a_reason_of_openais(reason: str) -> None:
    """In its object, its last frame and a replay. Some clients refuse any other value."""
    script = Script().begin().add(ev.TaskIncomplete, reason=reason)
    theirs = {"reason": reason if reason in REASONS else "max_output_tokens"}
    live = Reader().read(flat(encoded(FORMAT, script.events))).final
    late = Reader().read(FORMAT.open(script.state)[1]).final
    for response in (response_object(script.state), live, late):
        assert response is not None
        assert (response["status"], response["incomplete_details"]) == ("incomplete", theirs)
    assert theirs["reason"] in get_args(
        get_args(IncompleteDetails.model_fields["reason"].annotation)[0]
    )


def test_every_code_of_our_own_errors_is_one_of_openais() -> None:
    """So is a code that a tool or an agent made up."""
    known = get_args(ResponseError.model_fields["code"].annotation)
    raised = [getattr(kind, "code", "") for kind in vars(errors).values() if isinstance(kind, type)]
    for code in [*filter(None, raised), "interrupted", "no_summary", "too_many_attempts", "x" * 99]:
        script = Script().begin().add(ev.TaskFailed, error=ErrorInfo(code=code, message="m"))
        error = response_object(script.state)["error"]
        assert (error["type"], error["code"] in known) == (code, True)


def test_usage_is_that_of_the_whole_run_and_there_even_if_nothing_was_used() -> None:
    assert response_object(scripts.everything().state)["usage"] == {
        "input_tokens": 1010,
        "input_tokens_details": {"cached_tokens": 200, "cache_write_tokens": 30},
        "output_tokens": 505,
        "output_tokens_details": {"reasoning_tokens": 40},
        "total_tokens": 1515,
    }
    assert response_object(scripts.failed().state)["usage"]["total_tokens"] == 0
    assert response_object(Script().begin().state)["usage"] is None


def compacted_run() -> Script:
    script = Script().begin()
    return script.add(ev.HistoryCompacted, summary="It was about Paris.", run_id=RUN)


def test_a_compaction_refers_to_its_run() -> None:
    found = compaction_object(compacted_run().add(ev.TaskCompleted).state)
    assert (found["object"], found["usage"]["total_tokens"]) == ("response.compaction", 0)
    (item,) = found["output"]
    assert is_compaction(item)
    assert compaction_run(item) == RUN
    assert "Paris" not in str(found)
