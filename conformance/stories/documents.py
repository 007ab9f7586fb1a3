"""The two worked examples of "How to design a stateful streaming response system".

Once with our lifecycle around them and their slips mended (PROTOCOL.md section 12), and once event
for event as the document prints them, which a reader has to survive.
"""

from __future__ import annotations

import copy

from conformance.authoring import PNG, Dict, Task, Trace, story

WEATHER = '{"temperature":"15C","condition":"Sunny"}'
ANSWER = "The weather in Paris is sunny with a temperature of 15C.[^1]"
MANAGED = ["added_by_reference_manager"]

OPENER = {"type": "text", "text": "<referencable-item>\nID: 1", "id": 1, "tags": MANAGED}
CLOSER = {"type": "text", "text": "</referencable-item>", "id": 1, "tags": MANAGED}
CONTENT = [
    OPENER,
    {"type": "text", "text": WEATHER, "id": 1},
    {"type": "image_url", "image_url": {"url": PNG}, "id": 1},
    CLOSER,
]

# The document's final object of the first example, as printed.
FINAL: Dict = {
    "task_id": "task_1234xyz",
    "output": [
        {
            "type": "reasoning",
            "id": "rs_1234xyz",
            "summary": [
                {"type": "text", "text": "Thinking about the weather in Paris."},
                {"type": "text", "text": "Decided to call get_weather function."},
            ],
        },
        {
            "type": "tool_call",
            "id": "fc_1234xyz",
            "call_id": "call_1234xyz",
            "name": "get_weather",
            "arguments": '{"location":"Paris, France"}',
        },
        {
            "type": "tool_result",
            "id": "fco_1234xyz",
            "call_id": "call_1234xyz",
            "content": CONTENT,
            "block_list": [
                {"type": "text", "text": WEATHER, "id": 1},
                {"type": "image_url", "image_url": {"url": PNG}, "id": 1},
            ],
        },
        {
            "type": "message",
            "id": "msg_1234xyz",
            "role": "assistant",
            "content": [{"type": "text", "text": ANSWER}],
            "block_list": [
                {
                    "type": "text",
                    "text": ANSWER,
                    "id": 1,
                    "annotations": [
                        {
                            "type": "reference_to_block",
                            "reference_id": 1,
                            "start_index": 44,
                            "end_index": 47,
                        }
                    ],
                }
            ],
        },
    ],
}


def mended(final: Dict) -> Dict:
    """The document's object under the deviations that PROTOCOL.md section 12 lists."""
    result = copy.deepcopy(final)
    for item in result["output"]:
        for block in item.get("block_list", []):
            if block["type"] == "image_url":
                block["type"] = "image"
            if item["type"] == "message":
                del block["id"]
                block["annotations"][0].update(start_index=56, end_index=60)
    return result


CITATION = {"type": "reference_to_block", "reference_id": 1, "start_index": 56, "end_index": 60}


def think(task: Task, suffix: str, tool: str) -> None:
    """The reasoning of both examples."""
    reasoning = task.reasoning(f"rs_{suffix}")
    first = reasoning.summary()
    first.delta("Thinking about the weather ", "in Paris.")
    first.done()
    second = reasoning.summary()
    second.delta("Decided to call ", f"{tool} function.")
    second.done()
    reasoning.done()


def get_weather(task: Task, suffix: str, call_id: str, *deltas: str) -> None:
    """The tool call of both examples, and its result."""
    call = task.call(f"fc_{suffix}", call_id, "get_weather")
    call.delta(*deltas)
    call.arguments_done()
    call.done()
    result = task.result(f"fco_{suffix}", call_id)
    result.text(WEATHER, id=1)
    image = result.open_image(id=1)
    image.image(PNG)
    image.image(PNG)
    image.done()
    result.done(private={"content": CONTENT})


def answer(task: Task, suffix: str) -> None:
    """The message of both examples."""
    message = task.message(f"msg_{suffix}")
    message.text(ANSWER, annotations=[CITATION])
    message.done()


@story()
def s0_weather(trace: Trace) -> None:
    """The first worked example: reasoning, a tool call, its result with a picture, a cited answer.

    The marker stands at 56–60. `content` is private; the whole object holds it again.
    """
    run = trace.task("task_1234xyz").created().begin()
    think(run, "1234xyz", "get_weather")
    pieces = ('{"', "location", '":"', "Paris", ",", " France", '"}')
    get_weather(run, "1234xyz", "call_1234xyz", *pieces)
    answer(run, "1234xyz")
    run.completed()

    assert ANSWER[56:60] == "[^1]"
    assert trace.whole() == {**mended(FINAL), "status": "completed"}
    view = mended(FINAL)
    del view["output"][2]["content"]
    del view["output"][3]["content"]
    assert trace.view() == {**view, "status": "completed"}


