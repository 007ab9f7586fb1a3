"""Calls and their results: in parallel, failing, elsewhere, and after an approval or denial."""

from __future__ import annotations

from conformance.authoring import PNG, Trace, story


@story()
def parallel_tools(trace: Trace) -> None:
    """Three calls whose arguments, progress and results interleave; the last one is done first."""
    run = trace.task("run_1").created(input="Compare the weather in three cities.").begin()
    cities = ("Paris", "Tokyo", "Lima")
    calls = [
        run.call(f"fc_{number}", f"call_{number}", "get_weather")
        for number, _city in enumerate(cities, start=1)
    ]
    for call in calls:
        call.delta('{"city":')
    for call, city in zip(reversed(calls), reversed(cities), strict=True):
        call.delta(f'"{city}"}}')
        call.arguments_done()
    for call in calls:
        call.done()
    for call in calls:
        call.started()
    results = {
        number: run.result(f"fco_{number}", f"call_{number}") for number in (2, 1, 3)
    }  # the order in which the tools happened to answer
    lima = results[3].open_text(id=1)
    run.send("progress", call_id="call_2", message="asking Tokyo", current=1, total=2)
    lima.delta("19 °C, ")
    results[1].text("15 °C, sunny", id=2)
    lima.delta("cloudy")
    lima.done()
    results[3].done()
    run.send("progress", call_id="call_2", current=2, total=2)
    results[2].text("22 °C, rain", id=3)
    results[1].done()
    results[2].done()
    message = run.message("msg_1")
    text = message.open_text()
    text.delta("Tokyo").cite(3).delta(", Lima").cite(1).delta(", Paris").cite(2)
    text.done()
    message.done()
    run.completed()

    output = trace.view()["output"]
    assert [item["id"] for item in output] == [
        "fc_1", "fc_2", "fc_3", "fco_2", "fco_1", "fco_3", "msg_1",
    ]  # fmt: skip
    assert [item["arguments"] for item in output[:3]] == [
        '{"city":"Paris"}',
        '{"city":"Tokyo"}',
        '{"city":"Lima"}',
    ]
    assert [item["started"] for item in output[:3]] == [True, True, True]
    assert output[1]["progress"] == {"current": 2, "total": 2}  # the message went with the old one
    assert "progress" not in output[0]
    assert [item["block_list"] for item in output[3:6]] == [
        [{"type": "text", "text": "22 °C, rain", "id": 3}],
        [{"type": "text", "text": "15 °C, sunny", "id": 2}],
        [{"type": "text", "text": "19 °C, cloudy", "id": 1}],
    ]
    block = output[6]["block_list"][0]
    assert block["text"] == "Tokyo[^3], Lima[^1], Paris[^2]"
    assert [(note["reference_id"], note["start_index"]) for note in block["annotations"]] == [
        (3, 5),
        (1, 15),
        (2, 26),
    ]


@story()
def tool_failed(trace: Trace) -> None:
    """A tool that breaks after half a result: the result says so and keeps what it had."""
    run = trace.task("run_1").created().begin()
    run.whole_call("fc_1", "call_1", "read_pages", '{"from":1,"to":9}')
    result = run.result("fco_2", "call_1")
    result.text("page 1", id=1)
    half = result.open_text(id=2)
    half.delta("page 2, first li")
    half.done()
    error = {
        "code": "tool_timeout",
        "message": "read_pages did not answer within 30 s.",
        "retry_after": 2.5,
    }
    result.done(
        status="failed",
        error=error,
        private={"content": [{"type": "text", "text": "The tool failed: timeout."}]},
    )
    run.says("msg_3", "I could read only one page.")
    run.completed()

    assert trace.view()["output"][1] == {
        "type": "tool_result",
        "id": "fco_2",
        "call_id": "call_1",
        "status": "failed",
        "error": error,
        "block_list": [
            {"type": "text", "text": "page 1", "id": 1},
            {"type": "text", "text": "page 2, first li", "id": 2},
        ],
    }


