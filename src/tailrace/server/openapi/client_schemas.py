"""The bodies and answers of other APIs, as `GET /openapi.json` describes them.

A body that fits its schema may still be refused, for an unknown id or call, or for a key that was
used before.
"""

from __future__ import annotations

from typing import Any, get_args

from tailrace.core.codec import MAX_INTEGER
from tailrace.core.values import Json
from tailrace.ports.model import TOOL_CHOICES, Effort, Summary
from tailrace.runtime.model_calls.request_check import TOOL_NAME
from tailrace.server.openapi.schemas import AGENT, ANY, COMMON, ID, MODEL_AGENT, NO_NUL, OBJECT
from tailrace.server.request_fields import ITEM_TYPES, TEXT_PARTS


def _or_null(*choices: Json) -> Json:
    """Any of these, or null. A `type` that also allows null is the plainer schema, if it can."""
    if len(choices) == 1 and isinstance(choices[0].get("type"), str):
        return {**choices[0], "type": [choices[0]["type"], "null"]}
    return {"anyOf": [*choices, {"type": "null"}]}


def _object(required: dict[str, Json] | None = None, **others: Json) -> Json:
    """An object with these properties, and any others."""
    required = required or {}
    return {
        "type": "object",
        **({"required": list(required)} if required else {}),
        "properties": {**required, **others},
        "propertyNames": {"pattern": NO_NUL},
        "additionalProperties": ANY,
    }


def _list(items: Json, **limits: Any) -> Json:
    return {"type": "array", "items": items, **limits}


def _number(least: int, most: int) -> Json:
    return _or_null({"type": "number", "minimum": least, "maximum": most})


def _count(least: int = 1) -> Json:
    return _or_null({"type": "integer", "minimum": least, "maximum": MAX_INTEGER})


def _words(*words: str) -> Json:
    return {"enum": [*words, None]}


_STRING: Json = {"type": "string", "pattern": NO_NUL}
_TEXT = _or_null(_STRING)
_FLAG: Json = {"type": ["boolean", "null"]}
_PARTS = _list(
    {
        **_object({"type": _STRING}),
        "if": {"properties": {"type": {"enum": [*TEXT_PARTS]}}},
        "then": {"required": ["text"], "properties": {"text": _STRING}},
    }
)
_CONTENT: Json = {**_STRING, **_PARTS, "type": ["string", "array"]}
_EFFORT = _words(*get_args(Effort))


def _message(*roles: str, **others: Json) -> Json:
    return _object({"role": {"enum": list(roles)}, "content": _CONTENT}, **others)


def _type(value: str) -> Json:
    return {"properties": {"type": {"const": value}}, "required": ["type"]}


_METADATA = _or_null(
    {
        "type": "object",
        "maxProperties": 16,
        "propertyNames": {"pattern": NO_NUL, "maxLength": 64},
        "additionalProperties": {**_STRING, "maxLength": 512},
    }
)
_TOOL_NAME: Json = {"type": "string", "pattern": f"^{TOOL_NAME}$"}
_FUNCTION = _object({"type": {"const": "function"}, "name": _TOOL_NAME})
_CHOSEN = _object({"type": {"const": "function"}, "name": _STRING})
_OTHER_TOOL: Json = {**_object(type=ANY), "not": _type("function")}
_SHAPE = [
    _object({"type": {"enum": ["text", "json_object"]}}),
    _object({"type": {"const": "json_schema"}, "schema": OBJECT}),
]
_WORD: Json = {"enum": list(TOOL_CHOICES)}
_PROVIDERS_CHOICE = {
    **_object(type=ANY),
    "not": {"anyOf": [_type("function"), _type("allowed_tools")]},
}
_ALLOWED = {"tools": _list(OBJECT)}
_CHOICE = _or_null(
    _WORD, _CHOSEN, _object({"type": {"const": "allowed_tools"}, **_ALLOWED}), _PROVIDERS_CHOICE
)
_SAMPLING: dict[str, Json] = {
    "frequency_penalty": _number(-MAX_INTEGER, MAX_INTEGER),
    "metadata": _METADATA,
    "parallel_tool_calls": _FLAG,
    "presence_penalty": _number(-MAX_INTEGER, MAX_INTEGER),
    "prompt_cache_key": _TEXT,
    "safety_identifier": _TEXT,
    "service_tier": _TEXT,
    "store": _FLAG,
    "stream": _FLAG,
    "temperature": _number(0, 2),
    "top_logprobs": _count(-MAX_INTEGER),
    "top_p": _number(0, 1),
    "user": _TEXT,
}
_OPTIONS: dict[str, Json] = {
    **_SAMPLING,
    "background": _FLAG,
    "conversation": {"type": "null"},
    "include": _or_null(_list(_STRING)),
    "instructions": _TEXT,
    "max_output_tokens": _count(),
    "max_tool_calls": _count(),
    "previous_response_id": _or_null(ID),
    "prompt": {"type": "null"},
    "reasoning": _or_null(_object(effort=_EFFORT, summary=_words(*get_args(Summary)))),
    "text": _or_null(_object(format=_or_null(*_SHAPE))),
    "tool_choice": _CHOICE,
    "tools": _or_null(_list({"anyOf": [_FUNCTION, _OTHER_TOOL]})),
    "truncation": _words("auto", "disabled"),
}
_ANSWERS = ("custom_tool_call_output", "function_call_output", "mcp_approval_response")
_ITEM: Json = {
    # Not in the schema: what is valid there depends on the rest of the conversation.
    "description": f"After the call that it answers, also an item of type {', '.join(_ANSWERS)}.",
    "anyOf": [
        _message("user", "assistant", "system", "developer", type=_words("message")),
        _object({"type": {"enum": sorted(ITEM_TYPES - {"message", *_ANSWERS})}}),
        {
            **_object({"id": _STRING}),
            "not": {"anyOf": [{"required": ["type"]}, {"required": ["role"]}]},
        },
    ],
}
_INPUT: Json = {**_STRING, **_list(_ITEM, minItems=1), "type": ["string", "array"]}