@story()
def s0_subagent(trace: Trace) -> None:
    """The second worked example: a sub-agent's items show up in its parent's tool result.

    Ids of the child end in 5678xyz: its own call must not route back to itself. Its reference 1
    is imported, so that the parent can cite it. The document's `content` of the child lacks the
    picture that its parent then cites; here both have it.
    """
    run = trace.task("task_1234xyz").created().begin()
    think(run, "1234xyz", "ask_for_help")
    arguments = (
        '{"name":"WeatherAgent","description":"An agent that provides weather information.",'
        '"prompt":"Get the current weather in Paris, France."}'
    )
    call = run.call("fc_1234xyz", "call_1234xyz", "ask_for_help")
    call.delta(arguments)
    call.arguments_done()
    call.done()
    result = run.result("fco_1234xyz", "call_1234xyz")
    child = run.child("call_1234xyz", agent="WeatherAgent")
    think(child, "5678xyz", "get_weather")
    get_weather(child, "5678xyz", "call_5678xyz", '{"location":"Paris', ', France"}')
    answer(child, "5678xyz")
    child.completed()
    run.imports(1, child, 1)
    result.done(brief=True, private={"content": [*CONTENT, {"type": "text", "text": ANSWER}]})
    answer(run, "1234xyz")
    run.completed()

    inner = mended(FINAL)["output"]
    for item in inner:
        item["id"] = item["id"].replace("1234xyz", "5678xyz")
        if "call_id" in item:
            item["call_id"] = "call_5678xyz"
    view = trace.view()
    shown = [
        {**{name: value for name, value in item.items() if name != "content"}, **of_child}
        for item in inner
        for of_child in ({"task_id": "call_1234xyz"},)
    ]
    assert view["output"][2]["block_list"] == shown
    assert [item["type"] for item in view["output"]] == [
        "reasoning",
        "tool_call",
        "tool_result",
        "message",
    ]
    assert view["output"][0]["summary"][1]["text"] == "Decided to call ask_for_help function."
    assert view["output"][1]["arguments"] == arguments
    assert view["imports"] == [
        {"reference_id": 1, "source_task_id": "call_1234xyz", "source_reference_id": 1}
    ]
    assert view["tasks"] == [
        {
            "task_id": "call_1234xyz",
            "status": "completed",
            "agent": "WeatherAgent",
            "parent_task_id": "task_1234xyz",
            "call_id": "call_1234xyz",
        }
    ]
    whole = trace.whole()
    assert whole["output"][2]["content"] == [*CONTENT, {"type": "text", "text": ANSWER}]
    assert whole["output"][2]["block_list"] == shown  # as a client sees it, here too
    assert whole["output"][3] == mended(FINAL)["output"][3]
    assert whole["tasks"][0]["output"] == inner  # with `content`


# The document prints the same lines for both examples, but for the task's id and the call's deltas.
PRINTED_REASONING = r"""
{"type":"task.output_item.added","task_id":"TASK","output_index":0,"item":{"type":"reasoning","id":"rs_1234xyz","summary":[]}}
{"type":"task.reasoning_summary_item.added","task_id":"TASK","item_id":"rs_1234xyz","output_index":0,"summary_index":0,"item":{"type":"text","text":""}}
{"type":"task.reasoning_summary_text.delta","task_id":"TASK","item_id":"rs_1234xyz","output_index":0,"summary_index":0,"delta":"Thinking about the weather "}
{"type":"task.reasoning_summary_text.delta","task_id":"TASK","item_id":"rs_1234xyz","output_index":0,"summary_index":0,"delta":"in Paris."}
{"type":"task.reasoning_summary_item.done","task_id":"TASK","item_id":"rs_1234xyz","output_index":0,"summary_index":0,"item":{"type":"text","text":"Thinking about the weather in Paris."}}
{"type":"task.reasoning_summary_item.added","task_id":"TASK","item_id":"rs_1234xyz","output_index":0,"summary_index":1,"item":{"type":"text","text":""}}
{"type":"task.reasoning_summary_text.delta","task_id":"TASK","item_id":"rs_1234xyz","output_index":0,"summary_index":1,"delta":"Decided to call "}
{"type":"task.reasoning_summary_text.delta","task_id":"TASK","item_id":"rs_1234xyz","output_index":0,"summary_index":1,"delta":"get_weather function."}
{"type":"task.reasoning_summary_item.done","task_id":"TASK","item_id":"rs_1234xyz","output_index":0,"summary_index":1,"item":{"type":"text","text":"Decided to call get_weather function."}}
{"type":"task.output_item.done","task_id":"TASK","output_index":0,"item":{"type":"reasoning","id":"rs_1234xyz","summary":[
{"type":"text","text":"Thinking about the weather in Paris."},
{"type":"text","text":"Decided to call get_weather function."}
]}}
"""  # noqa: E501

