"""`HttpAgent` of `@ag-ui/client` from npm, unchanged, on the real server.

The client resolves without an end and only warns of events that it does not know, so each byte that
it read is also checked by the official models of `ag-ui-protocol`.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.node import run_node
from tests.serving import Served
from tests.wire.ag_ui_checker import check, read

Json = dict[str, Any]

PICK = {"name": "pick", "description": "Picks.", "parameters": {"type": "object"}}

TALKS: dict[str, Json] = {
    "everything": {"agent": "assistant", "steps": [{"say": "Sunny?"}]},
    "server tool": {"agent": "weather", "steps": [{"say": "Paris?"}]},
    "sub-agents": {"agent": "editor", "steps": [{"say": "Longest?"}]},
    "memory": {"agent": "recalls", "steps": [{"say": "one"}, {"say": "two"}]},
    "removed": {
        "agent": "echoes",
        "steps": [
            *({"say": "one"}, {"say": "two"}, {"say": "three"}),
            {"remove": [2, 3], "say": "four"},
            {"change": 1, "to": "No.", "say": "five"},
            {"say": "six"},
            {"remove": [8, 9], "say": "seven"},
        ],
    },
    "loaded": {
        "agent": "echoes",
        "steps": [
            *({"say": "one"}, {"say": "two"}, {"attach": True, "load": True}),
            {"say": "three"},
        ],
    },
    "client tool": {"agent": "picker", "steps": [{"say": "Hat?"}, {"tool": "the red one"}]},
    "approved": {"agent": "mailer", "steps": [{"say": "Mail Ada"}, {"resume": {"approved": True}}]},
    "denied": {"agent": "mailer", "steps": [{"say": "Mail Ada"}, {"resume": {"approved": False}}]},
    "approved with a message": {
        "agent": "mailer",
        "steps": [
            {"say": "Mail Ada"},
            {"resume": {"approved": True}, "say": "Thanks."},
            {"say": "Bye."},
        ],
    },
    "agent's tool": {"agent": "guide", "steps": [{"say": "Where?"}, {"resume": "Rome"}]},
    "agent's tool, attached": {
        "agent": "guide",
        "steps": [{"say": "Where?"}, {"attach": True}, {"resume": "Rome"}, {"attach": True}],
    },
    "state": {"agent": "counts", "state": {"count": 1}, "steps": [{"say": "a"}, {"say": "b"}]},
    "failure": {"agent": "broken", "steps": [{"say": "?"}, {"say": "And now?"}]},
    "cancel": {"agent": "endless", "steps": [{"say": "?", "cancelAt": 5}]},
    "leave": {"agent": "slow", "steps": [{"say": "?", "abortAt": 5}, {"attach": True}]},
    "attach": {"agent": "assistant", "steps": [{"say": "?"}, {"attach": True}]},
    "attach while it waits": {
        "agent": "mailer",
        "steps": [{"say": "Mail Ada"}, {"attach": True}, {"resume": None}],
    },
}


class Talks:
    """What the client made of all conversations; they run side by side in one process."""

    def __init__(self, served: Served) -> None:
        talks = [{**talk, "threadId": f"t_{n}"} for n, talk in enumerate(TALKS.values())]
        plan = {"url": served.url, "tools": [PICK], "talks": talks}
        found = json.loads(run_node(["ag_ui_client.mjs"], stdin=json.dumps(plan)))
        self.warnings = found["warnings"]
        self._talks = dict(zip(TALKS, found["talks"], strict=True))

    def __getitem__(self, name: str) -> Json:
        return self._talks[name]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def talks(served: Served) -> Talks:
    return Talks(served)


def texts_of(talk: Json, role: str = "assistant") -> list[str]:
    found = [one for one in talk["messages"] if one["role"] == role]
    return [str(one["content"]) for one in found if one.get("content")]


def kinds(turn: Json) -> list[str]:
    return [event["type"] for event in turn["events"]]


def test_the_client_warns_of_nothing(talks: Talks) -> None:
    assert talks.warnings == []


@pytest.mark.parametrize("name", TALKS)
def test_every_byte_is_legal_and_the_client_drops_no_event(talks: Talks, name: str) -> None:
    for turn in talks[name]["turns"]:
        if turn["raw"] is not None:
            events = read([turn["raw"].encode()])
            check(events)
            assert turn["events"] == events


def test_reasoning_tools_sub_agents_steps_and_the_answer_become_messages(talks: Talks) -> None:
    talk = talks["everything"]
    assert "It is sunny in Paris" in texts_of(talk)[-1]
    assert "The weather in Paris decides this." in " ".join(texts_of(talk, "reasoning"))
    assert any("15C" in content for content in texts_of(talk, "tool"))
    [turn] = talk["turns"]
    assert turn["outcome"] == "success"
    assert {"STEP_STARTED", "SUBAGENT_STARTED", "ACTIVITY_SNAPSHOT"} <= set(kinds(turn))
    [usage] = turn["events"][-1]["usage"]
    assert (usage["inputTokens"], usage["outputTokens"]) == (502, 127)


def test_a_scripted_agent_with_its_own_tool(talks: Talks) -> None:
    talk = talks["server tool"]
    assert [one["role"] for one in talk["messages"]] == [
        *("user", "reasoning", "assistant", "tool", "assistant")
    ]
    [call] = talk["messages"][2]["toolCalls"]
    assert call["function"] == {"name": "get_weather", "arguments": '{"city":"Paris"}'}
    assert talk["messages"][3]["toolCallId"] == call["id"]
    assert texts_of(talk)[-1] == "It is clear.[^1]"
    assert talk["turns"][0]["pending"] == []


def test_sub_agents_are_attributed(talks: Talks) -> None:
    [turn] = talks["sub-agents"]["turns"]
    started = [one for one in turn["events"] if one["type"] == "SUBAGENT_STARTED"]
    assert sorted(one["name"] for one in started) == ["mountains", "rivers"]
    inner = {one.get("subagentRunId") for one in turn["events"] if one["type"] == "TOOL_CALL_START"}
    assert inner == {None, *(one["subagentRunId"] for one in started)}


def test_the_second_turn_knows_the_first_and_sends_it_back_once(talks: Talks) -> None:
    talk = talks["memory"]
    first, second = texts_of(talk)
    assert first == "one"
    assert second.startswith("look_up() | one | None | ")
    assert second.endswith(" | one | two")
    assert second.count("15 C") == 1
    roles = [one["role"] for one in talk["turns"][1]["sent"]["messages"]]
    assert roles == ["user", "reasoning", "assistant", "tool", "assistant", "user"]


def test_a_model_reads_the_messages_that_the_client_shows_and_no_others(
    talks: Talks, served: Served
) -> None:
    talk = talks["removed"]
    assert texts_of(talk) == [
        "No.",
        "5 read: one | 1 | two | 3 | three",
        "5 read: one | 1 | three | 5 | four",
        "7 read: one | No. | three | 5 | four | 5 | five",
        "9 read: one | No. | three | 5 | four | 5 | five | 7 | seven",
    ]
    thread_id = talk["turns"][0]["sent"]["threadId"]
    reloaded = httpx.get(f"{served.url}/threads/{thread_id}?format=ag-ui").json()
    assert reloaded == talk["messages"]


@pytest.mark.parametrize(
    "name", [name for name in TALKS if "attach" not in name and name != "leave"]
)
def test_messages_that_no_client_changed_are_not_stored_again(
    talks: Talks, served: Served, name: str
) -> None:
    """The next run continues the last run, with its reasoning, references and private parts."""
    sent = talks[name]["turns"][0]["sent"]
    runs = httpx.get(f"{served.url}/threads/{sent['threadId']}").json()["runs"]
    messages = [one for one in talks[name]["messages"] if one["role"] != "activity"]
    asked = {"id": "next", "role": "user", "content": "Next?"}
    body = {**sent, "runId": f"next_{sent['threadId']}", "messages": [*messages, asked]}
    httpx.post(f"{served.url}/ag-ui/echoes", json={**body, "resume": None}).raise_for_status()
    made = httpx.get(f"{served.url}/runs/{body['runId']}").json()
    assert (made["input"], made["previous_run_id"]) == ([asked], runs[-1]["run_id"])


def test_the_client_runs_its_own_tool(talks: Talks) -> None:
    talk = talks["client tool"]
    first, second = talk["turns"]
    assert len(first["pending"]) == 1
    assert second["pending"] == []
    assert texts_of(talk)[-1] == "A fine colour."
    [call] = [call for one in talk["messages"] for call in one.get("toolCalls", ())]
    assert (call["id"], call["function"]["name"]) == (first["pending"][0], "pick")


@pytest.mark.parametrize("name", ["agent's tool", "agent's tool, attached"])
def test_the_interrupt_of_a_tool_of_the_agent_has_its_call(talks: Talks, name: str) -> None:
    talk = talks[name]
    assert talk["turns"][0]["outcome"] == "interrupt"
    [call] = [call for one in talk["messages"] for call in one.get("toolCalls", ())]
    [interrupt] = talk["turns"][0]["events"][-1]["outcome"]["interrupts"]
    assert (call["id"], call["function"]["name"]) == (interrupt["toolCallId"], "locate")
    assert texts_of(talk, "tool") == ["Rome"]
    assert texts_of(talk)[-1] == "You are there."


@pytest.mark.parametrize(("name", "output"), [("approved", "sent to ada"), ("denied", "denied")])
def test_an_interrupt_is_answered_by_resume(talks: Talks, name: str, output: str) -> None:
    talk = talks[name]
    assert [turn["outcome"] for turn in talk["turns"]] == ["interrupt", "success"]
    assert output in " ".join(texts_of(talk, "tool")).lower()
    assert texts_of(talk)[-1] == "Done."


def test_an_interrupt_may_be_answered_together_with_the_next_message(
    talks: Talks, served: Served
) -> None:
    talk = talks["approved with a message"]
    both = kinds(talk["turns"][1])
    assert [kind for kind in both if kind.startswith("RUN_")] == ["RUN_STARTED", "RUN_FINISHED"] * 2
    assert both.index("TOOL_CALL_RESULT") < both.index("RUN_FINISHED")
    assert texts_of(talk, "tool") == ["sent to ada"]
    thread_id = talk["turns"][0]["sent"]["threadId"]
    first, second, *_ = httpx.get(f"{served.url}/threads/{thread_id}").json()["runs"]
    assert (first["status"], second["status"]) == ("completed", "completed")
    assert second["previous_run_id"] == first["run_id"]


def test_the_clients_state_reaches_the_agent_and_comes_back(talks: Talks) -> None:
    talk = talks["state"]
    assert talk["turns"][1]["sent"]["state"] == {"count": 2}
    assert talk["state"] == {"count": 3}


def test_a_failure_is_an_error_without_its_secret_and_the_next_turn_may_follow(
    talks: Talks,
) -> None:
    talk = talks["failure"]
    assert len(talk["turns"]) == 2
    for turn in talk["turns"]:
        assert kinds(turn)[-1] == "RUN_ERROR"
        assert "hunter2" not in json.dumps(turn)
    assert "Half an ans" in texts_of(talk)[0]


def test_a_cancelled_run_says_so(talks: Talks) -> None:
    [turn] = talks["cancel"]["turns"]
    assert turn["outcome"] == "cancelled"
    assert turn["events"][-1]["type"] == "RUN_FINISHED"
    assert "error" not in turn


@pytest.mark.parametrize("name", ["leave", "attach"])
def test_a_client_that_comes_back_reads_the_whole_run(talks: Talks, name: str) -> None:
    talk = talks[name]
    assert texts_of(talk) == texts_of(talks["everything"])
    assert texts_of(talk, "reasoning") == texts_of(talks["everything"], "reasoning")
    assert texts_of(talk, "tool") == texts_of(talks["everything"], "tool")
    assert talk["turns"][-1]["outcome"] == "success"


def test_a_client_that_comes_back_to_a_run_that_waits_can_answer(talks: Talks) -> None:
    talk = talks["attach while it waits"]
    assert [turn["outcome"] for turn in talk["turns"]] == ["interrupt", "interrupt", "success"]
    assert texts_of(talk)[-1] == "Done."