RESPONSE_REQUEST = _object({"model": AGENT, "input": _INPUT}, **_OPTIONS)
COMPACT_REQUEST: Json = {
    "anyOf": [
        _object({"model": MODEL_AGENT, "input": _INPUT}, **_OPTIONS),
        _object(
            {"model": MODEL_AGENT, "previous_response_id": ID},
            **{**_OPTIONS, "input": {"type": "null"}, "previous_response_id": ID},
        ),
    ]
}
_TOOL_CALLS = _or_null(_list(OBJECT))
COMPLETION_REQUEST = _object(
    {
        "model": AGENT,
        "messages": _list(
            {
                "anyOf": [
                    _message("user", "assistant", "system", "developer", tool_calls=_TOOL_CALLS),
                    _message("tool", tool_call_id=_TEXT),
                    _object(
                        {"role": {"const": "assistant"}},
                        content={"type": "null"},
                        tool_calls=_TOOL_CALLS,
                    ),
                ]
            },
            minItems=1,
        ),
    },
    **_SAMPLING,
    function_call={"type": "null"},
    functions={"type": "null"},
    max_completion_tokens=_count(),
    max_tokens=_count(),
    n={"enum": [1, None]},
    reasoning_effort=_EFFORT,
    response_format=_or_null(
        _SHAPE[0],
        _object({"type": {"const": "json_schema"}, "json_schema": _object({"schema": OBJECT})}),
    ),
    stream_options={**COMMON["Object"], "type": ["object", "null"]},
    tool_choice=_or_null(
        _WORD,
        _object({"type": {"const": "function"}, "function": _object({"name": _STRING})}),
        _object({"type": {"const": "allowed_tools"}, "allowed_tools": _object(_ALLOWED)}),
        _PROVIDERS_CHOICE,
    ),
    tools=_or_null(
        _list(
            {
                "anyOf": [
                    _object(
                        {"type": {"const": "function"}, "function": _object({"name": _TOOL_NAME})}
                    ),
                    _OTHER_TOOL,
                ]
            }
        )
    ),
)
_SYSTEM: Json = {**_STRING, **_list(OBJECT), "type": ["string", "array", "null"]}
_ANTHROPIC_MESSAGES = _list(
    {
        "anyOf": [
            _message("user", "assistant", "system"),
            _object({"role": {"const": "assistant"}}, content={"type": "null"}),
        ]
    },
    minItems=1,
)
COUNT_REQUEST = _object(
    {"model": AGENT, "messages": _ANTHROPIC_MESSAGES},
    system=_SYSTEM,
    tools=_or_null(_list(OBJECT)),
)
MESSAGE_REQUEST = _object(
    {"model": AGENT, "messages": _ANTHROPIC_MESSAGES},
    max_tokens=_count(),
    metadata=_or_null(_object(user_id=_TEXT)),
    output_config=_or_null(_object(effort=_EFFORT, format=_or_null(*_SHAPE))),
    stream=_FLAG,
    system=_SYSTEM,
    temperature=_number(0, 2),
    thread=_or_null(
        {"type": "object", "maxProperties": 0},
        _object({"type": {"const": "create"}}),
        _object({"type": {"const": "continue"}, "previous_message_id": _STRING}),
    ),
    tool_choice=_or_null(
        {"type": "object", "maxProperties": 0},
        _object({"type": {"enum": ["auto", "any", "none"]}}),
        _object({"type": {"const": "tool"}, "name": _STRING}),
    ),
    tools=_or_null(
        _list(
            {
                "anyOf": [
                    _object({"name": _TOOL_NAME}, type=_words("custom")),
                    {
                        **_object({"type": _STRING}),
                        "not": _type("custom"),
                    },
                ]
            }
        )
    ),
    top_p=_number(0, 1),
)
_CHAT_ROLE: Json = {"enum": ["user", "assistant", "system"]}
_CHAT_MESSAGE: Json = {
    "anyOf": [
        _object({"role": _CHAT_ROLE, "parts": _PARTS}),
        _object({"role": _CHAT_ROLE, "content": _CONTENT}, parts={"type": "null"}),
    ]
}
_CHAT_FIELDS: Json = {
    "agent": {"anyOf": [AGENT, {"type": "null"}]},
    "options": {"type": ["object", "null"]},
    "metadata": {"type": ["object", "null"]},
}
CHAT_REQUEST: Json = {
    "anyOf": [
        _object({"id": ID, "messages": _list(_CHAT_MESSAGE, minItems=1)}, **_CHAT_FIELDS),
        _object({"id": ID, "message": _CHAT_MESSAGE}, messages={"type": "null"}, **_CHAT_FIELDS),
    ]
}
_AG_UI_PART: Json = {
    "anyOf": [
        _object({"type": {"const": "text"}, "text": _STRING}),
        _object({"type": _STRING, "url": _STRING}),
        _object(
            {
                "type": _STRING,
                "source": _object({"type": {"enum": ["url", "data"]}, "value": _STRING}),
            }
        ),
    ]
}
_AG_UI_CONTENT: Json = {**_STRING, **_list(_AG_UI_PART), "type": ["string", "array", "null"]}
_AG_UI_MESSAGE: Json = {
    "anyOf": [
        _object(
            {"role": {"enum": ["user", "assistant", "system", "developer", "reasoning"]}},
            content=_AG_UI_CONTENT,
        ),
        _object({"role": {"const": "tool"}, "toolCallId": _STRING}, content=_AG_UI_CONTENT),
        _object({"role": {"const": "activity"}}),
    ]
}
_AG_UI_ASIDE: Json = {
    "anyOf": [
        {"properties": {"role": {"enum": ["reasoning", "activity"]}}, "required": ["role"]},
        {"required": ["subagentRunId"]},
    ]
}
"""A message that is not for the model."""
_RESUME = _object({"interruptId": _STRING, "status": {"enum": ["resolved", "cancelled"]}})
AG_UI_REQUEST: Json = {
    "anyOf": [
        _object(
            {
                "threadId": ID,
                "runId": ID,
                "messages": _list(_AG_UI_MESSAGE, contains={"not": _AG_UI_ASIDE}),
            },
            resume=_or_null(_list(_RESUME)),
        ),
        _object(
            {
                "threadId": ID,
                "runId": ID,
                "messages": _list(_AG_UI_MESSAGE),
                "resume": _list(_RESUME, minItems=1),
            }
        ),
    ]
}


def _answer(**properties: Json) -> Json:
    return {"type": "object", "required": list(properties), "properties": properties}


RESPONSE = _answer(
    id={"type": "string"},
    object={"const": "response"},
    status={"type": "string"},
    output={"type": "array", "items": {"type": "object"}},
)
COMPLETION = _answer(
    id={"type": "string"},
    object={"const": "chat.completion"},
    choices={"type": "array", "items": {"type": "object"}},
)
MESSAGE = _answer(
    id={"type": "string"},
    type={"const": "message"},
    role={"const": "assistant"},
    content={"type": "array", "items": {"type": "object"}},
)
LISTED = _answer(
    object={"const": "list"},
    data={"type": "array", "items": {"type": "object"}},
    has_more={"type": "boolean"},
)
MODEL = _answer(id={"type": "string"}, object={"const": "model"})