PRINTED_CALL = r"""
{"type":"task.output_item.added","task_id":"TASK","output_index":1,"item":{"type":"tool_call","id":"fc_1234xyz","call_id":"call_1234xyz","name":"get_weather","arguments":""}}
{"type":"task.tool_call_arguments.delta","task_id":"TASK","item_id":"fc_1234xyz","output_index":1,"delta":"{\""}
{"type":"task.tool_call_arguments.delta","task_id":"TASK","item_id":"fc_1234xyz","output_index":1,"delta":"location"}
{"type":"task.tool_call_arguments.delta","task_id":"TASK","item_id":"fc_1234xyz","output_index":1,"delta":"\":\""}
{"type":"task.tool_call_arguments.delta","task_id":"TASK","item_id":"fc_1234xyz","output_index":1,"delta":"Paris"}
{"type":"task.tool_call_arguments.delta","task_id":"TASK","item_id":"fc_1234xyz","output_index":1,"delta":","}
{"type":"task.tool_call_arguments.delta","task_id":"TASK","item_id":"fc_1234xyz","output_index":1,"delta":" France"}
{"type":"task.tool_call_arguments.delta","task_id":"TASK","item_id":"fc_1234xyz","output_index":1,"delta":"\"}"}
{"type":"task.tool_call_arguments.done","task_id":"TASK","item_id":"fc_1234xyz","output_index":1,"arguments":"{\"location\":\"Paris, France\"}"}
{"type":"task.output_item.done","task_id":"TASK","output_index":1,"item":{"type":"tool_call","id":"fc_1234xyz","call_id":"call_1234xyz","name":"get_weather","arguments":"{\"location\":\"Paris, France\"}"}}
"""  # noqa: E501

PRINTED_RESULT = r"""
{"type":"task.output_item.added","task_id":"TASK","output_index":2,"item":{"type":"tool_result","id":"fco_1234xyz","call_id":"call_1234xyz","block_list":[]}}
{"type":"task.text.done","task_id":"TASK","item_id":"fco_1234xyz","output_index":2,"block_index":0,"item":{"type":"text","text":"{\"temperature\":\"15C\",\"condition\":\"Sunny\"}","id":1}}
{"type":"task.image.added","task_id":"TASK","item_id":"fco_1234xyz","output_index":2,"block_index":1,"item":{"type":"image","image_url":{"url":""},"id":1}}
{"type":"task.image.done","task_id":"TASK","item_id":"fco_1234xyz","output_index":2,"block_index":1,"item":{"type":"image","image_url":{"url":"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA..."},"id":1}}
{"type":"task.image.added","task_id":"TASK","item_id":"fco_1234xyz","output_index":2,"block_index":1,"item":{"type":"image","image_url":{"url":""},"id":1}}
{"type":"task.image.delta","task_id":"TASK","item_id":"fco_1234xyz","output_index":2,"block_index":1,"partial_image_index":0,"item":{"type":"image","image_url":{"url":"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA..."},"id":1}}
{"type":"task.image.delta","task_id":"TASK","item_id":"fco_1234xyz","output_index":2,"block_index":1,"partial_image_index":1,"item":{"type":"image","image_url":{"url":"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA..."},"id":1}}
{"type":"task.image.done","task_id":"TASK","item_id":"fco_1234xyz","output_index":2,"block_index":1,"item":{"type":"image","image_url":{"url":"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA..."},"id":1}}
{"type":"task.output_item.done","task_id":"TASK","output_index":2,"item":{"type":"tool_result","id":"fco_1234xyz","call_id":"call_1234xyz","block_list":[
{"type":"text","text":"{\"temperature\":\"15C\",\"condition\":\"Sunny\"}","id":1},
{"type":"image","image_url":{"url":"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA..."},"id":1}
]}}
"""

