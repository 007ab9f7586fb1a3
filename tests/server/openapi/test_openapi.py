"""`GET /openapi.json`: schemathesis calls every route by it, and finds nothing.

`make soak` does so at length, with schemathesis's own command.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import msgspec
import pytest
from jsonschema import Draft202012Validator
from starlette.applications import Starlette

from tailrace import Agent, tool
from tailrace.app import Tailrace
from tailrace.core.codec import encode_event
from tailrace.core.event_schema import events_schema
from tailrace.core.events import KNOWN
from tailrace.core.fold import State
from tailrace.models import Scripted, call, say, think
from tailrace.runtime.tasks.task import Task
from tailrace.server.access.auth import Principal
from tailrace.server.server import APIS
from tailrace.server.transport.connections import Connections
from tailrace.testing.wire_kit import encoded
from tailrace.wire.agents.events import AgentsEvent
from tailrace.wire.base import frame_json
from tailrace.wire.formats import FORMATS
from tailrace.wire.run.events import RunFormatEvent
from tests.effort import EXAMPLES, SEED, SOAK
from tests.serving import serving
from tests.traces import LOGS, TRACES

KEY = {"Authorization": "Bearer right"}


USER = [{"role": "user", "content": "?"}]
AG_UI = {"threadId": "t", "runId": "r"}
CONTENT = "messages[0].content"


async def hello(task: Task) -> str:
    """Says hello."""
    return "Hello"


@tool
async def look_up() -> str:
    """Finds it."""
    return "15 C"


def authenticate(request: Any) -> Principal | None:
    return (
        Principal("ann") if request.headers.get("authorization") == KEY["Authorization"] else None
    )


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    helper = Agent("helper", model=Scripted([call("look_up")], [say("Hello.")]), tools=[look_up])
    app = Tailrace(
        [hello, helper],
        tmp_path_factory.mktemp("openapi") / "log.db",
        auth=authenticate,
        origins=(),
    )
    with serving(app) as made:
        yield made


@pytest.fixture(scope="module")
def document(url: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{url}/openapi.json").json()
    return found


@pytest.mark.parametrize("has_keys", [False, True], ids=["without keys", "with keys"])
def test_schemathesis_finds_nothing(tmp_path: Path, has_keys: bool) -> None:
    """With all its checks: in `make soak` in all phases, else in the quick phases.

    Its command reads streams that never end for a second. A schema with values of any depth makes
    it discard many examples, which is no fault of the server.
    """
    agent = Agent("helper", model=Scripted([call("look_up")], [say("{}")]), tools=[look_up])
    short = Agent("short", model=Scripted([think("Hm."), say("{}")]))
    auth = authenticate if has_keys else None
    app = Tailrace([hello, agent, short], tmp_path / "log.db", auth=auth, origins=())
    phases = "examples,coverage,fuzzing,stateful" if SOAK else "fuzzing,stateful"
    key = ["-H", f"Authorization: {KEY['Authorization']}"] if has_keys else []
    with serving(app) as url:
        for seed in range(SEED, SEED + (3 if SOAK else 1)):
            ran = subprocess.run(
                [
                    *(
                        str(Path(sys.executable).with_name("st")),
                        "run",
                        f"{url}/openapi.json",
                        *key,
                    ),
                    *("--phases", phases, "--checks", "all", "--seed", str(seed)),
                    *("--max-examples", str(max(200, EXAMPLES) if SOAK else 2)),
                    *("--request-timeout", "1", "--request-retries", "2", "--warnings", "off"),
                    *("--continue-on-failure",),
                    *("--suppress-health-check", "filter_too_much"),
                ],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )
            assert "No issues found" in ran.stdout, ran.stdout + ran.stderr


def test_every_route_is_described_with_what_it_takes_and_answers(
    url: str, document: dict[str, Any]
) -> None:
    routes = [route for api in APIS for route in api(FORMATS, Connections()).routes()]
    for route in routes:
        endpoint = route.endpoint.func if isinstance(route.endpoint, partial) else route.endpoint
        assert hasattr(endpoint, "operation"), f"{route.path}: declare it with @operation"
        for method in (route.methods or set()) - {"HEAD"}:
            assert document["paths"][route.path][method.lower()]["summary"].endswith(".")
    ids = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(ids) == len(set(ids)) >= len(routes)


def test_the_document_has_every_event_and_no_broken_reference(document: dict[str, Any]) -> None:
    parts = document["components"]["schemas"]
    found = re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(document))
    assert set(found) <= set(parts)
    assert set(events_schema()["$defs"]) <= set(parts)
    event = {"$ref": "#/components/schemas/Event", "components": document["components"]}
    Draft202012Validator.check_schema(event)
    validator = Draft202012Validator(event)
    for one, _ in TRACES[0].events:
        if isinstance(one, tuple(KNOWN)):
            validator.validate(json.loads(encode_event(one)))
    assert not validator.is_valid({"type": "task.completed"})


@pytest.mark.parametrize("name", ["task", "run", "agents"])
def test_the_document_has_every_frame_of_our_own_formats(
    document: dict[str, Any], name: str
) -> None:
    choice = document["components"]["schemas"][f"{name.capitalize()}Frame"]
    mapping = choice["discriminator"]["mapping"]
    seen = set()
    for frame in frames_of(name):
        kind = frame["type"]
        # A schema for each type: `oneOf` would try them all for each delta.
        schema = {"$ref": mapping[kind], "components": document["components"]}
        Draft202012Validator(schema).validate(frame)
        if kind not in seen:
            seen.add(kind)
            Draft202012Validator({**choice, "components": document["components"]}).validate(frame)
    assert seen == set(mapping)


@pytest.mark.parametrize(("name", "types"), [("run", RunFormatEvent), ("agents", AgentsEvent)])
def test_the_types_of_a_format_have_every_field(name: str, types: Any) -> None:
    for frame in frames_of(name):
        made = msgspec.to_builtins(msgspec.convert(frame, types))
        assert {**made, **frame} == made


@cache
def frames_of(name: str) -> list[dict[str, Any]]:
    """The frames of all traces of this version, live and as a state, and a gap."""
    wire: Any = FORMATS[name]
    frames = [wire.gap(State(), 1, "deleted")]
    for trace in LOGS:
        state = State()
        for one, _ in trace.events:
            state.absorb(one)
        frames += wire.open(state, 1)[1]
        frames += [
            frame for sent in encoded(wire, [one for one, _ in trace.events]) for frame in sent
        ]
    return [frame_json(frame) for frame in frames]


def test_the_document_names_the_formats_that_a_route_takes(document: dict[str, Any]) -> None:
    def names(path: str) -> list[str]:
        parameters = document["paths"][path]["get"]["parameters"]
        [found] = [one["schema"]["enum"] for one in parameters if one["name"] == "format"]
        return list(found)

    assert names("/runs/{run_id}/events") == list(FORMATS)
    assert names("/threads/{thread}/events") == ["task", "run", "agents"]
    assert names("/threads/{thread_id}") == ["openai-responses", "vercel-ui", "ag-ui"]


@pytest.mark.parametrize(
    ("path", "cursor", "is_possible"),
    [
        ("/runs/{run_id}/events", "7-1", True),
        ("/runs/{run_id}/events", "7-1.2", True),
        ("/runs/{run_id}/events", "4096", True),
        ("/runs/{run_id}/events", "1:7-1", True),
        ("/runs/{run_id}/events", "no", False),
        ("/threads/{thread}/events", "1:7-1.o2", True),
        ("/threads/{thread}/events", "1:7-0.2", False),
        ("/threads/{thread}/events", "7-1", False),
    ],
)
def test_the_document_says_what_a_cursor_is(
    document: dict[str, Any], path: str, cursor: str, is_possible: bool
) -> None:
    parameters = document["paths"][path]["get"]["parameters"]
    schemas = [one["schema"] for one in parameters if one["name"] in ("after", "Last-Event-ID")]
    assert [Draft202012Validator(one).is_valid(cursor) for one in schemas] == [is_possible] * 2


def test_the_document_says_which_requests_have_an_idempotency_key(
    document: dict[str, Any],
) -> None:
    """Not as a parameter: whether a key is valid depends on earlier requests."""
    for path, methods in document["paths"].items():
        for about in methods.values():
            has_key = "`Idempotency-Key`" in about.get("description", "")
            is_ag_ui = path.startswith("/ag-ui")  # its key is in the body
            assert has_key == ("422" in about["responses"] and not is_ag_ui), path
    assert "422" in document["paths"]["/runs"]["post"]["responses"]


@pytest.mark.parametrize("name", ["", "no"])
def test_an_unknown_format_starts_no_run_also_without_a_stream(url: str, name: str) -> None:
    answer = httpx.post(f"{url}/runs?format={name}", json={"agent": "hello"}, headers=KEY)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "format")


def test_input_for_an_ended_run_is_a_conflict(url: str) -> None:
    body = {"model": "hello", "input": "?"}
    run_id = httpx.post(f"{url}/v1/responses", json=body, headers=KEY).json()["id"][5:]
    answer = httpx.post(f"{url}/runs/{run_id}/input", json={"a": 1}, headers=KEY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "run_ended")
    assert answer.headers["x-should-retry"] == "false"


def test_the_document_says_what_a_thread_s_id_may_be_in_a_query(document: dict[str, Any]) -> None:
    parameters = document["paths"]["/ag-ui/{agent}"]["get"]["parameters"]
    [schema] = [one["schema"] for one in parameters if one["name"] == "threadId"]
    assert Draft202012Validator(schema).is_valid("t1")
    assert not Draft202012Validator(schema).is_valid("")


def test_keys_are_in_the_document_of_a_server_with_keys(
    document: dict[str, Any], tmp_path: Path
) -> None:
    paths = document["paths"]
    assert paths["/runs"]["post"]["security"] == [{"bearer": []}, {"key": []}]
    assert {"ticket": []} in paths["/runs/{run_id}/events"]["get"]["security"]
    assert paths["/health"]["get"]["security"] == []
    assert "401" not in paths["/health"]["get"]["responses"]
    host = Starlette()
    host.mount("/ai", Tailrace([hello], tmp_path / "log.db"))
    with serving(host) as other:
        found = httpx.get(f"{other}/ai/openapi.json").json()
    assert found["servers"] == [{"url": "/ai"}]
    assert "securitySchemes" not in found["components"]
    assert "401" not in found["paths"]["/runs"]["post"]["responses"]


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/runs/none", "run_id"),
        ("/runs/run_none/events", "run_id"),
        ("/threads/none", "thread_id"),
        ("/blobs/none", "sha256"),
        ("/threads/t/events?format=no", "format"),
        ("/threads/t/events?after=no", "after"),
        ("/threads/t/events?snapshot=maybe", "snapshot"),
        ("/runs/RUN/events?format=openai-responses&after=1", "after"),
        ("/v1/responses/none", "response_id"),
        ("/v1/responses/RUN?stream=true&starting_after=x", "starting_after"),
        ("/v1/responses/RUN?starting_after=x", "starting_after"),
        ("/v1/responses/RUN/input_items?after=none", "after"),
        ("/runs/none/events?format=ag-ui", "run_id"),
        ("/v1/responses/RUN?stream=true&starting_after=1", "starting_after"),
        ("/v1/responses/RUN/input_items?order=up", "order"),
        ("/v1/models/none", "model"),
        ("/ag-ui/none?threadId=t", "agent"),
    ],
)
def test_an_error_names_what_is_wrong(url: str, path: str, param: str) -> None:
    if "RUN" in path:
        started = httpx.post(f"{url}/runs", headers=KEY, json={"agent": "hello"}).json()
        path = path.replace("RUN", started["run_id"])
    error = httpx.get(f"{url}{path}", headers=KEY).json()["error"]
    assert error["param"] == param
    assert error["type"] == error["code"]
    assert error["message"].endswith(".")


def test_a_thread_s_id_is_no_run_in_a_format_of_runs_alone(url: str) -> None:
    httpx.post(f"{url}/threads/talk/runs", headers=KEY, json={"agent": "hello"})
    for name in ("ag-ui", "openai-chat"):
        answer = httpx.get(f"{url}/runs/talk/events?format={name}", headers=KEY)
        assert (answer.status_code, answer.json()["error"]["param"]) == (404, "run_id")


def test_an_error_of_a_start_names_its_field_or_header(url: str) -> None:
    for body, header, param in (
        ({"agent": "none"}, {}, "agent"),
        ({"agent": "hello"}, {"idempotency-key": "k" * 256}, "Idempotency-Key"),
        ({"agent": "hello", "previous_run_id": "none"}, {}, "previous_run_id"),
    ):
        answer = httpx.post(f"{url}/runs", json=body, headers={**KEY, **header})
        assert answer.json()["error"]["param"] == param
    header = {**KEY, "last-event-id": "no"}
    run_id = httpx.post(f"{url}/runs", json={"agent": "hello"}, headers=KEY).json()["run_id"]
    refused = httpx.get(f"{url}/runs/{run_id}/events", headers=header)
    assert refused.json()["error"]["param"] == "Last-Event-ID"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/responses", {"model": "none", "input": "?"}, "model"),
        ("/v1/responses", {"input": [{"type": "item_reference", "id": "msg_none_1"}]}, "input[0]"),
        ("/v1/responses", {"input": "?", "conversation": "c"}, "conversation"),
        ("/v1/responses", {"input": "?", "prompt": {"id": "p"}}, "prompt"),
        ("/v1/chat/completions", {"model": "none", "messages": [{}]}, "model"),
        ("/v1/chat/completions", {"messages": USER, "n": True}, "n"),
        ("/v1/chat/completions", {"messages": USER, "functions": [{"name": "f"}]}, "functions"),
        ("/v1/chat/completions", {"messages": USER, "function_call": "auto"}, "function_call"),
        ("/ag-ui/none", {}, "agent"),
        ("/ag-ui/hello", {**AG_UI, "messages": [{"role": "user", "content": 5}]}, CONTENT),
    ],
)
def test_an_error_of_another_api_names_its_field(
    url: str, path: str, body: dict[str, Any], param: str
) -> None:
    answer = httpx.post(f"{url}{path}", json={"model": "hello", **body}, headers=KEY)
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("choice", [{"type": "some"}, {"name": "f"}])
def test_an_unknown_choice_of_tools_is_refused(url: str, choice: dict[str, str]) -> None:
    body = {"model": "hello", "max_tokens": 9, "messages": USER, "tool_choice": choice}
    answer = httpx.post(f"{url}/v1/messages", json=body, headers=KEY)
    assert answer.status_code == 400
    assert "; it must be auto, any, none or tool." in answer.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "?", "max_output_tokens": 5.0}),
        ("/v1/chat/completions", {"messages": USER, "max_tokens": 5.0, "n": 1.0}),
        ("/v1/messages", {"messages": USER, "max_tokens": 5.0}),
    ],
)
def test_a_whole_number_may_have_a_point(url: str, path: str, body: dict[str, Any]) -> None:
    answer = httpx.post(f"{url}{path}", json={"model": "hello", **body}, headers=KEY)
    assert answer.status_code == 200, answer.text


def test_a_path_of_its_own_names_only_its_own_methods(url: str) -> None:
    answer = httpx.request("PUT", f"{url}/v1/responses/compact", headers=KEY)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    answer = httpx.request("PUT", f"{url}/v1/responses/other", headers=KEY)
    assert answer.headers["allow"] == "DELETE, GET, HEAD"


def test_the_document_names_the_agents(document: dict[str, Any]) -> None:
    parts = document["components"]["schemas"]
    assert parts["AgentName"]["enum"] == ["hello", "helper"]
    assert parts["ModelAgentName"]["enum"] == ["helper"]


NUL, LARGE = "a\0b", 2**60
FUNCTION = {"type": "function", "name": "f"}
UI = {"role": "user", "parts": []}
PARTS: list[dict[str, Any]] = [
    *({"type": "text", "text": value} for value in ("?", NUL, 5, None)),
    *({"type": value} for value in ("text", "step-start", 5)),
]


def of(*values: Any) -> list[Any]:
    """Values of several types, for the type checker."""
    return list(values)


COMMON_BODIES: list[dict[str, Any]] = [
    *({"temperature": value} for value in of(0, 2, 2.1, -1, "1", True, None)),
    *({"top_p": value} for value in of(0.5, 1, 1.01)),
    *({"stream": value} for value in of(False, None, "true", 1)),
    *({"user": value} for value in of("ann", NUL, 5, None)),
    *({"store": value} for value in of(True, "no")),
    *({"metadata": value} for value in of({"a": "b"}, {"a": 5}, {"a": "x" * 513}, {"x" * 65: ""})),
    {"metadata": {str(number): "" for number in range(17)}},
    *({"unknown": value} for value in of(1.5, LARGE, NUL, [{NUL: 1}], {"a": [None]})),
    {NUL: 1},
    {"model": 5},
]
"""Bodies of the APIs of OpenAI, beside their `model` and their messages."""

BODIES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "/v1/responses": (
        {"model": "hello", "input": "?"},
        [
            *COMMON_BODIES,
            *({"input": value} for value in of("", NUL, 5, None, [], USER, [{}], [5])),
            *({"input": [{"role": value, "content": ""}]} for value in of("developer", "tool")),
            *({"input": [{"role": "user", "content": value}]} for value in of([], [5], 5, None)),
            *({"input": [{"role": "user", "content": [part]}]} for part in PARTS),
            *({"input": [{"type": value}]} for value in of("message", "reasoning", "thought", 5)),
            *({"max_output_tokens": value} for value in of(1, 0, -1, LARGE, "1", 1.5)),
            *(
                {"reasoning": value}
                for value in of({}, {"effort": "low"}, {"effort": "most"}, "low")
            ),
            {"reasoning": {"summary": "long"}},
            *({"truncation": value} for value in of("auto", "some")),
            *({"tools": value} for value in of([], [FUNCTION], [{"type": "function"}], [5], {})),
            {"tools": [{"type": "web_search"}]},
            *(
                {"tool_choice": value}
                for value in of("auto", "some", FUNCTION, {"type": "function"})
            ),
            *({"text": {"format": {"type": value}}} for value in of("text", "json_schema", "xml")),
            {"text": {"format": {"type": "json_schema", "schema": {}}}},
            *({"include": value} for value in of([], ["a"], [5], "a")),
            *({name: value} for name in ("prompt", "conversation") for value in of(None, "p")),
            *({"background": value} for value in of(False, "no")),
        ],
    ),
    "/v1/chat/completions": (
        {"model": "hello", "messages": USER},
        [
            *COMMON_BODIES,
            *({"messages": value} for value in of([], None, [{}], "?", [{"role": "user"}])),
            *({"messages": [{"role": value, "content": ""}]} for value in of("developer", "owner")),
            {"messages": [{"role": "assistant"}]},
            *({"messages": [{"role": "user", "content": [part]}]} for part in PARTS),
            *({"n": value} for value in of(1, 2, 0, True)),
            *({name: value} for name in ("functions", "function_call") for value in of(None, [])),
            *({"max_tokens": value} for value in of(1, 0, "1")),
            *({"max_tokens": value, "max_completion_tokens": 9} for value in of(1, 0, LARGE)),
            *({"reasoning_effort": value} for value in of("low", "most", 5)),
            *({"response_format": {"type": value}} for value in of("text", "json_schema")),
            *({"stream_options": value} for value in of({}, [])),
            *(
                {"tools": [{"type": "function", "function": value}]}
                for value in of({"name": "f"}, 5)
            ),
            *({"tool_choice": value} for value in of("none", "some", {"type": {}})),
            *({"tool_choice": {"type": value}} for value in of("custom", "function")),
            *(
                {"tool_choice": {"type": "allowed_tools", "allowed_tools": value}}
                for value in of({"tools": []}, {"tools": [5]}, {}, [])
            ),
        ],
    ),
    "/v1/messages": (
        {"model": "hello", "messages": USER},
        [
            *(
                {"messages": [{"role": value, "content": ""}]}
                for value in of("system", "developer")
            ),
            *({"messages": [{"role": "user", "content": [part]}]} for part in PARTS),
            *({"system": value} for value in of("", [{}], [5], 5, None)),
            *({"max_tokens": value} for value in of(1, 0, "1")),
            *({"metadata": value} for value in of({"user_id": "a"}, {"user_id": 5}, "a")),
            *({"output_config": value} for value in of({"effort": "low"}, {"effort": "most"})),
            *({"output_config": {"effort": value}} for value in of(5, None)),
            *({"tool_choice": {"type": value}} for value in of("any", "tool", "some")),
            {"tool_choice": {"type": "tool", "name": "f"}},
            *({"tools": [value]} for value in of({"name": "f"}, {"name": 5}, {}, {"type": "bash"})),
            *({"thread": value} for value in of({}, None, {"type": "create"}, {"type": "fork"})),
            *({"thread": value} for value in of({"type": "continue"}, {"a": 1}, 5)),
        ],
    ),
    "/api/chat": (
        {"id": "c", "messages": [UI]},
        [
            *({"id": value} for value in of("", "a/b", "..", "x" * 257, 5)),
            *({"agent": value} for value in of("hello", None, 5)),
            *({"messages": value} for value in of([], [{}], [{"role": "user"}], USER)),
            *({"messages": [{**UI, "parts": value}]} for value in of([{}], [5], "a", None)),
            *({"messages": [{**UI, "parts": [part]}]} for part in PARTS),
            {"messages": [{**UI, "role": "tool"}]},
            *({"messages": None, "message": value} for value in of(UI, {}, 5, None)),
            {"messages": [], "message": UI},
        ],
    ),
    "/ag-ui/hello": (
        {"threadId": "t", "runId": "RUN", "messages": USER},
        [
            *({"threadId": value} for value in of("", "a/b", 5)),
            *({"messages": value} for value in of([], [{}], [{"role": "user"}], None)),
            *({"messages": [{"role": value}]} for value in of("reasoning", "activity", "owner")),
            *({"messages": [{"role": "user", "content": value}]} for value in of("", [], 5, [5])),
            *({"resume": value} for value in of([], None, [{}], "a")),
        ],
    ),
    "/runs": (
        {"agent": "hello"},
        [
            *({"input": value} for value in of(None, "?", NUL, LARGE)),
            *({"options": value} for value in of({}, {NUL: 1}, [], None)),
            *({"previous_seq": value} for value in of(0, 1, None)),
            *({"thread_id": value} for value in of("t", "a/b", None)),
            {"unknown": 1},
        ],
    ),
}


@pytest.mark.parametrize("path", BODIES)
def test_the_server_takes_exactly_what_fits_the_schema(
    url: str, document: dict[str, Any], path: str
) -> None:
    route = path.replace("hello", "{agent}")
    body = document["paths"][route]["post"]["requestBody"]["content"]["application/json"]
    schema = {**body["schema"], "components": document["components"]}
    validator = Draft202012Validator(schema)
    sound, changes = BODIES[path]
    for change in ({}, *changes):
        sent = {**sound, **change}
        if sent.get("runId") == "RUN":
            sent["runId"] = uuid4().hex
        answer = httpx.post(f"{url}{path}", json=sent, headers=KEY)
        expected = (200, 201) if validator.is_valid(sent) else (400,)
        assert answer.status_code in expected, (change, answer.text)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"unevaluatedProperties": False}, "which cannot be checked; remove it."),
        ({"type": "text"}, "has type 'text' at #"),
    ],
)
def test_a_schema_of_the_answer_that_cannot_be_checked_starts_no_run(
    url: str, schema: dict[str, Any], reason: str
) -> None:
    shape = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    body = {"model": "helper", "messages": USER, "response_format": shape}
    before = httpx.get(f"{url}/threads", headers=KEY).json()["threads"]
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers=KEY)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "response_format")
    assert error["message"].startswith("`response_format`: The JSON Schema has")
    assert reason in error["message"]
    assert httpx.get(f"{url}/threads", headers=KEY).json()["threads"] == before


def test_a_schema_of_the_answer_may_have_keywords_of_others(url: str) -> None:
    form = {"type": "json_schema", "name": "a", "schema": {"x-order": 1, "": None}}
    body = {"model": "helper", "input": "?", "text": {"format": form}}
    response = httpx.post(f"{url}/v1/responses", json=body, headers=KEY).json()
    assert response["error"]["type"] == "invalid_output"  # not the schema, but the words


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("temperature", "1", "'1'; it must be a number"),
        ("temperature", 3, "3; it must be from 0 to 2"),
        ("max_output_tokens", 1.5, "1.5; it must be a whole number"),
        ("max_output_tokens", 0, "0; it must be at least 1"),
        ("tool_choice", 5, "5; it must be a string or an object"),
        ("store", "no", "'no'; it must be true or false"),
        ("input", {"text": "sk-secret"}, "an object; it must be a string or a list of items"),
        ("input", None, "missing; it must be a string or a list of items"),
        ("truncation", "x" * 200, f"'{'x' * 79}…; it must be auto or disabled"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_the_right_values(
    url: str, name: str, value: Any, wanted: str
) -> None:
    body = {"model": "hello", "input": "?", name: value}
    answer = httpx.post(f"{url}/v1/responses", json=body, headers=KEY)
    assert answer.json()["error"]["message"] == f"`{name}` is {wanted}."