@story()
def client_tool(trace: Trace) -> None:
    """A tool that the client itself carries out, asked for as an input request."""
    run = trace.task("run_1").created().begin()
    call = run.call("fc_1", "call_1", "get_location", executor="client")
    call.delta("{}")
    call.arguments_done()
    call.done()
    request = {"id": "call_1", "kind": "input", "call_id": "call_1"}
    run.send("input_required", requests=[request])
    waiting = len(trace.events)
    run.send("input_received", request_id="call_1", value={"lat": 48.85, "lon": 2.35})
    result = run.result("fco_2", "call_1")
    result.block("data", data={"lat": 48.85, "lon": 2.35}, id=1)
    result.done()
    run.says("msg_3", "You are in Paris.")
    run.completed()

    call_shown = {
        "type": "tool_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "get_location",
        "executor": "client",
        "arguments": "{}",
    }
    assert trace.view(after=waiting) == {
        "task_id": "run_1",
        "status": "input_required",
        "output": [call_shown],
        "requests": [request],
    }
    assert trace.view(after=waiting + 1) == {
        "task_id": "run_1",
        "status": "in_progress",
        "output": [call_shown],
    }
    assert trace.view()["output"][0] == call_shown  # ours never started it


@story()
def builtin_tools(trace: Trace) -> None:
    """Tools of the provider: each call with its result right behind it, and its own citations."""
    run = trace.task("run_1").created(model="gpt-5").begin()
    run.whole_call(
        "search_1",
        "call_1",
        "web_search",
        '{"type":"search","query":"OpenAI API documentation"}',
        kind="web_search",
        executor="provider",
    )
    found = run.result("search_1_result", "call_1")
    found.block(
        "data",
        data={"results": [{"url": "https://platform.example/docs", "title": "Docs"}]},
        name="web_search",
    )
    found.done(private={"raw": {"type": "web_search_call", "id": "ws_68f7", "status": "completed"}})
    code = run.call(
        "code_2", "call_2", "code_interpreter", kind="code_interpreter", executor="provider"
    )
    code.delta('{"code":"print(', "'Hello, world!')", '"}')
    code.arguments_done()
    code.done(brief=True, private={"provider": {"container_id": "container_123"}})
    ran = run.result("code_2_result", "call_2")
    ran.block("data", data={"type": "logs", "logs": "Hello, world!\n"}, name="logs")
    ran.block("image", image_url={"url": PNG})
    ran.block("file", url="/blobs/plot.csv", mime_type="text/csv", name="plot.csv", size=12)
    ran.done(brief=True)
    remote = run.call(
        "mcp_3", "call_3", "lookup", kind="mcp", executor="provider", server_label="wiki"
    )
    remote.delta('{"title":"Seine"}')
    remote.arguments_done()
    remote.done()
    failed = run.result("mcp_3_result", "call_3")
    failed.done(status="failed", error={"code": "mcp_error", "message": "No such page."})
    message = run.message("msg_4")
    text = message.open_text()
    text.delta("See the docs and plot.csv.")
    text.annotate(
        type="url_citation",
        url="https://platform.example/docs",
        start_index=4,
        end_index=12,
        title="Docs",
    )
    text.annotate(
        type="file_citation",
        file_id="file_7",
        filename="plot.csv",
        index=17,
        container_id="container_123",
        start_index=17,
        end_index=25,
    )
    text.annotate(type="file_citation", file_id="file_8")
    text.annotate(type="raw", raw={"type": "hologram_citation", "depth": 3})
    text.done()
    message.done()
    run.completed()

    output = trace.view()["output"]
    assert output[0] == {
        "type": "tool_call",
        "id": "search_1",
        "call_id": "call_1",
        "name": "web_search",
        "kind": "web_search",
        "executor": "provider",
        "arguments": '{"type":"search","query":"OpenAI API documentation"}',
    }
    assert output[2]["arguments"] == '{"code":"print(\'Hello, world!\')"}'
    assert [block["type"] for block in output[3]["block_list"]] == ["data", "image", "file"]
    assert output[4] == {
        "type": "tool_call",
        "id": "mcp_3",
        "call_id": "call_3",
        "name": "lookup",
        "kind": "mcp",
        "executor": "provider",
        "server_label": "wiki",
        "arguments": '{"title":"Seine"}',
    }
    assert output[5]["status"] == "failed"
    block = output[6]["block_list"][0]
    first, second, third, fourth = block["annotations"]
    assert block["text"][first["start_index"] : first["end_index"]] == "the docs"
    assert block["text"][second["start_index"] : second["end_index"]] == "plot.csv"
    assert third == {"type": "file_citation", "file_id": "file_8"}
    assert fourth == {"type": "raw", "raw": {"type": "hologram_citation", "depth": 3}}
    whole = trace.whole()["output"]
    assert whole[1]["private"]["raw"]["id"] == "ws_68f7"
    assert whole[2]["private"] == {"provider": {"container_id": "container_123"}}


