"""What OpenAI's tools are asked and what they give: functions, custom tools, built-in ones.

`openai_calls` writes their calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tailrace.core.items import Block, Data, Image, ImageUrl, Text
from tailrace.ingest.openai_parts import Json
from tailrace.ingest.openai_values import as_dict, as_text, dicts, image_url, is_json

_HOSTED = "container_reference"
"""Where a shell is the provider's."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """How one of OpenAI's call items reads."""

    kind: str
    name: str | None = None
    """Its name, if the item has none."""
    arguments: str = ""
    """The field whose text streams as arguments."""
    asked: Callable[[Json], Any] | None = None
    """What was asked for, where nothing streams."""
    is_json: bool = True
    results: Callable[[Json], Iterable[Block]] | None = None
    """What the provider's run of it gave; None: the provider does not run it."""


def _web_query(item: Json) -> Any:
    action = {name: one for name, one in as_dict(item.get("action")).items() if name != "sources"}
    text = as_text(item.get("arguments"))  # xAI's way
    if action or not text:
        return action
    return msgspec.Raw(text.encode()) if is_json(text) else {"arguments": text}


def _web_sources(item: Json) -> Iterable[Block]:
    sources = as_dict(item.get("action")).get("sources")
    results = item.get("results")
    for name, found in (("sources", sources), ("results", results)):
        if found:
            yield Data(name=name, data=found)


def _queries(item: Json) -> Any:
    return {"queries": item.get("queries") or []}


def _found_in_files(item: Json) -> Iterable[Block]:
    for result in dicts(item.get("results")):
        yield Data(name="file_search_result", data=result)


def _code_outputs(item: Json) -> Iterable[Block]:
    for output in dicts(item.get("outputs")):
        logs, url = as_text(output.get("logs")), as_text(output.get("url"))
        if output.get("type") == "logs" and logs is not None:
            yield Text(text=logs)
        elif output.get("type") == "image" and url:
            yield Image(image_url=ImageUrl(url=url))
        else:
            yield Data(name="code_interpreter_output", data=output)


def _prompt(item: Json) -> Any:
    prompt = as_text(item.get("revised_prompt")) or as_text(item.get("prompt"))
    return {"prompt": prompt} if prompt else {}


def _image(item: Json) -> Iterable[Block]:
    url = image_url(item.get("result"), item.get("output_format"))
    if url is not None:
        yield Image(image_url=ImageUrl(url=url))


def _mcp_output(item: Json) -> Iterable[Block]:
    output = item.get("output")
    if isinstance(output, str):
        yield Text(text=output)
    elif output is not None:
        yield Data(name="output", data=output)


def _action(item: Json) -> Any:
    return as_dict(item.get("action"))


def _operation(item: Json) -> Any:
    return as_dict(item.get("operation"))


def _actions(item: Json) -> Any:
    """One action, or several at once."""
    several = item.get("actions")
    return {"actions": several} if isinstance(several, list) else _action(item)


def _mcp_tools(item: Json) -> Iterable[Block]:
    if item.get("tools"):
        yield Data(name="tools", data=item["tools"])


TOOLS: dict[str, Tool] = {
    "function_call": Tool(kind="function", arguments="arguments"),
    "custom_tool_call": Tool(kind="custom", arguments="input", is_json=False),
    "mcp_call": Tool(kind="mcp", arguments="arguments", results=_mcp_output),
    "mcp_approval_request": Tool(kind="mcp_approval_request", arguments="arguments"),
    "mcp_list_tools": Tool(
        kind="mcp_list_tools", name="list_tools", asked=lambda _: {}, results=_mcp_tools
    ),
    "web_search_call": Tool(
        kind="web_search", name="web_search", asked=_web_query, results=_web_sources
    ),
    "file_search_call": Tool(
        kind="file_search", name="file_search", asked=_queries, results=_found_in_files
    ),
    "code_interpreter_call": Tool(
        kind="code_interpreter",
        name="code_interpreter",
        arguments="code",
        is_json=False,
        results=_code_outputs,
    ),
    "image_generation_call": Tool(
        kind="image_generation", name="image_generation", asked=_prompt, results=_image
    ),
    "shell_call": Tool(kind="shell", name="shell", asked=_action),
    "local_shell_call": Tool(kind="local_shell", name="local_shell", asked=_action),
    "apply_patch_call": Tool(kind="apply_patch", name="apply_patch", asked=_operation),
    "computer_call": Tool(kind="computer", name="computer", asked=_actions),
}
"""The items that are calls; all others of OpenAI's are kept raw. Those of a shell, a patch or a
computer are for us to carry out: history gives what came of them back in a form of their own."""


def is_call(item_type: str, item: Json) -> bool:
    """Whether an item is a call; one that the provider's own shell runs is kept as it is."""
    place = as_dict(item.get("environment")).get("type")
    return item_type in TOOLS and not (item_type == "shell_call" and place == _HOSTED)