PRINTED_MESSAGE = r"""
{"type":"task.output_item.added","task_id":"TASK","output_index":3,"item":{"type":"message","id":"msg_1234xyz","role":"assistant","block_list":[]}}
{"type":"task.text.done","task_id":"TASK","item_id":"msg_1234xyz","output_index":3,"block_index":0,"item":{"type":"text","text":"The weather in Paris is sunny with a temperature of 15C.[^1]","id":1,"annotations":[{"type":"reference_to_block","reference_id":1,"start_index":44,"end_index":47}]}}
{"type":"task.output_item.done","task_id":"TASK","output_index":3,"item":{"type":"message","id":"msg_1234xyz","role":"assistant","block_list":[{"type":"text","text":"The weather in Paris is sunny with a temperature of 15C.[^1]","id":1,"annotations":[{"type":"reference_to_block","reference_id":1,"start_index":44,"end_index":47}]}]}}
"""  # noqa: E501

PRINTED_CALL_OF_CHILD = r"""
{"type":"task.output_item.added","task_id":"TASK","output_index":1,"item":{"type":"tool_call","id":"fc_1234xyz","call_id":"call_1234xyz","name":"get_weather","arguments":""}}
{"type":"task.tool_call_arguments.delta","task_id":"TASK","item_id":"fc_1234xyz","output_index":1,"delta":"{\"location\":\"Paris"}
{"type":"task.tool_call_arguments.delta","task_id":"TASK","item_id":"fc_1234xyz","output_index":1,"delta":", France\"}"}
{"type":"task.tool_call_arguments.done","task_id":"TASK","item_id":"fc_1234xyz","output_index":1,"arguments":"{\"location\":\"Paris, France\"}"}
{"type":"task.output_item.done","task_id":"TASK","output_index":1,"item":{"type":"tool_call","id":"fc_1234xyz","call_id":"call_1234xyz","name":"get_weather","arguments":"{\"location\":\"Paris, France\"}"}}
"""  # noqa: E501

PRINTED = (PRINTED_REASONING, PRINTED_CALL, PRINTED_RESULT, PRINTED_MESSAGE)
PRINTED_OF_CHILD = (PRINTED_REASONING, PRINTED_CALL_OF_CHILD, PRINTED_RESULT, PRINTED_MESSAGE)


def as_folded(final: Dict) -> Dict:
    """The document's object without what its events do not carry, images by the events' name."""
    result = copy.deepcopy(final)
    for item in result["output"]:
        item.pop("content", None)
        for block in item.get("block_list", []):
            if block["type"] == "image_url":
                block["type"] = "image"
    return result


@story(legal=False, numbered=False)
def s0_as_printed(trace: Trace) -> None:
    """The first worked example as printed: no lifecycle, no numbers, one image sent thrice.

    The task is created silently and has no status. The second and third way of sending the image
    find its index taken. Offsets and the `id` on the message's block are shown as they came.
    """
    for lines in PRINTED:
        trace.lines(lines.replace("TASK", "task_1234xyz"))

    assert len(trace.events) == 32
    assert trace.view() == as_folded(FINAL)


@story(legal=False, numbered=False)
def s0_subagent_as_printed(trace: Trace) -> None:
    """The second worked example as printed: the child's own call has the parent's `call_id`.

    The stream opens with the parent's container at index 2. The child's first event finds it and
    creates the child in it. The child's own `tool_result` of the same call takes nothing away.
    """
    container = {"type": "tool_result", "id": "fco_1234xyz", "call_id": "call_1234xyz"}
    trace.put(
        {
            "type": "task.output_item.added",
            "task_id": "task_1234xyz",
            "output_index": 2,
            "item": {**container, "block_list": []},
        }
    )
    for lines in PRINTED_OF_CHILD:
        trace.lines(lines.replace("TASK", "call_1234xyz"))
    trace.put(
        {
            "type": "task.output_item.done",
            "task_id": "task_1234xyz",
            "output_index": 2,
            "item": {**container, "status": "completed"},
        }
    )

    inner = [{**item, "task_id": "call_1234xyz"} for item in as_folded(FINAL)["output"]]
    assert trace.view() == {
        "task_id": "task_1234xyz",
        "output": [{**container, "block_list": inner}],
        "tasks": [
            {
                "task_id": "call_1234xyz",
                "parent_task_id": "task_1234xyz",
                "call_id": "call_1234xyz",
            }
        ],
    }