@story()
def json_arguments_split_in_escape(trace: Trace) -> None:
    """Arguments cut at every character, through escapes and surrogate pairs written as escapes."""
    run = trace.task("run_1").created().begin()
    arguments = r'{"path":"C:\\new\tdir\"q\"","emoji":"\ud83d\ude00","é":"日本","n":-1.5e+10}'
    call = run.call("fc_1", "call_1", "open")
    call.delta(*arguments)
    call.arguments_done()
    call.done()
    halves = run.call("fc_2", "call_2", "open")
    halves.delta(r'{"emoji":"\ud83d', r"\ude00 \\", r'\\"', "}")
    halves.arguments_done()
    halves.done(brief=True)
    cut = run.call("fc_3", "call_3", "open")
    cut.delta('{"path":"C:\\')
    cut.done(status="incomplete")
    run.send("incomplete", reason="max_output_tokens")

    output = trace.view()["output"]
    assert output[0]["arguments"] == arguments
    assert output[1]["arguments"] == r'{"emoji":"\ud83d\ude00 \\\\"}'
    assert output[2] == {
        "type": "tool_call",
        "id": "fc_3",
        "call_id": "call_3",
        "name": "open",
        "arguments": '{"path":"C:\\',
        "status": "incomplete",
    }
    assert trace.view(after=30)["output"][0]["arguments"] == arguments[:27]


@story()
def input_required(trace: Trace) -> None:
    """A run that waits for two answers, goes on with other work meanwhile, and is left waiting."""
    run = trace.task("run_1").created().begin()
    schema = {"type": "object", "properties": {"size": {"enum": ["S", "M", "L"]}}}
    first = {"id": "req_1", "kind": "input", "message": "Which size?", "schema": schema}
    second = {"id": "req_2", "kind": "input", "message": "Which colour?"}
    third = {"id": "req_3", "kind": "approval", "message": "Order it?"}
    run.send("input_required", requests=[first, second])
    message = run.message("msg_1")
    message.text("Two questions, please.")
    message.done()
    run.send("input_received", request_id="req_2", value="blue")
    one_left = len(trace.events)
    run.send("input_required", requests=[third])
    run.send("input_received", request_id="req_1", value={"size": "M"})

    assert trace.view(after=one_left)["status"] == "input_required"
    assert trace.view(after=one_left)["requests"] == [first]
    assert trace.view()["status"] == "input_required"
    assert trace.view()["requests"] == [third]


@story()
def approval_granted(trace: Trace) -> None:
    """A call runs after its approval."""
    run = trace.task("run_1").created().begin()
    call = run.call("fc_1", "call_1", "send_mail", needs_approval=True)
    call.delta('{"to":"bob@example.org"}')
    call.arguments_done()
    call.done()
    request = {"id": "apr_1", "kind": "approval", "call_id": "call_1", "message": "Send the mail?"}
    run.send("input_required", requests=[request])
    run.send("input_received", request_id="apr_1", approved=True)
    call.started()
    result = run.result("fco_2", "call_1")
    result.text("sent", id=1)
    result.done()
    run.says("msg_3", "Done.")
    run.completed()

    view = trace.view()
    assert view["status"] == "completed"
    assert "requests" not in view
    assert view["output"][0]["started"] is True
    assert view["output"][1]["block_list"] == [{"type": "text", "text": "sent", "id": 1}]


@story()
def approval_rejected(trace: Trace) -> None:
    """A call that is denied and never runs: its result has failed."""
    run = trace.task("run_1").created().begin()
    call = run.call("fc_1", "call_1", "send_mail")
    call.delta('{"to":"bob@example.org"}')
    call.arguments_done()
    call.done()
    request = {"id": "apr_1", "kind": "approval", "call_id": "call_1", "message": "Send the mail?"}
    run.send("input_required", requests=[request])
    run.send("input_received", request_id="apr_1", approved=False, reason="Not today.")
    result = run.result("fco_2", "call_1")
    error = {"code": "approval_rejected", "message": "Not today."}
    refused = [{"type": "text", "text": "The user declined this call: Not today."}]
    result.done(status="failed", error=error, private={"content": refused})
    run.says("msg_3", "I did not send it.")
    run.completed()

    output = trace.view()["output"]
    assert output[0] == {
        "type": "tool_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "send_mail",
        "arguments": '{"to":"bob@example.org"}',
    }
    assert output[1] == {
        "type": "tool_result",
        "id": "fco_2",
        "call_id": "call_1",
        "block_list": [],
        "status": "failed",
        "error": error,
    }
    assert trace.whole()["output"][1]["content"] == refused
